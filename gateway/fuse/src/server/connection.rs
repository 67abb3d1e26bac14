//! One connection from ATTACH to its end.
//!
//! | state | what happens |
//! |---|---|
//! | attaching | the ATTACH is read and answered; connections that this one takes the place of come to rest first |
//! | serving | requests are read, from the socket or from the devices |
//! | stopping | nothing more is read; what was read is answered (a shutdown) |
//! | ended | answers lead nowhere; the session was told, and whoever waits was interrupted |
//!
//! The connection leaves the registry when it has ended and nothing of it is under way any more. Until then a client
//! that comes back waits: a request that it sends again must not overlap with its first try.

use super::Registration;
use super::device::{DeviceThreads, Devices};
use super::input::Input;
use super::messages::Messages;
use super::place::{PlaceError, take_place};
use super::stream::Stream;
use crate::completion::Replies;
use crate::notifier::Notifier;
use crate::protocol::abi::{IN_HEADER_BYTES, InHeader};
use crate::protocol::attach::{ATTACH_MESSAGE_BYTES_MAX, Attach};
use crate::protocol::flags::init;
use crate::protocol::opcode::Opcode;
use crate::protocol::reply::Encoded;
use crate::protocol::wire::Wire;
use crate::service::{NotifySink, Service, Session};
use crate::{Errno, ServerConfig};
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Instant;
use tombolo_transport::descriptors::receive_with_descriptors;
use tombolo_transport::socket::wait_for_either;
use tombolo_transport::{InFlight, Limits, Sink};

pub struct Connection {
    pub id: u64,
    pub socket: Arc<UnixStream>,
    pub messages: Arc<Messages>,
    pub in_flight: Arc<InFlight>,
    stopping: AtomicBool,
    life: Mutex<Life>,
}

#[derive(Default)]
struct Life {
    /// From ATTACH until the end.
    session: Option<Arc<dyn Session>>,
    devices: Option<Arc<Devices>>,
    ended: bool,
}

impl Connection {
    pub fn new(id: u64, socket: UnixStream, config: &ServerConfig) -> Self {
        let socket = Arc::new(socket);
        let limits = Limits {
            requests_max: config.requests_in_flight_max,
            bytes_max: config.bytes_in_flight_max,
            lock_waiters_max: config.lock_waiters_max,
        };
        let in_flight = Arc::new(InFlight::new(limits, Arc::clone(&config.budget)));
        Self {
            id,
            messages: Arc::new(Messages::new(Arc::clone(&socket), Arc::clone(&in_flight))),
            socket,
            in_flight,
            stopping: AtomicBool::new(false),
            life: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing more is read; what was read is still answered.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Fails only when the client has closed already.
        let _ = self.socket.shutdown(Shutdown::Read);
        if let Some(devices) = &self.lock().devices {
            devices.stop();
        }
    }

    pub fn is_ending(&self) -> bool {
        self.stopping.load(Ordering::SeqCst) || self.lock().ended
    }

    /// Everything was read: the client is gone, unless reading was stopped from here.
    pub fn on_input_over(&self) {
        if !self.stopping.load(Ordering::SeqCst) {
            self.end();
        }
    }

    /// Cuts the client off and has its requests given up. Does not wait for them.
    pub fn end(&self) {
        let mut life = self.lock();
        life.ended = true;
        let session = life.session.take();
        let devices = life.devices.clone();
        drop(life);
        self.in_flight.end();
        if let Some(devices) = &devices {
            devices.mute();
            devices.stop();
            devices.interrupts().interrupt_all();
        }
        self.messages.output.close();
        self.messages.interrupts().interrupt_all();
        if let Some(session) = session {
            // Whoever unmounted may have closed the connection before a thread could find the device dead.
            if devices.is_some_and(|devices| devices.are_disconnected()) {
                session.unmounted();
            }
            session.detached();
        }
    }

    /// The connection has its session. Should it have ended meanwhile, the session hears of it at once.
    fn enter(&self, session: Arc<dyn Session>, devices: Option<Arc<Devices>>) {
        let mut life = self.lock();
        life.session = Some(session);
        life.devices = devices;
        let ended = life.ended;
        drop(life);
        if ended {
            self.end();
        } else if self.stopping.load(Ordering::SeqCst) {
            self.stop();
        }
    }
}

/// Serves one client from its first byte on, and returns when nothing of it is left.
pub fn run(registration: &Registration, service: &dyn Service, config: &ServerConfig) {
    let connection = &registration.connection;
    if let Err(error) = attach_and_serve(registration, service, config)
        && !connection.is_ending()
    {
        tracing::warn!(connection = connection.id, %error, "a client has not attached");
    }
    connection.on_input_over();
    connection.in_flight.wait_until_gone();
    connection.end();
    connection.messages.output.join_writer();
}

fn attach_and_serve(registration: &Registration, service: &dyn Service, config: &ServerConfig) -> io::Result<()> {
    let connection = &registration.connection;
    connection.socket.set_read_timeout(Some(config.attach_timeout))?;
    connection.socket.set_write_timeout(Some(config.attach_timeout))?;
    let mut descriptors = Vec::new();
    let Some((unique, body)) = receive_attach(&connection.socket, &mut descriptors)? else {
        return Ok(());
    };
    let attaching = Attaching {
        registration,
        service,
        config,
    };
    match attaching.attach(&body, descriptors) {
        Ok(served) => {
            connection.socket.set_read_timeout(None)?;
            connection.socket.set_write_timeout(Some(config.client_timeout))?;
            connection.socket.send_all(&served.reply.encode(unique))?;
            connection.messages.start_notifying();
            served.run(connection, config);
        }
        Err(errno) => connection.socket.send_all(&Encoded::error(unique, errno).head)?,
    }
    Ok(())
}

/// Unique and body of the first message; `None` when the client leaves without one.
fn receive_attach(socket: &UnixStream, descriptors: &mut Vec<OwnedFd>) -> io::Result<Option<(u64, Vec<u8>)>> {
    let mut header = [0; IN_HEADER_BYTES];
    if !receive_exact(socket, &mut header, descriptors)? {
        return Ok(None);
    }
    let header = InHeader::get(&header);
    let bytes = header.len as usize;
    if header.opcode != Opcode::Attach.number() || !(IN_HEADER_BYTES..=ATTACH_MESSAGE_BYTES_MAX).contains(&bytes) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("opcode {} with {bytes} bytes where ATTACH is due", header.opcode),
        ));
    }
    let mut body = vec![0; bytes - IN_HEADER_BYTES];
    if !body.is_empty() && !receive_exact(socket, &mut body, descriptors)? {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some((header.unique, body)))
}

