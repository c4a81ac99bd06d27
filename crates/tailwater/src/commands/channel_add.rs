//! `tailwater channel add NAME --provision`: copies the source to an empty target, then starts the channel
//! from the position of the copy.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tailwater_apply::channel::{ChannelStart, ChannelState, ChannelStatus};
use tailwater_apply::replication_filter::FilterSet;
use tailwater_dump::load::LoadOptions;
use tailwater_session::{ConnectOptions, Connection, SessionError};
use tailwater_tables::BulkError;
use tailwater_tables::schema::Selection;
use tailwater_wire::sql_quote::string_literal;

use super::channel::{print, send};
use super::copy::{options, print_report, run};
use super::job_report_to_daemon::JobSocket;
use super::physical_server_copy::{clone_options, clone_server};
use crate::arguments::{ChannelAdd, JobDaemon, Output};
use crate::exit_codes::Exit;
use tailwater_config::{ChannelConfig, Config, ServerAddress};
use tailwater_daemon::api::daemon_requests::ControlCommand;
use tailwater_daemon::options_from_config::connect_options;

/// Time limit for the channel to start after the copy.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Time limit for the lag of a running channel to be known, for the table printed at the end.
const LAG_TIMEOUT: Duration = Duration::from_secs(5);

/// Copies the source to the target, then starts the channel. The log is retained from before the snapshot of
/// the copy, and the target gets the GTIDs of the copy. Therefore the channel starts exactly after the copy.
///
/// # Errors
/// If the configuration or the daemon does not allow it, or if the copy or the channel fails.
pub(super) async fn add(arguments: &ChannelAdd, output: Output) -> anyhow::Result<Exit> {
    let config = arguments.channel.file.load()?;
    let name = &arguments.channel.name;
    let channel = config.channels.iter().find(|channel| channel.name == *name);
    let channel = channel.with_context(|| not_configured(&config, name))?;
    check(channel)?;
    let target = connect_options(channel.server())?;
    let source = source(&config, channel, arguments)?;
    ensure_same_family(&source, &target).await?;
    send(&config, &ControlCommand::Hold { channel: name.clone() })?;

    if arguments.binary {
        refuse_running_events(&source, &target).await?;
        let socket = JobSocket::of(&JobDaemon::Auto, Some(&config));
        // After the clone, the target has the GTIDs of the source, and the channel starts after them.
        let cloned = clone_server(&clone_options(source, target, &arguments.clone), socket, output).await;
        let exit = cloned.map_err(|error| with_start_hint(error, name))?;
        return if exit == Exit::Done { start(&config, name, output).await } else { Ok(exit) };
    }
    super::init_messages_as(output);
    let load = LoadOptions {
        set_gtid: true,
        binlog: false,
        events_disabled: true,
        ..LoadOptions::new(target.clone())
    };
    let copy = options(&arguments.how, source, Selection::default(), load);
    let Some(report) = run(&copy, JobSocket::of(&JobDaemon::Auto, Some(&config)), output).await? else {
        return Ok(Exit::Refused);
    };
    print_report(&report, output)?;
    if let Some(gtids) = report.load.gtid_set
        && has_progress(&target, name).await?
    {
        // The progress that is stored on the target belongs to the data that the clone replaced. So the
        // channel is set to the GTIDs of the clone.
        send(&config, &ControlCommand::Seek { channel: name.clone(), gtids })?;
    }
    start(&config, name, output).await
}

/// Whether progress of a channel with this name is stored on the target.
async fn has_progress(target: &ConnectOptions, name: &str) -> anyhow::Result<bool> {
    /// MySQL error codes for missing progress tables: unknown database, unknown table.
    const NOT_THERE: [u16; 2] = [1049, 1146];
    let mut target = Connection::connect(target).await.context("cannot connect to the target")?;
    let mut started = false;
    for kept in ["apply_progress WHERE", "apply_channel WHERE source <> '' AND"] {
        let sql = format!("SELECT COUNT(*) FROM tailwater.{kept} channel = {}", string_literal(name));
        match target.query(&sql).await {
            Ok(count) => started |= count.scalar() != Some("0"),
            Err(SessionError::Server { error, .. }) if NOT_THERE.contains(&error.number) => {}
            Err(error) => return Err(error.into()),
        }
    }
    target.close().await;
    Ok(started)
}

async fn start(config: &Config, name: &str, output: Output) -> anyhow::Result<Exit> {
    let start = ControlCommand::Start { channel: name.to_owned(), until_gtid: None, until_time_us: None };
    send(config, &start)?;
    let channels = wait_running(config, name).await?;
    print(&channels, Some(name), output)
}

/// If the clone is complete but the target is down, adds to the error how to start the channel.
fn with_start_hint(error: anyhow::Error, name: &str) -> anyhow::Error {
    match error.downcast_ref() {
        Some(BulkError::RecipientDown { .. }) => error.context(format!(
            "when the target is up again, run `tailwater channel start {name}`: the channel resumes where the clone ends"
        )),
        _ => error,
    }
}

