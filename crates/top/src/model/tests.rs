use std::time::Duration;

use serde_json::json;
use tailwater_daemon::api::captures::{
    CaptureLogSnapshot, CaptureSnapshot, FollowedServer, LogReaderSnapshot, SemiSyncAckers, SourceReport,
};
use tailwater_daemon::api::channels::{ChannelSnapshot, ChannelStatus};
use tailwater_daemon::api::daemon_snapshot::DaemonSnapshot;

use super::*;
use crate::daemon_answer::DaemonCounters;
use crate::test_daemon_states::{at, healthy};

const SECOND: Duration = Duration::from_secs(1);

fn model() -> AnswerHistory {
    AnswerHistory::new(at(0), SECOND)
}

#[test]
fn rates_come_from_two_answers() {
    let mut model = model();
    model.accept(at(100), healthy(10, 1_000));
    assert_eq!(model.source_rates("orders"), Rates::default());
    // 500 transactions in two seconds.
    model.accept(at(2_100), healthy(12, 1_500));
    let source = model.source_rates("orders");
    assert_eq!((source.transactions, source.bytes, source.rows), (Some(250.0), Some(256_000.0), Some(0.0)));
    let channel = model.channel_rates("reports");
    assert_eq!((channel.transactions, channel.rows), (Some(250.0), Some(1_000.0)));
    // The worker had a batch for 0.05 of two seconds.
    let busy = model.worker_busy("reports", 0).expect("the share of the time");
    assert!((busy - 0.025).abs() < 1e-9, "the worker was busy for another share of the time: {busy}");
    assert_eq!((model.worker_busy("reports", 2), model.worker_busy("other", 0)), (None, None));
    assert_eq!(model.source_rates("other"), Rates::default());
}

#[test]
fn a_restart_of_the_daemon_gives_no_rates() {
    let mut model = model();
    model.accept(at(0), healthy(500, 1_000));
    // The counters are higher than before, but count from another start.
    model.accept(at(1_000), healthy(1, 5_000));
    assert_eq!(model.source_rates("orders").transactions, None);
    model.accept(at(2_000), healthy(2, 5_010));
    assert_eq!(model.source_rates("orders").transactions, Some(10.0));
    // A channel that starts again counts from zero.
    model.accept(at(3_000), healthy(3, 7));
    assert_eq!(model.channel_rates("reports").transactions, None);
    assert_eq!(model.worker_busy("reports", 0), None);
}

#[test]
fn a_daemon_that_does_not_answer_is_silent_since_its_last_answer() {
    let mut model = model();
    assert_eq!(model.answer_state(at(2_900)), AnswerState::Starting);
    let never = AnswerState::Silent { since: at(0), has_answered: false, error: None };
    assert_eq!(model.answer_state(at(3_100)), never);
    model.accept(at(5_000), healthy(10, 0));
    assert_eq!(model.answer_state(at(8_000)), AnswerState::Answering);
    let hangs = AnswerState::Silent { since: at(5_000), has_answered: true, error: None };
    assert_eq!(model.answer_state(at(8_100)), hangs);
    model.reject("no daemon".into());
    let refused =
        AnswerState::Silent { since: at(5_000), has_answered: true, error: Some("no daemon".into()) };
    assert_eq!(model.answer_state(at(5_100)), refused, "an error is shown at once");
    model.accept(at(9_000), healthy(1, 0));
    assert_eq!(model.answer_state(at(9_100)), AnswerState::Answering);
    // With a longer interval, an answer may be older.
    let mut slow = AnswerHistory::new(at(0), SECOND * 10);
    slow.accept(at(0), healthy(10, 0));
    assert_eq!(slow.answer_state(at(20_900)), AnswerState::Answering);
}

#[test]
fn trends_follow_the_objects_that_exist() {
    let mut model = model();
    let shown = |model: &AnswerHistory| -> Vec<String> {
        model
            .series()
            .map(|(kind, object, series)| format!("{kind:?} {object} {:?}", series.newest()))
            .collect()
    };
    model.accept(at(0), healthy(10, 0));
    model.accept(at(1_000), healthy(11, 8));
    assert_eq!(
        shown(&model),
        [
            "SourceBytes orders Some(8192.0)",
            "SourceTransactions orders Some(8.0)",
            "ChannelTransactions reports Some(8.0)",
            "ChannelRows reports Some(32.0)",
            "ChannelLag reports Some(0.4)",
            "ServerLag db2 Some(0.2)",
        ]
    );
    let mut without = healthy(12, 8);
    without.status.channels.clear();
    without.status.clusters.clear();
    model.accept(at(2_000), without);
    assert_eq!(shown(&model), ["SourceBytes orders Some(0.0)", "SourceTransactions orders Some(0.0)"]);
}

