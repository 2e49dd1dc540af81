//! Rows as the step sees them: which tokens carry loss, which rows still train, and the normaliser.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::rows::Row;

/// The rows of one optimizer step.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    rows: &'a [Row],
    targets: Arc<[Vec<usize>]>,
    trains: Vec<bool>,
}

impl<'a> Batch<'a> {
    /// Takes rows with the masks and advantages that they carry. Rows that contradict themselves
    /// are refused as a corrupt file, and so are rows with media, whose pixels no decoder of text
    /// sees.
    pub fn new(rows: &'a [Row]) -> Result<Self> {
        let targets = rows.iter().map(targets_of).collect::<Result<_>>()?;
        let trains = rows.iter().map(|row| row.sample_mask == 1.0).collect();
        Ok(Self { rows, targets, trains })
    }

    /// The retained rollouts in row order, cut into `count` minibatches whose numbers of rollouts
    /// differ by one at most, larger ones first. A rollout is never cut, all rows keep their
    /// indices, and each minibatch has the normaliser of its own tokens, as upstream's global
    /// batches have.
    ///
    /// # Errors
    ///
    /// Fewer retained rollouts than minibatches.
    pub fn minibatches(&self, count: u32) -> Result<Vec<Self>> {
        if count <= 1 {
            return Ok(vec![self.clone()]);
        }
        let owner = |i: usize| {
            let row = &self.rows[i];
            row.rollout_id.as_ref().map_or(row.row_id.as_str(), |id| id.as_str())
        };
        let mut order: BTreeMap<&str, usize> = BTreeMap::new();
        for i in self.active() {
            let next = order.len();
            order.entry(owner(i)).or_insert(next);
        }
        let (rollouts, count) = (order.len(), count as usize);
        if rollouts < count {
            return Err(Error::usage(format!(
                "--minibatches {count}: the batch has {rollouts} rollouts with a token to train on"
            ))
            .help("Every minibatch needs a rollout: ask for fewer"));
        }
        let (least, longer) = (rollouts / count, rollouts % count);
        let end = |k: usize| least * k + k.min(longer);
        let part = |k: usize| {
            let within =
                |i: usize| order.get(owner(i)).is_some_and(|at| (end(k)..end(k + 1)).contains(at));
            let trains = (0..self.rows.len()).map(|i| self.trains[i] && within(i)).collect();
            Self { trains, ..self.clone() }
        };
        Ok((0..count).map(part).collect())
    }

    /// All rows, in order; every other accessor counts as these do.
    pub fn rows(&self) -> &'a [Row] {
        self.rows
    }

    /// Token positions of row `i` that carry loss if the row trains; none is position 0.
    pub fn targets(&self, i: usize) -> &[usize] {
        &self.targets[i]
    }

    /// Whether row `i` trains.
    pub fn trains(&self, i: usize) -> bool {
        self.trains[i]
    }

    /// Rows that have something to compute: they train and own at least one token.
    pub fn active(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.rows.len()).filter(|&i| self.trains(i) && !self.targets[i].is_empty())
    }

    /// N: retained valid tokens, the normaliser of loss and diagnostics (rule 121).
    pub fn valid_tokens(&self) -> u64 {
        self.active().map(|i| self.targets[i].len() as u64).sum()
    }

    /// Rows that train.
    pub fn valid_rows(&self) -> u64 {
        (0..self.rows.len()).filter(|&i| self.trains(i)).count() as u64
    }
}

