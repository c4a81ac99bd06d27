use proptest::prelude::*;
use tailwater_wire::binlog_event::ChecksumAlgorithm;
use tailwater_wire::gtid::{MariadbBinlogState, MysqlGtidSet};

use super::*;

const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

/// Statements that real replicas, binlog readers and shells sent to real servers, as `KIND<TAB>statement`. A
/// test in tests/client_statements.rs checks that the list is complete.
const RECORDED: &str = include_str!("../../tests/data/statements.txt");

fn view(flavour: Flavour) -> ServerView {
    let gtids = match flavour {
        Flavour::MySql => ServedGtids::Mysql {
            executed: MysqlGtidSet::parse(&format!("{A}:1-9,00000000-0000-0000-0000-00000000000b:1"))
                .unwrap(),
            purged: MysqlGtidSet::parse(&format!("{A}:1-3")).unwrap(),
            mode: "ON".into(),
        },
        Flavour::MariaDb => {
            ServedGtids::Mariadb { state: MariadbBinlogState::parse("0-2-5,0-1-9,1-1-4").unwrap(), domain: 0 }
        }
    };
    ServerView {
        server_version: "9.7.0-tailwater".into(),
        server_id: 4711,
        server_uuid: A.into(),
        hostname: "host".into(),
        port: 3307,
        gtids,
        checksum: ChecksumAlgorithm::Crc32,
        files: vec![("b.000001".into(), 1000), ("b.000002".into(), 333)],
        replicas: vec![ReplicaView {
            server_id: 2,
            host: "r".into(),
            port: 3306,
            uuid: "u".into(),
            user: "repl".into(),
            semi_sync: true,
        }],
        processes: vec![ProcessView {
            id: 7,
            user: "repl".into(),
            host: "127.0.0.1:5".into(),
            command: "Query".into(),
            seconds: 3,
            state: "starting".into(),
        }],
        capture: ReceiverView {
            streaming: true,
            source_host: "db1".into(),
            source_port: 3306,
            source_user: "tw".into(),
            state: "Waiting for source to send event".into(),
            file: "b.000002".into(),
            position: 333,
            seconds_behind: Some(0),
            retry_seconds: 1,
            source_server_id: Some(1),
            ..ReceiverView::default()
        },
        source_variables: [("binlog_format".to_owned(), "ROW".to_owned())].into(),
        semi_sync: true,
        now_us: 1_709_208_000_000_000,
        uptime_seconds: 60,
        user: "repl@127.0.0.1".into(),
        connection_id: 7,
    }
}

/// The result in one line: `columns -> row | row`. NULL is printed as NULL.
fn shown(answer: &StatementResult) -> String {
    match answer {
        StatementResult::Ok => "ok".into(),
        StatementResult::Rows(ResultRows { columns, rows }) => {
            let columns: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
            let row = |row: &Vec<Option<String>>| {
                assert_eq!(row.len(), columns.len());
                row.iter().map(|cell| cell.as_deref().unwrap_or("NULL")).collect::<Vec<_>>().join(",")
            };
            format!("{} -> {}", columns.join(","), rows.iter().map(row).collect::<Vec<_>>().join(" | "))
        }
        StatementResult::Error(refusal) => format!("error {} {}", refusal.code, refusal.sqlstate),
        StatementResult::Kill { connection_id, query_only } => format!("kill {connection_id} {query_only}"),
        StatementResult::Purge(before) => format!("purge {before:?}"),
        StatementResult::GtidPosition { column, file, position } => format!("{column} of {file}:{position}"),
    }
}

/// Executes statements in one session of a server. Returns the result of the last one.
fn run_all(flavour: Flavour, statements: &[&str]) -> String {
    let (mut session, view) = (StatementSession::new(), view(flavour));
    let answers: Vec<_> = statements.iter().map(|sql| execute(&mut session, &view, sql.as_bytes())).collect();
    shown(answers.last().unwrap())
}

fn mysql(sql: &str, expected: &str) {
    assert_eq!(run_all(Flavour::MySql, &[sql]), expected, "wrong result for {sql}");
}

fn mariadb(sql: &str, expected: &str) {
    assert_eq!(run_all(Flavour::MariaDb, &[sql]), expected, "wrong result for {sql}");
}

