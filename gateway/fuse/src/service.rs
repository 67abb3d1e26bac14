//! What the servers need from the owner of the files: sessions, and requests answered in any order.

use crate::completion::Completion;
use crate::protocol::attach::{Attach, AttachReply};
use crate::protocol::notify::Notification;
use crate::protocol::request::{Request, RequestHeader};
use crate::{Errno, Notifier};
use std::sync::Arc;

/// Whoever may be attached to.
pub trait Service: Send + Sync + 'static {
    /// Called once per connection, after every connection that this one takes the place of has come to rest: none of
    /// their requests is still being carried out. ENOENT: there is no such share.
    fn attach(&self, attach: &Attach, notifier: Notifier) -> Result<Attached, Errno>;
}

/// A connection's part of a session.
pub struct Attached {
    /// What answers the client's requests.
    pub session: Arc<dyn Session>,
    /// What the client is told.
    pub reply: AttachReply,
}

/// One connection of a client, or the devices that it brought.
pub trait Session: Send + Sync {
    /// Carries out one request. May take its time when [`Session::may_wait`] said so: others are read and carried out
    /// meanwhile, up to the server's limit of threads. The answer may also come later, from any thread.
    ///
    /// FORGETs come this way too; their completion does nothing, whatever it is given. An INTERRUPT does not: a
    /// request that can be taken back says so with [`Completion::on_interrupt`].
    fn handle(&self, header: &RequestHeader, request: Request, completion: Completion);

    /// Whether [`Session::handle`] may block its thread for longer than microseconds. What may not is carried out by
    /// the thread that reads, without a handover.
    fn may_wait(&self, request: &Request) -> bool {
        request.may_wait()
    }

    /// The file system was unmounted: the client comes back no more. May be called more than once, always before
    /// [`Session::detached`].
    fn unmounted(&self) {}

    /// The connection is gone, and its requests with it: answers lead nowhere from now on, and [`Session::handle`] is
    /// not called again. What still waits (for a lock) must be taken back now, for a client that attaches again waits
    /// until nothing of the old connection is left. Called exactly once; may run while requests are carried out.
    fn detached(&self);
}

/// Where a [`Notifier`]'s messages go.
pub(crate) trait NotifySink: Send + Sync {
    fn notify(&self, notification: Notification);
}
