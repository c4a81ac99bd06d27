//! Logins to real servers: every authentication plugin, and the errors.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require, shared};
use tailwater_session::{ConnectOptions, Connection, Endpoint, SessionError, SessionRetry, TlsMode};

use crate::scripted_server::without_tls;

on_each_server!(
    clients_log_in_over_tcp_and_socket,
    login_errors_state_the_cause,
    the_user_of_the_operating_system_logs_in_through_the_socket
);

async fn clients_log_in_over_tcp_and_socket(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    for options in [server.connect_options(), server.socket_options()] {
        let mut connection = Connection::connect(&options.database("mysql")).await?;
        let info = connection.server().clone();
        ensure!(info.flavour == kind.flavour() && !info.tls);
        ensure!(
            server
                .version()
                .starts_with(&format!("{}.{}.{}", info.version.0, info.version.1, info.version.2))
        );
        connection.ping().await?;
        let row = connection.query("SELECT DATABASE(), CONNECTION_ID(), @@character_set_client").await?;
        let row = row.first().context("the query returned no row")?;
        ensure!(
            row.get_str(0) == Some("mysql") && row.get_str(2) == Some("utf8mb4"),
            "the session has an unexpected account or database: {row:?}"
        );
        ensure!(row.get_u64(1) == Some(u64::from(info.connection_id)));
        connection.close().await;
    }
    Ok(())
}

async fn login_errors_state_the_cause(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    server.sql("CREATE USER IF NOT EXISTS locked@'%' IDENTIFIED BY 'right'").await?;
    let mut options =
        ConnectOptions { user: "locked".to_owned(), ..server.connect_options() }.password("wrong");
    let error =
        Connection::connect(&options).await.err().context("the client logged in with a wrong password")?;
    ensure!(
        error.code() == "TW-SES-0010" && error.retry() == SessionRetry::AfterChange,
        "the login failed with an unexpected error: {error}"
    );
    ensure!(
        error.server_error().map(|error| (error.number, error.sql_state.as_str())) == Some((1045, "28000"))
    );
    ensure!(
        error.to_string().contains("locked") && !error.to_string().contains("wrong"),
        "the login failed with an unexpected error: {error}"
    );

    options = options.password("right");
    Connection::connect(&options).await?;
    let error = Connection::connect(&options.clone().database("nowhere"))
        .await
        .err()
        .context("the client connected to a database that does not exist")?;
    ensure!(
        error.server_error().is_some_and(|error| [1044, 1049].contains(&error.number)),
        "the login failed with an unexpected error: {error}"
    );

    options.endpoint = Endpoint::tcp("no-such-host.invalid", 3306);
    let error = Connection::connect(&options)
        .await
        .err()
        .context("the client connected to a host that does not exist")?;
    ensure!(
        matches!(&error, SessionError::Resolve { host, .. } if host == "no-such-host.invalid"),
        "the login failed with an unexpected error: {error}"
    );
    options.endpoint = Endpoint::tcp("127.0.0.1", 1);
    let error = Connection::connect(&options)
        .await
        .err()
        .context("the client connected to a port where no server listens")?;
    ensure!(
        error.code() == "TW-SES-0001" && error.to_string().contains("127.0.0.1:1"),
        "the login failed with an unexpected error: {error}"
    );
    options.endpoint = Endpoint::unix(server.data().join("no.sock"));
    let error = Connection::connect(&options)
        .await
        .err()
        .context("the client connected to a socket that does not exist")?;
    ensure!(
        error.code() == "TW-SES-0001" && error.retry() == SessionRetry::Later,
        "the login failed with an unexpected error: {error}"
    );
    Ok(())
}

