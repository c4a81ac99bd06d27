//! Statements that are known to cause errors in replication, in one database for each case.

use tailwater_wire::Flavour;
use tailwater_wire::Flavour::{MariaDb, MySql};

/// Statements that a replica with a simple implementation applies wrongly.
#[derive(Clone)]
pub struct Pitfall {
    pub name: &'static str,
    /// The flavour to which the pitfall applies; `None` for both.
    on: Option<Flavour>,
    pub sql: String,
}

impl Pitfall {
    pub fn is_on(&self, flavour: Flavour) -> bool {
        self.on.is_none_or(|on| on == flavour)
    }
}

const KEYLESS: &str = "
CREATE TABLE t (a INT, b VARCHAR(9)); CREATE TABLE nullable (a INT, b INT, UNIQUE (a));
INSERT INTO t VALUES (1,'x'),(1,'x'),(1,'x'),(2,NULL),(NULL,NULL),(NULL,NULL);
DELETE FROM t WHERE a = 1 LIMIT 1; UPDATE t SET b = 'y' WHERE a = 1 LIMIT 1; UPDATE t SET a = 3 WHERE a IS NULL LIMIT 1;
BEGIN; INSERT INTO t VALUES (1,'x'); DELETE FROM t WHERE a = 1 AND b = 'x' LIMIT 1; UPDATE t SET b = 'x' WHERE b = 'y'; COMMIT;
UPDATE t SET a = a + 1; UPDATE t SET a = a + 1; DELETE FROM t WHERE a = 4 LIMIT 1; INSERT INTO t VALUES (3,'x');
INSERT INTO nullable VALUES (NULL,1),(NULL,1),(1,1),(NULL,2); UPDATE nullable SET a = 2 WHERE b = 1 AND a IS NULL LIMIT 1;
UPDATE nullable SET a = NULL WHERE a = 1; DELETE FROM nullable WHERE a IS NULL AND b = 1 LIMIT 1; UPDATE nullable SET b = 5 WHERE a IS NULL;
INSERT INTO nullable VALUES (1,9);";

const PARTITIONS: &str = "
CREATE TABLE r (id INT NOT NULL PRIMARY KEY, v INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20), PARTITION p2 VALUES LESS THAN MAXVALUE);
CREATE TABLE h (a INT NOT NULL, b INT NOT NULL, v INT, PRIMARY KEY (a, b)) PARTITION BY HASH (b) PARTITIONS 4;
CREATE TABLE k (a INT, v INT) PARTITION BY HASH (a) PARTITIONS 3; CREATE TABLE plain (id INT NOT NULL PRIMARY KEY, v INT);
INSERT INTO r VALUES (1,1),(11,1),(21,1),(5,5); UPDATE r SET id = id + 10 ORDER BY id DESC; UPDATE r SET v = 2 WHERE id = 21; DELETE FROM r WHERE id = 31;
INSERT INTO h VALUES (1,1,1),(1,2,1),(2,3,1); UPDATE h SET b = b + 1 ORDER BY b DESC; DELETE FROM h WHERE b = 3;
INSERT INTO k VALUES (1,1),(1,1),(2,2),(NULL,3); UPDATE k SET a = 7 WHERE a = 1 LIMIT 1; DELETE FROM k WHERE a IS NULL;
INSERT INTO plain VALUES (1,100),(2,200); ALTER TABLE r EXCHANGE PARTITION p0 WITH TABLE plain; ALTER TABLE r TRUNCATE PARTITION p1;
INSERT INTO r VALUES (12,12); ALTER TABLE r DROP PARTITION p1; INSERT INTO r VALUES (13,13); UPDATE plain SET v = 3;";

const TEMPORARY_TABLES: &str = "
CREATE TABLE t (id INT NOT NULL PRIMARY KEY, v INT); CREATE TEMPORARY TABLE tmp (id INT, v INT);
INSERT INTO tmp VALUES (1,1),(2,2); INSERT INTO t SELECT * FROM tmp; UPDATE t JOIN tmp USING (id) SET t.v = tmp.v * 10;
CREATE TEMPORARY TABLE shadow (id INT, v INT); INSERT INTO shadow VALUES (1,1); DROP TEMPORARY TABLE tmp;
DELETE t FROM t JOIN shadow USING (id); DROP TEMPORARY TABLE shadow; INSERT INTO t VALUES (3,3);";

const FOREIGN_KEY_CHECKS: &str = "
CREATE TABLE p (id INT NOT NULL PRIMARY KEY, v INT); CREATE TABLE c (id INT NOT NULL PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id));
CREATE TABLE k (id INT NOT NULL PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE ON UPDATE CASCADE);
SET foreign_key_checks = 0; INSERT INTO c VALUES (1,7); INSERT INTO k VALUES (1,7),(2,8); BEGIN; INSERT INTO c VALUES (2,8); SET foreign_key_checks = 1; INSERT INTO p VALUES (8,8); COMMIT;
INSERT INTO c VALUES (3,8); SET foreign_key_checks = 0; DELETE FROM p WHERE id = 8; INSERT INTO p VALUES (1,1),(2,2); SET foreign_key_checks = 1;
INSERT INTO k VALUES (3,1),(4,2); SET foreign_key_checks = 0; UPDATE p SET id = 9 WHERE id = 1; SET foreign_key_checks = 1; DELETE FROM p WHERE id = 2;
SET unique_checks = 0; INSERT INTO p VALUES (20,1); SET unique_checks = 1; INSERT INTO c VALUES (9,20);";

