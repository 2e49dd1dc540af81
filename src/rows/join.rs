//! A whole batch, from one rows directory or from all shards of it.

use std::path::{Path, PathBuf};

use super::check;
use super::manifest::{Provenance, RowsManifest};
use super::model::Row;
use super::store::{MANIFEST, RowsDir, read};
use crate::error::{Error, Result};
use crate::id::Digest32;

/// The rows of a batch, all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct WholeBatch {
    /// What the rows were built from, and how.
    pub provenance: Provenance,
    /// Rows as one directory would hold them: by group, slot and segment, then the group's padding.
    pub rows: Vec<Row>,
    /// BLAKE3 of `rows.json`, which itself holds that of every part; of shards, the BLAKE3 of those
    /// of all shards in order.
    pub digest: Digest32,
}

/// Reads a batch from its directory, or from those of all its shards in any order.
///
/// # Errors
/// As [`read`], and when the directories are not one whole batch: shards are missing, given twice,
/// or of different batches.
pub fn read_batch(dirs: &[PathBuf]) -> Result<WholeBatch> {
    let mut shards = Vec::new();
    for dir in dirs {
        shards.push((dir.as_path(), digest(dir)?, read(dir)?));
    }
    shards.sort_by_key(|(_, _, rows)| rows.manifest.shard.map(|part| part.shard.index));
    refuse_others(&shards)?;
    let digest = match &shards[..] {
        [(_, digest, _)] => *digest,
        several => {
            let mut hasher = blake3::Hasher::new();
            for (_, digest, _) in several {
                hasher.update(&digest.0);
            }
            Digest32(*hasher.finalize().as_bytes())
        }
    };
    let Some((_, _, first)) = shards.first() else {
        return Err(Error::usage("no rows directory is given"));
    };
    let (provenance, counts) = (first.manifest.provenance.clone(), first.manifest.counts);
    let mut rows: Vec<Row> = shards.into_iter().flat_map(|(_, _, dir)| dir.rows).collect();
    if dirs.len() > 1 {
        // Shards hold whole groups, and a batch has its groups in the order of their ids.
        rows.sort_by(|a, b| a.group_id.cmp(&b.group_id));
    }
    match check::miscount(&counts, &rows) {
        None => Ok(WholeBatch { provenance, rows, digest }),
        Some((what, stated, found)) => Err(Error::format(format!(
            "the batch has {stated} {what}, and its shards hold {found}"
        ))
        .help("Build all shards again, from one archive and with the same flags")),
    }
}

type Shards<'a> = [(&'a Path, Digest32, RowsDir)];

/// Refuses directories that are not one whole batch.
fn refuse_others(shards: &Shards) -> Result<()> {
    let usage = |what: String, help: String| Err(Error::usage(what).help(help));
    let part = |rows: &RowsDir| rows.manifest.shard.map(|part| part.shard);
    for (i, (dir, _, rows)) in shards.iter().enumerate() {
        let Some(shard) = part(rows) else {
            if shards.len() == 1 {
                return Ok(());
            }
            return usage(
                format!("{} is a batch by itself, and a step takes one batch", dir.display()),
                "Name one rows directory, or the directories of all shards of a batch".to_owned(),
            );
        };
        if let Some((other, _, before)) = i.checked_sub(1).map(|before| &shards[before]) {
            if let Some(what) = apart(&before.manifest, &rows.manifest) {
                return usage(
                    format!(
                        "{} and {} are shards of different batches: {what} differ",
                        other.display(),
                        dir.display()
                    ),
                    "Build all shards from one archive with the same flags".to_owned(),
                );
            }
            if part(before) == Some(shard) {
                return usage(
                    format!("{} and {} both hold shard {shard}", other.display(), dir.display()),
                    "Name every shard once".to_owned(),
                );
            }
        }
    }
    let Some(whole) = shards.first().and_then(|(_, _, rows)| part(rows)) else { return Ok(()) };
    let here =
        |index| shards.iter().any(|(_, _, rows)| part(rows).is_some_and(|s| s.index == index));
    match (1..=whole.count).find(|index| !here(*index)) {
        None => Ok(()),
        Some(missing) => {
            let given: Vec<String> = shards
                .iter()
                .filter_map(|(_, _, rows)| part(rows))
                .map(|s| s.to_string())
                .collect();
            usage(
                format!(
                    "shard {missing}/{} is missing, and a step takes a whole batch; given: {}",
                    whole.count,
                    given.join(", ")
                ),
                "Name the directories of all shards, or build the rows without --shard".to_owned(),
            )
        }
    }
}

/// What two shards of one batch would share and these do not.
fn apart(a: &RowsManifest, b: &RowsManifest) -> Option<&'static str> {
    let count = |manifest: &RowsManifest| manifest.shard.map(|part| part.shard.count);
    if count(a) != count(b) {
        Some("numbers of shards")
    } else if a.provenance != b.provenance {
        Some("the archives or settings that they were built with")
    } else if a.counts != b.counts || a.row_multiple != b.row_multiple {
        Some("the counts of the whole batch")
    } else {
        None
    }
}

fn digest(dir: &Path) -> Result<Digest32> {
    let path = dir.join(MANIFEST);
    let text = std::fs::read(&path).map_err(|e| {
        Error::io("cannot read", &path, e)
            .help("A rows directory is what `forestctl build-rows ARCHIVE -o ROWS` writes")
    })?;
    Ok(Digest32(*blake3::hash(&text).as_bytes()))
}
