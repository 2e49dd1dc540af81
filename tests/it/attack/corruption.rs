//! Damage without a forger: bytes flipped one at a time, files cut, lost, and added.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use forestctl::archive::Archive;
use forestctl::finding::Code;
use rayon::prelude::*;

use super::capture::Capture;
use super::sealed::{Decoded, Sealed, errors, rich, with_media};

/// Whether `validate --read-data` reports more of an archive than `honest`; the archive, if not.
/// Files of tensor data are compared with their digests only when they are read.
fn reported(archive: &Path, honest: &[String]) -> Result<Archive, ()> {
    let archive = Archive::open(archive).map_err(drop)?;
    let silent = archive.check_files().is_empty();
    let silent = silent && errors(&archive).is_some_and(|errors| errors == honest);
    if silent { Ok(archive) } else { Err(()) }
}

/// Patterns for every byte: the lowest bit, and all of them.
const FLIPS: [u8; 2] = [0x01, 0xff];

/// Every byte of every file of an archive, flipped alone: reported, or without effect on any
/// decoded value.
#[test]
fn every_flipped_byte_is_reported_or_changes_nothing() {
    for sealed in [Sealed::of(&rich()), Sealed::of_folder(with_media)] {
        flip_every_byte(&sealed);
    }
}

fn flip_every_byte(sealed: &Sealed) {
    assert!(sealed.len() < 60 << 10, "{} bytes", sealed.len());
    let home = tempfile::tempdir().unwrap();
    sealed.write(&home.path().join("honest"));
    let honest = Archive::open(&home.path().join("honest")).unwrap();
    assert_eq!(honest.check_files(), []);
    let known = errors(&honest).unwrap();
    let expected = (Decoded::of(&honest).unwrap(), honest.manifest().clone());

    let bytes: Vec<(&str, usize)> = sealed
        .0
        .iter()
        .flat_map(|(name, bytes)| (0..bytes.len()).map(move |at| (name.as_str(), at)))
        .collect();
    let each = bytes.len().div_ceil(rayon::current_num_threads());
    let seen: Vec<(&str, usize, u8, bool)> = bytes
        .par_chunks(each)
        .enumerate()
        .flat_map_iter(|(worker, bytes)| {
            let path = home.path().join(format!("worker-{worker}"));
            sealed.write(&path);
            let mut seen = Vec::new();
            for &(name, at) in bytes {
                let file = File::options().write(true).open(path.join(name)).unwrap();
                let honest = sealed.0[name][at];
                // In text, a letter of the other case may mean the same.
                let letter = honest.is_ascii_alphabetic() && name.contains(".json");
                for flip in FLIPS.into_iter().chain(letter.then_some(0x20)) {
                    file.write_all_at(&[honest ^ flip], at as u64).unwrap();
                    let found = reported(&path, &known);
                    if let Ok(archive) = &found {
                        let place = format!("{name} byte {at} ^ {flip:#04x} is not reported");
                        let decoded = Decoded::of(archive).expect(&place);
                        let same = (decoded, archive.manifest().clone()) == expected;
                        assert!(same, "{place}, and changes what is decoded");
                    }
                    seen.push((name, at, flip, found.is_err()));
                }
                file.write_all_at(&[honest], at as u64).unwrap();
            }
            seen
        })
        .collect();
    let mut equal: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, ..) in seen.iter().filter(|(.., reported)| !reported) {
        *equal.entry(name).or_default() += 1;
    }
    let silent: usize = equal.values().sum();
    println!(
        "{} bytes of {} files flipped, {} flips: {} reported, {silent} equal {equal:?}",
        bytes.len(),
        sealed.0.len(),
        seen.len(),
        seen.len() - silent,
    );
    assert!(seen.len() >= 2 * sealed.len());
}

