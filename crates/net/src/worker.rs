//! A worker: one thread with a single-threaded runtime, its share of the
//! connections, and the desk at which they take turns.
//!
//! A thread that runs a long script, or waits for what one holds, makes way ([`make_way`]): its other connections move to
//! workers that are free, and come back when it is.

use crate::accepted::{Accepted, AcceptedSocket};
use crate::client::{Client, Signal, Traits};
use crate::connection::{self, Leaving, Moved, Place, Served};
use crate::desk::Desk;
use crate::inboxes::{Arrivals, Inboxes};
use crate::placement::Placement;
use crate::placement::scaling::{Rounds, Scaling};
use crate::service::Service;
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::os::fd::AsRawFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use telemetry::log;
use tokio::runtime::LocalOptions;

/// How long replies may take to go out when the server stops.
pub const DRAIN_TIME: Duration = Duration::from_secs(2);

/// A connection on its way to a worker.
pub enum Arrival<S: Service> {
    /// It has just been accepted.
    New(Accepted),
    /// Another worker had it.
    Moved(Box<Moved<S>>),
}

/// A worker.
struct Worker<S: Service> {
    desk: Desk<S>,
    inboxes: Inboxes<Arrival<S>>,
    /// Those that are about to come.
    arrivals: RefCell<Arrivals<Arrival<S>>>,
    /// Those that it serves, by their clients' numbers.
    places: RefCell<HashMap<u64, Rc<Place<S>>>>,
}

/// A worker, whatever it serves, for those who do not know that: long work says that it is long from deep below.
trait MakesWay {
    fn make_way(self: Rc<Self>);
}

thread_local! {
    /// This thread's worker.
    static HERE: RefCell<Option<Weak<dyn MakesWay>>> = const { RefCell::new(None) };
}

/// Lets other workers serve the connections of this thread's, but for the one whose request runs now. To be called
/// again and again for as long as it runs.
pub fn make_way() {
    if let Some(worker) = HERE.with_borrow(|here| here.as_ref().and_then(Weak::upgrade)) {
        worker.make_way();
    }
}

impl<S: Service> MakesWay for Worker<S> {
    #[cold]
    fn make_way(self: Rc<Worker<S>>) {
        let (service, index) = (&self.desk.service, self.desk.index);
        let placement = &service.net().placement;
        if index == placement.spare() || service.is_ending() {
            return;
        }
        if !placement.is_occupied(index) {
            placement.set_occupied(index, true);
            // Replies that leave may wait for what this thread has appended, and nobody else says that to the log.
            service.rest(index);
            // It runs when this thread is back at its tasks.
            let worker = self.clone();
            tokio::task::spawn_local(async move { worker.be_free() });
        }
        while let Some(arrival) = self.arrivals.try_borrow_mut().ok().and_then(|mut all| all.try_recv().ok())
        {
            placement.leave(index);
            // At the server's end nobody takes it, and its socket is closed.
            self.inboxes.send(placement, index, arrival);
        }
        let clients: Vec<u64> = self.places.borrow().keys().copied().collect();
        clients.into_iter().for_each(|client| self.send_away(client, |_| index));
    }
}

impl<S: Service> Worker<S> {
    fn placement(&self) -> &Placement {
        &self.desk.service.net().placement
    }

    /// Takes back what belongs here.
    fn be_free(&self) {
        let (placement, index) = (self.placement(), self.desk.index);
        placement.set_occupied(index, false);
        for client in self.desk.service.net().clients.all() {
            let belongs_here = client.home() == index && client.worker() != index;
            if belongs_here || client.worker() == placement.spare() {
                client.signal(Signal::GO_HOME);
            }
        }
    }

    /// Sends a client's connection away, unless it is being served at this moment.
    fn send_away(&self, client: u64, to: impl FnOnce(&Client) -> usize) {
        let Some(place) = self.places.borrow().get(&client).cloned() else { return };
        let leaving = place.leave(&self.desk.service);
        if !matches!(leaving, Leaving::Stays) {
            self.forget(client);
        }
        if let Leaving::Moves(moved) = leaving {
            let wanted = to(moved.client());
            self.placement().leave(self.desk.index);
            self.inboxes.send(self.placement(), wanted, Arrival::Moved(moved));
        }
    }

    /// A connection is not here any more.
    fn forget(&self, client: u64) {
        self.places.borrow_mut().remove(&client);
    }

    /// Serves a connection, and sends it to the worker that it belongs to if it asks for that, or while that is occupied to another.
    async fn serve(self: Rc<Worker<S>>, client: u64, place: Rc<Place<S>>) {
        match connection::serve(&self.desk, &place).await {
            Served::ToItsEnd => self.forget(client),
            Served::UntilItGoesHome => self.send_away(client, Client::home),
            Served::UntilItMoved => {}
        }
    }
}

