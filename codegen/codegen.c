/* codegen.c - protoc-gen-teff without its process: a request in, a response out.
 * Way:     main (or a test, or a fuzzer) -> [codegen] -> model, options, check -> emit_* */
#include "codegen.h"

#include "emit.h"
#include "lock.h"
#include "strip.h"

#include <stdlib.h>
#include <string.h>

enum { FEATURE_PROTO3_OPTIONAL = 1 };

typedef struct parameters {
    const char *lock; /* NULL: none */
    bool emit_lock;
} parameters;

static void parameter_problem(teffi_model *model, const char *what)
{
    teffi_text_printf(&model->problems, "%sparameter: %s", model->n_problems > 0 ? "\n" : "", what);
    model->n_problems++;
}

static void parse_parameter(teffi_model *model, char *word, parameters *p)
{
    if (strncmp(word, "lock=", 5) == 0 && word[5] != '\0' && p->lock == NULL) {
        p->lock = word + 5;
    } else if (strcmp(word, "emit_lock") == 0 && !p->emit_lock) {
        p->emit_lock = true;
    } else {
        parameter_problem(model, teffi_pool_printf(model->pool,
                                                   "\"%.200s\" is unknown or there twice, expected "
                                                   "lock=FILE or emit_lock, each once",
                                                   word));
    }
}

static parameters parse_parameters(teffi_model *model, const char *parameter)
{
    parameters p = {0};
    char *rest;
    char *word;

    if (parameter == NULL) {
        return p;
    }
    rest = teffi_pool_printf(model->pool, "%s", parameter);
    while ((word = strsep(&rest, ",")) != NULL) {
        if (*word != '\0') {
            parse_parameter(model, word, &p);
        }
    }
    return p;
}

static void check_lock(teffi_model *model, const teffi_codegen_env *env, const char *path,
                       const Protoc__Request *request)
{
    const char *lock;

    if (request->n_file_to_generate != 1) {
        parameter_problem(model, "lock=FILE is for one file, expected one file to generate");
        return;
    }
    lock = env->read != NULL ? env->read(model->pool, path) : NULL;
    if (lock == NULL) {
        parameter_problem(model,
                          teffi_pool_printf(model->pool, "lock=%.200s cannot be read", path));
        return;
    }
    teffi_lock_check(model, teffi_map_get(&model->by_name, request->file_to_generate[0]), path,
                     lock);
}

static int by_id(const void *a, const void *b)
{
    const teffi_method *const *x = a;
    const teffi_method *const *y = b;

    return ((*x)->id > (*y)->id) - ((*x)->id < (*y)->id);
}

static void sort_methods(teffi_pool *pool, teffi_service *s)
{
    s->by_id = teffi_pool_alloc(pool, (s->n_methods + 1) * sizeof *s->by_id);
    for (size_t i = 0; i < s->n_methods; i++) {
        s->by_id[i] = &s->methods[i];
    }
    qsort(s->by_id, s->n_methods, sizeof *s->by_id, by_id);
    for (size_t i = 0; i < s->n_methods; i++) {
        s->by_id[i]->at = i;
    }
}

static void add_file(Protoc__Response *response, teffi_pool *pool, const teffi_file *file,
                     const char *end, const teffi_text *content)
{
    Protoc__Response__File *f = teffi_pool_alloc(pool, sizeof *f);

    protoc__response__file__init(f);
    f->name = teffi_pool_printf(pool, "%s%s", file->stem, end);
    f->content = content->data;
    response->file[response->n_file++] = f;
}

static void emit_file(Protoc__Response *response, const teffi_model *model, teffi_file *file,
                      const parameters *p)
{
    teffi_text header = {.pool = model->pool};
    teffi_text source = {.pool = model->pool};
    teffi_text lock = {.pool = model->pool};

    for (size_t i = 0; i < file->n_services; i++) {
        sort_methods(model->pool, &file->services[i]);
    }
    teffi_emit_header(&header, file);
    teffi_text_wrap(&header);
    add_file(response, model->pool, file, ".teff.h", &header);
    teffi_emit_source(&source, model, file);
    teffi_text_wrap(&source);
    add_file(response, model->pool, file, ".teff.c", &source);
    if (p->emit_lock) {
        teffi_lock_emit(&lock, file);
        add_file(response, model->pool, file, ".teff.lock", &lock);
    }
}

