/* check.c - finds what cannot be generated as C: name clashes, equal ids, reserved names, types and
 * options of fields. */
#include "model/model.h"

#include "model/names.h"

#include <string.h>

/* Field numbers of google/protobuf/descriptor.proto, for paths. */
enum { FILE_ENUMS = 5, FILE_EXTENSIONS = 7, FILE_OPTIONS = 8 };
enum { MESSAGE_FIELDS = 2, MESSAGE_ENUMS = 4, MESSAGE_EXTENSIONS = 6, MESSAGE_ONEOFS = 8 };

/* The origin of a generated name or an id. model->claims keeps copies, so what a claimed symbol
 * points to must live as long as the model. */
typedef struct symbol {
    const char *owner; /* its name in the .proto file */
    const teffi_file *file;
    const teffi_path *path;
} symbol;

/* Claims a key for an owner: stores the owner under the key, if the key has no owner yet. If it has
 * one, adds the problem "A and B (file:line) <wrong>": A is the new owner, B is the earlier owner,
 * file:line is the place of B. Adds no problem if C is to be generated neither for A's file nor for
 * B's. out: false: the key already had an owner. */
static bool claim_key(teffi_model *model, const char *key, symbol owner, const char *wrong)
{
    symbol *kept = teffi_pool_alloc(model->pool, sizeof *kept);
    *kept = owner;
    const symbol *first = teffi_map_put_if_absent(&model->claims, key, kept);
    if (first && (owner.file->generate || first->file->generate)) {
        teffi_add_problem(model, owner.file, owner.path, "%s and %s (%s:%d) %s", owner.owner,
                          first->owner, first->file->name,
                          teffi_places_find_line(first->file, first->path), wrong);
    }
    return !first;
}

/* Claims a C name in a scope, see claim_key(). The scope "" has the global names, which are those
 * at file scope in C. out: false: the name already had an owner. */
static bool claim_name(teffi_model *model, const char *scope, const char *name, symbol owner)
{
    teffi_pool *pool = model->pool;
    return claim_key(
        model, teffi_pool_printf(pool, "%s %s", scope, name), owner,
        teffi_pool_printf(pool, "both become %s in C, expected names that stay different", name));
}

/* Claims an id in a scope, see claim_key(). in: expected: the text that follows "expected another"
 * in the problem, for example "name". */
static void claim_id(teffi_model *model, const char *scope, uint32_t id, symbol owner,
                     const char *expected)
{
    teffi_pool *pool = model->pool;
    claim_key(
        model, teffi_pool_printf(pool, "%s id 0x%08x", scope, id), owner,
        teffi_pool_printf(pool, "have the same id 0x%08x, expected another %s", id, expected));
}

/* Adds a problem if the name is a keyword or macro of C or C++: those are reserved in every scope.
 * Checks nothing if no C is to be generated for the owner's file.
 * out: true: a problem was added. */
static bool refuse_keyword_or_macro(teffi_model *model, const char *name, symbol owner)
{
    if (!owner.file->generate || !teffi_is_keyword_or_macro(name))
        return false;
    teffi_add_problem(model, owner.file, owner.path,
                      "%s becomes %s, a keyword or macro of C or C++, expected another name",
                      owner.owner, name);
    return true;
}

/* Claims a global name, which is a name at file scope in C. Adds a problem instead if C is to be
 * generated for the owner's file and the name is a keyword, a macro, or reserved at file scope. */
static void claim_global_name(teffi_model *model, const char *name, symbol owner)
{
    if (refuse_keyword_or_macro(model, name, owner))
        return;
    /* teff's own .proto file may use names that are reserved for teff. */
    bool is_own = strcmp(owner.file->name, TEFFI_PROCESS_FILE) == 0;
    if (owner.file->generate && !is_own && teffi_is_reserved_at_file_scope(name)) {
        teffi_add_problem(
            model, owner.file, owner.path,
            "%s becomes %s, a name of the C library or of teff, expected another name "
            "or a package",
            owner.owner, name);
        return;
    }
    claim_name(model, "", name, owner);
}

/* Claims the global name stem + ends[i] for each i. in: ends: terminated by NULL. */
static void claim_global_names(teffi_model *model, const char *stem, const char *const *ends,
                               symbol owner)
{
    for (; *ends; ends++)
        claim_global_name(model, teffi_pool_printf(model->pool, "%s%s", stem, *ends), owner);
}

/* Claims the C names of an enum and of its values. in: scope: the full name of the package or
 * message that contains the enum; it may be "". */
