/* lock.c - the list of published methods, and the check that they keep their ids. */
#include "lock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The methods of a file's grains, sorted by name. */
typedef struct method_list {
    const teffi_method **methods;
    size_t n;
} method_list;

static int compare_full_names(const void *a, const void *b)
{
    return strcmp((*(const teffi_method *const *)a)->full, (*(const teffi_method *const *)b)->full);
}

static method_list list_methods(teffi_pool *pool, const teffi_file *file)
{
    method_list list = {NULL, 0};
    for (size_t i = 0; i < file->n_services; i++)
        list.n += file->services[i].n_methods;
    list.methods = teffi_pool_alloc(pool, (list.n + 1) * sizeof *list.methods);
    list.n = 0;
    for (size_t i = 0; i < file->n_services; i++)
        for (size_t k = 0; file->services[i].grain && k < file->services[i].n_methods; k++)
            list.methods[list.n++] = &file->services[i].methods[k];
    qsort(list.methods, list.n, sizeof *list.methods, compare_full_names);
    return list;
}

static const teffi_method *find_listed_method(const method_list *list, const char *full)
{
    const teffi_method key = {.full = full};
    const teffi_method *wanted = &key;
    const teffi_method **found =
        bsearch(&wanted, list->methods, list->n, sizeof *list->methods, compare_full_names);
    return found ? *found : NULL;
}

/* Cuts "name 0x1234abcd" behind the name. out: the id; 0: the line is none of a lock. */
static uint32_t parse_line(char *line)
{
    char *space = strchr(line, ' ');
    if (!space || space == line || strncmp(space, " 0x", 3) != 0 || strlen(space) != 11 ||
        strspn(space + 3, "0123456789abcdef") != 8)
        return 0;
    *space = '\0';
    return (uint32_t)strtoul(space + 3, NULL, 16);
}

static void check_line(teffi_model *model, const teffi_file *file, const method_list *list,
                       char *line, const char *where)
{
    uint32_t id = parse_line(line);
    const teffi_method *m = find_listed_method(list, line);
    if (id == 0) {
        teffi_problem_at(model, where,
                         "not a line of a lock, expected as in: words.Word.Add 0x1234abcd");
    } else if (!m) {
        teffi_problem_at(model, where,
                         "method %s is not in %s any more, expected every method once published",
                         line, file->name);
    } else if (m->id != id) {
        teffi_problem(model, file, &m->path,
                      "%s has the id 0x%08" PRIx32 ", expected 0x%08" PRIx32 " as in %s", m->full,
                      m->id, id, where);
    }
}

void teffi_lock_check(teffi_model *model, const teffi_file *file, const char *lock_name,
                      const char *lock)
{
    const method_list list = list_methods(model->pool, file);
    char *rest = teffi_pool_printf(model->pool, "%s", lock);
    char *line;
    for (int number = 1; (line = strsep(&rest, "\n")) != NULL; number++) {
        if (*line != '\0' && *line != '#') {
            check_line(model, file, &list, line,
                       teffi_pool_printf(model->pool, "%s:%d", lock_name, number));
        }
    }
}

void teffi_lock_emit(teffi_text *out, const teffi_file *file)
{
    const method_list list = list_methods(out->pool, file);
    teffi_text_printf(
        out,
        "# The methods of %s and their ids, by protoc-gen-teff. Commit this file and\n"
        "# pass it as lock=FILE: removing or renumbering a method is then an error.\n",
        file->name);
    for (size_t i = 0; i < list.n; i++) {
        teffi_text_printf(out, "%s 0x%08" PRIx32 "\n", list.methods[i]->full, list.methods[i]->id);
    }
}
