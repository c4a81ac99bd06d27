//! What a running daemon can be told and asked, over a Unix socket in the log's folder: one JSON object per line, one
//! answer to each. Only who may write in that folder may connect.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use tailwater_apply::channel::{Channel, ChannelEdit, ChannelState, ChannelStatus, Until, reader_name};
use tailwater_apply::filter::FilterSet;
use tailwater_log::{LogHandle, LogPosition};
use tailwater_manager::topology::RelayReader;
use tailwater_relay::serve::Readers;
use tailwater_relay::{Acker, CaptureState, CaptureStatus};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::{Gtid, GtidSet};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tracing::{debug, warn};

use crate::managing;
use crate::managing::acker::{AckerFailure, AckerOrder, AckerText};
use crate::managing::requests::{Manager, ManagerAnswer, ManagerRequest};
use crate::moment::Moment;

/// A request, and an answer, is no longer than this.
pub const LINE_BYTES_MAX: u64 = 4 << 20;

/// What can be asked: of channels, of ackers, of all.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "request", deny_unknown_fields)]
pub enum Request {
    /// All channels.
    #[serde(rename = "channel_list")]
    List,
    /// Goes on.
    #[serde(rename = "channel_start")]
    Start {
        /// The channel.
        channel: String,
        /// Stops behind this transaction.
        until_gtid: Option<String>,
        /// Stops before the first transaction that committed then or later, in microseconds since 1970.
        until_time_us: Option<u64>,
    },
    /// Goes on, and tolerates what the target has.
    #[serde(rename = "channel_tolerate")]
    Tolerate {
        /// The channel.
        channel: String,
        /// Up to this transaction; or else the one that it failed at.
        until_gtid: Option<String>,
    },
    /// Stops when what is under way has committed.
    #[serde(rename = "channel_stop")]
    Stop {
        /// The channel.
        channel: String,
    },
    /// Stops when what is under way has committed, and goes on when this connection ends, however it ends. One that stands
    /// still is left so.
    #[serde(rename = "channel_pause")]
    Pause {
        /// The channel.
        channel: String,
    },
    /// Leaves a transaction out.
    #[serde(rename = "channel_skip")]
    Skip {
        /// The channel.
        channel: String,
        /// The transaction.
        gtid: String,
    },
    /// Goes on as if these were applied.
    #[serde(rename = "channel_seek")]
    Seek {
        /// The channel.
        channel: String,
        /// In the source's notation.
        gtids: String,
    },
    /// Has other filters count.
    #[serde(rename = "channel_filter")]
    Filter {
        /// The channel.
        channel: String,
        /// All of them.
        filters: FilterSet,
        /// From this transaction on.
        from_gtid: Option<String>,
    },
    /// Keeps what comes from now on in the log until the channel, which is stopped, has applied it.
    #[serde(rename = "channel_hold")]
    Hold {
        /// The channel.
        channel: String,
    },
    /// Changes how it works.
    #[serde(rename = "channel_set")]
    Set {
        /// The channel.
        channel: String,
        /// What.
        edit: ChannelEdit,
    },
    /// Has a source's capture stop, over restarts too.
    #[serde(rename = "acker_stop")]
    AckerStop {
        /// The source.
        source: String,
        /// The term of the lease in which the order is given.
        token: u64,
    },
    /// How a source's capture stands, and what its log holds.
    #[serde(rename = "acker_read")]
    AckerRead {
        /// The source.
        source: String,
    },
    /// Has a source's capture go on.
    #[serde(rename = "acker_start")]
    AckerStart {
        /// The source.
        source: String,
        /// The term of the lease in which the order is given.
        token: u64,
    },
    /// Has a source's capture follow another server of the cluster.
    #[serde(rename = "acker_follow")]
    AckerFollow {
        /// The source.
        source: String,
        /// The term of the lease in which the order is given.
        token: u64,
        /// The server's name, or the source's own.
        server: String,
    },
    /// How the sources' logs are, and who reads them.
    #[serde(rename = "topology")]
    Topology,
    /// What the manager is told or asked.
    #[serde(rename = "manager")]
    Manager(ManagerRequest),
}

/// What is answered.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Done, and how the channels are now.
    Channels(Vec<ChannelStatus>),
    /// How an acker stands, once it has obeyed.
    Acker(AckerText),
    /// How the sources' logs are.
    Topology(Vec<SourceReport>),
    /// What the manager answers.
    Manager(ManagerAnswer),
    /// Not done.
    Failed {
        /// A stable code, if there is one.
        code: Option<String>,
        /// Why.
        message: String,
    },
}

