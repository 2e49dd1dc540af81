//! Words for what cannot be read.

use std::io::Write;

use forestctl::finding::Code::{self, *};
use serde_json::json;

use super::super::capture::{Capture, array};
use super::super::store::Store;
use super::{Case, check, folder, staged, store};

fn file(capture: &mut Capture, name: &str, bytes: &[u8]) {
    capture.files.insert(name.to_owned(), bytes.to_vec());
}

pub fn cases() -> Vec<Case> {
    // A line that nothing can be read from names no rollout, and so masks none: the receipt tells
    // whether a call is missing.
    let line = |code: &'static [Code], change| staged(&[], change).errors(code).trains();
    vec![
        line(&[MalformedJson], |c| file(c, "staged-2.jsonl", b"{\n")),
        line(&[MalformedRecord], |c| file(c, "staged-2.jsonl", b"{}\n")),
        line(&[MalformedReceipt], |c| file(c, "receipts-2.jsonl", b"{}\n")),
        line(&[MalformedMedia], |c| file(c, "media-2.jsonl", b"{}\n")),
        line(&[MalformedRollout], |c| file(c, "rollouts-2.jsonl", b"{\"group_id\":\"g\"}\n")),
        line(&[LineTooLong], |c| {
            let mut long = zstd::Encoder::new(Vec::new(), 1).unwrap();
            for _ in 0..=forestctl::ingest::MAX_LINE >> 20 {
                long.write_all(&[b'['; 1 << 20]).unwrap();
            }
            file(c, "staged-2.jsonl.zst", &long.finish().unwrap());
        }),
        line(&[UnreadableSource], |c| file(c, "staged-2.jsonl.gz", &[0x1f, 0x8b, 8])),
        line(&[QuarantineFull, MalformedJson], |c| {
            file(c, "staged-2.jsonl", "x\n".repeat(10_001).as_bytes());
        }),
        staged(&[], |c| {
            c.record("b")["token_ids_delta"][0] = json!(1_u64 << 32);
            c.forge("b");
        })
        .errors(&[RowCountMismatch, TokenIdOutOfRange]),
        staged(&[], |c| {
            let mut other = c.rollouts[0].clone();
            other["reward"] = json!(0.0);
            c.rollouts.push(other);
        })
        .errors(&[ConflictingRecord])
        .warnings(&[MissingReward])
        .masked(MissingReward),
        staged(&[], |c| c.rollouts.clear()).notes(&[UnknownScope]).masked(MissingEvidence),
        folder(&[], |home| {
            for key in ["0-0", "0-0-a1"] {
                let mut store = Store::of(key);
                store.call("a", None, &[1, 2], &[3, 4]);
                store.write(home);
            }
        })
        .notes(&[SupersededAttempt, UnknownScope])
        .warnings(&[MissingReward])
        .masked(MissingEvidence),
        // Two lines of one call: the one that is indexed counts.
        store(&[], |s| {
            let mut other = s.entry("b").clone();
            other["created_at"] = json!(2.0);
            s.entries.push(other);
        })
        .errors(&[ConflictingStoreEntry])
        .warnings(&[CaptureIncomplete])
        .masked(CaptureIncomplete),
        // A line that is not the one that was indexed.
        store(&[], |s| s.entry("b")["created_at"] = json!(2.0))
            .errors(&[ConflictingStoreEntry])
            .notes(&[ConflictingStoreEntry]),
        // Never acknowledged, and its call was captured again.
        store(&[], |s| s.tail = b"{\"created_at\":1.0,".to_vec()).warnings(&[TornStoreTail]),
        store(&[], |s| s.state = Some(json!([])))
            .errors(&[StoreUnreadable])
            .warnings(&[CaptureIncomplete])
            .masked(CaptureIncomplete)
            .says(&["the state file is not a JSON object"]),
        store(&[], |s| {
            let size = s.state.as_ref().unwrap()["indexed_size"].as_u64().unwrap();
            s.state.as_mut().unwrap()["indexed_size"] = json!(size + 1);
        })
        .errors(&[StoreUnreadable])
        .warnings(&[CaptureIncomplete])
        .masked(CaptureIncomplete)
        .says(&["indexes", "bytes of a file of"]),
        store(&[], |s| s.state.as_mut().unwrap()["retired"] = json!(true))
            .errors(&[StoreUnreadable])
            .warnings(&[CaptureIncomplete])
            .masked(CaptureIncomplete)
            .says(&["retired"]),
        // A malformed line with another one behind it.
        store(&[], |s| s.tail = b"{\n{}\n".to_vec())
            .errors(&[MalformedJson, MalformedRecord])
            .warnings(&[CaptureIncomplete])
            .masked(CaptureIncomplete),
        store(&[], |s| s.entry("b")["rollout_id"] = json!("9-9"))
            .errors(&[WrongRollout, ConflictingStoreEntry])
            .notes(&[ConflictingStoreEntry]),
        // An entry of a call that was announced, and cannot be read.
        store(&[], |s| array(&mut s.entry("b")["generation_log_probs"]).push(json!(0.0)))
            .errors(&[MalformedRecord])
            .warnings(&[CaptureIncomplete, CapturePending])
            .masked(CapturePending),
    ]
}

#[test]
fn what_cannot_be_read_is_called_by_its_word() {
    check(&cases());
}
