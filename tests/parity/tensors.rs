//! Editing a model's safetensors file.

use std::{collections::BTreeMap, fs, path::Path};

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

/// The tensors of a folder whose weights are one file.
#[derive(Clone)]
pub(crate) struct Tensors(pub(crate) BTreeMap<String, Tensor>);

#[derive(Clone)]
pub(crate) struct Tensor {
    pub(crate) dtype: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

const FILE: &str = "model.safetensors";

impl Tensors {
    pub(crate) fn read(folder: &Path) -> Self {
        let file = fs::read(folder.join(FILE)).expect("the model is one file");
        let (length, rest) = file.split_first_chunk::<8>().expect("a header");
        let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
        let header: BTreeMap<String, serde_json::Value> =
            serde_json::from_slice(header).expect("the header is JSON");
        let tensors = header
            .into_iter()
            .filter(|(name, _)| name != "__metadata__")
            .map(|(name, entry)| {
                let entry: Entry = serde_json::from_value(entry).expect("a tensor's entry");
                let [start, end] = entry.data_offsets;
                let tensor = Tensor {
                    dtype: entry.dtype,
                    shape: entry.shape,
                    bytes: data[start..end].to_vec(),
                };
                (name, tensor)
            })
            .collect();
        Self(tensors)
    }

    pub(crate) fn write(&self, folder: &Path) {
        let mut data = Vec::new();
        let mut header = BTreeMap::new();
        for (name, tensor) in &self.0 {
            let start = data.len();
            data.extend_from_slice(&tensor.bytes);
            header.insert(
                name,
                Entry {
                    dtype: tensor.dtype.clone(),
                    shape: tensor.shape.clone(),
                    data_offsets: [start, data.len()],
                },
            );
        }
        let header = serde_json::to_vec(&header).expect("plain data");
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header);
        file.extend(data);
        fs::write(folder.join(FILE), file).expect("the folder is writable");
    }
}

impl Tensor {
    /// Every element changed, and none made infinite.
    pub(crate) fn perturbed(&self) -> Self {
        let other = |x: f32| 1.25 * x + 0.03125;
        let bytes = match self.dtype.as_str() {
            "F32" => self.map(|b| other(f32::from_le_bytes(b)).to_le_bytes()),
            "BF16" => {
                self.map(|b| bf16::from_f32(other(bf16::from_le_bytes(b).to_f32())).to_le_bytes())
            }
            "F16" => {
                self.map(|b| f16::from_f32(other(f16::from_le_bytes(b).to_f32())).to_le_bytes())
            }
            "U32" => self.map(|b: [u8; 4]| b.map(|x| x ^ 0b0101_0101)),
            // Scales: twice or half as large, or a little larger or smaller.
            "U8" => self.map(|[b]: [u8; 1]| [b ^ 1]),
            other => panic!("no such tensors are made: {other}"),
        };
        Self {
            bytes,
            ..self.clone()
        }
    }

    fn map<const N: usize>(&self, change: impl Fn([u8; N]) -> [u8; N]) -> Vec<u8> {
        self.bytes
            .as_chunks()
            .0
            .iter()
            .flat_map(|&b| change(b))
            .collect()
    }

    /// The same elements in one row.
    pub(crate) fn flattened(&self) -> Self {
        let count = self.shape.iter().product();
        let shape = if self.shape.len() == 1 {
            vec![1, count]
        } else {
            vec![count]
        };
        Self {
            shape,
            ..self.clone()
        }
    }

    /// Without the last row.
    pub(crate) fn shortened(&self) -> Self {
        let mut short = self.clone();
        let row = self.bytes.len() / self.shape[0];
        short.shape[0] -= 1;
        short.bytes.truncate(self.bytes.len() - row);
        short
    }
}
