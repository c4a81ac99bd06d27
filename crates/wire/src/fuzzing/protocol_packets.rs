//! Checks of the client/server protocol with arbitrary bytes from either side.

use super::{split_at_nul, split_mode};
use crate::protocol::authentication_plugin::{self, AuthPlugin, AuthSwitchRequest};
use crate::protocol::binary_row::ValueRows;
use crate::protocol::command::ClientCommand;
use crate::protocol::handshake::{ClientAnswer, HandshakeResponse, HandshakeV10};
use crate::protocol::ok_err_eof_packets::{EofPacket, MESSAGE_BYTES_MAX};
use crate::protocol::packet::{self, Frame, PACKET_HEADER_BYTES};
use crate::protocol::resultset::{encode_text_row, parse_column_count, parse_text_row};
use crate::protocol::semi_sync::{Ack, SemiSyncHeader};
use crate::protocol::sha256_crypt::Sha256Crypt;
use crate::protocol::{Capabilities, ColumnDefinition, ErrPacket, OkPacket};
use crate::server_version::parse_version;

pub(super) fn check(data: &[u8]) {
    match split_mode(data, 13) {
        Some((0, bytes)) => framing(bytes),
        Some((1, payload)) => greeting(payload),
        Some((2, payload)) => client_answer(payload),
        Some((3, payload)) => command(payload),
        Some((4, payload)) => ok(payload),
        Some((5, payload)) => err(payload),
        Some((6, payload)) => eof(payload),
        Some((7, payload)) => auth_switch(payload),
        Some((8, payload)) => column_definition(payload),
        Some((9, payload)) => rows(payload),
        Some((10, payload)) => semi_sync(payload),
        Some((11, bytes)) => proofs(bytes),
        Some((_, payload)) => value_rows(payload),
        None => {}
    }
}

/// Checks that the payload of a frame, if it is framed again, gives the same packets.
fn framing(bytes: &[u8]) {
    let Some((&[sequence, limit_low, limit_high], bytes)) = bytes.split_first_chunk() else { return };
    let payload_bytes_max = usize::from(u16::from_le_bytes([limit_low, limit_high])) << 4;
    match packet::frame(bytes, sequence, payload_bytes_max) {
        Ok(Frame::Complete { payload_bytes, frame_bytes, last_sequence }) => {
            assert!(payload_bytes <= payload_bytes_max);
            let frame = &bytes[..frame_bytes];
            let payload = packet::join(frame).expect("joining a complete frame succeeds");
            assert_eq!(payload.len(), payload_bytes);
            let mut again = Vec::new();
            let next = packet::put_packets(&mut again, sequence, &payload);
            assert_eq!((again.as_slice(), next), (frame, last_sequence.wrapping_add(1)));
        }
        Ok(Frame::Incomplete { needed }) => {
            assert!(
                needed >= 1 && needed <= payload_bytes_max + PACKET_HEADER_BYTES,
                "a complete payload is reported as incomplete: {needed} more bytes needed"
            );
        }
        Err(_) => {}
    }
    // If a length is wrong, joining returns an error. It never returns more bytes than the input holds.
    if let Ok(payload) = packet::join(bytes) {
        assert!(payload.len() <= bytes.len());
    }
}

fn greeting(payload: &[u8]) {
    parse_version(&String::from_utf8_lossy(payload));
    let Ok(greeting) = HandshakeV10::parse(payload) else { return };
    assert!(greeting.server_version.len() <= 3 * payload.len() && greeting.auth_data.len() <= payload.len());
    let mut bytes = Vec::new();
    // A greeting can be encoded only if it has 20 random bytes.
    if greeting.encode(&mut bytes).is_ok() {
        assert_eq!(HandshakeV10::parse(&bytes), Ok(greeting));
    }
}

fn client_answer(payload: &[u8]) {
    match ClientAnswer::parse(payload) {
        Ok(ClientAnswer::SslRequest(request)) => {
            let mut bytes = Vec::new();
            request.encode(&mut bytes);
            assert_eq!(ClientAnswer::parse(&bytes), Ok(ClientAnswer::SslRequest(request)));
        }
        Ok(ClientAnswer::Response(response)) => {
            assert!(response.attributes.len() <= payload.len());
            let mut bytes = Vec::new();
            response.encode(&mut bytes).expect("a parsed answer can be encoded");
            // If the capabilities announce a database but the answer has none, the writer writes an empty
            // name.
            let announced = response.capabilities.has(Capabilities::CONNECT_WITH_DB);
            let database = response.database.clone().or_else(|| announced.then(String::new));
            let expected = HandshakeResponse { database, ..response };
            assert_eq!(ClientAnswer::parse(&bytes), Ok(ClientAnswer::Response(expected)));
        }
        Err(_) => {}
    }
}

fn command(payload: &[u8]) {
    let Ok(command) = ClientCommand::parse(payload) else { return };
    let mut bytes = Vec::new();
    command.encode(&mut bytes).expect("a parsed command can be encoded");
    assert_eq!(ClientCommand::parse(&bytes).as_ref(), Ok(&command));
}

fn ok(payload: &[u8]) {
    let Ok(ok) = OkPacket::parse(payload) else { return };
    let mut bytes = Vec::new();
    ok.encode(payload[0], &mut bytes);
    assert_eq!(OkPacket::parse(&bytes).as_ref(), Ok(&ok));
}

