/* emit_copy.c - deep copies: how a message gets from a caller's memory into an envelope's arena.
 * Way:     emit_source -> [emit_copy] -> codegen's response
 * A copy starts as the struct itself, in one piece of memory with its own texts; every field that
 * points somewhere is then pointed anew. A copy reads as if it had been packed and unpacked, except
 * that unknown fields are dropped. */
#include "emit.h"
#include "names.h"

#include <string.h>

static const char own_texts_helper[] =
    "\n"
    "static size_t teffi_text_size(const char *text)\n"
    "{\n"
    "    return text != NULL ? strlen(text) + 1 : 1;\n"
    "}\n"
    "\n"
    "static const char *teffi_put_text(char **at, const char *text, size_t size)\n"
    "{\n"
    "    char *to = *at;\n"
    "\n"
    "    *at += size;\n"
    "    return (const char *)memcpy(to, text != NULL ? text : \"\", size);\n"
    "}\n";
static const char text_helper[] =
    "\n"
    "static int teffi_copy_text(teff_arena *arena, const char **text)\n"
    "{\n"
    "    const char *from = *text != NULL ? *text : \"\";\n"
    "\n"
    "    *text = (const char *)teff_arena_copy(arena, from, strlen(from));\n"
    "    return *text != NULL;\n"
    "}\n";
static const char texts_helper[] =
    "\n"
    "static int teffi_copy_texts(teff_arena *arena, size_t n, const char ***texts)\n"
    "{\n"
    "    const char **from = *texts;\n"
    "\n"
    "    *texts = NULL;\n"
    "    if (n == 0) {\n"
    "        return 1;\n"
    "    }\n"
    "    *texts = (const char **)teff_arena_copy(arena, from, n * sizeof *from);\n"
    "    for (size_t i = 0; *texts != NULL && i < n; i++) {\n"
    "        if (!teffi_copy_text(arena, &(*texts)[i])) {\n"
    "            return 0;\n"
    "        }\n"
    "    }\n"
    "    return *texts != NULL;\n"
    "}\n";
static const char bytes_helper[] =
    "\n"
    "static int teffi_copy_bytes(teff_arena *arena, ProtobufCBinaryData *bytes)\n"
    "{\n"
    "    if (bytes->data == NULL || bytes->len == 0) {\n"
    "        bytes->data = NULL;\n"
    "        bytes->len = 0;\n"
    "        return 1;\n"
    "    }\n"
    "    bytes->data = (uint8_t *)teff_arena_copy(arena, bytes->data, bytes->len);\n"
    "    return bytes->data != NULL;\n"
    "}\n";
static const char bytes_list_helper[] =
    "\n"
    "static int teffi_copy_bytes_list(teff_arena *arena, size_t n, ProtobufCBinaryData **list)\n"
    "{\n"
    "    ProtobufCBinaryData *from = *list;\n"
    "\n"
    "    *list = NULL;\n"
    "    if (n == 0) {\n"
    "        return 1;\n"
    "    }\n"
    "    *list = (ProtobufCBinaryData *)teff_arena_copy(arena, from, n * sizeof *from);\n"
    "    for (size_t i = 0; *list != NULL && i < n; i++) {\n"
    "        if (!teffi_copy_bytes(arena, &(*list)[i])) {\n"
    "            return 0;\n"
    "        }\n"
    "    }\n"
    "    return *list != NULL;\n"
    "}\n";

static bool repeated(const Protoc__Field *f)
{
    return f->label == PROTOC__FIELD__LABEL__REPEATED;
}

static bool proto2_optional(const teffi_message *m, const Protoc__Field *f)
{
    return m->file->proto2 && !f->has_oneof_index && f->label == PROTOC__FIELD__LABEL__OPTIONAL &&
           f->type != PROTOC__FIELD__TYPE__MESSAGE;
}

/* A text that each such message has: it lies behind the struct. */
static bool own_text(const teffi_message *m, const Protoc__Field *f)
{
    return f->type == PROTOC__FIELD__TYPE__STRING && !repeated(f) && !f->has_oneof_index &&
           !proto2_optional(m, f);
}

