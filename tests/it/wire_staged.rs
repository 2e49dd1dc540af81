//! Staged records and receipts against the reference captures.

use std::io::Read;
use std::path::{Path, PathBuf};

use forestctl::wire::{Receipt, StagedRecord};

fn testdata(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(path)
}

fn lines(path: &str) -> Vec<String> {
    let bytes = std::fs::read(testdata(path)).unwrap();
    let mut text = String::new();
    if path.ends_with(".gz") {
        flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
    } else {
        text = String::from_utf8(bytes).unwrap();
    }
    text.lines().map(str::to_owned).collect()
}

#[test]
fn closed_loop_parses() {
    for (staged, receipts) in [
        ("closed-loop/seed1/staged-v2/staged.jsonl", "closed-loop/seed1/staged-v2/receipts.jsonl"),
        (
            "closed-loop/seed1/staged-v3/staged.jsonl.gz",
            "closed-loop/seed1/staged-v3/receipts.jsonl.gz",
        ),
    ] {
        let records: Vec<_> =
            lines(staged).iter().map(|l| StagedRecord::parse(l).unwrap()).collect();
        let receipts: Vec<_> = lines(receipts).iter().map(|l| Receipt::parse(l).unwrap()).collect();
        println!("{} {}", records.len(), receipts.len());
        assert!(!records.is_empty() && !receipts.is_empty());
    }
}
