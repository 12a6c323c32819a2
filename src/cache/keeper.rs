//! What a cache does in the background: writing to disk what left memory, what has come to rest,
//! and what nobody has used for long.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread::{JoinHandle, ThreadId},
    time::{Duration, Instant},
};

use super::{
    namespace::Namespace,
    shared::{Content, Core, Leaving},
    shelf::Place,
    transfer,
};
use crate::{
    engine::{engine, is_engine_thread},
    error::{Error, Kind, Result},
    model::State,
};

/// States that may wait to be written, and their bytes where the cache itself may not have more.
/// Beyond that the oldest is given up: who puts never waits.
const MOST_WAITING: usize = 64;
const LEAST_WAITING_BYTES: u64 = 256 << 20;

/// How often to look for what other processes have stored, while look-ups miss.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The work of the background thread, as far as the entries themselves do not say it.
#[derive(Default)]
pub(super) struct Work {
    /// What left memory, the oldest first.
    spills: VecDeque<Leaving>,
    spill_bytes: u64,
    is_writing: bool,
    /// Whether a look-up has missed since the last look for what other processes stored.
    has_missed: bool,
    looked: Option<Instant>,
    /// Callers that wait for everything to be written: nothing rests until then.
    flushes: usize,
    is_stopping: bool,
    thread: Option<ThreadId>,
    failures: u64,
    last_failure: Option<(Kind, String)>,
    /// Whether the last write failed, and that was said.
    is_failing: bool,
    /// Whether what is left to write at the end would wait for another process, one after the
    /// other.
    gives_up: bool,
}

/// What to do with an entry that has left memory while the queue is full.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Wait until there is room.
    Waits,
    /// Make room.
    GivesUpTheOldest,
}

impl Work {
    /// States that wait to be written, or are being written.
    pub(super) fn pending(&self) -> usize {
        self.spills.len() + usize::from(self.is_writing)
    }

    /// Whether this thread may wait for what is written: it is none of those that write.
    fn may_wait(&self) -> bool {
        self.thread != Some(std::thread::current().id()) && !is_engine_thread()
    }

    /// Whether one more state of so many bytes is too much.
    fn is_full(&self, bytes: u64, most_bytes: u64) -> bool {
        let is_too_large = self.spill_bytes.saturating_add(bytes) > most_bytes;
        self.spills.len() >= MOST_WAITING || is_too_large && !self.spills.is_empty()
    }

    /// When to look for what other processes have stored; None: not before a look-up misses.
    fn next_look(&self, now: Instant) -> Option<Instant> {
        let last = self.has_missed.then_some(self.looked)?;
        Some(last.map_or(now, |looked| looked + LOOK_EVERY))
    }
}

/// A piece of work.
enum Job {
    /// An entry left memory.
    Spill(Leaving),
    /// An entry has come to rest; it stays.
    Write(Place, State),
    /// Others may have stored something.
    Look,
}

/// Starts the background thread of a cache with a disk.
pub(super) fn start(core: &Arc<Core>) -> Result<Option<JoinHandle<()>>> {
    if core.disk.is_none() {
        return Ok(None);
    }
    let its_core = Arc::clone(core);
    let thread = std::thread::Builder::new()
        .name("mlxb-cache".into())
        .spawn(move || its_core.keep())
        .map_err(|error| Error::io("starting the cache's thread", error))?;
    core.content().work.thread = Some(thread.thread().id());
    Ok(Some(thread))
}

