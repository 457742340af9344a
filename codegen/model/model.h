/* model.h - the generator's data about the .proto files of a request, and what is wrong with them.
 * Way:     request -> model.c, options.c, check.c -> [model] -> emit */
#pragma once

#include "model/map.h"
#include "request.pb-c.h"
#include "model/text.h"

#define TEFFI_OPTIONS_FILE "teff/grain.proto"
#define TEFFI_PROCESS_FILE "teff/process.proto"
#define TEFFI_VOID "teff.Void"
#define TEFFI_PROBLEMS_MAX 20 /* problems with a text; further ones are only counted */

/* The path of an element in a .proto file, as in protoc's SourceCodeInfo: pairs of a field number
 * and an index. */
typedef struct teffi_path {
    const struct teffi_path *up; /* the enclosing element; NULL: this is the file */
    int32_t field;
    int32_t index; /* -1: the field is not repeated */
} teffi_path;

typedef struct teffi_file {
    const Protoc__File *desc;
    const char *name;    /* "sub/words.proto" */
    const char *stem;    /* "sub/words" */
    const char *package; /* "" when there is none */
    bool generate;
    bool proto2;
    teffi_map places; /* path -> Protoc__SourceInfo__Location */
    struct teffi_service *services;
    size_t n_services;
    struct teffi_message *messages; /* a list; an outer message precedes its nested ones */
    struct teffi_message **end;     /* the link at the end of that list */
    struct teffi_file **imports;    /* without options files */
    size_t n_imports;
    /* sees[i]: are definitions of model->files[i] visible in this file? i is at most this file's
     * own index. exports[i]: do importers of this file see them, too? True for this file itself,
     * and for what its public imports export. */
    bool *sees;
    bool *exports;
    teffi_path path; /* the root */
} teffi_file;

typedef struct teffi_message {
    struct teffi_message *next;
    const Protoc__Message *desc;
    const teffi_file *file;
    const char *full;      /* "words.Seen" */
    const char *c;         /* "words_seen" */
    const char *pbc;       /* "Words__Seen" */
    const char *pbc_lower; /* "words__seen" */
    teffi_path path;
} teffi_message;

/* teffi_model_read_options() sets id, timeout_ms, in and out, and replaces a NULL in options, for
 * grains in files to generate and for all observers. */
typedef struct teffi_method {
    const Protoc__Method *desc;
    const char *full; /* "words.Word.Add" */
    const char *slot; /* "add"; "delete_" */
    uint32_t id;
    uint32_t timeout_ms;                       /* 0: none is given */
    const Protoc__GrainMethodOptions *options; /* NULL: none */
    const teffi_message *in;                   /* NULL: teff.Void */
    const teffi_message *out;                  /* NULL: teff.Void */
    size_t at;                                 /* its index in by_id; set by emit_file_outputs() */
    bool observed; /* of a grain: it is a copy of an observer's method (option observes) */
    teffi_path path;
} teffi_method;

/* The numbers of teff/grain.proto. */
enum { KEY_STRING = 1, KEY_INT64, KEY_UUID, KEY_INT64_STRING, KEY_UUID_STRING };
enum { PLACE_RANDOM, PLACE_PREFER_LOCAL, PLACE_HASH, PLACE_STATELESS };

typedef struct teffi_service {
    const Protoc__Service *desc;
    const teffi_file *file;
    const char *full; /* "words.Word" */
    const char *c;    /* "words_word" */
    uint32_t id;
    uint32_t idle_ms;                  /* 0: none is given, or the file is not to generate */
    const Protoc__GrainOptions *grain; /* the option (teff.grain); NULL: not a grain */
    bool observer;                     /* the option (teff.observer) */
    const teffi_message *state;        /* NULL: none, or the file is not to generate */
    /* in the file's order; of a grain in a file to generate, followed by those of the observers
     * that it implements */
    teffi_method *methods;
    size_t n_methods;
    teffi_method **by_id; /* of a grain or observer, sorted by id; set by emit_file_outputs() */
    teffi_path path;
} teffi_service;

typedef struct teffi_model {
    teffi_pool *pool;
    teffi_file *files; /* without options files; an imported file precedes its importers */
    size_t n_files;
    teffi_map by_name;   /* file name -> teffi_file */
    teffi_map messages;  /* full name -> teffi_message */
    teffi_map claims;    /* for check.c: "scope name" or "scope id 0x..." -> symbol */
    teffi_text problems; /* one per line: the error text of the response */
    unsigned n_problems;
} teffi_model;

