//! Helpers for several tests: running a test on each server, and reading the events that a server has logged.

use anyhow::{Context, Result};
use bytes::Bytes;
use tailwater_sandbox::Server;
use tailwater_session::Connection;
use tailwater_wire::binlog_event::{BINLOG_MAGIC, EventHeader};

/// Makes the server start a new binlog file.
pub async fn flush(connection: &mut Connection) -> Result<()> {
    connection.execute("FLUSH BINARY LOGS").await?;
    Ok(())
}

/// Returns the events of the server's newest binlog file, with their checksums.
pub async fn newest_events(server: &Server, connection: &mut Connection) -> Result<Vec<Bytes>> {
    let files = connection.query("SHOW BINARY LOGS").await?;
    let name = files.rows.last().and_then(|row| row.get_str(0)).context("the server has no binlog file")?;
    split(std::fs::read(server.data().join(name))?)
}

/// Returns the events of a binlog file.
pub fn split(file: Vec<u8>) -> Result<Vec<Bytes>> {
    let mut rest = Bytes::from(file).split_off(BINLOG_MAGIC.len());
    let mut events = Vec::new();
    while !rest.is_empty() {
        let length = EventHeader::parse(&rest)?.event_length as usize;
        events.push(rest.split_to(length));
    }
    Ok(events)
}
