//! What libtorch's complaints mean. They come as text alone; two kinds of them have advice.

use super::settings::{Dtype, StepSettings};

/// A complaint by its meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Complaint {
    /// The processor's or the device's allocator had too little memory.
    OutOfMemory,
    /// The operation named has no deterministic kernel, and one was asked for.
    NotDeterministic(String),
    /// Anything else.
    Other,
}

/// Words of allocators: libtorch's for the processor and for CUDA, the CUDA runtime's, that of its
/// linear algebra, and C++'s own.
const MEMORY: [&str; 5] = [
    "can't allocate memory",
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUSOLVER_STATUS_ALLOC_FAILED",
    "std::bad_alloc",
];

/// What libtorch says of an operation under `at::Context::setDeterministicAlgorithms`.
const NOT_DETERMINISTIC: &str = " does not have a deterministic implementation";

/// What a complaint means.
pub fn classify(text: &str) -> Complaint {
    if MEMORY.iter().any(|words| text.contains(words)) {
        return Complaint::OutOfMemory;
    }
    if let Some((before, _)) = text.split_once(NOT_DETERMINISTIC) {
        let name = before.rsplit([' ', '\n']).next().unwrap_or(before);
        return Complaint::NotDeterministic(name.to_owned());
    }
    match text.contains("not deterministic because it uses CuBLAS") {
        true => Complaint::NotDeterministic("CuBLAS without CUBLAS_WORKSPACE_CONFIG".to_owned()),
        false => Complaint::Other,
    }
}

/// Tokens of the rows that a run computes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowTokens {
    /// Of the longest row, which no pack can be smaller than.
    pub longest: u64,
    /// Of all rows, which no pack can be larger than.
    pub total: u64,
}

/// What to lower when memory ran out. Without `rows`, models were being loaded, and rows took nothing
/// yet.
pub fn memory_advice(settings: &StepSettings, rows: Option<RowTokens>) -> String {
    let mut ways = Vec::new();
    if let Some(RowTokens { longest, total }) = rows {
        let largest = settings.pack_tokens.unwrap_or_default().min(total);
        ways.push(match (settings.pack_tokens, largest > longest) {
            (Some(tokens), true) => {
                format!("lower --pack-tokens from {tokens} to {}", (largest / 2).max(longest))
            }
            _ => format!(
                "leave out rows as long as {longest} tokens, as --pack-tokens cannot split a row"
            ),
        });
    }
    match settings.dtype {
        Dtype::Float64 => ways.push("use --dtype float32 or bfloat16".to_owned()),
        Dtype::Float32 => ways.push("use --dtype bfloat16".to_owned()),
        Dtype::Bfloat16 => {}
    }
    ways.push("take a smaller model, or a device with more memory".to_owned());
    let mut text = ways.join("; ");
    // Every way begins with an ASCII letter.
    text[..1].make_ascii_uppercase();
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GrpoSettings;
    use crate::config::loss::LossConfig;
    use crate::step::plan::blocks::AttentionWay;
    use crate::step::settings::{AdamW, DeviceChoice, Schedule, Sharing};

    /// Texts of libtorch 2.11.0.
    #[test]
    fn real_texts_are_understood() {
        let cases = [
            (
                "CUDA out of memory. Tried to allocate 9.27 GiB. GPU 0 has a total capacity of \
                 139.80 GiB of which 1.94 GiB is free. Process 4711 has 137.85 GiB memory in use. \
                 Of the allocated memory 131.18 GiB is allocated by PyTorch, and 5.99 GiB is \
                 reserved by PyTorch but unallocated.",
                Complaint::OutOfMemory,
            ),
            (
                "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate \
                 memory: you tried to allocate 9007199254740992 bytes. Error code 12 (Cannot \
                 allocate memory)",
                Complaint::OutOfMemory,
            ),
            ("CUDA error: out of memory", Complaint::OutOfMemory),
            (
                "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
                Complaint::OutOfMemory,
            ),
            (
                "Internal torch error: cumsum_cuda_kernel does not have a deterministic \
                 implementation, but you set 'torch.use_deterministic_algorithms(True)'. You can \
                 turn off determinism just for this operation, or you can use the \
                 'warn_only=True' option, if that's acceptable for your application.",
                Complaint::NotDeterministic("cumsum_cuda_kernel".to_owned()),
            ),
            (
                "Deterministic behavior was enabled with either \
                 `torch.use_deterministic_algorithms(True)` or \
                 `at::Context::setDeterministicAlgorithms(true)`, but this operation is not \
                 deterministic because it uses CuBLAS and you have CUDA >= 10.2. To enable \
                 deterministic behavior in this case, you must set an environment variable",
                Complaint::NotDeterministic("CuBLAS without CUBLAS_WORKSPACE_CONFIG".to_owned()),
            ),
            ("CUDA error: an illegal memory access was encountered", Complaint::Other),
            (
                "The size of tensor a (3) must match the size of tensor b (4) at non-singleton \
                 dimension 0",
                Complaint::Other,
            ),
        ];
        for (text, meaning) in cases {
            assert_eq!(classify(text), meaning, "{text}");
        }
    }

    #[test]
    fn the_advice_names_what_is_there_to_lower() {
        let settings = |pack_tokens, dtype| StepSettings {
            dtype,
            device: DeviceChoice::Cpu,
            seed: 0,
            pack_tokens,
            share_prefixes: Sharing::default(),
            attention: AttentionWay::default(),
            schedule: Schedule::default(),
            deterministic: false,
            optimizer: AdamW::default(),
            loss: LossConfig::default(),
            seq_logprob_error_threshold: None,
            grpo: GrpoSettings::default(),
        };
        let rows = |total| Some(RowTokens { longest: 3000, total });
        let advice = |tokens, dtype, rows| memory_advice(&settings(tokens, dtype), rows);
        let text = advice(Some(16384), Dtype::Float32, rows(90000));
        let expected = "Lower --pack-tokens from 16384 to 8192; use --dtype bfloat16; take a smaller \
                        model, or a device with more memory";
        assert_eq!(text, expected);
        // Half of what is there is less than half of what may be.
        let text = advice(Some(16384), Dtype::Bfloat16, rows(7000));
        assert!(text.starts_with("Lower --pack-tokens from 16384 to 3500; take"), "{text}");
        let text = advice(Some(4096), Dtype::Bfloat16, rows(90000));
        assert!(text.starts_with("Lower --pack-tokens from 4096 to 3000; take"), "{text}");
        for (tokens, total) in [(None, 90000), (Some(3000), 90000), (Some(16384), 3000)] {
            let text = advice(tokens, Dtype::Bfloat16, rows(total));
            assert!(text.starts_with("Leave out rows as long as 3000 tokens"), "{text}");
        }
        let text = advice(Some(16384), Dtype::Float64, None);
        assert!(text.starts_with("Use --dtype float32 or bfloat16; take a smaller"), "{text}");
    }
}
