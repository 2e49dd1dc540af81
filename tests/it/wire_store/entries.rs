//! Every `TokenEntry` of `models/`, and what the package's writer cannot produce.

use forestctl::finding::Code;
use forestctl::wire::{ParentResolution, TokenEntry};
use proptest::prelude::*;

use super::{gym, value};

fn minimal(extra: &str) -> String {
    format!(
        r#"{{"rollout_id":"r","model_call_id":"c","prompt_token_ids":[1,2],
        "generation_token_ids":[3],"generation_log_probs":[-0.5]{extra}}}"#
    )
}

#[test]
fn models() {
    let file = value(&gym("models/models.json"));
    let cases = file["TokenEntry"].as_array().unwrap();
    assert_eq!(cases.len(), 20);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let parsed = TokenEntry::parse(&case["input"].to_string());
        if name == "negative_allowed" {
            // No digest exists for such an entry, so forestctl names the token instead.
            assert_eq!(parsed.unwrap_err().code, Code::TokenIdOutOfRange);
            continue;
        }
        assert_eq!(parsed.is_ok(), case["valid"].as_bool().unwrap(), "{name}: {parsed:?}");
        match parsed {
            Ok(entry) => {
                // The package's own dump is the same entry, with every default spelt out.
                assert_eq!(TokenEntry::parse(&case["dump"].to_string()).unwrap(), entry, "{name}");
            }
            Err(error) => {
                let schema = name.starts_with("schema_");
                let code = if schema { Code::UnsupportedSchema } else { Code::MalformedRecord };
                assert_eq!(error.code, code, "{name}");
                let loc = case["errors"][0]["loc"].as_array().unwrap();
                if let Some(field) = loc.first().and_then(|f| f.as_str()) {
                    assert_eq!(error.field.as_deref(), Some(field), "{name}");
                }
            }
        }
    }
}

#[test]
fn what_is_kept() {
    let entry = TokenEntry::parse(&minimal(
        r#","zz":{"b": 1.0},"routed_experts":[[[1]]],"parent_call_id":"p",
        "parent_resolution":"resolved","prompt_is_delta":"yes","cum_len":"7","created_at":true"#,
    ))
    .unwrap();
    assert_eq!(entry.extra["zz"], r#"{"b": 1.0}"#);
    assert_eq!(entry.routed_experts.as_deref(), Some("[[[1]]]"));
    assert_eq!(entry.parent_resolution, Some(ParentResolution::Resolved));
    assert!(entry.prompt_is_delta);
    assert_eq!((entry.cum_len, entry.created_at), (Some(7), 1.0));
}

#[test]
fn a_null_logprob_is_a_hole_and_a_wide_token_is_named() {
    let line = minimal("").replace("[-0.5]", "[null]");
    assert!(TokenEntry::parse(&line).unwrap().generation_log_probs[0].is_nan());
    let wide = |id: &str| TokenEntry::parse(&minimal("").replace("[1,2]", &format!("[1,{id}]")));
    assert_eq!(wide("18446744073709551615").unwrap().prompt_token_ids[1], u64::MAX);
    for id in ["18446744073709551616", "-1", "1e30"] {
        let error = wide(id).unwrap_err();
        assert_eq!(error.code, Code::TokenIdOutOfRange, "{id}");
        assert_eq!(error.field.as_deref(), Some("prompt_token_ids"));
    }
}

#[test]
fn malformed_lines_have_a_code() {
    for (line, code, field) in [
        ("", Code::MalformedJson, None),
        ("[1]", Code::MalformedRecord, None),
        ("{}", Code::MalformedRecord, Some("rollout_id")),
        ("{\"rollout_id\":5}", Code::MalformedRecord, Some("rollout_id")),
        // The text stops being JSON after the wrong value.
        ("{\"rollout_id\":5,", Code::MalformedJson, None),
    ] {
        let error = TokenEntry::parse(line).unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (code, field), "{line}: {error}");
    }
    let error = TokenEntry::parse(&minimal(r#","output_items":[1]"#)).unwrap_err();
    assert_eq!(error.field.as_deref(), Some("output_items"));
}

proptest! {
    /// Whatever stands in a line, reading it ends with an entry or an error.
    #[test]
    fn no_line_panics(text in "\\PC{0,40}", cut in 0_usize..400) {
        let _ = TokenEntry::parse(&text);
        let line = minimal(&format!(r#","output_items":[{{"x":"{}"}}],"extra":[1.5,null]"#,
            text.replace(['"', '\\'], "")));
        prop_assert!(TokenEntry::parse(&line).is_ok());
        let cut: String = line.chars().take(cut).collect();
        if cut.len() < line.len() {
            prop_assert_eq!(TokenEntry::parse(&cut).unwrap_err().code, Code::MalformedJson);
        }
    }
}
