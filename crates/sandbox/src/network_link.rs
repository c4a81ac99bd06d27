//! A network link with faults: a TCP proxy between clients and one server. Its latency, bandwidth and faults
//! can be changed while it runs.
//!
//! Clients connect to the link's port instead of the server's. The bytes of each direction wait in a bounded
//! queue. A direction that is cut drops its bytes, as when a network route is lost: neither side is notified,
//! and connections stay open until a timeout.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

/// Maximum number of bytes in flight in one direction of a connection. At this limit the link stops reading,
/// and the sender's socket buffer fills, as on a slow network.
const IN_FLIGHT_BYTES_MAX: usize = 4 << 20;
const READ_BYTES: usize = 64 << 10;
/// With a bandwidth limit, bytes are sent in parts that take about this long. Without a limit, all bytes that
/// were read at once are sent at once.
const SLICE: Duration = Duration::from_millis(5);

/// The conditions of one direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkConditions {
    /// One-way latency.
    pub latency: Duration,
    /// Bytes per second of each connection, at least 1; `None` for no limit.
    pub bandwidth: Option<u64>,
    /// Whether bytes are dropped silently.
    pub cut: bool,
}

/// A direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// The state of a link. `generation` counts resets; connections of an earlier generation are closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LinkState {
    to_server: LinkConditions,
    to_client: LinkConditions,
    refuse: bool,
    generation: u64,
}

impl LinkState {
    fn conditions(&self, direction: Direction) -> LinkConditions {
        match direction {
            Direction::ToServer => self.to_server,
            Direction::ToClient => self.to_client,
        }
    }
}

/// A running link. Dropping it closes its port and its connections.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    state: Arc<watch::Sender<LinkState>>,
    target: Arc<watch::Sender<SocketAddr>>,
    acceptor: JoinHandle<()>,
}

impl Link {
    /// Opens a link without faults to a server, on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// If no port can be opened for listening.
    pub async fn open(target: SocketAddr) -> io::Result<Self> {
        Self::open_at((Ipv4Addr::LOCALHOST, 0).into(), target).await
    }

    /// Opens a link at another loopback address. All addresses in 127.0.0.0/8 are loopback: at 127.0.0.2 the
    /// link can have the same port as its server.
    ///
    /// # Errors
    /// If the address cannot be opened for listening.
    pub async fn open_at(address: SocketAddr, target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let conditions = LinkConditions::default();
        let state = LinkState { to_server: conditions, to_client: conditions, refuse: false, generation: 0 };
        let state = Arc::new(watch::Sender::new(state));
        let target = Arc::new(watch::Sender::new(target));
        let acceptor = tokio::spawn(accept(listener, Arc::clone(&state), Arc::clone(&target)));
        Ok(Self { address, state, target, acceptor })
    }

    /// Returns the address that clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the port on 127.0.0.1 that clients connect to.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Connects new connections to another server. Open connections are not changed.
    pub fn set_target(&self, target: SocketAddr) {
        self.target.send_replace(target);
    }

    /// Sets the conditions of one direction. They also apply to open connections.
    pub fn set(&self, direction: Direction, conditions: LinkConditions) {
        self.state.send_modify(|state| match direction {
            Direction::ToServer => state.to_server = conditions,
            Direction::ToClient => state.to_client = conditions,
        });
    }

    /// Returns the current conditions of one direction.
    pub fn conditions(&self, direction: Direction) -> LinkConditions {
        self.state.borrow().conditions(direction)
    }

    /// Sets the latency of each direction. A round trip takes twice as long.
    pub fn set_latency(&self, one_way: Duration) {
        self.modify(|conditions| conditions.latency = one_way);
    }

    /// Sets the bandwidth of each direction, in bytes per second of each connection; `None` for no limit.
    pub fn set_bandwidth(&self, bytes_per_second: Option<u64>) {
        self.modify(|conditions| conditions.bandwidth = bytes_per_second);
    }

    /// Drops the bytes of one direction.
    pub fn cut(&self, direction: Direction) {
        self.set(direction, LinkConditions { cut: true, ..self.conditions(direction) });
    }

    /// Drops the bytes of both directions. New connections are accepted and get no data.
    pub fn cut_both(&self) {
        self.modify(|conditions| conditions.cut = true);
    }

    /// Closes all connections at once with a TCP reset to both sides. New connections work.
    pub fn reset(&self) {
        self.state.send_modify(|state| state.generation += 1);
    }

    /// Resets all connections, and each new connection at once, like a port on which no program listens.
    pub fn refuse(&self) {
        self.state.send_modify(|state| {
            state.refuse = true;
            state.generation += 1;
        });
    }

