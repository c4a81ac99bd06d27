//! Reads what a replica has applied, and how many pages it has read from disk.

use tailwater_session::{Connection, QueryResult, SessionError};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::{MariadbPosition, MysqlGtidSet};
use tailwater_wire::server_version::ServerFeature;

use crate::error::PrefetchError;
use crate::prefetcher::AppliedByChannel;
use crate::read_window::{AppliedPosition, FilePlace};

/// The replication channel of a replica, as its status shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplicationChannel {
    /// The source's host and port.
    pub(crate) source: (String, u16),
    /// The applied position in the source's files.
    pub(crate) executed: FilePlace,
    /// The name that statements use: the channel of MySQL, the connection of MariaDB.
    pub(crate) name: String,
    /// Whether the receiver of MySQL asks for transactions by GTID.
    has_auto_position: bool,
    /// Why the applier or the receiver does not run; `None` if both run.
    pub(crate) stopped: Option<String>,
}

/// How the applied position of native replication is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgressQuery {
    /// `@@GLOBAL.gtid_executed`: one variable, no lock of the replication threads.
    MysqlGtid,
    /// `@@GLOBAL.gtid_slave_pos`, which MariaDB keeps with or without GTIDs on the connection.
    MariadbGtid,
    /// The replication status: for MySQL without `SOURCE_AUTO_POSITION`. The transactions may have no GTIDs
    /// on the source, or others than on the replica.
    FilePosition,
}

impl ProgressQuery {
    /// The cheapest query for a channel.
    fn choose(flavour: Flavour, channel: &ReplicationChannel) -> Self {
        match (flavour, channel.has_auto_position) {
            // The variable is empty if the source has no GTIDs, which MariaDB has had since version 10.0.2.
            (Flavour::MariaDb, _) => Self::MariadbGtid,
            (Flavour::MySql, true) => Self::MysqlGtid,
            (Flavour::MySql, false) => Self::FilePosition,
        }
    }

    /// Reads the applied position. Returns its text too, for status.
    pub(crate) async fn read(
        self,
        connection: &mut Connection,
        channel: &str,
    ) -> Result<(AppliedPosition, String), PrefetchError> {
        let variable = match self {
            Self::MysqlGtid => "SELECT @@GLOBAL.gtid_executed",
            Self::MariadbGtid => "SELECT @@GLOBAL.gtid_slave_pos",
            Self::FilePosition => {
                let found = read_channel(connection, Some(channel)).await?;
                let text = format!("{}:{}", found.executed.file, found.executed.offset);
                return Ok((AppliedPosition::File(found.executed), text));
            }
        };
        let replica = connection.endpoint().to_owned();
        let answer = connection.query(variable).await.map_err(PrefetchError::replica)?;
        let text = answer.scalar().unwrap_or_default().replace('\n', "");
        let position = match self {
            Self::MariadbGtid => MariadbPosition::parse(&text).map(AppliedPosition::Mariadb),
            _ => MysqlGtidSet::parse(&text).map(AppliedPosition::Mysql),
        };
        let position = position.map_err(|error| PrefetchError::Position {
            replica,
            text: text.clone(),
            error: Box::new(error),
        })?;
        Ok((position, text))
    }
}

/// Reads the applied position.
pub(crate) enum AppliedPositionReader {
    /// From the replica, for a channel of this name.
    Replication(ProgressQuery, String),
    /// From a channel of Tailwater.
    Channel(AppliedByChannel),
}

impl AppliedPositionReader {
    pub(crate) async fn of_replication(
        connection: &mut Connection,
        name: Option<&str>,
    ) -> Result<Self, PrefetchError> {
        let channel = read_channel(connection, name).await?;
        let query = ProgressQuery::choose(connection.server().flavour, &channel);
        Ok(Self::Replication(query, channel.name))
    }

    /// Reads the applied position. Returns its text too, for status.
    pub(crate) async fn read(
        &self,
        connection: &mut Connection,
    ) -> Result<(AppliedPosition, String), PrefetchError> {
        match self {
            Self::Replication(query, channel) => query.read(connection, channel).await,
            Self::Channel(position) => {
                let place = position().ok_or(PrefetchError::ChannelNotStarted)?;
                let text = format!("{}:{}", place.file, place.offset);
                Ok((AppliedPosition::File(place), text))
            }
        }
    }

    /// Why the replica applies nothing; `None` if it runs. A channel of Tailwater shows its own state.
    pub(crate) async fn stopped(&self, connection: &mut Connection) -> Result<Option<String>, PrefetchError> {
        match self {
            Self::Replication(_, channel) => Ok(read_channel(connection, Some(channel)).await?.stopped),
            Self::Channel(_) => Ok(None),
        }
    }
}

