//! References to captured calls: those of `ng_trajectory` (`spec/gym-wire.md`, trajectory refs),
//! and the action ids of a harness that is not Gym (rule 141).

use std::collections::{BTreeMap, BTreeSet};

use super::identity;
use crate::finding::Code;
use crate::select::Reason;
use crate::select::index::{Index, names};
use crate::wire::json::Json;

/// One reference.
#[derive(Debug)]
pub struct Reference {
    /// Where it stands in the result.
    at: String,
    target: Target,
}

/// What a reference says.
#[derive(Debug)]
enum Target {
    /// An entry of `ng_trajectory.turns[].model_calls[]`.
    ModelCall {
        model_call_id: Option<String>,
        /// With a `model_ref`, which says whose response it is.
        response_id: Option<String>,
    },
    /// An item of `action_ids`: the id of a response, or of a call.
    Action(Option<String>),
}

/// Reads `action_ids`, in order.
pub fn actions(ids: &Json) -> Vec<Reference> {
    let ids = ids.as_list().unwrap_or_default().iter().enumerate();
    let action = |(place, id)| Reference {
        at: format!("action_ids[{place}]"),
        target: Target::Action(identity(Some(id))),
    };
    ids.map(action).collect()
}

/// Reads the references of a trajectory, in order.
pub fn read(trajectory: &Json, problems: &mut Vec<Reason>) -> Vec<Reference> {
    let turns = trajectory.get("turns").and_then(Json::as_list).unwrap_or_default();
    let mut references = Vec::new();
    let mut sessions: BTreeSet<String> =
        identity(trajectory.get("rollout_id")).into_iter().collect();
    for (turn, value) in turns.iter().enumerate() {
        let calls = value.get("model_calls").and_then(Json::as_list).unwrap_or_default();
        if !calls.is_empty() {
            sessions.extend(identity(value.get("rollout_id")));
        }
        for (place, call) in calls.iter().enumerate() {
            let model = call.get("model_ref").filter(|model| model.as_dict().is_some());
            references.push(Reference {
                at: format!("ng_trajectory.turns[{turn}].model_calls[{place}]"),
                target: Target::ModelCall {
                    model_call_id: identity(call.get("model_call_id")),
                    response_id: model.and(identity(call.get("response_id"))),
                },
            });
        }
    }
    if sessions.len() > 1 {
        let sessions: Vec<String> = sessions.into_iter().collect();
        let message =
            format!("ng_trajectory speaks of {} sessions: {}", sessions.len(), sessions.join(", "));
        problems.push(Reason::new(Code::SeveralSessions, Vec::new(), message));
    }
    references
}

/// The calls that `references` name, each once, in order. One that names none, or several, or one
/// that another names too, is a problem.
pub fn resolve(references: &[Reference], index: &Index, problems: &mut Vec<Reason>) -> Vec<usize> {
    let mut calls = Vec::with_capacity(references.len());
    let mut places: BTreeMap<usize, &Reference> = BTreeMap::new();
    for reference in references {
        match reference.call(index) {
            Ok(call) => {
                if let Some(earlier) = places.get(&call) {
                    let message = format!(
                        "{} and {} both name call {}",
                        earlier.at,
                        reference.at,
                        index.id(call)
                    );
                    let calls = names(index, [call]);
                    problems.push(Reason::new(Code::DuplicatedEvidence, calls, message));
                    continue;
                }
                places.insert(call, reference);
                calls.push(call);
            }
            Err(problem) => problems.push(*problem),
        }
    }
    calls
}

impl Reference {
    fn call(&self, index: &Index) -> Result<usize, Box<Reason>> {
        let problem = |code, calls, what: String| {
            Err(Box::new(Reason::new(code, calls, format!("{} {what}", self.at))))
        };
        let (model_call_id, response_id) = match &self.target {
            Target::ModelCall { model_call_id, response_id } => (model_call_id, response_id),
            // A response's id comes first; who has none gives its call's.
            Target::Action(Some(id)) if index.served(id).is_empty() => (&Some(id.clone()), &None),
            Target::Action(id) => (&None, id),
        };
        let by_call = match model_call_id {
            None => None,
            Some(id) => match index.number(&id.as_str().into()) {
                Some(call) => Some(call),
                None => {
                    let what = format!("names call {id}, which the ledger does not commit to");
                    return problem(Code::UnmatchedEvidence, Vec::new(), what);
                }
            },
        };
        let served = response_id.as_deref().map(|id| (id, index.served(id)));
        match (by_call, served) {
            (Some(call), Some((id, served))) if !served.is_empty() && !served.contains(&call) => {
                let calls = names(index, served.iter().copied().chain([call]));
                let what = format!(
                    "names call {}, and response {id} of call {}",
                    index.id(call),
                    index.id(served[0])
                );
                problem(Code::ContradictoryEvidence, calls, what)
            }
            (Some(call), _) => Ok(call),
            (None, Some((_, [call]))) => Ok(*call),
            (None, Some((id, []))) => {
                let what = format!("names response {id}, which no captured call served");
                problem(Code::UnmatchedEvidence, Vec::new(), what)
            }
            (None, Some((id, served))) => {
                let what = format!("names response {id}, which {} calls served", served.len());
                problem(Code::AmbiguousEvidence, names(index, served.iter().copied()), what)
            }
            (None, None) => {
                let what = match self.target {
                    Target::ModelCall { .. } => {
                        "names no call: it needs model_call_id, or model_ref and response_id"
                    }
                    Target::Action(_) => "is no id of a response or call",
                };
                problem(Code::MissingEvidence, Vec::new(), what.to_owned())
            }
        }
    }
}
