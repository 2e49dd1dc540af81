//! Archives that are added to, and runs that are gone on with.

use forestctl::archive::{self, Archive, Done, Pushed, Writer};
use forestctl::error::Kind;
use forestctl::id::Digest32;

use super::*;

/// Copies what `wanted` says of a Gym store.
fn part_of_store(home: &Path, wanted: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(format!("{SEED1}/gym-store")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name != "rollouts.jsonl" && wanted(&name) {
            fs::copy(format!("{SEED1}/gym-store/{name}"), home.join(name)).unwrap();
        }
    }
}

fn bytes(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(bytes(&path)),
            false => files.push((path.clone(), fs::read(&path).unwrap())),
        }
    }
    files.sort();
    files
}

#[test]
fn groups_and_rollouts_that_are_added_make_the_archive_of_all() {
    let (all, some, rest) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // By scope, so that groups are new, gain a rollout, or are there already.
    let early = |name: &str| ["0-1.", "2-2.", "3-"].iter().any(|start| name.starts_with(start));
    part_of_store(all.path(), |_| true);
    part_of_store(some.path(), early);
    part_of_store(rest.path(), |name| !early(name) || name.starts_with("3-"));
    let (all, some, rest) = (read(&[all.path()]), read(&[some.path()]), read(&[rest.path()]));
    let sizes = |ingested: &Ingested| rollouts(ingested).count() as u64;
    assert!(sizes(&some) > 0 && sizes(&rest) > 0 && sizes(&some) < sizes(&all));

    let home = tempfile::tempdir().unwrap();
    let (whole, grown) = (home.path().join("whole"), home.path().join("grown"));
    archive::write(&whole, false, &all).unwrap();
    let first = archive::write(&grown, false, &some).unwrap();
    assert_eq!((first.added, first.parts), (sizes(&some), 1));
    let second = archive::write(&grown, false, &rest).unwrap();
    assert_eq!(second.added, sizes(&all) - sizes(&some));
    let (whole, grown) = (Archive::open(&whole).unwrap(), Archive::open(&grown).unwrap());
    assert_eq!(grown.check_files(), []);
    assert_eq!(without_origins(grown.groups().unwrap()), without_origins(whole.groups().unwrap()));
    assert_eq!(grown.digest(), whole.digest());
    assert_eq!(grown.counts(), whole.counts());
    assert_eq!(grown.part_count(), 2);

    let before = bytes(grown.dir());
    for again in [&some, &rest, &all] {
        let summary = archive::write(grown.dir(), false, again).unwrap();
        assert!(summary.unchanged && summary.added == 0);
    }
    assert_eq!(bytes(grown.dir()), before);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2);
}

#[test]
fn another_record_of_a_known_rollout_is_refused_and_nothing_changes() {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("run.forest");
    let ingested = seed1("staged-v2");
    archive::write(&target, false, &ingested).unwrap();
    let before = bytes(&target);
    type Change = fn(&mut Rollout);
    let changes: [Change; 6] = [
        |rollout| rollout.reward = Some(7.0),
        |rollout| rollout.calls[0].token_ids[0] += 1,
        |rollout| rollout.calls[0].generation_logprobs[0] = -0.0,
        |rollout| rollout.ledger.pending.push("x".into()),
        |rollout| rollout.slot += 1,
        |rollout| drop(rollout.calls.pop()),
    ];
    for change in changes {
        let mut other = ingested.clone();
        change(&mut other.groups[2].rollouts[1]);
        // New rollouts that came with it are not added either.
        let mut new = other.groups[0].clone();
        new.group_id = "new".into();
        other.groups.insert(0, new);
        let refused = archive::write(&target, false, &other).unwrap_err();
        assert_eq!(refused.kind(), Kind::Usage);
        assert!(bytes(&target) == before);
    }
    let mut moved = ingested.clone();
    moved.groups[0].group_id = "elsewhere".into();
    assert_eq!(archive::write(&target, false, &moved).unwrap_err().kind(), Kind::Usage);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
}

