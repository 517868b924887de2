//! What all threads share that accept and serve clients: it is the same whatever is served.

use crate::client::Clients;
use crate::gate::Gate;
use crate::listen::Doors;
use crate::placement::Placement;
use crate::tls::Tls;
use std::sync::Arc;
use sys::Clock;
use telemetry::rounds::RoundCounts;

/// All of it.
pub struct Shared {
    /// Who is connected.
    pub clients: Arc<Clients>,
    /// Holds replies back.
    pub gate: Gate,
    /// Where connections are accepted by TCP, with the ports really taken.
    pub doors: Doors,
    /// What TLS connections are made from.
    pub tls: Tls,
    /// Which worker has which connections.
    pub placement: Placement,
    /// What workers have done in their rounds.
    pub rounds: Box<[RoundCounts]>,
}

impl Shared {
    /// For so many workers, the last of which is the spare one.
    pub fn new(workers: usize, clock: Clock) -> Shared {
        Shared {
            gate: Gate::new(workers, &clock),
            clients: Arc::new(Clients::new(clock)),
            doors: Doors::default(),
            tls: Tls::default(),
            placement: Placement::new(workers),
            rounds: (0..workers).map(|_| RoundCounts::default()).collect(),
        }
    }
}
