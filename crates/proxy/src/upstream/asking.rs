//! Questions to a server that are not a client's.
//!
//! Thread rule: whoever asks waits.

use super::Node;
use net::connect::encode_authentication;
use server::insync::dialling::{self, TlsBy};
use server::server::Server;
use server::shard::Address;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};
use wire::{Decoder, Value, encode_request};

/// How long one server may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// The most that one may answer: all slots of a cluster, each with some replicas, are some MB.
const REPLIES_BYTES_MAX: usize = 64 << 20;

/// What a server answers to these lines, as whom the directives say; the first error ends it, and is the last answer.
///
/// # Errors
/// One sentence: it is not reached, or does not answer.
pub fn ask(host: &Server, node: &Node, lines: &[&str]) -> Result<Vec<Value>, String> {
    say(host, node, lines).map_err(|error| config::sentence(&error))
}

fn say(host: &Server, node: &Node, lines: &[&str]) -> io::Result<Vec<Value>> {
    let deadline = Instant::now() + PATIENCE;
    let look = &mut || Ok(());
    let address = Address { host: node.host.clone(), port: node.port };
    let mut outgoing = dialling::connect(host, &address, TlsBy::Cluster, deadline, look)?;
    let mut said = Vec::new();
    let mut is_greeted = !introduce(host, &mut said);
    for line in lines {
        encode_request(&mut said, &line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    }
    outgoing.write_all(&said, look)?;
    let (mut decoder, mut buffer, mut replies) = (Decoder::new(), [0; 16 << 10], Vec::new());
    let mut came = 0;
    loop {
        let bytes = outgoing.read(&mut buffer, look)?;
        came += bytes;
        if bytes == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if came > REPLIES_BYTES_MAX {
            return Err(io::Error::other("its answer is too long"));
        }
        decoder.feed(&buffer[..bytes]);
        while let Some(reply) = decoder.decode().map_err(|_| io::Error::from(ErrorKind::InvalidData))? {
            let is_error = matches!(reply, Value::Error(_));
            if is_greeted || is_error {
                replies.push(reply);
            }
            is_greeted = true;
            if is_error || replies.len() == lines.len() {
                return Ok(replies);
            }
        }
    }
}

/// Adds the words by which servers are told who asks, as the directives say at any moment: a password, or a name and one. False: there are none.
pub fn introduce(host: &Server, said: &mut Vec<u8>) -> bool {
    let (user, password) = (host.engine.config.masteruser(), host.engine.config.masterauth());
    match (user.is_empty(), password.is_empty()) {
        (true, true) => return false,
        (true, false) => encode_authentication(said, &[&password]),
        (false, _) => encode_authentication(said, &[&user, &password]),
    }
    true
}
