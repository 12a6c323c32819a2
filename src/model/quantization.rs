//! How the weights of a folder are packed: what its configuration says, and what the shapes say
//! where it is silent.

use std::{collections::HashMap, ffi::CStr};

use serde_json::{Map, Value};

use super::{config::Fields, module_path};
use crate::{
    error::{Error, Kind, Result},
    escape::Escaped,
};

/// The form of packed weights, as MLX names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuantizationMode {
    /// Integers with a scale and a bias for each group, of the model's own float type.
    Affine,
    /// 4-bit floats with a power of two for each 32.
    Mxfp4,
    /// 8-bit floats with a power of two for each 32.
    Mxfp8,
    /// 4-bit floats with an 8-bit float for each 16.
    Nvfp4,
}

impl QuantizationMode {
    const ALL: [(Self, &'static CStr); 4] = [
        (Self::Affine, c"affine"),
        (Self::Mxfp4, c"mxfp4"),
        (Self::Mxfp8, c"mxfp8"),
        (Self::Nvfp4, c"nvfp4"),
    ];

    /// The name that MLX knows it by.
    pub(crate) fn as_c_str(self) -> &'static CStr {
        let row = Self::ALL.iter().find(|row| row.0 == self);
        row.expect("every mode is in the table").1
    }

    fn from_name(name: &str) -> Option<Self> {
        let row = Self::ALL
            .iter()
            .find(|row| row.1.to_bytes() == name.as_bytes());
        row.map(|row| row.0)
    }

    /// Bits and group size where nothing states them: the only ones there are, except for the
    /// affine mode.
    fn defaults(self) -> (usize, usize) {
        match self {
            Self::Affine => (4, 64),
            Self::Mxfp4 => (4, 32),
            Self::Mxfp8 => (8, 32),
            Self::Nvfp4 => (4, 16),
        }
    }
}

/// How one matrix is packed. Only combinations that MLX computes exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuantizationParameters {
    mode: QuantizationMode,
    bits: usize,
    group_size: usize,
}

impl QuantizationParameters {
    /// These parameters, if MLX computes with them.
    pub(crate) fn new(mode: QuantizationMode, bits: usize, group_size: usize) -> Option<Self> {
        let exists = match mode {
            QuantizationMode::Affine => {
                matches!(bits, 2 | 3 | 4 | 5 | 6 | 8) && matches!(group_size, 32 | 64 | 128)
            }
            _ => mode.defaults() == (bits, group_size),
        };
        exists.then_some(Self {
            mode,
            bits,
            group_size,
        })
    }

    /// Finds out how the matrix of `module` is packed, of `columns` columns, from the shape of
    /// its packed weight and of its scales. The affine mode keeps its scales in the model's
    /// float type, the others in bytes.
    ///
    /// # Errors
    /// [`Kind::ModelFormat`] naming the module, when no packing has these shapes.
    pub(crate) fn infer(
        module: &str,
        weight: &[usize],
        scales: &[usize],
        columns: usize,
        scales_are_bytes: bool,
    ) -> Result<Self> {
        let found = || {
            let (&packed_columns, &group_count) = (weight.last()?, scales.last()?);
            let bits = exact_quotient(packed_columns.checked_mul(32)?, columns)?;
            let group_size = exact_quotient(columns, group_count)?;
            let mode = match (scales_are_bytes, bits, group_size) {
                (false, ..) => QuantizationMode::Affine,
                (true, 4, 16) => QuantizationMode::Nvfp4,
                (true, 4, _) => QuantizationMode::Mxfp4,
                (true, ..) => QuantizationMode::Mxfp8,
            };
            Self::new(mode, bits, group_size)
        };
        found().ok_or_else(|| {
            Error::new(
                Kind::ModelFormat,
                format!(
                    "no packing of {columns} columns has weights {weight:?} and scales \
                     {scales:?}: {}",
                    Escaped(module)
                ),
            )
        })
    }

    /// The form.
    pub(crate) fn mode(self) -> QuantizationMode {
        self.mode
    }

    /// Bits of one weight.
    pub(crate) fn bits(self) -> usize {
        self.bits
    }

