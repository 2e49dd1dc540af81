//! Media metadata beside a staged record (`spec/media.md`): flags of a call, and the geometry
//! that its extras commit to.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

use super::canonical::{self, Spelling};
use super::digest::list_digest;
use super::fields::{Fields, RecordError};
use super::json::{Dialect, Json};
use super::parser::Value;
use crate::archive::MediaFlags;
use crate::finding::Code;
use crate::id::Digest32;

/// The key of the extras that holds image geometry.
pub const GEOMETRY: &str = "cc_image_geometry";

/// Field of the pixels, `[patches, 3 * P * P]`.
pub const IMGS: &str = "media_imgs";
/// Field of height and width of each occurrence, `[N, 2]`.
pub const SIZES: &str = "media_imgs_sizes";
/// Field of the frames of each occurrence, `[N]`.
pub const FRAMES: &str = "media_num_frames";

/// The key of the extras that the metadata digest leaves out.
const ROUTES: &str = "routed_experts";

/// One line of `media*.jsonl`: what the worker says of the media of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaLine {
    /// Capture scope: `rollout_id` in schema 2, `capture_key` in schema 3.
    pub scope: String,
    /// The call.
    pub model_call_id: String,
    /// Flags, and one of the [`metadata_digests`] of the call's extras.
    pub flags: MediaFlags,
}

impl MediaLine {
    /// Reads one line.
    ///
    /// # Errors
    ///
    /// `malformed_json`, or `malformed_media` with the field at fault.
    pub fn parse(line: &str) -> Result<Self, RecordError> {
        let value = Json::parse(line, Dialect::Strict)
            .map_err(|error| RecordError::json(Code::MalformedMedia, &error))?;
        let mut fields = Fields::object(Code::MalformedMedia, value)?;
        let scope = match fields.has("capture_key") {
            true => fields.identifier("capture_key")?,
            false => fields.identifier("rollout_id")?,
        };
        let read = Self {
            scope,
            model_call_id: fields.identifier("model_call_id")?,
            flags: MediaFlags {
                present: fields.flag("media_present")?,
                has_frames: fields.flag("media_has_frames")?,
                metadata_digest: fields.digest("media_metadata_digest")?,
            },
        };
        fields.finish()?;
        Ok(read)
    }
}

/// What the extras of a call say of its media (`spec/media.md`).
#[derive(Clone, Debug, PartialEq)]
pub struct Geometry {
    /// [`prefix_digest`] of what the ancestors brought.
    pub prefix_digest: Digest32,
    /// Occurrences that are new in this call, as listed.
    pub images: Vec<Occurrence>,
}

/// One image or video among the tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Occurrence {
    /// First token, counted from the root.
    pub offset: u64,
    /// Tokens, at least one.
    pub length: u64,
    /// Pixels, at least one.
    pub height: u64,
    /// Pixels, at least one.
    pub width: u64,
    /// The token that stands for it, `length` times.
    pub token_id: u64,
    /// Frames, at least one; `None` where the call counts none.
    pub frames: Option<u64>,
    /// The object itself, which is what digests see.
    json: Json,
}

impl Occurrence {
    fn read(code: Code, value: Value<'_>) -> Result<Self, RecordError> {
        let json = Json::from(value.clone());
        let mut fields = Fields::object(code, value)?;
        let mut positive = |key: &str| match fields.length(key)? {
            0 => Err(fields.fault(key, "is 0")),
            n => Ok(n),
        };
        let (length, height, width) =
            (positive("length")?, positive("height")?, positive("width")?);
        let frames = fields.optional("frames", super::fields::length)?;
        if frames == Some(0) {
            return Err(fields.fault("frames", "is 0"));
        }
        let (offset, token_id) = (fields.length("offset")?, fields.length("token_id")?);
        fields.finish()?;
        Ok(Self { offset, length, height, width, token_id, frames, json })
    }
}

/// Whether extras may hold geometry, by a look that costs nothing. A key can be spelled with
/// escapes; nothing else can hide it.
pub fn may_hold_geometry(extras: Option<&str>) -> bool {
    extras.is_some_and(|text| text.contains(GEOMETRY) || text.contains('\\'))
}

