/* options.c - checks the options of teff/grain.proto and the types of methods, in the files to
 * generate. An option that is not understood is a problem with its line, never a silent default. */
#include "model/model.h"

#include "model/names.h"

#include <stdlib.h>
#include <string.h>

#define MESSAGE_BYTES_MAX 1048576u /* the cluster's limit for one packed message */
#define ANSWERS_MAX 1024u          /* each save writes all of them beside the state */
#define QUEUE_MAX 1000000u         /* a longer queue would use up memory before it is full */
#define VERSION_MAX 63u            /* TEFFI_VERSION_MAX: requests have six bits for it */
#define POOL_MAX 64                /* each call may look at all of them */

/* Field numbers of google/protobuf/descriptor.proto and teff/grain.proto, for paths. */
enum { SERVICE_OPTIONS = 3, METHOD_OPTIONS = 4, OPTION_TEFF = 51870 };

/* Makes the path of an option in a .proto file. in: owner: the path of the service or method that
 * has the option. name: a field of option (teff.grain) or (teff.method), such as "idle"; NULL: make
 * the path of option (teff.grain) or (teff.method) itself. */
static const teffi_path *make_option_path(teffi_pool *pool, const teffi_path *owner,
                                          const char *name)
{
    bool service = !owner->up->up; /* false: owner is a method */
    const teffi_path *options =
        teffi_path_new(pool, owner, service ? SERVICE_OPTIONS : METHOD_OPTIONS, -1);
    const teffi_path *teff = teffi_path_new(pool, options, OPTION_TEFF, -1);
    if (!name)
        return teff;
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field_by_name(
        service ? &protoc__grain_options__descriptor : &protoc__grain_method_options__descriptor,
        name);
    return teffi_path_new(pool, teff, (int32_t)field->id, -1);
}

/* out: the length of a unit of time in milliseconds; 0 if there is no such unit. */
static uint64_t find_unit_ms(const char *unit)
{
    static const struct {
        const char *name;
        uint64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};

    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(unit, units[i].name) == 0)
            return units[i].ms;
    return 0;
}

/* Converts a time to milliseconds: "60s" -> 60000. out: NULL if the time is valid, otherwise an
 * error text. */
static const char *parse_time(const char *s, uint32_t *ms)
{
    size_t digits = strspn(s, "0123456789");
    uint64_t unit = find_unit_ms(s + digits);
    uint64_t value = strtoull(s, NULL, 10); /* ULLONG_MAX if it is out of range */
    if (digits == 0 || unit == 0)
        return "is not a time";
    if (value > UINT32_MAX / unit)
        return "is too long a time";
    *ms = (uint32_t)(value * unit);
    return *ms != 0 ? NULL : "is no time at all";
}

/* Sets *ms to the time that an option gives, or notes a problem. */
static void read_time_option(teffi_model *model, const teffi_file *file, const teffi_path *owner,
                             const char *option, const char *s, uint32_t *ms)
{
    const char *wrong = parse_time(s, ms);
    if (wrong) {
        teffi_add_problem(model, file, make_option_path(model->pool, owner, option),
                          "%s: \"%s\" %s, expected a whole number above 0 with ms, s, m or h, "
                          "at most 49 days, as in \"60s\"",
                          option, s, wrong);
    }
}

/* Notes a problem for each unknown field in a message of options. Such a field comes from a newer
 * teff/grain.proto. in: option: "teff.grain" or "teff.method". */
static void refuse_unknown_fields(teffi_model *model, const teffi_file *file,
                                  const teffi_path *owner, const char *option,
                                  const ProtobufCMessage *message)
{
    for (unsigned i = 0; i < message->n_unknown_fields; i++) {
        teffi_add_problem(model, file, make_option_path(model->pool, owner, NULL),
                          "option (%s) has a field %u that this protoc-gen-teff does not know, "
                          "expected its own teff/grain.proto",
                          option, (unsigned)message->unknown_fields[i].tag);
    }
}

static bool is_map_entry(const teffi_message *m)
{
    return m->desc->options && m->desc->options->map_entry;
}

/* Sets s->state to the message called `name`, or notes a problem. */
static void read_state_option(teffi_model *model, teffi_service *s, const char *name)
{
    const teffi_path *path = make_option_path(model->pool, &s->path, "state");
    const teffi_message *m = teffi_find_message(model, s->file->package, name);
    if (!m || is_map_entry(m)) {
        teffi_add_problem(
            model, s->file, path,
            "state: there is no message \"%s\", expected one of this file or its imports", name);
    } else if (!teffi_file_can_refer_to(model, s->file, m->file)) {
        teffi_add_problem(model, s->file, path,
                          "state: %s is in %s, expected an import of that file", m->full,
                          m->file->name);
    } else {
        s->state = m;
    }
}