    /// Removes all faults. Connections that have lost bytes are reset, because TCP never continues with a
    /// gap.
    pub fn restore(&self) {
        self.state.send_modify(|state| {
            let was_cut = state.to_server.cut || state.to_client.cut;
            state.generation += u64::from(was_cut);
            (state.to_server, state.to_client) = (LinkConditions::default(), LinkConditions::default());
            state.refuse = false;
        });
    }

    fn modify(&self, change: impl Fn(&mut LinkConditions)) {
        self.state.send_modify(|state| {
            change(&mut state.to_server);
            change(&mut state.to_client);
        });
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The acceptor task owns the tasks of all connections, so aborting it also closes the connections.
        self.acceptor.abort();
    }
}

async fn accept(
    listener: TcpListener,
    state: Arc<watch::Sender<LinkState>>,
    target: Arc<watch::Sender<SocketAddr>>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    let target = *target.borrow();
                    connections.spawn(serve(client, target, state.subscribe()));
                }
                // The likely cause is that no file descriptor is free, so the link waits until some are
                // closed.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection until the client, the server or the link closes it.
async fn serve(client: TcpStream, target: SocketAddr, state: watch::Receiver<LinkState>) {
    let now = *state.borrow();
    if now.refuse {
        reset(&client);
        return;
    }
    let mut ended = state.clone();
    let over = ended.wait_for(|state| state.generation != now.generation);
    tokio::pin!(over);
    let connect = async {
        let socket = TcpSocket::new_v4()?;
        socket.connect(target).await
    };
    let server = tokio::select! {
        server = connect => server,
        _ = &mut over => Err(io::ErrorKind::ConnectionReset.into()),
    };
    let Ok(server) = server else {
        reset(&client);
        return;
    };
    let (mut client, mut server) = (client, server);
    // Small packets must not be delayed by TCP. Only the link adds delay.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let torn = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let both = async {
            tokio::join!(
                pass(from_client, to_server, Direction::ToServer, &state),
                pass(from_server, to_client, Direction::ToClient, &state),
            )
        };
        tokio::select! {
            _ = both => false,
            _ = over => true,
        }
    };
    if torn {
        reset(&client);
        reset(&server);
    }
}

/// Sets the socket so that closing it sends a TCP reset.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}

/// Bytes in flight, and the time at which they arrive.
struct DelayedBytes {
    due: Instant,
    bytes: Bytes,
}

/// Forwards the bytes of one direction until the sender closes its side or an error breaks the connection.
async fn pass(
    from: ReadHalf<'_>,
    to: WriteHalf<'_>,
    direction: Direction,
    state: &watch::Receiver<LinkState>,
) {
    // The queue has one entry for each read, and a read has a maximum size. So the bytes in flight are
    // limited.
    let (sender, receiver) = mpsc::channel(IN_FLIGHT_BYTES_MAX / READ_BYTES);
    let reading = read(from, sender, direction, state);
    let writing = write(to, receiver, direction, state);
    tokio::join!(reading, writing);
}

async fn read(
    mut from: ReadHalf<'_>,
    sender: mpsc::Sender<DelayedBytes>,
    direction: Direction,
    state: &watch::Receiver<LinkState>,
) {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(READ_BYTES);
        match from.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let conditions = state.borrow().conditions(direction);
        let bytes = buffer.split().freeze();
        if conditions.cut {
            continue;
        }
        let due = Instant::now() + conditions.latency;
        if sender.send(DelayedBytes { due, bytes }).await.is_err() {
            return;
        }
    }
}

