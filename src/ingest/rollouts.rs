//! Rollouts lines: who a logical rollout is, what reward it got, what the harness returned.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::quarantine::Rejected;
use crate::archive::Origin;
use crate::finding::Code;
use crate::id::{CaptureKey, Digest32, GroupId, RolloutId};
use crate::wire::fingerprint::TOKEN_FIELDS;

/// One line of a rollouts file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RolloutLine {
    pub identity: Identity,
    pub reward: Option<f64>,
    pub mask_sample: bool,
    /// The harness's result without token arrays.
    pub result: Option<String>,
    /// Output items carry token arrays.
    pub inline: bool,
    /// The line, with Python's NaN and Infinity as null.
    pub text: String,
    pub origin: Origin,
}

/// How a line says which rollout it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// `group_id`, `rollout_id`, `slot`, `group_size`, `capture_key`.
    Named {
        group_id: GroupId,
        rollout_id: RolloutId,
        slot: u32,
        group_size: u32,
        capture_key: CaptureKey,
    },
    /// Gym's `_ng_task_index`, `_ng_rollout_index` and, for a named or repeated attempt,
    /// `_ng_rollout_id` or `_ng_attempt_index`.
    Gym { task: String, index: u32, capture_key: CaptureKey },
    /// Nothing says.
    Anonymous,
}

impl Identity {
    /// The scope that it was captured in.
    pub fn scope(&self) -> Option<&CaptureKey> {
        match self {
            Identity::Named { capture_key, .. } | Identity::Gym { capture_key, .. } => {
                Some(capture_key)
            }
            Identity::Anonymous => None,
        }
    }
}

/// Members of a JSON object, each as its own text.
pub(super) type Members<'a> = BTreeMap<String, &'a RawValue>;

/// What the first pass needs of a line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RolloutHead {
    pub identity: Identity,
    pub inline: bool,
    /// Digest of the line, with Python's NaN and Infinity as null.
    pub digest: Digest32,
    /// What the prompt of an anonymous line with token arrays comes to: lines of one prompt have
    /// it in common.
    pub prompt: String,
}

impl RolloutHead {
    pub fn parse(line: &str) -> Result<Self, Rejected> {
        let text = without_nan(line);
        let members = members(&text)?;
        let identity = identity(&members)?;
        let inline = strip(&members).is_some();
        let prompt = match identity {
            Identity::Anonymous if inline => {
                let prompt = members.get("responses_create_params").map_or("", |p| p.get());
                blake3::hash(prompt.as_bytes()).to_hex()[..16].to_owned()
            }
            _ => String::new(),
        };
        let digest = Digest32(*blake3::hash(text.as_bytes()).as_bytes());
        Ok(Self { identity, inline, digest, prompt })
    }
}

/// Members of a Gym rollout of which any is evidence of accepted calls.
const EVIDENCE: [&str; 4] = ["response", "responses", "ng_trajectory", "action_ids"];

impl RolloutLine {
    pub fn parse(line: &str, origin: Origin) -> Result<Self, Rejected> {
        let text = without_nan(line);
        let members = members(&text)?;
        let identity = identity(&members)?;
        let stripped = strip(&members);
        let inline = stripped.is_some();
        let result = match members.get("result") {
            Some(result) => Some(result.get().to_owned()),
            None if EVIDENCE.iter().any(|key| members.contains_key(*key)) => {
                Some(stripped.unwrap_or_else(|| text.trim().to_owned()))
            }
            None => None,
        };
        let reward = member::<f64>(&members, "reward").filter(|r| r.is_finite());
        let mask_sample = member::<bool>(&members, "mask_sample").unwrap_or(false);
        let text = text.into_owned();
        Ok(Self { identity, reward, mask_sample, result, inline, text, origin })
    }
}

fn members(text: &str) -> Result<Members<'_>, Rejected> {
    serde_json::from_str(text)
        .map_err(|e| Rejected::new(Code::MalformedJson, format!("not a JSON object: {e}")))
}

/// A member that has the type asked for.
pub(super) fn member<T: DeserializeOwned>(members: &Members, key: &str) -> Option<T> {
    serde_json::from_str(members.get(key)?.get()).ok()
}

fn identity(members: &Members) -> Result<Identity, Rejected> {
    let word = |key| member::<String>(members, key).filter(|text| !text.is_empty());
    let missing = |key: &str| {
        Rejected::new(Code::MalformedRollout, format!("{key} is missing or of another type"))
    };
    if ["group_id", "capture_key"].iter().any(|key| members.contains_key(*key)) {
        return Ok(Identity::Named {
            group_id: word("group_id").ok_or_else(|| missing("group_id"))?.into(),
            rollout_id: word("rollout_id").ok_or_else(|| missing("rollout_id"))?.into(),
            slot: member(members, "slot").ok_or_else(|| missing("slot"))?,
            group_size: member(members, "group_size").ok_or_else(|| missing("group_size"))?,
            capture_key: word("capture_key").ok_or_else(|| missing("capture_key"))?.into(),
        });
    }
    if !members.contains_key("_ng_task_index") && !members.contains_key("_ng_rollout_index") {
        return Ok(Identity::Anonymous);
    }
    let task = member::<u64>(members, "_ng_task_index")
        .map(|task| task.to_string())
        .or_else(|| word("_ng_task_index"))
        .ok_or_else(|| missing("_ng_task_index"))?;
    let index: u32 =
        member(members, "_ng_rollout_index").ok_or_else(|| missing("_ng_rollout_index"))?;
    let capture_key = word("_ng_rollout_id").unwrap_or_else(|| {
        match member::<u64>(members, "_ng_attempt_index") {
            Some(attempt) if attempt > 0 => format!("{task}-{index}-a{attempt}"),
            _ => format!("{task}-{index}"),
        }
    });
    Ok(Identity::Gym { task, index, capture_key: capture_key.into() })
}

