//! The checkpoint: a Hugging Face model directory, the optimizer's state, and what was done.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::time::Instant;

use forestctl::error::{Error, Result};
use forestctl::id::Digest32;
use forestctl::rows::Row;
use forestctl::step::batch::Batch;
use forestctl::step::model::weights::MODEL;
use forestctl::step::report::{SCHEMA_VERSION, StepReport};
use forestctl::step::settings::{Dtype, StepSettings};
use forestctl::step::state::{TRAINER_STATE, TrainedRows, TrainerState, trained_before};
use safetensors::tensor::{SafeTensorError, TensorView, serialize_to_file};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tch::{Device, Tensor};

use super::decoder::Decoder;
use super::optim::OPTIMIZER;
use super::run::Trained;
use super::tensor::{Torch, failed, indices, to_bytes};

/// Largest safetensors file; more weights go into further shards.
const SHARD_BYTES: usize = 5_000_000_000;

/// More updates than any run makes; all of them are exact in float64.
const MAX_STEPS: u64 = 1 << 53;

const METRICS: &str = "metrics.jsonl";

/// Files that make a model usable and that a step does not change.
const COMPANIONS: [&str; 11] = [
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "LICENSE",
];

/// Writes everything into `dir`, which must exist: weights in the number format of the run, and
/// the files of `source`, the model that was trained, that a step does not change. Returns the seconds
/// that it took but for `metrics.jsonl`, where they are added to the last step.
pub fn write(
    dir: &Path,
    source: &Path,
    trained: &Trained,
    settings: &StepSettings,
    rows: Digest32,
) -> Result<f64> {
    let begun = Instant::now();
    let Trained { policy, optimizer, reports, .. } = trained;
    write_config(source, dir, settings.dtype)?;
    for name in COMPANIONS {
        let (from, to) = (source.join(name), dir.join(name));
        if from.is_file() {
            fs::copy(&from, to).map_err(|e| Error::io("cannot copy", &from, e))?;
        }
    }
    let weights: Vec<_> =
        policy.parameters.iter().map(|p| (p.name.clone(), p.leaf.shallow_clone())).collect();
    write_tensors(dir, MODEL, &weights, SHARD_BYTES)?;
    write_tensors(dir, OPTIMIZER, &optimizer.tensors(&policy.parameters), SHARD_BYTES)?;
    let mut behind = trained_before(source);
    let steps = reports.iter().map(|report| report.metrics.step);
    let (first_step, last_step) = (steps.clone().min(), steps.max());
    behind.push(TrainedRows {
        rows_blake3: rows,
        first_step: first_step.unwrap_or(optimizer.step),
        last_step: last_step.unwrap_or(optimizer.step),
    });
    let state = TrainerState {
        schema_version: SCHEMA_VERSION,
        tool: concat!("forestctl ", env!("CARGO_PKG_VERSION")).to_owned(),
        global_step: optimizer.step,
        rows_blake3: rows,
        settings: settings.clone(),
        trained: behind,
    };
    write_json(&dir.join(TRAINER_STATE), &state)?;
    let seconds = begun.elapsed().as_secs_f64();
    append_metrics(source, dir, reports, seconds, settings.deterministic)?;
    Ok(seconds)
}

/// Updates behind a model directory that a step wrote; `None` for any other model.
pub fn steps_behind(model: &Path) -> Result<Option<u64>> {
    #[derive(Deserialize)]
    struct Behind {
        schema_version: Option<u64>,
        global_step: Option<u64>,
    }
    let path = model.join(TRAINER_STATE);
    if !path.is_file() {
        return Ok(None);
    }
    let text = fs::read(&path).map_err(|e| Error::io("cannot read", &path, e))?;
    let refused = |what: &str| {
        Error::format(format!("{} {what}", path.display()))
            .help("Remove the file to start with a fresh optimizer")
    };
    let behind: Behind =
        serde_json::from_slice(&text).map_err(|e| refused("is no trainer state").because(e))?;
    match (behind.schema_version, behind.global_step) {
        // Other trainers write a file of this name too, and another optimizer state with it.
        (None, _) => Ok(None),
        (Some(version), _) if version != u64::from(SCHEMA_VERSION) => Err(refused(&format!(
            "has schema_version {version}, and this forestctl reads {SCHEMA_VERSION}"
        ))),
        (_, Some(step)) if step < MAX_STEPS => Ok(Some(step)),
        _ => Err(refused(&format!("needs a global_step below {MAX_STEPS}"))),
    }
}

/// Writes the gradients that the parameters hold, by Hugging Face name.
pub fn write_gradients(path: &Path, decoder: &Decoder, force: bool) -> Result<()> {
    let grads: Vec<_> = decoder
        .parameters
        .iter()
        .filter_map(|p| Some((p.name.clone(), p.grad.as_ref()?.shallow_clone())))
        .collect();
    forestctl::output::write_file(path, force, &serialize(&grads)?)
}

/// Writes for each row that trains its tokens, the positions that carried loss, and their
/// log-probabilities under the previous and, with a KL penalty, the reference policy, by the names
/// `{row_id}/input_ids`, `/positions`, `/previous` and `/reference`.
pub fn write_logprobs(path: &Path, rows: &[Row], trained: &Trained, force: bool) -> Result<()> {
    let batch = Batch::new(rows)?;
    let mut tensors = Vec::new();
    for i in batch.active() {
        let mut add = |part: &str, tensor: Torch<Tensor>| {
            let name = format!("{}/{part}", rows[i].row_id);
            tensor.map(|tensor| tensors.push((name, tensor))).map_err(failed)
        };
        add("input_ids", indices(rows[i].input_ids.iter().map(|&id| id.into()), Device::Cpu))?;
        add("positions", indices(batch.targets(i).iter().map(|&t| t as i64), Device::Cpu))?;
        add("previous", Tensor::f_from_slice(&trained.previous[i]))?;
        if let Some(reference) = &trained.reference {
            add("reference", Tensor::f_from_slice(&reference[i]))?;
        }
    }
    forestctl::output::write_file(path, force, &serialize(&tensors)?)
}

