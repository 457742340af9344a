/* strip.c - removes from a request what protobuf-c's generator must not see. */
#include "packed.h"

enum { FILE_SERVICES = 6 };

/* A list of indices into the imports: removes index gone, decrements the larger ones. */
static void drop_index(int32_t *list, size_t *n, size_t gone)
{
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++)
        if (list[i] != (int32_t)gone)
            list[kept++] = list[i] > (int32_t)gone ? list[i] - 1 : list[i];
    *n = kept;
}

static void drop_imports(Protoc__File *file)
{
    size_t kept = 0;
    for (size_t i = 0; i < file->n_dependency; i++) {
        if (teffi_is_options_file(file->dependency[i])) {
            drop_index(file->public_dependency, &file->n_public_dependency, kept);
            drop_index(file->weak_dependency, &file->n_weak_dependency, kept);
        } else {
            file->dependency[kept++] = file->dependency[i];
        }
    }
    file->n_dependency = kept;
}

/* protobuf-c's own service code is of no use for grains, and does not compile for methods such as
 * Do or Delete. The comments at services are removed too. */
static void drop_services(Protoc__File *file)
{
    Protoc__SourceInfo *info = file->source_code_info;
    size_t kept = 0;
    file->n_service = 0;
    for (size_t i = 0; info && i < info->n_location; i++)
        if (info->location[i]->n_path == 0 || info->location[i]->path[0] != FILE_SERVICES)
            info->location[kept++] = info->location[i];
    if (info)
        info->n_location = kept;
}

/* protobuf-c writes comments into its header: they must not end or nest C comments there either. */
static void defuse_comments(teffi_pool *pool, Protoc__SourceInfo *info)
{
    for (size_t i = 0; info && i < info->n_location; i++) {
        Protoc__SourceInfo__Location *l = info->location[i];
        if (l->leading_comments)
            l->leading_comments = teffi_text_defuse(pool, l->leading_comments);
        if (l->trailing_comments)
            l->trailing_comments = teffi_text_defuse(pool, l->trailing_comments);
    }
}

static void ask_const_strings(teffi_pool *pool, Protoc__File *file)
{
    Protoc__NamesOptions *names = teffi_pool_alloc(pool, sizeof *names);
    protoc__names_options__init(names);
    names->has_const_strings = 1;
    names->const_strings = 1;
    if (!file->options) {
        file->options = teffi_pool_alloc(pool, sizeof *file->options);
        protoc__file_options__init(file->options);
    }
    file->options->pb_c_file = names;
}

teffi_bytes teffi_strip(const teffi_model *model, Protoc__Request *request)
{
    size_t kept = 0;
    for (size_t i = 0; i < request->n_proto_file; i++) {
        Protoc__File *file = request->proto_file[i];
        if (teffi_is_options_file(file->name))
            continue;
        const teffi_file *known = teffi_map_get(&model->by_name, file->name);
        request->proto_file[kept++] = file;
        drop_imports(file);
        drop_services(file);
        if (known->generate) {
            ask_const_strings(model->pool, file);
            defuse_comments(model->pool, file->source_code_info);
        }
    }
    request->n_proto_file = kept;
    request->parameter = NULL;
    return teffi_pack(model->pool, &request->base);
}
