/* source.c - generates x.teff.c: thunks that call a grain's slots, and functions for callers.
 * The text must be valid C11 and C++: tables have no designated initialisers, pointers are cast.
 * Names of statics begin with teffi_; check.c refuses such names in .proto files. Slots are called
 * as (slots->add)(...), because a message `add` of a file without a package is a macro add(). */
#include "emit/emit.h"

#include <inttypes.h>

static const char *const placements[] = {[PLACE_RANDOM] = "RANDOM",
                                         [PLACE_PREFER_LOCAL] = "PREFER_LOCAL",
                                         [PLACE_HASH] = "HASH",
                                         [PLACE_STATELESS] = "STATELESS"};

static const char grain_functions[] =
    "\n"
    "/* ---- $N ---- */\n"
    "\n"
    "static $S teffi_$S_self(const teff_grain *grain)\n"
    "{\n"
    "    $S self = {grain->ctx, $A$t, grain->user};\n"
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
    "}\n";
static const char remind_function[] =
    "\n"
    "static teff_err teffi_$S_remind(const teff_grain *grain, const void *methods, "
    "const teff_tick *tick)\n"
    "{\n"
    "    const $S_methods *slots = (const $S_methods *)methods;\n"
    "    $S self = teffi_$S_self(grain);\n"
    "\n"
    "    return slots->on_reminder != NULL ? (slots->on_reminder)(&self, tick)\n"
    "                                      : TEFF_E_UNIMPLEMENTED;\n"
    "}\n";
static const char invoke_slot[] =
    "\n"
    "static teff_err teffi_$S_$m_invoke(const teff_grain *grain, const void *methods, "
    "const ProtobufCMessage *in, ProtobufCMessage *out)\n"
    "{\n"
    "    const $S_methods *slots = (const $S_methods *)methods;\n"
    "    $S self = teffi_$S_self(grain);\n"
    "\n"
    "$u$w"
    "    if (slots->$m == NULL) {\n"
    "        return TEFF_E_UNIMPLEMENTED;\n"
    "    }\n"
    "    return (slots->$m)(&self$a$r);\n"
    "}\n";
static const char table_row[] = "    {\"$F\", $h, $g, $l, $p, $q,\n"
                                "     teffi_$S_$m_invoke},\n";
static const char type_info[] =
    "\n"
    "const teff_type_info $S_info = {\n"
    "    \"$N\", $h, $g, TEFF_KEY_$Q, TEFF_PLACE_$p,\n"
    "$l"
    "    $q,\n"
    "    $b,\n"
    "    teffi_$S_activate, teffi_$S_deactivate,\n"
    "    offsetof($S_methods, on_activate), offsetof($S_methods, on_deactivate),\n"
    "    $i, /* version */\n"
    "    $w, /* pool_max */\n"
    "    $t\n"
    "};\n"
    "\n"
    "teff_grain_type *$S_type(const $S_methods *methods, void *user)\n"
    "{\n"
    "    return teff_grain_type_new(&$S_info, methods, user);\n"
    "}\n";
static const char state_functions[] = "\n"
                                      "teff_err $S_save($S *self)\n"
                                      "{\n"
                                      "    return teff_state_save(self->ctx);\n"
                                      "}\n"
                                      "\n"
                                      "teff_err $S_clear($S *self)\n"
                                      "{\n"
                                      "    return teff_state_clear(self->ctx);\n"
                                      "}\n";

static const char observer_functions[] =
    "\n"
    "/* ---- $N, an observer ---- */\n"
    "\n"
    "static $S teffi_$S_self(const teff_grain *grain)\n"
    "{\n"
    "    $S self = {grain->ctx, grain->user};\n"
    "\n"
    "    return self;\n"
    "}\n"
    "\n"
    "static void teffi_$S_dropped(const teff_grain *grain, const void *methods, "
    "const teff_dropped *how)\n"
    "{\n"
    "    const $S_methods *slots = (const $S_methods *)methods;\n"
    "    $S self = teffi_$S_self(grain);\n"
    "\n"
    "    if (slots->on_dropped != NULL) {\n"
    "        (slots->on_dropped)(&self, how);\n"
    "    }\n"
    "}\n";
