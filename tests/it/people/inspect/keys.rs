//! The table of keys: unambiguous, complete, and what each key does.

use std::collections::{BTreeMap, BTreeSet};

use forestctl::explain::Verdict;
use forestctl::inspect::keys::{Action, BINDINGS, Key, action};
use forestctl::inspect::{Effect, Screen};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{Browser, Place, TOKENIZER};

const SIZE: (u16, u16) = (100, 30);

#[test]
fn no_key_means_two_things_and_every_action_can_be_reached() {
    let mut meant = BTreeMap::new();
    for binding in BINDINGS {
        for screen in binding.screens {
            for key in binding.keys {
                let before = meant.insert(format!("{key} on {}", screen.as_str()), binding.action);
                assert_eq!(before, None, "{key} on {}", screen.as_str());
                assert_eq!(action(*screen, *key), Some(binding.action));
            }
        }
        assert!(!binding.help.is_empty() && !binding.keys.is_empty());
    }
    for screen in Screen::ALL {
        let can: BTreeSet<String> = BINDINGS
            .iter()
            .filter(|binding| binding.screens.contains(&screen))
            .map(|binding| format!("{:?}", binding.action))
            .collect();
        for needed in ["Up", "Down", "PageUp", "PageDown", "First", "Last", "Back", "Help", "Quit"]
        {
            assert!(can.contains(needed), "{needed} on {screen:?}");
        }
    }
}

#[test]
fn keys_of_a_terminal_are_those_of_the_table() {
    let event = |code, held| Key::of(&KeyEvent::new(code, held));
    let letter = KeyCode::Char;
    assert_eq!(event(letter('G'), KeyModifiers::SHIFT), Some(Key::Plain(letter('G'))));
    assert_eq!(event(letter('C'), KeyModifiers::CONTROL), Some(Key::Ctrl('c')));
    assert_eq!(event(letter('c'), KeyModifiers::ALT), None);
    assert_eq!(event(KeyCode::BackTab, KeyModifiers::SHIFT), Some(Key::Plain(KeyCode::BackTab)));
    assert_eq!(action(Screen::Rollouts, Key::Ctrl('c')), Some(Action::Quit));
}

#[test]
fn screens_lie_behind_one_another() {
    let place = Place::closed_loop();
    let mut browser = Browser::open(&place, SIZE, &[]);
    let mut seen = vec![browser.state.screen()];
    for action in [Action::Open, Action::Open, Action::Findings, Action::Help] {
        browser.act(action);
        seen.push(browser.state.screen());
    }
    let all = [Screen::Rollouts, Screen::Rollout, Screen::Tokens, Screen::Findings, Screen::Help];
    assert_eq!(seen, all);
    for screen in all.iter().rev().skip(1) {
        browser.act(Action::Back);
        assert_eq!(browser.state.screen(), *screen);
    }
    assert_eq!(browser.act(Action::Back), Effect::None);
    assert_eq!(browser.act(Action::Quit), Effect::Quit);
}

