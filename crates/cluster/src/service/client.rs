//! One connection of a client: bytes in, requests one after another, replies out.
//!
//! What a connection may hold is bounded: a request's length before and after the password, one reply, one topology that all who follow share.

use super::desk::{Desk, Followed, SILENT};
use super::requests::{self, Flow, Session};
use crate::store::Revision;
use socket2::{SockRef, TcpKeepalive};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use telemetry::log;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use wire::{Authenticated, Batch, Limits, Parser, Reply};

/// Bytes that are read at once.
const READ_BYTES: usize = 8 << 10;
/// The longest argument: a decision of a shard, figures, or who lives.
const BULK_BYTES_MAX: u64 = 1 << 20;
/// The longest request.
const REQUEST_BYTES_MAX: usize = 4 << 20;
/// How long a client may take to take a bit of its reply.
const WRITING: Duration = Duration::from_secs(10);
/// How often who follows is told that the config server lives.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
/// How long a client may take to agree on keys.
const AGREEING: Duration = Duration::from_secs(10);
/// How long a client may take until it has said the password.
const LOGGING_IN: Duration = Duration::from_secs(5);
/// How long a client may be silent until it is looked whether its machine is there.
const QUIET: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOKING: Duration = Duration::from_secs(10);
/// After a connection could not be accepted.
const RETRY: Duration = Duration::from_millis(100);

/// Between two words of the log on connections that could not be accepted: where one cannot be, the next one can neither.
const TELLING: Duration = Duration::from_secs(60);

/// What was told of connections that could not be accepted.
#[derive(Default)]
struct Unaccepted {
    told_at: Option<Instant>,
    untold: u64,
}

impl Unaccepted {
    /// What is to be told of another one, if it is time for it.
    fn another(&mut self, why: &dyn std::fmt::Display, now: Instant) -> Option<String> {
        if self.told_at.is_some_and(|at| now.duration_since(at) < TELLING) {
            self.untold += 1;
            return None;
        }
        self.told_at = Some(now);
        Some(match std::mem::take(&mut self.untold) {
            0 => format!("A connection could not be accepted: {why}"),
            more => format!(
                "A connection could not be accepted: {why} (nor could others, {more} times since this was told last)"
            ),
        })
    }
}

/// Accepts for as long as the service lives; with TLS if there is something to speak it by.
pub async fn accept(desk: Rc<Desk>, listener: TcpListener, tls: Option<TlsAcceptor>) {
    let mut unaccepted = Unaccepted::default();
    loop {
        match listener.accept().await {
            Err(error) => {
                if let Some(text) = unaccepted.another(&error, Instant::now()) {
                    log!(Warning, "{text}");
                }
                tokio::time::sleep(RETRY).await;
            }
            Ok((mut socket, _)) if desk.clients.get() >= desk.settings.clients_max => {
                // It is gone if it does not listen, and hears nothing of it with TLS.
                let _ = socket.try_write(b"-ERR max number of clients reached\r\n");
                let _ = socket.shutdown().await;
            }
            Ok((socket, _)) => {
                tune(&socket);
                let counted = Counted::new(&desk);
                match &tls {
                    None => tokio::task::spawn_local(attend(desk.clone(), socket, counted)),
                    Some(tls) => {
                        let agreeing = tokio::time::timeout(AGREEING, tls.accept(socket));
                        let desk = desk.clone();
                        tokio::task::spawn_local(async move {
                            if let Ok(Ok(socket)) = agreeing.await {
                                attend(desk, socket, counted).await;
                            }
                        })
                    }
                };
            }
        }
    }
}

/// Of who comes, and of who is gone to.
pub(super) fn tune(socket: &TcpStream) {
    // Only latency depends on it.
    let _ = socket.set_nodelay(true);
    // And on this only how long it counts whose machine is gone.
    let keepalive = TcpKeepalive::new().with_time(QUIET).with_interval(LOOKING);
    let _ = SockRef::from(socket).set_tcp_keepalive(&keepalive);
}

/// Counts a client for as long as it is there.
struct Counted(Rc<Desk>);

