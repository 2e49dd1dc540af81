//! What stops a command: I/O, usage, a missing component, or a file that is not what it claims.
//!
//! A broken *rollout* is never one of these; it is a [`crate::finding::Finding`].

use std::fmt;
use std::path::Path;

/// The result of everything that can be stopped.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Which kind of stop, and thereby which exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The call makes no sense as written (exit 2).
    Usage,
    /// Reading or writing failed (exit 2).
    Io,
    /// A file is there, but corrupt, of another format, or of another version (exit 2).
    Format,
    /// A component that the command needs is not installed (exit 2).
    Missing,
    /// The device has less memory than the work takes (exit 2).
    Memory,
    /// Nothing matched; nothing was done (exit 4).
    Nothing,
    /// The reader of our output went away (exit 0).
    BrokenPipe,
}

/// Why a command stopped, and what to do about it.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    help: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), help: None, source: None }
    }

    /// The call makes no sense as written.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// A file is not what it should be.
    pub fn format(message: impl Into<String>) -> Self {
        Self::new(Kind::Format, message)
    }

    /// Something that must be installed is not.
    pub fn missing(message: impl Into<String>) -> Self {
        Self::new(Kind::Missing, message)
    }

    /// The device has less memory than the work takes.
    pub fn memory(message: impl Into<String>) -> Self {
        Self::new(Kind::Memory, message)
    }

    /// Nothing found is not success.
    pub fn nothing(message: impl Into<String>) -> Self {
        Self::new(Kind::Nothing, message)
    }

    /// `doing` is a phrase such as "cannot read"; the path and the system's reason follow.
    pub fn io(doing: &str, path: impl AsRef<Path>, source: std::io::Error) -> Self {
        if source.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::new(Kind::BrokenPipe, "broken pipe");
        }
        let mut error = Self::new(Kind::Io, format!("{doing} {}", path.as_ref().display()));
        error.help = room(source.kind()).map(str::to_owned);
        error.source = Some(Box::new(source));
        error
    }

    /// What to do.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The same stop with what it is about before its message; all else stays.
    pub fn about(mut self, what: impl std::fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// The same stop seen from further out: `message` comes first, then this error as its reason;
    /// kind and advice stay.
    pub fn within(self, message: impl Into<String>) -> Self {
        let (kind, help) = (self.kind, self.help.clone());
        Self { kind, message: message.into(), help, source: Some(Box::new(self)) }
    }

    /// The error underneath.
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Kind of stop.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Advice, if there is any.
    pub fn advice(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

/// What to do when there is no room left.
fn room(kind: std::io::ErrorKind) -> Option<&'static str> {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    Some(match kind {
        StorageFull => "The file system is full. Make room on it, or choose an output on another",
        QuotaExceeded => {
            "Your quota is used up. Make room under it, or choose an output on another file system"
        }
        FileTooLarge => {
            "The file system, or the limit of this shell (ulimit -f), allows no larger file"
        }
        _ => return None,
    })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}