#[test]
fn statements_of_replicas_and_readers_are_answered() {
    for line in RECORDED.lines() {
        let (kind, sql) = line.split_once('\t').unwrap();
        let flavour = if kind.starts_with("mysql") { Flavour::MySql } else { Flavour::MariaDb };
        let answered = run_all(flavour, &[sql]);
        assert!(!answered.starts_with("error"), "the statement {line} was refused: {answered}");
    }
}

#[test]
fn result_columns_are_named_as_in_the_statement() {
    mysql("SELECT @@GLOBAL.SERVER_ID", "@@GLOBAL.SERVER_ID -> 4711");
    mysql("SELECT @@GLOBAL.GTID_MODE", "@@GLOBAL.GTID_MODE -> ON");
    mysql("select @@version_comment limit 1", "@@version_comment -> Tailwater binlog server");
    mysql(
        "SELECT @@server_id, @@log_bin, @@server_uuid",
        &format!("@@server_id,@@log_bin,@@server_uuid -> 4711,1,{A}"),
    );
    mysql("SELECT @@gtid_purged AS p, @@session.autocommit x", &format!("p,x -> {A}:1-3,1"));
    mysql("SELECT @@global.rpl_semi_sync_source_enabled", "@@global.rpl_semi_sync_source_enabled -> 1");
    mysql("SELECT @@binlog_format", "@@binlog_format -> ROW");
    mysql("SELECT @nothing", "@nothing -> NULL");
    mysql("SELECT @@no_such_thing", "error 1193 HY000");
    mysql("SELECT @@gtid_domain_id", "error 1193 HY000");
    mariadb("SELECT @@GLOBAL.gtid_domain_id", "@@GLOBAL.gtid_domain_id -> 0");
    mariadb(
        "SELECT @@gtid_binlog_state, @@gtid_binlog_pos",
        "@@gtid_binlog_state,@@gtid_binlog_pos -> 0-2-5,0-1-9,1-1-4,0-1-9,1-1-4",
    );
    mariadb("SELECT @@server_uuid", "error 1193 HY000");
}

#[test]
fn client_variables_can_be_read_back() {
    let check = |statements: &[&str], expected| assert_eq!(run_all(Flavour::MySql, statements), expected);
    let sets = "SET @master_binlog_checksum = @@global.binlog_checksum, @source_binlog_checksum = @@global.binlog_checksum";
    check(&[sets, "SELECT @source_binlog_checksum"], "@source_binlog_checksum -> CRC32");
    check(&["SET @a := -5", "SELECT @A"], "@A -> -5");
    check(&["SET @`a b`='x' 'y', @'c'=NULL", "SELECT @`a b`, @c"], "@`a b`,@c -> xy,NULL");
    check(&["SET @a.b=1", "SELECT @a.b"], "@a.b -> 1");
    check(&["USE shop", "SELECT DATABASE()"], "DATABASE() -> shop");
    let (mut session, view) = (StatementSession::new(), view(Flavour::MariaDb));
    assert_eq!(execute(&mut session, &view, b"SET skip_replication=1"), StatementResult::Ok);
    assert!(session.skip_replication());
    assert_eq!(execute(&mut session, &view, b"SET @@session.skip_replication=OFF"), StatementResult::Ok);
    assert!(!session.skip_replication());
}

#[test]
fn settings_without_effect_are_accepted() {
    for sql in [
        "SET NAMES utf8mb4",
        "SET NAMES 'latin1' COLLATE latin1_swedish_ci",
        "SET CHARACTER SET DEFAULT",
        "SET autocommit=0, @@session.sql_mode='ANSI', time_zone = '+00:00'",
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY",
        "SET character_set_results = NULL",
        "/*!40101 SET NAMES utf8 */;",
        "SET @@SESSION.wait_timeout := 100",
        "BEGIN",
        "START TRANSACTION WITH CONSISTENT SNAPSHOT",
        "COMMIT WORK",
        "ROLLBACK -- not that there was anything",
    ] {
        mysql(sql, "ok");
    }
}

