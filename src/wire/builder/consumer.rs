//! What the package makes of a built store: the delivered chain as a response with token arrays,
//! and whether the sample is masked (`spec/gym-wire.md` e, "Projection", "Mask", "Metrics").

use super::chains::{Build, Chain, TerminalChain, fraction, prefix_merging};
use crate::wire::attribute::{Attribution, Candidate, resolve_terminal};
use crate::wire::entry::TokenEntry;
use crate::wire::json::{Dialect, Json};

/// The package's answer for one store.
#[derive(Clone, Debug, PartialEq)]
pub struct Consumed {
    /// The delivered chain as a response; `None` when there is none.
    pub rebuilt_response: Option<Json>,
    /// The sample carries no loss.
    pub mask_sample: bool,
    /// Why nothing could be built, in the package's words.
    pub error: Option<String>,
    /// Counts for the result record.
    pub metrics: Metrics,
    /// Retries that nothing decides between.
    pub unresolved_retries: Vec<String>,
    /// Calls without a proved place, in id order.
    pub unresolved_parent_calls: Vec<String>,
}

/// Counts that accompany a result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// Entries of the store.
    pub n_calls: u64,
    /// How the scored call was found; `None` for an empty store.
    pub attribution: Option<Attribution>,
    /// What became of the scored call; `error` when nothing was built.
    pub terminal_chain: &'static str,
    /// The build, when one was delivered.
    pub build: Option<Build>,
    /// The store says that calls are missing.
    pub capture_incomplete: bool,
}

impl Metrics {
    /// Share of the entries that were quarantined, to four decimals.
    pub fn quarantined_fraction(&self) -> f64 {
        let quarantined = self.build.as_ref().map_or(0, |build| build.quarantined.len());
        fraction(quarantined as u64, self.n_calls)
    }
}

/// Attributes the scored call, builds, projects and masks one store. `incomplete` is the
/// snapshot's own answer.
pub fn consume(
    rollout_id: &str,
    entries: &[TokenEntry],
    incomplete: bool,
    response: Option<&Json>,
    explicit_call_id: Option<&str>,
    declared_response_id: Option<&str>,
) -> Consumed {
    let mut consumed = Consumed {
        rebuilt_response: None,
        mask_sample: true,
        error: None,
        metrics: Metrics {
            n_calls: entries.len() as u64,
            capture_incomplete: incomplete,
            ..Metrics::default()
        },
        unresolved_retries: Vec::new(),
        unresolved_parent_calls: Vec::new(),
    };
    if entries.is_empty() {
        consumed.error = Some("capture contains no token records".to_owned());
        return consumed;
    }
    let candidates: Vec<Candidate<'_>> = entries.iter().map(Candidate::Entry).collect();
    let attribution =
        resolve_terminal(&candidates, response, explicit_call_id, declared_response_id);
    let build = prefix_merging(entries, attribution.model_call_id.as_deref());
    let attributed = attribution.model_call_id.is_some();
    let declared = declared_response_id.is_some_and(|id| !id.is_empty());
    consumed.metrics.attribution = Some(attribution);
    let projected = match build.main() {
        Some(main) => project(rollout_id, entries, main),
        None => Err("ValueError: capture produced no safe trainable chain".to_owned()),
    };
    match projected {
        Err(error) => {
            consumed.error = Some(error);
            consumed.metrics.terminal_chain = match build.terminal_chain {
                TerminalChain::None => "error",
                chain => chain.as_str(),
            };
        }
        Ok(projected) => {
            let undecided = !build.unresolved_retries.is_empty()
                || !build.unresolved_parent_calls.is_empty()
                || build.roots != 1
                || build.chains.len() != 1;
            let masked = match build.terminal_chain {
                TerminalChain::Delivered => false,
                _ if attributed || declared => true,
                _ => undecided,
            };
            consumed.mask_sample = incomplete || masked || build.generated_tokens_delivered == 0;
            consumed.rebuilt_response = Some(projected);
            consumed.metrics.terminal_chain = build.terminal_chain.as_str();
            consumed.unresolved_retries = build.unresolved_retries.clone();
            consumed.unresolved_parent_calls =
                build.unresolved_parent_calls.iter().cloned().collect();
            consumed.metrics.build = Some(build);
        }
    }
    consumed
}

/// A chain as a response whose items carry the running prompt, the generation and its
/// log-probabilities.
fn project(rollout_id: &str, entries: &[TokenEntry], chain: &Chain) -> Result<Json, String> {
    let mut prompt = chain.root_prompt.clone();
    let (mut output, mut generated) = (Vec::new(), 0);
    for link in &chain.links {
        let entry = &entries[link.entry];
        let (tokens, logprobs) = (&entry.generation_token_ids, &entry.generation_log_probs);
        if tokens.len() != logprobs.len() {
            return Err(format!(
                "ValueError: log-prob/token length mismatch on {}: {} vs {}",
                entry.model_call_id,
                logprobs.len(),
                tokens.len()
            ));
        }
        prompt.extend(&link.interstitial);
        let mut items = entry.output_items.clone();
        if items.is_empty() {
            items.push(object([("type", Json::Str("message".to_owned()))]));
        }
        let carries = |item: &Json| item.get("generation_token_ids").is_some();
        let target = entry
            .token_item_index
            .or_else(|| items.iter().position(carries))
            .unwrap_or(items.len() - 1);
        if let Some(Json::Dict(members)) = items.get_mut(target) {
            members.insert("prompt_token_ids".to_owned(), ids(&prompt));
            members.insert("generation_token_ids".to_owned(), ids(tokens));
            let logprobs = logprobs.iter().map(|&x| Json::Float(x)).collect();
            members.insert("generation_log_probs".to_owned(), Json::List(logprobs));
            let routes = entry.routed_experts.as_deref();
            if let Some(Ok(routes)) = routes.map(|text| Json::parse(text, Dialect::Strict)) {
                members.insert("routed_experts".to_owned(), routes);
            }
        }
        output.extend(items);
        prompt.extend(tokens);
        generated += tokens.len();
    }
    let model = chain.links.first().map_or("", |link| entries[link.entry].model.as_str());
    Ok(object([
        ("id", Json::Str(format!("proj-{rollout_id}"))),
        ("model", Json::Str(model.to_owned())),
        ("object", Json::Str("response".to_owned())),
        ("output", Json::List(output)),
        (
            "usage",
            object([
                ("input_tokens", Json::Int(chain.root_prompt.len() as i128)),
                ("output_tokens", Json::Int(generated as i128)),
            ]),
        ),
    ]))
}

fn ids(tokens: &[u64]) -> Json {
    Json::List(tokens.iter().map(|&id| Json::Int(id.into())).collect())
}

fn object<const N: usize>(members: [(&str, Json); N]) -> Json {
    Json::Dict(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}
