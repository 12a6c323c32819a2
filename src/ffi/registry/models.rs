//! Scanning, listing and resolving.

use std::{
    ffi::{CString, c_char},
    path::Path,
    ptr,
};

use crate::{
    error::{Error, Kind, Result},
    ffi::{
        SizedStruct, guard, guard_plain, init_struct, mlxb_error, mlxb_status, optional_string,
        out, owned_string, path, read_struct, required, string, write_struct,
    },
    registry::{self, ListOptions, ModelRecord, Registry, Vision},
};

/// An index of the models on this machine, in a database that several threads and processes may
/// use at once.
pub struct mlxb_registry(Registry);

/// Models that were found, each a snapshot of a repository. Belongs to one thread at a time.
pub struct mlxb_model_list(Vec<Listed>);

/// A model with its text as C reads it.
struct Listed {
    record: ModelRecord,
    path: CString,
    repo_id: CString,
    model_type: Option<CString>,
    quant_mode: Option<CString>,
    vision_config_type: Option<CString>,
    license: Option<CString>,
}

/// Which models a list shows, by whether they take pictures.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum mlxb_vision {
    /// With and without vision.
    MLXB_VISION_ANY = 0,
    /// Only models that take pictures.
    MLXB_VISION_YES = 1,
    /// Only models that do not.
    MLXB_VISION_NO = 2,
}

/// Which models mlxb_registry_list shows. Make it with mlxb_list_options_init.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mlxb_list_options {
    /// sizeof(mlxb_list_options).
    pub struct_size: usize,
    /// Part of the repository's id or of the model type, in any letter case and without
    /// wildcards; NULL: all.
    pub query: *const c_char,
    /// The most bytes of weights; UINT64_MAX: any.
    pub max_bytes: u64,
    /// One of mlxb_vision; -1: any.
    pub vision: i32,
    /// 1: only the snapshot that stands for its repository, chosen before the other filters
    /// apply; 0 or -1: all.
    pub canonical_only: i32,
}

// SAFETY: repr(C), struct_size first, numbers and pointers only.
unsafe impl SizedStruct for mlxb_list_options {
    fn unset() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            query: ptr::null(),
            max_bytes: u64::MAX,
            vision: -1,
            canonical_only: -1,
        }
    }
}

/// What is known about a model. Set struct_size, the library fills in the rest. Text lives as
/// long as the list.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mlxb_model_record {
    /// sizeof(mlxb_model_record).
    pub struct_size: usize,
    /// The snapshot's folder, absolute and without links: what mlxb_model_load takes.
    pub path: *const c_char,
    /// Such as "org/name".
    pub repo_id: *const c_char,
    /// The architecture, as the config names it; NULL when it names none.
    pub model_type: *const c_char,
    /// Bytes of the weight files that are loaded for text.
    pub size_bytes: u64,
    /// Bytes of a vision tower that lies beside the language model; not in size_bytes.
    pub sidecar_bytes: u64,
    /// Bytes of the experts' tensors, a part of size_bytes.
    pub experts_bytes: u64,
    /// Bytes of all files of the snapshot, those shared with other snapshots included.
    pub disk_bytes: u64,
    /// Parameters, quantized ones counted as the weights that they stand for; -1: unknown.
    pub parameter_count: i64,
    /// Bits of a quantized weight; -1: not quantized, or unknown.
    pub quant_bits: i32,
    /// Weights that share a scale; -1: not quantized, or unknown.
    pub quant_group_size: i32,
    /// Such as "affine" or "mxfp4"; NULL: not quantized.
    pub quant_mode: *const c_char,
    /// The type of the vision tower that the config names; NULL: none.
    pub vision_config_type: *const c_char,
    /// The license that the model card names; NULL: none.
    pub license: *const c_char,
    /// Whether a vision tower lies beside the language model.
    pub has_vision_sidecar: bool,
    /// Whether the model takes pictures: by the sidecar, or by itself.
    pub vision_capable: bool,
    /// Whether the folder has settings for the KV cache (kv_config.json).
    pub has_kv_config: bool,
    /// Whether the chat template knows about tools.
    pub has_tool_template: bool,
    /// Whether this snapshot stands for its repository: refs/main names it, or, without that,
    /// it is the newest complete one.
    pub is_canonical: bool,
    /// Whether everything that loading needs is there.
    pub is_complete: bool,
    /// Whether the model only proposes tokens for another one.
    pub is_drafter: bool,
    /// Whether this library can load the architecture.
    pub is_supported: bool,
    /// Transformer layers; -1: unknown.
    pub layer_count: i32,
    /// The width of the hidden states; -1: unknown.
    pub hidden_size: i32,
    /// Tokens in the vocabulary; -1: unknown.
    pub vocab_size: i32,
    /// When the files were read, in milliseconds since 1970.
    pub scanned_at_ms: i64,
}

