/* check.c - counts a message's packed size, fields and memory and checks its strings, in one
 * walk. */
#include "message/codec.h"

#include "base/error.h"
#include "base/utf8.h"
#include "message/fields.h"

/* The walk stops at this multiple of the limit of fields: a message that contains the same part
 * many times may be too large to walk. */
enum { FIELDS_STOP_FACTOR = 8 };

typedef struct checker {
    size_t fields, fields_stop, memory;
    unsigned depth;
    teff_err err;            /* the first broken rule; limits are compared after the walk */
    const char *why;         /* text of err; NULL: nested too deep */
    teffi_message_desc *at;  /* the message that breaks the rule */
    teffi_field_desc *field; /* its field that breaks the rule */
} checker;

static size_t check_and_get_message_size(checker *c, teffi_message_desc *desc,
                                         const ProtobufCMessage *msg);

/* Records err, unless an earlier error is recorded: only the first one is reported. */
static void record_first_error(checker *c, teff_err err, teffi_field_desc *field, const char *why)
{
    if (c->err)
        return;
    c->err = err;
    c->field = field;
    c->why = why;
}

/* Must the walk through the message stop, because the check has failed? After a failure the
 * functions of this file return wrong sizes, but no caller uses them. */
static bool must_stop(const checker *c)
{
    return c->err || c->fields > c->fields_stop;
}

/* Checks a string (it must be UTF-8) or a bytes value. out: its size, without tag and length. */
static inline size_t check_and_get_content_size(checker *c, teffi_field_desc *field,
                                                const void *slot)
{
    ProtobufCBinaryData bytes = teffi_bytes_of(field->type, slot);
    if (field->type == PROTOBUF_C_TYPE_STRING && !teffi_utf8_valid(bytes.data, bytes.len))
        record_first_error(c, TEFF_E_MALFORMED, field, "is not UTF-8");
    c->memory += bytes.len + 1;
    return bytes.len;
}

/* Checks a nested message; NULL is an error. out: its size, without tag and length. */
static size_t check_and_get_nested_size(checker *c, teffi_field_desc *field,
                                        const ProtobufCMessage *msg)
{
    if (!msg)
        record_first_error(c, TEFF_E_MALFORMED, field, "is NULL");
    else if (c->depth == TEFF_DEPTH_MAX)
        record_first_error(c, TEFF_E_TOO_LARGE, field, NULL); /* no text means: nested too deep */
    return must_stop(c) ? 0 : check_and_get_message_size(c, field->descriptor, msg);
}

/* Checks one value. out: its packed size, including its length prefix (if any), without its tag. */
static size_t check_and_get_value_size(checker *c, teffi_field_desc *field, const void *slot)
{
    if (teffi_wire_type_of(field->type) != TEFFI_BYTES)
        return teffi_number_size(field->type, slot);
    size_t n = field->type == PROTOBUF_C_TYPE_MESSAGE
                   ? check_and_get_nested_size(c, field, *(ProtobufCMessage *const *)slot)
                   : check_and_get_content_size(c, field, slot);
    return teffi_varint_size(n) + n;
}

/* Checks all elements of a repeated field. out: the packed size of the list, with its tags; 0 if
 * the list is empty, because an empty list is not written. */
static size_t check_and_get_list_size(checker *c, teffi_field_desc *field, const uint8_t *m)
{
    bool packed = field->flags & PROTOBUF_C_FIELD_FLAG_PACKED;
    size_t n = teffi_list_len(field, m), step = teffi_value_memory_size(field->type), size = 0;
    if (!n)
        return 0;
    const uint8_t *at = teffi_list_first(field, m);
    c->fields += packed ? 1 : n;
    c->memory += n * step;
    for (size_t i = 0; i < n && !must_stop(c); i++, at += step)
        size += check_and_get_value_size(c, field, at);
    return packed ? teffi_tag_size(field->id) + teffi_varint_size(size) + size
                  : n * teffi_tag_size(field->id) + size;
}

