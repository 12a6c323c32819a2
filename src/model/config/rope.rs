//! The settings of rotary position embedding, in the old places and the new one.

use serde_json::{Map, Value};

use super::fields::Fields;
use crate::{
    error::{Kind, Result},
    escape::Escaped,
};

/// How positions are embedded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rope {
    /// The base of the frequencies.
    pub(crate) theta: f64,
    /// Whether neighbouring dimensions make a pair, rather than those half the head apart.
    pub(crate) traditional: bool,
    /// How frequencies are changed for a longer context.
    pub(crate) scaling: RopeScaling,
}

/// How frequencies are changed for a longer context.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RopeScaling {
    /// Not at all.
    Default,
    /// Positions are divided by `factor`.
    Linear {
        /// Above 0.
        factor: f64,
    },
    /// Low frequencies are divided by `factor`, medium ones less, high ones not at all.
    Llama3 {
        /// Above 0.
        factor: f64,
        /// Wavelengths above `original_context / low_freq_factor` are low frequencies.
        low_freq_factor: f64,
        /// Wavelengths below `original_context / high_freq_factor` are high frequencies; above
        /// `low_freq_factor`.
        high_freq_factor: f64,
        /// The context of the training before.
        original_context: f64,
    },
    /// Frequencies are interpolated by how often they turn in the original context.
    Yarn(Yarn),
}

/// The settings of YaRN.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Yarn {
    /// Above 0.
    pub(crate) factor: f64,
    /// The context of the training before.
    pub(crate) original_context: f64,
    /// Frequencies that turn more often than this are kept.
    pub(crate) beta_fast: f64,
    /// Frequencies that turn less often than this are divided by `factor`.
    pub(crate) beta_slow: f64,
    /// Weight of the attention's temperature.
    pub(crate) mscale: f64,
    /// Weight of the part of it that the attention scale holds already.
    pub(crate) mscale_all_dim: f64,
}

const DEFAULT_THETA: f64 = 10_000.0;

impl Rope {
    /// Reads `rope_theta`, `rope_traditional` and `rope_scaling`, or `rope_parameters`, where
    /// newer configurations hold the first and the last. Where both hold a value, the old
    /// place counts, as for mlx-lm.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] naming a scaling that the library does not have,
    /// [`Kind::ModelFormat`] naming a value that is missing or out of range.
    pub(super) fn read(config: Fields<'_>) -> Result<Self> {
        let parameters = config.object("rope_parameters")?;
        let empty = Map::new();
        let parameters = Fields::new("rope_parameters", parameters.unwrap_or(&empty));
        let place = |error: crate::Error| config.error(error.kind(), error.message());
        let theta = match config.positive("rope_theta")? {
            Some(theta) => theta,
            None => parameters
                .positive("rope_theta")
                .map_err(place)?
                .unwrap_or(DEFAULT_THETA),
        };
        let partial = config.positive("partial_rotary_factor")?;
        let partial = match partial {
            Some(partial) => partial,
            None => parameters
                .positive("partial_rotary_factor")
                .map_err(place)?
                .unwrap_or(1.0),
        };
        if partial != 1.0 {
            return Err(config.error(
                Kind::Unsupported,
                format_args!("partial_rotary_factor is not supported: {partial}"),
            ));
        }
        let scaling = match config.object("rope_scaling")?.filter(|old| !old.is_empty()) {
            Some(old) => RopeScaling::read(Fields::new("rope_scaling", old), old, theta),
            None => RopeScaling::read(
                parameters,
                config.object("rope_parameters")?.unwrap_or(&empty),
                theta,
            ),
        };
        Ok(Self {
            theta,
            traditional: config.boolean("rope_traditional")?.unwrap_or(false),
            scaling: scaling.map_err(place)?,
        })
    }
}