#[test]
fn filters_findings_and_ids_are_found() {
    let place = Place::closed_loop();
    let mut browser = Browser::open(&place, SIZE, &[]);
    let chosen = |browser: &Browser| browser.state.listing.chosen().unwrap().rollout_id.to_string();
    // The first with a finding or a reason, and on.
    let mut found = Vec::new();
    for _ in 0..4 {
        browser.act(Action::NextFinding);
        found.push(chosen(&browser));
    }
    assert_eq!(found, ["p03_g2", "p04_g0", "p04_g1", "p05_g0"]);
    browser.act(Action::PreviousFinding);
    assert_eq!(chosen(&browser), "p04_g1");
    // Of one verdict; the chosen one stays chosen while it is listed.
    browser.act(Action::Filter);
    assert_eq!(
        (browser.state.listing.filter(), &*chosen(&browser)),
        (Some(Verdict::Masked), "p04_g1")
    );
    let masked: Vec<String> = place.json(&["ls", "run.forest", "--verdict", "masked"])["rollouts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["rollout_id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(browser.state.listing.count(), masked.len());
    browser.act(Action::First);
    let listed: Vec<String> = (0..masked.len())
        .map(|_| {
            let id = chosen(&browser);
            browser.act(Action::Down);
            id
        })
        .collect();
    assert_eq!(listed, masked);
    browser.act(Action::Back);
    assert_eq!(browser.state.listing.filter(), None);
    // Ids of rollouts, then of calls in parts that were not read.
    browser.search("P06_G1");
    assert_eq!(chosen(&browser), "p06_g1");
    browser.search("ba28830f");
    assert_eq!(chosen(&browser), "p03_g0");
    browser.search("nowhere");
    assert_eq!(chosen(&browser), "p03_g0");
    assert!(browser.text().contains("no id holds nowhere"), "{}", browser.text());
}

#[test]
fn ids_are_copied_as_why_takes_them() {
    let place = Place::closed_loop();
    let mut browser = Browser::open(&place, SIZE, &["p03_g0"]);
    let call = "d3e0915893aa4d8f908585343d660d94".to_owned();
    assert_eq!(browser.act(Action::Copy), Effect::Copy(call.clone()));
    browser.act(Action::Open);
    let token = format!("{call}:49");
    assert_eq!(browser.act(Action::Copy), Effect::Copy(token.clone()));
    assert!(place.piped(&["why", "run.forest", &token]).contains("token 49"));
    browser.act(Action::Back);
    browser.act(Action::Back);
    assert_eq!(browser.act(Action::Copy), Effect::Copy("p03_g0".to_owned()));
}

#[test]
fn a_finding_leads_to_its_call() {
    let place = Place::closed_loop();
    let mut browser = Browser::open(&place, SIZE, &["p04_g0"]);
    browser.act(Action::NextFinding);
    let call = |browser: &Browser| {
        browser.state.rollout.as_ref().unwrap().chosen().unwrap().call_id.to_string()
    };
    let found = call(&browser);
    assert!(found.starts_with("948896a8"), "{found}");
    browser.act(Action::First);
    browser.act(Action::Findings);
    browser.act(Action::Open);
    assert_eq!((browser.state.screen(), call(&browser)), (Screen::Rollout, found));
}

#[test]
fn tokens_are_walked_and_searched() {
    let place = Place::closed_loop();
    let mut browser = Browser::open(&place, SIZE, &["ba28830f", "--tokenizer", TOKENIZER]);
    browser.act(Action::Open);
    let at = |browser: &Browser| {
        browser.state.tokens.as_ref().unwrap().screen.get().unwrap().as_ref().unwrap().at
    };
    assert_eq!(at(&browser), 140);
    let mut walk = |action| {
        browser.act(action);
        at(&browser)
    };
    let steps = [
        (Action::PreviousStretch, 111),
        (Action::PreviousStretch, 81),
        (Action::NextStretch, 111),
        (Action::Right, 112),
        (Action::Left, 111),
        (Action::First, 0),
        (Action::Left, 0),
        (Action::Last, 153),
        (Action::Right, 153),
        (Action::Up, 131),
        (Action::Down, 153),
    ];
    for (action, expected) in steps {
        assert_eq!(walk(action), expected, "{action:?}");
    }
    // Text across tokens, whatever its case; from the end it goes on at the beginning.
    browser.search("IS 7 prime");
    let first = at(&browser);
    assert!((1..49).contains(&first), "{first}");
    browser.act(Action::NextHit);
    assert_eq!(at(&browser), first);
    // An id.
    browser.act(Action::First);
    browser.search("258");
    let hits: Vec<usize> = (0..6)
        .map(|_| {
            let hit = at(&browser);
            browser.act(Action::NextHit);
            hit
        })
        .collect();
    let tokens = browser.state.tokens.as_ref().unwrap().screen.get().unwrap().as_ref().unwrap();
    assert!(hits.iter().all(|&hit| tokens.document.ids[hit] == 258), "{hits:?}");
    assert!(hits.is_sorted() && hits[0] < hits[5], "{hits:?}");
}
