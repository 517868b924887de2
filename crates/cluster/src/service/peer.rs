//! What this config server says to others: requests that only the leader carries out, who lives, and to a server that it is to be master.

use super::client::tune;
use super::desk::{Desk, Letter};
use crate::control::Leader;
use replication::insync::Loss;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use topology::Server;
use wire::{Decoder, Value, encode_request};

/// How long reaching somebody and one answer may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the leader may take for an order.
const ORDER_PATIENCE: Duration = Duration::from_secs(3700);
/// What is answered where the leader that was asked does not answer, and leads no more.
const REPLACED: &str = "UNKNOWN the config server that leads is another now, and the one before has not said what has become of this: look, and say it again if it was not done";
/// How often the leader is told who lives.
const TELLING: Duration = Duration::from_secs(1);
/// Bytes that are read at once.
const READ_BYTES: usize = 4096;

/// Why there is no value.
enum Failure {
    /// It is refused: what it answers behind `-`.
    Said(String),
    /// Nobody knows what became of the request.
    Broken(String),
}

/// With TLS or without.
trait Socket: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket for S {}

/// A connection to a config server or to a server.
pub struct Peer {
    socket: Box<dyn Socket>,
    decoder: Decoder,
}

impl Peer {
    /// Connects, with TLS if the settings say so, and says the password if there is one.
    ///
    /// # Errors
    /// A sentence.
    async fn connect(
        desk: &Desk,
        (host, port): (&str, u16),
        user: &str,
        password: Option<&str>,
    ) -> Result<Peer, String> {
        let tls = desk.settings.peers.clone();
        let connecting = tokio::time::timeout(PATIENCE, connect(host, port, tls));
        let shown = |why: &dyn std::fmt::Display| format!("{host}:{port}: {why}");
        let socket =
            connecting.await.map_err(|_| shown(&"it takes too long"))?.map_err(|error| shown(&error))?;
        let mut peer = Peer { socket, decoder: Decoder::new() };
        if let Some(password) = password {
            let mut words = vec!["AUTH", user, password];
            words.retain(|word| *word != user || !user.is_empty());
            let words: Vec<&[u8]> = words.into_iter().map(str::as_bytes).collect();
            peer.ask(&words, PATIENCE).await.map_err(|failure| match failure {
                Failure::Said(why) => format!("{host}:{port} lets nobody in: {why}"),
                Failure::Broken(why) => shown(&why),
            })?;
        }
        Ok(peer)
    }

    /// Asks, and gives what is not an error.
    async fn ask(&mut self, words: &[&[u8]], patience: Duration) -> Result<Value, Failure> {
        let mut bytes = Vec::new();
        encode_request(&mut bytes, words);
        let asking = async {
            self.socket.write_all(&bytes).await.map_err(|error| error.to_string())?;
            self.socket.flush().await.map_err(|error| error.to_string())?;
            let mut buffer = vec![0; READ_BYTES];
            loop {
                if let Some(value) = self.decoder.decode().map_err(|error| error.to_string())? {
                    return Ok(value);
                }
                match self.socket.read(&mut buffer).await.map_err(|error| error.to_string())? {
                    0 => return Err("it has closed the connection".to_owned()),
                    count => self.decoder.feed(&buffer[..count]),
                }
            }
        };
        match tokio::time::timeout(patience, asking).await {
            Err(_) => Err(Failure::Broken("it gives no answer".to_owned())),
            Ok(Ok(Value::Error(text))) => Err(Failure::Said(String::from_utf8_lossy(&text).into_owned())),
            Ok(answer) => answer.map_err(Failure::Broken),
        }
    }
}

async fn connect(host: &str, port: u16, tls: Option<Arc<ClientConfig>>) -> std::io::Result<Box<dyn Socket>> {
    let socket = TcpStream::connect((host, port)).await?;
    tune(&socket);
    Ok(match tls {
        None => Box::new(socket),
        Some(context) => {
            // What name is in a certificate does not count (`net::tls`).
            let name = ServerName::IpAddress(socket.peer_addr()?.ip().into());
            Box::new(TlsConnector::from(context).connect(name, socket).await?)
        }
    })
}

async fn to(desk: &Desk, leader: &Leader) -> Result<Peer, String> {
    Peer::connect(desk, (&leader.host, leader.port), "", desk.settings.password.as_deref()).await
}

/// Has the leader carry a request out.
///
/// # Errors
/// What stands behind `-`.
pub async fn pass_on(desk: &Desk, words: &[Vec<u8>]) -> Result<Value, String> {
    let Some(leader) = desk.known().leader else {
        return Err("NOLEADER no config server leads now, which this needs; try again".to_owned());
    };
    let mut peer =
        to(desk, &leader).await.map_err(|why| format!("NOLEADER the leader is not reached: {why}"))?;
    let head = [&b"CONFIG-SERVER"[..], b"PASSED"];
    let words: Vec<&[u8]> = head.into_iter().chain(words.iter().map(Vec::as_slice)).collect();
    let mut published = desk.published.clone();
    let is_replaced = async {
        // The service may have ended: then so does this.
        let _ = published.wait_for(|published| published.leader.as_ref() != Some(&leader)).await;
        // One that lives says itself that it leads no more.
        tokio::time::sleep(PATIENCE).await;
    };
    tokio::select! {
        answer = peer.ask(&words, ORDER_PATIENCE) => answer.map_err(|failure| match failure {
            Failure::Said(line) => line,
            Failure::Broken(why) => format!(
                "UNKNOWN the config server that leads, {}:{}: {why}; look, and say it again if it was not done",
                leader.host, leader.port
            ),
        }),
        () = is_replaced => Err(REPLACED.to_owned()),
    }
}

