//! Attention over the forest of rows, alone, on a CUDA device: `attention ROWS HEADS KV_HEADS`
//!
//! Milliseconds forward, and forward and backward, in bfloat16 with heads of 128: a line of JSON for
//! packed rows, gathered suffixes, and the cascade. `benches/attention_peer.py` is the peer.

use std::path::Path;
use std::time::Instant;

use forestctl::rows;
use forestctl::step::batch::Batch;
use forestctl::step::plan::blocks::{AttentionWay, HeadShape, Repeats};
use forestctl::step::plan::pack::{PackPlan, packs};
use serde_json::json;
use tch::{Kind, Tensor};

#[path = "../src/learner/mod.rs"]
#[allow(dead_code, unused_imports)]
mod learner;

use learner::attention::{Attention, AttentionPlan};
use learner::clock::Clock;
use learner::shim::{Heads, backward};
use learner::tensor::open_device;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const TIMES: u32 = 10;

fn milliseconds(index: i64, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    for _ in 0..3 {
        work()?;
    }
    tch::Cuda::synchronize(index);
    let begun = Instant::now();
    for _ in 0..TIMES {
        work()?;
    }
    tch::Cuda::synchronize(index);
    Ok(begun.elapsed().as_secs_f64() * 1e3 / f64::from(TIMES))
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let [rows, heads, kv_heads] = &arguments[..] else {
        return Err("usage: attention ROWS HEADS KV_HEADS".into());
    };
    let shape = HeadShape { heads: heads.parse()?, kv_heads: kv_heads.parse()?, dim: 128 };
    let rows = rows::read(Path::new(rows))?.rows;
    let batch = Batch::new(&rows)?;
    let device = open_device("cuda".parse()?, 0)?;
    let often = Repeats { forward: 1e3, backward: 1e3 };
    for (name, share, way, repeats) in [
        ("rows", false, AttentionWay::Suffix, None),
        ("rows, dense", false, AttentionWay::Cascade, Some(often)),
        ("suffix", true, AttentionWay::Suffix, None),
        ("cascade, flash", true, AttentionWay::Cascade, None),
        ("cascade", true, AttentionWay::Cascade, Some(often)),
    ] {
        let made = packs(&batch, PackPlan { tokens: Some(1 << 30), share })?;
        let pack = made.first().ok_or("no rows")?;
        let plan = AttentionPlan { way, repeats };
        let attention = Attention::new(&pack.forest, plan, shape, 1, (Kind::BFloat16, device))?;
        let draw = |heads: usize| {
            let size = [pack.ids().len() as i64, heads as i64, shape.dim as i64];
            Tensor::randn(size, (Kind::BFloat16, device))
        };
        let leaf = |heads| draw(heads).set_requires_grad(true);
        let (query, key, value) = (leaf(shape.heads), leaf(shape.kv_heads), leaf(shape.kv_heads));
        let slope = draw(shape.heads);
        let heads = Heads { query: &query, key: &key, value: &value };
        let forward = || Ok(attention.attend(&heads, None, &Clock::default())?.0);
        let forward_ms = milliseconds(0, || forward().map(drop))?;
        let both_ms = milliseconds(0, || Ok(backward(&forward()?, &slope)?))?;
        println!(
            "{}",
            json!({
                "arm": name, "tokens": pack.ids().len(), "scores": pack.forest.scores(),
                "forward_ms": forward_ms, "both_ms": both_ms,
            })
        );
    }
    Ok(())
}
