//! The connections of a server, and which of them takes the place of which.

use super::connection::Connection;
use crate::protocol::attach::Attach;
use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tombolo_transport::socket::peer_is_gone;

#[derive(Default)]
pub struct Registry {
    table: Mutex<Table>,
    /// A connection has left.
    left: Condvar,
}

#[derive(Default)]
struct Table {
    connections: HashMap<u64, Entry>,
    id_next: u64,
    stopping: bool,
}

struct Entry {
    connection: Arc<Connection>,
    /// From ATTACH on.
    client: Option<Client>,
}

struct Client {
    name: String,
    share: String,
    incarnation: u64,
    device: bool,
}

impl Client {
    /// Whether this client's connection makes way for a new one, by the same name on the same share, that
    ///
    /// | the new one | makes way |
    /// |---|---|
    /// | is another incarnation | every connection: that client is no more (if it is, see [`Self::is_in_the_way`]) |
    /// | brings devices | those that serve devices: a mount is served once |
    /// | resumes | those that the client has closed: it sends again what it lacks the answer to |
    fn makes_way(&self, new: &Attach, connection: &Connection) -> bool {
        self.is_named_as(new)
            && (self.incarnation != new.incarnation
                || (self.device && new.device)
                || (new.resume && peer_is_gone(&connection.socket)))
    }

    /// Whether this connection is a living client's of the new one's name: two run under one name by mistake, and would
    /// otherwise end each other's locks and open files for ever.
    fn is_in_the_way(&self, new: &Attach, connection: &Connection) -> bool {
        self.is_named_as(new) && self.incarnation != new.incarnation && !peer_is_gone(&connection.socket)
    }

    fn is_named_as(&self, new: &Attach) -> bool {
        self.name == new.client_name && self.share == new.share_name
    }
}

impl Table {
    /// The attached connections but for one.
    fn others(&self, id: u64) -> impl Iterator<Item = (&Client, &Arc<Connection>)> {
        let entries = self.connections.values().filter(move |entry| entry.connection.id != id);
        entries.filter_map(|entry| Some((entry.client.as_ref()?, &entry.connection)))
    }
}

impl Registry {
    /// Every critical section leaves the table consistent.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` when there are too many, or the server stops.
    pub fn register(
        self: &Arc<Self>,
        connections_max: usize,
        socket: UnixStream,
        make: impl FnOnce(u64, UnixStream) -> Connection,
    ) -> Option<Registration> {
        let mut table = self.lock();
        if table.stopping || table.connections.len() >= connections_max {
            return None;
        }
        let id = table.id_next;
        table.id_next += 1;
        let connection = Arc::new(make(id, socket));
        let entry = Entry {
            connection: Arc::clone(&connection),
            client: None,
        };
        table.connections.insert(id, entry);
        Some(Registration {
            registry: Arc::clone(self),
            connection,
        })
    }

    pub fn len(&self) -> usize {
        self.lock().connections.len()
    }

    /// No further connection is registered.
    pub fn stop(&self) {
        self.lock().stopping = true;
    }

    pub fn is_stopping(&self) -> bool {
        self.lock().stopping
    }

    pub fn connections(&self) -> Vec<Arc<Connection>> {
        let table = self.lock();
        table
            .connections
            .values()
            .map(|entry| Arc::clone(&entry.connection))
            .collect()
    }

    /// Says how many connections are left.
    pub fn wait_until_empty(&self, deadline: Instant) -> usize {
        self.wait_while(deadline, |table| !table.connections.is_empty());
        self.len()
    }

    fn wait_while(&self, deadline: Instant, condition: impl Fn(&Table) -> bool) -> bool {
        let mut table = self.lock();
        while condition(&table) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let (woken, _) = self
                .left
                .wait_timeout(table, left)
                .unwrap_or_else(PoisonError::into_inner);
            table = woken;
        }
        true
    }
}

/// A connection's place in the registry, given up when its thread ends.
pub struct Registration {
    registry: Arc<Registry>,
    pub connection: Arc<Connection>,
}

/// Why a connection cannot take its client's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceError {
    /// Another living client has the name.
    InUse,
    /// What the client had asked for before has not come to rest in time.
    NotAtRest,
}

impl Registration {
    /// Ends the connections whose place this one takes, and waits until nothing of them is under way.
    pub fn take_place(&self, attach: &Attach, deadline: Instant) -> Result<(), PlaceError> {
        let id = self.connection.id;
        let mut table = self.registry.lock();
        if table
            .others(id)
            .any(|(client, connection)| client.is_in_the_way(attach, connection))
        {
            return Err(PlaceError::InUse);
        }
        let replaced: Vec<Arc<Connection>> = table
            .others(id)
            .filter(|(client, connection)| client.makes_way(attach, connection))
            .map(|(_, connection)| Arc::clone(connection))
            .collect();
        // In the same step, so that of two that attach at once the later one finds the earlier.
        if let Some(entry) = table.connections.get_mut(&id) {
            entry.client = Some(Client {
                name: attach.client_name.clone(),
                share: attach.share_name.clone(),
                incarnation: attach.incarnation,
                device: attach.device,
            });
        }
        drop(table);
        replaced.iter().for_each(|connection| connection.end());
        let is_at_rest = self.registry.wait_while(deadline, |table| {
            replaced
                .iter()
                .any(|connection| table.connections.contains_key(&connection.id))
        });
        if is_at_rest { Ok(()) } else { Err(PlaceError::NotAtRest) }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.lock().connections.remove(&self.connection.id);
        self.registry.left.notify_all();
    }
}
