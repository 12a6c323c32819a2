//! One segment, and how it stands in its file.
//!
//! A file is a valid safetensors file and says all about itself: whose KV it holds, of which
//! tokens, and which file it continues at which position. Its tensors are `tokens`, then those
//! of the layout, then `checksums`: xxh3 of the header (its length and the spaces behind it
//! included) and of each tensor before. That is the order of writing, so that one pass over the
//! tensors is enough. The spaces put the layout's tensors at a multiple of 64 bytes, and so is
//! each of them when the bytes of a row of it are; the format allows no gaps between tensors.
//!
//! There is one way to write a segment. So a header is checked by writing it again: whatever
//! differs in a single byte is not what this library wrote. The name of a file is a hash over
//! what it is about, that of the file it continues included: two processes that store the same
//! agree on it, and it stands for all tokens from the first one on.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    fs::File,
    io::{self, ErrorKind},
    path::Path,
    sync::Arc,
};

use serde_json::Value;

use super::layout::{self, CHECKSUMS, Layout, TOKENS, TensorLayout};
use crate::{
    cache::namespace::Namespace,
    error::{Error, Kind, Result},
    escape::{Escaped, EscapedPath},
    regular_file,
    safetensors::{Dtype, Header},
};

/// The form of the files; a new one goes into a folder of its own.
pub(super) const VERSION: u32 = 1;
/// What [`Header`] calls the length of the header's length.
const PREFIX_BYTES: usize = 8;
/// Enough for the largest layout; a longer header is not ours.
const MOST_HEADER_BYTES: u64 = 8 << 20;
/// More than the context of any model; bounds what a file can make us read.
const MOST_TOKENS: usize = 1 << 24;
/// Keeps positions from overflowing.
const MOST_START: usize = u32::MAX as usize;
/// Where the first of the layout's tensors begins is a multiple of this.
const ALIGNMENT: usize = 64;
/// Read at once: most headers, and the tokens of a few turns.
const FIRST_READ_BYTES: u64 = 16 << 10;

const EXTENSION: &str = ".safetensors";

/// What a file's name says: a hash over namespace, layout, parent, start and tokens.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct SegmentId([u8; 32]);

impl SegmentId {
    fn of(
        namespace: &Namespace,
        layout: &[TensorLayout],
        parent: Option<Self>,
        start: usize,
        tokens: &[u32],
    ) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("mlxb prompt cache segment 1");
        hasher.update(&(layout.len() as u64).to_le_bytes());
        for tensor in layout {
            let dtype = tensor.dtype.name().unwrap_or_default();
            for number in [tensor.heads, tensor.width, tensor.name.len(), dtype.len()] {
                hasher.update(&(number as u64).to_le_bytes());
            }
            hasher.update(tensor.name.as_bytes());
            hasher.update(dtype.as_bytes());
        }
        hasher.update(&namespace.0);
        hasher.update(&[u8::from(parent.is_some())]);
        hasher.update(&parent.map_or([0; 32], |parent| parent.0));
        hasher.update(&(start as u64).to_le_bytes());
        hasher.update(&token_bytes(tokens));
        Self(hasher.finalize().into())
    }

    /// The name of its file.
    pub(super) fn file_name(self) -> String {
        hex(self.0) + EXTENSION
    }

    /// The segment that a file of this name holds.
    pub(super) fn from_file_name(name: &str) -> Option<Self> {
        from_hex(name.strip_suffix(EXTENSION)?).map(Self)
    }
}

/// The name of a namespace's folder.
pub(super) fn folder_name(namespace: &Namespace) -> String {
    hex(namespace.0)
}

/// The namespace whose folder has this name.
pub(super) fn namespace_from_folder_name(name: &str) -> Option<Namespace> {
    from_hex(name).map(Namespace)
}

fn hex(bytes: [u8; 32]) -> String {
    blake3::Hash::from_bytes(bytes).to_hex().to_string()
}

/// Only what [`hex`] writes, so that a hash has one name.
fn from_hex(text: &str) -> Option<[u8; 32]> {
    let is_lower = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let hash = blake3::Hash::from_hex(text).ok()?;
    text.bytes().all(is_lower).then_some(*hash.as_bytes())
}

fn token_bytes(tokens: &[u32]) -> Vec<u8> {
    tokens
        .iter()
        .flat_map(|token| token.to_le_bytes())
        .collect()
}

/// What one file holds: the KV of `tokens`, which stand at the positions from `start` on, behind
/// the first `start` tokens of the branch that ends in `parent`.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) namespace: Namespace,
    pub(super) id: SegmentId,
    pub(super) parent: Option<SegmentId>,
    pub(super) start: usize,
    pub(super) tokens: Box<[u32]>,
    pub(super) layout: Layout,
}

