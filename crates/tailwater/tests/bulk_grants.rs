//! What `tailwater grants` names is enough to dump and to load.

use anyhow::{Result, ensure};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_wire::Flavour;

use crate::shell::Shell;

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
async fn what_is_granted_is_enough() -> Result<()> {
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
            if purpose == "dump all of it" {
                source.sql(statement).await?;
            } else if purpose.contains("load") || purpose.contains("--set-gtid") {
                target.sql(&format!("SET sql_log_bin = 0; {statement}")).await?;
            }
        }
        let at = |server: &Server| format!("--host 127.0.0.1 --port {} --user tailwater", server.port());
        shell.run(&format!("dump dumped {}", at(&source)))?.exits(0).hides(&["table locks"]);
        shell.run(&format!("load dumped {} --set-gtid --no-binlog", at(&target)))?.exits(0);
        let sums = "SELECT n FROM shop.v; SELECT shop.f(); SHOW TRIGGERS FROM shop LIKE 'x'; \
                    SELECT definer FROM information_schema.triggers WHERE trigger_schema = 'shop'; \
                    SELECT definer FROM information_schema.events WHERE event_schema = 'shop'";
        let (one, other) = (source.sql(sums).await?, target.sql(sums).await?);
        ensure!(one == other, "{kind}: {one:?} {other:?}");

        // Another server's rows are not put behind these.
        let refused = shell.run(&format!("dump dumped {} --resume", at(&target)))?;
        refused.exits(1).complains(&["TW-BULK-0012", "it comes from the server"]);
    }
    Ok(())
}
