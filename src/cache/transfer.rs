//! Between the layers on the engine and bytes for files. One tensor at a time, so that the steps
//! of generations go on in between and no second copy of a state is ever in memory.

use std::{collections::VecDeque, ops::Range, sync::Arc, thread};

use mlx_rs::{Array, Dtype as MlxDtype};

use super::disk::{Chain, Layout, TensorLayout};
use crate::{
    engine::{Engine, Owned, Pages, mlx::row_bytes},
    error::{Error, Kind, Result},
    footprint::Need,
    memory::{self, Admission},
    model::{LayerCache, LoadedModel, State, from_mlx_dtype, to_mlx_dtype},
    safetensors::Dtype,
};

/// The layers of a state.
pub(super) type Layers = Owned<Vec<LayerCache>>;

/// What the files of such a state hold.
pub(super) fn layout(engine: &Engine, layers: &Arc<Layers>) -> Result<Layout> {
    let layers = Arc::clone(layers);
    engine.run(move |mlx| {
        let mut tensors = Vec::new();
        for (index, layer) in layers.get(mlx).iter().enumerate() {
            for (name, array) in layer.parts().into_iter().flatten() {
                tensors.push(tensor_layout(index, name, array)?);
            }
        }
        Ok(tensors.into())
    })?
}

fn tensor_layout(layer: usize, part: &str, array: &Array) -> Result<TensorLayout> {
    let dtype = from_mlx_dtype(array.dtype()).ok_or_else(|| {
        Error::new(
            Kind::Unsupported,
            format!("states of this type cannot be written: {:?}", array.dtype()),
        )
    })?;
    Ok(TensorLayout {
        name: format!("layers.{layer}.{part}"),
        dtype,
        heads: array.dim(1) as usize,
        width: array.dim(3) as usize,
    })
}

/// Bytes to fetch at once: a visit to the engine may have to wait for a long step.
const FETCHED_BYTES: usize = 32 << 20;

/// Reads the layers' tensors as bytes, in the layout's order.
pub(super) struct Rows<'a> {
    engine: &'a Engine,
    layers: &'a Arc<Layers>,
    tensor_count: usize,
    fetched: VecDeque<Vec<u8>>,
}

impl<'a> Rows<'a> {
    pub(super) fn new(engine: &'a Engine, layers: &'a Arc<Layers>, tensor_count: usize) -> Self {
        Self {
            engine,
            layers,
            tensor_count,
            fetched: VecDeque::new(),
        }
    }

    /// The positions `range` of the tensor with this index: \[heads, positions, width\]. Called
    /// for one tensor after the other, with one range; and from the first on again with another.
    pub(super) fn read(&mut self, index: usize, range: Range<usize>) -> Result<Vec<u8>> {
        if index == 0 {
            self.fetched.clear();
        }
        if let Some(bytes) = self.fetched.pop_front() {
            return Ok(bytes);
        }
        let layers = Arc::clone(self.layers);
        let indices = index..self.tensor_count;
        let fetched = self.engine.run(move |mlx| {
            let arrays: Vec<&Array> = layers
                .get(mlx)
                .iter()
                .filter_map(LayerCache::parts)
                .flatten()
                .map(|(_, array)| array)
                .collect();
            let (mut fetched, mut bytes) = (VecDeque::new(), 0);
            for array in &arrays[indices] {
                let rows = row_bytes(array, range.start as i32, range.end as i32)?;
                bytes += rows.len();
                fetched.push_back(rows);
                if bytes >= FETCHED_BYTES {
                    break;
                }
            }
            Ok::<_, Error>(fetched)
        })??;
        self.fetched = fetched;
        self.fetched.pop_front().ok_or_else(|| {
            Error::new(
                Kind::InvalidArgument,
                format!("a state has no tensor of this index: {index}"),
            )
        })
    }
}

/// Bytes of a state from which on several threads read it.
const SHARED_FROM_BYTES: u64 = 8 << 20;
/// Threads that read; more of them would wait for each other's memory.
const MOST_READERS: usize = 4;

/// Reads the state that a chain of files holds; `open` opens it, once for each thread that reads.
/// None where it cannot be opened.
///
/// # Errors
/// [`Kind::OverBudget`] when it does not fit into memory, [`Kind::Corrupt`] for files that do not
/// hold what they should or not what the model needs.
pub(super) fn restore(
    engine: &'static Engine,
    open: impl Fn() -> Option<Chain>,
    model: &Arc<LoadedModel>,
    tokens: &[u32],
) -> Result<Option<State>> {
    let Some(chain) = open() else {
        return Ok(None);
    };
    let mut room = Room::new(engine, model, chain.layout(), chain.token_count())?;
    let reader_count = match thread::available_parallelism() {
        Ok(count) if room.bytes >= SHARED_FROM_BYTES => count.get().min(MOST_READERS),
        _ => 1,
    };
    let mut chains = vec![chain];
    chains.extend((1..reader_count).filter_map(|_| open()));
    let capacity = room.capacity;
    read_all(&chains, &mut room.parts, capacity)?;
    room.into_state(engine, model, tokens).map(Some)
}

