//! Dumps in S3. They are written over links with faults, killed during uploads, resumed, and loaded.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use tailwater_dump::dump_folder::JournalEntry;
use tailwater_dump::dump_folder::dump_file_names::chunk_file;
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_session::Connection;
use tailwater_tables::journal_file;
use tokio::runtime::Runtime;

use crate::shell_session::{PROGRAM, Shell};
use crate::test_s3_server::{ACCESS_KEY, BUCKET, S3Server, SECRET_KEY};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Number of rows in the table that is split into many files.
const ROWS: usize = 20_000;

async fn started(kind: ServerKind) -> Result<Server> {
    let options = ["--local-infile=1", "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2"];
    Ok(Server::start(ServerSpec::new(kind).options(options)).await?)
}

/// Creates three tables: one that is split into many files; one whose file needs several parts of a multipart
/// upload; one whose name must be escaped in the name of an S3 object.
async fn fill(server: &Server) -> Result<()> {
    let mut connection = Connection::connect(&server.socket_options()).await?;
    for statement in [
        "CREATE DATABASE shop CHARACTER SET utf8mb4",
        "CREATE TABLE shop.many (id INT PRIMARY KEY, t TEXT)",
        "CREATE TABLE shop.large (b MEDIUMBLOB)",
        "CREATE TABLE shop.`odd ~na%2Eme/ä` (a INT)",
        "INSERT INTO shop.`odd ~na%2Eme/ä` VALUES (1), (2)",
        "CREATE VIEW shop.v AS SELECT COUNT(*) FROM shop.many",
    ] {
        connection.execute(statement).await?;
    }
    for first in (0..ROWS).step_by(1000) {
        let rows: Vec<_> = (first..first + 1000).map(|row| format!("({row},SHA2({row},512))")).collect();
        connection.execute(&format!("INSERT INTO shop.many VALUES {}", rows.join(","))).await?;
    }
    for row in 0..12 {
        // Random bytes do not compress.
        let bytes = format!("REPEAT(CONCAT(RANDOM_BYTES(1000), {row}), 1000)");
        connection.execute(&format!("INSERT INTO shop.large VALUES ({bytes})")).await?;
    }
    Ok(())
}

struct Trial {
    shell: Shell,
    source: Server,
    s3: S3Server,
    // This field is declared last, so it is dropped last. The S3 servers run on this runtime.
    runtime: Runtime,
}

