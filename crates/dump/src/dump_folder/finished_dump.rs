//! Finds the newest finished dump of a folder, to see how old the backups are. It reads manifests only, and
//! keeps little of them in memory.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use chrono::DateTime;
use serde::Deserialize;

use super::dump_file_names::MANIFEST;
use super::manifest::FORMAT;

/// The finished dumps of a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FinishedDumps {
    /// Number of finished dumps.
    pub count: u64,
    /// The point in time of the newest finished dump's data. If that dump was resumed, the time of its oldest
    /// snapshot.
    pub newest: Option<SystemTime>,
    /// Why a dump could not be read. If several dumps could not be read, the reason for the first of them.
    pub problem: Option<String>,
}

/// Finds the finished dumps in folders. Reads a manifest again only if the file has changed.
#[derive(Debug, Default)]
pub struct DumpFinder {
    known: HashMap<PathBuf, (Version, Option<SystemTime>)>,
}

/// The modification time and size of a manifest. They differ after the manifest is replaced.
type Version = (SystemTime, u64);

/// The fields of a manifest that are needed here.
#[derive(Deserialize)]
struct Times {
    format: u32,
    started_at: String,
    finished_at: Option<String>,
    snapshots: Vec<SnapshotTime>,
}

#[derive(Deserialize)]
struct SnapshotTime {
    taken_at: String,
}

impl DumpFinder {
    /// Returns the finished dumps of a folder: the folder itself if it is a dump, or else its subfolders.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn find(&mut self, folder: &Path) -> io::Result<FinishedDumps> {
        let mut found = FinishedDumps::default();
        let own = folder.join(MANIFEST);
        let mut manifests = Vec::new();
        if fs::exists(&own)? {
            manifests.push(own);
        } else {
            for entry in fs::read_dir(folder)? {
                manifests.push(entry?.path().join(MANIFEST));
            }
        }
        self.known.retain(|path, _| !path.starts_with(folder) || manifests.contains(path));
        for manifest in manifests {
            match self.taken_at(&manifest) {
                Ok(Some(taken_at)) => {
                    found.count += 1;
                    found.newest = found.newest.max(Some(taken_at));
                }
                Ok(None) => {}
                Err(reason) => {
                    found.problem.get_or_insert_with(|| format!("{}: {reason}", manifest.display()));
                }
            }
        }
        Ok(found)
    }

    /// Returns the time of a dump's data; `None` if there is no dump, or it is not finished.
    fn taken_at(&mut self, manifest: &Path) -> Result<Option<SystemTime>, String> {
        let metadata = match fs::metadata(manifest) {
            Ok(metadata) => metadata,
            // A file beside the dumps, or a folder with something else.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(error.to_string()),
        };
        let version = (metadata.modified().map_err(|error| error.to_string())?, metadata.len());
        if let Some((_, taken_at)) = self.known.get(manifest).filter(|(known, _)| *known == version) {
            return Ok(*taken_at);
        }
        let file = tailwater_files::open_regular(manifest).map_err(|error| error.to_string())?;
        let times: Times =
            serde_json::from_reader(BufReader::new(file)).map_err(|error| error.to_string())?;
        if times.format > FORMAT {
            return Err(format!(
                "the manifest has format {}, which a newer version of Tailwater wrote",
                times.format
            ));
        }
        let taken = times.snapshots.iter().map(|snapshot| time(&snapshot.taken_at));
        let oldest = taken.collect::<Result<Vec<_>, _>>()?.into_iter().min();
        let taken_at = match (times.finished_at, oldest) {
            (None, _) => None,
            (Some(_), Some(oldest)) => Some(oldest),
            (Some(_), None) => Some(time(&times.started_at)?),
        };
        self.known.insert(manifest.to_owned(), (version, taken_at));
        Ok(taken_at)
    }
}

/// Parses a time as a manifest has it.
fn time(text: &str) -> Result<SystemTime, String> {
    let time = DateTime::parse_from_rfc3339(text)
        .map_err(|error| format!("the time {text:?} cannot be parsed: {error}"))?;
    Ok(time.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, finished: bool, taken_at: &[&str]) {
        fs::create_dir_all(folder).unwrap();
        let snapshots: Vec<_> = taken_at
            .iter()
            .map(|at| serde_json::json!({ "taken_at": at, "gtid_set": null, "binlog_position": 4 }))
            .collect();
        let manifest = serde_json::json!({
            "format": 1, "started_at": "2026-01-01T00:00:00Z", "snapshots": snapshots, "tables": [{ "rows": 1 }],
            "finished_at": finished.then_some("2026-01-05T00:00:00Z"), "crc32": "00000000",
        });
        fs::write(folder.join(MANIFEST), manifest.to_string()).unwrap();
    }

    fn at(text: &str) -> Option<SystemTime> {
        Some(time(text).unwrap())
    }

    #[test]
    fn the_newest_finished_dump_counts() {
        let folder = tempfile::tempdir().unwrap();
        let mut finder = DumpFinder::default();
        assert_eq!(finder.find(folder.path()).unwrap(), FinishedDumps::default());
        write(&folder.path().join("monday"), true, &["2026-01-02T00:00:00.5Z"]);
        write(&folder.path().join("resumed"), true, &["2026-01-03T00:00:00Z", "2026-01-04T00:00:00Z"]);
        write(&folder.path().join("running"), false, &["2026-01-05T00:00:00Z"]);
        fs::create_dir(folder.path().join("empty")).unwrap();
        fs::write(folder.path().join("notes.txt"), "").unwrap();
        let found = finder.find(folder.path()).unwrap();
        assert_eq!(found, FinishedDumps { count: 2, newest: at("2026-01-03T00:00:00Z"), problem: None });
        let one = finder.find(&folder.path().join("monday")).unwrap();
        assert_eq!((one.count, one.newest), (1, at("2026-01-02T00:00:00.5Z")));
        write(&folder.path().join("running"), true, &["2026-01-05T00:00:00Z"]);
        assert_eq!(finder.find(folder.path()).unwrap().newest, at("2026-01-05T00:00:00Z"));
        fs::remove_dir_all(folder.path().join("running")).unwrap();
        assert_eq!(finder.find(folder.path()).unwrap().newest, at("2026-01-03T00:00:00Z"));
    }

    #[test]
    fn a_dump_that_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut finder = DumpFinder::default();
        assert!(finder.find(&folder.path().join("absent")).is_err());
        write(&folder.path().join("good"), true, &["2026-01-02T00:00:00Z"]);
        fs::create_dir(folder.path().join("bad")).unwrap();
        fs::write(folder.path().join("bad").join(MANIFEST), "{\"format\": 1").unwrap();
        let found = finder.find(folder.path()).unwrap();
        assert_eq!(found.count, 1);
        assert!(found.problem.is_some_and(|problem| problem.contains("bad/manifest.json")));
    }
}
