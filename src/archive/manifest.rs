//! `archive.json`: what the archive holds, file by file, and a digest of itself.

use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Group, SourceFile};
use crate::error::{Error, Result};
use crate::id::Digest32;

/// Name of the manifest within an archive.
pub const MANIFEST: &str = "archive.json";

/// Version of the archive format. A reader takes every minor version of its own major one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormatVersion {
    /// `forestctl-archive`.
    pub name: String,
    /// Changes when an older reader would misread.
    pub major: u32,
    /// Changes when something was added that an older reader can leave out.
    pub minor: u32,
}

impl FormatVersion {
    /// The version that this code writes.
    pub fn current() -> Self {
        Self { name: "forestctl-archive".to_owned(), major: 2, minor: 0 }
    }

    /// Whether a reader of version `reader` can read an archive of this version.
    ///
    /// # Errors
    ///
    /// [`crate::error::Kind::Format`] with both versions and what to do.
    pub fn check_readable_by(&self, reader: &FormatVersion) -> Result<()> {
        if self.name != reader.name {
            return Err(Error::format(format!(
                "the manifest says {:?}, which is not an archive",
                self.name
            )));
        }
        if self.major == reader.major {
            return Ok(());
        }
        let (found, read) = (self.major, reader.major);
        let help = if found > read {
            "Use a newer forestctl, or ingest the sources again with this one"
        } else {
            "Ingest the sources again with this forestctl, to another output or with --force"
        };
        let minor = self.minor;
        Err(Error::format(format!("archive format {found}.{minor}; this forestctl reads {read}.x"))
            .help(help))
    }

    /// Whether a writer of version `writer` can add to an archive of this version, which it can
    /// read, and keep all of it.
    ///
    /// # Errors
    ///
    /// [`crate::error::Kind::Format`] with both versions and what to do.
    pub fn check_growable_by(&self, writer: &FormatVersion) -> Result<()> {
        if self.minor <= writer.minor {
            return Ok(());
        }
        let (major, found, written) = (self.major, self.minor, writer.minor);
        Err(Error::format(format!(
            "archive format {major}.{found}; this forestctl writes {major}.{written}, and would \
             lose what is new in it"
        ))
        .help("Add to it with a newer forestctl, or ingest to another output"))
    }
}

/// Totals of an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Prompt groups.
    pub groups: u64,
    /// Logical rollouts.
    pub rollouts: u64,
    /// Captured calls.
    pub calls: u64,
    /// Tokens as stored: those of every call's delta.
    pub tokens: u64,
    /// Generated tokens among them.
    pub generated_tokens: u64,
    /// Lines and files in quarantine.
    pub quarantined: u64,
}

/// Totals of one part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartCounts {
    /// Prompt groups.
    pub groups: u64,
    /// Logical rollouts.
    pub rollouts: u64,
    /// Captured calls.
    pub calls: u64,
    /// Tokens as stored.
    pub tokens: u64,
    /// Generated tokens among them.
    pub generated_tokens: u64,
}

impl PartCounts {
    /// Counts whole groups.
    pub fn of(groups: &[Group]) -> Self {
        let mut counts = Self { groups: groups.len() as u64, ..Self::default() };
        for rollout in groups.iter().flat_map(|group| &group.rollouts) {
            counts.rollouts += 1;
            for call in &rollout.calls {
                counts.calls += 1;
                counts.tokens += call.token_ids.len() as u64;
                counts.generated_tokens += call.generation().len() as u64;
            }
        }
        counts
    }
}

impl Counts {
    /// Totals of parts and quarantine; `None` when they overflow.
    pub(super) fn sum(parts: &[PartCounts], quarantined: u64) -> Option<Self> {
        parts.iter().try_fold(Self { quarantined, ..Self::default() }, |sum, part| {
            Some(Self {
                groups: sum.groups.checked_add(part.groups)?,
                rollouts: sum.rollouts.checked_add(part.rollouts)?,
                calls: sum.calls.checked_add(part.calls)?,
                tokens: sum.tokens.checked_add(part.tokens)?,
                generated_tokens: sum.generated_tokens.checked_add(part.generated_tokens)?,
                quarantined,
            })
        })
    }
}

/// One file of the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Path within the archive, with `/`.
    pub path: String,
    /// Size.
    pub bytes: u64,
    /// Rows of a table, lines of a text.
    pub rows: u64,
    /// BLAKE3 of its bytes.
    pub blake3: Digest32,
}

/// What wrote the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// `forestctl`.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// The manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Format and its version; read before anything else.
    pub format: FormatVersion,
    /// What wrote it.
    pub tool: Tool,
    /// Parts, each a set of tables of whole prompt groups.
    pub parts: Vec<PartCounts>,
    /// Totals.
    pub counts: Counts,
    /// Every file but the manifest, in order of path.
    pub files: Vec<FileEntry>,
    /// Every file that was found among the sources, in order of path.
    pub sources: Vec<SourceFile>,
    /// BLAKE3 over the rollouts and their digests: what was captured, whatever files it came in
    /// and in whatever order it was added.
    pub content: Digest32,
    /// BLAKE3 of the manifest's own text with the digits of this member left out.
    pub blake3: String,
}

