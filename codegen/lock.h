/* lock.h - the list of published methods, and the check that they keep their ids.
 * Way:     codegen -> [lock] -> problems, or one more file
 * A line is "words.Word.Add 0x1234abcd"; blank lines and lines with # are ignored. */
#ifndef TEFFI_CODEGEN_LOCK_H
#define TEFFI_CODEGEN_LOCK_H

#include "model/model.h"

/* teffi_lock_check - every method of a lock must be in the file, with the same id.
 * in:   lock_name, for errors; lock, its text. Problems are noted in the model. */
void teffi_lock_check(teffi_model *model, const teffi_file *file, const char *lock_name,
                      const char *lock);

/* teffi_lock_emit - write the lock of a file: its grains' methods, sorted by name. */
void teffi_lock_emit(teffi_text *out, const teffi_file *file);

#endif
