//! A link between processes that a test can spoil: a port of its own on loopback whose connections are passed on to another
//! port, and which delays, throttles, stops and cuts them by method calls.
//!
//! One thread accepts, two pass the bytes of each connection on, one each way. They wait in reads, and for a change of what
//! was ordered; nothing looks again and again. All methods may be called from any thread, and have effect on connections
//! that are open already.
//!
//! Invariants:
//! 1. Bytes arrive in their order and unchanged, or not at all; what was stopped goes on where it stopped.
//! 2. A byte is counted when it has been passed on.
//! 3. Dropping a [`Relay`] closes all of its connections and ends its threads.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most bytes that are passed on at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// A throttled connection passes on so many times a second.
const THROTTLED_CHUNKS: u64 = 50;
/// Who has not taken a connection after so long is as one who is gone: a process that stands still takes as many as its system keeps for it.
const CONNECT_MAX: Duration = Duration::from_secs(20);

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From who connected to who is connected to.
    There,
    /// The other one.
    Back,
}

/// Both of them.
pub const WAYS: [Way; 2] = [Way::There, Way::Back];

/// What was ordered for a direction.
#[derive(Clone, Copy, Debug, Default)]
struct Order {
    delay: Duration,
    /// Bytes a second.
    rate: Option<u64>,
    is_stopped: bool,
    /// Everything is cut when so many bytes have been passed on.
    cut_at: Option<u64>,
}

/// A connection's two sockets: to who connected, and to whom.
type Pair = [Arc<TcpStream>; 2];

#[derive(Debug)]
struct Link {
    pair: Pair,
    /// Which directions have come to their end.
    has_ended: [bool; 2],
}

#[derive(Debug)]
struct State {
    target: SocketAddr,
    orders: [Order; 2],
    is_cut: bool,
    is_over: bool,
    /// Open connections, by number.
    links: BTreeMap<u64, Link>,
    /// Sockets of which only the far side is open, and hears nothing.
    abandoned: Vec<Arc<TcpStream>>,
    accepted: u64,
    passed: [u64; 2],
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The state is not what it was.
    changed: Condvar,
}

/// A relay. Ends with its handle.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Relay {
    /// A relay to a port, which need not be listened on yet.
    ///
    /// # Errors
    /// If there is no free port.
    pub fn to(target: SocketAddr) -> io::Result<Relay> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let state = State {
            target,
            orders: Default::default(),
            is_cut: false,
            is_over: false,
            links: BTreeMap::new(),
            abandoned: Vec::new(),
            accepted: 0,
            passed: [0; 2],
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let accepting = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || accept(&listener, &accepting));
        Ok(Relay { address, shared, acceptor: Some(acceptor) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Passes later connections on to another port. Those that are open stay.
    pub fn aim(&self, target: SocketAddr) {
        self.shared.change(|state| state.target = target);
    }

    /// Passes bytes of this direction on so much later than they came. At most 64 KiB are under way at a time.
    pub fn delay(&self, way: Way, delay: Duration) {
        self.shared.change(|state| state.orders[way as usize].delay = delay);
    }

    /// Passes on at most so many bytes a second of each connection in this direction.
    pub fn throttle(&self, way: Way, bytes_per_second: u64) {
        self.shared.change(|state| state.orders[way as usize].rate = Some(bytes_per_second.max(1)));
    }

    /// Passes nothing more on in this direction, not even that a side has closed. Connections stay open, and new ones are taken:
    /// neither side is told. What was not passed on follows once it is mended.
    pub fn stop(&self, way: Way) {
        self.shared.change(|state| state.orders[way as usize].is_stopped = true);
    }

    /// Closes all connections, and every new one at once.
    pub fn cut(&self) {
        self.shared.change(State::cut);
    }

    /// The same as soon as so many more bytes have been passed on in this direction.
    pub fn cut_behind(&self, way: Way, bytes: u64) {
        self.shared.change(|state| {
            let at = state.passed[way as usize] + bytes;
            state.orders[way as usize].cut_at = Some(at);
        });
    }

    /// Closes all connections towards who connected, and leaves those to the other side open and silent, which so learns
    /// nothing of it. New ones are taken.
    pub fn abandon(&self) {
        self.shared.change(|state| {
            for (_, Link { pair: [near, far], .. }) in std::mem::take(&mut state.links) {
                let _ = near.shutdown(Shutdown::Both);
                state.abandoned.push(far);
            }
        });
    }

    /// Takes back all orders. What was closed stays closed, and what was abandoned is closed now.
    pub fn mend(&self) {
        self.shared.change(|state| {
            state.orders = Default::default();
            state.is_cut = false;
            state.close_abandoned();
        });
    }

    /// Bytes passed on in this direction, over all connections.
    pub fn passed(&self, way: Way) -> u64 {
        self.shared.lock().passed[way as usize]
    }

    /// Connections taken so far, with those that were closed at once.
    pub fn accepted(&self) -> u64 {
        self.shared.lock().accepted
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.shared.lock().links.len()
    }

    /// Waits until something is so of this relay; whether it was before the time was over.
    pub fn wait_until(&self, patience: Duration, mut is_so: impl FnMut(&Seen) -> bool) -> bool {
        let begun = Instant::now();
        let mut state = self.shared.lock();
        loop {
            if is_so(&state.seen()) {
                return true;
            }
            let Some(left) = patience.checked_sub(begun.elapsed()) else { return false };
            state = self.shared.wait(state, Some(left));
        }
    }
}

/// What is seen of a relay at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Bytes passed on, by [`Way`].
    pub passed: [u64; 2],
    /// Connections taken so far.
    pub accepted: u64,
    /// Connections that are open.
    pub open: usize,
    /// Whether it is cut, by order or because the bytes were there behind which it was to be.
    pub is_cut: bool,
}

