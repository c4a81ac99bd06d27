//! The command line without a server: configuration checks, usage errors, and refusals before any connection.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tailwater_sandbox::ChildProcess;

use crate::shell_session::{PROGRAM, Shell};

const GOOD: &str = r#"
[log]
directory = "log"

[[source]]
name = "orders"
host = "127.0.0.1"
port = 1
user = "tailwater"
tls = "off"
server_id = 4201
"#;

#[test]
fn a_configuration_file_is_checked() -> Result<()> {
    let shell = Shell::new()?;
    shell.write("good.toml", GOOD)?;
    shell.run("config check -c good.toml")?.exits(0).says(&[
        "good.toml: good",
        "source orders",
        "127.0.0.1:1",
    ]);
    let answer = shell.run("config check -c good.toml --output json")?.exits(0).json()?;
    let ack = serde_json::json!({ "orders": "durable" });
    assert_eq!((answer[0]["ok"].as_bool(), &answer[0]["ack"]), (Some(true), &ack));
    assert_eq!(answer[0]["sources"], serde_json::json!(["orders"]));
    // No server listens on the port, so the server_id of the source is not compared.
    assert!(
        answer[0]["not_asked"]["orders"].as_str().is_some_and(|why| why.contains("TW-SES-0001")),
        "the reason why the source was not queried is wrong: {answer:?}"
    );
    shell.write("asynchronous.toml", &format!("{GOOD}semi_sync = false\n"))?;
    shell.run("config check -c asynchronous.toml")?.exits(0).says(&["ack = received"]);

    shell.write("unknown.toml", &GOOD.replace("host =", "hots ="))?;
    let unknown = shell.run("config check -c unknown.toml")?.exits(1);
    unknown.stderr_has(&["TW-CFG-0002", "unknown.toml", "line 7", "unknown field `hots`"]);
    shell.write("syntax.toml", &GOOD.replace("port = 1", "port = "))?;
    shell.run("config check -c syntax.toml")?.exits(1).stderr_has(&["TW-CFG-0002", "line 8"]);
    shell.write("type.toml", &GOOD.replace("port = 1", "port = 70000"))?;
    shell.run("config check -c type.toml")?.exits(1).stderr_has(&[
        "TW-CFG-0002",
        "line 8",
        "key port",
        "u16",
    ]);
    shell.write("empty.toml", "[log]\ndirectory = 'log'\n")?;
    shell.run("config check -c empty.toml")?.exits(1).stderr_has(&["TW-CFG-0003", "no [[source]]"]);
    shell.write("word.toml", &format!("{GOOD}start = 'newest'\n"))?;
    shell.run("config check -c word.toml")?.exits(1).stderr_has(&["line 12", "`current`, `oldest` or"]);
    shell.run("config check -c absent.toml")?.exits(1).stderr_has(&["TW-CFG-0001", "absent.toml"]);
    Ok(())
}

