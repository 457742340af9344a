/* messages.c - generates types of messages, and functions that copy messages, and elements of their
 * lists, into a state.
 * The functions are static inline, so unused ones cost nothing. Their parameters have names that no
 * message may have. */
#include "emit/emit.h"

#include "model/names.h"

static const char types[] =
    "\n"
    "/* ---- messages ---------------------------------------------------------------------------\n"
    " * For each: its type; name(.field = value, ...), a pointer to a new one that lives as long\n"
    " * as the block around it; name_copy(), a deep copy in an arena, NULL when memory is out or\n"
    " * the message nests deeper than TEFF_DEPTH_MAX; name_copy_levels(), the same with a depth "
    "of\n"
    " * one's own; name_ops, what the runtime needs. A string that is NULL is copied as \"\". */\n";
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
    " * In a turn of a grain with state: name_keep(), a deep copy that lives as long as the\n"
    " * state, NULL for NULL; name_append_field(), a copy of one more element at the end of a\n"
    " * list, which moves now and then, an empty one for NULL. Over the state's limit of memory\n"
    " * the turn ends: teff_state_alloc. A map is a list of entries: keys are not compared. "
    "*/\n";
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

static void emit_types(teffi_text *out, const teffi_file *file)
{
    teffi_text_printf(out, "%s", types);
    for (const teffi_message *m = file->messages; m; m = m->next) {
        const teffi_values v = teffi_message_values(m);
        teffi_text_printf(out, "\n");
        teffi_text_add_comment(out, "", teffi_find_comment(file, &m->path));
        teffi_text_expand(out, type, &v);
    }
}

/* Writes name_keep() for each message, and name_append_field() for each of its lists. */
static void emit_state_copies(teffi_text *out, const teffi_model *model, const teffi_file *file)
{
    teffi_text_printf(out, "%s", keeps);
    for (const teffi_message *m = file->messages; m; m = m->next) {
        teffi_values v = teffi_message_values(m);
        teffi_text_expand(out, keep, &v);
        for (size_t i = 0; i < m->desc->n_field; i++) {
            const Protoc__Field *f = m->desc->field[i];
            if (!teffi_has_append(f))
                continue;
            teffi_field_values(model, f, &v);
            teffi_text_expand(
                out,
                teffi_choose_by_type(f, append_text, append_bytes, append_message, append_number),
                &v);
        }
    }
}

/* ---- builders for C++ ----
 * M, V and N do not clash with field names, which have no capital letters. */

static const char withs[] =
    "\n"
    "/* ---- C++ --------------------------------------------------------------------------------\n"
    " * name_with().field(value).list(values, n): a pointer to a new message that lives as long\n"
    " * as the expression, with each of these set, and what says that it is set. */\n";
static const char with[] = "\n"
                           "struct $M_with {\n"
                           "    $P M;\n"
                           "    $M_with() { $d__init(&M); }\n"
                           "    operator $P *() { return &M; }\n";
static const char with_list[] = "    $M_with &$f(decltype($P::$f) V, decltype($P::n_$f) N)\n"
                                "    {\n"
                                "        M.$f = V;\n"
                                "        M.n_$f = N;\n"
                                "        return *this;\n"
                                "    }\n";
static const char with_one[] = "    $M_with &$f(decltype($P::$f) V)\n"
                               "    {\n"
                               "        M.$f = V;\n"
                               "$S"
                               "        return *this;\n"
                               "    }\n";

/* out: the C++ statement that marks a field as set; "" if the field has no such mark. */
static const char *print_presence(teffi_pool *pool, const teffi_message *m, const Protoc__Field *f)
{
    if (f->has_oneof_index) {
        const char *name = m->desc->oneof_decl[f->oneof_index]->name;
        const char *full = teffi_pool_printf(pool, "%s.%s", m->full, name);
        return teffi_pool_printf(pool, "        M.%s_case = %s_%s;\n", teffi_pbc_lower(pool, name),
                                 teffi_pbc_upper(pool, full), teffi_pbc_upper(pool, f->name));
    }
    if (teffi_has_flag(m, f))
        return teffi_pool_printf(pool, "        M.has_%s = 1;\n", teffi_pbc_field(pool, f->name));
    return "";
}

/* Writes the builder name_with of one message. */
static void emit_with(teffi_text *out, const teffi_model *model, const teffi_message *m)
{
    teffi_values v = teffi_message_values(m);
    teffi_text_expand(out, with, &v);
    for (size_t i = 0; i < m->desc->n_field; i++) {
        const Protoc__Field *f = m->desc->field[i];
        if (f->options && f->options->deprecated)
            continue; /* its setter would cause a warning in each file that includes the header */
        teffi_field_values(model, f, &v);
        if (teffi_is_repeated(f)) {
            teffi_text_expand(out, with_list, &v);
        } else {
            v.values['S'] = print_presence(out->pool, m, f);
            teffi_text_expand(out, with_one, &v);
        }
    }
    teffi_text_printf(out, "};\n");
}

static void emit_withs(teffi_text *out, const teffi_model *model, const teffi_file *file)
{
    teffi_text_printf(out, "%s#ifdef __cplusplus\n", withs);
    for (const teffi_message *m = file->messages; m; m = m->next)
        emit_with(out, model, m);
    teffi_text_printf(out, "#endif\n");
}

void teffi_emit_messages(teffi_text *out, const teffi_model *model, const teffi_file *file)
{
    if (!file->messages)
        return;
    emit_types(out, file);
    emit_state_copies(out, model, file);
    emit_withs(out, model, file);
}
