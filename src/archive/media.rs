//! Media tensors of calls, by reference (`spec/media.md`).
//!
//! What a sidecar holds is kept as it is, whatever its field, type or shape: what is wrong with
//! it is for validation to say.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

pub use safetensors::Dtype;

use super::Group;
use crate::error::{Error, Result};
use crate::id::Digest32;

/// Largest piece of a tensor.
pub const PIECE_BYTES: u64 = 8 << 20;

/// One tensor of a call's new media.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaTensor {
    /// What the sidecar calls it after the call's id: `media_imgs`, `media_imgs_sizes`, ...
    pub field: String,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Its dimensions; row-major.
    pub shape: Vec<u64>,
    /// Its bytes, little-endian.
    pub content: TensorContent,
}

/// The bytes of a tensor, or where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TensorContent {
    /// All bytes: the small integer tensors that checks read.
    Inline(Vec<u8>),
    /// Pieces in order, kept apart; together they are the tensor. Pixels are cut by image, so
    /// that an image which several calls bring is one piece.
    Pieces(Vec<Piece>),
}

/// A stretch of a tensor, named by its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Piece {
    /// BLAKE3 of its bytes.
    pub digest: Digest32,
    /// How many bytes.
    pub bytes: u64,
}

impl MediaTensor {
    /// Bytes that type and shape ask for; `None` when that is no whole number, or overflows.
    pub fn expected_bytes(&self) -> Option<u64> {
        let elements = self.shape.iter().try_fold(1u64, |all, &n| all.checked_mul(n))?;
        let bits = elements.checked_mul(self.dtype.bitsize() as u64)?;
        (bits % 8 == 0).then_some(bits / 8)
    }

    /// Bytes that it holds; `None` when that overflows.
    pub fn bytes(&self) -> Option<u64> {
        match &self.content {
            TensorContent::Inline(data) => Some(data.len() as u64),
            TensorContent::Pieces(pieces) => {
                pieces.iter().try_fold(0u64, |all, piece| all.checked_add(piece.bytes))
            }
        }
    }

    /// Its pieces; none when the bytes are inline.
    pub fn pieces(&self) -> &[Piece] {
        match &self.content {
            TensorContent::Inline(_) => &[],
            TensorContent::Pieces(pieces) => pieces,
        }
    }

    /// Its values in row-major order, if they are inline 32-bit integers.
    pub fn integers(&self) -> Option<Vec<i32>> {
        match &self.content {
            TensorContent::Inline(data) if self.dtype == Dtype::I32 => {
                let (values, rest) = data.as_chunks::<4>();
                rest.is_empty().then(|| values.iter().map(|&b| i32::from_le_bytes(b)).collect())
            }
            _ => None,
        }
    }
}

/// The type of this name; safetensors' own words (`BF16`, `I32`, ...).
pub fn dtype_of(word: &str) -> Option<Dtype> {
    use serde::Deserialize;
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, StrDeserializer};
    let word: StrDeserializer<'_, Error> = word.into_deserializer();
    Dtype::deserialize(word).ok()
}

/// Where the bytes of pieces can be read on their way into an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PieceSources(BTreeMap<Digest32, PieceSource>);

/// A stretch of a file that holds a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceSource {
    /// The file.
    pub path: Arc<Path>,
    /// Where the piece begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

impl PieceSources {
    /// Names a place of a piece; the first one named stays.
    pub fn insert(&mut self, digest: Digest32, source: PieceSource) {
        self.0.entry(digest).or_insert(source);
    }

    /// Takes over what `other` knows.
    pub fn extend(&mut self, other: PieceSources) {
        for (digest, source) in other.0 {
            self.insert(digest, source);
        }
    }

