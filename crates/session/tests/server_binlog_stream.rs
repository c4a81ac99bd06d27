//! Events that this crate's server sends and this crate's client reads. Events of all sizes must arrive byte
//! for byte.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tailwater_session::server::{ClientSession, EventReceiver, EventSender, ServerTls, text_column};
use tailwater_session::{Connection, DumpRequest, DumpStart, DumpStream, SessionError, TlsMode};
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::EventType;
use tailwater_wire::protocol::command::ClientCommand;
use tailwater_wire::protocol::packet::PACKET_PAYLOAD_BYTES_MAX;
use tailwater_wire::protocol::semi_sync::Ack;
use tailwater_wire::protocol::{ErrPacket, OkPacket};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use crate::scripted_server::{event, rotate};
use crate::test_server::{RawClient, Served, options};

/// The sender flushes when this many bytes are buffered, as the documentation of `EventSender` requires.
const FLUSH_BYTES: usize = 256 << 10;

/// Answers the statements that a client sends before it requests a binlog stream.
async fn until_dump(session: &mut ClientSession) -> Result<()> {
    while let Some(payload) = session.read_command().await? {
        match ClientCommand::parse(&payload)? {
            ClientCommand::Query(sql) if sql.starts_with(b"SHOW") => {
                let row = [Some("rpl_semi_sync_source_enabled"), Some("ON")];
                session.write_rows(&[text_column("Variable_name"), text_column("Value")], [row]).await?;
            }
            ClientCommand::BinlogDump { .. } | ClientCommand::BinlogDumpGtid { .. } => return Ok(()),
            _ => session.write_ok(OkPacket::default()).await?,
        }
    }
    bail!("the client disconnected before it requested a binlog stream")
}

/// A server that passes each binlog stream to `send`. Also returns the results of `send`.
async fn serve<F, Send>(
    tls: bool,
    semi_sync: bool,
    send: Send,
) -> Result<(Served, mpsc::UnboundedReceiver<Result<()>>)>
where
    F: Future<Output = Result<()>> + std::marker::Send + 'static,
    Send: Fn(EventSender, EventReceiver) -> F + std::marker::Send + Sync + Clone + 'static,
{
    let mut options = options(Flavour::MySql);
    options.tls = if tls { ServerTls::Generated } else { ServerTls::Off };
    options.limits.write_timeout = Some(Duration::from_secs(20));
    let (result_sender, results) = mpsc::unbounded_channel();
    let served = Served::start_with(options, move |mut session| {
        let (send, result_sender) = (send.clone(), result_sender.clone());
        async move {
            let result = async {
                until_dump(&mut session).await?;
                let (sender, receiver) = session.into_event_stream(semi_sync);
                send(sender, receiver).await
            };
            let _ = result_sender.send(result.await);
        }
    })
    .await?;
    Ok((served, results))
}

async fn dump(served: &Served, semi_sync: bool, tls: bool) -> Result<DumpStream> {
    let mut options = served.connect_options();
    options.tls.mode = if tls { TlsMode::Required } else { TlsMode::Off };
    options.read_timeout = Some(Duration::from_secs(60));
    let connection = Connection::connect(&options).await?;
    ensure!(connection.server().tls == tls);
    let mut request =
        DumpRequest::new(17, DumpStart::FilePosition { file: "binlog.000001".to_owned(), position: 4 });
    request.semi_sync = semi_sync;
    request.heartbeat = Duration::ZERO;
    Ok(connection.dump(request).await?)
}

/// An event of `length` bytes, at least 19.
fn sized(length: usize) -> Vec<u8> {
    let pattern: Vec<u8> = (0..251).collect();
    let mut body = pattern.repeat(length / pattern.len() + 1);
    body.truncate(length - 19);
    event(EventType::ROWS_QUERY, 1, &body)
}

/// Returns event sizes around all packet and buffer boundaries, for packets with a prefix of 1 byte and of 3
/// bytes.
fn sizes() -> Vec<usize> {
    let max = PACKET_PAYLOAD_BYTES_MAX;
    vec![
        19,
        1000,
        FLUSH_BYTES - 1,
        (1 << 20) + 1,
        max - 4,
        max - 3,
        max - 2,
        max - 1,
        max,
        2 * max - 3,
        2 * max - 1,
        40 << 20,
    ]
}

/// Whether the event with this index requests an acknowledgement. After each such event comes a small event
/// that requests no acknowledgement.
fn wants_ack(index: usize) -> bool {
    !index.is_multiple_of(3)
}

