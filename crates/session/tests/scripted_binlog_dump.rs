//! The binlog stream from a fake source: split events, semi-sync headers, contradictory lengths and silence.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tailwater_session::binlog_dump::CHUNK_BYTES_MAX;
use tailwater_session::{DumpRequest, DumpStart, DumpStream, EventChunk, SessionError};
use tailwater_wire::binlog_event::EventType;
use tailwater_wire::protocol::ErrPacket;
use tailwater_wire::protocol::packet::{PACKET_PAYLOAD_BYTES_MAX, put_packets};
use tokio::io::AsyncReadExt;

use crate::scripted_server::{Peer, Random, connected, event, rotate};

fn request() -> DumpRequest {
    let start = DumpStart::FilePosition { file: "binlog.000001".to_owned(), position: 4 };
    DumpRequest { heartbeat: Duration::from_secs(20), ..DumpRequest::new(7, start) }
}

/// A stream from a fake source. The source sends the first rotate event, then `bytes` in pieces of random
/// sizes, and then closes the connection.
async fn stream_of(bytes: Vec<u8>, semi_sync: bool, seed: u64) -> Result<DumpStream> {
    let (connection, _) = connected(async move |mut peer: Peer| {
        peer.until_dump().await?;
        let mut out = Vec::new();
        put_packets(&mut out, 1, &prefixed(semi_sync.then_some(false), &rotate()));
        out.extend_from_slice(&bytes);
        put_packets(&mut out, 9, b"\xfe\0\0\x02\0");
        let mut random = Random(seed);
        let mut rest = &out[..];
        while !rest.is_empty() {
            let most = if random.next().is_multiple_of(4) { 40 } else { 300_000 };
            let (piece, after) = rest.split_at((1 + random.next() as usize % most).min(rest.len()));
            peer.raw(piece).await?;
            rest = after;
        }
        peer.read_to_end().await
    })
    .await?;
    let mut stream = connection.dump(DumpRequest { semi_sync, ..request() }).await?;
    let first = stream.next().await?.context("the stream has no rotate event")?;
    ensure!(first.header.event_type == EventType::ROTATE && first.first && first.last);
    Ok(stream)
}

fn prefixed(ack: Option<bool>, event: &[u8]) -> Vec<u8> {
    match ack {
        None => [&[0], event].concat(),
        Some(ack) => [&[0, 0xef, u8::from(ack)], event].concat(),
    }
}

/// Joins the chunks of the next event, and checks the fields `first` and `last` of each chunk.
async fn next_event(stream: &mut DumpStream) -> Result<Option<(EventChunk, Vec<u8>)>> {
    let mut whole = Vec::new();
    let mut first: Option<EventChunk> = None;
    loop {
        let Some(chunk) = stream.next().await? else {
            ensure!(first.is_none(), "the stream ended inside an event");
            return Ok(None);
        };
        ensure!(chunk.first == first.is_none());
        ensure!(
            !chunk.data.is_empty() && chunk.data.len() <= CHUNK_BYTES_MAX,
            "the stream returned a chunk of {} bytes",
            chunk.data.len()
        );
        whole.extend_from_slice(&chunk.data);
        let last = chunk.last;
        let head = first.get_or_insert(chunk.clone());
        ensure!(chunk.header == head.header && chunk.ack_requested == head.ack_requested);
        if last {
            ensure!(whole.len() == head.header.event_length as usize);
            return Ok(Some((head.clone(), whole)));
        }
    }
}