#[test]
fn functions_are_evaluated() {
    mysql("SELECT UNIX_TIMESTAMP()", "UNIX_TIMESTAMP() -> 1709208000");
    mysql("SELECT NOW() AS n, UTC_TIMESTAMP", "n,UTC_TIMESTAMP -> 2024-02-29 12:00:00,2024-02-29 12:00:00");
    mysql(
        "select USER(), CURRENT_USER, connection_id()",
        "USER(),CURRENT_USER,connection_id() -> repl@127.0.0.1,repl@127.0.0.1,7",
    );
    mysql("SELECT VERSION()", "VERSION() -> 9.7.0-tailwater");
    mysql("SELECT 1, 'two', (3), -4, NULL, TRUE", "1,two,(3),-4,NULL,TRUE -> 1,two,3,-4,NULL,1");
    mysql("SELECT 1 LIMIT 0", "1 -> ");
    mysql("SELECT 1 FROM DUAL", "1 -> 1");
    mysql(&format!("SELECT GTID_SUBSET('{A}:2-3', '{A}:1-9') s"), "s -> 1");
    mysql(&format!("SELECT GTID_SUBSET('{A}:2-10', @@gtid_executed) s"), "s -> 0");
    mysql(
        &format!("SELECT GTID_SUBTRACT(@@gtid_executed, '{A}:1-8') s"),
        &format!("s -> 00000000-0000-0000-0000-00000000000b:1,\n{A}:9"),
    );
    mysql("SELECT GTID_SUBTRACT(NULL, '') s", "s -> NULL");
    mysql("SELECT GTID_SUBSET('x', '')", "error 1772 HY000");
    mysql("SELECT SLEEP(1)", "error 1305 42000");
    mariadb("SELECT binlog_gtid_pos('b.000001',468)", "binlog_gtid_pos('b.000001',468) of b.000001:468");
}

#[test]
fn show_statements_list_the_files_replicas_and_connections() {
    mysql("SHOW BINARY LOGS", "Log_name,File_size,Encrypted -> b.000001,1000,No | b.000002,333,No");
    mariadb("SHOW MASTER LOGS", "Log_name,File_size -> b.000001,1000 | b.000002,333");
    let executed = format!("00000000-0000-0000-0000-00000000000b:1,\n{A}:1-9");
    let status =
        format!("File,Position,Binlog_Do_DB,Binlog_Ignore_DB,Executed_Gtid_Set -> b.000002,333,,,{executed}");
    mysql("SHOW BINARY LOG STATUS", &status);
    mysql("show master status", &status);
    mariadb("SHOW BINLOG STATUS", "File,Position,Binlog_Do_DB,Binlog_Ignore_DB -> b.000002,333,,");
    mysql("SHOW REPLICAS", "Server_Id,Host,Port,Source_Id,Replica_UUID -> 2,r,3306,4711,u");
    mysql("SHOW SLAVE HOSTS", "Server_id,Host,Port,Master_id,Slave_UUID -> 2,r,3306,4711,u");
    mariadb("SHOW REPLICA HOSTS", "Server_id,Host,Port,Master_id -> 2,r,3306,4711");
    mysql(
        "SHOW PROCESSLIST",
        "Id,User,Host,db,Command,Time,State,Info -> 7,repl,127.0.0.1:5,NULL,Query,3,starting,SHOW PROCESSLIST",
    );
    mariadb(
        "SHOW FULL PROCESSLIST",
        "Id,User,Host,db,Command,Time,State,Info,Progress -> 7,repl,127.0.0.1:5,NULL,Query,3,starting,SHOW FULL PROCESSLIST,0",
    );
    mysql("SHOW WARNINGS LIMIT 5", "Level,Code,Message -> ");
    mysql("SHOW DATABASES", "Database -> ");
    mysql(
        "SHOW GRANTS FOR CURRENT_USER()",
        "Grants for repl@127.0.0.1 -> GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `repl`@`127.0.0.1`",
    );
    mysql("SHOW TABLES", "error 1235 42000");
    mysql("SHOW FULL VARIABLES", "error 1064 42000");
}

