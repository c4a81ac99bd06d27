//! The start of a connection: the server's greeting, the client's TLS request, and the client's answer.

use super::capabilities::{Capabilities, MariadbCapabilities, ServerStatus};
use crate::byte_cursor::{ByteCursor, put_lenenc_bytes, put_lenenc_int};
use crate::server_version::parse_version;
use crate::{Flavour, WireError};

/// The only protocol version in use.
const PROTOCOL_VERSION: u8 = 10;

/// The maximum length of a greeting or answer, in bytes. Both arrive before the password is verified.
pub const HANDSHAKE_BYTES_MAX: usize = 1 << 20;

/// The greeting, which the server sends first on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandshakeV10 {
    /// The version text of the server, such as `9.7.1` or `5.5.5-10.11.14-MariaDB-log`.
    pub server_version: String,
    /// `CONNECTION_ID()`, truncated to 32 bits.
    pub connection_id: u32,
    /// The 20 random bytes for the authentication, without the final zero byte.
    pub auth_data: Vec<u8>,
    /// The server's capabilities.
    pub capabilities: Capabilities,
    /// MariaDB's extended capabilities; 0 from MySQL.
    pub mariadb_capabilities: MariadbCapabilities,
    /// The lowest 8 bits of the number of the server's default collation.
    pub collation: u8,
    /// The status flags of the server.
    pub status: ServerStatus,
    /// The default authentication plugin of the server; empty if the server has no plugins.
    pub auth_plugin: String,
}

impl HandshakeV10 {
    /// Parses a greeting.
    ///
    /// # Errors
    /// [`WireError::Unsupported`] for another protocol version or a server older than 4.1;
    /// [`WireError::Truncated`] or [`WireError::Malformed`].
    pub fn parse(payload: &[u8]) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new("server greeting", payload);
        let version = cursor.u8()?;
        if version != PROTOCOL_VERSION {
            return Err(WireError::unsupported(
                "server greeting",
                format!("protocol version {version}; only version 10 is supported"),
            ));
        }
        let server_version = String::from_utf8_lossy(cursor.until_nul()?).into_owned();
        let connection_id = cursor.u32()?;
        let mut auth_data = cursor.bytes(8)?.to_vec();
        cursor.skip(1)?;
        let capabilities_low = cursor.u16()?;
        let collation = cursor.u8()?;
        let status = ServerStatus(cursor.u16()?);
        let capabilities = Capabilities(u32::from(capabilities_low) | u32::from(cursor.u16()?) << 16);
        if !capabilities.has(Capabilities::PROTOCOL_41.with(Capabilities::SECURE_CONNECTION)) {
            return Err(WireError::unsupported("server greeting", "the server is older than MySQL 4.1"));
        }
        let auth_data_bytes = usize::from(cursor.u8()?);
        cursor.skip(6)?;
        let mariadb_capabilities = match capabilities.has(Capabilities::LONG_PASSWORD) {
            true => {
                cursor.skip(4)?;
                MariadbCapabilities::default()
            }
            false => MariadbCapabilities(cursor.u32()?),
        };
        // The second part of the authentication data has at least 13 bytes. The last of them is zero.
        auth_data.extend_from_slice(cursor.bytes(auth_data_bytes.saturating_sub(8).max(13))?);
        if auth_data.last() == Some(&0) {
            auth_data.pop();
        }
        let auth_plugin = if capabilities.has(Capabilities::PLUGIN_AUTH) {
            // Some old servers omit the zero byte after the plugin name.
            let name = cursor.rest();
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(name).into_owned()
        } else {
            String::new()
        };
        Ok(Self {
            server_version,
            connection_id,
            auth_data,
            capabilities,
            mariadb_capabilities,
            collation,
            status,
            auth_plugin,
        })
    }

    /// Appends the payload of the greeting.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if `auth_data` does not have 20 bytes, or if the version or the plugin name
    /// holds a zero byte.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let (Some((first, second)), 20) = (self.auth_data.split_at_checked(8), self.auth_data.len()) else {
            let reason = format!("the greeting has {} bytes of authentication data", self.auth_data.len());
            return Err(WireError::malformed("server greeting", reason));
        };
        out.push(PROTOCOL_VERSION);
        put_nul_text("server greeting", &self.server_version, out)?;
        out.extend_from_slice(&self.connection_id.to_le_bytes());
        out.extend_from_slice(first);
        out.push(0);
        let [c0, c1, c2, c3] = self.capabilities.0.to_le_bytes();
        out.extend_from_slice(&[c0, c1, self.collation]);
        out.extend_from_slice(&self.status.0.to_le_bytes());
        out.extend_from_slice(&[c2, c3, 21, 0, 0, 0, 0, 0, 0]);
        let extended =
            if self.capabilities.has(Capabilities::LONG_PASSWORD) { 0 } else { self.mariadb_capabilities.0 };
        out.extend_from_slice(&extended.to_le_bytes());
        out.extend_from_slice(second);
        out.push(0);
        if self.capabilities.has(Capabilities::PLUGIN_AUTH) {
            put_nul_text("server greeting", &self.auth_plugin, out)?;
        }
        Ok(())
    }

    /// Returns the flavour of the server.
    pub fn flavour(&self) -> Flavour {
        if self.server_version.contains("MariaDB") || !self.capabilities.has(Capabilities::LONG_PASSWORD) {
            Flavour::MariaDb
        } else {
            Flavour::MySql
        }
    }

    /// Returns the major, minor and patch number. A missing number is 0.
    pub fn version(&self) -> (u16, u16, u16) {
        parse_version(&self.server_version)
    }
}