impl Counted {
    fn new(desk: &Rc<Desk>) -> Counted {
        desk.clients.set(desk.clients.get() + 1);
        desk.clients_ever.set(desk.clients_ever.get() + 1);
        Counted(desk.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.clients.set(self.0.clients.get() - 1);
    }
}

/// Counts who follows something for as long as it does.
struct Follows(Rc<Desk>, Followed);

impl Follows {
    fn new(desk: &Rc<Desk>, of: Followed) -> Follows {
        let count = desk.followers.of(of);
        count.set(count.get() + 1);
        Follows(desk.clone(), of)
    }
}

impl Drop for Follows {
    fn drop(&mut self) {
        let count = self.0.followers.of(self.1);
        count.set(count.get() - 1);
    }
}

async fn attend(desk: Rc<Desk>, mut socket: impl AsyncRead + AsyncWrite + Unpin, _counted: Counted) {
    let mut session = Session::new(&desk);
    // However it ends: the connection does.
    let _ = converse(&desk, &mut session, &mut socket).await;
}

async fn converse(
    desk: &Rc<Desk>,
    session: &mut Session,
    socket: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> std::io::Result<()> {
    let (mut parser, mut batch) = (Parser::new(), Batch::new());
    let (mut buffer, mut chunk) = (Vec::new(), vec![0; READ_BYTES]);
    let stranger_until = Instant::now() + LOGGING_IN;
    loop {
        let authenticated = if session.is_known { Authenticated::Yes } else { Authenticated::No };
        let limits = Limits { bulk_bytes_max: BULK_BYTES_MAX, authenticated };
        batch.clear();
        let parsed = parser.parse(&buffer, &limits, &mut batch, 1);
        let words: Option<Vec<Vec<u8>>> =
            batch.iter(&buffer).next().map(|request| request.iter().map(<[u8]>::to_vec).collect());
        let taken = match parsed {
            Ok(taken) => taken,
            Err(error) => {
                let mut out = Vec::new();
                Reply::new(&mut out, session.protocol).error(error.line());
                return send(socket, &out).await;
            }
        };
        buffer.drain(..taken);
        if let Some(words) = words {
            desk.requests.set(desk.requests.get() + 1);
            let mut out = Vec::new();
            let flow = requests::answer(desk, session, words, &mut out).await;
            send(socket, &out).await?;
            match flow {
                Flow::Next => {}
                Flow::End => return socket.shutdown().await,
                Flow::Follow { of, mut revision, seen, users } => {
                    if let Some(users) = users.filter(|users| users.revision > revision) {
                        revision = users.revision;
                        tell(socket, &users.text).await?;
                    }
                    return follow(desk, socket, of, (revision, seen)).await;
                }
            }
        } else if taken == 0 {
            if buffer.len() > REQUEST_BYTES_MAX {
                return Ok(());
            }
            let reading = socket.read(&mut chunk);
            let read = match session.is_known {
                true => reading.await?,
                false => tokio::time::timeout_at(stranger_until, reading).await??,
            };
            match read {
                0 => return Ok(()),
                count => buffer.extend_from_slice(&chunk[..count]),
            }
        }
    }
}

async fn send(socket: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    send_within(WRITING, socket, bytes).await
}

/// Sends all of it, as long as a bit of it goes so often: all users are many bytes, on a slow way.
async fn send_within(
    patience: Duration,
    socket: &mut (impl AsyncWrite + Unpin),
    mut bytes: &[u8],
) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match tokio::time::timeout(patience, socket.write(bytes)).await?? {
            0 => return Err(std::io::ErrorKind::WriteZero.into()),
            count => bytes = &bytes[count..],
        }
    }
    tokio::time::timeout(patience, socket.flush()).await?
}

async fn tell(socket: &mut (impl AsyncWrite + Unpin), text: &str) -> std::io::Result<()> {
    send(socket, format!("${}\r\n", text.len()).as_bytes()).await?;
    send(socket, text.as_bytes()).await?;
    send(socket, b"\r\n").await
}

