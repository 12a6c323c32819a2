/* libmlxb 0.1.0: local language models on Apple's MLX, embedded.
 *
 * Generated from src/ffi by `cargo xtask header`: do not edit.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Status. A function that can fail returns mlxb_status and takes an mlxb_error pointer last,
 * which may be NULL. On entry the error, and every handle, string and count to be returned, are
 * set to NULL or 0. A failed call sets the error, to be freed with mlxb_error_free; whatever the
 * status, the objects involved are in a defined state, and the function's comment says which.
 * Messages and log lines hold no prompt and no generated text.
 *
 * Handles. Opaque, made and freed by the library only. A function named _free, _close or _release
 * is the only one that consumes a handle, and ignores NULL. Handles keep alive what they depend
 * on, so any order of freeing is fine.
 *
 * Threads. Models, caches, registries and cancel objects may be used from all threads at once;
 * kvs, conversations, lists, plans, strings and errors by one thread at a time. A kv in use
 * answers MLXB_BUSY.
 *
 * Text. UTF-8: NUL-terminated, or with a length beside the pointer. Text out is complete: never a
 * part of a character. Strings out are freed with mlxb_string_free.
 * Arrays out go into a buffer of the caller's, with its capacity; the count is told even when
 * it does not fit (MLXB_BUFFER_TOO_SMALL).
 *
 * Structs that the caller fills start with struct_size, and their _init function sets every
 * field to "unset": numbers to NaN or -1, where zero is a value, pointers to NULL, counts and
 * switches to 0. In structs that the library
 * fills, the caller sets struct_size, and no more than that is written. Fields are only ever
 * added at the end, so programs and libraries of different versions go together.
 *
 * Callbacks get their user_data first, and run on the thread that made the call, one at a time for
 * each call; only the log's comes from any thread. They must not throw or longjmp, nor free the
 * handles in use. New kinds of events and new statuses may appear: ignore the one, take the other
 * for a failure.
 *
 * Processes. The library stays loaded after dlclose, and ends its work when the process exits.
 * In a child of fork, calls that need MLX return MLXB_UNSUPPORTED.
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

/* ---- Version ---------------------------------------------------------------------------------- */

/**
 * The version of the library that is running: 1000000 * major + 1000 * minor + patch.
 *
 * Thread: any. Since 0.1.0.
 */
uint32_t mlxb_version_number(void);

/**
 * The version of the library and of MLX, such as "mlxb/0.1.0 mlx/0.32.2 (cpu)".
 *
 * Ownership: a constant of the library, never freed. Thread: any. Since 0.1.0.
 */
const char *mlxb_version_string(void);

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
    /** The request in a wire protocol is malformed, or asks for what is not done here. */
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

/* ---- Strings ---------------------------------------------------------------------------------- */

/** Borrowed UTF-8: `len` bytes at `ptr`, not NUL-terminated. */
typedef struct mlxb_str {
    /** The first byte; not NULL. */
    const char *ptr;
    /** Bytes. */
    size_t len;
} mlxb_str;

/**
 * Frees a string that the library returned through a `char **`; NULL is ignored.
 *
 * Ownership: consumes `string`. Thread: one at a time per string. Since 0.1.0.
 */
void mlxb_string_free(char *string);

/* ---- Log -------------------------------------------------------------------------------------- */

/** How much to log. Each level includes those before it. */
typedef enum mlxb_log_level {
    /** Nothing, the default. */
    MLXB_LOG_OFF = 0,
    /** Failures that no call reports. */
    MLXB_LOG_ERROR = 1,
    /** What goes on, but worse than it should. */
    MLXB_LOG_WARN = 2,
    /** What an app's developer may want to know. */
    MLXB_LOG_INFO = 3,
    /** What the library's developer may want to know. */
    MLXB_LOG_DEBUG = 4,
    /** Everything. */
    MLXB_LOG_TRACE = 5,
} mlxb_log_level;

/**
 * Receives one line of log: `level` is one of mlxb_log_level, `message` lives for the call.
 * It may come from any thread, several at once. It must not throw or longjmp. On threads of the
 * library's own, what would wait for that very thread answers MLXB_BUSY.
 */
typedef void (*mlxb_log_fn)(void *user_data, int32_t level, mlxb_str message);

/** Called once with `user_data` when the library has no more use for it. */
typedef void (*mlxb_destroy_fn)(void *user_data);

/**
 * Sends the library's log to `receive`. Nothing is logged before, and never on stdout or
 * stderr; prompts and generated text are never part of it.
 *
 * @param max_level    One of mlxb_log_level: the least important level to log.
 * @param receive      Called for each line; NULL to log no more.
 * @param user_data    Passed to `receive` and `destroy`.
 * @param destroy      Called with `user_data` once `receive` will not be called any more,
 *                     also when this call fails; may be NULL.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT for a level that is none.
 *
 * Ownership: the library keeps `user_data` until it calls `destroy`.
 * Thread: any; replacing a receiver does not wait for a call to it that runs. Since 0.1.0.
 */
mlxb_status mlxb_log_set(int32_t max_level,
                         mlxb_log_fn receive,
                         void *user_data,
                         mlxb_destroy_fn destroy,
                         mlxb_error **error);

/* ---- Memory ----------------------------------------------------------------------------------- */

/** Bytes in use. Set struct_size, the library fills in the rest. */
typedef struct mlxb_memory_stats {
    /** sizeof(mlxb_memory_stats). */
    size_t struct_size;
    /** Weights, KV states and intermediate results. */
    uint64_t active_bytes;
    /**
     * The most that was active since the start; memory for weights and for other work counts
     * with the most of each.
     */
    uint64_t peak_bytes;
    /** Freed, but kept by MLX's allocator for reuse. */
    uint64_t cached_bytes;
} mlxb_memory_stats;

/**
 * Tells how much memory the library uses in this process.
 *
 * @param out    Filled in; its struct_size says how much of it.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT for NULL or a wrong struct_size; MLXB_UNSUPPORTED in
 *         a forked process; MLXB_BACKEND. On a failure `out` is unchanged.
 *
 * Thread: any; waits for the running step of the engine. Since 0.1.0.
 */
mlxb_status mlxb_memory(mlxb_memory_stats *out, mlxb_error **error);

/**
 * Gives memory back that MLX's allocator keeps for reuse, when it keeps more than
 * `target_bytes`. Call it when the system warns of memory pressure.
 *
 * @param freed_bytes    How much was given back; may be NULL.
 * @return MLXB_OK; MLXB_UNSUPPORTED in a forked process; MLXB_BACKEND.
 *
 * Thread: any; waits for the running step of the engine. Since 0.1.0.
 */
mlxb_status mlxb_memory_trim(uint64_t target_bytes, uint64_t *freed_bytes, mlxb_error **error);

/**
 * Sets what the library may use, for the whole process.
 *
 * @param budget_bytes             Weights, KV states and intermediate results together; work
 *                                 that would need more is refused with MLXB_OVER_BUDGET before
 *                                 it starts. 0: the machine's memory, which is the default.
 * @param allocator_cache_bytes    What MLX's allocator may keep of freed memory for reuse;
 *                                 268435456 by default.
 * @return MLXB_OK; MLXB_UNSUPPORTED in a forked process; MLXB_BACKEND. On a failure the limits
 *         are as before.
 *
 * Thread: any; waits for the running step of the engine. Since 0.1.0.
 */
mlxb_status mlxb_memory_limits_set(uint64_t budget_bytes,
                                   uint64_t allocator_cache_bytes,
                                   mlxb_error **error);

/* ---- Cancelling ------------------------------------------------------------------------------- */

/**
 * Asks calls to stop, from any thread, before or while they run. It stays requested: make a
 * new one for the next call. A call that was given one keeps what it needs of it, so it may be
 * freed at any time.
 */
typedef struct mlxb_cancel mlxb_cancel;

/**
 * Makes a cancel object. Never NULL, unless memory is exhausted.
 *
 * Ownership: the caller's, until mlxb_cancel_free. Thread: any. Since 0.1.0.
 */
mlxb_cancel *mlxb_cancel_new(void);

/**
 * Asks the calls that were given `cancel` to stop: a generation ends with
 * MLXB_FINISH_CANCELLED before its next step, mlxb_respond with what there is of an answer, other
 * calls with MLXB_CANCELLED. NULL is ignored.
 *
 * Thread: any, at any time, signal handlers included. Since 0.1.0.
 */
void mlxb_cancel_request(const mlxb_cancel *cancel);

/**
 * Frees a cancel object; NULL is ignored.
 *
 * Ownership: consumes `cancel`; calls that were given it go on and can no longer be cancelled.
 * Thread: any, but no other use of it at the same time. Since 0.1.0.
 */
void mlxb_cancel_free(mlxb_cancel *cancel);

/* ---- Events ----------------------------------------------------------------------------------- */

/**
 * What an event tells. New kinds may appear in later versions: ignore those that you do not
 * know.
 */
typedef enum mlxb_event_kind {
    /** `done` of `total` prompt tokens have been run. */
    MLXB_EVENT_PREFILL = 1,
    /** `token` was sampled, the end token included. */
    MLXB_EVENT_TOKEN = 2,
    /** `text` is complete: whole characters, and no part of a stop string. */
    MLXB_EVENT_TEXT = 3,
    /** `done` of `total` bytes of weights have been read. */
    MLXB_EVENT_LOAD = 4,
    /**
     * How far a conversion is, in bytes of weights, or a report on one, in runs of the model:
     * `done` of `total`.
     */
    MLXB_EVENT_QUANTIZE = 5,
} mlxb_event_kind;

/** What a callback returns. */
typedef enum mlxb_flow {
    /** Go on. */
    MLXB_CONTINUE = 0,
    /** End here. */
    MLXB_STOP = 1,
} mlxb_flow;

