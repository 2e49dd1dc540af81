//! What the bindings of libtorch leave out, through `shim.cpp`.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

use tch::{Device, TchError, Tensor};

use super::tensor::Torch;

/// A tensor as C++ sees it.
type Raw = c_void;

unsafe extern "C" {
    fn forest_error() -> *mut c_char;
    fn forest_free(text: *mut c_char);
    fn forest_calls(numbers: *const i64, count: i64, index: i8) -> *mut Raw;
    fn forest_calls_free(calls: *mut Raw);
    fn forest_cascade(
        query: *const Raw,
        key: *const Raw,
        value: *const Raw,
        calls: *const Raw,
        known_out: *const Raw,
        known_logsumexp: *const Raw,
        out: *mut *mut Raw,
        logsumexp: *mut *mut Raw,
    ) -> bool;
    fn forest_suffix(
        query: *const Raw,
        key: *const Raw,
        value: *const Raw,
        places: *const Raw,
        query_ends: *const Raw,
        key_ends: *const Raw,
        most_queries: i64,
        most_keys: i64,
        known_out: *const Raw,
        known_logsumexp: *const Raw,
        out: *mut *mut Raw,
        logsumexp: *mut *mut Raw,
    ) -> bool;
    fn forest_backward(output: *const Raw, gradient: *const Raw) -> bool;
    fn forest_adamw(
        parameters: *const *mut Raw,
        gradients: *const *mut Raw,
        first: *const *mut Raw,
        second: *const *mut Raw,
        steps: *const *mut Raw,
        count: i64,
        lr: f64,
        beta1: f64,
        beta2: f64,
        decay: f64,
        eps: f64,
    ) -> bool;
    fn forest_peak_bytes(device: i8) -> i64;
    fn forest_deterministic(only: bool) -> bool;
    fn forest_device_name(index: i32, name: *mut c_char, size: i32) -> bool;
    fn forest_recorder(index: i8) -> *mut c_void;
    fn forest_recorder_free(recorder: *mut c_void);
    fn forest_span_begin(recorder: *mut c_void, part: i32) -> bool;
    fn forest_span_end(recorder: *mut c_void) -> bool;
    fn forest_watch(recorder: *mut c_void, output: *const Raw, part: i32) -> bool;
    fn forest_seconds(recorder: *mut c_void, seconds: *mut f64) -> bool;
}

/// What was thrown last.
fn thrown() -> TchError {
    // SAFETY: the text is a C string that this call owns, or null.
    let text = unsafe {
        let text = forest_error();
        if text.is_null() {
            return TchError::Torch("libtorch failed and did not say why".to_owned());
        }
        let owned = CStr::from_ptr(text).to_string_lossy().into_owned();
        forest_free(text);
        owned
    };
    TchError::Torch(text)
}

fn done(fine: bool) -> Torch<()> {
    if fine { Ok(()) } else { Err(thrown()) }
}

/// What attention gives, `[tokens][heads][dim]`, and the log-sum-exp of every row of scores,
/// `[heads][tokens]`, which carries no gradient.
#[derive(Debug)]
pub struct Attended {
    /// The values, weighed.
    pub out: Tensor,
    /// With it and `out` alone, the way back can be computed.
    pub logsumexp: Tensor,
}

/// Queries, keys and values, `[tokens][heads][dim]` each; keys and values may have fewer heads.
pub struct Heads<'a> {
    /// Queries.
    pub query: &'a Tensor,
    /// Keys.
    pub key: &'a Tensor,
    /// Values.
    pub value: &'a Tensor,
}

fn attended(
    known: Option<&Attended>,
    work: impl FnOnce(*const Raw, *const Raw, *mut *mut Raw, *mut *mut Raw) -> bool,
) -> Torch<Attended> {
    let raw = |tensor: Option<&Tensor>| -> *const Raw {
        tensor.map_or(std::ptr::null(), |tensor| tensor.as_ptr().cast())
    };
    let (mut out, mut logsumexp) = (std::ptr::null_mut(), std::ptr::null_mut());
    let (known_out, known_logsumexp) =
        (raw(known.map(|known| &known.out)), raw(known.map(|known| &known.logsumexp)));
    done(work(known_out, known_logsumexp, &mut out, &mut logsumexp))?;
    // SAFETY: both are tensors of their own now.
    let (out, logsumexp) =
        unsafe { (Tensor::from_ptr(out.cast()), Tensor::from_ptr(logsumexp.cast())) };
    Ok(Attended { out, logsumexp })
}