fn targets_of(row: &Row) -> Result<Vec<usize>> {
    let corrupt = |what: String| {
        Error::format(format!("row {} {what}", row.row_id))
            .help("Build the rows again from the archive")
    };
    if let (true, Some(media)) = (row.sample_mask == 1.0, row.media.first()) {
        let (id, call) = (&row.row_id, &media.call);
        return Err(Error::usage(format!("row {id} holds media, which call {call} brought")).help(
            "The step trains decoders of text; leave rollouts with media out of the sources",
        ));
    }
    let tokens = row.input_ids.len();
    if row.loss_mask.len() != tokens || row.generation_logprobs.len() != tokens {
        return Err(corrupt(format!(
            "has {tokens} tokens, {} mask entries and {} log-probabilities; they must agree",
            row.loss_mask.len(),
            row.generation_logprobs.len()
        )));
    }
    if row.sample_mask != 0.0 && row.sample_mask != 1.0 {
        return Err(corrupt(format!("has sample_mask {}; it must be 0 or 1", row.sample_mask)));
    }
    if !row.advantage.is_finite() {
        return Err(corrupt(format!("has advantage {}; it must be finite", row.advantage)));
    }
    let mut targets = Vec::new();
    for (position, &mask) in row.loss_mask.iter().enumerate() {
        match (mask, position) {
            (0, _) => {}
            (1, 0) => {
                return Err(corrupt(
                    "carries loss on its first token, which nothing predicts".into(),
                ));
            }
            (1, _) => targets.push(position),
            _ => return Err(corrupt(format!("has loss_mask {mask}; it must be 0 or 1"))),
        }
    }
    if row.sample_mask == 1.0
        && let Some(&bad) = targets.iter().find(|&&t| row.generation_logprobs[t].is_nan())
    {
        return Err(corrupt(format!("has no log-probability at its trained token {bad}")));
    }
    Ok(targets)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::id::Digest32;
    use crate::rows::MediaRef;

    pub(crate) fn row(id: &str, loss_mask: &[u8]) -> Row {
        Row {
            row_id: id.to_owned(),
            group_id: "p".into(),
            rollout_id: Some(id.split("_s").next().unwrap_or(id).into()),
            slot: Some(0),
            group_size: 1,
            segment: 0,
            segment_count: 1,
            is_execution_padding: false,
            uses_borrowed_input: false,
            input_ids: vec![1; loss_mask.len()],
            loss_mask: loss_mask.to_vec(),
            generation_logprobs: vec![0.0; loss_mask.len()],
            spans: Vec::new(),
            reward: Some(1.0),
            advantage: 1.0,
            sample_mask: 1.0,
            truncated: false,
            mask_reason: None,
            routes: None,
            media: Vec::new(),
        }
    }

    #[test]
    fn media_are_refused_where_they_would_train() {
        let media = MediaRef { call: "c".into(), digest: Digest32([0; 32]) };
        let row = Row { media: vec![media], ..row("a_s0", &[0, 1]) };
        let error = Batch::new(std::slice::from_ref(&row)).unwrap_err();
        assert!(error.to_string().contains("row a_s0 holds media"), "{error}");
        assert!(Batch::new(&[Row { sample_mask: 0.0, ..row }]).is_ok());
    }

    #[test]
    fn counts_follow_the_masks() {
        let rows = [row("a_s0", &[0, 1, 0, 1]), row("b_s0", &[0, 0, 1]), row("c_s0", &[0, 0])];
        let batch = Batch::new(&rows).unwrap();
        assert_eq!((batch.valid_tokens(), batch.valid_rows()), (3, 3));
        assert_eq!(batch.active().collect::<Vec<_>>(), [0, 1]);
        let rows = rows.map(|row| Row { sample_mask: f32::from(row.row_id != "a_s0"), ..row });
        let batch = Batch::new(&rows).unwrap();
        assert_eq!((batch.valid_tokens(), batch.valid_rows()), (1, 2));
    }

    #[test]
    fn minibatches_share_out_whole_rollouts_that_train() {
        let mut rows: Vec<Row> = ["a_s0", "a_s1", "b_s0", "c_s0", "d_s0", "e_s0", "f_s0"]
            .iter()
            .map(|id| row(id, &[0, 1, 1]))
            .collect();
        rows[2].sample_mask = 0.0;
        rows[4].loss_mask = vec![0, 0, 0];
        let batch = Batch::new(&rows).unwrap();
        let cut = |count| -> Vec<Vec<usize>> {
            let parts = batch.minibatches(count).unwrap();
            parts.iter().map(|part| part.active().collect()).collect()
        };
        // Retained are a (two rows), c, e and f.
        assert_eq!(cut(1), [vec![0, 1, 3, 5, 6]]);
        assert_eq!(cut(2), [vec![0, 1, 3], vec![5, 6]]);
        assert_eq!(cut(3), [vec![0, 1, 3], vec![5], vec![6]]);
        assert_eq!(cut(4), [vec![0, 1], vec![3], vec![5], vec![6]]);
        let parts = batch.minibatches(2).unwrap();
        assert_eq!(parts.iter().map(Batch::valid_tokens).collect::<Vec<_>>(), [6, 4]);
        assert_eq!(parts[0].valid_rows(), 3);
        let error = batch.minibatches(5).unwrap_err();
        assert!(error.to_string().contains("has 4 rollouts"), "{error}");
    }

    #[test]
    fn rows_that_contradict_themselves_are_refused() {
        type Break = fn(&mut Row);
        let cases: [(Break, &str); 6] = [
            (|r| r.loss_mask[0] = 1, "first token"),
            (|r| r.loss_mask[1] = 2, "loss_mask 2"),
            (|r| r.loss_mask.truncate(1), "1 mask entries"),
            (|r| r.sample_mask = 0.5, "sample_mask 0.5"),
            (|r| r.advantage = f64::NAN, "advantage NaN"),
            (|r| r.generation_logprobs[1] = f32::NAN, "token 1"),
        ];
        for (break_it, word) in cases {
            let mut broken = row("a_s0", &[0, 1]);
            break_it(&mut broken);
            let error = Batch::new(std::slice::from_ref(&broken)).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
