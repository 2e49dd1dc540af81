//! The verdict on a choice: what masks a rollout whatever the policy (rules 71, 74-79, 83-88).

use super::index::Index;
use super::{Choice, Policy, Reason, RolloutSelection, SelectSettings, layout};
use crate::archive::{CaptureFailure, Completeness, Completion, Ending, Rollout};
use crate::finding::{Code, Finding, Location};
use crate::id::CallId;

/// Lets `policy` choose, and judges the choice.
pub fn judge(
    rollout: &Rollout,
    policy: &dyn Policy,
    settings: &SelectSettings,
) -> (RolloutSelection, Vec<Finding>) {
    let mut choice = policy.choose(rollout);
    let index = Index::new(rollout);
    let disagreement = disagreement(rollout, &choice);
    let unattributed = choice
        .problems
        .iter()
        .any(|p| matches!(p.code, Code::UnattributedTerminal | Code::ContradictoryEvidence))
        || choice.calls.is_empty();
    if choice.terminal.is_none() && !unattributed {
        // The framework's own attribution, where the result says nothing.
        choice.terminal = attributed(rollout).filter(|id| index.number(id).is_some()).cloned();
    }
    let numbers: Vec<usize> = choice.calls.iter().filter_map(|id| index.number(id)).collect();

    let mut problems: Vec<Reason> = Vec::new();
    let invalid = settings.invalid.get(&rollout.rollout_id);
    // A group that is inconsistent is dropped as a whole, and says so itself.
    if let Some(&code) = invalid.filter(|code| **code != Code::InconsistentGroup) {
        let message =
            format!("validation found {code}; `forestctl validate` names the calls and fields");
        problems.push(Reason::new(code, Vec::new(), message));
    }
    problems.extend(capture(rollout, &choice, &index));
    if problems.is_empty() {
        // A broken capture needs no witness and no layout (rule 107); a whole one needs both.
        if rollout.completeness == Completeness::Unknown && !settings.assume_complete {
            let message = "nothing tells whether calls of this rollout were lost";
            problems.push(Reason::new(Code::CompletenessUnknown, Vec::new(), message));
        }
        problems.append(&mut choice.problems);
        problems.extend(layout::problems(rollout, &index, &choice.calls));
        problems.extend(endings(&index, &numbers));
        problems.extend(terminal(&choice, &problems));
        problems.extend(values(rollout, &index, &numbers));
        if rollout.mask_sample {
            let message = "the environment asked to mask this rollout";
            problems.push(Reason::new(Code::EnvironmentMasked, Vec::new(), message));
        }
    }

    let mut findings: Vec<Finding> =
        problems.iter().map(|problem| finding(rollout, &index, problem)).collect();
    findings.extend(disagreement);
    let unrecorded =
        |&number: &usize| index.committed[number].completion.ending() == Ending::Unrecorded;
    if problems.is_empty() && numbers.iter().any(unrecorded) {
        // Policies that need the status have objected already.
        let message = "the source records no completion status, so length stops are unknown";
        let problem = Reason::new(Code::CompletionUnrecorded, Vec::new(), message);
        findings.push(finding(rollout, &index, &problem));
    }
    let mut selection = RolloutSelection {
        rollout_id: rollout.rollout_id.clone(),
        slot: rollout.slot,
        calls: choice.calls,
        terminal: choice.terminal,
        reasons: problems,
        truncated: false,
    };
    let stopped = |&number: &usize| index.committed[number].completion.ending() == Ending::Length;
    selection.truncated = selection.has_layout() && numbers.iter().any(stopped);
    (selection, findings)
}

/// The scored call as the receipt attributes it; a leaf that its heuristic found is no witness
/// (rules 65, 79).
pub(super) fn attributed(rollout: &Rollout) -> Option<&CallId> {
    #[derive(serde::Deserialize)]
    struct Attribution {
        terminal_selection: Option<String>,
    }
    let recorded = rollout.ledger.terminal_call_id.as_ref()?;
    let receipt = rollout.ledger.receipt.as_deref();
    let attribution = receipt.and_then(|text| serde_json::from_str::<Attribution>(text).ok());
    let how = attribution.and_then(|attribution| attribution.terminal_selection);
    Some(recorded).filter(|_| how.as_deref() != Some("heuristic"))
}

/// The scored call by the result against the one by the receipt. The result decides (rule 79).
fn disagreement(rollout: &Rollout, choice: &Choice) -> Option<Finding> {
    let (ours, theirs) = (choice.terminal.as_ref()?, rollout.ledger.terminal_call_id.as_ref()?);
    (ours != theirs).then(|| {
        let message = format!("the result scores call {ours}, the receipt call {theirs}");
        let at = Location::default().scope(rollout.capture_key.clone());
        Finding::new(Code::TerminalMismatch, message)
            .rollout(&rollout.rollout_id)
            .call(theirs)
            .at(at)
    })
}

fn finding(rollout: &Rollout, index: &Index, problem: &Reason) -> Finding {
    let mut finding =
        Finding::new(problem.code, problem.message.clone()).rollout(&rollout.rollout_id);
    let mut location = Location::default();
    if let Some(id) = problem.calls.first() {
        finding = finding.call(id);
        if let Some(record) = index.number(id).and_then(|number| index.records[number]) {
            location = Location::line(record.origin.file.clone(), record.origin.line);
        }
    }
    finding.at(location.scope(rollout.capture_key.clone()))
}

