//! Where the time of training goes, by what is computed.

use tch::{Device, Tensor};

use super::shim::{self, Recorder};
use super::tensor::Torch;
use forestctl::step::report::TimeSplit;

/// What time is told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Attention of queries, keys and values.
    Attention,
    /// Products with the weights of the layers.
    Linear,
    /// Logits, log-probabilities and the loss.
    Head,
}

/// Measures parts of the work, or nothing at no cost.
#[derive(Debug, Default)]
pub struct Clock(Option<Recorder>);

impl Clock {
    /// On the processor a part costs two readings of the wall clock, and is always measured. On CUDA
    /// it costs two events on the stream and a wait at the end of every pack: only when `asked`.
    pub fn new(device: Device, asked: bool) -> Torch<Self> {
        match asked || device == Device::Cpu {
            true => Recorder::new(device).map(|recorder| Self(Some(recorder))),
            false => Ok(Self(None)),
        }
    }

    /// One operation, now and on the way back. Its result must come from a single node of the
    /// backward pass, which is what is measured there.
    pub fn operation(&self, part: Part, work: impl FnOnce() -> Torch<Tensor>) -> Torch<Tensor> {
        let output = self.region(part, work)?;
        if let Some(recorder) = &self.0 {
            recorder.watch(&output, part as usize)?;
        }
        Ok(output)
    }

    /// Some work as a whole.
    pub fn region<T>(&self, part: Part, work: impl FnOnce() -> Torch<T>) -> Torch<T> {
        let Some(recorder) = &self.0 else { return work() };
        recorder.begin(part as usize)?;
        let output = work()?;
        recorder.end()?;
        Ok(output)
    }

    /// Adds what was measured since the last call to `split`, if anything is measured.
    pub fn add_to(&self, split: &mut Option<TimeSplit>) -> Torch<()> {
        let Some(recorder) = &self.0 else { return Ok(()) };
        let [attention, linear, head] = recorder.take()?;
        let sum = split.get_or_insert_default();
        sum.attention_seconds += attention;
        sum.linear_seconds += linear;
        sum.head_seconds += head;
        Ok(())
    }
}

/// Most bytes so far at one time: of tensors on CUDA, on the processor of the whole process.
pub fn peak_bytes(device: Device) -> Option<u64> {
    match device {
        Device::Cuda(index) => shim::peak_bytes(index),
        _ => {
            let status = std::fs::read_to_string("/proc/self/status").ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
            let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
            Some(kibibytes * 1024)
        }
    }
}