const AUTO_INCREMENT: &str = "
CREATE TABLE t (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, v INT); CREATE TABLE gone (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, v INT);
INSERT INTO t (v) VALUES (1),(2),(3); DELETE FROM t WHERE id = 3; INSERT INTO t VALUES (50,50); INSERT INTO t (v) VALUES (51);
SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO'; INSERT INTO t VALUES (0,0); SET sql_mode = ''; INSERT INTO t (v) VALUES (52); DELETE FROM t WHERE id >= 51;
BEGIN; INSERT INTO gone (v) VALUES (1),(2),(3); DELETE FROM gone; COMMIT;
CREATE TABLE moved (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, v INT); CREATE TABLE beside (id INT NOT NULL PRIMARY KEY, n INT NOT NULL AUTO_INCREMENT, KEY (n));
BEGIN; INSERT INTO moved VALUES (10006, 1); UPDATE moved SET id = 49; COMMIT; BEGIN; INSERT INTO beside VALUES (1, 777); UPDATE beside SET n = 2; COMMIT;
CREATE TABLE stepped LIKE t; SET auto_increment_increment = 10, auto_increment_offset = 3; INSERT INTO stepped (v) VALUES (60),(61);";

const SEVERAL_UNIQUE_KEYS: &str = "
CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a INT UNIQUE, b VARCHAR(9) UNIQUE, v INT); CREATE TABLE n (a INT NOT NULL UNIQUE, b INT UNIQUE, v INT);
INSERT INTO t VALUES (1,1,'a',1),(2,2,'b',2),(3,3,'c',3),(4,NULL,NULL,4),(5,NULL,NULL,5);
REPLACE INTO t VALUES (1,2,'c',100); REPLACE INTO t VALUES (4,2,'C',101); REPLACE INTO t VALUES (4,2,'c',102); REPLACE INTO t VALUES (9,9,'z',9),(9,9,'z',10),(10,9,'y',11);
INSERT INTO t VALUES (4,77,'q',1) ON DUPLICATE KEY UPDATE a = 1, v = v + 1; INSERT INTO t VALUES (99,1,'q',1) ON DUPLICATE KEY UPDATE id = 50, b = 'w';
INSERT INTO t VALUES (50,5,'n',1),(51,1,'n2',1),(52,6,'w',1) ON DUPLICATE KEY UPDATE v = v * 2, a = NULL; INSERT IGNORE INTO t VALUES (50,8,'i',0),(60,60,'i',0);
BEGIN; REPLACE INTO t VALUES (50,60,'i',7); DELETE FROM t WHERE a = 60; INSERT INTO t VALUES (61,60,'i',8); COMMIT;
INSERT INTO n VALUES (1,1,1),(2,2,2),(3,NULL,3); REPLACE INTO n VALUES (1,2,9); REPLACE INTO n VALUES (2,NULL,1); INSERT INTO n VALUES (3,2,1) ON DUPLICATE KEY UPDATE b = 7;";

const SWAPS: &str = "
CREATE TABLE t (id INT NOT NULL PRIMARY KEY, u INT UNIQUE, s VARCHAR(9) UNIQUE, v INT);
INSERT INTO t VALUES (1,1,'a',1),(2,2,'b',2),(3,3,'c',3),(4,4,'d',4);
BEGIN; UPDATE t SET u = -1 WHERE id = 1; UPDATE t SET u = 1 WHERE id = 2; UPDATE t SET u = 2 WHERE id = 1; COMMIT;
BEGIN; UPDATE t SET s = NULL WHERE id = 1; UPDATE t SET s = 'a' WHERE id = 2; UPDATE t SET s = 'b' WHERE id = 1; COMMIT;
UPDATE t SET u = u + 1 ORDER BY u DESC; UPDATE t SET u = u - 1 ORDER BY u; UPDATE t SET id = id + 1 ORDER BY id DESC; UPDATE t SET id = id - 1 ORDER BY id;
BEGIN; UPDATE t SET id = 100 WHERE id = 1; UPDATE t SET id = 1 WHERE id = 2; UPDATE t SET id = 2 WHERE id = 100; UPDATE t SET v = v + 1; COMMIT;
BEGIN; DELETE FROM t WHERE id = 1; UPDATE t SET id = 1 WHERE id = 3; INSERT INTO t VALUES (3,77,'z',9); UPDATE t SET u = NULL WHERE id = 4; UPDATE t SET u = 4 WHERE id = 3; COMMIT;
UPDATE t SET u = -u; UPDATE t SET u = CASE u WHEN -1 THEN 3 WHEN -3 THEN 1 ELSE -u END;";

