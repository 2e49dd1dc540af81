//! The numbered rules of forest training: `rules.txt` says where each is enforced and which tests
//! fail without it. Checked here against sources and tests, and rendered as `docs/rules.md`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Every rule that an offline tool can have a part in.
const NUMBERS: [std::ops::RangeInclusive<u32>; 6] =
    [1..=14, 16..=20, 59..=128, 130..=136, 141..=141, 143..=144];

/// Stages, as the rules name them.
const STAGES: [(&str, &str); 7] = [
    ("CFG", "Configuration"),
    ("ING", "Ingest"),
    ("SEL", "Selection"),
    ("VAL", "Validation"),
    ("ROW", "Rows"),
    ("STEP", "Batch and step"),
    ("LIFE", "Cleanup"),
];

const HEADER: &str = "\
# Rules

The rules of forest training by their numbers, in the words of this repository: what each asks, the
file that enforces it, and the tests that fail when it does not. Rules on live runs (the gateway,
admission, checkpoints of a run: 15, 21 to 58, 129, 137 to 140, 142) are not among them. Where a rule
or a part of it is not enforced here, the row says why.

`path::name` is a function, type or test of that file. Tests below `src` run with
`cargo test --lib`, those below `tests/it` with `cargo test --test it`, and those below `tests/it/step`
need `--features torch`.

`tests/it/rules.txt` is the source of this file. `UPDATE_RULES=1 cargo test --test it rules` writes it
again, and `cargo test --test it rules` checks both against the code.
";

#[derive(Debug, Default)]
struct Rule {
    number: u32,
    stage: String,
    says: String,
    by: Vec<String>,
    tests: Vec<String>,
    note: Option<String>,
}

fn rules() -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    let lines = include_str!("rules.txt").lines();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (word, rest) = line.trim_start().split_once(' ').unwrap();
        let rest = rest.trim();
        if let Ok(number) = word.parse() {
            let (stage, says) = rest.split_once(' ').unwrap();
            let (stage, says) = (stage.to_owned(), says.to_owned());
            rules.push(Rule { number, stage, says, ..Rule::default() });
            continue;
        }
        let rule = rules.last_mut().unwrap();
        match word {
            "by" => rule.by.push(rest.to_owned()),
            "test" => rule.tests.push(rest.to_owned()),
            "note" => assert_eq!(rule.note.replace(rest.to_owned()), None, "{line}"),
            _ => panic!("rules.txt: {line}"),
        }
    }
    rules
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Lines of a file that define `name`, by number.
fn definitions(text: &str, name: &str) -> Vec<usize> {
    let defines = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
        let kind = words.next().unwrap_or_default();
        ["fn", "struct", "enum", "trait", "const", "def"].contains(&kind)
            && words.next().is_some_and(|word| word.split(['(', '<', ':']).next() == Some(name))
    };
    text.lines().enumerate().filter(|(_, line)| defines(line)).map(|(at, _)| at).collect()
}

/// Whether the function at line `at` is a test: `#[test]` is among the lines above that belong to it.
fn is_test(text: &str, at: usize) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let above = lines[..at].iter().rev();
    above
        .take_while(|line| line.starts_with('#') || line.starts_with("//"))
        .any(|l| *l == "#[test]")
}

/// The name under which the test binary knows a test of `tests/it`.
fn listed(path: &str, name: &str) -> Option<String> {
    let module = path.strip_prefix("tests/it/")?.strip_suffix(".rs")?;
    if module.starts_with("step/") && cfg!(not(feature = "torch")) {
        return None;
    }
    let module = module.strip_suffix("/mod").unwrap_or(module).replace('/', "::");
    Some(format!("{module}::{name}: test"))
}

#[test]
fn every_rule_is_there_once_and_in_order() {
    let numbers: Vec<u32> = rules().iter().map(|rule| rule.number).collect();
    assert_eq!(numbers, NUMBERS.into_iter().flatten().collect::<Vec<_>>());
    for Rule { number, stage, says, by, tests, note } in rules() {
        assert!(STAGES.iter().any(|(word, _)| *word == stage), "{number}: {stage}");
        assert!(says.ends_with('.') && !says.contains('|'), "{number}: {says}");
        assert_eq!(by.is_empty(), tests.is_empty(), "{number}: enforced and tested, or neither");
        let absent = note.as_deref().is_some_and(|note| note.starts_with("not here: "));
        assert!(absent || !by.is_empty(), "{number}: neither enforced nor said why not");
        let unique: BTreeSet<&String> = by.iter().chain(&tests).collect();
        assert_eq!(unique.len(), by.len() + tests.len(), "{number}: named twice");
    }
}

