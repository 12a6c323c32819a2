//! mlx-lm's recipes of mixed precision, and what they and the caller's wishes come to for one
//! module: a pure decision.

use super::Packings;
use crate::{
    error::{Error, Kind, Result},
    escape::Escaped,
    model::QuantizationParameters,
};

/// Which modules get more bits than others. The first and the last eighth of the layers, and
/// every third between them, keep more of their value and down projections, and so does the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// 2 bits, and 6.
    Mixed26,
    /// 3 bits, and 4.
    Mixed34,
    /// 3 bits, and 6.
    Mixed36,
    /// 4 bits, and 6.
    Mixed46,
}

impl Recipe {
    const ALL: [(Self, &'static str, usize, usize); 4] = [
        (Self::Mixed26, "mixed_2_6", 2, 6),
        (Self::Mixed34, "mixed_3_4", 3, 4),
        (Self::Mixed36, "mixed_3_6", 3, 6),
        (Self::Mixed46, "mixed_4_6", 4, 6),
    ];

    /// The recipe that mlx-lm calls `name`, such as "mixed_3_6".
    pub fn from_name(name: &str) -> Option<Self> {
        let row = Self::ALL.iter().find(|row| row.1 == name);
        row.map(|row| row.0)
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().map(|row| row.0)
    }

    /// What mlx-lm calls it.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    fn row(self) -> &'static (Self, &'static str, usize, usize) {
        let row = Self::ALL.iter().find(|row| row.0 == self);
        row.expect("every recipe is in the table")
    }

    /// Few bits, and many.
    fn bits(self) -> (usize, usize) {
        let row = self.row();
        (row.2, row.3)
    }

    /// Bits of the module at `path` of a model of `layer_count` layers.
    fn bits_of(self, path: &str, layer_count: usize) -> usize {
        let (few, many) = self.bits();
        let sensitive = ["v_proj", "v_a_proj", "v_b_proj", "down_proj"];
        let is_sensitive = sensitive.iter().any(|name| path.contains(name));
        let layer = layer_of(path).unwrap_or(0);
        let gets_many =
            (is_sensitive && keeps_more(layer, layer_count)) || path.contains("lm_head");
        if gets_many { many } else { few }
    }
}

/// The first number in a path.
fn layer_of(path: &str) -> Option<usize> {
    path.split('.').find_map(|part| part.parse().ok())
}

fn keeps_more(layer: usize, layer_count: usize) -> bool {
    let eighth = layer_count / 8;
    layer < eighth || layer >= 7 * layer_count / 8 || (layer - eighth) % 3 == 2
}

/// What becomes of a plain matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It stays plain.
    Plain,
    /// It is packed as those that nothing is said of.
    Default,
    /// It is packed like this, which the configuration must say.
    Own(QuantizationParameters),
}

