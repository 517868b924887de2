//! A connection on which a server tells things by itself: one that is silent for long is asked whether it is still there.

use crate::links::Socket;
use std::io::{self, ErrorKind};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};
use wire::{Decoder, Value, encode_request};

/// A server that says nothing for so long is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(5);
const READ_BYTES: usize = 64 << 10;

/// The connection.
pub struct Line {
    socket: Socket,
    decoder: Decoder,
    buffer: Vec<u8>,
    /// When something came last.
    heard_at: Instant,
    /// It was asked whether it is there since.
    is_asked: bool,
    /// How long the answer to that may take, and a server to take what is said; zero: for ever.
    patience: Duration,
}

/// What was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// Something has come.
    Came,
    /// It is silent, and to be asked.
    Silent,
}

impl Line {
    /// A connection of a server that may take so long to answer; zero: for ever.
    pub fn new(socket: Socket, patience: Duration) -> Line {
        let (decoder, buffer) = (Decoder::new(), vec![0; READ_BYTES]);
        Line { socket, decoder, buffer, heard_at: Instant::now(), is_asked: false, patience }
    }

    /// Says something.
    ///
    /// # Errors
    /// The connection is lost, or the server takes no more.
    pub async fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (socket, patience) = (&mut self.socket, self.patience);
        let said = async move {
            socket.write_all(bytes).await?;
            socket.flush().await
        };
        match patience.is_zero() {
            true => said.await,
            false => timeout(patience, said).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into())),
        }
    }

    /// Waits until something has come. Nothing is lost where that is given up.
    ///
    /// # Errors
    /// The connection is lost, or nothing came though it was asked for.
    pub async fn wait(&mut self) -> io::Result<Waited> {
        loop {
            let silent_at = self.heard_at + if self.is_asked { self.patience } else { SILENCE };
            match timeout_at(silent_at, self.socket.read(&mut self.buffer)).await {
                Err(_) if !self.is_asked => return Ok(Waited::Silent),
                // It is waited for without end.
                Err(_) if self.patience.is_zero() => self.heard_at = Instant::now() + SILENCE,
                Err(_) => return Err(ErrorKind::TimedOut.into()),
                Ok(read) => {
                    let count = read?;
                    if count == 0 {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                    (self.is_asked, self.heard_at) = (false, Instant::now());
                    self.decoder.feed(&self.buffer[..count]);
                    return Ok(Waited::Came);
                }
            }
        }
    }

    /// Asks whether it is there.
    ///
    /// # Errors
    /// It is not.
    pub async fn ask(&mut self) -> io::Result<()> {
        let mut ping = Vec::new();
        encode_request(&mut ping, &[b"PING"]);
        (self.is_asked, self.heard_at) = (true, Instant::now());
        self.say(&ping).await
    }

    /// The next of what has come.
    ///
    /// # Errors
    /// It is nothing that a server says.
    pub fn take(&mut self) -> io::Result<Option<Value>> {
        self.decoder.decode().map_err(|_| ErrorKind::InvalidData.into())
    }
}
