//! SET and GET in a ratio, as memtier_benchmark sends them: each connection makes its SETs, then its GETs, and
//! begins anew.

use super::{Feed, Issued, KeyPattern, Memtier, Share};
use sys::Prng;
use wire::encode::{encode_arg, encode_request_header};

/// Kinds of operations, by their index.
pub const KINDS: [&str; 2] = ["set", "get"];
const SET: u8 = 0;
const GET: u8 = 1;

/// Where a connection is.
#[derive(Clone, Debug, Default)]
struct Place {
    /// Operations of the present round that were made.
    made: u32,
    /// The next key of each sequential pattern, from the connection's first.
    next: [u64; 2],
    /// The connection's part of the keys in [`KeyPattern::Parallel`].
    part: (u64, u64),
}

/// The feed of a [`Memtier`].
pub struct SetsAndGets {
    memtier: Memtier,
    places: Vec<Place>,
    value: Vec<u8>,
    key: Vec<u8>,
    prng: Prng,
}

impl SetsAndGets {
    pub fn new(memtier: &Memtier, share: &Share, prng: Prng) -> SetsAndGets {
        let keys = memtier.key_maximum - memtier.key_minimum + 1;
        let border = |connection: u32| {
            let of = u128::from(share.connections_total.max(1));
            (u128::from(keys) * u128::from(connection) / of) as u64
        };
        let places = (share.connections_before..share.connections_before + share.connections)
            .map(|connection| Place {
                part: (border(connection), border(connection + 1)),
                ..Place::default()
            })
            .collect();
        let value = vec![b'x'; usize::try_from(memtier.value_bytes).unwrap_or(usize::MAX)];
        SetsAndGets { memtier: memtier.clone(), places, value, key: Vec::new(), prng }
    }

    /// The next key number of a kind of operation for a connection.
    fn number(&mut self, connection: usize, kind: u8) -> u64 {
        let keys = self.memtier.key_maximum - self.memtier.key_minimum + 1;
        let pattern = if kind == SET { self.memtier.set_pattern } else { self.memtier.get_pattern };
        let place = &mut self.places[connection];
        let (first, behind_last) = match pattern {
            KeyPattern::Random => return self.memtier.key_minimum + self.prng.below(keys),
            KeyPattern::Gauss => return self.memtier.key_minimum + gauss(&mut self.prng, keys),
            KeyPattern::Sequential => (0, keys),
            KeyPattern::Parallel => place.part,
        };
        let length = (behind_last - first).max(1);
        let next = &mut place.next[usize::from(kind)];
        let number = first + *next;
        *next = (*next + 1) % length;
        self.memtier.key_minimum + number
    }
}

/// A number below `keys` around the middle, with a sixth of the range as standard deviation (polar method).
fn gauss(prng: &mut Prng, keys: u64) -> u64 {
    loop {
        let (x, y) = (2.0 * prng.unit() - 1.0, 2.0 * prng.unit() - 1.0);
        let square = x * x + y * y;
        if square >= 1.0 || square == 0.0 {
            continue;
        }
        let normal = x * (-2.0 * square.ln() / square).sqrt();
        let number = (keys as f64 / 2.0 + normal * keys as f64 / 6.0).floor();
        if (0.0..keys as f64).contains(&number) {
            return (number as u64).min(keys - 1);
        }
    }
}

impl Feed for SetsAndGets {
    fn issue(&mut self, connection: usize, out: &mut Vec<u8>) -> Issued {
        let round = (self.memtier.sets + self.memtier.gets).max(1);
        let place = &mut self.places[connection];
        let kind = if place.made < self.memtier.sets { SET } else { GET };
        place.made = (place.made + 1) % round;
        let number = self.number(connection, kind);
        self.key.clear();
        self.key.extend_from_slice(self.memtier.prefix.as_bytes());
        self.key.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        if kind == SET {
            encode_request_header(out, 3);
            encode_arg(out, b"SET");
            encode_arg(out, &self.key);
            encode_arg(out, &self.value);
        } else {
            encode_request_header(out, 2);
            encode_arg(out, b"GET");
            encode_arg(out, &self.key);
        }
        Issued::single(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memtier(pattern: KeyPattern) -> Memtier {
        Memtier {
            sets: 1,
            gets: 2,
            value_bytes: 2,
            prefix: "memtier-".to_owned(),
            key_minimum: 10,
            key_maximum: 19,
            set_pattern: pattern,
            get_pattern: pattern,
        }
    }

    fn requests(pattern: KeyPattern, connection: usize, count: usize) -> Vec<String> {
        let share = Share::divide(1, 2, None)[0];
        let mut feed = SetsAndGets::new(&memtier(pattern), &share, Prng::from_seed(1));
        let mut request = || {
            let mut out = Vec::new();
            feed.issue(connection, &mut out);
            let text = String::from_utf8(out).unwrap();
            let words: Vec<_> = text.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
            words.join(" ")
        };
        (0..count).map(|_| request()).collect()
    }

    #[test]
    fn each_connection_keeps_the_ratio_in_rounds() {
        let found = requests(KeyPattern::Sequential, 1, 6);
        let expected = [
            "SET memtier-10 xx",
            "GET memtier-10",
            "GET memtier-11",
            "SET memtier-11 xx",
            "GET memtier-12",
            "GET memtier-13",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn parallel_connections_divide_the_keys_among_them() {
        let sets: Vec<_> = requests(KeyPattern::Parallel, 1, 18)
            .into_iter()
            .filter_map(|line| Some(line.strip_prefix("SET memtier-")?.to_owned()))
            .collect();
        assert_eq!(sets, ["15 xx", "16 xx", "17 xx", "18 xx", "19 xx", "15 xx"]);
    }

    #[test]
    fn gaussian_keys_gather_in_the_middle() {
        let mut prng = Prng::from_seed(1);
        let near = (0..10_000).filter(|_| gauss(&mut prng, 600).abs_diff(300) < 100).count();
        assert!((6700..7000).contains(&near), "{near} of 10000 within one standard deviation");
    }
}
