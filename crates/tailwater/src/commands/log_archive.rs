//! Runs `tailwater log archive`: copies sealed segments to an archive.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};
use tailwater_daemon::jobs::job_text::counted;
use tailwater_log::archive::{ArchiveOptions, ArchiveProgress, ArchiveReport, ArchiveStep};
use tailwater_log::{Archive, LogDir};

use super::log_location::{archive_error, logs_in, source_name};
use crate::arguments::{ArchiveArgs, Output};
use crate::exit_codes::Exit;
use tailwater_object_storage::segment_archive::{ArchiveAddress, ObjectArchive};

/// Runs `tailwater log archive`: copies the sealed segments that the archive does not have yet to it.
///
/// # Errors
/// [`tailwater_log::LogError`] if a log cannot be read, or the archive still fails after the last retry.
pub fn archive(arguments: &ArchiveArgs, output: Output) -> anyhow::Result<Exit> {
    let url = &arguments.to;
    let store = ObjectArchive::open(&ArchiveAddress::at(url));
    let store = Arc::new(store.map_err(|error| archive_error("open", url, error))?);
    for (folder, log) in logs_in(&arguments.path)? {
        let archive = Archive::new(store.clone(), &source_name(&folder)?);
        let archived = archive_log(&folder, &log, &archive, output)?;
        report(&folder, &archive, &archived, output)?;
    }
    Ok(Exit::Done)
}

fn archive_log(
    folder: &Path,
    log: &LogDir,
    archive: &Archive,
    output: Output,
) -> anyhow::Result<ArchiveReport> {
    // indicatif hides the bar if standard error is not a terminal.
    let bar = ProgressBar::new(0).with_style(ProgressStyle::with_template(
        "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
    )?);
    let mut printed = Ok(());
    let result = log.archive_sealed(archive, ArchiveOptions::default(), |progress| {
        tell(&bar, folder, &progress);
        if output == Output::Json && progress.step == ArchiveStep::Done && printed.is_ok() {
            printed = print_segment(folder, &progress);
        }
    });
    bar.finish_and_clear();
    printed?;
    Ok(result?)
}

/// Shows the progress. Each byte of a segment counts twice: once for the upload, once for the verification.
fn tell(bar: &ProgressBar, folder: &Path, progress: &ArchiveProgress) {
    let ArchiveProgress { segment, step, segment_bytes, segment_bytes_total, bytes, bytes_total, .. } =
        *progress;
    let (doing, done) = match step {
        ArchiveStep::Upload => ("uploading", 2 * bytes + segment_bytes),
        ArchiveStep::Check => ("checking", 2 * bytes + segment_bytes_total + segment_bytes),
        ArchiveStep::Done => ("archived", 2 * bytes),
    };
    bar.set_message(format!("{}: {doing} segment {segment}", folder.display()));
    bar.set_length(2 * bytes_total);
    bar.set_position(done);
}

fn print_segment(folder: &Path, progress: &ArchiveProgress) -> io::Result<()> {
    let line = serde_json::json!({
        "log": folder,
        "segment": progress.segment,
        "bytes": progress.segment_bytes_total,
        "bytes_done": progress.bytes,
        "bytes_total": progress.bytes_total,
    });
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn report(folder: &Path, archive: &Archive, archived: &ArchiveReport, output: Output) -> io::Result<()> {
    let ArchiveReport { segments, segments_before, bytes, compressed_bytes } = archived;
    let mut out = io::stdout().lock();
    match output {
        Output::Text => writeln!(
            out,
            "{}: {} archived in {}, {bytes} bytes as {compressed_bytes}; {segments_before} archived earlier",
            folder.display(),
            counted(segments.len() as u64, "segment"),
            archive.url().display(),
        ),
        Output::Json => {
            let line = serde_json::json!({
                "log": folder,
                "archive": archive.url(),
                "segments": segments,
                "segments_before": segments_before,
                "bytes": bytes,
                "compressed_bytes": compressed_bytes,
            });
            writeln!(out, "{line}")
        }
    }
}
