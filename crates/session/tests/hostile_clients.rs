//! Hostile or broken clients. The server disconnects them, and until then they use few resources.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_session::server::ServerTls;
use tailwater_session::{Connection, SessionError};
use tailwater_wire::Flavour;
use tailwater_wire::protocol::handshake::SSL_REQUEST_BYTES;
use tailwater_wire::protocol::{Capabilities, ErrPacket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::scripted_server::Random;
use crate::test_server::{RawClient, Served, options, read_packet};

/// Reads until the connection is closed. A reset of the connection counts as closed.
async fn until_closed(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes).await {
        Ok(_) => Ok(bytes),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(bytes),
        Err(error) => Err(error.into()),
    }
}

/// A client that stops at any point of the login is disconnected after the login timeout.
#[tokio::test]
async fn a_client_that_stops_during_the_login_is_disconnected() -> Result<()> {
    let mut server = options(Flavour::MySql);
    server.tls = ServerTls::Generated;
    server.limits.login_timeout = Duration::from_millis(300);
    let served = Served::start(server).await?;
    for sent in [
        &b""[..],
        b"\x20",
        b"\x20\0\0\x01",
        b"\x20\0\0\x01\x00\x08\x00\x00",
        // A request for TLS without a handshake after it; then half of a TLS handshake.
        b"\x20\0\0\x01\0\x0a\0\0\0\0\0\x01\x2d\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        b"\x20\0\0\x01\0\x0a\0\0\0\0\0\x01\x2d\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x16\x03\x01\x02\0\x01",
    ] {
        let mut client = RawClient::connect(&served).await?;
        client.stream.write_all(sent).await?;
        until_closed(&mut client.stream).await?;
        let refusal = served.refusal().await?;
        ensure!(
            matches!(refusal, SessionError::LoginTimeout { .. }),
            "the server recorded an unexpected reason for the refused connection: {refusal}"
        );
        ensure!(refusal.code() == "TW-SES-0024");
    }
    // A client that stops in the middle of the authentication.
    let mut client = RawClient::connect(&served).await?;
    let mut answer = client.answer()?;
    answer.auth_plugin = "mysql_native_password".to_owned();
    let mut payload = Vec::new();
    answer.encode(&mut payload)?;
    client.send(1, &payload).await?;
    ensure!(client.read().await?.1[0] == 0xfe, "the server did not request another plugin");
    until_closed(&mut client.stream).await?;
    ensure!(matches!(served.refusal().await?, SessionError::LoginTimeout { .. }));
    served.until_connections(0).await
}

/// The server answers random bytes at each stage of the login with an error or closes the connection. It
/// never stops.
#[tokio::test]
async fn random_bytes_at_every_stage_of_the_login_are_rejected() -> Result<()> {
    const SEED: u64 = 20_260_711;
    let mut random = Random(SEED);
    let mut server = options(Flavour::MySql);
    server.limits.connections_per_second_max = u32::MAX;
    server.tls = ServerTls::Generated;
    let served = Served::start(server).await?;
    for round in 0..300 {
        let mut client = RawClient::connect(&served).await?;
        let mut answer = Vec::new();
        client.answer()?.encode(&mut answer)?;
        let length = random.next() as usize % 200;
        let garbage: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        match round % 5 {
            // Random bytes instead of a packet.
            0 => client.stream.write_all(&garbage).await?,
            // Random bytes as the answer to the greeting.
            1 => client.send(1, &garbage).await?,
            // A correct answer in which a few bytes are changed.
            2 => {
                for _ in 0..1 + random.next() % 4 {
                    let at = random.next() as usize % answer.len();
                    answer[at] = random.next() as u8;
                }
                client.send(1, &answer).await?;
            }
            // Random bytes instead of a TLS handshake.
            3 => {
                let mut request = answer[..SSL_REQUEST_BYTES].to_vec();
                request[1] |= (Capabilities::SSL.0 >> 8) as u8;
                client.send(1, &request).await?;
                client.stream.write_all(&garbage).await?;
            }
            // Random bytes after the server has requested another plugin.
            _ => {
                let mut answer = client.answer()?;
                answer.auth_plugin = "mysql_native_password".to_owned();
                let mut payload = Vec::new();
                answer.encode(&mut payload)?;
                client.send(1, &payload).await?;
                client.read().await?;
                client.send(3, &garbage).await?;
            }
        }
        client.stream.shutdown().await?;
        until_closed(&mut client.stream).await.with_context(|| {
            format!("the server did not close a login with random bytes (round {round}, seed {SEED})")
        })?;
    }
    // Some clients logged in, because a changed byte in the attributes or capabilities does no harm. The
    // server refused all other clients.
    served.until_connections(0).await?;
    ensure!(served.refusals().len() >= 200);
    Connection::connect(&served.connect_options()).await?;
    Ok(())
}

