//! The connected clients: what each of them does, and how far its stream has been sent.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

/// The clients that read a stream of a binlog server. After the server has stopped, the list is empty.
#[derive(Debug, Clone)]
pub struct StreamReaders(ClientRegistry);

/// A client that reads a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamReader {
    /// The client's server id; 0 for a program that is not a replica.
    pub server_id: u32,
    /// The client's `server_uuid`; empty if it sent none.
    pub uuid: String,
    /// The client's address.
    pub peer: SocketAddr,
    /// How far the stream was sent: the served file name, and the offset after the last event that was sent.
    pub sent: (String, u64),
}

impl StreamReaders {
    pub(super) fn of(clients: &ClientRegistry) -> Self {
        Self(clients.clone())
    }

    /// The clients that read a stream now.
    pub fn list(&self) -> Vec<StreamReader> {
        let reader = |client: ConnectedClient| {
            let stream = client.stream?;
            let uuid = client.replica.map(|replica| replica.uuid).unwrap_or_default();
            Some(StreamReader { server_id: stream.server_id, uuid, peer: client.peer, sent: stream.sent })
        };
        self.0.list().into_iter().filter_map(reader).collect()
    }
}

/// All clients that are connected to one binlog server.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientRegistry {
    connected: Arc<Mutex<BTreeMap<u32, ConnectedClient>>>,
}

/// The connection of one client.
#[derive(Debug, Clone)]
pub(crate) struct ConnectedClient {
    /// The connection id, for `KILL`.
    pub id: u32,
    /// The account that the client uses.
    pub user: String,
    /// The client's address.
    pub peer: SocketAddr,
    /// The data with which the client registered as a replica, if it did.
    pub replica: Option<ReplicaRegistration>,
    /// The stream that the client reads. `None` if it has not requested one.
    pub stream: Option<ClientStream>,
    /// When the client's current command started.
    pub since: Instant,
    stop: CancellationToken,
    displaced: Arc<AtomicBool>,
}

/// What a replica sends when it registers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReplicaRegistration {
    /// The replica's server id.
    pub server_id: u32,
    /// The host name that is shown for the replica; may be empty.
    pub host: String,
    /// The port that is shown for the replica; may be 0.
    pub port: u16,
    /// The replica's `server_uuid`; empty if it sent none.
    pub uuid: String,
}

/// The stream that a client reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClientStream {
    /// The client's server id; 0 for a program that is not a replica.
    pub server_id: u32,
    /// Whether the client is a replica, which reconnects under the same server id.
    pub is_replica: bool,
    /// How far the stream was sent: the served file name, and the offset after the last event that was sent.
    pub sent: (String, u64),
    /// The last file and offset that the client acknowledged. `None` if it has sent no semi-sync ACK.
    pub acknowledged: Option<(String, u64)>,
    /// Whether the client requested semi-sync.
    pub semi_sync: bool,
    /// Whether the client requested the stream by GTIDs.
    pub by_gtids: bool,
}

/// Represents the entry of one connection in the registry. Dropping this value removes the entry.
#[derive(Debug)]
pub(crate) struct ClientRegistration {
    clients: ClientRegistry,
    id: u32,
    stop: CancellationToken,
    displaced: Arc<AtomicBool>,
}

impl ClientRegistry {
    /// Adds a connection to the registry. Dropping the returned value removes the connection.
    pub(crate) fn add(&self, id: u32, user: &str, peer: SocketAddr) -> ClientRegistration {
        let stop = CancellationToken::new();
        let displaced = Arc::new(AtomicBool::new(false));
        let client = ConnectedClient {
            id,
            user: user.to_owned(),
            peer,
            replica: None,
            stream: None,
            since: Instant::now(),
            stop: stop.clone(),
            displaced: Arc::clone(&displaced),
        };
        self.lock().insert(id, client);
        ClientRegistration { clients: self.clone(), id, stop, displaced }
    }

    /// All clients, ordered by connection id.
    pub(crate) fn list(&self) -> Vec<ConnectedClient> {
        self.lock().values().cloned().collect()
    }

    /// Ends the connection with this id. Returns false if there is no such connection.
    pub(crate) fn kill(&self, id: u32) -> bool {
        let connected = self.lock();
        let client = connected.get(&id);
        if let Some(client) = client {
            client.stop.cancel();
        }
        client.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, ConnectedClient>> {
        self.connected.lock()
    }
}

impl ClientRegistration {
    /// The connection id of this client.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// A token that is cancelled when another connection ends this connection.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Whether [`ClientRegistration::stop`] was cancelled because the same replica connected again.
    pub(crate) fn is_displaced(&self) -> bool {
        self.displaced.load(Ordering::Relaxed)
    }