impl Core {
    /// Hands an entry that has left memory to the background thread.
    pub(super) fn enqueue(&self, leaving: Leaving, patience: Patience) {
        let most_bytes = self.options.memory_bytes.max(LEAST_WAITING_BYTES);
        let bytes = leaving.state.bytes;
        let mut given_up = Vec::new();
        let mut content = self.content();
        if patience == Patience::Waits && content.work.may_wait() {
            content = self
                .work_changed
                .wait_while(content, |content| content.work.is_full(bytes, most_bytes))
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        while content.work.is_full(bytes, most_bytes) {
            let Some(oldest) = content.work.spills.pop_front() else {
                break;
            };
            content.work.spill_bytes -= oldest.state.bytes;
            content.forget(&oldest);
            given_up.push(oldest);
        }
        content.work.spill_bytes += bytes;
        content.work.spills.push_back(leaving);
        drop(content);
        self.work_changed.notify_all();
        // What came to rest before has been written then.
        given_up.retain(|one| !self.is_on_disk(one));
        if !given_up.is_empty() {
            self.content().counters.dropped_writes += given_up.len() as u64;
            log::warn!(
                "states are evicted faster than written: {} dropped",
                given_up.len()
            );
        }
    }

    fn is_on_disk(&self, leaving: &Leaving) -> bool {
        let tokens = &leaving.state.tokens;
        self.disk_prefix(&leaving.namespace, tokens) == tokens.len()
    }

    /// Says that a look-up found less than all: another process may have it on disk by now.
    pub(super) fn has_missed(&self, content: &mut Content) {
        if !content.work.has_missed && self.disk.is_some() {
            content.work.has_missed = true;
            self.work_changed.notify_all();
        }
    }

    /// Waits until everything is written.
    pub(super) fn flush(&self) -> Result<()> {
        let failures = self.failures();
        self.wait(
            |content| content.work.pending() == 0 && content.shelf.next_due().is_none(),
            true,
            failures,
        )
    }

    /// Waits until everything that has left memory is written. As [`Self::flush`], it tells of
    /// failures beyond the first `failures`.
    pub(super) fn wait_for_spills(&self, failures: u64) -> Result<()> {
        self.wait(|content| content.work.pending() == 0, false, failures)
    }

    /// How many writes have failed.
    pub(super) fn failures(&self) -> u64 {
        self.content().work.failures
    }

    fn wait(&self, is_done: impl Fn(&Content) -> bool, flushes: bool, failures: u64) -> Result<()> {
        if self.disk.is_none() {
            return Ok(());
        }
        let mut content = self.content();
        if !content.work.may_wait() {
            return Err(Error::new(
                Kind::Busy,
                "a thread of the library's own cannot wait for itself",
            ));
        }
        if flushes {
            content.shelf.retry_unwritten(Instant::now());
        }
        content.work.flushes += usize::from(flushes);
        self.work_changed.notify_all();
        let mut content = self
            .work_changed
            .wait_while(content, |content| !is_done(content))
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        content.work.flushes -= usize::from(flushes);
        match &content.work.last_failure {
            Some((kind, message)) if content.work.failures > failures => {
                Err(Error::new(*kind, message.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Has the background thread write everything and end.
    pub(super) fn stop_keeper(&self) {
        let mut content = self.content();
        content.shelf.retry_unwritten(Instant::now());
        content.work.is_stopping = true;
        drop(content);
        self.work_changed.notify_all();
    }

    /// The background thread.
    fn keep(&self) {
        while let Some(job) = self.next_job() {
            match job {
                Job::Spill(leaving) => {
                    self.write(&leaving.namespace, &leaving.state);
                    self.content().forget(&leaving);
                }
                Job::Write(place, state) => {
                    if !self.write(&place.namespace, &state) {
                        self.content().shelf.set_unwritten(place);
                    }
                }
                Job::Look => {
                    if let Some((disk, _)) = &self.disk
                        && let Err(error) = contained(|| disk.refresh())
                    {
                        log::info!("what others have stored cannot be seen: {error}");
                    }
                }
            }
            self.content().work.is_writing = false;
            self.work_changed.notify_all();
        }
    }

    /// Waits for the next piece of work; None to end.
    fn next_job(&self) -> Option<Job> {
        let mut content = self.content();
        loop {
            let now = Instant::now();
            if let Some(job) = self.choose(&mut content, now) {
                content.work.is_writing = !matches!(job, Job::Look);
                return Some(job);
            }
            if content.work.is_stopping {
                return None;
            }
            content = match self.rest(&content, now) {
                None => self
                    .work_changed
                    .wait(content)
                    .unwrap_or_else(std::sync::PoisonError::into_inner),
                Some(rest) => {
                    self.work_changed
                        .wait_timeout(content, rest)
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .0
                }
            };
        }
    }

    fn choose(&self, content: &mut Content, now: Instant) -> Option<Job> {
        if content.work.gives_up {
            return None;
        }
        if let Some(leaving) = content.work.spills.pop_front() {
            content.work.spill_bytes -= leaving.state.bytes;
            return Some(Job::Spill(leaving));
        }
        let hurries = content.work.flushes > 0 || content.work.is_stopping;
        while let Some((due, place)) = content.shelf.next_due() {
            if due > now && !hurries {
                break;
            }
            content.shelf.set_due(place, None);
            if let (Some(tokens), Some(layers)) =
                (content.shelf.tokens(place), content.shelf.layers(place))
            {
                let state = State {
                    tokens,
                    bytes: layers.bytes,
                    trims_to: layers.trims_to,
                    layers: Some(layers.layers),
                };
                return Some(Job::Write(place, state));
            }
        }
        let limit = self.idle_after().and_then(|after| now.checked_sub(after));
        if let Some(idle) = limit.and_then(|limit| content.shelf.take_idle(limit)) {
            return self.see_off(content, vec![idle]).pop().map(Job::Spill);
        }
        if content.work.next_look(now).is_some_and(|next| next <= now) {
            content.work.has_missed = false;
            content.work.looked = Some(now);
            return Some(Job::Look);
        }
        None
    }

    /// How long there is nothing to do; None: until somebody says so.
    fn rest(&self, content: &Content, now: Instant) -> Option<Duration> {
        let due = content.shelf.next_due().map(|(due, _)| due);
        let idle = content
            .shelf
            .oldest_use()
            .zip(self.idle_after())
            .and_then(|(used, idle_after)| used.checked_add(idle_after));
        let look = content.work.next_look(now);
        let next = due.into_iter().chain(idle).chain(look).min()?;
        Some(next.saturating_duration_since(now))
    }

    fn idle_after(&self) -> Option<Duration> {
        self.options.disk.as_ref().and_then(|disk| disk.idle_after)
    }

    /// Writes what is new of a state; whether all of it is on disk now.
    fn write(&self, namespace: &Namespace, state: &State) -> bool {
        let (Some((disk, _)), Some(layers)) = (&self.disk, &state.layers) else {
            return false;
        };
        let written = contained(|| {
            let engine = engine()?;
            let layout = transfer::layout(engine, layers)?;
            let mut rows = transfer::Rows::new(engine, layers, layout.len());
            disk.store(namespace, &layout, &state.tokens, &mut |index, range| {
                rows.read(index, range)
            })
        });
        let mut content = self.content();
        match written {
            Ok(0) => true,
            Ok(bytes) => {
                content.counters.writes += 1;
                content.counters.written_bytes += bytes;
                content.work.is_failing = false;
                true
            }
            Err(error) => {
                content.counters.failed_writes += 1;
                content.work.failures += 1;
                content.work.gives_up = content.work.is_stopping && error.kind() == Kind::Locked;
                // Said once, not for each state: a full disk stays full.
                let is_news = !std::mem::replace(&mut content.work.is_failing, true);
                content.work.last_failure = Some((error.kind(), error.message().to_owned()));
                drop(content);
                if is_news {
                    log::warn!("states cannot be written: {error}");
                }
                false
            }
        }
    }
}

/// Does work whose panic must not end the thread: who waits for it would wait for ever.
fn contained<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        // Dropping it may panic, too.
        std::mem::forget(payload);
        Err(Error::new(
            Kind::Panic,
            "the cache's background work panicked",
        ))
    })
}

impl Content {
    /// Takes away the mark of an entry that has left memory.
    fn forget(&mut self, leaving: &Leaving) {
        if let Some(ticket) = leaving.ticket {
            self.in_use
                .remove(&leaving.namespace, &leaving.state.tokens, ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::cache::{Cache, CacheOptions, DiskOptions};

    /// What a log callback may do there.
    #[test]
    fn the_engine_thread_does_not_wait_for_the_writer() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(CacheOptions {
            disk: Some(DiskOptions::new(folder.path())),
            ..CacheOptions::default()
        })
        .unwrap();
        let (sender, done) = mpsc::channel();
        std::thread::spawn(move || {
            let outcomes = engine().unwrap().run(move |_| {
                let outcomes = [
                    engine().map(|_| ()),
                    cache.flush(),
                    cache.trim(0).map(|_| ()),
                ];
                drop(cache);
                outcomes.map(|outcome| outcome.unwrap_err().kind())
            });
            sender.send(outcomes.unwrap()).unwrap();
        });
        let kinds = done.recv_timeout(Duration::from_secs(60));
        assert_eq!(kinds.expect("nobody waits for itself"), [Kind::Busy; 3]);
    }
}
