//! Properties of the model: a synced byte is never lost, and an unsynced byte may be lost. A change of a file
//! name takes effect completely or not at all.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

use proptest::prelude::*;
use tailwater_lossy_disk::model::{NewNode, ROOT, RenameMode};
use tailwater_lossy_disk::{DiskModel, NameDurability, PowerCut, UnsyncedLoss};

use crate::support::ExpectedFile;

const NOW: SystemTime = SystemTime::UNIX_EPOCH;
const NEW: NewNode = NewNode { mode: 0o644, uid: 0, gid: 0, now: NOW };

#[derive(Debug, Clone)]
enum FileStep {
    Write { offset: usize, length: usize, byte: u8 },
    Resize(usize),
    Zero { offset: usize, length: usize },
    Sync,
    Cut(u64),
}

fn file_step() -> impl Strategy<Value = FileStep> {
    prop_oneof![
        6 => (0..20_000usize, 1..9_000usize, 1..=255u8)
            .prop_map(|(offset, length, byte)| FileStep::Write { offset, length, byte }),
        2 => (0..25_000usize).prop_map(FileStep::Resize),
        1 => (0..20_000usize, 1..9_000usize).prop_map(|(offset, length)| FileStep::Zero { offset, length }),
        2 => Just(FileStep::Sync),
        1 => any::<u64>().prop_map(FileStep::Cut),
    ]
}

fn contents(disk: &DiskModel, inode: u64) -> Vec<u8> {
    disk.read(inode, 0, 1 << 20).expect("the file can be read")
}

proptest! {
    #[test]
    fn each_sector_is_from_a_moment_since_the_last_sync(steps in prop::collection::vec(file_step(), 1..40)) {
        let mut disk = DiskModel::new(NameDurability::FolderSync);
        let inode = disk.create_file(ROOT, OsStr::new("file"), NEW).expect("create");
        disk.sync_folder(ROOT).expect("sync");
        let mut expected = ExpectedFile::empty();
        for step in steps {
            match step {
                FileStep::Write { offset, length, byte } => {
                    let bytes: Vec<u8> = (0..length).map(|at| byte.wrapping_add((at / 512) as u8)).collect();
                    disk.write(inode, offset as u64, &bytes, NOW).expect("write");
                    expected.write(offset, &bytes);
                }
                FileStep::Resize(length) => {
                    disk.resize(inode, length as u64, NOW).expect("resize");
                    expected.resize(length);
                }
                FileStep::Zero { offset, length } => {
                    disk.zero(inode, offset as u64, length as u64, NOW).expect("zero");
                    expected.change(|contents| {
                        let end = (offset + length).min(contents.len());
                        if let Some(range) = contents.get_mut(offset..end) {
                            range.fill(0);
                        }
                    });
                }
                FileStep::Sync => {
                    disk.sync_file(inode).expect("sync");
                    expected.sync();
                }
                FileStep::Cut(seed) => {
                    let cut = PowerCut::from_seed(seed);
                    let mut again = disk.clone();
                    disk.cut_power(&cut);
                    let found = contents(&disk, inode);
                    again.cut_power(&cut);
                    prop_assert_eq!(&found, &contents(&again, inode), "the same power cut differs");
                    if cut.loss == UnsyncedLoss::Everything || expected.is_durable() {
                        prop_assert!(found == expected.durable(), "synced bytes are not there: {cut:?}");
                    }
                    if let Err(problem) = expected.check_after_cut(&found, cut.sector_bytes as usize) {
                        return Err(TestCaseError::fail(format!("{cut:?}: {problem}")));
                    }
                }
            }
            prop_assert!(contents(&disk, inode) == expected.current(), "reads return other bytes");
        }
    }

    #[test]
    fn names_after_a_cut_are_those_of_a_moment_since_the_last_sync(
        steps in prop::collection::vec((0..6u8, 0..4u8, 0..4u8), 1..60),
        seed: u64,
        journal: bool,
    ) {
        let durability = if journal { NameDurability::Journal } else { NameDurability::FolderSync };
        let mut disk = DiskModel::new(durability);
        let mut versions: Vec<BTreeMap<OsString, u64>> = vec![BTreeMap::new()];
        let name = |number: u8| OsString::from(format!("n{number}"));
        for (step, first, second) in steps {
            let (from, to) = (name(first), name(second));
            let _ = match step {
                0 | 1 => disk.create_file(ROOT, &from, NEW).map(|_| ()),
                2 => disk.remove_file(ROOT, &from),
                3 => disk.rename((ROOT, &from), (ROOT, &to), RenameMode::Replace),
                4 => disk.rename((ROOT, &from), (ROOT, &to), RenameMode::Exchange),
                _ => {
                    disk.sync_folder(ROOT).expect("sync");
                    versions.clear();
                    Ok(())
                }
            };
            versions.push(names(&disk));
        }
        disk.cut_power(&PowerCut::from_seed(seed));
        prop_assert!(versions.contains(&names(&disk)), "{:?} is none of {versions:?}", names(&disk));
    }
}