impl Segment {
    /// A segment of a layout that [`layout::check`] passed.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] when there are no tokens, or more than a file may have.
    pub(super) fn new(
        namespace: Namespace,
        parent: Option<SegmentId>,
        start: usize,
        tokens: &[u32],
        layout: Layout,
    ) -> Result<Self> {
        if tokens.is_empty() || tokens.len() > MOST_TOKENS {
            return Err(Error::new(
                Kind::InvalidArgument,
                format!(
                    "number of tokens is not from 1 to {MOST_TOKENS}: {}",
                    tokens.len()
                ),
            ));
        }
        Ok(Self {
            namespace,
            id: SegmentId::of(&namespace, &layout, parent, start, tokens),
            parent,
            start,
            tokens: tokens.into(),
            layout,
        })
    }

    /// The position behind the last token.
    pub(super) fn end(&self) -> usize {
        self.start + self.tokens.len()
    }

    /// What stands before the layout's tensors: the header, and the tokens.
    pub(super) fn head(&self) -> Head {
        head(
            &self.namespace,
            self.parent,
            self.start,
            &self.tokens,
            &self.layout,
        )
    }

    /// Reads what `file`, found in the folder of `namespace` under the name of `id`, is about;
    /// `known` is the layout of other files there. Everything before the tensors is checked, and
    /// the length of the file.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] for what this library has not written so, or cannot be read.
    pub(super) fn read(
        path: &Path,
        file: &File,
        file_bytes: u64,
        namespace: Namespace,
        id: SegmentId,
        known: Option<&Layout>,
    ) -> Result<Self> {
        let corrupt =
            |what: String| Error::new(Kind::Corrupt, format!("{}: {what}", EscapedPath(path)));
        let first = extended(path, file, Vec::new(), file_bytes.min(FIRST_READ_BYTES))?;
        let header_bytes = first
            .first_chunk::<PREFIX_BYTES>()
            .map(|prefix| u64::from_le_bytes(*prefix))
            .filter(|&bytes| bytes <= MOST_HEADER_BYTES)
            .filter(|&bytes| PREFIX_BYTES as u64 + bytes <= file_bytes)
            .ok_or_else(|| corrupt("file has no header of its own".into()))?;
        let tokens_at = PREFIX_BYTES as u64 + header_bytes;
        let header = extended(path, file, first, tokens_at)?;
        let json = &header[PREFIX_BYTES..tokens_at as usize];
        let about: About = serde_json::from_slice(json).map_err(|error| {
            let error = error.to_string();
            corrupt(format!("header is malformed: {}", Escaped(&error)))
        })?;
        let fields = about
            .fields()
            .filter(|fields| (1..=MOST_TOKENS).contains(&fields.token_count))
            .filter(|fields| fields.start <= MOST_START)
            .filter(|fields| tokens_at + 4 * fields.token_count as u64 <= file_bytes)
            .ok_or_else(|| corrupt("header is not about a segment".into()))?;
        let head_bytes = tokens_at + 4 * fields.token_count as u64;
        let read = extended(path, file, header, head_bytes)?;
        let read = &read[..head_bytes as usize];
        let tokens: Vec<u32> = read[tokens_at as usize..]
            .chunks_exact(4)
            .map(|bytes| u32::from_le_bytes(bytes.try_into().expect("chunks of four")))
            .collect();
        let is_same = |layout: &Layout| {
            let head = head(&namespace, fields.parent, fields.start, &tokens, layout);
            head.bytes == *read && head.file_bytes == file_bytes
        };
        let layout = match known {
            Some(known) if is_same(known) => Arc::clone(known),
            _ => {
                let json = &read[PREFIX_BYTES..tokens_at as usize];
                let layout = derived_layout(&Header::parse(path, json, file_bytes)?)
                    .ok_or_else(|| corrupt("tensors are not those of a segment".into()))?;
                if !is_same(&layout) {
                    return Err(corrupt("header is not what it should be".into()));
                }
                layout
            }
        };
        let segment = Self::new(namespace, fields.parent, fields.start, &tokens, layout)?;
        if segment.id != id {
            return Err(corrupt("file's name is not that of its content".into()));
        }
        Ok(segment)
    }
}

/// The beginning of a file, and where its parts are.
pub(super) struct Head {
    /// The header and the tokens.
    pub(super) bytes: Vec<u8>,
    /// How much of it is the header.
    pub(super) header_bytes: usize,
    /// Where the tensors of the layout begin and end; the checksums follow.
    pub(super) borders: Vec<u64>,
    /// Length of the whole file.
    pub(super) file_bytes: u64,
}

impl Head {
    /// xxh3 of the header and of the tokens.
    pub(super) fn checksums(&self) -> [u64; 2] {
        let (header, tokens) = self.bytes.split_at(self.header_bytes);
        [
            xxhash_rust::xxh3::xxh3_64(header),
            xxhash_rust::xxh3::xxh3_64(tokens),
        ]
    }

    /// Where the checksums begin.
    pub(super) fn checksums_at(&self) -> u64 {
        *self.borders.last().expect("a layout is not empty")
    }
}

