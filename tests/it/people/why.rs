//! `why`: evidence, rules, tokens, and where prompts leave what went before.

use forestctl::archive::{Call, Group};
use forestctl::config::GrpoSettings;
use forestctl::explain::{
    Chains, Decode, Divergence, DivergenceKind, View, divergence, token, token_of_row,
};
use forestctl::id::CallId;
use insta::assert_snapshot;
use serde_json::json;
use tokenizers::Tokenizer;

use super::{Place, stored};
use crate::builders;
use crate::closed_loop::{POLICIES, Tensors, groups, selected};

const USER: &str = "<|im_start|>user\nlist files<|im_end|>\n<|im_start|>assistant\n";
const ANSWER: &str = "<think>maybe ls</think>\n\nI run <tool_call>{\"name\":\"ls\",\"arguments\":\
                      {\"a\":1,\"b\":[2,3]}}</tool_call><|im_end|>";
const NEXT: &str = "\n<|im_start|>user\nuse it<|im_end|>\n<|im_start|>assistant\n";
const DONE: &str = "done<|im_end|>";

const TOKENIZER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/tokenizer/tokenizer.json");

struct Text(Tokenizer);

impl Text {
    fn read() -> Self {
        Self(Tokenizer::from_file(TOKENIZER).unwrap())
    }

    fn ids(&self, text: &str) -> Vec<u32> {
        self.0.encode_fast(text, false).unwrap().get_ids().to_vec()
    }

    /// The same text without merges.
    fn letters(&self, text: &str) -> Vec<u32> {
        text.chars().flat_map(|letter| self.ids(letter.encode_utf8(&mut [0; 4]))).collect()
    }

    fn call(&self, id: &str, parent: Option<&Call>, carry: &str, generation: &str) -> Call {
        call(id, parent, &self.ids(carry), &self.ids(generation))
    }
}

impl Decode for Text {
    fn decode(&self, ids: &[u32]) -> Option<String> {
        self.0.decode(ids, false).ok()
    }
}

fn call(id: &str, parent: Option<&Call>, carry: &[u32], generation: &[u32]) -> Call {
    let generation: Vec<(u32, f32)> = generation.iter().map(|&id| (id, -0.5)).collect();
    builders::call(id, parent, carry, &generation)
}

/// How the last of `calls` leaves the others, and that its ids say so.
fn last(calls: &[Call], decoder: Option<&dyn Decode>) -> Option<Divergence> {
    let chains = Chains::new(calls);
    let number = calls.len() - 1;
    let found = divergence(&chains, number, decoder)?;
    let (own, expected) = (chains.tokens(number)?, chains.number(&found.expected_parent)?);
    let theirs = chains.tokens(expected)?;
    let at = found.position as usize;
    assert_eq!(own[..at], theirs[..at]);
    assert!(at == own.len() || at == theirs.len() || own[at] != theirs[at]);
    Some(found)
}

/// Inputs by the kind of divergence that they are, each with the earlier call that it leaves.
fn inputs(text: &Text) -> Vec<(&'static str, DivergenceKind, &'static str, Vec<Call>)> {
    use DivergenceKind::*;
    let first = || text.call("first", None, USER, ANSWER);
    let second = || text.call("second", Some(&first()), NEXT, DONE);
    let root = |prompt: &str| vec![first(), text.call("root", None, prompt, DONE)];
    let stripped = ANSWER.replace("<think>maybe ls</think>\n\n", "");
    let rewritten = ANSWER.replace("{\"a\":1,\"b\":[2,3]}", "{\"b\": [2, 3], \"a\": 1.0}");
    let letters = [text.ids(USER), text.letters(ANSWER), text.ids(NEXT)].concat();
    let before = first();
    let old = text.call("old", None, "<|im_start|>", "a<|im_end|>");
    let renewed = text.call("renewed", Some(&old), USER, ANSWER);
    let prompt = USER.to_owned() + &stripped + NEXT;
    vec![
        ("retry", Retry, "first", vec![first(), text.call("again", None, USER, DONE)]),
        (
            "retry of a continuation",
            Retry,
            "second",
            vec![
                first(),
                second(),
                text.call("third", Some(&second()), NEXT, DONE),
                text.call("again", Some(&before), NEXT, "no<|im_end|>"),
            ],
        ),
        (
            "branch",
            Branch,
            "second",
            vec![first(), second(), text.call("other", Some(&before), "\nstop it", DONE)],
        ),
        ("strip", TemplateStrip, "first", root(&(USER.to_owned() + &stripped + NEXT))),
        (
            "strip below an older call",
            TemplateStrip,
            "renewed",
            vec![old.clone(), renewed, text.call("now", Some(&old), &prompt, DONE)],
        ),
        (
            "whitespace",
            TemplateStrip,
            "first",
            root(&(USER.to_owned() + &ANSWER.replace("</think>\n\n", "</think>") + NEXT)),
        ),
        ("arguments", ToolArguments, "first", root(&(USER.to_owned() + &rewritten + NEXT))),
        (
            "retokenised",
            Retokenisation,
            "first",
            vec![first(), call("root", None, &letters, &text.ids(DONE))],
        ),
        ("compacted", Compaction, "first", root("<|im_start|>user\nfiles were listed<|im_end|>")),
        (
            "another agent",
            NewContext,
            "first",
            root(&("<|im_start|>system\n".to_owned() + &USER.repeat(5))),
        ),
        ("unlinked", Unlinked, "first", root(&(USER.to_owned() + ANSWER + NEXT))),
    ]
}

