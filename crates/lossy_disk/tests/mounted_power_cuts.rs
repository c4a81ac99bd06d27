//! The mounted disk against a simple model: threads run random operations, the power is cut, and each thread
//! compares what it finds with what it did.
//!
//! `TAILWATER_SEED=n` repeats the random choices; `TAILWATER_LONG=1` runs more rounds.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use tailwater_lossy_disk::{LossyDisk, NameDurability, PowerCut, UnsyncedLoss};

use crate::support::ExpectedFile;

const THREADS: u64 = 4;
const FILE_BYTES_MAX: usize = 24 << 10;

/// A folder that one thread uses, and what the thread knows about it.
struct ThreadFolder {
    path: PathBuf,
    random: StdRng,
    files: Vec<ExpectedFile>,
    /// The names after each change since the last sync of the folder, with the index of their file.
    names: Vec<BTreeMap<String, usize>>,
}

impl ThreadFolder {
    fn create(root: &Path, number: u64, seed: u64) -> Result<Self> {
        let path = root.join(format!("thread-{number}"));
        fs::create_dir(&path)?;
        File::open(root)?.sync_all()?;
        let random = StdRng::seed_from_u64(seed.wrapping_add(number));
        Ok(Self { path, random, files: Vec::new(), names: vec![BTreeMap::new()] })
    }

    fn current(&self) -> &BTreeMap<String, usize> {
        self.names.last().expect("there is a version")
    }

    fn change_names(&mut self, change: impl FnOnce(&mut BTreeMap<String, usize>)) {
        let mut next = self.current().clone();
        change(&mut next);
        self.names.push(next);
    }

    fn step(&mut self) -> Result<()> {
        let name = format!("f{}", self.random.random_range(0..4));
        let Some(index) = self.current().get(&name).copied() else {
            if self.random.random() {
                File::options().write(true).create_new(true).open(self.path.join(&name))?;
                self.files.push(ExpectedFile::empty());
                let index = self.files.len() - 1;
                self.change_names(|names| {
                    names.insert(name, index);
                });
            }
            return Ok(());
        };
        let path = self.path.join(&name);
        match self.random.random_range(0..12) {
            0 => {
                let to = format!("f{}", self.random.random_range(0..4));
                fs::rename(&path, self.path.join(&to))?;
                self.change_names(|names| {
                    names.remove(&name);
                    names.insert(to, index);
                });
            }
            1 => {
                fs::remove_file(&path)?;
                self.change_names(|names| {
                    names.remove(&name);
                });
            }
            2 => {
                File::open(&self.path)?.sync_all()?;
                self.names.drain(..self.names.len() - 1);
            }
            3 => {
                OpenOptions::new().write(true).open(&path)?.sync_data()?;
                self.files[index].sync();
            }
            4 => {
                let length = self.random.random_range(0..FILE_BYTES_MAX);
                OpenOptions::new().write(true).open(&path)?.set_len(length as u64)?;
                self.files[index].resize(length);
            }
            5 => {
                let end = self.random.random_range(1..FILE_BYTES_MAX);
                let file = OpenOptions::new().write(true).open(&path)?;
                fallocate(&file, FallocateFlags::empty(), 0, end as u64)?;
                self.files[index].change(|contents| contents.resize(contents.len().max(end), 0));
            }
            6 => {
                let found = fs::read(&path)?;
                ensure!(found == self.files[index].current(), "{} reads other bytes", path.display());
            }
            kind => self.write(&path, index, kind)?,
        }
        Ok(())
    }

    fn write(&mut self, path: &Path, index: usize, kind: i32) -> Result<()> {
        let offset = self.random.random_range(0..FILE_BYTES_MAX / 2);
        let mut bytes = vec![0; self.random.random_range(1..FILE_BYTES_MAX / 2)];
        self.random.fill(&mut bytes[..]);
        let flags = match kind {
            7 => OFlags::DIRECT,
            8 => OFlags::DSYNC,
            _ => OFlags::empty(),
        };
        let file = OpenOptions::new().write(true).custom_flags(flags.bits() as i32).open(path)?;
        file.write_all_at(&bytes, offset as u64)?;
        self.files[index].write(offset, &bytes);
        if kind == 8 {
            self.files[index].sync();
        }
        Ok(())
    }