/// A device as C++ takes it: negative for the processor.
fn device_index(device: Device) -> i8 {
    match device {
        Device::Cuda(index) => i8::try_from(index).unwrap_or(i8::MAX),
        _ => -1,
    }
}

/// The kernel calls that the blocks of a forest come to on a device.
#[derive(Debug)]
pub struct Calls(NonNull<Raw>);

impl Calls {
    /// Blocks as [`forestctl::step::plan::blocks::Block::numbers`] gives them.
    pub fn new(blocks: &[[i64; 6]], device: Device) -> Torch<Self> {
        // SAFETY: the pointer is of so many blocks; the result is null or belongs to this value.
        let calls = unsafe {
            forest_calls(blocks.as_ptr().cast(), blocks.len() as i64, device_index(device))
        };
        NonNull::new(calls).map(Self).ok_or_else(thrown)
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        // SAFETY: the pointer is this value's own and is not used again.
        unsafe { forest_calls_free(self.0.as_ptr()) };
    }
}

/// Attention block by block, as `attention.cpp` tells. With `known`, what the same call gave before,
/// only the way back is computed. On the processor, and on CUDA in half precision.
pub fn cascade(heads: &Heads, calls: &Calls, known: Option<&Attended>) -> Torch<Attended> {
    attended(known, |known_out, known_logsumexp, out, logsumexp| {
        // SAFETY: the pointers are of live tensors and calls, or null.
        unsafe {
            forest_cascade(
                heads.query.as_ptr().cast(),
                heads.key.as_ptr().cast(),
                heads.value.as_ptr().cast(),
                calls.0.as_ptr(),
                known_out,
                known_logsumexp,
                out,
                logsumexp,
            )
        }
    })
}

/// The keys of all paths behind one another, each path's own last.
#[derive(Debug)]
pub struct Suffixes {
    /// Their places among the tokens.
    pub places: Tensor,
    /// Where the tokens of each path begin, and the end, as 32-bit integers.
    pub query_ends: Tensor,
    /// The same of their keys.
    pub key_ends: Tensor,
    /// Tokens of the longest path.
    pub most_queries: usize,
    /// Keys of the path that has most.
    pub most_keys: usize,
}

/// Attention of every path to its keys, in one call. Only on CUDA, in half precision.
pub fn suffix(heads: &Heads, of: &Suffixes, known: Option<&Attended>) -> Torch<Attended> {
    attended(known, |known_out, known_logsumexp, out, logsumexp| {
        // SAFETY: the pointers are of live tensors, or null.
        unsafe {
            forest_suffix(
                heads.query.as_ptr().cast(),
                heads.key.as_ptr().cast(),
                heads.value.as_ptr().cast(),
                of.places.as_ptr().cast(),
                of.query_ends.as_ptr().cast(),
                of.key_ends.as_ptr().cast(),
                of.most_queries as i64,
                of.most_keys as i64,
                known_out,
                known_logsumexp,
                out,
                logsumexp,
            )
        }
    })
}

/// Runs backward from `output` with its gradient.
pub fn backward(output: &Tensor, gradient: &Tensor) -> Torch<()> {
    // SAFETY: the pointers are of live tensors.
    done(unsafe { forest_backward(output.as_ptr().cast(), gradient.as_ptr().cast()) })
}

/// What one AdamW update works on, one entry per parameter; `steps` counts updates, this one
/// included, as float32 scalars.
pub struct Update<'a> {
    /// Updated in place.
    pub parameters: Vec<&'a Tensor>,
    /// Their gradients.
    pub gradients: Vec<&'a Tensor>,
    /// First moments, updated in place.
    pub first: Vec<&'a Tensor>,
    /// Second moments, updated in place.
    pub second: Vec<&'a Tensor>,
    /// Numbers of updates, raised in place.
    pub steps: Vec<&'a Tensor>,
}

