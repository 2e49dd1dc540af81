//! Damage under digests that were made to match: what only the decoder and the wire's own digests
//! can tell.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use forestctl::archive::{self, Archive, Call, CommittedCall, Group, Ingested, Ledger, Rollout};
use forestctl::id::Digest32;
use rayon::prelude::*;

use super::again;
use super::sealed::{Decoded, Sealed, errors, rich, with_media};

/// Names of the values that differ.
fn differences(ours: &[Group], theirs: &[Group]) -> BTreeSet<&'static str> {
    let mut names = BTreeSet::new();
    if ours.len() != theirs.len() {
        names.insert("groups");
    }
    for (ours, theirs) in ours.iter().zip(theirs) {
        if ours.group_id != theirs.group_id {
            names.insert("group_id");
        }
        if ours.rollouts.len() != theirs.rollouts.len() {
            names.insert("rollouts");
        }
        for (ours, theirs) in ours.rollouts.iter().zip(&theirs.rollouts) {
            rollout(ours, theirs, &mut names);
        }
    }
    names
}

/// Compares fields by name.
macro_rules! compare {
    ($names:ident, $prefix:literal, $ours:ident, $theirs:ident: $($field:ident)*) => {
        $(if $ours.$field != $theirs.$field {
            $names.insert(concat!($prefix, stringify!($field)));
        })*
    };
}

fn rollout(ours: &Rollout, theirs: &Rollout, names: &mut BTreeSet<&'static str>) {
    compare!(names, "rollout.", ours, theirs: rollout_id slot group_size capture_key mask_sample
        result source completeness);
    if ours.reward.map(f64::to_bits) != theirs.reward.map(f64::to_bits) {
        names.insert("rollout.reward");
    }
    let (a, b) = (&ours.ledger, &theirs.ledger);
    compare!(names, "ledger.", a, b: receipt attempted pending failures terminal_call_id
        capture_poisoned failure_reason);
    if a.committed.len() != b.committed.len() {
        names.insert("ledger.committed");
    }
    for (a, b) in a.committed.iter().zip(&b.committed) {
        committed(a, b, names);
    }
    if ours.calls.len() != theirs.calls.len() {
        names.insert("calls");
    }
    for (a, b) in ours.calls.iter().zip(&theirs.calls) {
        call(a, b, names);
    }
}

fn committed(a: &CommittedCall, b: &CommittedCall, names: &mut BTreeSet<&'static str>) {
    compare!(names, "committed.", a, b: call_id response_id completion output_items
        output_fingerprint fingerprint_version);
}

fn call(a: &Call, b: &Call, names: &mut BTreeSet<&'static str>) {
    compare!(names, "call.", a, b: call_id capture_key source_capture_key parent_call_id mode
        prev_len delta_len cum_len weight_version token_ids carry_len commitment entry_digest
        extras media tensors origin);
    let bits = |values: &[f32]| values.iter().map(|p| p.to_bits()).collect::<Vec<_>>();
    if bits(&a.generation_logprobs) != bits(&b.generation_logprobs) {
        names.insert("call.generation_logprobs");
    }
    let raw = |call: &Call| {
        call.raw_columns.as_ref().map(|raw| {
            let bits = |values: &[f64]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            (bits(&raw.token_mask), bits(&raw.logprobs))
        })
    };
    if raw(a) != raw(b) {
        names.insert("call.raw_columns");
    }
}

/// What became of a forgery.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// The archive cannot be read.
    Unreadable,
    /// It can, and validation finds it broken.
    Found,
    /// All values are as they were.
    Equal,
    /// These values changed, and nothing of it is found.
    Changed(BTreeSet<&'static str>),
}

/// The work of the test below.
fn forged_bytes() {
    // Where a record was read is for people, and is told by name only.
    let origins = BTreeSet::from(["call.origin"]);
    for (sealed, known) in [(Sealed::of(&rich()), 2), (Sealed::of_folder(with_media), 0)] {
        assert_eq!(forge_every_byte(&sealed, known), origins);
    }
}

