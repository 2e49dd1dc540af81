//! What a digest is taken over, put down by reference and read a few bytes at a time.
//!
//! All numbers are big-endian (`spec/gym-wire.md` section b). A preimage of tokens is several
//! times as large as the tokens, and is never held as a whole.

use multiversion::multiversion;
use sha2::{Digest, Sha256};

use super::view::TokenIds;
use crate::id::Digest32;

/// The fields of one preimage in order.
#[derive(Default)]
pub(super) struct Preimage<'a> {
    /// The short fields.
    short: Vec<u8>,
    parts: Vec<Part<'a>>,
    /// The part that is being read, and how many of its bytes or values were.
    at: usize,
    done: usize,
    /// How many of the short fields' bytes were read.
    short_done: usize,
}

#[derive(Clone, Copy)]
enum Part<'a> {
    /// The short fields up to this place.
    Short(usize),
    Borrowed(&'a [u8]),
    Wide(&'a [u64]),
    Narrow(&'a [u32]),
    Single(&'a [f32]),
    Double(&'a [f64]),
    Repeated(f32, usize),
}

/// Bytes that are gathered before a hash sees them; small enough for the stack.
const GATHERED: usize = 2048;

impl<'a> Preimage<'a> {
    /// Makes it empty.
    pub fn clear(&mut self) {
        self.short.clear();
        self.parts.clear();
        (self.at, self.done, self.short_done) = (0, 0, 0);
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.short.extend_from_slice(bytes);
        match self.parts.last_mut() {
            Some(Part::Short(end)) => *end = self.short.len(),
            _ => self.parts.push(Part::Short(self.short.len())),
        }
    }

    /// Bytes as they are, of which there may be many.
    pub fn borrowed(&mut self, bytes: &'a [u8]) {
        self.parts.push(Part::Borrowed(bytes));
    }

    /// A number.
    pub fn number(&mut self, number: u64) {
        self.bytes(&number.to_be_bytes());
    }

    /// A text with its length.
    pub fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes(text.as_bytes());
    }

    /// Token ids, of 64 bits whatever they are kept in.
    pub fn ids(&mut self, ids: TokenIds<'a>) {
        self.parts.push(match ids {
            TokenIds::Wide(ids) => Part::Wide(ids),
            TokenIds::Narrow(ids) => Part::Narrow(ids),
        });
    }

    /// Numbers of 32 bits.
    pub fn single(&mut self, values: &'a [f32]) {
        self.parts.push(Part::Single(values));
    }

    /// Numbers of 64 bits, rounded to 32, to nearest even.
    pub fn double(&mut self, values: &'a [f64]) {
        self.parts.push(Part::Double(values));
    }

    /// `count` times the same number of 32 bits.
    pub fn repeated(&mut self, value: f32, count: usize) {
        self.parts.push(Part::Repeated(value, count));
    }

    /// Whether everything was read.
    pub fn is_read(&self) -> bool {
        self.at == self.parts.len()
    }

    /// Reads as many whole values as there is room for, and says how many bytes that is. There
    /// must be room for one.
    pub fn read(&mut self, to: &mut [u8]) -> usize {
        let mut end = 0;
        while let Some(&part) = self.parts.get(self.at) {
            let to = &mut to[end..];
            let done = self.done;
            let (read, width, all) = match part {
                Part::Short(place) => {
                    let left = &self.short[self.short_done..place];
                    let count = to.len().min(left.len());
                    to[..count].copy_from_slice(&left[..count]);
                    self.short_done += count;
                    (count, 1, done + left.len())
                }
                Part::Borrowed(bytes) => {
                    let left = &bytes[done..];
                    let count = to.len().min(left.len());
                    to[..count].copy_from_slice(&left[..count]);
                    (count, 1, bytes.len())
                }
                Part::Wide(ids) => (put(to, &ids[done..], u64::to_be_bytes), 8, ids.len()),
                Part::Narrow(ids) => {
                    (put(to, &ids[done..], |id| u64::from(id).to_be_bytes()), 8, ids.len())
                }
                Part::Single(values) => {
                    (put(to, &values[done..], f32::to_be_bytes), 4, values.len())
                }
                Part::Double(values) => {
                    let single = |value: f64| (value as f32).to_be_bytes();
                    (put(to, &values[done..], single), 4, values.len())
                }
                Part::Repeated(value, all) => {
                    let places = to.as_chunks_mut().0;
                    let count = places.len().min(all - done);
                    places[..count].fill(value.to_be_bytes());
                    (count, 4, all)
                }
            };
            end += read * width;
            self.done += read;
            if self.done < all {
                break;
            }
            (self.at, self.done) = (self.at + 1, 0);
        }
        end
    }

    /// Reads what is left into a hash.
    pub fn feed(&mut self, hash: &mut Sha256) {
        let mut gathered = [0; GATHERED];
        while !self.is_read() {
            let end = self.read(&mut gathered);
            hash.update(&gathered[..end]);
        }
    }

    /// Its digest.
    pub fn digest(&mut self) -> Digest32 {
        let mut hash = Sha256::new();
        self.feed(&mut hash);
        Digest32(hash.finalize().into())
    }
}

/// Writes as many values as there is room for, and says how many.
#[multiversion(targets("x86_64+avx512f+avx512bw", "x86_64+avx2"))]
fn put<T: Copy, const N: usize>(
    to: &mut [u8],
    values: &[T],
    bytes: impl Fn(T) -> [u8; N],
) -> usize {
    let places = to.as_chunks_mut().0;
    for (place, &value) in places.iter_mut().zip(values) {
        *place = bytes(value);
    }
    places.len().min(values.len())
}
