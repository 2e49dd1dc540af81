//! Ingest that is killed: the archive is the old one or the new one, and the same command again
//! makes it the new one, byte for byte, and leaves nothing else.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::capture::Capture;
use super::sealed::Sealed;
use super::{code, forestctl};

/// Kills that hit a running process, over all scenarios.
const KILLS: usize = 200;
const SEED: u64 = 0x5eed_f8de_33fe;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0.0..1.0`.
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Groups `range`, each of four rollouts of five calls. `padding` bytes in every result make
/// parts of few groups.
pub fn capture(range: std::ops::Range<usize>, padding: usize) -> Capture {
    let mut capture = Capture::empty(2);
    for group in range {
        for slot in 0..4 {
            let key = format!("{group}-{slot}");
            capture.rollout(&format!("p{group:03}"), &key, slot, 4);
            let mut parent: Option<String> = None;
            for turn in 0..5_u64 {
                let id = format!("{key}-{turn}");
                let carry: Vec<u64> = (0..40).map(|i| i * 7 + turn).collect();
                let generation: Vec<u64> = (0..20).map(|i| i * 11 + group as u64).collect();
                capture.call(&id, parent.as_deref(), &carry, &generation);
                parent = Some(id);
            }
            let result = &mut capture.rollouts.last_mut().unwrap()["result"];
            result["padding"] = "x".repeat(padding).into();
        }
    }
    capture
}

/// What a run starts from, does, and ends with.
struct Scenario {
    name: &'static str,
    /// The archive before; `None`: there is none.
    before: Option<Sealed>,
    source: PathBuf,
    flags: &'static [&'static str],
    /// The archive that a run makes when it is left alone.
    after: Sealed,
    /// How long it takes.
    takes: Duration,
    kills: usize,
}

/// What was found after the kills of a scenario.
#[derive(Debug, Default)]
struct Tally {
    killed: usize,
    /// Runs that ended before their kill.
    missed: usize,
    old: usize,
    new: usize,
    drafts: usize,
    locks: usize,
    /// Last runs that went on from parts that were written before.
    resumed: usize,
}

const TARGET: &str = "run.forest";

fn start(home: &Path, scenario: &Scenario) -> Child {
    Command::new(env!("CARGO_BIN_EXE_forestctl"))
        .arg("ingest")
        .arg(&scenario.source)
        .args(["-o", TARGET])
        .args(scenario.flags)
        .current_dir(home)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

pub fn entries(home: &Path) -> Vec<String> {
    let names = fs::read_dir(home).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

impl Scenario {
    fn new(
        name: &'static str,
        before: Option<&Sealed>,
        source: &Path,
        flags: &'static [&'static str],
        kills: usize,
    ) -> Self {
        let home = tempfile::tempdir().unwrap();
        let before = before.cloned();
        let mut scenario = Self {
            name,
            before,
            source: source.to_owned(),
            flags,
            after: Sealed(BTreeMap::new()),
            takes: Duration::ZERO,
            kills,
        };
        scenario.prepare(home.path());
        let began = Instant::now();
        let ended = start(home.path(), &scenario).wait().unwrap();
        scenario.takes = began.elapsed();
        assert!(ended.success(), "{name}");
        let proof = forestctl(home.path(), &["validate", TARGET]);
        assert_eq!(code(&proof), 0, "{name}: {proof:?}");
        scenario.after = Sealed::read(&home.path().join(TARGET));
        scenario
    }

    fn prepare(&self, home: &Path) {
        if let Some(before) = &self.before {
            before.write(&home.join(TARGET));
        }
    }

    /// Kills runs until enough were hit. Every third one is killed again before it may finish.
    fn run(&self, seed: u64) -> Tally {
        let mut random = Random(seed);
        let mut tally = Tally::default();
        while tally.killed < self.kills {
            assert!(tally.missed < 20 * self.kills, "{}: kills come too late", self.name);
            let home = tempfile::tempdir().unwrap();
            let home = home.path();
            self.prepare(home);
            while {
                self.kill(home, &mut random, &mut tally);
                random.next().is_multiple_of(3)
            } {}
            // The same command again.
            let ended = start(home, self).wait_with_output().unwrap();
            assert!(ended.status.success(), "{}: {ended:?}", self.name);
            let said = String::from_utf8_lossy(&ended.stderr);
            tally.resumed += usize::from(said.contains("going on after"));
            let found = Sealed::read(&home.join(TARGET));
            assert!(found.0 == self.after.0, "{}: the result is another one", self.name);
            assert_eq!(entries(home), [TARGET], "{}: something was left", self.name);
        }
        tally
    }

    /// Whether a run puts another archive in place.
    fn publishes(&self) -> bool {
        self.before.as_ref().is_none_or(|before| before.0 != self.after.0)
    }

    fn kill(&self, home: &Path, random: &mut Random, tally: &mut Tally) {
        let mut child = start(home, self);
        match random.next().is_multiple_of(3) && self.publishes() {
            false => std::thread::sleep(self.takes.mul_f64(1.2 * random.fraction())),
            // In the moments around the archive's being put in place, of which there are few.
            true => {
                let manifest = home.join(format!(".{TARGET}.partial/archive.json"));
                while !manifest.exists() && child.try_wait().unwrap().is_none() {
                    std::thread::sleep(Duration::from_micros(100));
                }
                std::thread::sleep(Duration::from_micros(random.next() % 3000));
            }
        }
        child.kill().unwrap();
        match child.wait().unwrap().code() {
            None => tally.killed += 1,
            Some(0) => tally.missed += 1,
            Some(code) => panic!("{}: exit code {code}", self.name),
        }
        let there = home.join(TARGET).symlink_metadata().is_ok();
        let found = there.then(|| Sealed::read(&home.join(TARGET)).0);
        if found.as_ref() == self.before.as_ref().map(|before| &before.0) {
            tally.old += 1;
        } else if found.as_ref() == Some(&self.after.0) {
            tally.new += 1;
        } else {
            let names = found.map(|files| files.into_keys().collect::<Vec<_>>());
            panic!("{}: neither old nor new: {names:?}", self.name);
        }
        tally.drafts += usize::from(home.join(format!(".{TARGET}.partial")).exists());
        tally.locks += usize::from(home.join(format!(".{TARGET}.lock")).exists());
    }
}

#[test]
fn a_killed_ingest_leaves_the_old_archive_or_the_new_one_and_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let source = |name: &str, capture: Capture| {
        let path = home.path().join(name);
        capture.write(&path);
        path
    };
    let some = source("some", capture(0..12, 0));
    let more = source("more", capture(6..36, 0));
    // Each group is a part of its own.
    let parts = source("parts", capture(0..3, 17 << 19));
    let old = Scenario::new("once", None, &some, &[], 0).after;
    let scenarios = [
        Scenario::new("fresh", None, &more, &[], 59),
        Scenario::new("appending", Some(&old), &more, &[], 60),
        Scenario::new("replacing", Some(&old), &more, &["--force"], 55),
        Scenario::new("unchanged", Some(&old), &some, &[], 18),
        Scenario::new("many parts", None, &parts, &["--jobs", "1"], 8),
    ];
    assert_eq!(scenarios.iter().map(|scenario| scenario.kills).sum::<usize>(), KILLS);
    println!("seed {SEED:#x}");
    let tallies: Vec<_> = scenarios
        .par_iter()
        .enumerate()
        .map(|(at, scenario)| (scenario, scenario.run(SEED + at as u64)))
        .collect();
    for (scenario, tally) in &tallies {
        println!("{}, {:?} when left alone: {tally:?}", scenario.name, scenario.takes);
    }
    // Kills came before the new archive was put in place, and after.
    let sum = |of: fn(&Tally) -> usize| tallies.iter().map(|(_, tally)| of(tally)).sum::<usize>();
    assert!(sum(|tally| tally.killed) >= KILLS);
    assert!(sum(|tally| tally.old) > 0 && sum(|tally| tally.new) > 0);
    assert!(sum(|tally| tally.drafts) > 0 && sum(|tally| tally.locks) > 0);
    // Whether a kill comes between two parts is for the machine's load to decide.
    println!("{} runs went on after parts of a killed one", sum(|tally| tally.resumed));
}