#[test]
fn what_enforces_a_rule_is_where_it_is_said_to_be() {
    for Rule { number, by, .. } in rules() {
        for place in by {
            let (path, name) = place.split_once("::").unwrap_or((&place, ""));
            assert!(path.starts_with("src/"), "{number}: {place}");
            let text = read(path);
            assert!(name.is_empty() || !definitions(&text, name).is_empty(), "{number}: {place}");
        }
    }
}

#[test]
fn tests_of_rules_are_tests() {
    let list = Command::new(std::env::current_exe().unwrap()).arg("--list").output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let known: BTreeSet<&str> = list.lines().collect();
    for Rule { number, tests, .. } in rules() {
        for test in tests {
            let (path, name) = test.split_once("::").unwrap();
            let text = read(path);
            let found = definitions(&text, name).into_iter().any(|at| is_test(&text, at));
            assert!(found, "{number}: {path} has no test {name}");
            if let Some(line) = listed(path, name) {
                assert!(known.contains(&*line), "{number}: {test} is not run");
            }
        }
    }
}

/// A code that masks names a rule that is enforced here, and of the stage that gives the code.
#[test]
fn codes_name_rules_that_are_enforced() {
    let rules = rules();
    for code in forestctl::finding::Code::ALL {
        let Some(number) = code.rule() else { continue };
        let rule = rules.iter().find(|rule| rule.number == u32::from(number));
        let rule = rule.unwrap_or_else(|| panic!("{code}: rule {number} is not in rules.txt"));
        assert!(!rule.by.is_empty(), "{code}: rule {number} is not enforced");
        assert!(["SEL", "VAL", "ROW", "STEP"].contains(&&*rule.stage), "{code}: {}", rule.stage);
    }
}

#[test]
fn the_document_is_fresh() {
    let (path, text) = ("docs/rules.md", render(&rules()));
    if std::env::var_os("UPDATE_RULES").is_some() {
        fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(path), &text).unwrap();
    }
    assert!(read(path) == text, "stale {path}: run `UPDATE_RULES=1 cargo test --test it rules`");
}

fn render(rules: &[Rule]) -> String {
    let mut text = HEADER.to_owned();
    for stretch in rules.chunk_by(|a, b| a.stage == b.stage && a.number + 1 == b.number) {
        let (first, last) = (&stretch[0], &stretch[stretch.len() - 1]);
        let title = STAGES.iter().find(|(word, _)| *word == first.stage).unwrap().1;
        let numbers = match stretch {
            [one] => one.number.to_string(),
            _ => format!("{} to {}", first.number, last.number),
        };
        text += &format!("\n## {title}, {numbers} ({})\n\n", first.stage);
        text += "| rule | asks | enforced in | fails without it |\n|---|---|---|---|\n";
        for Rule { number, says, by, tests, note, .. } in stretch {
            let code = |names: &[String]| {
                names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join("<br>")
            };
            let mut by = code(by);
            if let Some(note) = note {
                by += if by.is_empty() { "" } else { "<br>" };
                by += note;
            }
            let tests = if tests.is_empty() { "-".to_owned() } else { code(tests) };
            text += &format!("| {number} | {says} | {by} | {tests} |\n");
        }
    }
    text
}

#[test]
fn what_is_not_there_is_noticed() {
    let text = "\
    #[test]
    /// Words.
    fn a_test() {}

    pub(super) fn helper<T>(t: T) {}
    // fn commented() {}
";
    assert_eq!(definitions(text, "a_test"), [2]);
    assert_eq!(definitions(text, "helper"), [4]);
    for name in ["a_tes", "test", "commented", "T"] {
        assert_eq!(definitions(text, name), Vec::<usize>::new(), "{name}");
    }
    assert!(is_test(text, 2) && !is_test(text, 4));
    let listed = |path| listed(path, "x").unwrap();
    assert_eq!(listed("tests/it/attack/words/mod.rs"), "attack::words::x: test");
    assert_eq!(listed("tests/it/rows.rs"), "rows::x: test");
}