const SAVEPOINTS: &str = "
CREATE TABLE t (id INT NOT NULL PRIMARY KEY, v INT);
BEGIN; INSERT INTO t VALUES (1,1); SAVEPOINT a; INSERT INTO t VALUES (2,2); ROLLBACK TO a; INSERT INTO t VALUES (3,3); SAVEPOINT b; UPDATE t SET v = 9; RELEASE SAVEPOINT b; COMMIT;
BEGIN; INSERT INTO t VALUES (4,4); SAVEPOINT a; DELETE FROM t; ROLLBACK TO SAVEPOINT a; COMMIT; BEGIN; SAVEPOINT only; INSERT INTO t VALUES (5,5); ROLLBACK TO only; COMMIT;
BEGIN; UPDATE t SET v = 0; ROLLBACK; INSERT INTO t VALUES (6,6);";

const SESSION_FORMATS: &str = "
CREATE TABLE t (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, v VARCHAR(80), d DATETIME(6) NULL, n DOUBLE);
INSERT INTO t (v) VALUES ('rows'); SET SESSION binlog_format = MIXED; SET NAMES latin1; SET time_zone = '+05:00'; SET timestamp = 1700000000.5;
INSERT INTO t (v, d) VALUES ('a statement', NOW(6)); SET @v = 'variable'; INSERT INTO t (v) VALUES (@v); UPDATE t SET v = CONCAT(v, '!') WHERE id = 2;
SET NAMES utf8mb4; INSERT INTO t (v) VALUES ('\u{fc}\u{1F600}'); INSERT INTO t (v) VALUES (UUID()); SET SESSION binlog_format = ROW; SET timestamp = DEFAULT;
UPDATE t SET v = 'rows again' WHERE id = 1; BEGIN; INSERT INTO t (v) VALUES ('x'); SELECT 1; INSERT INTO t (v, n) VALUES ('y', RAND()); COMMIT; DELETE FROM t WHERE id = 4;";

const SEVERAL_TABLES: &str = "
CREATE TABLE a (id INT NOT NULL PRIMARY KEY, v INT); CREATE TABLE b (id INT NOT NULL PRIMARY KEY, v INT, w INT); CREATE TABLE c (x INT);
INSERT INTO a VALUES (1,1),(2,2),(3,3); INSERT INTO b VALUES (1,10,0),(2,20,0),(4,40,0); INSERT INTO c VALUES (1),(2),(2);
UPDATE a JOIN b USING (id) SET a.v = b.v, b.w = a.v + 1; UPDATE a JOIN c ON a.id = c.x SET a.v = a.v + 1, c.x = c.x + 10; DELETE a, b FROM a JOIN b USING (id) WHERE a.id = 2;
INSERT INTO b SELECT id + 100, v, v FROM a; UPDATE a, c SET a.v = 0, c.x = 0 WHERE a.id = 3;";

const TRIGGERS: &str = "
CREATE TABLE t (id INT NOT NULL PRIMARY KEY, v INT); CREATE TABLE log (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, what VARCHAR(20), v INT); CREATE TABLE totals (k INT NOT NULL PRIMARY KEY, n INT);
INSERT INTO totals VALUES (1,0);
CREATE TRIGGER bi BEFORE INSERT ON t FOR EACH ROW SET NEW.v = NEW.v + 1000; CREATE TRIGGER ai AFTER INSERT ON t FOR EACH ROW INSERT INTO log (what, v) VALUES ('ins', NEW.v);
CREATE TRIGGER au AFTER UPDATE ON t FOR EACH ROW INSERT INTO log (what, v) VALUES ('upd', OLD.v); CREATE TRIGGER ad AFTER DELETE ON t FOR EACH ROW UPDATE totals SET n = n + OLD.v;
INSERT INTO t VALUES (1,1),(2,2); UPDATE t SET v = v + 1; DELETE FROM t WHERE id = 1; REPLACE INTO t VALUES (2,7); BEGIN; INSERT INTO t VALUES (3,3); DELETE FROM t WHERE id = 3; COMMIT;";

