//! `routes/routes.json`: envelopes, nested lists, span classification.

use forestctl::wire::digest::extras_digest;
use forestctl::wire::json::{Dialect, Json};
use forestctl::wire::route::{self, Dtype, RouteError, RouteSpan, Routes};
use serde_json::{Value, json};

use super::{fixture, list, text};

pub const COVERED: [&str; 4] = ["encode", "encode_errors", "decode", "classify"];

fn exact(value: &Value) -> Json {
    Json::parse(&value.to_string(), Dialect::Strict).unwrap()
}

fn encode(values: &Value, dtype: &str) -> Result<String, RouteError> {
    let dtype = Dtype::parse(dtype)?;
    Routes::decode(&exact(values))?.encode(dtype)
}

#[test]
fn encodes() {
    let routes = fixture("routes/routes.json");
    assert_eq!(routes["magic"], route::MAGIC);
    assert_eq!(routes["sentinel"], route::SENTINEL);
    for case in list(&routes, "encode") {
        let envelope = text(case, "envelope");
        assert_eq!(encode(&case["values"], text(case, "dtype")).as_deref(), Ok(envelope));
        let decoded = Routes::decode_envelope(envelope).unwrap();
        assert_eq!(decoded.dtype().map(Dtype::as_str), Some(text(case, "dtype")));
        assert_eq!(nested(&decoded), case["values"]);
        assert!(route::is_canonical(envelope));
        assert_eq!(route::token_count(&Json::Str(envelope.into())).ok(), count(case));
        let extras = exact(&json!({"routed_experts": envelope}));
        assert_eq!(extras_digest(&extras).unwrap().to_string(), text(case, "extras_digest"));
        let shape = [decoded.tokens, decoded.layers, decoded.topk];
        let packed = decoded.packed().unwrap().to_vec();
        let again = Routes::from_packed(decoded.dtype().unwrap(), shape, packed);
        assert_eq!(again, Some(decoded));
    }
    for case in list(&routes, "encode_errors") {
        let error = encode(&case["values"], text(case, "dtype")).unwrap_err();
        assert_eq!(error.to_string(), text(&case["result"], "message"), "{}", text(case, "name"));
    }
}

fn count(case: &Value) -> Option<usize> {
    case["token_count"].as_u64().map(|n| n as usize)
}

/// `[token][layer][k]` again.
fn nested(routes: &Routes) -> Value {
    let experts: Vec<i64> = routes.experts().collect();
    assert_eq!(experts.len(), routes.tokens * routes.layers * routes.topk);
    let tokens = experts.chunks(routes.layers * routes.topk);
    tokens.map(|token| token.chunks(routes.topk).collect::<Vec<_>>()).map(|t| json!(t)).collect()
}

#[test]
fn decodes() {
    let routes = fixture("routes/routes.json");
    let cases = list(&routes, "decode");
    assert_eq!(cases.len(), 24);
    for case in cases {
        let name = text(case, "name");
        let payload = exact(&case["payload"]);
        match (Routes::decode(&payload), &case["result"]) {
            (Ok(routes), expected) => {
                let found = json!({
                    "dtype": routes.dtype().map_or("legacy-int", Dtype::as_str),
                    "num_layers": routes.layers,
                    "topk": routes.topk,
                    "values": nested(&routes),
                });
                assert_eq!(found, expected["value"], "{name}");
            }
            (Err(error), expected) => {
                assert_eq!(error.to_string(), text(expected, "message"), "{name}");
            }
        }
        match (route::token_count(&payload), &case["token_count"]) {
            (Ok(n), expected) => assert_eq!(json!(n), expected["value"], "{name}"),
            (Err(error), expected) => {
                assert_eq!(error.to_string(), text(expected, "message"), "{name}");
            }
        }
        // Of all spellings that Python accepts, only what an encoder writes is canonical.
        if let Some(envelope) = case["payload"].as_str() {
            assert_eq!(route::is_canonical(envelope), name == "ok", "{name}");
        }
    }
}

#[test]
fn classifies() {
    let routes = fixture("routes/routes.json");
    let cases = list(&routes, "classify");
    assert_eq!(cases.len(), 128);
    for case in cases {
        let n = |i: usize| case[i].as_u64().unwrap() as usize;
        assert_eq!(RouteSpan::classify(n(0), n(1), n(2)).as_str(), case[3], "{case}");
    }
    assert_eq!(RouteSpan::classify(usize::MAX, 1, 1), RouteSpan::Tail);
    // `classify_errors` asks for lengths that are no unsigned integers; the type refuses those.
    assert_eq!(list(&routes, "classify_errors").len(), 3);
}

#[test]
fn huge_dimensions_are_refused_without_memory() {
    for shape in ["9223372036854775807x2x2", "340282366920938463463374607431768211456x1x1"] {
        assert!(Routes::decode_envelope(&format!("nrlre1:int8:{shape}:AAAA")).is_err());
    }
    assert_eq!(Routes::from_packed(Dtype::Int32, [usize::MAX, 2, 2], vec![0; 4]), None);
}
