//! SHA-256 of many independent messages, sixteen at a time.
//!
//! A single message can only be hashed round after round, and the instructions for SHA-256 do no
//! more than one block at a time: two messages in turn gain a tenth. Vectors of sixteen words
//! hash sixteen messages with the instructions of one, and about twice as fast in all. The
//! digests of a group do not depend on each other, as each call's chain hash is checked over the
//! chain hash that its parent recorded; so there are always enough of them.
//!
//! A lane holds a few blocks of its message, however long the message is, and takes the next
//! message when it has ended. Processors without such vectors hash one message after the other.

use multiversion::multiversion;
use multiversion::target::match_target;
use sha2::block_api::compress256;

use super::preimage::Preimage;
use crate::id::Digest32;

/// Messages that are hashed at once.
pub(super) const LANES: usize = 16;

/// Fewer messages than this are hashed sooner one by one.
const FEW: usize = 6;

/// Bytes of a block.
const BLOCK: usize = 64;

/// Bytes that a lane gathers at a time; those of all lanes stay in the nearest cache.
const GATHERED: usize = 16 * BLOCK;

/// The same with room for the end of the message.
const ROOM: usize = GATHERED + 2 * BLOCK;

type Blocks<'a> = &'a [[u8; BLOCK]];

/// Of each word of the state, those of all lanes.
type States = [[u32; LANES]; 8];

/// The state before the first block.
const INITIAL: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// The digest of what `write` puts down for every job, in the order of the jobs. Long messages
/// are best named first.
pub(super) fn digests<'a, J>(jobs: &[J], write: impl Fn(&J, &mut Preimage<'a>)) -> Vec<Digest32> {
    match is_wide() {
        true => in_lanes(jobs, write, compress),
        false => one_by_one(jobs, write),
    }
}

fn one_by_one<'a, J>(jobs: &[J], write: impl Fn(&J, &mut Preimage<'a>)) -> Vec<Digest32> {
    let mut preimage = Preimage::default();
    let digest = |job| {
        preimage.clear();
        write(job, &mut preimage);
        preimage.digest()
    };
    jobs.iter().map(digest).collect()
}

fn in_lanes<'a, J>(
    jobs: &[J],
    write: impl Fn(&J, &mut Preimage<'a>),
    compress: impl Fn(&mut States, [Blocks<'_>; LANES]),
) -> Vec<Digest32> {
    let mut digests = vec![Digest32([0; 32]); jobs.len()];
    let mut states = [[0; LANES]; 8];
    let mut lanes: [Lane<'_>; LANES] = std::array::from_fn(|_| Lane::default());
    let mut left = jobs.iter().enumerate();
    loop {
        let mut busy = 0;
        for (at, lane) in lanes.iter_mut().enumerate() {
            lane.gather();
            while lane.blocks().is_empty() {
                if let Some(job) = lane.job.take() {
                    digests[job] = digest(states.map(|word| word[at]));
                }
                let Some((job, next)) = left.next() else { break };
                lane.begin(job, |preimage| write(next, preimage));
                put(&mut states, at, INITIAL);
                lane.gather();
            }
            busy += usize::from(lane.job.is_some());
        }
        if busy < FEW {
            break;
        }
        let count = lanes.iter().filter(|lane| lane.job.is_some()).map(|lane| lane.blocks().len());
        let count = count.min().unwrap_or(0);
        let blocks = lanes.each_mut().map(|lane| lane.take(count));
        compress(&mut states, blocks);
    }
    for (at, lane) in lanes.iter_mut().enumerate() {
        let Some(job) = lane.job else { continue };
        let mut state = states.map(|word| word[at]);
        while !lane.blocks().is_empty() {
            compress256(&mut state, lane.take(lane.blocks().len()));
            lane.gather();
        }
        digests[job] = digest(state);
    }
    digests
}

fn put(states: &mut States, at: usize, state: [u32; 8]) {
    for (words, word) in states.iter_mut().zip(state) {
        words[at] = word;
    }
}

fn digest(state: [u32; 8]) -> Digest32 {
    let mut digest = Digest32([0; 32]);
    for (bytes, word) in digest.0.as_chunks_mut().0.iter_mut().zip(state) {
        *bytes = word.to_be_bytes();
    }
    digest
}

/// A message that is being hashed, and a few of its blocks.
struct Lane<'a> {
    preimage: Preimage<'a>,
    /// Which of the jobs it is; none before the first and after the last.
    job: Option<usize>,
    /// Whether the end of the message is gathered.
    ended: bool,
    /// Bytes of the message so far.
    length: u64,
    /// What is gathered and not hashed yet.
    start: usize,
    end: usize,
    gathered: [u8; ROOM],
}

impl Default for Lane<'_> {
    fn default() -> Self {
        Self {
            preimage: Preimage::default(),
            job: None,
            ended: true,
            length: 0,
            start: 0,
            end: 0,
            gathered: [0; ROOM],
        }
    }
}

impl<'a> Lane<'a> {
    fn begin(&mut self, job: usize, write: impl FnOnce(&mut Preimage<'a>)) {
        self.preimage.clear();
        write(&mut self.preimage);
        (self.job, self.ended, self.length) = (Some(job), false, 0);
        (self.start, self.end) = (0, 0);
    }

    /// The whole blocks that are gathered; none once all of the message was taken.
    fn blocks(&self) -> Blocks<'_> {
        self.gathered[self.start..self.end].as_chunks().0
    }

    /// Gathers the next blocks, if only few are left and more are to come.
    fn gather(&mut self) {
        if self.ended || self.end - self.start >= GATHERED / 2 {
            return;
        }
        self.gathered.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let read = self.preimage.read(&mut self.gathered[self.end..GATHERED]);
        self.end += read;
        self.length += read as u64;
        if self.preimage.is_read() {
            let end = (self.end + 9).next_multiple_of(BLOCK);
            let bits = (8 * self.length).to_be_bytes();
            self.gathered[self.end] = 0x80;
            self.gathered[self.end + 1..end - bits.len()].fill(0);
            self.gathered[end - bits.len()..end].copy_from_slice(&bits);
            (self.end, self.ended) = (end, true);
        }
    }

    /// Takes so many blocks; of a lane without a message, whatever is there.
    fn take(&mut self, count: usize) -> Blocks<'_> {
        let begin = if self.job.is_some() { self.start } else { 0 };
        let end = begin + count * BLOCK;
        self.start = if self.job.is_some() { end } else { self.end };
        self.gathered[begin..end].as_chunks().0
    }
}

