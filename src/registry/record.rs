//! What is known about one model.

use std::{
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use super::{
    card,
    facts::{self, Facts},
    gc::disk_bytes,
    layout::{self, Reader},
    names::{RepoKind, parse_repo_folder},
    template,
    tensors::Tensors,
};
use crate::{
    error::{Error, Kind, Result},
    escape::EscapedPath,
    regular_file,
    snapshot::{Completeness, Role, Snapshot, read_json},
    supported,
};

/// Model cards begin with their front matter.
const CARD_BYTES: usize = 64 << 10;
/// The longest chat template.
const MOST_TEMPLATE_BYTES: u64 = 4 << 20;

/// One snapshot of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRecord {
    /// The snapshot's folder, absolute and without links.
    pub path: String,
    /// Such as `org/name`.
    pub repo_id: String,
    /// The architecture, as the config names it.
    pub model_type: Option<String>,
    /// The architecture that the config nests in `text_config`.
    pub(crate) text_model_type: Option<String>,
    /// Bytes of the weight files that are loaded for text.
    pub size_bytes: u64,
    /// Bytes of the vision sidecar, which are not in `size_bytes`.
    pub sidecar_bytes: u64,
    /// Bytes of the experts' tensors, a part of `size_bytes`.
    pub experts_bytes: u64,
    /// Bytes of all files of the snapshot, those shared with other snapshots included.
    pub disk_bytes: u64,
    /// Parameters, packed ones counted as the weights that they stand for.
    pub parameter_count: Option<u64>,
    /// Bits a weight.
    pub quant_bits: Option<i32>,
    /// Weights that share a scale.
    pub quant_group_size: Option<i32>,
    /// Such as `affine` or `mxfp4`; of other packers their method, such as `fp8`.
    pub quant_mode: Option<String>,
    /// The vision tower's type, where the config names one.
    pub vision_config_type: Option<String>,
    /// The license that the model card names.
    pub license: Option<String>,
    /// Whether a vision tower lies beside the language model.
    pub has_vision_sidecar: bool,
    /// Whether the folder has settings for the KV cache.
    pub has_kv_config: bool,
    /// Whether the chat template knows about tools.
    pub has_tool_template: bool,
    /// Whether everything that loading needs is there.
    pub is_complete: bool,
    /// Whether the model only proposes tokens for another one.
    pub is_drafter: bool,
    /// Transformer layers.
    pub layer_count: Option<i32>,
    /// The width of the hidden states.
    pub hidden_size: Option<i32>,
    /// Tokens in the vocabulary.
    pub vocab_size: Option<i32>,
    /// When the files were read, in milliseconds since 1970.
    pub scanned_at_ms: i64,
    /// Whether it stands for its repository: `refs/main` names it, or, without that, it is the
    /// newest complete snapshot.
    #[serde(skip)]
    pub is_canonical: bool,
}

impl ModelRecord {
    /// Whether the model takes pictures: by a sidecar, or by itself.
    pub fn is_vision_capable(&self) -> bool {
        self.has_vision_sidecar || facts::is_unified_vision(self.vision_config_type.as_deref())
    }

    /// Whether this library can load the architecture.
    pub fn is_supported(&self) -> bool {
        self.model_type.as_deref().is_some_and(|model_type| {
            supported::architecture(model_type, self.text_model_type.as_deref()).is_some()
        })
    }
}

/// Reads one model folder, without a database. In a hub's snapshot folder, `repo_id` defaults
/// to the repository's; elsewhere to the folder's name.
///
/// # Errors
/// [`Kind::NotFound`] when there is no such folder; [`Kind::ModelFormat`] and [`Kind::Corrupt`]
/// for files that contradict themselves; [`Kind::InvalidUtf8`] for a path that is no text.
pub fn inspect(folder: &Path, repo_id: Option<&str>) -> Result<ModelRecord> {
    let io = |error| Error::io(EscapedPath(folder), error);
    let path = folder.canonicalize().map_err(io)?;
    if !path.is_dir() {
        return Err(Error::new(
            Kind::InvalidArgument,
            format!("not a folder: {}", EscapedPath(folder)),
        ));
    }
    let place = Place::of(&path);
    let id = match (repo_id, &place) {
        (Some(id), _) => id.to_owned(),
        (None, Some(place)) => place.repo_id.clone(),
        (None, None) => path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
    };
    let listing = Reader::default().tree(&path, 0);
    let mut record = read(&listing, &id)?;
    // A folder of its own has no other to stand back for.
    record.is_canonical = place.is_none_or(|place| place.is_main);
    Ok(record)
}

/// Where in a hub a snapshot's folder is.
struct Place {
    repo_id: String,
    is_main: bool,
}

