/* model.c - reads the messages and services of a request's files. */
#include "model/model.h"

#include "model/names.h"

#include <string.h>

/* Field numbers of google/protobuf/descriptor.proto, for paths; and a limit. */
enum {
    FILE_MESSAGES = 4,
    FILE_SERVICES = 6,
    FILE_SYNTAX = 12,
    MESSAGE_NESTED = 3,
    SERVICE_METHODS = 2,
    NESTED_MAX = 100 /* levels of messages; a message of the file itself is at the first */
};

bool teffi_is_void(const char *type_name)
{
    return type_name && strcmp(type_name, "." TEFFI_VOID) == 0;
}

bool teffi_is_options_file(const char *name)
{
    return strcmp(name, TEFFI_OPTIONS_FILE) == 0 ||
           strcmp(name, "protobuf-c/protobuf-c.proto") == 0;
}

bool teffi_is_repeated(const Protoc__Field *f)
{
    return f->label == PROTOC__FIELD__LABEL__REPEATED;
}

bool teffi_has_presence_flag(const teffi_message *m, const Protoc__Field *f)
{
    return m->file->proto2 && !f->has_oneof_index && f->label == PROTOC__FIELD__LABEL__OPTIONAL &&
           f->type != PROTOC__FIELD__TYPE__MESSAGE && f->type != PROTOC__FIELD__TYPE__STRING;
}

/* A deprecated field gets no append function: the function would be inline in the generated header,
 * and its use of the field would cause a warning in every file that includes the header. */
bool teffi_has_append_function(const Protoc__Field *f)
{
    return teffi_is_repeated(f) && (!f->options || !f->options->deprecated);
}

/* Checks a file's name, because the generator writes the name into #include lines and comments, and
 * makes the paths of its output files from it. out: NULL if the name is valid, otherwise an error
 * text. */
static const char *check_file_name(const char *name)
{
    const char *part = name;
    if (!name || *name == '\0')
        return "malformed request: a file without a name";
    if (*name == '/')
        return "the file's name leaves the output folder, expected one below it";
    for (const char *s = name; *s; s++) {
        if ((unsigned char)*s < 0x80 && !strchr(TEFFI_WORD_CHARS "-./+@,=~ ", *s)) {
            return "the file's name holds a character other than letters, digits and _-./+@,=~ and "
                   "space, expected only those";
        }
    }
    for (; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "../", 3) == 0 || strcmp(part, "..") == 0)
            return "the file's name leaves the output folder, expected one below it";
    }
    return NULL;
}

/* out: the name, cut to 200 bytes, with each byte below 0x20 replaced by '?'. */
static const char *make_printable(teffi_pool *pool, const char *name)
{
    char *line = teffi_pool_printf(pool, "%.200s", name);
    for (char *s = line; *s; s++)
        if ((unsigned char)*s < ' ')
            *s = '?';
    return line;
}

static const char *strip_proto_ending(teffi_pool *pool, const char *name)
{
    size_t n = strlen(name);
    if (n > 6 && strcmp(name + n - 6, ".proto") == 0)
        n -= 6;
    else if (n > 11 && strcmp(name + n - 11, ".protodevel") == 0)
        n -= 11;
    return teffi_pool_printf(pool, "%.*s", (int)n, name);
}

static const char *join_names(teffi_pool *pool, const char *scope, const char *name)
{
    return teffi_pool_printf(pool, "%s%s%s", scope, *scope ? "." : "", name);
}

bool teffi_check_name(teffi_model *model, const teffi_file *file, const teffi_path *path,
                      const char *name)
{
    bool valid = teffi_is_identifier(name);
    if (!valid)
        teffi_add_problem(model, file, path, "malformed request: an invalid name");
    return valid;
}

static bool package_is_valid(const char *package)
{
    size_t n = strspn(package, TEFFI_WORD_CHARS ".");
    return package[n] == '\0' && package[0] != '.' && !strstr(package, "..") &&
           (n == 0 || package[n - 1] != '.');
}

/* Unpacks the messages nested directly in a message. in: levels: how many levels of nesting are
 * still allowed. out: a list of desc->n_nested_type messages. The entry of an invalid message is
 * NULL. If levels is 0, all entries are NULL. */
static Protoc__Message **unpack_nested_messages(teffi_pool *pool, const Protoc__Message *desc,
                                                unsigned levels)
{
    Protoc__Message **list = teffi_pool_alloc(pool, desc->n_nested_type * sizeof *list);
    for (size_t i = 0; i < desc->n_nested_type && levels > 0; i++) {
        const ProtobufCBinaryData *packed = &desc->nested_type[i];
        list[i] = protoc__message__unpack(&pool->allocator, packed->len, packed->data);
    }
    return list;
}

/* Adds the messages of a list, and the messages nested in them, to file->messages and to
 * model->messages. If an entry of a list is NULL or has an invalid name, notes a problem and skips
 * the rest of that list. in: scope: the full name of the package or message that contains the list.
 * place: the path of the list; its index is ignored. levels: how many levels of messages are still
 * allowed, counting the level of this list. */
