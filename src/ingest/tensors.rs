//! `media/*.safetensors`: the tensors of calls, named `<call_id>/<field>`.
//!
//! Headers are read once; bytes only of the calls that are archived, a piece at a time. A header
//! is believed in nothing: the file is refused unless its tensors fill it end to end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::detect::Found;
use super::index::CallHash;
use super::quarantine::{Quarantine, Rejected};
use crate::archive::media::PIECE_BYTES;
use crate::archive::{
    Dtype, Group, MediaTensor, Piece, PieceSource, PieceSources, Quarantined, TensorContent,
};
use crate::error::{Error, Result};
use crate::finding::Code;
use crate::id::{CallId, Digest32};
use crate::wire::media::{FRAMES, IMGS, SIZES, patch_side, patches};

/// Longest header that is read; the format's own limit.
const MAX_HEADER: u64 = 100_000_000;
/// Longest tensor that is kept inline: sizes of 131,072 images.
const MAX_INLINE: u64 = 1 << 20;

/// The tensors of all sidecars, by call.
#[derive(Debug, Default)]
pub(super) struct Sidecars {
    files: Vec<Sidecar>,
    calls: BTreeMap<CallId, Tensors>,
    /// Calls by what the index has of them.
    hashed: OnceLock<BTreeMap<CallHash, CallId>>,
}

#[derive(Debug)]
struct Sidecar {
    name: String,
    path: Arc<Path>,
}

/// What the sidecars hold of one call.
#[derive(Debug, Default)]
struct Tensors {
    entries: Vec<Entry>,
    /// A call of this id is archived.
    known: AtomicBool,
}

/// One tensor of a sidecar.
#[derive(Clone, Debug)]
struct Entry {
    /// Index of the sidecar.
    file: usize,
    field: Arc<str>,
    dtype: Dtype,
    shape: Box<[u64]>,
    /// Where its bytes begin in the file.
    start: u64,
    bytes: u64,
}

