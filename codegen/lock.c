/* lock.c - methods once published stay: the committed list, and the check against it.
 * Way:     codegen -> [lock] -> problems, or one more file
 * A line is "words.Word.Add 0x1234abcd"; blank lines and lines with # do not count. */
#include "lock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One line of a lock. */
typedef struct lock_line {
    const char *file;
    int number;
    char *name;
    uint32_t id;
} lock_line;

static void lock_problem(teffi_model *model, const lock_line *line, const char *what)
{
    model->n_problems++;
    if (model->n_problems <= TEFFI_PROBLEMS_MAX) {
        teffi_text_printf(&model->problems, "%s%s:%d: %s", model->n_problems > 1 ? "\n" : "",
                          line->file, line->number, what);
    }
}

/* "name 0x1234abcd" in place; false when the line is not one. */
static bool parse_line(char *text, lock_line *line)
{
    char *space = strchr(text, ' ');
    char *end;
    unsigned long id;

    if (space == NULL || space == text || strncmp(space, " 0x", 3) != 0 || strlen(space) != 11 ||
        strspn(space + 3, "0123456789abcdef") != 8) {
        return false;
    }
    id = strtoul(space + 3, &end, 16);
    *space = '\0';
    line->name = text;
    line->id = (uint32_t)id;
    return *end == '\0' && id != 0;
}

static void check_line(teffi_model *model, const teffi_file *file, const teffi_map *methods,
                       const lock_line *line)
{
    const teffi_method *m = teffi_map_get(methods, line->name);

    if (m == NULL) {
        lock_problem(model, line,
                     teffi_pool_printf(model->pool,
                                       "method %s is not in %s any more, expected every method "
                                       "once published",
                                       line->name, file->name));
    } else if (m->id != line->id) {
        teffi_problem(model, file, &m->path,
                      "%s has the id 0x%08" PRIx32 ", expected 0x%08" PRIx32 " as in %s:%d",
                      m->full, m->id, line->id, line->file, line->number);
    }
}

static teffi_map methods_of(teffi_pool *pool, const teffi_file *file)
{
    teffi_map methods = {.pool = pool};

    for (size_t i = 0; i < file->n_services; i++) {
        const teffi_service *s = &file->services[i];

        for (size_t k = 0; s->grain && k < s->n_methods; k++) {
            teffi_map_put(&methods, s->methods[k].full, &s->methods[k]);
        }
    }
    return methods;
}

void teffi_lock_check(teffi_model *model, const teffi_file *file, const char *lock_name,
                      const char *lock)
{
    teffi_map methods = methods_of(model->pool, file);
    lock_line line = {.file = lock_name};
    char *text = teffi_pool_printf(model->pool, "%s", lock);
    char *next;

    for (; text != NULL; text = next) {
        next = strchr(text, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        line.number++;
        if (*text == '\0' || *text == '#') {
            continue;
        }
        if (parse_line(text, &line)) {
            check_line(model, file, &methods, &line);
        } else {
            lock_problem(model, &line,
                         "not a line of a lock, expected as in: words.Word.Add 0x1234abcd");
        }
    }
}

static int by_name(const void *a, const void *b)
{
    const teffi_method *const *x = a;
    const teffi_method *const *y = b;

    return strcmp((*x)->full, (*y)->full);
}

void teffi_lock_emit(teffi_text *out, const teffi_file *file)
{
    const teffi_method **all;
    size_t n = 0;

    for (size_t i = 0; i < file->n_services; i++) {
        n += file->services[i].grain ? file->services[i].n_methods : 0;
    }
    all = teffi_pool_alloc(out->pool, (n + 1) * sizeof *all);
    n = 0;
    for (size_t i = 0; i < file->n_services; i++) {
        for (size_t k = 0; file->services[i].grain && k < file->services[i].n_methods; k++) {
            all[n++] = &file->services[i].methods[k];
        }
    }
    qsort(all, n, sizeof *all, by_name);
    teffi_text_printf(
        out,
        "# The methods of %s and their ids, by protoc-gen-teff. Commit this file and\n"
        "# pass it as lock=FILE: removing or renumbering a method is then an error.\n",
        file->name);
    for (size_t i = 0; i < n; i++) {
        teffi_text_printf(out, "%s 0x%08" PRIx32 "\n", all[i]->full, all[i]->id);
    }
}
