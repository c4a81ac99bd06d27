//! A proxy between the client of the test suites and the primary. It holds statements that drop objects until
//! the native replica and the channel's target have been compared. It refuses statements that would break the
//! trial, and records all statements.

use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

const CLIENT_COMPRESS: u32 = 0x20;
const CLIENT_SSL: u32 = 0x800;
const CLIENT_ZSTD: u32 = 0x0400_0000;
const CLIENT_QUERY_ATTRIBUTES: u32 = 0x0800_0000;
const COM_QUERY: u8 = 3;
/// Maximum length of a statement that is inspected. Longer statements are passed to the server.
const INSPECTED_BYTES_MAX: usize = 1 << 20;

/// What the proxy does with a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementAction {
    /// The statement is passed to the server.
    Pass,
    /// The statement is passed to the server after the native replica and the channel's target have been
    /// compared, because it drops an object that can be compared.
    Hold,
    /// The statement is not passed to the server.
    Refuse,
}

/// Returns the first `count` words of a statement in lower case, without comments before them.
fn words(statement: &[u8], count: usize) -> Vec<String> {
    let text = String::from_utf8_lossy(&statement[..statement.len().min(400)]).to_ascii_lowercase();
    let mut rest = text.trim_start();
    loop {
        rest = match rest {
            // This is a version comment. A server of at least that version executes the text inside.
            _ if rest.starts_with("/*!") || rest.starts_with("/*m!") => {
                let inside = rest.trim_start_matches("/*").trim_start_matches('m').trim_start_matches('!');
                inside.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start()
            }
            _ if rest.starts_with("/*") => rest.split_once("*/").map_or("", |(_, rest)| rest).trim_start(),
            _ if rest.starts_with('#') || rest.starts_with("-- ") => {
                rest.split_once('\n').map_or("", |(_, rest)| rest).trim_start()
            }
            _ => break,
        };
    }
    rest.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '@' || c == '.'))
        .filter(|word| !word.is_empty())
        .take(count)
        .map(str::to_owned)
        .collect()
}

/// Decides what to do with a statement.
pub fn classify(statement: &[u8]) -> StatementAction {
    let words = words(statement, 4);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["shutdown" | "restart", ..]
        | ["change", "master" | "replication", ..]
        | ["reset", "master" | "slave" | "replica" | "binary" | "persist", ..]
        | ["start" | "stop", "slave" | "replica" | "all" | "group_replication", ..]
        | ["purge", ..]
        | ["install" | "uninstall", ..]
        | ["clone", "instance" | "local", ..] => StatementAction::Refuse,
        ["set", scope @ ("global" | "persist" | "persist_only" | "session" | "local"), name, ..] => {
            setting(scope, name)
        }
        ["set", name, ..] => match name.strip_prefix("@@").and_then(|name| name.split_once('.')) {
            Some((scope, name)) => setting(scope, name),
            None => setting("session", name.trim_start_matches('@')),
        },
        ["drop", what, ..]
            if matches!(
                *what,
                "table"
                    | "tables"
                    | "database"
                    | "schema"
                    | "view"
                    | "user"
                    | "role"
                    | "procedure"
                    | "function"
                    | "trigger"
                    | "event"
                    | "sequence"
            ) =>
        {
            StatementAction::Hold
        }
        _ => StatementAction::Pass,
    }
}

/// Refuses statements that change variables on which replication, and so the comparison, depends.
fn setting(scope: &str, name: &str) -> StatementAction {
    let names = [
        "gtid_slave_pos",
        "gtid_purged",
        "gtid_binlog_state",
        "gtid_mode",
        "server_id",
        "server_uuid",
        "read_only",
        "super_read_only",
        "offline_mode",
        "require_secure_transport",
        "enforce_gtid_consistency",
        "max_binlog_size",
        "rpl_semi_sync_master_enabled",
        "rpl_semi_sync_source_enabled",
        "gtid_strict_mode",
        "gtid_domain_id",
        "max_connections",
        "secure_auth",
    ];
    match (scope, name) {
        (_, "sql_log_bin" | "skip_replication" | "gtid_next" | "gtid_seq_no" | "server_id") => {
            StatementAction::Refuse
        }
        ("session" | "local", _) => StatementAction::Pass,
        (_, name) if names.contains(&name) => StatementAction::Refuse,
        _ => StatementAction::Pass,
    }
}

