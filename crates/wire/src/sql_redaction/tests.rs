use proptest::prelude::*;

use super::*;

fn public(statement: &str) -> String {
    public_statement(statement.as_bytes(), 400)
}

fn private(statement: &str) -> String {
    private_statement(statement.as_bytes(), 400)
}

/// Statements of both flavours that contain the secret `geheim`.
const WITH_SECRETS: &[&str] = &[
    "CREATE USER 'u'@'%' IDENTIFIED BY 'geheim'",
    "create user if not exists u identified by \"geheim\" require ssl",
    "CREATE OR REPLACE USER u@h IDENTIFIED VIA mysql_native_password USING PASSWORD('geheim')",
    "CREATE USER u IDENTIFIED VIA ed25519 USING 'geheim' OR mysql_native_password USING 'geheim'",
    "CREATE USER u IDENTIFIED WITH caching_sha2_password AS '$A$005$geheim'",
    "CREATE USER u IDENTIFIED BY PASSWORD 'geheim'",
    "CREATE USER u IDENTIFIED BY geheim",
    "ALTER USER u IDENTIFIED BY 'new' REPLACE 'geheim' RETAIN CURRENT PASSWORD",
    "ALTER USER u 2 FACTOR FINISH REGISTRATION SET CHALLENGE_RESPONSE AS 'geheim'",
    "GRANT ALL ON *.* TO 'u'@'h' IDENTIFIED BY 'geheim' WITH GRANT OPTION",
    "SET PASSWORD = 'geheim'",
    "SET PASSWORD FOR 'u'@'h' = PASSWORD('geheim')",
    "SET PASSWORD FOR u = OLD_PASSWORD('geheim')",
    "SET /* 'x */ PASSWORD TO 'geheim' REPLACE 'geheim'",
    "SET @app_pw_pass := 'geheim'",
    "SET GLOBAL rpl_semi_sync_x_password = 'geheim'",
    "CHANGE MASTER TO MASTER_HOST='h', MASTER_PASSWORD='geheim', MASTER_USER='u'",
    "CHANGE REPLICATION SOURCE TO SOURCE_USER='u', SOURCE_PASSWORD = 'geheim' FOR CHANNEL 'c'",
    "START REPLICA USER='u' PASSWORD='geheim'",
    "START GROUP_REPLICATION USER='u', PASSWORD='geheim'",
    "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (USER 'u', PASSWORD 'geheim', HOST 'h')",
    "ALTER SERVER s OPTIONS (PASSWORD 'geheim')",
    "CREATE TABLE t (a INT) ENGINE=FEDERATED CONNECTION='mysql://u:geheim@h/d/t'",
    "CREATE TABLE t (a INT) ENGINE=CONNECT OPTION_LIST='Host=h,Password=geheim'",
    "CREATE TABLE t (a INT) ENGINE=SPIDER COMMENT='wrapper \"mysql\", password \"geheim\"'",
    "CREATE TABLE t (a INT) ENGINE=S3 s3_access_key='geheim' s3_secret_key='geheim'",
    "CREATE TABLE t (a INT) ENGINE=X aws_secret='geheim', auth_token='geheim'",
    "CLONE INSTANCE FROM 'u'@'h':3306 IDENTIFIED BY 'geheim'",
    "SELECT AES_ENCRYPT(CONCAT('a', 'b'), 'geheim'), 1",
    "UPDATE users SET `password` = 'geheim' WHERE id = 1",
    "UPDATE users SET user_pwd=N'geheim'",
    "PREPARE s FROM 'CREATE USER u IDENTIFIED BY \"geheim\"'",
    "CREATE USER u IDENTIFIED BY 'ge' 'geheim'",
    "CREATE USER u IDENTIFIED BY 'a\\'geheim'",
    "CREATE USER u IDENTIFIED BY 'geheim",
    "/*!50706 CREATE USER u IDENTIFIED BY 'geheim' */",
    "/*M!100103 SET PASSWORD = 'geheim' */",
    "CREATE PROCEDURE p() BEGIN SELECT 1; SET PASSWORD FOR x = 'geheim'; END",
    "INSERT INTO t VALUES (1); CREATE USER u IDENTIFIED BY 'geheim'",
    "-- geheim\nCREATE # geheim\n USER /* geheim */ u",
];

#[test]
fn no_form_contains_a_secret() {
    for statement in WITH_SECRETS {
        for shown in [public(statement), private(statement)] {
            assert!(
                !shown.contains("geheim") && !shown.is_empty(),
                "the secret in {statement}\nis shown in\n{shown}"
            );
        }
    }
}