// SAFETY: repr(C), struct_size first. It has bools, so it is only ever written to C, never read
// from there.
unsafe impl SizedStruct for mlxb_model_record {
    fn unset() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            path: ptr::null(),
            repo_id: ptr::null(),
            model_type: ptr::null(),
            size_bytes: 0,
            sidecar_bytes: 0,
            experts_bytes: 0,
            disk_bytes: 0,
            parameter_count: -1,
            quant_bits: -1,
            quant_group_size: -1,
            quant_mode: ptr::null(),
            vision_config_type: ptr::null(),
            license: ptr::null(),
            has_vision_sidecar: false,
            vision_capable: false,
            has_kv_config: false,
            has_tool_template: false,
            is_canonical: false,
            is_complete: false,
            is_drafter: false,
            is_supported: false,
            layer_count: -1,
            hidden_size: -1,
            vocab_size: -1,
            scanned_at_ms: -1,
        }
    }
}

impl From<ModelRecord> for Listed {
    fn from(record: ModelRecord) -> Self {
        let text = |text: &str| {
            CString::new(text.replace('\0', " ")).expect("no NUL is left after the replacement")
        };
        let optional = |value: &Option<String>| value.as_deref().map(text);
        Self {
            path: text(&record.path),
            repo_id: text(&record.repo_id),
            model_type: optional(&record.model_type),
            quant_mode: optional(&record.quant_mode),
            vision_config_type: optional(&record.vision_config_type),
            license: optional(&record.license),
            record,
        }
    }
}

impl Listed {
    fn for_c(&self) -> mlxb_model_record {
        let text = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        let number = |number: Option<i32>| number.unwrap_or(-1);
        let record = &self.record;
        mlxb_model_record {
            path: self.path.as_ptr(),
            repo_id: self.repo_id.as_ptr(),
            model_type: text(&self.model_type),
            size_bytes: record.size_bytes,
            sidecar_bytes: record.sidecar_bytes,
            experts_bytes: record.experts_bytes,
            disk_bytes: record.disk_bytes,
            parameter_count: record
                .parameter_count
                .and_then(|count| i64::try_from(count).ok())
                .unwrap_or(-1),
            quant_bits: number(record.quant_bits),
            quant_group_size: number(record.quant_group_size),
            quant_mode: text(&self.quant_mode),
            vision_config_type: text(&self.vision_config_type),
            license: text(&self.license),
            has_vision_sidecar: record.has_vision_sidecar,
            vision_capable: record.is_vision_capable(),
            has_kv_config: record.has_kv_config,
            has_tool_template: record.has_tool_template,
            is_canonical: record.is_canonical,
            is_complete: record.is_complete,
            is_drafter: record.is_drafter,
            is_supported: record.is_supported(),
            layer_count: number(record.layer_count),
            hidden_size: number(record.hidden_size),
            vocab_size: number(record.vocab_size),
            scanned_at_ms: record.scanned_at_ms,
            ..SizedStruct::unset()
        }
    }
}

impl mlxb_model_list {
    fn of(records: Vec<ModelRecord>) -> *mut Self {
        Box::into_raw(Box::new(Self(
            records.into_iter().map(Listed::from).collect(),
        )))
    }
}

/// Opens the registry's database, which is made when it is not there. A damaged database is set
/// aside and a new one made, and one of another version of the library is emptied: a scan fills
/// it again.
///
/// @param database_path  The file, or ":memory:" for a private one that vanishes with the
///                       registry; NULL: mlxb/registry.sqlite in the user's cache folder.
/// @param out            The registry; NULL on a failure.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_INVALID_UTF8; MLXB_NOT_FOUND when there is no
///         home folder for the default; MLXB_LOCKED when another process keeps the database
///         busy; MLXB_IO; MLXB_NO_SPACE.
///
/// Ownership: close `*out` with mlxb_registry_close. Thread: any. Since 0.1.0.
///
/// # Safety
/// `database_path` is NULL or NUL-terminated; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_registry_open(
    database_path: *const c_char,
    out: *mut *mut mlxb_registry,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let out = self::out(out, ptr::null_mut(), "out")?;
            let path = optional_string(database_path, "database_path")?.map(Path::new);
            *out = Box::into_raw(Box::new(mlxb_registry(Registry::open(path)?)));
            Ok(())
        })
    }
}

