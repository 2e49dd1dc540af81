//! Reading a rows directory: `rows.json` beside `rows/part-*.parquet`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::ParquetMetaData;

use super::manifest::{Part, RowsManifest};
use super::model::Row;
use super::writer::PART_TOKENS;
use super::{check, columns};
use crate::archive::quietly;
use crate::error::{Error, Result};

/// Name of the manifest.
pub const MANIFEST: &str = "rows.json";

/// Entries per byte of a part, above those of one full part, that nothing honest exceeds.
const MOST_PER_BYTE: u64 = 1 << 10;

/// A rows directory, read whole and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct RowsDir {
    /// Content of `rows.json`.
    pub manifest: RowsManifest,
    /// Rows of all parts: by group, slot and segment, then the group's padding.
    pub rows: Vec<Row>,
}

/// Reads a rows directory whole, checking every file against the manifest and every row against
/// its own columns.
///
/// # Errors
/// When a file is missing, cannot be read, differs from its BLAKE3, is not listed, or contradicts
/// the manifest.
pub fn read(dir: &Path) -> Result<RowsDir> {
    let path = dir.join(MANIFEST);
    let text = fs::read_to_string(&path).map_err(|e| {
        Error::io("cannot read", &path, e)
            .help("A rows directory is what `forestctl build-rows ARCHIVE -o ROWS` writes")
    })?;
    let manifest = RowsManifest::from_json(&text)?;
    let mut rows = Vec::new();
    for (i, part) in manifest.parts.iter().enumerate() {
        // The name is fixed, so that a manifest cannot point elsewhere.
        if part.path != format!("rows/part-{i:05}.parquet") {
            return Err(Error::format(format!("rows.json lists {:?} as part {i}", part.path)));
        }
        read_part(&dir.join(&part.path), part, &mut rows)?;
    }
    refuse_unlisted(&dir.join("rows"), manifest.parts.len())?;
    check_against(&manifest, &rows)?;
    Ok(RowsDir { manifest, rows })
}

fn read_part(path: &Path, part: &Part, rows: &mut Vec<Row>) -> Result<()> {
    let corrupt = |what: &str| {
        Error::format(format!("{} {what}", path.display()))
            .help("Restore the file from a copy, or build the rows again")
    };
    if !path.is_file() {
        return Err(corrupt("is missing, or no file"));
    }
    let bytes = fs::read(path).map_err(|e| Error::io("cannot read", path, e))?;
    if blake3::hash(&bytes).as_bytes() != &part.blake3.0 {
        return Err(corrupt("differs from its BLAKE3 in rows.json"));
    }
    if bytes.len() as u64 != part.bytes {
        return Err(corrupt(&format!(
            "has another size than the {} bytes of rows.json",
            part.bytes
        )));
    }
    let before = rows.len();
    let unreadable = |e: String| corrupt("is not a Parquet file of rows").because(e);
    // parquet can panic on a file that someone damaged and sealed again.
    let parsed = quietly(std::panic::AssertUnwindSafe(|| {
        let size = bytes.len();
        let builder = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes))
            .map_err(|e| unreadable(e.to_string()))?;
        if let Some(entries) = implausible(builder.metadata(), size) {
            return Err(unreadable(format!("{entries} entries in {size} bytes are no rows")));
        }
        for batch in builder.build().map_err(|e| unreadable(e.to_string()))? {
            let batch = batch.map_err(|e| unreadable(e.to_string()))?;
            columns::from_batch(&batch, rows).map_err(|e| unreadable(e.to_string()))?;
        }
        Ok(())
    }));
    parsed.ok_or_else(|| unreadable("its structure is broken".to_owned()))??;
    if (rows.len() - before) as u64 != part.rows {
        return Err(corrupt("holds another number of rows than rows.json says"));
    }
    if rows[before..].iter().map(|row| row.input_ids.len() as u64).sum::<u64>() != part.tokens {
        return Err(corrupt("holds another number of tokens than rows.json says"));
    }
    match rows[before..].iter().find_map(|row| Some((row, row.inconsistency()?))) {
        Some((row, what)) => Err(corrupt(&format!("is inconsistent: row {}: {what}", row.row_id))),
        None => Ok(()),
    }
}

