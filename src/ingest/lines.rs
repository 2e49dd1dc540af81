//! Lines of a plain, gzip or zstd file, one at a time and never more than a bounded one.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::Path;

use crate::error::{Error, Result};
use crate::finding::Code;

/// Longest line that is read, in bytes after decompression. A record of 100,000 tokens with
/// expert routes of 48 layers stays below half of it.
pub const MAX_LINE: usize = 128 << 20;

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

/// Reads lines in order, counting from one and skipping blank ones.
pub struct Lines {
    inner: Box<dyn BufRead + Send>,
    limit: usize,
    number: u64,
    ended: bool,
}

impl Lines {
    /// Opens `path`; the first bytes, not the name, tell how it is compressed.
    pub fn open(path: &Path) -> Result<Self> {
        Self::with_limit(path, MAX_LINE)
    }

    fn with_limit(path: &Path, limit: usize) -> Result<Self> {
        let inner = decompressed(path)?;
        Ok(Self { inner, limit, number: 0, ended: false })
    }

    fn read(&mut self) -> std::io::Result<Option<Result<String, Unreadable>>> {
        let mut bytes = Vec::new();
        let limit = self.limit as u64 + 1;
        let read = self.inner.by_ref().take(limit).read_until(b'\n', &mut bytes)?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
            if bytes.last() == Some(&b'\r') {
                bytes.pop();
            }
        } else if bytes.len() > self.limit {
            self.skip_to_line_end()?;
            return Ok(Some(Err(Unreadable {
                code: Code::LineTooLong,
                message: format!("the line is longer than {} bytes", self.limit),
            })));
        }
        if self.number == 1 && bytes.starts_with(BYTE_ORDER_MARK) {
            bytes.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(Some(String::from_utf8(bytes).map_err(|e| Unreadable {
            code: Code::MalformedJson,
            message: format!("byte {} of the line is not UTF-8", e.utf8_error().valid_up_to()),
        })))
    }

    fn skip_to_line_end(&mut self) -> std::io::Result<()> {
        loop {
            let buffer = self.inner.fill_buf()?;
            if buffer.is_empty() {
                return Ok(());
            }
            let end = buffer.iter().position(|&b| b == b'\n');
            let used = end.map_or(buffer.len(), |at| at + 1);
            self.inner.consume(used);
            if end.is_some() {
                return Ok(());
            }
        }
    }
}

impl Iterator for Lines {
    type Item = (u64, Result<String, Unreadable>);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            match self.read() {
                Ok(Some(Ok(text))) if text.trim().is_empty() => {}
                Ok(Some(line)) => return Some((self.number, line)),
                Ok(None) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    let message = format!("the file cannot be read beyond this line: {error}");
                    let broken = Unreadable { code: Code::UnreadableSource, message };
                    return Some((self.number + 1, Err(broken)));
                }
            }
        }
        None
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

/// All bytes of a file, decompressed, if they are no more than `limit`.
pub fn whole(path: &Path, limit: usize) -> Result<Result<Vec<u8>, Unreadable>> {
    let mut bytes = Vec::new();
    let unreadable = |message| Ok(Err(Unreadable { code: Code::UnreadableSource, message }));
    match decompressed(path)?.take(limit as u64 + 1).read_to_end(&mut bytes) {
        Err(error) => unreadable(format!("the file cannot be read: {error}")),
        Ok(_) if bytes.len() > limit => unreadable(format!("it holds more than {limit} bytes")),
        Ok(_) => Ok(Ok(bytes)),
    }
}

fn decompressed(path: &Path) -> Result<Box<dyn BufRead + Send>> {
    let failed = |e| Error::io("cannot read", path, e);
    let mut file = File::open(path).map_err(failed)?;
    let mut magic = Vec::new();
    file.by_ref().take(4).read_to_end(&mut magic).map_err(failed)?;
    file.rewind().map_err(failed)?;
    Ok(match magic.as_slice() {
        [0x1f, 0x8b, ..] => {
            Box::new(BufReader::new(flate2::read::MultiGzDecoder::new(BufReader::new(file))))
        }
        [0x28, 0xb5, 0x2f, 0xfd] => {
            Box::new(BufReader::new(zstd::Decoder::new(file).map_err(failed)?))
        }
        _ => Box::new(BufReader::with_capacity(1 << 16, file)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn lines(bytes: &[u8], limit: usize) -> Vec<(u64, Result<String, Code>)> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        Lines::with_limit(file.path(), limit)
            .unwrap()
            .map(|(n, line)| (n, line.map_err(|e| e.code)))
            .collect()
    }

    #[test]
    fn compressed_or_not_the_lines_are_the_same() {
        let text = b"one\n\n  \ntwo\r\nthree";
        let expected = vec![(1, Ok("one".into())), (4, Ok("two".into())), (5, Ok("three".into()))];
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        gz.write_all(text).unwrap();
        let zst = zstd::encode_all(text.as_slice(), 3).unwrap();
        for bytes in [text.to_vec(), gz.finish().unwrap(), zst] {
            assert_eq!(lines(&bytes, 100), expected);
        }
    }

    #[test]
    fn long_lines_and_broken_bytes_are_named_and_passed_over() {
        let text = [&b"x".repeat(20)[..], b"\nok\n\xff\nend of it."].concat();
        let found = lines(&text, 10);
        assert_eq!(
            found,
            [
                (1, Err(Code::LineTooLong)),
                (2, Ok("ok".into())),
                (3, Err(Code::MalformedJson)),
                (4, Ok("end of it.".into())),
            ]
        );
    }

    #[test]
    fn a_cut_archive_gives_its_whole_lines_and_says_where_it_ends() {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        let text: String = (0..20_000).map(|i| format!("line {i}\n")).collect();
        gz.write_all(text.as_bytes()).unwrap();
        let whole = gz.finish().unwrap();
        let found = lines(&whole[..whole.len() / 2], 100);
        let (last, before) = found.split_last().unwrap();
        assert_eq!(last.1, Err(Code::UnreadableSource));
        assert!(before.len() > 1000 && before.iter().all(|(_, line)| line.is_ok()));
    }

    #[test]
    fn a_bomb_is_one_long_line() {
        let zst = zstd::encode_all(std::io::repeat(b'[').take(64 << 20), 1).unwrap();
        assert!(zst.len() < 100_000);
        assert_eq!(lines(&zst, 1 << 20), [(1, Err(Code::LineTooLong))]);
    }
}
