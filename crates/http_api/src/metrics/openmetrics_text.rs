//! Writes the values of a scrape as OpenMetrics text.
//!
//! A metric family without samples is left out. An unknown value has no sample, so that no alert takes it for
//! 0.

use std::collections::BTreeSet;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeMetric, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tailwater_manager::FailoverReadiness;
use tailwater_topology::{NodeRole, TopologyNode};

use super::metric_families::*;
use tailwater_daemon::api::captures::{CAPTURE_STATES, CaptureLogSnapshot, CaptureSnapshot};
use tailwater_daemon::api::channels::{ChannelSnapshot, ChannelState};
use tailwater_daemon::api::clusters::{
    ClusterReport, ClusterSnapshot, ClusterView, LeaseState, ManagerSnapshot,
};
use tailwater_daemon::api::daemon_snapshot::DaemonSnapshot;
use tailwater_daemon::api::prefetches::{PREFETCH_STATES, PrefetchStatus};

/// The media type of the text: OpenMetrics 1.0.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Writes the metrics of a snapshot as text.
///
/// # Errors
/// If the encoder refuses a value, for example an integer gauge above the maximum of `i64`.
pub fn render(snapshot: DaemonSnapshot) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(MetricsCollector(snapshot)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Collects the metrics of a snapshot. Their labels contain only names and codes: no GTID, no value of a row,
/// no statement and no text of a server.
#[derive(Debug)]
struct MetricsCollector(DaemonSnapshot);

impl Collector for MetricsCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = FamilyWriter(encoder);
        families.version()?;
        self.manager_decisions(&mut families)?;
        self.manager_guards(&mut families)?;
        self.capture_states(&mut families)?;
        self.capture_totals(&mut families)?;
        self.logs(&mut families)?;
        self.log_disk(&mut families)?;
        self.channel_states(&mut families)?;
        self.channel_totals(&mut families)?;
        self.prefetches(&mut families)?;
        self.servers(&mut families)?;
        self.relays(&mut families)?;
        self.backups(&mut families)?;
        self.drift_checks(&mut families)
    }
}

impl MetricsCollector {
    fn managers(&self) -> impl Iterator<Item = &ManagerSnapshot> {
        self.0.clusters.iter().filter_map(|cluster| cluster.manager.as_ref())
    }

    fn reports(&self) -> impl Iterator<Item = &ClusterReport> {
        self.managers().map(|manager| &manager.report)
    }

    fn manager_decisions(&self, families: &mut FamilyWriter<'_>) -> fmt::Result {
        let leaders = self.managers().map(|one| ([one.report.source.as_str()], one.holds_lease));
        families.flags(&LEADER, leaders)?;
        let leases = self.reports().flat_map(|one| {
            let now = lease_state(&one.lease_state);
            LEASE_STATES.map(|state| ([one.source.as_str(), state], now == state))
        });
        families.flags(&LEASE, leases)?;
        let known = |report: &ClusterReport| !matches!(report.readiness, FailoverReadiness::Unknown { .. });
        families.flags(&READINESS_KNOWN, self.reports().map(|one| ([one.source.as_str()], known(one))))?;
        let ready = self.reports().filter(|one| known(one));
        let ready = ready.map(|one| ([one.source.as_str()], one.readiness.rule().is_none()));
        families.flags(&READY, ready)?;
        let refused =
            self.reports().filter_map(|one| Some(([one.source.as_str(), one.readiness.rule()?], true)));
        families.flags(&REFUSED_BY, refused)?;
        // A set, because two samples with the same labels are not valid.
        let findings: BTreeSet<_> = self
            .reports()
            .flat_map(|one| {
                one.findings.iter().map(|finding| [one.source.as_str(), &finding.code, &finding.server])
            })
            .collect();
        families.flags(&FINDINGS, findings.into_iter().map(|labels| (labels, true)))
    }

    fn manager_guards(&self, families: &mut FamilyWriter<'_>) -> fmt::Result {
        families.flags(&AUTOMATIC, self.reports().map(|one| ([one.source.as_str()], one.automatic)))?;
        families.flags(&PAUSED, self.reports().map(|one| ([one.source.as_str()], one.guard.is_paused())))?;
        families
            .flags(&GUARD_KNOWN, self.reports().map(|one| ([one.source.as_str()], one.guard_is_known)))?;
        let unacknowledged =
            self.reports().map(|one| ([one.source.as_str()], one.guard.last_failover_ms().is_some()));
        families.flags(&UNACKNOWLEDGED, unacknowledged)?;
        let running =
            self.reports().map(|one| ([one.source.as_str()], one.run.is_some() && one.run_end.is_none()));
        families.flags(&RUN_IN_PROGRESS, running)?;
        let refusing = self.reports().map(|one| ([one.source.as_str()], one.refusing.len() as u64));
        families.gauge(&RELAYS_REFUSING, refusing)?;
        let storable = self.reports().map(|one| ([one.source.as_str()], one.records_problem.is_none()));
        families.flags(&RECORDS_STORABLE, storable)
    }

