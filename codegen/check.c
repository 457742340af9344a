/* check.c - what in these files cannot become C?
 * Way:     model, options -> [check] -> emit_* */
#include "model.h"
#include "names.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_ENUMS = 5, FILE_EXTENSIONS = 7, FILE_OPTIONS = 8 };
enum { MESSAGE_FIELDS = 2, MESSAGE_ENUMS = 4, MESSAGE_EXTENSIONS = 6, MESSAGE_ONEOFS = 8 };

typedef struct checker {
    teffi_model *model;
    teffi_map names; /* a scope and a name in it -> symbol */
} checker;

/* Who made a name. */
typedef struct symbol {
    const char *owner; /* as the .proto file calls it */
    const teffi_file *file;
    const teffi_path *path;
} symbol;

/* Claim a name in a scope ("" = the whole program) for an owner. */
static bool claim(checker *c, const char *scope, const char *name, symbol owner)
{
    symbol *kept = teffi_pool_alloc(c->model->pool, sizeof *kept);
    const symbol *first;

    *kept = owner;
    first = teffi_map_put(&c->names, teffi_pool_printf(c->model->pool, "%s %s", scope, name), kept);
    if (first != NULL && (owner.file->generate || first->file->generate)) {
        teffi_problem(c->model, owner.file, owner.path,
                      "%s and %s (%s:%d) both become %s in C, expected names that stay different",
                      owner.owner, first->owner, first->file->name,
                      teffi_line(first->file, first->path), name);
    }
    return first == NULL;
}

/* A name that is not free in C, whoever asks. */
static bool reserved(checker *c, const char *name, symbol owner)
{
    if (!owner.file->generate || !teffi_is_keyword(name)) {
        return false;
    }
    teffi_problem(c->model, owner.file, owner.path,
                  "%s becomes %s, a keyword or macro of C or C++, expected another name",
                  owner.owner, name);
    return true;
}

static void global(checker *c, const char *name, symbol owner)
{
    if (reserved(c, name, owner)) {
        return;
    }
    if (owner.file->generate && teffi_is_taken(name)) {
        teffi_problem(c->model, owner.file, owner.path,
                      "%s becomes %s, a name of the C library or of teff, expected another name "
                      "or a package",
                      owner.owner, name);
        return;
    }
    claim(c, "", name, owner);
}

static void globals(checker *c, const char *stem, const char *const *ends, size_t n, symbol owner)
{
    for (size_t i = 0; i < n; i++) {
        global(c, teffi_pool_printf(c->model->pool, "%s%s", stem, ends[i]), owner);
    }
}

static void check_enum(checker *c, const teffi_file *file, const char *scope, const Protoc__Enum *e,
                       const teffi_path *path)
{
    teffi_pool *pool = c->model->pool;
    symbol owner = {NULL, file, path};
    const char *upper;

    if (!teffi_is_identifier(e->name)) {
        teffi_problem(c->model, file, path, "malformed request: a name that is none");
        return;
    }
    owner.owner = teffi_pool_printf(pool, "%s%s%s", scope, *scope != '\0' ? "." : "", e->name);
    upper = teffi_pbc_upper(pool, owner.owner);
    global(c, teffi_pbc_type(pool, owner.owner), owner);
    for (size_t i = 0; i < e->n_value; i++) {
        if (!teffi_is_identifier(e->value[i]->name)) {
            teffi_problem(c->model, file, path, "malformed request: a name that is none");
            return;
        }
        global(c, teffi_pool_printf(pool, "%s__%s", upper, e->value[i]->name), owner);
    }
}

static void check_enums(checker *c, const teffi_file *file, const char *scope,
                        Protoc__Enum *const *list, size_t n, const teffi_path *up, int32_t field)
{
    for (size_t i = 0; i < n; i++) {
        teffi_path *path = teffi_pool_alloc(c->model->pool, sizeof *path);

        *path = (teffi_path){up, field, (int32_t)i};
        check_enum(c, file, scope, list[i], path);
    }
}