/// Closes a registry; NULL is ignored. Lists that came from it stay.
///
/// Ownership: consumes `registry`. Thread: any, when no call uses it any more. Since 0.1.0.
///
/// # Safety
/// `registry` is NULL or came from mlxb_registry_open and has not been closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_registry_close(registry: *mut mlxb_registry) {
    if !registry.is_null() {
        // SAFETY: made with Box::into_raw, and the caller gives it up.
        guard_plain((), || drop(unsafe { Box::from_raw(registry) }));
    }
}

/// Looks through a hub folder and brings the database up to date. Reads configs and the headers
/// of weight files, never tensors; snapshots whose files have not changed are not read again.
/// What cannot be read is named in the report and stops nothing.
///
/// @param hub_dir   The hub; NULL: where huggingface_hub has it, by HF_HUB_CACHE,
///                  HUGGINGFACE_HUB_CACHE, HF_HOME or XDG_CACHE_HOME, else
///                  ~/.cache/huggingface/hub.
/// @param count     How many models the hub holds; may be NULL.
/// @param report    What the scan did as JSON, with "skipped": what was left out or looks wrong,
///                  and why; may be NULL. NULL on a failure.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_INVALID_UTF8; MLXB_NOT_FOUND when there is no
///         such hub; MLXB_IO, MLXB_LOCKED or MLXB_NO_SPACE. On a failure the database is as
///         before.
///
/// Ownership: free `*report` with mlxb_string_free. Thread: any. Since 0.1.0.
///
/// # Safety
/// `registry` is NULL or alive; `hub_dir` is NULL or NUL-terminated; `count`, `report` and
/// `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_registry_scan(
    registry: *const mlxb_registry,
    hub_dir: *const c_char,
    count: *mut usize,
    report: *mut *mut c_char,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let mut unwanted = (0, ptr::null_mut());
            let count = if count.is_null() {
                &raw mut unwanted.0
            } else {
                count
            };
            let wants_report = !report.is_null();
            let report = if wants_report {
                report
            } else {
                &raw mut unwanted.1
            };
            let count = out(count, 0, "count")?;
            let report = out(report, ptr::null_mut(), "report")?;
            let hub = optional_string(hub_dir, "hub_dir")?.map(Path::new);
            let scanned = required(registry, "registry")?.0.scan(hub)?;
            *count = scanned.count;
            if wants_report {
                *report = owned_string(scanned.json());
            }
            Ok(())
        })
    }
}

/// Makes all options unset: every model is shown.
///
/// @param struct_size    sizeof(mlxb_list_options).
///
/// Thread: any. Since 0.1.0.
///
/// # Safety
/// `options` is NULL or points to `struct_size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_list_options_init(
    options: *mut mlxb_list_options,
    struct_size: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { init_struct(options, struct_size) };
}

/// Lists the models that the last scans found and that are still there, ordered by size_bytes,
/// the smallest first, then by path.
///
/// @param options    NULL: all.
/// @param out        The list; NULL on a failure.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_INVALID_UTF8; MLXB_VERSION_MISMATCH;
///         MLXB_LOCKED; MLXB_IO.
///
/// Ownership: free `*out` with mlxb_model_list_free. Thread: any. Since 0.1.0.
///
/// # Safety
/// `registry` is NULL or alive; `options` is NULL or points to a struct of its struct_size;
/// `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_registry_list(
    registry: *const mlxb_registry,
    options: *const mlxb_list_options,
    out: *mut *mut mlxb_model_list,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let out = self::out(out, ptr::null_mut(), "out")?;
            let registry = &required(registry, "registry")?.0;
            let options = if options.is_null() {
                mlxb_list_options::unset()
            } else {
                read_struct(options, "options")?
            };
            *out = mlxb_model_list::of(registry.list(&list_options(&options)?)?);
            Ok(())
        })
    }
}

