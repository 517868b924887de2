//! What the operating system knows of a connection.

#![allow(unsafe_code)] // One system call that writes a number.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};

/// How many bytes the system has of a TCP connection that its other end has not acknowledged. None: it does not say.
pub fn unacknowledged_bytes(socket: BorrowedFd<'_>) -> Option<u64> {
    let mut bytes: c_int = 0;
    // SAFETY: the descriptor is open for as long as it is borrowed, and this request (SIOCOUTQ by its other name) writes one
    // `int` to where it is told, which lives until the call is over.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    u64::try_from(bytes).ok().filter(|_| result == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn what_the_other_end_has_no_room_for_is_not_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut other = listener.accept().unwrap().0;
        assert_eq!(unacknowledged_bytes(socket.as_fd()), Some(0));
        socket.set_nonblocking(true).unwrap();
        let (piece, mut written) = (vec![0; 1 << 20], 0);
        while let Ok(bytes) = socket.write(&piece) {
            written += bytes;
        }
        let waits = unacknowledged_bytes(socket.as_fd()).unwrap();
        assert!(waits > 0 && waits < written as u64, "{waits} of {written}");
        other.read_exact(&mut vec![0; written]).unwrap();
        while unacknowledged_bytes(socket.as_fd()) != Some(0) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_file_does_not_say() {
        assert_eq!(unacknowledged_bytes(File::open("/dev/null").unwrap().as_fd()), None);
    }
}
