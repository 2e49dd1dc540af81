//! Safetensors of a model directory: one file or an index of shards, memory-mapped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

use crate::error::{Error, Result};

/// Stem of the files that hold a model's weights.
pub const MODEL: &str = "model";

const HELP: &str = "Download or save the model again";

/// The open weight files of one model.
#[derive(Debug)]
pub struct WeightFiles {
    files: Vec<(PathBuf, Mmap)>,
}

/// All tensors of a model by name, as views into the maps.
#[derive(Debug)]
pub struct Weights<'a> {
    tensors: BTreeMap<String, (&'a Path, TensorView<'a>)>,
}

impl WeightFiles {
    /// Maps `{stem}.safetensors` of a directory, or the shards that its
    /// `{stem}.safetensors.index.json` names.
    pub fn open(dir: &Path, stem: &str) -> Result<Self> {
        let (single, index) =
            (format!("{stem}.safetensors"), format!("{stem}.safetensors.index.json"));
        let names = if dir.join(&single).is_file() {
            BTreeSet::from([single])
        } else if dir.join(&index).is_file() {
            shards(&dir.join(&index))?
        } else {
            return Err(Error::format(format!(
                "{} holds neither {single} nor {index}",
                dir.display()
            ))
            .help("Give the directory of a Hugging Face model with safetensors weights"));
        };
        let open = |name: String| {
            let path = dir.join(name);
            map(&path).map(|map| (path, map))
        };
        Ok(Self { files: names.into_iter().map(open).collect::<Result<_>>()? })
    }

    /// Reads the headers; a truncated or malformed file, and a tensor that two files hold, is an
    /// error.
    pub fn read(&self) -> Result<Weights<'_>> {
        let mut tensors = BTreeMap::new();
        for (path, map) in &self.files {
            let corrupt =
                |problem: String| Error::format(format!("{} {problem}", path.display())).help(HELP);
            let file = SafeTensors::deserialize(map).map_err(|e| {
                corrupt("is truncated, or no safetensors file".to_owned()).because(e)
            })?;
            for (name, view) in file.tensors() {
                if tensors.insert(name.clone(), (path.as_path(), view)).is_some() {
                    return Err(corrupt(format!("holds {name}, which another file holds too")));
                }
            }
        }
        Ok(Weights { tensors })
    }
}

impl<'a> Weights<'a> {
    /// The tensor called `name`, which must have `shape`.
    pub fn get(&self, name: &str, shape: &[usize]) -> Result<&TensorView<'a>> {
        let Some((path, view)) = self.tensors.get(name) else {
            return Err(Error::format(format!("the weights hold no {name}")).help(
                "config.json and weights must belong to the same model, and all shards be there",
            ));
        };
        if view.shape() != shape {
            return Err(Error::format(format!(
                "{}: {name} has shape {:?}, and config.json asks for {shape:?}",
                path.display(),
                view.shape()
            ))
            .help("config.json and weights must belong to the same model"));
        }
        Ok(view)
    }

    /// Whether embedding and head are what `tie_word_embeddings` says of them.
    ///
    /// # Errors
    /// A tied head that is stored and differs from the embedding, of which one would have to be
    /// ignored; a head of its own that is not there.
    pub fn check_head(&self, tied: bool) -> Result<()> {
        const EMBEDDING: &str = "model.embed_tokens.weight";
        const HEAD: &str = "lm_head.weight";
        let bytes = |name| self.tensors.get(name).map(|(_, view)| (view.dtype(), view.data()));
        match (tied, bytes(HEAD)) {
            (true, Some(head)) if Some(head) != bytes(EMBEDDING) => Err(Error::format(format!(
                "tie_word_embeddings is true in config.json, and {HEAD} differs from {EMBEDDING}"
            ))
            .help("Set tie_word_embeddings to false to train both, or remove the head")),
            (false, None) => Err(Error::format(format!(
                "tie_word_embeddings is false in config.json, and the weights hold no {HEAD}"
            ))
            .help(
                "Set tie_word_embeddings to true where the embedding is the head; otherwise a \
                 shard is missing",
            )),
            _ => Ok(()),
        }
    }

    /// Whether there is a tensor called `name`.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }
}

/// Maps a file that is not written while it is read.
pub fn map(path: &Path) -> Result<Mmap> {
    let failed = |e| Error::io("cannot read", path, e);
    // Opening a pipe would wait for its writer.
    if !path.is_file() {
        return Err(Error::format(format!("{} is missing, or no file", path.display())).help(HELP));
    }
    let file = File::open(path).map_err(failed)?;
    // SAFETY: the map is only read; weight files are not written while a step runs on them.
    unsafe { Mmap::map(&file) }.map_err(failed)
}

/// File names in the index; each must lie beside it.
fn shards(index: &Path) -> Result<BTreeSet<String>> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let text = std::fs::read(index).map_err(|e| Error::io("cannot read", index, e))?;
    let parsed: Index = serde_json::from_slice(&text).map_err(|e| {
        Error::format(format!("{} is no weight index", index.display())).because(e).help(HELP)
    })?;
    let names: BTreeSet<_> = parsed.weight_map.into_values().collect();
    if let Some(bad) = names.iter().find(|name| Path::new(name).file_name() != Some(name.as_ref()))
    {
        return Err(Error::format(format!(
            "{} names the file {bad:?}, which does not lie beside it",
            index.display()
        )));
    }
    if names.is_empty() {
        return Err(Error::format(format!("{} names no files", index.display())).help(HELP));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/closed-loop/models").join(name)
    }

    #[test]
    fn single_files_and_sharded_indexes_open() {
        for (name, tensors) in [("tiny-qwen3", 24), ("tiny-llama", 21)] {
            let files = WeightFiles::open(&model(name), MODEL).unwrap();
            assert_eq!(files.read().unwrap().names().count(), tensors, "{name}");
        }
    }

    #[test]
    fn broken_files_are_told_from_missing_ones() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("model.safetensors");
        let whole = std::fs::read(model("tiny-qwen3").join("model.safetensors")).unwrap();
        let open = || WeightFiles::open(home.path(), MODEL);
        assert!(open().unwrap_err().to_string().contains("neither"));
        for length in [0, 4, 8, 100, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).unwrap();
            let error = open().and_then(|files| files.read().map(|_| ())).unwrap_err();
            assert!(error.to_string().contains("truncated"), "{length}: {error}");
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::write(
            home.path().join("model.safetensors.index.json"),
            r#"{"weight_map":{"a":"../a.safetensors"}}"#,
        )
        .unwrap();
        assert!(open().unwrap_err().to_string().contains("does not lie beside"));
        std::fs::write(
            home.path().join("model.safetensors.index.json"),
            r#"{"weight_map":{"a":"a.safetensors"}}"#,
        )
        .unwrap();
        assert!(open().unwrap_err().to_string().contains("a.safetensors is missing"));
        std::fs::create_dir(home.path().join("a.safetensors")).unwrap();
        assert!(open().unwrap_err().to_string().contains("or no file"));
    }

    #[test]
    fn shape_and_name_mismatches_are_told() {
        let files = WeightFiles::open(&model("tiny-qwen3"), MODEL).unwrap();
        let weights = files.read().unwrap();
        assert!(weights.get("model.norm.weight", &[64]).is_ok());
        let shape = weights.get("model.norm.weight", &[65]).unwrap_err().to_string();
        assert!(shape.contains("[64]") && shape.contains("[65]"), "{shape}");
        assert!(weights.get("nope", &[1]).unwrap_err().to_string().contains("no nope"));
    }
}
