//! A new process takes over from the one that runs: it gets the sockets that listen, by a socket file (`proxy-takeover`), says when it serves, and from then on
//! the old one accepts nobody any more, serves the connections that it has, and ends when it has none. Nobody is refused meanwhile: who comes waits in the
//! queue of a socket that both have. A new process that fails before it serves leaves everything as it was.
//!
//! What is said: the old one sends [`GREETING`], with the sockets; the new one answers [`SERVES`], and the old one [`LEFT`], when it accepts nobody any more. The
//! new one closes the connection when it has told its supervisor that it is the main process, and the old one does not end before: the service would end with
//! it. The next one may come when that is told, so that whoever is told of last is the newest.
//!
//! Thread rule: a thread of its own.

use crate::serve::Proxy;
use net::service::Service;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recv, recvmsg, sendmsg,
};
use server::server::Ending;
use server::{start, supervision};
use socket2::Socket;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use sys::file::Fs;
use telemetry::log;

/// What the old process says, whichever version it is of.
const GREETING: &[u8] = b"tarn proxy takeover 1\n";
/// What the new one says when it serves.
const SERVES: &[u8] = b"serves\n";
/// What the old one says when it has left.
const LEFT: &[u8] = b"left\n";
/// The most sockets that are handed over.
const SOCKETS_MAX: usize = 64;
/// How long the other process may take to say something.
const PATIENCE: Duration = Duration::from_secs(60);
/// So often one that closes without a word is asked anew: it ends, or another process takes over from it just now.
const TRIES: u32 = 50;
/// So often nobody is seen before nobody is there.
const LOOKS_MIN: u32 = 10;
/// How often it is looked whether the last connection has ended.
const LOOK: Duration = Duration::from_millis(100);

/// What a new process has got.
#[derive(Default)]
pub struct Taken {
    /// Sockets that listen.
    pub sockets: Vec<Socket>,
    /// Where the old process waits to be told that this one serves.
    from: Option<UnixStream>,
}

fn path_of(proxy_takeover: Vec<u8>) -> Option<PathBuf> {
    Some(PathBuf::from(std::ffi::OsString::from_vec(proxy_takeover)))
        .filter(|path| !path.as_os_str().is_empty())
}

/// Takes the sockets of the process that runs, if there is one.
///
/// # Errors
/// A sentence that says why they cannot be had from it.
pub fn take(config: &config::Config) -> io::Result<Taken> {
    let Some(path) = path_of(config.proxy_takeover()) else { return Ok(Taken::default()) };
    let in_context = |error: io::Error| {
        io::Error::new(error.kind(), format!("Taking over by {}: {error}", path.display()))
    };
    if !config.unixsocket().is_empty() {
        return Err(io::Error::other("a proxy with `proxy-takeover` does not listen on a `unixsocket`"));
    }
    for _ in 0..TRIES {
        if let Some(taken) = try_to_take(&path).map_err(in_context)? {
            return Ok(taken);
        }
        std::thread::sleep(LOOK);
    }
    Err(in_context(io::Error::other(
        "the proxy that ran ends, or another process takes over from it just now",
    )))
}

/// Takes them if they can be had now; None: who has them closes without a word.
fn try_to_take(path: &Path) -> io::Result<Option<Taken>> {
    match UnixStream::connect(path) {
        Ok(from) => receive(from),
        // Nobody has the addresses any more.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(Taken::default())),
        // What is no socket takes no connection either, and is not to be lost to one.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && Fs::Real.leads_to_socket(path) => {
            Ok(Some(Taken::default()))
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            Err(io::Error::other("what lies there is no socket"))
        }
        Err(error) => Err(error),
    }
}

fn receive(from: UnixStream) -> io::Result<Option<Taken>> {
    from.set_read_timeout(Some(PATIENCE))?;
    let mut greeting = [0; GREETING.len()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut greeting)];
    let bytes = match recvmsg(&from, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
        // Its queue ends with the socket at which it listens.
        Err(Errno::CONNRESET) => 0,
        Err(Errno::AGAIN) => return Err(io::Error::other("what listens there says nothing")),
        got => got?.bytes,
    };
    let mut sockets = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            sockets.extend(descriptors.map(Socket::from));
        }
    }
    if bytes == 0 {
        return Ok(None);
    }
    if greeting[..bytes] != *GREETING || sockets.is_empty() {
        return Err(io::Error::other("what listens there is no proxy that can be taken over"));
    }
    Ok(Some(Taken { sockets, from: Some(from) }))
}

/// All of this process serves: the old one is told so, and the next new one may come to this one.
pub fn begin(proxy: &Arc<Proxy>) {
    let Some(path) = path_of(proxy.host.engine.config.proxy_takeover()) else { return };
    let (proxy, from) = (proxy.clone(), proxy.taken.lock().from.take());
    let is_taken = from.is_some();
    let run = move || match settle(&proxy, &path, from) {
        Ok(listener) => hand_over(&proxy, listener, &path),
        Err(error) if is_taken => {
            log!(Warning, "This process ends, since the one that ran goes on: {error}");
            proxy.host.stop(1);
        }
        Err(error) => log!(Warning, "Nobody will be able to take over by {}: {error}", path.display()),
    };
    if let Err(error) = std::thread::Builder::new().name("takeover".to_owned()).spawn(run) {
        log!(Warning, "Nobody will be able to take over from this process: {error}");
    }
}