/// The line without the token arrays of its output items; `None` when it carries none.
fn strip(line: &Members) -> Option<String> {
    let response = line.get("response")?.get();
    if !may_hold(response, "generation_token_ids") {
        return None;
    }
    let response: Members = serde_json::from_str(response).ok()?;
    let output: Vec<&RawValue> = serde_json::from_str(response.get("output")?.get()).ok()?;
    let mut inline = false;
    let mut items = Vec::new();
    for item in output {
        let Ok(mut members) = serde_json::from_str::<Members>(item.get()) else {
            items.push(item.to_owned());
            continue;
        };
        inline |= members.contains_key("generation_token_ids");
        members.retain(|key, _| !TOKEN_FIELDS.contains(&key.as_str()));
        items.push(serde_json::value::to_raw_value(&members).ok()?);
    }
    if !inline {
        return None;
    }
    let output = serde_json::value::to_raw_value(&items).ok()?;
    let mut response = response;
    response.insert("output".to_owned(), &output);
    let response = serde_json::value::to_raw_value(&response).ok()?;
    let mut line = line.clone();
    line.insert("response".to_owned(), &response);
    serde_json::to_string(&line).ok()
}

/// Whether a JSON text can have a member `key`, a word of ASCII letters.
fn may_hold(text: &str, key: &str) -> bool {
    let holds = |word: &str| memchr::memmem::find(text.as_bytes(), word.as_bytes()).is_some();
    // The key's letters may be escaped.
    holds(key) || holds("\\u00")
}

/// JSON text whose NaN, Infinity and -Infinity, which Python writes, are null.
pub(super) fn without_nan(text: &str) -> Cow<'_, str> {
    let holds = |word: &str| memchr::memmem::find(text.as_bytes(), word.as_bytes()).is_some();
    if !holds("NaN") && !holds("Infinity") {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut quoted = false;
    while let Some(c) = rest.chars().next() {
        let word = ["NaN", "-Infinity", "Infinity"].into_iter().find(|word| rest.starts_with(word));
        let taken = match word {
            Some(word) if !quoted => {
                out.push_str("null");
                word.len()
            }
            _ => {
                let escaped = if quoted && c == '\\' {
                    rest[1..].chars().next().map_or(0, char::len_utf8)
                } else {
                    0
                };
                quoted ^= c == '"';
                let taken = c.len_utf8() + escaped;
                out.push_str(&rest[..taken]);
                taken
            }
        };
        rest = &rest[taken..];
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<RolloutLine, Code> {
        RolloutLine::parse(line, Origin::default()).map_err(|e| e.code)
    }

    #[test]
    fn python_numbers_become_null_outside_strings_only() {
        let text = r#"{"a\"NaN":NaN,"b":[-Infinity,Infinity],"c":"Infinity \\","d":"NaN"}"#;
        let expected = r#"{"a\"NaN":null,"b":[null,null],"c":"Infinity \\","d":"NaN"}"#;
        assert_eq!(without_nan(text), expected);
    }

    #[test]
    fn rewards_are_finite_numbers_or_nothing() {
        for (text, reward) in [
            ("1", Some(1.0)),
            ("-0.25", Some(-0.25)),
            ("null", None),
            ("NaN", None),
            ("1e999", None),
            ("\"1\"", None),
            ("true", None),
            ("[1]", None),
        ] {
            let line = format!(r#"{{"_ng_task_index":3,"_ng_rollout_index":1,"reward":{text}}}"#);
            assert_eq!(parse(&line).map(|line| line.reward), Ok(reward), "{text}");
        }
    }

    #[test]
    fn identities_are_named_or_gyms_or_none() {
        let named =
            r#"{"group_id":"g","rollout_id":"g_g1","slot":1,"group_size":2,"capture_key":"g-1"}"#;
        assert!(matches!(parse(named).unwrap().identity, Identity::Named { slot: 1, .. }));
        let gym = r#"{"_ng_task_index":3,"_ng_rollout_index":1,"_ng_attempt_index":2}"#;
        let key = CaptureKey::from("3-1-a2");
        let identity = Identity::Gym { task: "3".into(), index: 1, capture_key: key };
        assert_eq!(parse(gym).unwrap().identity, identity);
        assert_eq!(parse("{}").unwrap().identity, Identity::Anonymous);
        assert_eq!(parse(r#"{"group_id":"g"}"#), Err(Code::MalformedRollout));
        assert_eq!(parse(&named.replace(":1,", ":-1,")), Err(Code::MalformedRollout));
        assert_eq!(parse("[]"), Err(Code::MalformedJson));
    }

    #[test]
    fn token_arrays_are_stripped_from_the_result() {
        let line = r#"{"response":{"id":"r","output":[{"type":"message","id":"m","n":1.0,"generation_token_ids":[1],"prompt_token_ids":[],"generation_log_probs":[0]},{"type":"x"}]}}"#;
        let parsed = parse(line).unwrap();
        assert!(parsed.inline);
        let result = parsed.result.unwrap();
        assert_eq!(
            result,
            r#"{"response":{"id":"r","output":[{"id":"m","n":1.0,"type":"message"},{"type":"x"}]}}"#
        );
        assert!(!parse(&result).unwrap().inline);
    }
}
