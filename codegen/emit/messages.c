/* messages.c - generates the part of x.teff.h about messages: their types, functions that copy
 * messages and elements of lists into a state, builders for C++.
 * The functions are static inline, so unused ones cost nothing. names.c reserves the names of their
 * parameters, so no message has such a name, which would be a macro. */
#include "emit/emit.h"

#include "model/names.h"

static const char types[] =
    "\n"
    "/* ---- messages ---------------------------------------------------------------------------\n"
    " * For each message: name, its type, and\n"
    " * - name(.field = value, ...): a pointer to a new message that lives as long as the block\n"
    " *   around it;\n"
    " * - name_copy(): a deep copy in an arena, with \"\" for a NULL string; NULL if memory\n"
    " *   is out or the message nests deeper than TEFF_DEPTH_MAX;\n"
    " * - name_copy_levels(): the same with another maximum depth;\n"
    " * - name_ops: for the runtime. */\n";
static const char type[] =
    "typedef $P $M;\n"
    "#ifndef __cplusplus\n"
    "#define $M(...) \\\n"
    "    (&($M){.base = PROTOBUF_C_MESSAGE_INIT(&$d__descriptor), __VA_ARGS__})\n"
    "#endif\n"
    "extern const teff_message_ops $M_ops;\n"
    "$M *$M_copy(teff_arena *arena, const $M *src);\n"
    "$M *$M_copy_levels(teff_arena *arena, const $M *src, unsigned levels);\n";
static const char keeps[] =
    "\n"
    "/* ---- states -----------------------------------------------------------------------------\n"
    " * In a turn of a grain with state:\n"
    " * - name_keep(): a deep copy that lives as long as the state; NULL for NULL;\n"
    " * - name_append_field(): appends a copy of an element to a list, an empty one for NULL. The\n"
    " *   list may move.\n"
    " * If they exceed the state's memory limit, the turn ends, see teff_state_alloc. A map is a\n"
    " * list of entries; keys are not compared. */\n";
static const char keep[] =
    "\n"
    "static inline $M *$M_keep(teff_ctx *ctx, const $M *src)\n"
    "{\n"
    "    return ($M *)teff_state_copy(ctx, &$M_ops, (const ProtobufCMessage *)src);\n"
    "}\n";
static const char append_message[] =
    "static inline $C *$M_append_$f(teff_ctx *ctx, $M *dst, const $C *src)\n"
    "{\n"
    "    return ($C *)teff_state_append_message(ctx, &dst->$f, &dst->n_$f, &$C_ops, "
    "(const ProtobufCMessage *)src);\n"
    "}\n";
static const char append_text[] =
    "static inline void $M_append_$f(teff_ctx *ctx, $M *dst, const char *src)\n"
    "{\n"
    "    teff_state_append_text(ctx, &dst->$f, &dst->n_$f, src);\n"
    "}\n";
static const char append_bytes[] =
    "static inline void $M_append_$f(teff_ctx *ctx, $M *dst, ProtobufCBinaryData src)\n"
    "{\n"
    "    teff_state_append_bytes(ctx, &dst->$f, &dst->n_$f, src);\n"
    "}\n";
static const char append_number[] =
    "static inline void $M_append_$f(teff_ctx *ctx, $M *dst, $E src)\n"
    "{\n"
    "    teff_state_append(ctx, &dst->$f, &dst->n_$f, &src, sizeof src);\n"
    "}\n";

static void declare_messages(teffi_text *out, const teffi_file *file)
{
    teffi_text_printf(out, "%s", types);
    for (const teffi_message *m = file->messages; m; m = m->next) {
        const teffi_values v = teffi_make_message_template_values(m);
        teffi_text_printf(out, "\n");
        teffi_text_add_comment(out, "", teffi_find_comment(file, &m->path));
        teffi_text_expand_template(out, type, &v);
    }
}

/* Writes the functions that copy into a grain's state: X_keep() for each message X of the file, and
 * X_append_F() for each list F in X that is not deprecated. */