/// One AdamW update by libtorch's fused kernel.
pub fn adamw(
    update: &Update,
    lr: f64,
    (beta1, beta2): (f64, f64),
    decay: f64,
    eps: f64,
) -> Torch<()> {
    let raw = |tensors: &[&Tensor]| -> Vec<*mut Raw> {
        tensors.iter().map(|tensor| tensor.as_ptr().cast_mut().cast()).collect()
    };
    let [parameters, gradients, first, second, steps] = [
        raw(&update.parameters),
        raw(&update.gradients),
        raw(&update.first),
        raw(&update.second),
        raw(&update.steps),
    ];
    let count = parameters.len();
    assert!([&gradients, &first, &second, &steps].iter().all(|list| list.len() == count));
    // SAFETY: every list holds `count` pointers of live tensors.
    done(unsafe {
        forest_adamw(
            parameters.as_ptr(),
            gradients.as_ptr(),
            first.as_ptr(),
            second.as_ptr(),
            steps.as_ptr(),
            count as i64,
            lr,
            beta1,
            beta2,
            decay,
            eps,
        )
    })
}

/// Most bytes that tensors took at one time on a CUDA device.
pub fn peak_bytes(device: usize) -> Option<u64> {
    let device = i8::try_from(device).ok()?;
    // SAFETY: takes and returns numbers.
    u64::try_from(unsafe { forest_peak_bytes(device) }).ok()
}

/// Whether operations take kernels that give the same result every time, for the whole process;
/// those that have none are then an error.
pub fn deterministic(only: bool) -> Torch<()> {
    // SAFETY: takes a flag.
    done(unsafe { forest_deterministic(only) })
}

/// Name of a CUDA device as its driver gives it.
pub fn device_name(device: usize) -> Option<String> {
    let mut name = [0u8; 128];
    let index = i32::try_from(device).ok()?;
    // SAFETY: the callee writes at most the bytes that it is given the number of.
    let told = unsafe { forest_device_name(index, name.as_mut_ptr().cast(), name.len() as i32) };
    let text = CStr::from_bytes_until_nul(&name).ok()?;
    told.then(|| text.to_string_lossy().into_owned())
}

/// Sums up the time of parts of the work on one device. On CUDA a span is two events on the stream;
/// reading the sums waits for them.
#[derive(Debug)]
pub struct Recorder(NonNull<c_void>);

impl Recorder {
    /// Number of parts, counted from 0.
    pub const PARTS: usize = 3;

    /// A recorder of work on `device`.
    pub fn new(device: Device) -> Torch<Self> {
        // SAFETY: takes a number; the result is null or belongs to this value.
        NonNull::new(unsafe { forest_recorder(device_index(device)) }).map(Self).ok_or_else(thrown)
    }

    /// Opens a span of `part`, which must be less than [`Recorder::PARTS`].
    pub fn begin(&self, part: usize) -> Torch<()> {
        assert!(part < Self::PARTS);
        // SAFETY: the recorder is alive.
        done(unsafe { forest_span_begin(self.0.as_ptr(), part as i32) })
    }

    /// Closes the span that was opened last.
    pub fn end(&self) -> Torch<()> {
        // SAFETY: the recorder is alive.
        done(unsafe { forest_span_end(self.0.as_ptr()) })
    }

    /// Records the backward pass of the operation that gave `output` too.
    pub fn watch(&self, output: &Tensor, part: usize) -> Torch<()> {
        assert!(part < Self::PARTS);
        // SAFETY: recorder and tensor are alive; hooks share the recorder.
        done(unsafe { forest_watch(self.0.as_ptr(), output.as_ptr().cast(), part as i32) })
    }

    /// Seconds of every part since the last call.
    pub fn take(&self) -> Torch<[f64; Self::PARTS]> {
        let mut seconds = [0.0; Self::PARTS];
        // SAFETY: the callee writes one number per part.
        done(unsafe { forest_seconds(self.0.as_ptr(), seconds.as_mut_ptr()) })?;
        Ok(seconds)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // SAFETY: the pointer is this value's own and is not used again.
        unsafe { forest_recorder_free(self.0.as_ptr()) };
    }
}
