//! What `validate` tells, as a process: reports, flags, streams, exit codes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use forestctl::archive::{self, Ingested};
use forestctl::validate;
use serde_json::Value;
use tempfile::TempDir;

use crate::closed_loop::{POLICIES, expected, ingested};

/// A workplace with the archive `run.forest`.
struct Place(TempDir);

impl Place {
    fn new(change: impl FnOnce(&mut Ingested)) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut read = ingested("staged-v2");
        change(&mut read);
        archive::write(&home.path().join("run.forest"), false, &read).unwrap();
        Self(home)
    }

    /// One flipped token, and everything else that the capture has.
    fn tampered() -> Self {
        Self::new(|read| read.groups[0].rollouts[1].calls[0].token_ids[3] ^= 1)
    }

    /// Two parts, the first of them far heavier; both with a flipped token.
    fn of_two_parts() -> Self {
        let place = Self::new(|read| {
            let weight = " ".repeat(65 << 20);
            read.groups[0].rollouts[0].result = Some(format!("{{\"padding\":\"{weight}\"}}"));
            for group in &mut read.groups {
                group.rollouts[1].calls[0].token_ids[3] ^= 1;
            }
        });
        let archive = archive::Archive::open(&place.path("run.forest")).unwrap();
        assert_eq!(archive.part_count(), 2);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// `validate run.forest` with arguments that are parted by spaces.
    fn validate(&self, arguments: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_forestctl"))
            .args(["validate", "run.forest"])
            .args(arguments.split_whitespace())
            .current_dir(self.0.path())
            .output()
            .unwrap()
    }

    fn json(&self, arguments: &str) -> Value {
        let output = self.validate(&format!("--format json {arguments}"));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn matches(schema: &str, document: &Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(schema);
    let schema = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let wrong: Vec<_> = validator.iter_errors(document).map(|e| e.to_string()).collect();
    assert!(wrong.is_empty(), "{wrong:?} in {document:#}");
}

/// How often each code comes with each severity.
type Told = BTreeMap<(String, String), u64>;

fn told<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Told {
    let mut told = Told::new();
    for (severity, code) in pairs {
        *told.entry((severity.to_owned(), code.to_owned())).or_default() += 1;
    }
    told
}

fn of_json(findings: &Value) -> Told {
    let findings = findings.as_array().unwrap();
    told(findings.iter().map(|f| (f["severity"].as_str().unwrap(), f["code"].as_str().unwrap())))
}

fn of_sarif(sarif: &str) -> Told {
    let log: Value = serde_json::from_str(sarif).unwrap();
    matches("testdata/schemas/sarif-schema-2.1.0.json", &log);
    let results = log["runs"][0]["results"].as_array().unwrap();
    told(results.iter().map(|r| (r["level"].as_str().unwrap(), r["ruleId"].as_str().unwrap())))
}

fn of_github(commands: &str) -> Told {
    told(commands.lines().map(|line| {
        let (head, _) = line.strip_prefix("::").unwrap().split_once("::").unwrap();
        let (severity, properties) = head.split_once(' ').unwrap();
        (severity, properties.split(',').find_map(|p| p.strip_prefix("title=")).unwrap())
    }))
}

/// Every finding of a case is in its text, as `severity[code] message`.
fn of_junit(junit: &str) -> Told {
    let read = junit_parser::from_reader(junit.as_bytes()).unwrap();
    assert_eq!(read.tests, 24);
    let mut texts = Vec::new();
    for case in read.suites.iter().flat_map(|suite| &suite.cases) {
        if case.status.is_failure() {
            texts.push(case.status.failure_as_ref().text.clone());
        } else if case.status.is_skipped() {
            texts.push(case.status.skipped_as_ref().text.clone());
        }
        texts.extend(case.system_out.clone());
    }
    of_human(&texts.join("\n"))
}

fn of_human(text: &str) -> Told {
    told(text.lines().filter_map(|line| {
        let (label, _) = line.split_once("] ")?;
        let (severity, code) = label.split_once('[')?;
        ["error", "warning"].contains(&severity).then_some((severity, code))
    }))
}

#[test]
fn every_output_tells_the_same_whatever_the_flags() {
    let place = Place::tampered();
    let all = of_json(&place.json("")["findings"]);
    assert_eq!(all[&("error".to_owned(), "corrupt_digest".to_owned())], 1);
    for flags in [
        "",
        "--policy returned_history",
        "--deny warnings",
        "--allow completion_failed,rollout_failed --deny capture_pending --warn corrupt_digest",
    ] {
        let document = place.json(&format!(
            "{flags} --report junit=j.xml --report sarif=s.sarif --report github=g.txt"
        ));
        matches("schemas/validate.json", &document);
        let expected = of_json(&document["findings"]);
        assert_eq!(expected == all, flags.is_empty(), "{flags}");
        assert_eq!(of_junit(&place.read("j.xml")), expected, "{flags}");
        assert_eq!(of_sarif(&place.read("s.sarif")), expected, "{flags}");
        assert_eq!(of_github(&place.read("g.txt")), expected, "{flags}");
        let found = &document["found"];
        for (severity, count) in [("error", "errors"), ("warning", "warnings")] {
            let sum: u64 =
                expected.iter().filter(|((s, _), _)| s == severity).map(|(_, n)| n).sum();
            assert_eq!(found[count], sum, "{flags}");
        }

        let human = place.validate(flags);
        assert_eq!(of_human(&text(&human.stdout)), expected, "{flags}");
        let csv = text(&place.validate(&format!("--format csv {flags}")).stdout);
        let mut csv = csv::Reader::from_reader(csv.as_bytes());
        let rows: Vec<csv::StringRecord> = csv.records().map(Result::unwrap).collect();
        assert_eq!(told(rows.iter().map(|row| (&row[0], &row[1]))), expected, "{flags}");
        let failing = found["errors"].as_u64().unwrap() > 0;
        assert_eq!(code(&human), i32::from(failing), "{flags}");
    }
}

#[test]
fn report_files_are_replaced_whole_and_are_the_same_for_any_number_of_threads() {
    let place = Place::tampered();
    let reports = "--report junit=j.xml --report sarif=s.sarif --report github=g.txt";
    fs::write(place.path("j.xml"), "yesterday's").unwrap();
    fs::write(place.path("real"), "yesterday's").unwrap();
    std::os::unix::fs::symlink("real", place.path("s.sarif")).unwrap();
    let mut seen = Vec::new();
    for jobs in ["-j 1", "-j 4"] {
        assert_eq!(code(&place.validate(&format!("{jobs} {reports}"))), 1);
        seen.push(["j.xml", "s.sarif", "g.txt"].map(|name| place.read(name)));
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(place.read("real"), seen[0][1], "what a link leads to is written");
    let usual = fs::metadata(place.path("run.forest/archive.json")).unwrap().mode();
    assert_eq!(fs::metadata(place.path("j.xml")).unwrap().mode() & 0o777, usual & 0o777);
    let left: Vec<_> = fs::read_dir(place.0.path()).unwrap().collect();
    assert_eq!(left.len(), 5, "no temporary stays: {left:?}");
}

#[test]
fn a_pipe_is_written_to_and_not_replaced() {
    let place = Place::tampered();
    let pipe = place.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = {
        let pipe = pipe.clone();
        std::thread::spawn(move || fs::read_to_string(pipe).unwrap())
    };
    assert_eq!(code(&place.validate("--report sarif=pipe --report junit=j.xml")), 1);
    assert_eq!(of_sarif(&reader.join().unwrap()), of_junit(&place.read("j.xml")));
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
}

#[test]
fn stdout_belongs_to_one_of_console_and_reports() {
    let place = Place::tampered();
    let expected = of_json(&place.json("")["findings"]);
    let github = place.validate("--report github --report junit=j.xml");
    assert_eq!(of_github(&text(&github.stdout)), expected);
    assert_eq!(of_human(&text(&github.stderr)), expected);
    let junit = place.validate("--report junit=-");
    assert_eq!(of_junit(&text(&junit.stdout)), expected);
    let beside = place.validate("--format json --report github=/dev/stderr");
    assert_eq!(
        of_json(&serde_json::from_slice::<Value>(&beside.stdout).unwrap()["findings"]),
        expected
    );
    assert_eq!(of_github(&text(&beside.stderr)), expected);
}

#[test]
fn reports_that_cannot_be_are_refused_before_the_work() {
    let place = Place::tampered();
    fs::create_dir(place.path("folder")).unwrap();
    for (arguments, words) in [
        ("--format jsonl --report github", "--format jsonl needs stdout"),
        ("--format csv --report sarif=-", "--format csv needs stdout"),
        ("--report github --report junit=-", "cannot share stdout"),
        ("--report junit=a --report sarif=a", "cannot share a"),
        ("--report junit", "junit needs a file"),
        ("--report html=a", "expected junit=FILE"),
        ("--report junit=folder", "folder is a folder"),
        ("--report sarif=no/where", "a folder that is not there"),
        ("--deny corrupt_digset", "did you mean corrupt_digest?"),
        ("--allow warnings,,missing_parent", "no such code"),
        ("--assume-complete", "--policy"),
        ("--fail-on fatal", "never"),
    ] {
        let output = place.validate(arguments);
        let complaint = text(&output.stderr);
        assert_eq!(code(&output), 2, "{arguments}: {complaint}");
        assert!(complaint.contains(words), "{arguments}: {complaint}");
        let left = fs::read_dir(place.0.path()).unwrap().count();
        assert_eq!(left, 2, "{arguments}");
    }
}

#[test]
fn exit_codes_follow_threshold_and_flags() {
    let (tampered, whole) = (Place::tampered(), Place::new(|_| {}));
    for (place, arguments, wanted) in [
        (&whole, "", 0),
        (&whole, "--fail-on warning", 1),
        (&whole, "--fail-on warning --allow warnings", 0),
        (&whole, "--deny capture_pending", 1),
        (&whole, "--deny capture_pending --warn capture_pending", 0),
        (&whole, "--warn capture_pending --deny warnings", 1),
        (&whole, "--deny warnings --fail-on never", 0),
        (&tampered, "", 1),
        (&tampered, "--fail-on never", 0),
        (&tampered, "--warn corrupt_digest", 0),
        (&tampered, "--warn corrupt_digest --fail-on warning", 1),
        (&tampered, "--allow corrupt_digest", 0),
        (&tampered, "--allow corrupt_digest --deny corrupt_digest", 1),
        (&tampered, "--allow corrupt_digest --deny warnings", 1),
    ] {
        assert_eq!(code(&place.validate(arguments)), wanted, "{arguments}");
    }
}

#[test]
fn waived_evidence_is_said_aloud() {
    let place = Place::tampered();
    let count = |document: &Value, code: &str| {
        let findings = document["findings"].as_array().unwrap();
        findings.iter().filter(|finding| finding["code"] == code).count() as u64
    };
    let pending = count(&place.json(""), "capture_pending");
    let flags = "--allow corrupt_digest,capture_pending";
    let document = place.json(flags);
    let allowed = serde_json::json!({"corrupt_digest": 1, "capture_pending": pending});
    assert_eq!(document["found"]["allowed"], allowed);
    assert_eq!(document["found"]["allowed_errors"], 1);
    assert_eq!(count(&document, "corrupt_digest") + count(&document, "capture_pending"), 0);
    let human = text(&place.validate(&format!("{flags} --quiet")).stdout);
    assert!(human.contains("waived: 24 rollouts") && !human.contains("intact"), "{human}");
    assert!(human.contains("--allow: corrupt_digest 1, capture_pending"), "{human}");
    assert!(human.contains("1 errors are allowed, 0 lowered"), "{human}");
    let lowered = text(&place.validate("--warn corrupt_digest").stdout);
    assert!(lowered.contains("waived: ") && lowered.contains("1 lowered"), "{lowered}");
    assert!(text(&place.validate("--format csv --allow corrupt_digest").stderr).contains("wrong"));
    let intact = text(&Place::new(|_| {}).validate("--allow capture_pending").stdout);
    assert!(intact.contains("intact: ") && intact.contains("left out by --allow"), "{intact}");
}

#[test]
fn jsonl_streams_what_json_holds_in_order_of_parts() {
    let place = Place::of_two_parts();
    let document = place.json("");
    let streams = ["-j 1", "-j 2", "-j 4"]
        .map(|jobs| text(&place.validate(&format!("{jobs} --format jsonl")).stdout));
    assert!(streams.iter().all(|stream| *stream == streams[0]));
    let mut lines: Vec<Value> =
        streams[0].lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &lines {
        matches("schemas/validate-jsonl.json", line);
    }
    let mut last = lines.pop().unwrap();
    let mut kinds = lines.iter_mut().map(|line| line.as_object_mut().unwrap().remove("kind"));
    assert!(kinds.all(|kind| kind == Some("finding".into())));
    assert_eq!(Value::from(lines), document["findings"]);
    assert_eq!(last.as_object_mut().unwrap().remove("kind"), Some("summary".into()));
    let mut summary = document;
    summary.as_object_mut().unwrap().remove("findings");
    assert_eq!(last, summary);
    let digests = of_json(&place.json("")["findings"]);
    assert_eq!(digests[&("error".to_owned(), "corrupt_digest".to_owned())], 6);
}

#[test]
fn pieces_come_in_order_for_any_number_of_threads() {
    let place = Place::of_two_parts();
    let opened = archive::Archive::open(&place.path("run.forest")).unwrap();
    let walk = |threads: usize| {
        let mut pieces = Vec::new();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let walked = pool.install(|| {
            validate::archive(&opened, &validate::Settings::default(), |piece| {
                pieces.push((piece.rollouts, piece.bytes, piece.findings));
                Ok(())
            })
        });
        walked.unwrap();
        pieces
    };
    let pieces = walk(1);
    // The files, two parts, the quarantine.
    let rollouts: Vec<usize> = pieces.iter().map(|(rollouts, _, _)| rollouts.len()).collect();
    assert_eq!(rollouts, [0, 4, 20, 0]);
    let stored: u64 = (0..2).map(|part| opened.part_bytes(part)).sum();
    assert_eq!(pieces.iter().map(|(_, bytes, _)| bytes).sum::<u64>(), stored);
    for threads in [2, 5] {
        assert!(walk(threads) == pieces, "{threads} threads");
    }
}

#[test]
fn a_part_that_cannot_be_read_is_reported_and_the_others_are_checked() {
    let place = Place::of_two_parts();
    let file = place.path("run.forest/calls/part-00000.parquet");
    let mut bytes = fs::read(&file).unwrap();
    bytes[100] ^= 1;
    fs::write(&file, bytes).unwrap();
    let reports = "--report junit=j.xml --report sarif=s.sarif";
    for flags in ["", "--allow corrupt_file", "--fail-on never"] {
        let output = place.validate(&format!("--format json {flags} {reports}"));
        assert_eq!(code(&output), 2, "{flags}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["checked"]["rollouts"], 20);
        assert_eq!(of_json(&document["findings"]), of_sarif(&place.read("s.sarif")));
        assert!(text(&output.stderr).contains("calls/part-00000.parquet"));
        let files = document["findings"].as_array().unwrap().iter();
        let files = files.filter(|finding| finding["code"] == "corrupt_file").count();
        assert_eq!(files, usize::from(flags != "--allow corrupt_file"), "told once");
    }
    let junit = place.read("j.xml");
    assert!(junit.contains("name=\"run.forest/calls/part-00000.parquet\""), "{junit}");
}

/// The oracle knows every masked rollout and why (rules 85 to 88, 91).
#[test]
fn a_policy_reports_every_masked_rollout_with_its_reason() {
    let place = Place::new(|_| {});
    for policy in POLICIES {
        let word = policy.policy().name();
        let document = place.json(&format!("--policy {word}"));
        let findings = document["findings"].as_array().unwrap();
        let oracle = expected(policy);
        let mut masked = 0;
        for rollout in oracle["rollouts"].as_array().unwrap() {
            let codes: Vec<&str> = findings
                .iter()
                .filter(|finding| finding["rollout_id"] == rollout["rollout_id"])
                .map(|finding| finding["code"].as_str().unwrap())
                .collect();
            let reasons = rollout["reasons"].as_array().unwrap();
            masked += u64::from(rollout["verdict"] == "masked");
            for reason in reasons {
                let reason = reason["code"].as_str().unwrap();
                assert!(codes.contains(&reason), "{word}: {rollout}: {codes:?}");
            }
            // Of those that mask by selection alone, a valid rollout has none.
            for code in ["failed_selected_call", "selection_not_closed", "capture_pending"] {
                let expected = reasons.iter().any(|reason| reason["code"] == code);
                assert_eq!(codes.contains(&code), expected, "{word}: {rollout}: {codes:?}");
            }
        }
        let selected = &document["selected"];
        assert_eq!(selected["policy"], word);
        assert_eq!(selected["masked_rollouts"], masked);
        assert_eq!(selected["valid_rollouts"], 24 - masked);
        assert_eq!(selected["dropped_groups"], oracle["dropped_prompt_groups"]);
        // Nothing is told twice.
        let mut keys: Vec<String> = findings
            .iter()
            .map(|f| {
                format!("{} {} {} {}", f["code"], f["rollout_id"], f["call_id"], f["location"])
            })
            .collect();
        keys.sort();
        let all = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), all, "{word}");
    }
    assert_eq!(place.json("")["selected"], Value::Null);
}

/// One wrong record of a selected chain masks its whole rollout, and no sibling (rule 91).
#[test]
fn one_bad_segment_masks_its_rollout_alone() {
    let (whole, bad) = (Place::new(|_| {}), Place::tampered());
    let policy = "--policy returned_history";
    let valid = |place: &Place| place.json(policy)["selected"]["valid_rollouts"].clone();
    assert_eq!((valid(&whole), valid(&bad)), (18.into(), 17.into()));
    let document = bad.json(policy);
    let digests = document["findings"].as_array().unwrap().iter();
    let digests: Vec<_> = digests.filter(|finding| finding["code"] == "corrupt_digest").collect();
    assert_eq!(digests.len(), 1, "validation has said it already");
    assert_eq!(digests[0]["rollout_id"], "p01_g1");
}

#[test]
fn unknown_completeness_masks_unless_it_is_assumed() {
    let place = Place::new(|read| {
        for rollout in read.groups.iter_mut().flat_map(|group| &mut group.rollouts) {
            rollout.completeness = archive::Completeness::Unknown;
        }
    });
    let policy = "--policy returned_history";
    let document = place.json(policy);
    assert_eq!(document["selected"]["valid_rollouts"], 0);
    assert!(of_json(&document["findings"]).keys().any(|(_, code)| code == "completeness_unknown"));
    let assumed = place.json(&format!("{policy} --assume-complete"));
    assert_eq!(assumed["selected"]["valid_rollouts"], 18);
}
