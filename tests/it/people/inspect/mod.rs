//! `inspect`: every screen on a terminal that is a buffer, its keys, and what it leaves behind.

mod facts;
mod keys;
mod lazy;
mod random;
mod screens;
mod terminal;

use clap::Parser;
use forestctl::cli::inspect::InspectArgs;
use forestctl::cli::ui::{ColorChoice, Format, Ui};
use forestctl::inspect::keys::{Action, BINDINGS, Key};
use forestctl::inspect::{Effect, State, Theme, Worker, draw};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::KeyCode;

use super::Place;

pub const TOKENIZER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/closed-loop/tokenizer/tokenizer.json");

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    args: InspectArgs,
}

/// A browser on a terminal that is a buffer, with the reader of the command.
pub struct Browser {
    pub state: State,
    worker: Worker,
    terminal: Terminal<TestBackend>,
    color: bool,
}

impl Browser {
    pub fn open(place: &Place, size: (u16, u16), arguments: &[&str]) -> Self {
        let archive = place.path("run.forest");
        let archive = archive.to_str().unwrap();
        let program = Program::parse_from([&["inspect", archive], arguments].concat());
        let ui = Ui::new(Format::Human, ColorChoice::Never, true, 2);
        let (state, worker) = program.args.begin(&ui).unwrap();
        let terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
        let mut browser = Self { state, worker, terminal, color: false };
        browser.settle();
        browser
    }

    /// Draws, and reads what is wanted, until nothing is.
    pub fn settle(&mut self) {
        loop {
            self.draw();
            let wants = self.state.wants();
            if wants.is_empty() {
                return;
            }
            self.worker.want(wants);
            let reply = self.worker.wait().unwrap();
            self.state.take(reply);
        }
    }

    pub fn draw(&mut self) {
        let theme = Theme { color: self.color };
        self.terminal.draw(|frame| draw(frame, &mut self.state, theme)).unwrap();
    }

    pub fn resize(&mut self, width: u16, height: u16) {
        self.terminal.backend_mut().resize(width, height);
        self.draw();
    }

    /// Presses keys, and waits for what they ask for.
    pub fn press(&mut self, keys: &[Key]) -> Effect {
        let mut effect = Effect::None;
        for key in keys {
            effect = self.state.press(*key);
            self.settle();
        }
        effect
    }

    /// Does something by the first key that is bound to it here.
    pub fn act(&mut self, action: Action) -> Effect {
        let screen = self.state.screen();
        let bound = |b: &&forestctl::inspect::keys::Binding| {
            b.action == action && b.screens.contains(&screen)
        };
        let binding = BINDINGS.iter().find(bound);
        let binding = binding.unwrap_or_else(|| panic!("{action:?} has no key on {screen:?}"));
        self.press(&[binding.keys[0]])
    }

    /// Types what is searched for.
    pub fn search(&mut self, text: &str) {
        self.act(Action::Search);
        let typed: Vec<Key> = text.chars().map(|c| Key::Plain(KeyCode::Char(c))).collect();
        self.press(&typed);
        self.press(&[Key::Plain(KeyCode::Enter)]);
    }

    pub fn buffer(&self) -> &Buffer {
        self.terminal.backend().buffer()
    }

    /// What is on screen, line by line.
    pub fn text(&self) -> String {
        let buffer = self.buffer();
        let width = usize::from(buffer.area.width).max(1);
        let line = |cells: &[ratatui::buffer::Cell]| -> String {
            let line: String = cells.iter().map(|cell| cell.symbol()).collect();
            line.trim_end().to_owned() + "\n"
        };
        buffer.content.chunks(width).map(line).collect()
    }

    /// How it is painted: a letter per cell, the colour's, or what is done without colour.
    pub fn paint(&self) -> String {
        use ratatui::style::{Color, Modifier};
        let buffer = self.buffer();
        let width = usize::from(buffer.area.width).max(1);
        let letter = |cell: &ratatui::buffer::Cell| match cell.fg {
            Color::Reset if cell.modifier.contains(Modifier::REVERSED) => 'r',
            Color::Reset if cell.modifier.contains(Modifier::UNDERLINED) => 'u',
            Color::Reset if cell.modifier.contains(Modifier::BOLD) => 'b',
            Color::Reset if cell.modifier.contains(Modifier::DIM) => 'd',
            Color::Reset => ' ',
            color => format!("{color}").chars().next().unwrap_or('?'),
        };
        let line = |cells: &[ratatui::buffer::Cell]| -> String {
            let line: String = cells.iter().map(letter).collect();
            line.trim_end().to_owned() + "\n"
        };
        buffer.content.chunks(width).map(line).collect()
    }
}
