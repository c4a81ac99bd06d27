//! Queries the source of a channel about its tables, with the account of the capture.

use std::sync::Arc;

use anyhow::Context;
use tailwater_apply::source_table_columns::{SourceAnswer, SourceCatalogue, read_source_table};
use tailwater_capture::CaptureStatus;
use tailwater_session::{ConnectOptions, Connection};

use super::connect_options;
use tailwater_config::Config;

/// The server that a capture follows now. Each query opens its own session.
#[derive(Debug)]
struct CapturedSource {
    /// The connection to the source's own server.
    own: ConnectOptions,
    status: Arc<CaptureStatus>,
}

impl SourceCatalogue for CapturedSource {
    fn table<'a>(&'a self, schema: &'a str, table: &'a str) -> SourceAnswer<'a> {
        Box::pin(async move {
            let followed = self.status.followed_server();
            let mut connection = Connection::connect(followed.as_ref().unwrap_or(&self.own)).await?;
            let answer = read_source_table(&mut connection, schema, table).await;
            connection.close().await;
            answer
        })
    }
}

/// Returns the catalogue of the source named `source`. `status` is the status of the source's capture.
///
/// # Errors
/// If an option file with the source's credentials cannot be read.
pub fn source_catalogue(
    config: &Config,
    source: &str,
    status: Arc<CaptureStatus>,
) -> anyhow::Result<Arc<dyn SourceCatalogue>> {
    let configured = config.sources.iter().find(|configured| configured.name == source);
    let configured = configured.with_context(|| format!("there is no source {source:?}"))?;
    let own = connect_options(configured.server()).with_context(|| format!("source {source}"))?;
    Ok(Arc::new(CapturedSource { own, status }))
}
