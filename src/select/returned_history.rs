//! `returned_history`: calls whose whole generations the returned history holds (rules 59-72).

use super::evidence::Evidence;
use super::index::{Index, names};
use super::{Choice, Policy, Problem, matching};
use crate::archive::{Rollout, SourceKind};
use crate::finding::Code;

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
        let evidence = Evidence::read(rollout.result.as_deref());
        let declared = declared_terminal(&evidence, &index);
        let scored = declared.as_ref().ok().copied().flatten();
        let found = matching::identify(&evidence, &index, scored);
        let mut problems = evidence.problems;
        if evidence.items.is_empty() && problems.is_empty() {
            let message = "the result holds no response.output with accepted generations";
            problems.push(Problem::new(Code::MissingEvidence, Vec::new(), message));
        }
        problems.extend(found.problems);
        let terminal = match declared {
            Ok(Some(call)) => Some(call),
            // The response's content: its last stretch is one generation.
            Ok(None) => evidence.runs.last().and_then(|run| {
                let mut calls = found.calls.range(run.clone()).map(|(_, &call)| call);
                calls.next().filter(|_| calls.next().is_none())
            }),
            Err(problem) => {
                problems.push(*problem);
                None
            }
        };
        let terminal = terminal.map(|call| index.id(call));
        Choice {
            calls: found.calls.values().map(|&call| index.id(call)).collect(),
            terminal,
            problems,
        }
    }
}

/// The scored call by response ids: the declared one, then the response's own (rule 79). `None`
/// when the ids say nothing.
pub(super) fn declared_terminal(
    evidence: &Evidence,
    index: &Index,
) -> Result<Option<usize>, Box<Problem>> {
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
                return Err(Box::new(Problem::new(Code::UnattributedTerminal, calls, message)));
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
            Err(Box::new(Problem::new(Code::ContradictoryEvidence, calls, message)))
        }
        (declared, own) => Ok(declared.or(own)),
    }
}
