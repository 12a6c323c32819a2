//! `cargo xtask mlx`: prepare MLX for Linux, where mlx-sys cannot build itself.
//!
//! Unpacks MLX's own wheel, compiles mlx-c from the mlx-sys sources that Cargo
//! fetched, generates the bindings, and tells Cargo of them in .cargo/mlx.toml,
//! which replaces mlx-sys's build script.
use std::{
    env,
    error::Error,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::UNIX_EPOCH,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    match env::args().nth(1).as_deref() {
        Some("mlx") if cfg!(target_os = "linux") => mlx(),
        Some("mlx") => Ok(println!("nothing to do: mlx-sys builds MLX itself here")),
        _ => Err("usage: cargo xtask mlx".into()),
    }
}

fn mlx() -> Result<()> {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = xtask.parent().unwrap();
    let (out, linux) = (root.join(".mlx"), xtask.join("linux"));
    let wheel = out.join("wheel");
    let mlx_c = package_dir(root, "mlx-sys")?.join("src/mlx-c");
    let compat = linux.join("compat.h");

    fs::create_dir_all(out.join("lib"))?;
    run(Command::new("python3")
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--upgrade",
            "--no-deps",
            "--target",
        ])
        .arg(&wheel)
        .arg("-r")
        .arg(xtask.join("requirements.txt")))?;

    use_openblas(&wheel.join("mlx_cpu.libs"))?;

    let mut sources = files(&mlx_c.join("mlx/c"), "cpp")?;
    sources.push(linux.join("shim.cpp"));
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .pic(true)
        .opt_level(2)
        .cargo_metadata(false)
        .warnings(false)
        .target(TARGET)
        .host(TARGET)
        .out_dir(out.join("lib"))
        .include(&mlx_c)
        .include(wheel.join("mlx/include"))
        .flag("-include")
        .flag(&compat)
        .files(sources)
        .try_compile("mlxc")?;

    // As mlx-sys's own build script calls bindgen, but for the half types.
    files(&mlx_c.join("mlx/c"), "h")?
        .iter()
        .fold(bindgen::builder(), |b, header| b.header(header.to_string_lossy()))
        .clang_args([format!("-I{}", mlx_c.display()), format!("-include{}", compat.display())])
        .blocklist_function("malloc|realloc")
        .blocklist_type("float16_t")
        .raw_line("#[repr(transparent)]\n#[derive(Clone, Copy, Debug, Default)]\npub struct float16_t(pub u16);")
        .generate()?
        .write_to_file(out.join("bindings.rs"))?;

    let (out, lib_dir) = (out.display(), wheel.join("mlx/lib"));
    let lib_dir = lib_dir.display();
    fs::write(
        root.join(".cargo/mlx.toml"),
        format!(
            "# Written by `cargo xtask mlx`.\n\
         [target.{TARGET}.mlx]\n\
         rustc-link-search = [\"native={out}/lib\", \"native={lib_dir}\"]\n\
         rustc-link-lib = [\"static=mlxc\", \"dylib=mlx\", \"dylib=stdc++\"]\n\
         rustc-env = {{ OUT_DIR = \"{out}\" }}\n\
         lib_dir = \"{lib_dir}\"\n\
         prepared = \"{}\"\n", // Cargo rebuilds mlx-sys when this changes
            UNIX_EPOCH.elapsed()?.as_secs()
        ),
    )?;
    Ok(())
}

/// Has the system's OpenBLAS, where there is one, stand in for the wheel's
/// reference BLAS: matrix products are some 50 times as fast.
fn use_openblas(libs: &Path) -> Result<()> {
    let openblas = format!("/usr/lib/{}-linux-gnu/libopenblas.so.0", env::consts::ARCH);
    if Path::new(&openblas).exists() {
        for blas in files(libs, "0")?
            .iter()
            .filter(|p| p.to_string_lossy().contains("/libblas"))
        {
            fs::remove_file(blas)?;
            std::os::unix::fs::symlink(&openblas, blas)?;
        }
    } else {
        eprintln!("no OpenBLAS: install libopenblas0 for fast matrix products");
    }
    Ok(())
}

const TARGET: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-unknown-linux-gnu"
} else {
    "x86_64-unknown-linux-gnu"
};

fn package_dir(root: &Path, name: &str) -> Result<PathBuf> {
    let json = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1"])
        .current_dir(root)
        .output()?
        .stdout;
    let metadata: serde_json::Value = serde_json::from_slice(&json)?;
    let manifest = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|p| p["name"] == name)
        .and_then(|p| p["manifest_path"].as_str())
        .ok_or_else(|| format!("{name} is not among the dependencies"))?;
    Ok(Path::new(manifest).parent().unwrap().to_owned())
}

fn files(dir: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found: Vec<_> = fs::read_dir(dir)?
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.extension() == Some(OsStr::new(extension)))
        .collect();
    found.sort();
    Ok(found)
}

fn run(command: &mut Command) -> Result<()> {
    match command.status()? {
        s if s.success() => Ok(()),
        s => Err(format!("{command:?}: {s}").into()),
    }
}
