//! Times of the library in one process, without starting, argument parsing or printing.
//!
//! ```text
//! in_process rows SOURCE RUNS      captures -> groups -> selection -> rows, nothing written
//! in_process validate ARCHIVE RUNS archive -> findings, and SHA-256 over the same preimages
//! ```
//!
//! Prints one line of JSON: a list of seconds per measure. Threads are rayon's
//! (`RAYON_NUM_THREADS`).

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use forestctl::archive::{Archive, Call, Group, Mode, Rollout};
use forestctl::config::GrpoSettings;
use forestctl::select::{PolicyName, SelectSettings, select};
use forestctl::validate::{Options, invalid_rollouts, validate};
use forestctl::{ingest, rows};
use rayon::prelude::*;
use serde_json::json;
use sha2::{Digest, Sha256};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let report = match words[..] {
        ["rows", source, runs] => time_rows(Path::new(source), runs.parse()?)?,
        ["validate", archive, runs] => time_validation(Path::new(archive), runs.parse()?)?,
        [] => return Ok(()), // `cargo bench` without arguments: scripts run this program.
        _ => return Err("usage: in_process rows|validate PATH RUNS".into()),
    };
    println!("{report}");
    Ok(())
}

/// Seconds that `work` takes, each run.
fn times<T>(runs: usize, mut work: impl FnMut() -> Result<T>) -> Result<Vec<f64>> {
    (0..runs)
        .map(|_| {
            let start = Instant::now();
            black_box(work()?);
            Ok(start.elapsed().as_secs_f64())
        })
        .collect()
}

fn time_rows(source: &Path, runs: usize) -> Result<serde_json::Value> {
    let sources = [source.to_owned()];
    let read = times(runs, || Ok(ingest::read(&sources)?))?;
    let mut loss_tokens = 0;
    let whole = times(runs, || {
        let groups = ingest::read(&sources)?.groups;
        let proof = validate(&groups, Options::default());
        let settings =
            SelectSettings { invalid: invalid_rollouts(&proof.findings), ..Default::default() };
        let chosen = select(&groups, PolicyName::default().policy(), &settings);
        let batch = rows::build(&groups, &chosen, 1, &GrpoSettings::default());
        loss_tokens = batch.rows.iter().map(|row| row.loss_tokens()).sum();
        Ok(batch)
    })?;
    Ok(json!({ "read": read, "rows": whole, "loss_tokens": loss_tokens }))
}

fn time_validation(archive: &Path, runs: usize) -> Result<serde_json::Value> {
    let groups = Archive::open(archive)?.groups()?;
    let preimages: Vec<Vec<Preimage>> = groups.par_iter().map(preimages).collect();
    let tokens: usize = calls(&groups).map(|call| call.token_ids.len()).sum();
    let count = calls(&groups).count();
    drop(groups);
    let hash = || {
        let wrong: usize =
            preimages.par_iter().map(|group| group.iter().filter(|p| !p.holds()).count()).sum();
        match wrong {
            0 => Ok(()),
            _ => Err(format!("{wrong} digests do not hold").into()),
        }
    };
    let check = || {
        let archive = Archive::open(archive)?;
        let broken_files = archive.check_files();
        let groups = archive.groups()?;
        let found = validate(&groups, Options::default());
        match broken_files.len() + found.findings.len() {
            0 => Ok(found),
            count => Err(format!("{count} findings").into()),
        }
    };
    // Interleaved, so that both see the same machine.
    let (mut hashed, mut checked) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        hashed.extend(times(1, hash)?);
        checked.extend(times(1, check)?);
    }
    let bytes: usize = preimages.iter().flatten().map(|p| p.bytes.len()).sum();
    Ok(json!({
        "hash": hashed, "validate": checked, "preimage_bytes": bytes, "delta_tokens": tokens,
        "calls": count, "threads": rayon::current_num_threads(),
    }))
}

fn calls(groups: &[Group]) -> impl Iterator<Item = &Call> {
    groups.iter().flat_map(|g| &g.rollouts).flat_map(|r| &r.calls)
}

/// What one digest is taken over, and the digest that was committed to.
struct Preimage {
    bytes: Vec<u8>,
    digest: [u8; 32],
}

impl Preimage {
    fn holds(&self) -> bool {
        Sha256::digest(&self.bytes)[..] == self.digest
    }
}