static bool has_texts(const teffi_file *file, bool own)
{
    for (size_t i = 0; i < file->n_messages; i++) {
        const Protoc__Message *m = file->messages[i]->desc;

        for (size_t k = 0; k < m->n_field; k++) {
            if (m->field[k]->type == PROTOC__FIELD__TYPE__STRING &&
                own_text(file->messages[i], m->field[k]) == own) {
                return true;
            }
        }
    }
    return false;
}

static bool uses(const teffi_file *file, Protoc__Field__Type type, bool lists)
{
    for (size_t i = 0; i < file->n_messages; i++) {
        const Protoc__Message *m = file->messages[i]->desc;

        for (size_t k = 0; k < m->n_field; k++) {
            if (m->field[k]->type == type && (!lists || repeated(m->field[k]))) {
                return true;
            }
        }
    }
    return false;
}

static void emit_helpers(teffi_text *out, const teffi_file *file)
{
    const teffi_values none = {{NULL}};

    if (uses(file, PROTOC__FIELD__TYPE__STRING, false)) {
        teffi_text_expand(out, "\n#include <string.h>\n", &none);
    }
    if (has_texts(file, true)) {
        teffi_text_expand(out, own_texts_helper, &none);
    }
    if (has_texts(file, false)) {
        teffi_text_expand(out, text_helper, &none);
    }
    if (uses(file, PROTOC__FIELD__TYPE__STRING, true)) {
        teffi_text_expand(out, texts_helper, &none);
    }
    if (uses(file, PROTOC__FIELD__TYPE__BYTES, false)) {
        teffi_text_expand(out, bytes_helper, &none);
    }
    if (uses(file, PROTOC__FIELD__TYPE__BYTES, true)) {
        teffi_text_expand(out, bytes_list_helper, &none);
    }
}

/* What a template says of a field: $f its member, $C the copy function of its message, $E the type
 * of an element of a repeated one, $n the indentation. */
static teffi_values field_values(const teffi_model *model, const Protoc__Field *f)
{
    teffi_values v = {{NULL}};

    v.values['f'] = teffi_lower(model->pool, f->name);
    v.values['n'] = f->has_oneof_index ? "        " : "    ";
    if (f->type == PROTOC__FIELD__TYPE__MESSAGE) {
        v.values['C'] = teffi_find_message(model, "", f->type_name)->c;
    }
    return v;
}

static void emit_list(teffi_text *out, const Protoc__Field *f, const teffi_values *v)
{
    switch (f->type) {
    case PROTOC__FIELD__TYPE__STRING:
        teffi_text_expand(out,
                          "    if (!teffi_copy_texts(arena, dst->n_$f, &dst->$f)) {\n"
                          "        return NULL;\n"
                          "    }\n",
                          v);
        break;
    case PROTOC__FIELD__TYPE__BYTES:
        teffi_text_expand(out,
                          "    if (!teffi_copy_bytes_list(arena, dst->n_$f, &dst->$f)) {\n"
                          "        return NULL;\n"
                          "    }\n",
                          v);
        break;
    case PROTOC__FIELD__TYPE__MESSAGE:
        teffi_text_expand(
            out,
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
            "    }\n",
            v);
        break;
    default:
        teffi_text_expand(out,
                          "    dst->$f = NULL;\n"
                          "    if (src->n_$f > 0) {\n"
                          "        dst->$f = ($E *)teff_arena_copy(arena, src->$f, "
                          "src->n_$f * sizeof *src->$f);\n"
                          "        if (dst->$f == NULL) {\n"
                          "            return NULL;\n"
                          "        }\n"
                          "    }\n",
                          v);
        break;
    }
}

static const char *element(teffi_pool *pool, const Protoc__Field *f)
{
    switch (f->type) {
    case PROTOC__FIELD__TYPE__DOUBLE:
        return "double";
    case PROTOC__FIELD__TYPE__FLOAT:
        return "float";
    case PROTOC__FIELD__TYPE__INT64:
    case PROTOC__FIELD__TYPE__SINT64:
    case PROTOC__FIELD__TYPE__SFIXED64:
        return "int64_t";
    case PROTOC__FIELD__TYPE__UINT64:
    case PROTOC__FIELD__TYPE__FIXED64:
        return "uint64_t";
    case PROTOC__FIELD__TYPE__INT32:
    case PROTOC__FIELD__TYPE__SINT32:
    case PROTOC__FIELD__TYPE__SFIXED32:
        return "int32_t";
    case PROTOC__FIELD__TYPE__UINT32:
    case PROTOC__FIELD__TYPE__FIXED32:
        return "uint32_t";
    case PROTOC__FIELD__TYPE__BOOL:
        return "protobuf_c_boolean";
    case PROTOC__FIELD__TYPE__ENUM:
        return teffi_pbc_type(pool, f->type_name + (f->type_name[0] == '.'));
    default:
        return "";
    }
}

