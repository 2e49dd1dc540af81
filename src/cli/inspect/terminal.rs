//! The terminal as one finds it again, whatever happens in between: an end, an error, a panic, a
//! signal.

use std::cell::Cell;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::queue;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

/// A place that escape sequences are written to, and whose keys can be read one by one.
pub trait Terminal: Write {
    /// Whether keys come one by one, unseen, and none of them is a signal.
    ///
    /// # Errors
    ///
    /// The terminal refuses.
    fn raw(&mut self, on: bool) -> io::Result<()>;
}

/// The terminal of this process.
#[derive(Debug)]
pub struct Process(io::Stdout);

impl Default for Process {
    fn default() -> Self {
        Self(io::stdout())
    }
}

impl Write for Process {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Terminal for Process {
    fn raw(&mut self, on: bool) -> io::Result<()> {
        match on {
            true => enable_raw_mode(),
            false => disable_raw_mode(),
        }
    }
}

/// Whether the terminal of this process is taken.
static TAKEN: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// What a panic said on the thread that draws.
    static SAID: Cell<Option<String>> = const { Cell::new(None) };
    static DRAWS: Cell<bool> = const { Cell::new(false) };
}

/// Does `work` on a screen of its own. The screen before, its cursor, and the way its keys are read
/// are there again afterwards, after a panic in `work` too, which then goes on. While `work` is
/// done, no panic is printed over the screen: that of this thread is told afterwards.
///
/// # Errors
///
/// A terminal that cannot be taken.
pub fn on_own_screen<T, R>(terminal: &mut T, work: impl FnOnce(&mut T) -> R) -> io::Result<R>
where
    T: Terminal,
{
    terminal.raw(true)?;
    TAKEN.store(true, Ordering::SeqCst);
    let entered = queue!(terminal, EnterAlternateScreen, Hide);
    let entered = entered.and_then(|()| terminal.flush());
    let done = entered.map(|()| {
        DRAWS.set(true);
        let loud = hush();
        let done = catch_unwind(AssertUnwindSafe(|| work(terminal)));
        DRAWS.set(false);
        std::panic::set_hook(loud);
        done
    });
    // A signal may have given it back already.
    if TAKEN.swap(false, Ordering::SeqCst) {
        give_back(terminal);
    }
    done?.map_or_else(
        |panic| {
            if let Some(said) = SAID.take() {
                // Best effort: stderr may be closed.
                let _ = writeln!(io::stderr().lock(), "{said}");
            }
            resume_unwind(panic)
        },
        Ok,
    )
}

/// Gives the terminal of this process back if it is taken: for a signal that ends the process.
pub fn give_back_if_taken() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        give_back(&mut Process::default());
    }
}

fn give_back(terminal: &mut impl Terminal) {
    // Best effort: a terminal that is gone needs nothing.
    let _ = queue!(terminal, LeaveAlternateScreen, Show);
    let _ = terminal.flush();
    let _ = terminal.raw(false);
}

type Hook = Box<dyn Fn(&std::panic::PanicHookInfo<'_>) + Sync + Send>;

/// Keeps panics from the screen; returns the hook that was there.
fn hush() -> Hook {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(|info| {
        if DRAWS.get() {
            SAID.set(Some(info.to_string()));
        }
    }));
    loud
}

/// The sequence that asks a terminal to put `text` into the clipboard (OSC 52).
pub fn clipboard(text: &str) -> String {
    format!("\x1b]52;c;{}\x07", STANDARD.encode(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps what is written and done, in order.
    #[derive(Default)]
    struct Recorder(Vec<u8>);

    impl Write for Recorder {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Terminal for Recorder {
        fn raw(&mut self, on: bool) -> io::Result<()> {
            self.0.extend_from_slice(if on { b"<raw>" } else { b"<cooked>" });
            Ok(())
        }
    }

    impl Recorder {
        fn text(&self) -> String {
            String::from_utf8_lossy(&self.0).replace('\x1b', "^")
        }
    }

    const BEFORE: &str = "<raw>^[?1049h^[?25l";
    const AFTER: &str = "^[?1049l^[?25h<cooked>";

    #[test]
    fn the_terminal_is_given_back_at_the_end_and_after_a_panic() {
        let mut recorder = Recorder::default();
        let done = on_own_screen(&mut recorder, |recorder| {
            recorder.0.extend_from_slice(b"drawn");
            7
        });
        assert_eq!(done.unwrap(), 7);
        assert_eq!(recorder.text(), format!("{BEFORE}drawn{AFTER}"));

        let mut recorder = Recorder::default();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            on_own_screen(&mut recorder, |recorder| {
                recorder.0.extend_from_slice(b"drawn");
                panic!("in the middle");
            })
        }));
        let panic = panicked.unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"in the middle"));
        assert_eq!(recorder.text(), format!("{BEFORE}drawn{AFTER}"));
        assert!(!TAKEN.load(Ordering::SeqCst));
    }

    #[test]
    fn what_is_copied_cannot_end_the_sequence() {
        assert_eq!(clipboard("a\x07\x1b"), "\x1b]52;c;YQcb\x07");
    }
}