static const char observer_info[] =
    "\n"
    "const teff_observer_info $S_info = {\n"
    "    {\"$N\", $h, 0, TEFF_KEY_STRING, TEFF_PLACE_RANDOM,\n"
    "     0, 0, 0, 0, NULL,\n"
    "     teffi_$S_table, $l,\n"
    "     NULL, NULL, 0, 0, 0, 0, NULL, 0},\n"
    "    teffi_$S_dropped\n"
    "};\n"
    "\n"
    "teff_err $S_observe(teff_ctx *ctx, const $S_methods *methods, void *user, "
    "teff_observer **observer)\n"
    "{\n"
    "    return teff_observer_new(ctx, &$S_info, methods, user, observer);\n"
    "}\n"
    "\n"
    "teff_err $S_of_grain(teff_ctx *ctx, ProtobufCBinaryData *observer)\n"
    "{\n"
    "    return teff_observer_of_grain(ctx, &$S_info, observer);\n"
    "}\n"
    "\n"
    "teff_err $S_subscribe(teff_ctx *ctx, ProtobufCBinaryData observer, uint32_t expiry_ms)\n"
    "{\n"
    "    return teff_observers_subscribe(ctx, &$S_info, observer, expiry_ms);\n"
    "}\n"
    "\n"
    "bool $S_unsubscribe(teff_ctx *ctx, ProtobufCBinaryData observer)\n"
    "{\n"
    "    return teff_observers_unsubscribe(ctx, &$S_info, observer);\n"
    "}\n"
    "\n"
    "size_t $S_count(teff_ctx *ctx)\n"
    "{\n"
    "    return teff_observers_count(ctx, &$S_info);\n"
    "}\n";
static const char notify[] =
    "\n"
    "teff_err $S_$m_notify(teff_ctx *ctx$I)\n"
    "{\n"
    "    return teff_notify(ctx, &$S_info, &teffi_$S_table[$x], $i);\n"
    "}\n"
    "\n"
    "teff_err $S_$m_notify_one(teff_ctx *ctx, ProtobufCBinaryData observer$I)\n"
    "{\n"
    "    return teff_notify_one(ctx, &$S_info, &teffi_$S_table[$x], observer, $i);\n"
    "}\n";

/* out: the C expression for a method's flags. */
static const char *format_flags(teffi_pool *pool, const Protoc__GrainMethodOptions *o)
{
    const char *all =
        teffi_pool_printf(pool, "%s%s%s%s%s", o->read_only ? " | TEFF_METHOD_READ_ONLY" : "",
                          o->always_interleave ? " | TEFF_METHOD_ALWAYS_INTERLEAVE" : "",
                          o->one_way ? " | TEFF_METHOD_ONE_WAY" : "",
                          o->idempotent ? " | TEFF_METHOD_IDEMPOTENT" : "",
                          o->transactional ? " | TEFF_METHOD_TRANSACTIONAL" : "");
    return all[0] ? all + 3 : "0";
}

static const char *format_id(teffi_pool *pool, uint32_t id)
{
    return teffi_pool_printf(pool, "0x%08" PRIx32 "U", id);
}

/* out: the C expression for a message's operations; "NULL" if m is NULL. */
static const char *format_ops(teffi_pool *pool, const teffi_message *m)
{
    return m ? teffi_pool_printf(pool, "&%s_ops", m->c) : "NULL";
}

/* Has the service a slot on_reminder? A stateless worker has no reminders. */
static bool has_reminders(const teffi_service *s)
{
    return s->grain && !s->grain->has_stateless_worker;
}

/* Writes the thunks through which the runtime calls the slots of a grain or an observer:
 * on_activate, on_deactivate and on_reminder, or on_dropped, and the slot of each method. */
static void define_slot_thunks(teffi_text *out, const teffi_service *s, teffi_values *v)
{
    teffi_text_expand_template(out, s->observer ? observer_functions : grain_functions, v);
    if (has_reminders(s))
        teffi_text_expand_template(out, remind_function, v);
    for (size_t i = 0; i < s->n_methods; i++) {
        teffi_values_add_method(out->pool, &s->methods[i], v);
        v->values['u'] = s->methods[i].in ? "" : "    (void)in;\n";
        v->values['w'] = s->methods[i].out ? "" : "    (void)out;\n";
        teffi_text_expand_template(out, invoke_slot, v);
    }
}

