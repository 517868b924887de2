//! Accepts connections, refuses those that are too many or not welcome, and hands the others to the workers in turn.
//!
//! Thread rule: all of it runs on one thread, which is no worker's.

use crate::accepted::{Accepted, AcceptedSocket};
use crate::inboxes::Inboxes;
use crate::listen::{Listeners, Listening, Speech};
use crate::service::Service;
use crate::tls::Session;
use crate::worker::Arrival;
use socket2::{SockRef, Socket, TcpKeepalive};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use telemetry::log;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixListener;
use tokio::sync::oneshot;

/// How long to wait before accepting again when the system has no descriptor left.
const NO_DESCRIPTOR_PAUSE: Duration = Duration::from_millis(50);

/// The address of a client that the system does not tell.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Accepts from all doors and from the Unix socket until the server ends. Runs on the runtime of the calling thread.
///
/// # Errors
/// If the Unix socket cannot be watched.
pub fn spawn<S: Service>(
    listeners: Listeners,
    service: &Arc<S>,
    inboxes: &Inboxes<Arrival<S>>,
) -> io::Result<()> {
    tokio::task::spawn_local(accept_at_doors(service.clone(), inboxes.clone()));
    if let Some((socket, path)) = listeners.into_unix() {
        let listener = UnixListener::from_std(socket.into())?;
        tokio::task::spawn_local(accept_unix(service.clone(), inboxes.clone(), listener, path));
    }
    Ok(())
}

/// Accepts at all doors that are opened.
async fn accept_at_doors<S: Service>(service: Arc<S>, inboxes: Inboxes<Arrival<S>>) {
    let Some(mut opened) = service.net().doors.acceptor() else { return };
    while let Some((Listening { socket, speech }, closed)) = opened.recv().await {
        match watched(socket) {
            Ok(listener) => {
                tokio::task::spawn_local(accept_tcp(
                    service.clone(),
                    inboxes.clone(),
                    (listener, speech, closed),
                ));
            }
            Err(error) => log!(Warning, "A listening socket cannot be watched: {error}"),
        }
    }
}

async fn accept_tcp<S: Service>(
    service: Arc<S>,
    inboxes: Inboxes<Arrival<S>>,
    (mut listener, speech, mut closed): (AsyncFd<Socket>, Speech, oneshot::Receiver<()>),
) {
    let mut ended = pin!(service.ended());
    loop {
        let ready = tokio::select! {
            // A socket that was shut down is ready as well.
            biased;
            _ = &mut closed => return,
            () = &mut ended => return,
            ready = listener.readable() => ready,
        };
        let failure = match ready {
            Err(error) => error,
            Ok(mut ready) => match (ready.ready().is_read_closed(), ready.try_io(accept_one)) {
                (_, Ok(Ok((socket, peer)))) => {
                    welcome_tcp(&*service, &inboxes, (socket, peer), speech);
                    // Who comes without end keeps neither the other doors nor the end from their turns.
                    tokio::task::consume_budget().await;
                    continue;
                }
                (_, Ok(Err(error))) => error,
                // It was out of the way for a moment, and hung up: tokio never takes that back, and would say without end that it is ready.
                (true, Err(_)) => {
                    drop(ready);
                    match watched(listener.into_inner()) {
                        Ok(again) => listener = again,
                        Err(error) => return log!(Warning, "A listening socket cannot be watched: {error}"),
                    }
                    continue;
                }
                (false, Err(_)) => continue,
            },
        };
        note_failure(&failure).await;
    }
}

fn accept_one(listener: &AsyncFd<Socket>) -> io::Result<(TcpStream, SocketAddr)> {
    let (socket, peer) = listener.get_ref().accept()?;
    socket.set_nonblocking(true)?;
    Ok((socket.into(), peer.as_socket().unwrap_or(NOBODY)))
}

#[expect(deprecated, reason = "a Socket keeps its descriptor, and the other way is unsafe")]
fn watched(socket: Socket) -> io::Result<AsyncFd<Socket>> {
    AsyncFd::new(socket)
}

async fn accept_unix<S: Service>(
    service: Arc<S>,
    inboxes: Inboxes<Arrival<S>>,
    listener: UnixListener,
    path: PathBuf,
) {
    let mut ended = pin!(service.ended());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut ended => return,
        };
        match accepted.and_then(|(socket, _)| socket.into_std()) {
            Ok(socket) => {
                if let Some(refusal) = refusal_of_number(&*service) {
                    refuse(&*service, socket, refusal);
                } else {
                    hand_over(&*service, &inboxes, AcceptedSocket::Unix { socket, path: path.clone() });
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

fn welcome_tcp<S: Service>(
    service: &S,
    inboxes: &Inboxes<Arrival<S>>,
    (socket, peer): (TcpStream, SocketAddr),
    speech: Speech,
) {
    if let Some(refusal) = refusal_of_number(service).or_else(|| refusal_of_stranger(service, peer.ip())) {
        // Where TLS is spoken nobody would understand it.
        let why = if speech == Speech::Tls { "" } else { refusal };
        return refuse(service, socket, why);
    }
    let session = match speech {
        Speech::Plain => None,
        Speech::Tls => match session(service) {
            Ok(session) => Some(Box::new(session)),
            Err(error) => return log!(Warning, "A connection with TLS could not be served: {error}"),
        },
    };
    if let Err(error) = tune(&socket, service.config().tcp_keepalive_s()) {
        log!(Verbose, "A connection could not be tuned: {error}");
    }
    hand_over(service, inboxes, AcceptedSocket::Tcp { socket, peer, session });
}

fn session(service: &impl Service) -> io::Result<Session> {
    let contexts =
        service.net().tls.contexts().ok_or_else(|| io::Error::other("TLS is being switched off"))?;
    Session::new(contexts.server.clone())
}

/// Has a TCP socket send at once what it is given, and the system look whether the other side is still there after so many seconds of silence; 0: never.
///
/// # Errors
/// Those of the system.
pub fn tune(socket: &impl AsFd, keepalive_s: u32) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(true)?;
    if keepalive_s > 0 {
        // Three probes a third of the time apart, as Redis does it.
        let probes = Duration::from_secs(u64::from(keepalive_s / 3).max(1));
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(u64::from(keepalive_s)))
            .with_interval(probes)
            .with_retries(3);
        socket.set_tcp_keepalive(&keepalive)?;
    }
    Ok(())
}

fn refusal_of_number(service: &impl Service) -> Option<&'static str> {
    let is_full = service.net().placement.connections() >= service.config().maxclients() as usize;
    is_full.then_some("-ERR max number of clients reached\r\n")
}

/// Protected mode: without a password only this machine is served.
fn refusal_of_stranger(service: &impl Service, peer: IpAddr) -> Option<&'static str> {
    let is_open = !service.config().protected_mode() || service.requires_password();
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
fn refuse(service: &impl Service, mut socket: impl Write, why: &str) {
    service.counts().rejected_connections.add(1);
    let _ = socket.write(why.as_bytes());
}

/// Gives a connection to the worker that has the fewest; at the server's end nobody takes it.
fn hand_over<S: Service>(service: &S, inboxes: &Inboxes<Arrival<S>>, socket: AcceptedSocket) {
    service.counts().connections.add(1);
    let net = service.net();
    let home = net.placement.home();
    let accepted = Accepted { id: net.clients.next_id(), home, socket };
    inboxes.send(&net.placement, home, Arrival::New(accepted));
}
