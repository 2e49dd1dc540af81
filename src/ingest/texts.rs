//! The sources as texts that can be read again, line by line.

use std::borrow::Cow;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;

use super::detect::{self, Found};
use super::lines::{MAX_LINE, Unreadable, is_plain, text};
use crate::archive::{Origin, SourceForm};
use crate::error::{Error, Result};

/// Files that are kept open; others are opened for each line that is read.
const KEPT_OPEN: usize = 256;

/// Where a line lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LineRef {
    /// Index of its source.
    pub source: u32,
    /// Bytes as kept.
    bytes: u32,
    /// One-based line.
    pub number: u64,
    /// Where its bytes begin: in the source, or in the copy of a compressed one.
    offset: u64,
}

impl LineRef {
    /// Bytes that have to be read, about.
    pub fn weight(&self) -> u64 {
        u64::from(self.bytes)
    }
}

/// Where the lines of a source are read again.
#[derive(Debug)]
enum Body {
    /// In the file itself.
    Plain(OnceLock<File>),
    /// In the spill, since a compressed file can only be read in order.
    Spilled,
}

/// All sources, and a temporary file for the lines of compressed ones.
#[derive(Debug)]
pub(super) struct Texts {
    sources: Vec<(Found, Body)>,
    spill: Spill,
}

/// Lines of compressed sources, each compressed by itself.
#[derive(Debug)]
struct Spill {
    file: Option<File>,
    end: u64,
}

impl Texts {
    /// `scratch` is a folder with room for the lines of compressed sources.
    pub fn new(found: Vec<Found>, scratch: &Path) -> Result<Self> {
        let mut sources = Vec::new();
        let mut plain = true;
        for file in found {
            let body = match file.form.is_lines() && !is_plain(&file.path)? {
                true => Body::Spilled,
                false => Body::Plain(OnceLock::new()),
            };
            plain &= matches!(body, Body::Plain(_));
            sources.push((file, body));
        }
        let file = match plain {
            true => None,
            false => Some(
                tempfile::tempfile_in(scratch)
                    .map_err(|e| Error::io("cannot create a temporary file in", scratch, e))?,
            ),
        };
        Ok(Self { sources, spill: Spill { file, end: 0 } })
    }

    /// The sources in order.
    pub fn sources(&self) -> impl Iterator<Item = &Found> {
        self.sources.iter().map(|(found, _)| found)
    }

    /// A source.
    pub fn source(&self, at: u32) -> &Found {
        &self.sources[at as usize].0
    }

    /// Whether the lines of a source must be [kept](Texts::keep) to be read again.
    pub fn is_spilled(&self, at: usize) -> bool {
        matches!(self.sources[at].1, Body::Spilled)
    }

    /// A line of a source that can be read again where it is.
    pub fn at(source: usize, number: u64, offset: u64, bytes: &[u8]) -> LineRef {
        // Sources are far fewer than 2^32, and a line is shorter than MAX_LINE.
        LineRef { source: source as u32, bytes: bytes.len() as u32, number, offset }
    }

    /// Keeps a line of a compressed source.
    pub fn keep(&mut self, source: usize, number: u64, packed: &[u8]) -> Result<LineRef> {
        let offset = self.spill.end;
        if let Some(file) = &mut self.spill.file {
            file.write_all(packed).map_err(|e| {
                Error::io("cannot write a temporary file for", &self.sources[source].0.path, e)
            })?;
        }
        self.spill.end += packed.len() as u64;
        Ok(Self::at(source, number, offset, packed))
    }

    /// A line in the form that [`Texts::keep`] takes.
    pub fn pack(line: &[u8]) -> std::io::Result<Vec<u8>> {
        zstd::bulk::compress(line, 1)
    }

    /// Source and number of a line.
    pub fn origin(&self, line: LineRef) -> Origin {
        Origin { file: self.source(line.source).name.clone(), line: line.number }
    }

    /// Reads a line again.
    ///
    /// # Errors
    ///
    /// A file that is gone, or shorter than it was.
    pub fn read(&self, line: LineRef) -> Result<Result<String, Unreadable>> {
        let mut buffer = Vec::new();
        Ok(self.read_into(line, &mut buffer)?.map(str::to_owned))
    }

    /// The same into the memory of `buffer`, which is for the next line, too.
    pub fn read_into<'b>(
        &self,
        line: LineRef,
        buffer: &'b mut Vec<u8>,
    ) -> Result<Result<&'b str, Unreadable>> {
        let (found, body) = &self.sources[line.source as usize];
        let failed = |e| Error::io("cannot read again", &found.path, e);
        let mut bytes = line.bytes as usize;
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        match body {
            Body::Plain(kept) => {
                let opened;
                let file = match kept.get() {
                    Some(file) => file,
                    None if (line.source as usize) < KEPT_OPEN => {
                        let file = File::open(&found.path).map_err(failed)?;
                        kept.get_or_init(|| file)
                    }
                    None => {
                        opened = File::open(&found.path).map_err(failed)?;
                        &opened
                    }
                };
                file.read_exact_at(&mut buffer[..bytes], line.offset).map_err(failed)?;
            }
            Body::Spilled => {
                let packed = &mut buffer[..bytes];
                if let Some(file) = &self.spill.file {
                    file.read_exact_at(packed, line.offset).map_err(failed)?;
                }
                *buffer = zstd::bulk::decompress(packed, unpacked_len(packed)).map_err(failed)?;
                bytes = buffer.len();
            }
        }
        if found.form == SourceForm::Stream
            && let Ok((_, Cow::Owned(text))) = detect::line(&buffer[..bytes])
        {
            *buffer = text;
            bytes = buffer.len();
        }
        Ok(text(&buffer[..bytes]))
    }
}

fn unpacked_len(packed: &[u8]) -> usize {
    zstd::bulk::Decompressor::upper_bound(packed).unwrap_or(MAX_LINE).min(MAX_LINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_again_where_they_are_or_from_the_spill() {
        let home = tempfile::tempdir().unwrap();
        let lines = ["first", "zweite Zeile é", ""];
        let plain = home.path().join("a.jsonl");
        std::fs::write(&plain, lines.join("\n")).unwrap();
        let packed = home.path().join("b.jsonl.zst");
        std::fs::write(&packed, zstd::encode_all(lines.join("\n").as_bytes(), 1).unwrap()).unwrap();
        let found = |path: &Path| Found {
            name: path.display().to_string(),
            path: path.to_owned(),
            form: SourceForm::Staged,
            bytes: 0,
        };
        let mut texts = Texts::new(vec![found(&plain), found(&packed)], home.path()).unwrap();
        assert!(!texts.is_spilled(0) && texts.is_spilled(1));
        let second = Texts::at(0, 2, 6, lines[1].as_bytes());
        assert_eq!(texts.read(second).unwrap().unwrap(), lines[1]);
        let kept: Vec<_> = lines
            .iter()
            .map(|line| texts.keep(1, 1, &Texts::pack(line.as_bytes()).unwrap()).unwrap())
            .collect();
        for (line, kept) in lines.iter().zip(kept) {
            assert_eq!(texts.read(kept).unwrap().unwrap(), *line);
        }
        std::fs::write(&plain, "gone").unwrap();
        assert!(texts.read(second).is_err());
    }
}
