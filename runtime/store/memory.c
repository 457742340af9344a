/* memory.c - engine `memory`: rows in a skip list, gone with the process; for tests and trying out.
 * Way:     store/store -> [memory]
 * Threads: any; completes inline, on the submitter's thread, outside the lock. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "store/engine.h"
#include "store/watch.h"

enum { LEVELS = 20 };

/* A row; its table, key and value lie behind the links. A write replaces the node. */
typedef struct node {
    teffi_row row;
    unsigned height;
    struct node *next[];
} node;

typedef struct memory {
    teffi_store base;
    teffi_watch watch;
    pthread_mutex_t lock; /* before nothing: hints and done() run outside of it */
    pthread_cond_t idle;
    /* guarded by lock */
    node *head[LEVELS]; /* ordered by (table, key) */
    uint64_t etag;      /* the last one given: one counter for all rows, so etags never go back */
    size_t running;     /* operations between submit and the end of done() */
    bool closed;
} memory;

static int row_cmp(const teffi_row *a, const teffi_row *b)
{
    int order = strcmp(a->table, b->table);
    return order ? order : teffi_bytes_cmp(a->key, b->key);
}

/* The first node not below row; before[l] gets level l's link that leads there or past it. */
static node *seek(memory *mem, const teffi_row *row, node **before[LEVELS])
{
    node **links = mem->head;
    for (int l = LEVELS - 1; l >= 0; l--) {
        while (links[l] && row_cmp(&links[l]->row, row) < 0)
            links = links[l]->next;
        before[l] = &links[l];
    }
    return *before[0];
}

static node *find(memory *mem, const teffi_row *row, node **before[LEVELS])
{
    node *n = seek(mem, row, before);
    return n && row_cmp(&n->row, row) == 0 ? n : NULL;
}

/* Half of the nodes are of height 1, a quarter of 2, ..; drawn from the etag, so runs repeat. */
static unsigned height_of(uint64_t etag)
{
    return 1 + (unsigned)__builtin_ctzll(teffi_mix64(etag) | UINT64_C(1) << (LEVELS - 1));
}

static const void *put(char **at, const void *data, size_t n)
{
    char *start = *at;
    if (n)
        memcpy(start, data, n);
    *at += n;
    return start;
}

static node *make(const teffi_row *row, uint64_t etag)
{
    unsigned height = height_of(etag);
    size_t links = height * sizeof(node *);
    size_t table = strlen(row->table) + 1;
    node *n = malloc(sizeof *n + links + table + row->key.len + row->value.len);
    if (!n)
        return NULL;
    char *at = (char *)n->next + links;
    n->height = height;
    n->row = (teffi_row){.etag = etag, .key.len = row->key.len, .value.len = row->value.len};
    n->row.table = put(&at, row->table, table);
    n->row.key.data = put(&at, row->key.data, row->key.len);
    n->row.value.data = put(&at, row->value.data, row->value.len);
    return n;
}

static void unlink_node(node *n, node **before[LEVELS])
{
    for (unsigned l = 0; l < n->height; l++)
        *before[l] = n->next[l];
    free(n);
}

static void link_node(node *n, node **before[LEVELS])
{
    for (unsigned l = 0; l < n->height; l++) {
        n->next[l] = *before[l];
        *before[l] = n;
    }
}

/* Put fresh (NULL: nothing) where the row's node is or would be. */
static void replace(memory *mem, teffi_row *row, node *fresh)
{
    node **before[LEVELS];
    node *old = find(mem, row, before);
    if (old)
        unlink_node(old, before);
    if (fresh)
        link_node(fresh, before);
    row->etag = fresh ? fresh->row.etag : 0;
}

static bool etags_match(memory *mem, const teffi_store_op *op)
{
    node **before[LEVELS];
    for (size_t i = 0; i < op->n_rows; i++) {
        const node *n = find(mem, &op->rows[i], before);
        if (!op->rows[i].any && op->rows[i].etag != (n ? n->row.etag : 0))
            return false;
    }
    return true;
}

/* All nodes are made before the first is linked: a batch that runs out of memory wrote nothing. */
static void batch(memory *mem, teffi_store_op *op)
{
    node *fresh[TEFFI_STORE_BATCH_MAX];
    if (!etags_match(mem, op)) {
        op->err = TEFF_E_CONFLICT;
        return;
    }
    for (size_t i = 0; i < op->n_rows; i++) {
        fresh[i] = op->rows[i].remove ? NULL : make(&op->rows[i], ++mem->etag);
        if (!fresh[i] && !op->rows[i].remove) {
            teffi_store_fail(op, TEFF_E_NOMEM, "memory: out of memory");
            while (i-- > 0)
                free(fresh[i]);
            return;
        }
    }
    for (size_t i = 0; i < op->n_rows; i++)
        replace(mem, &op->rows[i], fresh[i]);
}