/// A client's TLS request. The client sends only the first 32 bytes of its answer. Then the TLS handshake
/// follows, and then the complete answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SslRequest {
    /// The capabilities of the answer that follows, with [`Capabilities::SSL`].
    pub capabilities: Capabilities,
    /// MariaDB's extended capabilities. The client's complete answer after the TLS handshake has the same
    /// value.
    pub mariadb_capabilities: MariadbCapabilities,
    /// The maximum length of a packet that the client accepts, in bytes. The client's complete answer after
    /// the TLS handshake has the same value.
    pub packet_bytes_max: u32,
    /// The lowest 8 bits of the number of the client's collation. The client's complete answer after the TLS
    /// handshake has the same value.
    pub collation: u8,
}

/// The length of [`SslRequest`] in bytes.
pub const SSL_REQUEST_BYTES: usize = 32;

impl SslRequest {
    /// Appends the payload of the TLS request.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.capabilities.0.to_le_bytes());
        out.extend_from_slice(&self.packet_bytes_max.to_le_bytes());
        out.push(self.collation);
        out.extend_from_slice(&[0; 19]);
        out.extend_from_slice(&self.mariadb_capabilities.0.to_le_bytes());
    }

    fn parse_from(cursor: &mut ByteCursor<'_>) -> Result<Self, WireError> {
        let capabilities = Capabilities(cursor.u32()?);
        if !capabilities.has(Capabilities::PROTOCOL_41) {
            return Err(WireError::unsupported("client's answer", "the client is older than MySQL 4.1"));
        }
        let packet_bytes_max = cursor.u32()?;
        let collation = cursor.u8()?;
        cursor.skip(19)?;
        let extended = cursor.u32()?;
        let mariadb_capabilities = match capabilities.has(Capabilities::LONG_PASSWORD) {
            true => MariadbCapabilities::default(),
            false => MariadbCapabilities(extended),
        };
        Ok(Self { capabilities, mariadb_capabilities, packet_bytes_max, collation })
    }
}

/// The client's answer to the greeting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandshakeResponse {
    /// The client's capabilities, a subset of the server's.
    pub capabilities: Capabilities,
    /// MariaDB's extended capabilities. They are encoded only if [`Capabilities::LONG_PASSWORD`] is absent.
    pub mariadb_capabilities: MariadbCapabilities,
    /// The maximum length of a packet that the client accepts, in bytes.
    pub packet_bytes_max: u32,
    /// The lowest 8 bits of the number of the client's collation.
    pub collation: u8,
    /// The user name.
    pub user: String,
    /// The response of [`HandshakeResponse::auth_plugin`] to the authentication data of the greeting.
    pub auth_response: Vec<u8>,
    /// The default database. It is encoded only with [`Capabilities::CONNECT_WITH_DB`].
    pub database: Option<String>,
    /// The authentication plugin that computed [`HandshakeResponse::auth_response`].
    pub auth_plugin: String,
    /// The connection attributes, which `performance_schema` lists. They are encoded only with
    /// [`Capabilities::CONNECT_ATTRS`].
    pub attributes: Vec<(String, String)>,
}

/// A client's answer to the greeting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientAnswer {
    /// The client requests TLS before it sends its complete answer.
    SslRequest(SslRequest),
    /// The complete answer to the greeting.
    Response(HandshakeResponse),
}

