//! A worker: one thread with a single-threaded runtime, its share of the
//! connections, and the buffers that they take turns to use.
//!
//! A thread that runs a long script, or waits for what one holds, makes way ([`make_way`]): its other connections move to
//! workers that are free, and come back when it is.

use crate::connection::handshakes::Handshakes;
use crate::connection::secure::{SEALED_BYTES, Scratch};
use crate::connection::{self, Moved, Place};
use crate::dispatch::Runner;
use crate::gate::Queue;
use crate::listen::{Accepted, AcceptedSocket};
use crate::placement::Arrival;
use crate::placement::scaling::{self, Rounds};
use crate::server::{Ending, Server};
use crate::tick;
use engine::durability;
use net::client::{Client, Signal, Traits};
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::os::fd::AsRawFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use telemetry::log;
use tokio::runtime::LocalOptions;
use tokio::sync::mpsc::UnboundedReceiver;

/// Bytes read at once.
const INPUT_BYTES: usize = SEALED_BYTES;
/// How long replies may take to go out when the server stops.
pub const DRAIN_TIME: Duration = Duration::from_secs(2);

/// What a worker's connections share.
pub struct Worker {
    /// What all workers share.
    pub server: Arc<Server>,
    /// Runs requests.
    pub runner: RefCell<Runner>,
    /// Used by one connection at a time, between two waits.
    pub buffers: RefCell<Buffers>,
    /// Connections whose replies wait for the disk.
    pub gate_queue: Queue,
    /// Connections that have yet to agree on keys.
    pub handshakes: Handshakes,
    /// Its number.
    pub index: usize,
    /// Those that are about to come.
    arrivals: RefCell<UnboundedReceiver<Arrival>>,
    /// Those that it serves, by their clients' numbers.
    places: RefCell<HashMap<u64, Rc<Place>>>,
}

thread_local! {
    /// This thread's worker.
    static HERE: RefCell<Weak<Worker>> = const { RefCell::new(Weak::new()) };
}

/// Lets other workers serve the connections of this thread's, but for the one whose request runs now. To be called
/// again and again for as long as it runs.
pub fn make_way() {
    if let Some(worker) = HERE.with_borrow(Weak::upgrade) {
        worker.make_way();
    }
}

/// A worker's buffers.
pub struct Buffers {
    /// What was read last.
    pub input: Vec<u8>,
    /// The requests found in it.
    pub requests: wire::Batch,
    /// The replies to them.
    pub output: Vec<u8>,
    /// What is on its way between these and sockets with TLS.
    pub sealed: Scratch,
}

impl Worker {
    /// `proto-max-bulk-len` as the parser wants it.
    pub fn bulk_bytes_max(&self) -> u64 {
        self.server.engine.config.proto_max_bulk_len() as u64
    }

    #[cold]
    fn make_way(self: &Rc<Worker>) {
        let placement = &self.server.placement;
        if self.index == placement.spare() || self.server.engine.is_ending() {
            return;
        }
        if !placement.is_occupied(self.index) {
            placement.set_occupied(self.index, true);
            // Replies that leave may wait for what this thread has appended, and nobody else says that to the log.
            durability::write_gathered(&self.server.engine, || placement.connections_of(self.index));
            // It runs when this thread is back at its tasks.
            let worker = self.clone();
            tokio::task::spawn_local(async move { worker.be_free() });
        }
        while let Some(arrival) = self.arrivals.try_borrow_mut().ok().and_then(|mut all| all.try_recv().ok())
        {
            placement.leave(self.index);
            self.send(self.index, arrival);
        }
        let places: Vec<Rc<Place>> = self.places.borrow().values().cloned().collect();
        for moved in places.iter().filter_map(|place| place.leave(self)) {
            self.move_to(self.index, moved);
        }
    }

    /// Takes back what belongs here.
    fn be_free(&self) {
        self.server.placement.set_occupied(self.index, false);
        let spare = self.server.placement.spare();
        for client in self.server.clients.all() {
            let belongs_here = client.home() == self.index && client.worker() != self.index;
            if belongs_here || client.worker() == spare {
                client.signal(Signal::GO_HOME);
            }
        }
    }

    /// Sends a connection to the worker that it belongs to, or while that is occupied to another.
    pub fn send_home(&self, place: &Place) {
        if let Some(moved) = place.leave(self) {
            let home = moved.client().home();
            self.move_to(home, moved);
        }
    }

    fn move_to(&self, wanted: usize, moved: Moved) {
        self.server.placement.leave(self.index);
        self.send(wanted, Arrival::Moved(Box::new(moved)));
    }

    fn send(&self, wanted: usize, arrival: Arrival) {
        // At the server's end nobody takes it, and its socket is closed.
        self.server.placement.send(wanted, arrival);
    }

    /// A connection is not here any more.
    pub fn forget(&self, client: u64) {
        self.places.borrow_mut().remove(&client);
    }
}