/* teffi_model_load - read the files of a request.
 * in:   model, zeroed except pool and problems.pool; request, borrowed for the model's life. Its
 *       comments are sanitized in place.
 * out:  the model, with unchecked options; usable only if model->n_problems is 0. */
void teffi_model_load(teffi_model *model, const Protoc__Request *request);

/* teffi_model_read_options - read and check the options and the types of methods, in the services
 * of the files to generate. Sets ids, times, states, and the types of requests and responses.
 * in:   a loaded model. */
void teffi_model_read_options(teffi_model *model);

/* teffi_model_check - add a problem for each name clash, equal id, reserved name, option of
 * protobuf-c, and field that cannot be generated as C.
 * in:   a model after teffi_model_read_options, also if that added problems. */
void teffi_model_check(teffi_model *model);

/* teffi_path_new - allocate a path in the pool. in: up, borrowed for the path's life. */
const teffi_path *teffi_path_new(teffi_pool *pool, const teffi_path *up, int32_t field,
                                 int32_t index);

/* teffi_index_lines_and_comments - index a file's elements for teffi_places_find_line and
 * teffi_find_comment. Also sanitizes the comments in file->desc, because protobuf-c's generator
 * writes them into its header. */
void teffi_index_lines_and_comments(teffi_file *file);

/* teffi_places_find_line - find the line where an element begins, from 1. If it is not known, the
 * line of the nearest enclosing element, or else 1. in: path, or NULL for the file as a whole. */
int teffi_places_find_line(const teffi_file *file, const teffi_path *path);

/* teffi_find_comment - find the sanitized comment before an element, else the one after it.
 * out:  NULL: there is none. */
const char *teffi_find_comment(const teffi_file *file, const teffi_path *path);

/* teffi_add_problem - note a problem in a .proto file: "file:line: what, what was expected". The
 * text after the line is cut to 1,023 bytes. in: path, or NULL for the file as a whole. */
void teffi_add_problem(teffi_model *model, const teffi_file *file, const teffi_path *path,
                       const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* teffi_add_problem_at - note a problem at a place outside of .proto files: "where: what, what was
 * expected". The text after where is cut to 1,023 bytes. */
void teffi_add_problem_at(teffi_model *model, const char *where, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* teffi_check_name - add a problem if protoc would not accept the name, or if it is NULL.
 * out:  true: it is valid. */
bool teffi_check_name(teffi_model *model, const teffi_file *file, const teffi_path *path,
                      const char *name);

/* teffi_find_message - find a message by its name in a package, then in each enclosing package,
 * then by its full name. A name that begins with a dot is a full name.
 * in:   name, "words.Seen", "Seen" or ".words.Seen". out: NULL: there is none. */
const teffi_message *teffi_find_message(const teffi_model *model, const char *package,
                                        const char *name);

/* teffi_find_service - the same for a service. */
const teffi_service *teffi_find_service(const teffi_model *model, const char *package,
                                        const char *name);

/* teffi_file_can_refer_to - are the definitions of other visible in file? Yes for file itself, its
 * imports and the public imports of these. */
bool teffi_file_can_refer_to(const teffi_model *model, const teffi_file *file,
                             const teffi_file *other);

/* teffi_is_options_file - is it teff/grain.proto or protobuf-c/protobuf-c.proto? They define
 * options, and teff.Void; no C is generated for them. teff's options are decoded by request.proto;
 * the use of protobuf-c's options in a file to generate is a problem, see check.c. */
bool teffi_is_options_file(const char *name);

/* teffi_is_repeated - is the field a list?
 * teffi_has_presence_flag - is it an optional field of proto2 with a has_ member? Strings, messages
 * and members of oneofs have no such member. */
bool teffi_is_repeated(const Protoc__Field *f);
bool teffi_has_presence_flag(const teffi_message *m, const Protoc__Field *f);

/* teffi_has_append_function - does the generated code have an append function for the field? */
bool teffi_has_append_function(const Protoc__Field *f);

/* teffi_is_void - is the type ".teff.Void" (with the first dot), the empty request or response? */
bool teffi_is_void(const char *type_name);