#[test]
fn variables_and_counters_are_listed_by_name() {
    let found =
        |flavour, sql: &str| match execute(&mut StatementSession::new(), &view(flavour), sql.as_bytes()) {
            StatementResult::Rows(rows) => {
                rows.rows.into_iter().map(|row| row[0].clone().unwrap()).collect::<Vec<_>>().join(" ")
            }
            other => panic!("unexpected result of {sql}: {other:?}"),
        };
    let mysql = |sql: &str, expected: &str| {
        assert_eq!(found(Flavour::MySql, sql), expected, "wrong result for {sql}")
    };
    mysql("SHOW VARIABLES LIKE 'SERVER_ID'", "server_id");
    mysql("SHOW GLOBAL VARIABLES LIKE 'server\\_%'", "server_id server_uuid");
    mysql(
        "SHOW SESSION VARIABLES WHERE Variable_name IN ('server_id', 'BINLOG_format', 'x')",
        "binlog_format server_id",
    );
    mysql(
        "SHOW VARIABLES WHERE `Variable_name` = 'version' OR (variable_name LIKE 'log\\_b%' AND Value <> 'OFF')",
        "log_bin version",
    );
    mysql("SHOW VARIABLES WHERE Variable_name LIKE 'time%' AND NOT Value = 'x'", "time_zone");
    mysql(
        "SHOW VARIABLES WHERE Variable_name NOT LIKE '%' OR Variable_name NOT IN ('x') AND Value = '4711'",
        "server_id",
    );
    mysql(
        "SHOW GLOBAL STATUS WHERE Variable_name LIKE 'Rpl_semi_sync_%' OR Variable_name = 'Uptime'",
        "Rpl_semi_sync_source_clients Rpl_semi_sync_source_status Uptime",
    );
    assert_eq!(found(Flavour::MariaDb, "SHOW STATUS LIKE 'binlog_snapshot_file'"), "Binlog_snapshot_file");
    assert_eq!(
        found(Flavour::MariaDb, "SHOW VARIABLES LIKE 'rpl_semi_sync_master_enabled'"),
        "rpl_semi_sync_master_enabled"
    );
    mysql("SHOW VARIABLES LIKE 'nothing'", "");
}

#[test]
fn the_capture_is_shown_as_a_replica() {
    let status = |flavour, sql: &str, mut view: ServerView| {
        view.gtids = self::view(flavour).gtids;
        match execute(&mut StatementSession::new(), &view, sql.as_bytes()) {
            StatementResult::Rows(ResultRows { columns, rows }) => {
                let [row] = rows.try_into().unwrap();
                columns
                    .into_iter()
                    .map(|column| column.name)
                    .zip(row)
                    .collect::<std::collections::HashMap<_, _>>()
            }
            other => panic!("the statement returned no rows: {other:?}"),
        }
    };
    let mysql = status(Flavour::MySql, "SHOW REPLICA STATUS", view(Flavour::MySql));
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(mysql["Source_Host"], text("db1"));
    assert_eq!(mysql["Replica_IO_Running"], text("Yes"));
    assert_eq!(mysql["Seconds_Behind_Source"], text("0"));
    assert_eq!(mysql["Read_Source_Log_Pos"], text("333"));
    let mut view = view(Flavour::MySql);
    view.capture.streaming = false;
    view.capture.connecting = true;
    view.capture.last_error = Some(ReceiverError { number: 2003, message: "no".into(), time: 1_709_208_000 });
    let old = status(Flavour::MySql, "SHOW SLAVE STATUS FOR CHANNEL ''", view.clone());
    assert_eq!(old["Slave_IO_Running"], text("Connecting"));
    assert_eq!(old["Seconds_Behind_Master"], None);
    assert_eq!(old["Last_IO_Error_Timestamp"], text("240229 12:00:00"));
    assert!(old.contains_key("Get_master_public_key") && old.contains_key("Relay_Master_Log_File"));
    view.capture.connecting = false;
    let mariadb = status(Flavour::MariaDb, "SHOW ALL SLAVES STATUS", view);
    assert_eq!(mariadb["Slave_IO_Running"], text("No"));
    assert_eq!(mariadb["Last_IO_Errno"], text("2003"));
    assert_eq!(mariadb["Gtid_IO_Pos"], text("0-1-9,1-1-4"));
}

#[test]
fn kill_and_purge_are_returned_to_the_caller() {
    mysql("KILL 9", "kill 9 false");
    mysql("KILL CONNECTION 9;", "kill 9 false");
    mysql("KILL QUERY 10", "kill 10 true");
    mysql("KILL x", "error 1064 42000");
    mysql("PURGE BINARY LOGS TO 'b.000002'", "purge File(\"b.000002\")");
    mysql("purge master logs before '2024-02-29 12:00:00'", "purge Time(1709208000)");
    mysql("PURGE BINARY LOGS BEFORE 'yesterday'", "error 1210 HY000");
}

