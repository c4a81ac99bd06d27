//! Who is connected, what they are doing, and how far they have come.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio_util::sync::CancellationToken;

/// Who reads a binlog server's streams, for whoever wants to know; it may outlive the server, and is empty then.
#[derive(Debug, Clone)]
pub struct StreamReaders(ClientRegistry);

/// Somebody who reads a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamReader {
    /// Its server id; 0 for a program that only looks.
    pub server_id: u32,
    /// Its `server_uuid`; empty if it did not say.
    pub uuid: String,
    /// From where it is connected.
    pub peer: SocketAddr,
    /// The file that it was sent last, as it knows it, and the offset in it.
    pub sent: (String, u64),
}

impl StreamReaders {
    pub(super) fn of(clients: &ClientRegistry) -> Self {
        Self(clients.clone())
    }

    /// All of them now.
    pub fn list(&self) -> Vec<StreamReader> {
        let reader = |client: ConnectedClient| {
            let stream = client.stream?;
            let uuid = client.replica.map(|replica| replica.uuid).unwrap_or_default();
            Some(StreamReader { server_id: stream.server_id, uuid, peer: client.peer, sent: stream.sent })
        };
        self.0.list().into_iter().filter_map(reader).collect()
    }
}

/// Everybody who is connected to one binlog server.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientRegistry {
    connected: Arc<Mutex<BTreeMap<u32, ConnectedClient>>>,
}

/// One connection.
#[derive(Debug, Clone)]
pub(crate) struct ConnectedClient {
    /// Its number, for `KILL`.
    pub id: u32,
    /// Who it is.
    pub user: String,
    /// From where.
    pub peer: SocketAddr,
    /// What it said of itself as a replica.
    pub replica: Option<ReplicaRegistration>,
    /// The stream that it reads, if it does.
    pub stream: Option<ClientStream>,
    /// Since when it does what it does.
    pub since: Instant,
    stop: CancellationToken,
    displaced: Arc<AtomicBool>,
}

/// What a replica says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReplicaRegistration {
    /// Its server id.
    pub server_id: u32,
    /// Host and port to be shown for it; may be empty and 0.
    pub host: String,
    /// See `host`.
    pub port: u16,
    /// Its `server_uuid`; empty if it did not say.
    pub uuid: String,
}

/// A stream that somebody reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClientStream {
    /// The replica's server id; 0 for a program that only looks.
    pub server_id: u32,
    /// It is a replica, which comes again under that server id.
    pub is_replica: bool,
    /// The file that it was sent last, as it knows it, and the offset in it.
    pub sent: (String, u64),
    /// What it acknowledged last, if it does so.
    pub acknowledged: Option<(String, u64)>,
    /// It asked for semi-sync.
    pub semi_sync: bool,
    /// It asked by GTIDs.
    pub by_gtids: bool,
}

/// Takes a connection off the list when it ends.
#[derive(Debug)]
pub(crate) struct ClientRegistration {
    clients: ClientRegistry,
    id: u32,
    stop: CancellationToken,
    displaced: Arc<AtomicBool>,
}

impl ClientRegistry {
    /// Puts a connection on the list, under the number that it was told.
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

    /// All of them, by their number.
    pub(crate) fn list(&self) -> Vec<ConnectedClient> {
        self.lock().values().cloned().collect()
    }

    /// Ends a connection; false if there is none of that number.
    pub(crate) fn kill(&self, id: u32) -> bool {
        let connected = self.lock();
        let client = connected.get(&id);
        if let Some(client) = client {
            client.stop.cancel();
        }
        client.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, ConnectedClient>> {
        // Nothing panics while the lock is held, so a poisoned one still guards sound data.
        self.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientRegistration {
    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Cancelled when somebody ends it.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Whether [`ClientRegistration::stop`] was cancelled because the same replica has come again.
    pub(crate) fn is_displaced(&self) -> bool {
        self.displaced.load(Ordering::Relaxed)
    }

    /// Notes what it says of itself.
    pub(crate) fn set_replica(&self, replica: ReplicaRegistration) {
        self.change(|client| client.replica = Some(replica));
    }

    /// It begins to read. Whoever reads under the same server id (or `server_uuid`) is an older connection of the same
    /// replica, which does not know yet that it is dead, or a replica with a copied configuration: it is ended, as the
    /// servers do. Gives the number of the connections that were ended.
    pub(crate) fn begin_stream(&self, stream: ClientStream) -> usize {
        let mut connected = self.clients.lock();
        let uuid = connected
            .get(&self.id)
            .and_then(|client| client.replica.as_ref())
            .map(|replica| replica.uuid.clone())
            .filter(|uuid| !uuid.is_empty());
        let mut ended = 0;
        for other in connected.values().filter(|other| other.id != self.id) {
            let Some(its_stream) = &other.stream else { continue };
            let its_uuid =
                other.replica.as_ref().map(|replica| &replica.uuid).filter(|uuid| !uuid.is_empty());
            let same = match (&uuid, its_uuid) {
                (Some(ours), Some(theirs)) => ours == theirs,
                // Programs that only look all use the same.
                (None, None) => stream.is_replica && its_stream.server_id == stream.server_id,
                _ => false,
            };
            if same {
                other.displaced.store(true, Ordering::Relaxed);
                other.stop.cancel();
                ended += 1;
            }
        }
        if let Some(client) = connected.get_mut(&self.id) {
            client.stream = Some(stream);
            client.since = Instant::now();
        }
        ended
    }

    /// Notes how far its stream is.
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

    /// Notes what it acknowledged.
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
        let ended = registered.begin_stream(ClientStream {
            server_id,
            is_replica: server_id > 1,
            ..ClientStream::default()
        });
        (registered, ended)
    }

    #[test]
    fn who_goes_is_off_the_list() {
        let clients = ClientRegistry::default();
        let (first, _) = connect(&clients, 7, "");
        first.set_sent("binlog.000001", 400);
        assert_eq!(clients.list()[0].stream.as_ref().unwrap().sent, ("binlog.000001".into(), 400));
        let id = first.id();
        drop(first);
        assert!(clients.list().is_empty() && !clients.kill(id));
    }

    #[test]
    fn a_replica_that_comes_again_ends_its_older_connection() {
        let check = |first: (u32, &str), second: (u32, &str), ends: bool| {
            let clients = ClientRegistry::default();
            let (older, _) = connect(&clients, first.0, first.1);
            let (newer, ended) = connect(&clients, second.0, second.1);
            assert_eq!(ended, usize::from(ends), "{first:?} {second:?}");
            assert_eq!((older.stop().is_cancelled(), newer.stop().is_cancelled()), (ends, false));
            assert_eq!(older.is_displaced(), ends);
        };
        check((7, ""), (7, ""), true);
        check((7, ""), (8, ""), false);
        check((7, "a"), (7, "b"), false);
        check((7, "a"), (9, "a"), true);
        // Programs that only look.
        check((0, ""), (0, ""), false);
        check((1, ""), (1, ""), false);
    }
}
