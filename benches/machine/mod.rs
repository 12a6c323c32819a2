//! What makes measurements on shared machines comparable.

use std::{env, process::Command};

use memmap2::MmapMut;

/// The argument that makes this program the one that touches memory.
pub(crate) const TOUCHING_SIDE: &str = "--touch-free-memory";

const BYTES: usize = 2 << 30;

/// Has the machine's free memory at hand for the process that starts next. A virtual machine gives
/// free memory back to its host within seconds; to get it again can take ten times as long as to
/// read a file into it, and would be all that a new process's row shows. Done by another process:
/// what this one had at its peak would count for its children.
pub(crate) fn touch_free_memory() {
    let this = env::current_exe().expect("this program has a path");
    let status = Command::new(this).arg(TOUCHING_SIDE).status();
    assert!(status.is_ok_and(|status| status.success()));
}

/// What that process does.
pub(crate) fn touching_side() {
    let mut memory = MmapMut::map_anon(BYTES).expect("there is memory");
    // A hint alone.
    #[cfg(target_os = "linux")]
    let _ = memory.advise(memmap2::Advice::HugePage);
    memory.chunks_mut(4096).for_each(|page| page[0] = 1);
    std::hint::black_box(&memory);
}