static void load_messages(teffi_model *model, teffi_file *file, const char *scope,
                          Protoc__Message *const *list, size_t n, teffi_path place, unsigned levels)
{
    for (size_t i = 0; i < n; i++) {
        if (!teffi_check_name(model, file, NULL, list[i] ? list[i]->name : NULL) || !list[i])
            return;
        teffi_message *m = teffi_pool_alloc(model->pool, sizeof *m);
        m->desc = list[i];
        m->file = file;
        m->full = join_names(model->pool, scope, list[i]->name);
        m->c = teffi_to_snake_case(model->pool, m->full);
        m->pbc = teffi_pbc_type_name(model->pool, m->full);
        m->pbc_lower = teffi_pbc_lowercase_name(model->pool, m->full);
        m->path = place;
        m->path.index = (int32_t)i;
        *file->end = m;
        file->end = &m->next;
        if (teffi_map_put_if_absent(&model->messages, m->full, m))
            teffi_add_problem(model, file, &m->path, "message %s is defined twice", m->full);
        if (strcmp(m->full, TEFFI_VOID) == 0) {
            teffi_add_problem(model, file, &m->path,
                              "these are teff's options, expected to be imported as "
                              "\"" TEFFI_OPTIONS_FILE "\"");
        }
        load_messages(
            model, file, m->full, unpack_nested_messages(model->pool, list[i], levels - 1),
            list[i]->n_nested_type, (teffi_path){&m->path, MESSAGE_NESTED, 0}, levels - 1);
    }
}

static void load_methods(teffi_model *model, teffi_service *service)
{
    service->n_methods = service->desc->n_method;
    service->methods = teffi_pool_alloc(model->pool, service->n_methods * sizeof *service->methods);
    for (size_t i = 0; i < service->n_methods; i++) {
        teffi_method *m = &service->methods[i];
        m->desc = service->desc->method[i];
        m->options = m->desc->options ? m->desc->options->method : NULL;
        m->path = (teffi_path){&service->path, SERVICE_METHODS, (int32_t)i};
        if (teffi_check_name(model, service->file, NULL, m->desc->name)) {
            m->full = join_names(model->pool, service->full, m->desc->name);
            m->slot = teffi_method_slot_name(model->pool, m->desc->name);
        }
    }
}

static void load_services(teffi_model *model, teffi_file *file)
{
    file->services = teffi_pool_alloc(model->pool, file->desc->n_service * sizeof *file->services);
    for (size_t i = 0; i < file->desc->n_service; i++) {
        teffi_service *s = &file->services[i];
        s->desc = file->desc->service[i];
        if (!teffi_check_name(model, file, NULL, s->desc->name))
            return;
        file->n_services++;
        s->file = file;
        s->full = join_names(model->pool, file->package, s->desc->name);
        s->c = teffi_to_snake_case(model->pool, s->full);
        s->id = teffi_hash_fnv32(s->full);
        s->grain = s->desc->options ? s->desc->options->grain : NULL;
        s->observer = s->desc->options && s->desc->options->observer;
        s->path = (teffi_path){&file->path, FILE_SERVICES, (int32_t)i};
        load_methods(model, s);
    }
}

/* Sets set[i] to true for each model->files[i] whose definitions are visible in a file that imports
 * `import`. The loop ends at `import` because imported files precede their importers. */
static void mark_exported_files(const teffi_model *model, bool *set, const teffi_file *import)
{
    for (const teffi_file *other = model->files; other <= import; other++)
        set[other - model->files] |= import->exports[other - model->files];
}

/* Sets file->imports, file->sees and file->exports. file->sees marks the files whose definitions
 * are visible in this file: this file, and the exports of all its imports. file->exports marks the
 * files whose definitions are visible in each file that imports this file: this file, and the
 * exports of its public imports. Notes a problem for each import that is missing or does not
 * precede the file; options files may be missing.
 * in: file: &model->files[model->n_files]; load_file() has not incremented n_files yet. */
static void load_imports(teffi_model *model, teffi_file *file)
{
    const Protoc__File *desc = file->desc;
    file->imports = teffi_pool_alloc(model->pool, desc->n_dependency * sizeof(teffi_file *));
    file->sees = teffi_pool_alloc(model->pool, model->n_files + 1);
    file->exports = teffi_pool_alloc(model->pool, model->n_files + 1);
    file->sees[model->n_files] = file->exports[model->n_files] = true;
    for (size_t i = 0; i < desc->n_dependency; i++) {
        teffi_file *import = teffi_map_get(&model->by_name, desc->dependency[i]);
        if (import) {
            file->imports[file->n_imports++] = import;
            mark_exported_files(model, file->sees, import);
        } else if (!teffi_is_options_file(desc->dependency[i])) {
            teffi_add_problem(model, file, NULL,
                              "the import %s is missing or stands behind this file",
                              desc->dependency[i]);
        }
    }
    for (size_t i = 0; i < desc->n_public_dependency; i++) {
        int32_t at = desc->public_dependency[i];
        const teffi_file *import = at >= 0 && (size_t)at < desc->n_dependency
                                       ? teffi_map_get(&model->by_name, desc->dependency[at])
                                       : NULL;
        if (import)
            mark_exported_files(model, file->exports, import);
    }
}

