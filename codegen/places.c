/* places.c - where is this thing in its file, and what does the comment at it say?
 * Way:     model, options, check -> [places] -> error lines; emit_header -> [places] -> comments */
#include "model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_MAX_LEN = 256 };

typedef Protoc__SourceInfo__Location location;

typedef struct flat_path {
    int32_t at[PATH_MAX_LEN];
    size_t n;
} flat_path;

static void flatten(const teffi_path *path, flat_path *flat)
{
    const teffi_path *p;
    size_t n = 0;

    for (p = path; p != NULL && p->up != NULL; p = p->up) {
        n += p->index >= 0 ? 2 : 1;
    }
    flat->n = n <= PATH_MAX_LEN ? n : 0;
    for (p = path; flat->n != 0 && p->up != NULL; p = p->up) {
        if (p->index >= 0) {
            flat->at[--n] = p->index;
        }
        flat->at[--n] = p->field;
    }
}

static int compare_paths(const int32_t *a, size_t na, const int32_t *b, size_t nb)
{
    for (size_t i = 0; i < na && i < nb; i++) {
        if (a[i] != b[i]) {
            return a[i] < b[i] ? -1 : 1;
        }
    }
    return na == nb ? 0 : na < nb ? -1 : 1;
}

static int compare_places(const void *a, const void *b)
{
    const location *x = *(location *const *)a;
    const location *y = *(location *const *)b;
    int order = compare_paths(x->path, x->n_path, y->path, y->n_path);

    if (order == 0 && x->n_span != 0 && y->n_span != 0) {
        order = (x->span[0] > y->span[0]) - (x->span[0] < y->span[0]);
    }
    return order;
}

void teffi_places_load(teffi_pool *pool, teffi_file *file)
{
    const Protoc__SourceInfo *info = file->desc->source_code_info;

    if (info == NULL || info->n_location == 0) {
        return;
    }
    file->places = teffi_pool_alloc(pool, info->n_location * sizeof *file->places);
    memcpy(file->places, info->location, info->n_location * sizeof *file->places);
    file->n_places = info->n_location;
    qsort(file->places, file->n_places, sizeof *file->places, compare_places);
}

static const location *find(const teffi_file *file, const flat_path *path)
{
    size_t from = 0;
    size_t to = file->n_places;

    while (from < to) {
        size_t mid = from + (to - from) / 2;
        const location *l = file->places[mid];

        if (compare_paths(l->path, l->n_path, path->at, path->n) < 0) {
            from = mid + 1;
        } else {
            to = mid;
        }
    }
    if (from < file->n_places && compare_paths(file->places[from]->path, file->places[from]->n_path,
                                               path->at, path->n) == 0) {
        return file->places[from];
    }
    return NULL;
}

int teffi_line(const teffi_file *file, const teffi_path *path)
{
    flat_path flat;

    flatten(path, &flat);
    for (; flat.n > 0; flat.n--) {
        const location *l = find(file, &flat);

        if (l != NULL && l->n_span > 0 && l->span[0] >= 0 && l->span[0] < INT32_MAX) {
            return l->span[0] + 1;
        }
    }
    return 1;
}

const char *teffi_comment(const teffi_file *file, const teffi_path *path)
{
    const location *l;
    flat_path flat;

    flatten(path, &flat);
    l = find(file, &flat);
    if (l == NULL) {
        return NULL;
    }
    return l->leading_comments != NULL ? l->leading_comments : l->trailing_comments;
}

void teffi_problem(teffi_model *model, const teffi_file *file, const teffi_path *path,
                   const char *fmt, ...)
{
    char what[1024];
    va_list args;

    model->n_problems++;
    if (model->n_problems > TEFFI_PROBLEMS_MAX) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    teffi_text_printf(&model->problems, "%s%s:%d: %s", model->n_problems > 1 ? "\n" : "",
                      file->name, teffi_line(file, path), what);
}
