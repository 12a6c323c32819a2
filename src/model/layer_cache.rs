//! The KV state of one layer.

use mlx_rs::{Array, ops};

use crate::engine::mlx::{MlxResult, replace_rows, slice_rows};

/// One layer's state, of one of the kinds that architectures use. Matched exhaustively, so that
/// a new kind cannot be forgotten where states are trimmed, measured or written.
#[derive(Clone)]
pub(crate) enum LayerCache {
    /// Keys and values of every position.
    Full(FullKv),
}

impl LayerCache {
    /// Tokens seen.
    pub(crate) fn offset(&self) -> usize {
        match self {
            Self::Full(kv) => kv.offset(),
        }
    }

    /// Goes back to the first `token_count` tokens, of which it has seen at least so many.
    pub(crate) fn trim_to(&mut self, token_count: usize) {
        match self {
            Self::Full(kv) => kv.trim_to(token_count),
        }
    }

    /// Bytes of its buffers, growth room included.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Full(kv) => kv.bytes(),
        }
    }

    /// The fewest tokens to which it can go back.
    pub(crate) fn trims_to(&self) -> usize {
        match self {
            Self::Full(_) => 0,
        }
    }

    /// Its arrays by name, for files: \[1, heads, positions, width\], of which the first
    /// positions are its tokens. None before the first token.
    pub(crate) fn parts(&self) -> Option<[(&'static str, &Array); 2]> {
        match self {
            Self::Full(kv) => kv
                .buffers
                .as_ref()
                .map(|(keys, values)| [("keys", keys), ("values", values)]),
        }
    }

    /// Takes over [`Self::parts`] that hold `token_count` positions, and maybe room for more.
    pub(crate) fn fill(&mut self, [keys, values]: [Array; 2], token_count: usize) {
        match self {
            Self::Full(kv) => {
                kv.offset = i32::try_from(token_count).unwrap_or(i32::MAX);
                kv.buffers = Some((keys, values));
            }
        }
    }

    /// The arrays to evaluate before the state counts as computed.
    pub(crate) fn arrays(&self) -> impl Iterator<Item = &Array> {
        match self {
            Self::Full(kv) => kv.buffers.iter().flat_map(|(keys, values)| [keys, values]),
        }
    }
}

/// Keys and values of every position: \[1, heads, positions, head dim\], of which the first
/// `offset` positions count. Cloning shares the buffers; MLX copies them when one side writes.
#[derive(Clone, Default)]
pub(crate) struct FullKv {
    buffers: Option<(Array, Array)>,
    offset: i32,
}

impl FullKv {
    /// Positions by which the buffers grow.
    pub(crate) const STEP: i32 = 256;

    pub(crate) fn offset(&self) -> usize {
        self.offset as usize
    }

    /// What is left of long buffers is copied out of them, so that it does not keep them alive.
    fn trim_to(&mut self, token_count: usize) {
        self.offset = self
            .offset
            .min(i32::try_from(token_count).unwrap_or(i32::MAX));
        let used = self.offset;
        if let Some((keys, values)) = &self.buffers
            && keys.dim(2) > Self::STEP
            && used < keys.dim(2) / 2
            && let (Ok(keys), Ok(values)) =
                (grow(keys.clone(), used, 1), grow(values.clone(), used, 1))
        {
            self.buffers = Some((keys, values));
        }
    }

    fn bytes(&self) -> usize {
        self.buffers
            .as_ref()
            .map_or(0, |(keys, values)| keys.nbytes() + values.nbytes())
    }

    /// Appends \[1, heads, new positions, head dim\] and returns all keys and values so far.
    ///
    /// # Errors
    /// MLX's. The state is unusable then.
    pub(crate) fn append(&mut self, keys: &Array, values: &Array) -> MlxResult<(Array, Array)> {
        let (previous, added) = (self.offset, keys.dim(2));
        let end = previous + added;
        let (all_keys, all_values) = match self.buffers.take() {
            Some((all_keys, all_values)) if end <= all_keys.dim(2) => (all_keys, all_values),
            Some((all_keys, all_values)) => (
                grow(all_keys, previous, added)?,
                grow(all_values, previous, added)?,
            ),
            None => (room(keys, added)?, room(values, added)?),
        };
        let all_keys = replace_rows(all_keys, keys, previous)?;
        let all_values = replace_rows(all_values, values, previous)?;
        self.offset = end;
        let seen = if end < all_keys.dim(2) {
            (
                slice_rows(&all_keys, 0, end)?,
                slice_rows(&all_values, 0, end)?,
            )
        } else {
            (all_keys.clone(), all_values.clone())
        };
        self.buffers = Some((all_keys, all_values));
        Ok(seen)
    }
}