async fn byte_for_byte(tls: bool, semi_sync: bool) -> Result<()> {
    let (served, mut results) = serve(tls, semi_sync, move |mut sender, mut receiver| async move {
        sender.push_event(&rotate(), false);
        for (index, size) in sizes().into_iter().enumerate() {
            for (event, wants_ack) in [(sized(size), wants_ack(index)), (sized(20), false)] {
                sender.begin_event(event.len() as u64, wants_ack);
                for chunk in event.chunks(100_003) {
                    sender.push(chunk);
                    if sender.buffered() > FLUSH_BYTES {
                        sender.flush().await?;
                    }
                }
                if wants_ack && semi_sync {
                    sender.flush().await?;
                    ensure!(sender.buffered() == 0);
                    let packet = receiver.next().await?.context("the client sent no acknowledgement")?;
                    let ack = Ack::parse(&packet)?;
                    ensure!(ack.position == index as u64 && ack.file == b"binlog.000001");
                }
            }
        }
        sender.finish_eof().await?;
        ensure!(receiver.next().await?.is_none());
        Ok(())
    })
    .await?;
    let mut stream = dump(&served, semi_sync, tls).await?;
    ensure!(stream.takes_acks() == semi_sync);
    let first = stream.next().await?.context("the stream has no rotate event")?;
    ensure!(first.data == rotate());
    for (index, size) in sizes().into_iter().enumerate() {
        for (expected, wants_ack) in [(sized(size), wants_ack(index)), (sized(20), false)] {
            let mut at = 0;
            loop {
                let chunk = stream.next().await?.context("the stream ended before the last event")?;
                ensure!(
                    expected[at..].starts_with(&chunk.data),
                    "the event of {size} bytes differs after {at} bytes"
                );
                ensure!(chunk.ack_requested == (wants_ack && semi_sync));
                at += chunk.data.len();
                if chunk.last {
                    break;
                }
            }
            ensure!(at == expected.len());
            if wants_ack {
                stream.ack("binlog.000001", index as u64).await?;
            }
        }
    }
    ensure!(stream.next().await?.is_none());
    drop(stream);
    results.recv().await.context("the server task ended without a result")?
}

#[tokio::test]
async fn events_arrive_byte_for_byte_without_tls() -> Result<()> {
    byte_for_byte(false, false).await
}

#[tokio::test]
async fn events_arrive_byte_for_byte_without_tls_and_with_semi_sync() -> Result<()> {
    byte_for_byte(false, true).await
}

#[tokio::test]
async fn events_arrive_byte_for_byte_over_tls() -> Result<()> {
    byte_for_byte(true, false).await
}

#[tokio::test]
async fn events_arrive_byte_for_byte_over_tls_with_semi_sync() -> Result<()> {
    byte_for_byte(true, true).await
}

/// The client receives the error with which the server ends the stream.
#[tokio::test]
async fn the_client_receives_the_error_that_ends_the_stream() -> Result<()> {
    for tls in [false, true] {
        let (served, mut results) = serve(tls, false, |mut sender, _receiver| async move {
            sender.push_event(&rotate(), false);
            Ok(sender.finish_error(1236, "HY000", "purged: 1-1-5").await?)
        })
        .await?;
        let mut stream = dump(&served, false, tls).await?;
        ensure!(stream.next().await?.is_some());
        let error = stream.next().await.err().context("the stream ended without an error")?;
        let refused =
            error.server_error().context("the stream ended without an error packet from the server")?;
        ensure!(
            refused.number == 1236 && refused.message.expose() == "purged: 1-1-5",
            "the stream ended with an unexpected error: {error}"
        );
        results.recv().await.context("the server task ended without a result")??;
    }
    Ok(())
}

/// The server disconnects a client that never reads, and then does not count it as a connection.
#[tokio::test]
async fn a_client_that_never_reads_is_disconnected() -> Result<()> {
    for tls in [false, true] {
        let (served, mut results) = serve(tls, true, |mut sender, receiver| async move {
            sender.set_write_timeout(Some(Duration::from_millis(300)));
            sender.push_event(&rotate(), false);
            let event = sized(100_000);
            let mut sent: u64 = 0;
            let error = loop {
                sender.push_event(&event, true);
                sent += event.len() as u64;
                ensure!(sender.buffered() < 2 * FLUSH_BYTES && sent < 1 << 30);
                if sender.buffered() > FLUSH_BYTES
                    && let Err(error) = sender.flush().await
                {
                    break error;
                }
            };
            ensure!(
                matches!(error, SessionError::Timeout { .. }),
                "the stream ended with an unexpected error: {error}"
            );
            drop(receiver);
            Ok(())
        })
        .await?;
        let stream = dump(&served, true, tls).await?;
        results.recv().await.context("the server task ended without a result")??;
        served.until_connections(0).await?;
        drop(stream);
    }
    Ok(())
}