#[test]
fn changes_and_invalid_statements_are_refused() {
    for sql in [
        "INSERT INTO t VALUES (1)",
        "FLUSH LOGS",
        "CREATE TABLE t (a int)",
        "RESET BINARY LOGS AND GTIDS",
        "STOP REPLICA",
        "SET GLOBAL x = 1",
        "SET @@global.read_only = 0",
        "SET PERSIST x = 1",
        "SET GLOBAL TRANSACTION READ ONLY",
    ] {
        mysql(sql, "error 1290 HY000");
    }
    for sql in [
        "",
        ";",
        "SELECT",
        "SELECT 1 DIV",
        "SELECT 1; SELECT 2",
        "SELEC 1",
        "SELECT 'x",
        "SELECT (1",
        "SET x",
        "SHOW",
        "/* x",
    ] {
        let answered = run_all(Flavour::MySql, &[sql]);
        assert!(
            answered.starts_with("error 1064") || answered.starts_with("error 1235"),
            "unexpected result of {sql}: {answered}"
        );
    }
    mysql("SELECT * FROM t", "error 1064 42000");
    mysql("SELECT 1 FROM t", "error 1235 42000");
    mysql("SELECT column_name", "error 1054 42S22");
    match execute(&mut StatementSession::new(), &view(Flavour::MySql), b"DROP TABLE t") {
        StatementResult::Error(refusal) => {
            assert!(
                refusal.message.contains("Tailwater's binlog server"),
                "the client got an unexpected error: {refusal}"
            )
        }
        other => panic!("the statement was not refused: {other:?}"),
    }
}

#[test]
fn statement_length_depth_and_result_size_are_bounded() {
    let nested = format!("SELECT {}1{}", "(".repeat(10_000), ")".repeat(10_000));
    mysql(&nested, "error 1064 42000");
    let conditions = format!("SHOW STATUS WHERE a = 'b'{}", " OR a = 'b'".repeat(5000));
    mysql(&conditions, "error 1064 42000");
    mysql(&format!("SELECT '{}'", "x".repeat(statement_tokens::STATEMENT_BYTES_MAX)), "error 1064 42000");
    mysql(&format!("SELECT 1{}", ",1".repeat(10_000)), "error 1064 42000");
    mysql(&format!("SELECT 1{}", ",VERSION()".repeat(65)), "error 1041 HY000");
    let (mut session, view) = (StatementSession::new(), view(Flavour::MySql));
    let set = format!("SET @a = '{}'", "x".repeat(100_000));
    assert_eq!(execute(&mut session, &view, set.as_bytes()), StatementResult::Ok);
    let all = format!("SELECT {}1", "@a,".repeat(200));
    assert!(matches!(execute(&mut session, &view, all.as_bytes()), StatementResult::Rows(_)));
    session.set_variable("a", SqlValue::Text("x".repeat(1 << 20))).unwrap();
    match execute(&mut session, &view, all.as_bytes()) {
        StatementResult::Error(refusal) => assert_eq!(refusal.code, 1041),
        _ => panic!("the server did not refuse a result of 200 MiB"),
    }
}

#[test]
fn the_texts_of_a_condition_are_bounded() {
    let texts = |count: usize| format!("SHOW STATUS WHERE a IN ('b'{})", ",'b'".repeat(count - 1));
    mysql(&texts(256), "Variable_name,Value -> ");
    mysql(&texts(257), "error 1041 HY000");
    let likes = format!("a IN ('b'{}) OR (a LIKE 'c' AND NOT a LIKE 'd')", ",'b'".repeat(254));
    mysql(&format!("SHOW VARIABLES WHERE {likes}"), "error 1041 HY000");
}

#[test]
fn long_column_names_are_cut_off() {
    let (mut session, view) = (StatementSession::new(), view(Flavour::MySql));
    let text = "ä".repeat(300);
    // The name of each column in this comment is the whole comment.
    for sql in [format!("SELECT '{text}', 1 `{text}`"), format!("/*!SELECT 1,2 , '{text}' x*/")] {
        let StatementResult::Rows(rows) = execute(&mut session, &view, sql.as_bytes()) else {
            panic!("the statement {sql} returned no rows")
        };
        let lengths = rows.columns.iter().map(|column| column.name.chars().count());
        assert_eq!(
            lengths.filter(|length| *length == COLUMN_NAME_CHARACTERS_MAX).count(),
            2,
            "the result of {sql} has wrong column names"
        );
    }
}