static void check_key_option(teffi_model *model, const teffi_service *s)
{
    if (!s->grain->has_key) {
        teffi_add_problem(model, s->file, make_option_path(model->pool, &s->path, NULL),
                          "grain %s has no key, expected key: STRING, INT64, UUID, INT64_STRING or "
                          "UUID_STRING",
                          s->full);
    } else if (s->grain->key < KEY_STRING || s->grain->key > KEY_UUID_STRING) {
        teffi_add_problem(
            model, s->file, make_option_path(model->pool, &s->path, "key"),
            "key: %d is no kind of key, expected STRING, INT64, UUID, INT64_STRING or "
            "UUID_STRING",
            s->grain->key);
    }
}

/* Notes a problem if the value of an option is 0 or above max.
 * in: note: a text to print after max in the problem's text; may be "". */
static void check_option_range(teffi_model *model, const teffi_service *s, const char *option,
                               uint32_t value, uint32_t max, const char *note)
{
    if (value == 0 || value > max) {
        teffi_add_problem(model, s->file, make_option_path(model->pool, &s->path, option),
                          "%s: %u, expected 1 to %u%s", option, value, max, note);
    }
}

/* Notes a problem if the option stateless_worker has a wrong value, or is beside an option that
 * makes no sense for several activations of one grain. check_option_conflicts() checks methods. */
static void check_stateless_worker(teffi_model *model, const teffi_service *s)
{
    const Protoc__GrainOptions *o = s->grain;
    const teffi_path *path = make_option_path(model->pool, &s->path, "stateless_worker");
    const struct {
        bool wrong;
        const char *why;
    } conflicts[] = {
        {o->state, "would overwrite each other's state, expected no state"},
        {o->has_placement, "are on the caller's silo if it hosts the type, expected no placement"},
        {o->n_observes > 0, "would each get some of the notifications, expected no observes"},
    };
    if (o->stateless_worker != -1 && (o->stateless_worker < 1 || o->stateless_worker > POOL_MAX))
        teffi_add_problem(model, s->file, path,
                          "stateless_worker: %d, expected 1 to %d, or -1 for one activation for "
                          "each worker of a silo",
                          o->stateless_worker, POOL_MAX);
    for (size_t i = 0; i < sizeof conflicts / sizeof *conflicts; i++)
        if (conflicts[i].wrong)
            teffi_add_problem(model, s->file, path,
                              "stateless_worker: the activations of a grain of %s %s", s->full,
                              conflicts[i].why);
}

/* Checks the options of a grain; sets its state and idle time. */
static void read_grain_options(teffi_model *model, teffi_service *s)
{
    const Protoc__GrainOptions *o = s->grain;
    refuse_unknown_fields(model, s->file, &s->path, "teff.grain", &o->base);
    check_key_option(model, s);
    if (o->has_queue_max)
        check_option_range(model, s, "queue_max", o->queue_max, QUEUE_MAX, "");
    if (o->has_version)
        check_option_range(model, s, "version", o->version, VERSION_MAX, "");
    if (o->has_max_message_bytes) {
        check_option_range(model, s, "max_message_bytes", o->max_message_bytes, MESSAGE_BYTES_MAX,
                           ", the cluster's limit");
    }
    if (o->has_answers_max)
        check_option_range(model, s, "answers_max", o->answers_max, ANSWERS_MAX, "");
    if (o->has_answers_max && !o->state) {
        teffi_add_problem(model, s->file, make_option_path(model->pool, &s->path, "answers_max"),
                          "answers_max: %s has no state to keep answers with, expected a state",
                          s->full);
    }
    if (o->state)
        read_state_option(model, s, o->state);
    if (o->idle)
        read_time_option(model, s->file, &s->path, "idle", o->idle, &s->idle_ms);
    if (o->has_stateless_worker)
        check_stateless_worker(model, s);
    if (o->placement < PLACE_RANDOM || o->placement > PLACE_HASH) {
        teffi_add_problem(model, s->file, make_option_path(model->pool, &s->path, "placement"),
                          "placement: %d is not one, expected RANDOM, PREFER_LOCAL or HASH",
                          o->placement);
    }
}

/* Is the grain type reentrant, or does one of its methods have the option always_interleave? If so,
 * there are requests that may interleave with every other request to the grain. */
static bool requests_may_interleave(const teffi_service *s)
{
    bool any = s->grain->reentrant;
    for (size_t i = 0; i < s->n_methods; i++)
        any |= s->methods[i].options && s->methods[i].options->always_interleave;
    return any;
}

