//! Connections to other servers: all of one is in time, however busy the other keeps us, with TLS if there is a context for it.
//!
//! Thread rule: whoever has a connection waits for it; while it waits it calls a [`Look`], which may end the wait.

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use wire::encode_request;

/// How often it looks whether the wait is to end.
pub const PATIENCE: Duration = Duration::from_millis(10);
/// Names that are looked up at once. One that takes long keeps a thread.
const LOOK_UPS_MAX: usize = 16;

/// A connection to another server.
pub struct Outgoing {
    socket: TcpStream,
    session: Option<Box<ClientConnection>>,
    /// When all has to be done.
    deadline: Instant,
}

impl Outgoing {
    /// Looks the host up, connects to it, and agrees on keys if there is a context for that.
    ///
    /// # Errors
    /// Those of the system and of TLS; `TimedOut` at the deadline.
    pub fn connect(
        host: String,
        port: u16,
        context: Option<Arc<ClientConfig>>,
        deadline: Instant,
        look: Look<'_>,
    ) -> io::Result<Outgoing> {
        let addresses = look_up(host, port, deadline, look)?;
        let socket = connect_to_any(&addresses, deadline, look)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let mut outgoing = Outgoing { socket, session: None, deadline };
        if let Some(context) = context {
            // Its name is not looked at, and it is not asked for one of several.
            let name = ServerName::IpAddress(outgoing.socket.peer_addr()?.ip().into());
            let session = ClientConnection::new(context, name).map_err(io::Error::other)?;
            outgoing.session = Some(Box::new(session));
            outgoing.shake_hands(look)?;
        }
        Ok(outgoing)
    }

    /// Sets how often it looks whether a wait is to end, from now on.
    ///
    /// # Errors
    /// Those of the system.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(patience))?;
        self.socket.set_write_timeout(Some(patience))
    }

    /// What becomes readable when something has come that was not read.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether the other side has ended the connection, as far as is known without waiting; on which nothing is expected. With TLS it is not known.
    pub fn is_over(&self) -> bool {
        if self.session.is_some() || self.socket.set_nonblocking(true).is_err() {
            return false;
        }
        let peeked = self.socket.peek(&mut [0]);
        let is_quiet = matches!(&peeked, Err(error) if error.kind() == ErrorKind::WouldBlock);
        self.socket.set_nonblocking(false).is_err() || !is_quiet
    }

    /// By which another thread may end it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn ender(&self) -> io::Result<TcpStream> {
        self.socket.try_clone()
    }

    /// Sets when all that follows has to be done.
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// Those of the system; `TimedOut` at the deadline.
    pub fn write_all(&mut self, mut bytes: &[u8], look: Look<'_>) -> io::Result<()> {
        let Outgoing { socket, session, deadline } = self;
        while !bytes.is_empty() {
            let count = match session {
                None => in_time(*deadline, look, || socket.write(bytes))?,
                Some(session) => {
                    let count = session.writer().write(bytes)?;
                    send(session, socket, *deadline, look)?;
                    count
                }
            };
            if count == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Reads something; 0 bytes is the end.
    ///
    /// # Errors
    /// Those of the system and of TLS; `TimedOut` at the deadline.
    pub fn read(&mut self, into: &mut [u8], look: Look<'_>) -> io::Result<usize> {
        let Outgoing { socket, session, deadline } = self;
        let Some(session) = session else { return in_time(*deadline, look, || socket.read(into)) };
        loop {
            match session.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return result,
            }
            receive(session, socket, *deadline, look)?;
            send(session, socket, *deadline, look)?;
        }
    }

    fn shake_hands(&mut self, look: Look<'_>) -> io::Result<()> {
        let Outgoing { socket, session: Some(session), deadline } = self else { return Ok(()) };
        while session.is_handshaking() {
            send(session, socket, *deadline, look)?;
            if session.is_handshaking() && receive(session, socket, *deadline, look)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        send(session, socket, *deadline, look)
    }
}

/// Sends what the session has sealed.
fn send(
    session: &mut ClientConnection,
    socket: &mut TcpStream,
    deadline: Instant,
    look: Look<'_>,
) -> io::Result<()> {
    while session.wants_write() {
        in_time(deadline, look, || session.write_tls(socket))?;
    }
    Ok(())
}

/// Hands the session what the socket has; how many bytes.
fn receive(
    session: &mut ClientConnection,
    socket: &mut TcpStream,
    deadline: Instant,
    look: Look<'_>,
) -> io::Result<usize> {
    let count = in_time(deadline, look, || session.read_tls(socket))?;
    if let Err(error) = session.process_new_packets() {
        // It is told why, if it still listens.
        let _ = send(session, socket, deadline, look);
        // Not what the other has said, which nobody could read.
        return Err(io::Error::other(error));
    }
    Ok(count)
}

/// Adds AUTH with a password, or a name and one.
pub fn encode_authentication(into: &mut Vec<u8>, credentials: &[&[u8]]) {
    let words: Vec<&[u8]> = [&b"AUTH"[..]].into_iter().chain(credentials.iter().copied()).collect();
    encode_request(into, &words);
}

/// Does something with a socket that may take until the deadline, but does not begin it later.
fn in_time<T>(deadline: Instant, look: Look<'_>, mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    while Instant::now() < deadline {
        look()?;
        match act() {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            result => return result,
        }
    }
    Err(ErrorKind::TimedOut.into())
}

