//! Starts a source and its native replica.

use anyhow::Result;
use tailwater_sandbox::{Server, ServerKind, ServerSpec};

/// A source and its native replica.
pub struct ReplicaPair {
    pub source: Server,
    pub target: Server,
}

impl ReplicaPair {
    pub async fn start(kind: ServerKind) -> Result<Self> {
        let (source, target) = tokio::try_join!(
            Server::start(ServerSpec::new(kind).name("source")),
            Server::start(ServerSpec::new(kind).name("target"))
        )?;
        target.replicate_from(&source).await?;
        Ok(Self { source, target })
    }
}

/// Returns the query for the GTIDs that a server has.
pub fn gtids(kind: ServerKind) -> &'static str {
    match kind {
        ServerKind::Mysql97 => "SELECT @@GLOBAL.gtid_executed",
        _ => "SELECT @@GLOBAL.gtid_binlog_pos",
    }
}
