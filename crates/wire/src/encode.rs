//! The client side's way out: arguments to request bytes.
//!
//! Used by load generators, replicas, the log (which records effects as requests) and tests. The opposite
//! direction is [`crate::Parser`].

use crate::reply::write_header;

/// Appends one request as an array of bulk strings. `args` must not be empty: servers skip an empty request
/// silently and send no reply for it.
pub fn encode_request(out: &mut Vec<u8>, args: &[&[u8]]) {
    debug_assert!(!args.is_empty());
    encode_request_header(out, args.len());
    for arg in args {
        encode_arg(out, arg);
    }
}

/// Appends the first line of a request; exactly `count` calls of [`encode_arg`] must follow.
pub fn encode_request_header(out: &mut Vec<u8>, count: usize) {
    write_header(out, b'*', count);
}

/// Appends one argument of a request.
#[inline]
pub fn encode_arg(out: &mut Vec<u8>, arg: &[u8]) {
    write_header(out, b'$', arg.len());
    out.extend_from_slice(arg);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_arrays_of_bulk_strings() {
        let mut out = Vec::new();
        encode_request(&mut out, &[b"SET", b"", b"a\r\nb"]);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\na\r\nb\r\n");
    }
}
