//! Text of an input, made safe to show.

use std::borrow::Cow;

/// Text of an input as a terminal, a log or an XML document may show it: control characters,
/// escape sequences among them, are written out, and so are those that turn the direction of
/// writing and those that XML cannot hold.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(unsafe_to_show) {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| match unsafe_to_show(c) {
        true => c.escape_default().to_string(),
        false => c.into(),
    };
    Cow::Owned(text.chars().map(escape).collect())
}

fn unsafe_to_show(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let breaks_lines = matches!(c, '\u{2028}' | '\u{2029}');
    c.is_control() || turns || breaks_lines || matches!(c, '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_could_mislead_is_written_out() {
        assert_eq!(
            super::visible("a\u{1b}[31mb\nc\u{9b}é\u{202e}\u{ffff}"),
            "a\\u{1b}[31mb\\nc\\u{9b}é\\u{202e}\\u{ffff}"
        );
    }
}
