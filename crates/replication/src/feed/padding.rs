//! Bytes of the stream that do nothing, as many as are wanted: they stand for what is left out.
//!
//! A heartbeat with an argument that nobody reads, and where its length does not fit, line ends before it: a replica of Redis counts an
//! empty line as bytes of the stream, as [`crate::link`] does. A replica counts line ends once a request comes, so they stand first.
//!
//! Invariant: what is appended is exactly as long as was asked for.

/// `*1 $4 PING`.
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
/// PING up to the length of its argument.
const FRONT: &[u8] = b"*2\r\n$4\r\nPING\r\n$";
/// Line ends round an argument and its length.
const ENDS: usize = 4;
/// Arguments are hardly longer, so that nobody has to have a long request in memory for nothing.
const ARGUMENT_BYTES_MAX: usize = 16 << 10;

/// Appends so many bytes that do nothing.
pub fn pad(out: &mut Vec<u8>, mut bytes: usize) {
    while bytes > 2 * ARGUMENT_BYTES_MAX {
        push_ping(out, ARGUMENT_BYTES_MAX);
        bytes -= ping_bytes(ARGUMENT_BYTES_MAX);
    }
    // The nearest length below that a heartbeat can have.
    let fitting = (0..=bytes).rev().find(|bytes| is_ping(*bytes)).unwrap_or(0);
    out.extend(std::iter::repeat_n(b'\n', bytes - fitting));
    match fitting {
        0 => {}
        bytes if bytes == PING.len() => out.extend_from_slice(PING),
        bytes => push_ping(out, argument_of(bytes).unwrap_or(0)),
    }
}

fn is_ping(bytes: usize) -> bool {
    bytes == 0 || bytes == PING.len() || argument_of(bytes).is_some()
}

/// How long the argument is of a heartbeat of so many bytes; None: there is none.
fn argument_of(bytes: usize) -> Option<usize> {
    let around = FRONT.len() + ENDS;
    (1..=5)
        .filter_map(|digits| bytes.checked_sub(around + digits))
        .find(|argument| ping_bytes(*argument) == bytes)
}

fn ping_bytes(argument: usize) -> usize {
    FRONT.len() + digits(argument) + ENDS + argument
}

fn digits(number: usize) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

fn push_ping(out: &mut Vec<u8>, argument: usize) {
    out.extend_from_slice(FRONT);
    out.extend_from_slice(argument.to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend(std::iter::repeat_n(b'.', argument));
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{MasterStream, Place, UnitKind};
    use sys::Prng;
    use testkit::Budget;

    #[test]
    fn every_length_is_met_by_what_does_nothing() {
        for bytes in (0..=5000).chain([16_300, 16_384, 16_420, 16_421, 16_450, 40_000, 1 << 20]) {
            let mut out = b"x".to_vec();
            pad(&mut out, bytes);
            assert_eq!(out.len(), bytes + 1);
            let mut stream = MasterStream::new(Place::default(), 1 << 20);
            stream.feed(&out[1..]);
            let mut ends = 0;
            while let Some(unit) = stream.next_unit().unwrap() {
                assert!(matches!(unit.kind(), UnitKind::Blank | UnitKind::Ping), "{bytes}");
                ends += usize::from(unit.kind() == UnitKind::Blank);
            }
            assert_eq!(stream.place().offset, bytes as u64);
            assert!(ends < PING.len(), "{bytes}");
            if bytes >= 20 {
                assert!(ends <= 1, "{bytes}");
            }
        }
    }

    #[test]
    fn padding_among_requests_moves_nothing() {
        let budget = Budget::from_env(1, 300);
        let mut done = 0;
        while budget.allows(done) {
            let seed = budget.seed.wrapping_add(done);
            let prng = &mut Prng::from_seed(seed);
            let (mut out, mut ends) = (Vec::new(), Vec::new());
            for _ in 0..prng.below(10) {
                let most = [30, 300, 70_000][usize::try_from(prng.below(3)).unwrap()];
                pad(&mut out, usize::try_from(prng.below(most)).unwrap());
                wire::encode_request(&mut out, &[&b"SET"[..], b"a", b"1"]);
                ends.push(out.len() as u64);
            }
            let mut stream = MasterStream::new(Place::default(), 1 << 20);
            let mut found = Vec::new();
            for piece in out.chunks(1 + usize::try_from(prng.below(5000)).unwrap()) {
                stream.feed(piece);
                while let Some(unit) = stream.next_unit().expect("it is a stream") {
                    found.extend((unit.kind() == UnitKind::Command).then_some(unit.end().offset));
                }
            }
            assert_eq!(found, ends, "repeat with TARN_SEED={seed} TARN_STEPS=1");
            done += 1;
        }
    }
}
