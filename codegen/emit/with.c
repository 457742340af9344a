/* with.c - generates builders: C++ expressions like name(.field = value) in C.
 * M, V and N do not clash with field names, which have no capital letters. */
#include "emit/emit.h"

#include "model/names.h"

static const char comment[] =
    "\n"
    "/* ---- C++ --------------------------------------------------------------------------------\n"
    " * name_with().field(value).list(values, n): a pointer to a new message that lives as long "
    "as\n"
    " * the expression, with each of these set, and what says that it is set. */\n";
static const char head[] = "\n"
                           "struct $M_with {\n"
                           "    $P M;\n"
                           "    $M_with() { $d__init(&M); }\n"
                           "    operator $P *() { return &M; }\n";
static const char list[] = "    $M_with &$f(decltype($P::$f) V, decltype($P::n_$f) N)\n"
                           "    {\n"
                           "        M.$f = V;\n"
                           "        M.n_$f = N;\n"
                           "        return *this;\n"
                           "    }\n";
static const char one[] = "    $M_with &$f(decltype($P::$f) V)\n"
                          "    {\n"
                          "        M.$f = V;\n"
                          "$S"
                          "        return *this;\n"
                          "    }\n";

/* The statement that marks a field as set; "" if the field has no such mark. */
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

static void emit_with(teffi_text *out, const teffi_model *model, const teffi_message *m)
{
    teffi_values v = teffi_message_values(m);
    teffi_text_expand(out, head, &v);
    for (size_t i = 0; i < m->desc->n_field; i++) {
        const Protoc__Field *f = m->desc->field[i];
        if (f->options && f->options->deprecated)
            continue; /* it would warn wherever the header is included */
        teffi_field_values(model, f, &v);
        if (teffi_is_repeated(f)) {
            teffi_text_expand(out, list, &v);
        } else {
            v.values['S'] = print_presence(out->pool, m, f);
            teffi_text_expand(out, one, &v);
        }
    }
    teffi_text_printf(out, "};\n");
}

void teffi_emit_withs(teffi_text *out, const teffi_model *model, const teffi_file *file)
{
    teffi_text_printf(out, "%s#ifdef __cplusplus\n", comment);
    for (const teffi_message *m = file->messages; m; m = m->next)
        emit_with(out, model, m);
    teffi_text_printf(out, "#endif\n");
}