/// Runs worker number `index` until the server ends.
///
/// # Errors
/// If the system refuses what a thread needs to wait for sockets.
pub fn run<S: Service>(
    service: Arc<S>,
    index: usize,
    inboxes: Inboxes<Arrival<S>>,
    arrivals: Arrivals<Arrival<S>>,
) -> io::Result<()> {
    service.begin_thread();
    let (idle, waking) = (service.clone(), service.clone());
    let rounds = Rounds::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || {
            let done = idle.ticks().now();
            idle.rest(index);
            rounds.count(&idle.net().placement, idle.ticks());
            idle.net().rounds[index].end(done, idle.ticks().now());
        })
        .on_thread_unpark(move || waking.net().rounds[index].begin(waking.ticks().now()))
        .build_local(LocalOptions::default())?;
    let (desk, arrivals) = (Desk::new(service, index), RefCell::new(arrivals));
    let worker = Rc::new(Worker { desk, inboxes, arrivals, places: RefCell::default() });
    let here: Rc<dyn MakesWay> = worker.clone();
    HERE.replace(Some(Rc::downgrade(&here)));
    worker.placement().is_mine(index);
    runtime.block_on(work(worker));
    Ok(())
}

async fn work<S: Service>(worker: Rc<Worker<S>>) {
    let (service, index) = (worker.desk.service.clone(), worker.desk.index);
    tokio::task::spawn_local(service.clone().work(index));
    if index == worker.placement().spare() {
        let service = service.clone();
        tokio::task::spawn_local(async move { scaling(&*service).run().await });
    }
    let attending = worker.clone();
    tokio::task::spawn_local(async move {
        let desk = &attending.desk;
        desk.gate_queue.attend(&desk.service.net().gate, index).await;
    });
    let calling = worker.clone();
    tokio::task::spawn_local(async move { calling.desk.handshakes.attend().await });
    let mut ended = std::pin::pin!(service.ended());
    loop {
        tokio::select! {
            arrival = poll_fn(|context| worker.arrivals.borrow_mut().poll_recv(context)) => match arrival {
                Some(arrival) => begin(&worker, arrival),
                None => break,
            },
            () = &mut ended => break,
        }
    }
    refuse_arrivals(&worker);
    drain(&*service, index).await;
}

/// What follows the load.
fn scaling<S: Service>(service: &S) -> Scaling<'_> {
    let net = service.net();
    Scaling {
        placement: &net.placement,
        clients: &net.clients,
        config: service.config(),
        counts: service.counts(),
    }
}

/// They come too late.
fn refuse_arrivals<S: Service>(worker: &Worker<S>) {
    let mut arrivals = worker.arrivals.borrow_mut();
    arrivals.close();
    while let Ok(arrival) = arrivals.try_recv() {
        match arrival {
            Arrival::New(_) => worker.placement().leave(worker.desk.index),
            Arrival::Moved(moved) => {
                moved.client().set_worker(worker.desk.index);
                moved.lose(&worker.desk.service);
            }
        }
    }
}

/// Starts the task of a connection.
fn begin<S: Service>(worker: &Rc<Worker<S>>, arrival: Arrival<S>) {
    let (service, index) = (&*worker.desk.service, worker.desk.index);
    let (client, place) = match arrival {
        Arrival::New(accepted) => {
            let client = welcome(service, index, &accepted);
            let place = Place::new(service, accepted.socket.into_unwatched(), &client);
            (client, place)
        }
        Arrival::Moved(moved) => {
            let client = moved.client().clone();
            client.set_worker(index);
            (client, Place::of(service, *moved))
        }
    };
    // A better place may have become free while it was on its way, and looked for it elsewhere.
    if worker.placement().may_leave(index, client.home()) {
        client.signal(Signal::GO_HOME);
    }
    match place.map(Rc::new) {
        Ok(place) => {
            worker.places.borrow_mut().insert(client.id, place.clone());
            tokio::task::spawn_local(worker.clone().serve(client.id, place));
        }
        Err(error) => log!(Warning, "A connection could not be served: {error}"),
    }
}

/// The client of a new connection, known to all.
fn welcome<S: Service>(service: &S, index: usize, accepted: &Accepted) -> Arc<Client> {
    let Accepted { id, home, socket } = accepted;
    let (fd, traits) = match socket {
        AcceptedSocket::Tcp { socket, session: None, .. } => (socket.as_raw_fd(), Traits::empty()),
        AcceptedSocket::Tcp { socket, session: Some(_), .. } => {
            (socket.as_raw_fd(), Traits::TLS | Traits::HANDSHAKE)
        }
        AcceptedSocket::Unix { socket, .. } => (socket.as_raw_fd(), Traits::UNIX_SOCKET),
    };
    let (address, local_address) = socket.addresses();
    let clients = &service.net().clients;
    let client =
        Arc::new(Client::new(*id, address, local_address, fd, (index, *home), clients.clock().now()));
    client.set_trait(traits, true);
    clients.add(client.clone());
    client
}

/// Lets a worker's sessions send what they have answered, for a short while.
async fn drain<S: Service>(service: &S, index: usize) {
    let net = service.net();
    for client in net.clients.all().iter().filter(|client| client.worker() == index) {
        client.signal(Signal::DRAIN);
    }
    let all_gone = async {
        while net.placement.connections_of(index) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    // Who has not read its replies by then loses them.
    let _ = tokio::time::timeout(DRAIN_TIME, all_gone).await;
}
