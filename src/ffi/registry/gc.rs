//! Giving back the disk.

use std::{
    ffi::{CString, c_char},
    path::Path,
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    error::{Error, Kind},
    ffi::{
        SizedStruct, guard, guard_plain, mlxb_error, mlxb_status, optional_string, out,
        owned_string, required, string, write_struct,
    },
    registry::gc::{Outcome, Plan},
};

/// What would be deleted, what stays, and why. Making one changes nothing. Belongs to one thread
/// at a time.
pub struct mlxb_gc_plan {
    plan: Plan,
    outcome: Mutex<Option<Outcome>>,
    items: Vec<Item>,
}

/// A line of the plan with its text as C reads it.
struct Item {
    kind: mlxb_gc_item_kind,
    path: CString,
    repo_id: Option<CString>,
    revision: Option<CString>,
    reason: Option<CString>,
    bytes: u64,
}

/// What a line of a plan is about. New values may appear in later versions.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum mlxb_gc_item_kind {
    /// A snapshot that something needs.
    MLXB_GC_KEPT = 1,
    /// A snapshot that nothing needs and that stays all the same, because it holds files that no
    /// kept one has, or could not be read.
    MLXB_GC_SKIPPED = 2,
    /// A snapshot that goes.
    MLXB_GC_PRUNED = 3,
    /// A blob that goes; no surviving snapshot needs it.
    MLXB_GC_DEAD_BLOB = 4,
    /// A ref that goes.
    MLXB_GC_REF = 5,
    /// A file or folder that was looked at and is not touched.
    MLXB_GC_LEFT = 6,
}

/// One line of a plan. Set struct_size, the library fills in the rest. Text lives as long as the
/// plan.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mlxb_gc_item {
    /// sizeof(mlxb_gc_item).
    pub struct_size: usize,
    /// One of mlxb_gc_item_kind.
    pub kind: i32,
    /// The file or folder.
    pub path: *const c_char,
    /// Of snapshots: such as "org/name"; NULL otherwise.
    pub repo_id: *const c_char,
    /// Of snapshots: the commit; NULL otherwise.
    pub revision: *const c_char,
    /// Why it stays; NULL for what goes.
    pub reason: *const c_char,
    /// Of snapshots: bytes of all its files, those shared with others included; of blobs: bytes
    /// of the file; 0 otherwise.
    pub bytes: u64,
}

// SAFETY: repr(C), struct_size first, numbers and pointers only.
unsafe impl SizedStruct for mlxb_gc_item {
    fn unset() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            kind: 0,
            path: ptr::null(),
            repo_id: ptr::null(),
            revision: ptr::null(),
            reason: ptr::null(),
            bytes: 0,
        }
    }
}

/// What was deleted. Set struct_size, the library fills in the rest.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mlxb_gc_result {
    /// sizeof(mlxb_gc_result).
    pub struct_size: usize,
    /// Snapshots.
    pub snapshot_count: u64,
    /// Blobs, those of the shared store and links to them included.
    pub blob_count: u64,
    /// Refs.
    pub ref_count: u64,
    /// Bytes that this freed: of files whose last name is gone.
    pub bytes: u64,
    /// Things that the plan named and that are still there; the report says which, and why.
    pub left_count: u64,
}

// SAFETY: repr(C), struct_size first, numbers only.
unsafe impl SizedStruct for mlxb_gc_result {
    fn unset() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            snapshot_count: 0,
            blob_count: 0,
            ref_count: 0,
            bytes: 0,
            left_count: 0,
        }
    }
}

fn text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).expect("no NUL is left after the replacement")
}

impl Item {
    fn new(kind: mlxb_gc_item_kind, path: &Path) -> Self {
        Self {
            kind,
            path: text(&path.to_string_lossy()),
            repo_id: None,
            revision: None,
            reason: None,
            bytes: 0,
        }
    }
}

