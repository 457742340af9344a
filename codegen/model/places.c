/* places.c - finds the line and the comment of an element of a .proto file; notes problems. */
#include "model/model.h"

#include <string.h>

typedef Protoc__SourceInfo__Location location;

const teffi_path *teffi_path_new(teffi_pool *pool, const teffi_path *up, int32_t field,
                                 int32_t index)
{
    teffi_path *path = teffi_pool_alloc(pool, sizeof *path);
    *path = (teffi_path){up, field, index};
    return path;
}

/* out: the path as a key of file->places, such as "/4/0/2/1"; "" if path is NULL or stands for the
 * file itself. */
static char *format_path(teffi_pool *pool, const teffi_path *path)
{
    if (!path || !path->up)
        return teffi_pool_alloc(pool, 1);
    const char *up = format_path(pool, path->up);
    return path->index >= 0 ? teffi_pool_printf(pool, "%s/%d/%d", up, path->field, path->index)
                            : teffi_pool_printf(pool, "%s/%d", up, path->field);
}

void teffi_index_lines_and_comments(teffi_file *file)
{
    const Protoc__SourceInfo *info = file->desc->source_code_info;
    for (size_t i = 0; info && i < info->n_location; i++) {
        location *l = info->location[i];
        teffi_text key = {.pool = file->places.pool};
        l->leading_comments = teffi_text_sanitize_comment(key.pool, l->leading_comments);
        l->trailing_comments = teffi_text_sanitize_comment(key.pool, l->trailing_comments);
        for (size_t k = 0; k < l->n_path; k++)
            teffi_text_printf(&key, "/%d", l->path[k]);
        if (key.data)
            teffi_map_put_if_absent(&file->places, key.data, l);
    }
}

int teffi_places_find_line(const teffi_file *file, const teffi_path *path)
{
    /* If the line is not known, remove the path's last number and look up the enclosing element. */
    for (char *at = format_path(file->places.pool, path); *at; *strrchr(at, '/') = '\0') {
        const location *l = teffi_map_get(&file->places, at);
        if (l && l->n_span > 0 && l->span[0] >= 0 && l->span[0] < INT32_MAX)
            return l->span[0] + 1;
    }
    return 1;
}

const char *teffi_find_comment(const teffi_file *file, const teffi_path *path)
{
    const location *l = teffi_map_get(&file->places, format_path(file->places.pool, path));
    if (!l)
        return NULL;
    return l->leading_comments ? l->leading_comments : l->trailing_comments;
}

void teffi_add_problem_at(teffi_model *model, const char *where, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const char *what = teffi_pool_vprintf(model->pool, fmt, args);
    va_end(args);
    model->n_problems++;
    if (model->n_problems <= TEFFI_PROBLEMS_MAX) {
        teffi_text_printf(&model->problems, "%s%s: %.1023s", model->n_problems > 1 ? "\n" : "",
                          where, what);
    }
}

void teffi_add_problem(teffi_model *model, const teffi_file *file, const teffi_path *path,
                       const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const char *what = teffi_pool_vprintf(model->pool, fmt, args);
    const char *where =
        teffi_pool_printf(model->pool, "%s:%d", file->name, teffi_places_find_line(file, path));
    va_end(args);
    teffi_add_problem_at(model, where, "%s", what);
}
