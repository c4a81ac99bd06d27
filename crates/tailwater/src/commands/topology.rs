//! `tailwater topology`: a tree of each source's cluster.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use super::topology_text::{Paint, write_cluster};
use crate::cli::{Output, TopologyArgs};
use crate::exit::Exit;
use tailwater_daemon::cluster_view::ClusterView;
use tailwater_daemon::config::Config;
use tailwater_daemon::manager::remote;
use tailwater_daemon::wiring::{self, ClusterWiring};

/// Looks at every server of the configuration and prints what was seen; again and again if told so. A server that does not
/// answer is a part of the picture, and no error.
///
/// # Errors
/// If the configuration, or an option file with credentials, cannot be read.
pub async fn topology(arguments: &TopologyArgs, output: Output) -> anyhow::Result<Exit> {
    let config = Config::load(&arguments.file.config)?;
    let clusters = wiring::clusters(&config)?;
    let timeout = Duration::from_millis(arguments.timeout_ms);
    loop {
        let text = look(&config, clusters.clone(), timeout, output, arguments.watch.is_some()).await?;
        // A pipe that is closed wants no more.
        if std::io::stdout().write_all(text.as_bytes()).and_then(|()| std::io::stdout().flush()).is_err() {
            return Ok(Exit::Done);
        }
        match arguments.watch {
            None => return Ok(Exit::Done),
            Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
        }
    }
}

async fn look(
    config: &Config,
    mut clusters: Vec<ClusterWiring>,
    timeout: Duration,
    output: Output,
    is_watching: bool,
) -> anyhow::Result<String> {
    let mut observations = Vec::new();
    for cluster in &clusters {
        observations.push(wiring::observe(cluster, timeout).await);
    }
    // Last, as the primary among the servers: the log's own view is then the newest.
    wiring::ask_daemon(config, &mut clusters);
    remote::ask_others(config, &mut clusters).await;
    let mut readiness = wiring::ask_readiness(config);
    let shown: Vec<ClusterView> = clusters
        .iter()
        .zip(&observations)
        .map(|(wired, seen)| ClusterView::of(wired, seen, readiness.remove(&wired.plan.name)))
        .collect();
    if output == Output::Json {
        return Ok(format!("{}\n", serde_json::json!({ "clusters": shown })));
    }
    let is_terminal = std::io::stdout().is_terminal();
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let paint = if is_terminal && !is_plain { Paint::Colours } else { Paint::Plain };
    // Home, and clear what is below: without a flicker, and without filling the scroll-back.
    let mut text = if is_watching && is_terminal { "\x1b[H\x1b[2J".to_owned() } else { String::new() };
    for (index, ClusterView { cluster, findings, readiness }) in shown.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        write_cluster(&mut text, cluster, findings, readiness.as_ref(), paint);
    }
    Ok(text)
}