impl mlxb_gc_plan {
    fn outcome(&self) -> MutexGuard<'_, Option<Outcome>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(plan: Plan) -> *mut Self {
        let mut items = Vec::new();
        for (kind, snapshots) in [
            (mlxb_gc_item_kind::MLXB_GC_KEPT, plan.kept()),
            (mlxb_gc_item_kind::MLXB_GC_SKIPPED, plan.skipped()),
        ] {
            items.extend(snapshots.iter().map(|snapshot| Item {
                repo_id: Some(text(&snapshot.repo_id)),
                revision: Some(text(&snapshot.commit)),
                reason: Some(text(&snapshot.reason)),
                bytes: snapshot.bytes,
                ..Item::new(kind, &snapshot.path)
            }));
        }
        items.extend(plan.pruned().iter().map(|snapshot| Item {
            repo_id: Some(text(&snapshot.repo_id)),
            revision: Some(text(&snapshot.commit)),
            bytes: snapshot.bytes,
            ..Item::new(mlxb_gc_item_kind::MLXB_GC_PRUNED, &snapshot.path)
        }));
        items.extend(plan.dead_blobs().map(|blob| Item {
            bytes: blob.bytes,
            ..Item::new(mlxb_gc_item_kind::MLXB_GC_DEAD_BLOB, &blob.path)
        }));
        items.extend(
            plan.refs()
                .iter()
                .map(|path| Item::new(mlxb_gc_item_kind::MLXB_GC_REF, path)),
        );
        items.extend(plan.left().iter().map(|left| Item {
            reason: Some(text(&left.reason)),
            ..Item::new(mlxb_gc_item_kind::MLXB_GC_LEFT, &left.path)
        }));
        Box::into_raw(Box::new(Self {
            plan,
            outcome: Mutex::new(None),
            items,
        }))
    }
}

/// Plans what collecting a hub would delete: snapshots that no ref names, and blobs that no
/// surviving snapshot needs, directly or through the hub-wide blob store. A repository without a
/// ref to a snapshot that is there is left alone. Lock files and unfinished downloads never go.
///
/// @param hub_dir    NULL: as in mlxb_registry_scan.
/// @param repo_id    One repository; NULL: all models'.
/// @param force      Whether unreferenced snapshots go even when they hold files that no kept
///                   one has.
/// @param out        The plan; NULL on a failure.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_INVALID_UTF8; MLXB_NOT_FOUND for a hub or
///         repository that is not there; MLXB_IO.
///
/// Ownership: free `*out` with mlxb_gc_plan_free. Thread: any. Since 0.1.0.
///
/// # Safety
/// The strings are NULL or NUL-terminated; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_gc_plan_create(
    hub_dir: *const c_char,
    repo_id: *const c_char,
    force: bool,
    out: *mut *mut mlxb_gc_plan,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let out = self::out(out, ptr::null_mut(), "out")?;
            let hub = optional_string(hub_dir, "hub_dir")?.map(Path::new);
            let repo_id = optional_string(repo_id, "repo_id")?;
            *out = mlxb_gc_plan::of(Plan::collect(hub, repo_id, force)?);
            Ok(())
        })
    }
}

/// Plans the deletion of a repository or of one of its revisions. Files that snapshots of other
/// repositories link to stay.
///
/// @param hub_dir    NULL: as in mlxb_registry_scan.
/// @param repo_id    The exact id, as lists show it.
/// @param revision   A commit or a ref such as "main"; NULL: the whole repository, refs
///                   included.
/// @param out        The plan; NULL on a failure.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_INVALID_UTF8; MLXB_NOT_FOUND for a hub,
///         repository or revision that is not there; MLXB_IO.
///
/// Ownership: free `*out` with mlxb_gc_plan_free. Thread: any. Since 0.1.0.
///
/// # Safety
/// The strings are NULL or NUL-terminated; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_delete_plan_create(
    hub_dir: *const c_char,
    repo_id: *const c_char,
    revision: *const c_char,
    out: *mut *mut mlxb_gc_plan,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let out = self::out(out, ptr::null_mut(), "out")?;
            let hub = optional_string(hub_dir, "hub_dir")?.map(Path::new);
            let repo_id = string(repo_id, "repo_id")?;
            let revision = optional_string(revision, "revision")?;
            *out = mlxb_gc_plan::of(Plan::delete(hub, repo_id, revision)?);
            Ok(())
        })
    }
}

/// What executing the plan frees, in bytes; 0 for NULL.
///
/// Thread: one at a time per plan. Since 0.1.0.
///
/// # Safety
/// `plan` is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_gc_plan_bytes(plan: *const mlxb_gc_plan) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { plan.as_ref() }.map_or(0, |plan| plan.plan.bytes())
}

