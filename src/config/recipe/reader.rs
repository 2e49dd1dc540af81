//! Reading keys of a document one by one, so that whatever is wrong can name its key and line.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Refusal;
use crate::config::document::{Content, Node, Place};

/// A document being read.
pub struct Reader<'a> {
    document: &'a Node,
    /// Keys that were read, by path.
    pub stated: BTreeMap<String, Place>,
    /// Keys that were passed over.
    pub ignored: Vec<String>,
    /// What is wrong so far.
    pub refused: Vec<Refusal>,
}

impl<'a> Reader<'a> {
    pub fn new(document: &'a Node) -> Self {
        Self { document, stated: BTreeMap::new(), ignored: Vec::new(), refused: Vec::new() }
    }

    /// Whether a section holds keys; null holds none.
    pub fn is_section(&mut self, name: &str, node: &Node) -> bool {
        match node.content {
            Content::Map(_) => true,
            Content::Scalar(Value::Null) => true,
            _ => {
                self.refuse(name, format!("{name} is not a mapping"), "Key names are NeMo-RL's");
                true
            }
        }
    }

    /// Refuses `key`.
    pub fn refuse(&mut self, key: &str, message: String, help: impl Into<String>) {
        self.refuse_by(None, key, message, help);
    }

    /// Refuses `key` for a rule.
    pub fn refuse_by(
        &mut self,
        rule: impl Into<Option<u32>>,
        key: &str,
        message: String,
        help: impl Into<String>,
    ) {
        let place = self.document.get(key).map(|node| node.place.clone());
        let rule = rule.into();
        self.refused.push(Refusal { key: key.to_owned(), place, rule, message, help: help.into() });
    }

    /// Sorts the keys of a section: `known` ones are read elsewhere, `foreign` ones are of other
    /// stages, and anything else is a slip.
    pub fn sort(&mut self, section: &str, known: &[&str], foreign: &[&str]) {
        let Some(node) = self.document.get(section) else { return };
        for (name, _) in node.keys() {
            let path = format!("{section}.{name}");
            if known.contains(&name.as_str()) {
                continue;
            }
            if foreign.contains(&name.as_str()) {
                self.ignored.push(path);
                continue;
            }
            let names = known.iter().chain(foreign).copied();
            let help = match nearest(name, names) {
                Some(near) => format!("Did you mean {near}?"),
                None => "Key names are those of NeMo-RL; remove it".to_owned(),
            };
            self.refuse(&path, format!("{section} has no key {name}"), help);
        }
    }

    /// The value of a key, with its references replaced; `None` where there is none. What cannot
    /// be told is refused.
    pub fn value(&mut self, path: &str) -> Option<Value> {
        let node = self.document.get(path)?;
        self.stated.insert(path.to_owned(), node.place.clone());
        match self.document.value(node) {
            Ok(value) => Some(value),
            Err(what) => {
                let message = format!("{path}: {what}");
                self.refuse(path, message, "Write the value itself");
                None
            }
        }
    }

    /// The value of a key of one type; null is `None`.
    pub fn read<T: DeserializeOwned>(&mut self, path: &str) -> Option<T> {
        let value = self.value(path).filter(|value| !value.is_null())?;
        let shown = value.to_string();
        match serde_json::from_value(value) {
            Ok(value) => Some(value),
            Err(error) => {
                let message = format!("{path} is {shown}: {error}");
                self.refuse(path, message, "Key names and types are those of NeMo-RL");
                None
            }
        }
    }

    /// All keys of a section as a struct, of which `T::default()` names the keys.
    pub fn section<T: DeserializeOwned + Default + Serialize>(
        &mut self,
        section: &str,
        foreign: &[&str],
    ) -> T {
        let defaults = serde_json::to_value(T::default()).unwrap_or_default();
        let known: Vec<&str> =
            defaults.as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect();
        self.sort(section, &known, foreign);
        let mut keys = Map::new();
        for key in known {
            let path = format!("{section}.{key}");
            let Some(value) = self.value(&path) else { continue };
            let alone = Map::from_iter([(key.to_owned(), value.clone())]);
            match serde_json::from_value::<T>(Value::Object(alone)) {
                Ok(_) => drop(keys.insert(key.to_owned(), value)),
                Err(error) => {
                    let message = format!("{path} is {value}: {error}");
                    self.refuse(&path, message, "Key names and types are those of NeMo-RL");
                }
            }
        }
        serde_json::from_value(Value::Object(keys)).unwrap_or_default()
    }

    /// Refuses weights of data sets other than 1, wherever they are in a section (rule 13).
    pub fn refuse_loss_multipliers(&mut self, path: &str, node: &Node) {
        for (name, value) in node.keys() {
            let path = format!("{path}.{name}");
            if name == "loss_multiplier" {
                let one = self.document.value(value).is_ok_and(|value| value.as_f64() == Some(1.0));
                if !one {
                    let message = format!("{path} must be 1: every selected token weighs the same");
                    self.refuse_by(13, &path, message, "Remove it");
                }
            }
            self.refuse_loss_multipliers(&path, value);
        }
    }
}

/// The known name that a mistyped one most likely means.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|k| (strsim::jaro_winkler(name, k), k))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, k)| k)
}
