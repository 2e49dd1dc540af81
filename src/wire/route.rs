//! Expert routes of a call: `nrlre1` envelopes and the older nested lists
//! (`spec/gym-wire.md` b.11).
//!
//! The extras digest covers the envelope's text, so an envelope may be unpacked for storage only
//! if packing it again gives the same text ([`is_canonical`]).

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::json::Json;
use super::python::{parse_int, repr_str};

/// First word of an envelope, its version included.
pub const MAGIC: &str = "nrlre1";

/// Expert that stands for "not captured" in a row.
pub const SENTINEL: i64 = -1;

/// Why routes cannot be read or written, in the package's words where it has some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RouteError(pub String);

type Result<T> = std::result::Result<T, RouteError>;

fn fail<T>(message: impl Into<String>) -> Result<T> {
    Err(RouteError(message.into()))
}

/// How an expert number is stored, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// 1 byte.
    Int8,
    /// 2 bytes; what encoders use unless told otherwise.
    Int16,
    /// 4 bytes.
    Int32,
}

impl Dtype {
    /// The wire's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Dtype::Int8 => "int8",
            Dtype::Int16 => "int16",
            Dtype::Int32 => "int32",
        }
    }

    /// Bytes per expert.
    pub fn size(self) -> usize {
        match self {
            Dtype::Int8 => 1,
            Dtype::Int16 => 2,
            Dtype::Int32 => 4,
        }
    }

    /// The type of a word.
    ///
    /// # Errors
    ///
    /// Any other word.
    pub fn parse(word: &str) -> Result<Dtype> {
        match word {
            "int8" => Ok(Dtype::Int8),
            "int16" => Ok(Dtype::Int16),
            "int32" => Ok(Dtype::Int32),
            _ => fail(format!("unsupported routed_experts dtype {}", repr_str(word))),
        }
    }

    fn holds(self, value: i64) -> bool {
        match self {
            Dtype::Int8 => i8::try_from(value).is_ok(),
            Dtype::Int16 => i16::try_from(value).is_ok(),
            Dtype::Int32 => i32::try_from(value).is_ok(),
        }
    }
}

/// Experts that routed each token of a call, `[token][layer][k]`; no dimension is zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    /// Token rows.
    pub tokens: usize,
    /// Layers per token.
    pub layers: usize,
    /// Experts per layer.
    pub topk: usize,
    data: Data,
}

/// Row-major experts.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Data {
    /// As in the envelope.
    Packed(Dtype, Vec<u8>),
    /// Of a nested list.
    Wide(Vec<i64>),
}

impl Routes {
    /// Reads what a record holds under `routed_experts`: an envelope or a nested list.
    ///
    /// # Errors
    ///
    /// A text that is no envelope, or a list that is not rectangular.
    pub fn decode(value: &Json) -> Result<Routes> {
        match value {
            Json::Str(envelope) => Self::decode_envelope(envelope),
            Json::List(rows) => Self::from_nested(rows),
            _ => fail("legacy routed_experts must be a nested list"),
        }
    }

    /// Reads an envelope.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn decode_envelope(envelope: &str) -> Result<Routes> {
        let Header { dtype, shape: [tokens, layers, topk], payload } = header(envelope)?;
        let data = BASE64
            .decode(payload)
            .or_else(|_| fail("routed_experts envelope contains invalid base64"))?;
        let expected =
            [tokens, layers, topk, dtype.size()].into_iter().try_fold(1usize, usize::checked_mul);
        if expected != Some(data.len()) {
            let expected = expected.map_or_else(|| "more".to_owned(), |n| n.to_string());
            return fail(format!(
                "routed_experts byte length does not match its declared shape ({} != {expected})",
                data.len()
            ));
        }
        Ok(Routes { tokens, layers, topk, data: Data::Packed(dtype, data) })
    }

    fn from_nested(rows: &[Json]) -> Result<Routes> {
        let mut shape = None;
        let mut experts = Vec::new();
        for row in rows {
            let layers = row.as_list().filter(|layers| !layers.is_empty());
            let Some(layers) = layers else {
                return fail("each routed_experts token row must contain layers");
            };
            for layer in layers {
                let layer = layer.as_list().filter(|layer| !layer.is_empty());
                let Some(layer) = layer else {
                    return fail("each routed_experts layer row must contain experts");
                };
                let &mut (layer_count, topk) = shape.get_or_insert((layers.len(), layer.len()));
                if layers.len() != layer_count {
                    return fail("routed_experts layer count must be constant");
                }
                if layer.len() != topk {
                    return fail("routed_experts top-k width must be constant");
                }
                for expert in layer {
                    match expert {
                        Json::Int(n) if i64::try_from(*n).is_ok() => experts.push(*n as i64),
                        Json::Int(_) | Json::BigInt(_) => {
                            return fail("routed_experts values are beyond 64 bits");
                        }
                        _ => return fail("routed_experts values must be exact integers"),
                    }
                }
            }
        }
        let Some((layers, topk)) = shape else {
            return fail("routed_experts must contain at least one token row");
        };
        Ok(Routes { tokens: rows.len(), layers, topk, data: Data::Wide(experts) })
    }

    /// Storage type of the envelope; `None` for a nested list.
    pub fn dtype(&self) -> Option<Dtype> {
        match self.data {
            Data::Packed(dtype, _) => Some(dtype),
            Data::Wide(_) => None,
        }
    }

    /// Writes an envelope.
    ///
    /// # Errors
    ///
    /// An expert that the type cannot hold.
    pub fn encode(&self, dtype: Dtype) -> Result<String> {
        let payload = match &self.data {
            Data::Packed(packed, bytes) if *packed == dtype => BASE64.encode(bytes),
            _ => {
                let mut bytes = Vec::new();
                for expert in self.experts() {
                    if !dtype.holds(expert) {
                        let dtype = repr_str(dtype.as_str());
                        return fail(format!("routed_experts values do not fit dtype {dtype}"));
                    }
                    bytes.extend_from_slice(&expert.to_le_bytes()[..dtype.size()]);
                }
                BASE64.encode(bytes)
            }
        };
        let Routes { tokens, layers, topk, .. } = self;
        Ok(format!("{MAGIC}:{}:{tokens}x{layers}x{topk}:{payload}", dtype.as_str()))
    }

    /// All experts in row-major order.
    pub fn experts(&self) -> Box<dyn Iterator<Item = i64> + '_> {
        match &self.data {
            Data::Wide(experts) => Box::new(experts.iter().copied()),
            Data::Packed(dtype, bytes) => Box::new(bytes.chunks_exact(dtype.size()).map(unpack)),
        }
    }

    /// Little-endian bytes of the envelope's payload; `None` for a nested list.
    pub fn packed(&self) -> Option<&[u8]> {
        match &self.data {
            Data::Packed(_, bytes) => Some(bytes),
            Data::Wide(_) => None,
        }
    }

    /// Puts an envelope's parts together again, as an archive keeps them; `None` unless there
    /// are as many bytes as the shape asks for, and at least one.
    pub fn from_packed(
        dtype: Dtype,
        [tokens, layers, topk]: [usize; 3],
        bytes: Vec<u8>,
    ) -> Option<Routes> {
        let expected =
            [tokens, layers, topk, dtype.size()].into_iter().try_fold(1usize, usize::checked_mul);
        (expected == Some(bytes.len()) && !bytes.is_empty()).then_some(Routes {
            tokens,
            layers,
            topk,
            data: Data::Packed(dtype, bytes),
        })
    }
}