/// Everything that validation has to hash: per call its digest, its extras and its chain; per
/// endpoint the whole sequence.
fn preimages(group: &Group) -> Vec<Preimage> {
    let mut all = Vec::new();
    for rollout in &group.rollouts {
        for call in &rollout.calls {
            all.extend([call_preimage(call), extras_preimage(call), chain_preimage(rollout, call)]);
            let last = rollout.ledger.terminal_call_id.as_ref() == Some(&call.call_id)
                || rollout.calls.iter().all(|c| c.parent_call_id.as_ref() != Some(&call.call_id));
            if last {
                all.push(cumulative_preimage(rollout, call));
            }
        }
    }
    all
}

fn call_preimage(call: &Call) -> Preimage {
    let committed = call.commitment.as_ref().expect("a staged call");
    let mut bytes = b"nemo-gym-staging-call-v2\x02\x02\x01".to_vec();
    let text = |bytes: &mut Vec<u8>, text: &str| {
        bytes.extend((text.len() as u64).to_be_bytes());
        bytes.extend(text.as_bytes());
    };
    text(&mut bytes, call.capture_key.as_str());
    text(&mut bytes, call.call_id.as_str());
    bytes.push(call.parent_call_id.is_some().into());
    call.parent_call_id.iter().for_each(|parent| text(&mut bytes, parent.as_str()));
    text(&mut bytes, if call.mode == Mode::Text { "text" } else { "token_in" });
    let weight = call.weight_version.expect("a staged call");
    for number in [call.prev_len, call.delta_len, call.cum_len, weight] {
        bytes.extend(number.to_be_bytes());
    }
    let count = call.token_ids.len() as u64;
    let carry = call.carry_len as usize;
    let made = call.token_ids.len() - carry;
    bytes.extend((8 + 8 * count).to_be_bytes());
    list(&mut bytes, &call.token_ids);
    let ones = std::iter::repeat_n(1.0_f32, made);
    for column in [ones.collect(), call.generation_logprobs.clone()] as [Vec<f32>; 2] {
        bytes.extend((8 + 4 * count).to_be_bytes());
        bytes.extend(count.to_be_bytes());
        bytes.resize(bytes.len() + 4 * carry, 0);
        bytes.extend(column.iter().flat_map(|value| value.to_be_bytes()));
    }
    bytes.extend(committed.extras_digest.0);
    for hash in [committed.chain_hash, committed.cumulative_hash] {
        bytes.push(1);
        bytes.extend(hash.0);
    }
    Preimage { bytes, digest: committed.digest.0 }
}

fn extras_preimage(call: &Call) -> Preimage {
    let committed = call.commitment.as_ref().expect("a staged call");
    Preimage {
        bytes: b"nemo-gym-staging-extras-v1\x01N".to_vec(),
        digest: committed.extras_digest.0,
    }
}

fn chain_preimage(rollout: &Rollout, call: &Call) -> Preimage {
    let mut bytes = b"nemo-gym-staging-chain-v1".to_vec();
    bytes.push(call.parent_call_id.is_some().into());
    if let Some(parent) = parent(rollout, call) {
        bytes.extend(parent.commitment.as_ref().expect("a staged call").chain_hash.0);
    }
    list(&mut bytes, &call.token_ids);
    Preimage { bytes, digest: call.commitment.as_ref().expect("a staged call").chain_hash.0 }
}

fn cumulative_preimage(rollout: &Rollout, call: &Call) -> Preimage {
    let mut path = vec![call];
    while let Some(parent) = parent(rollout, path[path.len() - 1]) {
        path.push(parent);
    }
    let tokens: Vec<u32> = path.iter().rev().flat_map(|c| &c.token_ids).copied().collect();
    let mut bytes = b"nemo-gym-staging-prefix-v2".to_vec();
    list(&mut bytes, &tokens);
    Preimage { bytes, digest: call.commitment.as_ref().expect("a staged call").cumulative_hash.0 }
}

fn parent<'a>(rollout: &'a Rollout, call: &Call) -> Option<&'a Call> {
    let id = call.parent_call_id.as_ref()?;
    rollout.calls.iter().find(|c| c.call_id == *id)
}

fn list(bytes: &mut Vec<u8>, ids: &[u32]) {
    bytes.extend((ids.len() as u64).to_be_bytes());
    bytes.extend(ids.iter().flat_map(|&id| u64::from(id).to_be_bytes()));
}
