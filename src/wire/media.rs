//! Media metadata beside a staged record (`spec/media.md`): flags of a call, and the geometry
//! that its extras commit to. Tensors are not read here.

use sha2::{Digest as _, Sha256};

use super::canonical::{self, Spelling};
use super::fields::{Fields, RecordError};
use super::json::{Dialect, Json};
use crate::archive::MediaFlags;
use crate::finding::Code;
use crate::id::Digest32;

/// The key of the extras that holds image geometry.
pub const GEOMETRY: &str = "cc_image_geometry";

/// The key of the extras that the metadata digest leaves out.
const ROUTES: &str = "routed_experts";

/// One line of `media*.jsonl`: what the worker says of the media of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaLine {
    /// Capture scope: `rollout_id` in schema 2, `capture_key` in schema 3.
    pub scope: String,
    /// The call.
    pub model_call_id: String,
    /// Flags, and [`metadata_digest`] of the call's extras.
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

/// What the extras of a call say of its new images, as far as flags can be checked by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Geometry {
    /// Occurrences that are new in this call.
    pub images: usize,
    /// Occurrences with a frame count.
    pub with_frames: usize,
}

/// The geometry in the extras of a call; empty when they hold none.
///
/// # Errors
///
/// What is wrong with the extras or with the geometry in them.
pub fn geometry(extras: Option<&str>) -> Result<Geometry, String> {
    let Some(extras) = extras else { return Ok(Geometry::default()) };
    let extras = Json::parse(extras, Dialect::Strict).map_err(|e| format!("extras: {e}"))?;
    let Some(geometry) = extras.get(GEOMETRY).filter(|g| !g.is_null()) else {
        return Ok(Geometry::default());
    };
    let images = geometry
        .get("images")
        .and_then(Json::as_list)
        .ok_or_else(|| format!("extras.{GEOMETRY}.images is not a list"))?;
    let with_frames = images
        .iter()
        .filter(|image| image.get("frames").is_some_and(|frames| !frames.is_null()))
        .count();
    Ok(Geometry { images: images.len(), with_frames })
}

/// Digest of the extras without routes: SHA-256 of their compact JSON with sorted keys.
///
/// # Errors
///
/// What keeps the extras from being written as JSON.
pub fn metadata_digest(extras: Option<&str>) -> Result<Digest32, String> {
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
    Ok(Digest32(Sha256::digest(text).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Expected digests: hashlib.sha256(json.dumps(x, sort_keys=True, separators=(",", ":"))).
    #[test]
    fn the_metadata_digest_leaves_routes_out() {
        let extras =
            r#"{"routed_experts": "x", "media_spans": [], "cc_image_geometry": {"images": []}}"#;
        assert_eq!(
            metadata_digest(Some(extras)).unwrap().to_string(),
            "c77bfff0cfd38a96cee2bad415e16ad647e76dbe3634ddf698a165eb0b4dd5ec"
        );
        assert_eq!(
            metadata_digest(None).unwrap().to_string(),
            "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"
        );
    }

    #[test]
    fn geometry_counts_images_and_frames() {
        let extras = r#"{"cc_image_geometry": {"prefix_digest": "00", "images": [
            {"offset": 0, "frames": 4}, {"offset": 9}, {"offset": 12, "frames": null}]}}"#;
        assert_eq!(geometry(Some(extras)), Ok(Geometry { images: 3, with_frames: 1 }));
        assert_eq!(geometry(None), Ok(Geometry::default()));
        assert!(geometry(Some(r#"{"cc_image_geometry": {"images": 3}}"#)).is_err());
    }
}