    fn capture_states(&self, families: &mut FamilyWriter<'_>) -> fmt::Result {
        let captures = &self.0.captures;
        let states = captures
            .iter()
            .flat_map(|one| CAPTURE_STATES.map(|state| ([source(one), state], one.state == state)));
        families.flags(&CAPTURE_STATE, states)?;
        let faults = captures.iter().filter_map(|one| Some(([source(one), one.fault_code?], true)));
        families.flags(&CAPTURE_FAULT, faults)?;
        let silences = captures.iter().filter_map(|one| {
            let silence = std::time::Duration::from_millis(one.report.heard_ago_ms?);
            Some(([source(one)], silence.as_secs_f64()))
        });
        families.gauge(&SILENCE, silences)?;
        let in_force = captures.iter().filter_map(|one| Some(([source(one)], one.semi_sync_in_force?)));
        families.flags(&IN_FORCE, in_force)?;
        let alarms: BTreeSet<_> = captures
            .iter()
            .flat_map(|one| one.alarms.iter().map(|alarm| [source(one), alarm.code]))
            .collect();
        families.flags(&ALARMS, alarms.into_iter().map(|labels| (labels, true)))?;
        let ackers = || captures.iter().filter_map(|one| Some(([source(one)], one.ackers?)));
        families.gauge(&ACKERS, ackers().map(|(labels, ackers)| (labels, u64::from(ackers.connected))))?;
        families.gauge(&ACKS_NEEDED, ackers().map(|(labels, ackers)| (labels, u64::from(ackers.needed))))?;
        families.gauge(&WAITING_COMMITS, ackers().map(|(labels, ackers)| (labels, ackers.waiting_commits)))
    }

    fn capture_totals(&self, families: &mut FamilyWriter<'_>) -> fmt::Result {
        let captures = &self.0.captures;
        let mut total = |family, value: fn(&CaptureSnapshot) -> u64| {
            families.counter(family, captures.iter().map(|one| ([source(one)], value(one))))
        };
        total(&WITHOUT_ACK, |one| one.commits_without_ack_total)?;
        total(&TRANSACTIONS, |one| one.transactions_total)?;
        total(&EVENT_BYTES, |one| one.event_bytes_total)?;
        total(&ACKS, |one| one.acks_total)?;
        total(&CONNECTIONS, |one| one.connections_total)
    }

    fn logs(&self, families: &mut FamilyWriter<'_>) -> fmt::Result {
        let captures = &self.0.captures;
        let mut gauge = |family, value: fn(&CaptureSnapshot) -> u64| {
            families.gauge(family, captures.iter().map(|one| ([source(one)], value(one))))
        };
        gauge(&DURABLE_SEGMENT, |one| one.durable_segment)?;
        gauge(&DURABLE_OFFSET, |one| one.durable_offset)?;
        gauge(&SEGMENTS, |one| one.log.segments)?;
        gauge(&SIZE, |one| one.log.bytes)?;
        gauge(&STREAMS, |one| one.report.readers.len() as u64)?;
        let archives = || captures.iter().filter_map(|one| Some((source(one), one.log.archive.as_ref()?)));
        let waiting = archives().filter_map(|(source, one)| Some(([source], one.waiting?.bytes)));
        families.gauge(&ARCHIVE_WAITING, waiting)?;
        let faults = archives()
            .filter_map(|(source, one)| Some(([source, one.problem.as_ref()?.code.as_str()], true)));
        families.flags(&ARCHIVE_FAULT, faults)?;
        families.write(&SYNCS, captures.iter().map(|one| ([source(one)], SyncHistogram(&one.log))))?;
        let behind = captures.iter().flat_map(|one| {
            let cluster = self.0.clusters.iter().find(|cluster| cluster.source == one.report.source);
            one.log.readers.iter().filter_map(move |reader| {
                Some(([source(one), reader_name(&reader.name, cluster)?], reader.behind_bytes))
            })
        });
        families.gauge(&READER_BEHIND, behind)
    }