static void emit_state_copy_functions(teffi_text *out, const teffi_model *model,
                                      const teffi_file *file)
{
    teffi_text_printf(out, "%s", keeps);
    for (const teffi_message *m = file->messages; m; m = m->next) {
        teffi_values v = teffi_make_message_template_values(m);
        teffi_text_expand_template(out, keep, &v);
        for (size_t i = 0; i < m->desc->n_field; i++) {
            const Protoc__Field *f = m->desc->field[i];
            if (!teffi_has_append_function(f))
                continue;
            teffi_values_add_field(model, f, &v);
            teffi_text_expand_template(out,
                                       teffi_choose_by_field_type(f, append_text, append_bytes,
                                                                  append_message, append_number),
                                       &v);
        }
    }
}

/* ---- builders for C++ ----
 * M, V and N do not clash with the members of fields, whose names have no capital letters; types
 * are qualified, as a message may be named M, V or N. */

static const char builders[] =
    "\n"
    "/* ---- C++ --------------------------------------------------------------------------------\n"
    " * name_with().field(value).list(values, n): a pointer to a new message that lives as long\n"
    " * as the expression. Each setter also sets the field's has_ flag or its oneof's case. */\n";
static const char builder[] = "\n"
                              "struct $M_with {\n"
                              "    ::$P M;\n"
                              "    $M_with() { $d__init(&M); }\n"
                              "    operator ::$P *() { return &M; }\n";
static const char set_list[] = "    $M_with &$f(decltype(::$P::$f) V, decltype(::$P::n_$f) N)\n"
                               "    {\n"
                               "        M.$f = V;\n"
                               "        M.n_$f = N;\n"
                               "        return *this;\n"
                               "    }\n";
static const char set_one[] = "    $M_with &$f(decltype(::$P::$f) V)\n"
                              "    {\n"
                              "        M.$f = V;\n"
                              "$S"
                              "        return *this;\n"
                              "    }\n";

/* out: the C++ statement that marks a field as set; "" if the field has no such mark. */
static const char *format_presence_statement(teffi_pool *pool, const teffi_message *m,
                                             const Protoc__Field *f)
{
    if (f->has_oneof_index) {
        const char *name = m->desc->oneof_decl[f->oneof_index]->name;
        const char *full = teffi_pool_printf(pool, "%s.%s", m->full, name);
        return teffi_pool_printf(
            pool, "        M.%s_case = %s_%s;\n", teffi_pbc_lowercase_name(pool, name),
            teffi_pbc_uppercase_name(pool, full), teffi_pbc_uppercase_name(pool, f->name));
    }
    if (teffi_has_presence_flag(m, f))
        return teffi_pool_printf(pool, "        M.has_%s = 1;\n",
                                 teffi_pbc_field_name(pool, f->name));
    return "";
}

/* Writes the C++ builder of one message. For a message X, it is the struct X_with. */
static void emit_builder(teffi_text *out, const teffi_model *model, const teffi_message *m)
{
    teffi_values v = teffi_make_message_template_values(m);
    teffi_text_expand_template(out, builder, &v);
    for (size_t i = 0; i < m->desc->n_field; i++) {
        const Protoc__Field *f = m->desc->field[i];
        if (f->options && f->options->deprecated)
            continue; /* its setter would cause a warning in each file that includes the header */
        teffi_values_add_field(model, f, &v);
        if (teffi_is_repeated(f)) {
            teffi_text_expand_template(out, set_list, &v);
        } else {
            v.values['S'] = format_presence_statement(out->pool, m, f);
            teffi_text_expand_template(out, set_one, &v);
        }
    }
    teffi_text_printf(out, "};\n");
}

static void emit_builders(teffi_text *out, const teffi_model *model, const teffi_file *file)
{
    teffi_text_printf(out, "%s#ifdef __cplusplus\n", builders);
    for (const teffi_message *m = file->messages; m; m = m->next)
        emit_builder(out, model, m);
    teffi_text_printf(out, "#endif\n");
}

void teffi_emit_header_message_part(teffi_text *out, const teffi_model *model,
                                    const teffi_file *file)
{
    if (!file->messages)
        return;
    declare_messages(out, file);
    emit_state_copy_functions(out, model, file);
    emit_builders(out, model, file);
}
