//! Hostile or broken servers: they send contradictory data, stall, send endless data, or request files that
//! the client must not send.

use std::time::Duration;

use anyhow::{Result, ensure};
use tailwater_session::{ConnectOptions, Connection, SessionError, SessionRetry};
use tailwater_wire::WireError;
use tailwater_wire::protocol::authentication_plugin::{AuthPlugin, AuthSwitchRequest};
use tailwater_wire::protocol::{Capabilities, ErrPacket, ServerStatus};
use tokio::io::AsyncWriteExt;

use crate::scripted_server::{Peer, Random, connected, greeting, options, serve};

/// Returns the error of a login to a server that sends only `bytes`.
async fn login_against(bytes: &'static [u8]) -> Result<SessionError> {
    let (endpoint, task) = serve(async move |mut peer: Peer| {
        peer.raw(bytes).await?;
        peer.read_to_end().await
    })
    .await?;
    let Err(error) = Connection::connect(&options(endpoint)).await else {
        anyhow::bail!("the login succeeded, but it must fail")
    };
    task.await??;
    Ok(error)
}

#[tokio::test]
async fn invalid_greetings_are_refused() -> Result<()> {
    // The packet header announces 16 MiB. The client does not wait for these bytes.
    let error = login_against(b"\xff\xff\xff\0\x0a").await?;
    ensure!(
        matches!(error, SessionError::Protocol { source: WireError::TooLarge { .. }, .. }),
        "the client failed with an unexpected error: {error}"
    );
    let error = login_against(b"\x05\0\0\0\x0a9.7\0").await?;
    ensure!(
        matches!(error, SessionError::Protocol { source: WireError::Truncated { .. }, .. }),
        "the client failed with an unexpected error: {error}"
    );
    let error = login_against(b"\x02\0\0\0\x09\0").await?;
    ensure!(
        matches!(error, SessionError::Protocol { source: WireError::Unsupported { .. }, .. }),
        "the client failed with an unexpected error: {error}"
    );
    let error = login_against(b"\x01\0\0\x05\x0a").await?;
    ensure!(
        error.to_string().contains("packet number 5 was received, but 0 was expected"),
        "the client failed with an unexpected error: {error}"
    );
    let error = login_against(b"SSH-2.0-OpenSSH_9.2\r\n").await?;
    ensure!(
        matches!(error, SessionError::Protocol { .. }),
        "the client failed with an unexpected error: {error}"
    );
    Ok(())
}

#[tokio::test]
async fn a_login_to_a_server_with_too_many_connections_can_be_retried() -> Result<()> {
    let error = login_against(b"\x17\0\0\0\xff\x10\x04Too many connections").await?;
    ensure!(
        error.retry() == SessionRetry::Later && error.code() == "TW-SES-0010",
        "the client failed with an unexpected error: {error}"
    );
    ensure!(
        error.server_error().map(|error| error.number) == Some(1040),
        "the client failed with an unexpected error: {error}"
    );
    Ok(())
}