/** An event. Fields that its kind does not name are zero. */
typedef struct mlxb_event {
    /** Bytes of this struct that the library filled in. */
    size_t struct_size;
    /** What it tells. */
    mlxb_event_kind kind;
    /** A token id. */
    uint32_t token;
    /** Text; lives for the call. */
    mlxb_str text;
    /**
     * The token's log-probability; NaN where it was not asked for, -9999 for a token that is
     * impossible or whose logits are no numbers.
     */
    float logprob;
    /**
     * The most likely ids, best first, impossible ones left out; lives for the call. NULL with
     * top_count 0.
     */
    const uint32_t *top_tokens;
    /** Their log-probabilities; lives for the call. NULL with top_count 0. */
    const float *top_logprobs;
    /** Ids at top_tokens. */
    size_t top_count;
    /** Progress: so much of `total`. */
    uint64_t done;
    /** Progress: all of it. */
    uint64_t total;
} mlxb_event;

/**
 * Receives events, on the thread that made the call, one at a time. `event` lives for the
 * call. Returns MLXB_CONTINUE, or MLXB_STOP to end. It may call any function of the library;
 * one that would wait for this very call returns MLXB_BUSY. It must not throw or longjmp, nor
 * free the handles that the call uses.
 */
typedef int32_t (*mlxb_event_fn)(void *user_data, const mlxb_event *event);

/* ---- Models ----------------------------------------------------------------------------------- */

/** Where a model computes. */
typedef enum mlxb_device {
    /** The GPU where there is one that MLX can use, else the CPU. */
    MLXB_DEVICE_DEFAULT = 0,
    /** The CPU. */
    MLXB_DEVICE_CPU = 1,
} mlxb_device;

/**
 * A loaded model. Shared: it is freed when the last reference is released and the last kv made
 * from it is freed. All its functions may be called from several threads at once.
 */
typedef struct mlxb_model mlxb_model;

/** How to load a model. Prepare it with mlxb_model_options_init, then set what you need. */
typedef struct mlxb_model_options {
    /** sizeof(mlxb_model_options). */
    size_t struct_size;
    /** One of mlxb_device. */
    int32_t device;
    /** Tokens of prompt and answer together to allow; -1: as many as the model was made for. */
    int64_t context_length;
    /** Told MLXB_EVENT_LOAD before each tensor; MLXB_STOP ends with MLXB_CANCELLED. May be NULL. */
    mlxb_event_fn on_progress;
    /** Passed to on_progress. */
    void *user_data;
    /** Looked at before each tensor. May be NULL. */
    const mlxb_cancel *cancel;
} mlxb_model_options;

/** What a model is. Set struct_size, the library fills in the rest. */
typedef struct mlxb_model_info {
    /** sizeof(mlxb_model_info). */
    size_t struct_size;
    /** The architecture's name, such as "llama"; lives as long as the model. */
    const char *model_type;
    /** Tokens of prompt and answer together that fit. */
    uint64_t context_length;
    /** Every token id is below. */
    uint32_t vocab_size;
    /** Blocks. */
    uint32_t layer_count;
    /** Width of the hidden states. */
    uint32_t hidden_size;
    /** One of mlxb_device: where it computes. */
    int32_t device;
    /** Bytes of all weights. */
    uint64_t weight_bytes;
    /** Bytes of KV state that one token takes, over all layers. */
    uint64_t kv_bytes_per_token;
} mlxb_model_info;

/**
 * Sets all fields to "unset".
 *
 * @param struct_size    sizeof(mlxb_model_options).
 *
 * Thread: any. Since 0.1.0.
 */
void mlxb_model_options_init(mlxb_model_options *options, size_t struct_size);

/**
 * Loads the model in a folder: a snapshot of the Hugging Face hub, or any folder with
 * config.json, safetensors files and tokenizer.json. Nothing in the folder is executed.
 *
 * @param snapshot_dir    The folder.
 * @param options         NULL for the defaults.
 * @param out             The model; NULL on a failure.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT, MLXB_INVALID_UTF8 or MLXB_VERSION_MISMATCH for the
 *         arguments; MLXB_NOT_FOUND without such a folder; MLXB_MODEL_FORMAT or MLXB_CORRUPT for
 *         one that is incomplete or contradicts itself; MLXB_UNSUPPORTED for an architecture or a
 *         setting that the library does not have, or in a forked process; MLXB_IO;
 *         MLXB_OUT_OF_MEMORY; MLXB_OVER_BUDGET; MLXB_CANCELLED; MLXB_BACKEND. The message
 *         names the file, the tensor or the setting.
 *
 * Ownership: release `*out` with mlxb_model_release.
 * Thread: any; models can load and generate at the same time. Since 0.1.0.
 */
mlxb_status mlxb_model_load(const char *snapshot_dir,
                            const mlxb_model_options *options,
                            mlxb_model **out,
                            mlxb_error **error);

/**
 * Adds a reference to a model, to be released with mlxb_model_release.
 *
 * @return `model`; NULL for NULL.
 *
 * Thread: any. Since 0.1.0.
 */
mlxb_model *mlxb_model_retain(mlxb_model *model);

/**
 * Gives a reference to a model up; NULL is ignored. Its memory is freed after the last one, as
 * soon as the engine comes to it; this call does not wait.
 *
 * Ownership: consumes one reference. Thread: any. Since 0.1.0.
 */
void mlxb_model_release(mlxb_model *model);

/**
 * Tells what a model is.
 *
 * @param out    Filled in; its struct_size says how much of it.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT for NULL or a wrong struct_size, which leave `out`
 *         unchanged.
 *
 * Ownership: the strings live as long as the model. Thread: any. Since 0.1.0.
 */
mlxb_status mlxb_model_info_get(const mlxb_model *model, mlxb_model_info *out, mlxb_error **error);

/**
 * The ids that end an answer, ascending.
 *
 * @param tokens      Room for `capacity` ids; may be NULL with capacity 0.
 * @param count       How many there are.
 * @return MLXB_OK; MLXB_BUFFER_TOO_SMALL, with `count` set; MLXB_INVALID_ARGUMENT.
 *
 * Thread: any. Since 0.1.0.
 */
mlxb_status mlxb_model_eos_tokens(const mlxb_model *model,
                                  uint32_t *tokens,
                                  size_t capacity,
                                  size_t *count,
                                  mlxb_error **error);

/**
 * Turns text into token ids. Special tokens written out in the text become their ids.
 *
 * @param text_ptr       UTF-8; may be NULL with length 0.
 * @param text_len       Its bytes.
 * @param add_special    Whether to add what the tokenizer adds by itself, such as a begin token.
 * @param tokens         Room for `capacity` ids; may be NULL with capacity 0.
 * @param count          How many ids there are.
 * @return MLXB_OK; MLXB_BUFFER_TOO_SMALL, with `count` set; MLXB_INVALID_UTF8;
 *         MLXB_INVALID_ARGUMENT; MLXB_MODEL_FORMAT when the tokenizer fails.
 *
 * Thread: any. Since 0.1.0.
 */
mlxb_status mlxb_model_tokenize(const mlxb_model *model,
                                const char *text_ptr,
                                size_t text_len,
                                bool add_special,
                                uint32_t *tokens,
                                size_t capacity,
                                size_t *count,
                                mlxb_error **error);

/**
 * Turns token ids into text.
 *
 * @param tokens          The ids; may be NULL with count 0.
 * @param skip_special    Whether to leave special tokens out.
 * @param text            The text, NUL-terminated; NULL on a failure.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT for NULL or an id that the model does not have.
 *
 * Ownership: free `*text` with mlxb_string_free. Thread: any. Since 0.1.0.
 */
mlxb_status mlxb_model_detokenize(const mlxb_model *model,
                                  const uint32_t *tokens,
                                  size_t count,
                                  bool skip_special,
                                  char **text,
                                  mlxb_error **error);

/* ---- KV state --------------------------------------------------------------------------------- */

/**
 * The KV state of one token sequence: a generation that is given one continues from it. It
 * keeps its model alive. Belongs to one thread at a time; while a generation uses it, other
 * calls answer MLXB_BUSY.
 */
typedef struct mlxb_kv mlxb_kv;

/**
 * Makes the state of no tokens.
 *
 * @param out    The state; NULL on a failure.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT.
 *
 * Ownership: free `*out` with mlxb_kv_free. Thread: any. Since 0.1.0.
 */
mlxb_status mlxb_kv_new(const mlxb_model *model, mlxb_kv **out, mlxb_error **error);

/**
 * Makes a second state of the same tokens. The two share memory until one of them grows.
 *
 * @param out    The new state; NULL on a failure.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_BUSY while a generation uses `kv`;
 *         MLXB_POISONED.
 *
 * Ownership: free `*out` with mlxb_kv_free. Thread: one at a time per kv; never waits for the
 * engine. Since 0.1.0.
 */
mlxb_status mlxb_kv_fork(const mlxb_kv *kv, mlxb_kv **out, mlxb_error **error);

/**
 * Goes back to the first `token_count` tokens.
 *
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT when the state has fewer tokens; MLXB_BUSY while a
 *         generation uses it; MLXB_POISONED. On a failure it is unchanged.
 *
 * Thread: one at a time per kv; never waits for the engine. Since 0.1.0.
 */
mlxb_status mlxb_kv_trim(mlxb_kv *kv, size_t token_count, mlxb_error **error);

/**
 * The tokens that the state has seen.
 *
 * @param tokens    Room for `capacity` ids; may be NULL with capacity 0.
 * @param count     How many there are.
 * @return MLXB_OK; MLXB_BUFFER_TOO_SMALL, with `count` set; MLXB_INVALID_ARGUMENT; MLXB_BUSY
 *         while a generation uses the state; MLXB_POISONED.
 *
 * Thread: one at a time per kv; never waits for the engine. Since 0.1.0.
 */
mlxb_status mlxb_kv_tokens(const mlxb_kv *kv,
                           uint32_t *tokens,
                           size_t capacity,
                           size_t *count,
                           mlxb_error **error);