/// Tells the leader who lives, as long as it is another.
pub async fn tell_leader(desk: Rc<Desk>) {
    let mut every = tokio::time::interval(TELLING);
    let mut peer: Option<(Leader, Peer)> = None;
    loop {
        every.tick().await;
        let known = desk.known();
        let Some(leader) = known.leader.filter(|_| !known.leads) else {
            peer = None;
            continue;
        };
        let mut connected = match peer.take().filter(|(to, _)| *to == leader) {
            Some((_, connected)) => connected,
            None => match to(&desk, &leader).await {
                Ok(connected) => connected,
                Err(_) => continue,
            },
        };
        let (answer, answered) = oneshot::channel();
        if desk.letters.send(Letter::Heard(answer)).await.is_err() {
            return;
        }
        let mut words = vec![b"CONFIG-SERVER".to_vec(), b"HEARD".to_vec()];
        for (id, ago, figures) in answered.await.unwrap_or_default() {
            if ago < 2 * TELLING {
                let ago = ago.as_millis().to_string();
                words.extend([id.to_string().into_bytes(), ago.into_bytes(), figures.into_bytes()]);
            }
        }
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        if let Ok(Value::Bulk(silent)) = connected.ask(&words, PATIENCE).await {
            *desk.silent.borrow_mut() = String::from_utf8_lossy(&silent).into();
            peer = Some((leader, connected));
        }
    }
}

/// Has a server of a shard be master: its master hands over to it, or, if that cannot be asked or is said to be gone, it takes its place.
///
/// # Errors
/// What stands behind `-`: why neither of the two does it, or that nobody knows.
pub async fn promote(
    desk: &Desk,
    server: &Server,
    master: Option<&Server>,
    loss: Loss,
) -> Result<(), String> {
    if let Loss::Accepted(version) = loss {
        let version = version.map(|version| version.0.to_string());
        let mut words: Vec<&[u8]> = vec![b"INSYNC", b"PROMOTE", b"ACCEPT-LOSS"];
        words.extend(version.as_ref().map(|version| version.as_bytes()));
        return tell(desk, server, &words).await.map_err(|why| unpromoted(&[(HEIR, why)]));
    }
    let mut refusals = Vec::new();
    if let (Some(master), Some(place)) = (master, server.place) {
        let node = place.node.to_string();
        match tell(desk, master, &[b"INSYNC", b"HANDOVER", node.as_bytes()]).await {
            Ok(()) => return Ok(()),
            Err(why) => refusals.push((MASTER, why)),
        }
    }
    tell(desk, server, &[b"INSYNC", b"PROMOTE"]).await.map_err(|why| {
        refusals.push((HEIR, why));
        unpromoted(&refusals)
    })
}

/// Who was asked to hand over.
const MASTER: &str = "the master";
/// Who was asked to take the place.
const HEIR: &str = "the server that was to be master";

/// Why a server does not do what it was told.
#[derive(Debug)]
enum Untold {
    /// It was told nothing.
    NotReached(String),
    /// It does not.
    Refuses(String),
    /// It may have.
    Silent(String),
}

/// What each of those who were asked has made of it.
fn unpromoted(refusals: &[(&str, Untold)]) -> String {
    let may_be_done = refusals.iter().any(|(_, why)| matches!(why, Untold::Silent(_)));
    let shown = refusals.iter().map(|(who, why)| match why {
        Untold::NotReached(why) => format!("{who} is not reached: {why}"),
        Untold::Refuses(why) => format!("{who} refuses: {why}"),
        Untold::Silent(why) => format!("{who} may do it, and does not say so: {why}"),
    });
    let shown = shown.collect::<Vec<_>>().join("; ");
    match may_be_done {
        true => format!("UNKNOWN {shown}: look, and say it again if it was not done"),
        false => format!("ERR {shown}"),
    }
}

async fn tell(desk: &Desk, server: &Server, words: &[&[u8]]) -> Result<(), Untold> {
    let settings = &desk.settings;
    let password = settings.server_password.as_deref();
    let port = if settings.peers.is_some() { server.tls_port } else { server.port };
    let place = (server.host.as_str(), port);
    let connecting = Peer::connect(desk, place, &settings.server_user, password);
    let mut peer = connecting.await.map_err(Untold::NotReached)?;
    let at = |why: String| format!("{}:{port}: {why}", server.host);
    peer.ask(words, PATIENCE).await.map(drop).map_err(|failure| match failure {
        Failure::Said(why) => Untold::Refuses(at(why)),
        Failure::Broken(why) => Untold::Silent(at(why)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_a_hand_over_is_told_of_both() {
        let refuses = |why: &str| Untold::Refuses(why.to_owned());
        let told = unpromoted(&[(MASTER, Untold::NotReached("h:1".to_owned())), (HEIR, refuses("ERR no"))]);
        assert_eq!(
            told,
            "ERR the master is not reached: h:1; the server that was to be master refuses: ERR no"
        );
        let told = unpromoted(&[(MASTER, Untold::Silent("h:1: it ends".to_owned())), (HEIR, refuses("no"))]);
        assert!(told.starts_with("UNKNOWN the master may do it"), "{told}");
    }
}