/// The entries of the longest column, when no honest file of `size` bytes could hold so many: a
/// few bytes can claim any number of equal values, and reading them takes memory for each.
fn implausible(metadata: &ParquetMetaData, size: usize) -> Option<u64> {
    let mut entries: BTreeMap<usize, u64> = BTreeMap::new();
    for group in metadata.row_groups() {
        for (i, column) in group.columns().iter().enumerate() {
            let sum = entries.entry(i).or_default();
            *sum = sum.saturating_add(u64::try_from(column.num_values()).unwrap_or(u64::MAX));
        }
    }
    let most = PART_TOKENS.saturating_add((size as u64).saturating_mul(MOST_PER_BYTE));
    entries.into_values().max().filter(|entries| *entries > most)
}

fn refuse_unlisted(folder: &Path, parts: usize) -> Result<()> {
    let failed = |e| Error::io("cannot list", folder, e);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_string_lossy();
        let listed = (0..parts).any(|i| name == format!("part-{i:05}.parquet"));
        if !listed && name.ends_with(".parquet") {
            return Err(Error::format(format!("{} is not listed", folder.join(&*name).display()))
                .help("Remove the file, or build the rows again"));
        }
    }
    Ok(())
}

fn check_against(manifest: &RowsManifest, rows: &[Row]) -> Result<()> {
    let listed = manifest.groups.iter().flat_map(|g| g.row_ids.iter().map(|id| (&g.group_id, id)));
    if !listed.eq(rows.iter().map(|r| (&r.group_id, &r.row_id))) {
        return Err(Error::format("rows.json lists other rows than the files hold")
            .help("Parts of two directories were mixed; build the rows again"));
    }
    let help = "The files were changed after they were written; build the rows again";
    if let Some(what) = manifest.packed.as_ref().and_then(|packed| check::misfit(packed, rows)) {
        return Err(Error::format(what).help(help));
    }
    if let Some(what) = check::contradiction(rows) {
        return Err(Error::format(what).help(help));
    }
    if let Some((count, stated, found)) = check::miscount(manifest.own_counts(), rows) {
        return Err(Error::format(format!(
            "rows.json says that counts.{count} is {stated}, and the files hold {found}"
        ))
        .help(help));
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::Kind;
    use crate::id::{Digest32, GroupId};
    use crate::output::AtomicDir;
    use crate::rows::spill::Spill;
    use crate::rows::writer::tests::write;
    use crate::rows::{Batch, Counts, GroupRows, MediaRef, Provenance, RowRoutes, Span};

    /// `n` rows in two groups with every kind of value that must survive.
    pub fn sample(n: u32) -> (RowsManifest, Vec<Row>) {
        let group = |i: u32| GroupId::from(format!("p{}", i / 3));
        let rows: Vec<Row> = (0..n)
            .map(|i| Row {
                row_id: format!("row{i}"),
                group_id: group(i),
                rollout_id: (i % 3 != 2).then(|| format!("p{}_g{i}", i / 3).into()),
                slot: (i % 3 != 2).then_some(i),
                group_size: 2,
                segment: 0,
                segment_count: 1,
                is_execution_padding: i % 3 == 2,
                uses_borrowed_input: i % 3 == 2,
                input_ids: vec![u32::MAX, i, 0],
                loss_mask: if i % 3 == 2 { vec![0; 3] } else { vec![0, 1, 1] },
                generation_logprobs: vec![0.0, -0.0, f32::from_bits(1)],
                spans: vec![Span {
                    call: "c".into(),
                    start: 0,
                    gen_start: 1,
                    end: 3,
                    owned: i % 3 != 2,
                    weight_version: (i % 2 == 0).then_some(u64::MAX),
                }],
                reward: (i != 1).then_some(0.1),
                advantage: -1.0 / 3.0,
                sample_mask: f32::from(u8::from(i % 3 != 2 && i != 1)),
                truncated: i == 1,
                mask_reason: (i == 1).then(|| "overlong".to_owned()),
                routes: (i == 0).then(|| RowRoutes {
                    layers: 2,
                    topk: 1,
                    experts: vec![-1, 5, 6, 7, 8, i32::MAX],
                }),
                media: (0..i % 3)
                    .map(|n| MediaRef { call: "c".into(), digest: Digest32([n as u8; 32]) })
                    .collect(),
            })
            .collect();
        let groups = rows.chunk_by(|a, b| a.group_id == b.group_id).map(|rows| GroupRows {
            group_id: rows[0].group_id.clone(),
            rollouts: 2,
            valid_rollouts: 2,
            weight_version: Some(7),
            row_ids: rows.iter().map(|r| r.row_id.clone()).collect(),
        });
        let provenance = Provenance {
            archive: None,
            policy: "returned_history".to_owned(),
            assume_complete: false,
            batch: Default::default(),
            grpo: Default::default(),
            seq_logprob_error_threshold: None,
        };
        let trains = |row: &&Row| row.sample_mask == 1.0;
        let counts = Counts {
            rows: n.into(),
            padding_rows: (n / 3).into(),
            masked_rows: u64::from(n > 1),
            loss_tokens: 2 * rows.iter().filter(trains).count() as u64,
            ..Counts::default()
        };
        let batch = Batch { counts, groups: groups.collect(), ..Batch::default() };
        let manifest = RowsManifest::new(provenance, 1, &batch);
        (manifest, rows)
    }

    fn draft(target: &Path) -> AtomicDir {
        AtomicDir::create(target, false, MANIFEST).unwrap()
    }

    fn bits(rows: &[Row]) -> Vec<u32> {
        rows.iter().flat_map(|r| &r.generation_logprobs).map(|x| x.to_bits()).collect()
    }

    #[test]
    fn what_is_written_is_read_bit_for_bit_and_written_alike_twice() {
        let home = tempfile::tempdir().unwrap();
        let (manifest, rows) = sample(7);
        let written = write(draft(&home.path().join("a")), manifest.clone(), &rows).unwrap();
        write(draft(&home.path().join("b")), manifest, &rows).unwrap();
        let back = read(&home.path().join("a")).unwrap();
        assert_eq!((&back.manifest, &back.rows), (&written, &rows));
        assert_eq!(bits(&back.rows), bits(&rows));
        for file in [MANIFEST, "rows/part-00000.parquet"] {
            let bytes = |name: &str| fs::read(home.path().join(name).join(file)).unwrap();
            assert_eq!(bytes("a"), bytes("b"), "{file}");
        }
    }

    #[test]
    fn every_flipped_byte_and_every_cut_is_noticed() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("rows");
        let (manifest, rows) = sample(3);
        write(draft(&dir), manifest, &rows).unwrap();
        let good = read(&dir).unwrap();
        for file in [MANIFEST, "rows/part-00000.parquet"] {
            let path = dir.join(file);
            let bytes = fs::read(&path).unwrap();
            for at in (0..bytes.len()).step_by(17) {
                let mut bad = bytes.clone();
                bad[at] ^= 1;
                fs::write(&path, &bad).unwrap();
                // A changed blank between two JSON tokens changes nothing that is read.
                assert!(read(&dir).map_or_else(
                    |e| matches!(e.kind(), Kind::Format | Kind::Io),
                    |found| file == MANIFEST && found == good
                ));
                fs::write(&path, &bytes[..at]).unwrap();
                assert!(read(&dir).is_err());
            }
            fs::write(&path, &bytes).unwrap();
        }
        assert_eq!(read(&dir).unwrap(), good);
        fs::write(dir.join("rows/part-00001.parquet"), b"PAR1").unwrap();
        assert!(read(&dir).unwrap_err().to_string().ends_with("is not listed"));
    }

    #[test]
    fn another_major_format_is_refused_by_name() {
        let (mut manifest, _) = sample(1);
        manifest.format.major = 2;
        let text = manifest.to_json().unwrap();
        let error = RowsManifest::from_json(&text).unwrap_err();
        assert!(error.to_string().contains("format 2"), "{error}");
    }

    #[test]
    fn a_damaged_file_sealed_again_is_an_error_and_no_panic() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("rows");
        let (manifest, rows) = sample(3);
        let manifest = write(draft(&dir), manifest, &rows).unwrap();
        let path = dir.join("rows/part-00000.parquet");
        let bytes = fs::read(&path).unwrap();
        let mut noticed = 0;
        for at in (0..bytes.len()).step_by(29) {
            let mut bad = bytes.clone();
            bad[at] ^= 0x55;
            fs::write(&path, &bad).unwrap();
            let mut manifest = manifest.clone();
            manifest.parts[0].blake3 = Digest32(*blake3::hash(&bad).as_bytes());
            fs::write(dir.join(MANIFEST), manifest.to_json().unwrap()).unwrap();
            noticed += usize::from(read(&dir).is_err());
        }
        assert!(noticed > 0);
    }

    /// Writes rows with honest counts, whatever else is wrong, and reads them.
    fn reread(rows: &[Row], change: impl FnOnce(&mut RowsManifest)) -> Result<RowsDir> {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("rows");
        let (mut manifest, _) = sample(rows.len() as u32);
        for (group, rows) in
            manifest.groups.iter_mut().zip(rows.chunk_by(|a, b| a.group_id == b.group_id))
        {
            group.row_ids = rows.iter().map(|r| r.row_id.clone()).collect();
        }
        let mut manifest = write(draft(&dir), manifest, rows).unwrap();
        change(&mut manifest);
        fs::write(dir.join(MANIFEST), manifest.to_json().unwrap()).unwrap();
        read(&dir)
    }

    #[test]
    fn rows_that_contradict_one_another_are_refused_by_row_and_column() {
        type Break = fn(&mut Vec<Row>);
        let cases: [(Break, &str, &str); 25] = [
            (|r| r[3].row_id = "row0".into(), "row0", "row_id appears twice"),
            (|r| r[0].sample_mask = 0.5, "row0", "sample_mask is 0.5"),
            (|r| r[0].sample_mask = f32::NAN, "row0", "sample_mask is NaN"),
            (|r| r[1].sample_mask = 1.0, "row1", "against its mask_reason"),
            (|r| r[0].sample_mask = 0.0, "row0", "against its mask_reason"),
            (|r| r[2].sample_mask = 1.0, "row2", "sample_mask is 1"),
            (|r| r[0].advantage = f64::NAN, "row0", "advantage is NaN"),
            (|r| r[0].advantage = f64::NEG_INFINITY, "row0", "advantage is -inf"),
            (|r| r[0].reward = None, "row0", "reward is missing"),
            (|r| r[0].reward = Some(f64::INFINITY), "row0", "reward is missing or not finite"),
            (
                |r| r[0].generation_logprobs[2] = f32::NAN,
                "row0",
                "logprobs is NaN at its trained token 2",
            ),
            (|r| r[0].generation_logprobs[1] = f32::INFINITY, "row0", "logprobs is inf"),
            (|r| r[2].uses_borrowed_input = false, "row2", "uses_borrowed_input is false"),
            (|r| r[0].uses_borrowed_input = true, "row0", "loss_mask is set on borrowed input"),
            (|r| r[0].segment = 1, "row0", "segment is 1, and 0 is next"),
            (|r| r[0].segment_count = u32::MAX, "row0", "segment_count is 4294967295"),
            (|r| r[0].loss_mask[0] = 1, "row0", "loss mask"),
            (|r| r[0].loss_mask.truncate(1), "row0", "differ in length"),
            (|r| r[0].spans[0].end = u32::MAX, "row0", "spans"),
            (|r| r[0].spans[0].gen_start = 9, "row0", "spans"),
            (|r| r[0].spans.clear(), "row0", "spans do not cover"),
            (|r| r[0].rollout_id = None, "row0", "owner"),
            (
                |r| {
                    r[0].spans[0].gen_start = 0;
                    r[0].loss_mask = vec![1; 3];
                },
                "row0",
                "the first token, which nothing predicts",
            ),
            (
                |r| {
                    r[0].spans.clear();
                    r[0].input_ids.clear();
                    r[0].loss_mask.clear();
                    r[0].generation_logprobs.clear();
                    r[0].routes = None;
                },
                "row0",
                "input_ids is empty",
            ),
            (
                |r| {
                    r[1] = Row { row_id: "row1".into(), segment: 1, ..r[0].clone() };
                },
                "row1",
                "spans own call c, which row row0 owns already",
            ),
        ];
        for (break_it, row, word) in cases {
            let (_, mut rows) = sample(4);
            break_it(&mut rows);
            let error = reread(&rows, |_| ()).unwrap_err();
            let text = error.to_string();
            assert_eq!(error.kind(), Kind::Format, "{text}");
            assert!(text.contains(word) && text.contains(&format!("row {row}:")), "{word}: {text}");
        }
        let (_, mut rows) = sample(4);
        rows[1] = Row { row_id: "row1".into(), segment: 1, advantage: 9.0, ..rows[0].clone() };
        rows[1].spans[0].call = "d".into();
        let text = reread(&rows, |_| ()).unwrap_err().to_string();
        assert!(text.contains("row row1: advantage differs from that of row row0"), "{text}");
    }

    #[test]
    fn manifests_that_lie_about_their_files_are_refused() {
        type Lie = fn(&mut RowsManifest);
        let cases: [(Lie, &str); 10] = [
            (|m| m.counts.rows = u64::MAX, "counts.rows is 18446744073709551615"),
            (|m| m.counts.padding_rows = 0, "counts.padding_rows"),
            (|m| m.counts.masked_rows = 9, "counts.masked_rows"),
            (|m| m.counts.loss_tokens = 1, "counts.loss_tokens is 1, and the files hold 4"),
            (|m| m.parts[0].rows = u64::MAX, "number of rows"),
            (|m| m.parts[0].tokens = u64::MAX, "number of tokens"),
            (|m| m.parts[0].bytes = u64::MAX, "another size"),
            (|m| m.parts[0].path = "../../x".into(), "lists \"../../x\" as part 0"),
            (|m| m.parts[0].path = "/etc/passwd".into(), "lists \"/etc/passwd\""),
            (
                |m| {
                    m.parts
                        .push(Part { path: "rows/part-00001.parquet".into(), ..m.parts[0].clone() })
                },
                "is missing",
            ),
        ];
        let (_, rows) = sample(4);
        reread(&rows, |_| ()).unwrap();
        for (lie, word) in cases {
            let text = reread(&rows, lie).unwrap_err().to_string();
            assert!(text.contains(word), "{word}: {text}");
        }
    }

    #[test]
    fn texts_that_are_no_manifest_are_an_error() {
        let (manifest, _) = sample(1);
        let good = manifest.to_json().unwrap();
        let sealed = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut value: serde_json::Value = serde_json::from_str(&good).unwrap();
            value.as_object_mut().unwrap().remove("blake3");
            change(&mut value);
            let seal = blake3::hash(&serde_json::to_vec(&value).unwrap()).to_hex().to_string();
            value["blake3"] = seal.into();
            value.to_string()
        };
        RowsManifest::from_json(&sealed(&|v| v["added_by_a_later_minor"] = 1.into())).unwrap();
        for bad in [
            String::new(),
            "[]".to_owned(),
            "null".to_owned(),
            "[".repeat(1_000_000),
            good.replacen("\"major\": 1", "\"major\": 1e999", 1),
            sealed(&|v| drop(v.as_object_mut().unwrap().remove("parts"))),
            sealed(&|v| v["format"] = serde_json::json!({"major": "1", "minor": 0})),
            sealed(&|v| v["counts"]["rows"] = (-1).into()),
            sealed(&|v| v["counts"]["rows"] = 1e300.into()),
            sealed(&|v| v["provenance"]["batch"]["data_parallel"] = 0.into()),
        ] {
            let error = RowsManifest::from_json(&bad).unwrap_err();
            assert_eq!(error.kind(), Kind::Format);
            assert!(error.to_string().contains("rows.json"), "{error}");
        }
    }

    #[test]
    fn a_file_that_claims_more_entries_than_it_can_hold_is_implausible() {
        let home = tempfile::tempdir().unwrap();
        let (manifest, mut rows) = sample(1);
        rows[0].routes = None;
        rows[0].input_ids = vec![7; PART_TOKENS as usize + (1 << 16)];
        let target = home.path().join("rows");
        let part = write(draft(&target), manifest, &rows).unwrap().parts.remove(0);
        let file = fs::File::open(target.join(&part.path)).unwrap();
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        let entries = PART_TOKENS + (1 << 16);
        assert_eq!(implausible(builder.metadata(), 63), Some(entries));
        assert_eq!(implausible(builder.metadata(), 64), None);
        assert_eq!(implausible(builder.metadata(), part.bytes as usize), None);
    }

    proptest! {
        #[test]
        fn any_logprob_bits_survive(raw in prop::collection::vec(any::<u32>(), 3)) {
            let (_, mut rows) = sample(1);
            rows[0].generation_logprobs = raw.iter().map(|&b| f32::from_bits(b)).collect();
            let home = tempfile::tempdir().unwrap();
            let mut spill = Spill::create(home.path()).unwrap();
            spill.push(&rows).unwrap();
            let back = spill.finish().unwrap().group(0).unwrap();
            prop_assert_eq!(bits(&back), raw);
        }
    }
}
