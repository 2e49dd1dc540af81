//! The forward pass, next-token log-probabilities, and the backward pass of a sum over tokens.

use std::ops::Range;
use std::path::Path;

use forestctl::error::{Error, Result};
use forestctl::step::model::Architecture;
use forestctl::step::model::weights::{MODEL, WeightFiles};
use forestctl::step::plan::blocks::HeadShape;
use forestctl::step::plan::pack::{Pack, Pair};
use forestctl::step::settings::Dtype;
use tch::{Device, Kind, Tensor};

use super::attention::{Attention, AttentionPlan};
use super::clock::{Clock, Part};
use super::parameters::{Loader, Parameter};
use super::shim::{self, Attended, Heads};
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
    /// Where the time of [`Decoder::accumulate`] goes; measures nothing unless set.
    pub clock: Clock,
    /// How attention is computed.
    pub attention: AttentionPlan,
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
    fn forward(&self, x: &Tensor, clock: &Clock) -> Torch<Tensor> {
        clock.operation(Part::Linear, || x.f_linear(&self.weight, self.bias.as_ref()))
    }
}

/// What all layers need to know of a pack.
struct Context {
    /// Who attends to whom.
    attention: Attention,
    /// Cosines and sines of every token's position, `[tokens][1][head_dim / 2]`.
    cos: Tensor,
    sin: Tensor,
    /// The sines negated.
    minus_sin: Tensor,
}

impl Decoder {
    /// Loads a Hugging Face model directory. A model that does not train keeps no gradients.
    pub fn load(dir: &Path, dtype: Dtype, device: Device, trainable: bool) -> Result<Self> {
        let architecture = Architecture::read(&dir.join("config.json"))?;
        let files = WeightFiles::open(dir, MODEL)?;
        let in_dir = |e: Error| e.about(format_args!("model {}", dir.display()));
        let weights = files.read()?;
        weights.check_head(architecture.tied_embeddings).map_err(in_dir)?;
        let loader = Loader::new(Some(&weights), kind_of(dtype), device, trainable);
        Self::of(architecture, loader).map_err(in_dir)
    }

    /// A model of the `config.json` of a directory with weights drawn by libtorch's generator, for
    /// measuring.
    pub fn random(dir: &Path, dtype: Dtype, device: Device, trainable: bool) -> Result<Self> {
        let architecture = Architecture::read(&dir.join("config.json"))?;
        Self::of(architecture, Loader::new(None, kind_of(dtype), device, trainable))
    }

    fn of(architecture: Architecture, mut loader: Loader) -> Result<Self> {
        let mut decoder = Self::build(architecture, &mut loader)?;
        let tied = decoder.architecture.tied_embeddings;
        decoder.parameters = loader.finish(if tied { &["lm_head.weight"] } else { &[] })?;
        Ok(decoder)
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
        Ok(Self {
            architecture,
            parameters: Vec::new(),
            clock: Clock::default(),
            attention: AttentionPlan::default(),
            embedding,
            layers,
            norm,
            head,
            kind,
            device,
        })
    }

    /// Log-probabilities of the pairs of a pack.
    pub fn score(&self, pack: &Pack) -> Result<Vec<f64>> {
        self.check_ids(pack.ids())?;
        let _guard = tch::no_grad_guard();
        let score = || {
            let hidden = self.hidden(pack)?;
            let mut all = Vec::with_capacity(pack.pairs.len());
            for chunk in pack.pairs.chunks(HEAD_CHUNK) {
                all.extend(to_f64(&self.pick(&self.before(&hidden, chunk)?, chunk)?)?);
            }
            Ok(all)
        };
        score().map_err(failed)
    }

    /// Adds the gradient of a sum over the pairs of a pack to the parameters. `derivative` gets
    /// the log-probabilities of some pairs in order, with the range of pairs that they stand for,
    /// and returns the derivative of the sum by each.
    ///
    /// Logits live for one chunk at a time, and activations for one layer: what each layer was
    /// given is kept, and what its attention gave; the rest is computed again on the way back.
    pub fn accumulate(
        &mut self,
        pack: &Pack,
        derivative: impl FnMut(Range<usize>, &[f64]) -> Vec<f64>,
    ) -> Result<()> {
        self.check_ids(pack.ids())?;
        self.backward(pack, derivative).map_err(failed)?;
        self.parameters.iter_mut().try_for_each(Parameter::collect).map_err(failed)
    }

