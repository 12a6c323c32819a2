//! The database: whatever happens to its file, the models are on disk and are found again.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use mlxb::{
    Kind,
    registry::{ListOptions, Registry},
};

use crate::hub::{Hub, commit, config, weights};

const A: &str = "models--org--a";

fn hub() -> (Hub, PathBuf) {
    let hub = Hub::new();
    for (name, rows) in [("a", 4), ("b", 8), ("c", 2)] {
        let repo = format!("models--org--{name}");
        hub.model(&repo, &commit(1), rows);
        hub.set_ref(&repo, "main", &commit(1));
    }
    let database = hub.beside().join("deep/er/registry.sqlite");
    (hub, database)
}

fn ids(registry: &Registry) -> Vec<String> {
    let records = registry.list(&ListOptions::default()).unwrap();
    records.into_iter().map(|record| record.repo_id).collect()
}

#[test]
fn what_was_scanned_is_there_after_reopening() {
    let (hub, database) = hub();
    let registry = Registry::open(Some(&database)).unwrap();
    let report = registry.scan(Some(&hub.root)).unwrap();
    assert_eq!((report.count, report.read, report.removed), (3, 3, 0));
    let before = registry.list(&ListOptions::default()).unwrap();
    drop(registry);
    let registry = Registry::open(Some(&database)).unwrap();
    assert_eq!(registry.list(&ListOptions::default()).unwrap(), before);
    assert_eq!(ids(&registry), ["org/c", "org/a", "org/b"], "by size");
}

#[test]
fn only_what_changed_is_read_again() {
    let (hub, database) = hub();
    let registry = Registry::open(Some(&database)).unwrap();
    registry.scan(Some(&hub.root)).unwrap();
    let scan = || {
        let report = registry.scan(Some(&hub.root)).unwrap();
        (report.count, report.read, report.removed)
    };
    assert_eq!(scan(), (3, 0, 0));

    let snapshot = hub.snapshot_path(A, &commit(1));
    // A name, a size, a time of change.
    fs::write(snapshot.join("kv_config.json"), "{}").unwrap();
    assert_eq!(scan(), (3, 1, 0));
    assert!(registry.resolve("org/a").unwrap().has_kv_config);
    let weights_file = snapshot.join("model.safetensors");
    let blob = fs::read_link(&weights_file).unwrap();
    fs::write(
        snapshot.join(&blob),
        weights(&["model.embed_tokens.weight"], 5),
    )
    .unwrap();
    assert_eq!(scan(), (3, 1, 0));
    assert_eq!(registry.resolve("org/a").unwrap().parameter_count, Some(20));
    let config_blob = snapshot.join(fs::read_link(snapshot.join("config.json")).unwrap());
    fs::write(&config_blob, config("other")).unwrap();
    let later = SystemTime::now() + Duration::from_secs(5);
    fs::File::options()
        .write(true)
        .open(&config_blob)
        .unwrap()
        .set_modified(later)
        .unwrap();
    // The blob is shared by content, but each repository has its own.
    assert_eq!(scan(), (3, 1, 0));
    assert_eq!(
        registry.resolve("org/a").unwrap().model_type.unwrap(),
        "other"
    );

    // A ref is no file of the snapshot.
    hub.model(A, &commit(2), 4);
    hub.set_ref(A, "main", &commit(2));
    assert_eq!(scan(), (4, 1, 0));
    assert!(
        registry
            .resolve("org/a")
            .unwrap()
            .path
            .ends_with(&commit(2))
    );
    hub.set_ref(A, "main", &commit(1));
    assert_eq!(scan(), (4, 0, 0));
    assert!(
        registry
            .resolve("org/a")
            .unwrap()
            .path
            .ends_with(&commit(1))
    );

    fs::remove_dir_all(hub.path("models--org--b")).unwrap();
    assert_eq!(
        registry.resolve("org/b").unwrap_err().kind(),
        Kind::NotFound
    );
    assert_eq!(scan(), (3, 0, 1));
    assert_eq!(scan(), (3, 0, 0));
    // One that cannot be read any more is not listed with what it was.
    fs::write(&config_blob, "{").unwrap();
    assert_eq!(scan(), (1, 0, 2), "both revisions have that config");
}

#[test]
fn rows_of_folders_that_are_gone_are_not_returned_and_another_stands_in() {
    let (hub, database) = hub();
    hub.model(A, &commit(2), 4);
    let registry = Registry::open(Some(&database)).unwrap();
    registry.scan(Some(&hub.root)).unwrap();
    fs::remove_dir_all(hub.snapshot_path(A, &commit(1))).unwrap();
    let options = ListOptions {
        query: Some("org/a".to_owned()),
        canonical_only: true,
        ..ListOptions::default()
    };
    let records = registry.list(&options).unwrap();
    assert_eq!(records.len(), 1);
    assert!(records[0].path.ends_with(&commit(2)));
    let resolved = registry.resolve("org/a").unwrap();
    assert!(resolved.path.ends_with(&commit(2)) && resolved.is_canonical);
}