    /// Compares the folder with what the thread did before the power cut.
    fn check(&mut self, cut: &PowerCut) -> Result<()> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            found.insert(entry.file_name().into_string().expect("names are UTF-8"), fs::read(entry.path())?);
        }
        let path = self.path.display();
        let candidates: Vec<_> =
            self.names.iter().filter(|names| names.keys().eq(found.keys())).cloned().collect();
        ensure!(!candidates.is_empty(), "{path}: the names {:?} never existed together", found.keys());
        if cut.loss == UnsyncedLoss::Everything {
            ensure!(self.names[0].keys().eq(found.keys()), "{path}: unsynced names survived, or others went");
        }
        // Different moments can have the same names for different files.
        let mut problems = Vec::new();
        for names in candidates {
            match self.check_files(&names, &found, cut) {
                Ok(files) => {
                    (self.files, self.names) = (files, vec![names]);
                    return Ok(());
                }
                Err(problem) => problems.push(problem),
            }
        }
        anyhow::bail!("{path}: {problems:?}")
    }

    fn check_files(
        &self,
        names: &BTreeMap<String, usize>,
        found: &BTreeMap<String, Vec<u8>>,
        cut: &PowerCut,
    ) -> Result<Vec<ExpectedFile>, String> {
        let mut files = self.files.clone();
        for (name, index) in names {
            let found = &found[name];
            let file = &mut files[*index];
            let is_certain = cut.loss == UnsyncedLoss::Everything || file.is_durable();
            if is_certain && found != file.durable() {
                return Err(format!("{name}: the file lacks the synced contents"));
            }
            let checked = file.check_after_cut(found, cut.sector_bytes as usize);
            checked.map_err(|problem| format!("{name}: {problem}"))?;
        }
        Ok(files)
    }
}

#[test]
fn threads_find_what_they_synced_after_power_cuts() -> Result<()> {
    let seed = std::env::var("TAILWATER_SEED").ok().and_then(|text| text.parse().ok());
    let seed: u64 = seed.unwrap_or_else(rand::random);
    let rounds = if std::env::var_os("TAILWATER_LONG").is_some() { 200 } else { 12 };
    let Some(mut disk) = LossyDisk::for_test(NameDurability::FolderSync) else { return Ok(()) };
    let folders = (0..THREADS).map(|number| ThreadFolder::create(disk.path(), number, seed));
    let mut folders = folders.collect::<Result<Vec<_>>>()?;
    let mut random = StdRng::seed_from_u64(seed);
    for round in 0..rounds {
        let cut = PowerCut::from_seed(random.random());
        run_round(&mut disk, &mut folders, &mut random, cut)
            .with_context(|| format!("TAILWATER_SEED={seed}, round {round}, {cut:?}"))?;
    }
    eprintln!("{rounds} power cuts under {THREADS} threads");
    Ok(())
}

fn run_round(
    disk: &mut LossyDisk,
    folders: &mut [ThreadFolder],
    random: &mut StdRng,
    cut: PowerCut,
) -> Result<()> {
    let steps = random.random_range(10..120);
    std::thread::scope(|scope| {
        let work = |folder: &mut ThreadFolder| (0..steps).try_for_each(|_| folder.step());
        let threads: Vec<_> = folders.iter_mut().map(|folder| scope.spawn(move || work(folder))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("the thread did not panic"))
    })?;
    disk.cut_power(cut);
    disk.restore_power()?;
    folders.iter_mut().try_for_each(|folder| folder.check(&cut))
}

/// What servers use beside reads and writes.
#[test]
fn hard_links_locks_folders_and_removed_open_files_work() -> Result<()> {
    let Some(mut disk) = LossyDisk::for_test(NameDurability::Journal) else { return Ok(()) };
    let root = disk.path().to_owned();
    fs::create_dir_all(root.join("a/b"))?;
    fs::write(root.join("a/b/file"), "text")?;
    fs::hard_link(root.join("a/b/file"), root.join("a/second"))?;
    std::os::unix::fs::symlink("a/second", root.join("link"))?;
    ensure!(fs::read(root.join("link"))? == b"text");
    ensure!(
        fs::remove_dir(root.join("a/b"))
            .is_err_and(|error| error.kind() == std::io::ErrorKind::DirectoryNotEmpty)
    );
    let open = File::options().read(true).write(true).open(root.join("a/b/file"))?;
    rustix::fs::flock(&open, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
    let other = File::open(root.join("a/second"))?;
    ensure!(rustix::fs::flock(&other, rustix::fs::FlockOperation::NonBlockingLockShared).is_err());
    fs::remove_file(root.join("a/b/file"))?;
    fs::remove_file(root.join("a/second"))?;
    open.write_all_at(b"more", 4)?;
    let mut bytes = [0; 8];
    open.read_exact_at(&mut bytes, 0)?;
    ensure!(&bytes == b"textmore");
    fs::rename(root.join("a"), root.join("c"))?;
    ensure!(fs::read_dir(root.join("c"))?.count() == 1);
    drop((open, other));
    // More names than the kernel reads at once, removed while the folder is read.
    fs::create_dir(root.join("many"))?;
    (0..500).try_for_each(|number| fs::write(root.join(format!("many/a-file-with-number-{number}")), ""))?;
    ensure!(fs::read_dir(root.join("many"))?.count() == 500);
    fs::remove_dir_all(root.join("many"))?;
    File::open(&root)?.sync_all()?;
    disk.cut_power(PowerCut::of_everything());
    ensure!(fs::read_dir(&root).is_err(), "a disk without power answers");
    disk.restore_power()?;
    ensure!(root.join("c/b").is_dir() && fs::read_link(root.join("link"))? == Path::new("a/second"));
    Ok(())
}