const CASCADES: &str = "
CREATE TABLE p (id INT NOT NULL PRIMARY KEY, code VARCHAR(9) UNIQUE, v INT);
CREATE TABLE c (id INT NOT NULL PRIMARY KEY, p INT, v INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE g (id INT NOT NULL PRIMARY KEY, c INT, FOREIGN KEY (c) REFERENCES c (id) ON DELETE CASCADE);
CREATE TABLE n (id INT NOT NULL PRIMARY KEY, code VARCHAR(9), FOREIGN KEY (code) REFERENCES p (code) ON DELETE SET NULL ON UPDATE CASCADE);
CREATE TABLE self (id INT NOT NULL PRIMARY KEY, up INT, FOREIGN KEY (up) REFERENCES self (id) ON DELETE CASCADE);
INSERT INTO p VALUES (1,'a',1),(2,'b',2),(3,'c',3),(4,'d',4); INSERT INTO c VALUES (10,1,0),(11,1,0),(20,2,0),(30,3,0); INSERT INTO g VALUES (100,10),(101,11),(200,20),(300,30);
INSERT INTO n VALUES (1,'a'),(2,'b'),(3,'c'),(4,'d'); INSERT INTO self VALUES (1,NULL),(2,1),(3,2),(4,1),(5,NULL);
UPDATE c SET v = 1 WHERE id = 10; DELETE FROM p WHERE id = 1; INSERT INTO p VALUES (1,'a',9); INSERT INTO c VALUES (10,1,5); INSERT INTO g VALUES (100,10);
UPDATE p SET id = 22, code = 'B2' WHERE id = 2; UPDATE c SET v = 6 WHERE id = 20; INSERT INTO c VALUES (21,22,0); INSERT INTO n VALUES (5,'B2'); UPDATE p SET code = 'X' WHERE id = 3; UPDATE n SET code = 'd' WHERE id = 3;
BEGIN; DELETE FROM p WHERE id = 3; INSERT INTO c VALUES (30,4,0); INSERT INTO g VALUES (301,30); COMMIT; DELETE FROM self WHERE id = 1; INSERT INTO self VALUES (1,5),(2,1); DELETE FROM p WHERE id = 4; UPDATE p SET code = 'a2' WHERE code = 'a';
INSERT INTO p VALUES (4,'d',4); INSERT INTO c VALUES (30,4,1);";

/// This case does not run on MySQL 9.7. That server keeps the child row when it runs the statement, but
/// deletes the row when it replays its own log.
const CASCADING_REPLACE: &str = "
CREATE TABLE p (id INT NOT NULL PRIMARY KEY, v INT UNIQUE); CREATE TABLE c (id INT NOT NULL PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE);
INSERT INTO p VALUES (1,1),(2,2); INSERT INTO c VALUES (10,1),(20,2); REPLACE INTO p VALUES (1,2); INSERT INTO c VALUES (11,1); REPLACE INTO p VALUES (1,3);";

const UNIQUE_NULLS: &str = "
CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a INT, b VARCHAR(5), UNIQUE (a, b)); CREATE TABLE k (a INT, b INT, UNIQUE (a, b));
INSERT INTO t VALUES (1,1,NULL),(2,1,NULL),(3,NULL,NULL),(4,1,'x'); UPDATE t SET b = 'y' WHERE id = 1; UPDATE t SET b = NULL WHERE id = 4; UPDATE t SET b = 'x' WHERE id = 2; UPDATE t SET b = NULL WHERE id = 1; INSERT INTO t VALUES (5,1,'y'); DELETE FROM t WHERE b = 'x'; INSERT INTO t VALUES (6,1,'X');
INSERT INTO k VALUES (1,NULL),(1,NULL),(1,2),(NULL,NULL); UPDATE k SET b = 3 WHERE b IS NULL AND a = 1 LIMIT 1; DELETE FROM k WHERE a = 1 AND b IS NULL; INSERT INTO k VALUES (1,NULL); UPDATE k SET a = 5 WHERE b = 2;";

const PREFIXES: &str = "
CREATE TABLE t (id INT NOT NULL PRIMARY KEY, s VARCHAR(50) CHARACTER SET utf8mb4, b BLOB, x TEXT CHARACTER SET utf8mb4, UNIQUE (s(3)), UNIQUE (b(2)), UNIQUE (x(2)));
CREATE TABLE k (s VARCHAR(50) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, v INT, PRIMARY KEY (s(3)));
INSERT INTO t VALUES (1,'abc1','b1x','x1'),(2,'\u{e4}bd2',x'0000','x2'); DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (3,'ABCzzz','b1y','X1long'); UPDATE t SET s = 'q' WHERE id = 3; INSERT INTO t VALUES (4,'abcyyy',NULL,NULL);
DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (5,'ABD',x'00','x2'); UPDATE t SET b = x'0000FF', x = '\u{1F600}\u{1F600}a' WHERE id = 5; DELETE FROM t WHERE id = 5; INSERT INTO t VALUES (6,'\u{1F600}\u{1F600}\u{1F600}1',x'000001','\u{1F600}\u{1F600}b');
INSERT INTO k VALUES ('abc1',1),('ab',2),('\u{e9}\u{e9}\u{e9}1',3); UPDATE k SET s = 'abc2' WHERE v = 1; UPDATE k SET v = 9 WHERE s = 'abc2'; DELETE FROM k WHERE v = 3; INSERT INTO k VALUES ('\u{e9}\u{e9}\u{e9}2',4); UPDATE k SET s = 'ab ' WHERE v = 2;";

const FUNCTIONAL_INDEXES: &str = "
CREATE TABLE t (id INT NOT NULL PRIMARY KEY, s VARCHAR(50), j JSON, UNIQUE ((LOWER(s))), UNIQUE ((CAST(j->>'$.k' AS UNSIGNED))), KEY ((id + 1)));
CREATE TABLE m (id INT NOT NULL PRIMARY KEY, j JSON, KEY ((CAST(j->'$.a' AS UNSIGNED ARRAY))));
INSERT INTO t VALUES (1,'abc','{\"k\": 1}'),(2,'d','{\"k\": 2}'); DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (3,'ABC','{\"k\": 1}'); UPDATE t SET s = 'e' WHERE id = 3; INSERT INTO t VALUES (4,'aBC','{\"k\": 5}'); BEGIN; UPDATE t SET j = '{\"k\": 9}' WHERE id = 2; UPDATE t SET j = '{\"k\": 2}' WHERE id = 3; COMMIT;
INSERT INTO m VALUES (1,'{\"a\": [1,2,3]}'),(2,'{\"a\": [3,4]}'); UPDATE m SET j = '{\"a\": [5]}' WHERE id = 1; DELETE FROM m WHERE id = 2;";