/// Sends each topology, or all users, that are later than the last ones, until the connection ends, or the store gives no news any more. Of several that come while
/// one is sent the last counts. Something is sent at once: what is known is fresh. Who is not heard of is told, with topologies, when that changes.
async fn follow(
    desk: &Rc<Desk>,
    socket: &mut (impl AsyncRead + AsyncWrite + Unpin),
    of: Followed,
    (mut revision, mut highest): (u64, Option<Revision>),
) -> std::io::Result<()> {
    let _counted = Follows::new(desk, of);
    let mut published = desk.published.clone();
    let mut silent: Arc<str> = SILENT.into();
    let mut ignored = [0; 256];
    // The first one comes at once.
    let mut signs = tokio::time::interval(SIGN_OF_LIFE);
    signs.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        if let Err(line) = requests::has_news(desk) {
            return send(socket, format!("-{}\r\n", line.replace(['\r', '\n'], " ")).as_bytes()).await;
        }
        let (seen, news, silent_now) = {
            let published = published.borrow_and_update();
            let (now, text, silent) = match of {
                Followed::Topology => (published.revision, &published.text, published.silent.clone()),
                Followed::Users => (published.users.revision, &published.users.text, silent.clone()),
            };
            let news = (now > revision && !text.is_empty()).then(|| (now, text.clone()));
            (published.seen(of), news, silent)
        };
        if seen < highest {
            // The store has gone back meanwhile. Others may write to it as well: what was told by who has read all of it may be of a later revision than this one has seen.
            let (seen, known) = (seen.unwrap_or_default(), highest.unwrap_or_default());
            return send(socket, format!("-{}\r\n", requests::past(seen.0, known.0)).as_bytes()).await;
        }
        highest = seen;
        if let Some((later, text)) = news {
            revision = later;
            tell(socket, &text).await?;
        }
        if silent_now != silent {
            tell(socket, &silent_now).await?;
            silent = silent_now;
        }
        tokio::select! {
            changed = published.changed() => if changed.is_err() { return Ok(()) },
            _ = signs.tick() => send(socket, b"$0\r\n\r\n").await?,
            read = socket.read(&mut ignored) => if read? == 0 { return Ok(()) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_accepted_is_told_once_a_minute() {
        let (mut unaccepted, begun) = (Unaccepted::default(), Instant::now());
        let mut told = |tenths: u64| {
            let now = begun + Duration::from_millis(100 * tenths);
            unaccepted.another(&"Too many open files", now)
        };
        assert_eq!(told(0).as_deref(), Some("A connection could not be accepted: Too many open files"));
        assert!((1..600).all(|tenths| told(tenths).is_none()));
        assert!(told(600).is_some_and(|text| text.contains("599 times")));
        assert!((601..1200).all(|tenths| told(tenths).is_none()));
    }

    #[tokio::test]
    async fn what_goes_bit_by_bit_may_take_as_long_as_it_takes() {
        let (patience, bit) = (Duration::from_secs(2), 16);
        let (mut socket, mut client) = tokio::io::duplex(bit);
        let all = vec![7; 12 * bit];
        let taking = async {
            let mut taken = vec![0; bit];
            for _ in 0..12 {
                tokio::time::sleep(patience / 8).await;
                client.read_exact(&mut taken).await.expect("it is sent");
            }
        };
        let (sent, ()) = tokio::join!(send_within(patience, &mut socket, &all), taking);
        sent.expect("it goes on all the time");
        // Nobody takes anything any more.
        let stuck = send_within(Duration::from_millis(50), &mut socket, &all).await;
        assert!(stuck.is_err_and(|error| error.kind() == std::io::ErrorKind::TimedOut));
    }

    #[tokio::test]
    async fn whose_machine_is_gone_is_found_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a port");
        let address = listener.local_addr().expect("it has one");
        let (_client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (socket, _) = accepted.expect("it is accepted");
        tune(&socket);
        let tuned = SockRef::from(&socket);
        assert!(tuned.keepalive().expect("it is a socket"));
        assert_eq!(tuned.tcp_keepalive_time().expect("it is TCP"), QUIET);
    }
}
