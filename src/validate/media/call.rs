//! The media of one call by itself: flags, extras and tensors against each other.

use crate::archive::{Call, Dtype, MediaTensor};
use crate::finding::Code;
use crate::wire::media::{
    FRAMES, GEOMETRY, Geometry, IMGS, Occurrence, SIZES, geometry, metadata_digests, patch_side,
    patches,
};

/// What is wrong.
pub(super) struct Fault {
    pub code: Code,
    /// In wire words.
    pub field: &'static str,
    pub message: String,
}

impl Fault {
    fn new(code: Code, field: &'static str, message: impl Into<String>) -> Self {
        Self { code, field, message: message.into() }
    }
}

/// What a call says and brings; flags, extras and tensors agree.
pub(super) struct Media {
    pub geometry: Geometry,
    /// `None` when it brings nothing.
    pub layout: Option<Layout>,
}

/// How the images of a call became tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub dtype: Dtype,
    /// Side of a patch in pixels.
    pub side: u64,
    /// A token stands for this many patches squared.
    pub merge: u64,
    /// Whether occurrences count frames.
    pub frames: bool,
}

/// Checks `call`. `brought` gives the occurrence of an ancestor that shares tokens with a span.
pub(super) fn check<'o>(
    call: &Call,
    brought: impl Fn(&Occurrence) -> Option<&'o Occurrence>,
) -> Result<Option<Media>, Fault> {
    let geometry = geometry(call.extras.as_deref())
        .map_err(|error| Fault::new(error.code, GEOMETRY, format!("extras: {error}")))?;
    flags(call, geometry.as_ref())?;
    let images = geometry.as_ref().map_or(&[][..], |geometry| &geometry.images);
    if images.is_empty() {
        if let Some(tensor) = call.tensors.first() {
            let message = format!("its extras list no new media, and {} is there", tensor.field);
            return Err(Fault::new(Code::UnexpectedMediaTensor, field_of(tensor), message));
        }
        return Ok(geometry.map(|geometry| Media { geometry, layout: None }));
    }
    spans(call, images, brought)?;
    let layout = Some(tensors(call, images)?);
    Ok(geometry.map(|geometry| Media { geometry, layout }))
}

/// The media line against the extras.
fn flags(call: &Call, geometry: Option<&Geometry>) -> Result<(), Fault> {
    let images = geometry.map_or(&[][..], |geometry| &geometry.images);
    let with_frames = images.iter().filter(|image| image.frames.is_some()).count();
    let Some(flags) = call.media else {
        return match geometry {
            None => Ok(()),
            Some(_) => {
                let message = format!(
                    "its extras hold the geometry of {} occurrences, and there is no media line",
                    images.len()
                );
                Err(Fault::new(Code::MediaFlagMismatch, "media_present", message))
            }
        };
    };
    for (field, said, committed, what) in [
        ("media_present", flags.present, images.len(), "occurrences"),
        ("media_has_frames", flags.has_frames, with_frames, "frame counts"),
    ] {
        if said != (committed > 0) {
            let message = format!("{field} is {said}, its extras commit to {committed} {what}");
            return Err(Fault::new(Code::MediaFlagMismatch, field, message));
        }
    }
    let said = flags.metadata_digest;
    let message = match metadata_digests(call.extras.as_deref()) {
        Ok(digests) if digests.contains(&said) => return Ok(()),
        Ok([digest, _]) => format!("its extras give {digest}, its media line says {said}"),
        Err(error) => format!("extras: {error}"),
    };
    Err(Fault::new(Code::MediaMetadataMismatch, "media_metadata_digest", message))
}

