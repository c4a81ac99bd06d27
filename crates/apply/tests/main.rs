//! Integration tests of the applier, on real servers.

/// Makes one test for each kind of server out of a function that takes the kind.
macro_rules! on_each_server {
    ($($test:ident),* $(,)?) => {$(
        mod $test {
            use tailwater_sandbox::ServerKind;

            #[tokio::test]
            async fn mysql_97() -> anyhow::Result<()> {
                super::$test(ServerKind::Mysql97).await
            }

            #[tokio::test]
            async fn mariadb_1011() -> anyhow::Result<()> {
                super::$test(ServerKind::Mariadb1011).await
            }

            #[tokio::test]
            async fn mariadb_118() -> anyhow::Result<()> {
                super::$test(ServerKind::Mariadb118).await
            }
        }
    )*};
}

mod across;
mod binlog_statements;
mod catalogue;
mod collations;
mod decoding;
mod error_codes;
mod faults;
mod following;
mod live;
mod logged;
mod operating;
mod random;
mod refusals;
mod rentals;
mod scheduled_events;
mod servers;
mod sql_statements;
mod support;
mod takeover;
mod trap_workloads;
mod traps;
mod type_families;
mod types;