    fn log_disk(&self, families: &mut FamilyWriter<'_>) -> fmt::Result {
        let disk = &self.0.log_disk;
        families.gauge(&DISK_FREE, disk.space.iter().map(|(_, free_bytes)| ([], *free_bytes)))?;
        families.gauge(&DISK_SIZE, disk.space.iter().map(|(size_bytes, _)| ([], *size_bytes)))?;
        families.gauge(&DISK_FULL_IN, disk.full_in_seconds.iter().map(|seconds| ([], *seconds)))
    }

    fn channel_states(&self, families: &mut FamilyWriter<'_>) -> fmt::Result {
        let channels = &self.0.channels;
        let states = channels.iter().flat_map(|one| {
            let ([channel, source], now) = (channel(one), channel_state(one.status.state));
            CHANNEL_STATES.map(|state| ([channel, source, state], now == state))
        });
        families.flags(&APPLY_STATE, states)?;
        let lags = channels.iter().filter_map(|one| Some((channel(one), one.status.lag_seconds?)));
        families.gauge(&APPLY_LAG, lags)?;
        families.gauge(&APPLY_DELAY, channels.iter().map(|one| (channel(one), one.status.delay_seconds)))?;
        let faults = channels.iter().filter_map(|one| {
            let [channel, source] = channel(one);
            Some(([channel, source, one.status.fault.as_ref()?.code.as_str()], true))
        });
        families.flags(&APPLY_FAULT, faults)
    }

    fn channel_totals(&self, families: &mut FamilyWriter<'_>) -> fmt::Result {
        let channels = &self.0.channels;
        let mut total = |family, value: fn(&ChannelSnapshot) -> u64| {
            families.counter(family, channels.iter().map(|one| (channel(one), value(one))))
        };
        total(&APPLY_TRANSACTIONS, |one| one.status.transactions_total)?;
        total(&APPLY_ROWS, |one| one.status.rows_total)?;
        total(&APPLY_COMMITS, |one| one.status.commits_total)
    }

    fn prefetches(&self, families: &mut FamilyWriter<'_>) -> fmt::Result {
        let all =
            || self.0.prefetches.iter().map(|one| ([one.name.as_str(), one.source.as_str()], &one.figures));
        let states = all().flat_map(|([prefetch, source], figures)| {
            PREFETCH_STATES.map(|state| ([prefetch, source, state], figures.state == state))
        });
        families.flags(&PREFETCH_STATE, states)?;
        let mut total = |family, value: fn(&PrefetchStatus) -> u64| {
            families.counter(family, all().map(|(labels, figures)| (labels, value(figures))))
        };
        total(&PREFETCH_EVENTS, |figures| figures.events)?;
        total(&PREFETCH_QUERIES, |figures| figures.queries)?;
        total(&PREFETCH_KEYS, |figures| figures.keys)?;
        total(&PREFETCH_SLOW, |figures| figures.slow)?;
        total(&PREFETCH_FAILED, |figures| figures.failed)?;
        total(&PREFETCH_LATE, |figures| figures.late)?;
        let skipped = all().flat_map(|([prefetch, source], figures)| {
            figures.skipped.iter().map(move |(reason, count)| ([prefetch, source, reason.as_str()], *count))
        });
        families.counter(&PREFETCH_SKIPPED, skipped)?;
        families.gauge(&PREFETCH_AHEAD, all().map(|(labels, figures)| (labels, figures.seconds_ahead)))?;
        families
            .gauge(&PREFETCH_AHEAD_BYTES, all().map(|(labels, figures)| (labels, figures.bytes_ahead)))?;
        let hits = all().filter_map(|(labels, figures)| Some((labels, figures.hit_ratio?)));
        families.gauge(&PREFETCH_HITS, hits)?;
        let gains = all().filter_map(|(labels, figures)| Some((labels, figures.gain?)));
        families.gauge(&PREFETCH_GAIN, gains)
    }

    /// The configured servers that were probed recently, each with its cluster.
    fn probed_servers(&self) -> impl Iterator<Item = ([&str; 2], &TopologyNode)> {
        self.0.clusters.iter().flat_map(|cluster| {
            let is_recent = |node: &TopologyNode| {
                let servers = cluster.servers.iter().filter(|server| server.name == node.name);
                let mut probes = servers.filter_map(|server| server.probe.as_ref());
                probes.any(|probe| probe.age_ms <= cluster.stale_after_ms)
            };
            let servers = cluster.view.nodes().map(|(_, node)| node);
            let recent = servers.filter(move |node| is_configured_server(node) && is_recent(node));
            recent.map(|node| ([cluster.source.as_str(), node.name.as_str()], node))
        })
    }