impl State {
    fn cut(&mut self) {
        self.is_cut = true;
        for (_, link) in std::mem::take(&mut self.links) {
            close(&link.pair);
        }
        self.close_abandoned();
    }

    fn close_abandoned(&mut self) {
        for far in std::mem::take(&mut self.abandoned) {
            let _ = far.shutdown(Shutdown::Both);
        }
    }

    fn seen(&self) -> Seen {
        Seen { passed: self.passed, accepted: self.accepted, open: self.links.len(), is_cut: self.is_cut }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits for a change, or for so long.
    fn wait<'a>(&self, state: MutexGuard<'a, State>, most: Option<Duration>) -> MutexGuard<'a, State> {
        match most {
            Some(most) => self.changed.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0,
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Waits until bytes that came at `came` may be passed on; false if the connection is gone.
    fn may_pass(&self, number: u64, way: Way, came: Instant) -> bool {
        let mut state = self.lock();
        loop {
            if !state.links.contains_key(&number) {
                return false;
            }
            let order = state.orders[way as usize];
            let left = order.delay.saturating_sub(came.elapsed());
            if !order.is_stopped && left.is_zero() {
                return true;
            }
            state = self.wait(state, (!order.is_stopped).then_some(left));
        }
    }

    /// How many of `count` bytes are passed on next, and how long that takes on a throttled link.
    fn portion(&self, way: Way, count: usize) -> (usize, Duration) {
        let (order, passed) = {
            let state = self.lock();
            (state.orders[way as usize], state.passed[way as usize])
        };
        let up_to_cut = order.cut_at.map_or(count as u64, |at| at.saturating_sub(passed).max(1));
        let at_once = order.rate.map_or(count as u64, |rate| (rate / THROTTLED_CHUNKS).max(1));
        let portion = (count as u64).min(up_to_cut).min(at_once);
        let takes =
            order.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(portion as f64 / rate as f64));
        (portion as usize, takes)
    }

    /// Counts bytes that were passed on, and cuts everything if they were the last ones.
    fn note(&self, way: Way, count: usize) {
        self.change(|state| {
            state.passed[way as usize] += count as u64;
            let passed = state.passed[way as usize];
            let order = &mut state.orders[way as usize];
            if order.cut_at.is_some_and(|at| passed >= at) {
                order.cut_at = None;
                state.cut();
            }
        });
    }

    /// Waits for so long, or until the link is throttled no more or the connection is gone.
    fn rest(&self, number: u64, way: Way, takes: Duration) {
        let begun = Instant::now();
        let mut state = self.lock();
        while let Some(left) = takes.checked_sub(begun.elapsed())
            && !left.is_zero()
            && state.links.contains_key(&number)
            && state.orders[way as usize].rate.is_some()
        {
            state = self.wait(state, Some(left));
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.change(|state| {
            state.is_over = true;
            state.cut();
        });
        // The acceptor waits for a connection: this is the last one. Where there can be none, nobody waits for it.
        let is_told = TcpStream::connect_timeout(&self.address, CONNECT_MAX).is_ok();
        if let Some(acceptor) = self.acceptor.take().filter(|_| is_told) {
            let _ = acceptor.join();
        }
    }
}

/// Takes connections until the relay is over, and then waits until their threads have ended.
fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut pumps: Vec<JoinHandle<()>> = Vec::new();
    for number in 0.. {
        let accepted = listener.accept();
        pumps.retain(|pump| !pump.is_finished());
        let (target, is_open, is_over) = {
            let mut state = shared.lock();
            state.accepted += u64::from(accepted.is_ok());
            (state.target, !state.is_cut, state.is_over)
        };
        shared.changed.notify_all();
        if is_over {
            break;
        }
        let Ok((near, _)) = accepted else { continue };
        // Whoever cannot be connected to is gone: so is this one then.
        let Some(far) = is_open.then(|| TcpStream::connect_timeout(&target, CONNECT_MAX).ok()).flatten()
        else {
            continue;
        };
        let _ = near.set_nodelay(true);
        let _ = far.set_nodelay(true);
        let pair: Pair = [Arc::new(near), Arc::new(far)];
        let mut is_linked = false;
        shared.change(|state| {
            // It may have been cut meanwhile.
            if !state.is_cut {
                state.links.insert(number, Link { pair: pair.clone(), has_ended: [false; 2] });
                is_linked = true;
            }
        });
        if is_linked {
            pumps.extend(WAYS.map(|way| {
                let (shared, pair) = (Arc::clone(shared), pair.clone());
                std::thread::spawn(move || pump(&shared, number, &pair, way))
            }));
        }
    }
    pumps.into_iter().for_each(|pump| drop(pump.join()));
}

