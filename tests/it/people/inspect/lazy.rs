//! Parts come on screen before they are read: what is wanted, in which order, and what is shown
//! meanwhile.

use std::collections::BTreeSet;

use forestctl::archive::{Counts, Known, SourceKind};
use forestctl::explain::{RolloutLine, Verdict};
use forestctl::finding::Code;
use forestctl::id::Digest32;
use forestctl::inspect::keys::{Action, BINDINGS};
use forestctl::inspect::{Answer, Job, Reply, State, Theme, draw};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

const PARTS: usize = 5;
const ROLLOUTS: usize = 40;

fn id(part: usize, slot: usize) -> String {
    format!("g{part}_r{slot:02}")
}

fn known(part: usize) -> Vec<Known> {
    let known = |slot: usize| Known {
        group_id: format!("g{part}").into(),
        slot: slot as u32,
        rollout_id: id(part, slot).into(),
        group_size: ROLLOUTS as u32,
        digest: Digest32([0; 32]),
    };
    (0..ROLLOUTS).map(known).collect()
}

/// Rollout 7 of every odd part is masked.
fn lines(part: usize) -> Vec<RolloutLine> {
    let line = |slot: usize| {
        let is_masked = part % 2 == 1 && slot == 7;
        RolloutLine {
            group_id: format!("g{part}").into(),
            rollout_id: id(part, slot).into(),
            slot: slot as u32,
            source: SourceKind::Staged,
            reward: Some(1.0),
            advantage: Some(0.0),
            verdict: if is_masked { Verdict::Masked } else { Verdict::Valid },
            reasons: if is_masked { vec![Code::MissingReward] } else { Vec::new() },
            findings: BTreeSet::new(),
            calls: 1,
            selected_calls: 1,
            rows: 1,
            tokens: 10,
            generated_tokens: 5,
            row_tokens: 10,
            loss_tokens: 5,
        }
    };
    (0..ROLLOUTS).map(line).collect()
}

struct Screen {
    state: State,
    terminal: Terminal<TestBackend>,
    /// Parts that were judged, in order.
    judged: Vec<usize>,
}

impl Screen {
    fn new() -> Self {
        let parts = [ROLLOUTS as u64; PARTS];
        let state = State::new("a".to_owned(), "p".to_owned(), Counts::default(), parts);
        let terminal = Terminal::new(TestBackend::new(80, 12)).unwrap();
        let mut screen = Self { state, terminal, judged: Vec::new() };
        screen.draw();
        screen
    }

    fn draw(&mut self) -> String {
        let theme = Theme { color: false };
        self.terminal.draw(|frame| draw(frame, &mut self.state, theme)).unwrap();
        self.terminal.backend().to_string()
    }

    fn press(&mut self, action: Action) {
        let here = self.state.screen();
        let binding = BINDINGS.iter().find(|b| b.action == action && b.screens.contains(&here));
        self.state.press(binding.unwrap().keys[0]);
        self.draw();
    }

    fn answer(&mut self, job: Job) {
        let answer = match &job {
            Job::Known(part) => Answer::Known(known(*part)),
            Job::Lines(part) => {
                self.judged.push(*part);
                Answer::Lines(lines(*part))
            }
            Job::Check => Answer::Checked,
            Job::Find(part, text) if *part == 3 && text == "call" => {
                Answer::Found(vec![(id(3, 9).into(), "a-call".into())])
            }
            Job::Find(..) => Answer::Found(Vec::new()),
            other => panic!("{other:?} is not wanted"),
        };
        self.state.take(Reply { job, answer: Ok(answer) });
        self.draw();
    }

    /// Answers until nothing is wanted.
    fn settle(&mut self) {
        while let Some(job) = self.state.wants().into_iter().next() {
            self.answer(job);
        }
    }

    fn chosen(&self) -> String {
        self.state.listing.chosen().unwrap().rollout_id.to_string()
    }
}