    fn servers(&self, families: &mut FamilyWriter<'_>) -> fmt::Result {
        let all = || self.probed_servers();
        families.flags(&SERVER_UP, all().map(|(labels, node)| (labels, node.reached)))?;
        let primaries = all().map(|(labels, node)| (labels, node.role == NodeRole::Primary));
        families.flags(&SERVER_PRIMARY, primaries)?;
        let reached = || all().filter(|(_, node)| node.reached);
        let writable = reached().filter_map(|(labels, node)| Some((labels, node.writable?)));
        families.flags(&SERVER_WRITABLE, writable)?;
        let lags = reached().filter_map(|(labels, node)| Some((labels, node.lag_seconds?)));
        families.gauge(&SERVER_LAG, lags)?;
        let problems: BTreeSet<_> = all()
            .flat_map(|([cluster, server], node)| {
                node.problems.iter().map(move |problem| (cluster, server, problem.code.to_string()))
            })
            .collect();
        let problems =
            problems.iter().map(|(cluster, server, code)| ([*cluster, *server, code.as_str()], true));
        families.flags(&SERVER_PROBLEMS, problems)
    }

    fn relays(&self, families: &mut FamilyWriter<'_>) -> fmt::Result {
        let relays = self.0.clusters.iter().flat_map(|cluster| {
            let relays = cluster.view.nodes().map(|(_, node)| node);
            let others =
                relays.filter(|node| node.role == NodeRole::Relay && !ClusterView::is_own_relay(node));
            others.map(|node| ([cluster.source.as_str(), node.name.as_str()], node.reached))
        });
        families.flags(&RELAY_UP, relays)?;
        let silences = self.0.clusters.iter().flat_map(|cluster| {
            cluster.relay_silence_ms.iter().filter_map(|(relay, silence_ms)| {
                let silence = std::time::Duration::from_millis((*silence_ms)?);
                Some(([cluster.source.as_str(), relay.as_str()], silence.as_secs_f64()))
            })
        });
        families.gauge(&RELAY_SILENCE, silences)
    }

    fn backups(&self, families: &mut FamilyWriter<'_>) -> fmt::Result {
        let backups = || self.0.backups.iter().map(|one| ([one.name.as_str()], one));
        families.flags(&BACKUP_READABLE, backups().map(|(labels, one)| (labels, one.problem.is_none())))?;
        families.gauge(&BACKUP_DUMPS, backups().map(|(labels, one)| (labels, one.dumps)))?;
        let newest = backups().filter_map(|(labels, one)| Some((labels, seconds(one.newest_ms?))));
        families.gauge(&BACKUP_NEWEST, newest)?;
        families.gauge(&BACKUP_AGE_MAX, backups().map(|(labels, one)| (labels, one.age_seconds_max)))
    }

    fn drift_checks(&self, families: &mut FamilyWriter<'_>) -> fmt::Result {
        let checks = || self.0.drift_checks.iter().map(|one| ([one.name.as_str()], one));
        families.flags(&CHECK_READABLE, checks().map(|(labels, one)| (labels, one.problem.is_none())))?;
        let differences = checks().filter_map(|(labels, one)| Some((labels, one.differences?)));
        families.gauge(&CHECK_DIFFERENCES, differences)?;
        let finished = checks().filter_map(|(labels, one)| Some((labels, seconds(one.finished_ms?))));
        families.gauge(&CHECK_FINISHED, finished)?;
        families.gauge(&CHECK_AGE_MAX, checks().map(|(labels, one)| (labels, one.age_seconds_max)))
    }
}

fn source(capture: &CaptureSnapshot) -> &str {
    &capture.report.source
}

fn channel(channel: &ChannelSnapshot) -> [&str; 2] {
    [&channel.status.name, &channel.source]
}

/// Seconds since 1970, from milliseconds.
fn seconds(ms: u64) -> f64 {
    std::time::Duration::from_millis(ms).as_secs_f64()
}

/// Whether a node of the tree is a server that the configuration names. Targets of channels do not count: the
/// metrics of a channel cover its target.
fn is_configured_server(node: &TopologyNode) -> bool {
    matches!(node.role, NodeRole::Primary | NodeRole::Replica | NodeRole::Server)
}

/// The name of a reader of the log, as metrics show it: `channel NAME`, or the name of the configured server
/// that has the replica's `server_id`. `None` for other readers.
fn reader_name<'a>(reader: &'a str, cluster: Option<&'a ClusterSnapshot>) -> Option<&'a str> {
    let Some(id) = reader.strip_prefix("replica ") else {
        return reader.starts_with("channel ").then_some(reader);
    };
    let id: u32 = id.parse().ok()?;
    let mut servers = cluster?.view.nodes().filter(|(_, node)| is_configured_server(node));
    servers.find(|(_, node)| node.server_id == Some(id)).map(|(_, node)| node.name.as_str())
}

