//! Text of an input, made safe to show.

use std::borrow::Cow;

/// Text of an input as a terminal may show it: control characters, escape sequences among them,
/// are written out.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    Cow::Owned(text.chars().map(escape).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn control_characters_are_written_out() {
        assert_eq!(super::visible("a\u{1b}[31mb\nc\u{9b}é"), "a\\u{1b}[31mb\\nc\\u{9b}é");
    }
}
