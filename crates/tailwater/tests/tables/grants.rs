//! The privileges that `tailwater grants` prints suffice for dump, load, check and repair.

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_wire::Flavour;

use crate::shell_session::{PROGRAM, Shell};

const SCRIPT: &str = "
    CREATE DATABASE shop; USE shop;
    CREATE TABLE t (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES t (id));
    INSERT INTO t VALUES (1, NULL), (2, 1);
    CREATE VIEW v AS SELECT COUNT(*) AS n FROM t;
    CREATE FUNCTION f() RETURNS INT DETERMINISTIC RETURN 1;
    CREATE TRIGGER r BEFORE INSERT ON t FOR EACH ROW SET @seen = 1;
    CREATE EVENT e ON SCHEDULE EVERY 1 DAY DISABLE DO DO 1;
    CREATE USER tailwater;
";

async fn started(kind: ServerKind, id: u32) -> Result<Server> {
    let id = format!("--server-id={id}");
    let mut spec = ServerSpec::new(kind).options(["--local-infile=1", &id]);
    if kind.flavour() == Flavour::MySql {
        spec = spec.options(["--gtid-mode=ON", "--enforce-gtid-consistency=ON"]);
    }
    Ok(Server::start(spec).await?)
}

#[tokio::test]
async fn printed_grants_suffice_for_dump_and_load() -> Result<()> {
    for (kind, family) in [
        (ServerKind::Mysql97, "mysql"),
        (ServerKind::Mariadb1011, "mariadb"),
        (ServerKind::Mariadb118, "mariadb"),
    ] {
        if require(kind).is_none() {
            continue;
        }
        let shell = Shell::new()?;
        let (source, target) = (started(kind, 1).await?, started(kind, 2).await?);
        source.sql(SCRIPT).await?;
        target.sql("SET sql_log_bin = 0; CREATE USER tailwater").await?;
        let grants = shell.run(&format!("grants --server {family} --output json --account tailwater"))?;
        for grant in grants.exits(0).json()? {
            let purpose = grant["purpose"].as_str().unwrap_or_default();
            let statement = grant["statement"].as_str().unwrap_or_default();
            if purpose == "dump the whole server" {
                source.sql(statement).await?;
            } else if purpose.contains("load") || purpose.contains("--set-gtid") {
                target.sql(&format!("SET sql_log_bin = 0; {statement}")).await?;
            }
        }
        let at = |server: &Server| format!("--host 127.0.0.1 --port {} --user tailwater", server.port());
        let dumped =
            shell.run(&format!("dump dumped {}", at(&source)))?.exits(0).stdout_lacks(&["table locks"]);
        ensure!(
            !dumped.errors().contains("may not see"),
            "the dump warns that the account cannot see all objects: {}",
            dumped.errors()
        );
        // An account that cannot see all objects gets an error, not an incomplete dump.
        source.sql("CREATE USER reader; GRANT SELECT, SHOW VIEW, LOCK TABLES ON shop.* TO reader").await?;
        let less = shell.run(&format!("dump less {}", at(&source).replace("tailwater", "reader")))?.exits(1);
        less.stderr_has(&["TW-BULK-0105", "database shop", "TRIGGER, EVENT"]);
        shell.run(&format!("load dumped {} --set-gtid --no-binlog", at(&target)))?.exits(0);
        let sums = "SELECT n FROM shop.v; SELECT shop.f(); SHOW TRIGGERS FROM shop LIKE 'x'; \
                    SELECT definer FROM information_schema.triggers WHERE trigger_schema = 'shop'; \
                    SELECT definer FROM information_schema.events WHERE event_schema = 'shop'";
        let (one, other) = (source.sql(sums).await?, target.sql(sums).await?);
        ensure!(one == other, "on {kind}, the source has the rows {one:?}, but the target has {other:?}");

        // A dump of one server cannot be resumed with rows of another server.
        let refused = shell.run(&format!("dump dumped {} --resume", at(&target)))?;
        refused.exits(1).stderr_has(&["TW-BULK-0012", "the dump comes from the server"]);
    }
    Ok(())
}

const CHECKED: &str = "
    CREATE DATABASE shop; USE shop;
    CREATE TABLE plain (id INT PRIMARY KEY, n INT);
    INSERT INTO plain VALUES (1, 1), (2, 2), (3, 3);
    CREATE TABLE fired (id INT PRIMARY KEY, n INT, seen INT);
    INSERT INTO fired VALUES (1, 1, 0);
";

/// Statements that change rows on the target without writing the changes to its binlog.
const PLANTED: &str = "SET sql_log_bin = 0; UPDATE shop.plain SET n = 9 WHERE id = 2; DELETE FROM shop.plain WHERE id = 3; \
     UPDATE shop.fired SET n = 9, seen = 0";

