//! `tailwater topology`: prints each cluster as a tree.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use super::text_style::TextStyle;
use super::topology_text::write_cluster;
use crate::arguments::{Output, TopologyArgs};
use crate::exit_codes::Exit;
use tailwater_config::Config;
use tailwater_daemon::api::clusters::ClusterView;
use tailwater_daemon::manager::remote_relay_acker;
use tailwater_daemon::options_from_config::{self, ClusterWiring};

/// Queries each server of the configuration and prints the topology, repeatedly with `--watch`. An
/// unreachable server is shown as such and is not an error.
///
/// # Errors
/// If the configuration, or an option file with credentials, cannot be read.
pub async fn topology(arguments: &TopologyArgs, output: Output) -> anyhow::Result<Exit> {
    let config = arguments.file.load()?;
    let clusters = options_from_config::clusters(&config)?;
    let timeout = Duration::from_millis(arguments.timeout_ms);
    loop {
        let text = observe(&config, clusters.clone(), timeout, output, arguments.watch.is_some()).await?;
        // Writing fails if the program that reads the output has closed the pipe.
        if std::io::stdout().write_all(text.as_bytes()).and_then(|()| std::io::stdout().flush()).is_err() {
            return Ok(Exit::Done);
        }
        match arguments.watch {
            None => return Ok(Exit::Done),
            Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
        }
    }
}

async fn observe(
    config: &Config,
    mut clusters: Vec<ClusterWiring>,
    timeout: Duration,
    output: Output,
    is_watching: bool,
) -> anyhow::Result<String> {
    let mut observations = Vec::new();
    for cluster in &clusters {
        observations.push(options_from_config::observe(cluster, timeout).await);
    }
    // The daemon is queried last, after the servers, so that the state of the log is the newest.
    options_from_config::ask_daemon(config, &mut clusters);
    remote_relay_acker::ask_others(config, &mut clusters).await;
    let mut readiness = options_from_config::ask_readiness(config);
    let shown: Vec<ClusterView> = clusters
        .iter()
        .zip(&observations)
        .map(|(wired, seen)| ClusterView::of(wired, seen, readiness.remove(&wired.plan.name)))
        .collect();
    if output == Output::Json {
        return Ok(format!("{}\n", serde_json::json!({ "clusters": shown })));
    }
    let is_terminal = std::io::stdout().is_terminal();
    let style = TextStyle::of_stdout();
    // Escape codes: cursor to the top left, then clear. The screen does not flicker, and the scroll-back does
    // not fill.
    let mut text = if is_watching && is_terminal { "\x1b[H\x1b[2J".to_owned() } else { String::new() };
    for (index, ClusterView { cluster, findings, readiness }) in shown.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        write_cluster(&mut text, cluster, findings, readiness.as_ref(), style);
    }
    Ok(text)
}
