//! `all_captured`: every recorded call, abandoned retries and branches included (rules 73-79).

use super::evidence::Evidence;
use super::index::{Index, names};
use super::judge::attributed;
use super::returned_history::declared_terminal;
use super::{Choice, Policy, Reason};
use crate::archive::{Completion, Ending, Rollout};
use crate::finding::Code;

/// The policy of everything that ran.
#[derive(Clone, Copy, Debug)]
pub struct AllCaptured;

impl Policy for AllCaptured {
    fn name(&self) -> &str {
        "all_captured"
    }

    fn choose(&self, rollout: &Rollout) -> Choice {
        let index = Index::new(rollout);
        let evidence = Evidence::read(rollout.result.as_deref());
        let mut problems = Vec::new();
        let scored = declared_terminal(&evidence, &index).unwrap_or_else(|problem| {
            problems.push(*problem);
            None
        });
        let scored = match problems.is_empty() {
            // The framework's own attribution is asked last.
            true => scored
                .or_else(|| scored_by_content(&evidence, &index))
                .or_else(|| index.number(attributed(rollout)?)),
            false => None,
        };
        let mut has_child = vec![false; index.committed.len()];
        for parent in index.parents.iter().flatten() {
            has_child[*parent] = true;
        }
        let kept = (0..index.committed.len()).filter(|&call| {
            let bad = index.committed[call].completion.ending() == Ending::Bad;
            !bad || has_child[call] || scored == Some(call)
        });
        let calls = names(&index, kept);
        if calls.is_empty() {
            let message = "the ledger commits to no call that could train";
            problems.push(Reason::new(Code::MissingEvidence, Vec::new(), message));
        }
        let unrecorded = (0..index.committed.len())
            .filter(|&call| index.committed[call].completion == Completion::Unrecorded);
        let unrecorded = names(&index, unrecorded);
        if !unrecorded.is_empty() {
            let message = format!(
                "the source records no completion status for {} of {} calls",
                unrecorded.len(),
                index.committed.len()
            );
            problems.push(Reason::new(Code::MissingCompletion, unrecorded, message));
        }
        Choice { calls, terminal: scored.map(|call| index.id(call)), problems }
    }
}

/// The one call whose whole output is the answer of the returned response.
fn scored_by_content(evidence: &Evidence, index: &Index) -> Option<usize> {
    let &first = evidence.answer.first()?;
    let answer = evidence.items.get(first..first + evidence.answer.len())?;
    if evidence.answer.last() != Some(&(first + answer.len() - 1)) {
        // Items of several responses.
        return None;
    }
    let whole = index.whole_at(answer);
    let mut whole = whole.into_iter().filter(|(_, length)| *length == answer.len());
    whole.next().filter(|_| whole.next().is_none()).map(|(call, _)| call)
}