#[test]
fn every_kind_of_divergence_is_told_by_its_name() {
    let text = Text::read();
    for (name, kind, expected, calls) in inputs(&text) {
        let found = last(&calls, Some(&text)).unwrap();
        assert_eq!((found.kind, found.expected_parent.as_str()), (kind, expected), "{name}");
    }
    let calls = [text.call("first", None, USER, ANSWER)];
    assert_eq!(last(&calls, Some(&text)), None);
    let on = [calls[0].clone(), text.call("second", Some(&calls[0]), NEXT, DONE)];
    assert_eq!(last(&on, Some(&text)), None);
}

/// What was done to text takes text, and nothing is guessed without.
#[test]
fn without_a_tokenizer_text_is_left_undetermined_and_links_are_told() {
    use DivergenceKind::*;
    let text = Text::read();
    for (name, kind, _, calls) in inputs(&text) {
        let found = last(&calls, None).unwrap();
        let expected = match kind {
            TemplateStrip | ToolArguments | Retokenisation => Undetermined,
            other => other,
        };
        assert_eq!(found.kind, expected, "{name}");
        assert_eq!((&found.ours.after, &found.theirs.before), (&None, &None), "{name}");
    }
}

/// The position of the first divergent token, counted by hand on single letters.
#[test]
fn positions_and_windows_are_those_of_the_first_divergent_token() {
    let calls = [call("a", None, &[1, 2, 3], &[4, 5]), call("b", None, &[1, 2, 3, 4, 9, 9], &[5])];
    let found = last(&calls, None).unwrap();
    assert_eq!((found.position, found.kind), (4, DivergenceKind::Undetermined));
    assert_eq!((found.ours.start, &found.ours.ids[..]), (0, &[1, 2, 3, 4, 9, 9][..]));
    assert_eq!((found.theirs.tokens, &found.theirs.ids[..]), (5, &[1, 2, 3, 4, 5][..]));
    assert_eq!(found.in_call.unwrap().as_str(), "a");
}

/// Chains that are not whole say nothing, and nothing panics.
#[test]
fn broken_chains_have_no_divergence() {
    let mut calls = vec![call("a", None, &[1], &[2]), call("b", None, &[1], &[3])];
    calls[1].parent_call_id = Some("b".into());
    assert_eq!(last(&calls, None), None);
    calls[1].parent_call_id = Some("gone".into());
    assert_eq!(last(&calls, None), None);
    calls[1].parent_call_id = Some("a".into());
    calls[1].prev_len = 77;
    assert_eq!(last(&calls, None), None);
}

#[test]
fn loss_of_every_token_of_every_row_is_the_oracles_mask() {
    for policy in POLICIES {
        let groups = groups("staged-v2");
        let selection = selected(&groups, policy);
        let oracle = Tensors::read(policy);
        let ids = oracle.row_ids();
        let offsets: Vec<usize> =
            oracle.raw("row_offsets").into_iter().map(|b| i64::from_le_bytes(b) as usize).collect();
        let masks = oracle.raw::<1>("loss_mask");
        let mut seen = 0;
        for (group, selection) in groups.iter().zip(selection.groups) {
            let view =
                View::new(group, selection, Vec::new(), Vec::new(), &GrpoSettings::default());
            for slot in view.slots() {
                for row in slot.own_rows() {
                    let at = ids.iter().position(|id| *id == row.row_id).unwrap();
                    let mask = &masks[offsets[at]..offsets[at + 1]];
                    for (position, mask) in mask.iter().enumerate() {
                        let fate = token_of_row(slot, row, position, None).unwrap();
                        let loss = mask[0] == 1 && row.sample_mask == 1.0;
                        assert_eq!(fate.loss_in.is_some(), loss, "{} {position}", row.row_id);
                        assert_eq!(fate.token_id, row.input_ids[position]);
                    }
                    let beyond = token_of_row(slot, row, mask.len(), None);
                    assert_eq!(beyond.unwrap_err(), mask.len() as u64);
                    let last = &row.spans.last().unwrap().call;
                    assert_eq!(token(slot, last, 0, None).unwrap().token_id, row.input_ids[0]);
                    seen += 1;
                }
            }
        }
        assert_eq!(seen, ids.len());
    }
}

