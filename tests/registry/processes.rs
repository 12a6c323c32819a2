//! Several processes at once, some of them killed: the database opens, nothing that a kept
//! snapshot needs is lost.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use mlxb::registry::{ListOptions, Registry, gc::Plan};

use crate::hub::{Hub, blob_name, commit, model_files};

const HUB: &str = "MLXB_TEST_WORKER_HUB";
const DATABASE: &str = "MLXB_TEST_WORKER_DATABASE";
const ROUNDS: u32 = 50;
const REPOS: u32 = 12;

/// What a worker process does: scan and collect until it is killed, or until a file says stop.
#[test]
fn worker() {
    let (Ok(hub), Ok(database)) = (env::var(HUB), env::var(DATABASE)) else {
        return;
    };
    let (hub, database) = (Path::new(&hub), Path::new(&database));
    let stop = database.with_extension("stop");
    let ready = database.with_extension(format!("ready.{}", std::process::id()));
    while !stop.exists() {
        let registry = Registry::open(Some(database)).unwrap();
        registry.scan(Some(hub)).unwrap();
        let _ = registry.list(&ListOptions::default()).unwrap();
        let plan = Plan::collect(Some(hub), None, true).unwrap();
        plan.execute().unwrap();
        fs::write(&ready, "").unwrap();
    }
}

fn start(hub: &Path, database: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "processes::worker", "--nocapture"])
        .env(HUB, hub)
        .env(DATABASE, database)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// A snapshot, and the files in it.
type Published = (PathBuf, Vec<(&'static str, Vec<u8>)>);

/// A new revision for each repository, as huggingface_hub downloads it: the ref first, then each
/// file under its lock. One blob in two is that of the revision before.
fn publish(hub: &Hub, round: u32) -> Vec<Published> {
    (0..REPOS)
        .map(|number| {
            let repo = format!("models--org--r{number}");
            let new = hub.write(&format!("{repo}/refs/.main.tmp"), commit(round + 1));
            fs::rename(new, hub.path(&format!("{repo}/refs/main"))).unwrap();
            let rows = 1 + (round as usize + number as usize) / 2 % 40;
            let files = model_files("llama", rows);
            for file in &files {
                let lock = format!(".locks/{repo}/{}.lock", blob_name(&file.1));
                let lock = fs::File::create(hub.write(&lock, "")).unwrap();
                lock.lock().unwrap();
                hub.snapshot(&repo, &commit(round + 1), std::slice::from_ref(file));
            }
            (hub.snapshot_path(&repo, &commit(round + 1)), files)
        })
        .collect()
}

#[test]
fn killed_processes_lose_nothing() {
    let hub = Hub::new();
    let database = hub.beside().join("registry.sqlite");
    publish(&hub, 0);
    let mut seed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_nanos() as u64
        | 1;
    let mut random = move |most: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % most
    };
    let mut survivor = start(&hub.root, &database);
    let mut victim = start(&hub.root, &database);
    let deadline = Instant::now() + Duration::from_secs(60);
    while [&survivor, &victim].iter().any(|child| {
        !database
            .with_extension(format!("ready.{}", child.id()))
            .exists()
    }) {
        assert!(Instant::now() < deadline, "the workers do not start");
        thread::sleep(Duration::from_millis(5));
    }
    for round in 1..=ROUNDS {
        let kept = publish(&hub, round);
        thread::sleep(Duration::from_micros(random(30_000)));
        victim.kill().unwrap();
        victim.wait().unwrap();
        victim = start(&hub.root, &database);
        assert!(
            survivor.try_wait().unwrap().is_none(),
            "the other process goes on"
        );
        // While both are at it.
        for (snapshot, files) in &kept {
            for (name, content) in files {
                let read = fs::read(snapshot.join(name)).unwrap_or_default();
                assert_eq!(read.len(), content.len(), "{round}: {}", snapshot.display());
            }
        }
        let registry = Registry::open(Some(&database)).unwrap();
        registry.list(&ListOptions::default()).unwrap();
    }
    fs::write(database.with_extension("stop"), "").unwrap();
    for child in [&mut survivor, &mut victim] {
        assert!(child.wait().unwrap().success());
    }

    // In the end it is as one process in peace would leave it. An empty folder is left for a
    // while, since a download may have just made it.
    let kept = publish(&hub, ROUNDS + 1);
    for number in 0..REPOS {
        let snapshots = hub.path(&format!("models--org--r{number}/snapshots"));
        for snapshot in fs::read_dir(snapshots).unwrap() {
            let folder = fs::File::open(snapshot.unwrap().path()).unwrap();
            folder.set_modified(UNIX_EPOCH).unwrap();
        }
    }
    let registry = Registry::open(Some(&database)).unwrap();
    Plan::collect(Some(&hub.root), None, true)
        .unwrap()
        .execute()
        .unwrap();
    let report = registry.scan(Some(&hub.root)).unwrap();
    assert_eq!((report.count, report.problems), (REPOS as usize, vec![]));
    for (snapshot, files) in kept {
        for (name, content) in files {
            assert_eq!(fs::read(snapshot.join(name)).unwrap(), content);
        }
    }
    assert_eq!(
        Plan::collect(Some(&hub.root), None, true).unwrap().bytes(),
        0
    );
}
