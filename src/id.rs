//! Newtypes for the identities that travel through every stage.
//!
//! A `RolloutId` is never a `CaptureKey`, even where Gym spells them alike: the first names one
//! attempt slot of a prompt group, the second the capture scope whose records fill it.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps an identity; any non-empty string is one on the wire.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The identity as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::new(text)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

id! {
    /// A prompt group: the logical rollouts of one prompt.
    GroupId
}
id! {
    /// A logical rollout, the owner of one reward and one advantage (`{group}_g{slot}`).
    RolloutId
}
id! {
    /// A captured model call (wire name `model_call_id`).
    CallId
}
id! {
    /// A capture scope: one attempt at a rollout (wire name `rollout_id` in schema 2,
    /// `capture_key` in schema 3).
    CaptureKey
}

/// A 32-byte digest, printed as 64 lowercase hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest32(pub [u8; 32]);

impl Digest32 {
    /// Reads exactly 64 lowercase hex digits (`DigestHex` of `spec/gym-wire.md` a.0); uppercase
    /// is another spelling and is refused.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 64 || text.bytes().any(|b| b.is_ascii_uppercase()) {
            return None;
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// A digest from the raw bytes of a column; `None` unless there are exactly 32.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for Digest32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Digest32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest32 {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest32 {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            serde::de::Error::custom(format!("{text:?} is not 64 lowercase hex digits"))
        })
    }
}

impl JsonSchema for Digest32 {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Digest32".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[0-9a-f]{64}$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_exactly_64_lowercase_hex_digits() {
        let text = "a1edc33c107616cf344faf0103daa025cfb125f8e1c784ae5f6a49faf2b768b6";
        assert_eq!(Digest32::parse(text).map(|d| d.to_string()).as_deref(), Some(text));
        for bad in [&text[1..], &text.to_uppercase(), &format!("{text}\n"), &text.replace('a', "g")]
        {
            assert_eq!(Digest32::parse(bad), None, "{bad:?}");
        }
    }
}
