//! Listening: takes the addresses, accepts connections, refuses those that are
//! too many or not welcome, and hands the others to the workers in turn. Where
//! it listens may change meanwhile (`doors`).

mod doors;

use crate::connection::secure::UnwatchedSecure;
use crate::connection::stream::Unwatched;
use crate::placement::Arrival;
use crate::server::{Ending, Server};
use crate::tls::Session;
use config::Config;
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use sys::file::Fs;
use telemetry::log;
use tokio::sync::oneshot;

pub use doors::Doors;

/// How long to wait before accepting again when the system has no descriptor left.
const NO_DESCRIPTOR_PAUSE: Duration = Duration::from_millis(50);
/// How many free ports are tried before one is not free at all addresses.
const FREE_PORT_ATTEMPTS: usize = 16;

/// A connection on its way to a worker.
pub struct Accepted {
    /// The client's number, in the order of arrival.
    pub id: u64,
    /// The worker that it belongs to.
    pub home: usize,
    /// What it came by.
    pub socket: AcceptedSocket,
}

/// A socket that has been accepted.
pub enum AcceptedSocket {
    /// By TCP.
    Tcp {
        /// The socket, not blocking.
        socket: TcpStream,
        /// The other end.
        peer: SocketAddr,
        /// The client's session, if it speaks TLS.
        session: Option<Box<Session>>,
    },
    /// By the Unix socket.
    Unix {
        /// The socket, not blocking.
        socket: UnixStream,
        /// Where the server listens.
        path: PathBuf,
    },
}

impl AcceptedSocket {
    /// The socket alone.
    pub fn into_unwatched(self) -> Unwatched {
        match self {
            AcceptedSocket::Tcp { socket, session: None, .. } => Unwatched::Tcp(socket),
            AcceptedSocket::Tcp { socket, session: Some(session), .. } => {
                Unwatched::Secure(Box::new(UnwatchedSecure::new(socket, *session)))
            }
            AcceptedSocket::Unix { socket, .. } => Unwatched::Unix(socket),
        }
    }

    /// The other end's address and this end's, as CLIENT LIST shows them.
    pub fn addresses(&self) -> (String, String) {
        match self {
            AcceptedSocket::Tcp { socket, peer, .. } => (
                peer.to_string(),
                socket.local_addr().map_or_else(|_| "?:0".to_owned(), |address| address.to_string()),
            ),
            AcceptedSocket::Unix { path, .. } => {
                let address = format!("{}:0", path.display());
                (address.clone(), address)
            }
        }
    }
}

/// What is spoken at a TCP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    /// The protocol as it is.
    Plain,
    /// The protocol under TLS.
    Tls,
}

impl Speech {
    /// Its name in INFO and in the log.
    pub fn name(self) -> &'static str {
        match self {
            Speech::Plain => "tcp",
            Speech::Tls => "tls",
        }
    }
}

/// A socket that listens, and what is spoken to those who come by it.
pub struct Listening {
    socket: Socket,
    speech: Speech,
}

/// The sockets that the server listens on.
pub struct Listeners {
    tcp: Vec<Listening>,
    unix: Option<(Socket, PathBuf)>,
}

impl Listeners {
    /// Takes every address that the configuration names. An address with a `-` in
    /// front may be missing on this machine.
    ///
    /// # Errors
    /// A sentence that names the address.
    pub fn bind(config: &Config) -> io::Result<Listeners> {
        // A port that is free at one address may be taken at the next.
        let attempts = if config.port() == 0 { FREE_PORT_ATTEMPTS } else { 1 };
        for _ in 1..attempts {
            match Listeners::bind_once(config) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                result => return result,
            }
        }
        Listeners::bind_once(config)
    }

    fn bind_once(config: &Config) -> io::Result<Listeners> {
        let unix_path = config.unixsocket();
        let unix = match unix_path.is_empty() {
            true => None,
            false => Some(bind_unix(config, PathBuf::from(std::ffi::OsString::from_vec(unix_path)))?),
        };
        let mut tcp = Vec::new();
        let serves_plain = config.port() != 0 || unix.is_none() && config.tls_port() == 0;
        if serves_plain {
            listen_at(config, config.port(), Speech::Plain, &mut tcp)?;
        }
        if config.tls_port() != 0 {
            listen_at(config, config.tls_port(), Speech::Tls, &mut tcp)?;
        }
        if tcp.is_empty() && unix.is_none() {
            return Err(io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                "Failed listening: none of the addresses in 'bind' is there",
            ));
        }
        Ok(Listeners { tcp, unix })
    }

    /// The TCP addresses, with their real ports, and what is spoken there.
    pub fn addresses(&self) -> Vec<(Speech, SocketAddr)> {
        let address = |socket: &Socket| socket.local_addr().ok()?.as_socket();
        let addresses =
            self.tcp.iter().filter_map(|listening| Some((listening.speech, address(&listening.socket)?)));
        addresses.collect()
    }

    /// The Unix socket's path.
    pub fn unix_path(&self) -> Option<&PathBuf> {
        self.unix.as_ref().map(|(_, path)| path)
    }

    /// Accepts until the server ends. Runs on the first worker's runtime.
    pub fn spawn(self, server: &Arc<Server>) -> io::Result<()> {
        tokio::task::spawn_local(accept_at_doors(server.clone()));
        if let Some((socket, path)) = self.unix {
            let listener = tokio::net::UnixListener::from_std(socket.into())?;
            tokio::task::spawn_local(accept_unix(server.clone(), listener, path));
        }
        Ok(())
    }

    /// Hands the TCP sockets to the server; they are accepted from once [`Listeners::spawn`] was called.
    ///
    /// # Errors
    /// If the process has no file left.
    pub fn open_doors(&self, server: &Server) -> io::Result<()> {
        server.doors.open(&self.tcp)
    }
}

