//! Formats the status of a daemon in 80 columns.

use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets};
use indicatif::BinaryBytes;
use tailwater_daemon::api::channels::{ChannelState, ChannelStatus};
use tailwater_daemon::api::clusters::ManagerSnapshot;
use tailwater_daemon::api::daemon_status::{
    BinlogServerStatus, ClusterServer, ClusterStatus, DaemonStatus, LogDiskStatus, SourceStatus,
    StatusProblem,
};
use tailwater_daemon::api::prefetches::PrefetchSnapshot;
use tailwater_wire::printable;

use super::manager::write_guard;
use super::text_style::TextStyle;

/// Width of the output, in characters.
const COLUMNS: u16 = 80;

/// Returns the whole text of the status. Its last line says whether something is wrong.
pub(super) fn status_text(status: &DaemonStatus, style: TextStyle) -> String {
    let uptime = humantime::format_duration(Duration::from_secs(status.uptime_seconds));
    let first = format!("Tailwater {}, running for {uptime}", status.version);
    let mut text = format!("{}\n{}\n", style.bold(&first), wrapped(&disk_text(&status.log_disk), ""));
    text.push_str(&sources_text(&status.sources, style));
    if !status.binlog_servers.is_empty() {
        text.push_str(&binlog_servers_text(&status.binlog_servers, style));
    }
    if !status.channels.is_empty() {
        text.push_str(&channels_text(&status.channels, style));
    }
    if !status.prefetches.is_empty() {
        text.push_str(&prefetches_text(&status.prefetches, style));
    }
    for cluster in &status.clusters {
        text.push_str(&cluster_text(cluster, style));
    }
    text.push_str(&problems_text(&status.problems, style));
    text
}

/// Returns the text in lines of at most [`COLUMNS`] characters, each with the indent.
fn wrapped(text: &str, indent: &str) -> String {
    let options = textwrap::Options::new(COLUMNS.into()).initial_indent(indent).subsequent_indent(indent);
    textwrap::fill(&printable(text), options)
}