    fn backward(
        &self,
        pack: &Pack,
        mut derivative: impl FnMut(Range<usize>, &[f64]) -> Vec<f64>,
    ) -> Torch<()> {
        let context = self.context(pack)?;
        let embedded = self.embed(pack.ids())?;
        let leaf = |x: &Tensor| x.f_detach()?.f_set_requires_grad(true);
        let mut given = Vec::with_capacity(self.layers.len());
        let mut x = embedded.f_detach()?;
        {
            let _guard = tch::no_grad_guard();
            for layer in &self.layers {
                let (next, attended) = self.block(layer, &x, &context, None)?;
                given.push((std::mem::replace(&mut x, next), attended));
            }
        }
        let last = leaf(&x)?;
        let hidden = self.rms_norm(&last, &self.norm)?;
        let output = leaf(&hidden)?;
        let mut start = 0;
        for chunk in pack.pairs.chunks(HEAD_CHUNK) {
            let range = start..start + chunk.len();
            start = range.end;
            self.clock.region(Part::Head, || {
                let logprobs = self.pick(&self.before(&output, chunk)?, chunk)?;
                let slopes = Tensor::f_from_slice(&derivative(range, &to_f64(&logprobs)?))?
                    .f_to_dtype(logprobs.f_kind()?, false, false)?
                    .f_to(self.device)?;
                shim::backward(&logprobs, &slopes)
            })?;
        }
        let slope = output.f_grad()?;
        if !slope.defined() {
            return Ok(());
        }
        shim::backward(&hidden, &slope)?;
        let mut slope = last.f_grad()?;
        for (layer, (given, attended)) in self.layers.iter().zip(given).rev() {
            let given = leaf(&given)?;
            let (out, _) = self.block(layer, &given, &context, attended.as_ref())?;
            shim::backward(&out, &slope)?;
            slope = given.f_grad()?;
        }
        shim::backward(&embedded, &slope)
    }