impl Sidecars {
    /// Reads the headers of `files`. Sidecars that cannot be read, and tensors that contradict
    /// each other, are set aside.
    ///
    /// # Errors
    ///
    /// A file that cannot be opened, or read where its own length says that it can.
    pub fn read<'a>(
        files: impl Iterator<Item = &'a Found>,
        quarantine: &mut Quarantine,
    ) -> Result<Self> {
        let mut sidecars = Self::default();
        let mut fields: BTreeSet<Arc<str>> = BTreeSet::new();
        for found in files {
            let (data, tensors) = match header(&found.path)? {
                Ok(header) => header,
                Err(why) => {
                    quarantine.file(&found.name, Rejected::new(Code::MalformedSidecar, why));
                    continue;
                }
            };
            let file = sidecars.files.len();
            sidecars
                .files
                .push(Sidecar { name: found.name.clone(), path: found.path.as_path().into() });
            let mut nameless = Vec::new();
            for (name, info) in tensors {
                let Some((call, field)) = name.rsplit_once('/').filter(|(call, field)| {
                    // Neither is ever empty on the wire.
                    !call.is_empty() && !field.is_empty()
                }) else {
                    let what = format!("tensor {} is not named <call_id>/<field>", short(&name));
                    nameless.push((None, what));
                    continue;
                };
                let field = match fields.get(field) {
                    Some(field) => field.clone(),
                    None => {
                        let field: Arc<str> = field.into();
                        fields.insert(field.clone());
                        field
                    }
                };
                let (start, end) = info.data_offsets;
                sidecars.calls.entry(call.into()).or_default().entries.push(Entry {
                    file,
                    field,
                    dtype: info.dtype,
                    shape: info.shape.iter().map(|&n| n as u64).collect(),
                    start: data + start as u64,
                    bytes: (end - start) as u64,
                });
            }
            set_aside(&found.name, Code::OrphanTensor, nameless, quarantine);
        }
        sidecars.settle(quarantine)?;
        Ok(sidecars)
    }

    /// Leaves one of several tensors of the same name, or none where their content differs.
    fn settle(&mut self, quarantine: &mut Quarantine) -> Result<()> {
        let files = &self.files;
        for (call, tensors) in &mut self.calls {
            tensors.entries.sort_by(|a, b| (&a.field, a.file).cmp(&(&b.field, b.file)));
            let mut kept: Vec<Entry> = Vec::new();
            for same in tensors.entries.chunk_by(|a, b| a.field == b.field) {
                let [first, rest @ ..] = same else { continue };
                let mut digest = None;
                let mut equal = true;
                for other in rest {
                    equal &= (other.dtype, &other.shape) == (first.dtype, &first.shape);
                    if equal {
                        let one = match digest {
                            Some(digest) => digest,
                            None => *digest.insert(first.digest(files)?),
                        };
                        equal = one == other.digest(files)?;
                    }
                }
                if equal {
                    kept.push(first.clone());
                    continue;
                }
                for entry in same {
                    let what = format!(
                        "sidecars hold different tensors {} of call {}",
                        short(&entry.field),
                        short(call.as_str())
                    );
                    quarantine.entry(Quarantined {
                        call_id: Some(call.clone()),
                        ..Quarantined::new(
                            &files[entry.file].name,
                            None,
                            Code::ConflictingRecord,
                            what,
                        )
                    });
                }
            }
            tensors.entries = kept;
        }
        self.calls.retain(|_, tensors| !tensors.entries.is_empty());
        Ok(())
    }

    /// Gives the calls of `group` their tensors, whatever scope their records state, and returns
    /// where the data can be read.
    ///
    /// # Errors
    ///
    /// A sidecar that cannot be read.
    pub fn attach(&self, group: &mut Group) -> Result<PieceSources> {
        if self.calls.is_empty() {
            return Ok(PieceSources::default());
        }
        let parts: Vec<PieceSources> = group
            .rollouts
            .par_iter_mut()
            .flat_map(|rollout| &mut rollout.calls)
            .map(|call| {
                let mut sources = PieceSources::default();
                if let Some(tensors) = self.calls.get(&call.call_id) {
                    tensors.known.store(true, Ordering::Relaxed);
                    call.tensors = self.load(&tensors.entries, &mut sources)?;
                }
                Ok(sources)
            })
            .collect::<Result<_>>()?;
        let mut all = PieceSources::default();
        parts.into_iter().for_each(|part| all.extend(part));
        Ok(all)
    }

    /// The tensors of one call, ordered by field.
    fn load(&self, entries: &[Entry], sources: &mut PieceSources) -> Result<Vec<MediaTensor>> {
        let mut tensors: Vec<MediaTensor> = Vec::with_capacity(entries.len());
        let (inline, apart): (Vec<&Entry>, Vec<&Entry>) =
            entries.iter().partition(|entry| entry.is_inline());
        for entry in inline {
            let data = entry.read(&self.files, 0, entry.bytes)?;
            tensors.push(entry.tensor(TensorContent::Inline(data)));
        }
        for entry in apart {
            let cuts = match &*entry.field {
                IMGS => images(entry, &tensors).unwrap_or_else(|| vec![entry.bytes]),
                _ => vec![entry.bytes],
            };
            let mut pieces = Vec::new();
            let mut at = 0;
            for end in ends(&cuts) {
                let data = entry.read(&self.files, at, end - at)?;
                let digest = Digest32(*blake3::hash(&data).as_bytes());
                let path = self.files[entry.file].path.clone();
                let bytes = end - at;
                sources.insert(digest, PieceSource { path, offset: entry.start + at, bytes });
                pieces.push(Piece { digest, bytes });
                at = end;
            }
            tensors.push(entry.tensor(TensorContent::Pieces(pieces)));
        }
        tensors.sort_by(|a, b| a.field.cmp(&b.field));
        Ok(tensors)
    }

    /// Takes calls as archived whose group an earlier run was given.
    pub fn pass_over(&self, calls: impl Iterator<Item = CallHash>) {
        if self.calls.is_empty() {
            return;
        }
        let hashed = self.hashed.get_or_init(|| {
            self.calls.keys().map(|call| (CallHash::of(call.as_str()), call.clone())).collect()
        });
        for tensors in calls.filter_map(|call| self.calls.get(hashed.get(&call)?)) {
            tensors.known.store(true, Ordering::Relaxed);
        }
    }

    /// Sets aside the tensors of calls that no group was given. For when every group was.
    pub fn orphans(&self, quarantine: &mut Quarantine) {
        let mut by_file: BTreeMap<usize, Vec<(Option<CallId>, String)>> = BTreeMap::new();
        for (call, tensors) in &self.calls {
            if tensors.known.load(Ordering::Relaxed) {
                continue;
            }
            for entry in &tensors.entries {
                let what = format!(
                    "tensor {} belongs to call {}, of which no record is here",
                    short(&entry.field),
                    short(call.as_str())
                );
                by_file.entry(entry.file).or_default().push((Some(call.clone()), what));
            }
        }
        for (file, orphans) in by_file {
            set_aside(&self.files[file].name, Code::OrphanTensor, orphans, quarantine);
        }
    }
}