#[test]
fn texts_without_secrets_are_not_changed() {
    assert_eq!(
        private("CREATE  USER 'u'@'%'\nIDENTIFIED BY 'x' COMMENT 'c'"),
        "CREATE USER 'u'@'%' IDENTIFIED BY <secret> COMMENT <secret>"
    );
    assert_eq!(public("CREATE USER 'u'@'%' IDENTIFIED BY 'x'"), "CREATE USER 'u'@'%' IDENTIFIED BY ?");
    assert_eq!(
        private("INSERT INTO `t` VALUES (1, 'a''b', x'41', -2.5e3)"),
        "INSERT INTO `t` VALUES (1, 'a''b', x'41', -2.5e3)"
    );
    assert_eq!(
        public("INSERT INTO `d`.`t` VALUES (1, 'a''b', x'41')"),
        "INSERT INTO `d`.`t` VALUES (?, ?, x?)"
    );
    assert_eq!(
        private("CHANGE MASTER TO MASTER_PASSWORD='x', MASTER_USER='u'"),
        "CHANGE MASTER TO MASTER_PASSWORD=<secret>, MASTER_USER='u'"
    );
    assert_eq!(private("ALTER TABLE t ADD c INT DEFAULT 7"), "ALTER TABLE t ADD c INT DEFAULT 7");
    assert_eq!(public(&format!("SELECT {}", "a,".repeat(400))).len(), 404);
    assert_eq!(private("SELECT 'a\u{202e}b\n'"), r"SELECT 'a\u{202e}b\n'");
}

#[test]
fn one_of_several_statements_is_returned() {
    let all = b"BEGIN;INSERT INTO t VALUES (';', \"a;b\");UPDATE `a;b` SET c = 1;COMMIT";
    assert_eq!(public_statement(nth_statement(all, 2), 200), "UPDATE `a;b` SET c = ?;COMMIT");
    assert_eq!(nth_statement(all, 3), b"COMMIT");
    assert_eq!(nth_statement(all, 4), b"");
    assert_eq!(nth_statement(b"DO 'a\\'';DO 2", 1), b"");
}

#[test]
fn error_texts_are_shown_without_the_values_of_rows() {
    for (text, expected) in [
        ("Duplicate entry 'geheim' for key 'PRIMARY'", "Duplicate entry '?' for key 'PRIMARY'"),
        (
            "Duplicate entry 'a' for key 'geheim' for key 't.PRIMARY'",
            "Duplicate entry '?' for key 't.PRIMARY'",
        ),
        (
            "Incorrect integer value: 'geheim' for column `d`.`t`.`a` at row 1",
            "Incorrect integer value: '?' for column `d`.`t`.`a` at row 1",
        ),
        ("Incorrect datetime value: 'gehe'im'", "Incorrect datetime value: '?'"),
        ("Truncated incorrect DOUBLE value: 'geheim'", "Truncated incorrect DOUBLE value: '?'"),
        ("Table has no partition for value geheim", "Table has no partition for value ?"),
        ("Data too long for column 'c' at row 1", "Data too long for column 'c' at row 1"),
        ("Table 'd.t' doesn't exist", "Table 'd.t' doesn't exist"),
        (
            "You have an error in your SQL syntax; check the manual near ''geheim' IDENTIFIED BY 'x'' at line 1",
            "You have an error in your SQL syntax; check the manual near '? IDENTIFIED BY ?' at line 1",
        ),
        (
            "Could not execute Write_rows event on table d.t; Duplicate entry 'geheim' for key 'PRIMARY', Error_code: 1062; \
             handler error HA_ERR_FOUND_DUPP_KEY; the event's master log b.000001, end_log_pos 7",
            "Could not execute Write_rows event on table d.t; Duplicate entry '?' for key 'PRIMARY', Error_code: 1062; \
             handler error HA_ERR_FOUND_DUPP_KEY; the event's master log b.000001, end_log_pos 7",
        ),
        (
            "Worker 1 failed executing transaction 'U:7' at source log b.000001, end_log_pos 7; Could not execute Write_rows \
             event on table d.t; Duplicate entry 'geheim' for key 't.PRIMARY', Error_code: 1062; handler error X; end_log_pos 7",
            "Worker 1 failed executing transaction 'U:7' at source log b.000001, end_log_pos 7; Could not execute Write_rows \
             event on table d.t; Duplicate entry '?' for key 't.PRIMARY', Error_code: 1062; handler error X; end_log_pos 7",
        ),
        (
            "Error 'Duplicate entry 'geheim' for key 'PRIMARY'' on query. Default database: 'd'. Query: 'insert into t values \
             ('geheim')'",
            "Error 'Duplicate entry '?' for key 'PRIMARY'' on query. Default database: 'd'. Query: 'insert into t values (?)'",
        ),
    ] {
        assert_eq!(public_text(text), expected);
    }
    // The text of a trigger, a truncated text, and a text in another language are unknown.
    for text in [
        "customer geheim is blocked",
        "Duplicate entry 'geheim",
        "Doppelter Eintrag 'geheim' für Schlüssel 'PRIMARY'",
        "Could not execute Write_rows event on table d.t; geheim, Error_code: 1644; end_log_pos 7",
        "Error 'geheim' on query. Default database: 'd'. Query: 'call p('geheim')'",
    ] {
        assert!(
            !public_text(text).contains("geheim"),
            "the public text shows the value: {}",
            public_text(text)
        );
        assert!(
            public_text(text).contains("not shown here") || text.starts_with("Error"),
            "unexpected public text: {}",
            public_text(text)
        );
    }
}