/// # Safety
/// The options' pointers are NULL or NUL-terminated.
unsafe fn list_options(options: &mlxb_list_options) -> Result<ListOptions> {
    let invalid = |name: &str, value: i32| {
        Error::new(
            Kind::InvalidArgument,
            format!("options.{name} is out of range: {value}"),
        )
    };
    Ok(ListOptions {
        // SAFETY: the caller's promise.
        query: unsafe { optional_string(options.query, "options.query") }?.map(str::to_owned),
        max_bytes: (options.max_bytes != u64::MAX).then_some(options.max_bytes),
        vision: match options.vision {
            -1 | 0 => Vision::Any,
            1 => Vision::Yes,
            2 => Vision::No,
            other => return Err(invalid("vision", other)),
        },
        canonical_only: match options.canonical_only {
            -1 | 0 => false,
            1 => true,
            other => return Err(invalid("canonical_only", other)),
        },
    })
}

/// Finds the one model that a query means: the exact id of a repository, else an id, a part of
/// one or a part of a model type in any letter case; the first of these that matches decides. Of
/// several revisions it is the one that refs/main names, if that is complete, else the newest
/// complete one. Drafters are never meant.
///
/// @param query  Such as "org/name" or "Name-4bit".
/// @param out    A list of one; NULL on a failure.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT for an empty query; MLXB_INVALID_UTF8; MLXB_NOT_FOUND
///         when nothing that can be loaded matches; MLXB_AMBIGUOUS when several models do: the
///         error's detail holds their ids, one a line; MLXB_LOCKED; MLXB_IO.
///
/// Ownership: free `*out` with mlxb_model_list_free. Thread: any. Since 0.1.0.
///
/// # Safety
/// `registry` is NULL or alive; `query` is NULL or NUL-terminated; `out` and `error` are NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_registry_resolve(
    registry: *const mlxb_registry,
    query: *const c_char,
    out: *mut *mut mlxb_model_list,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let out = self::out(out, ptr::null_mut(), "out")?;
            let registry = &required(registry, "registry")?.0;
            let record = registry.resolve(string(query, "query")?)?;
            *out = mlxb_model_list::of(vec![record]);
            Ok(())
        })
    }
}

/// Reads one model folder, without a database.
///
/// @param snapshot_dir   The folder, in a hub or not.
/// @param repo_id        What the record shall say; NULL: from the path.
/// @param out            A list of one; NULL on a failure.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_INVALID_UTF8; MLXB_NOT_FOUND; MLXB_IO;
///         MLXB_MODEL_FORMAT and MLXB_CORRUPT for files that contradict themselves. An
///         incomplete model is no failure.
///
/// Ownership: free `*out` with mlxb_model_list_free. Thread: any. Since 0.1.0.
///
/// # Safety
/// The strings are NULL or NUL-terminated; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_registry_inspect(
    snapshot_dir: *const c_char,
    repo_id: *const c_char,
    out: *mut *mut mlxb_model_list,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let out = self::out(out, ptr::null_mut(), "out")?;
            let folder = path(snapshot_dir, "snapshot_dir")?;
            let record = registry::inspect(folder, optional_string(repo_id, "repo_id")?)?;
            *out = mlxb_model_list::of(vec![record]);
            Ok(())
        })
    }
}

/// How many models a list has; 0 for NULL.
///
/// Thread: one at a time per list. Since 0.1.0.
///
/// # Safety
/// `list` is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_model_list_count(list: *const mlxb_model_list) -> usize {
    // SAFETY: the caller's promise.
    unsafe { list.as_ref() }.map_or(0, |list| list.0.len())
}

/// Tells about one model of a list.
///
/// @param index  From 0.
/// @param out    Filled in; its struct_size says how much of it.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT for NULL, a wrong struct_size, or an index past the
///         end. On a failure `out` is unchanged.
///
/// Ownership: the record's text lives as long as the list. Thread: one at a time per list. Since
/// 0.1.0.
///
/// # Safety
/// `list` is NULL or alive; `out` is NULL or points to a struct of its struct_size; `error` is
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_model_list_get(
    list: *const mlxb_model_list,
    index: usize,
    out: *mut mlxb_model_record,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let listed = required(list, "list")?.0.get(index).ok_or_else(|| {
                Error::new(
                    Kind::InvalidArgument,
                    format!("index is past the end: {index}"),
                )
            })?;
            write_struct(out, listed.for_c(), "out")
        })
    }
}

/// Frees a list; NULL is ignored.
///
/// Ownership: consumes `list` and the text of its records. Thread: one at a time per list. Since
/// 0.1.0.
///
/// # Safety
/// `list` is NULL or came from this library and has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_model_list_free(list: *mut mlxb_model_list) {
    if !list.is_null() {
        // SAFETY: made with Box::into_raw, and the caller gives it up.
        guard_plain((), || drop(unsafe { Box::from_raw(list) }));
    }
}