/* The statement that points one field anew; nothing for a plain number. */
static void emit_one(teffi_text *out, const Protoc__Field *f, const teffi_values *v)
{
    switch (f->type) {
    case PROTOC__FIELD__TYPE__STRING:
        teffi_text_expand(out,
                          "$nif (!teffi_copy_text(arena, &dst->$f)) {\n"
                          "$n    return NULL;\n"
                          "$n}\n",
                          v);
        break;
    case PROTOC__FIELD__TYPE__BYTES:
        teffi_text_expand(out,
                          "$nif (!teffi_copy_bytes(arena, &dst->$f)) {\n"
                          "$n    return NULL;\n"
                          "$n}\n",
                          v);
        break;
    case PROTOC__FIELD__TYPE__MESSAGE:
        teffi_text_expand(out,
                          "$nif (src->$f != NULL) {\n"
                          "$n    dst->$f = $C_copy_levels(arena, src->$f, levels - 1);\n"
                          "$n    if (dst->$f == NULL) {\n"
                          "$n        return NULL;\n"
                          "$n    }\n"
                          "$n}\n",
                          v);
        break;
    default:
        break;
    }
}

/* proto2: a field that is not there reads as its default. */
static void emit_optional(teffi_text *out, const Protoc__Field *f, teffi_values *v)
{
    v->values['n'] = "        ";
    teffi_text_expand(out,
                      f->type == PROTOC__FIELD__TYPE__STRING
                          ? "    if (src->$f == NULL) {\n        dst->$f = initial.$f;\n    }"
                          : "    if (!src->has_$f) {\n        dst->$f = initial.$f;\n    }",
                      v);
    if (f->type == PROTOC__FIELD__TYPE__STRING || f->type == PROTOC__FIELD__TYPE__BYTES) {
        teffi_text_printf(out, " else {\n");
        emit_one(out, f, v);
        teffi_text_printf(out, "    }");
    }
    teffi_text_printf(out, "\n");
}

static bool points(const Protoc__Field *f)
{
    return f->type == PROTOC__FIELD__TYPE__STRING || f->type == PROTOC__FIELD__TYPE__BYTES ||
           f->type == PROTOC__FIELD__TYPE__MESSAGE;
}

static void emit_oneof(teffi_text *out, const teffi_model *model, const teffi_message *m,
                       int32_t index)
{
    bool open = false;

    for (size_t i = 0; i < m->desc->n_field; i++) {
        const Protoc__Field *f = m->desc->field[i];
        teffi_values v;

        if (!f->has_oneof_index || f->oneof_index != index || !points(f)) {
            continue;
        }
        if (!open) {
            teffi_text_printf(out, "    switch ((int)src->%s_case) {\n",
                              teffi_pbc_lower(model->pool, m->desc->oneof_decl[index]->name));
            open = true;
        }
        v = field_values(model, f);
        teffi_text_printf(out, "    case %d: /* %s */\n", f->number, f->name);
        emit_one(out, f, &v);
        teffi_text_printf(out, "        break;\n");
    }
    if (open) {
        teffi_text_printf(out, "    default:\n        break;\n    }\n");
    }
}

static void emit_fields(teffi_text *out, const teffi_model *model, const teffi_message *m)
{
    for (size_t i = 0; i < m->desc->n_field; i++) {
        const Protoc__Field *f = m->desc->field[i];
        teffi_values v = field_values(model, f);

        if (repeated(f)) {
            v.values['E'] = element(model->pool, f);
            emit_list(out, f, &v);
        } else if (proto2_optional(m, f)) {
            emit_optional(out, f, &v);
        } else if (own_text(m, f)) {
            teffi_text_expand(out, "    dst->$f = teffi_put_text(&texts, src->$f, n_$f);\n", &v);
        } else if (!f->has_oneof_index) {
            emit_one(out, f, &v);
        }
    }
    for (size_t i = 0; i < m->desc->n_oneof_decl; i++) {
        emit_oneof(out, model, m, (int32_t)i);
    }
}