/// A statement that the proxy holds. Sending a message through this channel lets the statement run.
pub type HeldStatement = oneshot::Sender<()>;

/// All statements of a file, each with the number of its connection.
pub type Transcript = Arc<Mutex<Vec<(u32, String)>>>;

/// The proxy. It listens on a Unix socket and on a loopback port until this value is dropped.
#[derive(Debug)]
pub struct StatementProxy {
    /// The loopback port.
    pub port: u16,
    /// Statements since the transcript was last taken.
    pub transcript: Transcript,
    /// Statements that the proxy holds.
    pub held: mpsc::Receiver<HeldStatement>,
    _tasks: JoinSet<()>,
}

impl StatementProxy {
    /// Opens a proxy for the server at this port and socket.
    ///
    /// # Errors
    /// If the port or socket cannot be opened for listening.
    pub async fn open(socket: &Path, server_port: u16, server_socket: &Path) -> std::io::Result<Self> {
        let transcript = Transcript::default();
        let (holds, held) = mpsc::channel(16);
        let unix = UnixListener::bind(socket)?;
        let tcp = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = tcp.local_addr()?.port();
        let mut tasks = JoinSet::new();
        let shared = ProxyState { transcript: transcript.clone(), holds, numbers: Arc::default() };
        let (path, of_unix) = (server_socket.to_owned(), shared.clone());
        tasks.spawn(async move {
            while let Ok((client, _)) = unix.accept().await {
                let (path, shared) = (path.clone(), of_unix.clone());
                tokio::spawn(async move {
                    if let Ok(server) = UnixStream::connect(&path).await {
                        shared.serve(client.into_split(), server.into_split()).await;
                    }
                });
            }
        });
        tasks.spawn(async move {
            while let Ok((client, _)) = tcp.accept().await {
                let shared = shared.clone();
                tokio::spawn(async move {
                    if let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)).await {
                        // Statements are small, and the client waits for each answer, so TCP must not delay
                        // packets.
                        let _ = (client.set_nodelay(true), server.set_nodelay(true));
                        shared.serve(client.into_split(), server.into_split()).await;
                    }
                });
            }
        });
        Ok(Self { port, transcript, held, _tasks: tasks })
    }
}

#[derive(Debug, Clone)]
struct ProxyState {
    transcript: Transcript,
    holds: mpsc::Sender<HeldStatement>,
    numbers: Arc<std::sync::atomic::AtomicU32>,
}

impl ProxyState {
    async fn serve<R, W, S, T>(self, client: (R, W), server: (S, T))
    where
        R: AsyncReadExt + Unpin,
        W: AsyncWriteExt + Unpin,
        S: AsyncReadExt + Unpin,
        T: AsyncWriteExt + Unpin,
    {
        let number = self.numbers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (mut from_client, to_client) = client;
        let (mut from_server, mut to_server) = server;
        let to_client = tokio::sync::Mutex::new(to_client);
        let answers = async {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(bytes @ 1..) = from_server.read(&mut buffer).await {
                if to_client.lock().await.write_all(&buffer[..bytes]).await.is_err() {
                    break;
                }
            }
        };
        let requests = self.requests(number, &mut from_client, &mut to_server, &to_client);
        // If one of the two connections ends, the other one is closed.
        tokio::select! {
            () = answers => {}
            _ = requests => {}
        }
        let _ = to_client.lock().await.shutdown().await;
    }