/// `config check` refuses the same configurations as `run`, with the same error code.
#[test]
fn config_check_refuses_what_run_refuses() -> Result<()> {
    let shell = Shell::new()?;
    shell.write("empty", "\n")?;
    shell.write("short", "abcde\n")?;
    shell.write("no-ca.pem", "nothing\n")?;
    let serve = |user: &str| {
        format!(
            "[[serve]]\nsource = 'orders'\nlisten = '127.0.0.1:0'\n[[serve.user]]\nname = 'repl'\n{user}\n"
        )
    };
    let channel = |port: &str| {
        format!(
            "[[channel]]\nname = 'copy'\nsource = 'orders'\nhost = 'localhost'\nport = {port}\nuser = 'u'\ntls = 'off'\n"
        )
    };
    let http = |file: &str| format!("[http]\nlisten = '127.0.0.1:0'\ntoken_file = '{file}'\n");
    let manager = |more: &str| format!("{}[manager]\nreplica_user = 'r'\n{more}\n", channel("2"));
    for (change, code, complaint) in [
        (serve("password_file = 'absent'"), "TW-CFG-0010", "absent"),
        (serve("password_file = 'empty'"), "TW-CFG-0010", "is empty"),
        (serve("password = ''"), "TW-SES-0026", "repl"),
        (serve("hash = 'no hash'"), "hash", "repl"),
        (
            serve("password = 'x'").replace("[[serve.user]]", "tls_certificate = 'no-ca.pem'\ntls_key = 'empty'\n[[serve.user]]"),
            "TW-SES-0027",
            "no-ca.pem",
        ),
        (http("absent"), "TW-CFG-0010", "absent"),
        (http("short"), "TW-CFG-0010", "at least 16"),
        (channel("1"), "TW-CFG-0011", "channel copy"),
        (channel("2").replace("'off'", "'verify-ca'\ntls_ca = 'no-ca.pem'"), "TW-SES-0013", "no-ca.pem"),
        (channel("2") + "defaults_file = 'absent'\n", "TW-SES-0021", "absent"),
        ("[manager]\nautomatic = true\n".to_owned(), "TW-CFG-0003", "could become primary"),
        (manager("replica_password_file = 'absent'"), "TW-CFG-0010", "absent"),
        (
            manager("lease = 'etcd'\netcd_endpoints = ['http://127.0.0.1:1']\netcd_user = 'e'\netcd_password_file = 'empty'"),
            "TW-CFG-0010",
            "is empty",
        ),
        (
            "[[relay]]\nname = 'r'\nsource = 'orders'\nurl = 'http://127.0.0.1:1'\ntoken_file = 'short'\nserver_id = 9\n".to_owned(),
            "TW-CFG-0010",
            "relay r",
        ),
    ] {
        shell.write("bad.toml", &format!("{GOOD}{change}"))?;
        for (verb, exit_code) in [("config check", 1), ("run", 78)] {
            shell.run(&format!("{verb} -c bad.toml"))?.exits(exit_code).stderr_has(&[code, complaint]);
        }
    }
    shell.write("bad.toml", &GOOD.replace("\"orders\"", "\"rejoin\""))?;
    shell.run("config check -c bad.toml")?.exits(1).stderr_has(&["TW-CFG-0003", "rejoin"]);
    ensure!(!shell.path().join("log").exists(), "a refused configuration has created a log folder");
    Ok(())
}

/// `-h`, `-P`, `-u` and `-S` have the same meaning as in the servers' own clients, in each command that
/// connects to a server.
#[test]
fn short_options_mean_the_same_as_in_the_stock_clients() -> Result<()> {
    let shell = Shell::new()?;
    for command in ["dump dir", "load dir", "log stats"] {
        let asked = shell.run(&format!("{command} -h 127.0.0.1 -P 1 -u nobody --ssl-mode DISABLED"))?;
        asked.exits(1).stderr_has(&[if command.starts_with("load") { "dir" } else { "127.0.0.1:1" }]);
        shell
            .run(&format!("{command} -h 127.0.0.1 -P 1 -u nobody --ssl-mode MAYBE"))?
            .exits(2)
            .stderr_has(&["VERIFY_CA"]);
    }
    shell.run("dump dir -S absent.sock -u nobody")?.exits(1).stderr_has(&["absent.sock"]);
    shell.run("dump dir -h 127.0.0.1 -P 1 --ssl-ca absent.pem")?.exits(1).stderr_has(&["127.0.0.1:1"]);
    // With two servers, a short option would be ambiguous.
    for command in ["copy", "check", "repair"] {
        shell.run(&format!("{command} -h 127.0.0.1"))?.exits(2).stderr_has(&["unexpected argument '-h'"]);
        shell.run(&format!("{command} --help"))?.exits(0).says(&["--source-ssl-ca", "--target-ssl-mode"]);
    }
    for command in ["", "dump", "sandbox up", "channel list"] {
        shell.run(&format!("{command} --help"))?.exits(0).says(&["Usage: tailwater", "--help"]);
        shell.run(&format!("{command} -h"))?.exits(2);
    }
    Ok(())
}