/// Flips every byte of the tables of an archive that has `quarantined` lines, under digests that
/// match. Returns the values that changed unnoticed.
fn forge_every_byte(sealed: &Sealed, quarantined: usize) -> BTreeSet<&'static str> {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("honest");
    sealed.write(&path);
    let archive = Archive::open(&path).unwrap();
    let honest = Decoded::of(&archive).unwrap();
    let known = errors(&archive).unwrap();
    assert_eq!(known.len(), quarantined, "the quarantine of the capture: {known:?}");

    let tables = sealed.0.iter().filter(|(name, _)| name.ends_with(".parquet"));
    let flips: Vec<(&str, usize)> = tables
        .flat_map(|(name, bytes)| (0..bytes.len()).map(move |at| (name.as_str(), at)))
        .collect();
    let each = flips.len().div_ceil(rayon::current_num_threads());
    let fates: Vec<(&str, usize, Fate)> = flips
        .par_chunks(each)
        .enumerate()
        .flat_map_iter(|(worker, flips)| {
            let path = home.path().join(format!("worker-{worker}"));
            sealed.write(&path);
            let mut fates = Vec::new();
            for &(name, at) in flips {
                let mut forged = sealed.clone();
                let mut bytes = sealed.0[name].clone();
                bytes[at] ^= if at % 2 == 0 { 0x01 } else { 0xff };
                forged.forge(name, bytes);
                for name in [name, "archive.json"] {
                    fs::write(path.join(name), &forged.0[name]).unwrap();
                }
                let archive =
                    Archive::open(&path).expect("the forgery of the manifest is complete");
                let fate = match errors(&archive) {
                    None => Fate::Unreadable,
                    Some(errors) if errors != known => Fate::Found,
                    Some(_) => {
                        let seen = Decoded::of(&archive).unwrap();
                        assert_eq!(seen.quarantine, honest.quarantine);
                        assert!(seen.pieces == honest.pieces, "{name} byte {at}: tensor data");
                        match differences(&seen.groups, &honest.groups) {
                            same if same.is_empty() => Fate::Equal,
                            names => Fate::Changed(names),
                        }
                    }
                };
                fates.push((name, at, fate));
                fs::write(path.join(name), &sealed.0[name]).unwrap();
            }
            fates
        })
        .collect();

    let mut counts = [0_usize; 4];
    let mut changed: BTreeMap<&str, BTreeSet<&'static str>> = BTreeMap::new();
    for (name, _, fate) in &fates {
        match fate {
            Fate::Unreadable => counts[0] += 1,
            Fate::Found => counts[1] += 1,
            Fate::Equal => counts[2] += 1,
            Fate::Changed(names) => {
                counts[3] += 1;
                changed.entry(name).or_default().extend(names);
            }
        }
    }
    let [unreadable, found, equal, values] = counts;
    println!(
        "{} bytes of tables flipped under matching digests: {unreadable} unreadable, {found} \
         found, {equal} equal, {values} changed what nothing signs: {changed:?}",
        fates.len()
    );
    changed.into_values().flatten().collect()
}

/// Address space of the process that reads forged tables; lengths that are believed would ask for
/// more.
const KIBIBYTES: u32 = 4 << 20;

#[test]
fn every_forged_byte_is_an_error_a_finding_or_a_value_that_nothing_signs() {
    const CHILD: &str = "FORGED_BYTES_IN_LITTLE_MEMORY";
    if std::env::var_os(CHILD).is_some() {
        return forged_bytes();
    }
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit -v {KIBIBYTES} && exec \"$0\" \"$@\"")]);
    again(limited.env(CHILD, "1"));
}

/// Whether a change of one value is found, though every digest of the archive itself was made to
/// match: by the wire's own digests, or by what the archive keeps twice.
#[derive(Debug, PartialEq)]
enum Proof {
    Found,
    /// Nothing that was captured signs the value.
    Unsigned,
}