    /// Weights that share a scale.
    pub(crate) fn group_size(self) -> usize {
        self.group_size
    }

    /// Whether each group has a bias beside its scale.
    pub(crate) fn has_biases(self) -> bool {
        self.mode == QuantizationMode::Affine
    }

    /// Whether rows of this length can be packed.
    pub(crate) fn divides(self, columns: usize) -> bool {
        columns > 0 && columns % self.group_size == 0
    }

    /// Words of 32 bits that a row of `columns` weights takes.
    pub(crate) fn packed_columns(self, columns: usize) -> usize {
        // Whole, since every group fills words.
        columns / self.group_size * (self.group_size * self.bits / 32)
    }

    /// Groups in a row of `columns` weights.
    pub(crate) fn group_count(self, columns: usize) -> usize {
        columns / self.group_size
    }
}

fn exact_quotient(dividend: usize, divisor: usize) -> Option<usize> {
    (divisor > 0 && dividend % divisor == 0).then(|| dividend / divisor)
}

/// What a configuration says of one module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModuleQuantization {
    /// Nothing: it is packed if the folder holds scales for it, as the shapes say.
    Unspecified,
    /// It is not packed.
    NotQuantized,
    /// It is packed like this.
    Packed(QuantizationParameters),
}

/// What a configuration says of how its weights are packed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Quantization {
    is_there: bool,
    default: Option<QuantizationParameters>,
    /// By the spelling of the text model alone.
    modules: HashMap<String, ModuleQuantization>,
}

/// Other settings that stand beside the modules.
const SETTINGS: [&str; 3] = ["bits", "group_size", "mode"];

impl Quantization {
    /// Reads `quantization`, or where there is none `quantization_config`.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] naming a method, mode or size that the library does not have,
    /// [`Kind::ModelFormat`] for a value of the wrong kind, or two that contradict each other.
    pub(crate) fn read(config: Fields<'_>) -> Result<Self> {
        let (key, object) = match config.object("quantization")? {
            Some(object) => ("quantization", object),
            None => match config.object("quantization_config")? {
                Some(object) => ("quantization_config", object),
                None => return Ok(Self::default()),
            },
        };
        let fields = Fields::new(key, object);
        let read = if key == "quantization" {
            Self::read_object(fields, object)
        } else {
            Self::read_foreign(fields, object)
        };
        read.map_err(|error| config.error(error.kind(), error.message()))
    }

    /// `quantization_config` is where others put what they did to the weights.
    fn read_foreign(fields: Fields<'_>, object: &Map<String, Value>) -> Result<Self> {
        let mode = match fields.string("quant_method")? {
            None => return Self::read_object(fields, object),
            Some("mxfp4") => QuantizationMode::Mxfp4,
            Some("mxfp8") => QuantizationMode::Mxfp8,
            Some(method) => {
                return Err(fields.error(
                    Kind::Unsupported,
                    format_args!("quant_method is not supported: {}", Escaped(method)),
                ));
            }
        };
        let (bits, group_size) = mode.defaults();
        Ok(Self {
            is_there: true,
            default: QuantizationParameters::new(mode, bits, group_size),
            modules: HashMap::new(),
        })
    }

    fn read_object(fields: Fields<'_>, object: &Map<String, Value>) -> Result<Self> {
        let default = read_parameters(fields, None)?;
        let mut modules = HashMap::new();
        for (path, value) in object {
            if SETTINGS.contains(&path.as_str()) {
                continue;
            }
            let said = match value {
                Value::Bool(false) => ModuleQuantization::NotQuantized,
                Value::Bool(true) => ModuleQuantization::Unspecified,
                Value::Object(settings) => {
                    let place = format!("{}", Escaped(path));
                    let settings = Fields::new(&place, settings);
                    let parameters = read_parameters(settings, default)
                        .map_err(|error| fields.error(error.kind(), error.message()))?;
                    parameters.map_or(ModuleQuantization::Unspecified, ModuleQuantization::Packed)
                }
                // Notes of other tools stand here too.
                _ => continue,
            };
            let module = module_path::in_text_model(path);
            let module = module.strip_suffix(".weight").unwrap_or(&module);
            if let Some(other) = modules.insert(module.to_owned(), said)
                && other != said
            {
                return Err(fields.error(
                    Kind::ModelFormat,
                    format_args!("two settings contradict each other for: {}", Escaped(path)),
                ));
            }
        }
        Ok(Self {
            is_there: true,
            default,
            modules,
        })
    }

