//! The filter on captured log-probabilities against given previous ones (rules 113 to 117), with
//! the values of the closed-loop oracle.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use forestctl::archive;
use forestctl::config::GrpoSettings;
use forestctl::rows::{self, RowsDir, build};
use forestctl::select::PolicyName;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::Value;

use crate::closed_loop::{POLICIES, Tensors, expected, groups, ingested, selected, strings};

fn run(home: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forestctl"));
    command.current_dir(home).args(args).output().unwrap()
}

fn built(home: &Path, name: &str, args: &[&str]) -> RowsDir {
    let output = run(home, &[&["build-rows", "run.forest", "-o", name], args].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    rows::read(&home.join(name)).unwrap()
}

/// The oracle's previous log-probabilities in the form that `step --dump-logprobs` gives them.
pub fn previous(home: &Path, policy: PolicyName) -> PathBuf {
    let groups = groups("staged-v2");
    let built = build(&groups, &selected(&groups, policy), 1, &GrpoSettings::default());
    let oracle = Tensors::read(policy);
    let offsets: Vec<usize> =
        oracle.raw("row_offsets").into_iter().map(|b| i64::from_le_bytes(b) as usize).collect();
    let logprobs = oracle.raw::<8>("prev_logprobs_f64");
    let mut tensors: Vec<(String, Dtype, Vec<u8>)> = Vec::new();
    for (id, ends) in oracle.row_ids().iter().zip(offsets.windows(2)) {
        let row = built.rows.iter().find(|row| row.row_id == *id).unwrap();
        let targets: Vec<usize> =
            (0..row.loss_mask.len()).filter(|&t| row.loss_mask[t] == 1).collect();
        let ids = row.input_ids.iter().flat_map(|&id| i64::from(id).to_le_bytes()).collect();
        let positions = targets.iter().flat_map(|&t| (t as i64).to_le_bytes()).collect();
        let values = targets.iter().flat_map(|&t| logprobs[ends[0] + t]).collect();
        tensors.push((format!("{id}/input_ids"), Dtype::I64, ids));
        tensors.push((format!("{id}/positions"), Dtype::I64, positions));
        tensors.push((format!("{id}/previous"), Dtype::F64, values));
    }
    let views = tensors.iter().map(|(name, dtype, bytes)| {
        (name, TensorView::new(*dtype, vec![bytes.len() / 8], bytes).unwrap())
    });
    let path = home.join(format!("{}.safetensors", policy.policy().name()));
    std::fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
    path
}

fn close(found: f64, expected: &Value, what: &str) {
    let expected = expected.as_f64().unwrap();
    assert!((found - expected).abs() <= 1e-12, "{what}: {found} is not {expected}");
}

#[test]
fn thresholds_mask_and_advantages_follow_as_the_oracle_has_them() {
    for policy in POLICIES {
        let home = tempfile::tempdir().unwrap();
        archive::write(&home.path().join("run.forest"), false, &ingested("staged-v2")).unwrap();
        let name = policy.policy().name();
        let file = previous(home.path(), policy);
        let args = ["--policy", name, "--prev-logprobs", file.to_str().unwrap()];
        let oracle = expected(policy);
        let advantages = &oracle["advantages"];
        let owners = strings(&advantages["rollouts"]);
        for filter in
            ["none", "seq_error_1.081303", "seq_error_1.168438", "overlong+seq_error_1.081303"]
        {
            let mut flags: Vec<&str> = args.to_vec();
            let threshold = filter.split("seq_error_").nth(1);
            if let Some(threshold) = threshold {
                flags.extend(["--seq-logprob-error-threshold", threshold]);
            }
            if filter.contains("overlong") {
                flags.push("--overlong-filtering");
            }
            let dir = built(home.path(), &format!("rows-{filter}"), &flags);
            let trains = strings(&advantages["trains"][filter]);
            let case = format!(
                "filter={filter};masked_reward_policy=exclude;leave_one_out=true;normalize=true;\
                 clip=none"
            );
            let wanted = advantages["cases"][&case]["advantage"].as_array().unwrap();
            let wanted: BTreeMap<&str, &Value> = owners.iter().copied().zip(wanted).collect();
            let mut seen = 0;
            for row in &dir.rows {
                let Some(owner) = &row.rollout_id else { continue };
                let Some(wanted) = wanted.get(owner.as_str()) else { continue };
                close(row.advantage, wanted, &format!("{case} {owner}"));
                assert_eq!(row.sample_mask == 1.0, trains.contains(&owner.as_str()), "{owner}");
                seen += 1;
            }
            assert!(seen > 20);
            let tokens = &oracle["filtered_losses_base_prev_self"][filter]["global_valid_toks"];
            assert_eq!(
                dir.manifest.counts.loss_tokens as f64,
                tokens.as_f64().unwrap(),
                "{filter}"
            );
            assert_eq!(
                dir.manifest.provenance.seq_logprob_error_threshold,
                threshold.map(|text| text.parse().unwrap())
            );
            // Metrics are of all rows that train before this filter.
            let Some(threshold) = threshold.filter(|_| !filter.contains("overlong")) else {
                continue;
            };
            let outcome = &oracle["sequence_error"]["thresholds"][threshold];
            let metric = |name: &str| dir.manifest.metrics[&format!("seq_logprob_error/{name}")];
            for name in ["num_masked_seqs", "masked_correct_pct"] {
                close(metric(name), &outcome[name], name);
            }
            for when in ["before", "after"] {
                for kind in ["max", "mean", "min"] {
                    let name = format!("{when}/{kind}");
                    close(metric(&name), &outcome[when][kind], &name);
                }
            }
            let masked: Vec<&str> = dir
                .rows
                .iter()
                .filter(|row| row.mask_reason.as_deref() == Some("seq_logprob_error"))
                .map(|row| row.row_id.as_str())
                .collect();
            assert_eq!(masked, strings(&outcome["masked_rows"]));
        }
    }
}

#[test]
fn logprobs_of_other_rows_are_refused() {
    let home = tempfile::tempdir().unwrap();
    archive::write(&home.path().join("run.forest"), false, &ingested("staged-v2")).unwrap();
    let returned = previous(home.path(), PolicyName::ReturnedHistory);
    let build = |args: &[&str]| {
        let output =
            run(home.path(), &[&["build-rows", "run.forest", "-o", "rows"], args].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(!home.path().join("rows").exists());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let returned = returned.to_str().unwrap();
    let told = build(&["--policy", "all_captured", "--prev-logprobs", returned]);
    assert!(told.contains("row p0") && told.contains("--dump-logprobs"), "{told}");
    let told = build(&["--prev-logprobs", "run.forest/archive.json"]);
    assert!(told.contains("no safetensors file"), "{told}");
    assert!(build(&["--prev-logprobs", "nowhere"]).contains("nowhere"));
    let told = build(&["--seq-logprob-error-threshold", "1.1"]);
    assert!(told.contains("needs --prev-logprobs"), "{told}");
}
