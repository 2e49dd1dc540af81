//! Whatever keys are pressed, on whatever terminal, nothing panics and something is shown.

use forestctl::inspect::keys::Key;
use proptest::prelude::*;
use ratatui::crossterm::event::KeyCode;

use super::{Browser, Place, TOKENIZER};
use crate::people::show;

fn key() -> impl Strategy<Value = Key> {
    let named = prop::sample::select(vec![
        KeyCode::Enter,
        KeyCode::Esc,
        KeyCode::Backspace,
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::Left,
        KeyCode::Right,
        KeyCode::Home,
        KeyCode::End,
        KeyCode::PageUp,
        KeyCode::PageDown,
        KeyCode::Tab,
        KeyCode::BackTab,
        KeyCode::F(1),
    ]);
    let letters: Vec<char> = "jkhlgGwfy?/nN[]JK p0_漢\u{1b}".chars().collect();
    prop_oneof![
        3 => named.prop_map(Key::Plain),
        4 => prop::sample::select(letters).prop_map(|letter| Key::Plain(KeyCode::Char(letter))),
        1 => prop::sample::select(vec!['b', 'f', 'u', 'c']).prop_map(Key::Ctrl),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Press(Key),
    Resize(u16, u16),
    /// Lets what is wanted arrive; otherwise keys meet screens that still wait.
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => key().prop_map(Step::Press),
        1 => (0_u16..160, 0_u16..50).prop_map(|(width, height)| Step::Resize(width, height)),
        3 => Just(Step::Settle),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_keys_on_any_terminal(steps in prop::collection::vec(step(), 1..60), marks: bool) {
        let place = if marks { show::marks() } else { Place::closed_loop() };
        let mut browser = Browser::open(&place, (80, 24), &["--tokenizer", TOKENIZER]);
        for step in steps {
            match step {
                Step::Press(key) => drop(browser.state.press(key)),
                Step::Resize(width, height) => browser.resize(width, height),
                Step::Settle => browser.settle(),
            }
            browser.draw();
        }
        browser.resize(80, 24);
        browser.settle();
        prop_assert!(!browser.text().trim().is_empty());
        prop_assert!(!browser.text().contains("reading ..."), "{}", browser.text());
    }
}
