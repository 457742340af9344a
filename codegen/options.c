/* options.c - what do the options of teff/grain.proto say, and does it make sense?
 * Way:     model -> [options] -> check -> emit_*
 * Nothing here has a silent default: what is not understood is a problem with a line. */
#include "model.h"

#include <string.h>

#define MESSAGE_BYTES_MAX 1048576u /* the cluster's limit for one packed message */
#define QUEUE_MAX 1000000u         /* more waiting requests than this is memory, not a queue */

enum { SERVICE_OPTIONS = 3, METHOD_OPTIONS = 4, OPTION_TEFF = 51870 };

/* Numbers of teff/grain.proto, for lines. */
enum {
    GRAIN_KEY = 1,
    GRAIN_STATE,
    GRAIN_REENTRANT,
    GRAIN_PLACEMENT,
    GRAIN_IDLE,
    GRAIN_QUEUE_MAX,
    GRAIN_MAX_MESSAGE
};
enum {
    METHOD_ID = 1,
    METHOD_READ_ONLY,
    METHOD_INTERLEAVE,
    METHOD_ONE_WAY,
    METHOD_IDEMPOTENT,
    METHOD_TIMEOUT
};

/* The place of one option at a service or method; field 0: of all of them. */
typedef struct option_place {
    teffi_path options;
    teffi_path teff;
    teffi_path field;
} option_place;

static const teffi_path *place(option_place *p, const teffi_path *owner, int32_t field)
{
    bool service = owner->up->up == NULL; /* else a method of one */

    p->options = (teffi_path){owner, service ? SERVICE_OPTIONS : METHOD_OPTIONS, -1};
    p->teff = (teffi_path){&p->options, OPTION_TEFF, -1};
    p->field = (teffi_path){&p->teff, field, -1};
    return field != 0 ? &p->field : &p->teff;
}

static uint64_t unit_ms(const char *unit)
{
    static const struct {
        const char *name;
        uint64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};

    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(unit, units[i].name) == 0) {
            return units[i].ms;
        }
    }
    return 0;
}

/* "60s" -> 60000. out: NULL, or what is wrong with it. */
static const char *parse_time(const char *s, uint32_t *ms)
{
    size_t digits = strspn(s, "0123456789");
    uint64_t unit = unit_ms(s + digits);
    uint64_t value = 0;

    if (digits == 0 || unit == 0) {
        return "is not a time";
    }
    for (size_t i = 0; i < digits; i++) {
        value = value * 10 + (uint64_t)(s[i] - '0');
        if (value > UINT32_MAX) {
            return "is too long a time";
        }
    }
    if (value * unit > UINT32_MAX) {
        return "is too long a time";
    }
    *ms = (uint32_t)(value * unit);
    return *ms != 0 ? NULL : "is no time at all";
}

static void read_time(teffi_model *model, const teffi_file *file, const teffi_path *path,
                      const char *option, const char *s, uint32_t *ms)
{
    const char *wrong = parse_time(s, ms);

    if (wrong != NULL) {
        teffi_problem(model, file, path,
                      "%s: \"%s\" %s, expected a whole number above 0 with ms, s, m or h, "
                      "at most 49 days, as in \"60s\"",
                      option, s, wrong);
    }
}

static void unknown_options(teffi_model *model, const teffi_file *file, const teffi_path *path,
                            const char *option, const ProtobufCMessage *message)
{
    for (unsigned i = 0; i < message->n_unknown_fields; i++) {
        teffi_problem(model, file, path,
                      "option (%s) has a field %u that this protoc-gen-teff does not know, "
                      "expected its own teff/grain.proto",
                      option, (unsigned)message->unknown_fields[i].tag);
    }
}

static bool is_map_entry(const teffi_message *m)
{
    return m->desc->options != NULL && m->desc->options->map_entry;
}