#[test]
fn columns_have_the_highest_value_and_gaps() {
    let mut series = Series::new(SECOND * 3);
    let minute = SECOND * 60;
    for (second, value) in [(50, Some(5.0)), (51, Some(9.0)), (52, None), (58, Some(3.0)), (60, Some(1.0))] {
        series.push(SECOND * second, value);
    }
    let ten = series.columns(minute, minute, 12);
    assert_eq!(ten[..9], [None; 9]);
    assert_eq!(ten[9..], [Some(5.0), Some(9.0), Some(3.0)]);
    // The value after a gap does not fill the gap; a value fills the time since the one before it.
    let half_seconds = series.columns(minute, SECOND * 12, 24);
    let numbers: Vec<_> = half_seconds.iter().map(|value| value.unwrap_or(0.0) as u64).collect();
    assert_eq!(numbers, [0, 0, 0, 5, 9, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 1, 1, 1, 1]);
    assert_eq!(series.highest(minute, SECOND * 5), Some(3.0));
    assert_eq!((series.highest(minute, minute), series.newest()), (Some(9.0), Some(1.0)));
    // No width and no time is no division by zero.
    assert_eq!(series.columns(minute, Duration::ZERO, 0), []);
    series.push(SECOND * 10_000, Some(2.0));
    assert_eq!(series.highest(SECOND * 10_000, SECOND * 10_000), Some(2.0), "old values are removed");
}

/// The names of the fields are those of the daemon's own types.
#[test]
fn the_counters_are_read_from_a_snapshot_of_the_daemon() {
    let report = json!({
        "source": "orders", "is_streaming": true, "doing": "", "heard_ago_ms": 5, "is_mariadb": true,
        "gtids": null, "durable": "1:4", "alarms": [], "readers": [],
    });
    let report: SourceReport = serde_json::from_value(report).expect("a report");
    let reader = LogReaderSnapshot { name: "replica 11".into(), behind_bytes: 77 };
    let capture = CaptureSnapshot {
        report,
        state: "streaming",
        followed: FollowedServer { server: "db1".into(), withheld: None },
        server_id: 1,
        semi_sync: true,
        semi_sync_in_force: Some(true),
        alarms: Vec::new(),
        fault_code: None,
        ackers: Some(SemiSyncAckers { connected: 2, needed: 1, waiting_commits: 0 }),
        commits_without_ack_total: 3,
        log: CaptureLogSnapshot { readers: vec![reader], ..CaptureLogSnapshot::default() },
        heartbeat_ms: 250,
        transactions_total: 40,
        event_bytes_total: 4_000,
        acks_total: 40,
        connections_total: 1,
        durable_segment: 1,
        durable_offset: 4,
    };
    let status = ChannelStatus { name: "reports".into(), ..ChannelStatus::default() };
    let snapshot = DaemonSnapshot {
        captures: vec![capture],
        channels: vec![ChannelSnapshot { source: "orders".into(), status }],
        ..DaemonSnapshot::default()
    };
    let json = serde_json::to_string(&snapshot).expect("JSON");
    let counters: DaemonCounters = serde_json::from_str(&json).expect("the counters");
    let state = DaemonAnswer { counters, ..healthy(1, 0) };
    let capture = state.capture("orders").expect("the capture");
    assert_eq!((capture.transactions_total, capture.event_bytes_total), (40, 4_000));
    assert_eq!(capture.commits_without_ack_total, 3);
    assert_eq!(capture.ackers.map(|ackers| (ackers.connected, ackers.needed)), Some((2, 1)));
    assert_eq!(capture.log.readers[0].behind_bytes, 77);
    assert_eq!((state.source_of_channel("reports"), state.source_of_channel("other")), ("orders", ""));
}