impl Entry {
    fn is_inline(&self) -> bool {
        [SIZES, FRAMES].contains(&&*self.field) && self.bytes <= MAX_INLINE
    }

    fn tensor(&self, content: TensorContent) -> MediaTensor {
        let (field, shape) = (self.field.to_string(), self.shape.to_vec());
        MediaTensor { field, dtype: self.dtype, shape, content }
    }

    /// `bytes` of the tensor from `at` on.
    fn read(&self, files: &[Sidecar], at: u64, bytes: u64) -> Result<Vec<u8>> {
        let path = &files[self.file].path;
        let failed = |e| Error::io("cannot read", path, e);
        // No more than a piece, or an inline tensor, and all of it was there.
        let mut data = vec![0; bytes as usize];
        File::open(path)
            .and_then(|file| file.read_exact_at(&mut data, self.start + at))
            .map_err(failed)?;
        Ok(data)
    }

    fn digest(&self, files: &[Sidecar]) -> Result<blake3::Hash> {
        let mut hasher = blake3::Hasher::new();
        let mut at = 0;
        for end in ends(&[self.bytes]) {
            hasher.update(&self.read(files, at, end - at)?);
            at = end;
        }
        Ok(hasher.finalize())
    }
}

/// Bytes of each image of `imgs`, if sizes and frame counts tell where images end.
fn images(imgs: &Entry, inline: &[MediaTensor]) -> Option<Vec<u64>> {
    let of = |field| inline.iter().find(|tensor| tensor.field == field);
    let &[rows, width] = &*imgs.shape else { return None };
    let side = patch_side(width)?;
    let row = imgs.bytes.checked_div(rows)?;
    let sizes = of(SIZES)?.integers()?;
    let (sizes, []) = sizes.as_chunks::<2>() else { return None };
    let frames = match of(FRAMES) {
        Some(frames) => frames.integers()?,
        None => vec![1; sizes.len()],
    };
    if frames.len() != sizes.len() {
        return None;
    }
    let mut left = rows;
    let mut cuts = Vec::with_capacity(sizes.len());
    for (&[height, width], &frames) in sizes.iter().zip(&frames) {
        let [height, width, frames] = [height, width, frames].map(|n| u64::try_from(n).ok());
        let count = patches(height?, width?, frames?, side)?;
        left = left.checked_sub(count)?;
        cuts.push(count * row);
    }
    (left == 0).then_some(cuts)
}

/// Where pieces end: at every cut, and often enough.
fn ends(cuts: &[u64]) -> Vec<u64> {
    let mut ends = Vec::new();
    let mut at = 0;
    for &cut in cuts {
        let end = at + cut;
        while at < end {
            at = end.min(at + PIECE_BYTES);
            ends.push(at);
        }
    }
    ends
}

fn set_aside(
    file: &str,
    code: Code,
    entries: Vec<(Option<CallId>, String)>,
    quarantine: &mut Quarantine,
) {
    for (call_id, what) in entries {
        quarantine.entry(Quarantined { call_id, ..Quarantined::new(file, None, code, what) });
    }
}

