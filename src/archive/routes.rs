//! Expert routes inside extras: their base64, three quarters of a capture's bytes where there is
//! any, is kept as the bytes that it stands for.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// Extras of a call as an archive keeps them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extras {
    /// The JSON text; where routes were taken out, their envelope ends with its third colon.
    pub text: String,
    /// Payload of the envelope under `routed_experts`.
    pub routes: Option<Vec<u8>>,
    /// Byte of `text` where the base64 of `routes` belongs.
    pub at: Option<u64>,
}

/// Takes the payload out of `text`, if putting it back gives the same bytes.
pub(super) fn take(text: &str) -> Extras {
    let verbatim = || Extras { text: text.to_owned(), routes: None, at: None };
    let Some((start, end)) = payload(text) else { return verbatim() };
    let Ok(routes) = BASE64_STANDARD.decode(&text[start..end]) else { return verbatim() };
    let rest = format!("{}{}", &text[..start], &text[end..]);
    let taken = Extras { text: rest, routes: Some(routes), at: Some(start as u64) };
    match put_back(taken.clone()) {
        Some(again) if again == text => taken,
        _ => verbatim(),
    }
}

/// The text that [`take`] got; `None` when the place is outside it.
pub(super) fn put_back(extras: Extras) -> Option<String> {
    let Extras { text, routes, at } = extras;
    match (routes, at) {
        (Some(routes), Some(at)) => {
            let (before, after) = text.split_at_checked(usize::try_from(at).ok()?)?;
            Some(format!("{before}{}{after}", BASE64_STANDARD.encode(routes)))
        }
        (None, None) => Some(text),
        _ => None,
    }
}

/// Where the base64 of a `nrlre1` envelope lies that is the value of a key `routed_experts`.
fn payload(text: &str) -> Option<(usize, usize)> {
    let key = "\"routed_experts\"";
    let after = text.find(key)? + key.len();
    let colon = text[after..].trim_start().strip_prefix(':')?.trim_start();
    let envelope = colon.strip_prefix('"')?;
    let string = &envelope[..envelope.find('"')?];
    let mut fields = string.splitn(4, ':');
    let magic = fields.next()?;
    let (dtype, shape, base64) = (fields.next()?, fields.next()?, fields.next()?);
    if magic != "nrlre1" {
        return None;
    }
    let start = text.len() - envelope.len() + magic.len() + dtype.len() + shape.len() + 3;
    Some((start, start + base64.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_envelopes_become_bytes_and_come_back() {
        let text = r#"{"a":1,"routed_experts" : "nrlre1:int8:1x1x2:AQI=","z":"é"}"#;
        let taken = take(text);
        assert_eq!(taken.routes.as_deref(), Some(&[1, 2][..]));
        assert_eq!(taken.text, text.replace("AQI=", ""));
        assert_eq!(put_back(taken).as_deref(), Some(text));
    }

    #[test]
    fn anything_else_stays_as_it_is() {
        for text in [
            "{}",
            "",
            "\"routed_experts\"",
            "\"routed_experts\":\"nrlre1:int8:1x1x2",
            r#"{"routed_experts":[[[1,2]]]}"#,
            r#"{"routed_experts":"nrlre2:int8:1x1x2:AQI="}"#,
            // Bits that canonical base64 leaves zero, padding left out, an escaped slash.
            r#"{"routed_experts":"nrlre1:int8:1x1x2:AQJ="}"#,
            r#"{"routed_experts":"nrlre1:int8:1x1x2:AQI"}"#,
            r#"{"routed_experts":"nrlre1:int8:1x1x3:AQ\/\/"}"#,
            r#"{"note":"\"routed_experts\":\"nrlre1:int8:1x1x2:AQI=\""}"#,
        ] {
            let taken = take(text);
            assert_eq!((taken.text.as_str(), taken.routes.is_none()), (text, true), "{text}");
            assert_eq!(put_back(taken).as_deref(), Some(text));
        }
    }

    #[test]
    fn a_place_outside_the_text_is_refused() {
        for at in [3, u64::MAX] {
            let extras = Extras { text: "é".into(), routes: Some(vec![1]), at: Some(at) };
            assert_eq!(put_back(extras), None);
        }
        assert_eq!(put_back(Extras { text: "é".into(), routes: Some(vec![]), at: Some(1) }), None);
    }
}
