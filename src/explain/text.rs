//! Two renderings of one stretch of a conversation, told apart by what was done to the text.

use serde_json::Value;

use super::divergence::DivergenceKind;

/// What opens and closes text that chat templates take out of earlier turns.
const THINKING: [(&str, &str); 4] = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("<|channel|>analysis<|message|>", "<|end|>"),
];

/// Objects that are tried as the one that was rewritten; text of a thousand braces is no call.
const OBJECTS: usize = 64;

/// What was done to `theirs`, the text of one stretch, where `ours` goes on in its place and
/// beyond it; `None` when it is other text.
pub fn kind(ours: &str, theirs: &str) -> Option<DivergenceKind> {
    if theirs.is_empty() {
        return None;
    }
    if ours.starts_with(theirs) {
        return Some(DivergenceKind::Retokenisation);
    }
    if same_object(ours, theirs) {
        return Some(DivergenceKind::ToolArguments);
    }
    stripped(ours).starts_with(&stripped(theirs)).then_some(DivergenceKind::TemplateStrip)
}

/// Whether the first difference lies in a JSON object that has the same content in both.
fn same_object(ours: &str, theirs: &str) -> bool {
    let differ = ours.bytes().zip(theirs.bytes()).take_while(|(a, b)| a == b).count();
    let opens = theirs.bytes().take(differ).enumerate().filter(|(_, byte)| *byte == b'{');
    opens.take(OBJECTS).any(|(start, _)| {
        let read = |text: &str| -> Option<(Value, usize)> {
            let mut values = serde_json::Deserializer::from_str(text.get(start..)?).into_iter();
            let value = values.next()?.ok()?;
            Some((value, start + values.byte_offset()))
        };
        matches!((read(ours), read(theirs)), (Some((a, end)), Some((b, other)))
            if end > differ && other > differ && same(&a, &b))
    })
}

/// Equal values: a number however it is written, and an object or list also as a string of JSON,
/// the form in which servers keep arguments.
fn same(a: &Value, b: &Value) -> bool {
    let nested = |text: &str| {
        let value: Option<Value> = serde_json::from_str(text).ok();
        value.filter(|value| value.is_object() || value.is_array())
    };
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (Value::String(a), Value::String(b)) if a == b => true,
        (Value::String(a), Value::String(b)) => {
            matches!((nested(a), nested(b)), (Some(a), Some(b)) if same(&a, &b))
        }
        (Value::String(text), other) | (other, Value::String(text)) => {
            nested(text).is_some_and(|value| same(&value, other))
        }
        _ => a == b,
    }
}

/// `text` without thinking and without whitespace. Thinking that does not end in it goes to its
/// end; thinking that began before it ends with the closing word.
fn stripped(text: &str) -> String {
    let mut text = text.to_owned();
    for (open, close) in THINKING {
        // The closing word of the last form closes other things too.
        if close != "<|end|>"
            && let Some(end) = text.find(close)
            && text.find(open).is_none_or(|start| start > end)
        {
            text.replace_range(..end + close.len(), "");
        }
        while let Some(start) = text.find(open) {
            let end = text[start..].find(close).map_or(text.len(), |at| start + at + close.len());
            text.replace_range(start..end, "");
        }
    }
    text.retain(|c| !c.is_whitespace());
    text
}

#[cfg(test)]
mod tests {
    use super::DivergenceKind::*;
    use super::kind;

    #[test]
    fn what_was_done_to_a_text_is_told() {
        for (theirs, ours, expected) in [
            ("hello<end>", "hello<end>next", Some(Retokenisation)),
            ("<think>long</think>\n\nhi<end>", "hi<end>\nnext", Some(TemplateStrip)),
            ("long</think>\n\nhi<end>", "\n\n</think>hi<end>\nnext", Some(TemplateStrip)),
            ("<think>cut off", "next", Some(TemplateStrip)),
            ("hi \n<end>", "hi<end>next", Some(TemplateStrip)),
            ("<|channel|>analysis<|message|>a<|end|>b", "b next", Some(TemplateStrip)),
            (r#"f {"a":1,"b":2.0}<end>"#, r#"f {"b": 2, "a": 1}<end>x"#, Some(ToolArguments)),
            (r#"{"arguments":"{\"a\":1}"}"#, r#"{"arguments": {"a": 1}}"#, Some(ToolArguments)),
            (r#"{"a":"\u00e9"}"#, r#"{"a":"é"}"#, Some(ToolArguments)),
            (r#"{"a":1}"#, r#"{"a":2}"#, None),
            (r#"{"a":1}x"#, r#"{"a":1}y"#, None),
            ("hello", "goodbye", None),
            ("", "anything", None),
        ] {
            assert_eq!(kind(ours, theirs), expected, "{theirs} -> {ours}");
        }
    }
}