/// Runs worker number `index` until the server ends.
pub fn run(server: Arc<Server>, index: usize, arrivals: UnboundedReceiver<Arrival>) {
    durability::gather();
    let idle = server.clone();
    let rounds = Rounds::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || {
            durability::write_gathered(&idle.engine, || idle.placement.connections_of(index));
            rounds.count(&idle);
        })
        .build_local(LocalOptions::default())
        .expect("a thread that could be started can have a poll instance");
    let worker = Rc::new(Worker {
        runner: RefCell::new(Runner::new(server.clone(), index)),
        buffers: RefCell::new(Buffers {
            input: vec![0; INPUT_BYTES],
            requests: wire::Batch::new(),
            output: Vec::new(),
            sealed: Scratch::default(),
        }),
        gate_queue: Queue::default(),
        handshakes: Handshakes::default(),
        server,
        index,
        arrivals: RefCell::new(arrivals),
        places: RefCell::default(),
    });
    HERE.replace(Rc::downgrade(&worker));
    worker.server.placement.is_mine(index);
    keyspace::when_stuck(make_way);
    runtime.block_on(work(worker));
}

async fn work(worker: Rc<Worker>) {
    let mut ending = worker.server.ending();
    let ticking = worker.clone();
    tokio::task::spawn_local(async move { tick::run(&ticking.server, ticking.index).await });
    if worker.index == worker.server.placement.spare() {
        tokio::task::spawn_local(scaling::run(worker.server.clone()));
    }
    let attending = worker.clone();
    tokio::task::spawn_local(async move {
        attending.gate_queue.attend(&attending.server.gate, attending.index).await;
    });
    let calling = worker.clone();
    tokio::task::spawn_local(async move { calling.handshakes.attend().await });
    loop {
        tokio::select! {
            arrival = poll_fn(|context| worker.arrivals.borrow_mut().poll_recv(context)) => match arrival {
                Some(arrival) => begin(&worker, arrival),
                None => break,
            },
            _ = ending.wait_for(|ending| *ending != Ending::NotYet) => break,
        }
    }
    refuse_arrivals(&worker);
    drain(&worker).await;
}

/// They come too late.
fn refuse_arrivals(worker: &Worker) {
    let mut arrivals = worker.arrivals.borrow_mut();
    arrivals.close();
    while let Ok(arrival) = arrivals.try_recv() {
        match arrival {
            Arrival::New(_) => worker.server.placement.leave(worker.index),
            Arrival::Moved(moved) => {
                moved.client().set_worker(worker.index);
                moved.lose(&worker.server);
            }
        }
    }
}

/// Starts the task of a connection.
fn begin(worker: &Rc<Worker>, arrival: Arrival) {
    let server = &worker.server;
    let (client, place) = match arrival {
        Arrival::New(accepted) => {
            let client = welcome(worker, &accepted);
            let place = Place::new(server, accepted.socket.into_unwatched(), &client);
            (client, place)
        }
        Arrival::Moved(moved) => {
            let client = moved.client().clone();
            client.set_worker(worker.index);
            (client, Place::of(server, *moved))
        }
    };
    // A better place may have become free while it was on its way, and looked for it elsewhere.
    if server.placement.may_leave(worker.index, client.home()) {
        client.signal(Signal::GO_HOME);
    }
    match place.map(Rc::new) {
        Ok(place) => {
            worker.places.borrow_mut().insert(client.id, place.clone());
            tokio::task::spawn_local(connection::serve(worker.clone(), place));
        }
        Err(error) => log!(Warning, "A connection could not be served: {error}"),
    }
}

/// The client of a new connection, known to all.
fn welcome(worker: &Worker, accepted: &Accepted) -> Arc<Client> {
    let Accepted { id, home, socket } = accepted;
    let (fd, traits) = match socket {
        AcceptedSocket::Tcp { socket, session: None, .. } => (socket.as_raw_fd(), Traits::empty()),
        AcceptedSocket::Tcp { socket, session: Some(_), .. } => {
            (socket.as_raw_fd(), Traits::TLS | Traits::HANDSHAKE)
        }
        AcceptedSocket::Unix { socket, .. } => (socket.as_raw_fd(), Traits::UNIX_SOCKET),
    };
    let (address, local_address) = socket.addresses();
    let now = worker.server.engine.clock.now();
    let client = Arc::new(Client::new(*id, address, local_address, fd, (worker.index, *home), now));
    client.set_trait(traits, true);
    worker.server.clients.add(client.clone());
    client
}

/// Lets this worker's sessions send what they have answered, for a short while.
async fn drain(worker: &Worker) {
    let server = &worker.server;
    for client in server.clients.all().iter().filter(|client| client.worker() == worker.index) {
        client.signal(Signal::DRAIN);
    }
    let all_gone = async {
        while server.placement.connections_of(worker.index) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    // Who has not read its replies by then loses them.
    let _ = tokio::time::timeout(DRAIN_TIME, all_gone).await;
}
