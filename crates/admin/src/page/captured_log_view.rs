//! The logs of the sources, and one log with its segments. Pure.

use askama::Template;
use tailwater_binlog_stats::number_format::{bytes, grouped};
use tailwater_daemon::api::captures::{
    CaptureSnapshot, LogArchiveSnapshot, LogReaderSnapshot, SegmentSnapshot,
};
use tailwater_daemon::api::daemon_snapshot::DaemonSnapshot;
use tailwater_daemon::api::daemon_status::SourceStatus;
use tailwater_daemon::jobs::job_text::counted;

use super::chart_data::{ChartFigure, source_charts};
use super::display_format::{UNKNOWN, behind, local_time, path_segment, since_ms};
use super::page_layout::{Health, PageFrame};

/// How many segments the view lists at most, the newest ones.
const SEGMENTS_MAX: usize = 50;

/// All logs.
#[derive(Debug, Template)]
#[template(path = "page/logs.html")]
pub(super) struct LogList {
    pub(super) frame: PageFrame,
    pub(super) sources: Vec<SourceRow>,
    pub(super) charts: Vec<ChartFigure>,
}

/// One log.
#[derive(Debug, Template)]
#[template(path = "page/log.html")]
pub(super) struct LogDetail {
    pub(super) frame: PageFrame,
    pub(super) source: SourceRow,
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) alarms: Vec<(String, String)>,
    pub(super) gtids: String,
    /// The readers whose position the log stores, and how much of the log each has not read yet.
    pub(super) readers: Vec<(String, String)>,
    /// Absent without an archive.
    pub(super) archive: Option<ArchivePanel>,
    pub(super) segments: Vec<SegmentRow>,
    pub(super) segments_note: String,
    pub(super) charts: Vec<ChartFigure>,
}

/// A source and its log, in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SourceRow {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) server: String,
    pub(super) state: String,
    pub(super) activity: String,
    pub(super) health: Health,
    pub(super) durable: String,
    pub(super) behind: String,
    pub(super) heard: String,
    pub(super) semi_sync: &'static str,
    pub(super) semi_sync_health: Health,
    pub(super) transactions: String,
    pub(super) written: String,
}

/// The background archiving.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ArchivePanel {
    pub(super) address: String,
    pub(super) state: String,
    pub(super) health: Health,
    pub(super) facts: Vec<(&'static str, String)>,
    /// What is done with the present segment, and its done part in percent.
    pub(super) current: Option<(String, u64)>,
    /// The code and the text of the last error.
    pub(super) problem: Option<(String, String)>,
}

/// A segment, in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SegmentRow {
    pub(super) number: u64,
    pub(super) source_file: String,
    pub(super) size: String,
    pub(super) server: String,
    pub(super) epoch: u32,
    pub(super) state: &'static str,
}

impl SourceRow {
    pub(super) fn new(source: &SourceStatus, snapshot: &DaemonSnapshot) -> Self {
        let capture = snapshot.captures.iter().find(|capture| capture.report.source == source.source);
        let has_alarms = capture.is_some_and(|capture| !capture.alarms.is_empty());
        let health = match source.state.as_str() {
            "streaming" if has_alarms => Health::Degraded,
            "streaming" => Health::Well,
            "connecting" => Health::Degraded,
            _ => Health::Failed,
        };
        let (semi_sync, semi_sync_health) = match source.semi_sync_in_force {
            None => ("not used", Health::Unknown),
            Some(true) => ("in force", Health::Well),
            Some(false) => ("not in force", Health::Failed),
        };
        Self {
            name: source.source.clone(),
            path: format!("/logs/{}", path_segment(&source.source)),
            server: source.server.clone(),
            state: source.state.replace('_', " "),
            activity: source.activity.clone(),
            health,
            durable: source.durable.clone(),
            behind: behind(source.behind_transactions),
            heard: since_ms(source.heard_ago_ms),
            semi_sync,
            semi_sync_health,
            transactions: capture
                .map_or_else(|| UNKNOWN.to_owned(), |capture| grouped(capture.transactions_total)),
            written: capture.map_or_else(|| UNKNOWN.to_owned(), |capture| bytes(capture.event_bytes_total)),
        }
    }
}

