//! The picture of one rollout says what `show` says.

use std::collections::BTreeMap;

use forestctl::explain::{Portrait, Slot};
use forestctl::pictures::{compaction, forest, rollout_svg};
use roxmltree::{Document, Node};

use super::{hostile, views};
use crate::builders;
use crate::closed_loop::{POLICIES, groups};

/// A block: its class, left and right, its line, and what it tells.
#[derive(Debug)]
struct Block {
    class: String,
    left: f64,
    right: f64,
    y: String,
    tells: String,
}

impl Block {
    /// The number before a word of what it tells.
    fn count(&self, word: &str) -> u64 {
        let words: Vec<&str> = self.tells.split(&[' ', ','][..]).collect();
        let at = words.iter().position(|w| *w == word).unwrap();
        words[at - 1].parse().unwrap()
    }
}

fn blocks(parent: Node<'_, '_>) -> Vec<Block> {
    let rects = parent
        .descendants()
        .filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "rect")));
    let titled = rects.filter_map(|rect| {
        let tells = rect.children().find(|child| child.tag_name().name() == "title")?;
        let number = |name| rect.attribute(name).unwrap().parse::<f64>().unwrap();
        Some(Block {
            class: rect.attribute("class").unwrap().to_owned(),
            left: number("x"),
            right: number("x") + number("width"),
            y: rect.attribute("y").unwrap().to_owned(),
            tells: tells.text().unwrap().to_owned(),
        })
    });
    titled.collect()
}

/// The rows of a picture stand in its only group of shapes.
fn rows<'a>(document: &'a Document<'_>) -> Node<'a, 'a> {
    document.descendants().find(|node| node.tag_name().name() == "g").unwrap()
}

fn each(mut check: impl FnMut(Slot<'_>, &str)) {
    for form in ["staged-v2", "gym-store"] {
        let groups = groups(form);
        for policy in POLICIES {
            for view in views(&groups, policy) {
                view.slots().for_each(|slot| check(slot, &rollout_svg(slot, None)));
            }
        }
    }
}

#[test]
fn blocks_of_loss_are_the_loss_tokens_of_their_rows() {
    let (mut with_loss, mut with_context) = (0, 0);
    each(|slot, svg| {
        let document = Document::parse(svg).unwrap();
        let drawn = blocks(rows(&document));
        let portrait = Portrait::of(slot, None);
        let mut lines: BTreeMap<&str, Vec<&Block>> = BTreeMap::new();
        drawn.iter().for_each(|block| lines.entry(&block.y).or_default().push(block));
        let own: Vec<_> = portrait.tree.rows.iter().filter(|row| !row.borrowed).collect();
        let mut found: Vec<(u64, u64, u64)> = Vec::new();
        for blocks in lines.values().filter(|blocks| blocks[0].class != "padding") {
            let sum = |class: &str, word: &str| {
                let of = blocks.iter().filter(|block| block.class == class);
                of.map(|block| block.count(word)).sum::<u64>()
            };
            let (loss, context) = (sum("loss", "generated"), sum("context", "generated"));
            with_loss += u64::from(loss > 0);
            with_context += u64::from(context > 0);
            found.push((sum("carry", "carry"), loss, context));
            for pair in blocks.windows(2) {
                assert!(pair[0].right <= pair[1].left + 0.2, "{pair:?}");
            }
        }
        let told = |row: &&forestctl::explain::RowLine| {
            let row = slot.rows().find(|r| r.row_id == row.row_id).unwrap();
            let trains = row.sample_mask != 0.0;
            let generated = |owned: bool| -> u64 {
                let spans = row.spans.iter().filter(|span| (span.owned && trains) == owned);
                spans.map(|span| u64::from(span.end - span.gen_start)).sum()
            };
            let carry = row.spans.iter().map(|span| u64::from(span.gen_start - span.start)).sum();
            (carry, generated(true), generated(false))
        };
        let mut wanted: Vec<_> = own.iter().map(told).collect();
        found.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "{}", portrait.fate.line.rollout_id);
    });
    assert!(with_loss > 60 && with_context > 10, "{with_loss} {with_context}");
}

