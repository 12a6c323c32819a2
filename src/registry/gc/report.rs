//! The JSON report of a plan and of what came of it.

use std::path::Path;

use serde_json::{Value, json};

use super::{DeadBlob, Left, Outcome, Plan, Skipped};

/// A lock file or unfinished download of this age is likely nobody's any more.
const OLD_SECONDS: i64 = 24 * 60 * 60;

pub(super) fn json(plan: &Plan, outcome: Option<&Outcome>) -> String {
    let mut report = json!({
        "hub": text(&plan.root),
        "bytes": plan.bytes,
        "kept": list(&plan.kept, snapshot),
        "pruned": list(&plan.pruned, |pruned| json!({
            "repo_id": pruned.repo_id,
            "revision": pruned.commit,
            "path": text(&pruned.path),
            "disk_bytes": pruned.bytes,
        })),
        "skipped": list(&plan.skipped, |skipped| {
            let mut value = snapshot(skipped);
            value["extra_files"] = skipped.extra_files.iter().map(|path| text(path)).collect();
            value
        }),
        "dead_blobs": plan.dead_blobs().map(blob).collect::<Value>(),
        "refs": list(&plan.refs, |path| text(path)),
        "left": list(&plan.left, left),
        "leftovers": plan
            .leftovers
            .iter()
            .map(|leftover| (leftover, (plan.made - leftover.modified) / 1_000_000_000))
            .filter(|(_, age)| *age >= OLD_SECONDS)
            .map(|(leftover, age)| json!({
                "path": text(&leftover.path),
                "bytes": leftover.bytes,
                "age_seconds": age,
            }))
            .collect::<Value>(),
        "problems": list(&plan.problems, |problem| json!({
            "path": text(&problem.path),
            "reason": problem.reason,
        })),
    });
    if let Some(outcome) = outcome {
        report["executed"] = json!({
            "bytes": outcome.bytes,
            "snapshots": list(&outcome.snapshots, |path| text(path)),
            "blobs": list(&outcome.blobs, |path| text(path)),
            "refs": list(&outcome.refs, |path| text(path)),
            "left": list(&outcome.left, left),
        });
    }
    report.to_string()
}

fn list<T>(items: &[T], value: impl Fn(&T) -> Value) -> Value {
    items.iter().map(value).collect()
}

fn snapshot(snapshot: &Skipped) -> Value {
    json!({
        "repo_id": snapshot.repo_id,
        "revision": snapshot.commit,
        "path": text(&snapshot.path),
        "disk_bytes": snapshot.bytes,
        "reason": snapshot.reason,
    })
}

fn blob(blob: &DeadBlob) -> Value {
    json!({ "path": text(&blob.path), "bytes": blob.bytes })
}

fn left(left: &Left) -> Value {
    json!({ "path": text(&left.path), "reason": left.reason })
}

/// Paths that are no text are shown as far as they are.
fn text(path: &Path) -> Value {
    Value::String(path.to_string_lossy().into_owned())
}
