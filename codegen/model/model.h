/* model.h - the generator's data about the .proto files of a request, and what is wrong with them.
 * Way:     request -> model.c, options.c, check.c -> [model] -> emit */
#pragma once

#include "model/map.h"
#include "request.pb-c.h"
#include "model/text.h"

#define TEFFI_OPTIONS_FILE "teff/grain.proto"
#define TEFFI_PROCESS_FILE "teff/process.proto"
#define TEFFI_VOID "teff.Void"
#define TEFFI_PROBLEMS_MAX 20 /* are printed; further ones are only counted */

/* A place in a file, as protoc's SourceCodeInfo counts it: field number, index, ... */
typedef struct teffi_path {
    const struct teffi_path *up; /* NULL at the file's own level */
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
    struct teffi_message *messages; /* a list; nested ones after the one they are in */
    struct teffi_message **end;     /* of the list */
    struct teffi_file **imports;    /* without the options' file */
    size_t n_imports;
    bool *sees;      /* per file up to this one: are its definitions visible in this file? */
    bool *exports;   /* the same, in a file that imports this one: itself and public imports */
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

typedef struct teffi_method {
    const Protoc__Method *desc;
    const char *full; /* "words.Word.Add" */
    const char *slot; /* "add"; "delete_" */
    uint32_t id;
    uint32_t timeout_ms;
    const Protoc__GrainMethodOptions *options; /* none: NULL; of a grain's: an empty one */
    const teffi_message *in;                   /* NULL: teff.Void */
    const teffi_message *out;                  /* NULL: teff.Void */
    size_t at;                                 /* its place in the table sorted by id */
    teffi_path path;
} teffi_method;

/* The numbers of teff/grain.proto. */
enum { KEY_STRING = 1, KEY_INT64, KEY_UUID, KEY_INT64_STRING, KEY_UUID_STRING };
enum { PLACE_RANDOM, PLACE_PREFER_LOCAL, PLACE_HASH };

typedef struct teffi_service {
    const Protoc__Service *desc;
    const teffi_file *file;
    const char *full; /* "words.Word" */
    const char *c;    /* "words_word" */
    uint32_t id;
    uint32_t idle_ms;
    const Protoc__GrainOptions *grain; /* the option (teff.grain); NULL: no grain */
    const teffi_message *state;        /* NULL: none */
    teffi_method *methods;             /* in the file's order */
    size_t n_methods;
    teffi_method **by_id; /* the same, sorted by id */
    teffi_path path;
} teffi_service;

typedef struct teffi_model {
    teffi_pool *pool;
    teffi_file *files; /* all but the options' file; imported ones first */
    size_t n_files;
    teffi_map by_name;   /* file name -> teffi_file */
    teffi_map messages;  /* full name -> teffi_message */
    teffi_map claims;    /* check.c: a scope and a name in it -> its owner */
    teffi_text problems; /* a line each: what the response's error will say */
    unsigned n_problems;
} teffi_model;

/* teffi_model_load - read the files of a request.
 * in:   model, zeroed, with pool set; request, borrowed for the model's life.
 * out:  the model without options; it may be used if model->n_problems is 0. */
void teffi_model_load(teffi_model *model, const Protoc__Request *request);

/* teffi_model_options - decode and check the options of every grain. in: a loaded model. */
void teffi_model_options(teffi_model *model);

/* teffi_model_check - report what cannot be generated as C: name clashes, reserved names, fields
 * and services that protobuf-c cannot write. in: a model with options. */
void teffi_model_check(teffi_model *model);

/* teffi_path_new - a path in the pool; up stays where it is. */
const teffi_path *teffi_path_new(teffi_pool *pool, const teffi_path *up, int32_t field,
                                 int32_t index);

/* teffi_places_load - make a file's places ready for teffi_places_find_line and teffi_find_comment.
 * Defuses the comments of its description, which protobuf-c writes into its header, too. */
void teffi_places_load(teffi_file *file);

/* teffi_places_find_line - find the line where an element begins, else that of the nearest
 * enclosing element. */
int teffi_places_find_line(const teffi_file *file, const teffi_path *path);

/* teffi_find_comment - the defused comment before an element, else the one after it; NULL: none. */
const char *teffi_find_comment(const teffi_file *file, const teffi_path *path);

/* teffi_add_problem - note that a file cannot be used: "file:line: what, what was expected".
 * in:   path, or NULL for the file as a whole. */
void teffi_add_problem(teffi_model *model, const teffi_file *file, const teffi_path *path,
                       const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* teffi_add_problem_at - the same for a place in no .proto file: "where: what, what was expected".
 */
void teffi_add_problem_at(teffi_model *model, const char *where, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* teffi_check_name - note a problem if protoc would not accept the name. out: is it valid? */
bool teffi_check_name(teffi_model *model, const teffi_file *file, const teffi_path *path,
                      const char *name);

/* teffi_find_message - the message that a name means inside a package, as protoc looks names up.
 * in:   name, "words.Seen", "Seen" or ".words.Seen". out: NULL when there is none. */
const teffi_message *teffi_find_message(const teffi_model *model, const char *package,
                                        const char *name);

/* teffi_file_sees - does a file see what another one defines, by its imports? */
bool teffi_file_sees(const teffi_model *model, const teffi_file *file, const teffi_file *other);

/* teffi_is_options_file - does a file only define options? Those of teff are read by their numbers;
 * those of protobuf-c are refused where they are used. Neither becomes C. */
bool teffi_is_options_file(const char *name);

/* teffi_is_repeated - is the field a list?
 * teffi_has_flag - is it an optional field of proto2 with a has_ member? Texts and messages have
 * none. */
bool teffi_is_repeated(const Protoc__Field *f);
bool teffi_has_flag(const teffi_message *m, const Protoc__Field *f);

/* teffi_has_append - does the generated code have an append function for the field? */
bool teffi_has_append(const Protoc__Field *f);

/* teffi_is_void - is a type ".teff.Void" (with its dot), the empty request or response? */
bool teffi_is_void(const char *type_name);