impl LogDetail {
    pub(super) fn new(
        frame: PageFrame,
        status: &SourceStatus,
        snapshot: &DaemonSnapshot,
        capture: &CaptureSnapshot,
        segments: &[SegmentSnapshot],
    ) -> Self {
        let report = &capture.report;
        let flavour = match report.is_mariadb {
            Some(true) => "MariaDB",
            Some(false) => "MySQL",
            None => UNKNOWN,
        };
        let archived = segments.iter().filter(|segment| !segment.is_local).count();
        let local_bytes =
            segments.iter().filter(|segment| segment.is_local).map(|segment| segment.bytes).sum();
        let newest = segments.iter().rev().take(SEGMENTS_MAX);
        let mut facts = vec![
            ("Follows", report.follows.clone().unwrap_or_else(|| capture.followed.server.clone())),
            ("Flavour", flavour.to_owned()),
            ("Durable up to", report.durable.clone()),
            ("Written since the start", bytes(capture.event_bytes_total)),
            ("Transactions since the start", grouped(capture.transactions_total)),
            ("ACKs since the start", grouped(capture.acks_total)),
            ("Streams opened", grouped(capture.connections_total)),
            ("server_id", capture.server_id.to_string()),
            ("Heartbeat", since_ms(Some(capture.heartbeat_ms))),
        ];
        facts.extend(semi_sync_facts(capture));
        facts.extend(sync_facts(&capture.log.sync_counts));
        let reader = |reader: &LogReaderSnapshot| {
            let behind = match reader.behind_bytes {
                0 => "nothing".to_owned(),
                behind => bytes(behind),
            };
            (reader.name.clone(), behind)
        };
        Self {
            frame,
            source: SourceRow::new(status, snapshot),
            facts,
            readers: capture.log.readers.iter().map(reader).collect(),
            alarms: capture.alarms.iter().map(|alarm| (alarm.code.to_owned(), alarm.text.clone())).collect(),
            gtids: report.gtids.clone().unwrap_or_else(|| "the log is empty".to_owned()),
            archive: capture.log.archive.as_ref().map(ArchivePanel::new),
            segments_note: segments_note(segments.len(), archived, local_bytes),
            segments: newest.map(segment_row).collect(),
            charts: source_charts(&report.source),
        }
    }
}

impl ArchivePanel {
    fn new(archive: &LogArchiveSnapshot) -> Self {
        let is_waiting = archive.waiting.is_some_and(|waiting| waiting.segments > 0);
        let (state, health) = match (&archive.problem, archive.current, archive.waiting) {
            (Some(problem), ..) => {
                (format!("fails since {}, and tries again", local_time(problem.since_ms)), Health::Failed)
            }
            (None, Some(_), _) => ("archives a segment".to_owned(), Health::Well),
            (None, None, None) => ("has not looked for segments yet".to_owned(), Health::Unknown),
            (None, None, Some(_)) if is_waiting => ("continues soon".to_owned(), Health::Well),
            (None, None, Some(_)) => ("every complete segment is archived".to_owned(), Health::Well),
        };
        let waiting = archive.waiting.map_or_else(
            || UNKNOWN.to_owned(),
            |waiting| format!("{}, {}", counted(waiting.segments, "segment"), bytes(waiting.bytes)),
        );
        let mut facts = vec![("Waiting", waiting)];
        let LogArchiveSnapshot { segments_total, bytes_total, compressed_bytes_total, .. } = archive;
        let archived = format!(
            "{}, {} as {}",
            counted(*segments_total, "segment"),
            bytes(*bytes_total),
            bytes(*compressed_bytes_total)
        );
        facts.push(("Archived since the start", archived));
        let complete = archive.complete_ms.map_or_else(|| UNKNOWN.to_owned(), local_time);
        facts.push(("Complete at", complete));
        let current = archive.current.map(|current| {
            let step = if current.is_read_back { "reads segment" } else { "uploads segment" };
            let back = if current.is_read_back { " back" } else { "" };
            let percent = current.bytes.saturating_mul(100).checked_div(current.bytes_total).unwrap_or(0);
            (format!("{step} {}{back}", current.segment), percent.min(100))
        });
        Self {
            address: archive.address.clone(),
            state,
            health,
            facts,
            current,
            problem: archive.problem.as_ref().map(|problem| (problem.code.clone(), problem.text.clone())),
        }
    }
}

/// The state of the source's semi-sync; empty without semi-sync, and before its first check.
fn semi_sync_facts(capture: &CaptureSnapshot) -> Vec<(&'static str, String)> {
    let Some(ackers) = &capture.ackers else { return Vec::new() };
    vec![
        ("Ackers of the server", format!("{} connected, {} needed", ackers.connected, ackers.needed)),
        ("Commits that wait for ACKs", grouped(ackers.waiting_commits)),
        ("Commits without an ACK", grouped(capture.commits_without_ack_total)),
    ]
}

