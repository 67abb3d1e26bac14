//! Replies and notifications to one client over its socket.
//!
//! A client that takes no more notifications is cut off, for it would believe in what is no longer so.

use crate::completion::Replies;
use crate::interrupts::Interrupts;
use crate::protocol::notify::Notification;
use crate::protocol::reply::Encoded;
use crate::service::NotifySink;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tombolo_transport::{Held, InFlight, Message, Output, WhenFull};

/// About 4 MiB.
const NOTIFICATIONS_MAX: usize = 64 * 1024;

pub struct Messages {
    pub output: Arc<Output<Encoded, UnixStream>>,
    interrupts: Interrupts,
    /// Notifications are wanted: the client has its answer to ATTACH.
    notifying: AtomicBool,
}

impl Messages {
    pub fn new(socket: Arc<UnixStream>, in_flight: Arc<InFlight>) -> Self {
        Self {
            output: Output::new("fuse", socket, in_flight, WhenFull::HandOver),
            interrupts: Interrupts::default(),
            notifying: AtomicBool::new(false),
        }
    }

    /// Notifications before this are dropped: what a client has cached before it attached is its own affair.
    pub fn start_notifying(&self) {
        self.notifying.store(true, Ordering::SeqCst);
    }
}

impl Message for Encoded {
    fn head(&self) -> &[u8] {
        &self.head
    }

    fn body(&self) -> &[u8] {
        &self.body
    }
}

impl Replies for Messages {
    fn reply(&self, reply: Encoded, held: Held) {
        self.output.reply(reply, held);
    }

    fn interrupts(&self) -> &Interrupts {
        &self.interrupts
    }
}

impl NotifySink for Messages {
    fn notify(&self, notification: Notification) {
        if !self.notifying.load(Ordering::SeqCst) {
            return;
        }
        let message = Encoded {
            head: notification.encode(),
            body: Vec::new(),
        };
        if !self.output.notify(message, NOTIFICATIONS_MAX) {
            tracing::error!("a client takes no notifications; its connection is closed");
            self.output.close();
        }
    }
}
