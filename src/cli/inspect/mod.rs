//! `forestctl inspect`: a full-screen browser; the same facts as a tree where there is no terminal.

mod source;
pub mod terminal;

use std::io::{IsTerminal, Write};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use clap::Args;
use ratatui::Terminal as Frames;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use schemars::JsonSchema;
use serde::Serialize;

use super::Exit;
use super::looking::{self, Found, LookingArgs, TokenizerArg, What};
use super::selecting::SelectingArgs;
use super::show;
use super::ui::{Format, Tone, Ui, thousands};
use crate::archive::Archive;
use crate::error::{Error, Result};
use crate::explain::View;
use crate::inspect::keys::Key;
use crate::inspect::{Effect, Place, State, Theme, Worker, draw};
use crate::output::write_file;
use crate::pictures::rollout_svg;
use crate::report::visible;
use source::Reader;
use terminal::{Process, clipboard, on_own_screen};

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl inspect run.forest
  forestctl inspect run.forest p03_g0 --tokenizer Qwen3-0.6B/tokenizer.json
  forestctl inspect run.forest 948896a8 --policy all_captured
  forestctl inspect run.forest | less
  forestctl inspect run.forest p03_g0 --format jsonl | jq -r '.calls[].call_id'
  forestctl inspect run.forest p03_g0 --svg p03_g0.svg

Keys: ? shows all of them.
  ↑ ↓ Enter Esc  move, open, go back
  / n N          search ids; among tokens, text or id
  f              list masked rollouts only, then dropped, valid, all
  ] [            to the next finding, to the one before
  w              what is wrong with a rollout, and what to do
  y              copy the id
  q              quit

",
    exit_status!()
);

/// Browse rollouts, their calls and tokens on a full screen
///
/// Three screens, one behind the other: all rollouts by prompt group with verdict, reward,
/// advantage and reason; one rollout as a tree of its calls; the tokens of a call along its chain,
/// context and loss told apart, with log-probabilities as a scale. Parts of the archive are read as
/// they come on screen. Where stdin or stdout is no terminal, or with another --format than human,
/// the same facts are printed, as show prints them. With --svg, the picture of one rollout is
/// written instead: its calls as captured, and the rows that they become.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct InspectArgs {
    /// The archive
    #[arg(value_name = "ARCHIVE")]
    pub archive: PathBuf,
    /// A rollout or a call to open; ids may be cut short
    #[arg(value_name = "ROLLOUT|CALL")]
    pub target: Option<String>,
    /// Write the picture of the rollout as SVG, and nothing else; - is stdout
    #[arg(long, value_name = "FILE", requires = "target")]
    svg: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long, requires = "svg")]
    force: bool,
    #[command(flatten)]
    tokenizer: TokenizerArg,
    #[command(flatten)]
    looking: LookingArgs,
}

/// JSON Schema of `--format json`.
pub(super) fn schema() -> schemars::Schema {
    schemars::schema_for!(Document)
}

/// `--format json`.
#[derive(Debug, Serialize, JsonSchema)]
struct Document {
    schema_version: u32,
    /// Rollouts of the archive, shown or not.
    total: u64,
    /// What `show` tells of each.
    rollouts: Vec<show::Document>,
}

impl InspectArgs {
    /// Runs the command.
    pub fn run(self, ui: &Ui) -> Result<Exit> {
        if let Some(file) = &self.svg {
            return self.picture(file, ui);
        }
        let interactive = ui.terminal && std::io::stdin().is_terminal();
        if !interactive || ui.format != Format::Human || is_dumb() {
            return self.print(ui);
        }
        let (state, worker) = self.begin(ui)?;
        let theme = Theme { color: ui.has_color() };
        on_own_screen(&mut Process::default(), |terminal| converse(terminal, state, worker, theme))
            .and_then(|done| done)
            .map_err(|e| Error::io("cannot use", Path::new("the terminal"), e))?;
        Ok(Exit::Fine)
    }

    /// The first screen, and the reader of the archive behind it.
    ///
    /// # Errors
    ///
    /// Flags, a tokenizer, an archive or a target that cannot be used.
    pub fn begin(self, ui: &Ui) -> Result<(State, Worker)> {
        let looking = self.looking.settle("inspect", ui)?;
        let decoder = self.tokenizer.read()?;
        let (archive, found) = self.open(ui)?;
        let largest = (0..archive.part_count()).map(|part| archive.part_bytes(part)).max();
        ui.start_threads(largest.unwrap_or(0));
        let parts: Vec<u64> = archive.manifest().parts.iter().map(|part| part.rollouts).collect();
        let policy = looking.selecting.policy.to_string();
        let mut state = State::new(name(&self.archive), policy, archive.counts(), parts);
        if let Some(Found { part, group_id, rollout_id, what }) = found {
            let call = if let What::Call(call) = what { Some(call) } else { None };
            state.open(Place { part, group_id, rollout_id }, call);
        }
        let worker = Worker::start(Reader::new(archive, self.looking, looking, decoder))?;
        Ok((state, worker))
    }

    fn open(&self, ui: &Ui) -> Result<(Archive, Option<Found>)> {
        let archive = SelectingArgs::open(&self.archive)?;
        let waiting = ui.spinner("finding");
        let found = self.target.as_ref().map(|text| looking::anything(&archive, text));
        waiting.finish_and_clear();
        let found = found.transpose()?;
        Ok((archive, found))
    }

