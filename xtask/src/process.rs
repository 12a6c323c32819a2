//! Running other programs.

use std::{
    io::ErrorKind,
    process::{Command, Output},
};

use crate::Result;

/// Runs `command` with its output on ours; fails when it does.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .map_err(|error| cannot_start(command, &error))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{}: {status}", name(command)).into())
}

/// What `command` prints; fails when it does.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .output()
        .map_err(|error| cannot_start(command, &error))?;
    if status.success() {
        return Ok(String::from_utf8(stdout)?);
    }
    let stderr = String::from_utf8_lossy(&stderr);
    Err(format!("{}: {status}\n{stderr}", name(command)).into())
}

fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => format!("{} is not installed", name(command)),
        _ => format!("{}: {error}", name(command)),
    }
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}
