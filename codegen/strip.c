/* strip.c - what protobuf-c's generator gets to see of a request.
 * Way:     codegen -> [strip] -> protoc-gen-c -> codegen */
#include "strip.h"

#include <string.h>

enum { FILE_SERVICES = 6 };

/* Indices into the imports: drop the gone one, move those behind it up. */
static void drop_index(int32_t *list, size_t *n, size_t gone)
{
    size_t kept = 0;

    for (size_t i = 0; i < *n; i++) {
        if (list[i] != (int32_t)gone) {
            list[kept++] = list[i] > (int32_t)gone ? list[i] - 1 : list[i];
        }
    }
    *n = kept;
}

static void drop_import(Protoc__File *file)
{
    for (size_t i = 0; i < file->n_dependency; i++) {
        if (strcmp(file->dependency[i], TEFFI_OPTIONS_FILE) == 0) {
            memmove(&file->dependency[i], &file->dependency[i + 1],
                    (file->n_dependency - i - 1) * sizeof *file->dependency);
            file->n_dependency--;
            drop_index(file->public_dependency, &file->n_public_dependency, i);
            drop_index(file->weak_dependency, &file->n_weak_dependency, i);
            i--;
        }
    }
}

/* Grains go: protobuf-c has no use for them. So do the services of files that are only imported.
 * The comments at services go too, since their indices no longer fit. */
static void drop_services(Protoc__File *file, const teffi_file *known)
{
    Protoc__SourceInfo *info = file->source_code_info;
    size_t kept = 0;

    for (size_t i = 0; i < file->n_service; i++) {
        if (known->generate && !known->services[i].grain) {
            file->service[kept++] = file->service[i];
        }
    }
    file->n_service = kept;
    kept = 0;
    for (size_t i = 0; info != NULL && i < info->n_location; i++) {
        if (info->location[i]->n_path == 0 || info->location[i]->path[0] != FILE_SERVICES) {
            info->location[kept++] = info->location[i];
        }
    }
    if (info != NULL) {
        info->n_location = kept;
    }
}

/* protobuf-c writes comments into its header: they must not disturb a compiler there either. */
static void defuse_comments(teffi_pool *pool, Protoc__SourceInfo *info)
{
    for (size_t i = 0; info != NULL && i < info->n_location; i++) {
        Protoc__SourceInfo__Location *l = info->location[i];

        if (l->leading_comments != NULL) {
            l->leading_comments = teffi_text_defuse(pool, l->leading_comments);
        }
        if (l->trailing_comments != NULL) {
            l->trailing_comments = teffi_text_defuse(pool, l->trailing_comments);
        }
    }
}

static void const_strings(teffi_pool *pool, Protoc__File *file)
{
    Protoc__NamesOptions *names = teffi_pool_alloc(pool, sizeof *names);

    protoc__names_options__init(names);
    names->has_const_strings = 1;
    names->const_strings = 1;
    if (file->options == NULL) {
        file->options = teffi_pool_alloc(pool, sizeof *file->options);
        protoc__file_options__init(file->options);
    }
    file->options->pb_c_file = names;
}

teffi_bytes teffi_strip(const teffi_model *model, Protoc__Request *request)
{
    size_t kept = 0;
    uint8_t *data;
    size_t n;

    for (size_t i = 0; i < request->n_proto_file; i++) {
        Protoc__File *file = request->proto_file[i];
        const teffi_file *known;

        if (strcmp(file->name, TEFFI_OPTIONS_FILE) == 0) {
            continue;
        }
        known = teffi_map_get(&model->by_name, file->name);
        request->proto_file[kept++] = file;
        drop_import(file);
        drop_services(file, known);
        if (known->generate) {
            const_strings(model->pool, file);
            defuse_comments(model->pool, file->source_code_info);
        }
    }
    request->n_proto_file = kept;
    request->parameter = NULL;
    n = protoc__request__get_packed_size(request);
    data = teffi_pool_alloc(model->pool, n + 1);
    return (teffi_bytes){data, protoc__request__pack(request, data)};
}