#[test]
fn private_forms_show_values_but_no_passwords() {
    let text = "Duplicate entry 'x' for key 'PRIMARY'";
    assert_eq!(private_text(text), text);
    for text in [
        "You have an error in your SQL syntax; check the manual near 'IDENTIFIED BY 'geheim'' at line 1",
        "You have an error in your SQL syntax; check the manual near ''geheim'' at line 1",
        "Error 'no' on query. Default database: 'd'. Query: 'CREATE USER u IDENTIFIED BY 'geheim''",
        "a client ran CREATE USER u IDENTIFIED BY 'geheim'",
    ] {
        assert!(
            !private_text(text).contains("geheim"),
            "the private text shows the secret: {}",
            private_text(text)
        );
    }
}

/// A marker whose letters are in an order that does not occur in the keywords of the statements below.
fn marker() -> impl Strategy<Value = String> {
    "qzx[0-9a-z]{3,12}qzx"
}

/// Text that may surround a marker in a string. A string with this text ends at the same place in every
/// `sql_mode`.
fn filler() -> impl Strategy<Value = String> {
    "([a-z ;#(),=@\\-/*`]|''|\"|\\\\n|é){0,8}"
}

fn literal() -> impl Strategy<Value = String> {
    (filler(), marker(), filler(), prop::bool::ANY).prop_map(|(front, marker, back, plain)| match plain {
        true => format!("'{front}{marker}{back}'"),
        false => format!("\"{}{marker}{}\"", front.replace('"', ""), back.replace('"', "")),
    })
}

proptest! {
    #[test]
    fn a_public_statement_holds_no_literal(literals in prop::collection::vec(literal(), 1..4), form in 0..4usize, cut in 0..200usize) {
        let list = literals.join(", ");
        let statement = match form {
            0 => format!("INSERT INTO t VALUES ({list})"),
            1 => format!("SELECT f({list}) /* a comment */ FROM t -- the end\n WHERE a = {list}"),
            2 => format!("CREATE USER u@h IDENTIFIED BY {list}"),
            _ => format!("CALL p(@a, {list}); UPDATE t SET a = {list}"),
        };
        prop_assert!(
            !public(&statement).contains("qzx"),
            "the public form of the statement {} shows a literal: {}",
            statement,
            public(&statement)
        );
        // Cut the statement at any byte, because Tailwater keeps only the start of a statement.
        let cut = cut.min(statement.len());
        let part = statement.as_bytes().get(..cut).unwrap_or_default();
        prop_assert!(!public_statement(part, 400).contains("qzx"), "{}", public_statement(part, 400));
    }

    #[test]
    fn a_private_statement_holds_no_password(password in literal(), other in literal(), form in 0..5usize) {
        let statement = match form {
            0 => format!("CREATE USER u@h IDENTIFIED BY {password} COMMENT 'c'"),
            1 => format!("SET PASSWORD FOR u@h = {password}"),
            2 => format!("CHANGE MASTER TO MASTER_USER='u', MASTER_PASSWORD={password}"),
            3 => format!("CREATE SERVER s OPTIONS (USER 'u', PASSWORD {password})"),
            _ => format!("ALTER USER u IDENTIFIED WITH p BY {password} REPLACE {other}"),
        };
        prop_assert!(
            !private(&statement).contains("qzx"),
            "the private form of the statement {} shows the password: {}",
            statement,
            private(&statement)
        );
    }

    #[test]
    fn arbitrary_bytes_are_redacted_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), bytes_max in 0..100usize) {
        for shown in [public_statement(&bytes, bytes_max), private_statement(&bytes, bytes_max)] {
            prop_assert!(shown.len() <= bytes_max + 4 && !shown.contains(|c: char| c.is_control()), "{shown:?}");
        }
        let text = String::from_utf8_lossy(&bytes);
        prop_assert!(!public_text(&text).contains(|c: char| c.is_control()));
        prop_assert!(!private_text(&text).contains(|c: char| c.is_control()));
    }

    #[test]
    fn a_known_text_never_holds_its_value(value in "[a-z '\"`;:,()]{0,10}qzx[a-z '\"`;:,()]{0,10}") {
        for template in error_text_templates::ALL.iter().filter(|template| template.contains("{!}")) {
            let text = template.replace("{!}", &value).replace("{}", "name");
            prop_assert!(!public_text(&text).contains("qzx"), "{}", public_text(&text));
        }
    }
}
