//! `tailwater grants`: what accounts must be allowed to do.

use tailwater_session::{Purpose, grant_statement};
use tailwater_wire::Flavour;

use crate::cli::{Output, ServerFamily};
use crate::exit::Exit;

/// Prints the statements, for one family of servers or both.
pub fn grants(server: Option<ServerFamily>, account: &str, output: Output) -> Exit {
    let families = [
        (ServerFamily::Mariadb, "mariadb", Flavour::MariaDb),
        (ServerFamily::Mysql, "mysql", Flavour::MySql),
    ];
    for (_, name, flavour) in families.iter().filter(|(family, ..)| server.is_none_or(|only| only == *family))
    {
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

/// Purpose, on which server, statement.
fn statements(flavour: Flavour, account: &str) -> Vec<(&'static str, &'static str, String)> {
    // Its own replication, who is registered with it as a replica, and who reads its binlog without that.
    let looking = match flavour {
        Flavour::MySql => "REPLICATION CLIENT, REPLICATION SLAVE, PROCESS",
        Flavour::MariaDb => "BINLOG MONITOR, REPLICA MONITOR, REPLICATION MASTER ADMIN, PROCESS",
    };
    vec![
        ("capture its binlog", "source", grant_statement(Purpose::Capture, flavour, account)),
        (
            "look at it for `tailwater topology`",
            "every server",
            format!("GRANT {looking} ON *.* TO {account}"),
        ),
        ("apply rows", "target", grant_statement(Purpose::Apply, flavour, account)),
        ("keep progress", "target", format!("GRANT ALL ON tailwater.* TO {account}")),
        (
            "change the data; for each database that is applied, or less by hand",
            "target",
            format!("GRANT ALL ON SCHEMA_NAME.* TO {account}"),
        ),
        (
            "let native replication take over (gtid = log, preserve)",
            "target",
            grant_statement(Purpose::Publish, flavour, account),
        ),
    ]
}