/**
 * Bytes of a state's buffers, room to grow included. What forks share counts for each of them.
 *
 * @param bytes    How many; 0 on a failure.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_BUSY while a generation uses the state;
 *         MLXB_POISONED.
 *
 * Thread: one at a time per kv; never waits for the engine. Since 0.1.0.
 */
mlxb_status mlxb_kv_bytes(const mlxb_kv *kv, uint64_t *bytes, mlxb_error **error);

/**
 * Frees a state; NULL is ignored. Never waits for the engine. A generation that uses it goes
 * on, and its state is freed with it.
 *
 * Ownership: consumes `kv`. Thread: one at a time per kv. Since 0.1.0.
 */
void mlxb_kv_free(mlxb_kv *kv);

/**
 * Writes a state to a file that mlxb_kv_load and mlx-lm's load_prompt_cache read: safetensors, with
 * the tokens among its metadata. A file of that name is replaced once the new one is whole; only
 * its owner may read it.
 *
 * @param path    The file.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT, also for a state without tokens; MLXB_INVALID_UTF8;
 *         MLXB_BUSY while a generation uses the state; MLXB_POISONED; MLXB_NO_SPACE, MLXB_IO and
 *         the like, with a file that was there unchanged; MLXB_UNSUPPORTED in a forked process.
 *
 * Thread: one at a time per kv; waits for the engine and the disk. Since 0.1.0.
 */
mlxb_status mlxb_kv_save(const mlxb_kv *kv, const char *path, mlxb_error **error);

/**
 * Reads a state from a file of mlxb_kv_save or of mlx-lm's save_prompt_cache. That the file was
 * made with this very model is for the caller to know; only its shapes are checked.
 *
 * @param path      The file.
 * @param tokens    The tokens that the state is of, as many as the file has positions; NULL when
 *                  the file says it, as those of mlxb_kv_save do.
 * @param count     Ids at `tokens`.
 * @param out       The state; NULL on a failure.
 * @return MLXB_OK; MLXB_NOT_FOUND and the like without such a file; MLXB_CORRUPT for one that
 *         contradicts itself or does not fit the model; MLXB_UNSUPPORTED for layers of another
 *         kind than keys and values of all positions, and in a forked process;
 *         MLXB_INVALID_ARGUMENT, also for tokens that are not the file's, and for none when the
 *         file says none; MLXB_INVALID_UTF8; MLXB_OVER_BUDGET.
 *
 * Ownership: free `*out` with mlxb_kv_free. Thread: any; waits for the engine and the disk. Since
 * 0.1.0.
 */
mlxb_status mlxb_kv_load(const mlxb_model *model,
                         const char *path,
                         const uint32_t *tokens,
                         size_t count,
                         mlxb_kv **out,
                         mlxb_error **error);

/* ---- Prompt cache ----------------------------------------------------------------------------- */

/**
 * KV states by the tokens that led to them: in memory, and on disk where they survive the
 * process. All its functions may be called from several threads at once.
 *
 * States of different models never mix, nor do those of different namespaces, names that the
 * caller chooses: a user, a document, a tenant. A model is known by the bytes of its files, so
 * one cache and one folder serve any number of models.
 */
typedef struct mlxb_cache mlxb_cache;

/**
 * Sees an entry that is about to be evicted from memory, alive, before it goes to disk: `ns` is
 * the namespace that it was put under, `kv` its state, both for the call only. Called on the
 * thread whose call evicts, which several may do at once; it may call any function of the library,
 * and cannot stop the eviction. What it puts itself may evict others, for which it is called
 * within the call. It must not throw or longjmp, nor free `kv`.
 */
typedef void (*mlxb_evict_fn)(void *user_data, mlxb_str ns, const mlxb_kv *kv);

/** How to open a cache. Prepare it with mlxb_cache_options_init, then set what you need. */
typedef struct mlxb_cache_options {
    /** sizeof(mlxb_cache_options). */
    size_t struct_size;
    /**
     * Bytes of states to keep in memory; -1: 2 GiB. A state larger than this goes to disk at
     * once.
     */
    int64_t memory_bytes;
    /**
     * The folder for states on disk, which is made where there is none; NULL to keep none.
     * Several processes may use one at a time.
     */
    const char *disk_dir;
    /**
     * Bytes that everything in the folder may take; -1: 16 GiB. The least recently used states
     * go first, whichever model they are of.
     */
    int64_t disk_bytes;
    /** 1: what is read from disk is checked against its checksums; 0: it is not; -1: 1. */
    int32_t verify;
    /**
     * Seconds without use after which a state goes from memory to disk, where it stays
     * reachable; INFINITY: never; NaN: 600. Without a folder it stays in memory.
     */
    double idle_seconds;
    /**
     * Sees each entry before it is evicted; may be NULL. Not called by mlxb_cache_clear, for
     * idle entries, and for those whose model has been freed.
     */
    mlxb_evict_fn on_evict;
    /**
     * Passed to on_evict. It must stay valid until the cache is closed and no generation uses
     * it any more.
     */
    void *user_data;
} mlxb_cache_options;

/** How much of a prompt a cache holds. Set struct_size, the library fills in the rest. */
typedef struct mlxb_cache_match {
    /** sizeof(mlxb_cache_match). */
    size_t struct_size;
    /** Tokens that need not be run thanks to a state in memory. */
    uint64_t memory_prefix;
    /** Tokens that need not be run thanks to a state on disk. */
    uint64_t disk_prefix;
    /** Bytes of the state in memory; 0 where none serves, or somebody else extends it. */
    uint64_t bytes;
} mlxb_cache_match;

/**
 * What a cache holds and has done. Counts are since it was opened. Set struct_size, the library
 * fills in the rest.
 */
typedef struct mlxb_cache_stats {
    /** sizeof(mlxb_cache_stats). */
    size_t struct_size;
    /** Entries in memory. */
    uint64_t entries;
    /** Bytes of their states. What entries share counts once. */
    uint64_t memory_bytes;
    /** Bytes that finding them takes. */
    uint64_t index_bytes;
    /** Bytes of the states on disk, those of other models included. */
    uint64_t disk_bytes;
    /** Files that they are in. */
    uint64_t disk_files;
    /** States that wait to be written. */
    uint64_t pending_writes;
    /** Takes and generations that found something. */
    uint64_t hits;
    /** Takes and generations that found nothing. */
    uint64_t misses;
    /** Tokens that needed not be run thanks to the hits. */
    uint64_t reused_tokens;
    /** States read from disk. */
    uint64_t restores;
    /** How long the last of these took. */
    double last_restore_seconds;
    /** States that left memory for others. */
    uint64_t evictions;
    /** States larger than memory_bytes, which went to disk at once, or nowhere. */
    uint64_t oversized;
    /** States written to disk, in whole or the part that was new. */
    uint64_t writes;
    /** Bytes of these. */
    uint64_t written_bytes;
    /** Writes that were given up since too many waited. */
    uint64_t dropped_writes;
    /** Writes that failed; the log says why. */
    uint64_t failed_writes;
} mlxb_cache_stats;

/**
 * Sets all fields to "unset".
 *
 * @param struct_size    sizeof(mlxb_cache_options).
 *
 * Thread: any. Since 0.1.0.
 */
void mlxb_cache_options_init(mlxb_cache_options *options, size_t struct_size);

/**
 * Opens a cache.
 *
 * @param options    How; NULL: 2 GiB in memory, nothing on disk.
 * @param out        The cache; NULL on a failure.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT, MLXB_INVALID_UTF8 or MLXB_VERSION_MISMATCH for the
 *         options; MLXB_IO and the like for a folder that cannot be used.
 *
 * Ownership: close `*out` with mlxb_cache_close. Thread: any. Since 0.1.0.
 */
mlxb_status mlxb_cache_open(const mlxb_cache_options *options,
                            mlxb_cache **out,
                            mlxb_error **error);

/**
 * Closes a cache; NULL is ignored. What is not on disk yet is written first, so this may take
 * a while. Generations that use the cache go on, and it is closed with the last of them.
 *
 * Ownership: consumes `cache`. Thread: any, but no other use of it at the same time. Since 0.1.0.
 */
void mlxb_cache_close(mlxb_cache *cache);

/**
 * Keeps a state under its tokens and a namespace. The two share memory until `kv` is extended.
 * An entry of the same tokens is replaced, and entries that are prefixes of it are dropped, since
 * it serves in their place. Then the least recently used entries are evicted until all fit.
 *
 * @param ns    The namespace; NULL is "".
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT for a state without tokens; MLXB_INVALID_UTF8; MLXB_BUSY
 *         while a generation uses it; MLXB_POISONED; MLXB_UNSUPPORTED in a forked process, or
 *         when a file of the model has changed since it was loaded, MLXB_IO when one cannot be
 *         read. On a failure nothing changes.
 *
 * Ownership: `kv` stays the caller's. Thread: any; never waits for the engine or a file, but for
 * the first use of a model, whose files may have to be read. Since 0.1.0.
 */
mlxb_status mlxb_cache_put(const mlxb_cache *cache,
                           const char *ns,
                           const mlxb_kv *kv,
                           mlxb_error **error);

/**
 * Takes the state that saves most of running `tokens`, from memory or from disk. At least the
 * last token always remains to be run. An entry whose tokens are all used is moved out; of a
 * longer one a shortened copy is made, which shares its memory. Give the state and the rest of
 * the tokens to mlxb_generate, and put it back afterwards. Setting `cache` in
 * mlxb_generate_options does all of that.
 *
 * @param model     The model that is to go on from the state.
 * @param ns        The namespace; NULL is "".
 * @param tokens    The prompt.
 * @param count     Ids at `tokens`.
 * @param out       The state; NULL when nothing serves, and on a failure.
 * @return MLXB_OK, also when nothing serves; MLXB_INVALID_ARGUMENT; MLXB_INVALID_UTF8;
 *         MLXB_UNSUPPORTED and MLXB_IO as for mlxb_cache_put. What is damaged on disk is a miss
 *         and a line in the log.
 *
 * Ownership: free `*out` with mlxb_kv_free. Thread: any; waits for the disk when the state comes
 * from there, for the running step when a generation has it, and at the first use of a model as
 * mlxb_cache_put does. Since 0.1.0.
 */
