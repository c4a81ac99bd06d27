//! Finds the replicas of a primary.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context, bail};
use tailwater_session::{
    AccountPurpose, ConnectOptions, Connection, Endpoint, SessionError, check_privileges,
};
use tailwater_topology::server_probe::{ProbeTarget, probe_server};
use tailwater_topology::server_state::{ConnectedReplica, ServerState};
use tailwater_wire::Flavour;

/// Time limit for a server to answer all queries.
const SERVER_TIMEOUT: Duration = Duration::from_secs(5);

/// The port of a replica that does not report its own.
const DEFAULT_PORT: u16 = 3306;

/// The maximum number of servers that are queried.
const SERVERS_MAX: usize = 200;

/// The servers of a cluster.
#[derive(Debug)]
pub struct DiscoveredCluster {
    /// The server that the user named.
    pub primary: DiscoveredServer,
    /// The primary's replicas, and the replicas of these.
    pub replicas: Vec<DiscoveredServer>,
    /// One text for each server of which at least one replica could not be queried. The text has the
    /// `server_id`s of these replicas, and the errors.
    pub not_asked: Vec<String>,
}

/// A server that was queried.
#[derive(Debug)]
pub struct DiscoveredServer {
    /// The address at which the server answered.
    pub endpoint: Endpoint,
    /// The state of the server.
    pub state: ServerState,
}

impl DiscoveredServer {
    /// What identifies the server: its UUID, or its `server_id` and port.
    fn identity(&self) -> (Option<&str>, u32, u16) {
        (self.state.uuid.as_deref(), self.state.server_id, self.state.port)
    }
}

/// Queries a server and all its direct and indirect replicas, with the same account. `own_server_id` is the
/// `server_id` of Tailwater's capture, which the primary lists like a replica while the daemon runs.
///
/// # Errors
/// If the server itself cannot be queried. Errors of replicas are in [`DiscoveredCluster::not_asked`].
pub async fn discover(
    connect: &ConnectOptions,
    own_server_id: Option<u32>,
) -> anyhow::Result<DiscoveredCluster> {
    let is_replica = |replica: &ConnectedReplica| Some(replica.server_id) != own_server_id;
    let mut primary = ask(connect).await.with_context(|| format!("cannot query {}", connect.endpoint))?;
    primary.state.replicas.retain(is_replica);
    let mut found = vec![primary];
    let (mut not_asked, mut next) = (Vec::new(), VecDeque::from([0]));
    while let Some(index) = next.pop_front() {
        let Some(source) = found.get(index) else { break };
        let source_id = source.state.server_id;
        let candidates = candidates(source);
        let known: Vec<u32> = source.state.replicas.iter().map(|replica| replica.server_id).collect();
        let mut reached = Vec::new();
        let mut failures = Vec::new();
        for endpoint in candidates {
            let connect = ConnectOptions { endpoint: endpoint.clone(), ..connect.clone() };
            match ask(&connect).await {
                Err(error) => failures.push(format!("{endpoint}: {error:#}")),
                Ok(mut server) => {
                    server.state.replicas.retain(is_replica);
                    let reads =
                        server.state.channels.iter().any(|channel| channel.source_server_id == source_id);
                    reached.push(server.state.server_id);
                    let is_new = found.iter().all(|one| one.identity() != server.identity());
                    if reads && is_new && found.len() < SERVERS_MAX {
                        next.push_back(found.len());
                        found.push(server);
                    }
                }
            }
        }
        let absent: Vec<_> = known.iter().filter(|id| !reached.contains(id)).map(u32::to_string).collect();
        if !absent.is_empty() {
            let failures =
                if failures.is_empty() { String::new() } else { format!(" ({})", failures.join("; ")) };
            not_asked.push(format!(
                "replicas of server_id {source_id} with server_id {}{failures}",
                absent.join(", ")
            ));
        }
    }
    let mut servers = found.into_iter();
    let Some(primary) = servers.next() else { bail!("no server was queried") };
    Ok(DiscoveredCluster { primary, replicas: servers.collect(), not_asked })
}

