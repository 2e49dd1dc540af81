//! Neither order nor threads change a row.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use forestctl::config::GrpoSettings;
use forestctl::rows::{Batch, Row, build};
use forestctl::select::PolicyName;
use proptest::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::batch;
use super::forests::{Captures, captures};
use super::oracle::samples_of_rows;
use crate::closed_loop::{POLICIES, selected};

/// Puts `items` into another order.
pub fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed | 1;
    for last in (1..items.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        items.swap(last, (state >> 33) as usize % (last + 1));
    }
}

/// Calls as if records had been read in another order, and groups as well.
fn shuffled_records(captures: &Captures, seed: u64) -> Captures {
    let mut shuffled = captures.clone();
    shuffle(&mut shuffled.groups, seed);
    for rollout in shuffled.groups.iter_mut().flat_map(|group| &mut group.rollouts) {
        shuffle(&mut rollout.calls, seed);
    }
    shuffled
}

/// As if calls had completed in another order, too.
fn shuffled_ledgers(captures: &Captures, seed: u64) -> Captures {
    let mut shuffled = shuffled_records(captures, seed);
    for rollout in shuffled.groups.iter_mut().flat_map(|group| &mut group.rollouts) {
        shuffle(&mut rollout.ledger.committed, seed);
    }
    shuffled
}

/// Everything of a batch, by group where groups come one after the other.
fn in_order(mut batch: Batch) -> Batch {
    batch.rows.sort_by(|a, b| a.group_id.cmp(&b.group_id));
    batch.groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
    batch.lengths.sort_by(|a, b| a.rollout_id.cmp(&b.rollout_id));
    batch
}

/// Token ids of the rows of each rollout, whichever comes first.
fn inputs(rows: &[Row]) -> BTreeMap<&str, Vec<&[u32]>> {
    let mut inputs: BTreeMap<&str, Vec<&[u32]>> = BTreeMap::new();
    for row in rows {
        let rollout = row.rollout_id.as_ref().unwrap().as_str();
        inputs.entry(rollout).or_default().push(&row.input_ids);
    }
    inputs.values_mut().for_each(|rows| rows.sort());
    inputs
}

proptest! {
    #[test]
    fn the_order_of_records_and_groups_changes_nothing(
        captures in captures(),
        seed in any::<u64>(),
        row_multiple in 1u32..5,
    ) {
        let shuffled = shuffled_records(&captures, seed);
        for policy in POLICIES {
            let [found, wanted] = [&shuffled, &captures]
                .map(|captures| in_order(batch(&captures.groups, policy, row_multiple)));
            prop_assert_eq!(found, wanted);
        }
    }

    /// The returned history tells the order of what it holds (rule 66). Under `all_captured` the
    /// ledger does; another order moves loss between rows, and changes no sample.
    #[test]
    fn the_order_of_completion_changes_no_sample(captures in captures(), seed in any::<u64>()) {
        let shuffled = shuffled_ledgers(&captures, seed);
        let rows = |policy| [&shuffled, &captures]
            .map(|captures| in_order(batch(&captures.groups, policy, 1)));
        let [found, wanted] = rows(PolicyName::ReturnedHistory);
        prop_assert_eq!(found, wanted);
        let [found, wanted] = rows(PolicyName::AllCaptured);
        prop_assert_eq!(samples_of_rows(&found.rows), samples_of_rows(&wanted.rows));
        prop_assert_eq!(inputs(&found.rows), inputs(&wanted.rows));
        prop_assert_eq!(found.counts, wanted.counts);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_number_of_threads_changes_nothing(captures in captures()) {
        static POOLS: LazyLock<[ThreadPool; 3]> = LazyLock::new(|| {
            [1, 2, 7].map(|threads| ThreadPoolBuilder::new().num_threads(threads).build().unwrap())
        });
        // Many more groups than threads.
        let mut groups = Vec::new();
        for copy in 0..12 {
            groups.extend(captures.groups.iter().cloned().map(|mut group| {
                group.group_id = format!("{}-{copy}", group.group_id).into();
                group
            }));
        }
        for policy in POLICIES {
            let built = || {
                let selection = selected(&groups, policy);
                (build(&groups, &selection, 2, &GrpoSettings::default()), selection)
            };
            let [one, two, seven] = [0, 1, 2].map(|pool: usize| POOLS[pool].install(built));
            prop_assert!(one == two && one == seven);
            let order = one.0.groups.iter().map(|group| &group.group_id);
            prop_assert!(order.eq(groups.iter().map(|group| &group.group_id)));
        }
    }
}