mlxb_status mlxb_cache_take(const mlxb_cache *cache,
                            const mlxb_model *model,
                            const char *ns,
                            const uint32_t *tokens,
                            size_t count,
                            mlxb_kv **out,
                            mlxb_error **error);

/**
 * Tells how much of `tokens` could be reused. Changes nothing: neither what is evicted next nor
 * the statistics.
 *
 * @param ns        The namespace; NULL is "".
 * @param tokens    The prompt.
 * @param count     Ids at `tokens`.
 * @param out       Filled in.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_INVALID_UTF8; MLXB_UNSUPPORTED and MLXB_IO as for
 *         mlxb_cache_put.
 *
 * Thread: any; waits for nobody, but for the first use of a model, whose files may have to be
 * read. Since 0.1.0.
 */
mlxb_status mlxb_cache_peek(const mlxb_cache *cache,
                            const mlxb_model *model,
                            const char *ns,
                            const uint32_t *tokens,
                            size_t count,
                            mlxb_cache_match *out,
                            mlxb_error **error);

/**
 * Tells whether exactly these tokens are an entry in memory, or all on disk. Changes nothing.
 *
 * @param ns        The namespace; NULL is "".
 * @param tokens    The sequence.
 * @param count     Ids at `tokens`.
 * @param found     The answer; false on a failure.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_INVALID_UTF8; MLXB_UNSUPPORTED and MLXB_IO as for
 *         mlxb_cache_put.
 *
 * Thread: any; waits for nobody, but for the first use of a model, whose files may have to be
 * read. Since 0.1.0.
 */
mlxb_status mlxb_cache_find_exact(const mlxb_cache *cache,
                                  const mlxb_model *model,
                                  const char *ns,
                                  const uint32_t *tokens,
                                  size_t count,
                                  bool *found,
                                  mlxb_error **error);

/**
 * Returns when everything that is to be on disk is there; without a folder at once. What could
 * not be written before is tried again.
 *
 * @return MLXB_OK; MLXB_NO_SPACE, MLXB_IO and the like when something could not be written:
 *         everything else is; MLXB_BUSY on a thread of the library's own, as in a log callback;
 *         MLXB_INVALID_ARGUMENT; MLXB_UNSUPPORTED in a forked process.
 *
 * Thread: any; waits for the engine and the disk. Since 0.1.0.
 */
mlxb_status mlxb_cache_flush(const mlxb_cache *cache, mlxb_error **error);

/**
 * Evicts the least recently used entries until at most `memory_bytes` are in memory, and returns
 * when they are on disk, where they stay reachable. Call it when the system warns of memory
 * pressure.
 *
 * @param freed_bytes    How many bytes left memory; may be NULL.
 * @return MLXB_OK; as mlxb_cache_flush when something could not be written, with the memory
 *         free nevertheless.
 *
 * Thread: any; waits for the engine and the disk. Since 0.1.0.
 */
mlxb_status mlxb_cache_trim(const mlxb_cache *cache,
                            uint64_t memory_bytes,
                            uint64_t *freed_bytes,
                            mlxb_error **error);

/**
 * Forgets all entries in memory, and the conversations of mlxb_respond: they are neither shown to
 * on_evict nor written. What is on disk, or on its way there, stays.
 *
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_UNSUPPORTED in a forked process.
 *
 * Thread: any; waits for nobody. Since 0.1.0.
 */
mlxb_status mlxb_cache_clear(const mlxb_cache *cache, mlxb_error **error);

/**
 * Removes all states on disk, those of other models and other programs in the folder included.
 *
 * @param freed_bytes    How many bytes they were; may be NULL.
 * @return MLXB_OK; MLXB_IO and the like; MLXB_INVALID_ARGUMENT; MLXB_UNSUPPORTED in a forked
 *         process.
 *
 * Thread: any; waits for the disk. Since 0.1.0.
 */
mlxb_status mlxb_cache_clear_disk(const mlxb_cache *cache,
                                  uint64_t *freed_bytes,
                                  mlxb_error **error);

/**
 * Tells what a cache holds and has done: the numbers of a settings page.
 *
 * @param out    Filled in.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_UNSUPPORTED in a forked process.
 *
 * Thread: any; waits for nobody. Since 0.1.0.
 */
mlxb_status mlxb_cache_stats_get(const mlxb_cache *cache,
                                 mlxb_cache_stats *out,
                                 mlxb_error **error);

/* ---- Generation ------------------------------------------------------------------------------- */

/** Why a generation ended. New values may appear in later versions. */
typedef enum mlxb_finish {
    /** The model ended its answer. */
    MLXB_FINISH_EOS = 1,
    /** max_tokens or the context is used up. */
    MLXB_FINISH_LENGTH = 2,
    /** A stop string appeared. */
    MLXB_FINISH_STOP_STRING = 3,
    /** The callback returned MLXB_STOP. */
    MLXB_FINISH_CALLER = 4,
    /** The cancel object was used. */
    MLXB_FINISH_CANCELLED = 5,
} mlxb_finish;

/**
 * What to generate from, and how. Prepare it with mlxb_generate_options_init, then set what you
 * need. Everything in it is read during the call only.
 */
typedef struct mlxb_generate_options {
    /** sizeof(mlxb_generate_options). */
    size_t struct_size;
    /** The prompt as token ids, each below the model's vocab_size; or NULL with `prompt`. */
    const uint32_t *tokens;
    /** Ids at `tokens`. */
    size_t token_count;
    /**
     * The prompt as UTF-8; or NULL with `tokens`. A begin token that the tokenizer adds by
     * itself is not added twice, nor in the middle of a kv's sequence.
     */
    const char *prompt;
    /** Bytes at `prompt`. */
    size_t prompt_len;
    /**
     * The most tokens to generate; -1: as many as fit into the context; 0: none, and of the
     * prompt all is run but the last token. A number set here must fit into the memory budget
     * beforehand.
     */
    int64_t max_tokens;
    /**
     * Divides the log-probabilities before a token is drawn; 0 takes the most likely one. NaN,
     * as for every number below that is not set: what mlxb_model_generation_defaults tells.
     */
    float temperature;
    /**
     * Keeps the smallest set of most likely tokens whose probabilities sum to this, from 0 to
     * 1; 1 keeps all.
     */
    float top_p;
    /** Drops tokens less likely than this times the most likely one, from 0 to 1; 0 keeps all. */
    float min_p;
    /** Tokens that min_p never drops, at least 1; -1 for unset. */
    int32_t min_tokens_to_keep;
    /** How often XTC drops the most likely tokens, from 0 to 1; 0 is never. */
    float xtc_probability;
    /**
     * XTC drops all tokens more likely than this but for the least likely of them, and never an
     * end token or the newline. From 0 to 0.5; 0 drops nothing.
     */
    float xtc_threshold;
    /** Keeps this many of the most likely tokens; 0 keeps all; -1 for unset. */
    int32_t top_k;
    /**
     * Divides the positive logits and multiplies the negative ones of tokens in the prompt, the
     * kv and the answer. Above 0; 1 does nothing.
     */
    float repetition_penalty;
    /** Tokens that it looks back on; 0 is all of them; -1: 20. */
    int32_t repetition_context_size;
    /** Subtracted from the logits of tokens in the answer, once. */
    float presence_penalty;
    /** Tokens that it looks back on; 0 is all of the answer; -1: 20. */
    int32_t presence_context_size;
    /** Subtracted from the logits of tokens in the answer, for each time they are there. */
    float frequency_penalty;
    /** Tokens that it looks back on; 0 is all of the answer; -1: 20. */
    int32_t frequency_context_size;
    /** Ids whose logits are changed; may be NULL with logit_bias_count 0. */
    const uint32_t *logit_bias_tokens;
    /** What is added to them; -INFINITY forbids a token. */
    const float *logit_bias_values;
    /** Ids at logit_bias_tokens, and numbers at logit_bias_values. */
    size_t logit_bias_count;
    /** Whether `seed` is set; otherwise each call draws differently. */
    bool has_seed;
    /** Makes the draws repeatable; every number is a seed, 0 too. */
    uint64_t seed;
    /**
     * Ends the answer where one of these NUL-terminated strings appears in its text; no part of
     * it is emitted. May be NULL with stop_count 0.
     */
    const char *const *stop;
    /** Strings at `stop`. */
    size_t stop_count;
    /** Ids that end the answer like an end token of the model; may be NULL with count 0. */
    const uint32_t *stop_tokens;
    /** Ids at `stop_tokens`. */
    size_t stop_token_count;
    /**
     * 0, and -1 for unset: MLXB_EVENT_TOKEN tells no log-probabilities; 1: that of the token;
     * k + 1: those of the k most likely tokens too. They are what the log-softmax gives after
     * bias and penalties and before the filters.
     */
    int32_t logprobs;
    /**
     * Prompt tokens that are run at once, the grain of progress, fairness and cancelling; -1:
     * 2048.
     */
    int32_t prefill_chunk;
    /** Looked at before each step and each event. May be NULL. */
    const mlxb_cancel *cancel;
    /**
     * Where the state of the prompt's first tokens is looked for, and the state at the end is
     * put, however the generation ends. May be NULL; not together with a kv.
     */
    const mlxb_cache *cache;
    /** The cache's namespace to use; NULL is "". */
    const char *cache_namespace;
} mlxb_generate_options;