/// Listens where the configuration says now; it has just changed.
///
/// # Errors
/// If an address cannot be had: then nothing has changed, and the log says which.
pub fn move_to_configured(server: &Server, has_port_changed: bool) -> io::Result<()> {
    let config = &server.engine.config;
    // What was a free port at the start stays the port, whatever the addresses.
    let port = match config.port() {
        0 if !has_port_changed => server.doors.port(Speech::Plain),
        port => port,
    };
    let mut addresses = Vec::new();
    for (port, speech) in [(port, Speech::Plain), (config.tls_port(), Speech::Tls)] {
        for name in config.bind().iter().filter(|_| port != 0) {
            let found = wanted(name, port, speech).inspect_err(|error| log!(Warning, "{error}"))?;
            addresses.extend(found);
        }
    }
    server.doors.move_to(config, addresses)
}

/// Accepts at all doors that are opened.
async fn accept_at_doors(server: Arc<Server>) {
    let Some(mut opened) = server.doors.acceptor() else { return };
    while let Some((Listening { socket, speech }, closed)) = opened.recv().await {
        match tokio::net::TcpListener::from_std(socket.into()) {
            Ok(listener) => {
                tokio::task::spawn_local(accept_tcp(server.clone(), listener, speech, closed));
            }
            Err(error) => log!(Warning, "A listening socket cannot be watched: {error}"),
        }
    }
}

async fn accept_tcp(
    server: Arc<Server>,
    listener: tokio::net::TcpListener,
    speech: Speech,
    mut closed: oneshot::Receiver<()>,
) {
    let mut ending = server.ending();
    loop {
        let accepted = tokio::select! {
            // A socket that was shut down is ready as well.
            biased;
            _ = &mut closed => return,
            _ = ending.wait_for(|ending| *ending != Ending::NotYet) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted.and_then(|(socket, peer)| Ok((socket.into_std()?, peer))) {
            Ok((socket, peer)) => welcome_tcp(&server, socket, peer, speech),
            Err(error) => note_failure(&error).await,
        }
    }
}

async fn accept_unix(server: Arc<Server>, listener: tokio::net::UnixListener, path: PathBuf) {
    let mut ending = server.ending();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ending.wait_for(|ending| *ending != Ending::NotYet) => return,
        };
        match accepted.and_then(|(socket, _)| socket.into_std()) {
            Ok(socket) => {
                if let Some(refusal) = refusal_of_number(&server) {
                    refuse(&server, socket, refusal);
                } else {
                    hand_over(&server, AcceptedSocket::Unix { socket, path: path.clone() });
                }
            }
            Err(error) => note_failure(&error).await,
        }
    }
}

async fn note_failure(error: &io::Error) {
    // A door that is closed, or out of the way of another for a moment.
    if error.kind() != io::ErrorKind::InvalidInput {
        log!(Warning, "Accepting client connection: {error}");
    }
    tokio::time::sleep(NO_DESCRIPTOR_PAUSE).await;
}

fn welcome_tcp(server: &Server, socket: TcpStream, peer: SocketAddr, speech: Speech) {
    if let Some(refusal) = refusal_of_number(server).or_else(|| refusal_of_stranger(server, peer.ip())) {
        // Where TLS is spoken nobody would understand it.
        let why = if speech == Speech::Tls { "" } else { refusal };
        return refuse(server, socket, why);
    }
    let session = match speech {
        Speech::Plain => None,
        Speech::Tls => match session(server) {
            Ok(session) => Some(Box::new(session)),
            Err(error) => return log!(Warning, "A connection with TLS could not be served: {error}"),
        },
    };
    if let Err(error) = tune(&socket, server.engine.config.tcp_keepalive_s()) {
        log!(Verbose, "A connection could not be tuned: {error}");
    }
    hand_over(server, AcceptedSocket::Tcp { socket, peer, session });
}

fn session(server: &Server) -> io::Result<Session> {
    let contexts = server.tls.contexts().ok_or_else(|| io::Error::other("TLS is being switched off"))?;
    Session::new(contexts.server.clone())
}

