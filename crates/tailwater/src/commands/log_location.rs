//! Opens the logs that a command line names: local, archived, or both.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use tailwater_log::{Archive, ArchiveStore, LogDir, LogError};

use crate::arguments::LogSource;
use tailwater_object_storage::segment_archive::{ArchiveAddress, ObjectArchive};

/// Returns the logs at a path: a log folder, or each log in a folder with several of them. If an archive is
/// given, each log includes its archived segments.
///
/// # Errors
/// [`LogError::NoLog`] if there is no log, or the error of opening one.
pub fn logs_of(source: &LogSource) -> anyhow::Result<Vec<(PathBuf, LogDir)>> {
    match (&source.path, &source.archive) {
        (Some(path), None) => logs_in(path),
        (Some(path), Some(url)) => logs_with_archive(path, &open(url)?),
        (None, Some(url)) => archived_logs(&open(url)?, |_| false),
        (None, None) => Ok(Vec::new()),
    }
}

fn open(url: &str) -> anyhow::Result<Arc<dyn ArchiveStore>> {
    let store = ObjectArchive::open_existing(&ArchiveAddress::at(url));
    Ok(Arc::new(store.map_err(|error| archive_error("open", url, error))?))
}

/// Returns the error for an archive that cannot be accessed.
pub fn archive_error(action: &'static str, url: &str, cause: std::io::Error) -> LogError {
    LogError::Archive { action, path: url.into(), cause }
}

/// Returns the logs at a path: a log folder, or each log in a folder with several of them.
///
/// # Errors
/// The same as for [`logs_of`].
pub fn logs_in(path: &Path) -> anyhow::Result<Vec<(PathBuf, LogDir)>> {
    anyhow::ensure!(
        !path.exists() || path.is_dir(),
        "{} is neither a log folder nor a regular file; write the output of a pipe to a file first",
        path.display()
    );
    match LogDir::open_read_only(path) {
        Ok(log) => return Ok(vec![(path.to_owned(), log)]),
        Err(LogError::NoLog { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let mut logs = Vec::new();
    for folder in folders_in(path)? {
        match LogDir::open_read_only(&folder) {
            Ok(log) => logs.push((folder, log)),
            Err(LogError::NoLog { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if logs.is_empty() {
        return Err(LogError::NoLog { path: path.to_owned() }.into());
    }
    Ok(logs)
}

fn folders_in(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut folders: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    Ok(folders)
}

/// Returns the name of a log in the archive: the name of its folder, which is the name of the source.
///
/// # Errors
/// If the path has no name.
pub fn source_name(folder: &Path) -> anyhow::Result<String> {
    // The path is resolved to get a name for `.` and `..`. A folder that was deleted cannot be resolved, but
    // still has a name.
    let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let name = folder.file_name().and_then(|name| name.to_str());
    Ok(name
        .with_context(|| {
            format!("{} has no folder name, so its log has no name in the archive", folder.display())
        })?
        .to_owned())
}

fn logs_with_archive(path: &Path, store: &Arc<dyn ArchiveStore>) -> anyhow::Result<Vec<(PathBuf, LogDir)>> {
    let with_archive = |folder: &Path| -> anyhow::Result<LogDir> {
        let archive = Archive::new(Arc::clone(store), &source_name(folder)?);
        Ok(LogDir::open_with_archive(folder, &archive)?)
    };
    match logs_in(path) {
        Ok(logs) => {
            let open = |(folder, _): (PathBuf, LogDir)| Ok((folder.clone(), with_archive(&folder)?));
            let several = !matches!(logs.as_slice(), [(folder, _)] if folder == path);
            let mut logs = logs.into_iter().map(open).collect::<anyhow::Result<Vec<_>>>()?;
            if several {
                // Logs that exist only in the archive, because their local folders were deleted.
                let is_here = |source: &str| path.join(source).is_dir();
                logs.extend(archived_logs(store, is_here).unwrap_or_default());
            }
            Ok(logs)
        }
        // There are no local logs.
        Err(error) if is_missing(&error) || !path.exists() => {
            let log = with_archive(path)?;
            Ok(vec![(log.path().to_owned(), log)])
        }
        Err(error) => Err(error),
    }
}

fn is_missing(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<LogError>(), Some(LogError::NoLog { .. }))
}

/// Returns the logs in an archive, except those for which `is_here` returns true.
fn archived_logs(
    store: &Arc<dyn ArchiveStore>,
    is_here: impl Fn(&str) -> bool,
) -> anyhow::Result<Vec<(PathBuf, LogDir)>> {
    let mut logs = Vec::new();
    for source in Archive::sources(store.as_ref())?.into_iter().filter(|source| !is_here(source)) {
        let log = LogDir::open_archive(&Archive::new(Arc::clone(store), &source))?;
        logs.push((log.path().to_owned(), log));
    }
    if logs.is_empty() {
        return Err(LogError::NoLog { path: store.url().into() }.into());
    }
    Ok(logs)
}
