//! Media flags of a staged call against the extras that its digest covers (rule 90).

use crate::archive::Call;
use crate::finding::Code;
use crate::wire::media;

/// What is wrong with the media metadata of a call, if anything is. A call without a media line
/// has no media, and so no geometry.
pub fn check(call: &Call) -> Option<(Code, String)> {
    let id = &call.call_id;
    let extras = call.extras.as_deref();
    let geometry = match media::geometry(extras) {
        Ok(geometry) => geometry,
        Err(message) => return Some((Code::MediaFlagMismatch, format!("call {id}: {message}"))),
    };
    let flag = |word: &str, said: bool, committed: usize, what: &str| {
        (said != (committed > 0)).then(|| {
            let message =
                format!("call {id}: {word} is {said}, its extras commit to {committed} {what}");
            (Code::MediaFlagMismatch, message)
        })
    };
    let Some(flags) = call.media else {
        return flag("media_present", false, geometry.images, "images and there is no media line");
    };
    flag("media_present", flags.present, geometry.images, "images")
        .or_else(|| flag("media_has_frames", flags.has_frames, geometry.with_frames, "videos"))
        .or_else(|| match media::metadata_digest(extras) {
            Ok(digest) if digest == flags.metadata_digest => None,
            Ok(digest) => {
                let said = flags.metadata_digest;
                let message = format!("call {id}: its extras give {digest}, its media line {said}");
                Some((Code::MediaMetadataMismatch, message))
            }
            Err(message) => {
                Some((Code::MediaMetadataMismatch, format!("call {id}: extras: {message}")))
            }
        })
}