/// How long the syncs to the disk took. `counts` has the upper bound of each duration, in seconds, and how
/// many syncs had it.
fn sync_facts(counts: &[(Option<f64>, u64)]) -> Vec<(&'static str, String)> {
    let all: u64 = counts.iter().map(|(_, count)| count).sum();
    if all == 0 {
        return vec![("Syncs since the start", "0".to_owned())];
    }
    let within = |percent: u64| {
        let mut seen = 0;
        let bound = counts.iter().find(|(_, count)| {
            seen += count;
            seen * 100 >= all * percent
        });
        match bound.and_then(|(bound, _)| *bound) {
            Some(seconds) => format!("within {} ms", seconds * 1000.0),
            None => {
                let longest = counts.iter().rev().find_map(|(bound, _)| *bound).unwrap_or_default();
                format!("longer than {} ms", longest * 1000.0)
            }
        }
    };
    vec![
        ("Syncs since the start", grouped(all)),
        ("Half of the syncs", within(50)),
        ("99 % of the syncs", within(99)),
    ]
}

fn segments_note(all: usize, archived: usize, local_bytes: u64) -> String {
    let shown =
        if all > SEGMENTS_MAX { format!("The newest {SEGMENTS_MAX} of {all}. ") } else { String::new() };
    let archive = match archived {
        0 => String::new(),
        archived => format!(" {archived} older ones are only in the archive."),
    };
    format!("{shown}{} on this machine, {}.{archive}", all - archived, bytes(local_bytes))
}

fn segment_row(segment: &SegmentSnapshot) -> SegmentRow {
    SegmentRow {
        number: segment.number,
        source_file: match segment.source_offset {
            4 => segment.source_file.clone(),
            offset => format!("{} from {offset}", segment.source_file),
        },
        size: bytes(segment.bytes),
        server: format!("{} (server_id {})", segment.server_version, segment.server_id),
        epoch: segment.epoch,
        state: match (segment.is_local, segment.is_sealed) {
            (false, _) => "archived",
            (true, true) => "complete",
            (true, false) => "being written",
        },
    }
}

#[cfg(test)]
mod tests {
    use tailwater_daemon::api::captures::{ArchiveProblem, ArchivingSegment, WaitingSegments};

    use super::*;

    #[test]
    fn the_archive_tells_what_it_does_and_what_fails() {
        let none = LogArchiveSnapshot::default();
        assert_eq!(ArchivePanel::new(&none).health, Health::Unknown);
        let current = ArchivingSegment { segment: 7, is_read_back: true, bytes: 50, bytes_total: 200 };
        let waiting = Some(WaitingSegments { segments: 1, bytes: 200 });
        let busy = LogArchiveSnapshot { waiting, current: Some(current), ..none };
        let panel = ArchivePanel::new(&busy);
        assert_eq!(panel.current, Some(("reads segment 7 back".to_owned(), 25)));
        assert_eq!(panel.facts[0].1, "1 segment, 200 B");
        let problem = ArchiveProblem { code: "TW-LOG-0014".into(), text: "denied".into(), since_ms: 0 };
        let failing =
            ArchivePanel::new(&LogArchiveSnapshot { current: None, problem: Some(problem), ..busy });
        assert!(failing.health == Health::Failed && failing.state.starts_with("fails since"), "{failing:?}");
        assert_eq!(failing.problem, Some(("TW-LOG-0014".to_owned(), "denied".to_owned())));
        let waiting = Some(WaitingSegments::default());
        let idle = LogArchiveSnapshot { waiting, ..LogArchiveSnapshot::default() };
        assert_eq!(ArchivePanel::new(&idle).state, "every complete segment is archived");
    }

    #[test]
    fn the_durations_of_syncs_are_bounds() {
        let texts = |counts: &[(Option<f64>, u64)]| {
            sync_facts(counts).into_iter().map(|(_, text)| text).collect::<Vec<_>>()
        };
        let counts = [(Some(0.001), 60), (Some(0.01), 38), (Some(0.1), 1), (None, 1)];
        assert_eq!(texts(&counts), ["100", "within 1 ms", "within 100 ms"]);
        assert_eq!(texts(&[(Some(0.001), 0), (None, 3)]), ["3", "longer than 1 ms", "longer than 1 ms"]);
        assert_eq!(texts(&[(Some(0.001), 0), (None, 0)]), ["0"]);
    }
}