    /// Records the data with which the client registered as a replica.
    pub(crate) fn set_replica(&self, replica: ReplicaRegistration) {
        self.change(|client| client.replica = Some(replica));
    }

    /// Records the start of a stream. If another client has the same server id (or `server_uuid`), it is an
    /// older, dead connection of the same replica, or a replica with a copied configuration. Like MySQL and
    /// MariaDB, this method disconnects that client. Returns the number of clients that it disconnected.
    pub(crate) fn begin_stream(&self, stream: ClientStream) -> usize {
        let mut connected = self.clients.lock();
        let uuid = connected
            .get(&self.id)
            .and_then(|client| client.replica.as_ref())
            .map(|replica| replica.uuid.clone())
            .filter(|uuid| !uuid.is_empty());
        let mut displaced = 0;
        for other in connected.values().filter(|other| other.id != self.id) {
            let Some(its_stream) = &other.stream else { continue };
            let its_uuid =
                other.replica.as_ref().map(|replica| &replica.uuid).filter(|uuid| !uuid.is_empty());
            let same = match (&uuid, its_uuid) {
                (Some(ours), Some(theirs)) => ours == theirs,
                // Programs that are not replicas may all use the same server id.
                (None, None) => stream.is_replica && its_stream.server_id == stream.server_id,
                _ => false,
            };
            if same {
                other.displaced.store(true, Ordering::Relaxed);
                other.stop.cancel();
                displaced += 1;
            }
        }
        if let Some(client) = connected.get_mut(&self.id) {
            client.stream = Some(stream);
            client.since = Instant::now();
        }
        displaced
    }

    /// Records how far the stream of this client was sent.
    pub(crate) fn set_sent(&self, file: &str, position: u64) {
        self.change(|client| {
            if let Some(stream) = &mut client.stream {
                if stream.sent.0 != file {
                    stream.sent.0 = file.to_owned();
                }
                stream.sent.1 = position;
            }
        });
    }

    /// Records the last position that this client acknowledged.
    pub(crate) fn set_acknowledged(&self, file: &str, position: u64) {
        self.change(|client| {
            if let Some(stream) = &mut client.stream {
                stream.acknowledged = Some((file.to_owned(), position));
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut ConnectedClient)) {
        if let Some(client) = self.clients.lock().get_mut(&self.id) {
            change(client);
        }
    }
}

impl Drop for ClientRegistration {
    fn drop(&mut self) {
        self.clients.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(clients: &ClientRegistry, server_id: u32, uuid: &str) -> (ClientRegistration, usize) {
        let id = clients.list().len() as u32 + 1;
        let registered = clients.add(id, "repl", SocketAddr::from(([127, 0, 0, 1], 4000)));
        registered.set_replica(ReplicaRegistration {
            server_id,
            uuid: uuid.into(),
            ..ReplicaRegistration::default()
        });
        let displaced = registered.begin_stream(ClientStream {
            server_id,
            is_replica: server_id > 1,
            ..ClientStream::default()
        });
        (registered, displaced)
    }

    #[test]
    fn a_closed_connection_leaves_the_registry() {
        let clients = ClientRegistry::default();
        let (first, _) = connect(&clients, 7, "");
        first.set_sent("binlog.000001", 400);
        assert_eq!(clients.list()[0].stream.as_ref().unwrap().sent, ("binlog.000001".into(), 400));
        let id = first.id();
        drop(first);
        assert!(clients.list().is_empty() && !clients.kill(id));
    }

    #[test]
    fn a_replica_that_reconnects_ends_its_older_connection() {
        let check = |first: (u32, &str), second: (u32, &str), ends: bool| {
            let clients = ClientRegistry::default();
            let (older, _) = connect(&clients, first.0, first.1);
            let (newer, displaced) = connect(&clients, second.0, second.1);
            assert_eq!(displaced, usize::from(ends), "{first:?} {second:?}");
            assert_eq!((older.stop().is_cancelled(), newer.stop().is_cancelled()), (ends, false));
            assert_eq!(older.is_displaced(), ends);
        };
        check((7, ""), (7, ""), true);
        check((7, ""), (8, ""), false);
        check((7, "a"), (7, "b"), false);
        check((7, "a"), (9, "a"), true);
        // Programs that are not replicas do not end each other's connections.
        check((0, ""), (0, ""), false);
        check((1, ""), (1, ""), false);
    }
}