impl Trial {
    fn start(kind: ServerKind) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let source = runtime.block_on(started(kind))?;
        runtime.block_on(fill(&source))?;
        let s3 = S3Server::start()?;
        let mut shell = Shell::new()?;
        shell.set("AWS_ENDPOINT_URL", s3.endpoint().into());
        shell.set("AWS_ALLOW_HTTP", "true".into());
        shell.set("AWS_ACCESS_KEY_ID", ACCESS_KEY.into());
        shell.set("AWS_SECRET_ACCESS_KEY", SECRET_KEY.into());
        Ok(Self { shell, source, s3, runtime })
    }

    fn dump(&self) -> String {
        let port = self.source.port();
        format!(
            "dump s3://{BUCKET}/backups/1 --host 127.0.0.1 --user root --port {port} --workers 2 \
             --compression none --chunk-rows-max 100"
        )
    }

    fn spawn(&self, words: &str) -> Result<Child> {
        Ok(Command::new(PROGRAM)
            .args(words.split_whitespace())
            .envs([("AWS_ENDPOINT_URL", self.s3.endpoint()), ("AWS_ALLOW_HTTP", "true".into())])
            .envs([("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY)])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?)
    }

    /// Returns the files of the chunks that the journal lists, and the times at which they were written.
    fn recorded_files(&self) -> Result<Vec<(String, SystemTime)>> {
        let folder = self.s3.file("backups/1");
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.starts_with("journal.") {
                continue;
            }
            let lines = std::fs::read(entry.path()).unwrap_or_default();
            let (entries, _) = journal_file::parse(&lines).map_err(anyhow::Error::msg)?;
            for entry in entries {
                let JournalEntry::Finished { schema, table, number, .. } = entry else { continue };
                let file = chunk_file(&schema, &table, number, "tsv");
                let modified = std::fs::metadata(folder.join(&file)).context(file.clone())?.modified()?;
                found.push((file, modified));
            }
        }
        Ok(found)
    }

    /// Waits until the running dump satisfies the condition.
    fn wait_for(&self, child: &mut Child, there: impl Fn(&Self) -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !there(self)? {
            if let Some(status) = child.try_wait()? {
                let mut message = String::new();
                if let Some(stderr) = &mut child.stderr {
                    std::io::Read::read_to_string(stderr, &mut message)?;
                }
                anyhow::bail!("the dump ended too early with {status}: {message}");
            }
            ensure!(Instant::now() < deadline, "the dump makes no progress");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

async fn sums(server: &Server) -> Result<Vec<String>> {
    Ok(server.sql("CHECKSUM TABLE shop.many, shop.large, shop.`odd ~na%2Eme/ä` EXTENDED").await?)
}

#[test]
fn a_dump_to_s3_survives_kills_and_network_faults_mysql() -> Result<()> {
    dump_to_s3_survives_kills_and_network_faults(ServerKind::Mysql97)
}

#[test]
fn a_dump_to_s3_survives_kills_and_network_faults_mariadb() -> Result<()> {
    dump_to_s3_survives_kills_and_network_faults(ServerKind::Mariadb1011)
}

fn dump_to_s3_survives_kills_and_network_faults(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let trial = Trial::start(kind)?;
    let Trial { shell, s3, .. } = &trial;
    let dump = trial.dump();
    shell.run(&dump.replace(BUCKET, "nobucket"))?.exits(1).stderr_has(&["TW-BULK-0001", "s3://nobucket"]);

    // The dump is killed during the upload of a file. The incomplete object must not exist.
    s3.link.set_bandwidth(Some(8 << 20));
    let mut child = trial.spawn(&dump)?;
    trial.wait_for(&mut child, |trial| trial.s3.has_parts())?;
    child.kill()?;
    child.wait()?;
    ensure!(
        !s3.file("backups/1/shop.large.000000.tsv").exists(),
        "the killed upload has left an incomplete object"
    );
    shell.run(&dump)?.exits(1).stderr_has(&["TW-BULK-0010", "s3://archive/backups/1"]);

    // The dump is killed after the journal lists some chunks.
    let resume = format!("{dump} --resume");
    let mut child = trial.spawn(&resume)?;
    trial.wait_for(&mut child, |trial| Ok(trial.recorded_files()?.len() >= 60))?;
    child.kill()?;
    child.wait()?;
    let before = trial.recorded_files()?;

    // A second dump takes over the destination. The first dump notices that and ends.
    let mut first = trial.spawn(&resume)?;
    // The second dump has moved the listed chunks to the manifest, and adds further chunks to the journal.
    trial.wait_for(&mut first, |trial| Ok((1..before.len()).contains(&trial.recorded_files()?.len())))?;
    let requests = s3.requests();
    s3.fail_next(4);
    let running = {
        let words = resume.clone();
        std::thread::scope(|scope| -> Result<_> {
            let second = scope.spawn(|| shell.run(&format!("{words} --output json")));
            for reset in 1..=4 {
                while s3.requests() < requests + 10 * reset && !second.is_finished() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                s3.link.reset();
            }
            s3.link.set_bandwidth(None);
            second.join().map_err(|_| anyhow::anyhow!("the dump's thread failed"))?
        })?
    };
    let output = first.wait_with_output()?;
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(message.contains("TW-BULK-0004"), "the first dump did not end with TW-BULK-0004: {message}");
    ensure!(s3.has_failed());
    let lines = running.exits(0).json()?;
    let done = lines.last().context("the dump printed nothing")?;
    ensure!(
        done["event"] == "done" && done["rows"] == ROWS + 14,
        "the last line does not report the end of the dump: {done}"
    );

    // The chunks that the journal listed were not dumped again. The journal has been deleted.
    for (file, modified) in &before {
        let now = std::fs::metadata(s3.file(&format!("backups/1/{file}")))?.modified()?;
        ensure!(now == *modified, "{file} was dumped again");
    }
    let left = std::fs::read_dir(s3.file("backups/1"))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    ensure!(left.into_iter().all(|name| !name.starts_with("journal")));
    loaded(&trial)
}

/// Loads the dump over a link with faults, and checks that damage is detected.
fn loaded(trial: &Trial) -> Result<()> {
    let Trial { shell, s3, source, runtime } = trial;
    let target = runtime.block_on(started(source.kind()))?;
    let load = format!("load s3://{BUCKET}/backups/1 --host 127.0.0.1 --user root --port {}", target.port());
    shell.run(&load)?.exits(4).stderr_has(&["TW-BULK-0026", "--allow-mixed", "s3://archive/backups/1"]);
    shell
        .run(&load.replace("backups/1", "none"))?
        .exits(1)
        .stderr_has(&["TW-BULK-0001", "s3://archive/none"]);

    let large = s3.file("backups/1/shop.large.000000.tsv");
    let good = std::fs::read(&large)?;
    let mut wrong = good.clone();
    // The changed byte is no separator of the format, so only the checksum shows the damage.
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() && (byte ^ 1).is_ascii_alphanumeric();
    let middle = wrong.len() / 2;
    let plain = wrong[middle..].iter().position(is_plain).context("the file has no letters")?;
    wrong[middle + plain] ^= 1;
    std::fs::write(&large, &wrong)?;
    let damaged = shell.run(&format!("{load} --allow-mixed"))?;
    damaged.exits(1).stderr_has(&["TW-BULK-0002", "s3://archive/backups/1/shop.large.000000.tsv", "CRC32"]);
    std::fs::write(&large, &good)?;

    let load = format!("{load} --allow-mixed --resume --workers 2");
    let requests = s3.requests();
    s3.fail_next(3);
    s3.link.set_bandwidth(Some(16 << 20));
    let loaded = std::thread::scope(|scope| -> Result<_> {
        let load = scope.spawn(|| shell.run(&load));
        for reset in 1..=4 {
            while s3.requests() < requests + 5 + 5 * reset && !load.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(20));
            s3.link.reset();
        }
        s3.link.set_bandwidth(None);
        load.join().map_err(|_| anyhow::anyhow!("the load's thread failed"))?
    })?;
    loaded.exits(0);
    ensure!(runtime.block_on(sums(source))? == runtime.block_on(sums(&target))?);
    Ok(())
}
