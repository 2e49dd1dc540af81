//! Findings that are hard to report.

use super::{Outcome, Summary};
use crate::finding::{Code, Finding, Location};
use crate::id::{CallId, CaptureKey, RolloutId};

/// Text that ends a tag, a comment, a command, a link, a placeholder, a line, or a terminal's mood.
const NASTY: &str =
    "]]>&<\"'%0A\u{1b}[31m\r\n::stop-commands::x\u{0}\u{ffff}\u{202e}, {0} [a](https://x) é=";

/// Findings of every shape: hostile text everywhere, and lines that are none.
pub(super) fn hostile() -> Vec<Finding> {
    let (rollout, call) = (RolloutId::new(NASTY), CallId::new(NASTY));
    let key = CaptureKey::new(NASTY);
    vec![
        Finding::new(Code::CorruptDigest, NASTY).rollout(&rollout).call(&call).at(Location::line(
            format!("dir/{NASTY}"),
            18,
        )
        .scope(key.clone())
        .field(NASTY)),
        Finding::new(Code::CapturePending, "plain")
            .rollout(&"p00_g0".into())
            .at(Location::default().scope(key)),
        Finding::new(Code::CorruptDigest, "once more")
            .rollout(&"p00_g1".into())
            .call(&call)
            .at(Location::line("/abs/a b.jsonl", 0))
            .help(NASTY),
        Finding::new(Code::CorruptDigest, "and more")
            .rollout(&"p00_g1".into())
            .call(&call)
            .at(Location::line("c:/d.jsonl", u64::MAX)),
        Finding::new(Code::PositiveLogprob, "odd").rollout(&"p00_g1".into()),
        Finding::new(Code::CorruptFile, "calls/part-00000.parquet: cut")
            .at(Location::row("calls/part-00000.parquet", 3)),
        Finding::new(Code::MalformedJson, NASTY),
        Finding::new(Code::MalformedJson, NASTY),
    ]
}

/// An outcome over three rollouts, of which `findings` name two.
pub(super) fn outcome(findings: &[Finding]) -> Outcome<'_> {
    use std::sync::LazyLock;
    static SUMMARY: LazyLock<Summary> = LazyLock::new(Summary::default);
    static ROLLOUTS: LazyLock<Vec<(crate::id::GroupId, RolloutId)>> = LazyLock::new(|| {
        let of = |group: &str, slot| (group.into(), RolloutId::new(format!("{group}_g{slot}")));
        vec![of("p00", 0), of("p00", 1), of("p01", 0)]
    });
    Outcome { archive: "run.forest/", rollouts: &ROLLOUTS, findings, summary: &SUMMARY }
}
