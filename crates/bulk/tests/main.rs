//! Integration tests of dump and load, on real servers.

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

mod accounts;
mod binary;
mod carried;
mod checked;
mod copying;
mod dumping;
mod error_codes;
mod foreign;
mod formats;
mod loaded;
mod loaded_limits;
mod planted;
mod schema;
mod support;
mod throttled;
mod types;
mod walking;
mod written;