/// Sign-extends a little-endian integer of 1, 2 or 4 bytes.
fn unpack(bytes: &[u8]) -> i64 {
    let mut wide = [0; 8];
    let unused = wide.len() - bytes.len();
    wide[unused..].copy_from_slice(bytes);
    i64::from_le_bytes(wide) >> (8 * unused)
}

/// Standard alphabet with padding; like Python, leftover bits of the last character may be set.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

struct Header<'a> {
    dtype: Dtype,
    shape: [usize; 3],
    payload: &'a str,
}

fn header(envelope: &str) -> Result<Header<'_>> {
    let mut parts = envelope.splitn(4, ':');
    let (Some(MAGIC), Some(dtype), Some(shape), Some(payload)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return fail(format!("unsupported routed_experts envelope; expected {MAGIC}"));
    };
    let dtype = Dtype::parse(dtype)?;
    let sizes: Vec<_> = shape.split('x').collect();
    let [tokens, layers, topk] = sizes[..] else {
        return fail("routed_experts envelope shape must have three dimensions");
    };
    let size = |text: &str| match parse_int(text) {
        None => {
            let text = repr_str(text);
            fail(format!("routed_experts envelope dimension {text} is not an integer"))
        }
        Some(n) if n <= 0 => fail("routed_experts envelope dimensions must be positive"),
        Some(n) => usize::try_from(n)
            .or_else(|_| fail("routed_experts envelope dimensions are beyond 64 bits")),
    };
    Ok(Header { dtype, shape: [size(tokens)?, size(layers)?, size(topk)?], payload })
}

/// Token rows that routes declare, without looking at their payload.
///
/// # Errors
///
/// A text without a valid head, or anything but a text or a list that holds something.
pub fn token_count(value: &Json) -> Result<usize> {
    match value {
        Json::Str(envelope) => Ok(header(envelope)?.shape[0]),
        Json::List(rows) if !rows.is_empty() => Ok(rows.len()),
        _ => fail("legacy routed_experts must be a non-empty nested list"),
    }
}

/// True if an envelope is what encoding its own content gives, byte for byte.
pub fn is_canonical(envelope: &str) -> bool {
    let routes = Routes::decode_envelope(envelope);
    routes.is_ok_and(|routes| {
        routes.dtype().is_some_and(|d| routes.encode(d).is_ok_and(|text| text == envelope))
    })
}

/// Which staged route rows belong to which tokens of a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteSpan {
    /// One row per token.
    Full,
    /// The last rows belong to the generation; the carry has none.
    Tail,
    /// The rows cannot be placed: the whole delta gets [`SENTINEL`].
    Sentinel,
}

impl RouteSpan {
    /// The package's word.
    pub fn as_str(self) -> &'static str {
        match self {
            RouteSpan::Full => "full",
            RouteSpan::Tail => "tail",
            RouteSpan::Sentinel => "sentinel",
        }
    }

    /// Places `staged` rows on a delta of `carry` and `generation` tokens. More rows than tokens
    /// are a tail, too.
    pub fn classify(carry: usize, generation: usize, staged: usize) -> RouteSpan {
        if staged == 0 {
            RouteSpan::Sentinel
        } else if carry.checked_add(generation) == Some(staged) {
            RouteSpan::Full
        } else if 0 < generation && generation <= staged {
            RouteSpan::Tail
        } else {
            RouteSpan::Sentinel
        }
    }
}
