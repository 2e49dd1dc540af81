//! Lines of a plain, gzip or zstd file, whole blocks of them at a time and never more than a
//! bounded one.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

use crate::error::{Error, Result};
use crate::finding::Code;

/// Longest line that is read, in bytes after decompression. A record of 100,000 tokens with
/// expert routes of 48 layers stays below half of it.
pub const MAX_LINE: usize = 128 << 20;

/// Bytes that are read at a time; few enough to stay in a cache.
const BLOCK: usize = 1 << 20;

/// Bytes after which a block ends, however many lines are wanted in one.
const ENOUGH: usize = 16 << 20;

/// Some editors begin a UTF-8 file with it; it is no part of the first line.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// A line that is not text, or the point where a file could not be read on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Stable code.
    pub code: Code,
    /// What was found and what was expected.
    pub message: String,
}

/// Whole lines of a file, in order.
#[derive(Debug, Default)]
pub struct Block {
    /// The bytes of the lines, with their line breaks.
    pub bytes: Vec<u8>,
    /// Where they begin in the decompressed file.
    pub offset: u64,
    /// One-based number of the first line.
    pub first_line: u64,
    /// Why the line after these, or all that follows, is not there.
    pub broken: Option<(u64, Unreadable)>,
    /// Where the lines end, but for a last one without a line break.
    breaks: Vec<usize>,
}

/// One line of a block without its line break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// One-based.
    pub number: u64,
    /// Where it begins in the decompressed file.
    pub offset: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl Block {
    /// The lines that are not blank.
    pub fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        let mut start = 0;
        let ends = self.breaks.iter().copied().chain([self.bytes.len()]);
        let lines = (self.first_line..).zip(ends).map(move |(number, end)| {
            let bytes = self.bytes.get(start..end).unwrap_or_default();
            let mut line = Line {
                number,
                offset: self.offset + start as u64,
                bytes: bytes.strip_suffix(b"\r").unwrap_or(bytes),
            };
            start = end + 1;
            if line.offset == 0
                && let Some(text) = line.bytes.strip_prefix(BYTE_ORDER_MARK)
            {
                line.bytes = text;
                line.offset = BYTE_ORDER_MARK.len() as u64;
            }
            line
        });
        lines.filter(|line| !line.bytes.trim_ascii().is_empty())
    }
}

/// The text of a line.
pub fn text(bytes: &[u8]) -> Result<&str, Unreadable> {
    std::str::from_utf8(bytes).map_err(|e| Unreadable {
        code: Code::MalformedJson,
        message: format!("byte {} of the line is not UTF-8", e.valid_up_to()),
    })
}

/// Reads the blocks of a file in order.
pub struct Blocks {
    inner: Box<dyn Read + Send>,
    block: usize,
    limit: usize,
    multiple: usize,
    /// Bytes that are in no block yet.
    rest: Vec<u8>,
    /// Where these have line breaks.
    breaks: Vec<usize>,
    /// Memory of a block that is done with.
    spare: Vec<u8>,
    /// Where `rest` begins, and its line.
    offset: u64,
    line: u64,
    ended: bool,
}

impl Blocks {
    /// Opens `path`; the first bytes, not the name, tell how it is compressed.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self::new(decompressed(path)?, BLOCK, MAX_LINE))
    }

    fn new(inner: Box<dyn Read + Send>, block: usize, limit: usize) -> Self {
        Self {
            inner,
            block,
            limit,
            multiple: 1,
            rest: Vec::new(),
            breaks: Vec::new(),
            spare: Vec::new(),
            offset: 0,
            line: 1,
            ended: false,
        }
    }

    /// Gives blocks of so many lines, or a multiple of it, where that does not take too much
    /// memory.
    pub fn multiples_of(self, lines: usize) -> Self {
        Self { multiple: lines.max(1), ..self }
    }

    /// Takes back the memory of a block for the next one.
    pub fn reuse(&mut self, block: Block) {
        self.spare = block.bytes;
    }

    /// Takes the first `end` bytes of `rest`, which have `count` line breaks.
    fn take(&mut self, count: usize, end: usize) -> Block {
        let mut rest = std::mem::take(&mut self.spare);
        rest.clear();
        // The next block is going to be about as large.
        rest.reserve(end + self.block);
        rest.extend_from_slice(&self.rest[end..]);
        let mut bytes = std::mem::replace(&mut self.rest, rest);
        bytes.truncate(end);
        let behind = self.breaks.split_off(count);
        let breaks = std::mem::replace(&mut self.breaks, behind);
        self.breaks.iter_mut().for_each(|at| *at -= end);
        let (offset, first_line) = (self.offset, self.line);
        self.offset += end as u64;
        self.line += count as u64;
        Block { bytes, offset, first_line, broken: None, breaks }
    }

    /// Takes the first `count` lines.
    fn take_lines(&mut self, count: usize) -> Block {
        let end = count.checked_sub(1).and_then(|last| self.breaks.get(last));
        self.take(count, end.map_or(0, |at| at + 1))
    }

    /// Reads up to one block more into `rest`; true at the end of the file.
    fn fill(&mut self) -> std::io::Result<bool> {
        let before = self.rest.len();
        self.rest.reserve(self.block);
        let read = self.inner.by_ref().take(self.block as u64).read_to_end(&mut self.rest);
        let new = memchr::memchr_iter(b'\n', &self.rest[before..]);
        self.breaks.extend(new.map(|at| before + at));
        Ok(read? < self.block)
    }

    /// Passes over a line that is too long, whose beginning is `rest`.
    fn skip_line(&mut self) -> std::io::Result<bool> {
        loop {
            if !self.breaks.is_empty() {
                self.take_lines(1);
                return Ok(false);
            }
            self.offset += self.rest.len() as u64;
            self.rest.clear();
            if self.fill()? && self.rest.is_empty() {
                self.line += 1;
                return Ok(true);
            }
        }
    }
}

