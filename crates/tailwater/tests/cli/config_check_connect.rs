//! `tailwater config check --connect` with real servers. At first all is well; then the test causes one fault
//! after another.

use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tailwater_sandbox::{Server, ServerKind, ServerSpec, SlowSync, SteppedClock, require};
use tailwater_wire::Flavour;

use crate::shell_session::Shell;

#[tokio::test]
async fn each_fault_has_its_line_mariadb() -> Result<()> {
    each_fault_has_its_line(ServerKind::Mariadb1011).await
}

#[tokio::test]
async fn each_fault_has_its_line_mysql() -> Result<()> {
    each_fault_has_its_line(ServerKind::Mysql97).await
}

async fn started(kind: ServerKind, id: u32) -> Result<Server> {
    let id = format!("--server-id={id}");
    let durable =
        ["--log-bin=binlog", "--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1", "--binlog-format=ROW"];
    let mut spec = ServerSpec::new(kind).options(durable).option(id);
    if kind.flavour() == Flavour::MySql {
        spec = spec.options(["--gtid-mode=ON", "--enforce-gtid-consistency=ON"]);
    }
    Ok(Server::start(spec.semi_sync_source()).await?)
}

/// A source, and a target of a channel, each with an account that has just the privileges that it needs.
struct CheckedSetup {
    shell: Shell,
    source: Server,
    target: Server,
    config: String,
}

impl CheckedSetup {
    async fn start(kind: ServerKind) -> Result<Self> {
        let shell = Shell::new()?;
        let (source, target) = tokio::try_join!(started(kind, 1), started(kind, 2))?;
        let (monitor, apply, publish) = match kind.flavour() {
            Flavour::MySql => (
                "REPLICATION CLIENT",
                "REPLICATION_APPLIER, SESSION_VARIABLES_ADMIN",
                "SYSTEM_VARIABLES_ADMIN",
            ),
            Flavour::MariaDb => ("BINLOG MONITOR", "BINLOG REPLAY, BINLOG ADMIN", "REPLICATION SLAVE ADMIN"),
        };
        source
            .sql(&format!(
                "SET sql_log_bin = 0; CREATE USER tailwater IDENTIFIED BY 'pw'; GRANT REPLICATION SLAVE, {monitor}, PROCESS ON *.* TO tailwater"
            ))
            .await?;
        let data = "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER";
        target
            .sql(&format!(
                "SET sql_log_bin = 0; CREATE USER applier IDENTIFIED BY 'pw'; GRANT {apply}, {publish}, {data}, {monitor} ON *.* TO applier; \
                 GRANT ALL ON tailwater.* TO applier"
            ))
            .await?;
        shell.write("pw.cnf", "[client]\npassword = pw\n")?;
        let config = format!(
            "[log]\ndirectory = \"log\"\n\
             [[source]]\nname = \"orders\"\nhost = \"127.0.0.1\"\nport = {}\nuser = \"tailwater\"\ndefaults_file = \"pw.cnf\"\nserver_id = 4201\n\
             [[channel]]\nname = \"reports\"\nsource = \"orders\"\nhost = \"127.0.0.1\"\nport = {}\nuser = \"applier\"\ndefaults_file = \"pw.cnf\"\n",
            source.port(),
            target.port()
        );
        shell.write("tailwater.toml", &config)?;
        Ok(Self { shell, source, target, config })
    }

    /// Runs the check with further arguments, and returns its report.
    fn report(&self, more: &str, exit_code: i32) -> Result<Value> {
        let words = format!("tailwater config check --connect -c tailwater.toml --output json {more}");
        self.shell.bash(&words)?.exits(exit_code).json()?.pop().context("a report")
    }

    /// Returns the lines of the report that are not ok. Each has a level, an object, a check and a text.
    fn faults(&self, more: &str, exit_code: i32) -> Result<Vec<[String; 4]>> {
        let report = self.report(more, exit_code)?;
        let lines = report["checks"].as_array().context("checks")?;
        ensure!(
            (report["ok"] == true) == (exit_code == 0),
            "`ok` of the report does not fit exit code {exit_code}: {report:#}"
        );
        let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let faults = lines.iter().filter(|line| line["level"] != "ok");
        let faults =
            faults.inspect(|line| assert!(line["remedy"].is_string(), "a fault has no remedy: {line:#}"));
        Ok(faults.map(|line| ["level", "object", "check", "text"].map(|key| text(line, key))).collect())
    }

