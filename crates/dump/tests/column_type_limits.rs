//! Scripts for the stock clients that create tables with every type and its extreme values.

use tailwater_sandbox::ServerKind;
use tailwater_wire::Flavour;

/// Types that both flavours have.
const COMMON: &str = r#"
CREATE TABLE numbers (id INT PRIMARY KEY, t TINYINT, tu TINYINT UNSIGNED, m MEDIUMINT, b BIGINT, bu BIGINT UNSIGNED,
    z INT ZEROFILL, f FLOAT, fd FLOAT(7,3), d DOUBLE, de DECIMAL(65,30), y YEAR, bo BOOL);
INSERT INTO numbers VALUES
    (0, -128, 255, -8388608, -9223372036854775808, 18446744073709551615, 42, 16777217, 1234.567, 0.1,
        -99999999999999999999999999999999999.999999999999999999999999999999, 1901, TRUE),
    (1, 127, 0, 8388607, 9223372036854775807, 0, 0, 3.402823466e38, -9999.999, 4.9e-324, 0.000000000000000000000000000001, 2155, 0),
    (2, 0, 1, 0, 0, 1, 4294967295, 1.175494351e-38, 0.001, 1.7976931348623157e308, 0, 0, 1),
    (3, NULL, NULL, NULL, NULL, NULL, NULL, 1e-45, NULL, 123456789012345680, NULL, NULL, NULL),
    (4, 1, 1, 1, 1, 1, 1, -0.1, 0.1, -0.1, 1, 2024, 0);
CREATE TABLE bits (b1 BIT(1), b9 BIT(9), b33 BIT(33), b64 BIT(64));
INSERT INTO bits VALUES (1, 9, 10, 0x4E5C4E), (0, 92, 13, 0x090A0D5C27), (1, 2573, 0x5C4E, 18446744073709551615), (NULL, NULL, NULL, NULL), (1, 257, 0, 0);
CREATE TABLE times (d DATE, t TIME(6), t0 TIME, dt DATETIME(6), dt3 DATETIME(3), ts TIMESTAMP(6) NULL, ts0 TIMESTAMP NULL);
INSERT INTO times VALUES
    ('1000-01-01', '838:59:59', '-838:59:59', '9999-12-31 23:59:59.987654', '1000-01-01', '1970-01-01 00:00:01.5', '2038-01-19 03:14:07'),
    ('0000-00-00', '-00:00:00.5', '0', '0000-00-00', '0000-00-00', 0, 0),
    ('2024-02-31', '-12:34:56.000001', '1', '2024-00-00', '2024-02-31 01:02:03.004', '2024-03-31 02:30:00', NULL),
    (NULL, NULL, NULL, NULL, NULL, NULL, NULL);
CREATE TABLE texts (l1 TEXT CHARACTER SET latin1, l2 VARCHAR(9) CHARACTER SET latin2 COLLATE latin2_bin,
    ko CHAR(9) CHARACTER SET koi8r, u3 TEXT CHARACTER SET utf8mb3, u4 TEXT CHARACTER SET utf8mb4,
    u16 VARCHAR(20) CHARACTER SET utf16, u16l VARCHAR(20) CHARACTER SET utf16le, u32 CHAR(9) CHARACTER SET utf32,
    uc TEXT CHARACTER SET ucs2, sj TEXT CHARACTER SET sjis, gb VARCHAR(20) CHARACTER SET gbk, bi TEXT CHARACTER SET big5,
    lo LONGTEXT);