/// The command itself, on flips spread over the archive: never silent, never a crash.
#[test]
fn the_command_reports_flipped_bytes() {
    let sealed = Sealed::of(&rich());
    let (code, honest) = sealed.validate();
    assert_eq!(code, 1, "the quarantine of the capture");
    let files: Vec<(&String, &Vec<u8>)> = sealed.0.iter().collect();
    files.par_iter().for_each(|(name, bytes)| {
        for at in (0..bytes.len()).step_by(bytes.len() / 8) {
            let mut broken = sealed.clone();
            broken.0.get_mut(*name).unwrap()[at] ^= 0x01;
            let (code, findings) = broken.validate();
            let told = findings.iter().any(|f| f["code"] == "corrupt_file");
            assert!(code == 2 || (code == 1 && told), "{name} byte {at}: {code} {findings:?}");
            assert_ne!(findings, honest);
        }
    });
}

/// Every file cut at every length.
#[test]
fn every_cut_file_is_reported() {
    for sealed in [Sealed::of(&rich()), Sealed::of_folder(with_media)] {
        cut_at_every_length(&sealed);
    }
}

fn cut_at_every_length(sealed: &Sealed) {
    let home = tempfile::tempdir().unwrap();
    sealed.write(home.path());
    let known = errors(&Archive::open(home.path()).unwrap()).unwrap();
    let mut cuts = 0;
    for (name, bytes) in &sealed.0 {
        let file = home.path().join(name);
        for length in 0..bytes.len() {
            fs::write(&file, &bytes[..length]).unwrap();
            assert!(reported(home.path(), &known).is_err(), "{name} cut to {length} bytes");
            cuts += 1;
        }
        // One byte more, too.
        fs::write(&file, [bytes.as_slice(), b"\n"].concat()).unwrap();
        assert!(reported(home.path(), &known).is_err(), "{name} with a byte more");
        fs::write(&file, bytes).unwrap();
    }
    assert!(reported(home.path(), &known).is_ok());
    println!("{} files cut to {cuts} lengths: all reported", sealed.0.len());
}

#[test]
fn lost_added_and_exchanged_files_are_reported() {
    let sealed = Sealed::of(&rich());
    for name in sealed.0.keys() {
        let mut without = sealed.clone();
        without.0.remove(name);
        let (code, _) = without.validate();
        assert_eq!(code, 2, "without {name}");
    }
    let unlisted = Code::UnlistedFile.as_str();
    for name in ["extra", "calls/part-00001.parquet", "deep/er/file", ".hidden", "calls/.x.swp"] {
        let mut more = sealed.clone();
        more.0.insert(name.to_owned(), b"x".to_vec());
        let (code, findings) = more.validate();
        assert_eq!(code, 1);
        assert!(
            findings.iter().any(|f| f["code"] == unlisted && f["location"]["file"] == name),
            "{name}: {findings:?}"
        );
    }
    // Two tables in each other's place.
    let mut exchanged = sealed.clone();
    let tables: Vec<String> =
        sealed.0.keys().filter(|name| name.ends_with(".parquet")).cloned().collect();
    for (name, other) in tables.iter().zip(tables.iter().cycle().skip(1)) {
        exchanged.0.insert(name.clone(), sealed.0[other].clone());
    }
    assert_eq!(exchanged.validate().0, 2);
}

/// Folders, links and devices where files should be.
#[test]
fn what_is_no_file_is_reported() {
    let home = tempfile::tempdir().unwrap();
    // Of the others, the quarantine is a file without bytes.
    let archives =
        [Sealed::of(&rich()), Sealed::of(&Capture::pair(2)), Sealed::of_folder(with_media)];
    assert!(archives[1].0["quarantine.jsonl"].is_empty());
    let files = archives.iter().flat_map(|sealed| sealed.0.keys().map(move |name| (sealed, name)));
    for (case, (sealed, name)) in files.enumerate() {
        let path = home.path().join(case.to_string());
        sealed.write(&path);
        let known = errors(&Archive::open(&path).unwrap()).unwrap();
        assert!(reported(&path, &known).is_ok());
        let reported = || reported(&path, &known).is_err();
        fs::remove_file(path.join(name)).unwrap();
        fs::create_dir(path.join(name)).unwrap();
        assert!(reported(), "{name} is a folder");
        fs::remove_dir(path.join(name)).unwrap();
        std::os::unix::fs::symlink(path.join(name), path.join(name)).unwrap();
        assert!(reported(), "{name} is a link to itself");
        fs::remove_file(path.join(name)).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path.join(name)).unwrap();
        assert!(reported(), "{name} is a device without an end");
    }
}