/// Reads the replication status of one channel. Without a name, the server must have only one.
pub(crate) async fn read_channel(
    connection: &mut Connection,
    name: Option<&str>,
) -> Result<ReplicationChannel, PrefetchError> {
    let server = connection.server();
    let (statement, is_new) = match server.flavour {
        Flavour::MySql if server.has(ServerFeature::ShowReplicaStatus) => ("SHOW REPLICA STATUS", true),
        Flavour::MySql => ("SHOW SLAVE STATUS", false),
        Flavour::MariaDb => ("SHOW ALL SLAVES STATUS", false),
    };
    let status = connection.query(statement).await.map_err(PrefetchError::replica)?;
    let mut channels = channels_of(&status, is_new);
    if let Some(name) = name {
        channels.retain(|channel| channel.name == name);
    }
    match (channels.len(), channels.pop()) {
        (1, Some(channel)) => Ok(channel),
        (count, _) => Err(PrefetchError::NotAReplica {
            replica: connection.endpoint().to_owned(),
            channels: count,
            name: name
                .filter(|name| !name.is_empty())
                .map(|name| format!(" named {name}"))
                .unwrap_or_default(),
            remedy: match count {
                0 => "configure its replication first, and check the name",
                _ => "name one with --channel",
            },
        }),
    }
}

fn channels_of(status: &QueryResult, is_new: bool) -> Vec<ReplicationChannel> {
    let name = |new: &'static str, old: &'static str| if is_new { new } else { old };
    let columns = [
        name("Source_Host", "Master_Host"),
        name("Source_Port", "Master_Port"),
        name("Relay_Source_Log_File", "Relay_Master_Log_File"),
        name("Exec_Source_Log_Pos", "Exec_Master_Log_Pos"),
        name("Replica_SQL_Running", "Slave_SQL_Running"),
        "Last_SQL_Error",
        name("Replica_IO_Running", "Slave_IO_Running"),
        "Last_IO_Error",
        "Auto_Position",
    ]
    .map(|column| status.column(column));
    let channel = status.column("Channel_Name").or_else(|| status.column("Connection_name"));
    let of = |row: &tailwater_session::TextRow, column: Option<usize>| {
        column.and_then(|column| row.get_str(column)).unwrap_or_default().to_owned()
    };
    status
        .rows
        .iter()
        .map(|row| {
            let field = |index: usize| of(row, columns[index]);
            let stopped =
                [("applier", 4, 5), ("receiver", 6, 7)].into_iter().find_map(|(thread, runs, error)| {
                    let is_stopped = field(runs) == "No";
                    is_stopped.then(|| match field(error).as_str() {
                        "" => format!("the replica's {thread} is stopped"),
                        // The server's text may contain values of rows.
                        _ => format!(
                            "the replica's {thread} has stopped with an error: see its replication status"
                        ),
                    })
                });
            ReplicationChannel {
                source: (field(0), field(1).parse().unwrap_or(3306)),
                executed: FilePlace { file: field(2), offset: field(3).parse().unwrap_or(4) },
                name: of(row, channel),
                has_auto_position: field(8) == "1",
                stopped,
            }
        })
        .collect()
}

/// What a replica did since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ServerCounters {
    /// Pages that InnoDB has read from disk because a query needed them.
    pub(crate) pool_reads: u64,
    /// Rows that InnoDB has inserted, updated and deleted.
    pub(crate) changed_rows: u64,
}

/// Reads the counters of a replica.
pub(crate) async fn server_counters(connection: &mut Connection) -> Result<ServerCounters, SessionError> {
    const READS: &str = "Innodb_buffer_pool_reads";
    let names = [READS, "Innodb_rows_inserted", "Innodb_rows_updated", "Innodb_rows_deleted"]
        .map(|name| format!("'{name}'"))
        .join(", ");
    let answer = connection.query(&format!("SHOW GLOBAL STATUS WHERE Variable_name IN ({names})")).await?;
    let mut counters = ServerCounters::default();
    for row in &answer.rows {
        let value = row.get_u64(1).unwrap_or(0);
        match row.get_str(0).is_some_and(|name| name.eq_ignore_ascii_case(READS)) {
            true => counters.pool_reads += value,
            false => counters.changed_rows += value,
        }
    }
    Ok(counters)
}

/// Reads how many pages that were read only once stay in the buffer pool.
pub(crate) async fn pages_read_once(connection: &mut Connection) -> Result<u64, SessionError> {
    let variables =
        "SELECT @@GLOBAL.innodb_buffer_pool_size, @@GLOBAL.innodb_page_size, @@GLOBAL.innodb_old_blocks_pct";
    let answer = connection.query(variables).await?;
    let number = |column: usize| answer.first().and_then(|row| row.get_u64(column)).unwrap_or(0);
    let pages = number(0) / number(1).max(1);
    Ok(pages * number(2) / 100)
}
