//! Listening: takes the addresses that the configuration names. Where it is listened may change meanwhile (`doors`); who comes is
//! accepted in `accept`.

mod doors;

use config::Config;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use sys::file::Fs;
use telemetry::log;

pub use doors::Doors;

/// How many free ports are tried before one is not free at all addresses.
const FREE_PORT_ATTEMPTS: usize = 16;

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
    pub(crate) socket: Socket,
    pub(crate) speech: Speech,
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
        Listeners::bind_or_take(config, Vec::new())
    }

    /// The same, by these sockets, which listen already, where they have the addresses.
    ///
    /// # Errors
    /// A sentence that names the address; one of them is not named.
    pub fn bind_or_take(config: &Config, mut there: Vec<Socket>) -> io::Result<Listeners> {
        // A port that is free at one address may be taken at the next.
        let mut attempts = if config.port() == 0 { FREE_PORT_ATTEMPTS } else { 1 };
        let bound = loop {
            attempts -= 1;
            match Listeners::bind_once(config, &mut there) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempts > 0 => {}
                result => break result?,
            }
        };
        match there.iter().find_map(|socket| socket.local_addr().ok()?.as_socket()) {
            None => Ok(bound),
            Some(address) => {
                let text = format!(
                    "What runs listens at {address}, which is not among the addresses of this process"
                );
                Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text))
            }
        }
    }

    fn bind_once(config: &Config, there: &mut Vec<Socket>) -> io::Result<Listeners> {
        let unix_path = config.unixsocket();
        let unix = match unix_path.is_empty() {
            true => None,
            false => Some(bind_unix(config, PathBuf::from(std::ffi::OsString::from_vec(unix_path)))?),
        };
        let mut tcp = Vec::new();
        let serves_plain = config.port() != 0 || unix.is_none() && config.tls_port() == 0;
        if serves_plain {
            listen_at(config, (config.port(), Speech::Plain), there, &mut tcp)?;
        }
        if config.tls_port() != 0 {
            listen_at(config, (config.tls_port(), Speech::Tls), there, &mut tcp)?;
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

    /// Makes doors of the TCP sockets; they are accepted from once `accept::spawn` was called.
    ///
    /// # Errors
    /// If the process has no file left.
    pub fn open(&self, doors: &Doors) -> io::Result<()> {
        doors.open(&self.tcp)
    }

    /// The Unix socket, and its path.
    pub(crate) fn into_unix(self) -> Option<(Socket, PathBuf)> {
        self.unix
    }
}

/// Listens where the configuration says now; it has just changed.
///
/// # Errors
/// If an address cannot be had: then nothing has changed, and the log says which.
pub fn move_to_configured(doors: &Doors, config: &Config, has_port_changed: bool) -> io::Result<()> {
    // What was a free port at the start stays the port, whatever the addresses.
    let port = match config.port() {
        0 if !has_port_changed => doors.port(Speech::Plain),
        port => port,
    };
    let mut addresses = Vec::new();
    for (port, speech) in [(port, Speech::Plain), (config.tls_port(), Speech::Tls)] {
        for name in config.bind().iter().filter(|_| port != 0) {
            let found = wanted(name, port, speech).inspect_err(|error| log!(Warning, "{error}"))?;
            addresses.extend(found);
        }
    }
    doors.move_to(config, addresses)
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
        Err(error) => {
            Err(io::Error::new(error.kind(), format!("Could not resolve the address '{host}': {error}")))
        }
    }
}

/// Whether who connects to this place from this machine comes to where the configuration has listened. What has no address now leads nowhere.
pub fn leads_here(config: &Config, host: &str, port: u16) -> bool {
    use std::net::ToSocketAddrs;
    if port == 0 || ![config.port(), config.tls_port()].contains(&port) {
        return false;
    }
    let named = config.bind();
    let bound = named.iter().filter_map(|name| wanted(name, port, Speech::Plain).ok()).flatten();
    let bound: Vec<IpAddr> = bound.map(|want| want.address.ip()).collect();
    let is_bound = |place: SocketAddr| {
        let ip = match place.ip() {
            // Who connects there comes to this machine.
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        let covers = |one: &IpAddr| *one == ip || one.is_unspecified() && one.is_ipv4() == ip.is_ipv4();
        bound.iter().any(covers) && is_of_this_machine(ip)
    };
    (host, port).to_socket_addrs().is_ok_and(|mut places| places.any(is_bound))
}

/// Whether this machine has an address: who speaks to one of its own speaks from there. What may be listened at says nothing: that may be an address which comes from
/// another machine one day.
fn is_of_this_machine(ip: IpAddr) -> bool {
    let any: IpAddr = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let speaks_from = || {
        let socket = UdpSocket::bind((any, 0))?;
        // Nothing is sent: any port will do.
        socket.connect((ip, 1))?;
        socket.local_addr()
    };
    ip.is_loopback() || speaks_from().is_ok_and(|from| from.ip() == ip)
}

/// Listens at all addresses with this port, by a socket that is there if there is one.
fn listen_at(
    config: &Config,
    (port, speech): (u16, Speech),
    there: &mut Vec<Socket>,
    tcp: &mut Vec<Listening>,
) -> io::Result<()> {
    let mut port = port;
    for name in config.bind() {
        for want in wanted(&name, port, speech)? {
            let address = want.address;
            let is_it =
                |socket: &Socket| socket.local_addr().is_ok_and(|there| there.as_socket() == Some(address));
            let taken = there.iter().position(is_it).map(|at| there.swap_remove(at));
            match taken.map_or_else(|| bind_tcp(config, address), Ok) {
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
