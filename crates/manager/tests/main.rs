//! Integration tests of the manager, on real servers.

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

mod analysis;
mod analysis_properties;
mod choice;
mod error_codes;
mod failover;
mod lease;
mod lossless;
mod lossless_model;
mod observing;
mod topology;
