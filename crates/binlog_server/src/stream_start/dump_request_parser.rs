//! Parses a client's dump command, together with the variables that the client has set.

use std::time::Duration;

use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::ChecksumAlgorithm;
use tailwater_wire::gtid::{MariadbPosition, MysqlGtidSet};
use tailwater_wire::protocol::command::{ClientCommand, DumpFlags};

use crate::client_error::ClientError;
use crate::client_statement::StatementSession;

/// MariaDB clients with this capability, or a higher one, understand GTID events. For older clients a server
/// would have to rewrite events.
const MARIADB_CAPABILITY_GTID: i128 = 4;

/// A flag that a MySQL client sends to request heartbeats of version 2.
const FLAG_HEARTBEAT_V2: DumpFlags = DumpFlags(0x02);

/// A client's request for a binlog stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientDumpRequest {
    /// The client's own server id.
    pub server_id: u32,
    /// The `server_uuid` of a MySQL replica.
    pub replica_uuid: Option<String>,
    /// Where the client wants the stream to start.
    pub from: RequestedStart,
    /// Whether the client waits for more events at the end of the log.
    pub wait_for_more: bool,
    /// The client wants a heartbeat whenever the server has sent no event for this long.
    pub heartbeat_period: Option<Duration>,
    /// Whether the client understands heartbeats of version 2.
    pub heartbeat_v2: bool,
    /// The checksum algorithm that the client accepts; `None` if it does not support checksums.
    pub checksum: Option<ChecksumAlgorithm>,
    /// For MariaDB: whether to send the texts of statements that changed rows.
    pub annotate_rows: bool,
    /// For MariaDB: whether to leave out events marked with `skip_replication`.
    pub skip_marked: bool,
    /// Whether the client acknowledges transactions.
    pub semi_sync: bool,
}

/// Where a client wants its stream to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedStart {
    /// The stream starts at an offset in a file. An empty name requests the oldest file.
    FilePosition {
        /// The name of the file.
        file: String,
        /// The offset in the file.
        position: u64,
    },
    /// For MySQL: the stream has all transactions that are not in a GTID set.
    Mysql {
        /// The transactions that the client has.
        has: MysqlGtidSet,
        /// The file to start in, unless the name is empty.
        file: String,
        /// The offset in the file.
        position: u64,
    },
    /// For MariaDB: the stream starts after the client's last GTID of each domain.
    Mariadb(MariadbRequest),
}

/// The GTID settings of a MariaDB client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MariadbRequest {
    /// `@slave_connect_state`: the client's last GTID of each domain.
    pub position: MariadbPosition,
    /// `@slave_gtid_strict_mode`: whether it is an error if the client's GTID is in a hole of the log.
    pub strict: bool,
    /// `@slave_gtid_ignore_duplicates`: whether the client may be ahead of the log.
    pub ignore_duplicates: bool,
    /// `@slave_until_gtid`: the last GTID to send in each domain.
    pub until: Option<MariadbPosition>,
    /// `@slave_gtid_until_before_gtids`: whether to stop before the GTIDs in `until`, not after them.
    pub until_before: bool,
}

impl ClientDumpRequest {
    /// Whether the client is a replica, which reconnects under the same server id. Other programs, such as
    /// MySQL's mysqlbinlog, use server id 0, or 1 if they wait for more events. A replica may have server id
    /// 1 too. A MySQL replica is recognised by its UUID, and a MariaDB replica by its request for heartbeats.
    pub fn is_replica(&self) -> bool {
        let is_marked = self.replica_uuid.is_some() || self.heartbeat_period.is_some();
        self.wait_for_more && (self.server_id > 1 || is_marked)
    }

    /// Parses a client's dump command for a log of `flavour`. `None` for any other command.
    ///
    /// # Errors
    /// If the client is of the other flavour or too old, or if its GTIDs cannot be parsed.
    pub fn new(
        command: &ClientCommand<'_>,
        session: &StatementSession,
        flavour: Flavour,
    ) -> Option<Result<Self, ClientError>> {
        match command {
            ClientCommand::BinlogDump { position, flags, server_id, file } => {
                let from = match (flavour, session.connect_state()) {
                    (Flavour::MariaDb, Some(state)) => {
                        mariadb_request(session, &state).map(RequestedStart::Mariadb)
                    }
                    _ => Ok(RequestedStart::FilePosition {
                        file: String::from_utf8_lossy(file).into_owned(),
                        position: u64::from(*position),
                    }),
                };
                Some(Self::with(from, server_id.0, *flags, session, flavour))
            }
            ClientCommand::BinlogDumpGtid { flags, server_id, file, position, set_block } => {
                let from = MysqlGtidSet::decode(set_block)
                    .map(|has| RequestedStart::Mysql {
                        has,
                        file: String::from_utf8_lossy(file).into_owned(),
                        position: *position,
                    })
                    .map_err(|error| {
                        ClientError::dump(format!("The GTID set that the client sent: {error}"))
                    });
                let mismatch = (flavour == Flavour::MariaDb).then(mysql_client_of_mariadb);
                let from = mismatch.map_or(from, Err);
                Some(Self::with(from, server_id.0, *flags, session, flavour))
            }
            _ => None,
        }
    }