/// Zeros like `rows`, enough positions for `added` rounded up to the step.
fn room(rows: &Array, added: i32) -> MlxResult {
    let positions = (FullKv::STEP + added - 1) / FullKv::STEP * FullKv::STEP;
    let shape = rows.shape();
    ops::zeros_dtype(&[shape[0], shape[1], positions, shape[3]], rows.dtype())
}

/// `buffer` cut to its first `used` positions, with room for `added` behind them.
fn grow(buffer: Array, used: i32, added: i32) -> MlxResult {
    let new = room(&buffer, added)?;
    let kept = if used == buffer.dim(2) {
        buffer
    } else {
        slice_rows(&buffer, 0, used)?
    };
    ops::concatenate(&[&kept, &new], 2)
}

#[cfg(test)]
mod tests {
    use mlx_rs::Dtype;

    use super::*;
    use crate::engine::{Pages, engine};

    /// Rows `[1, 1, count, 2]` that hold their position.
    fn rows(from: i32, count: i32) -> Array {
        let rows = (from..from + count).flat_map(|row| [row as f32, -row as f32]);
        Array::from_iter(rows, &[1, 1, count, 2])
    }

    fn values(array: &Array) -> Vec<f32> {
        array.contiguous().unwrap().to_vec_exact::<f32>().unwrap()
    }

    #[test]
    fn a_state_grows_in_steps_and_goes_back() {
        let work = |_: &crate::engine::Mlx| {
            let mut kv = FullKv::default();
            assert_eq!((kv.offset(), kv.bytes()), (0, 0));
            kv.append(&rows(0, 300), &rows(0, 300)).unwrap();
            // Two steps of 256 positions, keys and values, two numbers of four bytes each.
            assert_eq!((kv.offset(), kv.bytes()), (300, 2 * 512 * 8));
            let (keys, _) = kv.append(&rows(300, 212), &rows(300, 212)).unwrap();
            assert_eq!(kv.bytes(), 2 * 512 * 8, "a full buffer does not grow yet");
            assert_eq!(values(&keys), values(&rows(0, 512)));

            let fork = kv.clone();
            kv.trim_to(100);
            assert_eq!((kv.offset(), kv.bytes()), (100, 2 * 356 * 8));
            let (keys, kept) = kv.append(&rows(700, 1), &rows(800, 1)).unwrap();
            assert_eq!(
                values(&keys),
                [values(&rows(0, 100)), values(&rows(700, 1))].concat()
            );
            assert_eq!(values(&kept)[200..], values(&rows(800, 1)));

            // What the trimmed one wrote is not seen by its fork.
            let mut fork = fork;
            let (keys, _) = fork.append(&rows(512, 1), &rows(512, 1)).unwrap();
            assert_eq!(values(&keys), values(&rows(0, 513)));
            assert_eq!(fork.bytes(), 2 * 768 * 8);
        };
        engine().unwrap().run(work).unwrap();
    }

    /// A restored state is adopted memory: if MLX could not write there, each restore would be
    /// followed by a copy.
    #[test]
    fn a_step_writes_in_place_into_adopted_memory() {
        const POSITIONS: i32 = 512;
        let work = |mlx: &crate::engine::Mlx| {
            let adopted = || {
                let pages = Pages::new(POSITIONS as usize * 8).unwrap();
                mlx.adopt(pages, &[1, 1, POSITIONS, 2], Dtype::Float32)
                    .unwrap()
            };
            let mut layer = LayerCache::Full(FullKv::default());
            layer.fill([adopted(), adopted()], 300);
            let places = |layer: &LayerCache| -> Vec<*const f32> {
                let pointer = |array: &Array| array.as_slice::<f32>().as_ptr();
                layer.arrays().map(pointer).collect()
            };
            let before = places(&layer);
            let LayerCache::Full(kv) = &mut layer;
            let _ = kv.append(&rows(300, 1), &rows(300, 1)).unwrap();
            assert_eq!(places(&layer), before);
            // While somebody else holds it, the writer gets a copy.
            let fork = layer.clone();
            let LayerCache::Full(kv) = &mut layer;
            let _ = kv.append(&rows(301, 1), &rows(301, 1)).unwrap();
            assert_ne!(places(&layer), before);
            assert_eq!(places(&fork), before);
        };
        engine().unwrap().run(work).unwrap();
    }
}
