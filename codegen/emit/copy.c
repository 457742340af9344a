/* copy.c - generates deep copies, from a caller's memory into a message's arena.
 * A copy begins as a bitwise copy of the struct, in one block with the message's inline strings.
 * Then each pointer is set to a copy, or to its default. The result equals a message that
 * runtime/message has encoded and decoded. */
#include "emit/emit.h"

#include "model/names.h"

/* Is f an optional proto2 field that is neither a message nor in a oneof? Such a field has a has_
 * flag or is a string. If the source message lacks the field, the copy gets the field's default. */
static bool field_is_defaulted_if_absent(const teffi_message *m, const Protoc__Field *f)
{
    return teffi_has_presence_flag(m, f) ||
           (m->file->proto2 && !f->has_oneof_index && f->type == PROTOC__FIELD__TYPE__STRING &&
            f->label == PROTOC__FIELD__LABEL__OPTIONAL);
}

/* Is the copy of f's text inline, which means after the struct in the same block? Only a string
 * field that always has a value is copied in this way. Such a field is neither repeated, nor in a
 * oneof, nor optional in proto2. */
static bool text_is_inline(const teffi_message *m, const Protoc__Field *f)
{
    return f->type == PROTOC__FIELD__TYPE__STRING && !teffi_is_repeated(f) && !f->has_oneof_index &&
           !field_is_defaulted_if_absent(m, f);
}

static const char copy_inline_text[] =
    "    dst->$f = teff_copy_text_to(&texts, src->$f != NULL ? src->$f : \"\", n_$f);\n";
static const char copy_list[] = "    if (!teff_copy_$k(arena, dst->n_$f, &dst->$f)) {\n"
                                "        return NULL;\n"
                                "    }\n";
static const char copy_messages[] =
    "    dst->$f = NULL;\n"
    "    if (src->n_$f > 0) {\n"
    "        dst->$f = ($C **)teff_arena_take(arena, src->n_$f * sizeof *dst->$f);\n"
    "        if (dst->$f == NULL) {\n"
    "            return NULL;\n"
    "        }\n"
    "    }\n"
    "    for (size_t i = 0; i < src->n_$f; i++) {\n"
    "        dst->$f[i] = $C_copy_levels(arena, src->$f[i], levels - 1);\n"
    "        if (dst->$f[i] == NULL) {\n"
    "            return NULL;\n"
    "        }\n"
    "    }\n";
static const char copy_numbers[] =
    "    dst->$f = NULL;\n"
    "    if (src->n_$f > 0) {\n"
    "        dst->$f = ($E *)teff_arena_copy(arena, src->$f, src->n_$f * sizeof *src->$f);\n"
    "        if (dst->$f == NULL) {\n"
    "            return NULL;\n"
    "        }\n"
    "    }\n";
static const char copy_one[] = "$nif (!teff_copy_$k(arena, &dst->$f)) {\n"
                               "$n    return NULL;\n"
                               "$n}\n";
static const char copy_message[] = "$nif (src->$f != NULL) {\n"
                                   "$n    dst->$f = $C_copy_levels(arena, src->$f, levels - 1);\n"
                                   "$n    if (dst->$f == NULL) {\n"
                                   "$n        return NULL;\n"
                                   "$n    }\n"
                                   "$n}";
static const char copy_required[] = "$ndst->$f = $C_copy_levels(arena, src->$f, levels - 1);\n"
                                    "$nif (dst->$f == NULL) {\n"
                                    "$n    return NULL;\n"
                                    "$n}";
static const char clear_case[] = " else {\n"
                                 "            memset(&dst->$o_case, 0, sizeof dst->$o_case);\n"
                                 "        }\n";

/* Makes the values for a template that copies field f: those of teffi_values_add_field() and two
 * more. $n is the indentation. $k completes teff_copy_$k, the name of the runtime function that
 * copies a field like f; $k is empty if there is no such function. */
static teffi_values make_copy_template_values(const teffi_model *model, const Protoc__Field *f)
{
    teffi_values v = {{NULL}};
    teffi_values_add_field(model, f, &v);
    v.values['n'] = f->has_oneof_index ? "        " : "    ";
    v.values['k'] = teffi_is_repeated(f)
                        ? teffi_choose_by_field_type(f, "texts", "bytes_list", "", "")
                        : teffi_choose_by_field_type(f, "text", "bytes", "", "");
    return v;
}