type Header = (u64, Vec<(String, TensorInfo)>);

/// Where data begins, and the tensors; or why the file is not a sidecar.
fn header(path: &Path) -> Result<Result<Header, String>> {
    let failed = |e| Error::io("cannot read", path, e);
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let Some(data) = length.checked_sub(8) else {
        return Ok(Err(format!("{length} bytes are no safetensors file")));
    };
    let mut start = [0; 8];
    file.read_exact_at(&mut start, 0).map_err(failed)?;
    if start.starts_with(&[0x1f, 0x8b]) || start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return Ok(Err("it is compressed; decompress it, tensors are read in place".to_owned()));
    }
    let size = u64::from_le_bytes(start);
    if size > data.min(MAX_HEADER) {
        let most = data.min(MAX_HEADER);
        return Ok(Err(format!("its header has {size} bytes, where {most} is the most")));
    }
    let mut text = vec![0; size as usize];
    file.read_exact_at(&mut text, 8).map_err(failed)?;
    let parsed = serde_json::from_slice::<Entries>(&text)
        .map_err(|e| format!("its header cannot be read: {e}"))
        .and_then(|entries| entries.laid_out(data - size));
    Ok(parsed.map(|tensors| (8 + size, tensors)).map_err(|why| cut(&why)))
}

/// Tensors of a header in its order.
struct Entries(Vec<(String, TensorInfo)>);

impl Entries {
    /// The tensors by offset, if they fill `bytes` without gap or overlap, each name once.
    fn laid_out(self, bytes: u64) -> Result<Vec<(String, TensorInfo)>, String> {
        let mut tensors = self.0;
        tensors.sort_by(|a, b| a.0.cmp(&b.0));
        if let Some(twice) = tensors.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(format!("it names tensor {} twice", twice[0].0));
        }
        tensors.sort_by_key(|(_, info)| info.data_offsets);
        let metadata = Metadata::new(None, tensors).map_err(|e| e.to_string())?;
        let found = metadata.data_len() as u64;
        if found != bytes {
            return Err(format!("its tensors end at byte {found} of {bytes}"));
        }
        let names = metadata.offset_keys();
        Ok(names
            .into_iter()
            .filter_map(|n| Some((n.clone(), metadata.info(&n)?.clone())))
            .collect())
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut tensors = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        tensors.push((name, map.next_value()?));
                    }
                }
                Ok(Entries(tensors))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// A name from a sidecar in quotes, never long.
