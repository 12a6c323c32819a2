//! Files of one state, as mlx-lm's `save_prompt_cache` writes and `load_prompt_cache` reads them.
//!
//! A safetensors file with the tensors "i.0" and "i.1", the keys and values of layer i, \[1, heads,
//! positions, width\], and "i.2", a scalar: how many of the positions count. Its metadata is a
//! flattened list: under "0" strings of the writer's, under "1" the layers' classes, under "2" the
//! tensors that stand for scalars. Before that scalar all positions counted, and the classes stood
//! under "2"; such files are read, too.
//!
//! mlx-lm does not say which tokens a file is of. Our own say it among the writer's strings, as
//! decimal numbers with spaces between them, which mlx-lm passes over.

use std::{
    collections::{BTreeMap, hash_map::RandomState},
    fs,
    hash::{BuildHasher as _, Hasher as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::{Map, Value};

use super::{
    disk::TensorLayout,
    transfer::{self, Room, Rows},
};
use crate::{
    engine::engine,
    error::{Error, Kind, Result},
    escape::{Escaped, EscapedPath},
    model::{Kv, Model, State},
    safetensors::{Dtype, NewTensor, Shard, TensorInfo, Writer},
};

/// mlx-lm's name of layers that keep every position.
const CLASS: &str = "KVCache";
const TOKENS: &str = "0.mlxb_tokens";

impl Kv {
    /// Writes the state to a file that [`Kv::load`] and mlx-lm's `load_prompt_cache` read. A file
    /// of that name is replaced once the new one is whole. Only the owner may read it.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for a state without tokens, [`Kind::Busy`] while a generation
    /// uses it, and what the system reports; a file that was there is unchanged then.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let state = self.state()?;
        let layers = state.layers.as_ref().filter(|_| !state.tokens.is_empty());
        let Some(layers) = layers else {
            return Err(Error::new(
                Kind::InvalidArgument,
                "a state without tokens cannot be saved",
            ));
        };
        let engine = engine()?;
        let count = state.tokens.len();
        let layout = transfer::layout(engine, layers)?;
        let (tensors, metadata) = describe(&layout, &state.tokens);
        let partial = Partial::new(path);
        let mut writer = Writer::create_with(&partial.0, &tensors, &metadata, 0o600)?;
        let mut rows = Rows::new(engine, layers, layout.len());
        for index in 0..layout.len() {
            // Two tensors of the layout, and a scalar behind them.
            writer.append(index / 2 * 3 + index % 2, &rows.read(index, 0..count)?)?;
        }
        for layer in 0..layout.len() / 2 {
            let offset = i32::try_from(count).map_err(|_| too_long(count))?;
            writer.append(layer * 3 + 2, &offset.to_le_bytes())?;
        }
        writer.finish()?;
        fs::rename(&partial.0, path).map_err(|error| Error::io(EscapedPath(path), error))
    }

    /// Reads a state of `model` from a file of [`Kv::save`] or of mlx-lm's `save_prompt_cache`.
    /// `tokens` says which tokens it is of; None: the file does, as ours do.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for tokens that are not as many as the file's positions or not
    /// the file's own, and without any; [`Kind::Corrupt`] for a file that contradicts itself or
    /// does not fit the model; [`Kind::Unsupported`] for layers of another kind;
    /// [`Kind::OverBudget`]; what the system reports.
    pub fn load(model: &Model, path: impl AsRef<Path>, tokens: Option<&[u32]>) -> Result<Self> {
        let path = path.as_ref();
        let shard = Shard::open(path)?;
        let layer_count = layer_count(&shard)?;
        let tensors: BTreeMap<&str, &TensorInfo> = shard
            .tensors()
            .iter()
            .map(|tensor| (tensor.name.as_str(), tensor))
            .collect();
        let find = |name: String| {
            let found = tensors.get(name.as_str()).copied();
            found.ok_or_else(|| corrupt(path, "lacks a tensor", &name))
        };
        let mut count = None;
        let mut sources = Vec::new();
        let mut layout = Vec::new();
        for layer in 0..layer_count {
            for (part, name) in ["keys", "values"].into_iter().enumerate() {
                let tensor = find(format!("{layer}.{part}"))?;
                let [1, heads, positions, width] = tensor.shape[..] else {
                    return Err(corrupt(path, "has a tensor of another shape", &tensor.name));
                };
                let own = match tensors.get(format!("{layer}.2").as_str()) {
                    Some(scalar) => offset(&shard, scalar)?,
                    None => positions,
                };
                if own > positions || count.is_some_and(|count| count != own) {
                    return Err(corrupt(path, "contradicts itself in", &tensor.name));
                }
                count = Some(own);
                sources.push((tensor, positions));
                layout.push(TensorLayout {
                    name: format!("layers.{layer}.{name}"),
                    dtype: tensor.dtype,
                    heads,
                    width,
                });
            }
        }
        let count = count.filter(|&count| count > 0);
        let count = count.ok_or_else(|| corrupt(path, "holds no positions", ""))?;
        let are_given = tokens.is_some();
        let tokens = settle_tokens(&shard, count, tokens)?;
        model
            .0
            .check_tokens(&tokens)
            .map_err(|error| match are_given {
                true => error,
                false => corrupt(path, "is of another model", error.message()),
            })?;
        let engine = engine()?;
        let mut room = Room::new(engine, &model.0, &layout, count)?;
        let capacity = room.capacity;
        for (index, (tensor, positions)) in sources.into_iter().enumerate() {
            let destination = room.part(index);
            let head_bytes = destination.len() / layout[index].heads;
            let row_bytes = head_bytes / capacity;
            for (head, destination) in destination.chunks_exact_mut(head_bytes).enumerate() {
                let skipped = (head * positions * row_bytes) as u64;
                shard.read_part_at(tensor, skipped, &mut destination[..count * row_bytes])?;
            }
        }
        let state: State = room.into_state(engine, &model.0, &tokens)?;
        Ok(Self::from_state(Arc::clone(&model.0), state))
    }
}

/// The tensors and metadata of a file.
fn describe(layout: &[TensorLayout], tokens: &[u32]) -> (Vec<NewTensor>, Value) {
    let mut tensors = Vec::new();
    let mut metadata = Map::new();
    let mut say = |name: String, value: &str| metadata.insert(name, value.into());
    let numbers: Vec<String> = tokens.iter().map(u32::to_string).collect();
    say(TOKENS.into(), &numbers.join(" "));
    say("2.0".into(), "");
    for (index, parts) in layout.chunks_exact(2).enumerate() {
        for (part, tensor) in parts.iter().enumerate() {
            tensors.push(NewTensor {
                name: format!("{index}.{part}"),
                dtype: tensor.dtype,
                shape: vec![1, tensor.heads, tokens.len(), tensor.width],
            });
        }
        let scalar = format!("{index}.2");
        say(format!("1.{index}"), CLASS);
        say(format!("2.{}.0", index + 1), &scalar);
        say(format!("2.{}.1", index + 1), "scalar");
        tensors.push(NewTensor {
            name: scalar,
            dtype: Dtype::I32,
            shape: Vec::new(),
        });
    }
    (tensors, Value::Object(metadata))
}

/// How many layers a file has, all of the kind that there is.
fn layer_count(shard: &Shard) -> Result<usize> {
    let metadata = shard.metadata();
    let is_older = metadata.get("2.0").is_none_or(|first| !first.is_empty());
    let list = if is_older { "2" } else { "1" };
    let mut count = 0;
    while let Some(class) = metadata.get(&format!("{list}.{count}")) {
        if class != CLASS {
            return Err(Error::new(
                Kind::Unsupported,
                format!(
                    "{}: a layer is of another kind than {CLASS}: {}",
                    EscapedPath(shard.path()),
                    Escaped(class)
                ),
            ));
        }
        count += 1;
    }
    if count == 0 {
        return Err(corrupt(shard.path(), "is no prompt cache", ""));
    }
    Ok(count)
}

/// The number that a scalar holds.
fn offset(shard: &Shard, scalar: &TensorInfo) -> Result<usize> {
    let mut bytes = [0; 8];
    let length = match (scalar.dtype, scalar.element_count()) {
        (Dtype::I32 | Dtype::U32, 1) => 4,
        (Dtype::I64 | Dtype::U64, 1) => 8,
        _ => return Err(corrupt(shard.path(), "has no offset in", &scalar.name)),
    };
    shard.read_exact_at(scalar, &mut bytes[..length])?;
    // A negative one is larger than any number of positions.
    usize::try_from(u64::from_le_bytes(bytes)).map_err(|_| too_long(usize::MAX))
}

/// Which tokens a file of `count` positions is of.
fn settle_tokens(shard: &Shard, count: usize, given: Option<&[u32]>) -> Result<Vec<u32>> {
    let own = match shard.metadata().get(TOKENS) {
        None => None,
        Some(text) => {
            let numbers = text.split(' ').map(str::parse);
            let numbers: Result<Vec<u32>, _> = numbers.collect();
            let numbers = numbers.ok().filter(|numbers| numbers.len() == count);
            Some(numbers.ok_or_else(|| corrupt(shard.path(), "contradicts itself in", TOKENS))?)
        }
    };
    let invalid = |what: String| {
        let path = EscapedPath(shard.path());
        Err(Error::new(Kind::InvalidArgument, format!("{path}: {what}")))
    };
    match (own, given) {
        (None, None) => invalid("the file does not say which tokens it is of".into()),
        (_, Some(given)) if given.len() != count => invalid(format!(
            "the file is of {count} tokens, and {} are given",
            given.len()
        )),
        (Some(own), Some(given)) if own != given => {
            invalid("the file is of other tokens than those given".into())
        }
        (Some(own), _) => Ok(own),
        (None, Some(given)) => Ok(given.to_vec()),
    }
}

/// A file that is not whole yet; removed unless it gets its name.
struct Partial(PathBuf);

impl Partial {
    /// Of a name of its own: others may be writing the same file.
    fn new(path: &Path) -> Self {
        let random = RandomState::new().build_hasher().finish();
        Self(path.with_file_name(format!(".mlxb-{random:016x}.partial")))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Not there any more when it got its name.
        let _ = fs::remove_file(&self.0);
    }
}

fn corrupt(path: &Path, what: &str, name: &str) -> Error {
    let colon = if name.is_empty() { "" } else { ": " };
    Error::new(
        Kind::Corrupt,
        format!(
            "{}: the file {what}{colon}{}",
            EscapedPath(path),
            Escaped(name)
        ),
    )
}

fn too_long(count: usize) -> Error {
    Error::new(
        Kind::Unsupported,
        format!("a state of so many tokens cannot be in a file: {count}"),
    )
}
