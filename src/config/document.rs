//! A YAML file of NeMo-RL as a tree that knows its lines: `defaults` that it inherits from, and
//! `${...}` that refers to other keys.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use serde_saphyr::Spanned;

use crate::error::{Error, Result};

/// Where a key is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: Arc<str>,
    /// Its line, from 1.
    pub line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A value, with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where it is written.
    pub place: Place,
    /// What is written there.
    pub content: Content,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Keys in order.
    Map(Vec<(String, Node)>),
    /// Items.
    List(Vec<Node>),
    /// Null, boolean, number or text, the last with `${...}` as it is written.
    Scalar(Value),
}

/// Files that inherit from one another, at most.
const GENERATIONS: usize = 16;
/// `${...}` that lead to one another, at most.
const REFERENCES: usize = 32;

impl Node {
    /// Reads a file, and what it inherits by `defaults`.
    ///
    /// # Errors
    ///
    /// Files that cannot be read, are no YAML, or inherit from themselves.
    pub fn read(path: &Path) -> Result<Self> {
        inherit(path, 0)
    }

    /// Reads a text that inherits nothing.
    ///
    /// # Errors
    ///
    /// When it is no YAML.
    pub fn parse(text: &str, file: &str) -> Result<Self> {
        let raw: Spanned<Raw> = serde_saphyr::from_str(text)
            .map_err(|e| Error::usage(format!("{file} is not YAML")).because(e.to_string()))?;
        Ok(Self::of(raw, &Arc::from(file)))
    }

    fn of(raw: Spanned<Raw>, file: &Arc<str>) -> Self {
        let place = Place { file: Arc::clone(file), line: raw.referenced.line() };
        let content = match raw.value {
            Raw::Scalar(value) => Content::Scalar(value),
            Raw::List(items) => {
                Content::List(items.into_iter().map(|item| Self::of(item, file)).collect())
            }
            Raw::Map(keys) => {
                let keys = keys.into_iter().map(|(key, value)| (key, Self::of(value, file)));
                Content::Map(keys.collect())
            }
        };
        Self { place, content }
    }

    /// Keys of a map; none of anything else.
    pub fn keys(&self) -> &[(String, Node)] {
        match &self.content {
            Content::Map(keys) => keys,
            _ => &[],
        }
    }

    /// The value under a dotted path.
    pub fn get(&self, path: &str) -> Option<&Node> {
        path.split('.').try_fold(self, |node, key| {
            node.keys().iter().find(|(name, _)| name == key).map(|(_, value)| value)
        })
    }

    /// The value of `node`, which lies in this tree, with every `${...}` in it replaced.
    ///
    /// # Errors
    ///
    /// A sentence on a reference that leads nowhere or round in a circle, or computes what is not
    /// known here.
    pub fn value(&self, node: &Node) -> Result<Value, String> {
        self.resolved(node, REFERENCES)
    }

    fn resolved(&self, node: &Node, depth: usize) -> Result<Value, String> {
        Ok(match &node.content {
            Content::Scalar(Value::String(text)) => self.interpolated(text, depth)?,
            Content::Scalar(value) => value.clone(),
            Content::List(items) => {
                items.iter().map(|item| self.resolved(item, depth)).collect::<Result<_, _>>()?
            }
            Content::Map(keys) => keys
                .iter()
                .map(|(key, value)| Ok((key.clone(), self.resolved(value, depth)?)))
                .collect::<Result<serde_json::Map<_, _>, String>>()?
                .into(),
        })
    }

    /// A text with its references replaced; a reference alone keeps the type of its value.
    fn interpolated(&self, text: &str, depth: usize) -> Result<Value, String> {
        let Some(start) = text.find("${") else { return Ok(Value::String(text.to_owned())) };
        let depth = depth.checked_sub(1).ok_or_else(|| format!("{text} leads in a circle"))?;
        let end = closing(&text[start..]).ok_or_else(|| format!("{text} lacks a closing brace"))?;
        let value = self.referenced(&text[start + 2..start + end], depth)?;
        let rest = self.interpolated(&text[start + end + 1..], depth)?;
        if start == 0 && rest.as_str() == Some("") {
            return Ok(value);
        }
        let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Ok(Value::String(format!("{}{}{}", &text[..start], shown(&value), shown(&rest))))
    }