/// Occurrences follow one another inside the new prompt, on their own tokens.
fn spans<'o>(
    call: &Call,
    images: &[Occurrence],
    brought: impl Fn(&Occurrence) -> Option<&'o Occurrence>,
) -> Result<(), Fault> {
    let fault = |code, message| Err(Fault::new(code, GEOMETRY, message));
    let prompt = call.prev_len..call.prev_len.saturating_add(call.carry_len.into());
    let mut last = 0;
    for (n, image) in images.iter().enumerate() {
        let Occurrence { offset, length, token_id, .. } = *image;
        if offset < last {
            let message = format!("images[{n}] begins at token {offset}, before token {last}");
            return fault(Code::MediaSpanOrder, message);
        }
        let Some(end) = offset.checked_add(length) else {
            let message = format!("images[{n}] spans {length} tokens from {offset} on");
            return fault(Code::MediaSpanOutsidePrompt, message);
        };
        last = end;
        if offset < prompt.start
            && let Some(old) = brought(image)
        {
            let (code, what) = match old == image {
                true => (Code::MediaNotNew, "lists again"),
                false => (Code::MediaRetainedChanged, "changes"),
            };
            let message = format!("images[{n}] {what} what an ancestor brought at {}", old.offset);
            return fault(code, message);
        }
        if offset < prompt.start || end > prompt.end {
            let (start, stop) = (prompt.start, prompt.end);
            let message = format!(
                "images[{n}] spans tokens {offset}..{end}, its new prompt is {start}..{stop}"
            );
            return fault(Code::MediaSpanOutsidePrompt, message);
        }
        let at = (offset - prompt.start) as usize;
        let tokens = call.token_ids.get(at..at + length as usize).unwrap_or_default();
        let other = tokens.iter().position(|&token| u64::from(token) != token_id);
        if let Some(other) = other {
            let (place, token) = (offset + other as u64, tokens[other]);
            let message = format!("token {place} of images[{n}] is {token}, not {token_id}");
            return fault(Code::MediaTokenMismatch, message);
        }
        if tokens.len() as u64 != length {
            let message = format!("images[{n}] spans {length} tokens that the record lacks");
            return fault(Code::MediaSpanOutsidePrompt, message);
        }
    }
    Ok(())
}

/// The tensors against the occurrences.
fn tensors(call: &Call, images: &[Occurrence]) -> Result<Layout, Fault> {
    let with_frames = images.iter().filter(|image| image.frames.is_some()).count();
    let frames = with_frames > 0;
    if frames && with_frames < images.len() {
        let message = format!("{with_frames} of {} occurrences count frames", images.len());
        return Err(Fault::new(Code::MediaFramesMixed, GEOMETRY, message));
    }
    let known = |tensor: &&MediaTensor| match tensor.field.as_str() {
        IMGS | SIZES => true,
        FRAMES => frames,
        _ => false,
    };
    if let Some(other) = call.tensors.iter().find(|tensor| !known(tensor)) {
        let message = match field_of(other) {
            FRAMES => "no occurrence counts frames, and media_num_frames is there".to_owned(),
            _ => format!("{} is no tensor of a call", shorten(&other.field)),
        };
        return Err(Fault::new(Code::UnexpectedMediaTensor, field_of(other), message));
    }
    let find = |field: &'static str| {
        call.tensor(field).ok_or_else(|| {
            let message = format!("it brings {} occurrences without {field}", images.len());
            Fault::new(Code::MissingMediaTensor, field, message)
        })
    };
    let (imgs, sizes) = (find(IMGS)?, find(SIZES)?);
    let counts = if frames { Some(find(FRAMES)?) } else { None };
    let (rows, side) = pixels(imgs)?;
    let sizes = integers(sizes, SIZES, images.len(), &[2])?;
    for (n, (image, size)) in images.iter().zip(sizes.chunks_exact(2)).enumerate() {
        let said = [image.height, image.width];
        if said.map(|n| i32::try_from(n).ok()) != [size[0], size[1]].map(Some) {
            let message = format!(
                "images[{n}] has {}x{} pixels, {SIZES} says {}x{}",
                said[0], said[1], size[0], size[1]
            );
            return Err(Fault::new(Code::MediaSizeMismatch, SIZES, message));
        }
    }
    if let Some(counts) = counts {
        let counts = integers(counts, FRAMES, images.len(), &[])?;
        for (n, (image, &count)) in images.iter().zip(&counts).enumerate() {
            let said = image.frames.unwrap_or_default();
            if i32::try_from(said).ok() != Some(count) {
                let message = format!("images[{n}] has {said} frames, {FRAMES} says {count}");
                return Err(Fault::new(Code::MediaFrameMismatch, FRAMES, message));
            }
        }
    }
    let merge = grid(images, rows, side)?;
    Ok(Layout { dtype: imgs.dtype, side, merge, frames })
}