/* Does the field contain a pointer? Strings, bytes and messages contain one; for these, a bitwise
 * copy does not suffice. in: f must not be repeated. */
static bool field_has_pointer(const Protoc__Field *f)
{
    return f->type == PROTOC__FIELD__TYPE__STRING || f->type == PROTOC__FIELD__TYPE__BYTES ||
           f->type == PROTOC__FIELD__TYPE__MESSAGE;
}

/* Writes the statement that copies a field that is not repeated. Writes nothing for a number or an
 * enum, because the bitwise copy of the struct suffices. If f is a message in a oneof, also
 * writes the template clear_case: this generated code unsets the copy's oneof if the source's
 * message is NULL. The reason: the copy must equal the result of encoding and decoding the source,
 * and that result has the oneof unset. */
static void emit_singular_field_copy(teffi_text *out, const Protoc__Field *f, const teffi_values *v)
{
    bool required = f->label == PROTOC__FIELD__LABEL__REQUIRED;
    const char *message = required ? copy_required : copy_message;
    teffi_text_expand_template(out, teffi_choose_by_field_type(f, copy_one, copy_one, message, ""),
                               v);
    if (f->type == PROTOC__FIELD__TYPE__MESSAGE)
        teffi_text_expand_template(out, f->has_oneof_index ? clear_case : "\n", v);
}

/* Writes the statement for an optional proto2 field. If the field is present, the statement copies
 * it; otherwise, the statement sets the copy's field to the default. Changes $n in v.
 * in: field_is_defaulted_if_absent() must be true for f. */
static void emit_optional_field_copy(teffi_text *out, const Protoc__Field *f, teffi_values *v)
{
    v->values['n'] = "        ";
    teffi_text_expand_template(
        out,
        f->type == PROTOC__FIELD__TYPE__STRING
            ? "    if (src->$f == NULL || src->$f == initial.$f) {\n"
              "        dst->$f = initial.$f;\n"
              "    }"
            : "    if (!src->has_$f) {\n        dst->$f = initial.$f;\n    }",
        v);
    if (field_has_pointer(f)) {
        teffi_text_printf(out, " else {\n");
        emit_singular_field_copy(out, f, v);
        teffi_text_printf(out, "    }");
    }
    teffi_text_printf(out, "\n");
}

/* Writes a switch statement that copies the set member of a oneof. It has a case for each member
 * that contains a pointer; for the other members, the bitwise copy of the struct suffices. Writes
 * nothing if no member contains a pointer. in: index is the oneof's index in m. */
static void emit_oneof_copy(teffi_text *out, const teffi_model *model, const teffi_message *m,
                            int32_t index)
{
    bool open = false;
    for (size_t i = 0; i < m->desc->n_field; i++) {
        const Protoc__Field *f = m->desc->field[i];
        if (!f->has_oneof_index || f->oneof_index != index || !field_has_pointer(f))
            continue;
        teffi_values v = make_copy_template_values(model, f);
        v.values['o'] = teffi_pbc_lowercase_name(model->pool, m->desc->oneof_decl[index]->name);
        if (!open) {
            teffi_text_expand_template(out, "    switch ((int)src->$o_case) {\n", &v);
            open = true;
        }
        teffi_text_printf(out, "    case %d: /* %s */\n", f->number, f->name);
        emit_singular_field_copy(out, f, &v);
        teffi_text_printf(out, "        break;\n");
    }
    if (open)
        teffi_text_printf(out, "    default:\n        break;\n    }\n");
}

static void emit_field_copies(teffi_text *out, const teffi_model *model, const teffi_message *m)
{
    for (size_t i = 0; i < m->desc->n_field; i++) {
        const Protoc__Field *f = m->desc->field[i];
        teffi_values v = make_copy_template_values(model, f);
        if (teffi_is_repeated(f)) {
            teffi_text_expand_template(
                out,
                teffi_choose_by_field_type(f, copy_list, copy_list, copy_messages, copy_numbers),
                &v);
        } else if (field_is_defaulted_if_absent(m, f)) {
            emit_optional_field_copy(out, f, &v);
        } else if (text_is_inline(m, f)) {
            teffi_text_expand_template(out, copy_inline_text, &v);
        } else if (!f->has_oneof_index) {
            emit_singular_field_copy(out, f, &v);
        }
    }
    for (size_t i = 0; i < m->desc->n_oneof_decl; i++)
        emit_oneof_copy(out, model, m, (int32_t)i);
}

