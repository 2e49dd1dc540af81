//! Reading JSON members as laxly as pydantic does, straight from the text.
//!
//! Integers may be spelled `2.0`, `"2"` or `true`, floats `"1_0"`, booleans `"yes"`
//! (`spec/gym-wire.md` a.9).

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::entry::ParentResolution;
use super::json::{Dialect, Json};
use super::{fields, python};

/// Declares a seed for one lax scalar.
macro_rules! scalar {
    ($name:ident => $value:ty, $expecting:literal, { $($method:item)* }) => {
        #[derive(Clone, Copy)]
        pub(super) struct $name;

        impl<'de> DeserializeSeed<'de> for $name {
            type Value = $value;

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<$value, D::Error> {
                deserializer.deserialize_any(self)
            }
        }

        impl<'de> Visitor<'de> for $name {
            type Value = $value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($expecting)
            }

            $($method)*
        }
    };
}

scalar!(Text => String, "a string", {
    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
});

scalar!(Int => i64, "an integer", {
    fn visit_i64<E>(self, n: i64) -> Result<i64, E> {
        Ok(n)
    }

    fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<i64, E> {
        i64::try_from(n).map_err(|_| E::custom(format!("{n} is beyond 64 bits")))
    }

    fn visit_bool<E>(self, b: bool) -> Result<i64, E> {
        Ok(b.into())
    }

    fn visit_f64<E: serde::de::Error>(self, x: f64) -> Result<i64, E> {
        whole(x).and_then(|n| i64::try_from(n).ok()).ok_or_else(|| not_whole(x))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<i64, E> {
        let n = lax_int(text).and_then(|n| i64::try_from(n).ok());
        n.ok_or_else(|| E::custom(format!("{text:?} is not an integer")))
    }
});

scalar!(Float => f64, "a number", {
    fn visit_f64<E>(self, x: f64) -> Result<f64, E> {
        Ok(x)
    }

    fn visit_i64<E>(self, n: i64) -> Result<f64, E> {
        Ok(n as f64)
    }

    fn visit_u64<E>(self, n: u64) -> Result<f64, E> {
        Ok(n as f64)
    }

    fn visit_bool<E>(self, b: bool) -> Result<f64, E> {
        Ok(f64::from(u8::from(b)))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<f64, E> {
        fields::python_float(text).ok_or_else(|| E::custom(format!("{text:?} is not a number")))
    }
});

scalar!(Flag => bool, "a boolean", {
    fn visit_bool<E>(self, b: bool) -> Result<bool, E> {
        Ok(b)
    }

    fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<bool, E> {
        flag(n as f64).ok_or_else(|| E::custom(format!("{n} is not a boolean")))
    }

    fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<bool, E> {
        flag(n as f64).ok_or_else(|| E::custom(format!("{n} is not a boolean")))
    }

    fn visit_f64<E: serde::de::Error>(self, x: f64) -> Result<bool, E> {
        flag(x).ok_or_else(|| E::custom(format!("{x} is not a boolean")))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<bool, E> {
        fields::bool_word(text).ok_or_else(|| E::custom(format!("{text:?} is not a boolean")))
    }
});

scalar!(Resolution => ParentResolution, "root, resolved or unresolved", {
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ParentResolution, E> {
        match text {
            "root" => Ok(ParentResolution::Root),
            "resolved" => Ok(ParentResolution::Resolved),
            "unresolved" => Ok(ParentResolution::Unresolved),
            _ => Err(E::custom(format!("{text:?} is none of root, resolved, unresolved"))),
        }
    }
});

fn flag(x: f64) -> Option<bool> {
    (x == 0.0 || x == 1.0).then_some(x == 1.0)
}

fn whole(x: f64) -> Option<i128> {
    (x.fract() == 0.0 && x.abs() < 1e38).then_some(x as i128)
}

fn not_whole<E: serde::de::Error>(x: f64) -> E {
    E::custom(format!("{x} is not an integer"))
}

/// An integer as text, perhaps with a fraction of zeros.
fn lax_int(text: &str) -> Option<i128> {
    let text = text.trim();
    let whole = match text.split_once('.') {
        Some((head, zeros)) if !zeros.is_empty() && zeros.bytes().all(|b| b == b'0') => head,
        Some(_) => return None,
        None => text,
    };
    python::parse_int(whole)
}

/// null, or what the inner seed reads.
pub(super) struct Maybe<S>(pub(super) S);

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Maybe<S> {
    type Value = Option<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Maybe<S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("null or a value")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}

pub(super) struct Raw;

impl<'de> DeserializeSeed<'de> for Raw {
    type Value = &'de RawValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        serde::Deserialize::deserialize(deserializer)
    }
}

pub(super) struct Items;

impl<'de> DeserializeSeed<'de> for Items {
    type Value = Vec<Json>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let raw: &RawValue = serde::Deserialize::deserialize(deserializer)?;
        match Json::parse(raw.get(), Dialect::Strict).map_err(D::Error::custom)? {
            Json::List(items) if items.iter().all(|item| item.as_dict().is_some()) => Ok(items),
            _ => Err(D::Error::custom("output_items is not a list of objects")),
        }
    }
}

/// Token ids in one pass, without a value per token; tells when one is no u64.
pub(super) struct Tokens<'c>(pub(super) &'c Cell<bool>);

impl<'de> DeserializeSeed<'de> for Tokens<'_> {
    type Value = Vec<u64>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Tokens<'_> {
    type Value = Vec<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of token ids")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut ids = Vec::new();
        while let Some(id) = list.next_element_seed(Token(self.0))? {
            ids.push(id);
        }
        Ok(ids)
    }
}

#[derive(Clone, Copy)]
struct Token<'c>(&'c Cell<bool>);

impl Token<'_> {
    fn narrow<E: serde::de::Error>(
        self,
        id: Option<i128>,
        shown: &dyn fmt::Display,
    ) -> Result<u64, E> {
        let id = id.ok_or_else(|| E::custom(format!("token id {shown} is not an integer")))?;
        u64::try_from(id).map_err(|_| {
            self.0.set(true);
            E::custom(format!("token id {shown} is outside 0..2^64"))
        })
    }
}

impl<'de> DeserializeSeed<'de> for Token<'_> {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Token<'_> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a token id")
    }

    fn visit_u64<E>(self, id: u64) -> Result<u64, E> {
        Ok(id)
    }

    fn visit_i64<E: serde::de::Error>(self, id: i64) -> Result<u64, E> {
        self.narrow(Some(id.into()), &id)
    }

    fn visit_bool<E>(self, b: bool) -> Result<u64, E> {
        Ok(b.into())
    }

    fn visit_f64<E: serde::de::Error>(self, x: f64) -> Result<u64, E> {
        self.narrow(whole(x), &x)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<u64, E> {
        self.narrow(lax_int(text), &format_args!("{text:?}"))
    }
}

pub(super) struct Logprobs;

impl<'de> DeserializeSeed<'de> for Logprobs {
    type Value = Vec<f64>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Logprobs {
    type Value = Vec<f64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of log-probabilities")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(Maybe(Float))? {
            values.push(value.unwrap_or(f64::NAN));
        }
        Ok(values)
    }
}
