//! The binlog servers, and who reads their streams. Pure.

use askama::Template;
use tailwater_daemon::api::daemon_status::{BinlogServerStatus, DaemonStatus};

use super::display_format::UNKNOWN;
use super::page_layout::PageFrame;

/// All binlog servers.
#[derive(Debug, Template)]
#[template(path = "page/binlog_servers.html")]
pub(super) struct BinlogServerList {
    pub(super) frame: PageFrame,
    pub(super) servers: Vec<BinlogServerPanel>,
}

/// A binlog server with its readers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BinlogServerPanel {
    pub(super) source: String,
    pub(super) listen: String,
    pub(super) durable: String,
    pub(super) readers: Vec<ReaderRow>,
}

/// A client that reads a stream, in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReaderRow {
    pub(super) name: String,
    pub(super) server_id: String,
    pub(super) peer: String,
    pub(super) sent: String,
}

impl BinlogServerList {
    pub(super) fn new(frame: PageFrame, status: &DaemonStatus) -> Self {
        let panel = |server: &BinlogServerStatus| BinlogServerPanel {
            source: server.source.clone(),
            listen: server.listen.clone(),
            durable: status
                .sources
                .iter()
                .find(|source| source.source == server.source)
                .map_or_else(|| UNKNOWN.to_owned(), |source| source.durable.clone()),
            readers: server
                .readers
                .iter()
                .map(|reader| ReaderRow {
                    name: reader.name.clone().unwrap_or_else(|| "not configured".to_owned()),
                    server_id: match reader.server_id {
                        0 => "no replica".to_owned(),
                        id => id.to_string(),
                    },
                    peer: reader.peer.clone(),
                    sent: reader.sent.clone(),
                })
                .collect(),
        };
        Self { frame, servers: status.binlog_servers.iter().map(panel).collect() }
    }
}