    fn with(
        from: Result<RequestedStart, ClientError>,
        server_id: u32,
        flags: DumpFlags,
        session: &StatementSession,
        flavour: Flavour,
    ) -> Result<Self, ClientError> {
        check_flavour(session, flavour)?;
        Ok(Self {
            server_id,
            replica_uuid: session.replica_uuid(),
            from: from?,
            wait_for_more: server_id != 0 && !flags.has(DumpFlags::NON_BLOCK),
            heartbeat_period: session.heartbeat_period(),
            heartbeat_v2: flavour == Flavour::MySql && flags.has(FLAG_HEARTBEAT_V2),
            checksum: session.checksum(),
            annotate_rows: flavour == Flavour::MariaDb && flags.has(DumpFlags::SEND_ANNOTATE_ROWS),
            skip_marked: session.skip_replication(),
            semi_sync: session.semi_sync(),
        })
    }
}

/// Refuses clients of the other flavour, because they do not understand the log's events. MySQL and MariaDB
/// clients show their flavour in different ways.
fn check_flavour(session: &StatementSession, flavour: Flavour) -> Result<(), ClientError> {
    match (flavour, session.mariadb_capability()) {
        (Flavour::MySql, Some(_)) => Err(ClientError::dump(
            "This is the log of a MySQL source, and the client is a MariaDB replica or mariadb-binlog, which \
             cannot read it; use a MySQL replica or mysqlbinlog of MySQL",
        )),
        (Flavour::MySql, None) => Ok(()),
        (Flavour::MariaDb, _) if session.replica_uuid().is_some() => Err(mysql_client_of_mariadb()),
        (Flavour::MariaDb, Some(capability)) if capability >= MARIADB_CAPABILITY_GTID => Ok(()),
        (Flavour::MariaDb, capability) => Err(ClientError::dump(format!(
            "This is the log of a MariaDB source, and the client announces capability {} \
             (@mariadb_slave_capability); {} is needed to read GTID events: a replica or mariadb-binlog of \
             MariaDB 10.0.3 or later",
            capability.unwrap_or(0),
            MARIADB_CAPABILITY_GTID,
        ))),
    }
}

fn mysql_client_of_mariadb() -> ClientError {
    ClientError::dump(
        "This is the log of a MariaDB source, and the client is a MySQL replica or mysqlbinlog of MySQL, \
         which cannot read it; use a MariaDB replica or mariadb-binlog",
    )
}

fn mariadb_request(session: &StatementSession, state: &str) -> Result<MariadbRequest, ClientError> {
    let parse = |text: &str, what: &str| {
        MariadbPosition::parse(text)
            .map_err(|error| ClientError::dump(format!("Cannot parse {what} of the client: {error}")))
    };
    Ok(MariadbRequest {
        position: parse(state, "@slave_connect_state")?,
        strict: session.is_on("slave_gtid_strict_mode"),
        ignore_duplicates: session.is_on("slave_gtid_ignore_duplicates"),
        until: session.until().map(|text| parse(&text, "@slave_until_gtid")).transpose()?,
        until_before: session.is_on("slave_gtid_until_before_gtids"),
    })
}

#[cfg(test)]
mod tests {
    use tailwater_wire::ServerId;

    use super::*;
    use crate::client_statement::SqlValue;

    fn session(variables: &[(&str, &str)]) -> StatementSession {
        let mut session = StatementSession::new();
        for (name, value) in variables {
            session.set_variable(name, SqlValue::Text((*value).into())).unwrap();
        }
        session
    }