    async fn requests<R, W, T>(
        &self,
        number: u32,
        client: &mut R,
        server: &mut T,
        to_client: &tokio::sync::Mutex<W>,
    ) -> std::io::Result<()>
    where
        R: AsyncReadExt + Unpin,
        W: AsyncWriteExt + Unpin,
        T: AsyncWriteExt + Unpin,
    {
        let mut capabilities = None;
        loop {
            let mut header = [0; 4];
            client.read_exact(&mut header).await?;
            let length = usize::from(header[0]) | usize::from(header[1]) << 8 | usize::from(header[2]) << 16;
            let mut payload = vec![0; length];
            client.read_exact(&mut payload).await?;
            let flags = *capabilities.get_or_insert_with(|| {
                payload.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes))
            });
            if header[3] == 0
                && let Some(statement) = statement_of(&payload, flags)
                && self.decide(number, statement).await == StatementAction::Refuse
            {
                to_client.lock().await.write_all(&refusal()).await?;
                continue;
            }
            server.write_all(&header).await?;
            server.write_all(&payload).await?;
            if flags & (CLIENT_SSL | CLIENT_COMPRESS | CLIENT_ZSTD) != 0 {
                // The rest of the connection is encrypted or compressed, so it is passed without inspection.
                tokio::io::copy(client, server).await?;
                return Ok(());
            }
        }
    }

    async fn decide(&self, number: u32, statement: &[u8]) -> StatementAction {
        let action = classify(statement);
        if let Ok(mut transcript) = self.transcript.lock() {
            let text = &statement[..statement.len().min(64 << 10)];
            transcript.push((number, String::from_utf8_lossy(text).into_owned()));
        }
        if action == StatementAction::Hold {
            let (go, wait) = oneshot::channel();
            // The file has ended and no comparison follows. So the statement must not be executed.
            if self.holds.send(go).await.is_err() || wait.await.is_err() {
                return StatementAction::Refuse;
            }
        }
        action
    }
}

/// Returns the text of a query from its packet.
fn statement_of(payload: &[u8], capabilities: u32) -> Option<&[u8]> {
    let (command, rest) = payload.split_first()?;
    if *command != COM_QUERY || payload.len() > INSPECTED_BYTES_MAX {
        return None;
    }
    if capabilities & CLIENT_QUERY_ATTRIBUTES == 0 {
        return Some(rest);
    }
    // The packet must have no query attributes. A query with attributes is not inspected.
    rest.strip_prefix(&[0, 1])
}

/// Returns an error packet in the format of a server.
fn refusal() -> Vec<u8> {
    let text = b"refused: the trial depends on what this statement would change";
    let mut payload = vec![0xff];
    payload.extend_from_slice(&1227_u16.to_le_bytes());
    payload.extend_from_slice(b"#42000");
    payload.extend_from_slice(text);
    let mut packet = vec![u8::try_from(payload.len()).unwrap_or(u8::MAX), 0, 0, 1];
    packet.append(&mut payload);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_held_refused_or_passed() {
        for (statement, want) in [
            ("drop table t1", StatementAction::Hold),
            ("/* why */ DROP  DATABASE if exists d", StatementAction::Hold),
            ("drop index i on t", StatementAction::Pass),
            ("drop temporary table t", StatementAction::Pass),
            ("insert into t values ('drop table')", StatementAction::Pass),
            ("SHUTDOWN", StatementAction::Refuse),
            ("reset master", StatementAction::Refuse),
            ("reset query cache", StatementAction::Pass),
            ("set sql_log_bin=0", StatementAction::Refuse),
            ("SET @@session.sql_log_bin=0", StatementAction::Refuse),
            ("set global read_only=1", StatementAction::Refuse),
            ("set @@global.gtid_slave_pos=''", StatementAction::Refuse),
            ("set global sql_mode=''", StatementAction::Pass),
            ("set @x=1", StatementAction::Pass),
            ("set names utf8mb4", StatementAction::Pass),
            ("install plugin x soname 'y'", StatementAction::Refuse),
        ] {
            assert_eq!(classify(statement.as_bytes()), want, "wrong action for: {statement}");
        }
    }

    #[test]
    fn the_statement_is_found_in_a_query_packet() {
        assert_eq!(statement_of(b"\x03select 1", 0), Some(&b"select 1"[..]));
        assert_eq!(statement_of(b"\x03\x00\x01select 1", CLIENT_QUERY_ATTRIBUTES), Some(&b"select 1"[..]));
        assert_eq!(statement_of(b"\x03\x01\x01xselect 1", CLIENT_QUERY_ATTRIBUTES), None);
        assert_eq!(statement_of(b"\x01", 0), None);
    }
}