impl RopeScaling {
    fn read(fields: Fields<'_>, object: &Map<String, Value>, theta: f64) -> Result<Self> {
        if object.values().any(Value::is_object) && object.contains_key("full_attention") {
            return Err(fields.error(
                Kind::Unsupported,
                "settings for each type of layer are not supported: full_attention",
            ));
        }
        let required = |key| {
            let value = fields.positive(key)?;
            value.ok_or_else(|| fields.missing(key))
        };
        let positive_or =
            |key, default| -> Result<f64> { Ok(fields.positive(key)?.unwrap_or(default)) };
        let (old_name, new_name) = (fields.string("type")?, fields.string("rope_type")?);
        if let (Some(old), Some(new)) = (old_name, new_name)
            && old != new
        {
            return Err(fields.error(
                Kind::ModelFormat,
                format_args!(
                    "type and rope_type differ: {}, {}",
                    Escaped(old),
                    Escaped(new)
                ),
            ));
        }
        match old_name.or(new_name) {
            None if fields
                .positive("factor")?
                .is_some_and(|factor| factor != 1.0) =>
            {
                Err(fields.missing("rope_type"))
            }
            None | Some("default") => Ok(Self::Default),
            Some("linear") => Ok(Self::Linear {
                factor: required("factor")?,
            }),
            Some("llama3") => {
                // The defaults are mlx-lm's; they are those of the models it was made for.
                let low_freq_factor = positive_or("low_freq_factor", 1.0)?;
                let high_freq_factor = positive_or("high_freq_factor", 4.0)?;
                if high_freq_factor <= low_freq_factor {
                    return Err(fields.error(
                        Kind::ModelFormat,
                        format_args!(
                            "high_freq_factor is not above low_freq_factor: {high_freq_factor}"
                        ),
                    ));
                }
                Ok(Self::Llama3 {
                    factor: required("factor")?,
                    low_freq_factor,
                    high_freq_factor,
                    original_context: positive_or("original_max_position_embeddings", 8192.0)?,
                })
            }
            Some("yarn" | "deepseek_yarn" | "telechat3-yarn") => {
                Yarn::read(fields, theta).map(Self::Yarn)
            }
            Some(other) => Err(fields.error(
                Kind::Unsupported,
                format_args!("type is not supported: {}", Escaped(other)),
            )),
        }
    }
}

impl Yarn {
    fn read(fields: Fields<'_>, theta: f64) -> Result<Self> {
        let required = |key| {
            let value = fields.positive(key)?;
            value.ok_or_else(|| fields.missing(key))
        };
        let finite = |key, default| -> Result<f64> {
            let number = fields.number(key, "a number from 0", |n| n >= 0.0 && n.is_finite())?;
            Ok(number.unwrap_or(default))
        };
        if theta <= 1.0 {
            return Err(fields.error(
                Kind::ModelFormat,
                format_args!("yarn needs a rope_theta above 1: {theta}"),
            ));
        }
        let yarn = Self {
            factor: required("factor")?,
            // Without it, some take the model's context and others 4096: no safe default.
            original_context: required("original_max_position_embeddings")?,
            beta_fast: fields.positive("beta_fast")?.unwrap_or(32.0),
            beta_slow: fields.positive("beta_slow")?.unwrap_or(1.0),
            mscale: finite("mscale", 1.0)?,
            mscale_all_dim: finite("mscale_all_dim", 0.0)?,
        };
        // Both would change the frequencies or the temperature, and mlx-lm passes over them.
        if let Some(stated) = fields.positive("attention_factor")?
            && (stated - yarn.temperature()).abs() > 1e-6
        {
            return Err(fields.error(
                Kind::Unsupported,
                format_args!("attention_factor is not supported: {stated}"),
            ));
        }
        if fields.boolean("truncate")? == Some(false) {
            return Err(fields.error(Kind::Unsupported, "truncate is not supported: false"));
        }
        Ok(yarn)
    }