static void read_row(memory *mem, teffi_store_op *op)
{
    node **before[LEVELS];
    teffi_row *row = &op->rows[0];
    const node *n = find(mem, row, before);
    const void *copy = NULL;
    if (n && !(copy = teff_arena_copy(op->arena, n->row.value.data, n->row.value.len))) {
        teffi_store_fail(op, TEFF_E_NOMEM, "memory: a value of %zu bytes", n->row.value.len);
        return;
    }
    row->value = (teffi_bytes){copy, n ? n->row.value.len : 0};
    row->etag = n ? n->row.etag : 0;
}

static bool in_scan(const teffi_store_op *op, const teffi_row *from, const node *n)
{
    return n && op->n_found < op->limit && strcmp(n->row.table, from->table) == 0 &&
           (op->to.len == 0 || teffi_bytes_cmp(n->row.key, op->to) < 0);
}

static void scan(memory *mem, teffi_store_op *op)
{
    node **before[LEVELS];
    teffi_row *from = op->rows;
    const node *n = seek(mem, from, before);
    for (; in_scan(op, from, n); n = n->next[0])
        if (!teffi_store_found(op, from, &n->row)) {
            teffi_store_fail(op, TEFF_E_NOMEM, "memory: a scan of over %zu rows", op->n_found);
            op->rows = from;
            op->n_found = 0;
            return;
        }
}

static void run(memory *mem, teffi_store_op *op)
{
    if (mem->closed)
        teffi_store_fail(op, TEFF_E_CLOSED, "memory: the store is closed");
    else if (op->kind == TEFFI_STORE_READ)
        read_row(mem, op);
    else if (op->kind == TEFFI_STORE_SCAN)
        scan(mem, op);
    else
        batch(mem, op);
}

static void memory_submit(teffi_store *store, teffi_store_op *op)
{
    memory *mem = (memory *)store;
    pthread_mutex_lock(&mem->lock);
    mem->running++;
    run(mem, op);
    pthread_mutex_unlock(&mem->lock);
    if (op->err == TEFF_OK && (op->kind == TEFFI_STORE_WRITE || op->kind == TEFFI_STORE_BATCH))
        teffi_watch_rows(&mem->watch, op->rows, op->n_rows);
    op->done(op);
    pthread_mutex_lock(&mem->lock);
    if (--mem->running == 0)
        pthread_cond_broadcast(&mem->idle);
    pthread_mutex_unlock(&mem->lock);
}

static teff_err memory_watch(teffi_store *store, const char *table, teffi_store_hint *hint,
                             void *arg)
{
    memory *mem = (memory *)store;
    pthread_mutex_lock(&mem->lock);
    bool closed = mem->closed;
    pthread_mutex_unlock(&mem->lock);
    return closed && hint ? TEFF_E_CLOSED : teffi_watch_set(&mem->watch, table, hint, arg);
}

static void memory_close(teffi_store *store)
{
    memory *mem = (memory *)store;
    pthread_mutex_lock(&mem->lock);
    mem->closed = true;
    while (mem->running > 0)
        pthread_cond_wait(&mem->idle, &mem->lock);
    pthread_mutex_unlock(&mem->lock);
}

static void memory_free(teffi_store *store)
{
    memory *mem = (memory *)store;
    node *n = mem->head[0];
    while (n) {
        node *next = n->next[0];
        free(n);
        n = next;
    }
    teffi_watch_fini(&mem->watch);
    pthread_cond_destroy(&mem->idle);
    pthread_mutex_destroy(&mem->lock);
    free(mem);
}

teff_err teffi_memory_open(teffi_store **store)
{
    static const teffi_store_ops ops = {
        .name = "memory",
        .submit = memory_submit,
        .watch = memory_watch,
        .close = memory_close,
        .free = memory_free,
    };
    memory *mem = calloc(1, sizeof *mem);
    if (!mem)
        return TEFF_E_NOMEM;
    mem->base.ops = &ops;
    pthread_mutex_init(&mem->lock, NULL);
    pthread_cond_init(&mem->idle, NULL);
    teffi_watch_init(&mem->watch);
    *store = &mem->base;
    return TEFF_OK;
}