    /// Checks that the only fault is the expected one.
    fn finds(&self, more: &str, (level, object, check, text): (&str, &str, &str, &str)) -> Result<()> {
        let faults = self.faults(more, if level == "problem" { 3 } else { 0 })?;
        // Problems of the machine that runs the test are ignored, unless the expected fault is one of them.
        let of_setup = faults.iter().filter(|fault| fault[1] != "this machine" || object == "this machine");
        let of_setup: Vec<_> = of_setup.collect();
        let is_expected = |fault: &&[String; 4]| {
            fault[0] == level && fault[1] == object && fault[2] == check && fault[3].contains(text)
        };
        ensure!(
            of_setup.iter().any(&is_expected),
            "no fault of the check {check:?} contains {text:?}: {faults:#?}"
        );
        let others =
            of_setup.iter().filter(|fault| fault[1] != "this machine" && !is_expected(fault)).count();
        ensure!(others == 0, "there are faults other than the expected one of {check:?}: {faults:#?}");
        Ok(())
    }
}

async fn each_fault_has_its_line(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let setup = CheckedSetup::start(kind).await?;
    let report = setup.report("", 0)?;
    let of_servers = |line: &&Value| line["object"] != "this machine" && line["level"] != "ok";
    let lines = report["checks"].as_array().context("checks")?;
    ensure!(
        lines.iter().filter(of_servers).count() == 0,
        "the report must not list a problem of a server: {report:#}"
    );
    ensure!(lines.len() > 15, "the report has too few checks: {report:#}");
    ensure!(std::fs::read_dir(setup.shell.path())?.count() == 2, "the check has created files");
    let screen = setup.shell.run("config check --connect -c tailwater.toml")?.exits(0);
    screen.says(&["source orders\n", "channel reports\n", "this machine\n", "fdatasync takes"]);

    faults_of_accounts(&setup, kind).await?;
    faults_of_the_machine(&setup)?;
    // The faults of the source are tested last. They change settings of the source at run time, and from then
    // on the check also reports that a restart would lose these settings.
    faults_of_the_source(&setup, kind).await
}

async fn faults_of_the_source(setup: &CheckedSetup, kind: ServerKind) -> Result<()> {
    let prefix = match kind.flavour() {
        Flavour::MySql => "rpl_semi_sync_source",
        Flavour::MariaDb => "rpl_semi_sync_master",
    };
    let no_replica = if kind.flavour() == Flavour::MySql { "wait_no_replica" } else { "wait_no_slave" };
    let semi_sync = "semi-sync";
    for (variable, wrong, right, expected) in [
        ("binlog_format".to_owned(), "STATEMENT", "ROW", ("warning", "binlog format", "STATEMENT")),
        ("binlog_row_image".to_owned(), "MINIMAL", "FULL", ("warning", "row images", "MINIMAL")),
        ("sync_binlog".to_owned(), "0", "1", ("warning", "durability", "sync_binlog = 0")),
        (format!("{prefix}_enabled"), "OFF", "ON", ("warning", semi_sync, "disabled")),
        (
            format!("{prefix}_wait_point"),
            "AFTER_COMMIT",
            "AFTER_SYNC",
            ("problem", semi_sync, "may still be lost"),
        ),
        (format!("{prefix}_timeout"), "1000", "2000000000", ("warning", semi_sync, "1000 ms")),
        (format!("{prefix}_{no_replica}"), "OFF", "ON", ("warning", semi_sync, "while the daemon is down")),
    ] {
        let set = |value: &str| {
            let value = if value.parse::<u64>().is_ok() { value.to_owned() } else { format!("'{value}'") };
            format!("SET GLOBAL {variable} = {value}")
        };
        setup.source.sql(&set(wrong)).await?;
        let (level, check, text) = expected;
        let report = setup.faults("", if level == "problem" { 3 } else { 0 })?;
        ensure!(
            report.iter().any(|fault| fault[0] == level
                && fault[1] == "source orders"
                && fault[2] == check
                && fault[3].contains(text)),
            "the wrong value of {variable} is not reported: {report:#?}"
        );
        setup.source.sql(&set(right)).await?;
    }
    if kind.flavour() == Flavour::MySql {
        setup.source.sql("SET GLOBAL gtid_mode = ON_PERMISSIVE").await?;
        let faults = setup.faults("", 0)?;
        ensure!(
            faults.iter().any(|fault| fault[2] == "GTIDs"),
            "gtid_mode = ON_PERMISSIVE is not reported: {faults:#?}"
        );
        setup.source.sql("SET GLOBAL gtid_mode = ON").await?;
    }
    Ok(())
}

