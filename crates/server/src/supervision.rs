//! `supervised`: tells systemd how far the server is.
//!
//! The protocol is a line or several in one datagram to the socket that the environment
//! variable NOTIFY_SOCKET names. Called at the start and the end, by the main thread, and by who takes over from another process.

use crate::server::Server;
use config::Supervision;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::Ordering;
use telemetry::log;

/// What is sent when clients are served.
pub const READY: &str = "STATUS=Ready to accept connections\nREADY=1";

/// Sends a state such as `READY=1`, if the configuration says that somebody listens. What one says that is not the main process would count as that one's.
pub fn notify(server: &Server, state: &str) {
    if !server.is_main.load(Ordering::Acquire) {
        return;
    }
    let socket = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
    match (server.engine.config.supervised(), socket) {
        (Supervision::No, _) | (Supervision::Auto, None) => {}
        (Supervision::Upstart, _) => log!(Warning, "'supervised upstart' has no effect, upstart is no more"),
        (Supervision::Systemd, None) => log!(Warning, "'supervised systemd', but NOTIFY_SOCKET is not set"),
        (Supervision::Systemd | Supervision::Auto, Some(socket)) => {
            if let Err(error) = send(&socket, state) {
                log!(Warning, "Can't send to NOTIFY_SOCKET: {error}");
            }
        }
    }
}

/// This process takes the place of the main process, which has left.
pub fn begin_as_main(server: &Server) {
    server.is_main.store(true, Ordering::Release);
    notify(server, &format!("MAINPID={}\n{READY}", std::process::id()));
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_arrive_at_path_and_abstract_sockets() {
        let path = std::env::temp_dir().join(format!("tarn-notify-{}", std::process::id()));
        let by_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("tarn-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let by_name = UnixDatagram::bind_addr(&address).unwrap();
        send(path.as_os_str(), "READY=1").unwrap();
        send(OsStr::new(&format!("@{name}")), "STOPPING=1").unwrap();
        let mut text = [0; 32];
        let bytes = by_path.recv(&mut text).unwrap();
        assert_eq!(&text[..bytes], b"READY=1");
        let bytes = by_name.recv(&mut text).unwrap();
        assert_eq!(&text[..bytes], b"STOPPING=1");
        std::fs::remove_file(path).unwrap();
    }
}
