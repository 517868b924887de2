//! A connection to the store of decisions, or to a config server, on which one asks and waits.
//!
//! Thread rule: one thread has it.

use super::dialling::{TlsBy, connect, credentials};
use super::look;
use crate::server::Server;
use crate::shard::Address;
use net::connect::{Look, Outgoing};
use std::error::Error;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{Decoder, Value, encode_request};

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

/// What the other side has answered that is an error.
#[derive(Debug)]
struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl Error for Refusal {}

/// The words of the other side, if that is why something has come to nothing; None: the connection is, and nobody can say what has become of it.
#[must_use]
pub fn said(error: &io::Error) -> Option<&str> {
    error.get_ref()?.downcast_ref::<Refusal>().map(|refusal| refusal.0.as_str())
}

/// For how long an answer is waited for.
#[derive(Clone, Copy)]
enum Until {
    /// All of it is to be there then.
    All(Instant),
    /// Some of it is to come so often, and all of it is to be there then, if that is said.
    Each(Duration, Option<Instant>),
}

/// A connection on which one asks and waits.
pub struct Asking<'s> {
    server: &'s Arc<Server>,
    outgoing: Outgoing,
    decoder: Decoder,
    patience: Duration,
}

impl<'s> Asking<'s> {
    /// Connects, with the password for other servers if there is one. This, and each answer, may take so long.
    ///
    /// # Errors
    /// Those of the system; the password is wrong; the server ends.
    pub fn to(
        server: &'s Arc<Server>,
        address: &Address,
        by: TlsBy,
        patience: Duration,
    ) -> io::Result<Asking<'s>> {
        let deadline = Instant::now() + patience;
        let outgoing = connect(server, address, by, deadline, &mut || look(server))?;
        let mut asking = Asking { server, outgoing, decoder: Decoder::new(), patience };
        if let Some(words) = credentials(server) {
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            asking.ask(&words)?;
        }
        Ok(asking)
    }

    /// This side's address, by which the other side can be expected to reach it, too.
    ///
    /// # Errors
    /// Those of the system.
    pub fn own_address(&self) -> io::Result<IpAddr> {
        self.outgoing.socket().local_addr().map(|address| address.ip())
    }

    /// Sets how often it looks whether a wait is to end, from now on: each time costs a waking, and there may be many such connections.
    ///
    /// # Errors
    /// Those of the system.
    pub fn look_every(&self, interval: Duration) -> io::Result<()> {
        self.outgoing.set_patience(interval)
    }

    /// Whether the other side is known to have gone, while nothing is asked.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.outgoing.is_over()
    }

    /// Whatever is waited for from here on may take that long.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// Those of the connection; the answer is an error, whose text it gives.
    pub fn ask(&mut self, words: &[&[u8]]) -> io::Result<Value> {
        self.say(words)?;
        self.receive()
    }

    /// The same, for no longer than that.
    ///
    /// # Errors
    /// As [`Asking::ask`]; `TimedOut`.
    pub fn ask_within(&mut self, patience: Duration, words: &[&[u8]]) -> io::Result<Value> {
        self.say(words)?;
        self.receive_before(Instant::now() + patience.min(self.patience))
    }

    /// Asks, and leaves the answer to [`Asking::receive`].
    ///
    /// # Errors
    /// Those of the connection.
    pub fn say(&mut self, words: &[&[u8]]) -> io::Result<()> {
        let mut bytes = Vec::new();
        encode_request(&mut bytes, words);
        self.outgoing.set_deadline(Instant::now() + self.patience);
        let server = self.server;
        self.outgoing.write_all(&bytes, &mut || look(server))
    }

    /// Waits for what comes next.
    ///
    /// # Errors
    /// As [`Asking::ask`].
    pub fn receive(&mut self) -> io::Result<Value> {
        self.receive_before(Instant::now() + self.patience)
    }

    /// The same, as long as `is_wanted`, which is asked again and again.
    ///
    /// # Errors
    /// As [`Asking::ask`]; those of `is_wanted`.
    pub fn receive_while(&mut self, mut is_wanted: impl FnMut() -> io::Result<()>) -> io::Result<Value> {
        let (server, until) = (self.server, Until::All(Instant::now() + self.patience));
        self.receive_by(until, &mut || look(server).and_then(|()| is_wanted()))
    }

    /// Waits for what comes next, until then. Who was left without it may go on waiting.
    ///
    /// # Errors
    /// As [`Asking::ask`]; `TimedOut`.
    pub fn receive_before(&mut self, deadline: Instant) -> io::Result<Value> {
        let server = self.server;
        self.receive_by(Until::All(deadline), &mut || look(server))
    }

    /// Waits for what comes next and may be long: as long as some of it comes all the time.
    ///
    /// # Errors
    /// As [`Asking::ask`]; `TimedOut`.
    pub fn receive_long(&mut self) -> io::Result<Value> {
        let (server, until) = (self.server, Until::Each(self.patience, None));
        self.receive_by(until, &mut || look(server))
    }

    /// The same, until then.
    ///
    /// # Errors
    /// As [`Asking::receive_long`].
    pub fn receive_long_before(&mut self, deadline: Instant) -> io::Result<Value> {
        let (server, until) = (self.server, Until::Each(self.patience, Some(deadline)));
        self.receive_by(until, &mut || look(server))
    }

    fn receive_by(&mut self, until: Until, look: Look<'_>) -> io::Result<Value> {
        let mut buffer = Vec::new();
        loop {
            match self.decoder.decode().map_err(io::Error::other)? {
                Some(Value::Error(text)) => {
                    return Err(io::Error::other(Refusal(String::from_utf8_lossy(&text).into_owned())));
                }
                Some(value) => return Ok(value),
                None => {}
            }
            self.outgoing.set_deadline(match until {
                Until::All(deadline) => deadline,
                Until::Each(patience, None) => Instant::now() + patience,
                Until::Each(patience, Some(deadline)) => deadline.min(Instant::now() + patience),
            });
            buffer.resize(READ_BYTES, 0);
            match self.outgoing.read(&mut buffer, look)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.decoder.feed(&buffer[..count]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{assembly, commands};
    use config::{Config, Startup};
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};

    fn server() -> Arc<Server> {
        commands::install();
        let Ok(Startup::Serve { config, .. }) = Config::from_text(b"loglevel warning\n") else {
            panic!("the directives are known")
        };
        assembly::new(*config, 1)
    }

    /// Somebody who answers with these bits, with a pause behind each, and is gone.
    fn somebody(bits: &'static [&'static [u8]], pause: Duration) -> Address {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a port");
        let port = listener.local_addr().expect("it has one").port();
        std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("somebody comes");
            let _ = socket.read(&mut [0; 1024]);
            for bit in bits {
                // Whoever has waited for too long is gone.
                let _ = socket.write_all(bit);
                std::thread::sleep(pause);
            }
        });
        Address { host: "127.0.0.1".to_owned(), port }
    }

    #[test]
    fn what_comes_bit_by_bit_may_take_as_long_as_it_takes() {
        let (server, patience) = (server(), Duration::from_secs(2));
        let bits: &[&[u8]] = &[b"$10\r\n", b"01", b"23", b"4", b"5", b"6", b"7", b"8", b"9", b"\r\n"];
        let ask = || {
            let place = somebody(bits, patience / 8);
            let mut asking = Asking::to(&server, &place, TlsBy::Cluster, patience).expect("it is reached");
            asking.say(&[b"USERS", b"GET"]).expect("it is there");
            asking
        };
        assert_eq!(ask().receive_long().expect("it comes"), Value::Bulk(b"0123456789".to_vec()));
        let late = ask().receive().expect_err("it takes longer than that");
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        let silent = somebody(&[b"$10\r\n", b"01"], 2 * patience);
        let mut asking = Asking::to(&server, &silent, TlsBy::Cluster, patience / 2).expect("it is reached");
        asking.say(&[b"USERS", b"GET"]).expect("it is there");
        let late = asking.receive_long().expect_err("nothing comes any more");
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn only_what_the_other_side_has_answered_is_taken_for_its_words() {
        let (server, patience) = (server(), Duration::from_secs(20));
        let why = |bits: &'static [&'static [u8]]| {
            let place = somebody(bits, Duration::ZERO);
            let mut asking = Asking::to(&server, &place, TlsBy::Cluster, patience).expect("it is reached");
            asking.ask(&[b"PING"]).expect_err("it is no answer")
        };
        let refused = why(&[b"-ERR not now\r\n"]);
        assert_eq!((said(&refused), refused.to_string()), (Some("ERR not now"), "ERR not now".to_owned()));
        // Neither that it speaks another protocol, nor what TLS says of it.
        for other in [why(&[b"?\r\n"]), why(&[]), io::Error::other("received corrupt message")] {
            assert_eq!(said(&other), None, "{other}");
        }
    }
}