fn head(
    namespace: &Namespace,
    parent: Option<SegmentId>,
    start: usize,
    tokens: &[u32],
    layout: &[TensorLayout],
) -> Head {
    let count = tokens.len();
    // Written by hand: opening a directory does this for each file.
    let mut json = format!(
        "{{\"__metadata__\":{{\"format\":\"mlxb-kv\",\"version\":\"{VERSION}\",\
         \"namespace\":\"{}\",\"parent\":\"{}\",\
         \"start\":\"{start}\",\"token_count\":\"{count}\"}}",
        hex(namespace.0),
        parent.map_or(String::new(), |parent| hex(parent.0)),
    );
    let mut end = 0u64;
    let mut entry = |name: &str, dtype: Dtype, shape: fmt::Arguments<'_>, bytes: u64| {
        let dtype = dtype.name().expect("the layout was checked");
        let name = Value::from(name);
        let begin = end;
        end += bytes;
        let written = write!(
            json,
            ",{name}:{{\"dtype\":\"{dtype}\",\"shape\":[{shape}],\"data_offsets\":[{begin},{end}]}}"
        );
        written.expect("a string takes everything");
        end
    };
    let mut borders = vec![entry(
        TOKENS,
        Dtype::U32,
        format_args!("{count}"),
        4 * count as u64,
    )];
    for tensor in layout {
        let (heads, width) = (tensor.heads, tensor.width);
        let bytes = tensor.position_bytes() * count as u64;
        let shape = format_args!("1,{heads},{count},{width}");
        borders.push(entry(&tensor.name, tensor.dtype, shape, bytes));
    }
    let checksum_count = layout.len() as u64 + 2;
    let shape = format_args!("{checksum_count}");
    let data_bytes = entry(CHECKSUMS, Dtype::U64, shape, 8 * checksum_count);
    json.push('}');
    let head_bytes = PREFIX_BYTES + json.len() + 4 * count;
    let padding = head_bytes.next_multiple_of(ALIGNMENT) - head_bytes;
    json.extend(std::iter::repeat_n(' ', padding));
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(json.as_bytes());
    let header_bytes = bytes.len();
    bytes.extend_from_slice(&token_bytes(tokens));
    for border in &mut borders {
        *border += header_bytes as u64;
    }
    Head {
        bytes,
        header_bytes,
        borders,
        file_bytes: header_bytes as u64 + data_bytes,
    }
}

/// What a header says of the segment; the rest of it is passed over here.
#[derive(serde::Deserialize)]
struct About {
    #[serde(rename = "__metadata__")]
    metadata: BTreeMap<String, String>,
}

struct Fields {
    parent: Option<SegmentId>,
    start: usize,
    token_count: usize,
}

impl About {
    fn fields(&self) -> Option<Fields> {
        let field = |name: &str| self.metadata.get(name).map(String::as_str);
        Some(Fields {
            parent: match field("parent")? {
                "" => None,
                parent => Some(SegmentId(from_hex(parent)?)),
            },
            start: field("start")?.parse().ok()?,
            token_count: field("token_count")?.parse().ok()?,
        })
    }
}

/// The layout that a header describes; nothing where it cannot be one of ours.
fn derived_layout(header: &Header) -> Option<Layout> {
    let [_tokens, tensors @ .., _checksums] = header.tensors() else {
        return None;
    };
    let layout: Layout = tensors
        .iter()
        .map(|tensor| match tensor.shape[..] {
            [1, heads, _, width] => Some(TensorLayout {
                name: tensor.name.clone(),
                dtype: tensor.dtype,
                heads,
                width,
            }),
            _ => None,
        })
        .collect::<Option<_>>()?;
    layout::check(&layout).ok()?;
    Some(layout)
}

/// `bytes` from the beginning of the file, `start` of which are there already.
fn extended(path: &Path, file: &File, mut start: Vec<u8>, bytes: u64) -> Result<Vec<u8>> {
    let bytes = usize::try_from(bytes).expect("bounded by the most that a header has");
    let done = start.len();
    if bytes > done {
        start.resize(bytes, 0);
        read_exact_at(path, file, &mut start[done..], done as u64)?;
    }
    Ok(start)
}

/// Fills `buffer` from `offset` on.
///
/// # Errors
/// [`Kind::Corrupt`]: a file that ends early, or cannot be read where it should be, is no good.
pub(super) fn read_exact_at(
    path: &Path,
    file: &File,
    buffer: &mut [u8],
    offset: u64,
) -> Result<()> {
    let read = regular_file::read_up_to(file, buffer, offset).and_then(|read| {
        match read == buffer.len() {
            true => Ok(()),
            false => Err(ErrorKind::UnexpectedEof.into()),
        }
    });
    read.map_err(|error| unreadable(path, error))
}

/// The error of a file that could be opened but not read.
pub(super) fn unreadable(path: &Path, error: io::Error) -> Error {
    Error::new(Kind::Corrupt, format!("{}: {error}", EscapedPath(path))).with_source(error)
}
