//! The byte stream of a connection: TCP, TLS or a Unix socket.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;

use crate::connection_options::Endpoint;
use crate::error::SessionError;

/// TCP keepalive: seconds of idle time before the first probe.
const KEEPALIVE_IDLE_SECONDS: u32 = 30;
/// TCP keepalive: seconds between probes.
const KEEPALIVE_INTERVAL_SECONDS: u32 = 10;
/// TCP keepalive: unanswered probes before the connection fails.
const KEEPALIVE_PROBES: u32 = 4;

/// A byte stream to a server or a client.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Socket {
    /// Connects to `endpoint`. This method has no time limit, so the caller must set one.
    pub(crate) async fn connect(endpoint: &Endpoint) -> Result<Self, SessionError> {
        match endpoint {
            Endpoint::Tcp { host, port } => Self::connect_tcp(endpoint, host, *port).await,
            Endpoint::Unix { path } => match UnixStream::connect(path).await {
                Ok(stream) => Ok(Self::Unix(stream)),
                Err(source) => Err(SessionError::Connect { endpoint: endpoint.to_string(), source }),
            },
        }
    }

    async fn connect_tcp(endpoint: &Endpoint, host: &str, port: u16) -> Result<Self, SessionError> {
        let addresses = tokio::net::lookup_host((host, port))
            .await
            .map_err(|source| SessionError::Resolve { host: host.to_owned(), source })?;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    set_up(&stream)
                        .map_err(|source| SessionError::Connect { endpoint: endpoint.to_string(), source })?;
                    return Ok(Self::Tcp(stream));
                }
                Err(error) => last = error,
            }
        }
        Err(SessionError::Connect { endpoint: endpoint.to_string(), source: last })
    }

    /// Whether the stream is protected from eavesdropping, by TLS or because it is a Unix socket.
    pub(crate) fn is_private(&self) -> bool {
        match self {
            Self::Tcp(_) => false,
            Self::Unix(_) | Self::Tls(_) => true,
        }
    }
}

/// Disables Nagle's algorithm, because a commit waits for a small acknowledgement. Enables TCP keepalive, so
/// that a dead peer is detected even when there is nothing to send.
pub(crate) fn set_up(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    use std::time::Duration;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(KEEPALIVE_IDLE_SECONDS.into()))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(KEEPALIVE_INTERVAL_SECONDS.into()))?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    Ok(())
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
