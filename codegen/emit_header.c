/* emit_header.c - x.teff.h: what the users of a .proto file see.
 * Way:     codegen -> [emit_header] -> codegen's response */
#include "emit.h"

#include "names.h"

static const char *key_params(teffi_key key)
{
    switch (key) {
    case KEY_STRING:
        return "const char *key";
    case KEY_INT64:
        return "int64_t key";
    case KEY_UUID:
        return "teff_uuid key";
    case KEY_INT64_STRING:
        return "int64_t key, const char *key_text";
    case KEY_UUID_STRING:
        return "teff_uuid key, const char *key_text";
    }
    return "";
}

static const char *key_members(teffi_key key)
{
    switch (key) {
    case KEY_STRING:
        return "    const char *key;\n";
    case KEY_INT64:
        return "    int64_t key;\n";
    case KEY_UUID:
        return "    teff_uuid key;\n";
    case KEY_INT64_STRING:
        return "    int64_t key;\n    const char *key_text;\n";
    case KEY_UUID_STRING:
        return "    teff_uuid key;\n    const char *key_text;\n";
    }
    return "";
}

teffi_values teffi_service_values(teffi_pool *pool, const teffi_service *s)
{
    teffi_values v = {{NULL}};

    v.values['S'] = s->c;
    v.values['N'] = s->full;
    v.values['K'] = key_params(s->key);
    v.values['M'] = key_members(s->key);
    v.values['T'] =
        s->state != NULL ? teffi_pool_printf(pool, "    %s *state;\n", s->state->c) : "";
    return v;
}

void teffi_method_values(teffi_pool *pool, const teffi_method *m, teffi_values *v)
{
    v->values['m'] = m->slot;
    v->values['F'] = m->full;
    v->values['I'] = m->in != NULL ? teffi_pool_printf(pool, ", const %s *in", m->in->c) : "";
    v->values['O'] = m->out != NULL ? teffi_pool_printf(pool, ", %s **out", m->out->c) : "";
    v->values['o'] = m->out != NULL ? teffi_pool_printf(pool, ", %s *out", m->out->c) : "";
}

static void emit_message(teffi_text *out, const teffi_message *m)
{
    teffi_values v = {{NULL}};

    v.values['M'] = m->c;
    v.values['P'] = m->pbc;
    v.values['d'] = m->pbc_lower;
    teffi_text_printf(out, "\n");
    teffi_text_comment(out, "", teffi_comment(m->file, &m->path));
    teffi_text_expand(out,
                      "typedef $P $M;\n"
                      "#ifndef __cplusplus\n"
                      "#define $M(...) \\\n"
                      "    (&($M){.base = PROTOBUF_C_MESSAGE_INIT(&$d__descriptor), __VA_ARGS__})\n"
                      "#endif\n"
                      "extern const teff_message_ops $M_ops;\n"
                      "$M *$M_copy(teff_arena *arena, const $M *src);\n"
                      "$M *$M_copy_levels(teff_arena *arena, const $M *src, unsigned levels);\n",
                      &v);
}

static void emit_messages(teffi_text *out, const teffi_file *file)
{
    if (file->n_messages == 0) {
        return;
    }
    teffi_text_printf(
        out,
        "\n"
        "/* ---- messages "
        "---------------------------------------------------------------------------\n"
        " * For each: its type; name(.field = value, ...), a pointer to a new one that lives as "
        "long as\n"
        " * the block around it; name_copy(), a deep copy in an arena, NULL when memory is out or "
        "the\n"
        " * message nests deeper than 32; name_copy_levels(), the same with a depth of one's own;\n"
        " * name_ops, what the runtime needs. A string that is NULL is copied as \"\". */\n");
    for (size_t i = 0; i < file->n_messages; i++) {
        emit_message(out, file->messages[i]);
    }
}

static void emit_slots(teffi_text *out, const teffi_service *s, teffi_values *v)
{
    teffi_text_expand(out,
                      "\n"
                      "/* What $N does: a slot left NULL answers TEFF_E_UNIMPLEMENTED, except\n"
                      " * on_activate and on_deactivate, which need not be there. */\n"
                      "typedef struct $S_methods {\n",
                      v);
    for (size_t i = 0; i < s->n_methods; i++) {
        teffi_method_values(out->pool, &s->methods[i], v);
        teffi_text_comment(out, "    ", teffi_comment(s->file, &s->methods[i].path));
        teffi_text_expand(out, "    teff_err (*$m)($S *self$I$o);\n", v);
    }
    teffi_text_expand(out,
                      "    teff_err (*on_activate)($S *self);\n"
                      "    teff_err (*on_deactivate)($S *self, teff_reason why);\n"
                      "} $S_methods;\n",
                      v);
}

