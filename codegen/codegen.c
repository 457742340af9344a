/* codegen.c - protoc-gen-teff as a function: a request in, a response out. */
#include "codegen.h"

#include "emit/emit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of google/protobuf/compiler/plugin.proto and google/protobuf/descriptor.proto. */
enum { FEATURE_PROTO3_OPTIONAL = 1, FILE_SERVICES = 6 };

/* ---- parameters ---- */

typedef struct parameters {
    const char *lock; /* the path of the lock file; NULL: none */
    bool emit_lock;
} parameters;

/* Parses one parameter, for example "lock=words.teff.lock", into *p. Adds a problem to the model
 * if the parameter is unknown or given twice.
 * in: word must outlive *p, because p->lock may point into it. */
static void parse_parameter(teffi_model *model, char *word, parameters *p)
{
    if (strncmp(word, "lock=", 5) == 0 && word[5] && !p->lock) {
        p->lock = word + 5;
    } else if (strcmp(word, "emit_lock") == 0 && !p->emit_lock) {
        p->emit_lock = true;
    } else {
        teffi_add_problem_at(
            model, "parameter",
            "\"%.200s\" is unknown or given twice, expected lock=FILE or emit_lock, "
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

/* ---- the lock file: a list of the methods published earlier ---- */

typedef struct method_list {
    teffi_method **methods;
    size_t n;
} method_list;

static int compare_ids(const void *a, const void *b)
{
    uint32_t x = (*(const teffi_method *const *)a)->id;
    uint32_t y = (*(const teffi_method *const *)b)->id;
    return (x > y) - (x < y);
}

static int compare_full_names(const void *a, const void *b)
{
    return strcmp((*(const teffi_method *const *)a)->full, (*(const teffi_method *const *)b)->full);
}

/* Makes one list of the methods of all grains and observers among the n services. out: the list,
 * sorted by compare(); a NULL follows the last method. */
static method_list collect_sorted_methods(teffi_pool *pool, const teffi_service *services, size_t n,
                                          int (*compare)(const void *a, const void *b))
{
    method_list list = {NULL, 0};
    for (size_t i = 0; i < n; i++)
        list.n += services[i].n_methods;
    list.methods = teffi_pool_alloc(pool, (list.n + 1) * sizeof *list.methods);
    list.n = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; (services[i].grain || services[i].observer) && k < services[i].n_methods;
             k++)
            list.methods[list.n++] = &services[i].methods[k];
    qsort(list.methods, list.n, sizeof *list.methods, compare);
    return list;
}

/* in: the list must be sorted by full name. out: the method whose full name is `full`; NULL if the
 * list has no such method. */
static const teffi_method *find_method(const method_list *list, const char *full)
{
    const teffi_method key = {.full = full};
    const teffi_method *wanted = &key;
    teffi_method **found =
        bsearch(&wanted, list->methods, list->n, sizeof *list->methods, compare_full_names);
    return found ? *found : NULL;
}

/* Parses a line of the lock file such as "words.Word.Add 0x1234abcd", and shortens the line to the
 * method's name. out: the method's id; 0 if the line is malformed. */
static uint32_t parse_method_line(char *line)
{
    char *space = strchr(line, ' ');
    if (!space || space == line || strncmp(space, " 0x", 3) != 0 || strlen(space) != 11 ||
        strspn(space + 3, "0123456789abcdef") != 8)
        return 0;
    *space = '\0';
    return (uint32_t)strtoul(space + 3, NULL, 16);
}

/* Checks a line of the lock file if it has the form "words.Word version 2": adds a problem to the
 * model unless this grain type exists and has at least this version. in: where: the line's place,
 * as "FILE:number". out: false if the line has another form; in that case, nothing was checked. */
static bool try_check_version_line(teffi_model *model, const teffi_file *file, const char *line,
                                   const char *where)
{
    const char *space = strchr(line, ' ');
    if (!space || strncmp(space, " version ", 9) != 0 || !space[9] ||
        strspn(space + 9, "0123456789") != strlen(space + 9))
        return false;
    unsigned long version = strtoul(space + 9, NULL, 10);
    size_t len = (size_t)(space - line);
    for (size_t i = 0; i < file->n_services; i++) {
        const teffi_service *s = &file->services[i];
        if (!s->grain || strncmp(s->full, line, len) != 0 || s->full[len])
            continue;
        if (s->grain->version < version)
            teffi_add_problem(model, file, &s->path,
                              "%s has the version %" PRIu32 ", expected at least %lu as in %s",
                              s->full, s->grain->version, version, where);
        return true;
    }
    teffi_add_problem_at(model, where, "grain %.*s is not in %s any more", (int)len, line,
                         file->name);
    return true;
}

/* Checks the file to generate against one line of the lock file. Adds a problem to the model if the
 * line is malformed, if its method no longer exists with the same id, or if its grain type no
 * longer exists with at least the same version. May change the line's text.
 * in: list: the methods of all grains in the file to generate, sorted by full name. where: the
 * line's place, as "FILE:number". */
static void check_against_lock_line(teffi_model *model, const teffi_file *file,
                                    const method_list *list, char *line, const char *where)
{
    if (try_check_version_line(model, file, line, where))
        return;
    uint32_t id = parse_method_line(line);
    const teffi_method *m = find_method(list, line);
    if (id == 0) {
        teffi_add_problem_at(model, where,
                             "not a line of a lock, expected as in: words.Word.Add 0x1234abcd");
    } else if (!m) {
        teffi_add_problem_at(
            model, where, "method %s is not in %s any more, expected every method once published",
            line, file->name);
    } else if (m->id != id) {
        teffi_add_problem(model, file, &m->path,
                          "%s has the id 0x%08" PRIx32 ", expected 0x%08" PRIx32 " as in %s",
                          m->full, m->id, id, where);
    }
}

/* Checks the file to generate against the lock file at path: each method of the lock file must
 * still exist with the same id, and each grain type with at least the same version. Adds a problem
 * to the model for each line of the lock file that breaks this rule or is malformed. Also adds one
 * if the lock file cannot be read, or if the number of files to generate is not 1. */
static void check_against_lock_file(teffi_model *model, const teffi_codegen_env *env,
                                    const char *path, const Protoc__Request *request)
{
    char *line, *rest = env->read_file ? env->read_file(model->pool, path) : NULL;
    if (request->n_file_to_generate != 1) {
        teffi_add_problem_at(model, "parameter",
                             "lock=FILE is for one file, expected one file to generate");
        return;
    }
    if (!rest) {
        teffi_add_problem_at(model, "parameter", "lock=%.200s cannot be read", path);
        return;
    }
    const teffi_file *file = teffi_map_get(&model->by_name, request->file_to_generate[0]);
    const method_list list =
        collect_sorted_methods(model->pool, file->services, file->n_services, compare_full_names);
    for (int number = 1; (line = strsep(&rest, "\n")) != NULL; number++) {
        if (*line != '\0' && *line != '#') {
            check_against_lock_line(model, file, &list, line,
                                    teffi_pool_printf(model->pool, "%s:%d", path, number));
        }
    }
}

/* Writes the text of the lock file. `model` is unused, but all functions in the table outputs[]
 * must have the same parameters. */
static void emit_lock(teffi_text *out, const teffi_model *model, const teffi_file *file)
{
    (void)model;
    const method_list list =
        collect_sorted_methods(out->pool, file->services, file->n_services, compare_full_names);
    teffi_text_printf(
        out,
        "# The methods of %s and their ids, by protoc-gen-teff. Commit this file and\n"
        "# pass it as lock=FILE: removing or renumbering a method is then an error.\n",
        file->name);
    for (size_t i = 0; i < list.n; i++)
        if (!list.methods[i]->observed) /* the file of its observer has its line */
            teffi_text_printf(out, "%s 0x%08" PRIx32 "\n", list.methods[i]->full,
                              list.methods[i]->id);
    for (size_t i = 0; i < file->n_services; i++)
        if (file->services[i].grain && file->services[i].grain->version)
            teffi_text_printf(out, "%s version %" PRIu32 "\n", file->services[i].full,
                              file->services[i].grain->version);
}

/* ---- the request to protobuf-c's generator ---- */

/* Updates a list of *n indices of imports after the import with the index `gone` was removed:
 * removes that index from the list, and decrements the larger indices. */
static void remove_index_and_renumber(int32_t *list, size_t *n, size_t gone)
{
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++)
        if (list[i] != (int32_t)gone)
            list[kept++] = list[i] > (int32_t)gone ? list[i] - 1 : list[i];
    *n = kept;
}

/* Removes each import whose target is an options file, because the request to protobuf-c's
 * generator does not contain the options files. In the loop, `kept` is the index that import i has
 * after the removal of the earlier imports of options files. */
static void remove_options_imports(Protoc__File *file)
{
    size_t kept = 0;
    for (size_t i = 0; i < file->n_dependency; i++) {
        if (teffi_is_options_file(file->dependency[i])) {
            remove_index_and_renumber(file->public_dependency, &file->n_public_dependency, kept);
            remove_index_and_renumber(file->weak_dependency, &file->n_weak_dependency, kept);
        } else {
            file->dependency[kept++] = file->dependency[i];
        }
    }
    file->n_dependency = kept;
}

/* Removes all services and their source locations (lines and comments). Grains do not use
 * protobuf-c's service code, which does not compile for methods such as Do or Delete. */
static void remove_services(Protoc__File *file)
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

/* Sets protobuf-c's option that makes string members const char *. */
static void set_const_strings_option(teffi_pool *pool, Protoc__File *file)
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

static teffi_bytes pack_in_pool(teffi_pool *pool, const ProtobufCMessage *message)
{
    uint8_t *data = teffi_pool_alloc(pool, protobuf_c_message_get_packed_size(message) + 1);
    return (teffi_bytes){data, protobuf_c_message_pack(message, data)};
}

/* Packs the request for protobuf-c's generator. First removes the options files, the imports whose
 * target is an options file, all services, and the parameter, and sets the option for const strings
 * in the files to generate. Must run after all checks, because it changes the request. */
static teffi_bytes strip_and_pack_request(const teffi_model *model, Protoc__Request *request)
{
    size_t kept = 0;
    for (size_t i = 0; i < request->n_proto_file; i++) {
        Protoc__File *file = request->proto_file[i];
        if (teffi_is_options_file(file->name))
            continue;
        const teffi_file *known = teffi_map_get(&model->by_name, file->name);
        request->proto_file[kept++] = file;
        remove_options_imports(file);
        remove_services(file);
        if (known->generate)
            set_const_strings_option(model->pool, file);
    }
    request->n_proto_file = kept;
    request->parameter = NULL;
    return pack_in_pool(model->pool, &request->base);
}

/* ---- the response ---- */

/* The files that teff generates for one .proto file, beside those of protobuf-c's generator. The
 * lock file must be last: emit_file_outputs() skips the last one if emit_lock is not given. */
static const struct {
    const char *end;
    void (*emit)(teffi_text *out, const teffi_model *model, const teffi_file *file);
} outputs[] = {
    {".teff.h", teffi_emit_header}, {".teff.c", teffi_emit_source}, {".teff.lock", emit_lock}};

enum { OUTPUTS = sizeof outputs / sizeof *outputs };

/* Generates teff's outputs for one .proto file and adds them to the response. First sorts the
 * methods of each grain by id. in: response->file must have room for OUTPUTS more files. */
static void emit_file_outputs(Protoc__Response *response, const teffi_model *model,
                              teffi_file *file, const parameters *p)
{
    for (size_t i = 0; i < file->n_services; i++) {
        teffi_service *s = &file->services[i];
        s->by_id = collect_sorted_methods(model->pool, s, 1, compare_ids).methods;
        for (size_t k = 0; s->by_id[k]; k++)
            s->by_id[k]->at = k;
    }
    /* the lock file is the last output; it is generated only if emit_lock is given */
    for (size_t i = 0; i < OUTPUTS - (p->emit_lock ? 0u : 1u); i++) {
        Protoc__Response__File *f = teffi_pool_alloc(model->pool, sizeof *f);
        teffi_text content = {.pool = model->pool};
        outputs[i].emit(&content, model, file);
        teffi_text_wrap(&content);
        protoc__response__file__init(f);
        f->name = teffi_pool_printf(model->pool, "%s%s", file->stem, outputs[i].end);
        f->content = content.data;
        response->file[response->n_file++] = f;
    }
}

/* Runs protobuf-c's generator on the request and adds the generated files to the response. Does
 * nothing if env does not provide this generator. Changes the request. Replaces response->file, so
 * the response must have no files yet. out: NULL on success, otherwise an error text. */
static const char *generate_message_files(Protoc__Response *response, const teffi_model *model,
                                          const teffi_codegen_env *env, Protoc__Request *request)
{
    const Protoc__Response *theirs;
    teffi_bytes bytes;
    if (!env->generate_message_code)
        return NULL;
    const char *wrong =
        env->generate_message_code(model->pool, strip_and_pack_request(model, request), &bytes);
    if (wrong)
        return wrong;
    theirs = protoc__response__unpack(&model->pool->allocator, bytes.n, bytes.data);
    if (!theirs)
        return "protoc-gen-c gave no response that can be read";
    if (theirs->error)
        return teffi_pool_printf(model->pool, "protoc-gen-c: %s", theirs->error);
    response->file = teffi_pool_alloc(model->pool, (theirs->n_file + OUTPUTS * model->n_files) *
                                                       sizeof *response->file);
    for (size_t i = 0; i < theirs->n_file; i++)
        response->file[response->n_file++] = theirs->file[i];
    return NULL;
}

static void emit_all_files(Protoc__Response *response, const teffi_model *model,
                           const teffi_codegen_env *env, Protoc__Request *request,
                           const parameters *p)
{
    response->file =
        teffi_pool_alloc(model->pool, OUTPUTS * model->n_files * sizeof *response->file);
    const char *wrong = generate_message_files(response, model, env, request);
    if (wrong) {
        response->error = teffi_pool_printf(model->pool, "%s", wrong);
        return;
    }
    for (size_t i = 0; i < model->n_files; i++)
        if (model->files[i].generate)
            emit_file_outputs(response, model, &model->files[i], p);
}

/* Parses the parameters, loads the .proto files, checks them, and checks them against the lock file
 * if one is given. Skips the remaining steps when a step has found problems. For this rule,
 * teffi_model_read_options() and teffi_model_check() are one step. out: *p has the parameters;
 * model->n_problems is 0 if all steps succeeded. */
static void load_and_check_request(teffi_model *model, const teffi_codegen_env *env,
                                   const Protoc__Request *request, parameters *p)
{
    *p = parse_parameters(model, request->parameter);
    if (model->n_problems == 0)
        teffi_model_load(model, request);
    if (model->n_problems == 0) {
        teffi_model_read_options(model);
        teffi_model_check(model);
    }
    if (model->n_problems == 0 && p->lock)
        check_against_lock_file(model, env, p->lock, request);
}

/* Finishes the text of the problems. The text describes the first TEFFI_PROBLEMS_MAX problems; this
 * function appends the number of further problems, if any. in: the model must have problems.
 * out: the text. */
static char *finish_problems_text(teffi_model *model)
{
    if (model->n_problems > TEFFI_PROBLEMS_MAX) {
        teffi_text_printf(&model->problems, "\nand %u more",
                          model->n_problems - TEFFI_PROBLEMS_MAX);
    }
    return model->problems.data;
}

const char *teffi_codegen_run(teffi_pool *pool, const teffi_codegen_env *env, teffi_bytes request,
                              teffi_bytes *response)
{
    Protoc__Response out = PROTOC__RESPONSE__INIT;
    teffi_model model = {.pool = pool, .problems = {.pool = pool}};
    parameters p;
    if (request.n == 0)
        return "the request is empty, expected to be run by protoc";
    Protoc__Request *r = protoc__request__unpack(&pool->allocator, request.n, request.data);
    if (!r)
        return "the request is garbage or cut off, expected to be run by protoc";
    if (r->n_file_to_generate == 0)
        return "the request has no file to generate, expected to be run by protoc";
    out.has_supported_features = 1;
    out.supported_features = FEATURE_PROTO3_OPTIONAL;
    load_and_check_request(&model, env, r, &p);
    if (model.n_problems == 0)
        emit_all_files(&out, &model, env, r, &p);
    else
        out.error = finish_problems_text(&model);
    *response = pack_in_pool(pool, &out.base);
    return NULL;
}