    /// The picture of a rollout as a file.
    fn picture(&self, file: &Path, ui: &Ui) -> Result<Exit> {
        let looking = self.looking.settle("inspect", ui)?;
        let decoder = self.tokenizer.read()?;
        let (archive, found) = self.open(ui)?;
        let Some(found) = found else {
            return Err(Error::usage("--svg draws one rollout").help("Name it after the archive"));
        };
        ui.start_threads(archive.part_bytes(found.part));
        let decoder = decoder.as_deref();
        let drawn = self.looking.one(&looking, &archive, &found, |view| {
            let mut slots = view.slots();
            let slot = slots.find(|slot| slot.rollout.rollout_id == found.rollout_id);
            slot.map(|slot| rollout_svg(slot, decoder.map(|d| d as _)))
        })?;
        let svg = drawn.ok_or_else(|| {
            Error::format(format!("group {} lost rollout {}", found.group_id, found.rollout_id))
                .help("The archive was changed while it was read; run the command again")
        })?;
        if file.as_os_str() == "-" {
            ui.print(&svg)?;
            return Ok(Exit::Fine);
        }
        write_file(file, self.force, svg.as_bytes())?;
        ui.summary(format!(
            "{}  written: rollout {}",
            ui.tone(Tone::Strong, file.display()),
            visible(found.rollout_id.as_str())
        ))?;
        Ok(Exit::Fine)
    }

    /// The same facts where there is no terminal.
    fn print(&self, ui: &Ui) -> Result<Exit> {
        let looking = &self.looking.settle("inspect", ui)?;
        let decoder = self.tokenizer.read()?;
        let decoder = decoder.as_deref();
        let (archive, found) = self.open(ui)?;
        let policy = looking.selecting.policy.to_string();
        let documents = |view: &View<'_>| -> Vec<show::Document> {
            let wanted = |id: &crate::id::RolloutId| {
                found.as_ref().is_none_or(|found| found.rollout_id == *id)
            };
            let slots = view.slots().filter(|slot| wanted(&slot.rollout.rollout_id));
            slots.map(|slot| show::Document::new(slot, &policy, decoder.map(|d| d as _))).collect()
        };
        let mut all = Vec::new();
        let mut first = true;
        let mut take = |documents: Vec<show::Document>| -> Result<()> {
            for document in documents {
                match ui.format {
                    Format::Human => {
                        let gap = if std::mem::take(&mut first) { "" } else { "\n" };
                        ui.prose(&format!("{gap}{}", document.human(ui)))?;
                    }
                    Format::Jsonl => ui.jsonl(&document)?,
                    Format::Json | Format::Csv => all.push(document),
                }
            }
            Ok(())
        };
        match &found {
            Some(found) => {
                ui.start_threads(archive.part_bytes(found.part));
                take(self.looking.one(looking, &archive, found, documents)?)?;
            }
            None => self.looking.each(looking, &archive, ui, documents, take)?,
        }
        let total = archive.counts().rollouts;
        match ui.format {
            Format::Json => {
                ui.json(&Document { schema_version: 1, total, rollouts: all })?;
            }
            Format::Csv => {
                ui.csv(&show::header_of_many(), all.iter().flat_map(show::Document::csv_rows))?;
            }
            Format::Human if found.is_none() => ui.line(format!(
                "\n{} rollouts in {} prompt groups by {}",
                ui.tone(Tone::Strong, thousands(total)),
                thousands(archive.counts().groups),
                visible(&policy)
            ))?,
            Format::Human | Format::Jsonl => {}
        }
        Ok(Exit::Fine)
    }
}

/// How an archive is called on screen.
fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// How long keys are waited for before replies are looked at.
const TICK: Duration = Duration::from_millis(15);

/// Events that come at once are taken in at once: a pasted text, a key held down.
const AT_ONCE: usize = 256;

/// What happens at the terminal, from a thread of its own: where the terminal goes away without a
/// signal, waiting for it never ends.
fn events() -> std::io::Result<Receiver<std::io::Result<Event>>> {
    let (sender, receiver) = sync_channel(AT_ONCE);
    std::thread::Builder::new().name("events".to_owned()).spawn(move || {
        loop {
            let read = event::read();
            let failed = read.is_err();
            if sender.send(read).is_err() || failed {
                return;
            }
        }
    })?;
    Ok(receiver)
}

/// Whether nobody is at the other end of stdin any more.
fn is_gone() -> bool {
    let stdin = std::io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok()
        && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}

/// Draws, waits for a key or a reply, and again, until the end.
fn converse(
    terminal: &mut Process,
    mut state: State,
    mut worker: Worker,
    theme: Theme,
) -> std::io::Result<()> {
    // Never dropped: it would show the cursor, which comes back with the screen before, and panics
    // where the terminal is gone.
    let mut frames = ManuallyDrop::new(Frames::new(CrosstermBackend::new(std::io::stdout()))?);
    let events = events()?;
    let mut changed = true;
    loop {
        if changed {
            frames.draw(|frame| draw(frame, &mut state, theme))?;
            // What is wanted depends on what was drawn: lines on screen come first.
            worker.want(state.wants());
            changed = false;
        }
        let first = match events.recv_timeout(TICK) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) if is_gone() => {
                return Err(std::io::Error::other("it is gone"));
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(std::io::Error::other("the thread that reads keys has ended"));
            }
        };
        for event in first.into_iter().chain(events.try_iter().take(AT_ONCE)) {
            // A new size is seen when drawing.
            changed = true;
            if let Event::Key(key) = event?
                && key.kind != KeyEventKind::Release
                && let Some(key) = Key::of(&key)
            {
                match state.press(key) {
                    Effect::None => {}
                    Effect::Copy(text) => {
                        terminal.write_all(clipboard(&text).as_bytes())?;
                        terminal.flush()?;
                    }
                    Effect::Quit => return Ok(()),
                }
            }
        }
        for reply in worker.replies() {
            state.take(reply);
            changed = true;
        }
        if worker.has_ended() {
            return Err(std::io::Error::other("the thread that reads the archive has ended"));
        }
    }
}
