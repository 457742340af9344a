/* values.c - the values of the templates' letters. */
#include "emit/emit.h"

#include "model/names.h"

/* The C code for each kind of key: its parameter's type, the members text, number and uuid of a
 * teff_key, and the member of a teff_key that has the key. A compound key also has key_text. */
static const struct {
    const char *kind, *type, *text, *number, *uuid, *member;
} keys[] = {
    [KEY_STRING] = {"STRING", "const char *", "key", "0", "{{0}}", "text"},
    [KEY_INT64] = {"INT64", "int64_t ", "NULL", "key", "{{0}}", "number"},
    [KEY_UUID] = {"UUID", "teff_uuid ", "NULL", "0", "key", "uuid"},
    [KEY_INT64_STRING] = {"INT64_STRING", "int64_t ", "key_text", "key", "{{0}}", "number"},
    [KEY_UUID_STRING] = {"UUID_STRING", "teff_uuid ", "key_text", "0", "key", "uuid"},
};

/* The C types of numbers, by field type. */
static const char *const elements[] = {
    [PROTOC__FIELD__TYPE__DOUBLE] = "double",           [PROTOC__FIELD__TYPE__FLOAT] = "float",
    [PROTOC__FIELD__TYPE__INT64] = "int64_t",           [PROTOC__FIELD__TYPE__SINT64] = "int64_t",
    [PROTOC__FIELD__TYPE__SFIXED64] = "int64_t",        [PROTOC__FIELD__TYPE__UINT64] = "uint64_t",
    [PROTOC__FIELD__TYPE__FIXED64] = "uint64_t",        [PROTOC__FIELD__TYPE__INT32] = "int32_t",
    [PROTOC__FIELD__TYPE__SINT32] = "int32_t",          [PROTOC__FIELD__TYPE__SFIXED32] = "int32_t",
    [PROTOC__FIELD__TYPE__UINT32] = "uint32_t",         [PROTOC__FIELD__TYPE__FIXED32] = "uint32_t",
    [PROTOC__FIELD__TYPE__BOOL] = "protobuf_c_boolean",
};

/* out: the C type of m between the texts `before` and `after`; "" if m is NULL. */
static const char *format_type(teffi_pool *pool, const teffi_message *m, const char *before,
                               const char *after)
{
    return m ? teffi_pool_printf(pool, "%s%s%s", before, m->c, after) : "";
}

teffi_values teffi_make_service_template_values(teffi_pool *pool, const teffi_service *s)
{
    teffi_values v = {{NULL}};
    int32_t key = s->grain->key;
    bool compound = key == KEY_INT64_STRING || key == KEY_UUID_STRING;
    const char *type = keys[key].type;
    v.values['S'] = s->c;
    v.values['N'] = s->full;
    v.values['K'] =
        teffi_pool_printf(pool, "%skey%s", type, compound ? ", const char *key_text" : "");
    v.values['M'] = teffi_pool_printf(pool, "    %skey;\n%s", type,
                                      compound ? "    const char *key_text;\n" : "");
    v.values['V'] = teffi_pool_printf(pool, "{TEFF_KEY_%s, %s, %s, %s}", keys[key].kind,
                                      keys[key].text, keys[key].number, keys[key].uuid);
    v.values['A'] = teffi_pool_printf(pool, "grain->key.%s%s", keys[key].member,
                                      compound ? ", grain->key.text" : "");
    v.values['Q'] = keys[key].kind;
    v.values['T'] = format_type(pool, s->state, "    ", " *state;\n");
    v.values['t'] = format_type(pool, s->state, ", (", " *)grain->state");
    return v;
}

teffi_values teffi_make_observer_template_values(const teffi_service *s)
{
    teffi_values v = {{NULL}};
    v.values['S'] = s->c;
    v.values['N'] = s->full;
    return v;
}

void teffi_values_add_method(teffi_pool *pool, const teffi_method *m, teffi_values *v)
{
    v->values['m'] = m->slot;
    v->values['F'] = m->full;
    v->values['x'] = teffi_pool_printf(pool, "%zu", m->at);
    v->values['I'] = format_type(pool, m->in, ", const ", " *in");
    v->values['i'] = m->in ? "(const ProtobufCMessage *)in" : "NULL";
    v->values['a'] = format_type(pool, m->in, ", (const ", " *)in");
    v->values['O'] = format_type(pool, m->out, ", ", " **out");
    v->values['o'] = format_type(pool, m->out, ", ", " *out");
    v->values['r'] = format_type(pool, m->out, ", (", " *)out");
    v->values['R'] = format_type(pool, m->out, "", "");
}

teffi_values teffi_make_message_template_values(const teffi_message *m)
{
    teffi_values v = {{NULL}};
    v.values['M'] = m->c;
    v.values['P'] = m->pbc;
    v.values['d'] = m->pbc_lower;
    return v;
}

void teffi_values_add_field(const teffi_model *model, const Protoc__Field *f, teffi_values *v)
{
    v->values['f'] = teffi_pbc_field_name(model->pool, f->name);
    if (f->type == PROTOC__FIELD__TYPE__MESSAGE)
        v->values['C'] = teffi_find_message(model, "", f->type_name)->c;
    else if (f->type == PROTOC__FIELD__TYPE__ENUM)
        v->values['E'] = teffi_pbc_type_name(model->pool, f->type_name + (f->type_name[0] == '.'));
    else if (f->type < (int)(sizeof elements / sizeof *elements))
        v->values['E'] = elements[f->type];
}

const char *teffi_choose_by_field_type(const Protoc__Field *f, const char *text, const char *bytes,
                                       const char *message, const char *number)
{
    return f->type == PROTOC__FIELD__TYPE__STRING    ? text
           : f->type == PROTOC__FIELD__TYPE__BYTES   ? bytes
           : f->type == PROTOC__FIELD__TYPE__MESSAGE ? message
                                                     : number;
}
