//! Who a line speaks of, told without reading what it says.

/// A member of an object, as spans of its text.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Between the quotes.
    pub key: &'a [u8],
    /// The whole value.
    pub value: &'a [u8],
    /// The value is a list whose items begin with the known ones.
    pub passed: bool,
}

/// The members of the JSON object on a line, keys and values as spans of its text; `None` where
/// the line is not an object that this quick look can follow.
///
/// Nothing is judged here. What a value holds is skipped over, not read, so a line that is no
/// JSON may still give members; the full parser has the last word on it.
pub fn members(line: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let members = members_past(line, &[])?.into_iter();
    Some(members.map(|member| (member.key, member.value)).collect())
}

/// The same for a line of which a list may begin with `known` items, the text of plain numbers:
/// they are compared, and not looked at one by one.
pub fn members_past<'a>(line: &'a [u8], known: &[u8]) -> Option<Vec<Member<'a>>> {
    let mut rest = line.trim_ascii().strip_prefix(b"{")?.trim_ascii_start();
    let mut members = Vec::new();
    if rest == b"}" {
        return Some(members);
    }
    loop {
        let key;
        (key, rest) = string(rest)?;
        rest = rest.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
        let (value, passed);
        (value, passed, rest) = value_of(rest, known)?;
        members.push(Member { key, value, passed });
        rest = rest.trim_ascii_start();
        match rest.split_first()? {
            (b',', after) => rest = after.trim_ascii_start(),
            (b'}', []) => return Some(members),
            _ => return None,
        }
    }
}

/// The elements of a JSON list, under the same terms as [`members`].
pub fn elements(list: &[u8]) -> Option<Vec<&[u8]>> {
    let mut rest = list.strip_prefix(b"[")?.trim_ascii_start();
    let mut elements = Vec::new();
    if rest == b"]" {
        return Some(elements);
    }
    loop {
        let value;
        (value, _, rest) = value_of(rest, &[])?;
        elements.push(value.trim_ascii_end());
        rest = rest.trim_ascii_start();
        match rest.split_first()? {
            (b',', after) => rest = after.trim_ascii_start(),
            (b']', []) => return Some(elements),
            _ => return None,
        }
    }
}

/// The text of a value that is a string without escapes.
pub fn plain_string(value: &[u8]) -> Option<&str> {
    let text = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if memchr::memchr2(b'\\', b'"', text).is_some() {
        return None;
    }
    std::str::from_utf8(text).ok()
}

/// Content of the string at the start, and what follows it.
fn string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b"\"")?;
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'"', b'\\', &text[at..])?;
        if text[at] == b'"' {
            return Some((&text[..at], &text[at + 1..]));
        }
        at = (at + 2).min(text.len());
    }
}

/// The value at the start, whether it begins with the known items, and what follows it.
fn value_of<'a>(text: &'a [u8], known: &[u8]) -> Option<(&'a [u8], bool, &'a [u8])> {
    let (rest, passed) = match text.first()? {
        b'"' => (string(text)?.1, false),
        b'[' | b'{' => nested(text, known)?,
        _ => (&text[memchr::memchr3(b',', b'}', b']', text)?..], false),
    };
    Some((&text[..text.len() - rest.len()], passed, rest))
}

/// What follows the list or object at the start, and whether it begins with the known items.
fn nested<'a>(text: &'a [u8], known: &[u8]) -> Option<(&'a [u8], bool)> {
    // A list of numbers, by far the most of a capture, holds no bracket and no quote.
    let flat = text[0] == b'['
        && text[1..].trim_ascii_start().first().is_some_and(|b| b.is_ascii_digit() || *b == b'-');
    let passed = flat && !known.is_empty() && text[1..].starts_with(known);
    if flat {
        let start = if passed { 1 + known.len() } else { 1 };
        let end = memchr::memchr3(b']', b'"', b'[', &text[start..])? + start;
        if text[end] == b']' {
            return Some((&text[end + 1..], passed));
        }
    }
    let mut depth = 0usize;
    let mut rest = text;
    loop {
        let at = rest.iter().position(|b| matches!(b, b'"' | b'[' | b']' | b'{' | b'}'))?;
        match rest[at] {
            b'"' => {
                rest = string(&rest[at..])?.1;
                continue;
            }
            b'[' | b'{' => depth += 1,
            _ => depth -= 1,
        }
        rest = &rest[at + 1..];
        if depth == 0 {
            return Some((rest, passed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn keys(line: &str) -> Option<Vec<(String, String)>> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Some(members(line.as_bytes())?.iter().map(|(k, v)| (text(k), text(v))).collect())
    }

    #[test]
    fn members_are_spans_of_the_line() {
        let line =
            r#" { "a" : [1, -2.5] , "b":{"c":["]",{}]}, "d\"" :"x}\\" ,"e":null,"f":[[1],[2]]} "#;
        let expected = [
            ("a", "[1, -2.5]"),
            ("b", r#"{"c":["]",{}]}"#),
            ("d\\\"", r#""x}\\""#),
            ("e", "null"),
            ("f", "[[1],[2]]"),
        ];
        let expected = expected.map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(keys(line).unwrap(), expected);
        assert_eq!(keys("{}"), Some(vec![]));
        assert_eq!(keys(r#"{"a":[1,"]",2],"b":3}"#).unwrap()[1].0, "b");
    }

    #[test]
    fn what_is_no_object_gives_nothing() {
        for line in [
            "",
            "[]",
            "{",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "{\"a\":1}x",
            "{\"a\":[1}",
            "{,}",
            "{\"a\\",
        ] {
            assert_eq!(keys(line), None, "{line}");
        }
    }

    #[test]
    fn plain_strings_have_no_escapes() {
        assert_eq!(plain_string(b"\"ab\""), Some("ab"));
        assert_eq!(plain_string(b"\"a\\n\""), None);
        assert_eq!(plain_string(b"1"), None);
        assert_eq!(plain_string(b"\""), None);
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[ -~é\n]{0,8}".prop_map(Value::from),
            proptest::collection::vec(any::<i16>(), 0..5).prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[ -~]{0,4}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn members_are_those_of_a_full_parser(
            map in proptest::collection::btree_map("[ -~]{0,6}", json(), 0..6)
        ) {
            let line = serde_json::to_string(&map).unwrap();
            let found: Vec<(String, Value)> = members(line.as_bytes())
                .unwrap()
                .into_iter()
                .map(|(key, value)| {
                    let key = format!("\"{}\"", std::str::from_utf8(key).unwrap());
                    (serde_json::from_str(&key).unwrap(), serde_json::from_slice(value).unwrap())
                })
                .collect();
            prop_assert_eq!(found, map.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn elements_are_those_of_a_full_parser(
            list in proptest::collection::vec(json(), 0..6), wide in any::<bool>()
        ) {
            let list = Value::from(list);
            let text = match wide {
                true => serde_json::to_string_pretty(&list).unwrap(),
                false => list.to_string(),
            };
            let found = elements(text.as_bytes()).unwrap();
            let found: Vec<Value> =
                found.iter().map(|text| serde_json::from_slice(text).unwrap()).collect();
            prop_assert_eq!(Value::from(found), list);
        }

        #[test]
        fn no_bytes_make_it_fail(line in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = members(&line);
            let _ = elements(&line);
        }
    }
}