/* protobuf-c's generator crashes on groups; protoc-gen-teff must not let them through. */
static bool check_type(checker *c, const teffi_file *file, const Protoc__Field *f,
                       const teffi_path *path)
{
    bool typed = f->type == PROTOC__FIELD__TYPE__MESSAGE || f->type == PROTOC__FIELD__TYPE__ENUM;

    if (f->type == PROTOC__FIELD__TYPE__GROUP) {
        teffi_problem(c->model, file, path, "groups are not supported, expected a message field");
    } else if (teffi_is_void(f->type_name)) {
        teffi_problem(c->model, file, path,
                      TEFFI_VOID " is for requests and answers, expected another type");
    } else if (f->type < PROTOC__FIELD__TYPE__DOUBLE || f->type > PROTOC__FIELD__TYPE__SINT64 ||
               !teffi_is_identifier(f->name) || typed != (f->type_name != NULL) ||
               (f->type == PROTOC__FIELD__TYPE__MESSAGE &&
                teffi_find_message(c->model, "", f->type_name) == NULL)) {
        teffi_problem(c->model, file, path, "malformed request: a field that is none");
    } else {
        return true;
    }
    return false;
}

static void check_extensions(checker *c, const teffi_file *file, Protoc__Field *const *list,
                             size_t n, const teffi_path *up, int32_t field)
{
    for (size_t i = 0; i < n; i++) {
        check_type(c, file, list[i], &(teffi_path){up, field, (int32_t)i});
    }
}

/* The members that protobuf-c makes of a field, beside the field itself. */
static const char *companion(const teffi_message *m, const Protoc__Field *f)
{
    bool plain = f->type != PROTOC__FIELD__TYPE__MESSAGE && f->type != PROTOC__FIELD__TYPE__STRING;

    if (f->label == PROTOC__FIELD__LABEL__REPEATED) {
        return "n_";
    }
    return m->file->proto2 && plain && !f->has_oneof_index &&
                   f->label == PROTOC__FIELD__LABEL__OPTIONAL
               ? "has_"
               : NULL;
}

static void check_field(checker *c, const teffi_message *m, const Protoc__Field *f,
                        const teffi_path *path)
{
    teffi_pool *pool = c->model->pool;
    symbol owner = {f->name, m->file, path};
    const char *name;

    if (!check_type(c, m->file, f, path)) {
        return;
    }
    if (f->has_oneof_index &&
        (f->oneof_index < 0 || (size_t)f->oneof_index >= m->desc->n_oneof_decl)) {
        teffi_problem(c->model, m->file, path, "malformed request: a oneof that is none");
    }
    if (f->options != NULL && f->options->has_pb_c_field) {
        teffi_problem(c->model, m->file, path,
                      "option (pb_c_field) changes what teff relies on, expected no such option");
    }
    name = teffi_lower(pool, f->name);
    owner.owner = teffi_pool_printf(pool, "%s.%s", m->full, f->name);
    if (!reserved(c, name, owner) && claim(c, m->full, name, owner) && companion(m, f) != NULL) {
        claim(c, m->full, teffi_pool_printf(pool, "%s%s", companion(m, f), name), owner);
    }
}

static void check_oneof(checker *c, const teffi_message *m, const char *name,
                        const teffi_path *path)
{
    teffi_pool *pool = c->model->pool;
    symbol owner = {NULL, m->file, path};

    if (!teffi_is_identifier(name)) {
        teffi_problem(c->model, m->file, path, "malformed request: a name that is none");
        return;
    }
    owner.owner = teffi_pool_printf(pool, "%s.%s", m->full, name);
    claim(c, m->full, teffi_pool_printf(pool, "%s_case", teffi_pbc_lower(pool, name)), owner);
    global(c, teffi_pool_printf(pool, "%s__%sCase", m->pbc, teffi_pbc_type(pool, name)), owner);
}

static void check_members(checker *c, const teffi_message *m)
{
    claim(c, m->full, "base", (symbol){"protobuf-c's base", m->file, &m->path});
    for (size_t i = 0; i < m->desc->n_field; i++) {
        teffi_path *path = teffi_pool_alloc(c->model->pool, sizeof *path);

        *path = (teffi_path){&m->path, MESSAGE_FIELDS, (int32_t)i};
        check_field(c, m, m->desc->field[i], path);
    }
    for (size_t i = 0; i < m->desc->n_oneof_decl; i++) {
        teffi_path *path = teffi_pool_alloc(c->model->pool, sizeof *path);

        *path = (teffi_path){&m->path, MESSAGE_ONEOFS, (int32_t)i};
        check_oneof(c, m, m->desc->oneof_decl[i]->name, path);
    }
}

