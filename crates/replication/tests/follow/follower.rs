//! A replica without data: the link's machines over one blocking socket.

use log::ReplicationId;
use replication::insync::Moment;
use replication::link::limits::{RDB_BYTES_MAX_DEFAULT, UNIT_BYTES_MAX_DEFAULT};
use replication::link::{
    Ask, Form, Handshake, MasterStream, Outcome, Place, Replica, Report, Reports, Transfer, UnitKind, Words,
    acknowledgement,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use sys::Prng;

/// Longest wait for anything.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Longest wait for bytes before there is something else to look at.
const PULSE: Duration = Duration::from_millis(20);

/// A socket whose reads are cut by chance.
pub struct Connection {
    socket: TcpStream,
    prng: Prng,
    /// Came and was left for whoever goes on.
    left: Vec<u8>,
}

impl Connection {
    fn open(address: SocketAddr) -> Connection {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PULSE)).unwrap();
        Connection { socket, prng: Prng::from_seed(u64::from(address.port())), left: Vec::new() }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// What was left, or what one read brings; nothing if none comes within a pulse.
    fn receive(&mut self) -> Vec<u8> {
        if !self.left.is_empty() {
            return std::mem::take(&mut self.left);
        }
        let longest = [1, 30, 5000, 100_000][usize::try_from(self.prng.below(4)).unwrap()];
        let mut bytes = vec![0; longest];
        match self.socket.read(&mut bytes) {
            Ok(0) => panic!("the master closed the connection"),
            Ok(count) => bytes.truncate(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => bytes.clear(),
            Err(error) => panic!("{error}"),
        }
        bytes
    }
}

/// Waits until `look` gives something.
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what} did not come");
    }
}

/// Connects and goes through the handshake.
pub fn introduce(address: SocketAddr, replica: &Replica, ask: Ask) -> (Connection, Outcome) {
    let mut connection = Connection::open(address);
    let (mut handshake, first) = Handshake::begin(replica.clone(), ask);
    connection.send(&first);
    let outcome = until("the end of the handshake", || {
        let bytes = connection.receive();
        let step = handshake.step(&bytes);
        connection.send(&step.send);
        connection.left = bytes[step.used..].to_vec();
        step.outcome
    });
    (connection, outcome)
}

/// Receives an RDB, with a sign of life before it.
pub fn receive_rdb(connection: &mut Connection) -> (Vec<u8>, Form) {
    connection.send(&Reports::new().step(Moment::default(), Report::Loading));
    let mut transfer = Transfer::new(RDB_BYTES_MAX_DEFAULT);
    let mut rdb = Vec::new();
    until("the end of the RDB", || {
        let bytes = connection.receive();
        let taken = transfer.step(&bytes).unwrap();
        taken.parts().iter().for_each(|part| rdb.extend_from_slice(part));
        connection.left = bytes[taken.used..].to_vec();
        taken.is_complete.then_some(())
    });
    (rdb, transfer.form().unwrap())
}

/// One request that was to be applied.
#[derive(Clone, Debug)]
pub struct Applied {
    pub database: u32,
    pub arguments: Vec<Vec<u8>>,
    /// Which unit it was of.
    pub unit: usize,
}

/// A replica that follows the stream.
pub struct Follower {
    connection: Connection,
    stream: MasterStream,
    reports: Reports,
    began: Instant,
    pub id: ReplicationId,
    /// Of each unit so far what it was.
    pub kinds: Vec<UnitKind>,
    pub applied: Vec<Applied>,
    /// Bytes that were fed.
    fed: u64,
}

impl Follower {
    /// Follows on a connection from a place on.
    pub fn new(connection: Connection, id: ReplicationId, place: Place) -> Follower {
        Follower {
            connection,
            stream: MasterStream::new(place, UNIT_BYTES_MAX_DEFAULT),
            reports: Reports::new(),
            began: Instant::now(),
            id,
            kinds: Vec::new(),
            applied: Vec::new(),
            fed: place.offset,
        }
    }

    /// Where it would resume.
    pub fn place(&self) -> Place {
        self.stream.place()
    }

    /// Follows for a pulse, up to `end` and no byte further: a connection that breaks there.
    pub fn follow_up_to(&mut self, end: u64) {
        let report = Report::Following { applied: self.place().offset, durable: None };
        let now = Moment(u64::try_from(self.began.elapsed().as_micros()).unwrap());
        let bytes = self.reports.step(now, report);
        self.connection.send(&bytes);
        let bytes = self.connection.receive();
        let count = usize::try_from(end - self.fed).map_or(bytes.len(), |left| left.min(bytes.len()));
        self.fed += count as u64;
        self.stream.feed(&bytes[..count]);
        while let Some(unit) = self.stream.next_unit().unwrap() {
            if let Some(offset) = unit.acknowledged() {
                self.connection.send(&acknowledgement(offset, None));
            }
            let mut words = Words::default();
            let mut walk = unit.walk(&mut words);
            while let Some(group) = walk.next_group() {
                self.applied.extend(group.commands().map(|one| Applied {
                    database: one.database,
                    arguments: one.request.iter().map(<[u8]>::to_vec).collect(),
                    unit: self.kinds.len(),
                }));
            }
            self.kinds.push(unit.kind());
        }
    }

    /// Follows for a pulse.
    pub fn follow(&mut self) {
        self.follow_up_to(u64::MAX);
    }

    /// Bytes that were fed, whole units or not.
    pub fn fed(&self) -> u64 {
        self.fed
    }

    /// The connection breaks, and another one goes on with the same stream. Says how the master called it.
    pub fn resume(&mut self, address: SocketAddr) -> Outcome {
        let place = self.place();
        let ask = Ask::Rest { id: self.id, offset: place.offset };
        let (connection, outcome) = introduce(address, &Replica::default(), ask);
        if let Outcome::Partial { renamed } = outcome {
            self.id = renamed.unwrap_or(self.id);
        }
        (self.connection, self.stream, self.fed) =
            (connection, MasterStream::new(place, UNIT_BYTES_MAX_DEFAULT), place.offset);
        self.reports = Reports::new();
        outcome
    }
}