/* Notes a problem for each option of a method that would have no effect, or that contradicts
 * another option or the method's response type. */
static void check_option_conflicts(teffi_model *model, const teffi_service *s,
                                   const teffi_method *m)
{
    const Protoc__GrainMethodOptions *o = m->options;
    const struct {
        bool wrong;
        const char *option, *before, *after; /* texts around the method's name */
    } conflicts[] = {
        {o->one_way && !teffi_is_void(m->desc->output_type), "one_way", "",
         " has a response, expected returns (teff.Void)"},
        {o->one_way && m->timeout_ms != 0, "timeout", "nobody waits for ",
         ", expected no timeout beside one_way"},
        {o->one_way && o->idempotent, "idempotent", "nobody learns how ",
         " ended, expected no idempotent beside one_way"},
        {o->read_only && o->always_interleave, "read_only", "",
         " may run beside anything already, expected read_only or always_interleave"},
        {o->transactional && (o->read_only || requests_may_interleave(s)), "transactional", "",
         " locks its grain, expected no read_only, and no always_interleave or reentrant in its "
         "type"},
        {o->transactional && s->grain->has_stateless_worker, "transactional", "",
         " locks its grain, but a stateless worker has several activations of a grain"},
        {o->transactional && o->one_way, "transactional", "",
         " has an outcome, expected no one_way beside transactional"},
        {o->transactional && o->idempotent, "transactional", "",
         " must count once, expected no idempotent beside transactional; callers may use a key"},
    };
    for (size_t i = 0; i < sizeof conflicts / sizeof *conflicts; i++) {
        if (conflicts[i].wrong) {
            teffi_add_problem(model, s->file,
                              make_option_path(model->pool, &m->path, conflicts[i].option),
                              "%s: %s%s%s", conflicts[i].option, conflicts[i].before, m->full,
                              conflicts[i].after);
        }
    }
}

/* Checks the options of a method; sets its id and timeout. */
static void read_method_options(teffi_model *model, const teffi_service *s, teffi_method *m)
{
    const Protoc__GrainMethodOptions *o = m->options;
    refuse_unknown_fields(model, s->file, &m->path, "teff.method", &o->base);
    m->id = o->has_id ? o->id : teffi_hash_fnv32(m->full);
    if (m->id == 0) {
        teffi_add_problem(model, s->file, make_option_path(model->pool, &m->path, "id"),
                          "id: 0, expected 1 to 4294967295");
    }
    if (o->timeout)
        read_time_option(model, s->file, &m->path, "timeout", o->timeout, &m->timeout_ms);
    check_option_conflicts(model, s, m);
}

/* Finds the message type of a request or response.
 * out: NULL if the type is teff.Void, or if a problem was noted. */
static const teffi_message *find_message_type(teffi_model *model, const teffi_service *s,
                                              const teffi_method *m, const char *type)
{
    const teffi_message *found = NULL;
    if (teffi_is_void(type))
        return NULL;
    if (type && type[0] == '.')
        found = teffi_find_message(model, "", type);
    if (!found || is_map_entry(found) || !teffi_file_can_refer_to(model, s->file, found->file)) {
        teffi_add_problem(model, s->file, &m->path, "malformed request: %s has an unknown type",
                          m->full);
        return NULL;
    }
    return found;
}

/* Sets and checks the request type, the response type and the options of each method of a grain. */
static void read_method_types_and_options(teffi_model *model, teffi_service *s)
{
    static const Protoc__GrainMethodOptions none = PROTOC__GRAIN_METHOD_OPTIONS__INIT;
    for (size_t i = 0; i < s->n_methods; i++) {
        teffi_method *m = &s->methods[i];
        m->in = find_message_type(model, s, m, m->desc->input_type);
        m->out = find_message_type(model, s, m, m->desc->output_type);
        if (m->desc->client_streaming || m->desc->server_streaming) {
            teffi_add_problem(model, s->file, &m->path,
                              "%s: streams of messages are not supported, expected one request and "
                              "one response",
                              m->full);
        }
        if (!m->options)
            m->options = &none;
        read_method_options(model, s, m);
    }
}

/* Notes a problem for each option of an observer's method that would have no effect: the method is
 * one-way in any case. */
static void check_observer_method(teffi_model *model, const teffi_service *s, const teffi_method *m)
{
    const Protoc__GrainMethodOptions *o = m->options;
    if (!teffi_is_void(m->desc->output_type))
        teffi_add_problem(model, s->file, &m->path,
                          "%s has a response, but nobody waits for an observer, expected returns "
                          "(teff.Void)",
                          m->full);
    if (o->read_only || o->always_interleave || o->one_way || o->idempotent || o->timeout ||
        o->transactional || o->has_id)
        teffi_add_problem(model, s->file, make_option_path(model->pool, &m->path, NULL),
                          "%s is a method of an observer, expected no option", m->full);
}

