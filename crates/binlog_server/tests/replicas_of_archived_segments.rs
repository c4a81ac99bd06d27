//! Replicas that were disconnected for a long time, and replicas that start with segments that exist only in
//! the archive.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, ensure};
use tailwater_log::archive::{ArchiveObject, ArchiveOptions, ArchiveStore};
use tailwater_log::{Archive, LogDir};
use tailwater_sandbox::ServerKind;
use tailwater_sandbox::native_replica::{start_statement, stop_statement};
use tailwater_sandbox::server_or_skip::is_skipped_in_ci;

use crate::binlog_server_with_replicas::{Tailwater, check_equal, start_replica, until_in_step};
use crate::capture_test_source::{Source, run};

/// An archive store in a local folder.
#[derive(Debug)]
struct FolderStore {
    folder: PathBuf,
    url: String,
}

impl FolderStore {
    fn new(folder: PathBuf) -> Self {
        Self { url: folder.display().to_string(), folder }
    }
}

impl ArchiveStore for FolderStore {
    fn url(&self) -> &str {
        &self.url
    }

    fn put(&self, name: &str, content: &mut dyn Read) -> io::Result<()> {
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().ok_or(ErrorKind::InvalidInput)?)?;
        let staged = self.folder.join(format!("{name}.staged"));
        io::copy(content, &mut fs::File::create(&staged)?)?;
        fs::rename(&staged, &path)
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let file = fs::File::open(self.folder.join(name))?;
        let mut filled = 0;
        while filled < buffer.len() {
            match file.read_at(&mut buffer[filled..], offset + filled as u64)? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(filled)
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        Ok(fs::metadata(self.folder.join(name))?.len())
    }

    fn list(&self, folder: &str) -> io::Result<Vec<ArchiveObject>> {
        let mut objects = Vec::new();
        let mut folders = vec![folder.trim_end_matches('/').to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(self.folder.join(&folder)) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
                let name = name.trim_start_matches('/').to_owned();
                let metadata = entry.metadata()?;
                match metadata.is_dir() {
                    true => folders.push(name),
                    false => objects.push(ArchiveObject {
                        name,
                        bytes: metadata.len(),
                        modified: metadata.modified()?,
                    }),
                }
            }
        }
        Ok(objects)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.folder.join(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }
}

/// How many megabytes are written while a replica is disconnected.
fn megabytes() -> u32 {
    let long = std::env::var_os("TAILWATER_LONG").is_some_and(|value| value == "1");
    if long { 1000 } else { 100 }
}

async fn lag(kind: ServerKind) -> Result<()> {
    let options = ["--max-binlog-size=16777216", "--max-allowed-packet=67108864"];
    let Some(mut source) = Source::start(kind, &options).await? else { return Ok(()) };
    let flavour = source.flavour();
    let store = Arc::new(FolderStore::new(source.folder.path().join("archive")));
    let archive = Archive::new(store, "primary");
    let mut tailwater = Tailwater::of(&source)?;
    tailwater.capture.log.archive = Some(archive.clone());
    tailwater.start_again().await?;
    source.prepare().await?;
    let replica_options = ["--max-allowed-packet=67108864", "--skip-log-bin"];
    let away = start_replica(kind, "away", &replica_options).await?;
    away.replicate(&tailwater.replica()).await?;
    source.write(10).await?;
    until_in_step(&away, &source.server).await?;

    away.sql(stop_statement(flavour)).await?;
    source.server.sql("CREATE TABLE tw_load.big (id INT PRIMARY KEY, body LONGBLOB)").await?;
    let count = megabytes();
    // One transaction is bigger than any buffer; the many other transactions are small.
    let big = "INSERT INTO tw_load.big VALUES (0, REPEAT('tailwater', 2000000))";
    source.server.sql(big).await?;
    for first in (1..=count).step_by(50) {
        let rows = (first..=count.min(first + 49))
            .map(|id| format!("INSERT INTO tw_load.big VALUES ({id}, REPEAT(SHA2({id}, 512), 8192));"));
        source.server.sql(&rows.collect::<String>()).await?;
    }
    source.write(10).await?;
    source.until_complete("log").await?;
    let bytes = tailwater.log()?.segments().iter().map(|segment| segment.bytes).sum::<u64>();
    ensure!(bytes > u64::from(count) << 20, "the source has written only {bytes} bytes");
    away.sql(start_statement(flavour)).await?;
    check_equal(&away, &source.server, &source.ledger).await?;

    // All segments except the newest are archived and then purged from the log's directory.
    source.rotate().await?;
    source.write(5).await?;
    check_equal(&away, &source.server, &source.ledger).await?;
    let log = source.log("log");
    let archived =
        LogDir::open_read_only(&log)?.archive_sealed(&archive, ArchiveOptions::default(), |_| ())?;
    ensure!(archived.segments.len() > 5, "too few segments were archived: {archived:?}");
    let newest = source.newest().await?.0;
    tailwater.sql(&format!("PURGE BINARY LOGS TO '{newest}'")).await?;
    ensure!(LogDir::open_read_only(&log)?.segments()?.len() == 1);
    let listed = tailwater.sql("SHOW BINARY LOGS").await?;
    ensure!(listed.len() > 5, "SHOW BINARY LOGS lacks archived files: {listed:?}");

    // A new replica starts with archived segments and continues to the newest segment.
    let newcomer = start_replica(kind, "newcomer", &replica_options).await?;
    newcomer.replicate(&tailwater.replica()).await?;
    source.write(5).await?;
    check_equal(&newcomer, &source.server, &source.ledger).await?;
    let checksum = "CHECKSUM TABLE tw_load.big";
    for replica in [&away, &newcomer] {
        ensure!(replica.sql(checksum).await? == source.server.sql(checksum).await?);
    }
    tailwater.stop().await
}

#[test]
fn replicas_of_mysql_97_read_archived_segments() -> Result<()> {
    run(lag(ServerKind::Mysql97))
}

#[test]
fn replicas_of_mariadb_118_read_archived_segments() -> Result<()> {
    if is_skipped_in_ci(
        "replicas_of_archived_segments::replicas_of_mariadb_118_read_archived_segments",
        "the same test on MariaDB 10.11",
    ) {
        return Ok(());
    }
    run(lag(ServerKind::Mariadb118))
}