/* What protobuf-c's generator says to the same files, put before our own. */
static const char *emit_messages(Protoc__Response *response, const teffi_model *model,
                                 const teffi_codegen_env *env, Protoc__Request *request)
{
    Protoc__Response *theirs = NULL;
    const char *wrong;
    teffi_bytes bytes;

    if (env->messages == NULL) {
        return NULL;
    }
    wrong = env->messages(model->pool, teffi_strip(model, request), &bytes);
    if (wrong != NULL) {
        return wrong;
    }
    if (teffi_scan(&protoc__response__descriptor, bytes)) {
        theirs = protoc__response__unpack(&model->pool->allocator, bytes.n, bytes.data);
    }
    if (theirs == NULL) {
        return "protoc-gen-c gave no response that can be read";
    }
    if (theirs->error != NULL) {
        return teffi_pool_printf(model->pool, "protoc-gen-c: %s", theirs->error);
    }
    response->file = teffi_pool_alloc(model->pool, (theirs->n_file + 3 * model->n_files) *
                                                       sizeof *response->file);
    for (size_t i = 0; i < theirs->n_file; i++) {
        response->file[response->n_file++] = theirs->file[i];
    }
    return NULL;
}

static void emit_all(Protoc__Response *response, const teffi_model *model,
                     const teffi_codegen_env *env, Protoc__Request *request, const parameters *p)
{
    const char *wrong;

    response->file = teffi_pool_alloc(model->pool, 3 * model->n_files * sizeof *response->file);
    wrong = emit_messages(response, model, env, request);
    if (wrong != NULL) {
        response->error = teffi_pool_printf(model->pool, "%s", wrong);
        return;
    }
    for (size_t i = 0; i < model->n_files; i++) {
        if (model->files[i].generate) {
            emit_file(response, model, &model->files[i], p);
        }
    }
}

static void pack(teffi_pool *pool, const Protoc__Response *response, teffi_bytes *out)
{
    uint8_t *data = teffi_pool_alloc(pool, protoc__response__get_packed_size(response) + 1);

    out->n = protoc__response__pack(response, data);
    out->data = data;
}

static void check(teffi_model *model, const teffi_codegen_env *env, const Protoc__Request *request,
                  parameters *p)
{
    *p = parse_parameters(model, request->parameter);
    if (model->n_problems == 0) {
        teffi_model_load(model, request);
    }
    if (model->n_problems == 0) {
        teffi_model_options(model);
        teffi_model_check(model);
    }
    if (model->n_problems == 0 && p->lock != NULL) {
        check_lock(model, env, p->lock, request);
    }
}

static char *problems(teffi_model *model)
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
    Protoc__Response answer = PROTOC__RESPONSE__INIT;
    teffi_model model = {.pool = pool, .problems = {.pool = pool}};
    Protoc__Request *r = NULL;
    parameters p;

    if (request.n == 0) {
        return "the request is empty, expected to be run by protoc";
    }
    if (teffi_scan(&protoc__request__descriptor, request)) {
        r = protoc__request__unpack(&pool->allocator, request.n, request.data);
    }
    if (r == NULL) {
        return "the request is garbage or cut off, expected to be run by protoc";
    }
    if (r->n_file_to_generate == 0) {
        return "the request has no file to generate, expected to be run by protoc";
    }
    answer.has_supported_features = 1;
    answer.supported_features = FEATURE_PROTO3_OPTIONAL;
    check(&model, env, r, &p);
    if (model.n_problems == 0) {
        emit_all(&answer, &model, env, r, &p);
    } else {
        answer.error = problems(&model);
    }
    pack(pool, &answer, response);
    return NULL;
}