static void claim_enum_names(teffi_model *model, const teffi_file *file, const char *scope,
                             const Protoc__Enum *e, const teffi_path *path)
{
    teffi_pool *pool = model->pool;
    symbol owner = {.file = file, .path = path};
    if (!teffi_check_name(model, file, path, e->name))
        return;
    owner.owner = teffi_pool_printf(pool, "%s%s%s", scope, *scope ? "." : "", e->name);
    const char *upper = teffi_pbc_uppercase_name(pool, owner.owner);
    claim_global_name(model, teffi_pbc_type_name(pool, owner.owner), owner);
    for (size_t i = 0; i < e->n_value; i++) {
        if (!teffi_check_name(model, file, path, e->value[i]->name))
            return;
        claim_global_name(model, teffi_pool_printf(pool, "%s__%s", upper, e->value[i]->name),
                          owner);
    }
}

static void claim_all_enum_names(teffi_model *model, const teffi_file *file, const char *scope,
                                 Protoc__Enum *const *list, size_t n, const teffi_path *up,
                                 int32_t field)
{
    for (size_t i = 0; i < n; i++)
        claim_enum_names(model, file, scope, list[i],
                         teffi_path_new(model->pool, up, field, (int32_t)i));
}

/* Adds a problem if the field is malformed or has a type for which no C can be generated.
 * out: true: no problem was added. */
static bool check_field_type(teffi_model *model, const teffi_file *file, const Protoc__Field *f,
                             const teffi_path *path)
{
    bool typed = f->type == PROTOC__FIELD__TYPE__MESSAGE || f->type == PROTOC__FIELD__TYPE__ENUM;
    if (f->type == PROTOC__FIELD__TYPE__GROUP) { /* protobuf-c's generator would crash */
        teffi_add_problem(model, file, path, "groups are not supported, expected a message field");
    } else if (teffi_is_void(f->type_name)) {
        teffi_add_problem(model, file, path,
                          TEFFI_VOID " is for requests and responses, expected another type");
    } else if (f->type < PROTOC__FIELD__TYPE__DOUBLE || f->type > PROTOC__FIELD__TYPE__SINT64 ||
               !teffi_is_identifier(f->name) || typed != (f->type_name != NULL) ||
               (f->type == PROTOC__FIELD__TYPE__MESSAGE &&
                teffi_find_message(model, "", f->type_name) == NULL)) {
        teffi_add_problem(model, file, path, "malformed request: an invalid field");
    } else {
        return true;
    }
    return false;
}

/* Checks the types of extensions. in: up: the path of the message or file that contains the list.
 * field: the number of the descriptor field that contains the list, such as MESSAGE_EXTENSIONS. */
static void check_extensions(teffi_model *model, const teffi_file *file, Protoc__Field *const *list,
                             size_t n, const teffi_path *up, int32_t field)
{
    for (size_t i = 0; i < n; i++)
        check_field_type(model, file, list[i], &(teffi_path){up, field, (int32_t)i});
}

/* protobuf-c generates a struct member for each field, and for some fields an extra member.
 * out: the prefix of the extra member's name, "has_" or "n_"; NULL if f has no extra member. */
static const char *find_extra_member_prefix(const teffi_message *m, const Protoc__Field *f)
{
    return teffi_is_repeated(f) ? "n_" : teffi_has_presence_flag(m, f) ? "has_" : NULL;
}

/* Adds a problem if protobuf-c would accept the field but generate C that does not compile.
 * in: name: the field's name in C. out: false: a problem was added. */
static bool check_field_compiles(teffi_model *model, const teffi_message *m, const Protoc__Field *f,
                                 const char *name, const teffi_path *path)
{
    bool real = f->type == PROTOC__FIELD__TYPE__DOUBLE || f->type == PROTOC__FIELD__TYPE__FLOAT;
    const char *initial = real && f->default_value ? f->default_value : "";
    if (teffi_is_pbc_member_type(name)) {
        teffi_add_problem(
            model, m->file, path,
            "%s.%s becomes %s, a type that protobuf-c's structs use, expected another name",
            m->full, f->name, name);
        return false;
    }
    if (strcmp(initial, "inf") == 0 || strcmp(initial, "-inf") == 0 ||
        strcmp(initial, "nan") == 0) {
        teffi_add_problem(model, m->file, path,
                          "protobuf-c cannot write the default %s, expected a number", initial);
        return false;
    }
    return true;
}

