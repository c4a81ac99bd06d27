//! `tailwater channel add NAME --provision`: a copy of the source to an empty target, and the channel behind it.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tailwater_apply::channel::{ChannelStart, ChannelState, ChannelStatus};
use tailwater_apply::filter::FilterSet;
use tailwater_bulk::BulkError;
use tailwater_bulk::load::LoadOptions;
use tailwater_bulk::schema::Selection;
use tailwater_bulk::sql::literal;
use tailwater_session::{ConnectOptions, Connection, SessionError};

use super::channel::{print, told};
use super::copy::{options, print_report, run};
use super::copy_binary::{clone_options, clone_server};
use crate::cli::{ChannelAdd, Output};
use crate::exit::Exit;
use tailwater_daemon::config::{ChannelConfig, Config, ServerAddress};
use tailwater_daemon::control::Request;
use tailwater_daemon::wiring::connect_options;

/// How long a channel may take to begin.
const BEGIN_PATIENCE: Duration = Duration::from_secs(60);

/// Copies, and starts the channel. The log keeps what comes from before the copy's snapshot on, and the target is told
/// exactly which transactions it was copied with: the channel begins behind them.
///
/// # Errors
/// If the configuration or the daemon does not fit, or the copy or the channel fails.
pub(super) async fn add(arguments: &ChannelAdd, output: Output) -> anyhow::Result<Exit> {
    let config = Config::load(&arguments.channel.file.config)?;
    let name = &arguments.channel.name;
    let channel = config.channels.iter().find(|channel| channel.name == *name);
    let channel = channel.with_context(|| not_configured(&config, name))?;
    check(channel)?;
    let target = connect_options(channel.server())?;
    let source = source(&config, channel, arguments)?;
    same_family(&source, &target).await?;
    told(&config, &Request::Hold { channel: name.clone() })?;

    if arguments.binary {
        refuse_running_events(&source, &target).await?;
        // The target's GTIDs are the source's then, and the channel begins behind them.
        let cloned = clone_server(&clone_options(source, target, &arguments.clone), output).await;
        let exit = cloned.map_err(|error| of_channel(error, name))?;
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
    let Some(report) = run(&copy, output).await? else { return Ok(Exit::Refused) };
    print_report(&report, output)?;
    if let Some(gtids) = report.load.gtid_set
        && has_begun(&target, name).await?
    {
        // What the channel had applied before is of the data that were replaced.
        told(&config, &Request::Seek { channel: name.clone(), gtids })?;
    }
    start(&config, name, output).await
}

/// Whether the target keeps of a channel of that name how far it is.
async fn has_begun(target: &ConnectOptions, name: &str) -> anyhow::Result<bool> {
    /// What a server says that no channel has ever fed, or one only up to its beginning.
    const NOT_THERE: [u16; 2] = [1049, 1146];
    let mut target = Connection::connect(target).await.context("the target")?;
    let mut begun = false;
    for kept in ["apply_progress WHERE", "apply_channel WHERE source <> '' AND"] {
        let sql = format!("SELECT COUNT(*) FROM tailwater.{kept} channel = {}", literal(name));
        match target.query(&sql).await {
            Ok(count) => begun |= count.scalar() != Some("0"),
            Err(SessionError::Server { error, .. }) if NOT_THERE.contains(&error.number) => {}
            Err(error) => return Err(error.into()),
        }
    }
    target.close().await;
    Ok(begun)
}

async fn start(config: &Config, name: &str, output: Output) -> anyhow::Result<Exit> {
    let start = Request::Start { channel: name.to_owned(), until_gtid: None, until_time_us: None };
    told(config, &start)?;
    let channels = begun(config, name).await?;
    print(&channels, Some(name), output)
}

/// Says what is left to do for the channel where the target has all of the clone.
fn of_channel(error: anyhow::Error, name: &str) -> anyhow::Error {
    match error.downcast_ref() {
        Some(BulkError::RecipientDown { .. }) => error.context(format!(
            "when the target is back, `tailwater channel start {name}` starts the channel behind the clone"
        )),
        _ => error,
    }
}

/// A clone has the source's events as they are there: they would run on both.
async fn refuse_running_events(source: &ConnectOptions, target: &ConnectOptions) -> anyhow::Result<()> {
    let mut target = Connection::connect(target).await.context("the target")?;
    let runs = target.query("SELECT @@global.event_scheduler").await?.scalar() == Some("ON");
    target.close().await;
    let mut source = Connection::connect(source).await.context("the source")?;
    let events = source
        .query("SELECT CONCAT(EVENT_SCHEMA, '.', EVENT_NAME) FROM information_schema.EVENTS WHERE STATUS = 'ENABLED' ORDER BY 1")
        .await?;
    source.close().await;
    let first = events.first().and_then(|row| row.get_str(0)).filter(|_| runs);
    if let Some(first) = first {
        bail!(
            "the source has {} events, {first} for one, and they would run on the target, too: start the target with \
             event_scheduler = OFF, as long as it is fed by a channel",
            events.rows.len()
        );
    }
    Ok(())
}

/// What to write into the configuration first.
fn not_configured(config: &Config, name: &str) -> String {
    let source = config.sources.first().map_or("primary", |source| source.name.as_str());
    format!(
        "the configuration has no channel {name:?}. Add it, with where its target is and who applies there, and start \
         the daemon anew:\n\n[[channel]]\nname = \"{name}\"\nsource = \"{source}\"\nhost = \"...\"\n\
         defaults_file = \"...\"\nstopped = true\n"
    )
}

fn check(channel: &ChannelConfig) -> anyhow::Result<()> {
    let name = &channel.name;
    ensure!(
        channel.start == ChannelStart::Target,
        "channel {name} is to begin at the log's oldest entry; to begin behind a copy it needs start = \"target\""
    );
    ensure!(
        channel.filters == FilterSet::default(),
        "channel {name} has filters, and a copy is of everything: copy by `tailwater copy` what the filters let through, \
         with --set-gtid and --no-binlog, and start the channel"
    );
    Ok(())
}

/// How the source is connected to for the copy.
fn source(
    config: &Config,
    channel: &ChannelConfig,
    arguments: &ChannelAdd,
) -> anyhow::Result<ConnectOptions> {
    let source = config.sources.iter().find(|source| source.name == channel.source);
    let source = source.with_context(|| format!("there is no source {:?}", channel.source))?;
    let server = source.server();
    let user = arguments.source_user.as_deref();
    Ok(match &arguments.source_defaults_file {
        None => connect_options(ServerAddress { user: user.or(server.user), ..server })?,
        // Who captures is somebody else.
        Some(file) => connect_options(ServerAddress { user, defaults_file: Some(file), ..server })?,
    })
}

/// GTIDs of one family mean nothing to the other.
async fn same_family(source: &ConnectOptions, target: &ConnectOptions) -> anyhow::Result<()> {
    let source = Connection::connect(source).await.context("the source")?;
    let target = Connection::connect(target).await.context("the target")?;
    let (from, to) = (source.server().flavour, target.server().flavour);
    source.close().await;
    target.close().await;
    ensure!(from == to, "the source is {from} and the target {to}: whose GTIDs mean nothing to each other");
    Ok(())
}

/// Waits until the channel follows.
async fn begun(config: &Config, name: &str) -> anyhow::Result<Vec<ChannelStatus>> {
    let begin = Instant::now();
    loop {
        let channels = told(config, &Request::List)?;
        let channel = channels.iter().find(|channel| channel.name == name);
        match channel.map(|channel| channel.state) {
            Some(ChannelState::Running) => return Ok(channels),
            Some(ChannelState::Failed) => {
                let fault = channel.and_then(|channel| channel.fault.as_ref());
                let fault =
                    fault.map(|fault| format!("{}: {}", fault.code, fault.message)).unwrap_or_default();
                bail!("the target is copied, and channel {name} has failed: {fault}");
            }
            _ if begin.elapsed() > BEGIN_PATIENCE => {
                bail!(
                    "the target is copied, and channel {name} does not run yet: `tailwater channel list` shows it"
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
    fn a_channel_is_started_when_its_clone_is_back() {
        let not_back =
            BulkError::RecipientDown { server: "db2".into(), seconds: 1, reason: "refused".into() };
        let said = render_error(&of_channel(not_back.into(), "replica"));
        assert!(
            said.starts_with("TW-BULK-0102") && said.contains("`tailwater channel start replica`"),
            "{said}"
        );
        assert!(said.contains("db2 has all of the copy"), "{said}");
        // Here the same is run again.
        let cut = BulkError::BinaryInterrupted { left: "run the same again".into() };
        let said = render_error(&of_channel(cut.into(), "replica"));
        assert!(!said.contains("channel start"), "{said}");
    }
}
