//! A selector as a process: one JSON line in, one out, with a limit on time and size.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

/// Bytes of a selector's stderr that an error shows.
const SHOWN: usize = 4 << 10;

/// How long a process that ended is waited for to tell its last words.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// What a selector may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time for one rollout.
    pub timeout: Duration,
    /// Bytes of one answer.
    pub answer_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(60), answer_bytes: 64 << 20 }
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// It took longer than it may.
    Timeout(Duration),
    /// It said more than it may.
    TooLong(usize),
    /// It ended, or closed its output.
    Ended(String),
}

impl std::fmt::Display for Silence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Silence::Timeout(limit) => write!(f, "gave no answer within {} s", limit.as_secs_f64()),
            Silence::TooLong(limit) => write!(f, "gave an answer of more than {limit} bytes"),
            Silence::Ended(how) => f.write_str(how),
        }
    }
}

/// A running selector.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    requests: Sender<String>,
    answers: Receiver<std::io::Result<Option<String>>>,
    stderr: Option<Arc<ChildStderr>>,
    words: Arc<Mutex<Vec<u8>>>,
    spoken: Receiver<()>,
    limits: Limits,
}

impl Process {
    /// Starts `command`.
    ///
    /// # Errors
    ///
    /// A program that cannot be started.
    pub fn start(command: &[OsString], limits: Limits) -> std::io::Result<Self> {
        let mut words = command.iter();
        let program = words.next().ok_or(std::io::ErrorKind::InvalidInput)?;
        let mut child = Command::new(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (requests, lines) = channel::<String>();
        if let Some(mut stdin) = child.stdin.take() {
            std::thread::spawn(move || {
                for line in lines {
                    // Whoever does not read is found out by the silence.
                    if stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush()).is_err() {
                        return;
                    }
                }
            });
        }
        let (said, answers) = channel();
        if let Some(stdout) = child.stdout.take() {
            let limit = limits.answer_bytes;
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stdout);
                loop {
                    let answer = read_line(&mut reader, limit);
                    let more = matches!(answer, Ok(Some(_)));
                    if said.send(answer).is_err() || !more {
                        return;
                    }
                }
            });
        }
        let words = Arc::new(Mutex::new(Vec::new()));
        let (told, spoken) = channel();
        let stderr = child.stderr.take().map(Arc::new);
        if let Some(stderr) = stderr.clone() {
            let words = Arc::clone(&words);
            std::thread::spawn(move || {
                while listen(&stderr, &words) {}
                let _ = told.send(());
            });
        }
        Ok(Self { child, requests, answers, stderr, words, spoken, limits })
    }

    /// Sends a line and waits for the answer.
    ///
    /// # Errors
    ///
    /// No answer; the process is of no further use.
    pub fn ask(&mut self, line: String) -> Result<String, Silence> {
        // A process that is gone says so by its silence.
        let _ = self.requests.send(line);
        self.answer()
    }

    /// Waits for the next line.
    ///
    /// # Errors
    ///
    /// As [`Process::ask`].
    pub fn answer(&mut self) -> Result<String, Silence> {
        match self.answers.recv_timeout(self.limits.timeout) {
            Ok(Ok(Some(answer))) => Ok(answer),
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::FileTooLarge => {
                Err(Silence::TooLong(self.limits.answer_bytes))
            }
            Ok(Err(error)) => Err(Silence::Ended(format!("gave an answer that {error}"))),
            Err(RecvTimeoutError::Timeout) => Err(Silence::Timeout(self.limits.timeout)),
            Ok(Ok(None)) | Err(RecvTimeoutError::Disconnected) => {
                let _ = self.spoken.recv_timeout(LAST_WORDS);
                Err(Silence::Ended(match self.child.try_wait() {
                    Ok(Some(status)) => format!("ended ({status}) without an answer"),
                    _ => "closed its output without an answer".to_owned(),
                }))
            }
        }
    }

    /// The last of what it wrote to stderr until now.
    pub fn words(&self) -> String {
        let begun = Instant::now();
        loop {
            let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
            let unread =
                self.stderr.as_ref().and_then(|pipe| rustix::io::ioctl_fionread(pipe).ok());
            if unread.is_none_or(|bytes| bytes == 0) || begun.elapsed() > LAST_WORDS {
                return String::from_utf8_lossy(&words).trim().to_owned();
            }
            drop(words);
            std::thread::yield_now();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended already is no failure.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Keeps the last of what comes next; false at the end. What has left the pipe is always in
/// `words`, for whoever holds the lock.
fn listen(pipe: &ChildStderr, words: &Mutex<Vec<u8>>) -> bool {
    let mut ready = [PollFd::new(pipe, PollFlags::IN)];
    match poll(&mut ready, None) {
        Ok(_) => {}
        Err(rustix::io::Errno::INTR) => return true,
        Err(_) => return false,
    }
    let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
    let mut bytes = [0; 4096];
    match rustix::io::read(pipe, &mut bytes) {
        Ok(read @ 1..) => {
            words.extend_from_slice(&bytes[..read]);
            let surplus = words.len().saturating_sub(SHOWN);
            words.drain(..surplus);
            true
        }
        Err(error) => error == rustix::io::Errno::INTR,
        Ok(_) => false,
    }
}

/// The next line; `None` at the end.
fn read_line(reader: &mut impl BufRead, limit: usize) -> std::io::Result<Option<String>> {
    let mut line = Vec::new();
    let read = reader.by_ref().take(limit as u64 + 1).read_until(b'\n', &mut line)?;
    match read {
        0 => Ok(None),
        _ if line.len() > limit => Err(std::io::ErrorKind::FileTooLarge.into()),
        _ => String::from_utf8(line)
            .map(Some)
            .map_err(|_| std::io::Error::new(std::io::ErrorKind::InvalidData, "is not UTF-8")),
    }
}
