//! Generated items of a returned history.

use std::fmt;
use std::sync::Arc;

use crate::id::Digest32;
use crate::wire::assistant_fingerprint;
use crate::wire::json::Json;
use crate::wire::replay::item_digest;

/// What kind of generated item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// Assistant message.
    Message,
    /// Reasoning.
    Reasoning,
    /// Function call.
    FunctionCall,
}

impl ItemKind {
    /// The wire's word.
    pub fn as_str(self) -> &'static str {
        match self {
            ItemKind::Message => "message",
            ItemKind::Reasoning => "reasoning",
            ItemKind::FunctionCall => "function_call",
        }
    }
}

/// One generated item of the returned history.
#[derive(Clone, Debug)]
pub struct HistoryItem {
    /// The list that holds it, as a path in the result: `response.output`.
    pub list: Arc<str>,
    /// Its place in that list, observations counted.
    pub place: usize,
    /// Its id, native or synthetic.
    pub id: Option<String>,
    /// Its kind.
    pub kind: ItemKind,
    /// Digest that a captured item of the same content carries; `None` where it has none.
    pub fingerprint: Option<Digest32>,
    /// The item itself.
    pub json: Json,
}

impl HistoryItem {
    /// Whether both are of one kind and content, whatever their ids.
    pub fn same_content(&self, other: &Self) -> bool {
        self.kind == other.kind
            && match (self.fingerprint, other.fingerprint) {
                (None, None) => self.json == other.json,
                (ours, theirs) => ours == theirs,
            }
    }

    /// Reads `json`; `None` for an observation.
    ///
    /// # Errors
    /// What it is, when it is neither.
    pub fn read(json: &Json, list: &Arc<str>, place: usize) -> Result<Option<Self>, String> {
        if json.as_dict().is_none() {
            return Err("no object".to_owned());
        }
        let role = json.get("role").and_then(Json::as_str);
        let kind = match (json.get("type").and_then(Json::as_str), role) {
            (Some("message") | None, Some("assistant")) => ItemKind::Message,
            (Some("message") | None, Some("system" | "developer" | "user" | "tool")) => {
                return Ok(None);
            }
            (Some("reasoning"), _) => ItemKind::Reasoning,
            (Some("function_call"), _) => ItemKind::FunctionCall,
            (Some(kind), _) if kind.ends_with("_output") => return Ok(None),
            (kind, role) => {
                return Err(format!(
                    "of type {} and role {}; generated items are assistant messages, reasoning \
                     and function calls",
                    kind.unwrap_or("none"),
                    role.unwrap_or("none")
                ));
            }
        };
        let fingerprint = match kind {
            ItemKind::Reasoning => Some(item_digest(json).map_err(|e| e.to_string())?.digest),
            _ => assistant_fingerprint(std::slice::from_ref(json)).map_err(|e| e.to_string())?,
        };
        let id = super::identity(json.get("id"));
        let list = Arc::clone(list);
        Ok(Some(Self { list, place, id, kind, fingerprint, json: json.clone() }))
    }
}

impl fmt::Display for HistoryItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind.as_str())?;
        if let Some(id) = &self.id {
            write!(f, "{id} ")?;
        }
        write!(f, "({}[{}])", self.list, self.place)
    }
}