/* Writes the table of a grain's methods, sorted by id. */
static void define_method_table(teffi_text *out, const teffi_service *s, teffi_values *v)
{
    if (s->n_methods == 0)
        return;
    teffi_text_expand_template(out, "\nstatic const teff_method teffi_$S_table[] = {\n", v);
    for (size_t i = 0; i < s->n_methods; i++) {
        const teffi_method *m = s->by_id[i];
        teffi_values_add_method(out->pool, m, v);
        v->values['h'] = format_id(out->pool, m->id);
        v->values['g'] = format_flags(out->pool, m->options);
        v->values['l'] = teffi_pool_printf(out->pool, "%" PRIu32, m->timeout_ms);
        v->values['p'] = format_ops(out->pool, m->in);
        v->values['q'] = format_ops(out->pool, m->out);
        teffi_text_expand_template(out, table_row, v);
    }
    teffi_text_printf(out, "};\n");
}

/* Writes a grain's type info, the constructor of its type, and, if the grain has a state, the
 * functions _save and _clear. */
static void define_grain_type(teffi_text *out, const teffi_service *s, teffi_values *v)
{
    v->values['h'] = format_id(out->pool, s->id);
    v->values['g'] = s->grain->reentrant ? "TEFF_TYPE_REENTRANT" : "0";
    v->values['p'] =
        placements[s->grain->has_stateless_worker ? PLACE_STATELESS : s->grain->placement];
    v->values['l'] = teffi_pool_printf(out->pool,
                                       "    %" PRIu32 ", /* idle_ms */\n"
                                       "    %" PRIu32 ", /* queue_max */\n"
                                       "    %" PRIu32 ", /* max_message_bytes */\n"
                                       "    %" PRIu32 ", /* answers_max */\n",
                                       s->idle_ms, s->grain->queue_max, s->grain->max_message_bytes,
                                       s->grain->answers_max);
    v->values['i'] = teffi_pool_printf(out->pool, "%" PRIu32, s->grain->version);
    v->values['w'] = teffi_pool_printf(
        out->pool, "%" PRId32, s->grain->stateless_worker < 0 ? 0 : s->grain->stateless_worker);
    v->values['q'] = format_ops(out->pool, s->state);
    v->values['b'] = s->n_methods > 0
                         ? teffi_pool_printf(out->pool, "teffi_%s_table, %zu", s->c, s->n_methods)
                         : "NULL, 0";
    v->values['t'] =
        has_reminders(s)
            ? teffi_pool_printf(out->pool, "teffi_%s_remind, offsetof(%s_methods, on_reminder)",
                                s->c, s->c)
            : "NULL, 0 /* no reminders */";
    teffi_text_expand_template(out, type_info, v);
    if (s->state)
        teffi_text_expand_template(out, state_functions, v);
}

/* set_response_template_values() sets the letters $g, $l, $p, $q and $u of ask and await. */
static const char ask[] = "\n"
                          "teff_err $S_$m(teff_ctx *ctx, $K$I$O)\n"
                          "{\n"
                          "    const teff_key to = $V;\n"
                          "$p$g teff_ask(ctx, &$S_info, &to, &teffi_$S_table[$x], $i, $l);\n"
                          "$q"
                          "}\n";
static const char ask_async[] =
    "\n"
    "teff_err $S_$m_async(teff_ctx *ctx, $K$I, const teff_call_options *options, "
    "teff_call *call)\n"
    "{\n"
    "    const teff_key to = $V;\n"
    "\n"
    "    return teff_ask_async(ctx, &$S_info, &to, &teffi_$S_table[$x], $i, options, call);\n"
    "}\n";
static const char await[] = "\n"
                            "teff_err $S_$m_await(teff_ctx *ctx, teff_call call$O)\n"
                            "{\n"
                            "$u$g teff_await(ctx, call, $l);\n"
                            "$q"
                            "}\n";
static const char send[] = "\n"
                           "teff_err $S_$m$e(teff_ctx *ctx, $K$I)\n"
                           "{\n"
                           "    const teff_key to = $V;\n"
                           "\n"
                           "    return teff_send(ctx, &$S_info, &to, &teffi_$S_table[$x], $i);\n"
                           "}\n";
static const char start_timer[] =
    "\n"
    "teff_err $S_$m_timer(teff_ctx *ctx$I, const teff_timer_options *options, teff_timer *timer)\n"
    "{\n"
    "    return teff_timer_start(ctx, &$S_info, &teffi_$S_table[$x], $i, options, timer);\n"
    "}\n";