/// Returns an empty line and a table with a header. Cells that are too long are wrapped.
fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>, style: TextStyle) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(COLUMNS).set_header(header);
    for row in rows {
        table.add_row(row.iter().map(|cell| printable(cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let text = table.trim_fmt();
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    format!("\n{}\n{rest}\n", style.bold(first))
}

fn disk_text(disk: &LogDiskStatus) -> String {
    let LogDiskStatus { directory, space, problem } = disk;
    match (space, problem) {
        (Some(space), _) => format!(
            "log in {directory}: {}, {} of {} free",
            BinaryBytes(space.log_bytes),
            BinaryBytes(space.free_bytes),
            BinaryBytes(space.total_bytes)
        ),
        (None, problem) => {
            format!("log in {directory}: space not known: {}", problem.as_deref().unwrap_or("no log"))
        }
    }
}

fn sources_text(sources: &[SourceStatus], style: TextStyle) -> String {
    let rows = sources.iter().map(|source| {
        vec![
            source.source.clone(),
            source.server.clone(),
            source.state.replace('_', " "),
            source.durable.clone(),
            source.behind_transactions.map_or_else(|| "-".to_owned(), behind_text),
            source.heard_ago_ms.map_or_else(|| "never".to_owned(), |ago_ms| seconds(ago_ms as f64 / 1e3)),
            match source.semi_sync_in_force {
                Some(true) => "in force",
                Some(false) => "not in force",
                None => "off",
            }
            .to_owned(),
        ]
    });
    let header = ["SOURCE", "SERVER", "CAPTURE", "DURABLE", "BEHIND", "HEARD", "SEMI-SYNC"];
    table(&header, rows, style)
}

fn binlog_servers_text(servers: &[BinlogServerStatus], style: TextStyle) -> String {
    let rows = servers.iter().flat_map(|server| {
        let row = |reader: &str, peer: &str, sent: &str| {
            [server.listen.as_str(), &server.source, reader, peer, sent].map(str::to_owned).to_vec()
        };
        if server.readers.is_empty() {
            return vec![row("none", "", "")];
        }
        let readers = server.readers.iter().map(|reader| {
            let name = match (&reader.name, reader.server_id) {
                (Some(name), _) => name.clone(),
                (None, 0) => "a program".to_owned(),
                (None, id) => format!("server_id {id}"),
            };
            row(&name, &reader.peer, &reader.sent)
        });
        readers.collect()
    });
    table(&["BINLOG SERVER", "SOURCE", "READER", "FROM", "SENT TO"], rows, style)
}

fn channels_text(channels: &[ChannelStatus], style: TextStyle) -> String {
    let rows = channels.iter().map(|channel| {
        let state = match channel.state {
            ChannelState::Connecting => "connecting",
            ChannelState::Running => "running",
            ChannelState::Stopped => "stopped",
            ChannelState::Failed => "failed",
        };
        vec![
            channel.name.clone(),
            state.to_owned(),
            channel.lag_seconds.map_or_else(|| "-".to_owned(), seconds),
            format!("{:.0}", channel.transactions_per_second),
            channel.transactions_total.to_string(),
            channel.fault.as_ref().map(|fault| fault.code.clone()).unwrap_or_default(),
        ]
    });
    table(&["CHANNEL", "STATE", "LAG", "TRX/S", "APPLIED", "ERROR"], rows, style)
}

fn prefetches_text(prefetches: &[PrefetchSnapshot], style: TextStyle) -> String {
    let rows = prefetches.iter().map(|prefetch| {
        let figures = &prefetch.figures;
        vec![
            prefetch.name.clone(),
            figures.state.replace('_', " "),
            format!("{} s, {}", figures.seconds_ahead, BinaryBytes(figures.bytes_ahead)),
            figures.keys.to_string(),
            figures.hit_ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.0} %", ratio * 100.0)),
            figures.gain.map_or_else(|| "-".to_owned(), |gain| format!("{gain:.2}")),
        ]
    });
    table(&["PREFETCH", "STATE", "AHEAD", "KEYS", "IN TIME", "GAIN"], rows, style)
}

fn cluster_text(cluster: &ClusterStatus, style: TextStyle) -> String {
    let mut text = String::from("\n");
    let mut line = |line: &str, indent: &str| {
        text.push_str(&wrapped(line, indent));
        text.push('\n');
    };
    line(&format!("CLUSTER {}: primary {}; {}", cluster.source, cluster.primary, mode_text(cluster)), "");
    if let Some(ManagerSnapshot { report, .. }) = &cluster.manager {
        line(&format!("failover: {}", report.readiness), "  ");
        let mut guard = String::new();
        write_guard(&mut guard, report);
        guard.lines().for_each(|one| line(one.trim_start(), "  "));
        if let (Some(run), None) = (&report.run, &report.run_end) {
            line(&format!("under way: {run}"), "  ");
        }
    }
    let (first, rest) = text.trim_start().split_once('\n').unwrap_or_default();
    let rows = cluster.servers.iter().map(server_row);
    let servers = table(&["SERVER", "ROLE", "READS FROM", "LAG", "STATE"], rows, TextStyle::Plain);
    format!("\n{}\n{rest}{}", style.bold(first), servers.trim_start_matches('\n'))
}

fn mode_text(cluster: &ClusterStatus) -> String {
    match &cluster.manager {
        None => "no manager".to_owned(),
        Some(ManagerSnapshot { report, .. }) => {
            let mode = if report.automatic { "automatic" } else { "manual" };
            format!("{mode} failover; lease {}", report.lease)
        }
    }
}

fn server_row(server: &ClusterServer) -> Vec<String> {
    let mut state = Vec::new();
    if !server.reached && server.role != "seen" {
        state.push("no answer".to_owned());
    }
    match (server.role.as_str(), server.writable) {
        ("primary" | "replica", Some(true)) => state.push("writable".to_owned()),
        ("primary" | "replica", Some(false)) => state.push("read-only".to_owned()),
        _ => {}
    }
    state.extend(server.behind_transactions.map(behind_text));
    vec![
        server.name.clone(),
        server.role.clone(),
        server.reads_from.clone().unwrap_or_else(|| "-".to_owned()),
        server.lag_seconds.map_or_else(|| "-".to_owned(), seconds),
        state.join(", "),
    ]
}

fn problems_text(problems: &[StatusProblem], style: TextStyle) -> String {
    let mut text = String::from("\n");
    for problem in problems {
        let StatusProblem { object, code, text: cause, remedy } = problem;
        let told = wrapped(&format!("! {object}: {code}: {cause}"), "");
        text.push_str(&told.lines().map(|line| format!("{}\n", style.red(line))).collect::<String>());
        text.push_str(&wrapped(&format!("what to do: {remedy}"), "  "));
        text.push('\n');
    }
    let last = match problems.len() {
        0 => style.green("all is well"),
        1 => style.red("1 problem"),
        count => style.red(&format!("{count} problems")),
    };
    format!("{text}{last}\n")
}

fn behind_text(transactions: u64) -> String {
    match transactions {
        0 => "in step".to_owned(),
        count => format!("{count} behind"),
    }
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.1} s")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns a status in which every text has the greatest possible length.
    fn crowded() -> DaemonStatus {
        let long = "n".repeat(64);
        let status = json!({
            "ok": false, "version": "0.1.0", "uptime_seconds": 90_061,
            "log_disk": {
                "directory": format!("/var/lib/{long}"),
                "space": { "total_bytes": 1_u64 << 41, "free_bytes": 1_u64 << 40, "log_bytes": 1_u64 << 39 },
                "problem": null,
            },
            "sources": [{
                "source": long, "server": long, "state": "stopped_by_order", "activity": "", "gtids": null,
                "durable": "123456:107374182400", "behind_transactions": 18_446_744_073_709_551_615_u64,
                "heard_ago_ms": 123_456_789, "semi_sync_in_force": false,
            }],
            "binlog_servers": [
                { "source": long, "listen": "0.0.0.0:3307", "readers": [
                    { "name": long, "server_id": 11, "peer": "[2001:db8:85a3:8d3:1319:8a2e:370:7348]:50312",
                      "sent": format!("{long}.000012:48213344") },
                    { "name": null, "server_id": 12, "peer": "10.0.0.2:1", "sent": "b.000001:4" },
                    { "name": null, "server_id": 0, "peer": "10.0.0.3:1", "sent": "b.000001:4" },
                ] },
                { "source": "stock", "listen": "0.0.0.0:3308", "readers": [] },
            ],
            "channels": [],
            "clusters": [{
                "source": long, "primary": long, "manager": null,
                "servers": [{
                    "name": long, "role": "replica", "address": "", "reads_from": long, "reached": true,
                    "writable": false, "lag_seconds": 0.0, "behind_transactions": 0,
                }],
            }],
            "problems": [{
                "object": format!("server {long}"), "code": "ReplicaStopped",
                "text": format!("error 1062: {} {}\n\u{1b}[2J", "word ".repeat(60), "g".repeat(200)),
                "remedy": "start it ".repeat(30),
            }],
        });
        let mut status: DaemonStatus = serde_json::from_value(status).expect("a status");
        status.channels.push(ChannelStatus {
            name: long,
            lag_seconds: Some(1e9),
            ..ChannelStatus::default()
        });
        status
    }

    #[test]
    fn no_line_is_wider_than_80_columns() {
        let text = status_text(&crowded(), TextStyle::Plain);
        for line in text.lines() {
            assert!(
                line.chars().count() <= 80,
                "a line has {} characters: {line}\n{text}",
                line.chars().count()
            );
            assert!(line.chars().all(|c| !c.is_control()), "a line has a control character: {line:?}");
        }
        assert!(
            text.ends_with("\n1 problem\n"),
            "the last line does not give the number of problems: {text}"
        );
        for shown in ["running for 1day 1h 1m 1s", "a program", "server_id 12", "none", "ReplicaStopped"] {
            assert!(text.contains(shown), "the text does not contain {shown:?}: {text}");
        }
    }

    #[test]
    fn colours_do_not_change_the_text() {
        let coloured = status_text(&crowded(), TextStyle::Colours);
        assert!(
            coloured.contains("\x1b[31m1 problem\x1b[0m"),
            "the number of problems is not red: {coloured}"
        );
        let mut plain = coloured;
        for code in ["\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m"] {
            plain = plain.replace(code, "");
        }
        assert_eq!(plain, status_text(&crowded(), TextStyle::Plain));
    }

    #[test]
    fn the_last_line_says_that_all_is_well() {
        let status = DaemonStatus { ok: true, problems: Vec::new(), ..crowded() };
        assert!(status_text(&status, TextStyle::Plain).ends_with("\n\nall is well\n"));
    }
}