/* Checks a plain string or bytes field, which is not written if it is empty. out: its size with its
 * tag; 0: empty. */
static size_t check_and_get_content_field_size(checker *c, teffi_field_desc *field,
                                               const void *slot)
{
    size_t n = check_and_get_content_size(c, field, slot);
    return n ? teffi_tag_size(field->id) + teffi_varint_size(n) + n : 0;
}

/* Checks a field of any kind. out: its size with its tags; 0: absent, not written. */
static size_t check_and_get_field_size(checker *c, teffi_field_desc *field, const uint8_t *m)
{
    const void *slot = m + field->offset;
    size_t size;
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return check_and_get_list_size(c, field, m);
    if (teffi_field_is_plain(field) && field->type != PROTOBUF_C_TYPE_MESSAGE) {
        bool is_text = teffi_wire_type_of(field->type) == TEFFI_BYTES;
        size = is_text ? check_and_get_content_field_size(c, field, slot)
                       : teffi_plain_field_size(field, slot);
        c->fields += size != 0;
        return size;
    }
    if (!teffi_field_is_present(field, m))
        return 0;
    c->fields++;
    return teffi_tag_size(field->id) + check_and_get_value_size(c, field, slot);
}

/* Checks a message, with the messages nested in it, and adds their fields and memory to c's counts.
 * out: its packed size. On an error c->at is the innermost message with the error, because the call
 * for that message returns first. */
static size_t check_and_get_message_size(checker *c, teffi_message_desc *desc,
                                         const ProtobufCMessage *msg)
{
    size_t size = 0;
    c->depth++;
    c->memory += desc->sizeof_message;
    for (unsigned i = 0; i < desc->n_fields && !must_stop(c); i++)
        size += check_and_get_field_size(c, &desc->fields[i], (const uint8_t *)msg);
    for (unsigned i = 0; i < msg->n_unknown_fields; i++) {
        const ProtobufCMessageUnknownField *unknown = &msg->unknown_fields[i];
        size += teffi_tag_size(unknown->tag) + unknown->len;
        c->memory += sizeof *unknown + unknown->len;
    }
    c->fields += msg->n_unknown_fields;
    if (c->err && !c->at)
        c->at = desc;
    c->depth--;
    return size;
}

/* Writes the recorded error to text. out: that error. */
static teff_err describe_error(const checker *c, const char *what, char *text)
{
    if (c->why)
        return teffi_fail(text, c->err, "%s: %s.%s %s", what, c->at->name, c->field->name, c->why);
    return teffi_fail(text, c->err, "%s nests over %d messages deep, at %s.%s; at most %d", what,
                      TEFF_DEPTH_MAX, c->at->name, c->field->name, TEFF_DEPTH_MAX);
}

/* Writes n, its unit and the limit to text. out: TEFF_E_TOO_LARGE. */
static teff_err fail_too_large(const char *what, const char *verb, size_t n, const char *unit,
                               size_t max, char *text)
{
    return teffi_fail(text, TEFF_E_TOO_LARGE, "%s %s %zu %s; at most %zu", what, verb, n, unit,
                      max);
}

teff_err teffi_check_message(const ProtobufCMessageDescriptor *desc, const ProtobufCMessage *msg,
                             const teffi_limits *limits, const char *what, size_t *packed,
                             char *text)
{
    checker c = {.fields_stop = limits->fields * FIELDS_STOP_FACTOR};
    *packed = check_and_get_message_size(&c, desc, msg);
    if (c.err)
        return describe_error(&c, what, text);
    if (c.fields > c.fields_stop)
        return fail_too_large(what, "has over", c.fields_stop, "fields", limits->fields, text);
    if (c.fields > limits->fields)
        return fail_too_large(what, "has", c.fields, "fields", limits->fields, text);
    if (*packed > limits->bytes)
        return fail_too_large(what, "takes", *packed, "bytes packed", limits->bytes, text);
    if (c.memory > limits->memory)
        return fail_too_large(what, "takes", c.memory, "bytes unpacked", limits->memory, text);
    return TEFF_OK;
}