fn names(disk: &DiskModel) -> BTreeMap<OsString, u64> {
    let entries = disk.entries(ROOT).expect("the root exists");
    entries.into_iter().map(|(name, inode, _)| (name, inode)).collect()
}

/// Runs a power cut with many seeds, and returns how often each result occurred.
fn results<T: Ord>(disk: &DiskModel, loss: UnsyncedLoss, of: impl Fn(&DiskModel) -> T) -> BTreeMap<T, u32> {
    let mut found = BTreeMap::new();
    for seed in 0..200 {
        let mut disk = disk.clone();
        disk.cut_power(&PowerCut { seed, loss, sector_bytes: 512 });
        *found.entry(of(&disk)).or_default() += 1;
    }
    found
}

#[test]
fn unsynced_bytes_can_survive_or_go_and_in_any_order() {
    let mut disk = DiskModel::new(NameDurability::FolderSync);
    let inode = disk.create_file(ROOT, OsStr::new("file"), NEW).expect("create");
    disk.write(inode, 0, &[1; 1024], NOW).expect("write");
    disk.sync_file(inode).expect("sync");
    disk.sync_folder(ROOT).expect("sync");
    disk.write(inode, 0, &[2; 512], NOW).expect("write");
    disk.write(inode, 512, &[3; 512], NOW).expect("write");
    let pair = |disk: &DiskModel| (contents(disk, inode)[0], contents(disk, inode)[512]);
    let any = results(&disk, UnsyncedLoss::AnySectors, pair);
    assert_eq!(any.keys().copied().collect::<Vec<_>>(), [(1, 1), (1, 3), (2, 1), (2, 3)], "{any:?}");
    let moment = results(&disk, UnsyncedLoss::AfterMoment, pair);
    assert_eq!(moment.keys().copied().collect::<Vec<_>>(), [(1, 1), (2, 1), (2, 3)], "{moment:?}");
    let all = results(&disk, UnsyncedLoss::Everything, pair);
    assert_eq!(all.keys().copied().collect::<Vec<_>>(), [(1, 1)]);
}

#[test]
fn after_a_moment_no_file_is_newer_than_another() {
    let mut disk = DiskModel::new(NameDurability::FolderSync);
    let files = ["a", "b"].map(|name| disk.create_file(ROOT, OsStr::new(name), NEW).expect("create"));
    disk.sync_everything();
    for value in 1..20u8 {
        for inode in files {
            disk.write(inode, 0, &[value], NOW).expect("write");
        }
    }
    let found = results(&disk, UnsyncedLoss::AfterMoment, |disk| {
        files.map(|inode| contents(disk, inode).first().copied().unwrap_or(0))
    });
    assert!(found.len() > 10, "{found:?}");
    for [first, second] in found.keys() {
        assert!(*second == *first || *second + 1 == *first, "{found:?}");
    }
}

