//! How the weights of a folder are packed: what its configuration says, and what the shapes say
//! where it is silent.

#[cfg(test)]
mod tests;

use std::{collections::HashMap, ffi::CStr};

use serde_json::{Map, Value};

use super::{config::Fields, module_path};
use crate::{
    engine::mlx::Packing,
    error::{Error, Kind, Result},
    escape::Escaped,
};

/// The form of packed weights, as MLX names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantizationMode {
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

    /// The same as text.
    pub fn name(self) -> &'static str {
        // The names are those of the table.
        self.as_c_str().to_str().unwrap_or_default()
    }

    /// The mode that MLX calls `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        let row = Self::ALL
            .iter()
            .find(|row| row.1.to_bytes() == name.as_bytes());
        row.map(|row| row.0)
    }

    /// Bits and group size where nothing states them: the only ones there are, except for the
    /// affine mode.
    pub fn defaults(self) -> (usize, usize) {
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
pub struct QuantizationParameters {
    mode: QuantizationMode,
    bits: usize,
    group_size: usize,
}

impl QuantizationParameters {
    /// These parameters, if MLX computes with them.
    pub fn new(mode: QuantizationMode, bits: usize, group_size: usize) -> Option<Self> {
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
    pub fn mode(self) -> QuantizationMode {
        self.mode
    }

    /// Bits of one weight.
    pub fn bits(self) -> usize {
        self.bits
    }

    /// Weights that share a scale.
    pub fn group_size(self) -> usize {
        self.group_size
    }

    /// As the operations of MLX take them.
    pub(crate) fn as_packing(self) -> Packing {
        Packing {
            group_size: self.group_size as i32,
            bits: self.bits as i32,
            mode: self.mode.as_c_str(),
        }
    }

    /// Whether each group has a bias beside its scale.
    pub(crate) fn has_biases(self) -> bool {
        self.mode == QuantizationMode::Affine
    }

    /// Whether rows of this length can be packed.
    pub(crate) fn divides(self, columns: usize) -> bool {
        columns > 0 && columns.is_multiple_of(self.group_size)
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
    (divisor > 0 && dividend.is_multiple_of(divisor)).then(|| dividend / divisor)
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
    /// By the spelling of the text model alone.
    modules: HashMap<String, ModuleQuantization>,
}

/// Other settings that stand beside the modules.
const SETTINGS: [&str; 5] = [
    "bits",
    "group_size",
    "mode",
    "quantize_input",
    "global_scale",
];

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
        match fields.string("quant_method")? {
            None => Self::read_object(fields, object),
            // How each module is packed can be seen from its shapes.
            Some("mxfp4" | "mxfp8") => Ok(Self {
                is_there: true,
                modules: HashMap::new(),
            }),
            Some(method) => Err(fields.error(
                Kind::Unsupported,
                format_args!("quant_method is not supported: {}", Escaped(method)),
            )),
        }
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
            modules,
        })
    }

    /// Whether the configuration says nothing at all.
    pub(crate) fn is_absent(&self) -> bool {
        !self.is_there
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
    // Both change what is computed with the packed weights.
    for key in ["quantize_input", "global_scale"] {
        if fields.boolean(key)? == Some(true) {
            return Err(fields.error(
                Kind::Unsupported,
                format_args!("{key} is not supported: true"),
            ));
        }
    }
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
                    mode.name()
                ),
            )
        })
}