/// Pending calls, failures, and what the receipt or the store says of the capture as a whole
/// (rules 86-88).
fn capture(rollout: &Rollout, choice: &Choice, index: &Index) -> Vec<Reason> {
    let ledger = &rollout.ledger;
    let mut problems = Vec::new();
    if let Some(first) = ledger.pending.first() {
        let message = match ledger.pending.len() {
            1 => format!("call {first} was admitted, and neither acknowledged nor failed"),
            n => format!("{n} calls were admitted, and neither acknowledged nor failed"),
        };
        problems.push(Reason::new(Code::CapturePending, ledger.pending.clone(), message));
    }
    let mut cancelled = false;
    for failure in &ledger.failures {
        let selected = choice.calls.contains(&failure.call_id);
        let number = index.number(&failure.call_id);
        let staged = number.is_some_and(|number| index.records[number].is_some());
        if failure.is_cancellation() && staged && !selected && ledger.pending.is_empty() {
            cancelled = true;
            continue;
        }
        let (code, what) = match selected {
            true => (Code::FailedSelectedCall, "selected call"),
            false => (Code::CaptureFailed, "call"),
        };
        let same = problems.iter_mut().find(|p: &&mut Reason| {
            p.code == code && p.capture_reason.as_ref() == Some(&failure.reason)
        });
        if let Some(same) = same {
            if !same.calls.contains(&failure.call_id) {
                same.calls.push(failure.call_id.clone());
            }
            continue;
        }
        let message =
            format!("the capture of {what} {} failed: {}", failure.call_id, failure.reason);
        let mut problem = Reason::new(code, vec![failure.call_id.clone()], message);
        problem.capture_reason = Some(failure.reason.clone());
        problems.push(problem);
    }
    if rollout.completeness == Completeness::Incomplete {
        let message = "the source says that calls of this rollout are missing";
        problems.push(Reason::new(Code::CaptureIncomplete, Vec::new(), message));
    }
    if !problems.is_empty() {
        return problems;
    }
    match &ledger.failure_reason {
        // Gym itself poisons a receipt for a cancellation that rule 87 exempts.
        Some(reason) if cancelled && reason == CaptureFailure::CANCELLATION => {}
        Some(reason) => {
            let message = format!("the receipt says that the capture failed: {reason:?}");
            let mut problem = Reason::new(Code::RolloutFailed, Vec::new(), message);
            problem.capture_reason = Some(reason.clone());
            problems.push(problem);
        }
        None if ledger.capture_poisoned && !cancelled => {
            let message = "the receipt marks the capture as poisoned and gives no reason";
            problems.push(Reason::new(Code::CapturePoisoned, Vec::new(), message));
        }
        None => {}
    }
    problems
}

/// Selected calls that ended badly, by how they ended (rules 76, 85).
fn endings(index: &Index, numbers: &[usize]) -> Vec<Reason> {
    let mut problems: Vec<Reason> = Vec::new();
    for &number in numbers {
        let completion = &index.committed[number].completion;
        if completion.ending() != Ending::Bad {
            continue;
        }
        let same = problems.iter_mut().find(|p| p.completion.as_ref() == Some(completion));
        if let Some(same) = same {
            same.calls.push(index.id(number));
            continue;
        }
        let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "unknown".to_owned());
        let message = match completion {
            Completion::Recorded { status, finish_reason } => format!(
                "selected call {} ended with status {} and finish reason {}",
                index.id(number),
                word(status),
                word(finish_reason)
            ),
            Completion::Unrecorded => continue,
        };
        let mut problem = Reason::new(Code::FailedSelectedCall, vec![index.id(number)], message);
        problem.completion = Some(completion.clone());
        problems.push(problem);
    }
    problems
}

/// The scored call is known and selected (rules 67, 79, 83). Evidence that failed already says
/// more than that the scored call is unknown.
fn terminal(choice: &Choice, problems: &[Reason]) -> Option<Reason> {
    match &choice.terminal {
        Some(id) if choice.calls.contains(id) => None,
        Some(id) => {
            let message = format!("call {id} was scored, and is not selected");
            Some(Reason::new(Code::TerminalNotSelected, vec![id.clone()], message))
        }
        None if problems.iter().any(|p| is_evidence(p.code)) => None,
        None => {
            let message = "neither response ids nor content tell which call was scored";
            Some(Reason::new(Code::UnattributedTerminal, Vec::new(), message))
        }
    }
}

fn is_evidence(code: Code) -> bool {
    use Code::*;
    matches!(
        code,
        MissingEvidence
            | AmbiguousEvidence
            | ContradictoryEvidence
            | DuplicatedEvidence
            | UnmatchedEvidence
            | PartialGeneration
            | UnsupportedItem
            | SeveralSessions
            | UnattributedTerminal
            | SelectorFailed
            | SelectorTimeout
            | InvalidSelection
    )
}

/// Reward and log-probabilities that training cannot do without.
fn values(rollout: &Rollout, index: &Index, numbers: &[usize]) -> Vec<Reason> {
    let mut problems = Vec::new();
    if !rollout.reward.is_some_and(f64::is_finite) {
        let message = "the rollout has no finite reward";
        problems.push(Reason::new(Code::MissingReward, Vec::new(), message));
    }
    let lacking = |number: &&usize| {
        let record = index.records[**number];
        record.is_some_and(|call| call.generation_logprobs.iter().any(|x| !x.is_finite()))
    };
    let lacking: Vec<CallId> = numbers.iter().filter(lacking).map(|&n| index.id(n)).collect();
    if let Some(first) = lacking.first() {
        let message = format!("a generated token of call {first} has no finite log-probability");
        problems.push(Reason::new(Code::MissingLogprob, lacking, message));
    }
    problems
}