/* Adds a file, its messages and its services to the model. out: false if a problem was noted and
 * the remaining files must not be loaded. */
static bool load_file(teffi_model *model, const Protoc__File *desc)
{
    teffi_file *file = &model->files[model->n_files];
    const char *wrong = check_file_name(desc->name);
    *file = (teffi_file){.desc = desc, .places = {.pool = model->pool}};
    if (!desc->name || wrong) {
        file->name = desc->name ? make_printable(model->pool, desc->name) : "<request>";
        teffi_add_problem(model, file, NULL, "%s", wrong);
        return false;
    }
    file->name = desc->name;
    file->stem = strip_proto_ending(model->pool, desc->name);
    file->package = desc->package ? desc->package : "";
    file->proto2 = !desc->syntax || strcmp(desc->syntax, "proto2") == 0;
    if (!package_is_valid(file->package)) {
        teffi_add_problem(model, file, NULL, "malformed request: an invalid package name");
        return false;
    }
    teffi_index_lines_and_comments(file);
    if (!file->proto2 && strcmp(desc->syntax, "proto3") != 0) {
        teffi_add_problem(model, file, &(teffi_path){&file->path, FILE_SYNTAX, -1},
                          "syntax \"%s\", expected proto2 or proto3", desc->syntax);
    }
    /* The file must not be in by_name yet: otherwise it could import itself. */
    load_imports(model, file);
    if (teffi_map_put_if_absent(&model->by_name, file->name, file)) {
        teffi_add_problem(model, file, NULL, "malformed request: the file is listed twice");
        return false;
    }
    model->n_files++;
    file->end = &file->messages;
    load_messages(model, file, file->package, desc->message_type, desc->n_message_type,
                  (teffi_path){&file->path, FILE_MESSAGES, 0}, NESTED_MAX);
    load_services(model, file);
    return true;
}

/* Sets `generate` in the file called `name`. Notes a problem if there is no such file, or if `name`
 * is an options file. */
static void mark_file_to_generate(teffi_model *model, const char *name)
{
    teffi_file *file = teffi_map_get(&model->by_name, name);
    if (file) {
        file->generate = true;
    } else if (teffi_is_options_file(name)) {
        teffi_add_problem_at(model, teffi_pool_printf(model->pool, "%s:1", name),
                             "options are not generated, expected a file that imports them");
    } else {
        teffi_add_problem_at(model, "<request>:1",
                             "malformed request: a file to generate is missing");
    }
}

void teffi_model_load(teffi_model *model, const Protoc__Request *request)
{
    model->by_name.pool = model->messages.pool = model->claims.pool = model->pool;
    model->files = teffi_pool_alloc(model->pool, (request->n_proto_file + 1) * sizeof(teffi_file));
    for (size_t i = 0; i < request->n_proto_file; i++) {
        const char *name = request->proto_file[i]->name;
        if ((!name || !teffi_is_options_file(name)) && !load_file(model, request->proto_file[i]))
            return;
    }
    for (size_t i = 0; i < request->n_file_to_generate; i++)
        mark_file_to_generate(model, request->file_to_generate[i]);
}

const teffi_message *teffi_find_message(const teffi_model *model, const char *package,
                                        const char *name)
{
    if (name[0] == '.')
        return teffi_map_get(&model->messages, name + 1);
    char *scope = teffi_pool_printf(model->pool, "%s", package);
    while (scope[0]) {
        const teffi_message *m =
            teffi_map_get(&model->messages, join_names(model->pool, scope, name));
        char *dot = strrchr(scope, '.');
        if (m)
            return m;
        *(dot ? dot : scope) = '\0';
    }
    return teffi_map_get(&model->messages, name);
}

/* out: the service whose full name is `full`; NULL: there is none. */
static const teffi_service *find_service_by_full_name(const teffi_model *model, const char *full)
{
    for (size_t i = 0; i < model->n_files; i++)
        for (size_t k = 0; k < model->files[i].n_services; k++)
            if (strcmp(model->files[i].services[k].full, full) == 0)
                return &model->files[i].services[k];
    return NULL;
}

const teffi_service *teffi_find_service(const teffi_model *model, const char *package,
                                        const char *name)
{
    char *scope = teffi_pool_printf(model->pool, "%s", name[0] == '.' ? "" : package);
    for (;;) {
        const teffi_service *s = find_service_by_full_name(
            model, join_names(model->pool, scope, name + (name[0] == '.')));
        if (s || !scope[0])
            return s;
        char *dot = strrchr(scope, '.');
        *(dot ? dot : scope) = '\0';
    }
}

bool teffi_file_can_refer_to(const teffi_model *model, const teffi_file *file,
                             const teffi_file *other)
{
    return other <= file && file->sees[other - model->files];
}
