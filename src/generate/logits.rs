//! Logits, for evaluation and for comparing with other implementations.

use std::sync::Arc;

use mlx_rs::{Array, Dtype, transforms};

use crate::{
    engine::{Mlx, Owned, engine, mlx::MlxResult},
    error::{Error, Kind, Result},
    model::{LayerCache, LoadedModel, Model},
};

impl Model {
    /// The logits of the token that follows `tokens`: one for each id of the vocabulary, as
    /// f32. The tokens are run as [`generate`](Self::generate) runs a prompt.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for no tokens or ids that the model does not have,
    /// [`Kind::ContextFull`], [`Kind::Backend`].
    pub fn logits(&self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.0.check_tokens(tokens)?;
        let Some((last, before)) = tokens.split_last() else {
            return Err(Error::new(Kind::InvalidArgument, "no tokens to run"));
        };
        self.max_tokens(before.len(), None)?;
        let engine = engine()?;
        let mut layers = None;
        for chunk in before.chunks(super::DEFAULT_PREFILL_CHUNK) {
            let (model, ids) = (Arc::clone(&self.0), chunk.to_vec());
            layers = Some(engine.run(move |mlx| prefill(&model, layers, &ids, mlx))??);
        }
        let (model, last) = (Arc::clone(&self.0), *last);
        engine.run(move |mlx| finish(&model, layers, last, mlx))?
    }
}

type Layers = Option<Owned<Vec<LayerCache>>>;

fn open(model: &LoadedModel, layers: Layers, mlx: &Mlx) -> Vec<LayerCache> {
    layers.map_or_else(
        || model.network(mlx).new_cache(),
        |layers| layers.into_inner(mlx),
    )
}

fn prefill(
    model: &LoadedModel,
    layers: Layers,
    ids: &[u32],
    mlx: &Mlx,
) -> Result<Owned<Vec<LayerCache>>> {
    let mut layers = open(model, layers, mlx);
    mlx.on(model.device(), || -> MlxResult<()> {
        let ids = Array::from_slice(ids, &[1, ids.len() as i32]);
        model.network(mlx).forward(&ids, &mut layers)?;
        transforms::eval(layers.iter().flat_map(LayerCache::arrays))
    })?;
    Ok(Owned::new(layers, mlx))
}

fn finish(model: &LoadedModel, layers: Layers, last: u32, mlx: &Mlx) -> Result<Vec<f32>> {
    let mut layers = open(model, layers, mlx);
    let logits = mlx.on(model.device(), || -> MlxResult {
        let network = model.network(mlx);
        let hidden = network.forward(&Array::from_slice(&[last], &[1, 1]), &mut layers)?;
        network.logits(&hidden)?.as_dtype(Dtype::Float32)
    })?;
    let logits = logits
        .try_as_slice::<f32>()
        .map_err(|error| Error::new(Kind::Backend, format!("reading logits: {error}")))?;
    Ok(logits.to_vec())
}