#[test]
fn a_damaged_archive_is_not_added_to() {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("run.forest");
    let ingested = seed1("staged-v2");
    archive::write(&target, false, &ingested).unwrap();
    for table in ["calls", "rollouts"] {
        let path = target.join(table).join("part-00000.parquet");
        let good = fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[good.len() / 2] ^= 1;
        fs::write(&path, bad).unwrap();
        let refused = archive::write(&target, false, &ingested).unwrap_err();
        assert_eq!(refused.kind(), Kind::Format, "{table}");
        fs::write(&path, good).unwrap();
    }
    assert!(archive::write(&target, false, &ingested).unwrap().unchanged);
}

/// Groups that are large enough for a part each.
fn large() -> Ingested {
    let mut ingested = seed1("staged-v2");
    for group in &mut ingested.groups {
        group.rollouts[0].result = Some("x".repeat(40 << 20));
        group.rollouts[1].result = Some("y".repeat(25 << 20));
    }
    ingested
}

#[test]
fn a_killed_run_is_gone_on_with() {
    let home = tempfile::tempdir().unwrap();
    let (whole, target) = (home.path().join("whole"), home.path().join("run.forest"));
    let ingested = large();
    archive::write(&whole, false, &ingested).unwrap();
    let sequence = Digest32([1; 32]);
    let push = |writer: &mut Writer, range: std::ops::Range<usize>| {
        for index in range {
            let group = ingested.groups[index].clone();
            let remarked = index == 1;
            let pieces = Default::default();
            writer.push(Pushed { index, group, pieces, remarked }).unwrap();
        }
    };
    // What a killed process leaves: its draft, without the process to clean up after itself.
    let (draft, kept) = (home.path().join(".run.forest.partial"), home.path().join("kept"));
    let mut killed = Writer::open(&target, false).unwrap();
    assert_eq!(killed.begin(sequence).unwrap(), Done::default());
    push(&mut killed, 0..6);
    fs::rename(&draft, &kept).unwrap();
    fs::create_dir(&draft).unwrap();
    drop(killed);
    assert!(!target.exists() && !draft.exists());

    let copy = |torn: bool| {
        let status = std::process::Command::new("cp").arg("-a").arg(&kept).arg(&draft).status();
        assert!(status.unwrap().success());
        if torn {
            let journal = draft.join("journal.jsonl");
            let text = fs::read_to_string(&journal).unwrap();
            fs::write(&journal, &text[..text.len() - 10]).unwrap();
        }
    };
    // Another sequence has no use for it.
    copy(false);
    let mut other = Writer::open(&target, false).unwrap();
    assert_eq!(other.begin(Digest32([2; 32])).unwrap(), Done::default());
    drop(other);

    let mut dones = Vec::new();
    for torn in [false, true] {
        copy(torn);
        let mut writer = Writer::open(&target, true).unwrap();
        let done = writer.begin(sequence).unwrap();
        assert_eq!(done.remarked.into_iter().collect::<Vec<_>>(), [1]);
        push(&mut writer, done.groups..6);
        let quarantine = ingested.quarantine.clone();
        let summary = writer.finish(quarantine, ingested.sources.clone()).unwrap();
        assert_eq!((summary.added, summary.parts), (24, 6));
        dones.push(done.groups);
        let relative = |dir: &Path| -> Vec<_> {
            let strip =
                |(path, bytes): (PathBuf, _)| (path.strip_prefix(dir).unwrap().to_owned(), bytes);
            bytes(dir).into_iter().map(strip).collect()
        };
        assert!(relative(&target) == relative(&whole));
    }
    assert!(dones[0] >= 3 && dones[1] < dones[0], "{dones:?}");
    assert!(!draft.exists());
}

#[test]
fn two_writers_do_not_meet() {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("run.forest");
    let first = Writer::open(&target, false).unwrap();
    let refused = archive::write(&target, false, &seed1("staged-v2")).unwrap_err();
    assert!(refused.to_string().contains("another forestctl"), "{refused}");
    drop(first);
    archive::write(&target, false, &seed1("staged-v2")).unwrap();
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
}