static const char cast_response[] = "\n"
                                    "    if (out != NULL) {\n"
                                    "        *out = ($R *)response;\n"
                                    "    }\n"
                                    "    return err;\n";

/* Sets those values of the templates `ask` and `await` that depend on whether m has a response:
 *               m has a response                        m has no response
 * $p (in ask)   declares a variable for the response    an empty line
 * $u (in await) declares a variable for the response    empty
 * $g            stores the error of the call            returns the error of the call
 * $l            the argument that gets the response     NULL
 * $q            casts the response, returns the error   empty
 * in: v must already have the values of teffi_values_add_method(), because $q uses $R. */
static void set_response_template_values(teffi_pool *pool, const teffi_method *m, teffi_values *v)
{
    teffi_text cast = {.pool = pool};
    teffi_text_expand_template(&cast, m->out ? cast_response : "", v);
    v->values['u'] = m->out ? "    ProtobufCMessage *response = NULL;\n" : "";
    v->values['p'] = m->out ? v->values['u'] : "\n";
    v->values['g'] = m->out ? "    teff_err err =" : "    return";
    v->values['l'] = m->out ? "out != NULL ? &response : NULL" : "NULL";
    v->values['q'] = cast.data;
}

/* Writes the functions that call a grain's methods. For each one-way method, also writes the
 * function that starts a timer; the timer calls the method. */
static void define_calls(teffi_text *out, const teffi_service *s, teffi_values *v)
{
    for (size_t i = 0; i < s->n_methods; i++) {
        const teffi_method *m = &s->methods[i];
        if (m->observed)
            continue;
        teffi_values_add_method(out->pool, m, v);
        set_response_template_values(out->pool, m, v);
        v->values['e'] = m->options->one_way ? "" : "_send";
        if (!m->options->one_way) {
            teffi_text_expand_template(out, ask, v);
            teffi_text_expand_template(out, ask_async, v);
            teffi_text_expand_template(out, await, v);
        }
        teffi_text_expand_template(out, send, v);
        if (m->options->one_way)
            teffi_text_expand_template(out, start_timer, v);
    }
}

/* Writes an observer: the thunks of its callbacks, its info, and the functions for clients and
 * grains. */
static void define_observer(teffi_text *out, const teffi_service *s)
{
    teffi_values v = teffi_make_observer_template_values(s);
    define_slot_thunks(out, s, &v);
    define_method_table(out, s, &v);
    v.values['h'] = format_id(out->pool, s->id);
    v.values['l'] = teffi_pool_printf(out->pool, "%zu", s->n_methods);
    teffi_text_expand_template(out, observer_info, &v);
    for (size_t i = 0; i < s->n_methods; i++) {
        teffi_values_add_method(out->pool, &s->methods[i], &v);
        teffi_text_expand_template(out, notify, &v);
    }
}

/* Does a message of the file have a deprecated field? If so, the compiler's warning about
 * deprecated names must be off: protobuf-c marks the field's member as deprecated, and the copy
 * functions use this member. */
static bool has_deprecated_fields(const teffi_file *file)
{
    for (const teffi_message *m = file->messages; m; m = m->next)
        for (size_t i = 0; i < m->desc->n_field; i++)
            if (m->desc->field[i]->options && m->desc->field[i]->options->deprecated)
                return true;
    return false;
}

void teffi_emit_source(teffi_text *out, const teffi_model *model, const teffi_file *file)
{
    teffi_text_printf(out, "/* Generated by protoc-gen-teff from %s. Do not edit. */\n",
                      file->name);
    /* The pragma must precede the header: C++ compilers warn where the struct is defined. */
    if (has_deprecated_fields(file))
        teffi_text_printf(out, "#pragma GCC diagnostic ignored \"-Wdeprecated-declarations\"\n");
    teffi_text_printf(out, "#include \"%s.teff.h\"\n", file->stem);
    teffi_emit_copy_functions(out, model, file);
    for (size_t i = 0; i < file->n_services; i++) {
        const teffi_service *s = &file->services[i];
        if (s->grain) {
            teffi_values v = teffi_make_service_template_values(out->pool, s);
            define_slot_thunks(out, s, &v);
            define_method_table(out, s, &v);
            define_grain_type(out, s, &v);
            define_calls(out, s, &v);
        } else if (s->observer) {
            define_observer(out, s);
        }
    }
}
