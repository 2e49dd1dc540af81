//! `forestctl du`

mod report;
mod show;

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rayon::prelude::*;

use self::report::{Part, Table};
use super::Exit;
use super::resolve::ConfigArg;
use super::selecting::{GroupFindings, SelectingArgs, has_errors, neither, show_findings};
use super::ui::Ui;
use crate::archive::{Group, MANIFEST as ARCHIVE};
use crate::config::GrpoSettings;
use crate::error::{Error, Result};
use crate::finding::Finding;
use crate::rows::{self, MANIFEST as ROWS, Row, build_group};
use crate::select::GroupSelection;
use crate::step::model::Architecture;
use crate::step::plan::cost::Rates;
use crate::step::plan::repetition::Repetition;
use crate::step::plan::shape::Shape;
use crate::step::settings::PACK_TOKENS;

/// Ranks that are listed one by one at most.
const MAX_RANKS: i64 = 4096;

const DEFAULT_PACK: NonZeroU64 = NonZeroU64::MIN.saturating_add(PACK_TOKENS - 1);

const EXAMPLES: &str = concat!(
    "\
Examples:
  forestctl du run.forest
  forestctl du run.forest --policy all_captured --by group
  forestctl du rows --model Qwen3-4B --pack-tokens 65536 --ranks 8
  forestctl du run.forest --by rollout --format csv

",
    exit_status!()
);

/// How often rows repeat their tokens, and what a step gains by computing each prefix once
///
/// Counts the rows that train: their tokens, those of each call once, and those of each prefix of
/// tokens once, within a prompt group. From these and the shape of a model the seconds of a step are
/// predicted, for one NVIDIA H200 in bfloat16, with packed rows and with shared prefixes. Rows of
/// an archive are made as build-rows makes them. docs/shared-prefix.md tells how all this is meant.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DuArgs {
    /// An archive or a rows directory
    #[arg(value_name = "ARCHIVE|ROWS")]
    source: PathBuf,
    /// What to count by; the total comes first, then what gains the most seconds
    #[arg(long, value_enum, value_name = "UNIT", default_value_t = Unit::Archive)]
    by: Unit,
    /// A model whose step is predicted: a name, or a folder with config.json; repeatable [default:
    /// qwen3-0.6b, qwen3-1.7b, qwen3-4b, qwen3-8b]
    #[arg(long = "model", value_name = "NAME|DIR")]
    models: Vec<String>,
    /// Tokens that are computed at once; rows that share more than fits are split, and each pack
    /// computes what it borrows
    #[arg(long, value_name = "TOKENS", default_value_t = DEFAULT_PACK)]
    pack_tokens: NonZeroU64,
    /// Show how the packs would be balanced over this many ranks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_RANKS))]
    ranks: Option<u32>,
    #[command(flatten)]
    config: ConfigArg,
    #[command(flatten)]
    selecting: SelectingArgs,
}

/// What is counted by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Unit {
    /// Everything together
    Archive,
    /// Every prompt group
    Group,
    /// Every rollout, which shares within itself alone
    Rollout,
}

pub(super) use report::schema;

/// A model to predict for.
#[derive(Clone, Debug)]
struct Model {
    /// As it was asked for.
    name: String,
    shape: Shape,
}

impl Model {
    fn parse(text: &str) -> Result<Self> {
        let config = Path::new(text).join("config.json");
        let shape = match (config.is_file(), Shape::named(text)) {
            (true, _) => Shape::of(&Architecture::read(&config)?),
            (false, Some(shape)) => shape,
            (false, None) => {
                let names: Vec<&str> = Shape::names().collect();
                return Err(Error::usage(format!(
                    "{text} is neither a folder with config.json nor a model known by name"
                ))
                .help(format!("Known by name are {}", names.join(", "))));
            }
        };
        Ok(Self { name: text.to_owned(), shape })
    }
}

/// What one prompt group comes to.
struct Counted {
    /// All of it.
    group: Part,
    /// Its rollouts, where they are asked for.
    rollouts: Vec<Part>,
    /// How many rollouts of it train.
    training_rollouts: u64,
    /// Rows of it that hold media, which no step takes.
    media_rows: u64,
}

