//! The engine's loop.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crossbeam_channel::{Receiver, Sender, TryRecvError};

use super::{Command, Mlx, Progress, Task};
use crate::error::Result;

struct Entry {
    task: Box<dyn Task>,
    waiting: bool,
}

/// Goes round the tasks, one step each, and takes commands between steps.
pub(super) fn main(inbox: &Receiver<Command>, ready: &Sender<Result<()>>) {
    let mlx = match Mlx::prepare() {
        Ok(mlx) => mlx,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let _ = ready.send(Ok(()));
    let mut tasks: Vec<Entry> = Vec::new();
    while take_commands(inbox, &mlx, &mut tasks) {
        let mut index = 0;
        while index < tasks.len() {
            if tasks[index].waiting {
                index += 1;
                continue;
            }
            // Commands are short; those that wait must not wait for a whole round.
            if !take_ready_commands(inbox, &mlx, &mut tasks) {
                return shut_down(&mlx, tasks);
            }
            let entry = &mut tasks[index];
            match catch_unwind(AssertUnwindSafe(|| entry.task.step(&mlx))) {
                Ok(Progress::Again) => index += 1,
                Ok(Progress::Waiting) => {
                    entry.waiting = true;
                    index += 1;
                }
                Ok(Progress::Done) => discard(tasks.remove(index).task),
                Err(payload) => {
                    std::mem::forget(payload);
                    log::error!("a step of the engine panicked; its task is dropped");
                    discard(tasks.remove(index).task);
                }
            }
        }
    }
    shut_down(&mlx, tasks);
}

fn shut_down(mlx: &Mlx, tasks: Vec<Entry>) {
    for entry in tasks {
        discard(entry.task);
    }
    mlx.finish();
}

/// A task that panicked may panic again when it is dropped; the engine must outlive that.
fn discard(task: Box<dyn Task>) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(task))) {
        std::mem::forget(payload);
    }
}

/// Takes all commands that are there; waits for one when no task can be stepped. False to stop.
fn take_commands(inbox: &Receiver<Command>, mlx: &Mlx, tasks: &mut Vec<Entry>) -> bool {
    while tasks.iter().all(|entry| entry.waiting) {
        match inbox.recv() {
            Ok(command) => {
                if !obey(command, mlx, tasks) {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
    take_ready_commands(inbox, mlx, tasks)
}

fn take_ready_commands(inbox: &Receiver<Command>, mlx: &Mlx, tasks: &mut Vec<Entry>) -> bool {
    loop {
        match inbox.try_recv() {
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

fn obey(command: Command, mlx: &Mlx, tasks: &mut Vec<Entry>) -> bool {
    match command {
        Command::Run(work) => {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| work(mlx))) {
                std::mem::forget(payload);
                log::error!("work on the engine panicked");
            }
        }
        Command::Start(task) => tasks.push(Entry {
            task,
            waiting: false,
        }),
        Command::Wake => tasks.iter_mut().for_each(|entry| entry.waiting = false),
        Command::Stop => return false,
    }
    true
}
