//! `cargo xtask mlx`: prepare MLX for Linux, where mlx-sys cannot build itself.
//!
//! Unpacks MLX's own wheel into `.mlx/wheel`, compiles mlx-c from the mlx-sys sources that Cargo
//! fetched, generates the bindings, and tells Cargo of them in `.cargo/mlx.toml`, which replaces
//! mlx-sys's build script.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Result,
    files::{remove, with_extension},
    process::{output, run},
};

const TARGET: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-unknown-linux-gnu"
} else {
    "x86_64-unknown-linux-gnu"
};

/// To be raised when [`Recipe::make`] does something else with the same input.
const STEPS: u32 = 1;

/// Prepares MLX, unless the same preparation is already there.
pub(crate) fn prepare() -> Result<()> {
    if !cfg!(target_os = "linux") {
        println!("nothing to prepare: mlx-sys builds MLX itself here");
        return Ok(());
    }
    let root = crate::root();
    // One preparation at a time; the kernel lets go of the lock whatever happens to us.
    let folder = fs::File::open(root.join(".cargo"))?;
    folder.lock()?;

    let recipe = Recipe::of(&root)?;
    let config = recipe.cargo_config(&root);
    let config_file = root.join(".cargo/mlx.toml");
    let complete = root.join(".mlx/lib/libmlxc.a").exists();
    if complete && fs::read_to_string(&config_file).is_ok_and(|written| written == config) {
        return Ok(());
    }

    eprintln!("preparing MLX in .mlx (about two minutes, once)");
    let partial = root.join(".mlx.partial");
    remove(&partial)?;
    fs::create_dir_all(&partial)?;
    recipe.make(&partial)?;

    remove(&root.join(".mlx"))?;
    fs::rename(&partial, root.join(".mlx"))?;
    let partial_config = root.join(".cargo/mlx.toml.partial");
    fs::write(&partial_config, config)?;
    fs::rename(partial_config, config_file)?;
    Ok(())
}

/// All that a preparation is made from.
#[derive(Hash)]
struct Recipe {
    root: PathBuf,
    requirements: String,
    compat: String,
    shim: String,
    openblas: Option<PathBuf>,
    mlx_c: PathBuf,
    steps: u32,
}

impl Recipe {
    fn of(root: &Path) -> Result<Self> {
        let read = |name: &str| fs::read_to_string(root.join("xtask").join(name));
        Ok(Self {
            root: root.to_owned(),
            requirements: read("requirements.txt")?,
            compat: read("linux/compat.h")?,
            shim: read("linux/shim.cpp")?,
            openblas: openblas(),
            mlx_c: package_folder(root, "mlx-sys")?.join("src/mlx-c"),
            steps: STEPS,
        })
    }

    fn make(&self, out: &Path) -> Result<()> {
        let xtask = self.root.join("xtask");
        let linux = xtask.join("linux");
        let compat = linux.join("compat.h");
        let wheel = out.join("wheel");
        // Both packages in one call: a second one would delete the first one's files.
        run(Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--no-deps"])
            .args(["--disable-pip-version-check", "--root-user-action=ignore"])
            .args(["--require-hashes", "--only-binary=:all:", "--target"])
            .arg(&wheel)
            .arg("-r")
            .arg(xtask.join("requirements.txt")))?;
        self.replace_blas(&wheel.join("mlx_cpu.libs"))?;

        let mut sources = with_extension(&self.mlx_c.join("mlx/c"), "cpp")?;
        sources.push(linux.join("shim.cpp"));
        let objects = out.join("objects");
        cc::Build::new()
            .cpp(true)
            .std("c++20")
            .pic(true)
            .opt_level(2)
            .debug(false)
            .cargo_metadata(false)
            .warnings(false)
            .target(TARGET)
            .host(TARGET)
            .out_dir(&objects)
            .include(&self.mlx_c)
            .include(wheel.join("mlx/include"))
            .flag("-include")
            .flag(&compat)
            .files(sources)
            .try_compile("mlxc")?;
        fs::create_dir_all(out.join("lib"))?;
        fs::rename(objects.join("libmlxc.a"), out.join("lib/libmlxc.a"))?;
        remove(&objects)?;

        // As mlx-sys's own build script calls bindgen, but for the half types.
        with_extension(&self.mlx_c.join("mlx/c"), "h")?
            .iter()
            .fold(bindgen::builder(), |builder, header| {
                builder.header(header.to_string_lossy())
            })
            .clang_arg(format!("-I{}", self.mlx_c.display()))
            .clang_arg(format!("-include{}", compat.display()))
            .blocklist_function("malloc|realloc")
            .blocklist_type("float16_t")
            .raw_line("#[repr(transparent)]")
            .raw_line("#[derive(Clone, Copy, Debug, Default)]")
            .raw_line("pub struct float16_t(pub u16);")
            .generate()?
            .write_to_file(out.join("bindings.rs"))?;
        Ok(())
    }

    /// Has OpenBLAS, where the system has it, stand in for the wheel's reference BLAS, which
    /// multiplies matrices some 10 to 50 times as slowly.
    fn replace_blas(&self, libraries: &Path) -> Result<()> {
        let Some(openblas) = &self.openblas else {
            eprintln!("no OpenBLAS found: install libopenblas0 for fast matrix products");
            return Ok(());
        };
        for library in with_extension(libraries, "0")? {
            if library
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("libblas"))
            {
                fs::remove_file(&library)?;
                symlink(openblas, &library)?;
            }
        }
        Ok(())
    }

    /// What Cargo takes in place of mlx-sys's build script.
    fn cargo_config(&self, root: &Path) -> String {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        let out = root.join(".mlx");
        let out = out.display();
        format!(
            "# Written by `cargo xtask mlx`.\n\
             [build]\n\
             rustc-wrapper = \"\"\n\n\
             [target.{TARGET}.mlx]\n\
             rustc-link-search = [\"native={out}/lib\", \"native={out}/wheel/mlx/lib\"]\n\
             rustc-link-lib = [\"static=mlxc\", \"dylib=mlx\", \"dylib=stdc++\"]\n\
             rustc-env = {{ OUT_DIR = \"{out}\" }}\n\
             lib_dir = \"{out}/wheel/mlx/lib\"\n\
             recipe = \"{:016x}\" # Cargo rebuilds mlx-sys when this changes\n",
            hasher.finish()
        )
    }
}

fn openblas() -> Option<PathBuf> {
    let folders = [
        format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH),
        "/usr/lib64".to_owned(),
        "/usr/lib".to_owned(),
    ];
    folders
        .iter()
        .map(|folder| Path::new(folder).join("libopenblas.so.0"))
        .find(|library| library.exists())
}

/// Where Cargo keeps the sources of a dependency.
fn package_folder(root: &Path, name: &str) -> Result<PathBuf> {
    let metadata = output(
        Command::new(env!("CARGO"))
            .args(["metadata", "--locked", "--format-version=1"])
            .current_dir(root),
    )?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
    let manifest = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|package| package["name"] == name)
        .and_then(|package| package["manifest_path"].as_str())
        .ok_or_else(|| format!("not among the dependencies: {name}"))?;
    let folder = Path::new(manifest).parent();
    Ok(folder.expect("a manifest is in a folder").to_owned())
}
