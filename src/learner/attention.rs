//! Attention over the forest of a pack, by whichever way fits device and number format.

use std::ops::Range;

use forestctl::step::plan::blocks::{AttentionWay, HeadShape, Repeats, blocks, choose};
use forestctl::step::plan::forest::Forest;
use tch::{Device, Kind, Tensor};

use super::clock::{Clock, Part};
use super::shim::{self, Attended, Calls, Heads, Suffixes};
use super::tensor::{Torch, indices};

/// How a decoder computes attention.
#[derive(Clone, Copy, Debug)]
pub struct AttentionPlan {
    /// What was asked for.
    pub way: AttentionWay,
    /// How often each layer computes it before the program ends; none where no dense kernel may
    /// be used.
    pub repeats: Option<Repeats>,
}

impl Default for AttentionPlan {
    fn default() -> Self {
        Self { way: AttentionWay::Auto, repeats: None }
    }
}

/// What the layers need to know of a forest.
#[derive(Debug)]
pub enum Attention {
    /// Path after path by libtorch's general kernel, for what the others do not compute.
    ByPath(Vec<PathKeys>),
    /// One call with gathered keys.
    Suffix(Suffixes),
    /// Squares and rectangles.
    Cascade(Calls),
}

/// The tokens of a path and all that they attend to.
#[derive(Debug)]
pub struct PathKeys {
    tokens: Range<usize>,
    /// Stretches of older paths.
    context: Vec<Range<usize>>,
    /// Which keys each token sees, `[tokens][keys]`; none if that is its square alone.
    mask: Option<Tensor>,
}

impl Attention {
    /// Prepares a forest for layers of this shape on a device.
    pub fn new(
        forest: &Forest,
        plan: AttentionPlan,
        shape: HeadShape,
        layers: usize,
        (kind, device): (Kind, Device),
    ) -> Torch<Self> {
        let fast = device.is_cuda() && kind == Kind::BFloat16;
        let often = |repeats: Repeats| Repeats {
            forward: repeats.forward * layers as f64,
            backward: repeats.backward * layers as f64,
        };
        let repeats = plan.repeats.map(often).filter(|_| fast);
        let blocks = blocks(forest, repeats.map(|repeats| (shape, repeats)));
        let once = often(Repeats { forward: 2.0, backward: 1.0 });
        let way = match plan.way {
            AttentionWay::Auto if fast => choose(forest, &blocks, shape, repeats.unwrap_or(once)),
            AttentionWay::Auto => AttentionWay::Suffix,
            way => way,
        };
        match way {
            AttentionWay::Cascade if fast || device == Device::Cpu => {
                let numbers: Vec<_> = blocks.iter().map(|block| block.numbers()).collect();
                Ok(Self::Cascade(Calls::new(&numbers, device)?))
            }
            _ if fast => Self::suffix(forest, device),
            _ => Self::by_path(forest, device),
        }
    }

    fn suffix(forest: &Forest, device: Device) -> Torch<Self> {
        let (mut places, mut query_ends, mut key_ends) = (Vec::new(), vec![0], vec![0]);
        let (mut most_queries, mut most_keys) = (0, 0);
        for (at, path) in forest.paths.iter().enumerate() {
            let before = places.len();
            places.extend(forest.context(at).into_iter().flatten());
            places.extend(path.tokens.clone());
            query_ends.push(path.tokens.end);
            key_ends.push(places.len());
            most_queries = most_queries.max(path.tokens.len());
            most_keys = most_keys.max(places.len() - before);
        }
        let tensor = |places: Vec<usize>| indices(places.into_iter().map(|at| at as i64), device);
        Ok(Self::Suffix(Suffixes {
            places: tensor(places)?,
            query_ends: tensor(query_ends)?.f_to_kind(Kind::Int)?,
            key_ends: tensor(key_ends)?.f_to_kind(Kind::Int)?,
            most_queries,
            most_keys,
        }))
    }

    fn by_path(forest: &Forest, device: Device) -> Torch<Self> {
        let path = |(at, tokens): (usize, &Range<usize>)| {
            let context = forest.context(at);
            let before: usize = context.iter().map(Range::len).sum();
            let mask = match before {
                0 => None,
                _ => {
                    let size = [tokens.len() as i64, (before + tokens.len()) as i64];
                    let all = Tensor::f_ones(size, (Kind::Bool, device))?;
                    Some(all.f_tril(before as i64)?)
                }
            };
            Ok(PathKeys { tokens: tokens.clone(), context, mask })
        };
        let tokens = forest.paths.iter().map(|path| &path.tokens);
        Ok(Self::ByPath(tokens.enumerate().map(path).collect::<Torch<_>>()?))
    }

    /// Attention of all tokens, `[tokens][heads][dim]`. With what the same call gave before, as far
    /// as it gave any, only the way back is computed.
    pub fn attend(
        &self,
        heads: &Heads,
        known: Option<&Attended>,
        clock: &Clock,
    ) -> Torch<(Tensor, Option<Attended>)> {
        let mut found = None;
        let mut timed = |work: &dyn Fn() -> Torch<Attended>| {
            clock.operation(Part::Attention, || {
                let attended = work()?;
                let out = attended.out.shallow_clone();
                found = Some(attended);
                Ok(out)
            })
        };
        let out = match self {
            Self::ByPath(paths) => by_path(paths, heads, clock)?,
            Self::Suffix(suffixes) => timed(&|| shim::suffix(heads, suffixes, known))?,
            Self::Cascade(calls) => timed(&|| shim::cascade(heads, calls, known))?,
        };
        Ok((out, found))
    }
}

fn by_path(paths: &[PathKeys], heads: &Heads, clock: &Clock) -> Torch<Tensor> {
    let groups = heads.query.size()[1] / heads.key.size()[1];
    let cut =
        |x: &Tensor, range: &Range<usize>| x.f_narrow(0, range.start as i64, range.len() as i64);
    let upright = |x: Tensor| x.f_transpose(0, 1)?.f_unsqueeze(0);
    let one = |path: &PathKeys| {
        let keys = |x: &Tensor| {
            let stretches = path.context.iter().chain([&path.tokens]);
            let parts: Vec<Tensor> = stretches.map(|range| cut(x, range)).collect::<Torch<_>>()?;
            let x = match &parts[..] {
                [one] => one.shallow_clone(),
                parts => Tensor::f_cat(parts, 0)?,
            };
            upright(match groups {
                1 => x,
                n => x.f_repeat_interleave_self_int(n, 1, None)?,
            })
        };
        let query = upright(cut(heads.query, &path.tokens)?)?;
        let (key, value) = (keys(heads.key)?, keys(heads.value)?);
        let attended = clock.operation(Part::Attention, || {
            let (mask, causal) = (path.mask.as_ref(), path.mask.is_none());
            Tensor::f_scaled_dot_product_attention(
                &query, &key, &value, mask, 0.0, causal, None, false,
            )
        })?;
        attended.f_squeeze_dim(0)?.f_transpose(0, 1)
    };
    let all: Vec<Tensor> = paths.iter().map(one).collect::<Torch<_>>()?;
    match &all[..] {
        [one] => one.f_contiguous(),
        all => Tensor::f_cat(all, 0),
    }
}
