//! The connections of a server, and what is known of their clients.

use crate::server::Protocol;
use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The open connections of one server.
pub struct Registry<P: Protocol> {
    connections_max: usize,
    table: Mutex<Table<P>>,
    /// A connection has left.
    left: Condvar,
}

/// What a [`Registry`] holds, while it is locked.
pub struct Table<P: Protocol> {
    entries: HashMap<u64, Entry<P>>,
    id_next: u64,
    is_stopping: bool,
}

struct Entry<P: Protocol> {
    connection: Arc<P::Connection>,
    client: Option<P::Client>,
}

impl<P: Protocol> Table<P> {
    /// The connection has not ended.
    pub fn contains(&self, id: u64) -> bool {
        self.entries.contains_key(&id)
    }

    /// The connections whose clients are known, by number.
    pub fn clients(&self) -> impl Iterator<Item = (u64, &P::Client, &Arc<P::Connection>)> {
        let entries = self.entries.iter();
        entries.filter_map(|(id, entry)| Some((*id, entry.client.as_ref()?, &entry.connection)))
    }

    /// The connection's client is known from now on; nothing happens when it has ended.
    pub fn set_client(&mut self, id: u64, client: P::Client) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.client = Some(client);
        }
    }

    /// No more connections are taken.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping
    }
}

impl<P: Protocol> Registry<P> {
    pub(crate) fn new(connections_max: usize) -> Self {
        let table = Table {
            entries: HashMap::new(),
            id_next: 0,
            is_stopping: false,
        };
        Self {
            connections_max,
            table: Mutex::new(table),
            left: Condvar::new(),
        }
    }

    /// Every critical section leaves the table consistent.
    pub fn lock(&self) -> MutexGuard<'_, Table<P>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` when there are too many, or the server stops.
    pub(crate) fn register(self: &Arc<Self>, protocol: &P, socket: UnixStream) -> Option<Registration<P>> {
        let mut table = self.lock();
        if table.is_stopping || table.entries.len() >= self.connections_max {
            return None;
        }
        let id = table.id_next;
        table.id_next += 1;
        let connection = Arc::new(protocol.begin(id, socket));
        let entry = Entry {
            connection: Arc::clone(&connection),
            client: None,
        };
        table.entries.insert(id, entry);
        Some(Registration {
            registry: Arc::clone(self),
            id,
            connection,
        })
    }

    /// Connections at this moment.
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Nobody is connected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn connections_max(&self) -> usize {
        self.connections_max
    }

    /// No further connection is registered.
    pub(crate) fn stop(&self) {
        self.lock().is_stopping = true;
    }

    /// Those of this moment, in no particular order.
    pub fn connections(&self) -> Vec<Arc<P::Connection>> {
        let table = self.lock();
        let connections = table.entries.values().map(|entry| Arc::clone(&entry.connection));
        connections.collect()
    }

    /// Says how many connections are left.
    pub fn wait_until_empty(&self, deadline: Instant) -> usize {
        self.wait_while(deadline, |table| !table.entries.is_empty());
        self.len()
    }

    /// Asks again whenever a connection has left; false when it took too long.
    pub fn wait_while(&self, deadline: Instant, condition: impl Fn(&Table<P>) -> bool) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let (table, _) = self
            .left
            .wait_timeout_while(self.lock(), left, |table| condition(table))
            .unwrap_or_else(PoisonError::into_inner);
        !condition(&table)
    }
}

/// A connection's place in the registry, given up when its thread ends.
pub struct Registration<P: Protocol> {
    /// Where the connection is registered, until this is dropped.
    pub registry: Arc<Registry<P>>,
    /// The connection's number, never given twice.
    pub id: u64,
    /// What the protocol made of it.
    pub connection: Arc<P::Connection>,
}

impl<P: Protocol> Drop for Registration<P> {
    fn drop(&mut self) {
        self.registry.lock().entries.remove(&self.id);
        self.registry.left.notify_all();
    }
}