/// Writes tensors as one safetensors file, or as shards with an index when they exceed `limit`.
pub fn write_tensors(
    dir: &Path,
    stem: &str,
    tensors: &[(String, Tensor)],
    limit: usize,
) -> Result<()> {
    let bytes = |t: &Tensor| t.numel() * t.kind().elt_size_in_bytes();
    let mut shards: Vec<&[(String, Tensor)]> = Vec::new();
    let (mut start, mut size) = (0, 0);
    for (i, (_, tensor)) in tensors.iter().enumerate() {
        if size + bytes(tensor) > limit && i > start {
            shards.push(&tensors[start..i]);
            (start, size) = (i, 0);
        }
        size += bytes(tensor);
    }
    shards.push(&tensors[start..]);
    let write = |name: &str, shard| {
        let path = dir.join(name);
        with_views(shard, |views, metadata| serialize_to_file(views, metadata, &path))
            .map_err(|e| Error::format(format!("cannot write {}", path.display())).because(e))
    };
    if let [only] = shards[..] {
        return write(&format!("{stem}.safetensors"), only);
    }
    let mut weight_map = BTreeMap::new();
    for (i, shard) in shards.iter().enumerate() {
        let name = format!("{stem}-{:05}-of-{:05}.safetensors", i + 1, shards.len());
        write(&name, shard)?;
        weight_map.extend(shard.iter().map(|(tensor, _)| (tensor.clone(), name.clone())));
    }
    let total: usize = tensors.iter().map(|(_, t)| bytes(t)).sum();
    let index = json!({ "metadata": { "total_size": total }, "weight_map": weight_map });
    write_json(&dir.join(format!("{stem}.safetensors.index.json")), &index)
}

fn serialize(tensors: &[(String, Tensor)]) -> Result<Vec<u8>> {
    with_views(tensors, |views, metadata| safetensors::serialize(views, metadata))
}

type Metadata = Option<HashMap<String, String>>;

/// Copies tensors off their device and has them written.
fn with_views<T>(
    tensors: &[(String, Tensor)],
    write: impl FnOnce(Vec<(&String, TensorView)>, Metadata) -> Result<T, SafeTensorError>,
) -> Result<T> {
    let failed = |e| Error::format("cannot write safetensors").because(e);
    let stored = tensors.iter().map(|(_, t)| to_bytes(t)).collect::<Result<Vec<_>>>()?;
    let views = tensors
        .iter()
        .zip(&stored)
        .map(|((name, _), (dtype, shape, bytes))| {
            Ok((name, TensorView::new(*dtype, shape.clone(), bytes).map_err(failed)?))
        })
        .collect::<Result<Vec<_>>>()?;
    // Loaders of the transformers library ask for this key.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    write(views, Some(metadata)).map_err(failed)
}

/// The model's own `config.json`, with the number format that the weights now have.
fn write_config(source: &Path, dir: &Path, dtype: Dtype) -> Result<()> {
    let path = source.join("config.json");
    let text = fs::read(&path).map_err(|e| Error::io("cannot read", &path, e))?;
    let mut config: Value = serde_json::from_slice(&text)
        .map_err(|e| Error::format(format!("{} is not JSON", path.display())).because(e))?;
    if let Some(map) = config.as_object_mut() {
        // Readers of either spelling must find the same; a model that has one keeps just that.
        let old = map.contains_key("torch_dtype");
        let keys = [("torch_dtype", old), ("dtype", !old || map.contains_key("dtype"))];
        for (key, _) in keys.into_iter().filter(|(_, write)| *write) {
            map.insert(key.to_owned(), dtype.as_str().into());
        }
    }
    write_json(&dir.join("config.json"), &config)
}

/// The lines of the steps before, and one for each of these. A deterministic run leaves out times.
fn append_metrics(
    source: &Path,
    dir: &Path,
    reports: &[StepReport],
    write_seconds: f64,
    deterministic: bool,
) -> Result<()> {
    let before = source.join(METRICS);
    let continued = reports.first().is_some_and(|report| report.metrics.step > 1);
    let mut text = match continued && before.is_file() {
        true => fs::read(&before).map_err(|e| Error::io("cannot read", &before, e))?,
        false => Vec::new(),
    };
    for (i, report) in reports.iter().enumerate() {
        let mut report = report.clone();
        if deterministic {
            report.performance = None;
        } else if let (Some(performance), true) = (&mut report.performance, i + 1 == reports.len())
        {
            performance.io_seconds += write_seconds;
        }
        let line = serde_json::to_string(&report)
            .map_err(|e| Error::format("cannot write JSON").because(e))?;
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
    }
    let path = dir.join(METRICS);
    fs::write(&path, text).map_err(|e| Error::io("cannot write", path, e))
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(value)
        .map_err(|e| Error::format("cannot write JSON").because(e))?;
    text.push(b'\n');
    fs::write(path, text).map_err(|e| Error::io("cannot write", path, e))
}