/// Events arrive exactly once and in order, even if the sender's flushes are often cancelled halfway.
#[tokio::test]
async fn a_cancelled_flush_loses_and_repeats_no_event() -> Result<()> {
    const EVENTS: usize = 60;
    for tls in [false, true] {
        let (served, mut results) = serve(tls, false, |mut sender, _receiver| async move {
            sender.push_event(&rotate(), false);
            let event = sized(1_000_000);
            let mut cancelled = 0;
            for _ in 0..EVENTS {
                sender.push_event(&event, false);
                while sender.buffered() > 0 {
                    tokio::select! {
                        biased;
                        result = sender.flush() => result?,
                        () = tokio::time::sleep(Duration::from_micros(200)) => cancelled += 1,
                    }
                }
            }
            ensure!(cancelled > 0, "no flush was cancelled, so the test proves nothing");
            Ok(sender.finish_eof().await?)
        })
        .await?;
        let mut stream = dump(&served, false, tls).await?;
        stream.next().await?.context("the stream has no rotate event")?;
        let expected = sized(1_000_000);
        for _ in 0..EVENTS {
            tokio::time::sleep(Duration::from_millis(2)).await;
            let chunk = stream.next().await?.context("the stream ended before the last event")?;
            ensure!(chunk.data == expected && chunk.last);
        }
        ensure!(stream.next().await?.is_none());
        results.recv().await.context("the server task ended without a result")??;
    }
    Ok(())
}

/// If the sender announces a wrong event length, the client receives an error instead of an event.
#[tokio::test]
async fn an_event_with_a_wrong_announced_length_is_an_error() -> Result<()> {
    let (served, mut results) = serve(false, false, |mut sender, _receiver| async move {
        sender.push_event(&rotate(), false);
        sender.flush().await?;
        sender.begin_event(100, false);
        sender.push(&[0; 60]);
        ensure!(matches!(sender.finish_eof().await, Err(SessionError::OutOfStep)));
        sender.push(&[0; 60]);
        ensure!(matches!(sender.flush().await, Err(SessionError::OutOfStep)));
        Ok(())
    })
    .await?;
    let mut stream = dump(&served, false, false).await?;
    stream.next().await?.context("the stream has no rotate event")?;
    ensure!(stream.next().await.is_err());
    results.recv().await.context("the server task ended without a result")?
}

/// A packet that no replica would send ends the stream with an error. COM_QUIT and a closed connection end
/// the stream without an error.
#[tokio::test]
async fn unexpected_client_packets_end_the_stream() -> Result<()> {
    let (served, mut results) = serve(false, false, |mut sender, mut receiver| async move {
        sender.push_event(&rotate(), false);
        sender.flush().await?;
        // Cancelling the receiver repeatedly loses no bytes.
        let packet = loop {
            tokio::select! {
                biased;
                packet = receiver.next() => break packet,
                () = tokio::task::yield_now() => {}
            }
        };
        match packet {
            Ok(None) => sender.finish_error(1, "HY000", "gone").await?,
            Ok(Some(packet)) => sender.finish_error(2, "HY000", &packet.escape_ascii().to_string()).await?,
            Err(error) => sender.finish_error(3, "HY000", error.code()).await?,
        }
        Ok(())
    })
    .await?;
    for (bytes, number, message) in [
        (&b"\x01\0\0\0\x01"[..], 1, "gone"),
        (b"\x03\0\0\x09abc", 2, "abc"),
        (b"\0\0\0\0", 2, ""),
        (b"\x00\x04\0\0", 3, "TW-SES-0007"),
        (b"\xff\xff\xff\0", 3, "TW-SES-0007"),
    ] {
        let mut client = RawClient::log_in(&served).await?;
        client.send(0, b"\x12\x04\0\0\0\0\0\x11\0\0\0binlog.000001").await?;
        ensure!(client.read().await?.1[1..] == rotate());
        // Send the packet byte by byte, so that it arrives in pieces.
        for byte in bytes {
            client.stream.write_all(&[*byte]).await?;
        }
        let (_, payload) = client.read().await?;
        let error = ErrPacket::parse(&payload)?;
        ensure!(
            error.number == number && error.message == message,
            "the stream ended with an unexpected error: {error:?}"
        );
        results.recv().await.context("the server task ended without a result")??;
    }
    // The client closes the connection without COM_QUIT.
    let mut client = RawClient::log_in(&served).await?;
    client.send(0, b"\x12\x04\0\0\0\0\0\x11\0\0\0binlog.000001").await?;
    client.read().await?;
    drop(client);
    let _ = results.recv().await.context("the server task ended without a result")?;
    served.until_connections(0).await?;
    Ok(())
}
