//! The TCP sockets that the server listens on, and moving to others while it runs (CONFIG SET `port`, `tls-port` and `bind`).
//!
//! 1. What cannot be had leaves everything as it was: new addresses are taken before old ones are given up. Where an old one is in
//!    the way (`*` and `127.0.0.1` at one port), it stops listening for the attempt, and listens again if that fails.
//! 2. Once [`Doors::move_to`] returns nobody gets through a door that is gone. Connections that were accepted stay.
//! 3. Whoever moves holds the doors; connections are accepted on the main thread, which only has their sockets.

use super::{Listening, Speech, Wanted, bind_tcp};
use config::Config;
use parking_lot::Mutex;
use socket2::Socket;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use telemetry::log;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

/// A socket to accept from until the other end of the channel is gone.
pub type Opened = (Listening, oneshot::Receiver<()>);

/// The doors of a server.
pub struct Doors {
    open: Mutex<Vec<Door>>,
    to_acceptor: UnboundedSender<Opened>,
    acceptor: Mutex<Option<UnboundedReceiver<Opened>>>,
    /// Another process has the sockets, or is about to.
    are_shared: AtomicBool,
}

struct Door {
    address: SocketAddr,
    speech: Speech,
    /// The same socket as the one that is accepted from.
    socket: Socket,
    /// Ends the accepting when it is dropped.
    _closing: oneshot::Sender<()>,
}

impl Default for Doors {
    fn default() -> Doors {
        let (to_acceptor, acceptor) = unbounded_channel();
        Doors {
            open: Mutex::default(),
            to_acceptor,
            acceptor: Mutex::new(Some(acceptor)),
            are_shared: AtomicBool::new(false),
        }
    }
}

impl Doors {
    /// Where the server listens, with real ports, and what is spoken there.
    pub fn addresses(&self) -> Vec<(Speech, SocketAddr)> {
        self.open.lock().iter().map(|door| (door.speech, door.address)).collect()
    }

    /// The port at which this is spoken; 0 is none.
    pub fn port(&self, speech: Speech) -> u16 {
        let open = self.open.lock();
        open.iter().find(|door| door.speech == speech).map_or(0, |door| door.address.port())
    }

    /// The sockets, for another process to accept from.
    ///
    /// # Errors
    /// If the process has no file left.
    pub fn sockets(&self) -> io::Result<Vec<Socket>> {
        self.open.lock().iter().map(|door| door.socket.try_clone()).collect()
    }

    /// Whether another process has the sockets, too: then nobody moves to others.
    pub fn set_shared(&self, are_shared: bool) {
        self.are_shared.store(are_shared, Ordering::Relaxed);
    }

    /// Accepts from none of them any more. Whoever else has the sockets does; who is in their queues stays there.
    pub fn leave(&self) {
        self.open.lock().clear();
    }

    /// Whether somebody accepts connections.
    pub fn are_watched(&self) -> bool {
        self.acceptor.lock().is_none()
    }

    /// What comes to whoever accepts connections; there is one.
    pub(crate) fn acceptor(&self) -> Option<UnboundedReceiver<Opened>> {
        self.acceptor.lock().take()
    }

    /// Has connections accepted from sockets that listen.
    ///
    /// # Errors
    /// If the process has no file left.
    pub fn open(&self, sockets: &[Listening]) -> io::Result<()> {
        let opened: Vec<_> = sockets
            .iter()
            .map(|listening| opened(&listening.socket, listening.speech))
            .collect::<io::Result<_>>()?;
        self.admit(&mut self.open.lock(), opened);
        Ok(())
    }

    fn admit(&self, open: &mut Vec<Door>, opened: Vec<(Door, Opened)>) {
        for (door, socket) in opened {
            open.push(door);
            // Nobody accepts any more at the server's end.
            let _ = self.to_acceptor.send(socket);
        }
    }

    /// Listens at these addresses and no others.
    ///
    /// # Errors
    /// If one cannot be had, and is wanted by all means: then nothing has changed, and the log says which.
    pub fn move_to(&self, config: &Config, wanted: Vec<Wanted>) -> io::Result<()> {
        let mut open = self.open.lock();
        // To stop listening would stop the other's.
        if self.are_shared.load(Ordering::Relaxed) {
            return Err(io::Error::other("another process takes over, or has taken over"));
        }
        let mut old = std::mem::take(&mut *open);
        let mut missing = Vec::new();
        for want in wanted {
            let is_same = |door: &Door| door.address == want.address && door.speech == want.speech;
            match old.iter().position(is_same) {
                Some(index) => open.push(old.swap_remove(index)),
                None => missing.push(want),
            }
        }
        let mut paused = Vec::new();
        match take(config, &missing, &old, &mut paused) {
            Ok(opened) => {
                old.iter().for_each(Door::stop);
                self.admit(&mut open, opened);
                Ok(())
            }
            Err(error) => {
                let is_paused = |index| paused.contains(&index);
                let kept = old.into_iter().enumerate();
                open.extend(kept.filter_map(|(index, door)| match is_paused(index) {
                    true => door.listening_again(config),
                    false => Some(door),
                }));
                Err(error)
            }
        }
    }
}

impl Door {
    fn stop(&self) {
        // One that does not listen is as well.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Listens again, which takes no descriptor. None: somebody else has taken its address.
    fn listening_again(self, config: &Config) -> Option<Door> {
        match self.socket.listen(config.tcp_backlog() as i32) {
            Ok(()) => Some(self),
            Err(error) => {
                log!(Warning, "No longer listening on {}: {error}", self.address);
                None
            }
        }
    }
}

/// Opens what is missing. Old doors that are in the way stop listening: `paused` says which.
fn take(
    config: &Config,
    missing: &[Wanted],
    old: &[Door],
    paused: &mut Vec<usize>,
) -> io::Result<Vec<(Door, Opened)>> {
    let mut taken = Vec::new();
    for want in missing {
        let mut result = bind_tcp(config, want.address);
        let is_in_way =
            |index: &usize| old[*index].address.port() == want.address.port() && !paused.contains(index);
        let in_way: Vec<usize> = (0..old.len()).filter(is_in_way).collect();
        if is_in_use(&result) && !in_way.is_empty() {
            in_way.iter().for_each(|&index| old[index].stop());
            paused.extend(in_way);
            result = bind_tcp(config, want.address);
        }
        match result.and_then(|socket| opened(&socket, want.speech)) {
            Ok(door) => taken.push(door),
            Err(error) if want.may_be_missing(&error) => {}
            Err(error) => {
                log!(Warning, "Could not listen on {}: {error}", want.address);
                return Err(error);
            }
        }
    }
    Ok(taken)
}

fn is_in_use(result: &io::Result<Socket>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

/// A door, and what is to be accepted from.
fn opened(socket: &Socket, speech: Speech) -> io::Result<(Door, Opened)> {
    let address = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let (_closing, closed) = oneshot::channel();
    let door = Door { address, speech, socket: socket.try_clone()?, _closing };
    Ok((door, (Listening { socket: socket.try_clone()?, speech }, closed)))
}
