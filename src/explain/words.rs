//! What became of calls, rows and tokens in words, the same wherever people read them.

use super::divergence::Divergence;
use super::fate::{Place, RolloutFate};
use super::tree::{Mark, RowLine, TreeCall};
use super::view::Verdict;
use crate::id::CallId;
use crate::report::{thousands, visible};

/// Ids of at most so many letters are shown whole.
const WHOLE: usize = 12;

/// The first letters of every long id that tell it from the others, eight at least.
pub fn short<'a>(ids: impl Iterator<Item = &'a CallId>) -> impl Fn(&CallId) -> String {
    let mut sorted: Vec<&str> = ids.map(CallId::as_str).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let common =
        |pair: &[&str]| pair[0].chars().zip(pair[1].chars()).take_while(|(a, b)| a == b).count();
    let length = sorted.windows(2).map(common).max().map_or(8, |same| (same + 1).max(8));
    move |id| match id.as_str().chars().count() {
        ..=WHOLE => id.to_string(),
        _ => id.as_str().chars().take(length).collect(),
    }
}

/// The end of a row id, which tells the rows of one rollout apart.
pub fn segment(row: &str) -> &str {
    row.rfind("_s").map_or(row, |at| &row[at + 1..])
}

/// A row in words.
pub fn row(row: &RowLine, name: &impl Fn(&CallId) -> String) -> String {
    if row.borrowed {
        return format!("{}  masked stand-in on borrowed input, no loss", visible(&row.row_id));
    }
    format!(
        "{}  {} calls, {} tokens, {} with loss{}",
        visible(&row.row_id),
        thousands(row.calls),
        thousands(row.tokens),
        thousands(row.loss_tokens),
        row.endpoint.as_ref().map(|id| format!(", ends with {}", name(id))).unwrap_or_default(),
    )
}

/// How a call ended, and what rows have it.
pub fn roles(call: &TreeCall) -> String {
    let mut words: Vec<String> = Vec::new();
    words.extend(call.failure.iter().chain(&call.ending).map(|word| visible(word).into_owned()));
    words.extend(call.owned_in.iter().map(|row| format!("owned in {}", segment(row))));
    if !call.context_in.is_empty() {
        let rows: Vec<&str> = call.context_in.iter().map(|row| segment(row)).collect();
        words.push(format!("context in {}", rows.join(" ")));
    }
    if call.selected && call.mark != Mark::Accepted {
        words.push("selected".to_owned());
    }
    if call.endpoint {
        words.push("endpoint".to_owned());
    }
    if call.scored {
        words.push("scored".to_owned());
    }
    words.join(", ")
}

/// Where a row has a call, in words; `trains` is whether the rollout does.
pub fn place(place: &Place, trains: bool) -> String {
    let Place { row_id, owned, start, gen_start, end } = place;
    let row = visible(row_id);
    match (owned, trains) {
        (true, true) => {
            format!("owned in row {row}: tokens {start} to {end}, loss from {gen_start}")
        }
        (true, false) => format!(
            "owned in row {row}: tokens {start} to {end}, without loss as the rollout is masked"
        ),
        (false, _) => format!("context in row {row}: tokens {start} to {end}"),
    }
}

/// What a call leaves, and where.
pub fn leaves(divergence: &Divergence, name: &impl Fn(&CallId) -> String) -> String {
    let expected = name(&divergence.expected_parent);
    let place = match (&divergence.in_call, divergence.in_part) {
        (Some(call), Some(part)) if *call == divergence.expected_parent => {
            format!("in its {}", part.as_str())
        }
        (Some(call), Some(part)) => {
            format!("in the {} of call {}", part.as_str(), visible(&name(call)))
        }
        _ => "past its end".to_owned(),
    };
    let (expected, position) = (visible(&expected), thousands(divergence.position));
    format!("leaves call {expected} at token {position}, {place}")
}

/// ` (rule 94)`, or nothing.
pub fn rule(rule: Option<u16>) -> String {
    rule.map(|rule| format!(" (rule {rule})")).unwrap_or_default()
}

/// Reward and advantage of a rollout; an advantage counts where it trains.
pub fn reward(fate: &RolloutFate) -> String {
    let line = &fate.line;
    let advantage = line.advantage.filter(|_| line.verdict == Verdict::Valid);
    format!(
        "reward {}, advantage {}",
        line.reward.map_or("none".to_owned(), |reward| reward.to_string()),
        advantage.map_or("none".to_owned(), |advantage| format!("{advantage:.4}")),
    )
}

/// Calls and tokens of a rollout.
pub fn counts(fate: &RolloutFate) -> String {
    let line = &fate.line;
    format!(
        "{} of {} calls selected; {} tokens, {} generated, {} with loss",
        thousands(line.selected_calls),
        thousands(line.calls),
        thousands(line.tokens),
        thousands(line.generated_tokens),
        thousands(line.loss_tokens),
    )
}
