//! Example logs and the example data of a binlog server for the checks.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::{ChecksumAlgorithm, FIRST_EVENT_OFFSET};
use tailwater_wire::gtid::{GtidSet, MariadbBinlogState, MysqlGtid, MysqlGtidSet};

use crate::binlog_file_list::{Catalog, SegmentView};
use crate::client_error::ClientError;
use crate::client_statement::{
    ProcessView, ReceiverError, ReceiverView, ReplicaView, ServedGtids, ServerView,
};
use crate::stream_start::LogHistory;

/// The `server_uuid` of the source.
const SOURCE: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

/// The `server_uuid` of another server whose transactions are in the log.
const OTHER: &str = "00000000-0000-0000-0000-00000000000b";

/// The maximum length of any text of the example server, in bytes.
pub(super) const VIEW_TEXT_BYTES_MAX: usize = 512;

static MYSQL_VIEW: LazyLock<ServerView> = LazyLock::new(|| {
    let set = |text: &str| MysqlGtidSet::parse(text).expect("the GTID set of an example log is valid");
    make_view(ServedGtids::Mysql {
        executed: set(&format!("{SOURCE}:1-30:tag:1-3,{OTHER}:1-5")),
        purged: set(&format!("{SOURCE}:1-10")),
        mode: "ON".into(),
    })
});

static MARIADB_VIEW: LazyLock<ServerView> = LazyLock::new(|| {
    let state = MariadbBinlogState::parse("0-1-20,0-2-30,2-3-7")
        .expect("the binlog state of an example log is valid");
    make_view(ServedGtids::Mariadb { state, domain: 0 })
});

/// The data of an example binlog server of this flavour.
pub(super) fn view(flavour: Flavour) -> &'static ServerView {
    match flavour {
        Flavour::MySql => &MYSQL_VIEW,
        Flavour::MariaDb => &MARIADB_VIEW,
    }
}

fn make_view(gtids: ServedGtids) -> ServerView {
    let replica = ReplicaView { server_id: 2, host: "replica".into(), port: 3306, ..ReplicaView::default() };
    let process =
        ProcessView { id: 7, user: "repl".into(), command: "Query".into(), ..ProcessView::default() };
    let error = ReceiverError { number: 2013, message: "the stream ended".into(), time: 1_709_207_999 };
    ServerView {
        server_version: "9.7.0".into(),
        server_id: 4711,
        server_uuid: SOURCE.into(),
        hostname: "tailwater".into(),
        port: 3307,
        gtids,
        checksum: ChecksumAlgorithm::Crc32,
        files: vec![("b.000001".into(), 1000), ("b.000002".into(), 333)],
        replicas: vec![ReplicaView { semi_sync: true, ..replica.clone() }, replica],
        processes: vec![process.clone(), ProcessView { id: 8, ..process }],
        capture: ReceiverView {
            connecting: true,
            source_host: "db1".into(),
            source_server_id: Some(1),
            file: "b.000002".into(),
            position: 333,
            last_error: Some(error),
            ..ReceiverView::default()
        },
        source_variables: [("binlog_format".to_owned(), "ROW".to_owned())].into(),
        semi_sync: true,
        now_us: 1_709_208_000_000_000,
        uptime_seconds: 60,
        user: "repl@127.0.0.1".into(),
        connection_id: 7,
    }
}

/// An example log.
pub(super) struct ExampleLog {
    flavour: Flavour,
    catalog: Catalog,
    before: BTreeMap<u64, Option<GtidSet>>,
    gtids: GtidSet,
}

/// The properties of a segment: the source's file, the offset in the file, the epoch of the source, and the
/// transactions before the segment.
type SegmentSpec<'a> = (&'a str, u64, u32, Option<&'a str>);

impl ExampleLog {
    /// A log with segments of 1000 bytes, numbered from `first_number`. `gtids` are all transactions of the
    /// log.
    fn new(flavour: Flavour, first_number: u64, segments: &[SegmentSpec<'_>], gtids: &str) -> Self {
        let set =
            |text: &str| GtidSet::parse(flavour, text).expect("the GTID set of an example log is valid");
        let numbered = || (first_number..).zip(segments);
        let view = |(number, (file, source_offset, epoch, _)): (u64, &SegmentSpec<'_>)| SegmentView {
            number,
            source_file: (*file).to_owned(),
            source_offset: *source_offset,
            head_bytes: if *source_offset == FIRST_EVENT_OFFSET { 0 } else { 122 },
            bytes: 1000,
            sealed: number + 1 < first_number + segments.len() as u64,
            epoch: *epoch,
        };
        Self {
            flavour,
            catalog: Catalog::new(numbered().map(view)),
            before: numbered().map(|(number, (_, _, _, before))| (number, before.map(set))).collect(),
            gtids: set(gtids),
        }
    }
}

impl LogHistory for ExampleLog {
    fn flavour(&self) -> Flavour {
        self.flavour
    }

    fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    fn gtids(&self) -> GtidSet {
        self.gtids.clone()
    }

    fn gtids_before(&self, segment: u64) -> Result<Option<GtidSet>, ClientError> {
        Ok(self.before.get(&segment).cloned().flatten())
    }

    fn source_uuid(&self) -> Option<[u8; 16]> {
        let gtid = MysqlGtid::parse(&format!("{SOURCE}:1")).ok()?;
        (self.flavour == Flavour::MySql).then_some(gtid.uuid)
    }
}

/// Creates the example logs: a complete log; a purged log that continues from another source; a log that
/// started in the middle of a file and has a hole; an empty log.
fn make_logs(flavour: Flavour, [first, second, third]: [&str; 3], all: &str) -> Vec<ExampleLog> {
    let whole =
        [("b.000001", 4, 1, Some("")), ("b.000002", 4, 1, Some(first)), ("b.000003", 4, 1, Some(second))];
    let moved =
        [("b.000003", 4, 1, Some(first)), ("b.000001", 4, 2, Some(second)), ("b.000002", 4, 2, Some(third))];
    let holed = [
        ("b.000003", 500, 1, None),
        ("b.000003", 2000, 1, Some(second)),
        // The source started this file again.
        ("b.000003", 4, 1, Some(third)),
    ];
    vec![
        ExampleLog::new(flavour, 1, &whole, all),
        ExampleLog::new(flavour, 3, &moved, all),
        ExampleLog::new(flavour, 1, &holed, all),
        ExampleLog::new(flavour, 1, &[], ""),
    ]
}

static MYSQL_LOGS: LazyLock<Vec<ExampleLog>> = LazyLock::new(|| {
    let before =
        [format!("{SOURCE}:1-10"), format!("{SOURCE}:1-20"), format!("{SOURCE}:1-20:tag:1-3,{OTHER}:1-5")];
    let all = format!("{SOURCE}:1-30:tag:1-3,{OTHER}:1-5");
    make_logs(Flavour::MySql, before.each_ref().map(String::as_str), &all)
});

static MARIADB_LOGS: LazyLock<Vec<ExampleLog>> = LazyLock::new(|| {
    let before = ["0-1-10,2-3-7", "0-1-20,2-3-7", "0-1-20,0-2-25,2-3-7"];
    make_logs(Flavour::MariaDb, before, "0-1-20,0-2-30,2-3-7")
});

/// The example logs of a flavour.
pub(super) fn logs(flavour: Flavour) -> &'static [ExampleLog] {
    match flavour {
        Flavour::MySql => &MYSQL_LOGS,
        Flavour::MariaDb => &MARIADB_LOGS,
    }
}
