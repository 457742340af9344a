/* model.c - which messages and services are in the files of a request?
 * Way:     codegen -> [model] -> options, check, emit_* */
#include "model.h"

#include "names.h"

#include <string.h>

enum {
    FILE_MESSAGES = 4,
    FILE_SERVICES = 6,
    FILE_SYNTAX = 12,
    MESSAGE_NESTED = 3,
    SERVICE_METHODS = 2
};

bool teffi_is_void(const char *type_name)
{
    return type_name != NULL && strcmp(type_name, "." TEFFI_VOID) == 0;
}

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           strchr("_-./+@,=~ ", c) != NULL;
}

/* Names of files end up in #include lines and comments, and where outputs are written. */
static bool file_name_ok(const char *name)
{
    const char *part = name;

    if (name == NULL || *name == '\0' || *name == '/') {
        return false;
    }
    for (const char *s = name; *s != '\0'; s++) {
        if (!name_char(*s)) {
            return false;
        }
    }
    for (; part != NULL; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "../", 3) == 0 || strcmp(part, "..") == 0) {
            return false;
        }
    }
    return true;
}

static const char *stem(teffi_pool *pool, const char *name)
{
    size_t n = strlen(name);

    if (n > 6 && strcmp(name + n - 6, ".proto") == 0) {
        n -= 6;
    } else if (n > 11 && strcmp(name + n - 11, ".protodevel") == 0) {
        n -= 11;
    }
    return teffi_pool_printf(pool, "%.*s", (int)n, name);
}

static const char *join(teffi_pool *pool, const char *scope, const char *name)
{
    return teffi_pool_printf(pool, "%s%s%s", scope, *scope != '\0' ? "." : "", name);
}

/* A name that protoc would not have passed on: the request was not made by protoc. */
static bool bad_name(teffi_model *model, const teffi_file *file, const char *name)
{
    if (teffi_is_identifier(name)) {
        return false;
    }
    teffi_problem(model, file, NULL, "malformed request: a name that is none");
    return true;
}

static bool package_ok(const char *package)
{
    for (const char *s = package; *s != '\0'; s++) {
        if (*s == '.' ? s == package || s[1] == '.' || s[1] == '\0' : *s != '_' && !name_char(*s)) {
            return false;
        }
    }
    return strpbrk(package, "-/+@,=~ ") == NULL;
}

static size_t count(Protoc__Message *const *list, size_t n)
{
    size_t all = n;

    for (size_t i = 0; i < n; i++) {
        all += count(list[i]->nested_type, list[i]->n_nested_type);
    }
    return all;
}

static void load_messages(teffi_model *model, teffi_file *file, const char *scope,
                          Protoc__Message *const *list, size_t n, teffi_path place)
{
    for (size_t i = 0; i < n && !bad_name(model, file, list[i]->name); i++) {
        teffi_message *m = teffi_pool_alloc(model->pool, sizeof *m);

        m->desc = list[i];
        m->file = file;
        m->full = join(model->pool, scope, list[i]->name);
        m->c = teffi_snake(model->pool, m->full);
        m->pbc = teffi_pbc_type(model->pool, m->full);
        m->pbc_lower = teffi_pbc_lower(model->pool, m->full);
        m->path = place;
        m->path.index = (int32_t)i;
        file->messages[file->n_messages++] = m;
        if (teffi_map_put(&model->messages, m->full, m) != NULL) {
            teffi_problem(model, file, &m->path, "message %s is defined twice", m->full);
        }
        if (strcmp(m->full, TEFFI_VOID) == 0) {
            teffi_problem(model, file, &m->path,
                          "these are teff's options, expected to be imported as "
                          "\"" TEFFI_OPTIONS_FILE "\"");
        }
        load_messages(model, file, m->full, list[i]->nested_type, list[i]->n_nested_type,
                      (teffi_path){&m->path, MESSAGE_NESTED, 0});
    }
}

static void load_methods(teffi_model *model, teffi_service *service)
{
    service->n_methods = service->desc->n_method;
    service->methods = teffi_pool_alloc(model->pool, service->n_methods * sizeof *service->methods);
    for (size_t i = 0; i < service->n_methods; i++) {
        teffi_method *m = &service->methods[i];

        m->desc = service->desc->method[i];
        m->path = (teffi_path){&service->path, SERVICE_METHODS, (int32_t)i};
        if (!bad_name(model, service->file, m->desc->name)) {
            m->full = join(model->pool, service->full, m->desc->name);
            m->slot = teffi_snake(model->pool, m->desc->name);
        }
    }
}

static void load_services(teffi_model *model, teffi_file *file)
{
    file->services = teffi_pool_alloc(model->pool, file->desc->n_service * sizeof *file->services);
    for (size_t i = 0; i < file->desc->n_service; i++) {
        teffi_service *s = &file->services[i];

        s->desc = file->desc->service[i];
        if (bad_name(model, file, s->desc->name)) {
            return;
        }
        file->n_services++;
        s->file = file;
        s->full = join(model->pool, file->package, s->desc->name);
        s->c = teffi_snake(model->pool, s->full);
        s->id = teffi_fnv32(s->full);
        s->path = (teffi_path){&file->path, FILE_SERVICES, (int32_t)i};
        load_methods(model, s);
    }
}

