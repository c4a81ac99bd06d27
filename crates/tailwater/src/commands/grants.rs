//! `tailwater grants`: prints the GRANT statements that accounts need.

use tailwater_session::{AccountPurpose, grant_statement};
use tailwater_wire::Flavour;

use crate::arguments::Output;
use crate::exit_codes::Exit;

/// Prints the GRANT statements for one server family or for both.
pub fn grants(server: Option<Flavour>, account: &str, output: Output) -> Exit {
    let families = [("mariadb", Flavour::MariaDb), ("mysql", Flavour::MySql)];
    for (name, flavour) in families.iter().filter(|(_, flavour)| server.is_none_or(|only| only == *flavour)) {
        for (purpose, on, statement) in statements(*flavour, account) {
            match output {
                Output::Json => println!(
                    "{}",
                    serde_json::json!({ "server": name, "purpose": purpose, "on": on, "statement": statement })
                ),
                Output::Text => println!("-- {name}, {on}: {purpose}\n{statement};"),
            }
        }
    }
    Exit::Done
}

/// Returns for each purpose: its description, the server on which the account needs it, and the statement.
fn statements(flavour: Flavour, account: &str) -> Vec<(&'static str, &'static str, String)> {
    let mut all = vec![
        ("capture the binlog", "source", grant_statement(AccountPurpose::Capture, flavour, account)),
        (
            "read the replication status for `tailwater topology`",
            "every server",
            grant_statement(AccountPurpose::Probe, flavour, account),
        ),
        ("apply rows", "target", grant_statement(AccountPurpose::Apply, flavour, account)),
        ("store the progress of a channel", "target", format!("GRANT ALL ON tailwater.* TO {account}")),
        (
            "change the data: grant this for each database that the channel applies; narrower grants are possible",
            "target",
            format!("GRANT ALL ON SCHEMA_NAME.* TO {account}"),
        ),
        (
            "let native replication take over (gtid = log, preserve)",
            "target",
            grant_statement(AccountPurpose::Publish, flavour, account),
        ),
        ("dump the whole server", "source", grant(DUMP, flavour, account)),
        ("also dump the accounts (--users)", "source", format!("GRANT SELECT ON mysql.* TO {account}")),
        ("load a whole dump", "target", grant(LOAD, flavour, account)),
        ("load without writing to the binlog (--no-binlog)", "target", grant(NO_BINLOG, flavour, account)),
        ("set the GTIDs of the loaded data (--set-gtid)", "target", grant(SET_GTID, flavour, account)),
        (
            "compare the data (check, repair)",
            "source and target",
            format!("GRANT SELECT ON *.* TO {account}"),
        ),
        (
            "compare the data with marks (--wait mark)",
            "source",
            format!("GRANT SELECT, CREATE, INSERT, DELETE ON tailwater.* TO {account}"),
        ),
        ("repair the data", "target", grant(REPAIR, flavour, account)),
        ("repair the data while read_only is on", "target", grant(UNDER_READ_ONLY, flavour, account)),
        ("read the replica's lag (--throttle-replica)", "the replica", grant(LAG, flavour, account)),
        ("read pages ahead (prefetch)", "the replica", grant(PREFETCH, flavour, account)),
        (
            "read the binlog for the prefetch",
            "the replica's source",
            format!("GRANT REPLICATION SLAVE ON *.* TO {account}"),
        ),
        (
            "make the server a primary or a replica",
            "every [[server]]",
            grant_statement(AccountPurpose::Failover, flavour, account),
        ),
        (
            "rejoin the server after a failover; the primary needs SELECT, and with --copy the privileges of a dump",
            "every [[server]]",
            format!("GRANT ALL ON *.* TO {account}"),
        ),
    ];
    if flavour == Flavour::MySql {
        let statement = format!("GRANT INSERT ON mysql.plugin TO {account}");
        all.push((
            "load the semi-sync plugin if the server has not loaded it",
            "every [[server]]",
            statement,
        ));
    }
    all
}

/// Global privileges: the first text is for MySQL, the second for MariaDB.
type Privileges = (&'static str, &'static str);

const DUMP: Privileges = (
    "SELECT, SHOW VIEW, TRIGGER, EVENT, SHOW_ROUTINE, RELOAD, PROCESS, BACKUP_ADMIN, REPLICATION CLIENT",
    // MariaDB needs no SHOW_ROUTINE: accounts that may read mysql.proc see the bodies of routines.
    "SELECT, SHOW VIEW, TRIGGER, EVENT, RELOAD, PROCESS, BINLOG MONITOR, BINLOG ADMIN",
);

/// `SET_ANY_DEFINER` and similar privileges are for objects whose definer is another account or does not
/// exist. SUPER is needed to create functions and triggers on a server with a binlog, unless
/// `log_bin_trust_function_creators` is on.
const LOAD: Privileges = (
    "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, CREATE VIEW, SHOW VIEW, CREATE ROUTINE, \
     ALTER ROUTINE, EXECUTE, TRIGGER, EVENT, SYSTEM_USER, SET_ANY_DEFINER, ALLOW_NONEXISTENT_DEFINER, \
     SESSION_VARIABLES_ADMIN, SUPER",
    "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, CREATE VIEW, SHOW VIEW, CREATE ROUTINE, \
     ALTER ROUTINE, EXECUTE, TRIGGER, EVENT, SET USER, SUPER",
);

const NO_BINLOG: Privileges = ("SESSION_VARIABLES_ADMIN", "BINLOG ADMIN");

const SET_GTID: Privileges = ("SYSTEM_VARIABLES_ADMIN", "REPLICATION SLAVE ADMIN");

/// The TRIGGER privilege shows whether a table has triggers. Without it the server shows none.
const REPAIR: Privileges = (
    "SELECT, INSERT, UPDATE, DELETE, TRIGGER, SESSION_VARIABLES_ADMIN",
    "SELECT, INSERT, UPDATE, DELETE, TRIGGER, BINLOG ADMIN",
);

const UNDER_READ_ONLY: Privileges = ("CONNECTION_ADMIN", "READ_ONLY ADMIN");

/// SELECT may be granted for single databases; tables of others are not read ahead.
const PREFETCH: Privileges = ("SELECT, REPLICATION CLIENT", "SELECT, REPLICA MONITOR");

const LAG: Privileges = ("REPLICATION CLIENT", "REPLICA MONITOR");

fn grant((mysql, mariadb): Privileges, flavour: Flavour, account: &str) -> String {
    let privileges = match flavour {
        Flavour::MySql => mysql,
        Flavour::MariaDb => mariadb,
    };
    format!("GRANT {privileges} ON *.* TO {account}")
}