/// Indexes that do not compare by equality: one has several values per row, another has periods of time.
const MANY_VALUES: &str = "
CREATE TABLE t (id INT NOT NULL PRIMARY KEY, j JSON, UNIQUE KEY m ((CAST(j->'$.a' AS UNSIGNED ARRAY))));
INSERT INTO t VALUES (1,'{\"a\": [1,2]}'),(2,'{\"a\": [3]}'),(3,NULL); UPDATE t SET j = '{\"a\": [1]}' WHERE id = 1; INSERT INTO t VALUES (4,'{\"a\": [2,4]}'); DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (5,'{\"a\": [3]}');
BEGIN; UPDATE t SET j = '{\"a\": [9]}' WHERE id = 4; UPDATE t SET j = '{\"a\": [4,2]}' WHERE id = 5; INSERT INTO t VALUES (6,'{\"a\": [3,5]}'); COMMIT; REPLACE INTO t VALUES (7,'{\"a\": [1]}'); DELETE FROM t WHERE id = 6; UPDATE t SET j = '{\"a\": [5,3]}' WHERE id = 3;";

const PERIODS: &str = "
CREATE TABLE t (id INT NOT NULL, s DATE NOT NULL, e DATE NOT NULL, v INT, PERIOD FOR p (s, e), PRIMARY KEY (id, p WITHOUT OVERLAPS)); CREATE TABLE k (s DATE NOT NULL, e DATE NOT NULL, v INT, PERIOD FOR p (s, e));
INSERT INTO t VALUES (1,'2020-01-01','2020-02-01',1),(1,'2020-02-01','2020-03-01',2),(2,'2020-01-01','2021-01-01',3); INSERT INTO k SELECT s, e, v FROM t;
UPDATE t FOR PORTION OF p FROM '2020-01-10' TO '2020-01-20' SET v = 9 WHERE id = 1; DELETE FROM t FOR PORTION OF p FROM '2020-02-05' TO '2020-02-10' WHERE id = 1; UPDATE k FOR PORTION OF p FROM '2020-01-10' TO '2020-06-20' SET v = v + 10;
DELETE FROM t WHERE id = 1 AND s = '2020-01-01'; INSERT INTO t VALUES (1,'2020-01-05','2020-01-09',5); UPDATE t SET e = '2020-01-07' WHERE id = 1 AND s = '2020-01-05'; INSERT INTO t VALUES (1,'2020-01-07','2020-01-10',6);
BEGIN; DELETE FROM t WHERE v = 6; INSERT INTO t VALUES (1,'2020-01-08','2020-01-10',7); COMMIT; UPDATE t SET s = '2020-01-01' WHERE v = 5; DELETE FROM t WHERE v = 7; UPDATE t SET e = '2020-01-10' WHERE v = 5;";

/// A sequence is a table with one row. Servers log changes of this row as inserts, and never as updates.
const SEQUENCES: &str = "
CREATE SEQUENCE s START WITH 5 INCREMENT BY 3 CACHE 2; CREATE SEQUENCE other NOCACHE; CREATE TABLE t (id INT NOT NULL DEFAULT NEXTVAL(s) PRIMARY KEY, v INT);
INSERT INTO t (v) VALUES (1),(2),(3); SELECT NEXTVAL(s); SELECT NEXTVAL(other), NEXTVAL(other); BEGIN; INSERT INTO t (v) VALUES (4); UPDATE t SET v = v + 1; INSERT INTO t (v) VALUES (NEXTVAL(other)),(NEXTVAL(other)); COMMIT;
BEGIN; INSERT INTO t (v) VALUES (5); ROLLBACK; SELECT SETVAL(s, 100); INSERT INTO t (v) VALUES (6); ALTER SEQUENCE s RESTART 200; INSERT INTO t (v) VALUES (7); CREATE SEQUENCE gone; SELECT NEXTVAL(gone); DROP SEQUENCE gone; DELETE FROM t WHERE v = 2;";

const REPLACED_TABLES: &str = "
CREATE TABLE t (id INT NOT NULL PRIMARY KEY, v INT); INSERT INTO t VALUES (1,1),(2,2); CREATE OR REPLACE TABLE t (v VARCHAR(9), id BIGINT NOT NULL PRIMARY KEY); INSERT INTO t VALUES ('one',1); CREATE OR REPLACE TABLE u AS SELECT id, v FROM t;
INSERT INTO u VALUES (2,'two'); CREATE OR REPLACE TABLE u SELECT * FROM t; UPDATE u SET v = 'x'; CREATE OR REPLACE TABLE t LIKE u; INSERT INTO t SELECT * FROM u; ALTER TABLE t ADD COLUMN IF NOT EXISTS (w INT DEFAULT 3, v INT); INSERT INTO t (id) VALUES (8); DROP TABLE IF EXISTS u, nobody;";

