//! The forward pass, next-token log-probabilities, and the backward pass of a sum over tokens.

use std::ops::Range;
use std::path::Path;

use forestctl::error::{Error, Result};
use forestctl::step::model::Architecture;
use forestctl::step::model::weights::{MODEL, WeightFiles};
use forestctl::step::settings::Dtype;
use tch::{Device, Kind, Tensor};

use super::parameters::{Loader, Parameter};
use super::tensor::{Torch, failed, indices, kind_of, precise, to_f64};

/// Positions whose logits exist at one time.
const HEAD_CHUNK: usize = 1024;

/// A decoder with its weights.
#[derive(Debug)]
pub struct Decoder {
    /// What `config.json` says.
    pub architecture: Architecture,
    /// All weights by name; a tied head is not repeated.
    pub parameters: Vec<Parameter>,
    embedding: Tensor,
    layers: Vec<Layer>,
    norm: Tensor,
    head: Tensor,
    kind: Kind,
    device: Device,
}

#[derive(Debug)]
struct Layer {
    attention_norm: Tensor,
    query: Projection,
    key: Projection,
    value: Projection,
    output: Projection,
    head_norms: Option<(Tensor, Tensor)>,
    mlp_norm: Tensor,
    gate: Projection,
    up: Projection,
    down: Projection,
}

#[derive(Debug)]
struct Projection {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Projection {
    fn forward(&self, x: &Tensor) -> Torch<Tensor> {
        x.f_linear(&self.weight, self.bias.as_ref())
    }
}

/// Cosines and sines of one context, `[tokens][head_dim / 2]`.
struct Rotation {
    cos: Tensor,
    sin: Tensor,
}

impl Decoder {
    /// Loads a Hugging Face model directory. A model that does not train keeps no gradients.
    pub fn load(dir: &Path, dtype: Dtype, device: Device, trainable: bool) -> Result<Self> {
        let architecture = Architecture::read(&dir.join("config.json"))?;
        let files = WeightFiles::open(dir, MODEL)?;
        let in_dir = |e: Error| match e.advice().map(str::to_owned) {
            Some(help) => Error::format(format!("model {}: {e}", dir.display())).help(help),
            None => Error::format(format!("model {}: {e}", dir.display())),
        };
        let weights = files.read()?;
        let mut loader = Loader::new(&weights, kind_of(dtype), device, trainable);
        Self::build(architecture, &mut loader)
            .and_then(|mut decoder| {
                let tied = decoder.architecture.tied_embeddings;
                decoder.parameters = loader.finish(if tied { &["lm_head.weight"] } else { &[] })?;
                Ok(decoder)
            })
            .map_err(in_dir)
    }

    fn build(architecture: Architecture, loader: &mut Loader) -> Result<Self> {
        let (vocab, hidden) = (architecture.vocab_size, architecture.hidden_size);
        let embedding = loader.take("model.embed_tokens.weight".to_owned(), &[vocab, hidden])?;
        let layers = (0..architecture.layers)
            .map(|i| layer(&architecture, loader, i))
            .collect::<Result<_>>()?;
        let norm = loader.take("model.norm.weight".to_owned(), &[hidden])?;
        let head = match architecture.tied_embeddings {
            true => embedding.shallow_clone(),
            false => loader.take("lm_head.weight".to_owned(), &[vocab, hidden])?,
        };
        let (kind, device) = (embedding.kind(), embedding.device());
        let parameters = Vec::new();
        Ok(Self { architecture, parameters, embedding, layers, norm, head, kind, device })
    }

    /// Log-probabilities of `ids[t]` given `ids[..t]` at each `t` of `targets`, none of which may
    /// be 0.
    pub fn logprobs(&self, ids: &[u32], targets: &[usize]) -> Result<Vec<f64>> {
        self.check_ids(ids)?;
        let _guard = tch::no_grad_guard();
        let score = || {
            let hidden = self.hidden(ids)?;
            let mut all = Vec::with_capacity(targets.len());
            for chunk in targets.chunks(HEAD_CHUNK) {
                all.extend(to_f64(&self.pick(&self.before(&hidden, chunk)?, ids, chunk)?)?);
            }
            Ok(all)
        };
        score().map_err(failed)
    }