/// Only one daemon can use a log folder, even if the names of the sources differ.
#[tokio::test]
async fn a_log_folder_is_used_by_one_daemon() -> Result<()> {
    let shell = Shell::new()?;
    shell.write("tailwater.toml", GOOD)?;
    shell.write("other.toml", &GOOD.replace("orders", "stock"))?;
    let (config, messages) = (shell.path().join("tailwater.toml"), shell.path().join("messages"));
    let arguments = ["run".as_ref(), "-c".as_ref(), config.as_os_str()];
    let mut run = ChildProcess::start(PROGRAM, arguments, &messages)?;
    let deadline = Instant::now() + Duration::from_secs(30);
    while !shell.path().join("log/control.sock").exists() {
        ensure!(
            run.is_running() && Instant::now() < deadline,
            "the first daemon does not start: {}",
            std::fs::read_to_string(&messages)?
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let refused = shell.run("run -c other.toml")?.exits(1);
    refused.stderr_has(&["TW-CTL-0003", &format!("process {}", run.pid())]);
    ensure!(!shell.path().join("log/stock").exists(), "the second daemon started to capture its source");
    // The refused second daemon has not removed the control socket of the first daemon.
    shell.run("topology -c tailwater.toml --timeout-ms 200")?;
    shell.run("channel list -c tailwater.toml")?.exits(0);
    // After a daemon is killed, nothing on disk prevents the start of the next one.
    run.kill().await?;
    let mut next = ChildProcess::start(PROGRAM, arguments, &shell.path().join("next"))?;
    while !std::fs::read_to_string(shell.path().join("next"))?.contains("capture interrupted") {
        ensure!(
            next.is_running() && Instant::now() < deadline,
            "the next daemon does not start: {}",
            std::fs::read_to_string(shell.path().join("next"))?
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    next.terminate(Duration::from_secs(30)).await?;
    Ok(())
}

#[test]
fn an_invalid_command_line_is_a_usage_error() -> Result<()> {
    let shell = Shell::new()?;
    shell.run("")?.exits(2).stderr_has(&["Usage: tailwater"]);
    for (words, complaint) in [
        ("frobnicate", "unrecognized subcommand 'frobnicate'"),
        ("run", "--config <FILE>"),
        ("log cat", "<PATH>"),
        ("log cat . --raw --table a.b", "cannot be used with"),
        ("log ls . --output yaml", "invalid value 'yaml'"),
        ("sandbox up", "--server"),
        ("sandbox up --server postgres", "[possible values: mariadb, mysql]"),
        ("sandbox up --server mysql --count 0", "--count"),
        // All users of a machine can see command lines and the secrets in them. Therefore no option takes a
        // password.
        ("run -c x.toml --password secret", "unexpected argument '--password'"),
    ] {
        shell.run(words)?.exits(2).stderr_has(&[complaint]);
    }
    shell.run("--help")?.exits(0).says(&["Usage: tailwater", "Exit codes:"]).stdout_lacks(&["password"]);
    shell.run("--version")?.exits(0).says(&["tailwater "]);
    Ok(())
}

#[test]
fn run_reports_configuration_errors_at_once() -> Result<()> {
    let shell = Shell::new()?;
    shell.write("bad.toml", &GOOD.replace("server_id", "serverid"))?;
    shell.run("run -c bad.toml")?.exits(78).stderr_has(&["TW-CFG-0002", "line 11", "serverid"]);

    // Even the superuser cannot create a folder below a file.
    shell.write("file", "")?;
    shell.write("unwritable.toml", &GOOD.replace("\"log\"", "\"file/log\""))?;
    shell.run("run -c unwritable.toml")?.exits(1).stderr_has(&[
        "TW-LOG-",
        "source orders",
        "file/log/orders",
    ]);

    shell.write("no-options.toml", &format!("{GOOD}defaults_file = 'absent.cnf'\n"))?;
    shell.run("run -c no-options.toml")?.exits(78).stderr_has(&["absent.cnf"]);
    Ok(())
}

/// The test runs once with a source that refuses connections, and once with a source that accepts them and
/// sends nothing. `run` retries until SIGTERM.
#[tokio::test]
async fn run_without_a_source_runs_until_sigterm() -> Result<()> {
    let silent = TcpListener::bind("127.0.0.1:0")?;
    for (port, sign) in [(1, "capture interrupted"), (silent.local_addr()?.port(), "")] {
        let shell = Shell::new()?;
        shell.write("tailwater.toml", &GOOD.replace("port = 1", &format!("port = {port}")))?;
        let (config, messages) = (shell.path().join("tailwater.toml"), shell.path().join("messages"));
        let arguments = ["run".as_ref(), "-c".as_ref(), config.as_os_str()];
        let mut run = ChildProcess::start(PROGRAM, arguments, &messages)?;
        let deadline = Instant::now() + Duration::from_secs(30);
        let lock = shell.path().join("log/orders/lock");
        while !(lock.exists() && std::fs::read_to_string(&messages)?.contains(sign)) {
            ensure!(
                run.is_running() && Instant::now() < deadline,
                "the daemon has ended, or does not start the capture: {}",
                std::fs::read_to_string(&messages)?
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // The following attempts fail with the same error. The daemon logs the error only once.
        if !sign.is_empty() {
            tokio::time::sleep(Duration::from_millis(700)).await;
            let count = std::fs::read_to_string(&messages)?.matches(sign).count();
            ensure!(count == 1, "the error {sign:?} must be logged once, but is logged {count} times");
        }
        let status = run.terminate(Duration::from_secs(30)).await?;
        ensure!(
            status.code() == Some(0),
            "the daemon ended with {status}: {}",
            std::fs::read_to_string(&messages)?
        );
    }
    Ok(())
}

/// A request to a frozen daemon fails after a limited time.
#[tokio::test]
async fn a_request_to_a_frozen_daemon_times_out() -> Result<()> {
    let shell = Shell::new()?;
    shell.write("tailwater.toml", GOOD)?;
    shell.run("channel list -c tailwater.toml")?.exits(1).stderr_has(&["TW-CTL-0001", "no daemon listens"]);
    let (config, messages) = (shell.path().join("tailwater.toml"), shell.path().join("messages"));
    let arguments = ["run".as_ref(), "-c".as_ref(), config.as_os_str()];
    let mut run = ChildProcess::start(PROGRAM, arguments, &messages)?;
    let deadline = Instant::now() + Duration::from_secs(30);
    while !shell.path().join("log/control.sock").exists() {
        ensure!(
            run.is_running() && Instant::now() < deadline,
            "the daemon does not start: {}",
            std::fs::read_to_string(&messages)?
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    shell.run("channel list -c tailwater.toml")?.exits(0);
    run.pause()?;
    let started = Instant::now();
    for words in ["channel list", "manager status"] {
        shell
            .run(&format!("{words} -c tailwater.toml"))?
            .exits(1)
            .stderr_has(&["TW-CTL-0002", "control.sock"]);
    }
    ensure!(
        started.elapsed() < Duration::from_secs(60),
        "the requests to the frozen daemon took too long: {:?}",
        started.elapsed()
    );
    run.resume()?;
    shell.run("channel list -c tailwater.toml")?.exits(0);
    Ok(())
}

#[test]
fn commands_report_that_there_is_no_log() -> Result<()> {
    let shell = Shell::new()?;
    shell.write("text", "this is no binlog")?;
    for verb in ["ls", "cat", "verify"] {
        shell.run(&format!("log {verb} ."))?.exits(1).stderr_has(&["TW-LOG-0013", "there is no log in ."]);
        shell.run(&format!("log {verb} absent"))?.exits(1).stderr_has(&["absent"]);
    }
    for verb in ["cat", "cat --raw", "verify"] {
        shell.run(&format!("log {verb} text"))?.exits(1).stderr_has(&["text is not a binlog file"]);
    }
    // The length in an event header may be wrong, so no memory is allocated for the event before its bytes
    // are read.
    let event =
        [[0; 4].as_slice(), &[2], &[1, 0, 0, 0], &0x3fff_ffff_u32.to_le_bytes(), &[0; 6], b"rest"].concat();
    std::fs::write(shell.path().join("cut"), [b"\xfebin".as_slice(), &event].concat())?;
    shell.run("log cat cut")?.exits(1).stderr_has(&["cut:4", "cut short"]);
    shell.run("log verify cut")?.exits(3).says(&["TW-LOG-0003: cut: at offset 4", "cut short", "1 problem"]);
    Ok(())
}

#[test]
fn run_fails_before_capture_if_an_address_is_in_use() -> Result<()> {
    let (taken, source) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
    let (address, port) = (taken.local_addr()?.to_string(), source.local_addr()?.port());
    let shell = Shell::new()?;
    let config = format!(
        "[log]\ndirectory = \"log\"\n\n[[source]]\nname = \"orders\"\nhost = \"127.0.0.1\"\nport = {port}\nuser = \"repl\"\n\
         server_id = 4201\n\n[[serve]]\nsource = \"orders\"\nlisten = \"{address}\"\n\n[[serve.user]]\nname = \"replica\"\n\
         password = \"secret\"\n"
    );
    shell.write("tailwater.toml", &config)?;
    shell.run("run -c tailwater.toml")?.exits(1).stderr_has(&["TW-RELAY-0014", &address]);
    source.set_nonblocking(true)?;
    let called = source.accept().map(|(_, from)| from);
    let is_silent = called.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
    ensure!(is_silent, "the daemon connected to the source: {called:?}");
    Ok(())
}