/// Refuses a clone if the source has enabled events and the target runs its event scheduler. The clone
/// contains the events, so they would run on both servers.
async fn refuse_running_events(source: &ConnectOptions, target: &ConnectOptions) -> anyhow::Result<()> {
    let mut target = Connection::connect(target).await.context("cannot connect to the target")?;
    let runs = target.query("SELECT @@global.event_scheduler").await?.scalar() == Some("ON");
    target.close().await;
    let mut source = Connection::connect(source).await.context("cannot connect to the source")?;
    let events = source
        .query("SELECT CONCAT(EVENT_SCHEMA, '.', EVENT_NAME) FROM information_schema.EVENTS WHERE STATUS = 'ENABLED' ORDER BY 1")
        .await?;
    source.close().await;
    let first = events.first().and_then(|row| row.get_str(0)).filter(|_| runs);
    if let Some(first) = first {
        bail!(
            "the source has {} enabled events, for example {first}, which would also run on the target: \
             start the target with event_scheduler = OFF, and keep it off while a channel applies to it",
            events.rows.len()
        );
    }
    Ok(())
}

/// Formats the error for a channel that is not configured, with the configuration to add.
fn not_configured(config: &Config, name: &str) -> String {
    let source = config.sources.first().map_or("primary", |source| source.name.as_str());
    format!(
        "the configuration has no channel {name:?}. Add it with the target's address and account, and restart \
         the daemon:\n\n[[channel]]\nname = \"{name}\"\nsource = \"{source}\"\nhost = \"...\"\n\
         defaults_file = \"...\"\nstopped = true\n"
    )
}

fn check(channel: &ChannelConfig) -> anyhow::Result<()> {
    let name = &channel.name;
    ensure!(
        channel.start == ChannelStart::Target,
        "channel {name} is configured to start at the log's oldest entry; set start = \"target\" to start \
         it after a copy"
    );
    ensure!(
        channel.filters == FilterSet::default(),
        "channel {name} has filters, but this command copies everything: copy only what the filters let \
         through, by `tailwater copy` with --set-gtid and --no-binlog, then start the channel"
    );
    Ok(())
}

/// Returns the connection options of the source for the copy.
fn source(
    config: &Config,
    channel: &ChannelConfig,
    arguments: &ChannelAdd,
) -> anyhow::Result<ConnectOptions> {
    let source = config.sources.iter().find(|source| source.name == channel.source);
    let source = source.with_context(|| format!("unknown source {:?}", channel.source))?;
    let server = source.server();
    let user = arguments.source_user.as_deref();
    Ok(match &arguments.source_defaults_file {
        None => connect_options(ServerAddress { user: user.or(server.user), ..server })?,
        // The option file given on the command line replaces the capture account.
        Some(file) => connect_options(ServerAddress { user, defaults_file: Some(file), ..server })?,
    })
}

/// Refuses a source and a target of different families, because their GTIDs are not compatible.
async fn ensure_same_family(source: &ConnectOptions, target: &ConnectOptions) -> anyhow::Result<()> {
    let source = Connection::connect(source).await.context("cannot connect to the source")?;
    let target = Connection::connect(target).await.context("cannot connect to the target")?;
    let (from, to) = (source.server().flavour, target.server().flavour);
    source.close().await;
    target.close().await;
    ensure!(from == to, "the source is {from} and the target {to}: their GTIDs are not compatible");
    Ok(())
}

/// Waits until the channel runs. Then waits up to [`LAG_TIMEOUT`] until its lag is known, because the table
/// that is printed afterwards shows the lag.
async fn wait_running(config: &Config, name: &str) -> anyhow::Result<Vec<ChannelStatus>> {
    let begin = Instant::now();
    let mut running_since = None;
    loop {
        let channels = send(config, &ControlCommand::List)?;
        let channel = channels.iter().find(|channel| channel.name == name);
        let lag = channel.and_then(|channel| channel.lag_seconds);
        match channel.map(|channel| channel.state) {
            Some(ChannelState::Running) if lag.is_some() => return Ok(channels),
            Some(ChannelState::Running)
                if running_since.get_or_insert_with(Instant::now).elapsed() >= LAG_TIMEOUT =>
            {
                return Ok(channels);
            }
            Some(ChannelState::Failed) => {
                let fault = channel.and_then(|channel| channel.fault.as_ref());
                let fault =
                    fault.map(|fault| format!("{}: {}", fault.code, fault.message)).unwrap_or_default();
                bail!("the copy to the target is complete, but channel {name} has failed: {fault}");
            }
            _ if begin.elapsed() > START_TIMEOUT => {
                bail!(
                    "the copy to the target is complete, but channel {name} does not run yet: see `tailwater channel list`"
                )
            }
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::render_error;

    #[test]
    fn failed_clone_names_the_command_to_start_the_channel() {
        let not_back =
            BulkError::RecipientDown { server: "db2".into(), seconds: 1, reason: "refused".into() };
        let printed = render_error(&with_start_hint(not_back.into(), "replica"));
        assert!(
            printed.starts_with("TW-BULK-0102") && printed.contains("`tailwater channel start replica`"),
            "the error does not name the command that starts the channel: {printed}"
        );
        assert!(
            printed.contains("db2 has all data"),
            "the error does not say that the target has all data: {printed}"
        );
        // This error asks the operator to repeat the copy, so it must not name `channel start`.
        let cut = BulkError::BinaryInterrupted { left: "run the same command again".into() };
        let printed = render_error(&with_start_hint(cut.into(), "replica"));
        assert!(!printed.contains("channel start"), "the error names `channel start`: {printed}");
    }
}