/// How many lines a plan has; 0 for NULL.
///
/// Thread: one at a time per plan. Since 0.1.0.
///
/// # Safety
/// `plan` is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_gc_plan_count(plan: *const mlxb_gc_plan) -> usize {
    // SAFETY: the caller's promise.
    unsafe { plan.as_ref() }.map_or(0, |plan| plan.items.len())
}

/// Tells one line of a plan. Lines are ordered by kind.
///
/// @param index  From 0.
/// @param out    Filled in; its struct_size says how much of it.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT for NULL, a wrong struct_size, or an index past the
///         end. On a failure `out` is unchanged.
///
/// Ownership: the item's text lives as long as the plan. Thread: one at a time per plan. Since
/// 0.1.0.
///
/// # Safety
/// `plan` is NULL or alive; `out` is NULL or points to a struct of its struct_size; `error` is
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_gc_plan_get(
    plan: *const mlxb_gc_plan,
    index: usize,
    out: *mut mlxb_gc_item,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let item = required(plan, "plan")?.items.get(index).ok_or_else(|| {
                Error::new(
                    Kind::InvalidArgument,
                    format!("index is past the end: {index}"),
                )
            })?;
            let text =
                |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
            let filled = mlxb_gc_item {
                kind: item.kind as i32,
                path: item.path.as_ptr(),
                repo_id: text(&item.repo_id),
                revision: text(&item.revision),
                reason: text(&item.reason),
                bytes: item.bytes,
                ..SizedStruct::unset()
            };
            write_struct(out, filled, "out")
        })
    }
}

/// Tells the whole plan as a JSON object: "kept", "pruned" and "skipped" snapshots (these with
/// "extra_files"), "dead_blobs", "refs", what is "left" and why, old lock files and unfinished
/// downloads as "leftovers", "problems", and the "bytes" that it frees. After
/// mlxb_gc_plan_execute it has "executed" too: what went, and what is left and why.
///
/// @param json   The report; NULL on a failure.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT.
///
/// Ownership: free `*json` with mlxb_string_free. Thread: one at a time per plan. Since 0.1.0.
///
/// # Safety
/// `plan` is NULL or alive; `json` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_gc_plan_report(
    plan: *const mlxb_gc_plan,
    json: *mut *mut c_char,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let json = out(json, ptr::null_mut(), "json")?;
            let plan = required(plan, "plan")?;
            *json = owned_string(plan.plan.report(plan.outcome().as_ref()));
            Ok(())
        })
    }
}

/// Deletes what the plan names and what is still dead: everything is looked at again right
/// before it goes, so a link that was made since the plan keeps its blob. What cannot be deleted
/// is left, counted, and named in the report; it stops nothing else.
///
/// @param out    Filled in; its struct_size says how much of it.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_NOT_FOUND or MLXB_IO when the hub's folder cannot
///         be listed any more. Everything that was deleted then was dead; plan again.
///
/// Thread: one at a time per plan; several plans may be executed at once, in several processes
/// too. Since 0.1.0.
///
/// # Safety
/// `plan` is NULL or alive; `out` is NULL or points to a struct of its struct_size; `error` is
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_gc_plan_execute(
    plan: *const mlxb_gc_plan,
    out: *mut mlxb_gc_result,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            // Nothing is deleted when there is no place for the answer.
            write_struct(out, mlxb_gc_result::unset(), "out")?;
            let plan = required(plan, "plan")?;
            let outcome = plan.plan.execute()?;
            let filled = mlxb_gc_result {
                snapshot_count: outcome.snapshots.len() as u64,
                blob_count: outcome.blobs.len() as u64,
                ref_count: outcome.refs.len() as u64,
                bytes: outcome.bytes,
                left_count: outcome.left.len() as u64,
                ..SizedStruct::unset()
            };
            *plan.outcome() = Some(outcome);
            write_struct(out, filled, "out")
        })
    }
}

/// Frees a plan; NULL is ignored.
///
/// Ownership: consumes `plan` and the text of its items. Thread: one at a time per plan. Since
/// 0.1.0.
///
/// # Safety
/// `plan` is NULL or came from this library and has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_gc_plan_free(plan: *mut mlxb_gc_plan) {
    if !plan.is_null() {
        // SAFETY: made with Box::into_raw, and the caller gives it up.
        guard_plain((), || drop(unsafe { Box::from_raw(plan) }));
    }
}
