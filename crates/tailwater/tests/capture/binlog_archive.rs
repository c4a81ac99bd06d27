//! The binlog files of a real server are captured, archived in S3 and in a folder, and purged. The commands
//! that read the log print the same as before the purge.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialSpec};
use tailwater_log::{AckMode, LogDir, LogOptions, LogPosition, LogWriter};
use tailwater_sandbox::{ServerKind, require};

use crate::shell_session::{PROGRAM, Shell};
use crate::test_s3_server::{ACCESS_KEY, BUCKET, S3Server, SECRET_KEY};

const LOG: &str = "log/primary";

/// Number of sealed binlog files in the log. Each file except the last compresses badly, so its upload needs
/// more than one part of a multipart upload.
const SEALED: usize = 3;

#[test]
fn archived_segments_are_read_from_s3_and_from_a_folder() -> Result<()> {
    if require(ServerKind::Mariadb1011).is_none() {
        return Ok(());
    }
    let mut shell = Shell::new()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut trial = runtime.block_on(capture(&shell))?;
    let before = Seen::of(&shell, LOG, "")?;

    let server = S3Server::start()?;
    use_server(&mut shell, &server);
    wrong_archives_are_refused(&shell)?;
    a_killed_upload_leaves_no_segment_in_the_archive(&shell, &server)?;
    an_upload_succeeds_over_a_faulty_link(&shell, &server)?;
    let archive = format!("--archive s3://{BUCKET}/backup");
    before.assert_equal(&Seen::of(&shell, LOG, &archive)?);

    purges_are_planned_and_refused(&shell)?;
    before.assert_equal(&Seen::of(&shell, LOG, &archive)?);
    shell.run(&format!("log cat {LOG}/{:010}.binlog", SEALED + 1))?.exits(0);
    ensure!(LogDir::open_read_only(&shell.path().join(LOG))?.segments()?.len() == 1);
    damage_is_found(&shell, &server)?;

    runtime.block_on(run_archives_in_the_background(&shell, &mut trial))?;

    // The local log folder is deleted, so all segments are read from the archive.
    std::fs::remove_dir_all(shell.path().join("log"))?;
    for path in ["", LOG] {
        let raw = shell.run(&format!("log cat {path} {archive} --raw"))?.exits(0);
        ensure!(!raw.bytes().is_empty() && before.raw.starts_with(raw.bytes()));
        shell
            .run(&format!("log verify {path} {archive}"))?
            .exits(0)
            .says(&["s3://archive/backup/primary: nothing"]);
    }
    shell.run(&format!("log ls log {archive}"))?.exits(1).stderr_has(&["TW-LOG-0013"]);
    Ok(())
}

/// Captures the binlog of a server into `log/primary`.
async fn capture(shell: &Shell) -> Result<Trial> {
    let spec = TrialSpec {
        kind: ServerKind::Mariadb1011,
        durability: TrialDurability::Reduced,
        options: Vec::new(),
        ack: AckMode::Durable,
        program: PathBuf::from(PROGRAM),
        folder: shell.path().to_owned(),
    };
    let mut trial = Trial::start(spec).await?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    trial
        .primary
        .sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, b BLOB)")
        .await?;
    for file in 1..=SEALED {
        // Each row has a thousand random bytes.
        let rows = if file < SEALED { 12_000 } else { 100 };
        let insert = format!("INSERT INTO d.t (b) SELECT RANDOM_BYTES(1000) FROM d.seq_1_to_{rows}");
        trial.primary.sql(&insert).await?;
        trial.primary.sql("FLUSH BINARY LOGS").await?;
    }
    wait_for(|| Ok(segments(shell)? > SEALED)).await?;
    trial.stop_relay().await?;
    ensure!(segments(shell)? == SEALED + 1);
    Ok(trial)
}

fn segments(shell: &Shell) -> Result<usize> {
    Ok(LogDir::open_read_only(&shell.path().join(LOG))?.segments()?.len())
}