/// Decides over the matrix of `columns` columns at `path`, in a model of `layer_count` layers.
/// What the caller says of the module comes first; then a matrix whose rows are no multiple of
/// the group size stays plain; then the recipe counts.
///
/// # Errors
/// [`Kind::InvalidArgument`] naming a module that cannot be packed as the caller says.
pub(super) fn decide(
    packings: &Packings,
    path: &str,
    columns: usize,
    layer_count: usize,
) -> Result<Decision> {
    let said = packings.modules.iter().rfind(|(module, _)| module == path);
    match said {
        Some((_, None)) => return Ok(Decision::Plain),
        Some((_, Some(parameters))) if parameters.divides(columns) => {
            return Ok(Decision::Own(*parameters));
        }
        Some((_, Some(parameters))) => {
            return Err(Error::new(
                Kind::InvalidArgument,
                format!(
                    "rows of {columns} cannot be packed in groups of {}: {}",
                    parameters.group_size(),
                    Escaped(path)
                ),
            ));
        }
        None => {}
    }
    let default = packings.default;
    if !default.divides(columns) {
        return Ok(Decision::Plain);
    }
    let Some(recipe) = packings.recipe else {
        return Ok(Decision::Default);
    };
    let bits = recipe.bits_of(path, layer_count);
    QuantizationParameters::new(default.mode(), bits, default.group_size())
        .map(Decision::Own)
        .ok_or_else(|| {
            Error::new(
                Kind::InvalidArgument,
                format!("no recipe goes with this mode: {}", default.mode().name()),
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::QuantizationMode;

    fn affine(bits: usize, group_size: usize) -> QuantizationParameters {
        QuantizationParameters::new(QuantizationMode::Affine, bits, group_size).unwrap()
    }

    #[test]
    fn layers_that_keep_more_are_those_of_mlx_lm() {
        // Computed with mlx-lm's own predicate.
        for (layer_count, expected) in [
            (1, &[0][..]),
            (2, &[1]),
            (5, &[2, 4]),
            (8, &[0, 3, 6, 7]),
            (9, &[0, 3, 6, 7, 8]),
            (16, &[0, 1, 4, 7, 10, 13, 14, 15]),
            (30, &[0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 26, 27, 28, 29]),
        ] {
            let layers: Vec<_> = (0..layer_count)
                .filter(|&layer| keeps_more(layer, layer_count))
                .collect();
            assert_eq!(layers, expected, "{layer_count}");
        }
    }

    #[test]
    fn recipes_give_bits_by_name_and_layer() {
        for (recipe, path, bits) in [
            ("mixed_2_6", "model.embed_tokens", 2),
            ("mixed_2_6", "lm_head", 6),
            ("mixed_3_4", "model.layers.0.mlp.down_proj", 4),
            ("mixed_3_4", "model.layers.1.mlp.down_proj", 3),
            ("mixed_3_6", "model.layers.3.self_attn.v_proj", 6),
            ("mixed_3_6", "model.layers.3.self_attn.q_proj", 3),
            ("mixed_4_6", "model.layers.7.mlp.down_proj", 6),
            ("mixed_4_6", "model.layers.7.mlp.up_proj", 4),
        ] {
            let recipe = Recipe::from_name(recipe).unwrap();
            assert_eq!(recipe.bits_of(path, 8), bits, "{path}");
        }
        assert_eq!(Recipe::from_name("mixed_9_9"), None);
    }

    #[test]
    fn the_caller_comes_before_the_shape_and_the_shape_before_the_recipe() {
        let mut packings = Packings {
            default: affine(4, 64),
            recipe: None,
            modules: vec![
                ("a".into(), None),
                ("b".into(), Some(affine(8, 32))),
                ("c".into(), Some(affine(8, 128))),
                ("d".into(), Some(affine(8, 128))),
                ("d".into(), None),
            ],
        };
        let decided = |packings: &Packings, path, columns| decide(packings, path, columns, 2);
        for (path, columns, decision) in [
            ("a", 64, Decision::Plain),
            ("b", 96, Decision::Own(affine(8, 32))),
            ("d", 64, Decision::Plain),
            ("lm_head", 128, Decision::Default),
            ("lm_head", 96, Decision::Plain),
        ] {
            assert_eq!(
                decided(&packings, path, columns).unwrap(),
                decision,
                "{path}"
            );
        }
        let error = decided(&packings, "c", 64).unwrap_err();
        assert_eq!(
            error.message(),
            "rows of 64 cannot be packed in groups of 128: c"
        );
        packings.recipe = Some(Recipe::Mixed36);
        for (path, columns, decision) in [
            ("b", 96, Decision::Own(affine(8, 32))),
            ("lm_head", 128, Decision::Own(affine(6, 64))),
            ("lm_head", 96, Decision::Plain),
        ] {
            assert_eq!(
                decided(&packings, path, columns).unwrap(),
                decision,
                "{path}"
            );
        }
        packings.default = QuantizationParameters::new(QuantizationMode::Mxfp4, 4, 32).unwrap();
        let error = decided(&packings, "lm_head", 128).unwrap_err();
        assert_eq!(error.message(), "no recipe goes with this mode: mxfp4");
    }
}