impl ClientAnswer {
    /// Parses a client's answer to the greeting.
    ///
    /// # Errors
    /// [`WireError::Unsupported`] for a client older than 4.1; [`WireError::Truncated`] or
    /// [`WireError::Malformed`].
    pub fn parse(payload: &[u8]) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new("client's answer", payload);
        let start = SslRequest::parse_from(&mut cursor)?;
        if cursor.is_empty() && start.capabilities.has(Capabilities::SSL) {
            return Ok(Self::SslRequest(start));
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let user = text(cursor.until_nul()?);
        let auth_response = if start.capabilities.has(Capabilities::PLUGIN_AUTH_LENENC_DATA) {
            cursor.lenenc_bytes()?
        } else {
            let length = usize::from(cursor.u8()?);
            cursor.bytes(length)?
        }
        .to_vec();
        // The answer may end before these fields. Servers accept such an answer, so this parser accepts it
        // too.
        let database = match start.capabilities.has(Capabilities::CONNECT_WITH_DB) && !cursor.is_empty() {
            true => Some(text(cursor.until_nul()?)),
            false => None,
        };
        let auth_plugin = match start.capabilities.has(Capabilities::PLUGIN_AUTH) && !cursor.is_empty() {
            true => text(cursor.until_nul()?),
            false => String::new(),
        };
        let mut attributes = Vec::new();
        if start.capabilities.has(Capabilities::CONNECT_ATTRS) && !cursor.is_empty() {
            let mut pairs = ByteCursor::new("connection attributes", cursor.lenenc_bytes()?);
            while !pairs.is_empty() {
                attributes.push((text(pairs.lenenc_bytes()?), text(pairs.lenenc_bytes()?)));
            }
        }
        Ok(Self::Response(HandshakeResponse {
            capabilities: start.capabilities,
            mariadb_capabilities: start.mariadb_capabilities,
            packet_bytes_max: start.packet_bytes_max,
            collation: start.collation,
            user,
            auth_response,
            database,
            auth_plugin,
            attributes,
        }))
    }
}

impl HandshakeResponse {
    /// Returns the TLS request that precedes this answer.
    pub fn ssl_request(&self) -> SslRequest {
        SslRequest {
            capabilities: self.capabilities | Capabilities::SSL,
            mariadb_capabilities: self.mariadb_capabilities,
            packet_bytes_max: self.packet_bytes_max,
            collation: self.collation,
        }
    }

    /// Appends the payload of the answer.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if a name contains a zero byte; [`WireError::TooLarge`] if the authentication
    /// data is too long for its length field.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        SslRequest {
            capabilities: self.capabilities,
            mariadb_capabilities: match self.capabilities.has(Capabilities::LONG_PASSWORD) {
                true => MariadbCapabilities::default(),
                false => self.mariadb_capabilities,
            },
            packet_bytes_max: self.packet_bytes_max,
            collation: self.collation,
        }
        .encode(out);
        put_nul_text("user name", &self.user, out)?;
        if self.capabilities.has(Capabilities::PLUGIN_AUTH_LENENC_DATA) {
            put_lenenc_bytes(out, &self.auth_response);
        } else {
            let Ok(length) = u8::try_from(self.auth_response.len()) else {
                return Err(WireError::TooLarge {
                    what: "authentication data",
                    size: self.auth_response.len() as u64,
                    size_max: 255,
                });
            };
            out.push(length);
            out.extend_from_slice(&self.auth_response);
        }
        if self.capabilities.has(Capabilities::CONNECT_WITH_DB) {
            put_nul_text("database name", self.database.as_deref().unwrap_or_default(), out)?;
        }
        if self.capabilities.has(Capabilities::PLUGIN_AUTH) {
            put_nul_text("authentication plugin", &self.auth_plugin, out)?;
        }
        if self.capabilities.has(Capabilities::CONNECT_ATTRS) {
            let mut pairs = Vec::new();
            for text in self.attributes.iter().flat_map(|(name, value)| [name, value]) {
                put_lenenc_bytes(&mut pairs, text.as_bytes());
            }
            put_lenenc_int(out, pairs.len() as u64);
            out.extend_from_slice(&pairs);
        }
        Ok(())
    }
}

