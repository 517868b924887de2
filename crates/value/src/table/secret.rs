//! A keyed hash for keys and members that strangers choose: SipHash-1-3 (Aumasson and Bernstein, 2012), as Rust's own hash maps
//! have it.
//!
//! Who may scan is shown most bits of a hash in the cursor, and the order of all of them. A hash that only mixes a seed in by
//! multiplications gives the seed away to whoever looks at enough of it, and has inputs that make one factor zero, so that nothing
//! else counts. This one is made to show nothing of its key to those who choose what is hashed and see what comes out.
//!
//! Pure.

use sys::prng::{entropy_seed, fill_with_secrets};

/// 128 bits that nobody outside knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretKey(pub [u64; 2]);

impl SecretKey {
    /// A key that nobody can guess.
    pub fn from_entropy() -> SecretKey {
        let mut bytes = [0; 16];
        match fill_with_secrets(&mut bytes) {
            Ok(()) => SecretKey::from_bytes(bytes),
            Err(_) => SecretKey([entropy_seed(), entropy_seed()]),
        }
    }

    /// The key with these bytes.
    #[expect(clippy::cast_possible_truncation, reason = "halves are meant")]
    pub fn from_bytes(bytes: [u8; 16]) -> SecretKey {
        let both = u128::from_le_bytes(bytes);
        SecretKey([both as u64, (both >> 64) as u64])
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.0[0]) | u128::from(self.0[1]) << 64).to_le_bytes()
    }
}

/// Hashes by a key.
#[derive(Clone, Debug)]
pub struct SecretHasher {
    /// What every hash begins with.
    begin: State,
}

#[derive(Clone, Copy, Debug)]
struct State([u64; 4]);

impl SecretHasher {
    /// By this key.
    pub fn new(SecretKey([k0, k1]): SecretKey) -> SecretHasher {
        SecretHasher {
            begin: State([
                k0 ^ 0x736f_6d65_7073_6575,
                k1 ^ 0x646f_7261_6e64_6f6d,
                k0 ^ 0x6c79_6765_6e65_7261,
                k1 ^ 0x7465_6462_7974_6573,
            ]),
        }
    }

    /// The hash of some bytes.
    #[inline]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        let mut state = self.begin;
        let (words, _) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| state.take(u64::from_le_bytes(*word)));
        state.take(last_word(bytes));
        let State([_, _, third, _]) = &mut state;
        *third ^= 0xff;
        (0..3).for_each(|_| state.mix());
        state.0.into_iter().fold(0, |hash, part| hash ^ part)
    }
}

impl State {
    #[inline(always)]
    fn take(&mut self, word: u64) {
        self.0[3] ^= word;
        self.mix();
        self.0[0] ^= word;
    }

    #[inline(always)]
    fn mix(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.0;
        a = a.wrapping_add(b);
        c = c.wrapping_add(d);
        b = b.rotate_left(13) ^ a;
        d = d.rotate_left(16) ^ c;
        a = a.rotate_left(32).wrapping_add(d);
        c = c.wrapping_add(b);
        b = b.rotate_left(17) ^ c;
        d = d.rotate_left(21) ^ a;
        c = c.rotate_left(32);
        self.0 = [a, b, c, d];
    }
}

/// The bytes that fill no word, with the length above them.
#[inline(always)]
fn last_word(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let length = (bytes.len() as u64) << 56;
    let rest = match (rest, bytes.last_chunk::<8>()) {
        ([], _) => 0,
        // They are read with what is before them, which is pushed out.
        (rest, Some(last)) if !words.is_empty() => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
        (rest, _) => small_word(rest),
    };
    length | rest
}

/// One to seven bytes as a word.
#[inline(always)]
fn small_word(bytes: &[u8]) -> u64 {
    let count = bytes.len();
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << (8 * (count - 4))
        }
        _ => {
            let at = |index: usize| u64::from(bytes[index]) << (8 * index);
            at(0) | at(count / 2) | at(count - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::Hasher;

    #[test]
    fn it_hashes_as_the_standard_library_does() {
        // The same rounds, with a key of zeros.
        let ours = SecretHasher::new(SecretKey([0, 0]));
        let bytes: Vec<u8> = (0..100u8).map(|byte| byte.wrapping_mul(37) ^ 0xa5).collect();
        for length in 0..=bytes.len() {
            let mut theirs = std::collections::hash_map::DefaultHasher::new();
            theirs.write(&bytes[..length]);
            assert_eq!(ours.hash(&bytes[..length]), theirs.finish(), "{length} bytes");
        }
    }

    #[test]
    fn a_key_has_its_say_and_survives_as_bytes() {
        let bytes = std::array::from_fn(|index| index as u8);
        let key = SecretKey::from_bytes(bytes);
        assert_eq!(key, SecretKey([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]));
        assert_eq!(key.to_bytes(), bytes);
        // Of SipHash-1-3 with that key, over the bytes 0 to 14.
        assert_eq!(SecretHasher::new(key).hash(&bytes[..15]), 0xd320_d86d_2a51_9956);
        assert_ne!(SecretKey::from_entropy(), SecretKey::from_entropy());
    }
}
