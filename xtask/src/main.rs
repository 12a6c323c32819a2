//! The project's own commands: `cargo xtask COMMAND`.

mod api_notes;
mod dist;
mod files;
mod header;
mod layout;
mod licences;
mod mlx;
mod process;
mod source;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const USAGE: &str = "\
usage: cargo xtask COMMAND
  mlx       prepare MLX on Linux (once a clone; quick when nothing changed)
  header    write include/mlxb.h and what goes with it from src/ffi
  header --check
            fail when that would change anything
  api-notes fail unless Swift is told of every item of the header
  dist [PROFILE]
            link the library as it is shipped into target/dist (profile: release)
  exports   fail unless it exports exactly the header's symbols
  licences  fail when a dependency's licence is not allowed";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["mlx"] => mlx::prepare(),
        ["header"] => header::header(false),
        ["header", "--check"] => header::header(true),
        ["api-notes"] => api_notes::check(),
        ["dist"] => dist::dist("release"),
        ["dist", profile] => dist::dist(profile),
        ["exports"] => dist::check_exports(),
        ["licences"] => licences::check(),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the checkout.
fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask
        .parent()
        .expect("xtask is a folder in the root")
        .to_owned()
}