/// Waits until the old process has left, and listens in its place for the next one.
///
/// # Errors
/// It is there still, or nobody could take over from this process.
fn settle(proxy: &Proxy, path: &Path, from: Option<UnixStream>) -> io::Result<UnixListener> {
    // Whoever may connect may have the clients: nobody else, from the first moment on.
    let fresh = path.with_extension(std::process::id().to_string());
    Fs::Real.remove_socket(&fresh)?;
    let listener = UnixListener::bind(&fresh)?;
    Fs::Real.set_permissions(&fresh, 0o600)?;
    let is_taken = from.is_some();
    if let Some(mut from) = from {
        wait_for_old(&mut from, path).inspect_err(|_| drop(Fs::Real.remove_socket(&fresh)))?;
        start::write_pidfile(&proxy.host.engine.config);
        supervision::begin_as_main(&proxy.host);
    }
    proxy.net().doors.set_shared(false);
    match Fs::Real.rename(&fresh, path) {
        Err(error) if !is_taken => return Err(error),
        Err(error) => log!(Warning, "Nobody will be able to take over by {}: {error}", path.display()),
        Ok(()) => {}
    }
    if is_taken {
        log!(Notice, "Taken over from the proxy that ran");
    }
    Ok(listener)
}

/// Tells the old process that this one serves, and waits until it has left.
///
/// # Errors
/// It has not.
fn wait_for_old(from: &mut UnixStream, path: &Path) -> io::Result<()> {
    let mut answer = [0; LEFT.len()];
    match from.write_all(SERVES).and_then(|()| from.read_exact(&mut answer)) {
        Ok(()) if answer == *LEFT => Ok(()),
        // It has given this process up, or may have ended.
        _ if UnixStream::connect(path).is_ok() => Err(io::Error::other("it has not waited for so long")),
        _ => Ok(()),
    }
}

/// Waits for a new process, and for the end of all connections then.
fn hand_over(proxy: &Proxy, listener: UnixListener, path: &Path) {
    let mut to = loop {
        match listener.accept().and_then(|(to, _)| give(proxy, to)) {
            Ok(to) => break to,
            Err(error) => {
                proxy.net().doors.set_shared(false);
                log!(Warning, "Nobody has taken over by {}: {error}", path.display());
            }
        }
        // What fails at once must not fail without end.
        std::thread::sleep(LOOK);
    };
    proxy.net().doors.leave();
    proxy.host.is_main.store(false, Ordering::Release);
    proxy.is_draining.store(true, Ordering::Relaxed);
    let told = to.write_all(LEFT);
    drop(listener);
    drain(proxy);
    let status = match told {
        Ok(()) => {
            // Nothing more is said. Whether it has closed or its time is up.
            let _ = to.read(&mut [0]);
            0
        }
        // Then nobody listens, and whoever supervises may begin another.
        Err(error) => {
            log!(Warning, "The process that was to take over has gone: {error}");
            1
        }
    };
    proxy.host.stop(status);
}

/// Waits until the clients that there are have gone, or their time is up.
fn drain(proxy: &Proxy) {
    let connections = || proxy.net().placement.connections();
    log!(Notice, "Another process has taken over: {} connections are left", connections());
    let (began, mut unseen) = (Instant::now(), 0);
    // It may be told meanwhile that it has more time, or less.
    let is_time_up = || {
        let drain = Duration::from_secs(proxy.host.engine.config.proxy_drain_timeout_s());
        !drain.is_zero() && began.elapsed() >= drain
    };
    // Who was let in by the last door is not counted at once.
    while unseen < LOOKS_MIN && !is_time_up() {
        std::thread::sleep(LOOK);
        unseen = if connections() == 0 { unseen + 1 } else { 0 };
    }
    log!(Notice, "{} connections are left, and this process ends", connections());
}

/// Gives the sockets to a new process, and waits until that one serves.
fn give(proxy: &Proxy, mut to: UnixStream) -> io::Result<UnixStream> {
    to.set_read_timeout(Some(PATIENCE))?;
    proxy.net().doors.set_shared(true);
    let sockets = proxy.net().doors.sockets()?;
    if sockets.is_empty() && *proxy.host.ending().borrow() != Ending::NotYet {
        // Who comes now hears of the end when it has come: then the addresses are free.
        loop {
            std::thread::park();
        }
    }
    let descriptors: Vec<_> = sockets.iter().map(Socket::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if descriptors.is_empty() || !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("there are no sockets to hand over, or too many"));
    }
    sendmsg(&to, &[IoSlice::new(GREETING)], &mut ancillary, SendFlags::NOSIGNAL)?;
    let mut answer = [0; SERVES.len()];
    to.read_exact(&mut answer)?;
    // It may have given up what was told late.
    let is_gone = recv(&to, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT).is_ok();
    match answer == *SERVES {
        true if is_gone => Err(io::Error::other("the other process has ended")),
        true => Ok(to),
        false => Err(io::Error::other("what the other process says is not known")),
    }
}