type Change = fn(&mut Rollout);

fn other(digest: Digest32) -> Digest32 {
    Digest32(digest.0.map(|byte| !byte))
}

/// Every value that an archive keeps of a staged rollout, changed alone. The first call is odd,
/// and the second ordinary.
fn changes() -> Vec<(&'static str, Change, Proof)> {
    use Proof::{Found, Unsigned};
    macro_rules! signed {
        ($($field:ident)*) => {
            [$((concat!("commitment.", stringify!($field)), (|r| {
                r.calls[1].commitment.as_mut().unwrap().$field += 1;
            }) as Change, Found)),*]
        };
    }
    macro_rules! hashed {
        ($($field:ident)*) => {
            [$((concat!("commitment.", stringify!($field)), (|r| {
                let signed = r.calls[1].commitment.as_mut().unwrap();
                signed.$field = other(signed.$field);
            }) as Change, Found)),*]
        };
    }
    let ledger: Vec<(&'static str, Change, Proof)> = vec![
        ("committed, one less", |r| drop(r.ledger.committed.pop()), Found),
        ("committed, in another order", |r| r.ledger.committed.reverse(), Found),
        ("committed.call_id", |r| r.ledger.committed[0].call_id = "x".into(), Found),
        ("committed.response_id", |r| r.ledger.committed[0].response_id = None, Found),
        (
            "committed.completion",
            |r| {
                r.ledger.committed[2].completion = r.ledger.committed[0].completion.clone();
            },
            Found,
        ),
        ("committed.output_items", |r| r.ledger.committed[0].output_items = None, Found),
        (
            "committed.output_fingerprint",
            |r| {
                r.ledger.committed[0].output_fingerprint = None;
            },
            Found,
        ),
        ("committed.fingerprint_version", |r| r.ledger.committed[0].fingerprint_version = 0, Found),
        ("attempted", |r| drop(r.ledger.attempted.pop()), Found),
        ("pending", |r| r.ledger.pending.push("x".into()), Found),
        (
            "failures",
            |r| {
                let call_id = r.calls[0].call_id.clone();
                let reason = "worker_capture_failed".to_owned();
                r.ledger.failures.push(archive::CaptureFailure { call_id, reason });
            },
            Found,
        ),
        (
            "terminal_call_id",
            |r| {
                r.ledger.terminal_call_id = Some(r.calls[2].call_id.clone());
            },
            Found,
        ),
        ("capture_poisoned", |r| r.ledger.capture_poisoned ^= true, Found),
        ("failure_reason", |r| r.ledger.failure_reason = Some(String::new()), Found),
        ("receipt", |r| r.ledger.receipt = None, Found),
        ("ledger", |r| r.ledger = Ledger::default(), Found),
        // Receipt and columns alike: what no digest covers.
        ("receipt and columns: response_id", |r| receipt(r, "resp_b", "resp_x"), Unsigned),
        ("receipt and columns: staging_key", |r| receipt(r, "0-0/b", "0-0/x"), Unsigned),
        (
            "receipt and columns: fingerprint",
            |r| {
                let print = r.ledger.committed[0].output_fingerprint.unwrap();
                receipt(r, &print.to_string(), &other(print).to_string());
            },
            Unsigned,
        ),
        ("receipt and columns: status", |r| receipt(r, "incomplete", "completed"), Unsigned),
        (
            "receipt and columns: scored call",
            |r| {
                receipt(r, "\"terminal_model_call_id\":\"b\"", "\"terminal_model_call_id\":\"c\"");
            },
            Unsigned,
        ),
        (
            "receipt and columns: digest",
            |r| {
                let digest = r.calls[1].commitment.unwrap().digest;
                receipt(r, &digest.to_string(), &other(digest).to_string());
            },
            Found,
        ),
        (
            "receipt and columns: weight_version",
            |r| {
                receipt(r, "\"weight_version\":7", "\"weight_version\":8");
            },
            Found,
        ),
        (
            "receipt and columns: scope",
            |r| receipt(r, "\"rollout_id\":\"0-0\"", "\"rollout_id\":\"x\""),
            Found,
        ),
    ];
    let rollout: Vec<(&'static str, Change, Proof)> = vec![
        ("rollout_id", |r| r.rollout_id = "x".into(), Unsigned),
        ("slot", |r| r.slot += 1, Found),
        ("group_size", |r| r.group_size += 1, Found),
        ("capture_key", |r| r.capture_key = "x".into(), Found),
        ("reward", |r| r.reward = Some(0.5), Unsigned),
        ("mask_sample", |r| r.mask_sample ^= true, Unsigned),
        ("result", |r| r.result = None, Unsigned),
        ("source", |r| r.source = archive::SourceKind::GymStore, Found),
        // For the worse only: without a receipt nothing is complete.
        ("completeness", |r| r.completeness = archive::Completeness::Unknown, Unsigned),
        ("calls, one less", |r| drop(r.calls.pop()), Found),
        ("calls, one twice", |r| r.calls.push(r.calls[0].clone()), Found),
        ("calls, in another order", |r| r.calls.reverse(), Unsigned),
    ];
    let call: Vec<(&'static str, Change, Proof)> = vec![
        ("call_id", |r| r.calls[1].call_id = "x".into(), Found),
        ("capture_key", |r| r.calls[1].capture_key = "x".into(), Found),
        ("source_capture_key", |r| r.calls[1].source_capture_key = Some("x".into()), Unsigned),
        ("parent_call_id", |r| r.calls[1].parent_call_id = None, Found),
        ("mode", |r| r.calls[1].mode = archive::Mode::Text, Found),
        ("prev_len", |r| r.calls[1].prev_len += 1, Found),
        ("delta_len", |r| r.calls[1].delta_len += 1, Found),
        ("cum_len", |r| r.calls[1].cum_len += 1, Found),
        ("weight_version", |r| r.calls[1].weight_version = Some(8), Found),
        ("weight_version, none", |r| r.calls[1].weight_version = None, Found),
        ("token_ids", |r| r.calls[1].token_ids[0] ^= 1, Found),
        ("token_ids, one less", |r| r.calls[1].token_ids.truncate(2), Found),
        ("carry_len", |r| r.calls[1].carry_len += 1, Found),
        ("generation_logprobs", |r| r.calls[1].generation_logprobs[0] = -0.25, Found),
        (
            "generation_logprobs, not a number",
            |r| {
                r.calls[1].generation_logprobs[0] = f32::NAN;
            },
            Found,
        ),
        ("commitment", |r| r.calls[1].commitment = None, Found),
        (
            "commitment of a call that nothing commits to",
            |r| {
                // The pending call of the other rollout stands behind those that are committed.
                r.calls.last_mut().unwrap().commitment = None;
            },
            Found,
        ),
        ("entry_digest", |r| r.calls[1].entry_digest = Some(Digest32([0; 32])), Unsigned),
        ("extras", |r| r.calls[1].extras = None, Found),
        ("media", |r| r.calls[0].media.as_mut().unwrap().present ^= true, Found),
        ("media, none", |r| r.calls[0].media = None, Unsigned),
        ("origin", |r| r.calls[1].origin.line += 1, Unsigned),
        ("odd call: raw_columns", |r| r.calls[0].raw_columns = None, Found),
        ("odd call: mask", |r| r.calls[0].raw_columns.as_mut().unwrap().token_mask[0] = 0.0, Found),
        (
            "odd call: logprob",
            |r| {
                r.calls[0].raw_columns.as_mut().unwrap().logprobs[3] = -0.25;
            },
            Found,
        ),
        ("odd call: carry_len", |r| r.calls[0].carry_len -= 1, Found),
        ("odd call: generation_logprobs", |r| r.calls[0].generation_logprobs[0] = -0.25, Found),
        (
            "ordinary call: raw_columns",
            |r| {
                r.calls[1].raw_columns = Some(archive::RawColumns::default());
            },
            Found,
        ),
    ];
    let mut all = ledger;
    all.extend(rollout);
    all.extend(call);
    all.extend(signed!(schema_version digest_version extras_digest_version));
    all.extend(hashed!(digest extras_digest chain_hash cumulative_hash));
    all
}

