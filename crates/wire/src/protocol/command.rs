//! The commands of a client after it has logged in. Each command is the first packet of an exchange, with
//! sequence number 0.

use crate::byte_cursor::ByteCursor;
use crate::{ServerId, WireError};

/// The client ends the connection.
pub const COM_QUIT: u8 = 0x01;
/// The server runs a statement.
pub const COM_QUERY: u8 = 0x03;
/// The server answers with OK.
pub const COM_PING: u8 = 0x0e;
/// The server sends a binlog from a file position.
pub const COM_BINLOG_DUMP: u8 = 0x12;
/// The server prepares a statement.
pub const COM_STMT_PREPARE: u8 = 0x16;
/// The server runs a prepared statement.
pub const COM_STMT_EXECUTE: u8 = 0x17;
/// The server closes a prepared statement. It sends no answer.
pub const COM_STMT_CLOSE: u8 = 0x19;
/// The server runs a prepared statement for many rows of values (MariaDB only).
pub const COM_STMT_BULK_EXECUTE: u8 = 0xfa;
/// The client registers as a replica.
pub const COM_REGISTER_REPLICA: u8 = 0x15;
/// The server sends the transactions that are not in the client's GTID set (MySQL only).
pub const COM_BINLOG_DUMP_GTID: u8 = 0x1e;

/// The maximum length of a binlog file name, in bytes.
pub const FILE_NAME_BYTES_MAX: usize = 512;

/// The maximum length of the host, user or password in a registration, in bytes. Each has a length field of
/// one byte.
const REGISTER_TEXT_BYTES_MAX: usize = 255;

/// The flags of a binlog dump command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DumpFlags(pub u16);

impl DumpFlags {
    /// The server ends the stream at the end of the newest file instead of waiting for more events.
    pub const NON_BLOCK: Self = Self(0x01);
    /// MariaDB: the server sends Annotate_rows events.
    pub const SEND_ANNOTATE_ROWS: Self = Self(0x02);

    /// Returns the bits of both values.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether the bits of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A command of a client. The texts in it are raw bytes and are not checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientCommand<'a> {
    /// End the connection. The server sends no answer.
    Quit,
    /// Answer with OK.
    Ping,
    /// Run a statement.
    Query(&'a [u8]),
    /// Register as a replica, which `SHOW REPLICAS` lists.
    RegisterReplica(RegisterReplica<'a>),
    /// Send a binlog from a file position.
    BinlogDump {
        /// Offset of the first event to send. The first event of a file is at offset 4. The protocol has only
        /// four bytes for the offset.
        position: u32,
        /// The flags of the dump.
        flags: DumpFlags,
        /// The client's server id.
        server_id: ServerId,
        /// The name of the file without a folder; empty for the oldest file.
        file: &'a [u8],
    },
    /// Send the transactions that are not in the client's GTID set.
    BinlogDumpGtid {
        /// The flags of the dump.
        flags: DumpFlags,
        /// The client's server id.
        server_id: ServerId,
        /// The name of the file without a folder. If it is empty, the server finds the file.
        file: &'a [u8],
        /// Offset in the file, at least 4.
        position: u64,
        /// The client's GTID set in binary form.
        set_block: &'a [u8],
    },
    /// Any other command.
    Other {
        /// The command byte.
        command: u8,
        /// The bytes after the command byte.
        body: &'a [u8],
    },
}

/// The registration of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RegisterReplica<'a> {
    /// The replica's server id.
    pub server_id: u32,
    /// The host name that `SHOW REPLICAS` lists; may be empty.
    pub host: &'a [u8],
    /// The user name that `SHOW REPLICAS` lists; may be empty.
    pub user: &'a [u8],
    /// The password that `SHOW REPLICAS` may list. Leave it empty, so that it is not shown.
    pub password: &'a [u8],
    /// The port that `SHOW REPLICAS` lists.
    pub port: u16,
}

impl<'a> ClientCommand<'a> {
    /// Parses a command's payload.
    ///
    /// # Errors
    /// [`WireError::Truncated`] or [`WireError::Malformed`].
    pub fn parse(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new("command", payload);
        Ok(match cursor.u8()? {
            COM_QUIT => Self::Quit,
            COM_PING => Self::Ping,
            COM_QUERY => Self::Query(cursor.rest()),
            COM_REGISTER_REPLICA => {
                let server_id = cursor.u32()?;
                let mut text = || cursor.u8().and_then(|length| cursor.bytes(usize::from(length)));
                let (host, user, password) = (text()?, text()?, text()?);
                let port = cursor.u16()?;
                Self::RegisterReplica(RegisterReplica { server_id, host, user, password, port })
            }
            COM_BINLOG_DUMP => Self::BinlogDump {
                position: cursor.u32()?,
                flags: DumpFlags(cursor.u16()?),
                server_id: ServerId(cursor.u32()?),
                file: checked_file_name(cursor.rest())?,
            },
            COM_BINLOG_DUMP_GTID => {
                let flags = DumpFlags(cursor.u16()?);
                let server_id = ServerId(cursor.u32()?);
                let file_bytes = cursor.u32()? as usize;
                let file = checked_file_name(cursor.bytes(file_bytes)?)?;
                let position = cursor.u64()?;
                let set_bytes = cursor.u32()? as usize;
                let set_block = cursor.bytes(set_bytes)?;
                Self::BinlogDumpGtid { flags, server_id, file, position, set_block }
            }
            command => Self::Other { command, body: cursor.rest() },
        })
    }

