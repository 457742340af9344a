/* emit_source.c - x.teff.c: how calls reach a grain's slots, and how callers make them.
 * Way:     codegen -> [emit_source] -> codegen's response
 * The text is C11 and C++ at once: tables have no designated initialisers, pointers are cast.
 * Statics begin with teffi_, which no user's name may. Slots are called as (slots->add)(...): a
 * message of the same name, in a file without a package, is a macro. */
#include "emit.h"

#include <inttypes.h>

static const char *key_value(teffi_key key)
{
    switch (key) {
    case KEY_STRING:
        return "{TEFF_KEY_STRING, key, 0, {{0}}}";
    case KEY_INT64:
        return "{TEFF_KEY_INT64, NULL, key, {{0}}}";
    case KEY_UUID:
        return "{TEFF_KEY_UUID, NULL, 0, key}";
    case KEY_INT64_STRING:
        return "{TEFF_KEY_INT64_STRING, key_text, key, {{0}}}";
    case KEY_UUID_STRING:
        return "{TEFF_KEY_UUID_STRING, key_text, 0, key}";
    }
    return "";
}

static const char *self_key(teffi_key key)
{
    switch (key) {
    case KEY_STRING:
        return "grain->key.text";
    case KEY_INT64:
        return "grain->key.number";
    case KEY_UUID:
        return "grain->key.uuid";
    case KEY_INT64_STRING:
        return "grain->key.number, grain->key.text";
    case KEY_UUID_STRING:
        return "grain->key.uuid, grain->key.text";
    }
    return "";
}

static const char *placement_name(teffi_place placement)
{
    switch (placement) {
    case PLACE_RANDOM:
        return "TEFF_PLACE_RANDOM";
    case PLACE_PREFER_LOCAL:
        return "TEFF_PLACE_PREFER_LOCAL";
    case PLACE_HASH:
        return "TEFF_PLACE_HASH";
    }
    return "";
}

static const char *key_kind_name(teffi_key key)
{
    static const char *const names[] = {"",
                                        "TEFF_KEY_STRING",
                                        "TEFF_KEY_INT64",
                                        "TEFF_KEY_UUID",
                                        "TEFF_KEY_INT64_STRING",
                                        "TEFF_KEY_UUID_STRING"};

    return names[key];
}

static const char *flags(teffi_pool *pool, const teffi_method *m)
{
    const char *all =
        teffi_pool_printf(pool, "%s%s%s%s", m->read_only ? " | TEFF_METHOD_READ_ONLY" : "",
                          m->always_interleave ? " | TEFF_METHOD_ALWAYS_INTERLEAVE" : "",
                          m->one_way ? " | TEFF_METHOD_ONE_WAY" : "",
                          m->idempotent ? " | TEFF_METHOD_IDEMPOTENT" : "");

    return all[0] != '\0' ? all + 3 : "0";
}

static const char *ops(teffi_pool *pool, const teffi_message *m)
{
    return m != NULL ? teffi_pool_printf(pool, "&%s_ops", m->c) : "NULL";
}

static void emit_invoke(teffi_text *out, const teffi_method *m, teffi_values *v)
{
    teffi_method_values(out->pool, m, v);
    v->values['i'] =
        m->in != NULL ? teffi_pool_printf(out->pool, ", (const %s *)in", m->in->c) : "";
    v->values['r'] = m->out != NULL ? teffi_pool_printf(out->pool, ", (%s *)out", m->out->c) : "";
    v->values['u'] = m->in == NULL && m->out == NULL ? "    (void)in;\n    (void)out;\n"
                     : m->in == NULL                 ? "    (void)in;\n"
                     : m->out == NULL                ? "    (void)out;\n"
                                                     : "";
    teffi_text_expand(
        out,
        "\n"
        "static teff_err teffi_$S_$m_invoke(const teff_grain *grain, const void *methods, "
        "const ProtobufCMessage *in, ProtobufCMessage *out)\n"
        "{\n"
        "    const $S_methods *slots = (const $S_methods *)methods;\n"
        "    $S self = teffi_$S_self(grain);\n"
        "\n"
        "$u"
        "    if (slots->$m == NULL) {\n"
        "        return teff_fail(grain->ctx, TEFF_E_UNIMPLEMENTED, \"%s is not implemented\", "
        "\"$F\");\n"
        "    }\n"
        "    return (slots->$m)(&self$i$r);\n"
        "}\n",
        v);
}

