/* libmlxb 0.1.0: local language models on Apple's MLX, embedded.
 *
 * Generated from src/ffi by `cargo xtask header`: do not edit.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef MLXB_H
#define MLXB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MLXB_VERSION_MAJOR 0
#define MLXB_VERSION_MINOR 1
#define MLXB_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Errors ----------------------------------------------------------------------------------- */

/**
 * What a call came to. New values may appear in later versions: treat those that you do not
 * know as a failure.
 */
typedef enum mlxb_status {
    /** It worked. */
    MLXB_OK = 0,
    /** An argument is missing, out of range, or contradicts another one. */
    MLXB_INVALID_ARGUMENT = 1,
    /** A text argument is not valid UTF-8. */
    MLXB_INVALID_UTF8 = 2,
    /** The named thing does not exist. */
    MLXB_NOT_FOUND = 3,
    /** A query matches several things; the error's detail lists them. */
    MLXB_AMBIGUOUS = 4,
    /** The object is in use by another call, or the call would wait for itself. */
    MLXB_BUSY = 5,
    /** The caller asked to stop. */
    MLXB_CANCELLED = 6,
    /** The caller's buffer cannot hold the answer. */
    MLXB_BUFFER_TOO_SMALL = 7,
    /** Understood, but not something that this library or platform does. */
    MLXB_UNSUPPORTED = 8,
    /** The caller was built against a header that this library cannot serve. */
    MLXB_VERSION_MISMATCH = 9,
    /** The operating system refused a file operation. */
    MLXB_IO = 20,
    /** A file's content contradicts itself. */
    MLXB_CORRUPT = 21,
    /** The disk is full. */
    MLXB_NO_SPACE = 22,
    /** Another process holds the lock. */
    MLXB_LOCKED = 23,
    /** Memory could not be allocated. */
    MLXB_OUT_OF_MEMORY = 30,
    /** The request would exceed the memory budget. */
    MLXB_OVER_BUDGET = 31,
    /** The model folder is incomplete or inconsistent. */
    MLXB_MODEL_FORMAT = 40,
    /** The chat template does not compile or render. */
    MLXB_TEMPLATE = 41,
    /** The grammar is malformed. */
    MLXB_GRAMMAR = 42,
    /** The tokens do not fit the model's context. */
    MLXB_CONTEXT_FULL = 43,
    /** The protocol request is malformed. */
    MLXB_PROTOCOL = 44,
    /** MLX reported an error. */
    MLXB_BACKEND = 50,
    /** A bug in the library: please report it. */
    MLXB_PANIC = 90,
    /** An earlier MLXB_PANIC left this object unusable: free it. */
    MLXB_POISONED = 91,
} mlxb_status;

/**
 * Why a call failed: a status, a one-line message and sometimes a longer detail.
 * Made by a call that fails with an `error` argument that is not NULL; freed by
 * mlxb_error_free. Belongs to one thread at a time.
 */
typedef struct mlxb_error mlxb_error;

/**
 * The status inside an error object; MLXB_OK for NULL.
 *
 * Thread: one at a time per error. Since 0.1.0.
 */
mlxb_status mlxb_error_status(const mlxb_error *error);

/**
 * One line in lower case that names the offending thing and holds no prompt text; "" for NULL.
 *
 * Ownership: lives as long as the error. Thread: one at a time per error. Since 0.1.0.
 */
const char *mlxb_error_message(const mlxb_error *error);

/**
 * What does not fit into one line, such as the candidates of MLXB_AMBIGUOUS; NULL where there
 * is no more to say.
 *
 * Ownership: lives as long as the error. Thread: one at a time per error. Since 0.1.0.
 */
const char *mlxb_error_detail(const mlxb_error *error);

/**
 * Frees an error object; NULL is ignored.
 *
 * Ownership: consumes `error`. Thread: one at a time per error. Since 0.1.0.
 */
void mlxb_error_free(mlxb_error *error);

/**
 * The name of a status, such as "MLXB_NOT_FOUND"; "MLXB_UNKNOWN" for a number that is none.
 *
 * Ownership: a constant of the library, never freed. Thread: any. Since 0.1.0.
 */
const char *mlxb_status_name(int32_t status);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* MLXB_H */
