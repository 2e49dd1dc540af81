//! What the bindings of libtorch leave out, through `shim.cpp`.

use std::ffi::{CStr, c_char, c_void};

use tch::{TchError, Tensor};

use super::tensor::Torch;

/// A tensor as C++ sees it.
type Raw = c_void;

unsafe extern "C" {
    fn forest_error() -> *mut c_char;
    fn forest_free(text: *mut c_char);
    fn forest_flash_attention(
        query: *const Raw,
        key: *const Raw,
        value: *const Raw,
        ends: *const Raw,
        longest: i64,
    ) -> *mut Raw;
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

/// Causal attention of packed sequences, `[tokens][heads][dim]` each; `ends` are their bounds as
/// 32-bit integers on the same device, and the longest has `longest` tokens. Key and value may have
/// fewer heads than the query. Only on CUDA, in half precision.
pub fn flash_attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    ends: &Tensor,
    longest: usize,
) -> Torch<Tensor> {
    // SAFETY: the pointers are of live tensors; the result is a tensor of its own.
    unsafe {
        let out = forest_flash_attention(
            query.as_ptr().cast(),
            key.as_ptr().cast(),
            value.as_ptr().cast(),
            ends.as_ptr().cast(),
            longest as i64,
        );
        if out.is_null() { Err(thrown()) } else { Ok(Tensor::from_ptr(out.cast())) }
    }
}

/// Runs backward from `output` with its gradient.
pub fn backward(output: &Tensor, gradient: &Tensor) -> Torch<()> {
    // SAFETY: the pointers are of live tensors.
    match unsafe { forest_backward(output.as_ptr().cast(), gradient.as_ptr().cast()) } {
        true => Ok(()),
        false => Err(thrown()),
    }
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
    let done = unsafe {
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
    };
    if done { Ok(()) } else { Err(thrown()) }
}

/// Most bytes that tensors took at one time on a CUDA device.
pub fn peak_bytes(device: usize) -> Option<u64> {
    let device = i8::try_from(device).ok()?;
    // SAFETY: takes and returns numbers.
    u64::try_from(unsafe { forest_peak_bytes(device) }).ok()
}