    /// Floating-point operations of the model for one forward and backward pass over a pack: two
    /// per weight and token forward and four backward, and attention over the scores that there are;
    /// the head counts for pairs alone. What is computed again does not count.
    pub fn training_flops(&self, pack: &Pack) -> f64 {
        let a = &self.architecture;
        let (hidden, inner, dim) = (a.hidden_size, a.intermediate_size, a.head_dim);
        let attention = hidden * dim * (2 * a.heads + 2 * a.kv_heads);
        let linear = (a.layers * (attention + 3 * hidden * inner)) as f64;
        let pairs = 2.0 * pack.forest.scores() as f64;
        let scores = 2.0 * (a.layers * a.heads * dim) as f64 * pairs;
        let head = (hidden * a.vocab_size * pack.pairs.len()) as f64;
        3.0 * (2.0 * linear * pack.ids().len() as f64 + scores + 2.0 * head)
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
    pub fn hidden(&self, pack: &Pack) -> Torch<Tensor> {
        let context = self.context(pack)?;
        let mut x = self.embed(pack.ids())?;
        for layer in &self.layers {
            x = self.block(layer, &x, &context, None)?.0;
        }
        self.rms_norm(&x, &self.norm)
    }

    fn embed(&self, ids: &[u32]) -> Torch<Tensor> {
        let ids = indices(ids.iter().map(|&id| i64::from(id)), self.device)?;
        Tensor::f_embedding(&self.embedding, &ids, -1, false, false)
    }

    /// One layer, and what its attention gave; with what it gave before, attention is not computed
    /// again.
    fn block(
        &self,
        layer: &Layer,
        x: &Tensor,
        context: &Context,
        known: Option<&Attended>,
    ) -> Torch<(Tensor, Option<Attended>)> {
        let normed = self.rms_norm(x, &layer.attention_norm)?;
        let (attended, found) = self.attend(layer, &normed, context, known)?;
        let x = x.f_add(&attended)?;
        let y = self.rms_norm(&x, &layer.mlp_norm)?;
        let clock = &self.clock;
        let gated =
            layer.gate.forward(&y, clock)?.f_silu()?.f_mul(&layer.up.forward(&y, clock)?)?;
        Ok((x.f_add(&layer.down.forward(&gated, clock)?)?, found))
    }

    fn attend(
        &self,
        layer: &Layer,
        x: &Tensor,
        context: &Context,
        known: Option<&Attended>,
    ) -> Torch<(Tensor, Option<Attended>)> {
        let (tokens, dim) = (x.size()[0], self.architecture.head_dim as i64);
        let split = |y: Tensor| y.f_reshape([tokens, -1, dim]);
        let clock = &self.clock;
        let mut query = split(layer.query.forward(x, clock)?)?;
        let mut key = split(layer.key.forward(x, clock)?)?;
        let value = split(layer.value.forward(x, clock)?)?;
        if let Some((query_norm, key_norm)) = &layer.head_norms {
            query = self.rms_norm(&query, query_norm)?;
            key = self.rms_norm(&key, key_norm)?;
        }
        let (query, key) = (rotate(&query, context)?, rotate(&key, context)?);
        let heads = Heads { query: &query, key: &key, value: &value };
        let (attended, found) = context.attention.attend(&heads, known, clock)?;
        Ok((layer.output.forward(&attended.f_reshape([tokens, -1])?, clock)?, found))
    }

    /// Whether libtorch has kernels for the whole of a norm.
    fn is_fast(&self) -> bool {
        self.device.is_cuda() && self.kind == Kind::BFloat16
    }

    fn rms_norm(&self, x: &Tensor, weight: &Tensor) -> Torch<Tensor> {
        if self.is_fast() {
            let width = weight.size();
            return x.f_rms_norm(width, Some(weight), self.architecture.rms_norm_eps);
        }
        let wide = x.f_to_dtype(precise(self.kind), false, false)?;
        let mean = wide.f_square()?.f_mean_dim(Some([-1i64].as_slice()), true, None)?;
        let scale = mean.f_add_scalar(self.architecture.rms_norm_eps)?.f_rsqrt()?;
        let normed = wide.f_mul(&scale)?.f_to_dtype(self.kind, false, false)?;
        normed.f_mul(weight)
    }

    fn context(&self, pack: &Pack) -> Torch<Context> {
        let (dim, longest) = (self.architecture.head_dim, pack.longest());
        let (cos, sin) = self.architecture.rope.tables(dim, longest);
        let positions = indices(pack.positions().map(|at| at as i64), self.device)?;
        let table = |values: &[f64]| {
            Tensor::f_from_slice(values)?
                .f_reshape([longest as i64, 1, dim as i64 / 2])?
                .f_to_dtype(self.kind, false, false)?
                .f_to(self.device)?
                .f_index_select(0, &positions)
        };
        let sin = table(&sin)?;
        let a = &self.architecture;
        let shape = HeadShape { heads: a.heads, kv_heads: a.kv_heads, dim };
        let on = (self.kind, self.device);
        Ok(Context {
            attention: Attention::new(&pack.forest, self.attention, shape, a.layers, on)?,
            cos: table(&cos)?,
            minus_sin: sin.f_neg()?,
            sin,
        })
    }

    /// Rows of `hidden` that predict the targets of `pairs`.
    fn before(&self, hidden: &Tensor, pairs: &[Pair]) -> Torch<Tensor> {
        let index = indices(pairs.iter().map(|pair| pair.source as i64), self.device)?;
        hidden.f_index_select(0, &index)
    }

    /// Log-probabilities of the whole vocabulary after each row of `hidden`, `[rows][vocab]`.
    pub fn log_softmax(&self, hidden: &Tensor) -> Torch<Tensor> {
        let logits = hidden.f_linear(&self.head, None::<Tensor>)?;
        logits.f_log_softmax(-1, precise(self.kind))
    }

    fn pick(&self, hidden: &Tensor, pairs: &[Pair]) -> Torch<Tensor> {
        let chosen = indices(pairs.iter().map(|pair| i64::from(pair.target)), self.device)?;
        let all = self.log_softmax(hidden)?;
        all.f_gather(1, &chosen.f_unsqueeze(1)?, false)?.f_squeeze_dim(1)
    }
}

/// Each pair is one element of the first half of a head and its fellow of the second.
fn rotate(x: &Tensor, Context { cos, sin, minus_sin, .. }: &Context) -> Torch<Tensor> {
    let half = x.size()[2] / 2;
    let (a, b) = (x.f_narrow(2, 0, half)?, x.f_narrow(2, half, half)?);
    let first = a.f_mul(cos)?.f_addcmul(&b, minus_sin)?;
    let second = b.f_mul(cos)?.f_addcmul(&a, sin)?;
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