    /// What queries and keys are multiplied by.
    fn temperature(&self) -> f64 {
        let temperature = |weight: f64| {
            if self.factor <= 1.0 {
                1.0
            } else {
                0.1 * weight * self.factor.ln() + 1.0
            }
        };
        temperature(self.mscale) / temperature(self.mscale_all_dim)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::Error;

    fn read(config: Value) -> Result<Rope, Error> {
        Rope::read(Fields::new("config.json", config.as_object().unwrap()))
    }

    fn scaling(scaling: Value) -> Result<RopeScaling, Error> {
        // The same settings must mean the same in the old place and in the new one.
        let old = read(json!({ "rope_scaling": scaling })).map(|rope| rope.scaling);
        let new = read(json!({ "rope_parameters": scaling })).map(|rope| rope.scaling);
        match (&old, &new) {
            (Ok(old), Ok(new)) => assert_eq!(old, new),
            (Err(old), Err(new)) => {
                assert_eq!(old.kind(), new.kind());
                let new = new.message().replace("rope_parameters", "rope_scaling");
                assert_eq!(old.message(), new);
            }
            _ => panic!("{old:?} {new:?}"),
        }
        old
    }

    /// ml-explore/mlx-lm#1884: null crashed.
    #[test]
    fn nothing_and_null_are_plain_rope() {
        let plain = Rope {
            theta: 10_000.0,
            traditional: false,
            scaling: RopeScaling::Default,
        };
        for config in [
            json!({}),
            json!({"rope_scaling": null}),
            json!({"rope_scaling": {}}),
            json!({"rope_scaling": null, "rope_parameters": null}),
            json!({"rope_parameters": {}}),
            json!({"rope_scaling": {"type": "default"}}),
            json!({"rope_scaling": {"rope_type": "default", "factor": 4.0}}),
            json!({"rope_scaling": {"type": null, "factor": 1.0}}),
        ] {
            assert_eq!(read(config.clone()).unwrap(), plain, "{config}");
        }
    }

    #[test]
    fn each_scaling_is_read() {
        assert_eq!(
            scaling(json!({"type": "linear", "factor": 4})).unwrap(),
            RopeScaling::Linear { factor: 4.0 }
        );
        assert_eq!(
            scaling(json!({
                "factor": 32.0, "low_freq_factor": 1.5, "high_freq_factor": 4.5,
                "original_max_position_embeddings": 4096, "rope_type": "llama3"
            }))
            .unwrap(),
            RopeScaling::Llama3 {
                factor: 32.0,
                low_freq_factor: 1.5,
                high_freq_factor: 4.5,
                original_context: 4096.0
            }
        );
        assert_eq!(
            scaling(json!({"factor": 8, "rope_type": "llama3", "type": "llama3"})).unwrap(),
            RopeScaling::Llama3 {
                factor: 8.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_context: 8192.0
            }
        );
        let yarn = Yarn {
            factor: 4.0,
            original_context: 32768.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            mscale: 1.0,
            mscale_all_dim: 0.0,
        };
        let settings = |more: Value| {
            let mut settings = json!({
                "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768
            });
            settings
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            settings
        };
        let default_temperature = 0.1 * 4f64.ln() + 1.0;
        for more in [
            json!({}),
            json!({"type": "deepseek_yarn", "truncate": true}),
            json!({"attention_factor": default_temperature}),
        ] {
            assert_eq!(
                scaling(settings(more)).unwrap(),
                RopeScaling::Yarn(yarn.clone())
            );
        }
        assert_eq!(
            scaling(settings(json!({
                "beta_fast": 16, "beta_slow": 2, "mscale": 0.5, "mscale_all_dim": 0.7
            })))
            .unwrap(),
            RopeScaling::Yarn(Yarn {
                beta_fast: 16.0,
                beta_slow: 2.0,
                mscale: 0.5,
                mscale_all_dim: 0.7,
                ..yarn
            })
        );
        for (more, complaint) in [
            (
                json!({"attention_factor": 1.0}),
                "attention_factor is not supported: 1",
            ),
            (
                json!({"truncate": false}),
                "truncate is not supported: false",
            ),
        ] {
            let error = scaling(settings(more)).unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported);
            assert!(error.message().ends_with(complaint), "{error}");
        }
    }