/// Number and side of the patches.
fn pixels(imgs: &MediaTensor) -> Result<(u64, u64), Fault> {
    let invalid = |message| Fault::new(Code::InvalidMediaTensor, IMGS, message);
    if !matches!(imgs.dtype, Dtype::F16 | Dtype::BF16 | Dtype::F32) {
        let message = format!("{IMGS} is {}; F16, BF16 and F32 are pixels", imgs.dtype);
        return Err(invalid(message));
    }
    let side = match imgs.shape[..] {
        [_, width] => patch_side(width),
        _ => None,
    };
    let Some(side) = side else {
        let shape = &imgs.shape;
        return Err(invalid(format!("{IMGS} has the shape {shape:?}, not [patches, 3*P*P]")));
    };
    whole(imgs, IMGS)?;
    Ok((imgs.shape[0], side))
}

/// The values of an integer tensor with one entry of shape `inner` for each of `count`
/// occurrences.
fn integers(
    tensor: &MediaTensor,
    field: &'static str,
    count: usize,
    inner: &[u64],
) -> Result<Vec<i32>, Fault> {
    let invalid = |message| Fault::new(Code::InvalidMediaTensor, field, message);
    let (dtype, shape) = (tensor.dtype, &tensor.shape);
    if dtype != Dtype::I32 {
        return Err(invalid(format!("{field} is {dtype}, not I32")));
    }
    match shape.split_first() {
        Some((&n, rest)) if rest == inner && n != count as u64 => {
            let message = format!("{field} has {n} entries for {count} occurrences");
            return Err(Fault::new(Code::MediaCountMismatch, field, message));
        }
        Some((_, rest)) if rest == inner => {}
        _ => {
            let mut wanted = vec![count as u64];
            wanted.extend(inner);
            return Err(invalid(format!("{field} has the shape {shape:?}, not {wanted:?}")));
        }
    }
    whole(tensor, field)?;
    tensor.integers().ok_or_else(|| invalid(format!("{field} is longer than any that is read")))
}

/// Data of the length that type and shape ask for.
fn whole(tensor: &MediaTensor, field: &'static str) -> Result<(), Fault> {
    let (found, wanted) = (tensor.bytes(), tensor.expected_bytes());
    if found.is_some() && found == wanted {
        return Ok(());
    }
    let word = |n: Option<u64>| n.map_or("an impossible number".to_owned(), |n| n.to_string());
    let message =
        format!("{field} holds {} bytes, its shape asks for {}", word(found), word(wanted));
    Err(Fault::new(Code::InvalidMediaTensor, field, message))
}

/// Whole patches, as many as there are pixels for; returns the merge factor.
fn grid(images: &[Occurrence], rows: u64, side: u64) -> Result<u64, Fault> {
    let mut counts = Vec::with_capacity(images.len());
    let mut total = Some(0u64);
    for (n, image) in images.iter().enumerate() {
        let Occurrence { height, width, frames, .. } = *image;
        if height % side != 0 || width % side != 0 {
            let message =
                format!("images[{n}], {height}x{width}, is not whole {side}x{side} patches");
            return Err(Fault::new(Code::MediaSizeIndivisible, GEOMETRY, message));
        }
        let count = patches(height, width, frames.unwrap_or(1), side);
        total = total.and_then(|total| total.checked_add(count?));
        counts.push(count.unwrap_or_default());
    }
    if total != Some(rows) {
        let total = total.map_or("too many".to_owned(), |total| total.to_string());
        let message = format!("{IMGS} has {rows} patches, its occurrences {total}");
        return Err(Fault::new(Code::MediaPatchMismatch, IMGS, message));
    }
    let mut first = None;
    for (n, (image, count)) in images.iter().zip(counts).enumerate() {
        let each = (count % image.length == 0).then_some(count / image.length);
        let merge = each.map(u64::isqrt).filter(|&m| Some(m * m) == each);
        if merge.is_none() || merge != *first.get_or_insert(merge) {
            let length = image.length;
            let wanted = match first.flatten() {
                Some(m) => format!("{0} patches each, as before it", m * m),
                None => "one square of patches each".to_owned(),
            };
            let message =
                format!("images[{n}] has {count} patches on {length} tokens, not {wanted}");
            return Err(Fault::new(Code::MediaMergeMismatch, GEOMETRY, message));
        }
    }
    // There is at least one occurrence, or nothing would have to be laid out.
    Ok(first.flatten().unwrap_or(1))
}

/// The field as a word that lives long enough.
fn field_of(tensor: &MediaTensor) -> &'static str {
    match tensor.field.as_str() {
        IMGS => IMGS,
        SIZES => SIZES,
        FRAMES => FRAMES,
        _ => "media",
    }
}

fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(64).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}
