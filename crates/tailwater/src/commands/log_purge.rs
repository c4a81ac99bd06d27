//! Runs `tailwater log purge`: removes sealed segments that no reader needs.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, bail};
use tailwater_log::{Archive, LogDir, LogError, LogOptions, LogWriter, Purge, PurgeLimit};

use super::log_location::{archive_error, source_name};
use crate::arguments::{Output, PurgeArgs};
use crate::exit_codes::Exit;
use tailwater_object_storage::segment_archive::{ArchiveAddress, ObjectArchive};

/// Runs `tailwater log purge`: prints which segments would be purged; with `--yes` purges them.
///
/// # Errors
/// If the log cannot be read, or the limit is invalid. A refusal is [`Exit::Refused`], not an error.
pub fn purge(arguments: &PurgeArgs, output: Output) -> anyhow::Result<Exit> {
    let log = LogDir::open_read_only(&arguments.path)?;
    let archive = archive(arguments)?;
    let limit = limit(arguments, &log)?;
    if let Some(name) = &arguments.forget
        && !log.persistent_readers()?.iter().any(|reader| reader.name == *name)
    {
        bail!("the log has no retention record of a reader {name:?}");
    }
    let result = match arguments.yes {
        true => purge_now(arguments, archive, limit),
        // Without --yes, the retention record of the reader still exists and would limit the purge. So no
        // segments are printed.
        false if arguments.forget.is_some() => Ok(Purge::default()),
        false => limit.map_or(Ok(Purge::default()), |limit| log.plan_purge(limit, archive.as_ref())),
    };
    match result {
        Ok(purge) => {
            report(arguments, &log, &purge, output)?;
            Ok(Exit::Done)
        }
        Err(refused @ LogError::StillNeeded { .. }) => {
            eprintln!("tailwater: {}: {refused}", refused.code());
            Ok(Exit::Refused)
        }
        Err(locked @ LogError::Locked { .. }) => {
            eprintln!(
                "tailwater: {}: {locked}; while `tailwater run` is using the log, run PURGE BINARY LOGS on its port instead",
                locked.code()
            );
            Ok(Exit::Refused)
        }
        Err(error) => Err(error.into()),
    }
}

fn purge_now(
    arguments: &PurgeArgs,
    archive: Option<Archive>,
    limit: Option<PurgeLimit>,
) -> Result<Purge, LogError> {
    let writer = LogWriter::open(&arguments.path, LogOptions { archive, ..LogOptions::default() })?;
    let handle = writer.handle();
    if let Some(name) = &arguments.forget {
        handle.forget_reader(name)?;
    }
    let purge = limit.map_or(Ok(Purge::default()), |limit| handle.purge_by(limit))?;
    writer.close()?;
    Ok(purge)
}

fn archive(arguments: &PurgeArgs) -> anyhow::Result<Option<Archive>> {
    let Some(url) = &arguments.archive else { return Ok(None) };
    let store = ObjectArchive::open_existing(&ArchiveAddress::at(url));
    let store = store.map_err(|error| archive_error("open", url, error))?;
    Ok(Some(Archive::new(Arc::new(store), &source_name(&arguments.path)?)))
}

/// Returns the limit of the purge if the arguments give one.
fn limit(arguments: &PurgeArgs, log: &LogDir) -> anyhow::Result<Option<PurgeLimit>> {
    let PurgeArgs { to, before, older_than, keep_bytes, .. } = arguments;
    if let Some(to) = to {
        return segment(to, log).map(|segment| Some(PurgeLimit::To(segment)));
    }
    if let Some(before) = before {
        return moment(before).map(|moment| Some(PurgeLimit::Before(moment)));
    }
    if let Some(older_than) = older_than {
        let duration =
            humantime::parse_duration(older_than).with_context(|| format!("--older-than {older_than}"))?;
        let moment = SystemTime::now()
            .checked_sub(duration)
            .context("the time that --older-than gives is too long ago")?;
        return Ok(Some(PurgeLimit::Before(moment)));
    }
    Ok(keep_bytes.map(PurgeLimit::Bytes))
}

fn segment(text: &str, log: &LogDir) -> anyhow::Result<u64> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let segments = log.segments()?;
    let segment = segments.iter().find(|segment| segment.source_file == text);
    Ok(segment.with_context(|| format!("--to {text}: the log has no such segment"))?.number)
}

fn moment(text: &str) -> anyhow::Result<SystemTime> {
    let with_time = match text.len() {
        10 => format!("{text} 00:00:00"),
        _ => text.to_owned(),
    };
    humantime::parse_rfc3339_weak(&with_time).with_context(|| format!("--before {text}"))
}

fn report(arguments: &PurgeArgs, log: &LogDir, purge: &Purge, output: Output) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let done = arguments.yes;
    match output {
        Output::Text => {
            if let Some(name) = &arguments.forget {
                let verb = if done { "removed" } else { "would remove" };
                writeln!(out, "{}: {verb} the retention record of reader {name}", log.path().display())?;
            }
            let verb = if done { "purged" } else { "would purge" };
            let range = match (purge.segments.first(), purge.segments.last()) {
                (Some(first), Some(last)) => format!("segments {first} to {last}, {} bytes", purge.bytes),
                _ => "nothing".to_owned(),
            };
            writeln!(out, "{}: {verb} {range}", log.path().display())?;
            if !done {
                writeln!(out, "nothing was changed: repeat with --yes")?;
            }
            Ok(())
        }
        Output::Json => {
            let line = serde_json::json!({
                "log": log.path(),
                "done": done,
                "forgotten": arguments.forget,
                "segments": purge.segments,
                "bytes": purge.bytes,
            });
            writeln!(out, "{line}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::moment;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn before_takes_a_date_or_a_time() {
        let seconds = |text: &str| moment(text).unwrap().duration_since(UNIX_EPOCH).unwrap();
        assert_eq!(seconds("2000-02-29"), Duration::from_secs(951_782_400));
        assert_eq!(seconds("2000-02-29 00:00:07"), Duration::from_secs(951_782_407));
        assert_eq!(seconds("2000-02-29T00:00:07Z"), Duration::from_secs(951_782_407));
        for wrong in ["yesterday", "2000-02-30", "2000-02-29 25:00:00", ""] {
            assert!(moment(wrong).is_err(), "{wrong:?} was accepted as a time");
        }
    }
}