fn put_nul_text(what: &'static str, text: &str, out: &mut Vec<u8>) -> Result<(), WireError> {
    if text.as_bytes().contains(&0) {
        return Err(WireError::malformed(what, "the text contains a zero byte"));
    }
    out.extend_from_slice(text.as_bytes());
    out.push(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_greeting_of_mysql_is_parsed() {
        // The bytes of a greeting as MySQL 9 sends it.
        let mut payload = b"\x0a9.7.1\0\x08\0\0\0ABCDEFGH\0\xff\xff\xff\x02\0\xff\xdf\x15".to_vec();
        payload.extend_from_slice(&[0; 10]);
        payload.extend_from_slice(b"IJKLMNOPQRST\0caching_sha2_password\0");
        let greeting = HandshakeV10::parse(&payload).unwrap();
        assert_eq!(greeting.flavour(), Flavour::MySql);
        assert_eq!(greeting.connection_id, 8);
        assert_eq!(greeting.auth_data, b"ABCDEFGHIJKLMNOPQRST");
        assert_eq!(greeting.auth_plugin, "caching_sha2_password");
        assert!(greeting.capabilities.has(Capabilities::DEPRECATE_EOF));
    }

    fn greetings() -> impl Strategy<Value = HandshakeV10> {
        let texts = ("[ -~]{0,30}", "[a-z_0-9]{0,30}");
        let numbers = (any::<u32>(), any::<u32>(), any::<u32>(), any::<u8>(), any::<u16>());
        (texts, numbers, prop::collection::vec(1u8.., 20)).prop_map(|(texts, numbers, auth_data)| {
            let needed = Capabilities::PROTOCOL_41 | Capabilities::SECURE_CONNECTION;
            let capabilities = Capabilities(numbers.1) | needed;
            HandshakeV10 {
                server_version: texts.0,
                connection_id: numbers.0,
                auth_data,
                capabilities,
                mariadb_capabilities: match capabilities.has(Capabilities::LONG_PASSWORD) {
                    true => MariadbCapabilities::default(),
                    false => MariadbCapabilities(numbers.2),
                },
                collation: numbers.3,
                status: ServerStatus(numbers.4),
                auth_plugin: match capabilities.has(Capabilities::PLUGIN_AUTH) {
                    true => texts.1,
                    false => String::new(),
                },
            }
        })
    }

    proptest! {
        #[test]
        fn greetings_round_trip(greeting in greetings()) {
            let mut out = Vec::new();
            greeting.encode(&mut out).unwrap();
            prop_assert_eq!(HandshakeV10::parse(&out).unwrap(), greeting);
        }

        #[test]
        fn answers_round_trip(
            bits: u32, extended: u32, packet_bytes_max: u32, collation: u8, user in "[^\0]{0,30}",
            auth_response in prop::collection::vec(any::<u8>(), 0..255), database in "[a-z]{1,10}",
            plugin in "[a-z_]{1,30}", attributes: Vec<(String, String)>,
        ) {
            let capabilities = Capabilities(bits) | Capabilities::PROTOCOL_41;
            let answer = HandshakeResponse {
                capabilities,
                mariadb_capabilities: match capabilities.has(Capabilities::LONG_PASSWORD) {
                    true => MariadbCapabilities::default(),
                    false => MariadbCapabilities(extended),
                },
                packet_bytes_max, collation, user, auth_response,
                database: capabilities.has(Capabilities::CONNECT_WITH_DB).then_some(database),
                auth_plugin: if capabilities.has(Capabilities::PLUGIN_AUTH) { plugin } else { String::new() },
                attributes: if capabilities.has(Capabilities::CONNECT_ATTRS) { attributes } else { Vec::new() },
            };
            let mut out = Vec::new();
            answer.encode(&mut out).unwrap();
            prop_assert_eq!(ClientAnswer::parse(&out).unwrap(), ClientAnswer::Response(answer.clone()));

            let mut out = Vec::new();
            answer.ssl_request().encode(&mut out);
            prop_assert_eq!(out.len(), SSL_REQUEST_BYTES);
            prop_assert_eq!(ClientAnswer::parse(&out).unwrap(), ClientAnswer::SslRequest(answer.ssl_request()));
        }

        #[test]
        fn any_bytes_parse_without_panic(bytes: Vec<u8>) {
            let _ = HandshakeV10::parse(&bytes);
            let _ = ClientAnswer::parse(&bytes);
        }

        #[test]
        fn a_truncated_greeting_is_an_error(greeting in greetings(), cut in 0usize..50) {
            let mut out = Vec::new();
            greeting.encode(&mut out).unwrap();
            // A greeting that is cut within the plugin's name is valid, because old servers omit the zero
            // byte after the name.
            let name = match greeting.capabilities.has(Capabilities::PLUGIN_AUTH) {
                true => greeting.auth_plugin.len() + 1,
                false => 0,
            };
            let cut = cut.min(out.len() - name - 1);
            prop_assert!(HandshakeV10::parse(&out[..cut]).is_err());
        }
    }
}
