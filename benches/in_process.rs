//! Times of the library in one process, without starting, argument parsing or printing.
//!
//! ```text
//! in_process rows SOURCE RUNS      captures -> groups -> selection -> rows, nothing written
//! in_process build ARCHIVE RUNS    groups in memory -> selection -> rows, and a copy of those rows
//! in_process validate ARCHIVE RUNS archive -> findings, as the command streams it; and SHA-256
//!                                  over the same preimages: `hash` by the sha2 crate one by one
//!                                  over bytes in memory, `lanes` by what validation uses, from
//!                                  the tokens
//! ```
//!
//! Prints one line of JSON: a list of seconds per measure. Threads are rayon's
//! (`RAYON_NUM_THREADS`).

use std::cmp::Reverse;
use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use forestctl::archive::{Archive, Call, Group, Mode, Rollout};
use forestctl::config::GrpoSettings;
use forestctl::id::Digest32;
use forestctl::select::{PolicyName, SelectSettings, select};
use forestctl::validate::{self, Options, Settings, invalid_rollouts};
use forestctl::wire::digest::{Checked, Claim};
use forestctl::wire::{StagedView, TokenIds};
use forestctl::{ingest, rows};
use rayon::prelude::*;
use serde_json::json;
use sha2::{Digest, Sha256};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// As in the command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let report = match words[..] {
        ["rows", source, runs] => time_rows(Path::new(source), runs.parse()?)?,
        ["build", archive, runs] => time_build(Path::new(archive), runs.parse()?)?,
        ["validate", archive, runs] => time_validation(Path::new(archive), runs.parse()?)?,
        [] => return Ok(()), // `cargo bench` without arguments: scripts run this program.
        _ => return Err("usage: in_process rows|build|validate PATH RUNS".into()),
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
        let proof = validate::validate(&groups, Options::default());
        let settings =
            SelectSettings { invalid: invalid_rollouts(&proof.findings), ..Default::default() };
        let chosen = select(&groups, PolicyName::default().policy(), &settings);
        let batch = rows::build(&groups, &chosen, 1, &GrpoSettings::default());
        loss_tokens = batch.rows.iter().map(|row| row.loss_tokens()).sum();
        Ok(batch)
    })?;
    Ok(json!({ "read": read, "rows": whole, "loss_tokens": loss_tokens }))
}

/// Selection and rows of groups in memory, against copying the columns of the same rows.
fn time_build(archive: &Path, runs: usize) -> Result<serde_json::Value> {
    let groups = Archive::open(archive)?.groups()?;
    let settings = SelectSettings::default();
    let policy = PolicyName::AllCaptured.policy();
    let chosen = select(&groups, policy, &settings);
    let batch = rows::build(&groups, &chosen, 1, &GrpoSettings::default());
    let selection = times(runs, || Ok(select(&groups, policy, &settings)))?;
    let build = times(runs, || Ok(rows::build(&groups, &chosen, 1, &GrpoSettings::default())))?;
    let copy = times(runs, || {
        let copied = batch.rows.par_iter().map(|row| {
            (row.input_ids.clone(), row.loss_mask.clone(), row.generation_logprobs.clone())
        });
        Ok(copied.collect::<Vec<_>>())
    })?;
    let tokens: usize = batch.rows.iter().map(|row| row.input_ids.len()).sum();
    Ok(json!({
        "select": selection, "build": build, "copy": copy,
        "rows": batch.rows.len(), "row_tokens": tokens,
    }))
}

