//! The one thread that owns every MLX array.
//!
//! MLX does not support use from several threads at once and its streams belong to threads,
//! so all MLX work of the process happens here: [`Engine::run`] for one short piece of work,
//! [`Engine::start`] for a [`Task`] that is stepped in turn with others. What lives on the
//! engine is held elsewhere as [`Owned`], which only a holder of [`Mlx`] can open, and there is
//! only one `Mlx`: the engine thread's.

mod lifetime;
pub(crate) mod mlx;
mod owned;
mod pages;
mod thread;
mod turns;

use std::{
    panic::resume_unwind,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use crossbeam_channel::{Sender, bounded, unbounded};
use once_cell::sync::OnceCell;

pub(crate) use mlx::Mlx;
pub(crate) use owned::{Owned, is_engine_thread};
pub(crate) use pages::{Pages, adopted_bytes, adopted_peak_bytes};

use crate::error::{Error, Kind, Result};

/// Work in steps: a decoded token, a chunk of a prompt.
///
/// A task tells its owner how it ended through a channel of its own; dropping the task drops
/// its end of the channel, so a task that panics reads as "disconnected" there.
pub(crate) trait Task: Send {
    /// One step. Of all tasks, the engine steps the one that has had the least of its time.
    fn step(&mut self, mlx: &Mlx) -> Progress;
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More to do.
    Again,
    /// Nothing to do until somebody calls [`Engine::wake`]: the owner who made room, or the task
    /// whose results this one waits for.
    Waiting,
    /// Finished: the task is dropped.
    Done,
}

/// A short piece of work.
type Work = Box<dyn FnOnce(&Mlx) + Send>;

/// A message to the engine thread.
enum Command {
    Run(Work),
    Start(Box<dyn Task>),
    Wake,
    Stop,
}

/// The handle of the engine thread. There is one a process.
pub(crate) struct Engine {
    commands: Sender<Command>,
    /// Taken once, at exit.
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Set once, before the thread is asked to end.
    stopping: AtomicBool,
    process: u32,
}

static ENGINE: OnceCell<Engine> = OnceCell::new();

/// The engine, started by the first call.
///
/// # Errors
/// [`Kind::Unsupported`] in a process forked after the engine started, [`Kind::Cancelled`] in one
/// that exits, [`Kind::Backend`] when MLX cannot be prepared, [`Kind::Busy`] on the engine thread
/// itself, as in a log callback.
pub(crate) fn engine() -> Result<&'static Engine> {
    let engine = ENGINE.get_or_try_init(Engine::launch)?;
    if engine.process != std::process::id() {
        return Err(Error::new(
            Kind::Unsupported,
            "this process was forked after the library was first used: load it in the child alone",
        ));
    }
    if engine.stopping.load(Ordering::Acquire) {
        return Err(stopped());
    }
    if is_engine_thread() {
        return Err(Error::new(
            Kind::Busy,
            "the engine's own thread cannot wait for itself",
        ));
    }
    Ok(engine)
}

/// Sends work that nobody waits for, if the engine still runs; else gives it back.
fn run_later(work: Work) -> Result<(), Work> {
    let Some(engine) = ENGINE.get() else {
        return Err(work);
    };
    if engine.process != std::process::id() {
        return Err(work);
    }
    engine
        .commands
        .send(Command::Run(work))
        .map_err(|failed| match failed.into_inner() {
            Command::Run(work) => work,
            _ => unreachable!("the command that was sent comes back"),
        })
}

/// Has the engine, if it runs, look again at the tasks that wait.
pub(crate) fn wake() {
    if let Some(engine) = ENGINE.get() {
        engine.wake();
    }
}

impl Engine {
    fn launch() -> Result<Self> {
        let (commands, inbox) = unbounded();
        let (ready, prepared) = bounded(1);
        let thread = std::thread::Builder::new()
            .name("mlxb-engine".into())
            .spawn(move || thread::main(&inbox, &ready))
            .map_err(|error| Error::io("starting the engine thread", error))?;
        prepared
            .recv()
            .unwrap_or_else(|_| Err(Error::new(Kind::Panic, "the engine did not start")))?;
        lifetime::stop_at_exit();
        Ok(Self {
            commands,
            thread: Some(thread).into(),
            stopping: AtomicBool::new(false),
            process: std::process::id(),
        })
    }

    /// Runs `work` on the engine thread, between two steps of others, and waits for its answer.
    ///
    /// # Errors
    /// [`Kind::Cancelled`] once the process is exiting. A panic in `work` goes on here.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Mlx) -> T + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = bounded(1);
        self.send(Command::Run(Box::new(move |mlx| {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(mlx)));
            // Nobody waits any more: nothing to tell.
            let _ = reply.send(outcome);
        })))?;
        match answer.recv() {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(payload)) => resume_unwind(payload),
            Err(_) => Err(stopped()),
        }
    }

    /// Adds a task to the round.
    ///
    /// # Errors
    /// [`Kind::Cancelled`] once the process is exiting.
    pub(crate) fn start(&self, task: Box<dyn Task>) -> Result<()> {
        self.send(Command::Start(task))
    }

    /// Has the engine look again at the tasks that wait.
    pub(crate) fn wake(&self) {
        // Once the engine has stopped there is nothing to wake.
        let _ = self.commands.send(Command::Wake);
    }

    fn send(&self, command: Command) -> Result<()> {
        self.commands.send(command).map_err(|_| stopped())
    }

    /// Why the engine dropped a task before its end.
    pub(crate) fn dropped(&self, what: &str) -> Error {
        if self.stopping.load(Ordering::Acquire) {
            return stopped();
        }
        Error::new(Kind::Panic, format!("a bug: the engine dropped {what}"))
    }

    /// Stops at the next step boundary and waits for the thread to end.
    fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let _ = self.commands.send(Command::Stop);
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // A log callback may end the process on the engine thread itself.
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// Why a call comes back that the engine did not finish.
pub(crate) fn stopped() -> Error {
    Error::new(Kind::Cancelled, "the process is exiting")
}