impl DuArgs {
    /// Runs the command.
    pub fn run(self, ui: &Ui) -> Result<Exit> {
        let names = match self.models.is_empty() {
            true => Shape::names().map(str::to_owned).collect(),
            false => self.models.clone(),
        };
        let models: Vec<Model> =
            names.iter().map(|name| Model::parse(name)).collect::<Result<_>>()?;
        let mut table = Table::new(self.by, Rates::H200, models, self.pack_tokens.get());
        let findings = match self.source.join(ARCHIVE).is_file() {
            true => self.count_archive(&mut table, ui)?,
            false => self.count_rows(&mut table, ui)?,
        };
        show_findings(&findings, ui);
        if table.is_empty() {
            let media = match table.media_rows {
                0 => String::new(),
                rows => format!("; {rows} rows hold media, and the step trains decoders of text"),
            };
            let source = self.source.display();
            return Err(Error::nothing(format!(
                "no row of {source} has a token to train on{media}"
            ))
            .help("`forestctl select` says why rollouts are masked"));
        }
        table.finish(self.ranks)?.show(&self.source, ui)?;
        Ok(match has_errors(&findings) {
            true => Exit::Findings,
            false => Exit::Fine,
        })
    }

    fn count_archive(&self, table: &mut Table, ui: &Ui) -> Result<Vec<Finding>> {
        let mut resolver = self.config.resolver()?;
        let settled = self.selecting.settle(&mut resolver)?;
        resolver.tell_ignored("du", ui);
        let archive = SelectingArgs::open(&self.source)?;
        table.policy = Some(settled.policy.to_string());
        table.bytes =
            bytes_of(&self.source, ARCHIVE, archive.manifest().files.iter().map(|f| f.bytes))?;
        let mut findings = GroupFindings::default();
        let work = |group: &Group, selection: GroupSelection, found| {
            let rows = build_group(group, &selection, 1, &GrpoSettings::default()).rows;
            (group.group_id.clone(), self.count(rows), found)
        };
        self.selecting.each_group(&settled, &archive, ui, work, |(group_id, counted, found)| {
            findings.add(&group_id, found);
            table.add(counted?);
            Ok(())
        })?;
        Ok(findings.into_vec())
    }

    fn count_rows(&self, table: &mut Table, ui: &Ui) -> Result<Vec<Finding>> {
        if !self.source.join(ROWS).is_file() {
            return Err(neither(&self.source));
        }
        self.selecting.refuse_for_rows(&self.config)?;
        let read = rows::read(&self.source)?;
        table.bytes = bytes_of(&self.source, ROWS, read.manifest.parts.iter().map(|p| p.bytes))?;
        ui.start_threads(table.bytes);
        let groups: Vec<&[Row]> = read.rows.chunk_by(|a, b| a.group_id == b.group_id).collect();
        let counted = groups.par_iter().map(|rows| self.count(rows.to_vec()));
        let counted: Vec<Counted> = counted.collect::<Result<_>>()?;
        counted.into_iter().for_each(|group| table.add(group));
        Ok(Vec::new())
    }

    /// Counts the rows of one prompt group.
    fn count(&self, mut rows: Vec<Row>) -> Result<Counted> {
        let before = rows.len();
        rows.retain(|row| row.sample_mask == 0.0 || row.media.is_empty());
        let media_rows = (before - rows.len()) as u64;
        let part = |rows: &[Row], rollout: bool| -> Result<Part> {
            let first = rows.first();
            Ok(Part {
                group_id: first.map(|row| row.group_id.clone()),
                rollout_id: first.and_then(|row| row.rollout_id.clone()).filter(|_| rollout),
                repetition: Repetition::of(rows, self.pack_tokens.get(), Rates::H200.dense_tokens)?,
            })
        };
        // Rows of a rollout stand together.
        let rollouts = rows.chunk_by(|a, b| a.rollout_id == b.rollout_id);
        let trains = |row: &Row| row.sample_mask == 1.0 && row.loss_tokens() > 0;
        let training: Vec<&[Row]> = rollouts.filter(|rows| rows.iter().any(trains)).collect();
        Ok(Counted {
            group: part(&rows, false)?,
            rollouts: match self.by {
                Unit::Rollout => {
                    training.iter().map(|rows| part(rows, true)).collect::<Result<_>>()?
                }
                _ => Vec::new(),
            },
            training_rollouts: training.len() as u64,
            media_rows,
        })
    }
}

/// Bytes of a directory: those of the files that its manifest lists, and of the manifest.
fn bytes_of(dir: &Path, manifest: &str, listed: impl Iterator<Item = u64>) -> Result<u64> {
    let path = dir.join(manifest);
    let own = std::fs::metadata(&path).map_err(|e| Error::io("cannot read", &path, e))?.len();
    Ok(listed.fold(own, u64::saturating_add))
}