#[test]
fn every_call_is_drawn_in_the_class_of_its_mark() {
    let mut seen = BTreeMap::new();
    each(|slot, svg| {
        let document = Document::parse(svg).unwrap();
        let below: Vec<String> = blocks(rows(&document)).into_iter().map(|b| b.tells).collect();
        let mut drawn = blocks(document.root());
        drawn.retain(|block| block.tells.starts_with("call "));
        assert!(drawn.len() > below.len());
        let portrait = Portrait::of(slot, None);
        for call in &portrait.tree.calls {
            let name = format!("call {}: {}", call.call_id, call.mark.as_str());
            let own: Vec<_> = drawn.iter().filter(|b| b.tells.starts_with(&name)).collect();
            let class = match call.mark.as_str() {
                "accepted" if portrait.fate.line.loss_tokens > 0 => "loss",
                "accepted" => "context",
                "rejected" => "off",
                other => other,
            };
            assert!(own.iter().any(|block| block.class == class), "{name} {class} {own:?}");
            *seen.entry(class.to_owned()).or_insert(0) += 1;
        }
    });
    let classes: Vec<&str> = seen.keys().map(String::as_str).collect();
    assert_eq!(classes, ["context", "failed", "loss", "off", "pending"]);
}

#[test]
fn what_an_input_names_stays_text() {
    let groups = hostile();
    for view in views(&groups, POLICIES[1]) {
        for slot in view.slots() {
            for text in
                [rollout_svg(slot, None), compaction(&Portrait::of(slot, None)).standalone()]
            {
                let document = Document::parse(&text).unwrap();
                let names: Vec<&str> =
                    document.descendants().map(|node| node.tag_name().name()).collect();
                assert!(!names.contains(&"script"), "{text}");
                assert!(!text.contains(['\u{202e}', '\u{1b}']), "{text}");
                let shown = document.descendants().filter_map(|node| node.text());
                assert!(shown.collect::<String>().contains("<script>alert(1)</script></svg>"));
            }
        }
    }
}

/// A large rollout is cut off, and the picture says so.
#[test]
fn pictures_of_large_rollouts_stay_small() {
    let mut calls = vec![builders::call("c0", None, &[1], &[(2, -0.5)])];
    for at in 1..5000_usize {
        let parent = &calls[if at % 2 == 0 { at - 1 } else { at - 1 - (at - 1) % 7 }];
        let next = builders::call(format!("c{at}"), Some(parent), &[3], &[(at as u32, -0.5)]);
        calls.push(next);
    }
    let groups = vec![builders::group("p", vec![builders::rollout("p", 0, 1, calls)])];
    for view in views(&groups, POLICIES[1]) {
        for slot in view.slots() {
            let portrait = Portrait::of(slot, None);
            assert!(portrait.tree.rows.len() > 100, "{}", portrait.tree.rows.len());
            let picture = forest(&portrait).standalone();
            assert!(picture.len() < 500_000, "{}", picture.len());
            assert!(picture.contains("4700 more calls"), "{}", &picture[..2000]);
            let contexts = compaction(&portrait).standalone();
            assert!(contexts.len() < 200_000 && contexts.contains("4700 more"));
        }
    }
}

/// The picture of docs/report.md is that of the capture that README tours.
#[test]
fn the_picture_of_the_docs_is_fresh() {
    let groups = groups("staged-v2");
    let views = views(&groups, POLICIES[0]);
    let slots = views.iter().flat_map(|view| view.slots());
    let mut named = slots.filter(|slot| slot.rollout.rollout_id.as_str() == "p03_g3");
    let fresh = rollout_svg(named.next().unwrap(), None);
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/rollout.svg");
    if std::fs::read_to_string(&path).ok().as_deref() != Some(&fresh) {
        let aside = std::env::temp_dir().join("rollout.svg");
        std::fs::write(&aside, fresh).unwrap();
        panic!("docs/rollout.svg is stale; the fresh one is {}", aside.display());
    }
}