/// How a source's log is, and who reads it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SourceReport {
    /// The source's name.
    pub source: String,
    /// Whether its stream is read now.
    pub is_streaming: bool,
    /// The server that is captured from by order; the source's own if absent.
    #[serde(default)]
    pub follows: Option<String>,
    /// Whether it stands still by order, over restarts too.
    #[serde(default)]
    pub is_stopped_by_order: bool,
    /// What its capture is doing, in words.
    pub doing: String,
    /// How long ago something came from the source, in milliseconds; absent if nothing ever did.
    pub heard_ago_ms: Option<u64>,
    /// The source's family; none before it was first reached.
    pub is_mariadb: Option<bool>,
    /// What is in the log, in the source's notation.
    pub gtids: Option<String>,
    /// Up to where the log is durable.
    pub durable: String,
    /// What the semi-sync watch last found wrong.
    pub alarms: Vec<String>,
    /// Who reads the log's stream.
    pub readers: Vec<RelayReader>,
}

/// How long ago a moment was, both in milliseconds.
fn ago_ms(since_1970_ms: u64) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX).saturating_sub(since_1970_ms)
}

/// Where the daemon with its log in `directory` listens.
pub fn socket_of(directory: &Path) -> PathBuf {
    directory.join("control.sock")
}

/// What the daemon has that can be told something.
#[derive(Debug, Default)]
pub struct Controlled {
    /// By name, each with the log it reads.
    pub channels: BTreeMap<String, (Arc<Channel>, LogHandle)>,
    /// By name, the sources.
    pub sources: BTreeMap<String, ControlledSource>,
    /// The manager, if one is configured.
    pub manager: Option<Manager>,
}

/// A source that is captured.
#[derive(Debug)]
pub struct ControlledSource {
    /// To give its capture orders.
    pub acker: Acker,
    /// Its log.
    pub log: LogHandle,
    /// How its capture is.
    pub status: Arc<CaptureStatus>,
    /// Who reads the log, one for each address that it is served at.
    pub readers: Vec<Readers>,
}

impl Controlled {
    /// How all sources and channels are.
    pub fn reports(&self) -> (Vec<SourceReport>, Vec<ChannelStatus>) {
        let sources = self.sources.iter().map(|(name, source)| source.report(name)).collect();
        let channels = self.channels.values().map(|(channel, _)| channel.status().borrow().clone()).collect();
        (sources, channels)
    }
}

impl ControlledSource {
    /// How long nothing has come from the server that the log follows, a heartbeat included, in milliseconds; nothing if
    /// nothing ever has.
    pub fn silent_ms(&self) -> Option<u64> {
        Some(self.status.heard_ms()).filter(|heard| *heard > 0).map(ago_ms)
    }

    fn report(&self, name: &str) -> SourceReport {
        let (status, ordered) = (self.status.snapshot(), self.status.ordered());
        let doing = match &status.state {
            CaptureState::Connecting => "connecting to the source".to_owned(),
            CaptureState::Streaming => "reading the source's stream".to_owned(),
            CaptureState::Waiting(reason) => format!("waiting to connect again: {reason}"),
            CaptureState::Refused(reason) => format!("stopped: {reason}"),
            CaptureState::StoppedByOrder(stop) => {
                let since = Moment(stop.since_ms.saturating_mul(1000)).date_and_time();
                format!("stopped since {since} by order of the manager (term {})", stop.token)
            }
            CaptureState::Stopped => "stopped".to_owned(),
        };
        let readers = self.readers.iter().flat_map(Readers::list).map(|reader| RelayReader {
            server_id: reader.server_id,
            uuid: Some(reader.uuid).filter(|uuid| !uuid.is_empty()),
            peer: reader.peer.to_string(),
            sent: format!("{}:{}", reader.sent.0, reader.sent.1),
        });
        SourceReport {
            source: name.to_owned(),
            is_streaming: status.state == CaptureState::Streaming,
            follows: ordered.follows,
            is_stopped_by_order: ordered.stopped.is_some(),
            doing,
            heard_ago_ms: self.silent_ms(),
            is_mariadb: self.log.source().map(|source| source.flavour == Flavour::MariaDb),
            gtids: self.log.gtid_set().map(|gtids| gtids.to_string()),
            durable: self.log.durable().position.to_string(),
            alarms: status.alarms.iter().map(ToString::to_string).collect(),
            readers: readers.collect(),
        }
    }
}