const UNIQUE_BLOBS: &str = "
CREATE TABLE t (id INT NOT NULL PRIMARY KEY, b BLOB, x TEXT CHARACTER SET utf8mb4, UNIQUE (b), UNIQUE (x)); CREATE TABLE k (x TEXT NOT NULL, v INT, UNIQUE (x));
INSERT INTO t VALUES (1,'b','x'),(2,NULL,NULL),(3,REPEAT('b',5000),REPEAT('x',5000)); DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (4,'b','X'); UPDATE t SET x = 'y' WHERE id = 4; INSERT INTO t VALUES (5,'B','x'); UPDATE t SET b = NULL WHERE id = 3; INSERT INTO t VALUES (6,REPEAT('b',5000),'\u{e4}');
INSERT INTO k VALUES ('a',1),('b',2); UPDATE k SET v = 5 WHERE x = 'a'; DELETE FROM k WHERE x = 'b'; INSERT INTO k VALUES ('B',3); UPDATE k SET x = 'c' WHERE v = 3; INSERT INTO k VALUES ('b ',4);";

const MEMORY_TABLES: &str = "
CREATE TABLE t (id INT NOT NULL PRIMARY KEY, s VARCHAR(9) UNIQUE, v INT) ENGINE = MEMORY; CREATE TABLE k (a INT, b INT, KEY USING BTREE (a)) ENGINE = MEMORY;
INSERT INTO t VALUES (1,'a',1),(2,'b',2),(3,NULL,3); DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (4,'A',1); UPDATE t SET v = v + 1; UPDATE t SET s = 'c' WHERE id = 3; INSERT INTO k VALUES (1,1),(1,1),(2,2); UPDATE k SET b = 5 WHERE a = 1 LIMIT 1; DELETE FROM k WHERE a = 2;";

const OTHER_ENGINES: &str = "
CREATE TABLE m (id INT NOT NULL PRIMARY KEY, s VARCHAR(9) UNIQUE, v INT) ENGINE = MyISAM; CREATE TABLE a (x INT, y TEXT) ENGINE = Aria; CREATE TABLE i (id INT NOT NULL PRIMARY KEY);
INSERT INTO m VALUES (1,'a',1),(2,'b',2); UPDATE m SET v = v + 1; DELETE FROM m WHERE id = 1; INSERT INTO m VALUES (3,'A',1); INSERT INTO a VALUES (1,'x'),(1,'x'),(NULL,NULL); UPDATE a SET y = 'z' WHERE x = 1 LIMIT 1; DELETE FROM a WHERE x IS NULL;
BEGIN; INSERT INTO i VALUES (1); INSERT INTO m VALUES (4,'d',4); INSERT INTO i VALUES (2); ROLLBACK; BEGIN; INSERT INTO i VALUES (3); UPDATE m SET v = 0 WHERE id = 4; COMMIT;";

const GENERATED_KEYS: &str = "
CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a INT, v INT GENERATED ALWAYS AS (a % 10) VIRTUAL, s VARCHAR(20) GENERATED ALWAYS AS (CONCAT('k', a)) STORED, UNIQUE (v), UNIQUE (s));
INSERT INTO t (id, a) VALUES (1,1),(2,2),(3,NULL); DELETE FROM t WHERE id = 1; INSERT INTO t (id, a) VALUES (4,11); UPDATE t SET a = 3 WHERE id = 4; INSERT INTO t (id, a) VALUES (5,21); BEGIN; UPDATE t SET a = NULL WHERE id = 2; UPDATE t SET a = 12 WHERE id = 5; UPDATE t SET a = 1 WHERE id = 2; COMMIT;";

/// Updates with full images in which most values stay the same. The target must not change the values that
/// stay the same on the source, and its indexes must stay correct.
const PARTLY_CHANGED: &str = "
CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a INT, b VARCHAR(20), ts TIMESTAMP NULL DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP, dt DATETIME(3) NULL DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP(3),
  bits BIT(11), e ENUM('x','y'), s SET('p','q'), o BLOB, g GEOMETRY, d DECIMAL(20,5), f DOUBLE, z INT NOT NULL DEFAULT 7, KEY (b), KEY (o(3)), KEY (a, z), FULLTEXT (b), CHECK (z > 0));
