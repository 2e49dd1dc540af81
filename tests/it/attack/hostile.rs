//! Lines that were changed at random: nothing panics, every line ends in the archive or in the
//! quarantine, and what no changed line speaks of comes out as if nothing had happened.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use forestctl::archive::{self, Archive, Group, Ingested, Origin, Rollout};
use forestctl::finding::Code;
use forestctl::ingest;
use forestctl::validate::{self, Settings};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::value::RawValue;

use super::capture::{Capture, sorted};
use super::store::{Store, ledger};

/// Files of a capture by name, as lines without their breaks.
type Files = BTreeMap<String, Vec<Vec<u8>>>;

/// Staged captures of both schemas, with media flags and Gym's ledgers, and a store with its siblings.
fn forms() -> [Files; 4] {
    let staged = |schema: u64| {
        let mut capture = Capture::empty(schema);
        for group in 0..2 {
            for slot in 0..2 {
                let key = format!("{group}-{slot}");
                capture.rollout(&format!("p{group}"), &key, slot, 2);
                capture.call(&format!("{key}-a"), None, &[1, 2], &[3, 4]);
                capture.call(&format!("{key}-b"), Some(&format!("{key}-a")), &[5], &[6]);
                if schema == 2 {
                    capture.media.push(serde_json::json!({
                        "rollout_id": key, "model_call_id": format!("{key}-a"),
                        "media_present": false, "media_has_frames": false,
                        "media_metadata_digest":
                            "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b",
                    }));
                }
            }
        }
        capture
    };
    let mut ledgers = staged(2);
    for (at, receipt) in std::mem::take(&mut ledgers.receipts).iter().enumerate() {
        let rows: String = ledger(receipt).iter().map(|row| format!("{}\n", sorted(row))).collect();
        let key = ledgers.rollouts[at]["capture_key"].as_str().unwrap();
        ledgers.files.insert(format!("{key}.lineage.jsonl"), rows.into_bytes());
    }
    let stores = tempfile::tempdir().unwrap();
    for key in ["0-0", "0-1", "1-0"] {
        let mut store = Store::of(key);
        store.call(&format!("{key}-a"), None, &[1, 2], &[3, 4]);
        store.call(&format!("{key}-b"), Some(&format!("{key}-a")), &[5], &[6]);
        store.write(stores.path());
        fs::remove_file(stores.path().join(format!("{key}.tokens.lock"))).unwrap();
    }
    [files(&staged(2)), files(&staged(3)), files(&ledgers), lines_below(stores.path())]
}

fn files(capture: &Capture) -> Files {
    let home = tempfile::tempdir().unwrap();
    capture.write(home.path());
    lines_below(home.path())
}

fn lines_below(home: &Path) -> Files {
    let entries = fs::read_dir(home).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| {
            let bytes = fs::read(entry.path()).unwrap();
            let lines = bytes.split(|&byte| byte == b'\n').map(<[u8]>::to_vec);
            let mut lines: Vec<_> = lines.collect();
            assert_eq!(lines.pop(), Some(Vec::new()));
            (entry.file_name().into_string().unwrap(), lines)
        })
        .collect()
}

/// What a value is replaced by, as JSON text or not quite.
const HOSTILE: [&str; 26] = [
    "null",
    "true",
    "-1",
    "-0",
    "1.5",
    "1e999",
    "2.0",
    "18446744073709551615",
    "18446744073709551616",
    "4294967296",
    "NaN",
    "-Infinity",
    "\"\"",
    "\"x\"",
    "\"0-1\"",
    "\"1-0-a7\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"../../x\"",
    "\"2\"",
    "[]",
    "[null]",
    "[1,[2]]",
    "{}",
    "{\"items\":[{}]}",
    "{\"a\":1,\"a\":2}",
];

/// One change of one line.
#[derive(Clone, Debug)]
enum Change {
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Cut(Index),
    Remove(Index, Index),
    /// The text of a value behind a colon or in a list.
    Replace(Index, usize),
    /// A value of nothing but opening brackets, or of very many digits or letters.
    Deep(Index, u8, usize),
    /// The first member again, with another value, in front or behind.
    Again(usize, bool),
    Repeat,
    Drop,
    Break(Index),
    Blank,
}

fn change() -> impl Strategy<Value = Change> {
    let index = any::<Index>;
    prop_oneof![
        3 => (index(), 1..=255_u8).prop_map(|(at, flip)| Change::Flip(at, flip)),
        2 => (index(), vec(any::<u8>(), 1..8)).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        2 => index().prop_map(Change::Cut),
        1 => (index(), index()).prop_map(|(from, to)| Change::Remove(from, to)),
        8 => (index(), 0..HOSTILE.len()).prop_map(|(at, with)| Change::Replace(at, with)),
        1 => (
            index(),
            prop_oneof![Just(b'['), Just(b'{'), Just(b'7'), Just(b'x')],
            prop_oneof![Just(200), Just(5_000), Just(200_000)],
        )
            .prop_map(|(at, of, size)| Change::Deep(at, of, size)),
        1 => (0..HOSTILE.len(), any::<bool>()).prop_map(|(with, front)| Change::Again(with, front)),
        1 => Just(Change::Repeat),
        1 => Just(Change::Drop),
        1 => index().prop_map(Change::Break),
        1 => Just(Change::Blank),
    ]
}

