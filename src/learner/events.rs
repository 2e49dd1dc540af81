//! Metrics as TensorBoard reads them: an event file, which is a TFRecord file of protocol buffers.
//!
//! The crates for it, `tfrecord` 0.15 and `tensorboard-rs` 0.5, have had no release since 2023 and 2022,
//! and bring an HTTP client into the build or decoders of images. The messages below are the part of
//! `event.proto` and `summary.proto` that scalars need, encoded by `prost`.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crc::{CRC_32_ISCSI, Crc};
use forestctl::error::{Error, Result};
use forestctl::step::report::StepReport;
use prost::Message;

const CASTAGNOLI: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Scalar>,
}

#[derive(Clone, PartialEq, Message)]
struct Scalar {
    #[prost(string, tag = "1")]
    tag: String,
    /// One of several kinds of value, so that 0 is written too.
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

/// An event file that is being written.
#[derive(Debug)]
pub struct EventFile {
    file: File,
    path: PathBuf,
}

impl EventFile {
    /// Begins a new file in `dir`, beside those of earlier runs, which TensorBoard shows as one.
    pub fn create(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).map_err(|e| Error::io("cannot create", dir, e))?;
        let now = seconds(SystemTime::now());
        // TensorBoard reads files in the order of their names.
        for number in 0.. {
            let path =
                dir.join(format!("events.out.tfevents.{:010}.forestctl.{number}", now as u64));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => {
                    let mut events = Self { file, path };
                    let file_version = Some("brain.Event:2".to_owned());
                    events.append(&Event { wall_time: now, file_version, ..Event::default() })?;
                    return Ok(events);
                }
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Error::io("cannot create", path, e)),
            }
        }
        Err(Error::usage(format!("{} holds too many event files", dir.display())))
    }

    /// Appends every number of a report that there is, metrics as `train/...`, at the present time.
    pub fn write(&mut self, report: &StepReport) -> Result<()> {
        let scalar = |(name, value): (String, Option<f64>)| {
            let tag = if name.contains('/') { name } else { format!("train/{name}") };
            Some(Scalar { tag, simple_value: Some(value? as f32) })
        };
        self.append(&Event {
            wall_time: seconds(SystemTime::now()),
            step: report.metrics.step as i64,
            file_version: None,
            summary: Some(Summary {
                value: report.scalars().into_iter().filter_map(scalar).collect(),
            }),
        })
    }

    fn append(&mut self, event: &Event) -> Result<()> {
        let content = event.encode_to_vec();
        let length = (content.len() as u64).to_le_bytes();
        let mut record = length.to_vec();
        record.extend(masked(&length).to_le_bytes());
        record.extend(&content);
        record.extend(masked(&content).to_le_bytes());
        self.file.write_all(&record).map_err(|e| Error::io("cannot write", &self.path, e))
    }
}

/// The checksum of TFRecord, which is turned and shifted so that a checksum of checksums is one.
fn masked(bytes: &[u8]) -> u32 {
    CASTAGNOLI.checksum(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