/// Whether this processor hashes many messages at a time.
pub fn available() -> bool {
    is_wide()
}

/// Whether [`compress`] takes all lanes at once.
#[multiversion(targets("x86_64+avx512f+avx512bw"))]
fn is_wide() -> bool {
    match_target! {
        "x86_64+avx512f+avx512bw" => true,
        _ => false,
    }
}

/// Takes the states over the blocks of their lanes, which are equally many.
#[multiversion(targets("x86_64+avx512f+avx512bw"))]
fn compress(states: &mut States, blocks: [Blocks<'_>; LANES]) {
    match_target! {
        "x86_64+avx512f+avx512bw" => wide::compress(states, blocks),
        _ => compress_each(states, blocks),
    }
}

fn compress_each(states: &mut States, blocks: [Blocks<'_>; LANES]) {
    for (at, blocks) in blocks.into_iter().enumerate() {
        let mut state = states.map(|word| word[at]);
        compress256(&mut state, blocks);
        put(states, at, state);
    }
}

/// The words of FIPS 180-4, each a vector of those of all lanes.
#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::*;

    use super::{BLOCK, Blocks, LANES, States};

    const K: [u32; 64] = [
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2,
    ];

    type Words = __m512i;

    /// Tables of three bits in, one out.
    const XOR: i32 = 0x96;
    const CHOOSE: i32 = 0xCA;
    const MAJORITY: i32 = 0xE8;

    macro_rules! sigma {
        ($x:expr, $a:literal, $b:literal, >> $c:literal) => {{
            let (a, b) = (_mm512_ror_epi32::<$a>($x), _mm512_ror_epi32::<$b>($x));
            _mm512_ternarylogic_epi32::<XOR>(a, b, _mm512_srli_epi32::<$c>($x))
        }};
        ($x:expr, $a:literal, $b:literal, $c:literal) => {{
            let (a, b) = (_mm512_ror_epi32::<$a>($x), _mm512_ror_epi32::<$b>($x));
            _mm512_ternarylogic_epi32::<XOR>(a, b, _mm512_ror_epi32::<$c>($x))
        }};
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn round([a, b, c, d, e, f, g, h]: [Words; 8], k: u32, w: Words) -> [Words; 8] {
        let w = _mm512_add_epi32(_mm512_add_epi32(h, w), _mm512_set1_epi32(k as i32));
        let choice = _mm512_ternarylogic_epi32::<CHOOSE>(e, f, g);
        let first = _mm512_add_epi32(_mm512_add_epi32(w, choice), sigma!(e, 6, 11, 25));
        let majority = _mm512_ternarylogic_epi32::<MAJORITY>(a, b, c);
        let second = _mm512_add_epi32(sigma!(a, 2, 13, 22), majority);
        [_mm512_add_epi32(first, second), a, b, c, _mm512_add_epi32(d, first), e, f, g]
    }

    /// The word sixteen after `w[t]`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn schedule(w: &[Words; 16], t: usize) -> Words {
        let (w0, w1, w9, w14) = (w[t], w[(t + 1) % 16], w[(t + 9) % 16], w[(t + 14) % 16]);
        let sum = _mm512_add_epi32(w0, w9);
        let sum = _mm512_add_epi32(sum, sigma!(w1, 7, 18, >> 3));
        _mm512_add_epi32(sum, sigma!(w14, 17, 19, >> 10))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn load(words: &[u32; LANES]) -> Words {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = words.map(|word| word as i32);
        _mm512_set_epi32(p, o, n, m, l, k, j, i, h, g, f, e, d, c, b, a)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn store(words: Words, to: &mut [u32; LANES]) {
        let quarters = [
            _mm512_extracti32x4_epi32::<0>(words),
            _mm512_extracti32x4_epi32::<1>(words),
            _mm512_extracti32x4_epi32::<2>(words),
            _mm512_extracti32x4_epi32::<3>(words),
        ];
        for (to, quarter) in to.as_chunks_mut().0.iter_mut().zip(quarters) {
            let (low, high) = (_mm_cvtsi128_si64(quarter), _mm_extract_epi64::<1>(quarter));
            *to = [low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32];
        }
    }

    /// The sixteen words of a block, as they lie there.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn load_block(block: &[u8; BLOCK]) -> Words {
        let (words, _) = block.as_chunks::<8>();
        let word = |at: usize| i64::from_le_bytes(words[at]);
        _mm512_set_epi64(word(7), word(6), word(5), word(4), word(3), word(2), word(1), word(0))
    }

    /// Word `t` of every block in vector `t`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn load_blocks(blocks: [Blocks<'_>; LANES], at: usize) -> [Words; 16] {
        let (low, high) = (0x0405_0607_0001_0203, 0x0C0D_0E0F_0809_0A0B);
        let swap = _mm512_set_epi64(high, low, high, low, high, low, high, low);
        let mut w = [_mm512_setzero_si512(); 16];
        for (w, blocks) in w.iter_mut().zip(blocks) {
            *w = _mm512_shuffle_epi8(load_block(&blocks[at]), swap);
        }
        // Rows and columns change places: pairs of words, of pairs, of quarters, of halves.
        let mut pairs = w;
        for i in 0..8 {
            pairs[2 * i] = _mm512_unpacklo_epi32(w[2 * i], w[2 * i + 1]);
            pairs[2 * i + 1] = _mm512_unpackhi_epi32(w[2 * i], w[2 * i + 1]);
        }
        let mut fours = pairs;
        for i in [0, 4, 8, 12] {
            fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
            fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
            fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
            fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
        }
        let mut out = w;
        for i in 0..4 {
            let (a, b, c, d) = (fours[i], fours[i + 4], fours[i + 8], fours[i + 12]);
            let (even_ab, odd_ab) =
                (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xDD>(a, b));
            let (even_cd, odd_cd) =
                (_mm512_shuffle_i32x4::<0x88>(c, d), _mm512_shuffle_i32x4::<0xDD>(c, d));
            out[i] = _mm512_shuffle_i32x4::<0x88>(even_ab, even_cd);
            out[i + 4] = _mm512_shuffle_i32x4::<0x88>(odd_ab, odd_cd);
            out[i + 8] = _mm512_shuffle_i32x4::<0xDD>(even_ab, even_cd);
            out[i + 12] = _mm512_shuffle_i32x4::<0xDD>(odd_ab, odd_cd);
        }
        out
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn compress(states: &mut States, blocks: [Blocks<'_>; LANES]) {
        let mut state = [_mm512_setzero_si512(); 8];
        for (vector, words) in state.iter_mut().zip(&*states) {
            *vector = load(words);
        }
        for at in 0..blocks[0].len() {
            let before = state;
            let mut w = load_blocks(blocks, at);
            // Written out, so that every vector has its place before the program runs.
            macro_rules! rounds {
                ($k:expr, $then:tt: $($t:literal)*) => {$(
                    state = round(state, K[$k + $t], w[$t]);
                    rounds!($then w, $t);
                )*};
                (schedule $w:ident, $t:literal) => { $w[$t] = schedule(&$w, $t) };
                (end $w:ident, $t:literal) => {};
            }
            for k in [0, 16, 32] {
                rounds!(k, schedule: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
            }
            rounds!(48, end: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
            for (vector, before) in state.iter_mut().zip(before) {
                *vector = _mm512_add_epi32(*vector, before);
            }
        }
        for (words, vector) in states.iter_mut().zip(state) {
            store(vector, words);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::wire::view::TokenIds;

    #[derive(Clone, Debug)]
    enum Field {
        Bytes(Vec<u8>),
        Wide(Vec<u64>),
        Narrow(Vec<u32>),
        Single(Vec<f32>),
        Double(Vec<f64>),
        Repeated(f32, usize),
    }

    impl Field {
        fn put<'a>(&'a self, to: &mut Preimage<'a>) {
            match self {
                Field::Bytes(bytes) => to.bytes(bytes),
                Field::Wide(ids) => to.ids(TokenIds::Wide(ids)),
                Field::Narrow(ids) => to.ids(TokenIds::Narrow(ids)),
                Field::Single(values) => to.single(values),
                Field::Double(values) => to.double(values),
                Field::Repeated(value, count) => to.repeated(*value, *count),
            }
        }

        fn plain(&self) -> Vec<u8> {
            match self {
                Field::Bytes(bytes) => bytes.clone(),
                Field::Wide(ids) => ids.iter().flat_map(|id| id.to_be_bytes()).collect(),
                Field::Narrow(ids) => {
                    ids.iter().flat_map(|&id| u64::from(id).to_be_bytes()).collect()
                }
                Field::Single(values) => values.iter().flat_map(|x| x.to_be_bytes()).collect(),
                Field::Double(values) => {
                    values.iter().flat_map(|&x| (x as f32).to_be_bytes()).collect()
                }
                Field::Repeated(value, count) => value.to_be_bytes().repeat(*count),
            }
        }
    }

    /// Every way to take digests against the crate's own.
    fn check(messages: &[Vec<Field>]) {
        let expected: Vec<Digest32> = messages
            .iter()
            .map(|fields| fields.iter().flat_map(Field::plain).collect::<Vec<u8>>())
            .map(|bytes| Digest32(Sha256::digest(bytes).into()))
            .collect();
        let jobs: Vec<&Vec<Field>> = messages.iter().collect();
        fn write<'a>(fields: &&'a Vec<Field>, to: &mut Preimage<'a>) {
            fields.iter().for_each(|field| field.put(to));
        }
        assert_eq!(digests(&jobs, write), expected);
        assert_eq!(one_by_one(&jobs, write), expected);
        assert_eq!(in_lanes(&jobs, write, compress_each), expected);
        assert_eq!(in_lanes(&jobs, write, compress), expected);
    }

    #[test]
    fn messages_end_anywhere_in_a_block() {
        let bytes = |length: usize| vec![Field::Bytes((0..length).map(|i| i as u8).collect())];
        check(&(0..200).map(bytes).collect::<Vec<_>>());
        let around = |length: usize| (length - 70..length + 70).map(bytes);
        check(&around(GATHERED).chain(around(2 * GATHERED)).collect::<Vec<_>>());
    }

    #[test]
    fn few_messages_and_long_ones() {
        let long = vec![Field::Narrow((0..70_000).collect()), Field::Bytes(vec![7; 5000])];
        let short = vec![Field::Bytes(b"short".to_vec())];
        for count in 0..2 * LANES {
            let mut messages = vec![short.clone(); count];
            check(&messages);
            messages.insert(count / 2, long.clone());
            messages.push(Vec::new());
            check(&messages);
        }
    }

    fn fields() -> impl Strategy<Value = Vec<Field>> {
        let count = || 0..400_usize;
        let field = prop_oneof![
            prop::collection::vec(any::<u8>(), count()).prop_map(Field::Bytes),
            prop::collection::vec(any::<u64>(), count()).prop_map(Field::Wide),
            prop::collection::vec(any::<u32>(), count()).prop_map(Field::Narrow),
            prop::collection::vec(any::<f32>(), count()).prop_map(Field::Single),
            prop::collection::vec(any::<f64>(), count()).prop_map(Field::Double),
            (any::<f32>(), count()).prop_map(|(value, count)| Field::Repeated(value, count)),
        ];
        prop::collection::vec(field, 0..8)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn digests_are_those_of_the_crate(messages in prop::collection::vec(fields(), 0..60)) {
            check(&messages);
        }
    }
}
