//! The engine's loop.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Instant,
};

use crossbeam_channel::{Receiver, Sender, TryRecvError};

use super::{Command, Mlx, Progress, Task, turns::Turns};
use crate::error::Result;

type Tasks = Turns<Box<dyn Task>>;

/// Steps the tasks in turn and takes commands between steps.
pub(super) fn main(inbox: &Receiver<Command>, ready: &Sender<Result<()>>) {
    let mlx = match Mlx::prepare() {
        Ok(mlx) => mlx,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    super::owned::this_is_the_engine();
    let _ = ready.send(Ok(()));
    let mut tasks = Tasks::new();
    while take_commands(inbox, &mlx, &mut tasks) {
        let Some(mut turn) = tasks.take_next() else {
            continue;
        };
        let started = Instant::now();
        let progress = catch_unwind(AssertUnwindSafe(|| turn.item.step(&mlx)));
        let time = started.elapsed();
        match progress {
            Ok(Progress::Again) => tasks.put_back(turn, time, false),
            Ok(Progress::Waiting) => tasks.put_back(turn, time, true),
            Ok(Progress::Done) => discard(tasks.leave(turn, time)),
            Err(payload) => {
                std::mem::forget(payload);
                log::error!("a step of the engine panicked; its task is dropped");
                discard(tasks.leave(turn, time));
            }
        }
        if tasks.is_empty() {
            mlx.rest();
        }
    }
    tasks.into_items().for_each(discard);
    mlx.finish();
}

/// A task that panicked may panic again when it is dropped; the engine must outlive that.
fn discard(task: Box<dyn Task>) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(task))) {
        std::mem::forget(payload);
    }
}

/// Takes all commands that are there; waits for one while no task can be stepped. False to stop.
fn take_commands(inbox: &Receiver<Command>, mlx: &Mlx, tasks: &mut Tasks) -> bool {
    loop {
        let command = if tasks.all_wait() {
            inbox.recv().map_err(|_| TryRecvError::Disconnected)
        } else {
            inbox.try_recv()
        };
        match command {
            Ok(command) => {
                if !obey(command, mlx, tasks) {
                    return false;
                }
            }
            Err(TryRecvError::Empty) => return true,
            Err(TryRecvError::Disconnected) => return false,
        }
    }
}

fn obey(command: Command, mlx: &Mlx, tasks: &mut Tasks) -> bool {
    match command {
        Command::Run(work) => {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| work(mlx))) {
                std::mem::forget(payload);
                log::error!("work on the engine panicked");
            }
        }
        Command::Start(task) => {
            if tasks.is_empty() {
                mlx.work();
            }
            tasks.add(task);
        }
        Command::Wake => tasks.wake(),
        Command::Stop => return false,
    }
    true
}