/// The geometry in the extras of a call, if they hold any.
///
/// # Errors
///
/// `invalid_media_geometry` with the field at fault: a member that is missing, unknown or of
/// another type, and lengths, sizes and frame counts of zero.
pub fn geometry(extras: Option<&str>) -> Result<Option<Geometry>, RecordError> {
    const CODE: Code = Code::InvalidMediaGeometry;
    let Some(extras) = extras.filter(|_| may_hold_geometry(extras)) else { return Ok(None) };
    let extras = Json::parse(extras, Dialect::Strict).map_err(|e| RecordError::json(CODE, &e))?;
    let Json::Dict(mut extras) = extras else { return Ok(None) };
    let Some(geometry) = extras.remove(GEOMETRY).filter(|geometry| !geometry.is_null()) else {
        return Ok(None);
    };
    let read = || {
        let mut fields = Fields::object(CODE, geometry)?;
        let prefix_digest = fields.digest("prefix_digest")?;
        let images = fields.required_list("images", Occurrence::read)?;
        fields.finish()?;
        Ok(Geometry { prefix_digest, images })
    };
    read().map(Some).map_err(|error: RecordError| error.within(GEOMETRY))
}

/// The wire's extras digest of `{"images": retained}`: what a call says of the occurrences that
/// its ancestors brought, root first.
///
/// # Errors
///
/// A number that the digest cannot hold.
pub fn prefix_digest<'a>(
    retained: impl ExactSizeIterator<Item = &'a Occurrence>,
) -> Result<Digest32, String> {
    let items = retained.map(|occurrence| &occurrence.json);
    list_digest("images", items).map_err(|e| e.to_string())
}

/// Side of the square patches whose pixels, three channels each, are `width` numbers.
pub fn patch_side(width: u64) -> Option<u64> {
    let side = (width / 3).isqrt();
    (side > 0 && side * side * 3 == width).then_some(side)
}

/// Patches of an image or video; `None` unless sides are whole patches and nothing is zero.
pub fn patches(height: u64, width: u64, frames: u64, side: u64) -> Option<u64> {
    let whole = |pixels: u64| Some(pixels / side).filter(|n| *n > 0 && n * side == pixels);
    whole(height)?.checked_mul(whole(width)?)?.checked_mul(frames).filter(|_| frames > 0)
}

/// Digests of the extras without routes: SHA-256 of their compact JSON with sorted keys, with
/// text beyond ASCII as it is, and escaped as `json.dumps` does unless told otherwise. No public
/// text says which of the two is meant; they differ for such text alone.
///
/// # Errors
///
/// What keeps the extras from being written as JSON.
pub fn metadata_digests(extras: Option<&str>) -> Result<[Digest32; 2], String> {
    let extras = match extras {
        None => Json::Null,
        Some(text) => match Json::parse(text, Dialect::Strict).map_err(|e| e.to_string())? {
            Json::Dict(mut members) => {
                members.remove(ROUTES);
                Json::Dict(members)
            }
            other => other,
        },
    };
    let text = canonical::text(&extras, Spelling::Python).map_err(|e| e.to_string())?;
    let digest = |text: &str| Digest32(Sha256::digest(text).into());
    // Such text is inside strings, where an escape means the same.
    Ok([digest(&text), digest(&escaped(&text))])
}

