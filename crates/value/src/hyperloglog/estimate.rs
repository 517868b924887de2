//! From registers to a cardinality: the estimator of Ertl ("New cardinality estimation algorithms for
//! HyperLogLog sketches", arXiv:1702.01284, 2017) that Redis uses since 5.0.
//!
//! 1. The operations on floating point numbers and their order are the paper's, hence Redis', so that
//!    counts agree to the digit.

use super::{REGISTERS, RUN_BITS};

/// 1 / (2 ln 2): the limit of HyperLogLog's correction for many registers.
const ALPHA: f64 = 0.721_347_520_444_481_7;

/// How many registers have which value. Values beyond those that a hash can give are counted and make no
/// difference, as in Redis.
pub(super) struct Histogram([u32; 64]);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram([0; 64])
    }
}

impl Histogram {
    /// Counts registers of one value.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "there are no more registers than 14 bits can say, and estimates are positive"
    )]
    pub(super) fn add(&mut self, value: u8, registers: usize) {
        self.0[usize::from(value % 64)] += registers as u32;
    }

    /// The estimate.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "there are no more registers than 14 bits can say, and estimates are positive"
    )]
    pub(super) fn cardinality(&self) -> u64 {
        let m = REGISTERS as f64;
        let of = |value: u32| f64::from(self.0[value as usize]);
        let mut z = m * tau((m - of(RUN_BITS + 1)) / m);
        for value in (1..=RUN_BITS).rev() {
            z += of(value);
            z *= 0.5;
        }
        z += m * sigma(of(0) / m);
        (ALPHA * m * m / z).round() as u64
    }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}