/// Protocol errors have the same error numbers as on the servers.
#[tokio::test]
async fn protocol_errors_have_the_error_numbers_of_the_servers() -> Result<()> {
    let served = Served::start(options(Flavour::MySql)).await?;
    for (sequence, payload) in [(1, &b"\0\x02"[..]), (7, b"\0\x02\0\0"), (1, &[0xff; 64])] {
        let mut client = RawClient::connect(&served).await?;
        client.send(sequence, payload).await?;
        let error = ErrPacket::parse(&client.read().await?.1)?;
        ensure!(
            (error.number, error.sql_state.as_str()) == (1043, "08S01"),
            "the server answered with an unexpected error: {error:?}"
        );
        ensure!(served.refusal().await?.code() == "TW-SES-0007");
    }
    // A packet longer than any answer: the server refuses it after reading the packet's header.
    let mut client = RawClient::connect(&served).await?;
    client.stream.write_all(b"\xff\xff\xff\x01").await?;
    ensure!(ErrPacket::parse(&client.read().await?.1)?.number == 1043);
    // A request for TLS, which the server did not offer.
    let mut client = RawClient::connect(&served).await?;
    client.send(1, b"\0\x0a\0\0\0\0\0\x01\x2d\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0").await?;
    ensure!(ErrPacket::parse(&client.read().await?.1)?.number == 1043);

    // Protocol errors of a client that is logged in.
    let mut client = RawClient::log_in(&served).await?;
    client.stream.write_all(b"\x02\0\0\x05\x0e\0").await?;
    let error = ErrPacket::parse(&client.read().await?.1)?;
    ensure!(
        (error.number, error.sql_state.as_str()) == (1156, "08S01"),
        "the server answered with an unexpected error: {error:?}"
    );
    let mut client = RawClient::log_in(&served).await?;
    client.stream.write_all(b"\xff\xff\xff\0").await?;
    client.stream.write_all(&vec![b'x'; 0xff_ffff]).await?;
    client.stream.write_all(b"\xff\xff\xff\x01").await?;
    let (_, payload) = read_packet(&mut client.stream).await?;
    ensure!(ErrPacket::parse(&payload)?.number == 1153);
    Ok(())
}

/// If a client disconnects in the middle of a command, its session ends. If a client sends nothing, its
/// session times out.
#[tokio::test]
async fn sessions_of_disconnected_and_silent_clients_end() -> Result<()> {
    let mut server = options(Flavour::MySql);
    server.limits.idle_timeout = Some(Duration::from_millis(300));
    let (results, mut received) = tokio::sync::mpsc::unbounded_channel();
    let served = Served::start_with(server, move |mut session| {
        let results = results.clone();
        async move {
            let _ = results.send(session.read_command().await);
        }
    })
    .await?;
    for bytes in [&b""[..], b"\x05\0", b"\x05\0\0\0\x03SE", b"\x01\0\0\0\x01"] {
        let mut client = RawClient::log_in(&served).await?;
        client.stream.write_all(bytes).await?;
        drop(client);
        ensure!(matches!(received.recv().await, Some(Ok(None))), "the session did not end after {bytes:?}");
    }
    let client = RawClient::log_in(&served).await?;
    ensure!(matches!(received.recv().await, Some(Err(SessionError::Timeout { .. }))));
    drop(client);
    served.until_connections(0).await
}

/// The memory that this process uses, in KiB.
fn resident_kib() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .context("/proc/self/status has no line VmRSS")?;
    Ok(line.split_whitespace().nth(1).context("the line VmRSS has no number")?.parse()?)
}