    /// Adds the gradient of a sum over `targets` to the parameters. `derivative` gets the
    /// log-probabilities of some targets in order, with the range of `targets` that they stand
    /// for, and returns the derivative of the sum by each. Logits live for one chunk at a time.
    pub fn accumulate(
        &mut self,
        ids: &[u32],
        targets: &[usize],
        derivative: impl FnMut(Range<usize>, &[f64]) -> Vec<f64>,
    ) -> Result<()> {
        self.check_ids(ids)?;
        self.backward(ids, targets, derivative).map_err(failed)?;
        self.parameters.iter_mut().try_for_each(Parameter::collect).map_err(failed)
    }

    fn backward(
        &self,
        ids: &[u32],
        targets: &[usize],
        mut derivative: impl FnMut(Range<usize>, &[f64]) -> Vec<f64>,
    ) -> Torch<()> {
        let hidden = self.hidden(ids)?;
        let leaf = hidden.f_detach()?.f_set_requires_grad(true)?;
        let mut start = 0;
        for chunk in targets.chunks(HEAD_CHUNK) {
            let logprobs = self.pick(&self.before(&leaf, chunk)?, ids, chunk)?;
            let range = start..start + chunk.len();
            start = range.end;
            let slopes = Tensor::f_from_slice(&derivative(range, &to_f64(&logprobs)?))?
                .f_to_dtype(logprobs.f_kind()?, false, false)?
                .f_to(self.device)?;
            logprobs.f_mul(&slopes)?.f_sum(None)?.f_backward()?;
        }
        let slope = leaf.f_grad()?;
        if slope.defined() {
            // The gradient of this product by `hidden` is `slope`, exactly.
            hidden.f_mul(&slope)?.f_sum(precise(self.kind))?.f_backward()?;
        }
        Ok(())
    }

    /// Refuses ids that the embedding has no row for.
    pub fn check_ids(&self, ids: &[u32]) -> Result<()> {
        let vocab = self.architecture.vocab_size;
        match ids.iter().position(|&id| id as usize >= vocab) {
            None => Ok(()),
            Some(t) => Err(Error::format(format!(
                "token {t} is {}, and the model's vocabulary has {vocab} entries",
                ids[t]
            ))
            .help("Rows and model must use the same tokenizer")),
        }
    }

    /// The residual stream after the last norm, `[tokens][hidden]`. The ids must be those of the
    /// vocabulary.
    pub fn hidden(&self, ids: &[u32]) -> Torch<Tensor> {
        let rotation = self.rotation(ids.len())?;
        let ids = indices(ids.iter().map(|&id| i64::from(id)), self.device)?;
        let mut x = Tensor::f_embedding(&self.embedding, &ids, -1, false, false)?;
        for layer in &self.layers {
            x = x.f_add(&self.attend(
                layer,
                &self.rms_norm(&x, &layer.attention_norm)?,
                &rotation,
            )?)?;
            let y = self.rms_norm(&x, &layer.mlp_norm)?;
            let gated = layer.gate.forward(&y)?.f_silu()?.f_mul(&layer.up.forward(&y)?)?;
            x = x.f_add(&layer.down.forward(&gated)?)?;
        }
        self.rms_norm(&x, &self.norm)
    }

    fn attend(&self, layer: &Layer, x: &Tensor, rotation: &Rotation) -> Torch<Tensor> {
        let (tokens, dim) = (x.size()[0], self.architecture.head_dim as i64);
        let split = |y: Tensor| y.f_reshape([tokens, -1, dim]);
        let mut query = split(layer.query.forward(x)?)?;
        let mut key = split(layer.key.forward(x)?)?;
        let value = split(layer.value.forward(x)?)?;
        if let Some((query_norm, key_norm)) = &layer.head_norms {
            query = self.rms_norm(&query, query_norm)?;
            key = self.rms_norm(&key, key_norm)?;
        }
        let groups = (self.architecture.heads / self.architecture.kv_heads) as i64;
        let spread = |y: Tensor| match groups {
            1 => Ok(y),
            n => y.f_repeat_interleave_self_int(n, 1, None),
        };
        let lay = |y: Tensor| y.f_transpose(0, 1)?.f_unsqueeze(0);
        let attended = Tensor::f_scaled_dot_product_attention(
            &lay(rotate(&query, rotation)?)?,
            &lay(spread(rotate(&key, rotation)?)?)?,
            &lay(spread(value)?)?,
            None::<Tensor>,
            0.0,
            true,
            None,
            false,
        )?;
        let joined = attended.f_squeeze_dim(0)?.f_transpose(0, 1)?.f_reshape([tokens, -1])?;
        layer.output.forward(&joined)
    }