/// The names of all states of a channel.
pub const CHANNEL_STATES: [&str; 4] = ["connecting", "running", "stopped", "failed"];

/// The names of all states of a lease. A manager of this process reports one of them.
pub const LEASE_STATES: [&str; 3] = ["held", "held_by_other", "not_held"];

fn channel_state(state: ChannelState) -> &'static str {
    match state {
        ChannelState::Connecting => "connecting",
        ChannelState::Running => "running",
        ChannelState::Stopped => "stopped",
        ChannelState::Failed => "failed",
    }
}

fn lease_state(state: &LeaseState) -> &'static str {
    match state {
        LeaseState::Held { .. } => "held",
        LeaseState::HeldByOther { .. } => "held_by_other",
        LeaseState::NotHeld { .. } | LeaseState::Unreported => "not_held",
    }
}

/// The durations of the syncs of a log.
#[derive(Debug)]
struct SyncHistogram<'a>(&'a CaptureLogSnapshot);

impl EncodeMetric for SyncHistogram<'_> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let CaptureLogSnapshot { sync_counts, sync_seconds_total, .. } = self.0;
        let count = sync_counts.iter().map(|(_, count)| count).sum();
        let bounded = sync_counts.iter().map(|(bound, count)| (bound.unwrap_or(f64::INFINITY), *count));
        encoder.encode_histogram::<NoLabelSet>(*sync_seconds_total, count, &bounded.collect::<Vec<_>>(), None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// Writes metric families one after the other.
struct FamilyWriter<'a>(DescriptorEncoder<'a>);

impl FamilyWriter<'_> {
    fn version(&mut self) -> fmt::Result {
        let help = format!("{}.", BUILD.help);
        let family = self.0.encode_descriptor(BUILD.name, &help, None, MetricType::Info)?;
        Info::new([("version", env!("CARGO_PKG_VERSION"))]).encode(family)
    }

    /// Writes a gauge that is 1 or 0.
    fn flags<'l, const N: usize>(
        &mut self,
        family: &MetricFamily,
        samples: impl Iterator<Item = ([&'l str; N], bool)>,
    ) -> fmt::Result {
        self.gauge(family, samples.map(|(labels, value)| (labels, i64::from(value))))
    }

    fn gauge<'l, const N: usize, V: EncodeGaugeValue>(
        &mut self,
        family: &MetricFamily,
        samples: impl Iterator<Item = ([&'l str; N], V)>,
    ) -> fmt::Result {
        self.write(family, samples.map(|(labels, value)| (labels, ConstGauge::new(value))))
    }

    fn counter<'l, const N: usize, V: EncodeCounterValue>(
        &mut self,
        family: &MetricFamily,
        samples: impl Iterator<Item = ([&'l str; N], V)>,
    ) -> fmt::Result {
        self.write(family, samples.map(|(labels, value)| (labels, ConstCounter::new(value))))
    }

    /// Writes a family; nothing if it has no sample. The values of labels are in the order of their names.
    fn write<'l, const N: usize, M: EncodeMetric>(
        &mut self,
        family: &MetricFamily,
        samples: impl Iterator<Item = ([&'l str; N], M)>,
    ) -> fmt::Result {
        debug_assert_eq!(
            family.labels.len(),
            N,
            "another number of label values than labels: {}",
            family.name
        );
        let mut samples = samples.peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let metric_type = match family.kind {
            MetricKind::Gauge => MetricType::Gauge,
            MetricKind::Counter => MetricType::Counter,
            MetricKind::Histogram => MetricType::Histogram,
            MetricKind::Info => MetricType::Info,
        };
        // The encoder appends the unit.
        let unit = family.unit().map(|unit| Unit::Other(unit.to_owned()));
        let name = match family.unit() {
            Some(unit) => family.name.strip_suffix(unit).and_then(|name| name.strip_suffix('_')),
            None => Some(family.name),
        };
        let help = format!("{}.", family.help);
        let mut written =
            self.0.encode_descriptor(name.unwrap_or(family.name), &help, unit.as_ref(), metric_type)?;
        for (values, metric) in samples {
            if values.is_empty() {
                return metric.encode(written);
            }
            let labels: Vec<_> = family.labels.iter().copied().zip(values).collect();
            metric.encode(written.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
