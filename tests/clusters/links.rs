//! What is between a server and the others: a link by which they reach it, which it announces, and one to each config server.

use std::net::{Ipv4Addr, SocketAddr};
use testkit::relay::Relay;
pub use testkit::relay::Way;

/// A server's links.
pub struct Links {
    own: Relay,
    to_config: Vec<Relay>,
}

impl Links {
    /// Those of a server that does not run yet.
    pub fn to(config_servers: &[SocketAddr]) -> Links {
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let relay = |to: &SocketAddr| Relay::to(*to).expect("it listens");
        Links { own: relay(&nowhere), to_config: config_servers.iter().map(relay).collect() }
    }

    /// Where others are told that the server is.
    pub fn address(&self) -> SocketAddr {
        self.own.address()
    }

    /// What makes a server use them.
    pub fn directives(&self) -> Vec<String> {
        let places: Vec<String> = self.to_config.iter().map(|relay| relay.address().to_string()).collect();
        let port = self.address().port().to_string();
        let words = ["--cluster-config-servers", &places.join(","), "--cluster-announce-port", &port];
        words.map(str::to_owned).to_vec()
    }

    /// The server is here now.
    pub fn aim(&self, server: SocketAddr) {
        self.own.aim(server);
    }

    /// What others say to the server does not arrive, or what it answers; with None neither, and those who connect are refused.
    pub fn cut_off(&self, way: Option<Way>) {
        match way {
            Some(way) => self.own.stop(way),
            None => self.own.cut(),
        }
    }

    /// Nor does it reach a config server.
    pub fn cut_off_from_config(&self) {
        self.to_config.iter().for_each(Relay::cut);
    }

    /// All is as it was.
    pub fn mend(&self) {
        self.own.mend();
        self.to_config.iter().for_each(Relay::mend);
    }
}