/// The plugins that ask the operating system for the user name of the process that connected to the socket.
async fn the_user_of_the_operating_system_logs_in_through_the_socket(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let name = Command::new("id").arg("-un").output()?.stdout;
    let name = String::from_utf8(name)?.trim().to_owned();
    let server = Server::start(ServerSpec::new(kind)).await?;
    server
        .sql(&match kind.flavour() {
            tailwater_wire::Flavour::MySql => format!(
                "INSTALL PLUGIN auth_socket SONAME 'auth_socket.so';
                 CREATE USER sys@localhost IDENTIFIED WITH auth_socket AS '{name}';
                 CREATE USER sys@'%' IDENTIFIED WITH auth_socket AS '{name}'"
            ),
            // Before MariaDB 11.6 the account must have the same name as the user of the operating system.
            tailwater_wire::Flavour::MariaDb => format!(
                "CREATE OR REPLACE USER `{name}`@localhost IDENTIFIED VIA unix_socket;
                 CREATE USER sys@'%' IDENTIFIED VIA unix_socket"
            ),
        })
        .await?;
    let user = match kind.flavour() {
        tailwater_wire::Flavour::MySql => "sys".to_owned(),
        tailwater_wire::Flavour::MariaDb => name,
    };
    let options = ConnectOptions { user: user.clone(), ..server.socket_options() }.password("ignored");
    let mut connection = Connection::connect(&options).await?;
    let account = connection.query("SELECT CURRENT_USER()").await?;
    ensure!(
        account.scalar() == Some(&format!("{user}@localhost")),
        "the client logged in to another account: {account:?}"
    );
    let options = ConnectOptions { user: "sys".to_owned(), ..server.connect_options() };
    let error = Connection::connect(&options)
        .await
        .err()
        .context("the login over TCP succeeded, but it must fail")?;
    ensure!(
        matches!(error, SessionError::Denied { .. }),
        "the login failed with an unexpected error: {error}"
    );
    Ok(())
}

async fn logs_in(options: &ConnectOptions) -> Result<()> {
    let mut connection = Connection::connect(options).await?;
    let user = connection.query("SELECT CURRENT_USER()").await?;
    ensure!(user.scalar().is_some_and(|user| user.starts_with(&options.user)));
    Ok(())
}

/// The login is fast if the server has the hash in its cache. Otherwise the client sends the password: under
/// TLS, through the socket, or encrypted with the server's RSA key.
#[tokio::test]
async fn clients_log_in_with_caching_sha2_password() -> Result<()> {
    if require(ServerKind::Mysql97).is_none() {
        return Ok(());
    }
    let server = Server::start(ServerSpec::new(ServerKind::Mysql97)).await?;
    let long = "a password longer than the nonce that masks it, with ü and 'quotes'";
    for (user, password) in [("sha", "geheim"), ("shalong", long), ("shaempty", "")] {
        let quoted = password.replace('\'', "''");
        server
            .sql(&format!(
                "CREATE USER {user}@'%' IDENTIFIED WITH caching_sha2_password BY '{quoted}';
                 CREATE USER {user}@localhost IDENTIFIED WITH caching_sha2_password BY '{quoted}'"
            ))
            .await?;
        let tcp = ConnectOptions { user: user.to_owned(), ..server.connect_options() }.password(password);
        let mut tls = tcp.clone();
        tls.tls.mode = TlsMode::Required;
        let socket = ConnectOptions { endpoint: server.socket_options().endpoint, ..tcp.clone() };
        let pinned =
            ConnectOptions { server_public_key: Some(server.data().join("public_key.pem")), ..tcp.clone() };
        for options in [&tcp, &tls, &socket, &pinned] {
            // This empties the server's cache of hashes. So the first login needs the password, and the
            // second one uses the cache.
            server.sql("FLUSH PRIVILEGES").await?;
            for round in ["full", "fast"] {
                logs_in(options)
                    .await
                    .with_context(|| format!("the {round} login of {user} failed with {options:?}"))?;
            }
            server.sql("FLUSH PRIVILEGES").await?;
            let wrong = options.clone().password("falsch");
            let error = Connection::connect(&wrong)
                .await
                .err()
                .context("the client logged in with a wrong password")?;
            ensure!(
                matches!(error, SessionError::Denied { .. }),
                "the login failed with an unexpected error: {error}"
            );
        }
    }

    let plain = ConnectOptions { user: "sha".to_owned(), ..server.connect_options() }.password("geheim");
    let missing = ConnectOptions { server_public_key: Some("/no/such/key.pem".into()), ..plain };
    server.sql("FLUSH PRIVILEGES").await?;
    let error = Connection::connect(&missing)
        .await
        .err()
        .context("a login without the server's key succeeded, but it must fail")?;
    ensure!(
        error.to_string().contains("/no/such/key.pem"),
        "the login failed with an unexpected error: {error}"
    );
    Ok(())
}

#[tokio::test]
async fn clients_log_in_with_sha256_password() -> Result<()> {
    if require(ServerKind::Mysql97).is_none() {
        return Ok(());
    }
    let server = shared(ServerKind::Mysql97).await?;
    server.sql("CREATE USER old256@'%' IDENTIFIED WITH sha256_password BY 'geheim'").await?;
    let mut options = without_tls(
        ConnectOptions { user: "old256".to_owned(), ..server.connect_options() }.password("geheim"),
    );
    logs_in(&options).await.context("the login with the server's key failed")?;
    options.tls.mode = TlsMode::Required;
    logs_in(&options).await.context("the login under TLS failed")?;
    Ok(())
}