/// Passes on what comes in one direction, up to the end of it.
fn pump(shared: &Shared, number: u64, pair: &Pair, way: Way) {
    let [near, far] = pair;
    let (from, to) = if way == Way::There { (near, far) } else { (far, near) };
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = (&mut &**from).read(&mut chunk);
        if matches!(&read, Err(error) if error.kind() == io::ErrorKind::Interrupted) {
            continue;
        }
        let came = Instant::now();
        // The end is a message as any other, and waits as long.
        if !shared.may_pass(number, way, came) {
            break;
        }
        let passed = match read {
            Ok(count @ 1..) => pass(shared, (number, way, came), &chunk[..count], to),
            // The other direction may go on.
            Ok(_) => return end_one_way(shared, number, way),
            Err(error) => Err(error),
        };
        if passed.is_err() {
            break;
        }
    }
    end(shared, number, pair);
}

/// Passes one piece on.
fn pass(
    shared: &Shared,
    (number, way, came): (u64, Way, Instant),
    piece: &[u8],
    mut to: &TcpStream,
) -> io::Result<()> {
    let mut left = piece;
    while !left.is_empty() {
        if !shared.may_pass(number, way, came) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let (count, takes) = shared.portion(way, left.len());
        to.write_all(&left[..count])?;
        shared.note(way, count);
        left = &left[count..];
        shared.rest(number, way, takes);
    }
    Ok(())
}

/// Passes on that a direction has come to its end; closes a connection of which both have.
fn end_one_way(shared: &Shared, number: u64, way: Way) {
    shared.change(|state| {
        let Some(link) = state.links.get_mut(&number) else { return };
        link.has_ended[way as usize] = true;
        let [near, far] = &link.pair;
        let _ = if way == Way::There { far } else { near }.shutdown(Shutdown::Write);
        if link.has_ended == [true; 2] {
            state.links.remove(&number);
        }
    });
}

/// Closes a connection that was not left to itself.
fn end(shared: &Shared, number: u64, pair: &Pair) {
    shared.change(|state| {
        if state.links.remove(&number).is_some() {
            close(pair);
        }
    });
}