impl Iterator for Blocks {
    type Item = Block;

    fn next(&mut self) -> Option<Block> {
        if self.ended {
            return None;
        }
        loop {
            let ended = match self.fill() {
                Ok(ended) => ended,
                Err(error) => {
                    self.ended = true;
                    let mut block = self.take_lines(self.breaks.len());
                    let message = format!("the file cannot be read beyond this line: {error}");
                    let broken = Unreadable { code: Code::UnreadableSource, message };
                    block.broken = Some((self.line, broken));
                    return Some(block);
                }
            };
            if *self.breaks.first().unwrap_or(&self.rest.len()) > self.limit {
                let mut block = self.take(0, 0);
                let message = format!("the line is longer than {} bytes", self.limit);
                block.broken = Some((self.line, Unreadable { code: Code::LineTooLong, message }));
                match self.skip_line() {
                    Ok(ended) => self.ended = ended,
                    // The next read meets the same failure.
                    Err(_) => {
                        self.rest.clear();
                        self.breaks.clear();
                    }
                }
                return Some(block);
            }
            let whole = self.breaks.len();
            let count = match ended || self.rest.len() >= ENOUGH {
                true => whole,
                false => whole - whole % self.multiple,
            };
            if count > 0 {
                let block = self.take_lines(count);
                self.ended = ended && self.rest.is_empty();
                return Some(block);
            }
            if ended {
                self.ended = true;
                return (!self.rest.is_empty()).then(|| self.take(0, self.rest.len()));
            }
        }
    }
}

/// The whole text of a file that holds one JSON document over any number of lines.
pub fn document(path: &Path) -> Result<Result<String, Unreadable>> {
    let malformed = |_| Unreadable {
        code: Code::MalformedJson,
        message: "the document is not UTF-8".to_owned(),
    };
    let bytes = whole(path, MAX_LINE)?;
    Ok(bytes.and_then(|bytes| String::from_utf8(bytes).map_err(malformed)))
}

/// Whether a file holds anything but white space.
pub fn has_content(path: &Path) -> Result<bool> {
    let mut inner = decompressed(path)?;
    let mut bytes = [0; 4096];
    loop {
        match inner.read(&mut bytes) {
            Ok(0) => return Ok(false),
            Ok(read) if bytes[..read].trim_ascii().is_empty() => {}
            // What cannot be read is for whoever reads it to say.
            Ok(_) | Err(_) => return Ok(true),
        }
    }
}

/// All bytes of a file, decompressed, if they are no more than `limit`.
pub fn whole(path: &Path, limit: usize) -> Result<Result<Vec<u8>, Unreadable>> {
    let stored = std::fs::metadata(path).map_or(0, |meta| meta.len());
    // One byte more, so that a plain file is read without growing.
    let mut bytes = Vec::with_capacity((stored as usize).min(limit).saturating_add(1));
    let unreadable = |message| Ok(Err(Unreadable { code: Code::UnreadableSource, message }));
    match decompressed(path)?.take(limit as u64 + 1).read_to_end(&mut bytes) {
        Err(error) => unreadable(format!("the file cannot be read: {error}")),
        Ok(_) if bytes.len() > limit => unreadable(format!("it holds more than {limit} bytes")),
        Ok(_) => Ok(Ok(bytes)),
    }
}

/// Whether the bytes of a file are those of its lines.
pub fn is_plain(path: &Path) -> Result<bool> {
    Ok(open(path)?.1 == Compression::None)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Zstd,
}

