//! Log-probabilities under the previous policy, as `step --dump-logprobs` writes them, and the
//! filter on how far they lie from the captured ones (rules 113 to 117).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};

use super::batch::BatchPlan;
use crate::archive::Group;
use crate::error::{Error, Result};
use crate::finding::Code;
use crate::id::RolloutId;
use crate::rows::{self, Row, build_group};
use crate::select::GroupSelection;
use crate::step::batch::Batch;
use crate::step::model::weights::map;
use crate::step::sequence_error::{SequenceErrors, SequenceFilter, sequence_errors};

const HELP: &str = "Build the rows without a threshold, score them with `forestctl step \
                    --dump-logprobs`, and build them again from the same archive and policy";

/// The open file.
pub struct PreviousFile {
    path: PathBuf,
    map: Mmap,
}

impl PreviousFile {
    /// Maps a file.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self { path: path.to_owned(), map: map(path).map_err(|e| e.help(HELP))? })
    }

    /// Reads its header.
    ///
    /// # Errors
    ///
    /// When it is no safetensors file.
    pub fn read(&self) -> Result<Previous<'_>> {
        let tensors = SafeTensors::deserialize(&self.map).map_err(|e| {
            Error::format(format!("{} is no safetensors file", self.path.display()))
                .because(e)
                .help(HELP)
        })?;
        Ok(Previous { path: &self.path, tensors })
    }
}

/// Log-probabilities by row.
pub struct Previous<'a> {
    path: &'a Path,
    tensors: SafeTensors<'a>,
}

impl Previous<'_> {
    /// The errors of the rows that train.
    ///
    /// # Errors
    ///
    /// A row that the file does not have, or has with other tokens.
    pub fn errors(&self, batch: &Batch) -> Result<SequenceErrors> {
        let mut previous = vec![Vec::new(); batch.rows().len()];
        for i in batch.active() {
            let row = &batch.rows()[i];
            let ids = row.input_ids.iter().map(|&id| f64::from(id));
            let targets = batch.targets(i).iter().map(|&target| target as f64);
            let same = |part: &str, expected: &mut dyn Iterator<Item = f64>| -> Result<()> {
                match self.numbers(row, part)?.into_iter().eq(expected) {
                    true => Ok(()),
                    false => Err(self.refused(row, "has other tokens there")),
                }
            };
            same("input_ids", &mut ids.into_iter())?;
            same("positions", &mut targets.into_iter())?;
            previous[i] = self.numbers(row, "previous")?;
            if previous[i].len() != batch.targets(i).len() {
                return Err(self.refused(row, "has another number of log-probabilities there"));
            }
        }
        Ok(sequence_errors(batch, &previous))
    }

    /// One tensor of a row. Ids and positions are far below 2^53.
    fn numbers(&self, row: &Row, part: &str) -> Result<Vec<f64>> {
        let name = format!("{}/{part}", row.row_id);
        let tensor = self.tensors.tensor(&name).map_err(|_| self.refused(row, "is not there"))?;
        let bytes = tensor.data();
        fn each<const N: usize>(bytes: &[u8], read: fn([u8; N]) -> f64) -> Vec<f64> {
            bytes.as_chunks().0.iter().map(|chunk| read(*chunk)).collect()
        }
        match tensor.dtype() {
            Dtype::F64 => Ok(each(bytes, f64::from_le_bytes)),
            Dtype::F32 => Ok(each(bytes, |chunk| f32::from_le_bytes(chunk).into())),
            Dtype::I64 => Ok(each(bytes, |chunk| i64::from_le_bytes(chunk) as f64)),
            Dtype::I32 => Ok(each(bytes, |chunk| i32::from_le_bytes(chunk).into())),
            other => Err(self.refused(row, &format!("has {part} there as {other:?}"))),
        }
    }

    fn refused(&self, row: &Row, what: &str) -> Error {
        Error::format(format!("{}: row {} {what}", self.path.display(), row.row_id)).help(HELP)
    }
}

/// A group's rows, and how far their captured log-probabilities lie from the previous ones.
#[derive(Debug)]
pub struct Built {
    /// The rows; those of rollouts beyond the threshold are masked.
    pub batch: rows::Batch,
    /// The errors, where previous log-probabilities are given, and the filter that took them.
    pub errors: Option<(SequenceErrors, SequenceFilter)>,
}

/// Builds the rows of a group as `plan` says.
///
/// # Errors
///
/// As [`Previous::errors`].
pub fn build(
    group: &Group,
    selection: &GroupSelection,
    plan: &BatchPlan,
    previous: Option<&Previous<'_>>,
) -> Result<Built> {
    let mut batch = build_group(group, selection, plan.row_multiple, &plan.grpo);
    let errors = previous.map(|previous| -> Result<_> {
        let rows = Batch::new(&batch.rows)?;
        let errors = previous.errors(&rows)?;
        let mut filter = SequenceFilter::new(plan.seq_logprob_error_threshold);
        filter.add(&errors, &rows);
        batch.mask(&found(filter.masked_rollouts()), &plan.grpo);
        Ok((errors, filter))
    });
    let errors = errors.transpose()?;
    Ok(Built { batch, errors })
}

/// Rollouts to mask, with the code that says so.
fn found<'a>(masked: impl IntoIterator<Item = &'a RolloutId>) -> BTreeMap<RolloutId, Code> {
    masked.into_iter().map(|id| (id.clone(), Code::SeqLogprobError)).collect()
}