/** How a generation went. Set struct_size, the library fills in the rest. */
typedef struct mlxb_generate_result {
    /** sizeof(mlxb_generate_result). */
    size_t struct_size;
    /** One of mlxb_finish; 0 when the generation failed. */
    int32_t finish;
    /** With MLXB_FINISH_STOP_STRING, which of the stop strings it was; -1 otherwise. */
    int32_t stop_index;
    /** Tokens before the answer: those of the kv and of the prompt. */
    uint64_t prompt_tokens;
    /** How many of these needed not be run: the kv or the cache held their state. */
    uint64_t reused_tokens;
    /** Tokens told by MLXB_EVENT_TOKEN, or that would have been told. */
    uint64_t generated_tokens;
    /** From the start to the first token. */
    double prefill_seconds;
    /** From the first token to the end. */
    double decode_seconds;
    /** How many of the reused tokens were read from the cache's disk. */
    uint64_t restored_tokens;
} mlxb_generate_result;

/**
 * Sets all fields to "unset".
 *
 * @param struct_size    sizeof(mlxb_generate_options).
 *
 * Thread: any. Since 0.1.0.
 */
void mlxb_generate_options_init(mlxb_generate_options *options, size_t struct_size);

/**
 * Generates an answer and returns when it has ended.
 *
 * Events come in this order: MLXB_EVENT_PREFILL with 0 done, one after each chunk and one with
 * all done; then for each token MLXB_EVENT_TOKEN, and MLXB_EVENT_TEXT when it completes text.
 * None comes after a callback returned MLXB_STOP or the cancel object was used.
 *
 * With a kv the prompt continues its tokens. Afterwards the kv holds those, the prompt and all
 * generated tokens but the last, which was sampled but not run: start the next prompt with it
 * to go on as if there had been no end. When the end comes during the prefill, the kv holds
 * the prompt tokens that were run. mlxb_kv_tokens tells which they are.
 *
 * @param model        The model.
 * @param kv           The state to continue; NULL to start from nothing, or from what the
 *                     options' cache holds, and keep nothing else.
 * @param options      The prompt, and how to generate.
 * @param on_event     Told what happens; may be NULL.
 * @param user_data    Passed to on_event.
 * @param out          Filled in; may be NULL.
 * @return MLXB_OK, also when cancelled or stopped: out->finish says which. Before anything is
 *         run, with the kv unchanged: MLXB_INVALID_ARGUMENT, MLXB_INVALID_UTF8 or
 *         MLXB_VERSION_MISMATCH for the arguments (no prompt or two, a token id that the model
 *         does not have, a kv of another model or together with a cache, a number out of range);
 *         MLXB_CONTEXT_FULL when the prompt does not fit; MLXB_OVER_BUDGET; MLXB_BUSY when the
 *         kv is in use; MLXB_MODEL_FORMAT when the tokenizer fails; MLXB_POISONED;
 *         MLXB_UNSUPPORTED in a forked process. While running: MLXB_BACKEND, which leaves the kv
 *         without tokens; MLXB_PANIC, which leaves it unusable; MLXB_CANCELLED when the process
 *         exits meanwhile.
 *
 * Thread: any; several generations take turns, a token or a chunk each. Callbacks run on the
 * calling thread. Since 0.1.0.
 */
mlxb_status mlxb_generate(const mlxb_model *model,
                          mlxb_kv *kv,
                          const mlxb_generate_options *options,
                          mlxb_event_fn on_event,
                          void *user_data,
                          mlxb_generate_result *out,
                          mlxb_error **error);

/**
 * Tells how a model is sampled from where the caller sets nothing: what its
 * generation_config.json says, and the library's own defaults for the rest.
 *
 * @param out    Its numbers for sampling are set; the rest of it is "unset".
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT for NULL or a wrong struct_size, which leave `out`
 *         unchanged.
 *
 * Thread: any. Since 0.1.0.
 */
mlxb_status mlxb_model_generation_defaults(const mlxb_model *model,
                                           mlxb_generate_options *out,
                                           mlxb_error **error);

/* ---- Chat ------------------------------------------------------------------------------------- */

/** A conversation that is put together message by message, for programs that write no JSON. */
typedef struct mlxb_chat mlxb_chat;

/**
 * Renders a conversation as the prompt that the model was trained on, with its own template.
 *
 * @param request_json    A JSON object, NUL-terminated: "messages" (an array of objects with
 *                        "role", "content", and "tool_calls" or "reasoning_content" where they
 *                        apply), and optionally "tools", "documents", "add_generation_prompt"
 *                        (true by default), "continue_final_message" (true to end the prompt
 *                        inside the last message, for the model to continue it), "chat_template"
 *                        (the name of one of several), and variables of the template, either
 *                        beside these or in "chat_template_kwargs". "reasoning_effort" ("none",
 *                        "low", "medium", "high", ...) is put in the words of the template, and
 *                        into its switches for thinking that are not given.
 * @param prompt          The text, NUL-terminated; NULL on a failure. It holds the begin token
 *                        where the template writes one; mlxb_generate does not add another.
 *                        Control tokens that a message quotes are in it as they are: the ids of
 *                        mlxb_chat_tokenize are the safe prompt.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT for NULL or malformed JSON; MLXB_INVALID_UTF8;
 *         MLXB_TEMPLATE when the model has no template, or it does not compile or refuses the
 *         conversation, with its own message.
 *
 * Ownership: free `*prompt` with mlxb_string_free. Thread: any. Since 0.1.0.
 */
mlxb_status mlxb_chat_render(const mlxb_model *model,
                             const char *request_json,
                             char **prompt,
                             mlxb_error **error);

/**
 * Turns a conversation into the token ids of its prompt. Where a message or a tool quotes a
 * control token, the quote is encoded as plain text: nobody can end a turn from inside one.
 *
 * @param request_json    As for mlxb_chat_render.
 * @param tokens          Room for `capacity` ids; may be NULL with capacity 0.
 * @param count           How many ids there are.
 * @param stable_count    How many of them, from the first, the prompt of the next turn begins
 *                        with, whatever is answered and asked: a kv that holds no more than these
 *                        serves it. May be NULL.
 * @return MLXB_OK; MLXB_BUFFER_TOO_SMALL, with both counts set; MLXB_MODEL_FORMAT when the
 *         tokenizer fails; else as mlxb_chat_render.
 *
 * Thread: any. Since 0.1.0.
 */
mlxb_status mlxb_chat_tokenize(const mlxb_model *model,
                               const char *request_json,
                               uint32_t *tokens,
                               size_t capacity,
                               size_t *count,
                               size_t *stable_count,
                               mlxb_error **error);

/**
 * Makes a conversation without messages. Never NULL, unless memory is exhausted.
 *
 * Ownership: the caller's, until mlxb_chat_free. Thread: any. Since 0.1.0.
 */
mlxb_chat *mlxb_chat_new(void);

/**
 * Adds a message at the end.
 *
 * @param role        "system", "user", "assistant" or another that the model's template knows.
 * @param text_ptr    UTF-8; may be NULL with length 0.
 * @param text_len    Its bytes.
 * @return MLXB_OK; MLXB_INVALID_UTF8; MLXB_INVALID_ARGUMENT for NULL or an empty role. After a
 *         failure the conversation is as before.
 *
 * Thread: any, but one at a time for a conversation. Since 0.1.0.
 */
mlxb_status mlxb_chat_add(mlxb_chat *chat,
                          const char *role,
                          const char *text_ptr,
                          size_t text_len,
                          mlxb_error **error);

/**
 * Gives the conversation as the JSON that mlxb_chat_render and mlxb_chat_tokenize take.
 *
 * @param json    The text, NUL-terminated; NULL on a failure.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT for NULL.
 *
 * Ownership: free `*json` with mlxb_string_free. Thread: any, but one at a time for a
 * conversation. Since 0.1.0.
 */
mlxb_status mlxb_chat_json(const mlxb_chat *chat, char **json, mlxb_error **error);

/**
 * Frees a conversation; NULL is ignored.
 *
 * Ownership: consumes `chat`. Thread: any, but no other use of it at the same time. Since 0.1.0.
 */
void mlxb_chat_free(mlxb_chat *chat);

/* ---- Protocols -------------------------------------------------------------------------------- */

/** A wire protocol. New values may appear in later versions. */
typedef enum mlxb_protocol {
    /** OpenAI's Responses. */
    MLXB_PROTOCOL_RESPONSES = 1,
    /** OpenAI's Chat Completions. */
    MLXB_PROTOCOL_CHAT_COMPLETIONS = 2,
    /** Anthropic's Messages. */
    MLXB_PROTOCOL_MESSAGES = 3,
} mlxb_protocol;

/**
 * Receives an event of a protocol, on the thread that made the call, one at a time: its name,
 * such as "response.created", and its JSON; both live for the call. A server for such clients
 * writes "event: ", the name, "data: " and the JSON, each on a line; in Chat Completions only
 * the data, and `data: [DONE]` at the end. Returns MLXB_CONTINUE, or MLXB_STOP to end. It may
 * call any function of the library; one that would wait for this very call returns MLXB_BUSY. It
 * must not throw or longjmp, nor free the handles that the call uses.
 */
typedef int32_t (*mlxb_json_fn)(void *user_data, mlxb_str name, mlxb_str json);

/**
 * Translates a request in the JSON of a protocol to that of mlxb_chat_render: messages, tools
 * and variables of the template. Sampling and everything else that is not for the template is
 * checked and left out.
 *
 * @param protocol        One of mlxb_protocol.
 * @param request_json    The request's body.
 * @param request_len     Its bytes.
 * @param chat_json       The translation, NUL-terminated; NULL on a failure.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_INVALID_UTF8; MLXB_PROTOCOL naming the field that
 *         is malformed or not supported.
 *
 * Ownership: free `*chat_json` with mlxb_string_free. Thread: any. Since 0.1.0.
 */
mlxb_status mlxb_protocol_to_chat(int32_t protocol,
                                  const char *request_json,
                                  size_t request_len,
                                  char **chat_json,
                                  mlxb_error **error);