/// Memory for a state that is read from files.
pub(super) struct Room {
    parts: Vec<Part>,
    token_count: usize,
    /// Positions, with room to grow.
    pub(super) capacity: usize,
    bytes: u64,
    admission: Admission,
}

impl Room {
    /// Room for a state of `token_count` tokens with such tensors.
    ///
    /// # Errors
    /// [`Kind::OverBudget`] and [`Kind::OutOfMemory`]; [`Kind::Corrupt`] for tensors that do not
    /// fit the model.
    pub(super) fn new(
        engine: &Engine,
        model: &LoadedModel,
        layout: &[TensorLayout],
        token_count: usize,
    ) -> Result<Self> {
        check_layout(layout, model)?;
        let bytes = model.shape.kv_bytes(token_count as u64 + 1);
        let need = Need {
            lasting_bytes: bytes,
            step_bytes: 0,
        };
        let admission = engine.run(move |mlx| memory::admit("the state", need, mlx))??;
        // Room for the token that follows, so that it does not copy the whole again.
        let capacity = (token_count + 1).next_multiple_of(STEP);
        // All of the memory first: side by side, the system can give it out in larger pages.
        let parts = layout.iter().map(|tensor| Part::new(tensor, capacity));
        Ok(Self {
            parts: parts.collect::<Result<_>>()?,
            token_count,
            capacity,
            bytes,
            admission,
        })
    }

    /// Where tensor `index` goes: \[heads, capacity, width\].
    pub(super) fn part(&mut self, index: usize) -> &mut [u8] {
        self.parts[index].pages.as_mut_slice()
    }

    /// Hands the memory to MLX.
    ///
    /// # Errors
    /// MLX's.
    pub(super) fn into_state(
        self,
        engine: &Engine,
        model: &Arc<LoadedModel>,
        tokens: &[u32],
    ) -> Result<State> {
        let model = Arc::clone(model);
        let tokens = tokens[..self.token_count].to_vec();
        engine.run(move |mlx| {
            let mut arrays = self
                .parts
                .into_iter()
                .map(|part| mlx.adopt(part.pages, &part.shape, part.dtype));
            let mut layers = model.network(mlx).new_cache();
            for layer in &mut layers {
                let mut next = || arrays.next().expect("the layout has two tensors a layer");
                layer.fill([next()?, next()?], self.token_count);
            }
            drop(self.admission);
            Ok(State::new(tokens, layers, mlx))
        })?
    }
}

/// Memory for one tensor.
struct Part {
    pages: Pages,
    shape: [i32; 4],
    dtype: MlxDtype,
}

impl Part {
    fn new(tensor: &TensorLayout, capacity: usize) -> Result<Self> {
        let bytes = tensor.heads * capacity * tensor.width * element_bytes(tensor);
        Ok(Self {
            pages: Pages::new(bytes)?,
            shape: [1, tensor.heads, capacity, tensor.width].map(|length| length as i32),
            dtype: to_mlx_dtype(tensor.dtype).ok_or_else(|| unfit(&tensor.name))?,
        })
    }
}

/// Reads each part by whichever chain is free.
fn read_all(chains: &[Chain], parts: &mut [Part], capacity: usize) -> Result<()> {
    let (sender, waiting) = crossbeam_channel::unbounded();
    for part in parts.iter_mut().enumerate() {
        sender.send(part).expect("both ends are here");
    }
    drop(sender);
    let read = |chain: &Chain| {
        waiting
            .try_iter()
            .try_for_each(|(index, part)| chain.read(index, part.pages.as_mut_slice(), capacity))
    };
    let (first, others) = chains.split_first().expect("one was opened");
    thread::scope(|scope| {
        let others: Vec<_> = others
            .iter()
            .map(|chain| scope.spawn(|| read(chain)))
            .collect();
        let mut outcome = read(first);
        for other in others {
            let panicked = || Error::new(Kind::Panic, "reading a cached state panicked");
            outcome = outcome.and(other.join().unwrap_or_else(|_| Err(panicked())));
        }
        outcome
    })
}

/// Positions by which buffers grow.
const STEP: usize = crate::footprint::KV_STEP as usize;

fn element_bytes(tensor: &TensorLayout) -> usize {
    tensor.dtype.bits().map_or(0, |bits| bits as usize / 8)
}

/// The namespace says that the files were made by this very model. Still, what becomes the shape
/// of an array is not taken from a file alone.
fn check_layout(layout: &[TensorLayout], model: &LoadedModel) -> Result<()> {
    let shape = &model.shape;
    if layout.len() as u64 != 2 * shape.layer_count {
        return Err(unfit("layers"));
    }
    for (index, tensor) in layout.iter().enumerate() {
        let part = ["keys", "values"][index % 2];
        let fits = tensor.name == format!("layers.{}.{part}", index / 2)
            && tensor.heads as u64 == shape.kv_head_count
            && tensor.width as u64 == shape.head_dim
            && matches!(tensor.dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16)
            && element_bytes(tensor) as u64 == shape.element_bytes;
        if !fits {
            return Err(unfit(&tensor.name));
        }
    }
    Ok(())
}

fn unfit(what: &str) -> Error {
    Error::new(
        Kind::Corrupt,
        format!("a cached state does not fit the model: {what}"),
    )
}
