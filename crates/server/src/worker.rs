//! A worker: one thread with a single-threaded runtime, its share of the
//! connections, and the buffers that they take turns to use.

use crate::client::{Client, Signal, Traits};
use crate::connection::{self, stream::Stream};
use crate::dispatch::Runner;
use crate::durability::{self, gate::Queue};
use crate::listen::{Accepted, AcceptedSocket};
use crate::server::{Ending, Server};
use crate::{log, tick};
use std::cell::RefCell;
use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::LocalOptions;
use tokio::sync::mpsc::UnboundedReceiver;

/// Bytes read at once.
const INPUT_BYTES: usize = 64 << 10;
/// How long replies may take to go out when the server stops.
const DRAIN_TIME: Duration = Duration::from_secs(2);

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
    /// Its number.
    pub index: usize,
}

/// A worker's buffers.
pub struct Buffers {
    /// What was read last.
    pub input: Vec<u8>,
    /// The requests found in it.
    pub requests: wire::Batch,
    /// The replies to them.
    pub output: Vec<u8>,
}

impl Worker {
    /// `proto-max-bulk-len` as the parser wants it.
    pub fn bulk_bytes_max(&self) -> u64 {
        self.server.config.proto_max_bulk_len() as u64
    }
}

/// Runs worker number `index` until the server ends.
pub fn run(server: Arc<Server>, index: usize, accepted: UnboundedReceiver<Accepted>) {
    durability::gather();
    let idle = server.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || durability::write_gathered(&idle, index))
        .build_local(LocalOptions::default())
        .expect("a thread that could be started can have a poll instance");
    let worker = Rc::new(Worker {
        runner: RefCell::new(Runner::new(server.clone(), index)),
        buffers: RefCell::new(Buffers {
            input: vec![0; INPUT_BYTES],
            requests: wire::Batch::new(),
            output: Vec::new(),
        }),
        gate_queue: Queue::default(),
        server,
        index,
    });
    runtime.block_on(work(worker, accepted));
}

async fn work(worker: Rc<Worker>, mut accepted: UnboundedReceiver<Accepted>) {
    let mut ending = worker.server.ending();
    tokio::task::spawn_local(tick::run(worker.clone(), worker.index));
    let attending = worker.clone();
    tokio::task::spawn_local(async move {
        attending.gate_queue.attend(&attending.server, attending.index).await;
    });
    loop {
        tokio::select! {
            connection = accepted.recv() => match connection {
                Some(connection) => begin(&worker, connection),
                None => break,
            },
            _ = ending.wait_for(|ending| *ending != Ending::NotYet) => break,
        }
    }
    accepted.close();
    while accepted.try_recv().is_ok() {
        // It came too late.
        worker.server.connection_lost(worker.index);
    }
    drain(&worker).await;
}

/// Starts the task of a new connection.
fn begin(worker: &Rc<Worker>, accepted: Accepted) {
    let server = &worker.server;
    let Accepted { id, socket } = accepted;
    let (fd, is_unix) = match &socket {
        AcceptedSocket::Tcp { socket, .. } => (socket.as_raw_fd(), false),
        AcceptedSocket::Unix { socket, .. } => (socket.as_raw_fd(), true),
    };
    let (address, local_address) = socket.addresses();
    let stream = match into_stream(socket) {
        Ok(stream) => stream,
        Err(error) => {
            log!(Warning, "A connection could not be served: {error}");
            server.connection_lost(worker.index);
            return;
        }
    };
    let now = server.clock.now();
    let client = Arc::new(Client::new(id, address, local_address, fd, worker.index, now));
    client.set_trait(Traits::UNIX_SOCKET, is_unix);
    server.clients.add(client.clone());
    tokio::task::spawn_local(connection::serve(worker.clone(), stream, client));
}

fn into_stream(accepted: AcceptedSocket) -> io::Result<Stream> {
    Ok(match accepted {
        AcceptedSocket::Tcp { socket, .. } => Stream::Tcp(TcpStream::from_std(socket)?),
        AcceptedSocket::Unix { socket, .. } => Stream::Unix(UnixStream::from_std(socket)?),
    })
}

/// Lets this worker's sessions send what they have answered, for a short while.
async fn drain(worker: &Worker) {
    let server = &worker.server;
    for client in server.clients.all().iter().filter(|client| client.worker == worker.index) {
        client.signal(Signal::DRAIN);
    }
    let all_gone = async {
        while server.connections_of(worker.index) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    // Who has not read its replies by then loses them.
    let _ = tokio::time::timeout(DRAIN_TIME, all_gone).await;
}