/// False when the stream ends before the first byte.
fn receive_exact(socket: &UnixStream, buffer: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        match receive_with_descriptors(socket, &mut buffer[filled..], descriptors)? {
            0 if filled == 0 => return Ok(false),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            received => filled += received,
        }
    }
    Ok(true)
}

struct Attaching<'a> {
    registration: &'a Registration,
    service: &'a dyn Service,
    config: &'a ServerConfig,
}

/// What was attached.
struct Served {
    session: Arc<dyn Session>,
    devices: Option<Arc<Devices>>,
    reply: crate::AttachReply,
}

impl Attaching<'_> {
    fn attach(&self, body: &[u8], descriptors: Vec<OwnedFd>) -> Result<Served, Errno> {
        let attach = Attach::decode(body)?;
        if attach.device == descriptors.is_empty() {
            return Err(Errno::INVAL);
        }
        let deadline = Instant::now() + self.config.replace_timeout;
        take_place(self.registration, &attach, deadline).map_err(|error| {
            let client = &attach.client_name;
            match error {
                PlaceError::NotAtRest => {
                    tracing::warn!(client, "a client is back before its last requests have come to rest");
                }
                PlaceError::InUse => tracing::error!(
                    client,
                    share = attach.share_name,
                    "a client is refused: another has its name and is alive; give each Ganesha an Instance of its own"
                ),
            }
            Errno::BUSY
        })?;
        let connection = &self.registration.connection;
        let devices = match attach.device {
            true => Some(Arc::new(open_devices(&attach, descriptors, &connection.in_flight)?)),
            false => None,
        };
        let attached = self.service.attach(&attach, notifier(&attach, &connection.messages))?;
        connection.enter(Arc::clone(&attached.session), devices.clone());
        // Not before the service knows the session: what is sent again is read at once.
        if let Some(devices) = devices.as_ref().filter(|_| attach.resume) {
            resend(&attach, devices);
        }
        Ok(Served {
            session: attached.session,
            devices,
            reply: attached.reply,
        })
    }
}

fn open_devices(attach: &Attach, descriptors: Vec<OwnedFd>, in_flight: &Arc<InFlight>) -> Result<Devices, Errno> {
    Devices::new(descriptors, Arc::clone(in_flight)).map_err(|error| {
        tracing::error!(%error, client = attach.client_name, "the devices of a mount cannot be served");
        Errno::new(error.raw_os_error().unwrap_or(libc::EIO))
    })
}

fn notifier(attach: &Attach, messages: &Arc<Messages>) -> Notifier {
    match attach.notify {
        true => {
            let sink: Arc<dyn NotifySink> = messages.clone();
            let sink: Weak<dyn NotifySink> = Arc::downgrade(&sink);
            Notifier::to(sink)
        }
        false => Notifier::silent(),
    }
}

/// Where the kernel cannot, the holder of the mount has ended what was under way (see [`crate::mount`]).
fn resend(attach: &Attach, devices: &Devices) {
    if attach.init_flags & init::HAS_RESEND == 0 {
        tracing::warn!(
            client = attach.client_name,
            "the kernel cannot send again what was not answered"
        );
    } else if let Err(error) = devices.ask_to_resend() {
        tracing::error!(%error, client = attach.client_name, "the kernel does not send again what was not answered");
    }
}

impl Served {
    /// Returns when no thread is busy with the client any more.
    fn run(self, connection: &Connection, config: &ServerConfig) {
        match self.devices {
            None => {
                let input = Input::new(Arc::clone(&connection.socket), config.data_bytes_max);
                Stream::new(connection, self.session, input, config.threads_max).run();
            }
            Some(devices) => {
                let threads = DeviceThreads {
                    connection,
                    devices: &devices,
                    session: self.session,
                    threads_max: config.threads_max,
                    data_bytes_max: config.data_bytes_max,
                    threads: AtomicUsize::new(0),
                    idle: AtomicUsize::new(0),
                };
                thread::scope(|scope| {
                    threads.start(scope);
                    watch(connection, &devices);
                });
            }
        }
    }
}

/// Waits until the holder of the mount goes, or the threads stop by themselves. A holder has nothing more to say: if it
/// says something, it is not one.
fn watch(connection: &Connection, devices: &Devices) {
    match wait_for_either(&*connection.socket, devices.stopped()) {
        Ok(true) => connection.on_input_over(),
        Ok(false) => {}
        Err(error) => tracing::error!(%error, "watching the holder of a mount"),
    }
    devices.stop();
    connection.on_input_over();
    if !connection.is_ending() {
        connection.socket.close();
    }
}