fn time_validation(archive: &Path, runs: usize) -> Result<serde_json::Value> {
    let mut seen = 0;
    let check = || {
        let archive = Archive::open(archive)?;
        seen = 0;
        validate::archive(&archive, &Settings::default(), |piece| {
            seen += piece.checked.calls;
            match piece.findings.first() {
                None => Ok(()),
                Some(finding) => Err(forestctl::error::Error::format(finding.message.clone())),
            }
        })?;
        Ok(())
    };
    // First, while memory is as the command finds it: what is hashed alone takes 350 MB.
    let validated = times(runs, check)?;
    let groups = Archive::open(archive)?.groups()?;
    let preimages: Vec<Vec<Preimage>> = groups.par_iter().map(preimages).collect();
    let tokens: usize = calls(&groups).map(|call| call.token_ids.len()).sum();
    let count = calls(&groups).count();
    let hash = || {
        let wrong: usize =
            preimages.par_iter().map(|group| group.iter().filter(|p| !p.holds()).count()).sum();
        match wrong {
            0 => Ok(()),
            _ => Err(format!("{wrong} digests do not hold").into()),
        }
    };
    let checked: Vec<_> = groups.iter().map(checked).collect();
    let claims: Vec<Vec<(Claim<'_>, Digest32)>> =
        groups.par_iter().zip(&checked).map(|(group, checked)| claims(group, checked)).collect();
    let lanes = || {
        let wrong = |group: &Vec<(Claim<'_>, Digest32)>| {
            let digests = Claim::digests(group, |(claim, _)| claim.clone());
            digests.iter().zip(group).filter(|(found, (_, said))| *found != said).count()
        };
        match claims.par_iter().map(wrong).sum::<usize>() {
            0 => Ok(()),
            wrong => Err(format!("{wrong} digests do not hold").into()),
        }
    };
    if seen as usize != count {
        return Err(format!("{seen} of {count} calls were checked").into());
    }
    let (hashed, laned) = (times(runs, hash)?, times(runs, lanes)?);
    let bytes: usize = preimages.iter().flatten().map(|p| p.bytes.len()).sum();
    Ok(json!({
        "hash": hashed, "lanes": laned, "validate": validated, "preimage_bytes": bytes, "delta_tokens": tokens,
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
            if is_last(rollout, call) {
                all.push(cumulative_preimage(rollout, call));
            }
        }
    }
    all
}

/// The calls of a group, whose arguments are sound.
fn checked(group: &Group) -> Vec<Checked<'_>> {
    let view = |call| StagedView::of(call).expect("a staged call");
    let calls = group.rollouts.iter().flat_map(|rollout| &rollout.calls);
    calls.map(|call| Checked::new(view(call)).expect("a sound call")).collect()
}

/// The same but for the extras, which are null, as what validation makes of them: long ones first.
fn claims<'a>(group: &'a Group, checked: &'a [Checked<'a>]) -> Vec<(Claim<'a>, Digest32)> {
    let mut all = Vec::new();
    let mut checked = checked.iter();
    for rollout in &group.rollouts {
        for call in &rollout.calls {
            let view = StagedView::of(call).expect("a staged call");
            let checked = checked.next().expect("one of every call");
            let parent = parent(rollout, call);
            let parent = parent.map(|call| call.commitment.expect("a staged call").chain_hash);
            let delta = view.token_ids;
            all.push((Claim::Call(checked), view.digest));
            all.push((Claim::Chain { parent, delta }, view.chain_hash));
            if is_last(rollout, call) {
                let path = path(rollout, call).into_iter();
                let path = path.map(|call| TokenIds::Narrow(&call.token_ids)).collect();
                all.push((Claim::Cumulative(path), view.cumulative_hash));
            }
        }
    }
    let tokens = |claim: &Claim<'_>| match claim {
        Claim::Call(call) => 2 * call.token_ids().len(),
        Claim::Chain { delta, .. } => delta.len(),
        Claim::Cumulative(path) | Claim::Entry(path) => path.iter().map(TokenIds::len).sum(),
        Claim::Line(line) => line.len() / 8,
    };
    all.sort_by_key(|(claim, _)| Reverse(tokens(claim)));
    all
}

/// Whether the call's cumulative hash is checked.
fn is_last(rollout: &Rollout, call: &Call) -> bool {
    rollout.ledger.terminal_call_id.as_ref() == Some(&call.call_id)
        || rollout.calls.iter().all(|c| c.parent_call_id.as_ref() != Some(&call.call_id))
}

/// The calls from the root to this one.
fn path<'a>(rollout: &'a Rollout, call: &'a Call) -> Vec<&'a Call> {
    let mut path = vec![call];
    while let Some(parent) = parent(rollout, path[path.len() - 1]) {
        path.push(parent);
    }
    path.reverse();
    path
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
    let path = path(rollout, call);
    let tokens: Vec<u32> = path.iter().flat_map(|c| &c.token_ids).copied().collect();
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