/// Listens at `socket` until the task that is given back is dropped.
///
/// # Errors
/// If the socket cannot be made.
pub fn listen(socket: &Path, controlled: Arc<Controlled>) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    // Left behind by one that was killed; one that lives holds the log's lock, and we would not be here.
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("remove {}", socket.display()));
        }
        _ => {}
    }
    let listener = UnixListener::bind(socket).with_context(|| format!("listen at {}", socket.display()))?;
    std::fs::set_permissions(socket, Permissions::from_mode(0o600))
        .with_context(|| format!("protect {}", socket.display()))?;
    Ok(tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    tokio::spawn(converse(stream, Arc::clone(&controlled)));
                }
                Err(error) => {
                    warn!("control socket: {error}");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
    }))
}

async fn converse(stream: UnixStream, controlled: Arc<Controlled>) {
    let mut paused = Vec::new();
    talk(stream, &controlled, &mut paused).await;
    for name in paused {
        let Some((channel, _)) = controlled.channels.get(&name) else { continue };
        if let Err(error) = channel.resume(None).await {
            warn!(channel = name, "it was paused, and cannot go on: {error}");
        }
    }
}

/// Until the other side ends it; `paused` are the channels that go on then.
async fn talk(stream: UnixStream, controlled: &Controlled, paused: &mut Vec<String>) {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    loop {
        let mut line = Vec::new();
        match (&mut read).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        // What follows is the rest of it, and no request.
        let is_cut = line.len() as u64 == LINE_BYTES_MAX && !line.ends_with(b"\n");
        let answer = if is_cut {
            Answer::Failed { code: None, message: too_long("the request") }
        } else {
            match serde_json::from_slice::<Request>(&line) {
                Ok(Request::Pause { channel }) => {
                    answered(pause(&channel, controlled, paused).await, controlled)
                }
                Ok(request) => obey(request, controlled).await,
                Err(error) => Answer::Failed { code: None, message: format!("not understood: {error}") },
            }
        };
        let Ok(mut answer) = serde_json::to_vec(&answer) else { return };
        answer.push(b'\n');
        if let Err(error) = write.write_all(&answer).await {
            debug!("control socket: {error}");
            return;
        }
        if is_cut {
            return;
        }
    }
}

fn too_long(what: &str) -> String {
    format!("{what} is longer than {LINE_BYTES_MAX} bytes")
}

async fn obey(request: Request, controlled: &Controlled) -> Answer {
    if matches!(request, Request::Topology) {
        return Answer::Topology(controlled.reports().0);
    }
    let request = match request {
        Request::Manager(request) => return managed(request, controlled),
        other => other,
    };
    if let Some((source, order)) = acker_order(&request) {
        return ordered(source, &order, controlled).await;
    }
    answered(obeyed(request, controlled).await, controlled)
}

/// How the channels are now, or why not.
fn answered(obeyed: anyhow::Result<()>, controlled: &Controlled) -> Answer {
    match obeyed {
        Ok(()) => Answer::Channels(controlled.reports().1),
        Err(error) => Answer::Failed {
            code: error.downcast_ref::<tailwater_apply::ApplyError>().map(|error| error.code().to_owned()),
            message: format!("{error:#}"),
        },
    }
}

async fn pause(name: &str, controlled: &Controlled, paused: &mut Vec<String>) -> anyhow::Result<()> {
    let (channel, _) =
        controlled.channels.get(name).ok_or_else(|| anyhow!("the daemon has no channel {name:?}"))?;
    let state = channel.status().borrow().state;
    if matches!(state, ChannelState::Running | ChannelState::Connecting) {
        // Whatever comes next, it is started again.
        paused.push(name.to_owned());
        channel.pause().await?;
    }
    Ok(())
}

/// What is asked of the acker of a source; nothing if something else is.
fn acker_order(request: &Request) -> Option<(&str, AckerOrder)> {
    match request {
        Request::AckerStop { source, token } => Some((source, AckerOrder::Stop { token: *token })),
        Request::AckerRead { source } => Some((source, AckerOrder::Read)),
        Request::AckerStart { source, token } => Some((source, AckerOrder::Start { token: *token })),
        Request::AckerFollow { source, token, server } => {
            Some((source, AckerOrder::Follow { token: *token, server: server.clone() }))
        }
        _ => None,
    }
}