fn short(name: &str) -> String {
    format!("{:?}", cut(name))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::quarantine::LISTED;
    use std::io::Write;

    use super::*;
    use crate::archive::SourceForm;

    fn sidecar(file: &tempfile::NamedTempFile, header: &str, data: u64) -> Found {
        let mut writer = file.as_file();
        writer.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
        writer.write_all(header.as_bytes()).unwrap();
        let bytes = 8 + header.len() as u64 + data;
        file.as_file().set_len(bytes).unwrap();
        let (name, path) = ("media/x.safetensors".to_owned(), file.path().to_owned());
        Found { name, path, form: SourceForm::MediaTensors, bytes }
    }

    fn load(header: &str, data: u64, call: &str) -> (Vec<MediaTensor>, PieceSources) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let found = sidecar(&file, header, data);
        let mut quarantine = Quarantine::default();
        let sidecars = Sidecars::read([&found].into_iter(), &mut quarantine).unwrap();
        assert_eq!(quarantine.into_sorted(), []);
        let mut sources = PieceSources::default();
        let tensors = sidecars.load(&sidecars.calls[call].entries, &mut sources).unwrap();
        (tensors, sources)
    }

    #[test]
    fn long_tensors_are_cut_and_long_sizes_kept_apart() {
        let whole = 2 * PIECE_BYTES + 8;
        let sizes = MAX_INLINE + 8;
        let header = format!(
            r#"{{"a/b/media_imgs":{{"dtype":"U8","shape":[{whole}],"data_offsets":[0,{whole}]}},
                "a/b/media_imgs_sizes":{{"dtype":"I32","shape":[{},2],"data_offsets":[{whole},{}]}},
                "__metadata__":{{"format":"pt","more":[1]}}}}"#,
            sizes / 8,
            whole + sizes,
        );
        let (tensors, sources) = load(&header, whole + sizes, "a/b");
        let bytes = |tensor: &MediaTensor| -> Vec<u64> {
            tensor.pieces().iter().map(|piece| piece.bytes).collect()
        };
        let fields: Vec<&str> = tensors.iter().map(|tensor| tensor.field.as_str()).collect();
        assert_eq!(fields, ["media_imgs", "media_imgs_sizes"]);
        assert_eq!(bytes(&tensors[0]), [PIECE_BYTES, PIECE_BYTES, 8]);
        assert_eq!(bytes(&tensors[1]), [sizes]);
        // All zeros: equal pieces are one.
        let [first, second, _] = tensors[0].pieces() else { panic!() };
        assert_eq!(first, second);
        assert!(!sources.is_empty());
    }

    #[test]
    fn tensors_of_no_call_are_listed_up_to_a_limit() {
        let many = LISTED + 3;
        let entries: Vec<String> = (0..many)
            .map(|n| format!(r#""c{n}/x":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#))
            .collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        let found = sidecar(&file, &format!("{{{}}}", entries.join(",")), 0);
        let mut quarantine = Quarantine::default();
        let sidecars = Sidecars::read([&found].into_iter(), &mut quarantine).unwrap();
        sidecars.orphans(&mut quarantine);
        let entries = quarantine.into_sorted();
        assert_eq!(entries.len(), LISTED + 1);
        let full = entries.iter().find(|entry| entry.code == Code::QuarantineFull).unwrap();
        assert_eq!(full.message, "3 more entries cannot be read");
        let orphans = entries.iter().filter(|entry| entry.code == Code::OrphanTensor);
        assert!(orphans.clone().count() == LISTED && orphans.clone().all(|o| o.call_id.is_some()));
    }

    #[test]
    fn images_end_where_sizes_and_frames_say_or_nowhere() {
        let imgs = Entry {
            file: 0,
            field: IMGS.into(),
            dtype: Dtype::F16,
            shape: Box::new([14, 12]),
            start: 0,
            bytes: 14 * 24,
        };
        let ints = |field: &str, values: &[i32]| MediaTensor {
            field: field.to_owned(),
            dtype: Dtype::I32,
            shape: vec![values.len() as u64],
            content: TensorContent::Inline(values.iter().flat_map(|n| n.to_le_bytes()).collect()),
        };
        let cuts = |sizes: &[i32], frames: Option<&[i32]>| {
            let mut inline = vec![ints(SIZES, sizes)];
            inline.extend(frames.map(|frames| ints(FRAMES, frames)));
            images(&imgs, &inline)
        };
        assert_eq!(cuts(&[4, 4, 4, 10], None), Some(vec![4 * 24, 10 * 24]));
        assert_eq!(cuts(&[4, 4, 2, 4], Some(&[3, 1])), Some(vec![12 * 24, 2 * 24]));
        for (sizes, frames) in [
            (&[4, 4, 4, 8][..], None),
            (&[4, 4, 4, 12], None),
            (&[4, 4, 4], None),
            (&[4, 7, 4, 4], None),
            (&[-4, -4, 4, 10], None),
            (&[0, 4, 4, 14], None),
            (&[4, 14], Some(&[1, 1][..])),
            (&[4, 14], Some(&[0])),
            (&[i32::MAX - 1, i32::MAX - 1], Some(&[i32::MAX])),
        ] {
            assert_eq!(cuts(sizes, frames), None, "{sizes:?} {frames:?}");
        }
        assert_eq!(images(&imgs, &[]), None);
        let odd = Entry { shape: Box::new([14, 13]), ..imgs.clone() };
        assert_eq!(images(&odd, &[ints(SIZES, &[4, 14])]), None);
    }
}