    fn rms_norm(&self, x: &Tensor, weight: &Tensor) -> Torch<Tensor> {
        let wide = x.f_to_dtype(precise(self.kind), false, false)?;
        let mean = wide.f_square()?.f_mean_dim(Some([-1i64].as_slice()), true, None)?;
        let scale = mean.f_add_scalar(self.architecture.rms_norm_eps)?.f_rsqrt()?;
        let normed = wide.f_mul(&scale)?.f_to_dtype(self.kind, false, false)?;
        normed.f_mul(weight)
    }

    fn rotation(&self, tokens: usize) -> Torch<Rotation> {
        let dim = self.architecture.head_dim;
        let (cos, sin) = self.architecture.rope.tables(dim, tokens);
        let table = |values: &[f64]| {
            Tensor::f_from_slice(values)?
                .f_reshape([tokens as i64, 1, dim as i64 / 2])?
                .f_to_dtype(self.kind, false, false)?
                .f_to(self.device)
        };
        Ok(Rotation { cos: table(&cos)?, sin: table(&sin)? })
    }

    /// Rows of `hidden` that predict `targets`.
    fn before(&self, hidden: &Tensor, targets: &[usize]) -> Torch<Tensor> {
        let index = indices(targets.iter().map(|&t| t as i64 - 1), self.device)?;
        hidden.f_index_select(0, &index)
    }

    /// Log-probabilities of the whole vocabulary after each row of `hidden`, `[rows][vocab]`.
    pub fn log_softmax(&self, hidden: &Tensor) -> Torch<Tensor> {
        let logits = hidden.f_linear(&self.head, None::<Tensor>)?;
        logits.f_log_softmax(-1, precise(self.kind))
    }

    fn pick(&self, hidden: &Tensor, ids: &[u32], targets: &[usize]) -> Torch<Tensor> {
        let chosen = indices(targets.iter().map(|&t| i64::from(ids[t])), self.device)?;
        let all = self.log_softmax(hidden)?;
        all.f_gather(1, &chosen.f_unsqueeze(1)?, false)?.f_squeeze_dim(1)
    }
}

/// Each pair is one element of the first half of a head and its fellow of the second.
fn rotate(x: &Tensor, rotation: &Rotation) -> Torch<Tensor> {
    let half = x.size()[2] / 2;
    let (a, b) = (x.f_narrow(2, 0, half)?, x.f_narrow(2, half, half)?);
    let first = a.f_mul(&rotation.cos)?.f_sub(&b.f_mul(&rotation.sin)?)?;
    let second = b.f_mul(&rotation.cos)?.f_add(&a.f_mul(&rotation.sin)?)?;
    Tensor::f_cat(&[first, second], 2)
}

fn layer(a: &Architecture, loader: &mut Loader, index: usize) -> Result<Layer> {
    let name = |part: &str| format!("model.layers.{index}.{part}");
    let (hidden, inner, dim) = (a.hidden_size, a.intermediate_size, a.head_dim);
    let (queries, keys) = (a.heads * dim, a.kv_heads * dim);
    let mut projection = |part: &str, out: usize, into: usize, bias: bool| {
        let weight = loader.take(name(&format!("{part}.weight")), &[out, into])?;
        let bias = match bias {
            true => Some(loader.take(name(&format!("{part}.bias")), &[out])?),
            false => None,
        };
        Ok::<_, Error>(Projection { weight, bias })
    };
    let query = projection("self_attn.q_proj", queries, hidden, a.qkv_bias)?;
    let key = projection("self_attn.k_proj", keys, hidden, a.qkv_bias)?;
    let value = projection("self_attn.v_proj", keys, hidden, a.qkv_bias)?;
    let output = projection("self_attn.o_proj", hidden, queries, a.output_bias)?;
    let gate = projection("mlp.gate_proj", inner, hidden, a.mlp_bias)?;
    let up = projection("mlp.up_proj", inner, hidden, a.mlp_bias)?;
    let down = projection("mlp.down_proj", hidden, inner, a.mlp_bias)?;
    let mut norm = |part: &str, width: usize| loader.take(name(part), &[width]);
    Ok(Layer {
        attention_norm: norm("input_layernorm.weight", hidden)?,
        mlp_norm: norm("post_attention_layernorm.weight", hidden)?,
        head_norms: match a.qk_norm {
            true => {
                Some((norm("self_attn.q_norm.weight", dim)?, norm("self_attn.k_norm.weight", dim)?))
            }
            false => None,
        },
        query,
        key,
        value,
        output,
        gate,
        up,
        down,
    })
}
