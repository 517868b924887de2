//! Keys that nobody has used before and that expire: SET of a random UUID with EX.

use super::{Feed, Issued};
use sys::Prng;
use wire::encode_request;

/// Length of a UUID in its usual form.
const UUID_BYTES: usize = 36;

/// The feed of `Work::Uuids`.
pub struct Expiring {
    request: Vec<u8>,
    key_at: usize,
    prng: Prng,
}

impl Expiring {
    pub fn new(value_bytes: u64, seconds: u64, prng: Prng) -> Expiring {
        let value = vec![b'x'; usize::try_from(value_bytes).unwrap_or(usize::MAX)];
        let mut request = Vec::new();
        let seconds = seconds.to_string();
        encode_request(&mut request, &[b"SET", &[b'k'; UUID_BYTES], &value, b"EX", seconds.as_bytes()]);
        Expiring { request, key_at: "*5\r\n$3\r\nSET\r\n$36\r\n".len(), prng }
    }
}

impl Feed for Expiring {
    fn issue(&mut self, _connection: usize, out: &mut Vec<u8>) -> Issued {
        let at = out.len() + self.key_at;
        out.extend_from_slice(&self.request);
        write_uuid(&mut out[at..at + UUID_BYTES], &mut self.prng);
        Issued::single(0)
    }
}

/// Writes a version 4 UUID: 122 random bits as hexadecimal digits, in groups.
fn write_uuid(place: &mut [u8], prng: &mut Prng) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut bits = u128::from(prng.next_u64()) << 64 | u128::from(prng.next_u64());
    for (at, byte) in place.iter_mut().enumerate() {
        if matches!(at, 8 | 13 | 18 | 23) {
            *byte = b'-';
            continue;
        }
        let digit = (bits & 15) as usize;
        bits >>= 4;
        *byte = match at {
            14 => b'4',
            19 => HEX[8 | digit & 3],
            _ => HEX[digit],
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_uuids_and_all_different() {
        let mut feed = Expiring::new(5, 60, Prng::from_seed(1));
        let mut keys = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            let mut out = Vec::new();
            feed.issue(0, &mut out);
            let text = String::from_utf8(out).unwrap();
            assert!(text.ends_with("\r\n$5\r\nxxxxx\r\n$2\r\nEX\r\n$2\r\n60\r\n"), "{text}");
            let key = text.lines().nth(4).unwrap().to_owned();
            let groups: Vec<_> = key.split('-').map(str::len).collect();
            assert_eq!(groups, [8, 4, 4, 4, 12], "{key}");
            assert_eq!(&key[14..15], "4");
            assert!("89ab".contains(&key[19..20]));
            keys.insert(key);
        }
        assert_eq!(keys.len(), 1000);
    }
}