/// Where the values of a line begin and end, outermost and nested, as far as its text tells.
fn values(line: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut quoted = false;
    let mut at = 0;
    while at < line.len() {
        match line[at] {
            b'\\' if quoted => at += 1,
            b'"' => quoted = !quoted,
            b':' | b'[' if !quoted => {
                found.extend(value_end(line, at + 1).map(|end| (at + 1, end)))
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// The end of the value that begins at `start`.
fn value_end(line: &[u8], start: usize) -> Option<usize> {
    let text = std::str::from_utf8(line.get(start..)?).ok()?;
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    values.next()?.ok()?;
    Some(start + values.byte_offset())
}

impl Change {
    /// Changes line `at` of `lines`.
    fn apply(&self, lines: &mut Vec<Vec<u8>>, at: usize) {
        let line = &mut lines[at];
        let within = |index: &Index, line: &[u8]| index.index(line.len() + 1);
        match self {
            Change::Flip(_, _) if line.is_empty() => {}
            Change::Flip(index, flip) => {
                let at = index.index(line.len());
                line[at] ^= flip;
            }
            Change::Insert(index, bytes) => {
                let at = within(index, line);
                line.splice(at..at, bytes.iter().copied());
            }
            Change::Cut(index) => line.truncate(within(index, line)),
            Change::Remove(from, to) => {
                let (from, to) = (within(from, line), within(to, line));
                line.drain(from.min(to)..from.max(to));
            }
            Change::Replace(index, with) => replace(line, index, HOSTILE[*with].as_bytes()),
            Change::Deep(index, of, size) => {
                let value = vec![*of; *size];
                let value = if *of == b'x' { [b"\"", &value[..], b"\""].concat() } else { value };
                replace(line, index, &value);
            }
            Change::Again(with, front) => {
                let text = String::from_utf8_lossy(line).into_owned();
                let Some(key) = text.split(':').next().and_then(|head| head.strip_prefix('{'))
                else {
                    return;
                };
                let member = format!("{key}:{}", HOSTILE[*with]);
                *line = match (front, text.strip_suffix('}')) {
                    (true, _) => format!("{{{member},{}", &text[1..]),
                    (false, Some(head)) => format!("{head},{member}}}"),
                    (false, None) => text,
                }
                .into_bytes();
            }
            Change::Repeat => {
                let again = line.clone();
                lines.push(again);
            }
            Change::Drop => drop(lines.remove(at)),
            Change::Break(index) => {
                let at = within(index, line);
                line.insert(at, b'\n');
            }
            Change::Blank => *line = b" \t\r".to_vec(),
        }
    }
}

fn replace(line: &mut Vec<u8>, index: &Index, with: &[u8]) {
    let values = values(line);
    if !values.is_empty() {
        let (start, end) = values[index.index(values.len())];
        line.splice(start..end, with.iter().copied());
    }
}

fn write(files: &Files, home: &Path) {
    fs::create_dir_all(home).unwrap();
    for (name, lines) in files {
        let mut bytes = lines.join(&b'\n');
        if !lines.is_empty() {
            bytes.push(b'\n');
        }
        fs::write(home.join(name), bytes).unwrap();
    }
}

fn rollouts(groups: &[Group]) -> impl Iterator<Item = &Rollout> {
    groups.iter().flat_map(|group| &group.rollouts)
}

/// Every line that says anything is in the archive, in quarantine, or one of several equal ones.
fn account(files: &Files, read: &Ingested) -> Result<(), TestCaseError> {
    let calls: BTreeSet<(&str, u64)> = rollouts(&read.groups)
        .flat_map(|rollout| &rollout.calls)
        .map(|call| (call.origin.file.as_str(), call.origin.line))
        .collect();
    let receipts: BTreeSet<&str> =
        rollouts(&read.groups).filter_map(|r| r.ledger.receipt.as_deref()).collect();
    let ids: BTreeSet<&str> = rollouts(&read.groups).map(|r| r.rollout_id.as_str()).collect();
    let refused: BTreeSet<(&str, Option<u64>)> =
        read.quarantine.iter().map(|entry| (entry.source.as_str(), entry.line)).collect();
    // Whole scopes that are left out, and told by name: earlier attempts, and those whose
    // rollout another one fills.
    let told: Vec<&str> = read
        .findings
        .iter()
        .filter(|finding| finding.code == Code::SupersededAttempt)
        .map(|finding| finding.message.as_str())
        .chain(read.quarantine.iter().filter(|q| q.line.is_none()).map(|q| q.message.as_str()))
        .collect();
    for (name, lines) in files {
        let source = format!("captures/{name}");
        let bytes = lines.join(&b'\n');
        let lines: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
        if refused.contains(&(&source, None)) {
            continue;
        }
        for (number, line) in (1..).zip(&lines) {
            let text = String::from_utf8_lossy(line);
            if text.trim().is_empty() || refused.contains(&(&source, Some(number))) {
                continue;
            }
            let repeated = lines.iter().filter(|other| *other == line).count() > 1;
            // Numbers need not fit a double, so values stay texts; Python's own are no JSON.
            let json = text.replace("-Infinity", "null").replace("NaN", "null");
            let members: BTreeMap<String, &RawValue> =
                serde_json::from_str(&json).unwrap_or_default();
            let word = |key: &str| serde_json::from_str::<String>(members.get(key)?.get()).ok();
            let scope = word("capture_key").or(word("rollout_id")).unwrap_or_default();
            let left_out = told.iter().any(|message| message.contains(&format!("scope {scope} ")));
            let kept = if name.starts_with("staged") || name.ends_with(".tokens.jsonl") {
                calls.contains(&(&source, number))
            } else if name.starts_with("receipts") {
                receipts.contains(text.trim())
            } else if name.starts_with("rollouts") {
                word("rollout_id").is_some_and(|id| ids.contains(id.as_str()))
            } else {
                // Of ledgers, siblings and media flags nothing is kept as it is.
                true
            };
            prop_assert!(
                kept || repeated || left_out,
                "{source}:{number} is nowhere: {}\n{:?}\n{:?}",
                text.chars().take(2000).collect::<String>(),
                read.quarantine,
                read.findings
            );
        }
    }
    Ok(())
}

/// Scopes that a line speaks of.
fn scopes_in(line: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(line);
    ["0-0", "0-1", "1-0", "1-1"]
        .iter()
        .filter(|key| text.contains(*key))
        .map(|k| (*k).to_owned())
        .collect()
}

/// A rollout without what other lines and other rollouts decide.
fn alone(rollout: &Rollout) -> Rollout {
    let mut rollout = rollout.clone();
    rollout.group_size = 0;
    for call in &mut rollout.calls {
        call.origin = Origin::default();
    }
    rollout
}

fn read(files: &Files, home: &Path) -> forestctl::error::Result<Ingested> {
    let folder = home.join("captures");
    write(files, &folder);
    ingest::read(&[folder])
}

/// Changes lines of a form, and compares what is read with what is read of the form itself.
fn check(form: usize, changes: &[(Index, Index, Change)]) -> Result<(), TestCaseError> {
    static CLEAN: LazyLock<[(Files, Ingested); 4]> = LazyLock::new(|| {
        forms().map(|files| {
            let home = tempfile::tempdir().unwrap();
            let read = read(&files, home.path()).unwrap();
            (files, read)
        })
    });
    let (clean, expected) = &CLEAN[form];
    let mut files = clean.clone();
    let mut touched: BTreeSet<String> = BTreeSet::new();
    for (file, line, change) in changes {
        let names: Vec<String> = files.keys().cloned().collect();
        let name = &names[file.index(names.len())];
        let lines = files.get_mut(name).unwrap();
        if lines.is_empty() {
            continue;
        }
        let at = line.index(lines.len());
        let before = lines.clone();
        change.apply(lines, at);
        // The scope of the file, of the lines as they were, and of what became of them.
        touched.extend(scopes_in(name.as_bytes()));
        let differing = before
            .iter()
            .chain(lines.iter())
            .filter(|l| !(before.contains(l) && lines.contains(l)));
        touched.extend(differing.flat_map(|line| scopes_in(line)));
        touched.extend(scopes_in(&before[at]));
    }

    let home = tempfile::tempdir().unwrap();
    let read = match read(&files, home.path()) {
        Ok(read) => read,
        // Nothing may be left of a small capture.
        Err(error) => {
            prop_assert_eq!(error.kind(), forestctl::error::Kind::Nothing, "{}", error);
            return Ok(());
        }
    };
    account(&files, &read)?;
    for rollout in rollouts(&expected.groups) {
        let key = rollout.capture_key.as_str();
        if !touched.contains(key) {
            let found = rollouts(&read.groups).find(|r| r.capture_key.as_str() == key);
            prop_assert_eq!(found.map(alone), Some(alone(rollout)), "{} is not touched", key);
        }
    }
    // What was read can be written, proved, and read again.
    let target = home.path().join("run.forest");
    archive::write(&target, false, &read).unwrap();
    let archive = Archive::open(&target).unwrap();
    prop_assert_eq!(archive.check_files(), []);
    validate::archive(&archive, &Settings::default(), |piece| {
        assert!(piece.unread.is_none(), "{:?}", piece.unread);
        Ok(())
    })
    .unwrap();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn changed_lines_end_in_the_archive_or_in_quarantine(
        form in 0..4_usize,
        changes in vec((any::<Index>(), any::<Index>(), change()), 1..4),
    ) {
        check(form, &changes)?;
    }
}