    /// Appends the command's payload.
    ///
    /// # Errors
    /// [`WireError::TooLarge`] if a text is too long for its length field.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        match self {
            Self::Quit => out.push(COM_QUIT),
            Self::Ping => out.push(COM_PING),
            Self::Query(sql) => {
                out.push(COM_QUERY);
                out.extend_from_slice(sql);
            }
            Self::RegisterReplica(replica) => {
                out.push(COM_REGISTER_REPLICA);
                out.extend_from_slice(&replica.server_id.to_le_bytes());
                for text in [replica.host, replica.user, replica.password] {
                    limit("text of a registration", text, REGISTER_TEXT_BYTES_MAX)?;
                    out.push(text.len() as u8);
                    out.extend_from_slice(text);
                }
                out.extend_from_slice(&replica.port.to_le_bytes());
                // The replication rank and the source id. Servers ignore both.
                out.extend_from_slice(&[0; 8]);
            }
            Self::BinlogDump { position, flags, server_id, file } => {
                out.push(COM_BINLOG_DUMP);
                out.extend_from_slice(&position.to_le_bytes());
                out.extend_from_slice(&flags.0.to_le_bytes());
                out.extend_from_slice(&server_id.0.to_le_bytes());
                out.extend_from_slice(checked_file_name(file)?);
            }
            Self::BinlogDumpGtid { flags, server_id, file, position, set_block } => {
                out.push(COM_BINLOG_DUMP_GTID);
                out.extend_from_slice(&flags.0.to_le_bytes());
                out.extend_from_slice(&server_id.0.to_le_bytes());
                checked_file_name(file)?;
                out.extend_from_slice(&(file.len() as u32).to_le_bytes());
                out.extend_from_slice(file);
                out.extend_from_slice(&position.to_le_bytes());
                limit("GTID set of a dump", set_block, u32::MAX as usize)?;
                out.extend_from_slice(&(set_block.len() as u32).to_le_bytes());
                out.extend_from_slice(set_block);
            }
            Self::Other { command, body } => {
                out.push(*command);
                out.extend_from_slice(body);
            }
        }
        Ok(())
    }
}

fn checked_file_name(file: &[u8]) -> Result<&[u8], WireError> {
    limit("binlog file name", file, FILE_NAME_BYTES_MAX)?;
    Ok(file)
}

fn limit(what: &'static str, bytes: &[u8], size_max: usize) -> Result<(), WireError> {
    if bytes.len() > size_max {
        return Err(WireError::TooLarge { what, size: bytes.len() as u64, size_max: size_max as u64 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(command: &ClientCommand<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        command.encode(&mut out).unwrap();
        out
    }

    #[test]
    fn dump_commands_have_the_documented_bytes() {
        let dump = ClientCommand::BinlogDump {
            position: 4,
            flags: DumpFlags::NON_BLOCK.with(DumpFlags::SEND_ANNOTATE_ROWS),
            server_id: ServerId(0x0102),
            file: b"b.000001",
        };
        assert_eq!(encoded(&dump), b"\x12\x04\0\0\0\x03\0\x02\x01\0\0b.000001");
        let dump = ClientCommand::BinlogDumpGtid {
            flags: DumpFlags::default(),
            server_id: ServerId(7),
            file: b"",
            position: 4,
            set_block: &[0; 8],
        };
        let mut expected = b"\x1e\0\0\x07\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x08\0\0\0".to_vec();
        expected.extend_from_slice(&[0; 8]);
        assert_eq!(encoded(&dump), expected);
    }

    #[test]
    fn texts_too_long_for_their_length_are_refused() {
        let host = vec![b'h'; 256];
        let register =
            ClientCommand::RegisterReplica(RegisterReplica { host: &host, ..RegisterReplica::default() });
        assert!(matches!(register.encode(&mut Vec::new()), Err(WireError::TooLarge { size: 256, .. })));
        let file = vec![b'f'; FILE_NAME_BYTES_MAX + 1];
        let dump = ClientCommand::BinlogDump {
            position: 4,
            flags: DumpFlags::default(),
            server_id: ServerId(1),
            file: &file,
        };
        assert!(matches!(dump.encode(&mut Vec::new()), Err(WireError::TooLarge { .. })));
    }

    proptest! {
        #[test]
        fn commands_round_trip(
            server_id: u32, position: u64, flags: u16, port: u16,
            file in "[a-z.0-9]{0,40}", text in ".{0,40}", bytes: Vec<u8>,
        ) {
            let (file, text) = (file.as_bytes(), text.as_bytes());
            for command in [
                ClientCommand::Quit,
                ClientCommand::Ping,
                ClientCommand::Query(text),
                ClientCommand::RegisterReplica(RegisterReplica { server_id, host: text, user: file, password: b"", port }),
                ClientCommand::BinlogDump {
                    position: position as u32, flags: DumpFlags(flags), server_id: ServerId(server_id), file,
                },
                ClientCommand::BinlogDumpGtid {
                    flags: DumpFlags(flags), server_id: ServerId(server_id), file, position, set_block: &bytes,
                },
                ClientCommand::Other { command: 0x1c, body: &bytes },
            ] {
                let payload = encoded(&command);
                prop_assert_eq!(ClientCommand::parse(&payload).unwrap(), command);
            }
        }

        #[test]
        fn any_bytes_parse_without_panic(bytes: Vec<u8>) {
            let _ = ClientCommand::parse(&bytes);
        }
    }
}