    /// What stands between the braces: a path, or a computation with its arguments.
    fn referenced(&self, inner: &str, depth: usize) -> Result<Value, String> {
        let plain = inner.find("${").unwrap_or(inner.len());
        if let Some((name, arguments)) = inner[..plain].find(':').map(|at| inner.split_at(at)) {
            let compute: fn(&[f64]) -> f64 = match name.trim() {
                "mul" => |of| of.iter().product(),
                "max" => |of| of.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                "min" => |of| of.iter().copied().fold(f64::INFINITY, f64::min),
                name => {
                    return Err(format!("${{{inner}}} computes {name}, which is not known here"));
                }
            };
            let arguments = split(&arguments[1..])
                .into_iter()
                .map(|argument| {
                    let value = self.interpolated(argument.trim(), depth)?;
                    let number = value.as_str().and_then(|text| text.parse::<f64>().ok());
                    number.or(value.as_f64()).ok_or_else(|| format!("${{{inner}}}: no number"))
                })
                .collect::<Result<Vec<f64>, String>>()?;
            return Ok(number(compute(&arguments)));
        }
        let path = match self.interpolated(inner, depth)? {
            Value::String(path) => path,
            other => other.to_string(),
        };
        let node = self.get(path.trim()).ok_or_else(|| format!("${{{inner}}} leads nowhere"))?;
        self.resolved(node, depth)
    }
}

/// A whole number as such, where it is one.
fn number(value: f64) -> Value {
    let whole = value as i64;
    match whole as f64 == value {
        true => whole.into(),
        false => Number::from_f64(value).map_or(Value::Null, Value::Number),
    }
}

/// Offset of the brace that closes the one which `text` begins with.
fn closing(text: &str) -> Option<usize> {
    let mut open = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' => open += 1,
            '}' if open == 1 => return Some(at),
            '}' => open -= 1,
            _ => {}
        }
    }
    None
}

