//! `returned_history`: calls whose whole generations the returned history holds (rules 59-72).

use std::collections::{BTreeMap, BTreeSet};

use super::evidence::{Evidence, reference};
use super::index::{Index, names};
use super::matching::{self, Matching};
use super::{Choice, Policy, Reason};
use crate::archive::{Rollout, SourceKind};
use crate::finding::Code;
use crate::id::CallId;

/// The default policy.
#[derive(Clone, Copy, Debug)]
pub struct ReturnedHistory;

impl Policy for ReturnedHistory {
    fn name(&self) -> &str {
        "returned_history"
    }

    fn choose(&self, rollout: &Rollout) -> Choice {
        let index = Index::new(rollout);
        if rollout.source == SourceKind::InlineRollouts {
            // The history itself is the capture; its calls are committed in its order.
            let calls = names(&index, 0..index.committed.len());
            let terminal = calls.last().cloned();
            return Choice { calls, terminal, problems: Vec::new() };
        }
        let Shown { evidence, declared, referenced, found, mut problems } = shown(rollout, &index);
        let returned: Vec<usize> = found.calls.values().copied().collect();
        let calls = match (returned.is_empty(), evidence.items.is_empty()) {
            (true, true) if evidence.references.is_empty() && problems.is_empty() => {
                let message = "the result holds neither response.output nor responses with \
                               accepted generations, no ng_trajectory.turns[].model_calls, and no action_ids";
                problems.push(Reason::new(Code::MissingEvidence, Vec::new(), message));
                Vec::new()
            }
            (_, true) => referenced,
            (_, false) => {
                if !evidence.references.is_empty() && problems.is_empty() {
                    problems.extend(disagreement(&index, &returned, &referenced));
                }
                returned
            }
        };
        let terminal = match declared {
            Ok(Some(call)) => Some(call),
            // The response's content: its last stretch is one generation.
            Ok(None) => {
                let mut answer = evidence.answer.iter().filter_map(|at| found.calls.get(at));
                answer.next().copied().filter(|_| answer.next().is_none())
            }
            Err(problem) => {
                problems.push(*problem);
                None
            }
        };
        Choice {
            calls: calls.into_iter().map(|call| index.id(call)).collect(),
            terminal: terminal.map(|call| index.id(call)),
            problems,
        }
    }
}

/// What a result shows of captured calls.
struct Shown {
    evidence: Evidence,
    /// The scored call by response ids.
    declared: Result<Option<usize>, Box<Reason>>,
    /// Calls that are referenced, in order.
    referenced: Vec<usize>,
    /// Calls of the returned items.
    found: Matching,
    problems: Vec<Reason>,
}

fn shown(rollout: &Rollout, index: &Index) -> Shown {
    let mut evidence = Evidence::read(rollout.result.as_deref());
    let declared = declared_terminal(&evidence, index);
    let scored = declared.as_ref().ok().copied().flatten();
    let mut problems = std::mem::take(&mut evidence.problems);
    let referenced = reference::resolve(&evidence.references, index, &mut problems);
    let among = referenced.iter().copied().collect();
    let mut found = matching::identify(&evidence, index, scored, &among);
    problems.append(&mut found.problems);
    Shown { evidence, declared, referenced, found, problems }
}

/// What of the result shows that each call was accepted, in words: the item that begins its
/// generation, and whether its id or its content says so; a reference; or its place in a history
/// that is itself the capture.
pub fn witnesses(rollout: &Rollout) -> BTreeMap<CallId, String> {
    let index = Index::new(rollout);
    if rollout.source == SourceKind::InlineRollouts {
        let calls = names(&index, 0..index.committed.len()).into_iter().enumerate();
        return calls.map(|(at, id)| (id, format!("call {at} of the returned history"))).collect();
    }
    let Shown { evidence, referenced, found, .. } = shown(rollout, &index);
    let by_reference =
        referenced.iter().map(|&call| (index.id(call), "a reference of the result".to_owned()));
    let by_item = found.calls.iter().map(|(&at, &call)| {
        let item = &evidence.items[at];
        let how = match index.owners(item) {
            [] => "its content",
            _ => "its id",
        };
        (index.id(call), format!("{item}, by {how}"))
    });
    // An item says more than a reference beside it.
    by_reference.chain(by_item).collect()
}

/// Both sides of what the returned history and the references tell apart (rule 62).
fn disagreement(index: &Index, returned: &[usize], referenced: &[usize]) -> Option<Reason> {
    let beyond = |of: &[usize], others: &[usize]| {
        let others: BTreeSet<usize> = others.iter().copied().collect();
        names(index, of.iter().copied().filter(|call| !others.contains(call)))
    };
    let (unreferenced, unreturned) = (beyond(returned, referenced), beyond(referenced, returned));
    let list = |calls: &[CallId]| calls.iter().map(CallId::as_str).collect::<Vec<_>>().join(", ");
    let message = match (&unreferenced[..], &unreturned[..]) {
        ([], []) => return None,
        (calls, []) => {
            format!("the output holds what is not referenced: call {}", list(calls))
        }
        ([], calls) => {
            format!("the references name what the output does not hold: call {}", list(calls))
        }
        (unreferenced, unreturned) => format!(
            "the output holds call {}, which is not referenced, and the references name call {}, \
             which the output does not hold",
            list(unreferenced),
            list(unreturned)
        ),
    };
    let calls = unreferenced.into_iter().chain(unreturned).collect();
    Some(Reason::new(Code::ContradictoryEvidence, calls, message))
}

/// The scored call by response ids: the declared one, then the response's own (rule 79). `None`
/// when the ids say nothing.
pub(super) fn declared_terminal(
    evidence: &Evidence,
    index: &Index,
) -> Result<Option<usize>, Box<Reason>> {
    let declared = match &evidence.terminal_response_id {
        None => None,
        Some(id) => match index.served(id) {
            [call] => Some(*call),
            calls => {
                let message = match calls.len() {
                    0 => format!("terminal_response_id {id} is of no captured call"),
                    n => format!("terminal_response_id {id} is of {n} captured calls"),
                };
                let calls = names(index, calls.iter().copied());
                return Err(Box::new(Reason::new(Code::UnattributedTerminal, calls, message)));
            }
        },
    };
    let own = match evidence.response_id.as_deref().map(|id| index.served(id)) {
        Some([call]) => Some(*call),
        _ => None,
    };
    match (declared, own) {
        (Some(declared), Some(own)) if declared != own => {
            let calls = names(index, [declared, own]);
            let message = format!(
                "terminal_response_id names call {}, and the response's id call {}",
                index.id(declared),
                index.id(own)
            );
            Err(Box::new(Reason::new(Code::ContradictoryEvidence, calls, message)))
        }
        (declared, own) => Ok(declared.or(own)),
    }
}