async fn write(
    mut to: WriteHalf<'_>,
    mut receiver: mpsc::Receiver<DelayedBytes>,
    direction: Direction,
    state: &watch::Receiver<LinkState>,
) {
    // If the bandwidth is limited, this is the time at which the last byte will have been sent.
    let mut free = Instant::now();
    let mut waiting = VecDeque::new();
    loop {
        let delayed = match waiting.pop_front() {
            Some(delayed) => delayed,
            None => match receiver.recv().await {
                Some(delayed) => delayed,
                None => break,
            },
        };
        let DelayedBytes { due, mut bytes } = delayed;
        tokio::time::sleep_until(due).await;
        let conditions = state.borrow().conditions(direction);
        if conditions.cut {
            continue;
        }
        if let Some(bandwidth) = conditions.bandwidth {
            let bandwidth = bandwidth.max(1);
            let slice = (u128::from(bandwidth) * SLICE.as_micros() / 1_000_000).max(1);
            if let Ok(slice) = usize::try_from(slice)
                && bytes.len() > slice
            {
                let rest = bytes.split_off(slice);
                waiting.push_front(DelayedBytes { due, bytes: rest });
            }
            tokio::time::sleep_until(free).await;
            let takes = Duration::from_secs_f64(bytes.len() as f64 / bandwidth as f64);
            free = free.max(Instant::now()) + takes;
        }
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
    // The sender has closed its side, so the link closes the connection to the receiver.
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a server that sends back what it receives, and a link to it.
    async fn echo() -> (Link, JoinHandle<()>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("listen");
        let address = listener.local_addr().expect("address");
        let server = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                connections.spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        (Link::open(address).await.expect("link"), server)
    }

    async fn exchange(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
        stream.write_all(bytes).await?;
        let mut back = vec![0; bytes.len()];
        stream.read_exact(&mut back).await?;
        assert_eq!(back, bytes);
        Ok(())
    }

    async fn silent(stream: &mut TcpStream) -> bool {
        let mut byte = [0];
        tokio::time::timeout(Duration::from_millis(200), stream.read(&mut byte)).await.is_err()
    }

    #[tokio::test]
    async fn bytes_and_the_end_of_a_connection_are_forwarded() {
        let (link, server) = echo().await;
        let mut stream = TcpStream::connect(link.address()).await.expect("connect");
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        let (mut from, mut to) = stream.split();
        let mut back = Vec::new();
        let sending = async {
            to.write_all(&bytes).await?;
            to.shutdown().await
        };
        let (sent, read) = tokio::join!(sending, from.read_to_end(&mut back));
        assert!(sent.is_ok() && read.is_ok());
        assert!(back == bytes, "only {} bytes came back", back.len());
        server.abort();
    }

    #[tokio::test]
    async fn latency_is_added_to_each_direction() {
        let (link, server) = echo().await;
        let mut stream = TcpStream::connect(link.address()).await.expect("connect");
        link.set_latency(Duration::from_millis(60));
        let began = Instant::now();
        exchange(&mut stream, b"ping").await.expect("exchange");
        assert!(began.elapsed() >= Duration::from_millis(120));
        server.abort();
    }

    #[tokio::test]
    async fn bandwidth_is_limited() {
        let (link, server) = echo().await;
        let mut stream = TcpStream::connect(link.address()).await.expect("connect");
        link.set(
            Direction::ToServer,
            LinkConditions { bandwidth: Some(1_000_000), ..LinkConditions::default() },
        );
        let began = Instant::now();
        exchange(&mut stream, &vec![7; 200_000]).await.expect("exchange");
        // The first part is sent at once, so the transfer takes a little less than 0.2 s.
        assert!(began.elapsed() >= Duration::from_millis(180), "200 kB took only {:?}", began.elapsed());
        server.abort();
    }

    #[tokio::test]
    async fn a_cut_is_silent_and_a_restored_link_resets_connections_that_lost_bytes() {
        let (link, server) = echo().await;
        for direction in [Direction::ToServer, Direction::ToClient] {
            let mut stream = TcpStream::connect(link.address()).await.expect("connect");
            exchange(&mut stream, b"before").await.expect("exchange");
            link.cut(direction);
            stream.write_all(b"lost").await.expect("a cut link must not close the connection");
            assert!(silent(&mut stream).await);
            let mut late =
                TcpStream::connect(link.address()).await.expect("a cut link must accept new connections");
            late.write_all(b"lost").await.expect("a cut link must accept bytes");
            assert!(silent(&mut late).await);
            link.restore();
            let error = exchange(&mut stream, b"after").await.err().map(|error| error.kind());
            assert!(error.is_some(), "a connection that lost bytes continued");
            let mut fresh = TcpStream::connect(link.address()).await.expect("connect again");
            exchange(&mut fresh, b"again").await.expect("a restored link must forward bytes");
        }
        server.abort();
    }

    #[tokio::test]
    async fn a_reset_closes_connections_and_a_refusal_closes_new_ones() {
        let (link, server) = echo().await;
        let mut stream = TcpStream::connect(link.address()).await.expect("connect");
        exchange(&mut stream, b"before").await.expect("exchange");
        link.reset();
        let mut byte = [0];
        let error = stream.read(&mut byte).await.err().map(|error| error.kind());
        assert_eq!(error, Some(io::ErrorKind::ConnectionReset));
        link.refuse();
        let refused = async {
            let mut stream = TcpStream::connect(link.address()).await?;
            exchange(&mut stream, b"x").await
        };
        assert!(refused.await.is_err());
        link.restore();
        let mut stream = TcpStream::connect(link.address()).await.expect("connect");
        exchange(&mut stream, b"after").await.expect("exchange");
        server.abort();
    }
}