/* Checks an observer. Sets the types, the ids and the options of its methods: they are one-way. */
static void read_observer(teffi_model *model, teffi_service *s)
{
    if (s->grain)
        teffi_add_problem(model, s->file, &s->path,
                          "%s is an observer, expected no option (teff.grain) beside", s->full);
    if (s->n_methods == 0)
        teffi_add_problem(model, s->file, &s->path, "observer %s has no method, expected one",
                          s->full);
    s->grain = NULL;
    read_method_types_and_options(model, s);
    for (size_t i = 0; i < s->n_methods; i++) {
        Protoc__GrainMethodOptions *one_way = teffi_pool_alloc(model->pool, sizeof *one_way);
        check_observer_method(model, s, &s->methods[i]);
        protoc__grain_method_options__init(one_way);
        one_way->one_way = true;
        s->methods[i].options = one_way;
    }
}

/* Appends copies of an observer's methods to those of a grain that implements the observer. Their
 * slots begin with the observer's name. */
static void append_observer_methods(teffi_model *model, teffi_service *s,
                                    const teffi_service *observer)
{
    const char *prefix = teffi_to_snake_case(model->pool, observer->desc->name);
    teffi_method *all =
        teffi_pool_alloc(model->pool, (s->n_methods + observer->n_methods) * sizeof *all);
    memcpy(all, s->methods, s->n_methods * sizeof *all);
    for (size_t i = 0; i < observer->n_methods; i++) {
        teffi_method *m = &all[s->n_methods + i];
        *m = observer->methods[i];
        m->observed = true;
        m->slot = teffi_pool_printf(model->pool, "%s_%s", prefix, m->slot);
        m->path = s->path; /* for problems: the grain is what must change */
    }
    s->methods = all;
    s->n_methods += observer->n_methods;
}

/* Adds the methods of the observers that a grain implements. */
static void read_observes_option(teffi_model *model, teffi_service *s)
{
    const teffi_path *path = make_option_path(model->pool, &s->path, "observes");
    for (size_t i = 0; i < s->grain->n_observes; i++) {
        const char *name = s->grain->observes[i];
        const teffi_service *observer = teffi_find_service(model, s->file->package, name);
        if (!observer || !observer->observer)
            teffi_add_problem(model, s->file, path,
                              "observes: there is no observer \"%s\", expected a service with "
                              "option (teff.observer)",
                              name);
        else if (!teffi_file_can_refer_to(model, s->file, observer->file))
            teffi_add_problem(model, s->file, path,
                              "observes: %s is in %s, expected an import of "
                              "that file",
                              observer->full, observer->file->name);
        else
            append_observer_methods(model, s, observer);
    }
}

/* Notes a problem for each method that has an option (teff.method) or uses teff.Void, in a service
 * that is neither a grain nor an observer. */
static void check_other_methods(teffi_model *model, const teffi_service *s)
{
    for (size_t i = 0; i < s->n_methods; i++) {
        const teffi_method *m = &s->methods[i];
        if (m->options) {
            teffi_add_problem(
                model, s->file, make_option_path(model->pool, &m->path, NULL),
                "option (teff.method): %s is no grain, expected option (teff.grain) there",
                s->full);
        }
        if (teffi_is_void(m->desc->input_type) || teffi_is_void(m->desc->output_type)) {
            teffi_add_problem(model, s->file, &m->path,
                              TEFFI_VOID ": %s is no grain, expected option (teff.grain) there",
                              s->full);
        }
    }
}

/* Observers are read first, also those of imported files, because grains get their methods. */
static void read_all_observers(teffi_model *model)
{
    for (size_t i = 0; i < model->n_files; i++)
        for (size_t k = 0; k < model->files[i].n_services; k++)
            if (model->files[i].services[k].observer)
                read_observer(model, &model->files[i].services[k]);
}

void teffi_model_read_options(teffi_model *model)
{
    read_all_observers(model);
    for (size_t i = 0; i < model->n_files; i++) {
        const teffi_file *file = &model->files[i];
        for (size_t k = 0; file->generate && k < file->n_services; k++) {
            teffi_service *s = &file->services[k];
            if (s->grain) {
                read_grain_options(model, s);
                read_method_types_and_options(model, s);
                read_observes_option(model, s);
            } else if (!s->observer) {
                check_other_methods(model, s);
            }
        }
    }
}