/// Under all_captured a bad leaf is left out by the rule for how it ended (rules 74, 75), and a call
/// that others continue stays (rule 76).
#[test]
fn what_all_captured_leaves_out_or_keeps_says_by_which_rule() {
    let root = call("root", None, &[1], &[2]);
    let failed = call("failed", Some(&root), &[3], &[4]);
    let filtered = call("filtered", Some(&root), &[5], &[6]);
    let kept = call("kept", Some(&root), &[7], &[8]);
    let next = call("next", Some(&kept), &[9], &[10]);
    let calls = vec![root, failed, filtered, kept, next];
    let mut rollout = builders::rollout("p", 0, 1, calls);
    rollout.ledger.committed[3].completion = builders::ending(Some("failed"), None);
    rollout.ledger.committed[1].completion = builders::ending(Some("failed"), None);
    rollout.ledger.committed[2].completion =
        builders::ending(Some("incomplete"), Some("content_filter"));
    let place = Place::of(vec![builders::group("p", vec![stored(rollout)])]);
    let document = place.json(&["why", "run.forest", "p_g0", "--policy", "all_captured"]);
    let rules: Vec<_> = (0..5).map(|at| document["calls"][at]["rule"].clone()).collect();
    assert_eq!(rules, [73, 74, 75, 76, 73].map(|rule| json!(rule)));
    assert_eq!(document["calls"][1]["selected"], false);
}

/// A rollout of every input, by its number, which the ids of its calls begin with.
fn place(text: &Text) -> Place {
    let inputs = inputs(text);
    let slots = inputs.len() as u32;
    let rollouts = inputs.into_iter().enumerate().map(|(slot, (_, _, _, mut calls))| {
        let numbered = |id: &CallId| CallId::from(format!("{slot}-{id}"));
        for call in &mut calls {
            call.call_id = numbered(&call.call_id);
            call.parent_call_id = call.parent_call_id.as_ref().map(numbered);
        }
        let ids: Vec<String> = calls.iter().map(|call| call.call_id.to_string()).collect();
        let mut rollout = builders::rollout("p", slot as u32, slots, calls);
        rollout.result = Some(
            json!({ "action_ids": ids, "terminal_response_id": format!("r-{}", ids[0]) })
                .to_string(),
        );
        stored(rollout)
    });
    let rollouts = rollouts.collect();
    Place::of(vec![Group { group_id: "p".into(), rollouts }])
}

#[test]
fn what_people_read() {
    let place = Place::closed_loop();
    for (name, target) in [
        ("rollout", "p04_g0"),
        ("call", "948896a8"),
        ("dropped", "p05_g1"),
        ("failed_call", "792214ea"),
        ("token_of_call", "948896a8:104"),
        ("token_of_row", "p03_g0_s1:53"),
        ("token_of_rollout", "p03_g0:53"),
        ("no_token", "p03_g0_s1:500"),
        ("row", "p03_g0_s1"),
        ("unknown", "nothing"),
        ("ambiguous", "9"),
    ] {
        assert_snapshot!(format!("why_{name}"), place.piped(&["why", "run.forest", target]));
    }
    let csv = ["why", "run.forest", "p03_g0", "--format", "csv"];
    assert_snapshot!("why_csv", place.piped(&csv));
    let csv = ["why", "run.forest", "p03_g0:53", "--format", "csv"];
    assert_snapshot!("why_token_csv", place.piped(&csv));
    assert_snapshot!("why_terminal", place.on_terminal(80, true, &["why", "run.forest", "p04_g0"]));
    let all = ["why", "run.forest", "p03_g1", "--policy", "all_captured"];
    assert_snapshot!("why_all_captured", place.piped(&all));
}

#[test]
fn forks_show_their_text() {
    let text = Text::read();
    let place = place(&text);
    for (slot, (name, _, _, calls)) in inputs(&text).iter().enumerate() {
        let call = format!("{slot}-{}", calls[calls.len() - 1].call_id);
        let told = ["why", "run.forest", &call, "--tokenizer", TOKENIZER];
        let name = name.replace(' ', "_");
        assert_snapshot!(format!("why_fork_{name}"), place.piped(&told));
    }
    let told = ["why", "run.forest", "p_g1", "--tokenizer", TOKENIZER];
    assert_snapshot!("why_forks_of_rollout", place.piped(&told));
    let told = ["why", "run.forest", "3-root", "--tokenizer", TOKENIZER];
    assert_snapshot!("why_fork_terminal", place.on_terminal(80, true, &told));
    let document = place.json(&["why", "run.forest", "p_g3", "--tokenizer", TOKENIZER]);
    assert_eq!(document["calls"][1]["divergence"]["kind"], "template_strip");
    let told = ["why", "run.forest", "3-root"];
    assert_snapshot!("why_fork_without_tokenizer", place.piped(&told));
    let none = ["why", "run.forest", "p_g3", "--tokenizer", "run.forest/archive.json"];
    assert_eq!(place.run(&none).status.code(), Some(2));
}