/// Hundreds of idle clients use little memory, and do not block other clients.
#[tokio::test]
async fn five_hundred_idle_connections_use_little_memory() -> Result<()> {
    const IDLE: usize = 500;
    let mut server = options(Flavour::MariaDb);
    server.limits.connections_per_second_max = 10_000;
    let served = Served::start(server).await?;
    let mut first = RawClient::log_in(&served).await?;
    let before = resident_kib()?;
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        idle.push(RawClient::log_in(&served).await?);
    }
    ensure!(served.acceptor.connections() == IDLE + 1 && served.acceptor.unauthenticated() == 0);
    let grown = resident_kib()?.saturating_sub(before);
    // The limit is high because other tests of this process allocate buffers at the same time. With a buffer
    // of a megabyte for each connection, the memory would still exceed the limit.
    ensure!(grown < 400 << 10, "{IDLE} idle connections use {grown} KiB of memory");
    first.send(0, b"\x0e").await?;
    ensure!(first.read().await?.1[0] == 0);
    idle.clear();
    drop(first);
    served.until_connections(0).await
}

/// Checks that the server sends an error packet instead of a greeting.
async fn turned_away(served: &Served) -> Result<()> {
    let mut stream = TcpStream::connect(served.address).await?;
    let (sequence, payload) = read_packet(&mut stream).await?;
    ensure!(sequence == 0 && payload == b"\xff\x10\x04Too many connections", "{}", payload.escape_ascii());
    ensure!(until_closed(&mut stream).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn clients_above_the_limits_are_refused() -> Result<()> {
    // The limit on all connections, including those of clients that are logged in.
    let mut server = options(Flavour::MySql);
    server.limits.connections_max = 2;
    let served = Served::start(server).await?;
    let clients = [RawClient::log_in(&served).await?, RawClient::log_in(&served).await?];
    turned_away(&served).await?;
    let refusal = served.refusal().await?;
    ensure!(
        refusal.code() == "TW-SES-0025" && refusal.to_string().contains("connections_max"),
        "the server recorded an unexpected reason for the refused connection: {refusal}"
    );
    let error = Connection::connect(&served.connect_options())
        .await
        .err()
        .context("a connection above the limit was accepted")?;
    ensure!(
        error.server_error().is_some_and(|error| error.number == 1040),
        "the connection was refused with an unexpected error: {error}"
    );
    drop(clients);
    served.until_connections(0).await?;
    Connection::connect(&served.connect_options()).await?.close().await;

    // The limits on connections whose clients are not logged in yet.
    for (all, of_address) in [(2, 100), (100, 2)] {
        let mut server = options(Flavour::MySql);
        server.limits.unauthenticated_max = all;
        server.limits.unauthenticated_per_address_max = of_address;
        let served = Served::start(server).await?;
        let logged_in = RawClient::log_in(&served).await?;
        let silent = [RawClient::connect(&served).await?, RawClient::connect(&served).await?];
        turned_away(&served).await?;
        ensure!(served.refusal().await?.to_string().contains("not logged in"));
        drop(silent);
        served.until_connections(1).await?;
        RawClient::log_in(&served).await?;
        drop(logged_in);
    }

    // With too many new connections in a second, the server accepts only the first of these connections.
    let mut server = options(Flavour::MySql);
    server.limits.connections_per_second_max = 1;
    let served = Served::start(server).await?;
    let mut away = 0;
    while away == 0 {
        let mut stream = TcpStream::connect(served.address).await?;
        away += usize::from(read_packet(&mut stream).await?.1[0] == 0xff);
    }
    ensure!(served.refusal().await?.to_string().contains("connections_per_second_max"));
    Ok(())
}

/// After failed logins from an address, the server delays its answers to further logins from there, whether
/// the password is right or wrong. Unit tests check the length of the delay.
#[tokio::test]
async fn failed_logins_delay_later_logins_from_the_address() -> Result<()> {
    const DELAY: Duration = Duration::from_millis(400);
    let mut server = options(Flavour::MySql);
    server.limits.failed_login_delay = DELAY;
    server.limits.failed_login_delay_max = DELAY;
    let served = Served::start(server).await?;
    for password in ["wrong", crate::test_server::PASSWORD] {
        let started = Instant::now();
        let connected = Connection::connect(&served.connect_options().password(password)).await;
        ensure!(connected.is_ok() == (password != "wrong"));
        ensure!(
            started.elapsed() >= DELAY,
            "the answer to the login came too early: after {:?}",
            started.elapsed()
        );
    }
    Ok(())
}