static void check_message(checker *c, const teffi_message *m)
{
    static const char *const ends[] = {"", "_copy", "_copy_levels", "_ops"};
    symbol owner = {m->full, m->file, &m->path};

    globals(c, m->c, ends, sizeof ends / sizeof *ends, owner);
    if (strcmp(m->c, m->pbc) != 0) {
        global(c, m->pbc, owner);
    }
    global(c, teffi_pool_printf(c->model->pool, "%s__init", m->pbc_lower), owner);
    check_enums(c, m->file, m->full, m->desc->enum_type, m->desc->n_enum_type, &m->path,
                MESSAGE_ENUMS);
    if (!m->file->generate) {
        return;
    }
    if (m->desc->options != NULL && m->desc->options->has_pb_c_msg) {
        teffi_problem(c->model, m->file, &m->path,
                      "option (pb_c_msg) changes what teff relies on, expected no such option");
    }
    check_extensions(c, m->file, m->desc->extension, m->desc->n_extension, &m->path,
                     MESSAGE_EXTENSIONS);
    check_members(c, m);
}

static void check_method(checker *c, const teffi_service *s, const teffi_method *m)
{
    static const char *const ends[] = {"", "_start", "_reply", "_send"};
    teffi_pool *pool = c->model->pool;
    symbol owner = {m->full, s->file, &m->path};
    symbol *kept = teffi_pool_alloc(pool, sizeof *kept);
    const symbol *first;

    if (reserved(c, m->slot, owner) || !claim(c, s->full, m->slot, owner)) {
        return;
    }
    if (m->slot[0] == '_') {
        teffi_problem(c->model, s->file, &m->path,
                      "%s begins with an underscore, expected a letter", m->full);
        return;
    }
    globals(c, teffi_pool_printf(pool, "%s_%s", s->c, m->slot), ends, sizeof ends / sizeof *ends,
            owner);
    *kept = owner;
    first = teffi_map_put(&c->names, teffi_pool_printf(pool, "%s id 0x%08x", s->full, m->id), kept);
    if (first != NULL) {
        teffi_problem(c->model, s->file, &m->path,
                      "%s and %s (%s:%d) have the same id 0x%08x, expected another id for one",
                      m->full, first->owner, first->file->name,
                      teffi_line(first->file, first->path), m->id);
    }
}

static void check_grain(checker *c, const teffi_service *s)
{
    static const char *const ends[] = {"", "_methods", "_type", "_info", "_save", "_clear"};
    static const char *const slots[] = {"on_activate", "on_deactivate"};
    symbol owner = {s->full, s->file, &s->path};

    globals(c, s->c, ends, sizeof ends / sizeof *ends, owner);
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        claim(c, s->full, slots[i], (symbol){"the grain's own slot", s->file, &s->path});
    }
    for (size_t i = 0; i < s->n_methods; i++) {
        check_method(c, s, &s->methods[i]);
    }
}

static void check_file(checker *c, const teffi_file *file)
{
    const Protoc__File *desc = file->desc;

    check_enums(c, file, file->package, desc->enum_type, desc->n_enum_type, &file->path,
                FILE_ENUMS);
    for (size_t i = 0; i < file->n_messages; i++) {
        check_message(c, file->messages[i]);
    }
    if (!file->generate) {
        return;
    }
    if (desc->options != NULL && desc->options->pb_c_file != NULL) {
        teffi_problem(c->model, file, &(teffi_path){&file->path, FILE_OPTIONS, -1},
                      "option (pb_c_file) changes what teff relies on, expected no such option");
    }
    check_extensions(c, file, desc->extension, desc->n_extension, &file->path, FILE_EXTENSIONS);
    for (size_t i = 0; i < file->n_services; i++) {
        if (file->services[i].grain) {
            check_grain(c, &file->services[i]);
        }
    }
}

/* Every service has an id, hashed from its name: the map finds two that share one. */
static void check_ids(checker *c, const teffi_file *file)
{
    for (size_t i = 0; i < file->n_services; i++) {
        const teffi_service *s = &file->services[i];
        const char *id = teffi_pool_printf(c->model->pool, "type id 0x%08x", s->id);
        const teffi_service *first = teffi_map_put(&c->names, id, &file->services[i]);

        if (first != NULL && (s->grain || first->grain)) {
            teffi_problem(c->model, file, &s->path,
                          "%s and %s (%s:%d) have the same id 0x%08x, expected another name",
                          s->full, first->full, first->file->name,
                          teffi_line(first->file, &first->path), s->id);
        }
    }
}

void teffi_model_check(teffi_model *model)
{
    checker c = {.model = model, .names = {.pool = model->pool}};

    for (size_t i = 0; i < model->n_files; i++) {
        check_file(&c, &model->files[i]);
        check_ids(&c, &model->files[i]);
    }
}