static void load_imports(teffi_model *model, teffi_file *file)
{
    const Protoc__File *desc = file->desc;

    file->imports = teffi_pool_alloc(model->pool, desc->n_dependency * sizeof(teffi_file *));
    for (size_t i = 0; i < desc->n_dependency; i++) {
        teffi_file *import;

        if (strcmp(desc->dependency[i], TEFFI_OPTIONS_FILE) == 0) {
            continue;
        }
        import = teffi_map_get(&model->by_name, desc->dependency[i]);
        if (import == NULL) {
            teffi_problem(model, file, NULL, "the import %s is missing or stands behind this file",
                          desc->dependency[i]);
            continue;
        }
        file->imports[file->n_imports++] = import;
    }
}

static bool exports(const teffi_file *file, const teffi_file *other)
{
    for (size_t i = 0; i < file->n_exports; i++) {
        if (file->exports[i] == other) {
            return true;
        }
    }
    return false;
}

/* Public imports hand on what they import publicly themselves. */
static void load_exports(teffi_model *model, teffi_file *file)
{
    const Protoc__File *desc = file->desc;

    file->exports = teffi_pool_alloc(model->pool, (model->n_files + 1) * sizeof(teffi_file *));
    file->exports[file->n_exports++] = file;
    for (size_t i = 0; i < desc->n_public_dependency; i++) {
        int32_t at = desc->public_dependency[i];
        teffi_file *import = at >= 0 && (size_t)at < desc->n_dependency
                                 ? teffi_map_get(&model->by_name, desc->dependency[at])
                                 : NULL;

        for (size_t k = 0; import != NULL && k < import->n_exports; k++) {
            if (!exports(file, import->exports[k])) {
                file->exports[file->n_exports++] = import->exports[k];
            }
        }
    }
}

static bool syntax_ok(const char *syntax)
{
    return syntax == NULL || strcmp(syntax, "proto2") == 0 || strcmp(syntax, "proto3") == 0;
}

static bool load_file(teffi_model *model, const Protoc__File *desc)
{
    teffi_file *file = &model->files[model->n_files];

    *file = (teffi_file){.desc = desc, .name = "<request>"};
    if (desc->name == NULL || !file_name_ok(desc->name)) {
        teffi_problem(model, file, NULL,
                      "a file name that leaves the output folder or is not plain");
        return false;
    }
    file->name = desc->name;
    file->stem = stem(model->pool, desc->name);
    file->package = desc->package != NULL ? desc->package : "";
    file->proto2 = desc->syntax == NULL || strcmp(desc->syntax, "proto3") != 0;
    if (!package_ok(file->package)) {
        teffi_problem(model, file, NULL, "malformed request: a package that is none");
        return false;
    }
    teffi_places_load(model->pool, file);
    if (!syntax_ok(desc->syntax)) {
        teffi_problem(model, file, &(teffi_path){&file->path, FILE_SYNTAX, -1},
                      "syntax \"%s\", expected proto2 or proto3", desc->syntax);
    }
    load_imports(model, file); /* before the file is known: it cannot import itself */
    load_exports(model, file);
    if (teffi_map_put(&model->by_name, file->name, file) != NULL) {
        teffi_problem(model, file, NULL, "malformed request: the file is there twice");
        return false;
    }
    model->n_files++;
    file->messages = teffi_pool_alloc(model->pool, count(desc->message_type, desc->n_message_type) *
                                                       sizeof *file->messages);
    load_messages(model, file, file->package, desc->message_type, desc->n_message_type,
                  (teffi_path){&file->path, FILE_MESSAGES, 0});
    load_services(model, file);
    return true;
}

static void mark_generated(teffi_model *model, const char *name)
{
    teffi_file *file = teffi_map_get(&model->by_name, name);
    teffi_file stand_in = {.name = name};

    if (file != NULL) {
        file->generate = true;
    } else if (strcmp(name, TEFFI_OPTIONS_FILE) == 0) {
        teffi_problem(model, &stand_in, NULL,
                      "the options are part of teff, expected a file that imports them");
    } else {
        stand_in.name = "<request>";
        teffi_problem(model, &stand_in, NULL, "malformed request: a file to generate is missing");
    }
}

void teffi_model_load(teffi_model *model, const Protoc__Request *request)
{
    model->by_name.pool = model->pool;
    model->messages.pool = model->pool;
    model->problems.pool = model->pool;
    model->files = teffi_pool_alloc(model->pool, (request->n_proto_file + 1) * sizeof(teffi_file));
    for (size_t i = 0; i < request->n_proto_file; i++) {
        const char *name = request->proto_file[i]->name;

        if ((name == NULL || strcmp(name, TEFFI_OPTIONS_FILE) != 0) &&
            !load_file(model, request->proto_file[i])) {
            return;
        }
    }
    for (size_t i = 0; i < request->n_file_to_generate; i++) {
        mark_generated(model, request->file_to_generate[i]);
    }
}

const teffi_message *teffi_find_message(const teffi_model *model, const char *package,
                                        const char *name)
{
    char *scope;

    if (name[0] == '.') {
        return teffi_map_get(&model->messages, name + 1);
    }
    scope = teffi_pool_printf(model->pool, "%s", package);
    while (scope[0] != '\0') {
        const teffi_message *m = teffi_map_get(&model->messages, join(model->pool, scope, name));
        char *dot = strrchr(scope, '.');

        if (m != NULL) {
            return m;
        }
        *(dot != NULL ? dot : scope) = '\0';
    }
    return teffi_map_get(&model->messages, name);
}

bool teffi_sees(const teffi_file *file, const teffi_file *other)
{
    for (size_t i = 0; i < file->n_imports; i++) {
        if (exports(file->imports[i], other)) {
            return true;
        }
    }
    return file == other;
}