fn close(pair: &Pair) {
    for socket in pair {
        let _ = socket.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(120);
    /// How long nothing must come for it to count as nothing.
    const SILENCE: Duration = Duration::from_millis(50);

    /// A listener, a relay to it, and a connection through it: who connected, and who was connected to.
    fn linked() -> (TcpListener, Relay, TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::to(listener.local_addr().unwrap()).unwrap();
        let (near, far) = link(&listener, &relay);
        (listener, relay, near, far)
    }

    fn link(listener: &TcpListener, relay: &Relay) -> (TcpStream, TcpStream) {
        let before = relay.open();
        let near = TcpStream::connect(relay.address()).unwrap();
        let far = listener.accept().unwrap().0;
        // The far side may know of it before the relay has noted it.
        assert!(relay.wait_until(PATIENCE, |seen| seen.open > before));
        for socket in [&near, &far] {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        (near, far)
    }

    fn read(mut from: &TcpStream, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        from.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn hears_nothing(mut socket: &TcpStream) -> bool {
        socket.set_read_timeout(Some(SILENCE)).unwrap();
        let read = socket.read(&mut [0]);
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    fn is_closed(mut socket: &TcpStream) -> bool {
        match socket.read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }

    #[test]
    fn bytes_go_both_ways_and_are_counted() {
        let (_listener, relay, mut near, mut far) = linked();
        let many: Vec<u8> = (0..300_000_u32).map(|number| number as u8).collect();
        let sent = many.clone();
        let writer = std::thread::spawn(move || near.write_all(&sent).map(|()| near).unwrap());
        assert_eq!(read(&far, many.len()), many);
        let near = writer.join().unwrap();
        far.write_all(b"back").unwrap();
        assert_eq!(read(&near, 4), b"back");
        assert!(relay.wait_until(PATIENCE, |seen| seen.passed == [300_000, 4]));
        assert_eq!((relay.open(), relay.accepted()), (1, 1));
    }

    #[test]
    fn one_side_may_close_its_half() {
        let (_listener, relay, near, mut far) = linked();
        near.shutdown(Shutdown::Write).unwrap();
        assert!(is_closed(&far));
        far.write_all(b"late").unwrap();
        assert_eq!(read(&near, 4), b"late");
        drop(far);
        assert!(is_closed(&near));
        assert!(relay.wait_until(PATIENCE, |seen| seen.open == 0));
    }

    #[test]
    fn what_is_cut_is_closed_on_both_sides_until_it_is_mended() {
        let (listener, relay, near, far) = linked();
        relay.cut();
        assert!(is_closed(&near) && is_closed(&far));
        assert!(is_closed(&TcpStream::connect(relay.address()).unwrap()));
        relay.mend();
        let (mut near, far) = link(&listener, &relay);
        near.write_all(b"again").unwrap();
        assert_eq!(read(&far, 5), b"again");
    }

    #[test]
    fn a_cut_comes_behind_the_very_byte() {
        let (_listener, relay, mut near, mut far) = linked();
        relay.cut_behind(Way::Back, 7);
        near.write_all(b"not counted").unwrap();
        assert_eq!(read(&far, 11), b"not counted");
        far.write_all(b"0123456789").unwrap();
        let mut got = Vec::new();
        let _ = near.read_to_end(&mut got);
        assert_eq!(got, b"0123456");
        assert!(relay.wait_until(PATIENCE, |seen| seen.is_cut && seen.open == 0));
        assert_eq!(relay.passed(Way::Back), 7);
    }

    #[test]
    fn a_stopped_direction_is_silent_and_then_goes_on() {
        let (_listener, relay, mut near, mut far) = linked();
        relay.stop(Way::There);
        near.write_all(b"held").unwrap();
        assert!(hears_nothing(&far));
        far.write_all(b"free").unwrap();
        assert_eq!(read(&near, 4), b"free");
        // Not even the end is told.
        drop(near);
        assert!(hears_nothing(&far));
        relay.mend();
        assert_eq!(read(&far, 4), b"held");
    }

    #[test]
    fn an_abandoned_side_is_told_nothing() {
        let (listener, relay, near, far) = linked();
        relay.abandon();
        assert!(is_closed(&near));
        assert!(hears_nothing(&far));
        let (_other_near, mut other_far) = link(&listener, &relay);
        other_far.write_all(b"x").unwrap();
        relay.mend();
        assert!(is_closed(&far));
    }

    #[test]
    fn a_delayed_byte_comes_no_earlier() {
        let (_listener, relay, mut near, far) = linked();
        let delay = Duration::from_millis(40);
        relay.delay(Way::There, delay);
        let begun = Instant::now();
        near.write_all(b"x").unwrap();
        read(&far, 1);
        assert!(begun.elapsed() >= delay);
        // A delay that is taken back ends.
        relay.delay(Way::There, PATIENCE * 100);
        near.write_all(b"y").unwrap();
        relay.mend();
        read(&far, 1);
    }

    #[test]
    fn a_throttled_link_is_no_faster() {
        let (_listener, relay, mut near, far) = linked();
        relay.throttle(Way::There, 100_000);
        let begun = Instant::now();
        near.write_all(&[1; 20_000]).unwrap();
        read(&far, 18_000);
        // Behind the last piece nobody waits.
        assert!(begun.elapsed() >= Duration::from_millis(150), "{:?}", begun.elapsed());
    }

    #[test]
    fn later_connections_go_where_it_is_aimed() {
        let (_listener, relay, near, mut far) = linked();
        let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        relay.aim(other.local_addr().unwrap());
        let (mut other_near, other_far) = link(&other, &relay);
        other_near.write_all(b"new").unwrap();
        assert_eq!(read(&other_far, 3), b"new");
        far.write_all(b"old").unwrap();
        assert_eq!(read(&near, 3), b"old");
    }

    #[test]
    fn nobody_behind_it_is_as_a_closed_connection() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::to(listener.local_addr().unwrap()).unwrap();
        drop(listener);
        assert!(is_closed(&TcpStream::connect(relay.address()).unwrap()));
    }

    #[test]
    fn a_dropped_relay_leaves_nothing_open() {
        let (_listener, relay, near, far) = linked();
        relay.stop(Way::Back);
        let address = relay.address();
        drop(relay);
        assert!(is_closed(&near) && is_closed(&far));
        assert!(TcpStream::connect(address).is_err());
    }
}
