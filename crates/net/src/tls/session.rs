//! One connection's side of the protocol: bytes of the socket in, what the client said out, and the other way round.
//!
//! What the socket brings is opened from the caller's buffer, and what is said is sealed into it: between two calls nothing stays
//! here but the beginning of a record that has not arrived in full, so that a quiet connection keeps its keys and little else.
//!
//! Thread rule: one thread at a time has it; it may move between threads.
//!
//! Invariants:
//! 1. `partial` is what rustls has yet to see the end of: it comes first in the next call, whichever that is. rustls remembers places
//!    in it, and would panic at another buffer; so nothing is asked of it any more once `is_over`.

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
};
use std::io;
use std::sync::Arc;

/// The most that is kept of what has not arrived in full: a record has up to 18 KB, and so has a chain of a few certificates.
pub const PARTIAL_BYTES_MAX: usize = 32 << 10;
/// What sealing adds to a record at the most.
const RECORD_OVERHEAD: usize = 64;
/// The longest content of a record.
const RECORD_BYTES_MAX: usize = 16 << 10;

/// What is not counted of the certificates that a client has shown: it takes no more than other things that every client has.
const SHOWN_BYTES_ORDINARY: usize = 4 << 10;

/// One client's session.
pub struct Session {
    connection: UnbufferedServerConnection,
    partial: Vec<u8>,
    /// What may be kept of what the client has said to agree on keys: all of it, and from then on the certificates that it has shown.
    heard_bytes: usize,
    /// The client has said that it says nothing more.
    is_half_closed: bool,
    /// It has failed.
    is_over: bool,
}

/// What came of bytes that a socket brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More may come.
    Open,
    /// The client says nothing more; it may still listen.
    HalfClosed,
}

/// The session is over; what the client is told of it is among the answers.
#[derive(Debug)]
pub struct Failed(pub rustls::Error);

impl From<Failed> for io::Error {
    fn from(Failed(error): Failed) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

impl Session {
    /// For a client that has just connected.
    ///
    /// # Errors
    /// The context cannot be used.
    pub fn new(context: Arc<ServerConfig>) -> io::Result<Session> {
        let connection = UnbufferedServerConnection::new(context).map_err(io::Error::other)?;
        Ok(Session { connection, partial: Vec::new(), heard_bytes: 0, is_half_closed: false, is_over: false })
    }

    /// Whether the two have yet to agree on keys.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// The client's own certificate, if it has shown one. It has been checked.
    pub fn client_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.connection.peer_certificates().and_then(|chain| chain.first())
    }

    /// Bytes allocated for what has not arrived in full, and for what the client has shown of itself.
    pub fn allocated_bytes(&self) -> usize {
        self.partial.capacity() + self.heard_bytes
    }

    /// What has to be in front of the bytes that the socket brings next.
    pub fn partial(&self) -> &[u8] {
        &self.partial
    }

    /// Opens `bytes`, which begin with [`Session::partial`]. What the client said goes to `said`, piece by piece; what it is to be
    /// told at once is added to `answers`, also if this fails.
    ///
    /// # Errors
    /// The client does not keep to the protocol, or may not come in.
    pub fn open(
        &mut self,
        bytes: &mut [u8],
        answers: &mut Vec<u8>,
        said: impl FnMut(&[u8]),
    ) -> Result<Progress, Failed> {
        if self.is_over {
            return Err(Failed(rustls::Error::General("the session is over".to_owned())));
        }
        let opened = self.open_all(bytes, answers, said);
        self.is_over = opened.is_err();
        opened
    }