impl Place {
    fn of(snapshot: &Path) -> Option<Self> {
        let snapshots = snapshot.parent()?;
        let repo = snapshots.parent()?;
        if snapshots.file_name()? != "snapshots" {
            return None;
        }
        let (kind, repo_id) = parse_repo_folder(repo.file_name()?.to_str()?)?;
        let main = layout::read_small(&repo.join("refs").join("main")).unwrap_or_default();
        let is_main = snapshot.file_name()?.to_str()? == layout::parse_ref(&main);
        (kind == RepoKind::Model).then_some(Self { repo_id, is_main })
    }
}

/// Reads what a listed snapshot's files say.
pub(crate) fn read(listing: &layout::Snapshot, repo_id: &str) -> Result<ModelRecord> {
    let dir = listing.path.as_path();
    let path = dir.to_str().ok_or_else(|| {
        Error::new(
            Kind::InvalidUtf8,
            format!("path is not valid UTF-8: {}", EscapedPath(dir)),
        )
    })?;
    let snapshot = Snapshot::inspect(dir)?;
    let is_complete = *snapshot.completeness() == Completeness::Complete;
    let facts =
        read_json(dir, "config.json")?.map_or_else(Facts::default, |config| facts::read(&config));
    let tensors = match Tensors::read(&snapshot, &facts.quantization) {
        Ok(tensors) => Some(tensors),
        Err(error) if is_complete => return Err(error),
        // What has arrived of a download need not be whole.
        Err(_) => None,
    };
    let bytes_of = |role: Role| -> u64 {
        let files = snapshot.sidecars().iter();
        files
            .filter(|file| file.role == role)
            .map(|file| file.byte_len)
            .sum()
    };
    let has = |name: &str| {
        listing
            .files
            .iter()
            .any(|file| file.name == Path::new(name))
    };
    let quantization = facts.quantization;
    Ok(ModelRecord {
        path: path.to_owned(),
        repo_id: repo_id.to_owned(),
        model_type: facts.model_type,
        text_model_type: facts.text_model_type,
        size_bytes: snapshot.weights().iter().map(|file| file.byte_len).sum(),
        sidecar_bytes: bytes_of(Role::Vision),
        experts_bytes: tensors.as_ref().map_or(0, |tensors| tensors.experts_bytes),
        disk_bytes: disk_bytes(listing),
        parameter_count: parameter_count(&snapshot, tensors.as_ref(), is_complete),
        quant_bits: quantization.bits,
        quant_group_size: quantization.group_size,
        quant_mode: quantization.mode,
        vision_config_type: facts.vision_config_type,
        license: if has("README.md") { license(dir) } else { None },
        has_vision_sidecar: bytes_of(Role::Vision) > 0,
        has_kv_config: has("kv_config.json"),
        has_tool_template: has_tool_template(dir, has)?,
        is_complete,
        is_drafter: facts.is_drafter,
        layer_count: facts.layer_count,
        hidden_size: facts.hidden_size,
        vocab_size: facts.vocab_size,
        scanned_at_ms: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX)),
        is_canonical: false,
    })
}

/// What the index claims, unless the weights' size shows that it speaks of others; else what
/// the headers show.
fn parameter_count(
    snapshot: &Snapshot,
    tensors: Option<&Tensors>,
    is_complete: bool,
) -> Option<u64> {
    let counted = tensors
        .filter(|_| is_complete)
        .and_then(|tensors| tensors.parameter_count);
    let Some(claimed) = snapshot.total_parameters() else {
        return counted;
    };
    let is_of_others = match (snapshot.total_bytes(), tensors) {
        (Some(claimed), Some(tensors)) if is_complete => {
            claimed.abs_diff(tensors.bytes) > tensors.bytes / 100
        }
        _ => false,
    };
    if is_of_others { counted } else { Some(claimed) }
}

fn license(dir: &Path) -> Option<String> {
    let path: PathBuf = dir.join("README.md");
    let (file, _) = regular_file::open(&path).ok()?;
    let mut start = vec![0; CARD_BYTES];
    let length = regular_file::read_up_to(&file, &mut start, 0).ok()?;
    card::license(&String::from_utf8_lossy(&start[..length]))
}

fn has_tool_template(dir: &Path, has: impl Fn(&str) -> bool) -> Result<bool> {
    if has("additional_chat_templates/tool_use.jinja") {
        return Ok(true);
    }
    // The file of its own wins over the config's entry.
    if has("chat_template.jinja") {
        let template = regular_file::read(&dir.join("chat_template.jinja"), MOST_TEMPLATE_BYTES)?;
        return Ok(template::mentions_tools(&String::from_utf8_lossy(
            &template,
        )));
    }
    for name in ["chat_template.json", "tokenizer_config.json"] {
        if has(name)
            && let Some(config) = read_json(dir, name)?
            && template::config_mentions_tools(&config)
        {
            return Ok(true);
        }
    }
    Ok(false)
}