INSERT INTO texts VALUES
    (x'80FFE45C', x'B1E6', x'F0D2C9', x'C3A4E282AC', x'F09F988027225C0A0D091A', _utf16 x'005C0027D83DDE00000A', _utf16le x'3DD800DE5C00',
        _utf32 x'0001F6000000005C', _ucs2 x'20AC005C4E0A', x'835C8360', x'D55CC4E3', x'A55C', REPEAT('long ', 100000)),
    ('', '', '', '', '', '', '', '', '', '', '', '', ''), ('N', '\\N', '\\\\N', '\n', '\t\\', '\0', 'a  ', ' ', '''', '"', '`', 'x\\', '\r\n'),
    (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
CREATE TABLE bytes (b BINARY(9), v VARBINARY(40), bl BLOB, lb LONGBLOB);
INSERT INTO bytes VALUES (x'2000', x'000102090A0D1A22275C606FFEFF', REPEAT(x'0A', 65535), REPEAT(x'5C4E00', 200000)), ('', '', '', ''), (x'5C4E', x'5C4E', x'5C4E0A', x'09'), (NULL, NULL, NULL, NULL);
CREATE TABLE members (e ENUM('ä','it''s','B','','tab	d') CHARACTER SET latin1, s SET('x','é','z') CHARACTER SET utf8mb4, e16 ENUM('a','ö') CHARACTER SET utf16);
INSERT INTO members VALUES (1, 7, 2), (2, 0, 1), (3, 2, 2), (4, 1, 1), (5, 5, NULL), (NULL, NULL, 1);
CREATE TABLE shapes (g GEOMETRY, p POINT, l LINESTRING NOT NULL);
INSERT INTO shapes VALUES
    (ST_GeomFromText('POLYGON((0 0,4 0,4 4,0 0))'), ST_GeomFromText('POINT(-1.5 20)', 4326), ST_GeomFromText('LINESTRING(0 0,1 1,2 5)')),
    (ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1),LINESTRING(0 0,1 1))'), NULL, ST_GeomFromText('LINESTRING(10 9,92 92)'));
CREATE TABLE documents (id INT PRIMARY KEY, j JSON);
INSERT INTO documents VALUES (1, '{"a":"quote \\" back \\\\ nul \\u0000 tab \\t é 😀", "n":[1,1.0,-0.0,1e308,18446744073709551615]}'), (2, 'null'), (3, NULL), (4, '"x"'), (5, '{}');
CREATE TABLE computed (a INT, b BIGINT AS (a * 2) VIRTUAL, c VARCHAR(40) AS (CONCAT(a, '!')) STORED, hidden INT INVISIBLE, d VARCHAR(9), KEY (b));
INSERT INTO computed (a, hidden, d) VALUES (1, 5, 'x'), (-2147483648, NULL, ''), (NULL, 6, NULL);
CREATE TABLE zero (id INT AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT = 100;
INSERT INTO zero VALUES (0, 1), (-5, 2), (7, 3);
CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE);
CREATE TABLE parent (id INT PRIMARY KEY);
INSERT INTO child VALUES (1, 10), (2, 20), (3, NULL);
INSERT INTO parent VALUES (10), (20);
CREATE TABLE keyless (a INT, b TEXT);
INSERT INTO keyless VALUES (1, 'same'), (1, 'same'), (1, 'same'), (NULL, NULL), (NULL, NULL);
CREATE TABLE nothing (id INT PRIMARY KEY);
CREATE TABLE parted (id INT, day DATE, PRIMARY KEY (id, day)) PARTITION BY RANGE (TO_DAYS(day))
    (PARTITION p0 VALUES LESS THAN (TO_DAYS('2024-01-01')), PARTITION p1 VALUES LESS THAN MAXVALUE);
INSERT INTO parted VALUES (1, '2023-05-05'), (2, '2024-05-05'), (3, '2025-05-05');
CREATE TABLE plain (id INT, t VARCHAR(20)) ENGINE=MyISAM;
INSERT INTO plain VALUES (1, 'a'), (1, 'a'), (2, 'b'), (3, 'c');
CREATE TABLE `od``d n%me.` (`co``l 1` INT, `日本` INT);
INSERT INTO `od``d n%me.` VALUES (1, 2);
"#;

/// Values that are tested only on MySQL, because MariaDB converts -0.0 to 0.
const MYSQL: &str = r#"
CREATE TABLE signs (id INT PRIMARY KEY, f FLOAT, d DOUBLE);
INSERT INTO signs VALUES (1, -0e0, -0e0), (2, 0, 0), (3, -1e-300, -1e-300);
CREATE TABLE vectors (id INT PRIMARY KEY, v VECTOR(3));
INSERT INTO vectors VALUES (1, STRING_TO_VECTOR('[1,2,3.5]')), (2, STRING_TO_VECTOR('[0,-0.0,1e10]')), (3, NULL);
"#;

const MARIADB: &str = r#"
CREATE TABLE addresses (u UUID, i6 INET6, i4 INET4, c VARCHAR(1000) COMPRESSED, b BLOB COMPRESSED);
INSERT INTO addresses VALUES ('123e4567-e89b-12d3-a456-426655440000', 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:2020', '32.32.32.32', REPEAT('long ', 200), x'00FF5C4E'),
    ('00000000-0000-0000-0000-000000000000', '::', '0.0.0.0', '', ''), (NULL, NULL, NULL, NULL, NULL);
"#;

/// Returns the script for a kind of server. It creates the database `every`.
pub fn script(kind: ServerKind) -> String {
    let own = match kind.flavour() {
        Flavour::MySql => MYSQL,
        Flavour::MariaDb => MARIADB,
    };
    let vectors = match kind {
        ServerKind::Mariadb118 => {
            "CREATE TABLE vectors (id INT PRIMARY KEY, v VECTOR(3) NOT NULL);
             INSERT INTO vectors VALUES (1, VEC_FROMTEXT('[1,2,3.5]')), (2, VEC_FROMTEXT('[0,-1.5,1e10]'));"
        }
        _ => "",
    };
    format!(
        "CREATE DATABASE every CHARACTER SET utf8mb4; USE every; SET NAMES utf8mb4; \
         SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES', time_zone = '+00:00', foreign_key_checks = 0;\n\
         {COMMON}{own}{vectors}"
    )
}