/* Checks a field; claims the names of its struct members and of its append function. */
static void check_field_and_claim_names(teffi_model *model, const teffi_message *m,
                                        const Protoc__Field *f, const teffi_path *path)
{
    teffi_pool *pool = model->pool;
    symbol owner = {.file = m->file, .path = path};
    if (!check_field_type(model, m->file, f, path))
        return;
    if (f->has_oneof_index &&
        (f->oneof_index < 0 || (size_t)f->oneof_index >= m->desc->n_oneof_decl))
        teffi_add_problem(model, m->file, path, "malformed request: an invalid oneof");
    if (f->options && f->options->has_pb_c_field) {
        teffi_add_problem(
            model, m->file, path,
            "option (pb_c_field) changes what teff relies on, expected no such option");
    }
    const char *name = teffi_pbc_field_name(pool, f->name);
    owner.owner = teffi_pool_printf(pool, "%s.%s", m->full, f->name);
    if (check_field_compiles(model, m, f, name, path) &&
        !refuse_keyword_or_macro(model, name, owner) && claim_name(model, m->full, name, owner)) {
        const char *prefix = find_extra_member_prefix(m, f);
        if (prefix)
            claim_name(model, m->full, teffi_pool_printf(pool, "%s%s", prefix, name), owner);
        if (teffi_has_append_function(f))
            claim_global_name(model, teffi_pool_printf(pool, "%s_append_%s", m->c, name), owner);
    }
}

/* protobuf-c generates an enum whose value tells which member of a oneof is set. Claims the names
 * of the enum's constants: one for each member of the oneof, and one for "not set".
 * in: index: the oneof's index in m. oneof.owner: the oneof's full name. */
static void claim_oneof_constant_names(teffi_model *model, const teffi_message *m, int32_t index,
                                       symbol oneof)
{
    teffi_pool *pool = model->pool;
    const char *upper = teffi_pbc_uppercase_name(pool, oneof.owner);
    claim_global_name(model, teffi_pool_printf(pool, "%s__NOT_SET", upper), oneof);
    for (size_t i = 0; i < m->desc->n_field; i++) {
        const Protoc__Field *f = m->desc->field[i];
        if (!f->has_oneof_index || f->oneof_index != index || !teffi_is_identifier(f->name))
            continue;
        symbol owner = {teffi_pool_printf(pool, "%s.%s", m->full, f->name), m->file,
                        teffi_path_new(pool, &m->path, MESSAGE_FIELDS, (int32_t)i)};
        claim_global_name(
            model, teffi_pool_printf(pool, "%s_%s", upper, teffi_pbc_uppercase_name(pool, f->name)),
            owner);
    }
}

/* Claims the names that protobuf-c generates for a oneof: the name of the struct member that tells
 * which field is set, the name of that member's enum type, and the names of that enum's
 * constants. */
static void claim_oneof_names(teffi_model *model, const teffi_message *m, int32_t index,
                              const teffi_path *path)
{
    teffi_pool *pool = model->pool;
    const char *name = m->desc->oneof_decl[index]->name;
    symbol owner = {.file = m->file, .path = path};
    if (!teffi_check_name(model, m->file, path, name))
        return;
    owner.owner = teffi_pool_printf(pool, "%s.%s", m->full, name);
    claim_name(model, m->full,
               teffi_pool_printf(pool, "%s_case", teffi_pbc_lowercase_name(pool, name)), owner);
    claim_global_name(
        model, teffi_pool_printf(pool, "%s__%sCase", m->pbc, teffi_pbc_type_name(pool, name)),
        owner);
    claim_oneof_constant_names(model, m, index, owner);
}

/* Checks a message's fields and oneofs, and claims the names of its C struct's members. Also claims
 * the name of the message's C++ builder in the same scope, so that no field can have this name: the
 * builder is a struct with a function for each field. The function has the field's name, and C++
 * does not allow it to have the struct's name. */
static void check_members_and_claim_names(teffi_model *model, const teffi_message *m)
{
    teffi_pool *pool = model->pool;
    claim_name(model, m->full, "base", (symbol){"protobuf-c's base", m->file, &m->path});
    claim_name(model, m->full, teffi_pool_printf(pool, "%s_with", m->c),
               (symbol){"its type for C++", m->file, &m->path});
    for (int32_t i = 0; (size_t)i < m->desc->n_field; i++)
        check_field_and_claim_names(model, m, m->desc->field[i],
                                    teffi_path_new(pool, &m->path, MESSAGE_FIELDS, i));
    for (int32_t i = 0; (size_t)i < m->desc->n_oneof_decl; i++)
        claim_oneof_names(model, m, i, teffi_path_new(pool, &m->path, MESSAGE_ONEOFS, i));
}

/* Claims the global names of a message and of its enums. If C is to be generated for the file,
 * also checks the message's options, extensions and members. */