fn managed(request: ManagerRequest, controlled: &Controlled) -> Answer {
    let answer = match &controlled.manager {
        Some(manager) => manager.obey(request),
        None => Err(anyhow!("there is no manager in this daemon: its configuration has no [manager]")),
    };
    match answer {
        Ok(answer) => Answer::Manager(answer),
        Err(error) => Answer::Failed {
            code: error
                .downcast_ref::<tailwater_manager::ManagerError>()
                .map(|error| error.code().to_owned()),
            message: format!("{error:#}"),
        },
    }
}

async fn ordered(source: &str, order: &AckerOrder, controlled: &Controlled) -> Answer {
    let Some(controlled) = controlled.sources.get(source) else {
        return Answer::Failed { code: None, message: format!("there is no source {source:?}") };
    };
    match managing::acker::obey(&controlled.acker, order).await {
        Ok(text) => Answer::Acker(text),
        Err(AckerFailure { code, message }) => Answer::Failed { code, message },
    }
}

async fn obeyed(request: Request, controlled: &Controlled) -> anyhow::Result<()> {
    let find = |name: &str| {
        let known = || controlled.channels.keys().cloned().collect::<Vec<_>>().join(", ");
        controlled
            .channels
            .get(name)
            .map(|(channel, log)| (channel, log.source().map_or(Flavour::MySql, |source| source.flavour)))
            .ok_or_else(|| anyhow!("there is no channel {name:?}; there are: {}", known()))
    };
    match request {
        Request::List
        | Request::Topology
        | Request::Manager(_)
        | Request::AckerStop { .. }
        | Request::AckerRead { .. }
        | Request::AckerStart { .. }
        | Request::AckerFollow { .. } => {}
        Request::Start { channel, until_gtid, until_time_us } => {
            let (channel, flavour) = find(&channel)?;
            refuse_if_it_leads(channel, controlled)?;
            let until = match (until_gtid, until_time_us) {
                (Some(gtid), None) => Some(Until::Gtid(Gtid::parse(flavour, &gtid)?)),
                (None, Some(time)) => Some(Until::TimeUs(time)),
                (None, None) => None,
                _ => bail!("give a GTID or a time, not both"),
            };
            channel.resume(until).await?;
        }
        Request::Tolerate { channel, until_gtid } => {
            let (channel, flavour) = find(&channel)?;
            refuse_if_it_leads(channel, controlled)?;
            let until = until_gtid.map(|gtid| Gtid::parse(flavour, &gtid)).transpose()?;
            channel.tolerate(until).await?;
        }
        Request::Stop { channel } => find(&channel)?.0.pause().await?,
        Request::Pause { .. } => bail!("a pause is of a connection"),
        Request::Skip { channel, gtid } => {
            let (channel, flavour) = find(&channel)?;
            channel.skip(Gtid::parse(flavour, &gtid)?).await?;
        }
        Request::Seek { channel, gtids } => {
            let (channel, flavour) = find(&channel)?;
            channel.seek(GtidSet::parse(flavour, &gtids)?).await?;
        }
        Request::Filter { channel, filters, from_gtid } => {
            let (channel, flavour) = find(&channel)?;
            let from = from_gtid.map(|gtid| Gtid::parse(flavour, &gtid)).transpose()?;
            channel.filter(filters, from).await?;
        }
        Request::Hold { channel } => {
            find(&channel)?;
            if let Some((channel, log)) = controlled.channels.get(&channel) {
                hold(channel, log)?;
            }
        }
        Request::Set { channel, edit } => find(&channel)?.0.set(edit).await?,
    }
    Ok(())
}

/// A target that has become the primary would get its own commits once more.
fn refuse_if_it_leads(channel: &Channel, controlled: &Controlled) -> anyhow::Result<()> {
    let name = channel.name();
    let reads = |source: &&ControlledSource| {
        source.log.remembered_readers().iter().any(|reader| reader.name == reader_name(name))
    };
    let leads = controlled
        .sources
        .values()
        .filter(reads)
        .filter_map(|source| source.status.followed())
        .any(|followed| followed.endpoint == *channel.target());
    ensure!(!leads, "channel {name}: its target is the primary now, and would get its own commits once more");
    Ok(())
}

