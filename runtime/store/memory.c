/* memory.c - engine `memory`: rows in a skip list.
 * Threads: any; operations complete on the submitter's thread, outside the lock. */
#include "store/engine.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/hash.h"

enum { LEVELS = 20 };

/* A row; its table, key and value are stored after next[]. A write replaces the node. */
typedef struct node {
    teffi_row row;
    unsigned height;
    struct node *next[];
} node;

typedef struct memory {
    teffi_store base;
    pthread_mutex_t lock; /* a leaf: not held while done() runs */
    pthread_cond_t idle;
    /* guarded by lock */
    node *head[LEVELS];    /* ordered by (table, key) */
    node **before[LEVELS]; /* of seek_node(): on each level, the link to the first node not less */
    uint64_t etag;         /* the last one assigned; one counter for all rows, so it only rises */
    size_t running;        /* operations between submit and the end of done() */
    bool closed;
} memory;

/* out: the first node that is not less than row; NULL: none. Sets mem->before[l] to the link to
 * the first such node on level l, for all levels. */
static node *seek_node(memory *mem, const teffi_row *row)
{
    node **links = mem->head;
    for (int l = LEVELS - 1; l >= 0; l--) {
        while (links[l] && teffi_row_cmp(&links[l]->row, row) < 0)
            links = links[l]->next;
        mem->before[l] = &links[l];
    }
    return *mem->before[0];
}

/* out: the row's node; NULL: none. Sets mem->before as seek_node() does. */
static node *find_node(memory *mem, const teffi_row *row)
{
    node *n = seek_node(mem, row);
    return n && teffi_row_cmp(&n->row, row) == 0 ? n : NULL;
}

/* out: the height of a new node: 1 for half of the nodes, 2 for a quarter, and so on. Derived from
 * the etag, so that runs are reproducible. */
static unsigned choose_height(uint64_t etag)
{
    return 1 + (unsigned)__builtin_ctzll(teffi_mix64(etag) | UINT64_C(1) << (LEVELS - 1));
}

/* Copies n bytes to *at and advances it. out: the copy. */
static const void *append_bytes(char **at, const void *data, size_t n)
{
    char *start = *at;
    if (n)
        memcpy(start, data, n);
    *at += n;
    return start;
}

/* out: a node with a copy of the row; NULL: no memory. */
static node *node_new(const teffi_row *row, uint64_t etag)
{
    unsigned height = choose_height(etag);
    size_t links = height * sizeof(node *);
    size_t table = strlen(row->table) + 1;
    node *n = malloc(sizeof *n + links + table + row->key.len + row->value.len);
    if (!n)
        return NULL;
    char *at = (char *)n->next + links;
    n->height = height;
    n->row = (teffi_row){.etag = etag, .key.len = row->key.len, .value.len = row->value.len};
    n->row.table = append_bytes(&at, row->table, table);
    n->row.key.data = append_bytes(&at, row->key.data, row->key.len);
    n->row.value.data = append_bytes(&at, row->value.data, row->value.len);
    return n;
}

/* Removes the row's old node, if there is one, then inserts the node `fresh`, unless `fresh`
 * is NULL. out: row->etag: the etag of `fresh`; 0 if `fresh` is NULL. */
static void replace_row(memory *mem, teffi_row *row, node *fresh)
{
    node *old = find_node(mem, row);
    for (unsigned l = 0; old && l < old->height; l++)
        *mem->before[l] = old->next[l];
    free(old);
    for (unsigned l = 0; fresh && l < fresh->height; l++) {
        fresh->next[l] = *mem->before[l];
        *mem->before[l] = fresh;
    }
    row->etag = fresh ? fresh->row.etag : 0;
}

static bool batch_etags_match(memory *mem, const teffi_store_op *op)
{
    for (size_t i = 0; i < op->n_rows; i++) {
        const node *n = find_node(mem, &op->rows[i]);
        if (!op->rows[i].any && op->rows[i].etag != (n ? n->row.etag : 0))
            return false;
    }
    return true;
}

/* Writes all rows, or none: allocates all nodes before it inserts the first one. */
static void write_batch(memory *mem, teffi_store_op *op)
{
    node *fresh[TEFFI_STORE_BATCH_MAX];
    if (!batch_etags_match(mem, op)) {
        op->err = TEFF_E_CONFLICT;
        return;
    }
    for (size_t i = 0; i < op->n_rows; i++) {
        bool writes = !op->rows[i].remove && !op->rows[i].check;
        fresh[i] = writes ? node_new(&op->rows[i], ++mem->etag) : NULL;
        if (!fresh[i] && writes) {
            teffi_store_op_set_error(op, TEFF_E_NOMEM, "memory: out of memory");
            while (i-- > 0)
                free(fresh[i]);
            return;
        }
    }
    for (size_t i = 0; i < op->n_rows; i++)
        if (!op->rows[i].check)
            replace_row(mem, &op->rows[i], fresh[i]);
}

static void read_value(memory *mem, teffi_store_op *op)
{
    static const teffi_row none;
    const node *n = find_node(mem, &op->rows[0]);
    teffi_store_set_read_result(op, n ? &n->row : &none);
}

/* Does the row of node n belong to the result of the scan op? in: n: may be NULL. from: the row
 * where the scan starts. It was submitted as op->rows, which may now point to the rows found.
 * out: false also if op has reached its limit of rows. */
static bool scan_includes_node(const teffi_store_op *op, const teffi_row *from, const node *n)
{
    return n && op->n_found < op->limit && strcmp(n->row.table, from->table) == 0 &&
           (op->to.len == 0 || teffi_bytes_cmp(n->row.key, op->to) < 0);
}

static void scan_rows(memory *mem, teffi_store_op *op)
{
    teffi_row *from = op->rows;
    const node *n = seek_node(mem, from);
    while (scan_includes_node(op, from, n) && teffi_store_add_found_row(op, from, &n->row))
        n = n->next[0];
}

static void run_op(memory *mem, teffi_store_op *op)
{
    if (mem->closed)
        teffi_store_op_set_error(op, TEFF_E_CLOSED, "memory: the store is closed");
    else if (op->kind == TEFFI_STORE_READ)
        read_value(mem, op);
    else if (op->kind == TEFFI_STORE_SCAN)
        scan_rows(mem, op);
    else
        write_batch(mem, op);
}

static void memory_submit(teffi_store *store, teffi_store_op *op)
{
    memory *mem = (memory *)store;
    pthread_mutex_lock(&mem->lock);
    mem->running++;
    run_op(mem, op);
    pthread_mutex_unlock(&mem->lock);
    op->done(op);
    pthread_mutex_lock(&mem->lock);
    if (--mem->running == 0)
        pthread_cond_broadcast(&mem->idle);
    pthread_mutex_unlock(&mem->lock);
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
    pthread_cond_destroy(&mem->idle);
    pthread_mutex_destroy(&mem->lock);
    free(mem);
}

teff_err teffi_memory_open(const char *rest, teffi_store **store, char *text)
{
    (void)rest;
    static const teffi_store_ops ops = {
        .submit = memory_submit,
        .close = memory_close,
        .free = memory_free,
    };
    memory *mem = calloc(1, sizeof *mem);
    if (!mem)
        return teffi_fail(text, TEFF_E_NOMEM, "store: out of memory");
    mem->base.ops = &ops;
    pthread_mutex_init(&mem->lock, NULL);
    pthread_cond_init(&mem->idle, NULL);
    *store = &mem->base;
    return TEFF_OK;
}