#[tokio::test]
async fn events_of_every_length_arrive_complete() -> Result<()> {
    let full = PACKET_PAYLOAD_BYTES_MAX;
    for semi_sync in [false, true] {
        // An event of this length fills a packet exactly, so an empty packet follows it.
        let fills = full - if semi_sync { 3 } else { 1 };
        let chunk = CHUNK_BYTES_MAX;
        let lengths = [
            19,
            20,
            5_000,
            chunk - 1,
            chunk,
            chunk + 1,
            fills - 1,
            fills,
            fills + 1,
            fills + full,
            fills + full + 1,
            19,
        ];
        let mut expected = Vec::new();
        let mut bytes = Vec::new();
        for (index, length) in lengths.iter().enumerate() {
            // The event starts with its timestamp, and this timestamp has the same bytes as a semi-sync
            // header. A reader that looks for these bytes would find a header where there is none.
            let mut body: Vec<u8> = (0..251).map(|at| (at * 31 + index) as u8).collect();
            body = body.repeat(length / 251 + 1);
            body.truncate(length - 19);
            let event = event(EventType::WRITE_ROWS_V2, 0x01ef, &body);
            put_packets(&mut bytes, index as u8, &prefixed(semi_sync.then_some(index % 2 == 0), &event));
            expected.push(event);
        }
        let mut stream = stream_of(bytes, semi_sync, 11).await?;
        ensure!(stream.semi_sync() == semi_sync && stream.takes_acks() == semi_sync);
        for (index, event) in expected.iter().enumerate() {
            let (head, whole) = next_event(&mut stream).await?.context("the stream ended early")?;
            ensure!(
                whole == *event,
                "event {index} of {} bytes differs from the sent event, with semi-sync {semi_sync}",
                event.len()
            );
            ensure!(head.ack_requested == (semi_sync && index % 2 == 0));
        }
        ensure!(next_event(&mut stream).await?.is_none() && next_event(&mut stream).await?.is_none());
        ensure!(!stream.has_buffered());
    }
    Ok(())
}

#[tokio::test]
async fn buffered_events_are_returned_without_waiting() -> Result<()> {
    for seed in 0..20 {
        let mut random = Random(seed);
        let mut bytes = Vec::new();
        let mut count = 0;
        while bytes.len() < 3 << 20 {
            let most = if random.next().is_multiple_of(10) { 2_000_000 } else { 500 };
            let body = vec![seed as u8; random.next() as usize % most];
            put_packets(&mut bytes, random.next() as u8, &prefixed(None, &event(EventType::QUERY, 5, &body)));
            count += 1;
        }
        let mut stream = stream_of(bytes, false, seed).await?;
        let mut events = 0;
        loop {
            let promised = stream.has_buffered() || stream.pull().await?;
            let next = std::pin::pin!(stream.next());
            let chunk = if promised {
                tokio::select! {
                    biased;
                    chunk = next => chunk?,
                    () = std::future::ready(()) => anyhow::bail!("seed {seed}: the stream waited although a chunk was buffered"),
                }
            } else {
                next.await?
            };
            let Some(chunk) = chunk else { break };
            events += usize::from(chunk.last);
        }
        ensure!(events == count, "seed {seed}: the client received {events} of {count} events");
    }
    Ok(())
}

#[tokio::test]
async fn acknowledgements_have_packet_number_0_and_need_semi_sync() -> Result<()> {
    for semi_sync in [true, false] {
        let (connection, task) = connected(async move |mut peer: Peer| {
            let (statements, _) = peer.until_dump().await?;
            // After each acknowledgement that MariaDB waits for, its packet numbers start again from 1.
            peer.sequence = 1;
            peer.send(&prefixed(semi_sync.then_some(false), &rotate())).await?;
            for _ in 0..2 {
                peer.sequence = 1;
                peer.send(&prefixed(semi_sync.then_some(true), &event(EventType::XID, 5, &[1; 8]))).await?;
                if semi_sync {
                    let ack = peer.read().await?;
                    ensure!(
                        peer.sequence == 1,
                        "the acknowledgement has the wrong packet number: {}",
                        peer.sequence - 1
                    );
                    ensure!(ack == b"\xef\xe8\x03\0\0\0\0\0\0binlog.000001", "{ack:?}");
                }
            }
            let mut rest = Vec::new();
            peer.stream.read_to_end(&mut rest).await?;
            ensure!(rest.is_empty());
            Ok(statements)
        })
        .await?;
        let mut stream = connection.dump(DumpRequest { semi_sync: true, ..request() }).await?;
        ensure!(stream.semi_sync() == semi_sync);
        stream.next().await?;
        for _ in 0..2 {
            let chunk = stream.next().await?.context("the stream ended before the event")?;
            ensure!(chunk.ack_requested == semi_sync);
            stream.ack("binlog.000001", 1000).await?;
        }
        drop(stream);
        let statements = task.await??;
        ensure!(
            statements.iter().any(|sql| {
                sql.contains("@rpl_semi_sync_replica = 1") && sql.contains("@rpl_semi_sync_slave = 1")
            }),
            "the client sent the wrong statements before the dump: {statements:?}"
        );
    }
    Ok(())
}