/// Arguments between the commas that stand outside of braces.
fn split(text: &str) -> Vec<&str> {
    let (mut open, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '{' => open += 1,
            '}' => open -= 1,
            ',' if open == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Reads a file over what it inherits.
fn inherit(path: &Path, generation: usize) -> Result<Node> {
    if generation > GENERATIONS {
        return Err(Error::usage(format!("{} inherits without an end", path.display()))
            .help("A file of its defaults names it again"));
    }
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("cannot read", path, e))?;
    let mut node = Node::parse(&text, &path.display().to_string())?;
    let defaults = match &mut node.content {
        Content::Map(keys) => {
            let at = keys.iter().position(|(key, _)| key == "defaults");
            at.map(|at| keys.remove(at).1)
        }
        Content::Scalar(Value::Null) => return Ok(node),
        _ => {
            return Err(Error::usage(format!(
                "{}: the top level is not a mapping",
                path.display()
            )));
        }
    };
    let parents = match defaults.as_ref().map(|node| (&node.content, &node.place)) {
        None => Vec::new(),
        Some((Content::Scalar(Value::String(name)), _)) => vec![name.clone()],
        Some((Content::List(names), place)) => names
            .iter()
            .map(|name| match &name.content {
                Content::Scalar(Value::String(name)) => Ok(name.clone()),
                _ => {
                    Err(Error::usage(format!("{place}: defaults lists something else than files")))
                }
            })
            .collect::<Result<_>>()?,
        Some((_, place)) => return Err(Error::usage(format!("{place}: defaults is no file"))),
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut base: Option<Node> = None;
    for parent in parents {
        let parent = inherit(&folder.join(parent), generation + 1)?;
        base = Some(match base {
            Some(base) => over(parent, base),
            None => parent,
        });
    }
    Ok(match base {
        Some(base) => over(node, base),
        None => node,
    })
}

/// `child` with what only `parent` has. A map with `_override_: true` takes nothing over.
fn over(child: Node, parent: Node) -> Node {
    let Node { place, content } = child;
    let content = match (content, parent.content) {
        (Content::Map(mut keys), Content::Map(inherited)) => {
            let marked = keys.iter().position(|(key, _)| key == "_override_");
            let replaces = marked.map(|at| keys.remove(at).1.content);
            if replaces == Some(Content::Scalar(Value::Bool(true))) {
                Content::Map(keys)
            } else {
                let mut merged = inherited;
                for (key, value) in keys {
                    match merged.iter().position(|(name, _)| *name == key) {
                        Some(at) => {
                            let parent = merged[at].1.clone();
                            merged[at].1 = over(value, parent);
                        }
                        None => merged.push((key, value)),
                    }
                }
                Content::Map(merged)
            }
        }
        (content, _) => content,
    };
    Node { place, content }
}

/// A value as it is parsed.
enum Raw {
    Map(Vec<(String, Spanned<Raw>)>),
    List(Vec<Spanned<Raw>>),
    Scalar(Value),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        // What JSON cannot say is kept as text, which no number is read from.
        let number = Number::from_f64(value).map(Value::Number);
        Ok(Raw::Scalar(number.unwrap_or_else(|| value.to_string().into())))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        Raw::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut keys = Vec::new();
        while let Some(key) = access.next_key::<String>()? {
            keys.push((key, access.next_value()?));
        }
        Ok(Raw::Map(keys))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(node: &Node, path: &str) -> Result<Value, String> {
        node.value(node.get(path).unwrap())
    }

    #[test]
    fn references_are_followed_and_computed() {
        let node = Node::parse(
            "policy:\n  max: 512\n  micro: 4\n  tokens: ${mul:${policy.max}, ${policy.micro}}\n  \
             name: run-${policy.micro}-${policy.max}\n  half: ${mul:0.5, 3}\n  copy: ${policy}\n\
             least: ${max:1, ${policy.micro}}\nloop: ${loop}\nnowhere: ${a.b}\n\
             other: ${oc.env:HOME}\nopen: ${policy.max\n",
            "f.yaml",
        )
        .unwrap();
        assert_eq!(value(&node, "policy.tokens"), Ok(2048.into()));
        assert_eq!(value(&node, "policy.name"), Ok("run-4-512".into()));
        assert_eq!(value(&node, "policy.half"), Ok(1.5.into()));
        assert_eq!(value(&node, "least"), Ok(4.into()));
        assert!(value(&node, "policy.copy").unwrap_err().contains("circle"));
        for (key, what) in [
            ("loop", "circle"),
            ("nowhere", "${a.b} leads nowhere"),
            ("other", "computes oc.env"),
            ("open", "closing brace"),
        ] {
            assert!(value(&node, key).unwrap_err().contains(what), "{key}");
        }
        assert_eq!(node.get("policy.tokens").unwrap().place.to_string(), "f.yaml:4");
    }

    #[test]
    fn a_file_stands_over_what_it_inherits() {
        let home = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(home.path().join(name), text).unwrap();
            home.path().join(name)
        };
        write("base.yaml", "a: {x: 1, y: 2}\nb: [1, 2]\nc: {z: 3}\n");
        write("second.yaml", "a: {x: 10}\n");
        let child = write(
            "child.yaml",
            "defaults: [base.yaml, second.yaml]\na: {y: 20}\nb: [3]\n\nc: {_override_: true, w: 4}\n",
        );
        let node = Node::read(&child).unwrap();
        let all = node.value(&node).unwrap();
        let expected = serde_json::json!({"a": {"x": 10, "y": 20}, "b": [3], "c": {"w": 4}});
        assert_eq!(all, expected);
        assert!(node.get("a.x").unwrap().place.to_string().ends_with("second.yaml:1"));
        assert!(node.get("c.w").unwrap().place.to_string().ends_with("child.yaml:5"));
        let circle = write("circle.yaml", "defaults: circle.yaml\n");
        assert!(Node::read(&circle).unwrap_err().to_string().contains("without an end"));
        let lost = write("lost.yaml", "defaults: elsewhere.yaml\n");
        assert!(Node::read(&lost).unwrap_err().to_string().contains("elsewhere.yaml"));
        for text in ["[1]", "defaults: 3\n", "a: [\n"] {
            assert!(Node::read(&write("bad.yaml", text)).is_err(), "{text}");
        }
        assert_eq!(Node::read(&write("empty.yaml", "")).unwrap().keys(), []);
    }
}