static void read_state(teffi_model *model, teffi_service *s, const char *name,
                       const teffi_path *path)
{
    const teffi_message *m = teffi_find_message(model, s->file->package, name);

    if (m == NULL || is_map_entry(m)) {
        teffi_problem(model, s->file, path,
                      "state: there is no message \"%s\", expected one of this file or its imports",
                      name);
    } else if (!teffi_sees(s->file, m->file)) {
        teffi_problem(model, s->file, path, "state: %s is in %s, expected an import of that file",
                      m->full, m->file->name);
    } else {
        s->state = m;
    }
}

static void read_key(teffi_model *model, teffi_service *s, const Protoc__GrainOptions *o)
{
    option_place p;

    if (!o->has_key) {
        teffi_problem(model, s->file, place(&p, &s->path, 0),
                      "grain %s has no key, expected key: STRING, INT64, UUID, INT64_STRING or "
                      "UUID_STRING",
                      s->full);
    } else if (o->key < KEY_STRING || o->key > KEY_UUID_STRING) {
        teffi_problem(model, s->file, place(&p, &s->path, GRAIN_KEY),
                      "key: %d is no kind of key, expected STRING, INT64, UUID, INT64_STRING or "
                      "UUID_STRING",
                      o->key);
    } else {
        s->key = (teffi_key)o->key;
    }
}

static void read_limits(teffi_model *model, teffi_service *s, const Protoc__GrainOptions *o)
{
    option_place p;

    if (o->has_queue_max && (o->queue_max == 0 || o->queue_max > QUEUE_MAX)) {
        teffi_problem(model, s->file, place(&p, &s->path, GRAIN_QUEUE_MAX),
                      "queue_max: %u, expected 1 to %u", o->queue_max, QUEUE_MAX);
    }
    if (o->has_max_message_bytes &&
        (o->max_message_bytes == 0 || o->max_message_bytes > MESSAGE_BYTES_MAX)) {
        teffi_problem(model, s->file, place(&p, &s->path, GRAIN_MAX_MESSAGE),
                      "max_message_bytes: %u, expected 1 to %u, the cluster's limit",
                      o->max_message_bytes, MESSAGE_BYTES_MAX);
    }
    s->queue_max = o->queue_max;
    s->max_message_bytes = o->max_message_bytes;
}

static void read_grain(teffi_model *model, teffi_service *s, const Protoc__GrainOptions *o)
{
    option_place p;

    s->grain = true;
    s->reentrant = o->reentrant;
    unknown_options(model, s->file, place(&p, &s->path, 0), "teff.grain", &o->base);
    read_key(model, s, o);
    read_limits(model, s, o);
    if (o->state != NULL) {
        read_state(model, s, o->state, place(&p, &s->path, GRAIN_STATE));
    }
    if (o->idle != NULL) {
        read_time(model, s->file, place(&p, &s->path, GRAIN_IDLE), "idle", o->idle, &s->idle_ms);
    }
    if (o->placement < PLACE_RANDOM || o->placement > PLACE_HASH) {
        teffi_problem(model, s->file, place(&p, &s->path, GRAIN_PLACEMENT),
                      "placement: %d is none, expected RANDOM, PREFER_LOCAL or HASH", o->placement);
    }
    s->placement = (teffi_place)o->placement;
}

/* What cannot go together: an option that would do nothing is refused as well. */
static void conflicts(teffi_model *model, const teffi_service *s, const teffi_method *m)
{
    option_place p;

    if (m->one_way && !teffi_is_void(m->desc->output_type)) {
        teffi_problem(model, s->file, place(&p, &m->path, METHOD_ONE_WAY),
                      "one_way: %s has an answer, expected returns (teff.Void)", m->full);
    }
    if (m->one_way && m->timeout_ms != 0) {
        teffi_problem(model, s->file, place(&p, &m->path, METHOD_TIMEOUT),
                      "timeout: nobody waits for %s, expected no timeout beside one_way", m->full);
    }
    if (m->one_way && m->idempotent) {
        teffi_problem(
            model, s->file, place(&p, &m->path, METHOD_IDEMPOTENT),
            "idempotent: nobody learns how %s ended, expected no idempotent beside one_way",
            m->full);
    }
    if (m->read_only && m->always_interleave) {
        teffi_problem(model, s->file, place(&p, &m->path, METHOD_READ_ONLY),
                      "read_only: %s may run beside anything already, expected read_only or "
                      "always_interleave",
                      m->full);
    }
}

