//! Provides real servers to tests. If a server is missing, the test is skipped, with a line on standard
//! error.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::cache_folder::Cache;
use crate::error::SandboxError;
use crate::install::{Install, InstallProgress};
use crate::sandbox_server::{Server, ServerSpec};
use crate::server_kind::ServerKind;

/// Returns the server for a test. If the server is missing, prints a line on standard error and returns
/// `None`. The test must then end.
///
/// The first test that needs a server downloads it into the cache, unless `TAILWATER_FETCH=0` is set.
///
/// # Panics
/// If the server is unavailable while `CI` is set, unless `TAILWATER_ALLOW_MISSING_SERVERS=1` is set too: in
/// CI a skipped test is a failure.
pub fn require(kind: ServerKind) -> Option<Install> {
    // Each process tries once to get a server. On a machine without a network, further attempts would only
    // delay the tests.
    static FOUND: Mutex<Option<HashMap<ServerKind, Result<Install, String>>>> = Mutex::new(None);
    let found = {
        let mut found = FOUND.lock();
        found.get_or_insert_default().entry(kind).or_insert_with(|| have(kind)).clone()
    };
    let reason = match found {
        Ok(install) => return Some(install),
        Err(reason) => reason,
    };
    let thread = std::thread::current();
    let line = format!("SKIPPED {}: needs {kind}: {reason}", thread.name().unwrap_or("a test"));
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    assert!(!set("CI") || set("TAILWATER_ALLOW_MISSING_SERVERS"), "{line}");
    // The line is not printed with `eprintln!`, because the test harness hides that output if the test
    // passes.
    let _ = writeln!(std::io::stderr(), "{line}");
    None
}

fn have(kind: ServerKind) -> Result<Install, String> {
    let cache = Cache::locate().map_err(|error| error.to_string())?;
    let found = match std::env::var_os("TAILWATER_FETCH") {
        Some(value) if value == "0" => Install::find(kind, &cache),
        _ => Install::ensure(kind, &cache, &mut |progress| {
            if !matches!(progress, InstallProgress::Downloaded { .. } | InstallProgress::Unpacking { .. }) {
                // The message is not printed with `eprintln!`, because it must be visible while the test
                // waits. The test harness shows the output of `eprintln!` only after the test, and only if
                // the test fails.
                let _ = writeln!(std::io::stderr(), "{progress}");
            }
        }),
    };
    found.map_err(|error| error.to_string())
}

/// Returns a server with default options that the tests of one process share. Each test uses its own
/// database.
///
/// The server runs while a handle exists. It cannot be stopped, killed or paused through the shared handle. A
/// test that stops, kills or pauses a server must start its own server.
///
/// # Errors
/// The same as for [`Server::start`].
pub async fn shared(kind: ServerKind) -> Result<Arc<Server>, SandboxError> {
    static SHARED: tokio::sync::Mutex<Vec<(ServerKind, Weak<Server>)>> =
        tokio::sync::Mutex::const_new(Vec::new());
    let mut shared = SHARED.lock().await;
    let living = shared.iter().find(|(of, _)| *of == kind).and_then(|(_, server)| server.upgrade());
    if let Some(server) = living {
        return Ok(server);
    }
    let server = Arc::new(Server::start(ServerSpec::new(kind).name(format!("shared {kind}"))).await?);
    shared.retain(|(of, _)| *of != kind);
    shared.push((kind, Arc::downgrade(&server)));
    Ok(server)
}

/// Whether a test is skipped in CI because a similar test, `other`, runs there. If so, prints a line. `./dev
/// test` runs the test.
pub fn is_skipped_in_ci(test: &str, other: &str) -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some();
    let is_spared = is_set("CI") && !is_set("TAILWATER_LONG");
    if is_spared {
        eprintln!("SKIPPED {test} in CI, because {other} tests nearly the same");
    }
    is_spared
}

/// Defines one test for each kind of server from a function that takes the kind. In CI, MariaDB 11.8 is
/// skipped and 10.11 represents MariaDB.
#[macro_export]
macro_rules! on_each_server {
    ($($test:ident),* $(,)?) => {$(
        mod $test {
            use $crate::ServerKind;

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
                if $crate::server_or_skip::is_skipped_in_ci(concat!(stringify!($test), " on MariaDB 11.8"), "the same test on 10.11") {
                    return Ok(());
                }
                super::$test(ServerKind::Mariadb118).await
            }
        }
    )*};
}