#[test]
fn a_rename_over_a_file_leaves_the_old_or_the_new_file() {
    let mut disk = DiskModel::new(NameDurability::FolderSync);
    let old = disk.create_file(ROOT, OsStr::new("file"), NEW).expect("create");
    disk.write(old, 0, b"old", NOW).expect("write");
    disk.sync_everything();
    let new = disk.create_file(ROOT, OsStr::new("file.new"), NEW).expect("create");
    disk.write(new, 0, b"new", NOW).expect("write");
    disk.sync_file(new).expect("sync");
    disk.rename((ROOT, OsStr::new("file.new")), (ROOT, OsStr::new("file")), RenameMode::Replace)
        .expect("rename");
    let state = |disk: &DiskModel| {
        let file = disk.lookup(ROOT, OsStr::new("file")).expect("the name exists");
        (contents(disk, file), disk.lookup(ROOT, OsStr::new("file.new")).is_ok())
    };
    let found = results(&disk, UnsyncedLoss::AnySectors, state);
    let expected = [(b"new".to_vec(), false), (b"old".to_vec(), false), (b"old".to_vec(), true)];
    assert_eq!(found.into_keys().collect::<Vec<_>>(), expected);
    disk.sync_folder(ROOT).expect("sync");
    let found = results(&disk, UnsyncedLoss::Everything, state);
    assert_eq!(found.into_keys().collect::<Vec<_>>(), expected[..1]);
}

#[test]
fn a_new_file_without_a_sync_of_its_folder_is_lost_unless_a_journal_has_it() {
    for (durability, survives) in [(NameDurability::FolderSync, false), (NameDurability::Journal, true)] {
        let mut disk = DiskModel::new(durability);
        let inode = disk.create_file(ROOT, OsStr::new("file"), NEW).expect("create");
        disk.write(inode, 0, b"synced", NOW).expect("write");
        disk.sync_file(inode).expect("sync");
        disk.cut_power(&PowerCut::of_everything());
        assert_eq!(disk.lookup(ROOT, OsStr::new("file")).is_ok(), survives, "{durability:?}");
    }
}

#[test]
fn a_sync_of_a_folder_covers_earlier_changes_of_the_same_names_only() {
    let mut disk = DiskModel::new(NameDurability::FolderSync);
    let [first, second] =
        ["first", "second"].map(|name| disk.create_folder(ROOT, OsStr::new(name), NEW).expect("create"));
    disk.sync_everything();
    let [moved, stays] =
        ["moved", "stays"].map(|name| disk.create_file(first, OsStr::new(name), NEW).expect("create"));
    disk.rename((first, OsStr::new("moved")), (second, OsStr::new("moved")), RenameMode::Replace)
        .expect("rename");
    disk.sync_folder(second).expect("sync");
    disk.cut_power(&PowerCut::of_everything());
    assert_eq!(disk.lookup(second, OsStr::new("moved")), Ok(moved));
    assert!(disk.lookup(first, OsStr::new("moved")).is_err());
    assert!(disk.lookup(first, OsStr::new("stays")).is_err() && disk.attributes(stays).is_err());
}

#[test]
fn a_removed_file_lives_while_it_is_open_and_can_come_back() {
    let mut disk = DiskModel::new(NameDurability::FolderSync);
    let inode = disk.create_file(ROOT, OsStr::new("file"), NEW).expect("create");
    disk.write(inode, 0, b"bytes", NOW).expect("write");
    disk.sync_everything();
    disk.open(inode).expect("open");
    disk.remove_file(ROOT, OsStr::new("file")).expect("remove");
    let mut cut = disk.clone();
    cut.cut_power(&PowerCut::of_everything());
    assert_eq!(contents(&cut, cut.lookup(ROOT, OsStr::new("file")).expect("the name is back")), b"bytes");
    disk.sync_folder(ROOT).expect("sync");
    assert_eq!(contents(&disk, inode), b"bytes");
    disk.close(inode);
    assert!(disk.attributes(inode).is_err());
}