/**
 * Answers a request in the JSON of a protocol, as a hosted model would: the prompt is made with
 * the model's own template, reasoning and tool calls are told from the text, and what comes back
 * has the protocol's form.
 *
 * A field that the protocol knows and that is not done here (images, several answers, output in
 * a schema) is an error that names it, but for values that ask for what happens anyway. Fields
 * that the protocol does not have are ignored, but for these: top_k, min_p, min_tokens_to_keep,
 * xtc_probability, xtc_threshold, logit_bias, repetition_penalty, presence_penalty and
 * frequency_penalty, each with its _context_size, seed, and chat_template_kwargs, an object of
 * variables for the template. Whether the request asks for a stream changes nothing: `on_event`
 * decides.
 *
 * A conversation of Responses is kept by the cache, in memory, for an hour, up to 32 MiB of them,
 * so that previous_response_id continues it, and an item_reference stands for any of its items.
 *
 * @param model              The model. The request's name of one is repeated in the answer.
 * @param cache              Where states and conversations are kept; NULL to keep neither.
 * @param cache_namespace    Sets what is kept apart from that of others; NULL for none.
 * @param protocol           One of mlxb_protocol.
 * @param request_json       The request's body.
 * @param request_len        Its bytes.
 * @param cancel             Ends the answer as if it had been cut, with the events that belong
 *                           to an end. May be NULL.
 * @param on_event           Told what a client that streams is told; may be NULL.
 * @param user_data          Passed to on_event.
 * @param response_json      The answer as one object, NUL-terminated; NULL on a failure. It says
 *                           what the events say. May be NULL.
 * @return MLXB_OK, also when cancelled or stopped. Before any event: MLXB_INVALID_ARGUMENT,
 *         MLXB_INVALID_UTF8; MLXB_PROTOCOL naming the field that is malformed or not supported;
 *         MLXB_UNSUPPORTED for an adapter, when a tool must be called where the model's family
 *         has no mark for calls, and in a forked process; MLXB_TEMPLATE when the model has no
 *         template or it refuses the conversation; MLXB_MODEL_FORMAT when the tokenizer fails;
 *         MLXB_CONTEXT_FULL; MLXB_POISONED. Also after events, of which the last then tells of
 *         the failure: MLXB_PROTOCOL when the model does not call the tool that it must;
 *         MLXB_OVER_BUDGET; MLXB_BACKEND; MLXB_PANIC; MLXB_CANCELLED when the process exits
 *         meanwhile. Unless an argument is to blame, the error's detail is what a hosted model
 *         would answer instead, as JSON.
 *
 * Ownership: free `*response_json` with mlxb_string_free. Thread: any; several answers take
 * turns. Callbacks run on the calling thread. Since 0.1.0.
 */
mlxb_status mlxb_respond(const mlxb_model *model,
                         const mlxb_cache *cache,
                         const char *cache_namespace,
                         int32_t protocol,
                         const char *request_json,
                         size_t request_len,
                         const mlxb_cancel *cancel,
                         mlxb_json_fn on_event,
                         void *user_data,
                         char **response_json,
                         mlxb_error **error);

/* ---- Models on this machine ------------------------------------------------------------------- */

/** What a line of a plan is about. New values may appear in later versions. */
typedef enum mlxb_gc_item_kind {
    /** A snapshot that something needs. */
    MLXB_GC_KEPT = 1,
    /**
     * A snapshot that nothing needs and that stays all the same, because it holds files that no
     * kept one has, or could not be read.
     */
    MLXB_GC_SKIPPED = 2,
    /** A snapshot that goes. */
    MLXB_GC_PRUNED = 3,
    /** A blob that goes; no surviving snapshot needs it. */
    MLXB_GC_DEAD_BLOB = 4,
    /** A ref that goes. */
    MLXB_GC_REF = 5,
    /** A file or folder that was looked at and is not touched. */
    MLXB_GC_LEFT = 6,
} mlxb_gc_item_kind;

/** Which models a list shows, by whether they take pictures. */
typedef enum mlxb_vision {
    /** With and without vision. */
    MLXB_VISION_ANY = 0,
    /** Only models that take pictures. */
    MLXB_VISION_YES = 1,
    /** Only models that do not. */
    MLXB_VISION_NO = 2,
} mlxb_vision;

/**
 * What would be deleted, what stays, and why. Making one changes nothing. Belongs to one thread
 * at a time.
 */
typedef struct mlxb_gc_plan mlxb_gc_plan;

/** Models that were found, each a snapshot of a repository. Belongs to one thread at a time. */
typedef struct mlxb_model_list mlxb_model_list;

/**
 * An index of the models on this machine, in a database that several threads and processes may
 * use at once.
 */
typedef struct mlxb_registry mlxb_registry;

/** What mlxb_registry_fit estimates. Make it with mlxb_fit_options_init. */
typedef struct mlxb_fit_options {
    /** sizeof(mlxb_fit_options). */
    size_t struct_size;
    /** The memory that there is; UINT64_MAX: no limit. */
    uint64_t budget_bytes;
    /** Tokens of prompt and answer together; -1: none. */
    int64_t context_tokens;
    /** Prompt tokens that are run at once; -1: as mlxb_generate does by default. */
    int32_t prefill_chunk;
    /** Bits of a quantized KV state: 2, 3, 4, 5, 6 or 8; 0 or -1: a plain one. */
    int32_t kv_bits;
    /** Numbers of the KV state that share a scale: 32, 64 or 128; -1: 64. */
    int32_t kv_group_size;
} mlxb_fit_options;

/** An estimate of what a model takes. Set struct_size, the library fills in the rest. */
typedef struct mlxb_fit {
    /** sizeof(mlxb_fit). */
    size_t struct_size;
    /** Whether total_bytes is within the budget, and the context within the model's. */
    bool fits;
    /** Bytes of the weights. */
    uint64_t weight_bytes;
    /** Bytes of the KV state of context_tokens. */
    uint64_t kv_bytes;
    /** Bytes that a prefill chunk takes on top. */
    uint64_t transient_bytes;
    /** All of these. */
    uint64_t total_bytes;
    /** The largest context that fits the budget and the model; 0 when none does. */
    uint64_t max_context_tokens;
    /** The largest context that the model is made for; 0 when its config does not say. */
    uint64_t model_context_tokens;
    /** Bytes of weights that one decoded token reads: of experts, only those in use. */
    uint64_t active_bytes_per_token;
} mlxb_fit;

/**
 * One line of a plan. Set struct_size, the library fills in the rest. Text lives as long as the
 * plan.
 */
typedef struct mlxb_gc_item {
    /** sizeof(mlxb_gc_item). */
    size_t struct_size;
    /** One of mlxb_gc_item_kind. */
    int32_t kind;
    /** The file or folder. */
    const char *path;
    /** Of snapshots: such as "org/name"; NULL otherwise. */
    const char *repo_id;
    /** Of snapshots: the commit; NULL otherwise. */
    const char *revision;
    /** Why it stays; NULL for what goes. */
    const char *reason;
    /**
     * Of snapshots: bytes of all its files, those shared with others included; of blobs: bytes
     * of the file; 0 otherwise.
     */
    uint64_t bytes;
} mlxb_gc_item;

/** What was deleted. Set struct_size, the library fills in the rest. */
typedef struct mlxb_gc_result {
    /** sizeof(mlxb_gc_result). */
    size_t struct_size;
    /** Snapshots. */
    uint64_t snapshot_count;
    /** Blobs, those of the shared store and links to them included. */
    uint64_t blob_count;
    /** Refs. */
    uint64_t ref_count;
    /** Bytes that this freed: of files whose last name is gone. */
    uint64_t bytes;
    /** Things that the plan named and that are still there; the report says which, and why. */
    uint64_t left_count;
} mlxb_gc_result;

/** Which models mlxb_registry_list shows. Make it with mlxb_list_options_init. */
typedef struct mlxb_list_options {
    /** sizeof(mlxb_list_options). */
    size_t struct_size;
    /**
     * Part of the repository's id or of the model type, in any letter case and without
     * wildcards; NULL: all.
     */
    const char *query;
    /** The most bytes of weights; UINT64_MAX: any. */
    uint64_t max_bytes;
    /** One of mlxb_vision; -1: any. */
    int32_t vision;
    /**
     * 1: only the snapshot that stands for its repository, chosen before the other filters
     * apply; 0 or -1: all.
     */
    int32_t canonical_only;
} mlxb_list_options;

/**
 * What is known about a model. Set struct_size, the library fills in the rest. Text lives as
 * long as the list.
 */
typedef struct mlxb_model_record {
    /** sizeof(mlxb_model_record). */
    size_t struct_size;
    /** The snapshot's folder, absolute and without links: what mlxb_model_load takes. */
    const char *path;
    /** Such as "org/name". */
    const char *repo_id;
    /** The architecture, as the config names it; NULL when it names none. */
    const char *model_type;
    /** Bytes of the weight files that are loaded for text. */
    uint64_t size_bytes;
    /** Bytes of a vision tower that lies beside the language model; not in size_bytes. */
    uint64_t sidecar_bytes;
    /** Bytes of the experts' tensors, a part of size_bytes. */
    uint64_t experts_bytes;
    /** Bytes of all files of the snapshot, those shared with other snapshots included. */
    uint64_t disk_bytes;
    /** Parameters, quantized ones counted as the weights that they stand for; -1: unknown. */
    int64_t parameter_count;
    /** Bits of a quantized weight; -1: not quantized, or unknown. */
    int32_t quant_bits;
    /** Weights that share a scale; -1: not quantized, or unknown. */
    int32_t quant_group_size;
    /** Such as "affine" or "mxfp4"; NULL: not quantized. */
    const char *quant_mode;
    /** The type of the vision tower that the config names; NULL: none. */
    const char *vision_config_type;
    /** The license that the model card names; NULL: none. */
    const char *license;
    /** Whether a vision tower lies beside the language model. */
    bool has_vision_sidecar;
    /** Whether the model takes pictures: by the sidecar, or by itself. */
    bool vision_capable;
    /** Whether the folder has settings for the KV cache (kv_config.json). */
    bool has_kv_config;
    /** Whether the chat template knows about tools. */
    bool has_tool_template;
    /**
     * Whether this snapshot stands for its repository: refs/main names it, or, without that,
     * it is the newest complete one.
     */
    bool is_canonical;
    /** Whether everything that loading needs is there. */
    bool is_complete;
    /** Whether the model only proposes tokens for another one. */
    bool is_drafter;
    /** Whether this library can load the architecture. */
    bool is_supported;
    /** Transformer layers; -1: unknown. */
    int32_t layer_count;
    /** The width of the hidden states; -1: unknown. */
    int32_t hidden_size;
    /** Tokens in the vocabulary; -1: unknown. */
    int32_t vocab_size;
    /** When the files were read, in milliseconds since 1970. */
    int64_t scanned_at_ms;
} mlxb_model_record;