static void emit_grain_side(teffi_text *out, const teffi_service *s, teffi_values *v)
{
    v->values['k'] = self_key(s->key);
    v->values['t'] =
        s->state != NULL ? teffi_pool_printf(out->pool, ", (%s *)grain->state", s->state->c) : "";
    teffi_text_expand(
        out,
        "\n"
        "/* ---- $N ---- */\n"
        "\n"
        "static $S teffi_$S_self(const teff_grain *grain)\n"
        "{\n"
        "    $S self = {grain->ctx, $k$t, grain->user};\n"
        "\n"
        "    return self;\n"
        "}\n"
        "\n"
        "static teff_err teffi_$S_activate(const teff_grain *grain, const void *methods)\n"
        "{\n"
        "    const $S_methods *slots = (const $S_methods *)methods;\n"
        "    $S self = teffi_$S_self(grain);\n"
        "\n"
        "    return slots->on_activate != NULL ? (slots->on_activate)(&self) : TEFF_OK;\n"
        "}\n"
        "\n"
        "static teff_err teffi_$S_deactivate(const teff_grain *grain, const void *methods, "
        "teff_reason why)\n"
        "{\n"
        "    const $S_methods *slots = (const $S_methods *)methods;\n"
        "    $S self = teffi_$S_self(grain);\n"
        "\n"
        "    return slots->on_deactivate != NULL ? (slots->on_deactivate)(&self, why) : TEFF_OK;\n"
        "}\n",
        v);
    for (size_t i = 0; i < s->n_methods; i++) {
        emit_invoke(out, &s->methods[i], v);
    }
}

static void emit_table(teffi_text *out, const teffi_service *s, teffi_values *v)
{
    if (s->n_methods == 0) {
        return;
    }
    teffi_text_expand(out, "\nstatic const teff_method teffi_$S_table[] = {\n", v);
    for (size_t i = 0; i < s->n_methods; i++) {
        const teffi_method *m = s->by_id[i];

        teffi_text_printf(out,
                          "    {\"%s\", 0x%08" PRIx32 "U, %s, %" PRIu32 ", %s, %s,\n"
                          "     teffi_%s_%s_invoke},\n",
                          m->full, m->id, flags(out->pool, m), m->timeout_ms, ops(out->pool, m->in),
                          ops(out->pool, m->out), s->c, m->slot);
    }
    teffi_text_printf(out, "};\n");
}

static void emit_info(teffi_text *out, const teffi_service *s, teffi_values *v)
{
    emit_table(out, s, v);
    teffi_text_printf(out,
                      "\n"
                      "const teff_type_info %s_info = {\n"
                      "    \"%s\", 0x%08" PRIx32 "U, %s, %s, %s,\n"
                      "    %" PRIu32 ", /* idle_ms */\n"
                      "    %" PRIu32 ", /* queue_max */\n"
                      "    %" PRIu32 ", /* max_message_bytes */\n"
                      "    %s,\n"
                      "    %s%s%s, %zu,\n"
                      "    teffi_%s_activate, teffi_%s_deactivate,\n"
                      "    offsetof(%s_methods, on_activate), offsetof(%s_methods, on_deactivate)\n"
                      "};\n",
                      s->c, s->full, s->id, s->reentrant ? "TEFF_TYPE_REENTRANT" : "0",
                      key_kind_name(s->key), placement_name(s->placement), s->idle_ms, s->queue_max,
                      s->max_message_bytes, ops(out->pool, s->state),
                      s->n_methods > 0 ? "teffi_" : "NULL", s->n_methods > 0 ? s->c : "",
                      s->n_methods > 0 ? "_table" : "", s->n_methods, s->c, s->c, s->c, s->c);
    teffi_text_expand(out,
                      "\n"
                      "teff_grain_type *$S_type(const $S_methods *methods, void *user)\n"
                      "{\n"
                      "    return teff_grain_type_new(&$S_info, methods, user);\n"
                      "}\n",
                      v);
    if (s->state != NULL) {
        teffi_text_expand(out,
                          "\n"
                          "teff_err $S_save($S *self)\n"
                          "{\n"
                          "    return teff_state_save(self->ctx);\n"
                          "}\n"
                          "\n"
                          "teff_err $S_clear($S *self)\n"
                          "{\n"
                          "    return teff_state_clear(self->ctx);\n"
                          "}\n",
                          v);
    }
}

/* Ask and reply end alike: the message that came, as the type it has. */
static const char answer_ask[] =
    "\n"
    "teff_err $S_$m(teff_ctx *ctx, $K$I$O)\n"
    "{\n"
    "    const teff_key to = $k;\n"
    "    ProtobufCMessage *reply = NULL;\n"
    "    teff_err err = teff_ask(ctx, &$S_info, &to, &teffi_$S_table[$x], "
    "$i, out != NULL ? &reply : NULL);\n"
    "\n"
    "    if (out != NULL) {\n"
    "        *out = ($R *)reply;\n"
    "    }\n"
    "    return err;\n"
    "}\n";