#[tokio::test]
async fn a_truncated_greeting_is_refused() -> Result<()> {
    let (endpoint, _) = serve(async |mut peer: Peer| peer.raw(b"\x20\0\0\0\x0a9.7").await).await?;
    let error = Connection::connect(&options(endpoint)).await.err();
    ensure!(
        matches!(error, Some(SessionError::Closed { .. } | SessionError::Io { .. })),
        "the client failed with an unexpected error: {error:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_missing_greeting_times_out() -> Result<()> {
    let (endpoint, task) = serve(async |mut peer: Peer| peer.read_to_end().await).await?;
    let options = ConnectOptions { connect_timeout: Duration::from_millis(100), ..options(endpoint) };
    let error = Connection::connect(&options).await.err();
    ensure!(
        matches!(error, Some(SessionError::ConnectTimeout { .. })),
        "the client failed with an unexpected error: {error:?}"
    );
    task.await??;
    Ok(())
}

/// Returns the error of a login if the server answers the client's login packet with `payload`. Also returns
/// all bytes that the client sent.
async fn authentication_against(payload: Vec<u8>) -> Result<(SessionError, Vec<u8>)> {
    let (endpoint, task) = serve(async move |mut peer: Peer| {
        peer.meet(&greeting()).await?;
        peer.send(&payload).await?;
        peer.read_to_end().await?;
        Ok(peer.received)
    })
    .await?;
    let Err(error) = Connection::connect(&options(endpoint)).await else {
        anyhow::bail!("the login succeeded, but it must fail")
    };
    Ok((error, task.await??))
}

fn switch_to(plugin: &str, auth_data: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    AuthSwitchRequest { plugin: plugin.to_owned(), auth_data: auth_data.to_vec() }.encode(&mut payload);
    payload
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[tokio::test]
async fn the_password_is_not_sent_unprotected() -> Result<()> {
    let (error, sent) = authentication_against(switch_to("mysql_clear_password", &[])).await?;
    ensure!(
        matches!(error, SessionError::ClearPassword { .. }),
        "the client failed with an unexpected error: {error}"
    );
    ensure!(!contains(&sent, b"geheim"));

    // The server requests the password, as if it had no cached hash. On a TCP connection without TLS, the
    // client requests the server's key instead of sending the password.
    let (endpoint, task) = serve(async move |mut peer: Peer| {
        peer.meet(&greeting()).await?;
        peer.send(&[1, 4]).await?;
        let request = peer.read().await?;
        peer.send(b"\x01no key at all").await?;
        peer.read_to_end().await?;
        Ok((request, peer.received))
    })
    .await?;
    let Err(error) = Connection::connect(&options(endpoint)).await else {
        anyhow::bail!("the login succeeded, but it must fail")
    };
    ensure!(error.to_string().contains("public key"), "the client failed with an unexpected error: {error}");
    let (request, sent) = task.await??;
    ensure!(request == [2] && !contains(&sent, b"geheim"));
    Ok(())
}

#[tokio::test]
async fn a_greeting_with_the_clear_password_plugin_gets_no_password() -> Result<()> {
    let (endpoint, task) = serve(async move |mut peer: Peer| {
        let clear = AuthPlugin::ClearPassword.name().to_owned();
        let answer =
            peer.meet(&tailwater_wire::protocol::HandshakeV10 { auth_plugin: clear, ..greeting() }).await?;
        peer.ok().await?;
        Ok((answer.auth_plugin, peer.received))
    })
    .await?;
    Connection::connect(&options(endpoint)).await?;
    let (plugin, sent) = task.await??;
    ensure!(plugin == "mysql_native_password" && !contains(&sent, b"geheim"));
    Ok(())
}

#[tokio::test]
async fn the_error_names_an_unsupported_plugin() -> Result<()> {
    let (error, _) = authentication_against(switch_to("auth_gssapi_client", b"x")).await?;
    ensure!(
        error.to_string().contains("auth_gssapi_client")
            && error.to_string().contains("caching_sha2_password")
    );
    let (error, _) = authentication_against(vec![0xfe]).await?;
    ensure!(
        error.to_string().contains("mysql_old_password"),
        "the client failed with an unexpected error: {error}"
    );
    let (error, _) = authentication_against(switch_to("client_ed25519", b"short")).await?;
    ensure!(
        matches!(error, SessionError::Protocol { .. }),
        "the client failed with an unexpected error: {error}"
    );
    let (error, _) = authentication_against(vec![0x77; 9]).await?;
    ensure!(
        matches!(error, SessionError::Protocol { .. }),
        "the client failed with an unexpected error: {error}"
    );
    Ok(())
}

#[tokio::test]
async fn an_endless_authentication_is_aborted() -> Result<()> {
    let (endpoint, task) = serve(async move |mut peer: Peer| {
        peer.meet(&greeting()).await?;
        for round in 0.. {
            let sent = peer.send(&switch_to("mysql_native_password", &[9; 20])).await;
            if sent.is_err() || peer.read().await.is_err() {
                return Ok(round);
            }
        }
        Ok(0)
    })
    .await?;
    let error = Connection::connect(&options(endpoint)).await.err();
    ensure!(
        matches!(error, Some(SessionError::Protocol { .. })),
        "the client failed with an unexpected error: {error:?}"
    );
    ensure!(task.await?? <= 20);
    Ok(())
}

#[tokio::test]
async fn bytes_that_arrive_before_tls_are_refused() -> Result<()> {
    let (endpoint, task) = serve(async move |mut peer: Peer| {
        let capabilities = greeting().capabilities | Capabilities::SSL;
        let with_tls = tailwater_wire::protocol::HandshakeV10 { capabilities, ..greeting() };
        let mut payload = Vec::new();
        with_tls.encode(&mut payload)?;
        // An OK packet in the same TCP segment as the greeting arrives before TLS protects the connection.
        // The client must not accept it.
        let mut bytes = Vec::new();
        tailwater_wire::protocol::packet::put_packets(&mut bytes, 0, &payload);
        bytes.extend_from_slice(b"\x07\0\0\x02\0\0\0\x02\0\0\0");
        peer.raw(&bytes).await?;
        peer.read_to_end().await
    })
    .await?;
    let error = Connection::connect(&options(endpoint)).await.err();
    ensure!(
        matches!(error, Some(SessionError::Protocol { .. } | SessionError::Tls { .. })),
        "the client failed with an unexpected error: {error:?}"
    );
    task.await??;
    Ok(())
}

/// Returns the error of `query` if the server's whole answer is `payload`. Also returns all bytes that the
/// client sent.
async fn query_against(payload: &'static [u8]) -> Result<(SessionError, Vec<u8>)> {
    let (mut connection, task) = connected(async move |mut peer: Peer| {
        peer.read().await?;
        peer.received.clear();
        peer.send(payload).await?;
        peer.read_to_end().await?;
        Ok(peer.received)
    })
    .await?;
    let Err(error) = connection.query("SELECT 1").await else {
        anyhow::bail!("the query succeeded, but it must fail")
    };
    let next = connection.ping().await.err();
    ensure!(
        matches!(next, Some(SessionError::OutOfStep)),
        "the next call on the unusable connection returned {next:?}"
    );
    drop(connection);
    Ok((error, task.await??))
}

#[tokio::test]
async fn a_server_request_for_a_local_file_is_refused() -> Result<()> {
    let (error, sent) = query_against(b"\xfb/etc/shadow").await?;
    ensure!(
        matches!(&error, SessionError::LocalInfile { file } if file == "/etc/shadow"),
        "the client failed with an unexpected error: {error}"
    );
    ensure!(sent.is_empty(), "the client sent bytes after the request for a file: {sent:?}");
    Ok(())
}

#[tokio::test]
async fn invalid_query_results_are_refused() -> Result<()> {
    let (error, _) = query_against(b"\xfe\0\0\0\0\0\x01\0\0").await?;
    ensure!(
        matches!(error, SessionError::Protocol { source: WireError::TooLarge { .. }, .. }),
        "the client failed with an unexpected error: {error}"
    );
    let (error, _) = query_against(b"").await?;
    ensure!(
        matches!(error, SessionError::Protocol { .. }),
        "the client failed with an unexpected error: {error}"
    );
    let (error, _) = query_against(b"\0\xff").await?;
    ensure!(
        matches!(error, SessionError::Protocol { .. }),
        "the client failed with an unexpected error: {error}"
    );
    Ok(())
}

#[tokio::test]
async fn a_row_with_wrong_value_lengths_is_refused() -> Result<()> {
    let (mut connection, task) = connected(async move |mut peer: Peer| {
        peer.read().await?;
        peer.columns(2).await?;
        peer.send(b"\x01a\xfe\xff\xff\xff\xff\xff\xff\xff\x7f").await?;
        peer.read_to_end().await
    })
    .await?;
    let error = connection.query("SELECT 1").await.err();
    ensure!(
        matches!(error, Some(SessionError::Protocol { .. })),
        "the client failed with an unexpected error: {error:?}"
    );
    drop(connection);
    task.await??;
    Ok(())
}

/// Sends `payload` repeatedly until the client disconnects. Returns the number of bytes sent.
async fn flood(peer: &mut Peer, payload: &[u8]) -> u64 {
    let mut bytes = 0;
    while bytes < 1 << 30 {
        if peer.send(payload).await.is_err() {
            break;
        }
        bytes += payload.len() as u64;
    }
    bytes
}

/// The maximum number of bytes that the socket buffers of the kernel can hold in addition to the bytes that
/// the client has read.
const KERNEL_BYTES_MAX: u64 = 64 << 20;

#[tokio::test]
async fn endless_answers_end_at_the_size_limit() -> Result<()> {
    for flood_of in ["rows", "columns", "one row"] {
        let (endpoint, task) = serve(async move |mut peer: Peer| {
            peer.log_in().await?;
            peer.read().await?;
            let mut row = Vec::new();
            tailwater_wire::byte_cursor::put_lenenc_bytes(&mut row, &vec![b'x'; 60_000]);
            Ok(match flood_of {
                "rows" => {
                    peer.columns(1).await?;
                    flood(&mut peer, &row).await
                }
                "columns" => {
                    peer.send(&[0xfc, 0xff, 0xff]).await?;
                    let column = tailwater_wire::protocol::ColumnDefinition {
                        name: "n".repeat(60_000),
                        ..Default::default()
                    };
                    let mut payload = Vec::new();
                    column.encode(&mut payload);
                    flood(&mut peer, &payload).await
                }
                _ => {
                    // A row that never ends: every packet has the maximum length, so another packet must
                    // follow.
                    peer.columns(1).await?;
                    let mut bytes = 0;
                    let mut packet = vec![0xff, 0xff, 0xff, peer.sequence];
                    packet.resize(4 + 0xff_ffff, b'x');
                    while bytes < 1 << 30 && peer.raw(&packet).await.is_ok() {
                        bytes += packet.len() as u64;
                        packet[3] = packet[3].wrapping_add(1);
                    }
                    bytes
                }
            })
        })
        .await?;
        let options = ConnectOptions { rows_bytes_max: 4 << 20, ..options(endpoint) };
        let mut connection = Connection::connect(&options).await?;
        let error = connection.query("SELECT 1").await.err();
        let limited = matches!(
            error,
            Some(
                SessionError::ResultTooLarge { .. }
                    | SessionError::Protocol { source: WireError::TooLarge { .. }, .. }
            )
        );
        ensure!(limited, "a query with an endless answer ({flood_of}) ended with {error:?}");
        drop(connection);
        let sent = task.await??;
        ensure!(
            sent < options.rows_bytes_max as u64 + KERNEL_BYTES_MAX,
            "endless answer ({flood_of}): the server could send {sent} bytes"
        );
    }
    Ok(())
}

#[tokio::test]
async fn an_endless_number_of_results_is_refused() -> Result<()> {
    let (mut connection, task) = connected(async move |mut peer: Peer| {
        peer.read().await?;
        let ok = b"\0\0\0\x08\0\0\0";
        while peer.send(ok).await.is_ok() {}
        Ok(())
    })
    .await?;
    let error = connection.execute("CALL p()").await.err();
    ensure!(
        matches!(error, Some(SessionError::Protocol { .. })),
        "the client failed with an unexpected error: {error:?}"
    );
    drop(connection);
    task.await??;
    Ok(())
}

#[tokio::test]
async fn a_missing_answer_times_out() -> Result<()> {
    let (endpoint, task) = serve(async |mut peer: Peer| {
        peer.log_in().await?;
        peer.read_to_end().await
    })
    .await?;
    let options = ConnectOptions { read_timeout: Some(Duration::from_millis(100)), ..options(endpoint) };
    let mut connection = Connection::connect(&options).await?;
    let error = connection.query("SELECT SLEEP(1e9)").await.err();
    ensure!(
        matches!(error, Some(SessionError::Timeout { .. })),
        "the client failed with an unexpected error: {error:?}"
    );
    let error = connection.ping().await.err();
    ensure!(
        matches!(error, Some(SessionError::OutOfStep)),
        "the client failed with an unexpected error: {error:?}"
    );
    drop(connection);
    task.await??;
    Ok(())
}

#[tokio::test]
async fn the_answer_to_a_cancelled_call_is_not_given_to_the_next_call() -> Result<()> {
    let (mut connection, task) = connected(async |mut peer: Peer| peer.read_to_end().await).await?;
    let waited = tokio::time::timeout(Duration::from_millis(50), connection.query("SELECT 1")).await;
    ensure!(waited.is_err());
    let error = connection.query("SELECT 2").await.err();
    ensure!(
        matches!(error, Some(SessionError::OutOfStep)),
        "the client failed with an unexpected error: {error:?}"
    );
    drop(connection);
    task.await??;
    Ok(())
}

#[tokio::test]
async fn an_error_after_some_rows_ends_the_statement_but_not_the_connection() -> Result<()> {
    let (mut connection, task) = connected(async |mut peer: Peer| {
        peer.read().await?;
        peer.columns(1).await?;
        peer.row(&[Some(b"1")]).await?;
        let mut payload = Vec::new();
        ErrPacket { number: 1317, sql_state: "70100".to_owned(), message: "interrupted".to_owned() }
            .encode(&mut payload);
        peer.send(&payload).await?;
        peer.read().await?;
        peer.ok().await
    })
    .await?;
    let error = connection.query("SELECT 1").await.err();
    ensure!(
        matches!(&error, Some(SessionError::Server { error, .. }) if error.number == 1317 && error.sql_state == "70100"),
        "the client failed with an unexpected error: {error:?}"
    );
    connection.ping().await?;
    task.await??;
    Ok(())
}

/// Random bytes of whole conversations are changed. The client may succeed or fail, but must neither panic
/// nor hang.
#[tokio::test]
async fn conversations_with_changed_bytes_cause_no_panic_or_hang() -> Result<()> {
    for seed in 0..300 {
        let (endpoint, task) = serve(async move |mut peer: Peer| {
            let mut random = Random(seed);
            let mut script = Vec::new();
            let mut payload = Vec::new();
            greeting().encode(&mut payload)?;
            let put = tailwater_wire::protocol::packet::put_packets;
            put(&mut script, 0, &payload);
            let greeting_bytes = script.len();
            put(&mut script, 2, b"\0\0\0\x02\0\0\0");
            let login_bytes = script.len();
            put(&mut script, 1, &[1]);
            let mut column = Vec::new();
            tailwater_wire::protocol::ColumnDefinition::default().encode(&mut column);
            put(&mut script, 2, &column);
            put(&mut script, 3, b"\x03abc");
            put(&mut script, 4, b"\xfe\0\0\x02\0\0\0");
            for _ in 0..=random.next() % 3 {
                let at = random.next() as usize % script.len();
                script[at] = random.next() as u8;
            }
            for part in
                [&script[..greeting_bytes], &script[greeting_bytes..login_bytes], &script[login_bytes..]]
            {
                if peer.raw(part).await.is_err() {
                    break;
                }
            }
            let _ = peer.stream.shutdown().await;
            let _ = peer.read_to_end().await;
            Ok(())
        })
        .await?;
        let talk = async {
            let mut connection = Connection::connect(&options(endpoint)).await?;
            connection.query("SELECT 'abc'").await
        };
        // After the greeting the server does not wait for requests. So both an end without an error and an
        // error are correct.
        match tokio::time::timeout(Duration::from_secs(60), talk).await {
            Ok(_) => {}
            Err(_) => anyhow::bail!("seed {seed}: the client neither finished nor failed within 60 s"),
        }
        task.await??;
    }
    Ok(())
}

#[tokio::test]
async fn further_results_of_a_statement_are_read_and_discarded() -> Result<()> {
    let (mut connection, task) = connected(async |mut peer: Peer| {
        peer.read().await?;
        peer.columns(1).await?;
        peer.row(&[Some(b"first")]).await?;
        peer.end_of_rows(ServerStatus::MORE_RESULTS_EXISTS).await?;
        peer.columns(2).await?;
        peer.row(&[Some(b"second"), None]).await?;
        peer.end_of_rows(ServerStatus::MORE_RESULTS_EXISTS).await?;
        peer.ok().await?;
        peer.read().await?;
        peer.ok().await
    })
    .await?;
    let result = connection.query("CALL p()").await?;
    ensure!(result.scalar() == Some("first") && result.rows.len() == 1 && result.columns.len() == 1);
    connection.ping().await?;
    task.await??;
    Ok(())
}