/**
 * Makes all options unset.
 *
 * @param struct_size    sizeof(mlxb_fit_options).
 *
 * Thread: any. Since 0.1.0.
 */
void mlxb_fit_options_init(mlxb_fit_options *options, size_t struct_size);

/**
 * Estimates whether a model with a context fits into memory, from its config and the headers
 * of its weight files: weights, KV state by the kinds of its layers, and what a prefill chunk
 * takes.
 *
 * @param snapshot_dir   The model's folder.
 * @param options        NULL: no context and no limit.
 * @param out            Filled in; its struct_size says how much of it.
 * @return MLXB_OK, whether it fits or not; MLXB_INVALID_ARGUMENT; MLXB_INVALID_UTF8;
 *         MLXB_VERSION_MISMATCH; MLXB_NOT_FOUND; MLXB_IO; MLXB_MODEL_FORMAT when the folder is
 *         incomplete or its config does not tell the sizes that are needed; MLXB_CORRUPT. On a
 *         failure `out` is unchanged.
 *
 * Thread: any. Since 0.1.0.
 */
mlxb_status mlxb_registry_fit(const char *snapshot_dir,
                              const mlxb_fit_options *options,
                              mlxb_fit *out,
                              mlxb_error **error);

/**
 * Plans what collecting a hub would delete: snapshots that no ref names, and blobs that no
 * surviving snapshot needs, directly or through the hub-wide blob store. A repository without a
 * ref to a snapshot that is there is left alone. Lock files and unfinished downloads never go.
 *
 * @param hub_dir    NULL: as in mlxb_registry_scan.
 * @param repo_id    One repository; NULL: all models'.
 * @param force      Whether unreferenced snapshots go even when they hold files that no kept
 *                   one has.
 * @param out        The plan; NULL on a failure.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_INVALID_UTF8; MLXB_NOT_FOUND for a hub or
 *         repository that is not there; MLXB_IO.
 *
 * Ownership: free `*out` with mlxb_gc_plan_free. Thread: any. Since 0.1.0.
 */
mlxb_status mlxb_gc_plan_create(const char *hub_dir,
                                const char *repo_id,
                                bool force,
                                mlxb_gc_plan **out,
                                mlxb_error **error);

/**
 * Plans the deletion of a repository or of one of its revisions. Files that snapshots of other
 * repositories link to stay.
 *
 * @param hub_dir    NULL: as in mlxb_registry_scan.
 * @param repo_id    The exact id, as lists show it.
 * @param revision   A commit or a ref such as "main"; NULL: the whole repository, refs
 *                   included.
 * @param out        The plan; NULL on a failure.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_INVALID_UTF8; MLXB_NOT_FOUND for a hub,
 *         repository or revision that is not there; MLXB_IO.
 *
 * Ownership: free `*out` with mlxb_gc_plan_free. Thread: any. Since 0.1.0.
 */
mlxb_status mlxb_delete_plan_create(const char *hub_dir,
                                    const char *repo_id,
                                    const char *revision,
                                    mlxb_gc_plan **out,
                                    mlxb_error **error);

/**
 * What executing the plan frees, in bytes; 0 for NULL.
 *
 * Thread: one at a time per plan. Since 0.1.0.
 */
uint64_t mlxb_gc_plan_bytes(const mlxb_gc_plan *plan);

/**
 * How many lines a plan has; 0 for NULL.
 *
 * Thread: one at a time per plan. Since 0.1.0.
 */
size_t mlxb_gc_plan_count(const mlxb_gc_plan *plan);

/**
 * Tells one line of a plan. Lines are ordered by kind.
 *
 * @param index  From 0.
 * @param out    Filled in; its struct_size says how much of it.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT for NULL, a wrong struct_size, or an index past the
 *         end. On a failure `out` is unchanged.
 *
 * Ownership: the item's text lives as long as the plan. Thread: one at a time per plan. Since
 * 0.1.0.
 */
mlxb_status mlxb_gc_plan_get(const mlxb_gc_plan *plan,
                             size_t index,
                             mlxb_gc_item *out,
                             mlxb_error **error);

/**
 * Tells the whole plan as a JSON object: "kept", "pruned" and "skipped" snapshots (these with
 * "extra_files"), "dead_blobs", "refs", what is "left" and why, old lock files and unfinished
 * downloads as "leftovers", "problems", and the "bytes" that it frees. After
 * mlxb_gc_plan_execute it has "executed" too: what went, and what is left and why.
 *
 * @param json   The report; NULL on a failure.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT.
 *
 * Ownership: free `*json` with mlxb_string_free. Thread: one at a time per plan. Since 0.1.0.
 */
mlxb_status mlxb_gc_plan_report(const mlxb_gc_plan *plan, char **json, mlxb_error **error);

/**
 * Deletes what the plan names and what is still dead: everything is looked at again right
 * before it goes, so a link that was made since the plan keeps its blob. What cannot be deleted
 * is left, counted, and named in the report; it stops nothing else.
 *
 * @param out    Filled in; its struct_size says how much of it.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_NOT_FOUND or MLXB_IO when the hub's folder cannot
 *         be listed any more. Everything that was deleted then was dead; plan again.
 *
 * Thread: one at a time per plan; several plans may be executed at once, in several processes
 * too. Since 0.1.0.
 */
mlxb_status mlxb_gc_plan_execute(const mlxb_gc_plan *plan, mlxb_gc_result *out, mlxb_error **error);

/**
 * Frees a plan; NULL is ignored.
 *
 * Ownership: consumes `plan` and the text of its items. Thread: one at a time per plan. Since
 * 0.1.0.
 */
void mlxb_gc_plan_free(mlxb_gc_plan *plan);

/**
 * Opens the registry's database, which is made when it is not there. A damaged database is set
 * aside and a new one made, and one of another version of the library is emptied: a scan fills
 * it again.
 *
 * @param database_path  The file, or ":memory:" for a private one that vanishes with the
 *                       registry; NULL: mlxb/registry.sqlite in the user's cache folder.
 * @param out            The registry; NULL on a failure.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_INVALID_UTF8; MLXB_NOT_FOUND when there is no
 *         home folder for the default; MLXB_LOCKED when another process keeps the database
 *         busy; MLXB_IO; MLXB_NO_SPACE.
 *
 * Ownership: close `*out` with mlxb_registry_close. Thread: any. Since 0.1.0.
 */
mlxb_status mlxb_registry_open(const char *database_path, mlxb_registry **out, mlxb_error **error);

/**
 * Closes a registry; NULL is ignored. Lists that came from it stay.
 *
 * Ownership: consumes `registry`. Thread: any, when no call uses it any more. Since 0.1.0.
 */
void mlxb_registry_close(mlxb_registry *registry);

/**
 * Looks through a hub folder and brings the database up to date. Reads configs and the headers
 * of weight files, never tensors; snapshots whose files have not changed are not read again.
 * What cannot be read is named in the report and stops nothing.
 *
 * @param hub_dir   The hub; NULL: where huggingface_hub has it, by HF_HUB_CACHE,
 *                  HUGGINGFACE_HUB_CACHE, HF_HOME or XDG_CACHE_HOME, else
 *                  ~/.cache/huggingface/hub.
 * @param count     How many models the hub holds; may be NULL.
 * @param report    What the scan did as JSON, with "skipped": what was left out or looks wrong,
 *                  and why; may be NULL. NULL on a failure.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_INVALID_UTF8; MLXB_NOT_FOUND when there is no
 *         such hub; MLXB_IO, MLXB_LOCKED or MLXB_NO_SPACE. On a failure the database is as
 *         before.
 *
 * Ownership: free `*report` with mlxb_string_free. Thread: any. Since 0.1.0.
 */
mlxb_status mlxb_registry_scan(const mlxb_registry *registry,
                               const char *hub_dir,
                               size_t *count,
                               char **report,
                               mlxb_error **error);

/**
 * Makes all options unset: every model is shown.
 *
 * @param struct_size    sizeof(mlxb_list_options).
 *
 * Thread: any. Since 0.1.0.
 */
void mlxb_list_options_init(mlxb_list_options *options, size_t struct_size);

/**
 * Lists the models that the last scans found and that are still there, ordered by size_bytes,
 * the smallest first, then by path.
 *
 * @param options    NULL: all.
 * @param out        The list; NULL on a failure.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_INVALID_UTF8; MLXB_VERSION_MISMATCH;
 *         MLXB_LOCKED; MLXB_IO.
 *
 * Ownership: free `*out` with mlxb_model_list_free. Thread: any. Since 0.1.0.
 */
mlxb_status mlxb_registry_list(const mlxb_registry *registry,
                               const mlxb_list_options *options,
                               mlxb_model_list **out,
                               mlxb_error **error);

/**
 * Finds the one model that a query means: the exact id of a repository, else an id, a part of
 * one or a part of a model type in any letter case; the first of these that matches decides. Of
 * several revisions it is the one that refs/main names, if that is complete, else the newest
 * complete one. Drafters are never meant.
 *
 * @param query  Such as "org/name" or "Name-4bit".
 * @param out    A list of one; NULL on a failure.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT for an empty query; MLXB_INVALID_UTF8; MLXB_NOT_FOUND
 *         when nothing that can be loaded matches; MLXB_AMBIGUOUS when several models do: the
 *         error's detail holds their ids, one a line; MLXB_LOCKED; MLXB_IO.
 *
 * Ownership: free `*out` with mlxb_model_list_free. Thread: any. Since 0.1.0.
 */
