/* limits.h - limits of messages, states, keys and memory.
 * Way:     methods, callers, generated code -> [limits] <- message, activation
 * Threads: constants. */
#pragma once

#define TEFF_KEY_MAX 1024 /* bytes of a key's text */

/* Limits of each request and each response, wherever the grain is; checked where the message is
 * sent. Over a limit: TEFF_E_TOO_LARGE. Elements of a packed list are not counted as fields, only
 * by their bytes. A text that is not UTF-8, or a NULL message in a list or a required field:
 * TEFF_E_MALFORMED. teff_error() names the field, the size and the limit. A type's option
 * max_message_bytes may be less than TEFF_MESSAGE_MAX, and is its limit then. */
#define TEFF_MESSAGE_MAX (1024 * 1024) /* bytes, packed, without key and frame header */
#define TEFF_FIELDS_MAX 100000         /* values, including those of nested messages */
#define TEFF_DEPTH_MAX 32              /* levels of nested messages, including the outermost */
#define TEFF_UNPACKED_MAX (32 * 1024 * 1024) /* bytes in memory: structs, texts, lists */

/* Limits of a state, checked before it is written, so that every saved state can be loaded.
 * TEFF_DEPTH_MAX, UTF-8 and no NULL messages hold as for requests. */
#define TEFF_STATE_MAX (16 * 1024 * 1024)          /* bytes, packed */
#define TEFF_STATE_UNPACKED_MAX (64 * 1024 * 1024) /* bytes in memory: structs, texts, lists */

/* Memory of a state, in bytes, including replaced parts that are not reclaimed yet. */
#define TEFF_STATE_MEMORY_MAX (128 * 1024 * 1024)

/* Answers to calls with idempotency keys that a grain keeps, unless its option answers_max says
 * otherwise; packed bytes of a response up to which it is kept. */
#define TEFF_ANSWERS_DEFAULT 64
#define TEFF_ANSWER_MAX 4096

#define TEFF_TIMERS_MAX 1024 /* timers of one activation */

#define TEFF_OBSERVERS_MAX 10000       /* in the sets of one activation, together */
#define TEFF_OBSERVER_EXPIRY_MS 300000 /* of a subscription that sets no time: 5 minutes */
#define TEFF_OBSERVER_QUEUE_MAX 1000 /* notifications that wait for the callbacks of an observer */
#define TEFF_CLIENT_OBSERVERS_MAX 10000 /* of one client */

/* Memory of one turn, in bytes: its allocations, and responses that were copied into its arena. */
#define TEFF_TURN_MEMORY_MAX (128 * 1024 * 1024)

/* How long on_activate and on_deactivate may take while calls wait, see teff/grain.h. Twice the
 * default timeout of a call: so a hook whose first call times out can still return by itself. */
#define TEFF_HOOK_MAX_MS 60000