SET timestamp = 1700000000.25; INSERT INTO t (id, a, b) VALUES (1,1,'one'),(2,NULL,NULL),(3,3,'three'),(4,4,'four words in all'),(5,5,'five');
UPDATE t SET a = 10 WHERE id = 1; UPDATE t SET a = 11, ts = ts, dt = dt WHERE id = 1; UPDATE t SET ts = '2001-02-03 04:05:06', dt = NULL WHERE id = 2; UPDATE t SET b = 'two', ts = ts WHERE id = 2; UPDATE t SET b = NULL, dt = dt, ts = ts WHERE id = 2;
UPDATE t SET bits = b'10101010101', s = 'p,q' WHERE id = 3; UPDATE t SET a = NULL, z = 9 WHERE id = 3; UPDATE t SET a = 33, z = 10 WHERE id = 3; UPDATE t SET o = REPEAT('o', 3000), g = ST_GeomFromText('POINT(1 2)') WHERE id = 4; UPDATE t SET o = CONCAT(o, 'x'), f = -0e0 WHERE id = 4;
UPDATE t SET f = 0e0, d = 1.5 WHERE id = 4; UPDATE t SET id = 50 WHERE id = 5; UPDATE t SET id = 5, z = 1 WHERE id = 50; UPDATE t SET e = 'y', b = 'other words' WHERE id = 4; UPDATE t SET d = NULL WHERE id = 4; SET timestamp = DEFAULT;
BEGIN; UPDATE t SET a = 77 WHERE id = 1; UPDATE t SET b = 'x' WHERE id = 1; UPDATE t SET a = 11, ts = NULL WHERE id = 1; COMMIT; BEGIN; UPDATE t SET z = 70, ts = '2002-02-02 02:02:02', dt = NULL WHERE id = 3; UPDATE t SET z = 10, ts = NULL, dt = NULL WHERE id = 3; COMMIT;
BEGIN; DELETE FROM t WHERE id = 4; INSERT INTO t (id, b) VALUES (4, 'four words in all'); UPDATE t SET z = 4 WHERE id = 4; COMMIT; INSERT INTO t (id) VALUES (6); UPDATE t SET o = '' WHERE id = 6; UPDATE t SET o = NULL, a = 0 WHERE id = 6;";

/// Returns statements like [`PARTLY_CHANGED`] for a table with more columns than a machine word has bits.
fn wide_rows() -> String {
    let columns: Vec<_> = (0..70).map(|column| format!("c{column} SMALLINT")).collect();
    let mut sql = format!("CREATE TABLE t ({}, id INT NOT NULL PRIMARY KEY);", columns.join(", "));
    sql.push_str("INSERT INTO t (id, c3, c40) VALUES (1, 3, 40), (2, NULL, NULL), (3, 1, 1);");
    for changes in [
        "c0 = 5",
        "c69 = 1",
        "c60 = 2, c5 = 1",
        "c1 = 1, c68 = 1",
        "c64 = NULL",
        "c63 = 4",
        "c0 = 1, c69 = 2",
    ] {
        sql.push_str(&format!("UPDATE t SET {changes}; UPDATE t SET {changes}, id = id + 10 WHERE id = 3; UPDATE t SET id = 3 WHERE id = 13;"));
    }
    sql
}

const XA: &str = "
CREATE TABLE t (id INT NOT NULL PRIMARY KEY, v INT); INSERT INTO t VALUES (1,1),(2,2);
XA START 'one','b',7; UPDATE t SET v = 10 WHERE id = 1; INSERT INTO t VALUES (3,3); XA END 'one','b',7; XA PREPARE 'one','b',7; XA COMMIT 'one','b',7;
XA START 'two'; DELETE FROM t WHERE id = 2; XA END 'two'; XA PREPARE 'two'; XA ROLLBACK 'two'; XA START 'three'; INSERT INTO t VALUES (4,4); XA END 'three'; XA COMMIT 'three' ONE PHASE; UPDATE t SET v = v + 1;";

const ROW_HISTORY: &str = "
CREATE TABLE t (id INT NOT NULL PRIMARY KEY, v INT) WITH SYSTEM VERSIONING; CREATE TABLE own (id INT NOT NULL PRIMARY KEY, v INT, b TIMESTAMP(6) GENERATED ALWAYS AS ROW START, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (b, e)) WITH SYSTEM VERSIONING;
CREATE TABLE k (a INT) WITH SYSTEM VERSIONING; INSERT INTO t VALUES (1,1),(2,2); UPDATE t SET v = v + 1; DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (1,5); BEGIN; UPDATE t SET v = 6 WHERE id = 1; UPDATE t SET v = 7 WHERE id = 1; COMMIT;
INSERT INTO own (id, v) VALUES (1,1),(2,2); UPDATE own SET v = 3; DELETE FROM own WHERE id = 2; INSERT INTO k VALUES (1),(1),(2); UPDATE k SET a = 5 WHERE a = 1; DELETE FROM k WHERE a = 2;";

const NAMES: &str = "
CREATE TABLE `a``b` (`select` INT NOT NULL PRIMARY KEY, `x y` INT, `\u{e4}\u{f6}` VARCHAR(5)); CREATE TABLE `\u{65e5}\u{672c}` (id INT NOT NULL PRIMARY KEY, `Mixed` INT);
INSERT INTO `a``b` VALUES (1,1,'x'),(2,2,'y'); UPDATE `a``b` SET `\u{e4}\u{f6}` = 'z' WHERE `select` = 1; DELETE FROM `a``b` WHERE `x y` = 2; INSERT INTO `\u{65e5}\u{672c}` VALUES (1,1); UPDATE `\u{65e5}\u{672c}` SET `Mixed` = 2;";

