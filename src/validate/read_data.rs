//! Tensor data of an archive: whether what calls refer to is there, and whether it is what it
//! was (`--read-data`).

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use super::values::place;
use crate::archive::{Archive, Group, Piece};
use crate::error::Result;
use crate::finding::{Code, Finding, Location};
use crate::id::Digest32;

/// How much tensor data to read. Digests decide which, so that the same archive gives the same
/// share every time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReadData {
    /// The `n`th of `of` shares; all of them together are everything, and no two overlap.
    Share {
        /// From 1.
        n: u64,
        /// At least `n`.
        of: u64,
    },
    /// This much of the pieces, above 0 and up to 100; at least one piece.
    Percent(f64),
}

impl ReadData {
    /// Everything.
    pub const ALL: ReadData = ReadData::Percent(100.0);

    /// Which of `pieces`, in order of digest, to read.
    fn choose(self, pieces: &BTreeMap<Digest32, u64>) -> BTreeSet<Digest32> {
        let digests = pieces.keys().copied();
        match self {
            ReadData::Share { n, of } => digests
                .filter(|digest| {
                    let [a, b, c, d, e, f, g, h, ..] = digest.0;
                    u64::from_be_bytes([a, b, c, d, e, f, g, h]) % of == n - 1
                })
                .collect(),
            ReadData::Percent(percent) => {
                let count = (pieces.len() as f64 * percent / 100.0).ceil() as usize;
                digests.take(count).collect()
            }
        }
    }
}

impl FromStr for ReadData {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is neither a share such as 1/4 nor a percentage such as 2.5%");
        if let Some((n, of)) = text.split_once('/') {
            let (n, of): (u64, u64) =
                n.parse().and_then(|n| Ok((n, of.parse()?))).map_err(|_| wrong())?;
            return match (1..=of).contains(&n) {
                true => Ok(ReadData::Share { n, of }),
                false => Err(format!("there is no share {n} of {of}; the first is 1/{of}")),
            };
        }
        let percent: f64 =
            text.strip_suffix('%').and_then(|number| number.parse().ok()).ok_or_else(wrong)?;
        match percent > 0.0 && percent <= 100.0 {
            true => Ok(ReadData::Percent(percent)),
            false => Err(format!("{text} is not above 0% and up to 100%")),
        }
    }
}

/// How much was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Pieces of tensors.
    pub pieces: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Which pieces an archive holds. Their data are not read for it.
#[derive(Clone, Debug, Default)]
pub struct Stored(BTreeMap<Digest32, u64>);

impl Stored {
    /// Looks into every media file. One that cannot be read is [`Archive::check_files`]'s to
    /// report, and holds nothing.
    pub fn new(archive: &Archive) -> Self {
        let indices = archive.media_files().filter_map(|file| archive.read_piece_index(file).ok());
        Self(indices.flatten().map(|Piece { digest, bytes }| (digest, bytes)).collect())
    }

    /// Tensors of `groups` whose data the archive does not hold, once for each tensor.
    pub fn check(&self, groups: &[Group]) -> Vec<Finding> {
        let there = |piece: &Piece| self.0.get(&piece.digest) == Some(&piece.bytes);
        let missing = |piece: &Piece| {
            (!there(piece)).then(|| {
                let Piece { digest, bytes } = piece;
                (Code::MissingTensor, format!("no file holds its {bytes} bytes {digest}"))
            })
        };
        users(groups, missing).map(|(finding, _)| finding).collect()
    }

