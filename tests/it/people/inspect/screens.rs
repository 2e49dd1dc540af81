//! What each screen shows, on a small terminal and a wide one.

use forestctl::inspect::keys::Action;
use insta::assert_snapshot;
use ratatui::style::Color;

use super::{Browser, Place, TOKENIZER};
use crate::builders;
use crate::people::{show, stored};

const SMALL: (u16, u16) = (80, 24);
const WIDE: (u16, u16) = (150, 45);

fn tokenizer() -> [&'static str; 2] {
    ["--tokenizer", TOKENIZER]
}

#[test]
fn rollouts() {
    let place = Place::closed_loop();
    let mut browser = Browser::open(&place, SMALL, &[]);
    assert_snapshot!("inspect_rollouts", browser.text());
    browser.resize(WIDE.0, WIDE.1);
    assert_snapshot!("inspect_rollouts_wide", browser.text());
    browser.resize(SMALL.0, SMALL.1);
    browser.act(Action::Filter);
    assert_snapshot!("inspect_rollouts_masked", browser.text());
}

#[test]
fn a_rollout() {
    let place = Place::closed_loop();
    let mut browser = Browser::open(&place, SMALL, &["p03_g0"]);
    assert_snapshot!("inspect_rollout", browser.text());
    browser.resize(WIDE.0, WIDE.1);
    assert_snapshot!("inspect_rollout_wide", browser.text());
    let browser = Browser::open(&place, SMALL, &["p04_g0"]);
    assert_snapshot!("inspect_rollout_masked", browser.text());
}

/// Calls of every mark, the divergence of a root, and a call without tokens.
#[test]
fn every_mark_and_a_call_that_was_not_captured() {
    let place = show::marks();
    let mut browser = Browser::open(&place, (100, 30), &["p_g0"]);
    browser.search("compacted");
    assert_snapshot!("inspect_marks", browser.text());
    browser.act(Action::Last);
    browser.act(Action::Open);
    assert!(browser.text().contains("no tokens to show"), "{}", browser.text());
}

#[test]
fn tokens() {
    let place = Place::closed_loop();
    let mut browser = Browser::open(&place, SMALL, &[&["ba28830f"], &tokenizer()[..]].concat());
    browser.act(Action::Open);
    assert_snapshot!("inspect_tokens", browser.text());
    assert_snapshot!("inspect_tokens_paint", browser.paint());
    browser.resize(WIDE.0, WIDE.1);
    assert_snapshot!("inspect_tokens_wide", browser.text());
    // Without a tokenizer, ids; a rollout that is masked has no loss.
    let mut browser = Browser::open(&place, SMALL, &["948896a8"]);
    browser.act(Action::Open);
    assert_snapshot!("inspect_tokens_masked", browser.text());
}

#[test]
fn findings_and_help() {
    let place = Place::closed_loop();
    let mut browser = Browser::open(&place, SMALL, &["p04_g0"]);
    browser.act(Action::Findings);
    assert_snapshot!("inspect_findings", browser.text());
    browser.act(Action::Back);
    browser.act(Action::Help);
    assert_snapshot!("inspect_help", browser.text());
    browser.act(Action::Last);
    assert_snapshot!("inspect_help_end", browser.text());
}

/// With colours and without, cells hold the same; without, nothing but the terminal's own colour.
#[test]
fn no_color_is_no_color_and_tells_as_much() {
    let place = Place::closed_loop();
    let arguments = [&["ba28830f"], &tokenizer()[..]].concat();
    for steps in 0..3 {
        let mut plain = Browser::open(&place, WIDE, &arguments);
        let mut painted = Browser::open(&place, WIDE, &arguments);
        painted.color = true;
        for browser in [&mut plain, &mut painted] {
            match steps {
                0 => drop(browser.act(Action::Back)),
                1 => browser.draw(),
                _ => drop(browser.act(Action::Open)),
            }
        }
        assert_eq!(plain.text(), painted.text());
        let colors = |browser: &Browser| {
            browser.buffer().content.iter().filter(|cell| cell.fg != Color::Reset).count()
        };
        assert_eq!(colors(&plain), 0);
        assert!(colors(&painted) > 0);
        let back = |browser: &Browser| {
            browser.buffer().content.iter().filter(|cell| cell.bg != Color::Reset).count()
        };
        assert_eq!((back(&plain), back(&painted)), (0, 0));
    }
}

/// Ids and texts of an input cannot reach the terminal as control characters.
#[test]
fn what_an_input_says_cannot_drive_the_terminal() {
    let evil = "\u{1b}]0;x\u{7}\u{202e}";
    let call = builders::call(format!("c{evil}"), None, &[1, 2], &[(3, -0.5)]);
    let mut rollout = builders::rollout("p", 0, 1, vec![call]);
    rollout.rollout_id = format!("r{evil}").into();
    let place = Place::of(vec![builders::group(&format!("g{evil}"), vec![stored(rollout)])]);
    let mut browser = Browser::open(&place, WIDE, &[]);
    let check = |browser: &Browser, what: &str| {
        let text = browser.text().replace('\n', "");
        let bad: Vec<char> = text.chars().filter(|c| c.is_control() || *c == '\u{202e}').collect();
        assert!(bad.is_empty(), "{what}: {bad:?}");
        assert!(text.contains("\\u{1b}"), "{what}: {text}");
    };
    check(&browser, "rollouts");
    browser.act(Action::Copy);
    check(&browser, "a message");
    browser.act(Action::Open);
    check(&browser, "rollout");
    browser.act(Action::Open);
    check(&browser, "tokens");
    browser.act(Action::Search);
    for letter in evil.chars() {
        browser.press(&[forestctl::inspect::keys::Key::Plain(
            ratatui::crossterm::event::KeyCode::Char(letter),
        )]);
    }
    check(&browser, "what is typed");
}

#[test]
fn a_small_terminal_is_told_so() {
    let place = Place::closed_loop();
    let mut browser = Browser::open(&place, SMALL, &[]);
    browser.resize(39, 24);
    assert!(browser.text().contains("needs 40 columns"), "{}", browser.text());
    browser.resize(80, 9);
    assert!(browser.text().contains("needs 40 columns"), "{}", browser.text());
    browser.resize(40, 10);
    assert!(browser.text().contains("p01_g0"), "{}", browser.text());
}

/// A part that cannot be read costs its own lines, and nothing else.
#[test]
fn a_broken_part_is_told_where_its_rollouts_are() {
    let place = Place::closed_loop();
    let calls = place.path("run.forest").join("calls/part-00000.parquet");
    let mut bytes = std::fs::read(&calls).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&calls, bytes).unwrap();
    let mut browser = Browser::open(&place, WIDE, &[]);
    assert!(browser.text().contains("p01_g0"), "{}", browser.text());
    assert!(browser.text().contains("do not give the BLAKE3"), "{}", browser.text());
    browser.act(Action::Open);
    assert!(browser.text().contains("do not give the BLAKE3"), "{}", browser.text());
}