static bool copy_needs_defaults(const teffi_message *m)
{
    for (size_t i = 0; i < m->desc->n_field; i++)
        if (field_is_defaulted_if_absent(m, m->desc->field[i]))
            return true;
    return false;
}

/* Writes the expanded template once for each inline text of m. out: false if m has none. */
static bool emit_for_each_inline_text(teffi_text *out, const teffi_model *model,
                                      const teffi_message *m, const char *template)
{
    bool any = false;
    for (size_t i = 0; i < m->desc->n_field; i++) {
        if (text_is_inline(m, m->desc->field[i])) {
            const teffi_values v = make_copy_template_values(model, m->desc->field[i]);
            teffi_text_expand_template(out, template, &v);
            any = true;
        }
    }
    return any;
}

static const char head[] = "\n"
                           "$M *$M_copy_levels(teff_arena *arena, const $M *src, unsigned levels)\n"
                           "{\n"
                           "$D"
                           "    $M *dst;\n"
                           "    size_t size = sizeof *dst;\n";
static const char begin_copy[] = "\n"
                                 "    if (src == NULL || levels == 0) {\n"
                                 "        return NULL;\n"
                                 "    }\n";
static const char take_struct[] =
    "    dst = ($M *)teff_arena_take(arena, size);\n"
    "    if (dst == NULL) {\n"
    "        return NULL;\n"
    "    }\n"
    "$I"
    "    *dst = *src;\n"
    "    dst->base.descriptor = &$d__descriptor;\n"
    "    if (src->base.n_unknown_fields > 0 && !teff_copy_unknown(arena, &dst->base)) {\n"
    "        return NULL;\n"
    "    }\n";
static const char end_copy[] =
    "    return dst;\n"
    "}\n"
    "\n"
    "$M *$M_copy(teff_arena *arena, const $M *src)\n"
    "{\n"
    "    return $M_copy_levels(arena, src, TEFF_DEPTH_MAX);\n"
    "}\n"
    "\n"
    "static ProtobufCMessage *teffi_$M_copy(teff_arena *arena, const ProtobufCMessage *src)\n"
    "{\n"
    "    return (ProtobufCMessage *)$M_copy(arena, (const $M *)src);\n"
    "}\n"
    "\n"
    "const teff_message_ops $M_ops = {&$d__descriptor, teffi_$M_copy};\n";

/* Writes the functions that copy a message, and its teff_message_ops. The generated code allocates
 * the struct and its inline texts as one block, copies the struct bitwise, and finally sets the
 * fields for which a bitwise copy does not suffice. */
static void emit_copy_functions(teffi_text *out, const teffi_model *model, const teffi_message *m)
{
    teffi_values v = teffi_make_message_template_values(m);
    const char *initial =
        copy_needs_defaults(m) ? teffi_pool_printf(model->pool, "    %s initial;\n", m->c) : "";
    v.values['D'] = initial;
    v.values['I'] =
        *initial ? teffi_pool_printf(model->pool, "    %s__init(&initial);\n", m->pbc_lower) : "";
    teffi_text_expand_template(out, head, &v);
    bool texts = emit_for_each_inline_text(out, model, m, "    size_t n_$f;\n");
    teffi_text_printf(out, "%s%s", texts ? "    char *texts;\n" : "", begin_copy);
    emit_for_each_inline_text(out, model, m,
                              "    n_$f = teff_copy_text_size(arena, src->$f);\n"
                              "    size += n_$f;\n");
    teffi_text_expand_template(out, take_struct, &v);
    teffi_text_printf(out, "%s", texts ? "    texts = (char *)(dst + 1);\n" : "");
    emit_field_copies(out, model, m);
    teffi_text_expand_template(out, end_copy, &v);
}

/* Does the code generated for the file call memset()? Only the template clear_case contains this
 * call; it is used for each message field in a oneof. */
static bool needs_memset(const teffi_file *file)
{
    for (const teffi_message *m = file->messages; m; m = m->next)
        for (size_t i = 0; i < m->desc->n_field; i++)
            if (m->desc->field[i]->has_oneof_index &&
                m->desc->field[i]->type == PROTOC__FIELD__TYPE__MESSAGE)
                return true;
    return false;
}

void teffi_emit_copy_functions(teffi_text *out, const teffi_model *model, const teffi_file *file)
{
    if (needs_memset(file))
        teffi_text_printf(out, "\n#include <string.h>\n");
    for (const teffi_message *m = file->messages; m; m = m->next)
        emit_copy_functions(out, model, m);
}
