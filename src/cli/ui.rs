//! Talking to people: stdout is data, stderr is talk; colour, progress and formats live here.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::error::{Error, Result};
pub use crate::report::thousands;
use crate::report::visible;

/// How results are printed on stdout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For reading; not stable.
    #[default]
    Human,
    /// One versioned JSON document.
    Json,
    /// One JSON object per item and line.
    Jsonl,
    /// A table with a header line.
    Csv,
}

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The conversation of one invocation.
#[derive(Clone, Debug)]
pub struct Ui {
    /// Format of stdout.
    pub format: Format,
    /// Whether stdout is a terminal.
    pub terminal: bool,
    color_out: bool,
    color_err: bool,
    progress: bool,
    quiet: bool,
    jobs: u16,
    aside: bool,
}

/// Bytes of stored work that are worth a thread of their own: less is done before it has started.
const BYTES_A_THREAD: u64 = 128 << 10;

/// Emphasis for human output; plain where there is no colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Identifiers and headings.
    Strong,
    /// Secondary text.
    Dim,
    /// Fine.
    Good,
    /// Warnings, masked.
    Warn,
    /// Errors, dropped.
    Bad,
}

impl Ui {
    /// Settles format, colour, progress and threads from the flags and the environment.
    pub fn new(format: Format, color: ColorChoice, quiet: bool, jobs: u16) -> Self {
        let wanted = |terminal: bool| match color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                let unwanted = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
                    || std::env::var_os("TERM").is_some_and(|v| v == "dumb");
                terminal && !unwanted
            }
        };
        let err_terminal = std::io::stderr().is_terminal();
        Self {
            format,
            terminal: std::io::stdout().is_terminal(),
            color_out: wanted(std::io::stdout().is_terminal()),
            color_err: wanted(err_terminal),
            progress: err_terminal && !quiet,
            quiet,
            jobs,
            aside: false,
        }
    }

    /// Starts the worker threads that were asked for, or fewer where there is little to do: on a
    /// machine of many cores they would take longer to start than a small archive takes to read.
    pub fn start_threads(&self, bytes: u64) {
        let most = match self.jobs {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            jobs => jobs.into(),
        };
        let useful = usize::try_from(bytes / BYTES_A_THREAD).unwrap_or(usize::MAX);
        // A pool already built is a test's; the order of results never depends on it.
        let threads = most.min(useful.saturating_add(1));
        let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    }

    /// Whether stdout has colours.
    pub fn has_color(&self) -> bool {
        self.color_out
    }

    /// The same conversation with stderr in the place of stdout, which is taken.
    pub fn aside(&self) -> Self {
        Self { color_out: self.color_err, aside: true, ..self.clone() }
    }

    /// `text` in a tone, for stdout.
    pub fn tone(&self, tone: Tone, text: impl std::fmt::Display) -> String {
        paint(self.color_out, tone, text)
    }

    /// `text` in a tone, for stderr.
    pub fn tone_err(&self, tone: Tone, text: impl std::fmt::Display) -> String {
        paint(self.color_err, tone, text)
    }

    /// Writes text to stdout as it is.
    pub fn print(&self, text: impl AsRef<str>) -> Result<()> {
        let (mut out, name): (Box<dyn Write>, _) = match self.aside {
            false => (Box::new(std::io::stdout().lock()), "stdout"),
            true => (Box::new(std::io::stderr().lock()), "stderr"),
        };
        out.write_all(text.as_ref().as_bytes())
            .and_then(|()| out.flush())
            .map_err(|e| Error::io("cannot write to", Path::new(name), e))
    }

    /// Tells people what a command did. Not the result that was asked for, so quiet leaves it out.
    pub fn summary(&self, text: impl AsRef<str>) -> Result<()> {
        if self.quiet { Ok(()) } else { self.line(text) }
    }

    /// Writes one line to stdout.
    pub fn line(&self, text: impl AsRef<str>) -> Result<()> {
        self.print(format!("{}\n", text.as_ref()))
    }

    /// Prints one JSON document (pretty) for `--format json`.
    pub fn json(&self, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|e| Error::format("cannot write JSON").because(e))?;
        self.line(text)
    }

    /// Prints one compact JSON line for `--format jsonl`.
    pub fn jsonl(&self, value: &impl Serialize) -> Result<()> {
        self.jsonl_all([value])
    }

    /// Prints compact JSON lines in one go.
    pub fn jsonl_all(&self, values: impl IntoIterator<Item = impl Serialize>) -> Result<()> {
        let mut text = Vec::new();
        for value in values {
            serde_json::to_writer(&mut text, &value)
                .map_err(|e| Error::format("cannot write JSON").because(e))?;
            text.push(b'\n');
        }
        self.print(String::from_utf8_lossy(&text))
    }

    /// Prints a CSV table.
    pub fn csv(&self, header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Result<()> {
        let failed = |e: csv::Error| Error::format("cannot write CSV").because(e);
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(header).map_err(failed)?;
        for row in rows {
            writer.write_record(row).map_err(failed)?;
        }
        let bytes = writer.into_inner().map_err(|e| failed(e.into_error().into()))?;
        self.print(String::from_utf8_lossy(&bytes))
    }

    /// Prints a table for people: aligned, and never wrapped, so that it can be piped.
    pub fn table(
        &self,
        header: &[&str],
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Result<()> {
        self.print(self.tabulated(header, rows))
    }

    /// The text of [`Ui::table`].
    pub fn tabulated(
        &self,
        header: &[&str],
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(header);
        let mut numeric = vec![true; header.len()];
        for row in rows {
            for (numeric, cell) in numeric.iter_mut().zip(&row) {
                *numeric &= is_number(cell);
            }
            table.add_row(row.iter().map(|cell| visible(cell)));
        }
        let right = numeric.iter().map(|&numeric| numeric && !table.is_empty());
        let right: Vec<bool> = right.collect();
        for (column, right) in table.column_iter_mut().zip(right) {
            if right {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let mut text = String::new();
        for (at, line) in table.lines().enumerate() {
            let line = format!(" {}", line.trim_end());
            text += &if at == 0 { self.tone(Tone::Dim, line) } else { line };
            text.push('\n');
        }
        text
    }

    /// Says something on stderr, unless quiet.
    pub fn say(&self, text: impl std::fmt::Display) {
        if !self.quiet {
            self.complain(&text.to_string());
        }
    }

    /// Says on stderr what cannot be left unsaid, wrapped at words when that is a terminal.
    pub fn complain(&self, text: &str) {
        let text = wrapped(text, terminal_size_of(std::io::stderr()));
        // Talk is best effort: a closed stderr must not fail the work.
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    /// Writes prose to stdout, wrapped at words when that is a terminal.
    pub fn prose(&self, text: &str) -> Result<()> {
        let width = match self.aside {
            false => terminal_size_of(std::io::stdout()),
            true => terminal_size_of(std::io::stderr()),
        };
        self.print(wrapped(text, width))
    }

    /// A bar on stderr for `total` steps, invisible unless stderr is a terminal.
    pub fn progress(&self, label: &'static str, total: u64) -> ProgressBar {
        self.bar(label, total, "{msg:>12} [{bar:30}] {human_pos}/{human_len} {eta}")
    }

    /// A bar on stderr for `total` bytes, invisible unless stderr is a terminal.
    pub fn progress_of_bytes(&self, label: &'static str, total: u64) -> ProgressBar {
        let template = "{msg:>12} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        self.bar(label, total, template)
    }

    /// A bar on stderr for bytes, as many as `total` if that is known.
    pub fn bytes(&self, label: &'static str, total: Option<u64>) -> ProgressBar {
        if !self.progress {
            return ProgressBar::hidden();
        }
        let template = match total {
            Some(_) => "{msg:>9} {wide_bar} {bytes}/{total_bytes}  {bytes_per_sec}  {eta}",
            None => "{msg:>9} {spinner} {bytes}  {bytes_per_sec}",
        };
        let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new).with_message(label);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        bar
    }

    /// A spinner on stderr for work of unknown length.
    pub fn spinner(&self, label: &'static str) -> ProgressBar {
        if !self.progress {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::new_spinner().with_message(label);
        bar.enable_steady_tick(Duration::from_millis(120));
        bar
    }

    fn bar(&self, label: &'static str, total: u64, template: &str) -> ProgressBar {
        if !self.progress {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template(template)
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> ");
        ProgressBar::new(total).with_style(style).with_message(label)
    }
}

/// Columns of a terminal; `None` when `stream` is none.
fn terminal_size_of(stream: impl std::os::fd::AsFd) -> Option<usize> {
    terminal_size::terminal_size_of(stream).map(|(width, _)| width.0.into())
}

/// Wraps every line at words, what follows indented by two more; as it is without a width, so
/// that piped text keeps one line per statement.
fn wrapped(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    let wrap = |line: &str| {
        let indent = " ".repeat(2 + line.len() - line.trim_start().len());
        let options = textwrap::Options::new(width).subsequent_indent(&indent).break_words(false);
        textwrap::wrap(line, options).join("\n")
    };
    let lines: Vec<String> = text.split('\n').map(wrap).collect();
    lines.join("\n")
}

fn is_number(cell: &str) -> bool {
    !cell.is_empty() && (cell == "-" || cell.replace(',', "").parse::<f64>().is_ok())
}

fn paint(color: bool, tone: Tone, text: impl std::fmt::Display) -> String {
    use anstyle::{AnsiColor, Style};
    if !color {
        return text.to_string();
    }
    let style = match tone {
        Tone::Strong => Style::new().bold(),
        Tone::Dim => Style::new().dimmed(),
        Tone::Good => AnsiColor::Green.on_default(),
        Tone::Warn => AnsiColor::Yellow.on_default(),
        Tone::Bad => AnsiColor::Red.on_default().bold(),
    };
    format!("{style}{text}{style:#}")
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn prose_wraps_at_words_on_a_terminal_and_nowhere_else() {
        let text = "error[x] one two three four\n  at a/long/path/that/stays/whole\n";
        assert_eq!(wrapped(text, None), text);
        assert_eq!(
            wrapped(text, Some(18)),
            "error[x] one two\n  three four\n  at\n    a/long/path/that/stays/whole\n"
        );
    }
}