static void read_method(teffi_model *model, const teffi_service *s, teffi_method *m,
                        const Protoc__GrainMethodOptions *o)
{
    option_place p;

    unknown_options(model, s->file, place(&p, &m->path, 0), "teff.method", &o->base);
    m->read_only = o->read_only;
    m->always_interleave = o->always_interleave;
    m->one_way = o->one_way;
    m->idempotent = o->idempotent;
    if (o->has_id) {
        m->id = o->id;
    }
    if (m->id == 0) {
        teffi_problem(model, s->file, place(&p, &m->path, METHOD_ID),
                      "id: 0, expected 1 to 4294967295");
    }
    if (o->timeout != NULL) {
        read_time(model, s->file, place(&p, &m->path, METHOD_TIMEOUT), "timeout", o->timeout,
                  &m->timeout_ms);
    }
    conflicts(model, s, m);
}

static const teffi_message *read_type(teffi_model *model, const teffi_service *s,
                                      const teffi_method *m, const char *type)
{
    const teffi_message *found = NULL;

    if (teffi_is_void(type)) {
        return NULL;
    }
    if (type != NULL && type[0] == '.') {
        found = teffi_find_message(model, "", type);
    }
    if (found == NULL || is_map_entry(found) || !teffi_sees(s->file, found->file)) {
        teffi_problem(model, s->file, &m->path, "malformed request: %s has an unknown type",
                      m->full);
        return NULL;
    }
    return found;
}

static const Protoc__GrainMethodOptions *method_options(const teffi_method *m)
{
    return m->desc->options != NULL ? m->desc->options->method : NULL;
}

static void grain_methods(teffi_model *model, teffi_service *s)
{
    for (size_t i = 0; i < s->n_methods; i++) {
        teffi_method *m = &s->methods[i];

        m->id = teffi_fnv32(m->full);
        m->in = read_type(model, s, m, m->desc->input_type);
        m->out = read_type(model, s, m, m->desc->output_type);
        if (m->desc->client_streaming || m->desc->server_streaming) {
            teffi_problem(model, s->file, &m->path,
                          "%s: streams of messages are not supported, expected one request and "
                          "one answer",
                          m->full);
        }
        if (method_options(m) != NULL) {
            read_method(model, s, m, method_options(m));
        }
    }
}

/* A service that is no grain must not look as if it was one. */
static void plain_methods(teffi_model *model, teffi_service *s)
{
    option_place p;

    for (size_t i = 0; i < s->n_methods; i++) {
        teffi_method *m = &s->methods[i];

        if (method_options(m) != NULL) {
            teffi_problem(
                model, s->file, place(&p, &m->path, 0),
                "option (teff.method): %s is no grain, expected option (teff.grain) there",
                s->full);
        }
        if (teffi_is_void(m->desc->input_type) || teffi_is_void(m->desc->output_type)) {
            teffi_problem(model, s->file, &m->path,
                          TEFFI_VOID ": %s is no grain, expected option (teff.grain) there",
                          s->full);
        }
    }
}

void teffi_model_options(teffi_model *model)
{
    for (size_t i = 0; i < model->n_files; i++) {
        teffi_file *file = &model->files[i];

        for (size_t k = 0; file->generate && k < file->n_services; k++) {
            teffi_service *s = &file->services[k];

            if (s->desc->options != NULL && s->desc->options->grain != NULL) {
                read_grain(model, s, s->desc->options->grain);
                grain_methods(model, s);
            } else {
                plain_methods(model, s);
            }
        }
    }
}
