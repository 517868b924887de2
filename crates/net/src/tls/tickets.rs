//! Tickets, by which clients go on with earlier sessions: the state is with the client, sealed by a key of the server's, so that
//! the server keeps nothing of clients that are gone.

use rustls::crypto::ring::Ticketer;
use rustls::server::ProducesTickets;
use rustls::ticketer::TicketRotator;
use std::sync::Arc;

/// The keys of one while.
#[derive(Debug)]
struct Keys(Arc<dyn ProducesTickets>);

impl ProducesTickets for Keys {
    fn enabled(&self) -> bool {
        self.0.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.0.encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.0.decrypt(cipher)
    }
}

/// What makes tickets that hold for at most so many seconds, and for at least half of them. Those of an earlier issuer are worth nothing to it.
///
/// # Errors
/// The system has no randomness.
pub fn issuer(seconds: u32) -> Result<Arc<dyn ProducesTickets>, String> {
    let rotator = TicketRotator::new((seconds / 2).max(1), || {
        Ticketer::new()
            .map(|keys| Box::new(Keys(keys)) as Box<dyn ProducesTickets>)
            .map_err(|_| rustls::crypto::GetRandomFailed)
    });
    Ok(Arc::new(rotator.map_err(|error| format!("Keys for tickets: {error}"))?))
}
