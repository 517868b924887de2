//! One connection of a client to one node: what is on its way, in order.
//!
//! Those that the run begins with are connected and let in before anything is measured. Later ones are opened while the load runs, without
//! waiting: what lets them in is sent first, its replies come first, and requests may be behind it at once.

use super::map::Node;
use crate::engine::channel::Channel;
use crate::plan::Target;
use mio::net::TcpStream;
use std::collections::VecDeque;
use std::io;
use sys::Ticks;
use wire::encode_request;
use wire::scan::Scanner;

/// What a reply will be to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// AUTH or SELECT of a new connection.
    Greeting,
    /// ASKING.
    Asking,
    /// CLUSTER SLOTS.
    Map,
    /// The request of this number of the client's.
    Request(usize),
}

/// A connection.
#[derive(Debug)]
pub struct Link {
    /// Its socket.
    pub channel: Channel,
    /// Finds replies in what comes.
    pub scanner: Scanner,
    /// What waits for a reply.
    pub waiting: VecDeque<Waiting>,
    /// Whether the other end has accepted.
    pub is_connected: bool,
    /// When something last came, or was first waited for.
    pub since: Ticks,
    /// The reply that is being read, if it is needed as a whole.
    pub captured: Vec<u8>,
}

impl Link {
    /// One that has been let in.
    pub fn new(channel: Channel) -> Link {
        Link {
            channel,
            scanner: Scanner::default(),
            waiting: VecDeque::new(),
            is_connected: true,
            since: Ticks(0),
            captured: Vec::new(),
        }
    }

    /// Begins to connect.
    ///
    /// # Errors
    /// The system refuses.
    pub fn begin(node: &Node, target: &Target, now: Ticks) -> io::Result<Link> {
        let stream = TcpStream::connect(node.address)?;
        let session = target.tls.as_ref().map(|tls| tls.begin(node.address.ip())).transpose()?;
        let mut link = Link { is_connected: false, since: now, ..Link::new(Channel::new(stream, session)) };
        if let Some(password) = &target.password {
            match &target.user {
                Some(user) => link.greet(&[b"AUTH", user.as_bytes(), password.as_bytes()]),
                None => link.greet(&[b"AUTH", password.as_bytes()]),
            }
        }
        if target.database > 0 {
            link.greet(&[b"SELECT", target.database.to_string().as_bytes()]);
        }
        Ok(link)
    }

    fn greet(&mut self, request: &[&[u8]]) {
        encode_request(&mut self.channel.out, request);
        self.waiting.push_back(Waiting::Greeting);
    }

    /// Sends a request behind what is there.
    pub fn send(&mut self, request: &[u8], waiting: Waiting, now: Ticks) {
        if self.waiting.is_empty() {
            self.since = now;
        }
        self.channel.out.extend_from_slice(request);
        self.waiting.push_back(waiting);
    }

    /// Whether the other end has accepted by now.
    ///
    /// # Errors
    /// It has not, and will not.
    pub fn connect(&mut self) -> io::Result<bool> {
        if self.is_connected {
            return Ok(true);
        }
        let stream = self.channel.stream();
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        match stream.peer_addr() {
            Ok(_) => {
                stream.set_nodelay(true)?;
                self.is_connected = true;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether it has been let in: only what it was used for is on its way.
    pub fn is_open(&self) -> bool {
        self.is_connected && !self.waiting.contains(&Waiting::Greeting)
    }
}
