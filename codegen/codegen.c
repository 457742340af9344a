/* codegen.c - protoc-gen-teff as a function: a request in, a response out. */
#include "codegen.h"

#include "emit/emit.h"
#include "lock.h"
#include "packed.h"

#include <stdlib.h>
#include <string.h>

enum { FEATURE_PROTO3_OPTIONAL = 1 };

typedef struct parameters {
    const char *lock; /* NULL: none */
    bool emit_lock;
} parameters;

static void parse_parameter(teffi_model *model, char *word, parameters *p)
{
    if (strncmp(word, "lock=", 5) == 0 && word[5] && !p->lock) {
        p->lock = word + 5;
    } else if (strcmp(word, "emit_lock") == 0 && !p->emit_lock) {
        p->emit_lock = true;
    } else {
        teffi_problem_at(model, "parameter",
                         "\"%.200s\" is unknown or there twice, expected lock=FILE or emit_lock, "
                         "each once",
                         word);
    }
}

static parameters parse_parameters(teffi_model *model, const char *parameter)
{
    parameters p = {0};
    char *rest = teffi_pool_printf(model->pool, "%s", parameter ? parameter : "");
    char *word;
    while ((word = strsep(&rest, ",")) != NULL)
        if (*word)
            parse_parameter(model, word, &p);
    return p;
}

static void check_lock(teffi_model *model, const teffi_codegen_env *env, const char *path,
                       const Protoc__Request *request)
{
    const char *lock = env->read ? env->read(model->pool, path) : NULL;
    if (request->n_file_to_generate != 1) {
        teffi_problem_at(model, "parameter",
                         "lock=FILE is for one file, expected one file to generate");
    } else if (!lock) {
        teffi_problem_at(model, "parameter", "lock=%.200s cannot be read", path);
    } else {
        teffi_lock_check(model, teffi_map_get(&model->by_name, request->file_to_generate[0]), path,
                         lock);
    }
}

static int compare_ids(const void *a, const void *b)
{
    uint32_t x = (*(const teffi_method *const *)a)->id;
    uint32_t y = (*(const teffi_method *const *)b)->id;
    return (x > y) - (x < y);
}

static void sort_methods(teffi_pool *pool, teffi_service *s)
{
    s->by_id = teffi_pool_alloc(pool, (s->n_methods + 1) * sizeof *s->by_id);
    for (size_t i = 0; i < s->n_methods; i++)
        s->by_id[i] = &s->methods[i];
    qsort(s->by_id, s->n_methods, sizeof *s->by_id, compare_ids);
    for (size_t i = 0; i < s->n_methods; i++)
        s->by_id[i]->at = i;
}

static void add_output(Protoc__Response *response, const teffi_file *file, const char *end,
                       teffi_text *content)
{
    Protoc__Response__File *f = teffi_pool_alloc(content->pool, sizeof *f);
    protoc__response__file__init(f);
    f->name = teffi_pool_printf(content->pool, "%s%s", file->stem, end);
    teffi_text_wrap(content);
    f->content = content->data;
    response->file[response->n_file++] = f;
}

static void emit_file(Protoc__Response *response, const teffi_model *model, teffi_file *file,
                      const parameters *p)
{
    teffi_text header = {.pool = model->pool};
    teffi_text source = {.pool = model->pool};
    teffi_text lock = {.pool = model->pool};
    for (size_t i = 0; i < file->n_services; i++)
        sort_methods(model->pool, &file->services[i]);
    teffi_emit_header(&header, model, file);
    add_output(response, file, ".teff.h", &header);
    teffi_emit_source(&source, model, file);
    add_output(response, file, ".teff.c", &source);
    if (p->emit_lock) {
        teffi_lock_emit(&lock, file);
        add_output(response, file, ".teff.lock", &lock);
    }
}

/* Adds the output of protobuf-c's generator for the same files, before our own. */
static const char *emit_messages(Protoc__Response *response, const teffi_model *model,
                                 const teffi_codegen_env *env, Protoc__Request *request)
{
    const Protoc__Response *theirs;
    teffi_bytes bytes;
    if (!env->messages)
        return NULL;
    const char *wrong = env->messages(model->pool, teffi_strip(model, request), &bytes);
    if (wrong)
        return wrong;
    theirs = teffi_unpack(model->pool, &protoc__response__descriptor, bytes);
    if (!theirs)
        return "protoc-gen-c gave no response that can be read";
    if (theirs->error)
        return teffi_pool_printf(model->pool, "protoc-gen-c: %s", theirs->error);
    response->file = teffi_pool_alloc(model->pool, (theirs->n_file + 3 * model->n_files) *
                                                       sizeof *response->file);
    for (size_t i = 0; i < theirs->n_file; i++)
        response->file[response->n_file++] = theirs->file[i];
    return NULL;
}

static void emit_all(Protoc__Response *response, const teffi_model *model,
                     const teffi_codegen_env *env, Protoc__Request *request, const parameters *p)
{
    response->file = teffi_pool_alloc(model->pool, 3 * model->n_files * sizeof *response->file);
    const char *wrong = emit_messages(response, model, env, request);
    if (wrong) {
        response->error = teffi_pool_printf(model->pool, "%s", wrong);
        return;
    }
    for (size_t i = 0; i < model->n_files; i++)
        if (model->files[i].generate)
            emit_file(response, model, &model->files[i], p);
}

static void check_request(teffi_model *model, const teffi_codegen_env *env,
                          const Protoc__Request *request, parameters *p)
{
    *p = parse_parameters(model, request->parameter);
    if (model->n_problems == 0)
        teffi_model_load(model, request);
    if (model->n_problems == 0) {
        teffi_model_options(model);
        teffi_model_check(model);
    }
    if (model->n_problems == 0 && p->lock)
        check_lock(model, env, p->lock, request);
}

static char *finish_problems(teffi_model *model)
{
    if (model->n_problems > TEFFI_PROBLEMS_MAX) {
        teffi_text_printf(&model->problems, "\nand %u more",
                          model->n_problems - TEFFI_PROBLEMS_MAX);
    }
    return model->problems.data;
}

const char *teffi_codegen(teffi_pool *pool, const teffi_codegen_env *env, teffi_bytes request,
                          teffi_bytes *response)
{
    Protoc__Response out = PROTOC__RESPONSE__INIT;
    teffi_model model = {.pool = pool, .problems = {.pool = pool}};
    parameters p;
    if (request.n == 0)
        return "the request is empty, expected to be run by protoc";
    Protoc__Request *r = teffi_unpack(pool, &protoc__request__descriptor, request);
    if (!r)
        return "the request is garbage or cut off, expected to be run by protoc";
    if (r->n_file_to_generate == 0)
        return "the request has no file to generate, expected to be run by protoc";
    out.has_supported_features = 1;
    out.supported_features = FEATURE_PROTO3_OPTIONAL;
    check_request(&model, env, r, &p);
    if (model.n_problems == 0)
        emit_all(&out, &model, env, r, &p);
    else
        out.error = finish_problems(&model);
    *response = teffi_pack(pool, &out.base);
    return NULL;
}