fn open(path: &Path) -> Result<(File, Compression)> {
    let failed = |e| Error::io("cannot read", path, e);
    let mut file = File::open(path).map_err(failed)?;
    let mut magic = Vec::new();
    file.by_ref().take(4).read_to_end(&mut magic).map_err(failed)?;
    file.rewind().map_err(failed)?;
    let compression = match magic.as_slice() {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd] => Compression::Zstd,
        _ => Compression::None,
    };
    Ok((file, compression))
}

fn decompressed(path: &Path) -> Result<Box<dyn Read + Send>> {
    let (file, compression) = open(path)?;
    Ok(match compression {
        Compression::Gzip => Box::new(flate2::read::MultiGzDecoder::new(BufReader::new(file))),
        Compression::Zstd => {
            Box::new(zstd::Decoder::new(file).map_err(|e| Error::io("cannot read", path, e))?)
        }
        Compression::None => Box::new(file),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    type Found = Vec<(u64, Result<String, Code>)>;

    fn lines(bytes: &[u8], block: usize, limit: usize) -> Found {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let mut found = Vec::new();
        for block in Blocks::new(decompressed(file.path()).unwrap(), block, limit) {
            for line in block.lines() {
                let text = text(line.bytes).map(str::to_owned).map_err(|e| e.code);
                found.push((line.number, text));
            }
            found.extend(block.broken.map(|(line, why)| (line, Err(why.code))));
        }
        found
    }

    #[test]
    fn compressed_or_not_the_lines_are_the_same_for_any_block() {
        let text = b"\xEF\xBB\xBFone\n\n  \ntwo\r\nthree";
        let expected = vec![(1, Ok("one".into())), (4, Ok("two".into())), (5, Ok("three".into()))];
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        gz.write_all(text).unwrap();
        let zst = zstd::encode_all(text.as_slice(), 3).unwrap();
        for bytes in [text.to_vec(), gz.finish().unwrap(), zst] {
            for block in [1, 2, 3, 7, 100] {
                assert_eq!(lines(&bytes, block, 100), expected, "{block}");
            }
        }
    }

    #[test]
    fn blocks_have_as_many_lines_as_are_wanted() {
        let text: String = (0..103).map(|line| format!("{line:04}\n")).collect();
        for block in [3, 60, 333, 10_000] {
            for multiple in [1, 7, 16] {
                let inner = Box::new(std::io::Cursor::new(text.clone()));
                let blocks: Vec<_> =
                    Blocks::new(inner, block, 100).multiples_of(multiple).collect();
                let counts: Vec<_> = blocks.iter().map(|block| block.lines().count()).collect();
                let (_, before) = counts.split_last().unwrap();
                assert!(before.iter().all(|count| count % multiple == 0), "{counts:?}");
                let again: Vec<u8> = blocks.iter().flat_map(|block| block.bytes.clone()).collect();
                assert_eq!(again, text.as_bytes());
                let numbers = blocks.iter().flat_map(|block| block.lines().map(|line| line.number));
                assert!(numbers.eq(1..=103));
            }
        }
    }

    #[test]
    fn lines_are_where_they_say() {
        let text = b"\xEF\xBB\xBFfirst\nsecond\r\n\nfourth and last";
        for block in [1, 5, 100] {
            let inner = Box::new(&text[..]);
            for block in Blocks::new(inner, block, 100) {
                for line in block.lines() {
                    let at = line.offset as usize;
                    assert_eq!(&text[at..at + line.bytes.len()], line.bytes);
                }
            }
        }
    }

    #[test]
    fn long_lines_and_broken_bytes_are_named_and_passed_over() {
        let text = [&b"x".repeat(20)[..], b"\nok\n\xff\nend of it."].concat();
        for block in [1, 4, 10] {
            assert_eq!(
                lines(&text, block, 10),
                [
                    (1, Err(Code::LineTooLong)),
                    (2, Ok("ok".into())),
                    (3, Err(Code::MalformedJson)),
                    (4, Ok("end of it.".into())),
                ],
                "{block}"
            );
        }
    }

    #[test]
    fn a_cut_archive_gives_its_whole_lines_and_says_where_it_ends() {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        let text: String = (0..20_000).map(|i| format!("line {i}\n")).collect();
        gz.write_all(text.as_bytes()).unwrap();
        let whole = gz.finish().unwrap();
        let found = lines(&whole[..whole.len() / 2], 1000, 100);
        let (last, before) = found.split_last().unwrap();
        assert_eq!(last.1, Err(Code::UnreadableSource));
        assert!(before.len() > 1000 && before.iter().all(|(_, line)| line.is_ok()));
        assert_eq!(last.0, before.len() as u64 + 1);
    }

    #[test]
    fn a_bomb_is_one_long_line() {
        let zst = zstd::encode_all(std::io::repeat(b'[').take(64 << 20), 1).unwrap();
        assert!(zst.len() < 100_000);
        assert_eq!(lines(&zst, 1 << 18, 1 << 20), [(1, Err(Code::LineTooLong))]);
    }
}