/// Changes the text of the receipt, and everything in the ledger that is told by it.
fn receipt(rollout: &mut Rollout, from: &str, to: &str) {
    let text = rollout.ledger.receipt.as_ref().unwrap();
    assert!(text.contains(from), "{from} is not in the receipt");
    let text = text.replace(from, to);
    rollout.ledger = forestctl::wire::Receipt::parse(&text).unwrap().ledger(&text);
}

#[test]
fn a_forger_of_everything_is_found_by_the_captures_own_digests() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("honest");
    Sealed::of(&rich()).write(&path);
    let honest = Decoded::of(&Archive::open(&path).unwrap()).unwrap().groups;
    let wrong: Vec<String> = changes()
        .into_par_iter()
        .enumerate()
        .filter_map(|(case, (name, change, proof))| {
            let mut groups = honest.clone();
            change(&mut groups[0].rollouts[0]);
            assert!(!differences(&groups, &honest).is_empty(), "{name} changes nothing");
            let path = home.path().join(format!("forged-{case}"));
            archive::write(&path, false, &Ingested { groups, ..Ingested::default() }).unwrap();
            let errors = errors(&Archive::open(&path).unwrap()).expect("a whole archive");
            let found = if errors.is_empty() { Proof::Unsigned } else { Proof::Found };
            (found != proof).then(|| format!("{name} is {found:?}: {errors:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A manifest that lies about what the tables hold.
#[test]
fn totals_and_lists_that_the_tables_do_not_give_are_reported() {
    let sealed = Sealed::of(&rich());
    let honest = sealed.validate();
    let text = String::from_utf8(sealed.0["archive.json"].clone()).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&text).unwrap();
    // Unchanged, it is signed as it was.
    let mut same = sealed.clone();
    same.forge_manifest(str::to_owned);
    assert_eq!(same.0, sealed.0);
    for key in ["groups", "rollouts", "calls", "tokens", "generated_tokens", "quarantined"] {
        let stated = manifest["counts"][key].as_u64().unwrap();
        for lie in [stated + 1, 0, u64::MAX] {
            let mut forged = sealed.clone();
            // In the totals, and in those of the one part that adds up to them.
            forged.forge_manifest(|text| {
                text.replace(&format!("\"{key}\": {stated}"), &format!("\"{key}\": {lie}"))
            });
            let (code, findings) = forged.validate();
            assert!(code == 2 || findings.len() > honest.1.len(), "{key}: {lie}: {findings:?}");
            // In the totals alone.
            let mut forged = sealed.clone();
            forged.forge_manifest(|text| {
                let at = text.rfind(&format!("\"{key}\": {stated}")).unwrap();
                let (head, tail) = text.split_at(at);
                head.to_owned() + &tail.replacen(&format!(": {stated}"), &format!(": {lie}"), 1)
            });
            let (code, findings) = forged.validate();
            assert!(code == 2 || findings.len() > honest.1.len(), "{key}: {lie}: {findings:?}");
        }
    }
    // No parts, while their tables lie there and are listed.
    let mut forged = sealed.clone();
    forged.forge_manifest(|text| {
        let mut manifest: archive::Manifest = serde_json::from_str(text).unwrap();
        manifest.parts.clear();
        manifest.counts = archive::Counts { quarantined: 2, ..archive::Counts::default() };
        manifest.to_text().unwrap()
    });
    assert_eq!(forged.validate().0, 2);
}