/// Returns the error with which a stream ends after the source sent `packets`. Each packet has a number and a
/// payload.
async fn ends_with(packets: Vec<(u8, Vec<u8>)>) -> Result<SessionError> {
    let mut bytes = Vec::new();
    for (sequence, payload) in packets {
        put_packets(&mut bytes, sequence, &payload);
    }
    let mut stream = stream_of(bytes, false, 3).await?;
    loop {
        match stream.next().await {
            Ok(Some(_)) => {}
            Ok(None) => anyhow::bail!("the stream ended without an error"),
            Err(error) => return Ok(error),
        }
    }
}

#[tokio::test]
async fn contradictory_event_lengths_are_refused() -> Result<()> {
    let whole = event(EventType::QUERY, 5, &[7; 100]);
    let with_length = |length: u32| {
        let mut event = prefixed(None, &whole);
        event[10..14].copy_from_slice(&length.to_le_bytes());
        event
    };
    for (packet, about) in [
        (with_length(118), "119 bytes came for an event of 118"),
        (with_length(120), "119 bytes came for an event of 120"),
        (with_length(u32::MAX), "119 bytes came for an event of 4294967295"),
        (with_length(0), "event length 0"),
        (with_length(18), "event length 18"),
        (prefixed(None, &whole[..18]), "a packet of 19 bytes is too short"),
        (vec![0], "a packet of 1 bytes is too short"),
        (vec![], "a packet is empty"),
        (vec![0xef, 1], "begins with 0xef"),
        (vec![0xfe; ERROR_TOO_LONG], "begins with 0xfe"),
        (vec![0xff; ERROR_TOO_LONG], "begins with 0xff"),
    ] {
        let error = ends_with(vec![(4, packet)]).await?;
        ensure!(
            matches!(error, SessionError::Protocol { .. }) && error.to_string().contains(about),
            "the stream failed with an unexpected error: {error}"
        );
    }
    Ok(())
}

/// More bytes than any error message of a server has.
const ERROR_TOO_LONG: usize = 70_000;

#[tokio::test]
async fn split_events_with_wrong_packets_are_refused() -> Result<()> {
    let full = PACKET_PAYLOAD_BYTES_MAX;
    let head = |length: usize| {
        let mut part = prefixed(None, &event(EventType::QUERY, 5, &[]));
        part[10..14].copy_from_slice(&(length as u32).to_le_bytes());
        part.resize(full, 1);
        part
    };
    // `put_packets` ends a payload of the maximum length with an empty packet. Remove this packet, because
    // the test continues the event differently.
    for (length, next, about) in [
        (full - 1 + 50, vec![(8, vec![1; 50])], "packet 8 of 50 bytes came where packet 6"),
        (full - 1 + 50, vec![(6, vec![1; 49])], "packet 6 of 49 bytes came"),
        (full - 1 + 50, vec![(6, vec![1; 51])], "packet 6 of 51 bytes came"),
        (full - 1 + 50, vec![(6, vec![1; full])], "packet 6 of 16777215 bytes came"),
        (full - 1, vec![(6, vec![1; 1])], "packet 6 of 1 bytes came"),
        (full - 2, vec![], "16777214 bytes came for an event of 16777213"),
    ] {
        let mut bytes = Vec::new();
        put_packets(&mut bytes, 5, &head(length));
        bytes.truncate(bytes.len() - 4);
        for (sequence, payload) in next {
            put_packets(&mut bytes, sequence, &payload);
        }
        let mut stream = stream_of(bytes, false, 5).await?;
        let error = loop {
            match stream.next().await {
                Ok(Some(_)) => {}
                Ok(None) => anyhow::bail!("the stream ended without the error {about:?}"),
                Err(error) => break error,
            }
        };
        ensure!(error.to_string().contains(about), "the stream failed with an unexpected error: {error}");
    }
    Ok(())
}

