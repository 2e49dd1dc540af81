//! What of a model decides its cost, and the models that are known by name.

use crate::step::model::Architecture;

/// What of a decoder decides its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Decoder layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the gated MLP.
    pub inner: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Rows of the embedding.
    pub vocab: usize,
    /// The head is the embedding.
    pub tied: bool,
}

/// Models that are known by name, as their `config.json` has them.
const NAMED: [(&str, Shape); 4] = [
    ("qwen3-0.6b", qwen3(28, 1024, 3072, 16, true)),
    ("qwen3-1.7b", qwen3(28, 2048, 6144, 16, true)),
    ("qwen3-4b", qwen3(36, 2560, 9728, 32, true)),
    ("qwen3-8b", qwen3(36, 4096, 12288, 32, false)),
];

const fn qwen3(layers: usize, hidden: usize, inner: usize, heads: usize, tied: bool) -> Shape {
    Shape { layers, hidden, inner, heads, kv_heads: 8, head_dim: 128, vocab: 151_936, tied }
}

impl Shape {
    /// Names that [`Shape::named`] knows, from small to large.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(name, _)| *name)
    }

    /// The shape of a model by its name, in any case.
    pub fn named(name: &str) -> Option<Self> {
        let known = NAMED.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        known.map(|(_, shape)| *shape)
    }

    /// The shape that `config.json` describes.
    pub fn of(a: &Architecture) -> Self {
        Self {
            layers: a.layers,
            hidden: a.hidden_size,
            inner: a.intermediate_size,
            heads: a.heads,
            kv_heads: a.kv_heads,
            head_dim: a.head_dim,
            vocab: a.vocab_size,
            tied: a.tied_embeddings,
        }
    }

    /// Weights of the linear maps of all layers: two operations per token and weight.
    pub(super) fn linear(&self) -> f64 {
        let attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads);
        (self.layers * (attention + 3 * self.hidden * self.inner)) as f64
    }

    /// All weights but those of norms and biases, which are few.
    pub fn parameters(&self) -> f64 {
        let embeddings = if self.tied { 1 } else { 2 };
        self.linear() + (embeddings * self.vocab * self.hidden) as f64
    }

    /// Operations of the forward pass per pair of a query and a key: products with keys and values.
    pub(super) fn per_score(&self) -> f64 {
        (4 * self.layers * self.heads * self.head_dim) as f64
    }

    /// Bytes that the forward pass of all layers moves per token outside matrix products and
    /// attention, in bfloat16: by hidden width two norms (read, write) and two sums (read twice,
    /// write); by width of queries and keys a norm and the rotation in halves; by inner width the
    /// gate's activation and its product.
    pub(super) fn traffic(&self) -> f64 {
        let queries_and_keys = (self.heads + self.kv_heads) * self.head_dim;
        (self.layers * (20 * self.hidden + 24 * queries_and_keys + 10 * self.inner)) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_have_the_parameters_that_their_names_say() {
        let billions = [("qwen3-0.6b", 0.596), ("Qwen3-1.7B", 1.721), ("qwen3-4b", 4.022)];
        for (name, expected) in billions.into_iter().chain([("qwen3-8b", 8.191)]) {
            let found = Shape::named(name).unwrap().parameters() / 1e9;
            assert!((found - expected).abs() < 1e-3, "{name}: {found}");
        }
        assert_eq!((Shape::named("qwen3-5b"), Shape::names().count()), (None, 4));
    }

    #[test]
    fn a_configuration_gives_the_shape_of_its_name() {
        let config = serde_json::json!({
            "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 2560,
            "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": true,
        });
        let found = Shape::of(&Architecture::parse(&config).unwrap());
        assert_eq!(Some(found), Shape::named("qwen3-4b"));
    }
}
