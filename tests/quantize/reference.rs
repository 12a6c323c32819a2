//! Running mlx-lm.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use mlxb::quantize::{
    FloatType, Matrices, Packings, QuantizationMode, QuantizationParameters, QuantizeOptions,
};
use serde_json::{Map, Value, json};

/// A conversion for both sides.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) source: PathBuf,
    pub(crate) matrices: Matrices,
    pub(crate) dtype: Option<FloatType>,
}

/// How modules are packed that nothing else is said of.
pub(crate) fn packing(
    mode: QuantizationMode,
    bits: usize,
    group_size: usize,
) -> QuantizationParameters {
    QuantizationParameters::new(mode, bits, group_size).unwrap()
}

pub(crate) fn all_alike(parameters: QuantizationParameters) -> Matrices {
    Matrices::Quantize(Packings {
        default: parameters,
        recipe: None,
        modules: Vec::new(),
    })
}

impl Case {
    /// Where each side writes, in a folder for all cases.
    pub(crate) fn ours(&self, scratch: &Path) -> PathBuf {
        scratch.join("ours").join(&self.name)
    }

    pub(crate) fn theirs(&self, scratch: &Path) -> PathBuf {
        scratch.join("theirs").join(&self.name)
    }

    pub(crate) fn options(&self) -> QuantizeOptions<'static> {
        let mut options = QuantizeOptions::new(self.matrices.clone());
        options.dtype = self.dtype;
        options
    }

    /// As the script takes it. `recipe` is mlx-lm's name.
    fn for_mlx_lm(&self, scratch: &Path) -> Value {
        let mut options = Map::new();
        let mut modules = Value::Null;
        match &self.matrices {
            Matrices::Keep => {}
            Matrices::Dequantize => drop(options.insert("dequantize".into(), true.into())),
            Matrices::Quantize(packings) => {
                options.insert("quantize".into(), true.into());
                options.insert("q_mode".into(), packings.default.mode().name().into());
                options.insert("q_bits".into(), packings.default.bits().into());
                options.insert("q_group_size".into(), packings.default.group_size().into());
                if let Some(recipe) = packings.recipe {
                    options.insert("quant_predicate".into(), recipe.name().into());
                } else if !packings.modules.is_empty() {
                    let said = packings.modules.iter().map(|(path, said)| {
                        let said = said.map_or(Value::Bool(false), |said| {
                            json!({
                                "group_size": said.group_size(),
                                "bits": said.bits(),
                                "mode": said.mode().name(),
                            })
                        });
                        (path.clone(), said)
                    });
                    modules = Value::Object(said.collect());
                }
            }
        }
        if let Some(dtype) = self.dtype {
            options.insert("dtype".into(), dtype.name().into());
        }
        json!({
            "source": self.source,
            "target": self.theirs(scratch),
            "options": options,
            "modules": modules,
        })
    }
}

/// Logits that mlx-lm is to compute.
pub(crate) struct Logits {
    pub(crate) folder: PathBuf,
    pub(crate) ids: Vec<u32>,
    pub(crate) file: PathBuf,
}

impl Logits {
    pub(crate) fn read(&self) -> Vec<f32> {
        let bytes = fs::read(&self.file).unwrap();
        let values = bytes.as_chunks::<4>().0.iter();
        values.map(|value| f32::from_le_bytes(*value)).collect()
    }
}

/// Has mlx-lm convert and compute.
pub(crate) fn run(cases: &[Case], logits: &[Logits], scratch: &Path) {
    fs::create_dir_all(scratch.join("theirs")).unwrap();
    let conversions = cases.iter().map(|case| case.for_mlx_lm(scratch));
    let logits = logits
        .iter()
        .map(|logits| json!({"folder": logits.folder, "ids": logits.ids, "logits": logits.file}));
    let file = scratch.join("cases.json");
    fs::write(
        &file,
        Value::Array(conversions.chain(logits).collect()).to_string(),
    )
    .unwrap();
    python("tests/quantize/reference.py", &[&file]);
}

/// The tiny random models of these names, by name.
pub(crate) fn make_models(names: &[&str], scratch: &Path) -> PathBuf {
    let folder = scratch.join("models");
    let mut arguments = vec![folder.as_path()];
    arguments.extend(names.iter().map(Path::new));
    python("tests/parity/make_models.py", &arguments);
    folder
}

pub(crate) fn python(script: &str, arguments: &[&Path]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(root.join("tools/python"))
        .arg(script)
        .args(arguments)
        .current_dir(root)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{script} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