    /// Whether the configuration says nothing at all.
    pub(crate) fn is_absent(&self) -> bool {
        !self.is_there
    }

    /// What most modules are packed like, by the configuration. The shapes of a module that is
    /// not named may say otherwise, and they are right.
    pub(crate) fn default_parameters(&self) -> Option<QuantizationParameters> {
        self.default
    }

    /// What the configuration says of the module at `path`, in either spelling.
    pub(crate) fn for_module(&self, path: &str) -> ModuleQuantization {
        let module = module_path::in_text_model(path);
        let said = self.modules.get(module.as_ref());
        said.copied().unwrap_or(ModuleQuantization::Unspecified)
    }
}

/// Reads mode, bits and group size; those that are not stated come from `default`, if its mode is
/// the same, and else are the mode's own. `None` when nothing is stated.
fn read_parameters(
    fields: Fields<'_>,
    default: Option<QuantizationParameters>,
) -> Result<Option<QuantizationParameters>> {
    let mode = match fields.string("mode")? {
        None => None,
        Some(name) => Some(QuantizationMode::from_name(name).ok_or_else(|| {
            fields.error(
                Kind::Unsupported,
                format_args!("mode is not supported: {}", Escaped(name)),
            )
        })?),
    };
    let bits = fields.count("bits", 1..=64)?;
    let group_size = fields.count("group_size", 1..=1 << 20)?;
    if mode.is_none() && bits.is_none() && group_size.is_none() {
        return Ok(None);
    }
    // A module's settings without a mode are affine, whatever the mode of the others.
    let mode = mode.unwrap_or(QuantizationMode::Affine);
    let (default_bits, default_group_size) = default
        .filter(|default| default.mode == mode)
        .map_or(mode.defaults(), |default| {
            (default.bits, default.group_size)
        });
    let bits = bits.unwrap_or(default_bits);
    let group_size = group_size.unwrap_or(default_group_size);
    QuantizationParameters::new(mode, bits, group_size)
        .map(Some)
        .ok_or_else(|| {
            fields.error(
                Kind::Unsupported,
                format_args!(
                    "mode {} is not supported with these bits and group size: {bits}, {group_size}",
                    mode.as_c_str().to_string_lossy()
                ),
            )
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const AFFINE: QuantizationMode = QuantizationMode::Affine;

    fn read(config: Value) -> Result<Quantization> {
        Quantization::read(Fields::new("config.json", config.as_object().unwrap()))
    }

    fn parameters(
        mode: QuantizationMode,
        bits: usize,
        group_size: usize,
    ) -> QuantizationParameters {
        QuantizationParameters::new(mode, bits, group_size).unwrap()
    }

    fn packed(mode: QuantizationMode, bits: usize, group_size: usize) -> ModuleQuantization {
        ModuleQuantization::Packed(parameters(mode, bits, group_size))
    }

    #[test]
    fn nothing_is_said_of_plain_weights() {
        for config in [
            json!({}),
            json!({"quantization": null, "quantization_config": null}),
        ] {
            let quantization = read(config).unwrap();
            assert!(quantization.is_absent());
            assert_eq!(quantization.default_parameters(), None);
            assert_eq!(
                quantization.for_module("lm_head"),
                ModuleQuantization::Unspecified
            );
        }
    }

    /// ml-explore/mlx-lm#1214: settings by the names in the files, looked up by module names.
    #[test]
    fn a_module_is_found_under_either_spelling() {
        for key in [
            "model.layers.0.mlp.up_proj",
            "model.language_model.layers.0.mlp.up_proj",
            "language_model.model.layers.0.mlp.up_proj",
            "model.language_model.layers.0.mlp.up_proj.weight",
        ] {
            let quantization = read(json!({
                "quantization": {"bits": 4, "group_size": 64, key: {"bits": 6}}
            }))
            .unwrap();
            assert_eq!(
                quantization.default_parameters(),
                Some(parameters(AFFINE, 4, 64))
            );
            for path in [
                "model.layers.0.mlp.up_proj",
                "model.language_model.layers.0.mlp.up_proj",
                "language_model.model.layers.0.mlp.up_proj",
            ] {
                assert_eq!(
                    quantization.for_module(path),
                    packed(AFFINE, 6, 64),
                    "{key} {path}"
                );
            }
            let other = quantization.for_module("model.layers.1.mlp.up_proj");
            assert_eq!(other, ModuleQuantization::Unspecified);
        }
    }

    /// Blaizzy/mlx-vlm#1703: the mode is that of the module, not of the whole.
    #[test]
    fn each_module_has_its_own_mode() {
        let quantization = read(json!({
            "quantization": {
                "group_size": 32, "bits": 4, "mode": "mxfp4",
                "a": {"group_size": 64, "bits": 8, "mode": "affine"},
                "b": {"group_size": 64, "bits": 8},
                "c": false,
                "d": true,
                "e": {"mode": "nvfp4"},
                "f": {"bits": 4, "mode": "mxfp4"},
                "g": {},
                "h": {"bits": 3},
                "note": "of another tool", "version": 3,
            },
            "quantization_config": {"quant_method": "fp8"},
        }))
        .unwrap();
        assert!(!quantization.is_absent());
        for (module, expected) in [
            ("a", packed(AFFINE, 8, 64)),
            ("b", packed(AFFINE, 8, 64)),
            ("c", ModuleQuantization::NotQuantized),
            ("d", ModuleQuantization::Unspecified),
            ("e", packed(QuantizationMode::Nvfp4, 4, 16)),
            ("f", packed(QuantizationMode::Mxfp4, 4, 32)),
            ("g", ModuleQuantization::Unspecified),
            ("h", packed(AFFINE, 3, 64)),
            ("note", ModuleQuantization::Unspecified),
        ] {
            assert_eq!(quantization.for_module(module), expected, "{module}");
        }
        assert!(parameters(AFFINE, 8, 64).has_biases());
        assert!(!parameters(QuantizationMode::Mxfp4, 4, 32).has_biases());
    }

    #[test]
    fn the_other_key_counts_where_the_first_is_absent() {
        let settings = json!({"bits": 8, "group_size": 32, "lm_head": false});
        let quantization = read(json!({ "quantization_config": settings })).unwrap();
        assert_eq!(
            quantization.default_parameters(),
            Some(parameters(AFFINE, 8, 32))
        );
        assert_eq!(
            quantization.for_module("lm_head"),
            ModuleQuantization::NotQuantized
        );

        let both = read(json!({
            "quantization": {"bits": 4, "group_size": 64},
            "quantization_config": settings,
        }));
        assert_eq!(
            both.unwrap().default_parameters(),
            Some(parameters(AFFINE, 4, 64))
        );

        for (method, mode, bits) in [
            ("mxfp4", QuantizationMode::Mxfp4, 4),
            ("mxfp8", QuantizationMode::Mxfp8, 8),
        ] {
            let quantization = read(json!({"quantization_config": {"quant_method": method}}));
            assert_eq!(
                quantization.unwrap().default_parameters(),
                Some(parameters(mode, bits, 32))
            );
        }
    }

    #[test]
    fn what_the_library_does_not_have_is_named() {
        for method in [
            "fp8",
            "awq",
            "gptq",
            "bitsandbytes",
            "bitnet",
            "compressed-tensors",
            "modelopt",
            "%s%n",
        ] {
            let error = read(json!({"quantization_config": {"quant_method": method}})).unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported);
            let expected = format!(
                "config.json: quantization_config: quant_method is not supported: {method}"
            );
            assert_eq!(error.message(), expected);
        }
        for (settings, kind, complaint) in [
            (
                json!({"mode": "nf4"}),
                Kind::Unsupported,
                "quantization: mode is not supported: nf4",
            ),
            (
                json!({"bits": 7, "group_size": 64}),
                Kind::Unsupported,
                "mode affine is not supported with these bits and group size: 7, 64",
            ),
            (
                json!({"bits": 4, "group_size": 16}),
                Kind::Unsupported,
                "4, 16",
            ),
            (
                json!({"mode": "mxfp4", "bits": 8}),
                Kind::Unsupported,
                "mode mxfp4 is not supported with these bits and group size: 8, 32",
            ),
            (
                json!({"bits": 0}),
                Kind::ModelFormat,
                "bits is not a whole number from 1 to 64: 0",
            ),
            (
                json!({"bits": "4"}),
                Kind::ModelFormat,
                "bits is not a whole number from 1 to 64: \"4\"",
            ),
            (
                json!({"model.layers.0.mlp": {"bits": 1}}),
                Kind::Unsupported,
                "quantization: model.layers.0.mlp: mode affine is not supported with these bits and group size: 1, 64",
            ),
            (
                json!({"model.layers.0.a": {"bits": 4}, "language_model.model.layers.0.a": false}),
                Kind::ModelFormat,
                "contradict each other for: language_model.model.layers.0.a",
            ),
        ] {
            let error = read(json!({ "quantization": settings })).unwrap_err();
            assert_eq!(error.kind(), kind);
            assert!(error.message().ends_with(complaint), "{error}");
        }
        assert_eq!(
            read(json!({"quantization": 4})).unwrap_err().kind(),
            Kind::ModelFormat
        );
    }

    #[test]
    fn every_packing_is_found_from_its_shapes() {
        let affine = [2, 3, 4, 5, 6, 8]
            .into_iter()
            .flat_map(|bits| [32, 64, 128].map(|group_size| (AFFINE, bits, group_size)));
        let others = [
            (QuantizationMode::Mxfp4, 4, 32),
            (QuantizationMode::Mxfp8, 8, 32),
            (QuantizationMode::Nvfp4, 4, 16),
        ];
        for (mode, bits, group_size) in affine.chain(others) {
            let expected = parameters(mode, bits, group_size);
            assert_eq!(
                (expected.mode(), expected.bits(), expected.group_size()),
                (mode, bits, group_size)
            );
            for columns in [128, 384, 4096] {
                assert!(expected.divides(columns));
                let weight = [10, expected.packed_columns(columns)];
                assert_eq!(weight[1] * 32, columns * bits);
                let scales = [10, expected.group_count(columns)];
                let bytes = !expected.has_biases();
                let found = QuantizationParameters::infer("m", &weight, &scales, columns, bytes);
                assert_eq!(found.unwrap(), expected);
            }
        }
        assert!(!parameters(AFFINE, 4, 64).divides(96));
        assert!(!parameters(AFFINE, 4, 64).divides(0));
    }

    #[test]
    fn shapes_that_no_packing_has_are_refused() {
        for (weight, scales, columns, bytes) in [
            (&[4, 7][..], &[4, 1][..], 64, false),
            (&[4, 8], &[4, 3], 64, false),
            (&[4, 8], &[4, 0], 64, false),
            (&[4, 8], &[4, 1], 0, false),
            (&[4, 14], &[4, 1], 64, false),
            (&[4, 8], &[4, 4], 64, false),
            (&[4, 8], &[4, 1], 64, true),
            (&[4, 16], &[4, 4], 64, true),
            (&[], &[4, 1], 64, false),
            (&[4, 8], &[], 64, false),
            (&[usize::MAX], &[1], 64, false),
        ] {
            let error = QuantizationParameters::infer("lm_head%n", weight, scales, columns, bytes)
                .unwrap_err();
            assert_eq!(error.kind(), Kind::ModelFormat);
            assert!(error.message().ends_with(": lm_head%n"), "{error}");
        }
    }

    #[test]
    fn modes_have_the_names_of_mlx() {
        for (mode, name) in QuantizationMode::ALL {
            assert_eq!(mode.as_c_str(), name);
            assert_eq!(
                QuantizationMode::from_name(name.to_str().unwrap()),
                Some(mode)
            );
        }
        assert_eq!(QuantizationMode::from_name("AFFINE"), None);
    }
}
