//! The seam to libtorch: number formats, devices, bytes in and out, and errors.

use forestctl::error::{Error, Result};
use forestctl::step::failure::{Complaint, classify};
use forestctl::step::settings::{DeviceChoice, Dtype};
use safetensors::tensor::{Dtype as FileDtype, TensorView};
use tch::{Device, Kind, TchError, Tensor};

/// The result of plain tensor work.
pub type Torch<T> = std::result::Result<T, TchError>;

/// What libtorch complains of, in one line.
pub fn failed(error: TchError) -> Error {
    // libtorch appends a C++ backtrace of many lines; the first line says what happened.
    let text = error.to_string();
    let reason = text.lines().next().unwrap_or_default().to_owned();
    match classify(&reason) {
        Complaint::OutOfMemory => Error::memory("libtorch found too little memory").because(reason),
        Complaint::NotDeterministic(operation) => {
            Error::usage(format!("--deterministic: {operation} gives another result every time"))
                .because(reason)
                .help("Leave --deterministic out, or compute with --device cpu")
        }
        Complaint::Other => Error::format("libtorch could not compute").because(reason),
    }
}

/// The tensor library's word for a number format.
pub fn kind_of(dtype: Dtype) -> Kind {
    match dtype {
        Dtype::Float64 => Kind::Double,
        Dtype::Float32 => Kind::Float,
        Dtype::Bfloat16 => Kind::BFloat16,
    }
}

/// The format that sums, norms and softmax run in, and that main weights are kept in.
pub fn precise(kind: Kind) -> Kind {
    if kind == Kind::Double { Kind::Double } else { Kind::Float }
}

/// Makes a device ready. CUDA that is asked for and not there is an error, never a silent run on
/// the processor.
pub fn open_device(choice: DeviceChoice, seed: u64) -> Result<Device> {
    let device = match choice {
        DeviceChoice::Cpu => Device::Cpu,
        DeviceChoice::Cuda(index) => {
            load_cuda(index)?;
            Device::Cuda(index as usize)
        }
    };
    tch::manual_seed(seed as i64);
    Ok(device)
}

/// This program links only the CPU parts of libtorch; opening the CUDA library registers its
/// kernels with them.
fn load_cuda(index: u32) -> Result<()> {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    let help = "Point LD_LIBRARY_PATH at the torch/lib folder of a CUDA build of torch 2.11.0, or \
                use --device cpu";
    // SAFETY: loading runs libtorch's own initialisers, which expect to be run this way.
    let library = unsafe { Library::open(Some("libtorch_cuda.so"), RTLD_NOW | RTLD_GLOBAL) };
    let library = library.map_err(|e| {
        Error::missing("--device cuda: libtorch_cuda.so cannot be loaded").because(e).help(help)
    })?;
    // Its kernels stay registered for the life of the process.
    std::mem::forget(library);
    let devices = tch::Cuda::device_count();
    if !tch::Cuda::is_available() || devices <= 0 {
        return Err(Error::missing("--device cuda: libtorch finds no CUDA device").help(help));
    }
    if devices <= i64::from(index) {
        return Err(Error::missing(format!(
            "--device cuda:{index}: libtorch finds {devices} CUDA devices on this machine"
        ))
        .help("Devices are counted from 0"));
    }
    Ok(())
}

/// Copies a tensor from a safetensors file.
pub fn from_view(name: &str, view: &TensorView) -> Result<Tensor> {
    let kind = match view.dtype() {
        FileDtype::F64 => Kind::Double,
        FileDtype::F32 => Kind::Float,
        FileDtype::F16 => Kind::Half,
        FileDtype::BF16 => Kind::BFloat16,
        other => {
            return Err(Error::format(format!("{name} is stored as {other:?}"))
                .help("Weights in float64, float32, float16 and bfloat16 are supported"));
        }
    };
    let shape: Vec<i64> = view.shape().iter().map(|&n| n as i64).collect();
    Tensor::f_from_data_size(view.data(), &shape, kind).map_err(failed)
}

/// The bytes of a tensor, for a safetensors file.
pub fn to_bytes(tensor: &Tensor) -> Result<(FileDtype, Vec<usize>, Vec<u8>)> {
    let dtype = match tensor.f_kind().map_err(failed)? {
        Kind::Double => FileDtype::F64,
        Kind::Float => FileDtype::F32,
        Kind::BFloat16 => FileDtype::BF16,
        Kind::Int64 => FileDtype::I64,
        other => return Err(Error::format(format!("a tensor of kind {other:?} cannot be saved"))),
    };
    let shape = tensor.size().iter().map(|&n| n as usize).collect();
    Ok((dtype, shape, raw_bytes(tensor).map_err(failed)?))
}

fn raw_bytes(tensor: &Tensor) -> Torch<Vec<u8>> {
    let tensor = tensor.f_detach()?.f_to(Device::Cpu)?.f_contiguous()?;
    let mut bytes = vec![0; tensor.numel() * tensor.f_kind()?.elt_size_in_bytes()];
    tensor.f_copy_data_u8(&mut bytes, tensor.numel())?;
    Ok(bytes)
}

/// Whether no element is NaN or infinite.
pub fn is_finite(tensor: &Tensor) -> Torch<bool> {
    Ok(tensor.f_isfinite()?.f_all()?.f_int64_value(&[])? != 0)
}

/// The elements of a tensor as float64, row-major.
pub fn to_f64(tensor: &Tensor) -> Torch<Vec<f64>> {
    let tensor = tensor
        .f_detach()?
        .f_to_dtype(Kind::Double, false, false)?
        .f_to(Device::Cpu)?
        .f_contiguous()?;
    let mut values = vec![0.0; tensor.numel()];
    tensor.f_copy_data(&mut values, tensor.numel())?;
    Ok(values)
}

/// A one-dimensional tensor of indices on `device`.
pub fn indices(values: impl Iterator<Item = i64>, device: Device) -> Torch<Tensor> {
    let values: Vec<i64> = values.collect();
    Tensor::f_from_slice(&values)?.f_to(device)
}