static const char answer_reply[] =
    "\n"
    "teff_err $S_$m_reply(teff_ctx *ctx, teff_call call$O)\n"
    "{\n"
    "    ProtobufCMessage *reply = NULL;\n"
    "    teff_err err = teff_reply(ctx, call, out != NULL ? &reply : NULL);\n"
    "\n"
    "    if (out != NULL) {\n"
    "        *out = ($R *)reply;\n"
    "    }\n"
    "    return err;\n"
    "}\n";
static const char void_ask[] = "\n"
                               "teff_err $S_$m(teff_ctx *ctx, $K$I)\n"
                               "{\n"
                               "    const teff_key to = $k;\n"
                               "\n"
                               "    return teff_ask(ctx, &$S_info, &to, &teffi_$S_table[$x], "
                               "$i, NULL);\n"
                               "}\n";
static const char void_reply[] = "\n"
                                 "teff_err $S_$m_reply(teff_ctx *ctx, teff_call call)\n"
                                 "{\n"
                                 "    return teff_reply(ctx, call, NULL);\n"
                                 "}\n";
static const char start[] = "\n"
                            "teff_err $S_$m_start(teff_ctx *ctx, $K$I, teff_call *call)\n"
                            "{\n"
                            "    const teff_key to = $k;\n"
                            "\n"
                            "    return teff_start(ctx, &$S_info, &to, &teffi_$S_table[$x], "
                            "$i, call);\n"
                            "}\n";
static const char send[] = "\n"
                           "teff_err $S_$m$e(teff_ctx *ctx, $K$I)\n"
                           "{\n"
                           "    const teff_key to = $k;\n"
                           "\n"
                           "    return teff_send(ctx, &$S_info, &to, &teffi_$S_table[$x], "
                           "$i);\n"
                           "}\n";

static void emit_calls(teffi_text *out, const teffi_method *m, teffi_values *v)
{
    teffi_method_values(out->pool, m, v);
    v->values['x'] = teffi_pool_printf(out->pool, "%zu", m->at);
    v->values['i'] = m->in != NULL ? "(const ProtobufCMessage *)in" : "NULL";
    v->values['R'] = m->out != NULL ? m->out->c : NULL;
    v->values['e'] = m->one_way ? "" : "_send";
    if (!m->one_way) {
        teffi_text_expand(out, m->out != NULL ? answer_ask : void_ask, v);
        teffi_text_expand(out, start, v);
        teffi_text_expand(out, m->out != NULL ? answer_reply : void_reply, v);
    }
    teffi_text_expand(out, send, v);
}

static void emit_caller_side(teffi_text *out, const teffi_service *s, teffi_values *v)
{
    if (s->n_methods == 0) {
        return;
    }
    v->values['k'] = key_value(s->key);
    for (size_t i = 0; i < s->n_methods; i++) {
        emit_calls(out, &s->methods[i], v);
    }
}

/* protobuf-c marks deprecated members: using them is for users to avoid, a copy has to. Before the
 * header, since C++ compilers put the warning at the struct. */
static void allow_deprecated(teffi_text *out, const teffi_file *file)
{
    for (size_t i = 0; i < file->n_messages; i++) {
        const Protoc__Message *m = file->messages[i]->desc;

        for (size_t k = 0; k < m->n_field; k++) {
            if (m->field[k]->options != NULL && m->field[k]->options->deprecated) {
                teffi_text_printf(out,
                                  "#pragma GCC diagnostic ignored \"-Wdeprecated-declarations\"\n");
                return;
            }
        }
    }
}

void teffi_emit_source(teffi_text *out, const teffi_model *model, const teffi_file *file)
{
    teffi_text_printf(out, "/* Generated by protoc-gen-teff from %s. Do not edit. */\n",
                      file->name);
    allow_deprecated(out, file);
    teffi_text_printf(out, "#include \"%s.teff.h\"\n", file->stem);
    teffi_emit_copies(out, model, file);
    for (size_t i = 0; i < file->n_services; i++) {
        const teffi_service *s = &file->services[i];
        teffi_values v;

        if (s->grain) {
            v = teffi_service_values(out->pool, s);
            emit_grain_side(out, s, &v);
            emit_info(out, s, &v);
            emit_caller_side(out, s, &v);
        }
    }
}
