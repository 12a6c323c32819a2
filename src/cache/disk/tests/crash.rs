//! Processes that are killed in the middle of storing, evicting and restoring.

use std::{
    env,
    io::{Read as _, Write as _},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use super::*;

const DIRECTORY: &str = "MLXB_TEST_KV_DIRECTORY";
const SEED: &str = "MLXB_TEST_KV_SEED";
const ROUNDS: usize = 200;
/// About a half of all that the workers store.
const CAP_BYTES: u64 = 60_000;

/// Conversations of two namespaces, which have beginnings in common.
fn pool() -> Vec<(Namespace, Vec<u32>)> {
    let mut pool = Vec::new();
    for number in 0..16u32 {
        let namespace = namespace(number as u8 % 2);
        let shared = [10, 25][number as usize / 8];
        let own = 30 + number % 5 * 10;
        pool.push((
            namespace,
            (0..shared)
                .chain(number * 1000..number * 1000 + own)
                .collect(),
        ));
    }
    pool
}

/// What a worker process does: from a word on, until it is killed.
#[test]
fn worker() {
    let (Ok(directory), Ok(seed)) = (env::var(DIRECTORY), env::var(SEED)) else {
        return;
    };
    let mut input = std::io::stdin();
    input.read_exact(&mut [0]).unwrap();
    thread::spawn(move || {
        // The input ends when the test does.
        let _ = input.read(&mut [0]);
        std::process::abort();
    });
    let disk = Disk::open(Path::new(&directory), CAP_BYTES, true).unwrap();
    let mut random = Random(seed.parse().unwrap());
    let layout = layout();
    let pool = pool();
    loop {
        let (namespace, tokens) = &pool[random.below(pool.len())];
        let tokens = &tokens[..1 + random.below(tokens.len())];
        if random.below(3) == 0 {
            let count = disk.prefix(namespace, tokens);
            restores(&disk, namespace, tokens, count);
            continue;
        }
        let mut source = |index, range| {
            // The engine has other things to do in between.
            thread::sleep(Duration::from_micros(1500));
            Ok(rows(namespace, &layout, tokens, index, range))
        };
        // Others may take the room or the lock.
        let _ = disk.store(namespace, &layout, tokens, &mut source);
    }
}

struct Worker(Child);

impl Worker {
    fn start(directory: &Path, seed: usize) -> Self {
        let name = concat!(module_path!(), "::worker");
        let name = name.split_once("::").unwrap().1;
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(DIRECTORY, directory)
            .env(SEED, (seed * 2 + 1).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    fn go(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(self.0.id() as i32, signal) }, 0);
    }

    /// Kills it; answers whether it was writing a file.
    fn kill(mut self, directory: &Path) -> bool {
        self.signal(libc::SIGSTOP);
        let mut status = 0;
        let id = self.0.id() as i32;
        // SAFETY: a child of ours, and a place for its status.
        let stopped = unsafe { libc::waitpid(id, &raw mut status, libc::WUNTRACED) };
        assert_eq!(stopped, id);
        assert!(libc::WIFSTOPPED(status), "the worker ended by itself");
        let own = format!("{id}-");
        let is_writing = files(directory).iter().any(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with(&own) && name.ends_with(".tmp")
        });
        self.signal(libc::SIGKILL);
        self.0.wait().unwrap();
        is_writing
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// raullenchai/Rapid-MLX#187: whatever a process is doing when it ends, each entry is whole or
/// absent for the others.
#[test]
#[expect(clippy::print_stderr, reason = "how much the test has tried")]
fn killed_processes_leave_whole_entries_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path();
    let pool = pool();
    let mut random = Random(0xdead_beef);
    let (mut writing, mut hits, mut evictions) = (0, 0, 0);
    let mut next = Worker::start(directory, 0);
    let mut beside = None;
    for round in 1..=ROUNDS {
        let mut victim = std::mem::replace(&mut next, Worker::start(directory, round));
        victim.go();
        if round == ROUNDS / 2 {
            // From here on another one is always at work in the same directory.
            let mut other = Worker::start(directory, 1000);
            other.go();
            beside = Some(other);
        }
        let before = segment_files(directory);
        thread::sleep(Duration::from_micros(5000 + random.below(30_000) as u64));
        writing += usize::from(victim.kill(directory));
        let after = segment_files(directory);
        evictions += before.iter().filter(|path| !after.contains(path)).count();

        let disk = Disk::open(directory, CAP_BYTES, true).unwrap();
        if beside.is_none() {
            assert_tidy(&disk, directory);
        }
        {
            let mut locked = disk.shared.lock(lock::PATIENCE).unwrap();
            locked.refresh().unwrap();
            assert!(bytes_below(directory) <= CAP_BYTES, "round {round}");
        }
        for (namespace, tokens) in &pool {
            let count = disk.prefix(namespace, tokens);
            let is_whole = count > 0 && restores(&disk, namespace, tokens, count);
            hits += usize::from(is_whole);
            // Unless the other one has just removed it.
            assert!(is_whole || count == 0 || beside.is_some(), "round {round}");
        }
    }
    drop((next, beside));
    let disk = Disk::open(directory, CAP_BYTES, true).unwrap();
    assert_tidy(&disk, directory);
    for (namespace, tokens) in &pool {
        restored(&disk, namespace, tokens);
    }
    let counted = format!("{writing} kills while writing, {hits} hits, {evictions} evictions");
    eprintln!("of {ROUNDS}: {counted}");
    assert!(writing >= ROUNDS / 2, "{counted}");
    assert!(hits > ROUNDS && evictions > ROUNDS, "{counted}");
}