    #[test]
    fn what_is_missing_or_unknown_is_named() {
        for (settings, kind, complaint) in [
            (
                json!({"type": "linear"}),
                Kind::ModelFormat,
                "missing: factor",
            ),
            (
                json!({"type": "llama3"}),
                Kind::ModelFormat,
                "missing: factor",
            ),
            (
                json!({"type": "yarn", "factor": 4}),
                Kind::ModelFormat,
                "missing: original_max_position_embeddings",
            ),
            (
                json!({"factor": 4}),
                Kind::ModelFormat,
                "missing: rope_type",
            ),
            (
                json!({"type": "linear", "factor": 0}),
                Kind::ModelFormat,
                "factor is not a number above 0: 0",
            ),
            (
                json!({"type": "linear", "factor": "2"}),
                Kind::ModelFormat,
                "factor is not a number above 0: \"2\"",
            ),
            (
                json!({"type": 3}),
                Kind::ModelFormat,
                "type is not a string: 3",
            ),
            (
                json!({"type": "linear", "rope_type": "yarn"}),
                Kind::ModelFormat,
                "differ: linear, yarn",
            ),
            (
                json!({"type": "llama3", "factor": 2, "low_freq_factor": 4, "high_freq_factor": 4}),
                Kind::ModelFormat,
                "high_freq_factor is not above low_freq_factor: 4",
            ),
            (
                json!({"type": "%s%n\n"}),
                Kind::Unsupported,
                "type is not supported: %s%n\\n",
            ),
            (
                json!({"rope_type": "longrope", "factor": 4}),
                Kind::Unsupported,
                "type is not supported: longrope",
            ),
            (
                json!({"rope_type": "dynamic", "factor": 4}),
                Kind::Unsupported,
                "type is not supported: dynamic",
            ),
            (
                json!({"full_attention": {"rope_type": "default"}}),
                Kind::Unsupported,
                "each type of layer are not supported: full_attention",
            ),
        ] {
            let error = scaling(settings.clone()).unwrap_err();
            assert_eq!(error.kind(), kind, "{settings}");
            assert!(error.message().ends_with(complaint), "{error}");
            assert!(
                error.message().starts_with("config.json: rope_scaling: "),
                "{error}"
            );
        }
    }

    #[test]
    fn theta_is_found_in_either_place() {
        let theta = |config| read(config).unwrap().theta;
        assert_eq!(theta(json!({"rope_theta": 500000})), 500_000.0);
        assert_eq!(
            theta(json!({"rope_parameters": {"rope_theta": 5e5}})),
            500_000.0
        );
        assert_eq!(
            theta(json!({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}})),
            10_000.0
        );
        let both = read(json!({
            "rope_scaling": {"type": "linear", "factor": 2},
            "rope_parameters": {"rope_type": "llama3", "factor": 8, "rope_theta": 7.0}
        }));
        assert_eq!(both.unwrap().scaling, RopeScaling::Linear { factor: 2.0 });
        for theta in [
            json!(0),
            json!(-1),
            json!("x"),
            json!({"__float__": "NaN"}),
            json!({"__float__": "Infinity"}),
        ] {
            assert!(read(json!({ "rope_theta": theta })).is_err());
            assert!(read(json!({ "rope_parameters": {"rope_theta": theta} })).is_err());
        }
        let yarn = json!({"type": "yarn", "factor": 2, "original_max_position_embeddings": 9});
        let error = read(json!({"rope_theta": 1, "rope_scaling": yarn})).unwrap_err();
        assert!(
            error.message().ends_with("rope_theta above 1: 1"),
            "{error}"
        );
    }

    #[test]
    fn other_settings() {
        assert!(read(json!({"rope_traditional": true})).unwrap().traditional);
        assert!(read(json!({"rope_traditional": 1})).is_err());
        for config in [
            json!({"partial_rotary_factor": 0.5}),
            json!({"rope_parameters": {"partial_rotary_factor": 0.5}}),
        ] {
            assert_eq!(read(config).unwrap_err().kind(), Kind::Unsupported);
        }
        assert!(read(json!({"partial_rotary_factor": 1.0})).is_ok());
    }
}