/// What is done again and again while something is waited for, which it may end.
pub type Look<'l> = &'l mut dyn FnMut() -> io::Result<()>;

/// The addresses of a host, if they are known in time.
fn look_up(host: String, port: u16, deadline: Instant, look: Look<'_>) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    let room = LookUp::begin()?;
    in_thread(deadline, look, move || {
        let addresses = (host.as_str(), port).to_socket_addrs()?.collect();
        drop(room);
        Ok(addresses)
    })
}

/// One of [`LOOK_UPS_MAX`].
struct LookUp;

static LOOK_UPS: AtomicUsize = AtomicUsize::new(0);

impl LookUp {
    fn begin() -> io::Result<LookUp> {
        // It ends when this is dropped.
        let room = LookUp;
        match LOOK_UPS.fetch_add(1, Ordering::Relaxed) >= LOOK_UPS_MAX {
            true => Err(ErrorKind::WouldBlock.into()),
            false => Ok(room),
        }
    }
}

impl Drop for LookUp {
    fn drop(&mut self) {
        LOOK_UPS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs in a thread what cannot be looked after while it waits; it is not waited for beyond the deadline.
fn in_thread<T: Send + 'static>(
    deadline: Instant,
    look: Look<'_>,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (tell, told) = mpsc::channel();
    let run = move || {
        // Nobody may be waiting any more.
        let _ = tell.send(work());
    };
    std::thread::Builder::new().name("connect".to_owned()).spawn(run)?;
    loop {
        match told.recv_timeout(PATIENCE) {
            Ok(result) => return result,
            Err(mpsc::RecvTimeoutError::Timeout) if Instant::now() < deadline => look()?,
            Err(_) => return Err(ErrorKind::TimedOut.into()),
        }
    }
}

fn connect_to_any(addresses: &[SocketAddr], deadline: Instant, look: Look<'_>) -> io::Result<TcpStream> {
    let mut result = Err(ErrorKind::NotFound.into());
    for address in addresses {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        let address = *address;
        result = in_thread(deadline, look, move || TcpStream::connect_timeout(&address, left));
        if result.is_ok() {
            break;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks a name up for as long as somebody wants it to.
    fn hang(ended: &Arc<std::sync::Mutex<mpsc::Receiver<()>>>) -> io::Result<()> {
        let (room, ended) = (LookUp::begin()?, ended.clone());
        in_thread(Instant::now(), &mut || Ok(()), move || {
            let _ = ended.lock().map(|ended| ended.recv());
            drop(room);
            Ok(())
        })
    }

    #[test]
    fn look_ups_that_do_not_end_are_not_waited_for() {
        let (end, ended) = mpsc::channel::<()>();
        let ended = Arc::new(std::sync::Mutex::new(ended));
        for number in 0..LOOK_UPS_MAX + 3 {
            let error = hang(&ended).unwrap_err();
            let is_refused = number >= LOOK_UPS_MAX;
            assert_eq!(error.kind(), if is_refused { ErrorKind::WouldBlock } else { ErrorKind::TimedOut });
        }
        drop(end);
        // Their threads end, and there is room again.
        while LookUp::begin().is_err() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_is_waited_for_is_given_up_when_a_look_says_so() {
        let (end, ended) = mpsc::channel::<()>();
        let mut looks = 0;
        let mut look = || {
            looks += 1;
            if looks < 3 { Ok(()) } else { Err(io::Error::other("it ends")) }
        };
        let far = Instant::now() + Duration::from_secs(3600);
        let given_up = in_thread(far, &mut look, move || {
            let _ = ended.recv();
            Ok(())
        });
        assert_eq!(given_up.unwrap_err().kind(), ErrorKind::Other);
        drop(end);
    }
}
