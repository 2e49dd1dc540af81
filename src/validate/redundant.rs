//! What an archive keeps twice: it was one thing when it was written, and is compared before
//! either of the two is believed.

use crate::archive::{Call, Rollout, SourceKind};
use crate::finding::{Code, Finding, Location};
use crate::wire::Receipt;

use super::values::place;

/// Findings on the form of a rollout: staged calls are signed, and no others are.
pub fn check_form(rollout: &Rollout, findings: &mut Vec<Finding>) {
    let staged = rollout.source == SourceKind::Staged;
    if !staged && rollout.ledger.receipt.is_some() {
        let message = format!("{:?} has no receipts, and this rollout has one", rollout.source);
        scope(rollout, message, findings);
    }
    for call in &rollout.calls {
        let signed = call.commitment.is_some() && call.weight_version.is_some();
        let message = match (staged, signed) {
            (true, false) => "it was staged, and carries no digests or no weight version",
            (false, _) if call.commitment.is_some() || call.weight_version.is_some() => {
                "it was not staged, and carries the digests or the weight version of a staged call"
            }
            _ if !columns_agree(call) => "its columns as recorded are not those that train",
            _ => continue,
        };
        let message = format!("call {}: {message}", call.call_id);
        let finding = Finding::new(Code::InconsistentArchive, message);
        findings.push(finding.rollout(&rollout.rollout_id).call(&call.call_id).at(place(call)));
    }
}

/// Findings on the columns of a ledger, which are those of its receipt, and on whose it is.
pub fn check_receipt(rollout: &Rollout, receipt: &Receipt, out: &mut Vec<Finding>) {
    if receipt.scope != rollout.capture_key.as_str() {
        let message = format!(
            "scope {} is accounted for by the receipt of scope {}",
            rollout.capture_key, receipt.scope
        );
        scope(rollout, message, out);
    }
    for what in receipt.differences(&rollout.ledger) {
        let message = format!("the {what} in the ledger are not those of the receipt");
        scope(rollout, message, out);
    }
}

fn scope(rollout: &Rollout, message: String, findings: &mut Vec<Finding>) {
    let at = Location::default().scope(rollout.capture_key.clone());
    let finding = Finding::new(Code::InconsistentArchive, message);
    findings.push(finding.rollout(&rollout.rollout_id).at(at));
}

/// Where the odd columns are kept as recorded, the boundary and the log-probabilities beside them
/// are what follows from them.
fn columns_agree(call: &Call) -> bool {
    let Some(raw) = &call.raw_columns else {
        return call.carry_len as usize + call.generation_logprobs.len() == call.token_ids.len();
    };
    let carry = raw.token_mask.iter().take_while(|&&mask| mask == 0.0).count();
    let generated = raw.logprobs.get(carry..).unwrap_or_default();
    carry == call.carry_len as usize
        && generated.len() == call.generation_logprobs.len()
        && generated
            .iter()
            .zip(&call.generation_logprobs)
            .all(|(&said, kept)| (said as f32).to_bits() == kept.to_bits())
}