#[test]
fn what_is_on_screen_is_read_first_and_judged_alone() {
    let mut screen = Screen::new();
    assert!(screen.draw().contains("1/200"), "the length is known before anything is read");
    assert_eq!(screen.state.wants()[..2], [Job::Known(0), Job::Lines(0)]);
    // To the end of what nobody has read: its part comes first.
    screen.press(Action::Last);
    assert!(screen.draw().contains("200/200"));
    assert_eq!(screen.state.wants()[..2], [Job::Known(4), Job::Lines(4)]);
    screen.settle();
    assert_eq!(screen.judged, [4]);
    assert_eq!(screen.chosen(), id(4, 39));
    assert!(screen.draw().contains("g4_r39"));
}

#[test]
fn a_filter_judges_all_parts_and_says_how_far_it_is() {
    let mut screen = Screen::new();
    screen.press(Action::Filter);
    let judging: Vec<Job> =
        screen.state.wants().into_iter().filter(|job| matches!(job, Job::Lines(_))).collect();
    assert_eq!(judging, (0..PARTS).map(Job::Lines).collect::<Vec<_>>());
    screen.answer(Job::Known(1));
    screen.answer(Job::Lines(1));
    let shown = screen.draw();
    assert!(shown.contains("only masked: 1 of"), "{shown}");
    assert!(shown.contains("1 of 5 parts judged"), "{shown}");
    screen.settle();
    assert_eq!(screen.state.listing.count(), 2);
    assert!(!screen.draw().contains("parts judged"));
}

#[test]
fn the_next_finding_is_the_nearest_even_where_parts_are_not_judged() {
    let mut screen = Screen::new();
    // A later part is judged already; the nearer one counts.
    screen.answer(Job::Known(3));
    screen.answer(Job::Lines(3));
    screen.press(Action::NextFinding);
    assert!(screen.draw().contains("looking for a finding"), "{}", screen.draw());
    screen.settle();
    assert_eq!(screen.chosen(), id(1, 7));
    assert!(!screen.judged.contains(&4), "{:?}", screen.judged);
    screen.press(Action::NextFinding);
    screen.settle();
    assert_eq!(screen.chosen(), id(3, 7));
    // Round the end.
    screen.press(Action::NextFinding);
    screen.settle();
    assert_eq!(screen.chosen(), id(1, 7));
    screen.press(Action::PreviousFinding);
    screen.settle();
    assert_eq!(screen.chosen(), id(3, 7));
}

#[test]
fn a_call_is_looked_for_part_by_part_and_the_search_can_be_left() {
    let mut screen = Screen::new();
    screen.settle();
    let mut search = |text: &str| {
        screen.press(Action::Search);
        for letter in text.chars() {
            let code = ratatui::crossterm::event::KeyCode::Char(letter);
            screen.state.press(forestctl::inspect::keys::Key::Plain(code));
        }
        let enter = ratatui::crossterm::event::KeyCode::Enter;
        screen.state.press(forestctl::inspect::keys::Key::Plain(enter));
        assert!(screen.state.waits_for().is_some());
        screen.state.wants().len()
    };
    assert_eq!(search("call"), PARTS);
    screen.settle();
    assert_eq!(screen.chosen(), id(3, 9));
    screen.press(Action::Back);
    assert_eq!(screen.state.waits_for(), None);
}

/// A manifest that lies costs a fault, not memory or time.
#[test]
fn numbers_of_a_manifest_are_not_trusted() {
    let parts = [u64::MAX, 3, u64::MAX];
    let mut state = State::new("a".to_owned(), "p".to_owned(), Counts::default(), parts);
    let mut terminal = Terminal::new(TestBackend::new(80, 12)).unwrap();
    let theme = Theme { color: false };
    for action in [Action::Last, Action::NextFinding, Action::Filter, Action::NextFinding] {
        let binding = BINDINGS.iter().find(|binding| binding.action == action).unwrap();
        state.press(binding.keys[0]);
        terminal.draw(|frame| draw(frame, &mut state, theme)).unwrap();
        let _ = state.wants();
    }
    state.press(BINDINGS.iter().find(|b| b.action == Action::Quit).unwrap().keys[0]);
    let answer = Ok(Answer::Known(known(0)));
    state.take(Reply { job: Job::Known(0), answer });
    terminal.draw(|frame| draw(frame, &mut state, theme)).unwrap();
    assert!(state.listing.entry(0).is_none() || state.listing.entry(0).unwrap().fault.is_some());
}