    /// What is known of the pieces that a group refers to.
    pub fn of(&self, group: &Group) -> Self {
        let calls = group.rollouts.iter().flat_map(|rollout| &rollout.calls);
        let pieces = calls.flat_map(|call| &call.tensors).flat_map(MediaTensor::pieces);
        let known = pieces.filter_map(|p| Some((p.digest, self.0.get(&p.digest)?.clone())));
        Self(known.collect())
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads a piece.
    ///
    /// # Errors
    ///
    /// No source for it; a source that cannot be read, or that no longer holds it.
    pub fn read(&self, piece: Piece) -> Result<Vec<u8>> {
        let lost = |what: String| Error::format(what).help("Ingest again, while no source changes");
        let Some(PieceSource { path, offset, bytes }) = self.0.get(&piece.digest) else {
            return Err(lost(format!("no source holds tensor data {}", piece.digest)));
        };
        let changed = || lost(format!("{} changed while it was read", path.display()));
        if *bytes != piece.bytes {
            return Err(changed());
        }
        let failed = |e| Error::io("cannot read", path, e);
        let file = File::open(path).map_err(failed)?;
        let end = offset.checked_add(*bytes);
        if end.is_none_or(|end| file.metadata().is_ok_and(|meta| meta.len() < end)) {
            return Err(changed());
        }
        let mut data = vec![0; usize::try_from(*bytes).map_err(|_| changed())?];
        file.read_exact_at(&mut data, *offset).map_err(failed)?;
        match *blake3::hash(&data).as_bytes() == piece.digest.0 {
            true => Ok(data),
            false => Err(changed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dtype: Dtype, shape: &[u64], data: &[u8]) -> MediaTensor {
        MediaTensor {
            field: "media_imgs_sizes".to_owned(),
            dtype,
            shape: shape.to_vec(),
            content: TensorContent::Inline(data.to_vec()),
        }
    }

    #[test]
    fn types_go_by_their_own_words() {
        for (word, bits) in [("BF16", 16), ("F32", 32), ("I32", 32), ("F4", 4), ("BOOL", 8)] {
            let dtype = dtype_of(word).unwrap();
            assert_eq!((dtype.to_string().as_str(), dtype.bitsize()), (word, bits));
        }
        for word in ["", "bf16", "F33"] {
            assert_eq!(dtype_of(word), None, "{word}");
        }
    }

    #[test]
    fn sizes_that_overflow_or_split_a_byte_are_none() {
        let bytes = |dtype, shape: &[u64]| tensor(dtype, shape, &[]).expected_bytes();
        assert_eq!(bytes(Dtype::F32, &[3, 5]), Some(60));
        assert_eq!(bytes(Dtype::F32, &[]), Some(4));
        assert_eq!(bytes(Dtype::F4, &[3]), None);
        assert_eq!(bytes(Dtype::U8, &[u64::MAX, 2]), None);
        assert_eq!(bytes(Dtype::U8, &[u64::MAX, 2, 0]), None);
        let huge = Piece { digest: Digest32([0; 32]), bytes: u64::MAX };
        let content = TensorContent::Pieces(vec![huge, huge]);
        assert_eq!(MediaTensor { content, ..tensor(Dtype::U8, &[1], &[]) }.bytes(), None);
    }

    #[test]
    fn integers_are_little_endian_and_whole() {
        let data = [1, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff];
        assert_eq!(tensor(Dtype::I32, &[1, 2], &data).integers(), Some(vec![1, -2]));
        assert_eq!(tensor(Dtype::I32, &[1, 2], &data[..7]).integers(), None);
        assert_eq!(tensor(Dtype::I64, &[1], &data).integers(), None);
    }

    #[test]
    fn a_piece_is_read_only_while_its_source_holds_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"..pixels..").unwrap();
        let digest = Digest32(*blake3::hash(b"pixels").as_bytes());
        let mut sources = PieceSources::default();
        let source = |bytes| PieceSource { path: file.path().into(), offset: 2, bytes };
        sources.insert(digest, source(6));
        let piece = Piece { digest, bytes: 6 };
        assert_eq!(sources.read(piece).unwrap(), b"pixels");
        assert!(sources.read(Piece { bytes: 7, ..piece }).is_err());
        assert!(sources.read(Piece { digest: Digest32([0; 32]), bytes: 6 }).is_err());
        for changed in [&b"..pixelz.."[..], b"..pix"] {
            std::fs::write(file.path(), changed).unwrap();
            let error = sources.read(piece).unwrap_err();
            assert!(error.to_string().contains("changed"), "{error}");
        }
    }
}