#[tokio::test]
async fn printed_grants_suffice_for_check_and_repair_mariadb() -> Result<()> {
    grants_suffice_for_check_and_repair(ServerKind::Mariadb1011, "mariadb").await
}

#[tokio::test]
async fn printed_grants_suffice_for_check_and_repair_mysql() -> Result<()> {
    grants_suffice_for_check_and_repair(ServerKind::Mysql97, "mysql").await
}

async fn grants_suffice_for_check_and_repair(kind: ServerKind, family: &str) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let shell = Shell::new()?;
    let (source, target) =
        tokio::try_join!(Server::start(ServerSpec::new(kind)), Server::start(ServerSpec::new(kind)))?;
    target.replicate_from(&source).await?;
    source.sql(CHECKED).await?;
    let grants =
        shell.run(&format!("grants --server {family} --output json --account checker"))?.exits(0).json()?;
    let grant = async |server: &Server, purpose: &str| -> Result<()> {
        let found =
            grants.iter().find(|grant| grant["purpose"].as_str().is_some_and(|it| it.starts_with(purpose)));
        let statement = found.and_then(|grant| grant["statement"].as_str()).context(purpose.to_owned())?;
        server.sql(&format!("SET sql_log_bin = 0; {statement}")).await?;
        Ok(())
    };
    for server in [&source, &target] {
        server.sql("SET sql_log_bin = 0; CREATE USER checker").await?;
        grant(server, "compare the data (").await?;
    }
    let server = |side: &str, server: &Server| {
        format!("--{side}-host 127.0.0.1 --{side}-port {} --{side}-user checker", server.port())
    };
    let both = format!("{} {} --database shop", server("source", &source), server("target", &target));
    shell.run(&format!("check {both}"))?.exits(0).says(&["all the same"]);
    shell.run(&format!("check {both} --wait mark"))?.exits(1).stderr_has(&["denied"]);
    grant(&source, "compare the data with marks").await?;
    shell.run(&format!("check {both} --wait mark"))?.exits(0).says(&["all the same"]);

    target.sql("SET sql_log_bin = 0; CREATE TRIGGER shop.fires BEFORE UPDATE ON shop.fired FOR EACH ROW SET NEW.seen = 7").await?;
    target.sql(PLANTED).await?;
    let repair = format!("repair {both}");
    shell.run(&repair)?.exits(1).stderr_has(&["TW-BULK-0046", "--log-to-binlog"]);
    grant(&target, "repair the data").await?;
    // Without the TRIGGER privilege the server shows no triggers. The command must not conclude that there
    // are none.
    target.sql("SET sql_log_bin = 0; REVOKE TRIGGER ON *.* FROM checker").await?;
    let blind = shell.run(&repair)?.exits(3);
    blind.says(&["shop.plain (2) remains", "shop.fired (1) remains", "lacks TRIGGER", "0 rows repaired"]);
    grant(&target, "repair the data").await?;
    target.sql("SET GLOBAL read_only = 1").await?;
    shell.run(&repair)?.exits(1).stderr_has(&["TW-BULK-0046", "error 1290", "grant it"]);
    grant(&target, "repair the data while read_only").await?;
    let seen = shell.run(&repair)?.exits(3);
    seen.says(&["2 rows repaired", "shop.fired (1) remains", "has triggers that would fire on the target"]);
    ensure!(target.sql("SELECT n, seen FROM shop.fired").await? == ["9\t7"]);
    // The trigger changes the value that the repair has written, so the row still differs.
    let fired = shell.run(&format!("{repair} --fire-triggers"))?.exits(3);
    fired.says(&["shop.fired (1) remains: the row still differs"]);
    ensure!(target.sql("SELECT n, seen FROM shop.fired").await? == ["1\t7"]);
    if kind == ServerKind::Mysql97 {
        target.sql(PLANTED).await?;
        target.sql("SET GLOBAL super_read_only = 1").await?;
        shell.run(&repair)?.exits(1).stderr_has(&["TW-BULK-0046", "super_read_only no account may"]);
        target.sql("SET GLOBAL super_read_only = 0").await?;
        shell.run(&repair)?.exits(3).says(&["2 rows repaired"]);
    }

    // In this check, the throttle queries the target as a replica of the source.
    let throttled = format!("check {both} --throttle-replica 127.0.0.1:{}", target.port());
    // Without the privilege to read the replica's lag, the throttle would pause the check forever.
    grant(&target, "read the replica's lag").await?;
    shell.bash(&format!("timeout 60 '{PROGRAM}' {throttled}"))?.exits(3).says(&["shop.fired"]);
    Ok(())
}
