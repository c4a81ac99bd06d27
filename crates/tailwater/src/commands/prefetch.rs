//! `tailwater prefetch`: reads pages ahead beside a native replica.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tailwater_prefetch::gain_feedback::FeedbackLimits;
use tailwater_prefetch::read_window::WindowLimits;
use tailwater_prefetch::slow_query_cache::SlowQueryLimits;
use tailwater_prefetch::{
    PrefetchFigures, PrefetchOptions, PrefetchProgress, PrefetchSource, PrefetchStatus,
};
use tailwater_session::{ConnectOptions, Endpoint};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::client_connection_options::connect_options;
use crate::arguments::{Output, PrefetchArgs, ServerArgs};
use crate::exit_codes::Exit;

/// Runs until interrupted, or for `--run-s`. Prints the figures regularly and at the end.
///
/// # Errors
/// If the replica or the source cannot be used at the start. Later errors are shown in the figures.
pub async fn prefetch(arguments: &PrefetchArgs, output: Output) -> anyhow::Result<Exit> {
    super::init_messages_as(output);
    let options = options(arguments).await?;
    tailwater_prefetch::check(&options).await?;
    let figures = Arc::<PrefetchFigures>::default();
    let stop = CancellationToken::new();
    let running = tokio::spawn(tailwater_prefetch::run(options, Arc::clone(&figures), stop.clone()));
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut report = tokio::time::interval(Duration::from_secs(arguments.report_s));
    report.tick().await;
    let end = arguments.run_s.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let ended = async {
        match end {
            Some(end) => tokio::time::sleep_until(end.into()).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(ended);
    loop {
        tokio::select! {
            _ = report.tick() => print(&figures.status(), output)?,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = &mut ended => break,
        }
    }
    stop.cancel();
    running.await?;
    print(&figures.status(), output)?;
    Ok(Exit::Done)
}

async fn options(arguments: &PrefetchArgs) -> anyhow::Result<PrefetchOptions> {
    let replica = replica_options(arguments)?;
    let channel = arguments.channel.as_deref();
    let source = match arguments.source.is_named() {
        true => connect_options(&ServerArgs::from(&arguments.source))?,
        false => {
            let (host, port) = tailwater_prefetch::source_of(&replica, channel).await?;
            let named = arguments.source.source_user.clone();
            ConnectOptions {
                endpoint: Endpoint::tcp(host, port),
                user: named.unwrap_or_else(|| replica.user.clone()),
                ..replica.clone()
            }
        }
    };
    let how = &arguments.how;
    Ok(PrefetchOptions {
        progress: PrefetchProgress::Replication(arguments.channel.clone()),
        connections: usize::from(how.connections),
        window: WindowLimits {
            seconds_min: how.ahead_s_min,
            bytes_min: how.ahead_bytes_min,
            seconds_max: how.ahead_s_max,
            bytes_max: how.ahead_bytes_max,
        },
        slow: SlowQueryLimits {
            rows_max: how.slow_rows_max,
            keep_seconds: how.slow_keep_s,
            ..SlowQueryLimits::default()
        },
        feedback: (!how.always).then(FeedbackLimits::default),
        resource_group: how.resource_group.clone(),
        ..PrefetchOptions::new(replica, PrefetchSource::Server(Box::new(source)))
    })
}

fn replica_options(arguments: &PrefetchArgs) -> anyhow::Result<ConnectOptions> {
    let (host, port) = match arguments.replica.rsplit_once(':') {
        // An IPv6 address without brackets has colons, but no port.
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => match port.parse() {
            Ok(port) => (host.trim_matches(['[', ']']), port),
            Err(_) => {
                anyhow::bail!("--replica {}: {port} is not a port; use HOST or HOST:PORT", arguments.replica)
            }
        },
        _ => (arguments.replica.trim_matches(['[', ']']), 3306),
    };
    connect_options(&ServerArgs {
        defaults_file: arguments.replica_defaults_file.clone(),
        host: Some(host.to_owned()),
        port: Some(port),
        socket: None,
        user: arguments.replica_user.clone(),
        ssl_mode: arguments.replica_ssl_mode,
        ssl_ca: arguments.replica_ssl_ca.clone(),
        ssl_cert: None,
        ssl_key: None,
    })
}

fn print(status: &PrefetchStatus, output: Output) -> anyhow::Result<()> {
    let line = match output {
        Output::Json => serde_json::to_string(status)?,
        Output::Text => text(status),
    };
    super::write_stdout(format!("{line}\n").as_bytes())
}

/// One line of figures.
fn text(status: &PrefetchStatus) -> String {
    let mut line = format!(
        "{}: {} s and {} ahead, {} transactions, {} queries for {} keys",
        status.state,
        status.seconds_ahead,
        tailwater_binlog_stats::number_format::bytes(status.bytes_ahead),
        status.transactions,
        status.queries,
        status.keys,
    );
    if let Some(ratio) = status.hit_ratio {
        line.push_str(&format!(", {:.0} % in time", ratio * 100.0));
    }
    if let Some(gain) = status.gain {
        line.push_str(&format!(", gain {gain:.2}"));
    }
    for (count, what) in [(status.slow, "slow"), (status.failed, "failed")] {
        if count > 0 {
            line.push_str(&format!(", {count} {what}"));
        }
    }
    let skipped: Vec<String> = status
        .skipped
        .iter()
        .map(|(reason, count)| format!("{} {count}", reason.replace('_', " ")))
        .collect();
    if !skipped.is_empty() {
        line.push_str(&format!("; skipped: {}", skipped.join(", ")));
    }
    if let Some(reason) = &status.reason {
        line.push_str(&format!("; {reason}"));
    }
    line
}