/// Clients keep only the beginning of an error's text, and the note about this server is at its end. So a
/// quoted part of a statement must be short.
#[test]
fn quoted_text_leaves_room_for_the_note_in_an_error() {
    let long = "x".repeat(10_000);
    for sql in [
        format!("{long} 1"),
        format!("SELECT @@{long}"),
        format!("SELECT {long}"),
        format!("SELECT {long}()"),
        format!("SET GLOBAL {long} = 1"),
        format!("SELECT 1 = {}", "\u{1f980}".repeat(100)),
    ] {
        let answered = execute(&mut StatementSession::new(), &view(Flavour::MySql), sql.as_bytes());
        let StatementResult::Error(refusal) = answered else { panic!("{sql} was not refused") };
        assert!(
            refusal.message.ends_with(statement_tokens::WHAT_THIS_IS),
            "the client got an unexpected error: {refusal}"
        );
        // Tailwater's own sessions recognise the binlog server by this text.
        assert!(
            refusal.message.contains(tailwater_session::session_settings::SERVED_LOG),
            "the client got an unexpected error: {refusal}"
        );
    }
    mysql(&format!("PURGE BINARY LOGS BEFORE '{long}'"), "error 1210 HY000");
}

/// Supported statements, which a test changes at random.
fn sound() -> impl Strategy<Value = String> {
    let recorded: Vec<String> =
        RECORDED.lines().filter_map(|line| line.split_once('\t')).map(|(_, sql)| sql.to_owned()).collect();
    let more = [
        "SHOW VARIABLES WHERE `Variable_name` = 'version' OR (variable_name LIKE 'log%' AND Value <> 'OFF')",
        "SELECT GTID_SUBTRACT(@@gtid_executed, '3e11fa47-71ca-11e1-9e33-c80aa9429562:1-8:tag:9') s LIMIT 1",
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, @a := -(1), NAMES 'x' COLLATE y",
        "PURGE BINARY LOGS BEFORE '2024-02-29 12:00:00'",
        "/*!50002 SELECT */ \"a\" 'b' -- c\n, /* d */ 0x1f, 1e5, N'e', b'01', `f`.g # h",
        "SHOW REPLICA STATUS FOR CHANNEL ''",
    ];
    prop::sample::select(recorded.into_iter().chain(more.map(str::to_owned)).collect::<Vec<_>>())
}

fn answered(sql: &[u8]) {
    for flavour in [Flavour::MySql, Flavour::MariaDb] {
        // `shown` also checks that every row has as many values as there are columns.
        shown(&execute(&mut StatementSession::new(), &view(flavour), sql));
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(sql in proptest::collection::vec(any::<u8>(), 0..200)) {
        answered(&sql);
    }

    #[test]
    fn arbitrary_text_never_panics(sql in "(SELECT|SHOW|SET|KILL|PURGE)?[ -~äß\u{1f600}\n]{0,60}") {
        answered(sql.as_bytes());
    }

    #[test]
    fn changed_statements_never_panic(
        sql in sound(),
        at in any::<prop::sample::Index>(),
        cut in 0usize..12,
        insert in prop_oneof![
            Just(Vec::new()),
            proptest::collection::vec(any::<u8>(), 0..4),
            prop::sample::select(vec!["'", "\"", "`", "@", "@@", "(", ")", ",", ".", "/*!", "*/", "--", "\\", "\0", "DIV", "x'", "0x"])
                .prop_map(|text| text.as_bytes().to_vec()),
        ],
    ) {
        let mut sql = sql.into_bytes();
        let from = at.index(sql.len() + 1);
        let to = (from + cut).min(sql.len());
        sql.splice(from..to, insert);
        answered(&sql);
    }

    #[test]
    fn pieces_of_statements_never_panic(
        pieces in proptest::collection::vec(prop::sample::select(vec![
            "SELECT", "SET", "SHOW", "GLOBAL", "VARIABLES", "WHERE", "LIKE", "IN", "NOT", "AND", "OR", "(", ")", ",", "=", ":=",
            "@a", "@@global", ".", "server_id", "'text'", "\"text\"", "`name`", "7", "-", "NULL", "LIMIT", "AS", "FROM", "NAMES",
            "TRANSACTION", "BINARY", "LOGS", "STATUS", "/*! x */", ";", "@", "@@", "GTID_SUBSET", "<>", "<=>", "||", "+",
        ]), 0..25),
    ) {
        answered(pieces.join(" ").as_bytes());
    }
}