const CHANGED_TABLES: &str = "
CREATE TABLE t (id INT NOT NULL PRIMARY KEY, v INT); INSERT INTO t VALUES (1,1),(2,2); ALTER TABLE t ADD COLUMN s VARCHAR(9) UNIQUE FIRST; INSERT INTO t VALUES ('a',3,3); UPDATE t SET s = 'b' WHERE id = 1; ALTER TABLE t DROP PRIMARY KEY, MODIFY v BIGINT UNSIGNED; UPDATE t SET v = 18446744073709551615 WHERE id = 2;
CREATE TABLE u LIKE t; INSERT INTO u SELECT * FROM t; RENAME TABLE t TO w, u TO t; DELETE FROM t WHERE id = 1; INSERT INTO w VALUES ('z',9,9); TRUNCATE TABLE t; INSERT INTO t VALUES ('q',1,1); CREATE TABLE x AS SELECT * FROM w; UPDATE x SET v = 0 WHERE id = 1; DROP TABLE w; CREATE VIEW seen AS SELECT id FROM x; INSERT INTO t (id) VALUES (5);";

/// Returns statements with letters that collations treat as equal, followed by spaces. Only one of these
/// values is in the table at a time.
fn collations(collations: &[&str]) -> String {
    let mut sql = String::new();
    for (number, collation) in collations.iter().enumerate() {
        let charset = collation.split('_').next().unwrap_or_default();
        sql.push_str(&format!(
            "CREATE TABLE t{number} (id INT NOT NULL PRIMARY KEY, s VARCHAR(20) CHARACTER SET {charset} COLLATE {collation}, UNIQUE (s));
             CREATE TABLE k{number} (s CHAR(20) CHARACTER SET {charset} COLLATE {collation} NOT NULL PRIMARY KEY, v INT);\n"
        ));
    }
    let letters = ["a", "A", "\u{e4}", "\u{c4}", "a ", "ae", "\u{e6}", "ss", "\u{df}", "SS", "a\u{308}", ""];
    for (id, letter) in letters.iter().enumerate() {
        for number in 0..collations.len() {
            sql.push_str(&format!(
                    "DELETE FROM t{number}; INSERT IGNORE INTO t{number} VALUES ({id}, '{letter}'); UPDATE IGNORE t{number} SET s = UPPER(s); \
                     DELETE FROM k{number} WHERE v <= {id} - 2; INSERT IGNORE INTO k{number} VALUES ('{letter}', {id});\n"
                ));
        }
    }
    sql
}

/// Returns all pitfalls of a flavour.
pub fn pitfalls(flavour: Flavour) -> Vec<Pitfall> {
    let common = [
        "utf8mb4_general_ci",
        "utf8mb4_unicode_ci",
        "utf8mb4_bin",
        "latin1_swedish_ci",
        "latin1_german2_ci",
        "utf16_general_ci",
    ];
    let own: &[&str] = match flavour {
        MySql => {
            &["utf8mb4_0900_ai_ci", "utf8mb4_0900_as_cs", "utf8mb4_de_pb_0900_ai_ci", "utf8mb4_0900_bin"]
        }
        MariaDb => &["utf8mb4_uca1400_ai_ci", "utf8mb4_nopad_bin", "utf8mb4_unicode_nopad_ci"],
    };
    let collations = collations(&[&common[..], own].concat());
    let wide_rows = wide_rows();
    let pitfall =
        |(name, on, sql): (&'static str, Option<Flavour>, &str)| Pitfall { name, on, sql: sql.to_owned() };
    let fixed = [
        ("keyless", None, KEYLESS),
        ("partitions", None, PARTITIONS),
        ("temporary_tables", None, TEMPORARY_TABLES),
        ("foreign_key_checks", None, FOREIGN_KEY_CHECKS),
        ("auto_increment", None, AUTO_INCREMENT),
        ("several_unique_keys", None, SEVERAL_UNIQUE_KEYS),
        ("swaps", None, SWAPS),
        ("savepoints", None, SAVEPOINTS),
        ("session_formats", None, SESSION_FORMATS),
        ("several_tables", None, SEVERAL_TABLES),
        ("triggers", None, TRIGGERS),
        ("cascades", None, CASCADES),
        ("cascading_replace", Some(MariaDb), CASCADING_REPLACE),
        ("unique_nulls", None, UNIQUE_NULLS),
        ("prefixes", None, PREFIXES),
        ("functional_indexes", Some(MySql), FUNCTIONAL_INDEXES),
        ("many_values", Some(MySql), MANY_VALUES),
        ("periods", Some(MariaDb), PERIODS),
        ("sequences", Some(MariaDb), SEQUENCES),
        ("replaced_tables", Some(MariaDb), REPLACED_TABLES),
        ("unique_blobs", Some(MariaDb), UNIQUE_BLOBS),
        ("memory_tables", None, MEMORY_TABLES),
        ("other_engines", Some(MariaDb), OTHER_ENGINES),
        ("generated_keys", None, GENERATED_KEYS),
        ("partly_changed", None, PARTLY_CHANGED),
        ("wide_rows", None, &wide_rows),
        ("xa", None, XA),
        ("row_history", Some(MariaDb), ROW_HISTORY),
        ("names", None, NAMES),
        ("changed_tables", None, CHANGED_TABLES),
        ("collations", None, &collations),
    ];
    fixed.into_iter().map(pitfall).filter(|pitfall| pitfall.is_on(flavour)).collect()
}