/// Returns the addresses at which the replicas of a server may listen. The hosts are from the replicas' own
/// reports (`report_host`), or from the connections that read the server's binlog.
fn candidates(source: &DiscoveredServer) -> Vec<Endpoint> {
    let mut endpoints: Vec<Endpoint> = Vec::new();
    let mut add = |host: &str, port: u16| {
        let endpoint = Endpoint::tcp(host, if port == 0 { DEFAULT_PORT } else { port });
        if endpoint != source.endpoint && !endpoints.contains(&endpoint) {
            endpoints.push(endpoint);
        }
    };
    let state = &source.state;
    for replica in state.replicas.iter().filter(|replica| !replica.host.is_empty()) {
        add(&replica.host, replica.port);
    }
    // A replica reports its port even if it reports no host.
    for host in &state.dump_hosts {
        let host = host.rsplit_once(':').map_or(host.as_str(), |(host, _)| host).trim_matches(['[', ']']);
        state
            .replicas
            .iter()
            .filter(|replica| replica.host.is_empty())
            .for_each(|replica| add(host, replica.port));
    }
    endpoints
}

async fn ask(connect: &ConnectOptions) -> anyhow::Result<DiscoveredServer> {
    let mut connect = connect.clone();
    connect.connect_timeout = connect.connect_timeout.min(SERVER_TIMEOUT);
    let target = ProbeTarget { name: connect.endpoint.to_string(), connect: connect.clone() };
    match probe_server(&target, SERVER_TIMEOUT).await.outcome {
        Ok(state) => Ok(DiscoveredServer { endpoint: connect.endpoint, state }),
        Err(error) => bail!("{}", error.message),
    }
}

/// The state of an account that `tailwater init` needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountState {
    /// The server has no such account.
    Absent,
    /// The account exists, and Tailwater does not know its password.
    UnknownPassword,
    /// Tailwater can log in with the account.
    Usable {
        /// Purposes for which the account lacks privileges.
        lacks: Vec<AccountPurpose>,
    },
}

/// Returns whether an account exists, and which privileges it lacks. Logs in with the account if the password
/// is known.
///
/// # Errors
/// If the administrator may not read `mysql.user`, or if a connection fails for another reason than a wrong
/// password.
pub async fn account_state(
    admin: &ConnectOptions,
    (user, host): (&str, &str),
    password: Option<&str>,
    purposes: &[AccountPurpose],
) -> anyhow::Result<AccountState> {
    use tailwater_wire::sql_quote::string_literal;
    let mut connection = Connection::connect(admin).await?;
    let query = format!(
        "SELECT COUNT(*) FROM mysql.user WHERE user = {} AND host = {}",
        string_literal(user),
        string_literal(host)
    );
    let answer = connection.query(&query).await.context("cannot look for the account in mysql.user")?;
    connection.close().await;
    if answer.first().and_then(|row| row.get_u64(0)) == Some(0) {
        return Ok(AccountState::Absent);
    }
    let Some(password) = password else { return Ok(AccountState::UnknownPassword) };
    let login = ConnectOptions { user: user.to_owned(), ..admin.clone() }.password(password);
    let mut connection = match Connection::connect(&login).await {
        Ok(connection) => connection,
        // ER_ACCESS_DENIED_ERROR
        Err(SessionError::Server { error, .. }) if error.number == 1045 => {
            return Ok(AccountState::UnknownPassword);
        }
        Err(error) => return Err(error).context("cannot log in with the account"),
    };
    let mut lacks = Vec::new();
    for purpose in purposes {
        match check_privileges(&mut connection, *purpose).await {
            Ok(()) => {}
            Err(SessionError::MissingGrant { .. }) => lacks.push(*purpose),
            Err(error) => return Err(error.into()),
        }
    }
    connection.close().await;
    Ok(AccountState::Usable { lacks })
}

/// The name of a flavour in a sentence.
pub(super) fn name_of(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::MySql => "MySQL",
        Flavour::MariaDb => "MariaDB",
    }
}
