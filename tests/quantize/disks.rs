//! Disks that are full, fill up, or cannot be written.

use std::{fs, path::Path, process::Command};

use mlxb::{Flow, Kind, quantize::quantize};

use crate::{
    folder::names,
    hostile::{check, four, to_float16},
    support::Folder,
};

/// A small file system of its own; mounting takes root.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(kilobytes: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={kilobytes}k");
        run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs"], dir.path());
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run("umount", &[], self.path());
    }
}

fn run(program: &str, arguments: &[&str], path: &Path) {
    let status = Command::new(program).args(arguments).arg(path).status();
    assert!(status.unwrap().success(), "{program} takes root");
}

#[test]
fn a_disk_that_is_too_small() {
    let (folder, disk) = (Folder::new(), SmallDisk::mount(128));
    let error = quantize(&folder.path, &disk.path().join("target"), to_float16()).unwrap_err();
    check(&error, Kind::NoSpace, &["bytes are needed", "target"]);
    assert!(names(disk.path()).is_empty());
}

#[test]
fn a_disk_that_fills_up_meanwhile() {
    for leave in [0, 40_000, 100_000] {
        let (folder, disk) = (Folder::new(), SmallDisk::mount(2048));
        let filler = disk.path().join("filler");
        let mut fill = |done: u64, _: u64| {
            if done == 0 {
                // Until nothing more goes in, and then a little less.
                let _ = fs::write(&filler, vec![1; 4 << 20]);
                let length = fs::metadata(&filler).unwrap().len();
                let file = fs::OpenOptions::new().write(true).open(&filler).unwrap();
                file.set_len(length.saturating_sub(leave)).unwrap();
            }
            Flow::Continue
        };
        let mut options = to_float16();
        options.on_progress = Some(&mut fill);
        let error = quantize(&folder.path, &disk.path().join("target"), options).unwrap_err();
        check(&error, Kind::NoSpace, &["safetensors"]);
        assert_eq!(names(disk.path()), ["filler"]);
    }
}

#[test]
fn a_disk_that_is_read_only() {
    let (folder, disk) = (Folder::new(), SmallDisk::mount(2048));
    run("mount", &["-o", "remount,ro"], disk.path());
    let error = quantize(&folder.path, &disk.path().join("target"), four()).unwrap_err();
    check(&error, Kind::Io, &[&*disk.path().to_string_lossy()]);
}