static void emit_grain_side(teffi_text *out, const teffi_service *s, teffi_values *v)
{
    teffi_text_expand(out,
                      "\n"
                      "/* ---- $N ---- */\n"
                      "\n",
                      v);
    teffi_text_comment(out, "", teffi_comment(s->file, &s->path));
    teffi_text_expand(out,
                      "typedef struct $S {\n"
                      "    teff_ctx *ctx;\n"
                      "$M$T"
                      "    void *user; /* as given to $S_type */\n"
                      "} $S;\n",
                      v);
    emit_slots(out, s, v);
    teffi_text_expand(
        out,
        "\n"
        "extern const teff_type_info $S_info;\n"
        "\n"
        "/* The type, to be given to a silo; methods and user are borrowed. NULL when memory is\n"
        " * out. */\n"
        "teff_grain_type *$S_type(const $S_methods *methods, void *user);\n",
        v);
    if (s->state != NULL) {
        teffi_text_expand(out,
                          "\n"
                          "/* Write the state to the store; remove it there and empty it here. */\n"
                          "TEFF_MUST_USE teff_err $S_save($S *self);\n"
                          "TEFF_MUST_USE teff_err $S_clear($S *self);\n",
                          v);
    }
}

static void emit_caller_side(teffi_text *out, const teffi_service *s, teffi_values *v)
{
    if (s->n_methods > 0) {
        teffi_text_expand(
            out,
            "\n"
            "/* Calling $N. Each method waits for its answer: a grain's turn is suspended, a\n"
            " * thread blocks. _start does not wait: teff_await_all, then _reply. _send wants no "
            "answer.\n"
            " * An answer lives until the turn ends, or until teff_ctx_reset on a thread's "
            "context. */\n",
            v);
    }
    for (size_t i = 0; i < s->n_methods; i++) {
        const teffi_method *m = &s->methods[i];

        teffi_method_values(out->pool, m, v);
        teffi_text_printf(out, "\n");
        teffi_text_comment(out, "", teffi_comment(s->file, &m->path));
        if (m->one_way) {
            teffi_text_expand(
                out, "TEFF_MUST_USE teff_err $S_$m(teff_ctx *ctx, $K$I); /* one way */\n", v);
            continue;
        }
        teffi_text_expand(
            out,
            "TEFF_MUST_USE teff_err $S_$m(teff_ctx *ctx, $K$I$O);\n"
            "TEFF_MUST_USE teff_err $S_$m_start(teff_ctx *ctx, $K$I, teff_call *call);\n"
            "TEFF_MUST_USE teff_err $S_$m_reply(teff_ctx *ctx, teff_call call$O);\n"
            "TEFF_MUST_USE teff_err $S_$m_send(teff_ctx *ctx, $K$I);\n",
            v);
    }
}

/* "sub/a-b.proto" -> "sub_2fa_2db_2eproto": different files have different guards. */
static const char *guard(teffi_pool *pool, const char *name)
{
    teffi_text text = {.pool = pool};

    for (; *name != '\0'; name++) {
        char c[2] = {*name, '\0'};
        bool plain = teffi_is_identifier(c) || (*name >= '0' && *name <= '9');

        if (plain) {
            teffi_text_printf(&text, "%s", c);
        } else {
            teffi_text_printf(&text, "_%02x", (unsigned char)*name);
        }
    }
    return text.data;
}

void teffi_emit_header(teffi_text *out, const teffi_file *file)
{
    teffi_values v = {{NULL}};

    v.values['n'] = file->name;
    v.values['s'] = file->stem;
    v.values['g'] = guard(out->pool, file->name);
    teffi_text_expand(out,
                      "/* Generated by protoc-gen-teff from $n. Do not edit. */\n"
                      "#ifndef TEFF_GENERATED_$g\n"
                      "#define TEFF_GENERATED_$g\n"
                      "\n"
                      "#include <teff/teff.h>\n"
                      "\n"
                      "#include \"$s.pb-c.h\"\n",
                      &v);
    for (size_t i = 0; i < file->n_imports; i++) {
        teffi_text_printf(out, "#include \"%s.teff.h\"\n", file->imports[i]->stem);
    }
    teffi_text_printf(out, "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n");
    emit_messages(out, file);
    for (size_t i = 0; i < file->n_services; i++) {
        if (file->services[i].grain) {
            v = teffi_service_values(out->pool, &file->services[i]);
            emit_grain_side(out, &file->services[i], &v);
            emit_caller_side(out, &file->services[i], &v);
        }
    }
    teffi_text_printf(out, "\n#ifdef __cplusplus\n}\n#endif\n#endif\n");
}