async fn log_in_with_native_password(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let server = shared(kind).await?;
    for (user, password) in [("native", "geheim"), ("nativeempty", "")] {
        server
            .sql(&format!(
                "CREATE USER {user}@'%' IDENTIFIED VIA mysql_native_password USING PASSWORD('{password}')"
            ))
            .await?;
        let options = ConnectOptions { user: user.to_owned(), ..server.connect_options() }.password(password);
        logs_in(&options).await?;
        let error = Connection::connect(&options.password("falsch"))
            .await
            .err()
            .context("the client logged in with a wrong password")?;
        ensure!(
            matches!(error, SessionError::Denied { .. }),
            "the login failed with an unexpected error: {error}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn clients_log_in_with_native_password_mariadb_1011() -> Result<()> {
    log_in_with_native_password(ServerKind::Mariadb1011).await
}

#[tokio::test]
async fn clients_log_in_with_native_password_mariadb_118() -> Result<()> {
    log_in_with_native_password(ServerKind::Mariadb118).await
}

#[tokio::test]
async fn clients_log_in_with_ed25519() -> Result<()> {
    let kind = ServerKind::Mariadb1011;
    if require(kind).is_none() {
        return Ok(());
    }
    let server = Server::start(ServerSpec::new(kind)).await?;
    server.sql("INSTALL SONAME 'auth_ed25519'; CREATE FUNCTION ed25519_password RETURNS STRING SONAME 'auth_ed25519.so'").await?;
    for (user, password) in
        [("ed", "geheim"), ("edlong", "ein sehr langes Kennwort mit ü, länger als 32 Zeichen")]
    {
        server
            .sql(&format!("CREATE USER {user}@'%' IDENTIFIED VIA ed25519 USING PASSWORD('{password}')"))
            .await?;
        let options = ConnectOptions { user: user.to_owned(), ..server.connect_options() }.password(password);
        logs_in(&options).await?;
        let error = Connection::connect(&options.password("falsch"))
            .await
            .err()
            .context("the client logged in with a wrong password")?;
        ensure!(
            matches!(error, SessionError::Denied { .. }),
            "the login failed with an unexpected error: {error}"
        );
    }
    // The client computes the same public key from a password as the server does.
    for password in ["foo", "foobar", ""] {
        let hex = server
            .sql(&format!("SELECT HEX(FROM_BASE64(CONCAT(ed25519_password('{password}'), '=')))"))
            .await?;
        let key = tailwater_wire::protocol::authentication_plugin::ed25519_public_key(password.as_bytes());
        let ours: String = key.iter().map(|byte| format!("{byte:02X}")).collect();
        ensure!(hex == [ours], "the client computed the wrong public key from the password {password:?}");
    }
    Ok(())
}

/// This crate supports neither the default plugin of the server nor the plugin of the account.
#[tokio::test]
async fn the_error_names_the_unsupported_plugin_of_an_account() -> Result<()> {
    let kind = ServerKind::Mysql97;
    if require(kind).is_none() {
        return Ok(());
    }
    let server = Server::start(ServerSpec::new(kind)).await?;
    server.sql("INSTALL PLUGIN mysql_no_login SONAME 'mysql_no_login.so'; CREATE USER nobody@'%' IDENTIFIED WITH mysql_no_login").await?;
    let options = ConnectOptions { user: "nobody".to_owned(), ..server.connect_options() };
    let error = Connection::connect(&options)
        .await
        .err()
        .context("the client logged in with an unsupported plugin")?;
    ensure!(
        matches!(error, SessionError::Denied { .. } | SessionError::AuthPlugin { .. }),
        "the login failed with an unexpected error: {error}"
    );
    Ok(())
}

#[tokio::test]
async fn the_server_shows_the_connection_attributes() -> Result<()> {
    if require(ServerKind::Mysql97).is_none() {
        return Ok(());
    }
    let server = shared(ServerKind::Mysql97).await?;
    let mut options = server.connect_options();
    options.program_name = "the test".to_owned();
    let mut connection = Connection::connect(&options).await?;
    let result = connection
        .query(
            "SELECT attr_value FROM performance_schema.session_connect_attrs \
             WHERE processlist_id = CONNECTION_ID() AND attr_name IN ('program_name', '_client_name') ORDER BY 1",
        )
        .await?;
    let values: Vec<_> = result.rows.iter().filter_map(|row| row.get_str(0)).collect();
    ensure!(
        values == ["tailwater", "the test"],
        "the server has the wrong connection attributes: {values:?}"
    );
    Ok(())
}
