//! States of a daemon for the tests of the model and of the screens.

use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use serde_json::{Value, json};
use tailwater_daemon::api::channels::{ChannelFault, ChannelState, ChannelStatus, WorkerState, WorkerStatus};
use tailwater_daemon::api::jobs::Job;

use crate::daemon_answer::DaemonAnswer;
use crate::model::Moment;

/// The moment that many milliseconds after the start.
pub fn at(ms: u64) -> Moment {
    let start: DateTime<FixedOffset> = "2026-03-04T05:06:07+01:00".parse().expect("a time");
    let elapsed = Duration::from_millis(ms);
    Moment { elapsed, wall: start + elapsed }
}

fn status(value: Value) -> DaemonAnswer {
    let status = serde_json::from_value(value).expect("a status");
    DaemonAnswer { status, counters: Default::default(), jobs: Vec::new() }
}

fn capture(source: &str, transactions: u64, bytes: u64) -> Value {
    json!({
        "report": { "source": source }, "transactions_total": transactions, "event_bytes_total": bytes,
        "commits_without_ack_total": 0, "ackers": { "connected": 2, "needed": 1, "waiting_commits": 0 },
        "log": { "readers": [{ "name": "replica 11", "behind_bytes": 2048 }] },
    })
}

/// A daemon with a source, a reader, a channel and a cluster, in which nothing is wrong, after it has
/// captured and applied that many transactions.
pub fn healthy(uptime_seconds: u64, transactions: u64) -> DaemonAnswer {
    let server = |name: &str, role: &str, reads_from: Value| {
        json!({
            "name": name, "role": role, "address": format!("{name}:3306"), "reads_from": reads_from,
            "reached": true, "writable": role == "primary", "lag_seconds": 0.2, "behind_transactions": 0,
        })
    };
    let guard = json!({ "is_paused": false, "downtimes": [], "last_failover_ms": null });
    let report = json!({
        "source": "orders", "primary": "db1", "lease": "held, lease term 3", "automatic": true, "now_ms": 9_000,
        "guard_is_known": true, "guard": guard, "findings": [], "waits_after_restart": null,
        "readiness": { "state": "ready", "server": "db2" }, "lossless": null,
        "run": "20260304-050000", "run_end": "finished: db1 is the primary\n",
    });
    let mut state = status(json!({
        "ok": true, "version": "0.1.0", "uptime_seconds": uptime_seconds,
        "log_disk": {
            "directory": "/var/lib/tailwater/log", "problem": null,
            "space": { "total_bytes": 1_u64 << 37, "free_bytes": 1_u64 << 36, "log_bytes": 1_u64 << 31 },
        },
        "sources": [{
            "source": "orders", "server": "db1", "state": "streaming", "activity": "", "gtids": null,
            "durable": "12:48213344", "behind_transactions": 0, "heard_ago_ms": 120, "semi_sync_in_force": true,
        }],
        "binlog_servers": [{ "source": "orders", "listen": "0.0.0.0:3307", "readers": [
            { "name": "db2", "server_id": 11, "peer": "10.0.0.2:50312", "sent": "binlog.000012:48213344" },
        ] }],
        "channels": [],
        "clusters": [{
            "source": "orders", "primary": "db1", "manager": { "holds_lease": true, "report": report },
            "servers": [server("db1", "primary", Value::Null), server("db2", "replica", json!("tailwater"))],
        }],
        "problems": [],
    }));
    let worker = WorkerStatus {
        state: WorkerState::WaitingForBatch,
        batch_transactions: 40,
        batch_seconds: 0.02,
        busy_seconds_total: transactions as f64 / 1e4,
        transactions_total: transactions,
        conflicts_total: 3,
    };
    state.status.channels.push(ChannelStatus {
        name: "reports".into(),
        state: ChannelState::Running,
        lag_seconds: Some(0.4),
        transactions_total: transactions,
        rows_total: transactions * 4,
        workers: 4,
        worker_states: vec![worker, WorkerStatus::default()],
        waiting_transactions: 25,
        buffered_bytes: 1 << 20,
        newest_gtid: "0-1-4711".into(),
        ..ChannelStatus::default()
    });
    let counters = json!({
        "captures": [capture("orders", transactions, transactions * 1024)],
        "channels": [{ "source": "orders", "status": { "name": "reports" } }],
        "log_disk": { "space": null, "full_in_seconds": 12_000.0 },
    });
    state.counters = serde_json::from_value(counters).expect("counters");
    state
}

/// A job that started a minute before [`at`] 0, in which these fields are different.
pub fn job(id: u64, different: Value) -> Job {
    let mut job = json!({
        "id": id, "kind": "check", "subject": "db2:3306 with db1:3306", "origin": "command_line", "user": "anna",
        "process": { "pid": 4711, "start_ticks": null }, "can_cancel": true, "state": "running",
        "progress": { "phase": "checking", "rows": 4_412_000, "rows_total": 14_200_311, "eta_ms": 192_000,
            "rows_per_second": 51_000 },
        "cancellation": null, "code": null, "message": null, "found": null,
        "started_ms": at(0).wall.timestamp_millis() - 60_000, "reported_ms": 0, "ended_ms": null,
    });
    for (name, value) in different.as_object().into_iter().flatten() {
        job[name] = value.clone();
    }
    serde_json::from_value(job).expect("a job")
}

/// A daemon with many objects, long names, and a problem of each of them.
pub fn crowded() -> DaemonAnswer {
    let long = "n".repeat(64);
    let mut state = healthy(90_061, 18_000_000_000);
    let status = &mut state.status;
    status.ok = false;
    for number in 0..60 {
        let mut source = status.sources[0].clone();
        source.source = format!("{number}-{long}");
        source.state = "stopped_by_order".into();
        source.durable = "123456:107374182400".into();
        source.semi_sync_in_force = Some(false);
        (source.heard_ago_ms, source.behind_transactions) = (Some(u64::MAX), Some(u64::MAX));
        status.sources.push(source);
        status.channels.push(ChannelStatus {
            name: format!("{number}-{long}"),
            state: ChannelState::Failed,
            lag_seconds: Some(1e9),
            workers: 64,
            fault: Some(ChannelFault {
                code: "TW-APP-0002".into(),
                message: format!("transaction 0-1-{number}: error 1062:\n\u{1b}[2J {}", "word ".repeat(60)),
                has_detail: false,
                detail: None,
            }),
            ..ChannelStatus::default()
        });
        let mut cluster = status.clusters[0].clone();
        cluster.source = format!("{number}-{long}");
        cluster.servers[1].name = format!("server-{number}-{long}");
        cluster.servers[1].reached = false;
        status.clusters.push(cluster);
        let problem = json!({
            "object": format!("channel {number}-{long}"), "code": "TW-APP-0002",
            "text": format!("\u{1b}[2J 日本語 {} {}", "word ".repeat(60), "g".repeat(200)),
            "remedy": "fix the cause ".repeat(30),
        });
        status.problems.push(serde_json::from_value(problem).expect("a problem"));
        state.jobs.push(job(
            number,
            json!({
                "state": "failed", "code": "TW-BULK-0001", "user": long, "subject": format!("日本語 {long}"),
                "message": format!("\u{1b}[2J {}", "word ".repeat(100)), "ended_ms": u64::MAX,
                "progress": { "phase": long, "rows": u64::MAX },
            }),
        ));
    }
    state
}