static void check_message_and_claim_names(teffi_model *model, const teffi_message *m)
{
    static const char *const ends[] = {"", "_copy", "_copy_levels", "_ops", "_keep", "_with", NULL};
    symbol owner = {m->full, m->file, &m->path};
    claim_global_names(model, m->c, ends, owner);
    if (strcmp(m->c, m->pbc) != 0)
        claim_global_name(model, m->pbc, owner);
    claim_global_name(model, teffi_pool_printf(model->pool, "%s__init", m->pbc_lower), owner);
    claim_all_enum_names(model, m->file, m->full, m->desc->enum_type, m->desc->n_enum_type,
                         &m->path, MESSAGE_ENUMS);
    if (!m->file->generate)
        return;
    if (m->desc->options && m->desc->options->has_pb_c_msg) {
        teffi_add_problem(model, m->file, &m->path,
                          "option (pb_c_msg) changes what teff relies on, expected no such option");
    }
    check_extensions(model, m->file, m->desc->extension, m->desc->n_extension, &m->path,
                     MESSAGE_EXTENSIONS);
    check_members_and_claim_names(model, m);
}

/* Claims the name of a method's slot (a member of the grain's struct of methods) and the names of
 * the method's C functions. If C is to be generated for the service's file, also claims the
 * method's id, and adds a problem if the slot's name begins with an underscore. */
static void claim_method_names_and_id(teffi_model *model, const teffi_service *s,
                                      const teffi_method *m)
{
    static const char *const ends[] = {"", "_async", "_await", "_send", NULL};
    static const char *const one_way_ends[] = {"_timer", NULL};
    static const char *const observer_ends[] = {"_notify", "_notify_one", NULL};
    teffi_pool *pool = model->pool;
    symbol owner = {m->full, s->file, &m->path};
    const char *stem = teffi_pool_printf(pool, "%s_%s", s->c, m->slot);
    if (!claim_name(model, s->full, m->slot, owner))
        return;
    if (s->file->generate && m->slot[0] == '_') {
        teffi_add_problem(model, s->file, &m->path,
                          "%s begins with an underscore, expected a letter", m->full);
        return;
    }
    if (s->observer)
        claim_global_names(model, stem, observer_ends, owner);
    else if (!m->observed)
        claim_global_names(model, stem, ends, owner);
    if (!s->observer && !m->observed && m->options && m->options->one_way)
        claim_global_names(model, stem, one_way_ends, owner);
    if (!s->file->generate)
        return; /* an option may set the id, but this file's options were not read */
    claim_id(model, s->full, m->id, owner, "id for one");
}

/* Claims the names and the ids of a grain or an observer, and of its methods. */
static void claim_service_names_and_ids(teffi_model *model, const teffi_service *s)
{
    static const char *const ends[] = {"", "_methods", "_type", "_info", "_save", "_clear", NULL};
    static const char *const observer_ends[] = {"",         "_methods",     "_info",
                                                "_observe", "_of_grain",    "_subscribe",
                                                "_count",   "_unsubscribe", NULL};
    symbol owner = {s->full, s->file, &s->path};
    claim_global_names(model, s->c, s->observer ? observer_ends : ends, owner);
    claim_id(model, "", s->id, owner, "name");
    if (s->observer)
        claim_name(model, s->full, "on_dropped", (symbol){"the slot for drops", s->file, &s->path});
    for (size_t i = 0; i < s->n_methods; i++)
        claim_method_names_and_id(model, s, &s->methods[i]);
}

static void check_file_and_claim_names(teffi_model *model, const teffi_file *file)
{
    const Protoc__File *desc = file->desc;
    claim_all_enum_names(model, file, file->package, desc->enum_type, desc->n_enum_type,
                         &file->path, FILE_ENUMS);
    for (const teffi_message *m = file->messages; m; m = m->next)
        check_message_and_claim_names(model, m);
    for (size_t i = 0; i < file->n_services; i++)
        if (file->services[i].grain || file->services[i].observer)
            claim_service_names_and_ids(model, &file->services[i]);
    if (!file->generate)
        return;
    if (desc->options && desc->options->pb_c_file) {
        teffi_add_problem(
            model, file, &(teffi_path){&file->path, FILE_OPTIONS, -1},
            "option (pb_c_file) changes what teff relies on, expected no such option");
    }
    check_extensions(model, file, desc->extension, desc->n_extension, &file->path, FILE_EXTENSIONS);
}

void teffi_model_check(teffi_model *model)
{
    for (size_t i = 0; i < model->n_files; i++)
        check_file_and_claim_names(model, &model->files[i]);
}