impl Manifest {
    /// The text of the manifest, its own digest filled in.
    pub fn to_text(&self) -> Result<String> {
        let bare = Manifest { blake3: String::new(), ..self.clone() };
        let text = serde_json::to_string_pretty(&bare)
            .map_err(|e| Error::format("cannot write the manifest").because(e))?;
        let digest = blake3::hash(text.as_bytes()).to_hex();
        Ok(text.replace(BARE, &format!("\"blake3\": \"{digest}\"\n}}")) + "\n")
    }

    /// Reads and checks the manifest of the archive at `dir`.
    pub fn read(dir: &Path) -> Result<Self> {
        let path = dir.join(MANIFEST);
        let text = text_of(&path).map_err(|e| {
            Error::io("cannot read", &path, e)
                .help("Give the directory that `forestctl ingest -o` wrote")
        })?;
        Self::from_text(&text, &path)?.checked(&path)
    }

    fn from_text(text: &str, path: &Path) -> Result<Self> {
        #[derive(Deserialize)]
        struct Head {
            format: FormatVersion,
        }
        let restore = "Restore the file from a copy, or ingest again with --force";
        let broken = |e: serde_json::Error| {
            let what = format!("{} is not the manifest of an archive", path.display());
            Error::format(what).because(e).help(restore)
        };
        let head: Head = serde_json::from_str(text).map_err(broken)?;
        head.format.check_readable_by(&FormatVersion::current())?;
        let manifest: Manifest = serde_json::from_str(text).map_err(broken)?;
        let whole = format!("\"blake3\": \"{}\"\n}}\n", manifest.blake3);
        let digest = text
            .strip_suffix(&whole)
            .map(|start| blake3::hash(format!("{start}{BARE}").as_bytes()).to_hex());
        if digest.is_none_or(|digest| *digest != *manifest.blake3) {
            let what = "was changed: it does not give the digest that it carries";
            return Err(Error::format(format!("{} {what}", path.display())).help(restore));
        }
        Ok(manifest)
    }

    /// Refuses what no archive lists.
    fn checked(self, path: &Path) -> Result<Self> {
        let plain = |path: &str| {
            !path.is_empty()
                && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
        };
        let lie = |what: String| {
            Err(Error::format(format!("{} {what}", path.display()))
                .help("Ingest the sources again with --force"))
        };
        if let Some(file) = self.files.iter().find(|file| !plain(&file.path)) {
            return lie(format!("lists {:?}, which is no path within an archive", file.path));
        }
        if !self.files.is_sorted_by(|a, b| a.path < b.path) {
            return lie("lists files twice or out of order".to_owned());
        }
        if Counts::sum(&self.parts, self.counts.quarantined) != Some(self.counts) {
            return lie("states totals that its parts do not give".to_owned());
        }
        for part in 0..self.parts.len() as u64 {
            for table in TABLES {
                let name = part_path(table, part);
                if self.file(&name).is_none() {
                    let parts = self.parts.len();
                    return lie(format!("counts {parts} parts, but does not list {name}"));
                }
            }
        }
        // With those of every part there, more of them would be read by nobody.
        let of_parts = |file: &&FileEntry| {
            TABLES.iter().any(|table| file.path.split('/').next() == Some(table))
        };
        let (listed, parts) = (self.files.iter().filter(of_parts).count(), self.parts.len());
        if listed != parts * TABLES.len() {
            return lie(format!("counts {parts} parts, but lists {listed} tables"));
        }
        Ok(self)
    }

    /// The entry of a file.
    pub fn file(&self, path: &str) -> Option<&FileEntry> {
        let at = self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok()?;
        self.files.get(at)
    }
}

/// The text of a regular file; a pipe or a device may have no end.
fn text_of(path: &Path) -> std::io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(std::io::Error::new(ErrorKind::InvalidInput, "it is not a file"));
    }
    fs::read_to_string(path)
}

/// How the text ends before the digest is filled in.
const BARE: &str = "\"blake3\": \"\"\n}";

/// Folders of tables; every part has one file in each.
pub(super) const TABLES: [&str; 4] = ["calls", "ledger", "origins", "rollouts"];

pub(super) fn part_path(table: &str, part: u64) -> String {
    format!("{table}/part-{part:05}.parquet")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_takes_any_minor_version_of_its_major_one() {
        let version = |major, minor| FormatVersion { major, minor, ..FormatVersion::current() };
        assert!(version(1, 9).check_readable_by(&version(1, 0)).is_ok());
        let newer = version(2, 0).check_readable_by(&version(1, 3)).unwrap_err();
        assert_eq!(newer.to_string(), "archive format 2.0; this forestctl reads 1.x");
        assert!(newer.advice().unwrap().contains("newer forestctl"));
        let older = version(1, 3).check_readable_by(&version(2, 0)).unwrap_err();
        assert!(older.advice().unwrap().starts_with("Ingest"));
    }
}
