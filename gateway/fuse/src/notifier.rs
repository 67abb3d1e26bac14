//! Sends notifications to one client.

use crate::protocol::notify::Notification;
use crate::service::NotifySink;
use std::sync::Weak;

/// Sends to one connection's client what it did not ask for. May be used from any thread and with locks held: it never
/// waits. Once the connection is gone, and for a client that wants none, it does nothing.
#[derive(Clone)]
pub struct Notifier(Option<Weak<dyn NotifySink>>);

impl Notifier {
    pub(crate) fn to(sink: Weak<dyn NotifySink>) -> Self {
        Self(Some(sink))
    }

    /// For a client that wants no notifications.
    pub fn silent() -> Self {
        Self(None)
    }

    /// The client takes no notifications; what is notified is dropped.
    pub fn is_silent(&self) -> bool {
        self.0.is_none()
    }

    /// Queued, and dropped if the client has left.
    pub fn notify(&self, notification: Notification) {
        if let Some(sink) = self.0.as_ref().and_then(Weak::upgrade) {
            sink.notify(notification);
        }
    }
}