#[tokio::test]
async fn the_error_of_the_source_is_reported() -> Result<()> {
    let mut payload = Vec::new();
    ErrPacket { number: 1236, sql_state: "HY000".to_owned(), message: "log event entry exceeded".to_owned() }
        .encode(&mut payload);
    let error = ends_with(vec![(2, payload)]).await?;
    ensure!(
        error.server_error().map(|error| error.number) == Some(1236),
        "the stream failed with an unexpected error: {error}"
    );
    Ok(())
}

#[tokio::test]
async fn a_silent_source_times_out() -> Result<()> {
    let (connection, task) = connected(async |mut peer: Peer| {
        let (statements, _) = peer.until_dump().await?;
        peer.sequence = 1;
        peer.send(&prefixed(None, &rotate())).await?;
        // Send half an event: bytes that do not complete an event do not reset the timeout.
        peer.raw(&[200, 0, 0, 2, 0, 1, 2]).await?;
        peer.read_to_end().await?;
        Ok(statements)
    })
    .await?;
    let mut stream =
        connection.dump(DumpRequest { heartbeat: Duration::from_millis(400), ..request() }).await?;
    stream.next().await?;
    let error = stream.next().await.err();
    ensure!(
        matches!(error, Some(SessionError::Timeout { seconds, .. }) if seconds == Duration::from_millis(1200)),
        "the stream failed with an unexpected error: {error:?}"
    );
    drop(stream);
    let statements = task.await??;
    ensure!(
        statements[0].contains("@master_heartbeat_period = 400000000"),
        "the client sent the wrong statements before the dump: {statements:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_cancelled_read_of_the_stream_loses_no_bytes() -> Result<()> {
    let (connection, task) = connected(async |mut peer: Peer| {
        peer.until_dump().await?;
        let mut bytes = Vec::new();
        put_packets(&mut bytes, 1, &prefixed(None, &rotate()));
        for index in 0..50u8 {
            put_packets(&mut bytes, index, &prefixed(None, &event(EventType::XID, 5, &[index; 8])));
        }
        for piece in bytes.chunks(7) {
            peer.raw(piece).await?;
            tokio::task::yield_now().await;
        }
        peer.read_to_end().await
    })
    .await?;
    let mut stream = connection.dump(request()).await?;
    stream.next().await?;
    for index in 0..50u8 {
        let chunk = loop {
            tokio::select! {
                biased;
                chunk = stream.next() => break chunk?.context("the binlog stream ended early")?,
                () = tokio::task::yield_now() => {}
            }
        };
        ensure!(
            chunk.data[19] == index,
            "the stream returned event {} instead of event {index}",
            chunk.data[19]
        );
    }
    drop(stream);
    task.await??;
    Ok(())
}

#[tokio::test]
async fn stream_requests_for_the_other_flavour_are_refused_before_sending() -> Result<()> {
    let position = |position| DumpStart::FilePosition { file: "b.1".to_owned(), position };
    for (start, uuid, about) in [
        (position(3), None, "at least 4"),
        (position(1 << 32), None, "beyond 4 GiB"),
        (DumpStart::MariadbGtid { connect_state: "0-1-1".to_owned() }, None, "MySQL server"),
        (position(4), Some("'; DROP TABLE t; --"), "hexadecimal"),
    ] {
        let (connection, task) = connected(async |mut peer: Peer| {
            peer.received.clear();
            peer.read_to_end().await?;
            Ok(peer.received)
        })
        .await?;
        let request = DumpRequest { replica_uuid: uuid.map(str::to_owned), ..DumpRequest::new(7, start) };
        let error = connection.dump(request).await.err().context("an invalid request started a stream")?;
        ensure!(
            matches!(error, SessionError::DumpRequest { .. }),
            "the stream failed with an unexpected error: {error}"
        );
        ensure!(error.to_string().contains(about), "the stream failed with an unexpected error: {error}");
        ensure!(task.await??.is_empty());
    }
    Ok(())
}