/// Has the log remember a channel that is to begin behind what the source has now.
///
/// # Errors
/// If it runs, or the log could not say later what the target lacks.
fn hold(channel: &Channel, log: &LogHandle) -> anyhow::Result<()> {
    let name = channel.name();
    let state = channel.status().borrow().state;
    ensure!(
        matches!(state, ChannelState::Stopped | ChannelState::Failed),
        "channel {name} runs; a channel whose target is to be provisioned has stopped = true in the configuration"
    );
    let newest = log.segments().last().map(|segment| segment.number);
    let newest =
        newest.context("the log is empty: nothing was captured yet; try again when it follows its source")?;
    ensure!(
        log.gtids_before(newest)?.is_some(),
        "the log began in the middle of a binlog file, and cannot say what is before it: wait for the source's next file"
    );
    let reader = reader_name(name);
    if !log.remembered_readers().iter().any(|known| known.name == reader) {
        drop(log.register_remembered_reader(&reader, LogPosition { segment: newest, offset: 4 }));
    }
    Ok(())
}

/// Asks the daemon that listens at `socket`.
///
/// # Errors
/// If there is none, or it does not answer.
pub fn ask(socket: &Path, request: &Request) -> anyhow::Result<Answer> {
    Conversation::open(socket)?.ask(request)
}

/// A connection to a daemon, for requests that count as long as it stands.
#[derive(Debug)]
pub struct Conversation {
    stream: std::io::BufReader<std::os::unix::net::UnixStream>,
}

impl Conversation {
    /// With the daemon that listens at `socket`.
    ///
    /// # Errors
    /// If there is none.
    pub fn open(socket: &Path) -> anyhow::Result<Self> {
        let stream = std::os::unix::net::UnixStream::connect(socket).with_context(|| {
            format!(
                "no daemon listens at {}; is `tailwater run` running with this configuration?",
                socket.display()
            )
        })?;
        Ok(Self { stream: std::io::BufReader::new(stream) })
    }

    /// Asks it.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn ask(&mut self, request: &Request) -> anyhow::Result<Answer> {
        use std::io::{BufRead, Read, Write};
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        ensure!(line.len() as u64 <= LINE_BYTES_MAX, too_long("the request"));
        self.stream.get_mut().write_all(&line)?;
        let mut answer = Vec::new();
        (&mut self.stream).take(LINE_BYTES_MAX).read_until(b'\n', &mut answer)?;
        serde_json::from_slice(&answer).context("the daemon's answer is not understood")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answers(stream: &mut BufReader<UnixStream>) -> anyhow::Result<Answer> {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        Ok(serde_json::from_str(&line)?)
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_refused_and_what_follows_it_is_no_request() -> anyhow::Result<()> {
        let (ours, theirs) = UnixStream::pair()?;
        let conversation = tokio::spawn(converse(theirs, Arc::default()));
        let mut ours = BufReader::new(ours);
        ours.write_all(b"{\"request\": \"channel_list\"}\n").await?;
        assert!(matches!(answers(&mut ours).await?, Answer::Channels(channels) if channels.is_empty()));
        ours.write_all(b"nonsense\n").await?;
        let answer = answers(&mut ours).await?;
        assert!(
            matches!(&answer, Answer::Failed { message, .. } if message.starts_with("not understood")),
            "{answer:?}"
        );

        let mut line = vec![b' '; LINE_BYTES_MAX as usize];
        line.extend_from_slice(b"\n{\"request\": \"channel_list\"}\n");
        // It may be closed before all of it is written.
        let _ = ours.write_all(&line).await;
        let answer = answers(&mut ours).await?;
        let expected = "the request is longer than 4194304 bytes";
        assert!(matches!(&answer, Answer::Failed { message, .. } if message == expected), "{answer:?}");
        conversation.await?;
        assert!(answers(&mut ours).await.is_err(), "it goes on");
        Ok(())
    }

    #[test]
    fn a_request_that_is_too_long_is_not_sent() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let socket = socket_of(folder.path());
        let _listener = std::os::unix::net::UnixListener::bind(&socket)?;
        let gtids = "x".repeat(LINE_BYTES_MAX as usize);
        let error = ask(&socket, &Request::Seek { channel: "replica".into(), gtids });
        assert!(error.is_err_and(|error| error.to_string().contains("longer than 4194304 bytes")));
        Ok(())
    }
}
