//! Writes dump folders for the tests of loads.

use std::sync::Arc;

use anyhow::{Result, ensure};
use tailwater_dump::dump_folder::DumpCompression;
use tailwater_dump::{DumpOptions, dump};
use tailwater_sandbox::Server;
use tailwater_tables::BulkProgress;
use tokio_util::sync::CancellationToken;

/// Dumps a server. Data files of tables with a key have at most `rows` rows.
pub async fn write(
    server: &Server,
    compression: DumpCompression,
    chunk_rows_max: u64,
) -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    let options = DumpOptions::new(server.connect_options(), folder.path());
    let options = DumpOptions { compression, chunk_rows_max, ..options };
    let report = dump(options, Arc::new(BulkProgress::default()), CancellationToken::new()).await?;
    ensure!(report.manifest.is_complete());
    Ok(folder)
}