fn err(payload: &[u8]) {
    let Ok(err) = ErrPacket::parse(payload) else { return };
    assert!(err.message.len() <= 3 * MESSAGE_BYTES_MAX);
    // Invalid UTF-8 was replaced, so a text may now be longer than its field. Then skip the round trip.
    if err.message.len() <= MESSAGE_BYTES_MAX && err.sql_state.len() == 5 {
        let mut bytes = Vec::new();
        err.encode(&mut bytes);
        assert_eq!(ErrPacket::parse(&bytes).as_ref(), Ok(&err));
    }
}

fn eof(payload: &[u8]) {
    for capabilities in [Capabilities::default(), Capabilities::DEPRECATE_EOF] {
        if !EofPacket::ends(payload, capabilities) {
            continue;
        }
        let Ok(eof) = EofPacket::parse(payload, capabilities) else { continue };
        let mut bytes = Vec::new();
        eof.encode(capabilities, &mut bytes);
        assert!(EofPacket::ends(&bytes, capabilities));
        assert_eq!(EofPacket::parse(&bytes, capabilities), Ok(eof));
    }
}

fn auth_switch(payload: &[u8]) {
    let Ok(request) = AuthSwitchRequest::parse(payload) else { return };
    let mut bytes = Vec::new();
    request.encode(&mut bytes);
    assert_eq!(AuthSwitchRequest::parse(&bytes).as_ref(), Ok(&request));
    if let Some(plugin) = AuthPlugin::from_name(&request.plugin) {
        assert_eq!(plugin.name(), request.plugin);
        let answer = plugin.first_answer(b"secret", &request.auth_data);
        assert!(answer.is_err() || answer.is_ok_and(|answer| answer.len() <= 64));
    }
}

fn column_definition(payload: &[u8]) {
    let Ok(column) = ColumnDefinition::parse(payload) else { return };
    let mut bytes = Vec::new();
    column.encode(&mut bytes);
    assert_eq!(ColumnDefinition::parse(&bytes).as_ref(), Ok(&column));
}

fn rows(payload: &[u8]) {
    let _ = parse_column_count(payload);
    let Some((&columns, row)) = payload.split_first() else { return };
    let Ok(values) = parse_text_row(row, usize::from(columns)) else { return };
    assert_eq!(values.len(), usize::from(columns));
    let values = values.into_iter().map(|range| range.map(|range| &row[range]));
    let values: Vec<Option<&[u8]>> = values.collect();
    let mut bytes = Vec::new();
    encode_text_row(values.iter().copied(), &mut bytes);
    let again = parse_text_row(&bytes, values.len()).expect("a parsed row can be encoded");
    assert!(again.into_iter().map(|range| range.map(|range| &bytes[range])).eq(values));
}

/// Checks that a converted binary row is a text row with the same number of values.
fn value_rows(payload: &[u8]) {
    let Some((&count, rest)) = payload.split_first() else { return };
    let Some((types, row)) = rest.split_at_checked(usize::from(count) * 3) else { return };
    let column = |bytes: &[u8]| ColumnDefinition {
        column_type: bytes[0],
        flags: u16::from(bytes[1]),
        decimals: bytes[2],
        length_max: u32::from(bytes[2]),
        ..ColumnDefinition::default()
    };
    let columns: Vec<_> = types.chunks_exact(3).map(column).collect();
    let Some(rows) = ValueRows::new(&columns) else { return };
    let mut text = Vec::new();
    if rows.put_text_row(row, &mut text).is_ok() {
        let values = parse_text_row(&text, columns.len()).expect("a converted row can be parsed");
        assert_eq!(values.len(), columns.len());
    }
}

fn semi_sync(payload: &[u8]) {
    if let Ok(header) = SemiSyncHeader::parse(payload) {
        assert_eq!(SemiSyncHeader::parse(&header.to_bytes()), Ok(header));
    }
    if let Ok(ack) = Ack::parse(payload) {
        let mut bytes = Vec::new();
        ack.encode(&mut bytes).expect("a parsed acknowledgement can be encoded");
        // The parser removes one final zero byte of the file name. A name that ends in another zero byte
        // would change, so skip it.
        if ack.file.last() != Some(&0) {
            assert_eq!(Ack::parse(&bytes).as_ref(), Ok(&ack));
        }
    }
}

/// Checks that arbitrary bytes are not accepted as proof of a password.
fn proofs(bytes: &[u8]) {
    let (answer, key) = split_at_nul(bytes);
    assert!(!authentication_plugin::native_password_verify(
        answer,
        &[7; 20],
        &authentication_plugin::native_password_hash(b"secret")
    ));
    let mut public_key = authentication_plugin::ed25519_public_key(b"secret");
    assert!(!authentication_plugin::ed25519_verify(answer, &[7; 32], &public_key));
    // An invalid public key must not cause a panic either.
    for (to, from) in public_key.iter_mut().zip(key) {
        *to = *from;
    }
    authentication_plugin::ed25519_verify(answer, &[7; 32], &public_key);
    // Parse the input as the text of a stored hash.
    if let Ok(hash) = Sha256Crypt::parse(bytes) {
        let mut again = Vec::new();
        hash.encode(&mut again);
        assert_eq!(Sha256Crypt::parse(&again).as_ref(), Ok(&hash));
    }
    let _ =
        authentication_plugin::encrypt_password(b"secret", &[7; 20], key, &mut authentication_plugin::OsRng);
}