static bool has_defaults(const teffi_message *m)
{
    for (size_t i = 0; i < m->desc->n_field; i++) {
        if (!repeated(m->desc->field[i]) && proto2_optional(m, m->desc->field[i])) {
            return true;
        }
    }
    return false;
}

/* template, for each text that lies behind the struct. out: is there one? */
static bool emit_own_texts(teffi_text *out, const teffi_model *model, const teffi_message *m,
                           const char *template)
{
    bool any = false;

    for (size_t i = 0; i < m->desc->n_field; i++) {
        if (own_text(m, m->desc->field[i])) {
            const teffi_values v = field_values(model, m->desc->field[i]);

            teffi_text_expand(out, template, &v);
            any = true;
        }
    }
    return any;
}

/* The struct's own fields, and room for its texts. */
static void emit_struct(teffi_text *out, const teffi_model *model, const teffi_message *m,
                        const teffi_values *v)
{
    bool texts;

    teffi_text_expand(out, "    $M *dst;\n", v);
    teffi_text_expand(out, "    size_t size = sizeof *dst;\n", v);
    texts = emit_own_texts(out, model, m, "    size_t n_$f;\n");
    teffi_text_expand(out, texts ? "    char *texts;\n" : "", v);
    teffi_text_expand(out,
                      "\n"
                      "    if (src == NULL || levels == 0) {\n"
                      "        return NULL;\n"
                      "    }\n",
                      v);
    (void)emit_own_texts(out, model, m,
                         "    n_$f = teffi_text_size(src->$f);\n"
                         "    size += n_$f;\n");
    teffi_text_expand(out,
                      "    dst = ($M *)teff_arena_take(arena, size);\n"
                      "    if (dst == NULL) {\n"
                      "        return NULL;\n"
                      "    }\n"
                      "$I"
                      "    *dst = *src;\n"
                      "    dst->base.descriptor = &$d__descriptor;\n"
                      "    dst->base.n_unknown_fields = 0;\n"
                      "    dst->base.unknown_fields = NULL;\n",
                      v);
    teffi_text_expand(out, texts ? "    texts = (char *)(dst + 1);\n" : "", v);
}

static void emit_copy(teffi_text *out, const teffi_model *model, const teffi_message *m)
{
    teffi_values v = {{NULL}};

    v.values['M'] = m->c;
    v.values['P'] = m->pbc;
    v.values['d'] = m->pbc_lower;
    v.values['D'] =
        has_defaults(m) ? teffi_pool_printf(model->pool, "    %s initial;\n", m->c) : "";
    v.values['I'] = has_defaults(m)
                        ? teffi_pool_printf(model->pool, "    %s__init(&initial);\n", m->pbc_lower)
                        : "";
    teffi_text_expand(out,
                      "\n"
                      "$M *$M_copy_levels(teff_arena *arena, const $M *src, unsigned levels)\n"
                      "{\n"
                      "$D",
                      &v);
    emit_struct(out, model, m, &v);
    emit_fields(out, model, m);
    teffi_text_expand(
        out,
        "    return dst;\n"
        "}\n"
        "\n"
        "$M *$M_copy(teff_arena *arena, const $M *src)\n"
        "{\n"
        "    return $M_copy_levels(arena, src, 32);\n"
        "}\n"
        "\n"
        "static ProtobufCMessage *teffi_$M_copy(teff_arena *arena, const ProtobufCMessage *src)\n"
        "{\n"
        "    return (ProtobufCMessage *)$M_copy(arena, (const $M *)src);\n"
        "}\n"
        "\n"
        "const teff_message_ops $M_ops = {&$d__descriptor, teffi_$M_copy};\n",
        &v);
}

void teffi_emit_copies(teffi_text *out, const teffi_model *model, const teffi_file *file)
{
    emit_helpers(out, file);
    for (size_t i = 0; i < file->n_messages; i++) {
        emit_copy(out, model, file->messages[i]);
    }
}