fn tune(socket: &TcpStream, keepalive_s: u32) -> io::Result<()> {
    socket.set_nodelay(true)?;
    if keepalive_s > 0 {
        // Three probes a third of the time apart, as Redis does it.
        let probes = Duration::from_secs(u64::from(keepalive_s / 3).max(1));
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(u64::from(keepalive_s)))
            .with_interval(probes)
            .with_retries(3);
        socket2::SockRef::from(socket).set_tcp_keepalive(&keepalive)?;
    }
    Ok(())
}

fn refusal_of_number(server: &Server) -> Option<&'static str> {
    let is_full = server.placement.connections() >= server.engine.config.maxclients() as usize;
    is_full.then_some("-ERR max number of clients reached\r\n")
}

/// Protected mode: without a password only this machine is served.
fn refusal_of_stranger(server: &Server, peer: IpAddr) -> Option<&'static str> {
    let is_open = !server.engine.config.protected_mode() || server.requires_password();
    let is_local = match peer.to_canonical() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback(),
    };
    (!is_open && !is_local).then_some(
        "-DENIED Tarn is running in protected mode because protected mode is enabled and no password is set \
         for the default user. In this mode connections are only accepted from the loopback interface. To serve \
         other machines, set a password with 'requirepass', or turn protected mode off with 'protected-mode no' \
         if nobody else can reach this port.\r\n",
    )
}

/// Tells a client why it is not served; it gets what its socket takes at once.
fn refuse(server: &Server, mut socket: impl Write, why: &str) {
    server.counts.rejected_connections.add(1);
    let _ = socket.write(why.as_bytes());
}

/// Gives a connection to the worker that has the fewest; at the server's end nobody takes it.
fn hand_over(server: &Server, socket: AcceptedSocket) {
    server.counts.connections.add(1);
    let home = server.placement.home();
    let accepted = Accepted { id: server.clients.next_id(), home, socket };
    server.placement.send(home, Arrival::New(accepted));
}

/// An address to listen at.
pub struct Wanted {
    address: SocketAddr,
    speech: Speech,
    /// Whether this machine may lack it.
    is_optional: bool,
}

impl Wanted {
    fn may_be_missing(&self, error: &io::Error) -> bool {
        const EAFNOSUPPORT: i32 = 97;
        let is_missing =
            error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(EAFNOSUPPORT);
        self.is_optional && is_missing
    }
}

/// The addresses that one word of `bind` stands for.
fn wanted(name: &str, port: u16, speech: Speech) -> io::Result<Vec<Wanted>> {
    let (host, is_optional) = name.strip_prefix('-').map_or((name, false), |host| (host, true));
    let host = match host {
        "*" => "0.0.0.0",
        "::*" => "::",
        other => other,
    };
    use std::net::ToSocketAddrs;
    match (host, port).to_socket_addrs() {
        Ok(found) => Ok(found.map(|address| Wanted { address, speech, is_optional }).collect()),
        Err(_) if is_optional => Ok(Vec::new()),
        Err(error) => {
            Err(io::Error::new(error.kind(), format!("Could not resolve the address '{host}': {error}")))
        }
    }
}

/// Listens at all addresses with this port.
fn listen_at(config: &Config, port: u16, speech: Speech, tcp: &mut Vec<Listening>) -> io::Result<()> {
    let mut port = port;
    for name in config.bind() {
        for want in wanted(&name, port, speech)? {
            let address = want.address;
            match bind_tcp(config, address) {
                Ok(socket) => {
                    // With port 0 the first address gets a free port, and the others the same.
                    port = local_port(&socket)?;
                    tcp.push(Listening { socket, speech });
                }
                Err(error) if want.may_be_missing(&error) => {}
                Err(error) => {
                    let reason = match error.kind() {
                        io::ErrorKind::AddrInUse => format!("{address} is in use by another program"),
                        _ => format!("{address}: {error}"),
                    };
                    let (port, name) = (address.port(), speech.name().to_ascii_uppercase());
                    let text = format!("Failed listening on port {port} ({name}): {reason}");
                    return Err(io::Error::new(error.kind(), text));
                }
            }
        }
    }
    Ok(())
}

fn bind_tcp(config: &Config, address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(config.tcp_backlog() as i32)?;
    Ok(socket)
}

fn bind_unix(config: &Config, path: PathBuf) -> io::Result<(Socket, PathBuf)> {
    let in_context = |error: io::Error| {
        io::Error::new(error.kind(), format!("Opening Unix socket {}: {error}", path.display()))
    };
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(in_context)?;
    // Left by a server that was killed, one would be in the way.
    Fs::Real.remove_socket(&path).map_err(in_context)?;
    socket.set_nonblocking(true).map_err(in_context)?;
    socket.bind(&SockAddr::unix(&path).map_err(in_context)?).map_err(in_context)?;
    socket.listen(config.tcp_backlog() as i32).map_err(in_context)?;
    if let Some(mode) = config.unixsocketperm() {
        Fs::Real.set_permissions(&path, mode).map_err(in_context)?;
    }
    Ok((socket, path))
}

fn local_port(socket: &Socket) -> io::Result<u16> {
    Ok(socket.local_addr()?.as_socket().map_or(0, |address| address.port()))
}
