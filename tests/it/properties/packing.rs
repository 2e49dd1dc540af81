//! Packing puts every row, whole, into one bin.

use forestctl::rows::packing::{MicrobatchOrder, Packing, PackingAlgorithm, PackingError};
use forestctl::rows::{Packed, Row};
use forestctl::select::PolicyName;
use proptest::collection::vec;
use proptest::prelude::*;

use super::batch;
use super::forests::captures;

const ALGORITHMS: [PackingAlgorithm; 4] = [
    PackingAlgorithm::Concatenative,
    PackingAlgorithm::FirstFitDecreasing,
    PackingAlgorithm::FirstFitShuffle,
    PackingAlgorithm::ModifiedFirstFitDecreasing,
];

/// Whether `bins` are what `packing` may make of rows of `lengths`.
fn check_bins(packing: &Packing, lengths: &[u64], bins: &[Vec<usize>]) {
    let mut times = vec![0; lengths.len()];
    for bin in bins {
        assert!(!bin.is_empty(), "{packing:?}: a bin is empty");
        let mut tokens = 0;
        for &row in bin {
            times[row] += 1;
            let mut length = lengths[row];
            while !length.is_multiple_of(packing.row_pad_multiple) {
                length += 1;
            }
            tokens += length;
        }
        assert!(tokens <= packing.bin_tokens, "{packing:?}: a bin holds {tokens} tokens");
    }
    assert!(times.iter().all(|&times| times == 1), "{packing:?}: rows lie in {times:?} bins");
    assert_eq!(bins.len() % packing.bin_multiple, 0, "{packing:?}");
}

/// Packs real rows every way.
pub fn check(rows: &[Row]) {
    let lengths: Vec<u64> = rows.iter().map(|row| row.input_ids.len() as u64).collect();
    let longest = lengths.iter().max().unwrap().next_multiple_of(8);
    for algorithm in ALGORITHMS {
        for microbatch_order in [MicrobatchOrder::Packer, MicrobatchOrder::LargestFirst] {
            let settings = Packing {
                algorithm,
                bin_tokens: 2 * longest + 3,
                row_pad_multiple: 8,
                bin_multiple: rows.len().min(3),
                microbatch_order,
                seed: 42,
            };
            let packed = match Packed::of(&lengths, settings) {
                Ok(packed) => packed,
                Err(PackingError::TooFewRows { bins, .. }) => {
                    assert!(bins > rows.len());
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            let bins: Vec<Vec<usize>> = packed
                .bins
                .iter()
                .map(|bin| bin.iter().map(|&row| row as usize).collect())
                .collect();
            check_bins(&settings, &lengths, &bins);
            assert_eq!(Packed::of(&lengths, settings), Ok(packed));
        }
    }
}

fn packings() -> impl Strategy<Value = Packing> {
    let order = [MicrobatchOrder::Packer, MicrobatchOrder::LargestFirst];
    (
        prop::sample::select(ALGORITHMS.to_vec()),
        prop::sample::select(order.to_vec()),
        100u64..200,
        1u64..10,
        1usize..6,
        any::<u32>(),
    )
        .prop_map(
            |(algorithm, microbatch_order, bin_tokens, row_pad_multiple, ranks, seed)| {
                let bin_multiple = ranks;
                Packing {
                    algorithm,
                    bin_tokens,
                    row_pad_multiple,
                    bin_multiple,
                    microbatch_order,
                    seed,
                }
            },
        )
}

proptest! {
    #[test]
    fn rows_of_any_length_lie_whole_in_one_bin_each(
        packing in packings(),
        lengths in vec(prop_oneof![8 => 1u64..40, 4 => 1u64..100, 1 => 1u64..104], 1..80),
    ) {
        let found = packing.pack(&lengths);
        prop_assert_eq!(&found, &packing.pack(&lengths));
        let padded = |&length: &u64| length.div_ceil(packing.row_pad_multiple) * packing.row_pad_multiple;
        let too_long = lengths.iter().position(|length| padded(length) > packing.bin_tokens);
        match (found, too_long) {
            (Ok(bins), None) => check_bins(&packing, &lengths, &bins),
            (Err(PackingError::RowTooLong { row, tokens, .. }), Some(first)) => {
                prop_assert_eq!((row, tokens), (first, padded(&lengths[first])));
            }
            (Err(PackingError::TooFewRows { bins, rows }), None) => {
                // The next multiple of the ranks is out of reach.
                prop_assert_eq!(rows, lengths.len());
                prop_assert_eq!(bins % packing.bin_multiple, 0);
                prop_assert!(rows < bins && bins < rows + packing.bin_multiple);
            }
            (found, too_long) => prop_assert!(false, "{:?} although {:?}", found, too_long),
        }
    }

    #[test]
    fn rows_of_random_forests_lie_whole_in_one_bin_each(captures in captures()) {
        check(&batch(&captures.groups, PolicyName::AllCaptured, 3).rows);
    }
}