    fn dump(flags: u16, server_id: u32) -> ClientCommand<'static> {
        ClientCommand::BinlogDump {
            position: 120,
            flags: DumpFlags(flags),
            server_id: ServerId(server_id),
            file: b"b.1",
        }
    }

    fn dump_gtid(set_block: &[u8]) -> ClientCommand<'_> {
        ClientCommand::BinlogDumpGtid {
            flags: DumpFlags(2),
            server_id: ServerId(9),
            file: b"",
            position: 4,
            set_block,
        }
    }

    fn refused(command: &ClientCommand<'_>, session: &StatementSession, flavour: Flavour) -> String {
        let refusal = ClientDumpRequest::new(command, session, flavour).unwrap().unwrap_err();
        assert_eq!(refusal.code, 1236);
        refusal.message
    }

    #[test]
    fn a_mysql_replica_by_gtid_is_parsed() {
        let has = MysqlGtidSet::parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5").unwrap();
        let session = session(&[
            ("replica_uuid", "r"),
            ("source_binlog_checksum", "CRC32"),
            ("source_heartbeat_period", "2000000000"),
            ("rpl_semi_sync_replica", "1"),
        ]);
        let block = has.encode();
        let request = ClientDumpRequest::new(&dump_gtid(&block), &session, Flavour::MySql).unwrap().unwrap();
        assert_eq!(request.from, RequestedStart::Mysql { has, file: String::new(), position: 4 });
        assert!(request.heartbeat_v2 && request.wait_for_more && request.semi_sync && !request.annotate_rows);
        assert_eq!(request.heartbeat_period, Some(Duration::from_secs(2)));
        assert_eq!(request.checksum, Some(ChecksumAlgorithm::Crc32));
        assert!(refused(&dump_gtid(&[1; 7]), &session, Flavour::MySql).contains("GTID set"));
    }

    #[test]
    fn replicas_are_distinguished_from_other_programs() {
        let is_replica = |server_id, session: &StatementSession, flavour| {
            ClientDumpRequest::new(&dump(0, server_id), session, flavour).unwrap().unwrap().is_replica()
        };
        let (program, mysql) = (session(&[]), session(&[("replica_uuid", "r")]));
        assert!(
            !is_replica(0, &mysql, Flavour::MySql),
            "a client that does not wait at the end of the log is not a replica"
        );
        // `mysqlbinlog --stop-never` uses server id 1, and so do many replicas.
        assert!(!is_replica(1, &program, Flavour::MySql) && is_replica(1, &mysql, Flavour::MySql));
        assert!(is_replica(2, &program, Flavour::MySql));
        let wanted = &[("mariadb_slave_capability", "4"), ("master_heartbeat_period", "30000000000")];
        let program = session(&wanted[..1]);
        assert!(
            !is_replica(1, &program, Flavour::MariaDb) && is_replica(1, &session(wanted), Flavour::MariaDb)
        );
    }

    #[test]
    fn a_mariadb_replica_by_gtid_is_parsed() {
        let session = session(&[
            ("mariadb_slave_capability", "4"),
            ("slave_connect_state", "0-1-7,2-3-4"),
            ("slave_gtid_strict_mode", "1"),
            ("slave_gtid_ignore_duplicates", "0"),
            ("slave_until_gtid", "0-1-9"),
        ]);
        let request = ClientDumpRequest::new(&dump(2, 9), &session, Flavour::MariaDb).unwrap().unwrap();
        let expected = MariadbRequest {
            position: MariadbPosition::parse("0-1-7,2-3-4").unwrap(),
            strict: true,
            until: Some(MariadbPosition::parse("0-1-9").unwrap()),
            ..MariadbRequest::default()
        };
        assert_eq!(request.from, RequestedStart::Mariadb(expected));
        assert!(request.annotate_rows && !request.heartbeat_v2);
    }

    #[test]
    fn a_request_by_position_without_waiting_is_parsed() {
        let mariadb = session(&[("mariadb_slave_capability", "4")]);
        let request = ClientDumpRequest::new(&dump(1, 9), &mariadb, Flavour::MariaDb).unwrap().unwrap();
        assert_eq!(request.from, RequestedStart::FilePosition { file: "b.1".into(), position: 120 });
        assert!(!request.wait_for_more);
        let request = ClientDumpRequest::new(&dump(0, 0), &session(&[]), Flavour::MySql).unwrap().unwrap();
        assert!(!request.wait_for_more);
        assert!(ClientDumpRequest::new(&ClientCommand::Ping, &mariadb, Flavour::MariaDb).is_none());
    }

    #[test]
    fn clients_of_the_other_flavour_are_refused() {
        let mariadb = session(&[("mariadb_slave_capability", "4")]);
        assert!(refused(&dump(0, 9), &mariadb, Flavour::MySql).contains("log of a MySQL source"));
        let mysql = session(&[("slave_uuid", "u")]);
        assert!(refused(&dump(0, 9), &mysql, Flavour::MariaDb).contains("log of a MariaDB source"));
        assert!(refused(&dump_gtid(&[0; 8]), &session(&[]), Flavour::MariaDb).contains("MariaDB source"));
        let old = session(&[("mariadb_slave_capability", "2")]);
        assert!(refused(&dump(0, 9), &old, Flavour::MariaDb).contains("announces capability 2"));
        assert!(refused(&dump(0, 9), &session(&[]), Flavour::MariaDb).contains("announces capability 0"));
        let malformed = session(&[("mariadb_slave_capability", "4"), ("slave_connect_state", "0-1")]);
        assert!(refused(&dump(0, 9), &malformed, Flavour::MariaDb).contains("@slave_connect_state"));
    }
}
