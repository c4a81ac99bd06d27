//! Reads the definitions of all kinds of objects, and creates them again with the stock clients.

use anyhow::{Result, ensure};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_session::Connection;
use tailwater_tables::schema::{
    SchemaInventory, SchemaObject, Selection, TableName, ddl, inventory, prepare,
};
use tailwater_wire::Flavour;

use crate::stock_client::run_script;

on_each_server!(definitions_recreate_their_objects, missing_objects_are_named);

/// Objects of every kind. Some views and triggers cannot be created in alphabetical order.
const EVERYTHING: &str = "
    CREATE DATABASE `sch a``1` CHARACTER SET latin1;
    USE `sch a``1`;
    CREATE TABLE `t``1` (
        a INT PRIMARY KEY AUTO_INCREMENT, b VARCHAR(20) DEFAULT 'x;\\n' COMMENT 'c;\\n''d', h INT INVISIBLE,
        g INT AS (h * 2) STORED, v VARCHAR(30) AS (CONCAT(b, ';\\n')) VIRTUAL,
        d DATETIME DEFAULT '0000-00-00 00:00:00', ts TIMESTAMP NULL DEFAULT '2024-03-31 02:30:00',
        e ENUM('ä', 'it''s') DEFAULT 'ä', KEY (b), CONSTRAINT `chk 1` CHECK (b <> ';\\n')
    ) AUTO_INCREMENT = 77;
    CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id));
    CREATE TABLE parent (id INT PRIMARY KEY, KEY (id)) ENGINE=InnoDB;
    CREATE TABLE parted (id INT, day DATE, PRIMARY KEY (id, day))
        PARTITION BY RANGE (TO_DAYS(day)) (PARTITION p0 VALUES LESS THAN (TO_DAYS('2024-01-01')),
        PARTITION p1 VALUES LESS THAN MAXVALUE);
    CREATE FUNCTION twice(x INT) RETURNS INT DETERMINISTIC RETURN 2 * x;
    CREATE VIEW z AS SELECT a, ';\\n' AS l FROM `t``1`;
    CREATE VIEW m AS SELECT twice(a) AS b, l FROM z;
    CREATE VIEW a AS SELECT m.b, z.l FROM m JOIN z WHERE m.b = z.a;
    SET sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT';
    CREATE FUNCTION moded(\"x y\" TEXT) RETURNS TEXT DETERMINISTIC RETURN \"x y\" || ';';
    SET NAMES latin1;
    SET sql_mode = '';
    DELIMITER //
    CREATE PROCEDURE proc(IN n INT) COMMENT 'does; it'
    BEGIN
        DECLARE s VARCHAR(9);
        SET s = 'a;
';      -- a comment;
        SELECT s, n;
    END//
    CREATE TRIGGER second BEFORE INSERT ON child FOR EACH ROW SET NEW.p = NEW.p + 1//
    CREATE TRIGGER zfirst BEFORE INSERT ON child FOR EACH ROW PRECEDES second
    BEGIN
        SET NEW.p = NEW.p * 2;
    END//
    CREATE TRIGGER after_del AFTER DELETE ON parent FOR EACH ROW DO 1//
    SET time_zone = '+05:00'//
    CREATE EVENT ev ON SCHEDULE EVERY 1 DAY STARTS '2030-01-01 00:00:00' DISABLE DO BEGIN DO 1; DO 2; END//
    DELIMITER ;
    ALTER DATABASE CHARACTER SET utf8mb4;
    CREATE FUNCTION later(x CHAR(3)) RETURNS CHAR(3) DETERMINISTIC RETURN x;
";

const MARIADB_OBJECTS: &str = "
    USE `sch a``1`;
    CREATE SEQUENCE fresh START WITH 5;
    CREATE SEQUENCE used START WITH 100 INCREMENT BY -3 MINVALUE 1 MAXVALUE 100 CACHE 2 CYCLE;
    SELECT NEXTVAL(used), NEXTVAL(used), NEXTVAL(used);
    CREATE SEQUENCE done START WITH 1 MAXVALUE 2 NOCYCLE NOCACHE;
    SELECT NEXTVAL(done), NEXTVAL(done);
    CREATE TABLE numbered (id BIGINT DEFAULT NEXTVAL(fresh) PRIMARY KEY, n INT);
    CREATE TABLE versioned (id INT PRIMARY KEY) WITH SYSTEM VERSIONING;
    SET sql_mode = ORACLE;
    DELIMITER //
    CREATE PACKAGE pack AS FUNCTION f RETURN INT; PROCEDURE p; END;
    //
    CREATE PACKAGE BODY pack AS FUNCTION f RETURN INT AS BEGIN RETURN 1; END; PROCEDURE p AS BEGIN NULL; END; END;
    //
";

async fn everything(server: &Server) -> Result<Connection> {
    run_script(
        server,
        format!("SET NAMES utf8mb4; SET foreign_key_checks = 0, sql_mode = '';{EVERYTHING}").as_bytes(),
    )?;
    // This routine is stored in latin1, the other objects in another character set.
    let latin1 = b"USE `sch a``1`; SET NAMES latin1; CREATE FUNCTION aged() RETURNS TEXT DETERMINISTIC RETURN '\xe4\xdf';";
    run_script(server, latin1)?;
    if server.kind().flavour() == Flavour::MariaDb {
        run_script(server, MARIADB_OBJECTS.as_bytes())?;
    }
    let mut connection = Connection::connect(&server.connect_options()).await?;
    prepare(&mut connection).await?;
    Ok(connection)
}

/// Returns all objects with their definitions as scripts.
async fn scripts(
    connection: &mut Connection,
    selection: &Selection,
) -> Result<(SchemaInventory, Vec<Vec<u8>>)> {
    let found = inventory(connection, selection).await?;
    let mut scripts = Vec::new();
    let is_sequence = |object: &&SchemaObject| object.to_string().starts_with("sequence");
    let schemas = found.schemas.iter().cloned().map(SchemaObject::Schema);
    let sequences = found.objects.iter().filter(is_sequence).cloned();
    let tables = found.tables.iter().cloned().map(SchemaObject::Table);
    let rest = found.objects.iter().filter(|object| !is_sequence(object)).cloned();
    for object in schemas.chain(sequences).chain(tables).chain(rest) {
        scripts.push(ddl(connection, &object).await?);
    }
    Ok((found, scripts))
}

async fn definitions_recreate_their_objects(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = Server::start(ServerSpec::new(kind)).await?;
    let mut connection = everything(&server).await?;
    let (found, before) = scripts(&mut connection, &Selection::default()).await?;
    ensure!(
        found.schemas == ["sch a`1"],
        "the inventory must list only the database of the test: {:?}",
        found.schemas
    );
    let tables = if kind.flavour() == Flavour::MariaDb { 6 } else { 4 };
    ensure!(found.tables.len() == tables, "the inventory must list {tables} tables: {:?}", found.tables);
    let names: Vec<_> = found.objects.iter().map(ToString::to_string).collect();
    let place = |name: &str| names.iter().position(|other| other.ends_with(name));
    ensure!(
        place(".z") < place(".m") && place(".m") < place("view sch a`1.a"),
        "a view precedes a view that it reads: {names:#?}"
    );
    ensure!(
        place(".zfirst") < place(".second") && place(".ev").is_some(),
        "the triggers are in the wrong order, or the event is missing: {names:#?}"
    );
    let old = before.iter().find(|script| script.windows(8).any(|window| window == b"RETURN '"));
    ensure!(
        old.is_some_and(|script| script.windows(2).any(|window| window == b"\xe4\xdf")),
        "the script of the function does not contain its latin1 bytes"
    );

    connection.execute("DROP DATABASE `sch a``1`").await?;
    for script in &before {
        run_script(&server, script)?;
    }
    let (again, after) = scripts(&mut connection, &Selection::default()).await?;
    ensure!(again == found, "the scripts created other objects than before: {again:#?}");
    for (before, after) in before.iter().zip(&after) {
        let (before, after) = (String::from_utf8_lossy(before), String::from_utf8_lossy(after));
        ensure!(before == after, "a definition has changed:\n{before}\n{after}");
    }
    let sql = "SELECT moded('a'), HEX(aged()), twice(2)";
    connection.execute("USE `sch a``1`").await?;
    let row = connection.query(sql).await?;
    let row = row.first().map(|row| (row.get_str(0), row.get_str(1), row.get_u64(2)));
    ensure!(
        row == Some((Some("a;"), Some("C3A4C39F"), Some(4))),
        "the recreated functions return other values than the original functions: {row:?}"
    );
    if kind.flavour() == Flavour::MariaDb {
        let sql = "SELECT NEXTVAL(fresh), NEXTVAL(used)";
        let row = connection.query(sql).await?;
        let row = row.first().map(|row| (row.get_i64(0), row.get_i64(1)));
        // The server had reserved values for the cache of the sequence `used`. These values count as used.
        ensure!(
            row == Some((Some(5), Some(88))),
            "the recreated sequences continue at wrong values: {row:?}"
        );
        ensure!(
            connection.query("SELECT NEXTVAL(done)").await.is_err(),
            "NEXTVAL returned a value of an exhausted sequence"
        );
    }
    Ok(())
}

async fn missing_objects_are_named(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = Server::start(ServerSpec::new(kind)).await?;
    let mut connection = everything(&server).await?;
    let schema = "sch a`1";
    let one = Selection { tables: vec![TableName::new(schema, "child")], ..Selection::default() };
    let (found, _) = scripts(&mut connection, &one).await?;
    ensure!(
        found.tables.len() == 1 && found.objects.len() == 2,
        "the inventory must list the selected table and two other objects: {found:#?}"
    );
    let except = Selection { except: one.tables.clone(), ..Selection::default() };
    let (found, _) = scripts(&mut connection, &except).await?;
    ensure!(
        !found.tables.contains(&one.tables[0]) && found.tables.len() >= 3,
        "an excluded table is listed, or other tables are missing: {found:#?}"
    );

    let table = Selection { tables: vec![TableName::new(schema, "children")], ..Selection::default() };
    let none = Selection { schemas: vec!["elsewhere".into()], ..Selection::default() };
    for (selection, name) in [(table, "sch a`1.children"), (none, "elsewhere")] {
        let error = inventory(&mut connection, &selection).await.err();
        let is_named = error.as_ref().is_some_and(|error| error.to_string().contains(name));
        ensure!(
            is_named && error.as_ref().is_some_and(|error| error.code() == "TW-BULK-0020"),
            "the error must be TW-BULK-0020 and name the missing object: {error:?}"
        );
    }
    // This account may execute a routine, but may not see its body.
    server.sql("CREATE USER runner@'%'; GRANT EXECUTE ON *.* TO runner@'%'").await?;
    let options = tailwater_session::ConnectOptions { user: "runner".into(), ..server.connect_options() };
    let mut runner = Connection::connect(&options).await?;
    prepare(&mut runner).await?;
    let kind = tailwater_tables::schema::ObjectKind::Procedure;
    let object = SchemaObject::Other { kind, schema: schema.into(), name: "proc".into() };
    let error = ddl(&mut runner, &object).await.err();
    ensure!(
        error.as_ref().is_some_and(|error| error.code() == "TW-BULK-0021"),
        "the error for a hidden definition must be TW-BULK-0021: {error:?}"
    );
    Ok(())
}
