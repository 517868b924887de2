//! Random numbers from a seed: xoshiro256++ (Blackman and Vigna, 2018), seeded
//! by splitmix64. Fast and repeatable, not for secrets; `entropy_seed` gives a
//! seed that nobody can guess, and `fill_with_secrets` what passwords are made of.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read};

/// Fills `bytes` from the system's own generator, which is fit for passwords.
///
/// # Errors
/// The system has none.
pub fn fill_with_secrets(bytes: &mut [u8]) -> io::Result<()> {
    File::open("/dev/urandom")?.read_exact(bytes)
}

/// A generator of random numbers. One owner, one thread.
#[derive(Clone, Debug)]
pub struct Prng {
    state: [u64; 4],
}

impl Prng {
    /// The same seed gives the same numbers.
    pub fn from_seed(seed: u64) -> Prng {
        let mut z = seed;
        let state = std::array::from_fn(|_| {
            z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut x = z;
            x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^ (x >> 31)
        });
        Prng { state }
    }

    /// A generator that differs in every run.
    pub fn from_entropy() -> Prng {
        Prng::from_seed(entropy_seed())
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number in `0..bound`, by multiply-shift (Lemire); the bias is below
    /// `bound / 2^64`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a number below 0 does not exist");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True once in `n` calls on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// 64 bits from the operating system's random source, by way of the standard
/// library's hash seeds.
pub fn entropy_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let (mut a, mut b) = (Prng::from_seed(7), Prng::from_seed(7));
        assert!((0..100).all(|_| a.next_u64() == b.next_u64()));
    }

    #[test]
    fn numbers_below_a_bound_reach_every_value() {
        let mut prng = Prng::from_seed(1);
        let mut seen = [false; 10];
        (0..1000).for_each(|_| seen[prng.below(10) as usize] = true);
        assert_eq!(seen, [true; 10]);
    }
}