    /// Reads a share of the tensor data and compares it with its digests. Memory is that of one
    /// piece, and of one part where something is wrong.
    ///
    /// # Errors
    ///
    /// As [`Archive::read_part`], when the calls of wrong data are looked for.
    pub fn read(
        &self,
        archive: &Archive,
        share: ReadData,
        mut find: impl FnMut(Finding),
    ) -> Result<Amount> {
        let chosen = share.choose(&self.0);
        let mut amount = Amount::default();
        let mut corrupt: BTreeMap<Digest32, (&str, String)> = BTreeMap::new();
        for file in archive.media_files() {
            let whole = archive.read_pieces(
                file,
                |piece| chosen.contains(&piece.digest),
                |Piece { digest, bytes }, data| {
                    amount.pieces += 1;
                    amount.bytes += data.map_or(0, |data| data.len() as u64);
                    let wrong = match data {
                        Err(why) => why.to_owned(),
                        Ok(data) if data.len() as u64 != bytes => {
                            format!("{} bytes are there, not {bytes}", data.len())
                        }
                        Ok(data) if *blake3::hash(data).as_bytes() != digest.0 => {
                            "its bytes do not give its BLAKE3".to_owned()
                        }
                        Ok(_) => return,
                    };
                    corrupt.insert(digest, (&file.path, wrong));
                },
            );
            if let Err(why) = whole {
                let path = &file.path;
                let at = Location { file: Some(path.clone()), ..Location::default() };
                find(Finding::new(Code::CorruptTensor, format!("{path}: {why}")).at(at));
            }
        }
        if corrupt.is_empty() {
            return Ok(amount);
        }
        let mut unused: BTreeSet<Digest32> = corrupt.keys().copied().collect();
        for part in 0..archive.part_count() {
            let groups = archive.read_part(part)?;
            let wrong = |piece: &Piece| {
                let (_, why) = corrupt.get(&piece.digest)?;
                Some((Code::CorruptTensor, format!("tensor data {}: {why}", piece.digest)))
            };
            for (mut finding, piece) in users(&groups, wrong) {
                unused.remove(&piece.digest);
                finding.location.file = corrupt.get(&piece.digest).map(|(file, _)| (*file).into());
                finding.location.line = None;
                find(finding);
            }
        }
        for digest in unused {
            let Some((file, why)) = corrupt.get(&digest) else { continue };
            let at = Location { file: Some((*file).to_owned()), ..Location::default() };
            let message = format!("tensor data {digest}, which no call refers to: {why}");
            find(Finding::new(Code::CorruptTensor, message).at(at));
        }
        Ok(amount)
    }
}

/// Tensors with a piece that something is wrong with, the first such piece of each.
fn users<'a>(
    groups: &'a [Group],
    wrong: impl Fn(&Piece) -> Option<(Code, String)> + 'a,
) -> impl Iterator<Item = (Finding, &'a Piece)> {
    let rollouts = groups.iter().flat_map(|group| &group.rollouts);
    let calls = rollouts.flat_map(|rollout| rollout.calls.iter().map(move |call| (rollout, call)));
    let tensors = calls
        .flat_map(|(rollout, call)| call.tensors.iter().map(move |tensor| (rollout, call, tensor)));
    tensors.filter_map(move |(rollout, call, tensor)| {
        let (piece, (code, why)) =
            tensor.pieces().iter().find_map(|piece| Some((piece, wrong(piece)?)))?;
        let message = format!("{} of call {}: {why}", tensor.field, call.call_id);
        let finding = Finding::new(code, message)
            .rollout(&rollout.rollout_id)
            .call(&call.call_id)
            .at(place(call).field(tensor.field.as_str()));
        Some((finding, piece))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_percentages_are_read_to_the_letter() {
        let parse = |text: &str| text.parse::<ReadData>();
        assert_eq!(parse("1/4"), Ok(ReadData::Share { n: 1, of: 4 }));
        assert_eq!(parse("4/4"), Ok(ReadData::Share { n: 4, of: 4 }));
        assert_eq!(parse("2.5%"), Ok(ReadData::Percent(2.5)));
        assert_eq!(parse("100%"), Ok(ReadData::ALL));
        for wrong in [
            "", "%", "/", "1", "0/4", "5/4", "1/0", "-1/4", "1/4/4", "0%", "101%", "-1%", "NaN%",
            "inf%", "1/x",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("5/4").unwrap_err().contains("1/4"));
    }

    #[test]
    fn shares_are_everything_once_and_percentages_that_many() {
        let digest = |n: u64| Digest32(*blake3::hash(&n.to_le_bytes()).as_bytes());
        let pieces: BTreeMap<Digest32, u64> = (0..1000).map(|n| (digest(n), n)).collect();
        let mut seen = BTreeSet::new();
        for n in 1..=7 {
            let share = ReadData::Share { n, of: 7 }.choose(&pieces);
            assert!((100..190).contains(&share.len()), "{}", share.len());
            assert!(share.into_iter().all(|digest| seen.insert(digest)));
        }
        assert_eq!(seen.len(), 1000);
        for (percent, count) in [(100.0, 1000), (25.0, 250), (0.01, 1), (0.11, 2), (99.95, 1000)] {
            assert_eq!(ReadData::Percent(percent).choose(&pieces).len(), count, "{percent}");
        }
        assert!(ReadData::ALL.choose(&BTreeMap::new()).is_empty());
    }
}