    fn open_all(
        &mut self,
        bytes: &mut [u8],
        answers: &mut Vec<u8>,
        mut said: impl FnMut(&[u8]),
    ) -> Result<Progress, Failed> {
        let was_handshaking = self.is_handshaking();
        let mut at = 0;
        loop {
            let UnbufferedStatus { mut discard, state } =
                self.connection.process_tls_records(&mut bytes[at..]);
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(Failed)?;
                        discard += record.discard;
                        said(record.payload);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    encode(answers, |room| data.encode(room).map_err(needed_to_encode));
                }
                // It is among the answers, which leave before anything else.
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.is_half_closed = true,
                Ok(
                    ConnectionState::BlockedHandshake
                    | ConnectionState::WriteTraffic(_)
                    | ConnectionState::Closed,
                ) => {
                    self.keep(&bytes[at + discard..])?;
                    if was_handshaking {
                        self.note_heard(at + discard);
                    }
                    break;
                }
                Ok(_) => return Err(Failed(rustls::Error::General("early data was not offered".to_owned()))),
                Err(error) => {
                    self.partial = Vec::new();
                    self.gather_alert(&mut bytes[at + discard..], answers);
                    return Err(Failed(error));
                }
            }
            at += discard;
        }
        Ok(if self.is_half_closed { Progress::HalfClosed } else { Progress::Open })
    }

    /// Keeps what has not arrived in full.
    fn keep(&mut self, rest: &[u8]) -> Result<(), Failed> {
        if rest.len() > PARTIAL_BYTES_MAX {
            return Err(Failed(rustls::Error::General("a message is too long".to_owned())));
        }
        self.partial = match self.is_half_closed {
            true => Vec::new(),
            false => rest.to_vec(),
        };
        Ok(())
    }

    /// So many bytes more were about agreeing on keys.
    fn note_heard(&mut self, bytes: usize) {
        self.heard_bytes = match self.is_handshaking() {
            // As it came, and as what it means.
            true => self.heard_bytes + 2 * bytes,
            false => self.shown_bytes().saturating_sub(SHOWN_BYTES_ORDINARY),
        };
    }

    fn shown_bytes(&self) -> usize {
        self.connection.peer_certificates().map_or(0, |chain| chain.iter().map(|shown| shown.len()).sum())
    }

    /// Says why it is over.
    fn gather_alert(&mut self, mut rest: &mut [u8], answers: &mut Vec<u8>) {
        // No further: what is behind it is not to be looked at.
        while self.connection.wants_write() {
            let UnbufferedStatus { discard, state } = self.connection.process_tls_records(rest);
            let Ok(ConnectionState::EncodeTlsData(mut data)) = state else { return };
            encode(answers, |room| data.encode(room).map_err(needed_to_encode));
            rest = &mut rest[discard..];
        }
    }

    /// Seals `words` into `sealed`, and before them what rustls has to say itself.
    ///
    /// # Errors
    /// The session has ended, or its keys may not be used any longer.
    pub fn seal(&mut self, words: &[u8], sealed: &mut Vec<u8>) -> io::Result<()> {
        self.writing(sealed, |traffic, sealed| {
            let records = words.len().div_ceil(RECORD_BYTES_MAX).max(1);
            let at = sealed.len();
            sealed.resize(at + words.len() + records * RECORD_OVERHEAD, 0);
            let count = traffic.encrypt(words, &mut sealed[at..]).map_err(io::Error::other)?;
            sealed.truncate(at + count);
            Ok(())
        })
    }

    /// Seals that nothing more will be said.
    ///
    /// # Errors
    /// The session has ended, or has yet to begin.
    pub fn seal_end(&mut self, sealed: &mut Vec<u8>) -> io::Result<()> {
        self.writing(sealed, |traffic, sealed| {
            encode(sealed, |room| traffic.queue_close_notify(room).map_err(needed_to_encrypt));
            Ok(())
        })
    }

    fn writing(
        &mut self,
        sealed: &mut Vec<u8>,
        write: impl FnOnce(&mut WriteTraffic<'_>, &mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.is_over {
            return Err(io::ErrorKind::NotConnected.into());
        }
        loop {
            let UnbufferedStatus { discard, state } = self.connection.process_tls_records(&mut self.partial);
            match state.map_err(io::Error::other)? {
                ConnectionState::EncodeTlsData(mut data) => {
                    encode(sealed, |room| data.encode(room).map_err(needed_to_encode));
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::WriteTraffic(mut traffic) => {
                    let result = write(&mut traffic, sealed);
                    self.partial.drain(..discard);
                    return result;
                }
                ConnectionState::PeerClosed => self.is_half_closed = true,
                // Whatever else there is, this is no moment to write.
                _ => return Err(io::ErrorKind::NotConnected.into()),
            }
            self.partial.drain(..discard);
        }
    }
}

type WriteTraffic<'c> = rustls::unbuffered::WriteTraffic<'c, rustls::server::ServerConnectionData>;

/// Adds something at the end of `into` that says itself how much room it needs.
fn encode(into: &mut Vec<u8>, mut encode: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>) {
    let at = into.len();
    loop {
        match encode(&mut into[at..]) {
            Ok(count) => return into.truncate(at + count),
            Err(Some(room)) if into.len() - at < room => into.resize(at + room, 0),
            // It has been said before.
            Err(_) => return into.truncate(at),
        }
    }
}

fn needed_to_encode(error: EncodeError) -> Option<usize> {
    match error {
        EncodeError::InsufficientSize(InsufficientSizeError { required_size }) => Some(required_size),
        EncodeError::AlreadyEncoded => None,
    }
}

fn needed_to_encrypt(error: EncryptError) -> Option<usize> {
    match error {
        EncryptError::InsufficientSize(InsufficientSizeError { required_size }) => Some(required_size),
        EncryptError::EncryptExhausted => None,
    }
}

#[cfg(test)]
mod tests;