/// Python escapes all but the printable characters of ASCII.
fn escaped(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte <= b'~') {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    let mut units = [0; 2];
    for c in text.chars() {
        if c <= '~' {
            out.push(c);
        } else {
            let units = c.encode_utf16(&mut units);
            out.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Expected digests: hashlib.sha256(json.dumps(x, sort_keys=True, separators=(",", ":"))).
    #[test]
    fn the_metadata_digest_leaves_routes_out() {
        let extras =
            r#"{"routed_experts": "x", "media_spans": [], "cc_image_geometry": {"images": []}}"#;
        let both = |extras| metadata_digests(extras).unwrap().map(|digest| digest.to_string());
        let digest = "c77bfff0cfd38a96cee2bad415e16ad647e76dbe3634ddf698a165eb0b4dd5ec";
        assert_eq!(both(Some(extras)), [digest; 2]);
        let digest = "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b";
        assert_eq!(both(None), [digest; 2]);
        // With ensure_ascii=False, and without.
        assert_eq!(
            both(Some("{\"é\": \"\\u007f😀\"}")),
            [
                "5451fdde98a4ae51faed99d8755b733282759c695744ad64fad83912daa9a7c4",
                "3e5494d155418d8fd8d1f73ad8f9be8742fa4dac7bc1828bace34ed92d876a39",
            ]
        );
    }

    /// Digest of an empty list, and of one occurrence, by an own implementation of the layout:
    /// sha256(b"nemo-gym-staging-extras-v1\x01" + X({"images": [...]})).
    #[test]
    fn prefix_digests_are_those_of_the_layout() {
        let none = prefix_digest([].iter()).unwrap().to_string();
        assert_eq!(none, "5a9001998ecfe1637ef4fdf888e123d17a2d7393072000da653d50ecb2ef5fc2");
        let extras = format!(
            r#"{{"cc_image_geometry": {{"prefix_digest": "{none}", "images": [
                {{"width": 8, "offset": 2, "length": 1, "height": 4, "token_id": 9}}]}}}}"#
        );
        let geometry = geometry(Some(&extras)).unwrap().unwrap();
        assert_eq!(geometry.prefix_digest.to_string(), none);
        assert_eq!(
            prefix_digest(geometry.images.iter()).unwrap().to_string(),
            "e07a762d23bbb7140b56696238a27483d14e9dd0f947f60e13bdcc69575c22a0"
        );
    }

    #[test]
    fn geometry_is_read_to_the_letter() {
        let zeros = "0".repeat(64);
        let occurrence = r#"{"offset":0,"length":2,"height":4,"width":8,"token_id":7,"frames":3}"#;
        let extras = |prefix: &str, image: &str| {
            format!(r#"{{"cc_image_geometry":{{"prefix_digest":"{prefix}","images":[{image}]}}}}"#)
        };
        let read = |text: &str| geometry(Some(text));
        let good = read(&extras(&zeros, occurrence)).unwrap().unwrap();
        let image = &good.images[0];
        let numbers = [image.offset, image.length, image.height, image.width, image.token_id];
        assert_eq!((numbers, image.frames), ([0, 2, 4, 8, 7], Some(3)));
        // A key spelled with escapes is the same key.
        let escaped = extras(&zeros, occurrence).replace("cc_image", "\\u0063c_image");
        assert_eq!(read(&escaped), Ok(Some(good)));
        for none in ["{}", r#"{"cc_image_geometry":null}"#, r#"{"x":"cc_image_geometry"}"#, "[]"] {
            assert_eq!(read(none), Ok(None), "{none}");
        }
        assert_eq!(geometry(None), Ok(None));
        let fault = |text: &str| read(text).unwrap_err().field.unwrap_or_default();
        for (change, field) in [
            (("\"offset\":0", "\"offset\":-1"), "images[0].offset"),
            (("\"offset\":0", "\"offset\":0.0"), "images[0].offset"),
            (("\"offset\":0", "\"offset\":true"), "images[0].offset"),
            (("\"offset\":0,", ""), "images[0].offset"),
            (("\"length\":2", "\"length\":0"), "images[0].length"),
            (("\"height\":4", "\"height\":0"), "images[0].height"),
            (("\"width\":8", "\"width\":\"8\""), "images[0].width"),
            (("\"token_id\":7", "\"token_id\":null"), "images[0].token_id"),
            (("\"frames\":3", "\"frames\":0"), "images[0].frames"),
            (("\"frames\":3", "\"frame\":3"), "images[0].frame"),
        ] {
            let text = extras(&zeros, &occurrence.replace(change.0, change.1));
            assert_eq!(fault(&text), format!("cc_image_geometry.{field}"), "{text}");
        }
        assert_eq!(fault(&extras("00", occurrence)), "cc_image_geometry.prefix_digest");
        assert_eq!(fault(r#"{"cc_image_geometry":[]}"#), "cc_image_geometry");
        let member = extras(&zeros, "").replace("\"images\":[]", "\"images\":3");
        assert_eq!(fault(&member), "cc_image_geometry.images");
        let unknown = extras(&zeros, "").replace("[]", "[],\"more\":1");
        assert_eq!(fault(&unknown), "cc_image_geometry.more");
    }

    #[test]
    fn patches_are_whole_squares_of_three_channels() {
        assert_eq!(patch_side(3 * 14 * 14), Some(14));
        for width in [0, 1, 3 * 14 * 14 + 3, u64::MAX] {
            assert_eq!(patch_side(width), None, "{width}");
        }
        assert_eq!(patches(28, 42, 2, 14), Some(12));
        for (height, width, frames) in [(28, 43, 1), (0, 14, 1), (14, 14, 0)] {
            assert_eq!(patches(height, width, frames, 14), None);
        }
        assert_eq!(patches(u64::MAX, u64::MAX, 1, 1), None);
    }
}