async fn faults_of_accounts(setup: &CheckedSetup, kind: ServerKind) -> Result<()> {
    let unreachable = ("problem", "channel reports", "connection", "TW-SES-0001");
    let without_target = setup.faults("--set channel.reports.port=1", 3)?;
    ensure!(
        without_target.iter().any(|fault| fault[1] == unreachable.1 && fault[3].contains(unreachable.3)),
        "the unreachable target is not reported: {without_target:#?}"
    );
    setup.shell.write("wrong.cnf", "[client]\npassword = secret4711\n")?;
    let wrong = setup
        .shell
        .run("config check --connect -c tailwater.toml --set source.orders.defaults_file=wrong.cnf")?;
    wrong.exits(3).stdout_lacks(&["4711"]).says(&["source orders", "connection", "Access denied"]);
    let same = setup.faults("--set source.orders.server_id=1", 3)?;
    ensure!(
        same.iter().any(|fault| fault[2] == "server_id" && fault[3].contains("source orders")),
        "the server_id that equals the source's is not reported: {same:#?}"
    );
    let encrypted = setup.report("--set source.orders.tls=off", 0)?;
    ensure!(
        encrypted.to_string().contains("stays on this machine"),
        "the connection without TLS is not reported as local: {encrypted:#}"
    );

    setup.source.sql("SET sql_log_bin = 0; REVOKE REPLICATION SLAVE ON *.* FROM tailwater").await?;
    let missing = setup.faults("", 3)?;
    let privileges = missing.iter().find(|fault| fault[1] == "source orders" && fault[2] == "privileges");
    let text = &privileges.context("the missing privilege is not reported")?[3];
    ensure!(
        text.contains("GRANT REPLICATION SLAVE ON *.* TO"),
        "the report does not contain the GRANT statement: {text}"
    );
    setup.source.sql("SET sql_log_bin = 0; GRANT REPLICATION SLAVE ON *.* TO tailwater").await?;

    setup.target.sql("SET sql_log_bin = 0; REVOKE INSERT ON *.* FROM applier").await?;
    setup.finds("", ("warning", "channel reports", "privileges on data", "all databases"))?;
    setup
        .target
        .sql("SET sql_log_bin = 0; GRANT INSERT ON *.* TO applier; REVOKE ALL ON tailwater.* FROM applier")
        .await?;
    setup.target.sql("SET sql_log_bin = 0; REVOKE CREATE ON *.* FROM applier").await?;
    let missing = setup.faults("", 3)?;
    ensure!(
        missing.iter().any(|fault| fault[1] == "channel reports" && fault[3].contains("schema `tailwater`")),
        "the missing schema of the channel is not reported: {missing:#?}"
    );
    setup.target.sql("SET sql_log_bin = 0; GRANT CREATE ON *.* TO applier").await?;
    let apply = if kind.flavour() == Flavour::MySql { "REPLICATION_APPLIER" } else { "BINLOG REPLAY" };
    setup.target.sql(&format!("SET sql_log_bin = 0; REVOKE {apply} ON *.* FROM applier")).await?;
    setup.finds("", ("problem", "channel reports", "privileges", apply))?;
    setup.target.sql(&format!("SET sql_log_bin = 0; GRANT {apply} ON *.* TO applier")).await?;

    // A [[server]] is also probed.
    let member = format!(
        "{}[[server]]\nname = \"db2\"\nsource = \"orders\"\nhost = \"127.0.0.1\"\nport = {}\nuser = \"applier\"\ndefaults_file = \"pw.cnf\"\n[manager]\n",
        setup.config,
        setup.target.port()
    );
    setup.shell.write("member.toml", &member)?;
    let ran = setup.shell.run("config check --connect -c member.toml")?.exits(3);
    ran.says(&[
        "server db2",
        "capturing the binlog",
        "making the server a primary or a replica",
        "reading the replication status",
    ]);
    Ok(())
}

fn faults_of_the_machine(setup: &CheckedSetup) -> Result<()> {
    let here = "this machine";
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let listen = format!("--set http.listen={}", taken.local_addr()?);
    setup.finds(&listen, ("problem", here, "listen address", "cannot be used"))?;
    setup.shell.write("file", "")?;
    let unwritable =
        setup.shell.run("config check --connect -c tailwater.toml --set log.directory=/proc/log")?;
    unwritable.exits(3).says(&["log directory", "cannot be written"]);
    let words = "tailwater config check --connect -c tailwater.toml --output json";
    let limited = setup.shell.bash(&format!("ulimit -n 50; {words}"))?.exits(0).text();
    ensure!(
        limited.contains("the limit is 50 open files"),
        "the low limit of open files is not reported: {limited}"
    );
    if SlowSync::is_possible() {
        let (name, library) = SlowSync::compile(setup.shell.path(), Duration::from_millis(20))?.environment();
        let line = format!("env {}={} {words}", name.display(), library.display());
        let slow = setup
            .shell
            .bash(&line.replace("tailwater config", &format!("{} config", crate::shell_session::PROGRAM)))?;
        ensure!(
            slow.text().contains("with semi-sync each commit"),
            "the slow disk is not reported: {}",
            slow.text()
        );
        let clock = SteppedClock::compile(setup.shell.path())?;
        clock.set_offset_ms(-7_000)?;
        let environment: Vec<_> = clock
            .environment()
            .iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        let line = format!(
            "env {} {} config check --connect -c tailwater.toml --output json",
            environment.join(" "),
            crate::shell_session::PROGRAM
        );
        let ahead = setup.shell.bash(&line)?.exits(0);
        ensure!(
            ahead.text().contains("s ahead of the clock of this machine"),
            "the wrong clock is not reported: {}",
            ahead.text()
        );
    }
    Ok(())
}
