//! What of the stream a Redis before 7.4 does not know: times of hashes' fields.
//!
//! Pure. A value may hold the same bytes as such a request has; it is taken for one then, which ends a link and spoils nothing.

use memchr::memmem;

/// Requests that give fields times, or take them away.
const REQUESTS: [&[u8]; 2] = [b"$10\r\nHPEXPIREAT\r\n", b"$8\r\nHPERSIST\r\n"];

/// Whether any of these bytes has such a request.
pub fn is_in(parts: &[&[u8]]) -> bool {
    parts.iter().any(|part| REQUESTS.iter().any(|request| memmem::find(part, request).is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_fields_are_found_among_other_requests() {
        assert!(is_in(&[b"*1\r\n$4\r\nPING\r\n", b"*6\r\n$10\r\nHPEXPIREAT\r\n$1\r\nk\r\n"]));
        assert!(!is_in(&[b"*3\r\n$3\r\nSET\r\n$10\r\nHPEXPIREAT!"]));
    }
}
