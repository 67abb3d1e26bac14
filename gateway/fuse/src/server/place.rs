//! Which connection takes the place of which.

use super::Registration;
use super::connection::Connection;
use crate::protocol::attach::Attach;
use std::sync::Arc;
use std::time::Instant;
use tombolo_transport::socket::peer_is_gone;

/// Who is attached.
pub struct Client {
    name: String,
    share: String,
    incarnation: u64,
    device: bool,
}

impl Client {
    fn of(attach: &Attach) -> Self {
        Self {
            name: attach.client_name.clone(),
            share: attach.share_name.clone(),
            incarnation: attach.incarnation,
            device: attach.device,
        }
    }

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

/// Why a connection cannot take its client's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceError {
    /// Another living client has the name.
    InUse,
    /// What the client had asked for before has not come to rest in time.
    NotAtRest,
}

/// Ends the connections whose place this one takes, and waits until nothing of them is under way.
pub fn take_place(registration: &Registration, attach: &Attach, deadline: Instant) -> Result<(), PlaceError> {
    let replaced = enter(registration, attach)?;
    replaced.iter().for_each(|connection| connection.end());
    let is_at_rest = registration.registry.wait_while(deadline, |table| {
        replaced.iter().any(|connection| table.contains(connection.id))
    });
    if is_at_rest { Ok(()) } else { Err(PlaceError::NotAtRest) }
}

/// The connections that make way. In the same step the new one is entered, so that of two that attach at once the later
/// one finds the earlier.
fn enter(registration: &Registration, attach: &Attach) -> Result<Vec<Arc<Connection>>, PlaceError> {
    let mut table = registration.registry.lock();
    let others = || table.clients().filter(|(id, ..)| *id != registration.id);
    if others().any(|(_, client, connection)| client.is_in_the_way(attach, connection)) {
        return Err(PlaceError::InUse);
    }
    let replaced = others()
        .filter(|(_, client, connection)| client.makes_way(attach, connection))
        .map(|(_, _, connection)| Arc::clone(connection))
        .collect();
    table.set_client(registration.id, Client::of(attach));
    Ok(replaced)
}
