//! `cargo xtask dist`: the library as it is shipped, in `target/dist`.
//!
//! Cargo's own cdylib also exports what dependencies mark `no_mangle` and bears no soname, so
//! the static library is linked here, with the header's symbols as the list of exports.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Result,
    files::remove,
    process::{output, run},
    source::package_version,
};

const MACOS: bool = cfg!(target_os = "macos");

/// Builds the library with a Cargo profile, links it and lays out `target/dist`.
pub(crate) fn dist(profile: &str) -> Result<()> {
    let root = crate::root();
    run(Command::new(env!("CARGO"))
        .args(["build", "--locked", "--package=mlxb", "--lib"])
        .arg(format!("--profile={profile}"))
        .current_dir(&root))?;
    let archive = target(&root)
        .join(if profile == "dev" { "debug" } else { profile })
        .join("libmlxb.a");

    let exports = root.join("include/mlxb.exports");
    let symbols = fs::read_to_string(&exports)?;
    let symbols: Vec<&str> = symbols.lines().collect();
    let partial = target(&root).join("dist.partial");
    remove(&partial)?;
    fs::create_dir_all(partial.join("lib/pkgconfig"))?;
    fs::create_dir_all(partial.join("include"))?;
    for name in ["mlxb.h", "module.modulemap", "CMLXB.apinotes"] {
        let name = Path::new("include").join(name);
        fs::copy(root.join(&name), partial.join(&name))?;
    }
    fs::write(
        partial.join("lib/pkgconfig/mlxb.pc"),
        pkg_config(&package_version(&root)?),
    )?;
    if MACOS {
        link_macos(&archive, &symbols, &partial)?;
    } else {
        link_linux(&root, &archive, &symbols, &partial)?;
    }
    let finished = target(&root).join("dist");
    remove(&finished)?;
    fs::rename(partial, finished)?;
    Ok(())
}

/// Fails unless the shipped library exports exactly the symbols of the header.
pub(crate) fn check_exports() -> Result<()> {
    let root = crate::root();
    let library =
        target(&root)
            .join("dist/lib")
            .join(if MACOS { "libmlxb.dylib" } else { "libmlxb.so" });
    let arguments: &[&str] = if MACOS {
        &["-gU"]
    } else {
        &["-D", "--defined-only"]
    };
    let table = output(Command::new("nm").args(arguments).arg(&library))?;
    let mut exported: Vec<_> = table
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .map(|name| if MACOS { &name[1..] } else { name })
        .collect();
    exported.sort_unstable();
    let wanted = fs::read_to_string(root.join("include/mlxb.exports"))?;
    let wanted: Vec<_> = wanted.lines().collect();
    let missing = wanted.iter().filter(|name| !exported.contains(name));
    let surplus = exported.iter().filter(|name| !wanted.contains(name));
    let differences: Vec<_> = missing
        .map(|name| format!("not exported: {name}"))
        .chain(surplus.map(|name| format!("exported, but not in mlxb.exports: {name}")))
        .collect();
    if differences.is_empty() {
        return Ok(());
    }
    Err(differences.join("\n").into())
}

fn link_linux(root: &Path, archive: &Path, symbols: &[&str], dist: &Path) -> Result<()> {
    let lib = dist.join("lib");
    let soname = "libmlxb.so.0";
    let script = dist.join("exports.map");
    fs::write(
        &script,
        format!("{{ global: {}; local: *; }};\n", symbols.join("; ")),
    )?;
    let wheel = root.join(".mlx/wheel");
    run(Command::new("cc")
        .args(["-shared", "-o"])
        .arg(lib.join(soname))
        .args(symbols.iter().map(|name| format!("-Wl,--undefined={name}")))
        .arg(archive)
        .arg(format!("-L{}", wheel.join("mlx/lib").display()))
        .args([
            "-Wl,--as-needed",
            "-lmlx",
            "-lstdc++",
            "-lgcc_s",
            "-lm",
            "-lpthread",
            "-ldl",
        ])
        .arg(format!("-Wl,--version-script={}", script.display()))
        .arg(format!("-Wl,-soname,{soname}"))
        // MLX's threads and thread-local streams do not survive dlclose.
        .args(["-Wl,-z,nodelete", "-Wl,-z,relro,-z,now", "-Wl,-z,defs"])
        .args(["-Wl,--gc-sections", "-Wl,--build-id"])
        .arg("-Wl,--enable-new-dtags,-rpath,$ORIGIN:$ORIGIN/mlx/lib"))?;
    fs::remove_file(script)?;
    symlink(soname, lib.join("libmlxb.so"))?;

    // libmlx.so looks for its BLAS in ../../mlx_cpu.libs: the wheel's own layout is kept.
    for folder in ["mlx/lib", "mlx_cpu.libs"] {
        fs::create_dir_all(lib.join(folder))?;
        for entry in fs::read_dir(wheel.join(folder))? {
            let entry = entry?;
            let copy = lib.join(folder).join(entry.file_name());
            if entry.file_type()?.is_symlink() {
                symlink(fs::read_link(entry.path())?, copy)?;
            } else {
                fs::copy(entry.path(), copy)?;
            }
        }
    }
    Ok(())
}

fn link_macos(archive: &Path, symbols: &[&str], dist: &Path) -> Result<()> {
    let list = dist.join("exports.list");
    let names: String = symbols.iter().map(|name| format!("_{name}\n")).collect();
    fs::write(&list, names)?;
    run(Command::new("cc")
        .args(["-dynamiclib", "-o"])
        .arg(dist.join("lib/libmlxb.dylib"))
        .args(symbols.iter().map(|name| format!("-Wl,-u,_{name}")))
        .arg(archive)
        .args(["Metal", "Foundation", "Accelerate"].map(|name| format!("-Wl,-framework,{name}")))
        .args(["-lc++", "-lobjc", "-Wl,-dead_strip"])
        .arg(format!("-Wl,-exported_symbols_list,{}", list.display()))
        .arg("-Wl,-install_name,@rpath/libmlxb.dylib"))?;
    fs::remove_file(list)?;
    Ok(())
}

fn pkg_config(version: &str) -> String {
    format!(
        "\
prefix=${{pcfiledir}}/../..
libdir=${{prefix}}/lib
includedir=${{prefix}}/include

Name: mlxb
Description: Local language models on Apple's MLX, embedded
Version: {version}
Cflags: -I${{includedir}}
Libs: -L${{libdir}} -lmlxb
"
    )
}

/// Where Cargo builds.
fn target(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}