#[test]
fn two_hubs_share_a_database() {
    let (first, database) = hub();
    let second = Hub::new();
    second.model("models--org--z", &commit(1), 3);
    let registry = Registry::open(Some(&database)).unwrap();
    registry.scan(Some(&first.root)).unwrap();
    registry.scan(Some(&second.root)).unwrap();
    registry.scan(Some(&first.root)).unwrap();
    assert_eq!(ids(&registry).len(), 4);
}

#[test]
fn a_damaged_database_is_set_aside_and_filled_again() {
    type Damage = (&'static str, fn(&Path));
    let damage: [Damage; 6] = [
        ("text", |path| {
            fs::write(path, "not a database, but long enough to be read").unwrap()
        }),
        ("zeros", |path| fs::write(path, [0; 8192]).unwrap()),
        ("empty", |path| fs::write(path, "").unwrap()),
        ("cut", |path| {
            let length = fs::metadata(path).unwrap().len();
            fs::File::options()
                .write(true)
                .open(path)
                .unwrap()
                .set_len(length / 2)
                .unwrap();
        }),
        ("overwritten", |path| {
            let mut bytes = fs::read(path).unwrap();
            bytes[4096..].fill(0x5a);
            fs::write(path, bytes).unwrap();
        }),
        ("strange", |path| {
            let bytes = fs::read(path).unwrap();
            let text = b"disk_bytes";
            let mut changed = bytes.clone();
            for at in 0..bytes.len() - text.len() {
                if &bytes[at..at + text.len()] == text {
                    changed[at] = b'D';
                }
            }
            assert_ne!(changed, bytes);
            fs::write(path, changed).unwrap();
        }),
    ];
    for (name, damage) in damage {
        let (hub, database) = hub();
        let registry = Registry::open(Some(&database)).unwrap();
        registry.scan(Some(&hub.root)).unwrap();
        drop(registry);
        damage(&database);
        for wal in ["-wal", "-shm"] {
            let mut path = database.clone().into_os_string();
            path.push(wal);
            assert!(!Path::new(&path).exists(), "the last connection cleans up");
        }
        let registry = Registry::open(Some(&database)).unwrap();
        // Damage may show only when the pages are read.
        let _ = registry.list(&ListOptions::default()).unwrap();
        registry.scan(Some(&hub.root)).unwrap();
        assert_eq!(ids(&registry), ["org/c", "org/a", "org/b"], "{name}");
        drop(registry);
        let registry = Registry::open(Some(&database)).unwrap();
        assert_eq!(ids(&registry).len(), 3, "{name}");
    }
}

#[test]
fn a_database_that_is_damaged_while_open_is_replaced() {
    let (hub, database) = hub();
    let registry = Registry::open(Some(&database)).unwrap();
    registry.scan(Some(&hub.root)).unwrap();
    // A second one holds the write-ahead log open.
    let other = Registry::open(Some(&database)).unwrap();
    drop(registry);
    fs::write(&database, vec![0x5a; 100_000]).unwrap();
    other.scan(Some(&hub.root)).unwrap();
    assert_eq!(
        Registry::open(Some(&database))
            .unwrap()
            .scan(Some(&hub.root))
            .unwrap()
            .count,
        3
    );
}

#[test]
fn a_database_of_another_version_is_emptied() {
    let (hub, database) = hub();
    fs::create_dir_all(database.parent().unwrap()).unwrap();
    let old = rusqlite::Connection::open(&database).unwrap();
    old.execute_batch(
        "CREATE TABLE snapshot (other TEXT); CREATE TABLE \"quo\"\"te\" (x);
         CREATE VIEW v AS SELECT 1; PRAGMA user_version = 999;",
    )
    .unwrap();
    let registry = Registry::open(Some(&database)).unwrap();
    registry.scan(Some(&hub.root)).unwrap();
    assert_eq!(ids(&registry).len(), 3);
    let tables: i64 = old
        .query_row(
            "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'quo%'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(tables, 0);

    // Another version empties it while it is open here.
    old.execute_batch("DROP TABLE snapshot; PRAGMA user_version = 999;")
        .unwrap();
    assert_eq!(ids(&registry).len(), 0);
    registry.scan(Some(&hub.root)).unwrap();
    assert_eq!(ids(&registry).len(), 3);
}

#[test]
fn a_place_without_room_for_a_database_is_an_error_that_names_it() {
    let (hub, _) = hub();
    for path in [
        hub.root.clone(),
        PathBuf::from("/proc/none/registry.sqlite"),
    ] {
        let error = Registry::open(Some(&path)).unwrap_err();
        assert!(
            error
                .message()
                .contains(path.to_str().unwrap().split("/registry").next().unwrap()),
            "{error}"
        );
        assert!(matches!(error.kind(), Kind::Io | Kind::NotFound), "{error}");
    }
    // A file in the folder's place.
    let file = hub.write("file", "");
    let error = Registry::open(Some(&file.join("registry.sqlite"))).unwrap_err();
    assert!(error.message().contains("file"), "{error}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn names_that_mean_something_to_sqlite_are_plain_paths() {
    let hub = Hub::new();
    for name in ["file:x?mode=memory", "a b%20'\"", ":memory:.db"] {
        let path = hub.beside().join(name);
        let registry = Registry::open(Some(&path)).unwrap();
        registry.scan(Some(&hub.root)).unwrap();
        assert!(path.is_file(), "{name}");
    }
}