async fn wait_for(mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done()? {
        ensure!(Instant::now() < deadline, "the log does not receive the binlog file");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// The outputs of all commands that read a log.
struct Seen {
    raw: Vec<u8>,
    listed: Vec<serde_json::Value>,
    verified: serde_json::Value,
}

impl Seen {
    fn of(shell: &Shell, log: &str, archive: &str) -> Result<Self> {
        let raw = shell.run(&format!("log cat {log} --raw {archive}"))?.exits(0).bytes().to_vec();
        let mut listed = shell.run(&format!("log ls {log} --output json {archive}"))?.exits(0).json()?;
        // A local and an archived segment have different paths.
        listed.iter_mut().for_each(|line| drop(line.as_object_mut().and_then(|line| line.remove("path"))));
        let verified = shell.run(&format!("log verify {log} --output json {archive}"))?.exits(0).json()?;
        Ok(Self {
            raw,
            listed,
            verified: verified.into_iter().next_back().context("log verify printed nothing")?,
        })
    }

    #[track_caller]
    fn assert_equal(&self, other: &Self) {
        assert!(self.raw == other.raw);
        assert_eq!(self.listed, other.listed);
        assert_eq!(self.verified, other.verified);
    }
}

fn use_server(shell: &mut Shell, server: &S3Server) {
    shell.set("AWS_ENDPOINT_URL", server.endpoint().into());
    shell.set("AWS_ALLOW_HTTP", "true".into());
    shell.set("AWS_ACCESS_KEY_ID", ACCESS_KEY.into());
    shell.set("AWS_SECRET_ACCESS_KEY", SECRET_KEY.into());
}

fn wrong_archives_are_refused(shell: &Shell) -> Result<()> {
    let refused = |words: &str, complaints: &[&str]| -> Result<()> {
        let ran = shell.bash(words)?.exits(1);
        ran.stderr_has(&["TW-LOG-0014"]).stderr_has(complaints);
        Ok(())
    };
    let archive = format!("tailwater log archive {LOG} --to");
    refused(&format!("{archive} s3://nobucket/x"), &["s3://nobucket/x"])?;
    refused(&format!("AWS_SECRET_ACCESS_KEY=wrong {archive} s3://{BUCKET}/x"), &["s3://archive/x"])?;
    refused(&format!("{archive} https://example.org/x"), &["s3://BUCKET/PREFIX"])?;
    refused(
        &format!("tailwater log ls {LOG} --archive absent"),
        &["absent: the archive's folder does not exist"],
    )?;
    let none = shell.run(&format!("log ls --archive s3://{BUCKET}/empty"))?.exits(1);
    none.stderr_has(&["TW-LOG-0013", "s3://archive/empty"]);
    Ok(())
}

/// The upload is killed with SIGKILL between two parts of a multipart upload.
fn a_killed_upload_leaves_no_segment_in_the_archive(shell: &Shell, server: &S3Server) -> Result<()> {
    server.link.set_bandwidth(Some(8 << 20));
    let mut upload = Command::new(PROGRAM)
        .args(["log", "archive", LOG, "--to", &format!("s3://{BUCKET}/backup")])
        .current_dir(shell.path())
        .envs([("AWS_ENDPOINT_URL", server.endpoint()), ("AWS_ALLOW_HTTP", "true".into())])
        .envs([("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY)])
        .stderr(Stdio::null())
        .spawn()?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while !server.has_parts()? {
        ensure!(
            upload.try_wait()?.is_none() && Instant::now() < deadline,
            "the upload ended before it had stored a part"
        );
        thread::sleep(Duration::from_millis(1));
    }
    upload.kill()?;
    upload.wait()?;
    server.link.set_bandwidth(None);
    let none = shell.run(&format!("log ls --archive s3://{BUCKET}/backup"))?.exits(1);
    none.stderr_has(&["TW-LOG-0013"]);
    Ok(())
}

/// The S3 server answers some requests with 503, resets connections during requests and responses, and its
/// link is slow. The upload takes longer, but succeeds.
fn an_upload_succeeds_over_a_faulty_link(shell: &Shell, server: &S3Server) -> Result<()> {
    server.fail_next(3);
    server.link.set_bandwidth(Some(16 << 20));
    let requests = server.requests();
    let words = format!("log archive {LOG} --to s3://{BUCKET}/backup --output json");
    let archived = thread::scope(|scope| -> Result<_> {
        let upload = scope.spawn(|| shell.run(&words));
        for reset in 1..=5 {
            // Reset the connections to the S3 server five times, each time at an arbitrary moment of a
            // request or of its response.
            while server.requests() < requests + 3 + reset * 2 && !upload.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(20));
            server.link.reset();
        }
        upload.join().map_err(|_| anyhow::anyhow!("the upload's thread failed"))?
    })?;
    server.link.set_bandwidth(None);
    ensure!(server.has_failed());
    let lines = archived.exits(0).json()?;
    let (report, segments) = lines.split_last().context("log archive printed nothing")?;
    assert_eq!(
        segments.iter().map(|line| line["segment"].as_u64()).collect::<Vec<_>>(),
        [Some(1), Some(2), Some(3)]
    );
    assert_eq!(report["segments"], serde_json::json!([1, 2, 3]));
    assert_eq!(report["archive"], "s3://archive/backup/primary");
    for number in 1..=SEALED {
        ensure!(server.file(&format!("backup/primary/{number:010}.binlog.zst")).is_file());
        let index = std::fs::read(server.file(&format!("backup/primary/{number:010}.index")))?;
        ensure!(
            index == std::fs::read(shell.path().join(format!("{LOG}/{number:010}.index")))?,
            "the archived index of segment {number} differs from the local one"
        );
    }
    // The repeated command uploads nothing a second time. Its text output is readable.
    let again = shell.run(&format!("log archive log --to s3://{BUCKET}/backup"))?.exits(0);
    again.says(&["log/primary: 0 segments archived in s3://archive/backup/primary", "3 archived earlier"]);
    Ok(())
}

fn purges_are_planned_and_refused(shell: &Shell) -> Result<()> {
    let newest = SEALED + 1;
    let purge = format!("log purge {LOG}");
    shell.run(&purge)?.exits(2);
    shell.run(&format!("{purge} --to 2 --keep-bytes 7"))?.exits(2).stderr_has(&["cannot be used with"]);
    shell.run(&format!("{purge} --to binlog.999999"))?.exits(1).stderr_has(&["no such segment"]);
    shell.run(&format!("{purge} --to 99"))?.exits(1).stderr_has(&["TW-LOG-0012", "the newest segment is 4"]);
    shell.run(&format!("{purge} --before yesterday"))?.exits(1).stderr_has(&["--before yesterday"]);
    shell.run(&format!("{purge} --older-than 1day"))?.exits(0).says(&["would purge nothing"]);

    let to_newest = format!("{purge} --to {newest} --archive s3://{BUCKET}/backup");
    let plan = shell.run(&to_newest)?.exits(0);
    plan.says(&["would purge segments 1 to 3", "repeat with --yes"]);
    let elsewhere = format!("{purge} --to {newest} --archive s3://{BUCKET}/other --yes");
    shell.run(&elsewhere)?.exits(4).stderr_has(&["TW-LOG-0016", "segment 1", "not archived"]);

    let open = || LogWriter::open(&shell.path().join(LOG), LogOptions::default());
    let writer = open()?;
    let locked = shell.run(&format!("{to_newest} --yes"))?.exits(4);
    locked.stderr_has(&["TW-LOG-0001", "PURGE BINARY LOGS"]);
    drop(writer.handle().register_persistent_reader("db2", LogPosition { segment: 2, offset: 4 }));
    writer.close()?;
    for yes in ["", "--yes"] {
        let held = shell.run(&format!("{to_newest} {yes}"))?.exits(4);
        held.stderr_has(&["TW-LOG-0016", "db2 has read up to 2:4"]);
    }
    shell
        .run(&format!("{purge} --forget db3"))?
        .exits(1)
        .stderr_has(&["no retention record of a reader \"db3\""]);
    let forgotten = shell.run(&format!("{purge} --forget db2 --yes"))?.exits(0);
    forgotten.says(&["removed the retention record of reader db2"]);
    let done = shell.run(&format!("{to_newest} --yes --output json"))?.exits(0).json()?;
    assert_eq!((&done[0]["segments"], &done[0]["done"]), (&serde_json::json!([1, 2, 3]), &true.into()));
    Ok(())
}

fn damage_is_found(shell: &Shell, server: &S3Server) -> Result<()> {
    let verify = format!("log verify {LOG} --archive s3://{BUCKET}/backup");
    let file = server.file("backup/primary/0000000002.binlog.zst");
    let right = std::fs::read(&file)?;
    let mut wrong = right.clone();
    wrong[right.len() / 2] ^= 1;
    let cut = &right[..right.len() - 100];
    for bytes in [wrong.as_slice(), cut] {
        std::fs::write(&file, bytes)?;
        let found = shell.run(&verify)?.exits(3);
        found.says(&["TW-LOG-0003: s3://archive/backup/primary/0000000002.binlog.zst: at offset"]);
        shell
            .run(&format!("log cat {LOG} --raw --archive s3://{BUCKET}/backup"))?
            .exits(1)
            .stderr_has(&["0000000002"]);
    }
    std::fs::remove_file(&file)?;
    shell.run(&verify)?.exits(3).says(&["0000000002.binlog", "neither local nor in the archive"]);
    std::fs::write(&file, &right)?;
    shell.run(&verify)?.exits(0);
    Ok(())
}

/// The daemon archives into a folder. No retention of the local log is configured.
async fn run_archives_in_the_background(shell: &Shell, trial: &mut Trial) -> Result<()> {
    let config = std::fs::read_to_string(shell.path().join("tailwater.toml"))?;
    let with_archive = config.replace("[log]\n", "[log]\narchive = \"kept\"\narchive_interval_ms = 100\n");
    shell.write("tailwater.toml", &with_archive)?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    trial.primary.sql("INSERT INTO d.t (b) VALUES ('the last one'); FLUSH BINARY LOGS").await?;
    let index = shell.path().join("kept/primary/0000000004.index");
    wait_for(|| Ok(index.is_file())).await.with_context(|| trial.relay_log_tail())?;
    operators_see_the_archive(shell, trial).await?;
    trial.stop_relay().await?;
    shell.run("log archive log --to kept")?.exits(0).says(&["0 segments archived"]);
    shell
        .run(&format!("log purge {LOG} --keep-bytes 0 --archive kept --yes"))?
        .exits(0)
        .says(&["segments 4 to 5"]);
    shell.run(&format!("log verify {LOG} --archive kept"))?.exits(0);
    // `log ls` lists the archived segments 4 and 5 before the local segment 6. Segments 1 to 3 are only in
    // the archive in S3.
    let listed =
        shell.run(&format!("log ls {LOG} --archive file://{}/kept --output json", shell.path().display()))?;
    let numbers: Vec<_> = listed.exits(0).json()?.iter().map(|line| line["segment"].as_u64()).collect();
    assert_eq!(numbers, [Some(4), Some(5), Some(6)]);
    Ok(())
}

/// While another log's segment is in the way, the status tells what waits and why, and after that no more.
async fn operators_see_the_archive(shell: &Shell, trial: &Trial) -> Result<()> {
    let top = || Ok::<_, anyhow::Error>(shell.run("top -c tailwater.toml --once")?.exits(0).text());
    wait_for(|| Ok(top()?.contains("ARCHIVE   primary: complete")))
        .await
        .with_context(|| trial.relay_log_tail())?;
    let kept = shell.path().join("kept/primary");
    for ending in ["binlog.zst", "index"] {
        let (from, to) = (format!("0000000004.{ending}"), format!("0000000005.{ending}"));
        std::fs::copy(kept.join(from), kept.join(to))?;
    }
    let in_the_way = kept.join("0000000005.index");
    trial.primary.sql("INSERT INTO d.t (b) VALUES ('one more'); FLUSH BINARY LOGS").await?;
    let problem = || {
        let status = shell.run("status -c tailwater.toml --output json")?.json()?;
        let problems = status.first().and_then(|status| status["problems"].as_array()).cloned();
        let is_of_archive = |problem: &serde_json::Value| {
            problem["text"].as_str().is_some_and(|text| text.starts_with("archiving fails since "))
        };
        Ok::<_, anyhow::Error>(problems.unwrap_or_default().into_iter().find(is_of_archive))
    };
    wait_for(|| Ok(problem()?.is_some())).await.with_context(|| trial.relay_log_tail())?;
    let found = problem()?.context("the problem has gone")?;
    ensure!(found["object"] == "source primary" && found["code"] == "TW-LOG-0015", "{found}");
    let shown = top()?;
    ensure!(shown.contains("ARCHIVE   primary: FAILS with TW-LOG-0015"), "{shown}");
    std::fs::remove_file(&in_the_way)?;
    wait_for(|| Ok(problem()?.is_none() && in_the_way.is_file()))
        .await
        .with_context(|| trial.relay_log_tail())?;
    ensure!(top()?.contains("ARCHIVE   primary: complete"));
    Ok(())
}

#[test]
fn https_is_used_and_certificates_are_verified() -> Result<()> {
    let server = S3Server::start_tls()?;
    let mut shell = Shell::new()?;
    use_server(&mut shell, &server);
    shell.set("AWS_ALLOW_HTTP", "false".into());
    let ls = format!("log ls --archive s3://{BUCKET}/x");
    shell.run(&ls)?.exits(1).stderr_has(&["TW-LOG-0014"]);
    let authority = server.authority().context("the server has no certificate authority")?.to_owned();
    shell.set("SSL_CERT_FILE", authority);
    shell.run(&ls)?.exits(1).stderr_has(&["TW-LOG-0013"]);
    Ok(())
}