mlxb_status mlxb_registry_resolve(const mlxb_registry *registry,
                                  const char *query,
                                  mlxb_model_list **out,
                                  mlxb_error **error);

/**
 * Reads one model folder, without a database.
 *
 * @param snapshot_dir   The folder, in a hub or not.
 * @param repo_id        What the record shall say; NULL: from the path.
 * @param out            A list of one; NULL on a failure.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_INVALID_UTF8; MLXB_NOT_FOUND; MLXB_IO;
 *         MLXB_MODEL_FORMAT and MLXB_CORRUPT for files that contradict themselves. An
 *         incomplete model is no failure.
 *
 * Ownership: free `*out` with mlxb_model_list_free. Thread: any. Since 0.1.0.
 */
mlxb_status mlxb_registry_inspect(const char *snapshot_dir,
                                  const char *repo_id,
                                  mlxb_model_list **out,
                                  mlxb_error **error);

/**
 * How many models a list has; 0 for NULL.
 *
 * Thread: one at a time per list. Since 0.1.0.
 */
size_t mlxb_model_list_count(const mlxb_model_list *list);

/**
 * Tells about one model of a list.
 *
 * @param index  From 0.
 * @param out    Filled in; its struct_size says how much of it.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT for NULL, a wrong struct_size, or an index past the
 *         end. On a failure `out` is unchanged.
 *
 * Ownership: the record's text lives as long as the list. Thread: one at a time per list. Since
 * 0.1.0.
 */
mlxb_status mlxb_model_list_get(const mlxb_model_list *list,
                                size_t index,
                                mlxb_model_record *out,
                                mlxb_error **error);

/**
 * Frees a list; NULL is ignored.
 *
 * Ownership: consumes `list` and the text of its records. Thread: one at a time per list. Since
 * 0.1.0.
 */
void mlxb_model_list_free(mlxb_model_list *list);

/* ---- Conversion ------------------------------------------------------------------------------- */

/** What becomes of the matrices of a model. */
typedef enum mlxb_quantize_mode {
    /** They stay as they are, plain or packed. */
    MLXB_QUANTIZE_NONE = 0,
    /** Integers of 2, 3, 4, 5, 6 or 8 bits, with a scale and a bias for each 32, 64 or 128. */
    MLXB_QUANTIZE_AFFINE = 1,
    /** 4-bit floats, with a power of two for each 32. */
    MLXB_QUANTIZE_MXFP4 = 2,
    /** 8-bit floats, with a power of two for each 32. */
    MLXB_QUANTIZE_MXFP8 = 3,
    /** 4-bit floats, with an 8-bit float for each 16. */
    MLXB_QUANTIZE_NVFP4 = 4,
    /** Those that are packed become plain. */
    MLXB_QUANTIZE_REVERSE = 5,
} mlxb_quantize_mode;

/** The type of numbers that are not packed. */
typedef enum mlxb_dtype {
    /** What the model's configuration says, or else what each tensor has. */
    MLXB_DTYPE_DEFAULT = 0,
    /** 32 bits. */
    MLXB_DTYPE_FLOAT32 = 1,
    /** 16 bits, IEEE's. */
    MLXB_DTYPE_FLOAT16 = 2,
    /** 16 bits, the upper half of 32. */
    MLXB_DTYPE_BFLOAT16 = 3,
} mlxb_dtype;

/** How to convert a model. Prepare it with mlxb_quantize_options_init, then set what you need. */
typedef struct mlxb_quantize_options {
    /** sizeof(mlxb_quantize_options). */
    size_t struct_size;
    /**
     * One of mlxb_quantize_mode; MLXB_QUANTIZE_AFFINE unless set. Matrices that are packed
     * already stay as they are, and so do those whose rows are no multiple of the group size.
     */
    int32_t mode;
    /** Bits of a weight; -1: the mode's own, 4 for MLXB_QUANTIZE_AFFINE. */
    int32_t bits;
    /** Weights that share a scale; -1: the mode's own, 64 for MLXB_QUANTIZE_AFFINE. */
    int32_t group_size;
    /** One of mlxb_dtype. Scales and biases have it too. */
    int32_t dtype;
    /**
     * "mixed_2_6", "mixed_3_4", "mixed_3_6" or "mixed_4_6", with MLXB_QUANTIZE_AFFINE: few bits,
     * and many for the head and for the value and down projections of some layers, as in
     * mlx-lm. NULL: all alike.
     */
    const char *recipe;
    /**
     * Single modules, NUL-terminated, such as "model.layers.0.mlp.down_proj": they come before
     * the recipe. NULL with module_count 0.
     */
    const char *const *module_paths;
    /** For each, the bits; 0: it stays plain. NULL with module_count 0. */
    const int32_t *module_bits;
    /** For each, one of the modes with bits; NULL: as `mode`. */
    const int32_t *module_modes;
    /** For each, the group size; NULL or -1: as the others of its mode. */
    const int32_t *module_group_sizes;
    /** Modules at module_paths. */
    size_t module_count;
    /** Bytes of weights in a file at most; -1: 5 GiB. */
    int64_t max_shard_bytes;
    /** Whether a model in the target's place is replaced, once the new one is complete. */
    bool overwrite;
    /**
     * Told MLXB_EVENT_QUANTIZE before each piece of work; MLXB_STOP ends with MLXB_CANCELLED. May
     * be NULL.
     */
    mlxb_event_fn on_progress;
    /** Passed to on_progress. */
    void *user_data;
    /** Looked at before each piece of work. May be NULL. */
    const mlxb_cancel *cancel;
} mlxb_quantize_options;

/** What a conversion came to. Set struct_size, the library fills in the rest. */
typedef struct mlxb_quantize_result {
    /** sizeof(mlxb_quantize_result). */
    size_t struct_size;
    /** Bytes of all tensors. */
    uint64_t tensor_bytes;
    /** The model's parameters; scales and biases of groups are none. */
    uint64_t parameter_count;
    /** Matrices that are packed. */
    uint64_t packed_count;
    /** Matrices that are plain. */
    uint64_t plain_count;
    /** Bits that a parameter takes on average, scales and biases included. */
    double bits_per_weight;
} mlxb_quantize_result;

/**
 * Sets all fields to "unset".
 *
 * @param struct_size    sizeof(mlxb_quantize_options).
 *
 * Thread: any. Since 0.1.0.
 */
void mlxb_quantize_options_init(mlxb_quantize_options *options, size_t struct_size);

/**
 * Makes a model smaller: from a folder of the Hugging Face hub, one for MLX, or a GGUF file of a
 * llama-like model, to a new folder for MLX. Tensors are those that mlx-lm's convert makes, bit
 * for bit. Takes the memory of a few rows, and lets generations of the same process go on.
 *
 * However the call ends, and if the process ends before it, there is a complete model at
 * target_dir or what was there before.
 *
 * @param source        A folder as in mlxb_model_load, or a file whose name ends with .gguf, with
 *                      tensors of the types F32, F16, BF16, Q4_0, Q4_1 and Q8_0. The blocks of
 *                      the last three are matrices that are packed already, without loss. The
 *                      tokenizer is that of files beside it, or made from its metadata.
 * @param target_dir    The new folder. It must not exist, unless the options say otherwise; its
 *                      parent must.
 * @param options       NULL for the defaults: 4 bits in groups of 64.
 * @param out           What it came to. May be NULL. All zero on a failure.
 * @return MLXB_OK; MLXB_INVALID_ARGUMENT, MLXB_INVALID_UTF8 or MLXB_VERSION_MISMATCH for the
 *         arguments, a target that exists, or modules that are not there or cannot be packed as
 *         asked; MLXB_NOT_FOUND without a source or the target's parent; MLXB_MODEL_FORMAT or
 *         MLXB_CORRUPT for a source that is incomplete or contradicts itself, or a tensor with a
 *         value that is no finite number or too large for its new type; MLXB_UNSUPPORTED for an
 *         architecture or a setting that the library does not have, or in a forked process;
 *         MLXB_NO_SPACE; MLXB_IO; MLXB_OUT_OF_MEMORY; MLXB_OVER_BUDGET; MLXB_CANCELLED;
 *         MLXB_BACKEND. The message names the file, the tensor or the setting.
 *
 * Thread: any. Since 0.1.0.
 */
mlxb_status mlxb_quantize(const char *source,
                          const char *target_dir,
                          const mlxb_quantize_options *options,
                          mlxb_quantize_result *out,
                          mlxb_error **error);

/**
 * Tells how far a model would be from itself after a conversion, as a whole and with each of its
 * layers converted alone. Writes nothing. Takes the memory of the model and of what it would
 * become, and runs the model once for each layer and each 128 tokens of the text.
 *
 * The report is an object with "token_count", "divergence", "bits_per_weight" and "layers", an
 * array of objects with "path" (such as "model.layers.0"), "divergence", "bits_per_weight" and
 * "parameter_count". A divergence is the Kullback-Leibler divergence of the distribution over
 * the next token from that of the source, in nats, on average over the text's tokens. The text
 * is run in windows of 128 tokens, each by itself.
 *
 * @param source         As in mlxb_quantize; the tokenizer must lie beside a file.
 * @param options        As in mlxb_quantize, with a mode that packs; what is said of the target
 *                       means nothing. NULL for the defaults.
 * @param text_ptr       UTF-8, with tokens; such text as the model is used for.
 * @param text_len       Its bytes.
 * @param report_json    The report, NUL-terminated; NULL on a failure.
 * @return As mlxb_quantize, but for what concerns the target.
 *
 * Ownership: free `*report_json` with mlxb_string_free. Thread: any. Since 0.1.0.
 */
mlxb_status mlxb_quantize_report(const char *source,
                                 const mlxb_quantize_options *options,
                                 const char *text_ptr,
                                 size_t text_len,
                                 char **report_json,
                                 mlxb_error **error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* MLXB_H */
