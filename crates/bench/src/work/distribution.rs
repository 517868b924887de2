//! The distributions by which YCSB chooses records.
//!
//! Zipf's law is drawn by the method of Gray et al. ("Quickly Generating Billion-Record Synthetic Databases",
//! SIGMOD 1994), as YCSB does it. The sums that it needs are taken by the Euler-Maclaurin formula instead of term
//! by term, so that 64-bit numbers of records cost nothing; the result agrees with the sum to 1 part in 10^12.

use sys::Prng;

/// YCSB's exponent of Zipf's law.
pub const THETA: f64 = 0.99;
/// Ranks over which YCSB draws before it scatters them over the records.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
/// The sum for [`SCRAMBLED_ITEMS`], as YCSB has it.
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;
/// Terms that are summed one by one before the formula takes over.
const EXACT_TERMS: u64 = 1000;

/// The sum of `i^-theta` for `i` from 1 to `items`. Accurate to 1 part in 10^12.
pub fn zeta(items: u64, theta: f64) -> f64 {
    let exact = items.min(EXACT_TERMS);
    let head: f64 = (1..=exact).rev().map(|i| (i as f64).powf(-theta)).sum();
    if items == exact {
        return head;
    }
    let (from, to) = (exact as f64, items as f64);
    let integral = (to.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta);
    let ends = (to.powf(-theta) - from.powf(-theta)) / 2.0;
    let slopes = theta / 12.0 * (from.powf(-theta - 1.0) - to.powf(-theta - 1.0));
    head + integral + ends + slopes
}

/// FNV-1a over the eight bytes of a number, without its sign: how YCSB scatters records and names keys.
#[inline]
pub fn fnv_hash(number: u64) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 1_099_511_628_211;
    let hash =
        number.to_le_bytes().iter().fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
    (hash as i64).unsigned_abs()
}

/// Zipf's law over ranks from 0: rank `i` has the weight `(i + 1)^-theta`.
#[derive(Clone, Debug)]
pub struct Zipf {
    items: u64,
    zeta_items: f64,
    zeta_two: f64,
    eta: f64,
}

impl Zipf {
    /// Over this many ranks, at least 1.
    pub fn new(items: u64) -> Zipf {
        Zipf::with_zeta(items.max(1), zeta(items.max(1), THETA))
    }

    fn with_zeta(items: u64, zeta_items: f64) -> Zipf {
        let zeta_two = zeta(2, THETA);
        let eta = eta(items, zeta_items, zeta_two);
        Zipf { items, zeta_items, zeta_two, eta }
    }

    /// Extends the ranks; fewer than before changes nothing.
    pub fn grow(&mut self, items: u64) {
        /// Above, the formula is faster than adding terms.
        const ADDED_MAX: u64 = 100;
        if items <= self.items {
            return;
        }
        if items - self.items <= ADDED_MAX {
            let added = self.items + 1..=items;
            self.zeta_items += added.map(|i| (i as f64).powf(-THETA)).sum::<f64>();
        } else {
            self.zeta_items = zeta(items, THETA);
        }
        self.items = items;
        self.eta = eta(items, self.zeta_items, self.zeta_two);
    }

    /// The next rank, below the number of ranks.
    #[inline]
    pub fn next(&self, prng: &mut Prng) -> u64 {
        self.rank(prng.unit())
    }

    /// The rank that a number in `0.0..1.0` stands for.
    #[inline]
    pub fn rank(&self, unit: f64) -> u64 {
        const ALPHA: f64 = 1.0 / (1.0 - THETA);
        let scaled = unit * self.zeta_items;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < self.zeta_two {
            return 1;
        }
        let rank = (self.items as f64 * (self.eta * unit - self.eta + 1.0).powf(ALPHA)) as u64;
        rank.min(self.items - 1)
    }
}

fn eta(items: u64, zeta_items: f64, zeta_two: f64) -> f64 {
    (1.0 - (2.0 / items as f64).powf(1.0 - THETA)) / (1.0 - zeta_two / zeta_items)
}

/// Zipf's law over ten billion ranks, scattered over the records by a hash: popular records are everywhere, and
/// stay popular when records are added.
#[derive(Clone, Debug)]
pub struct ScrambledZipf {
    zipf: Zipf,
    records: u64,
}

impl ScrambledZipf {
    /// Over this many records, at least 1.
    pub fn new(records: u64) -> ScrambledZipf {
        ScrambledZipf { zipf: Zipf::with_zeta(SCRAMBLED_ITEMS, SCRAMBLED_ZETA), records: records.max(1) }
    }

    /// The next record.
    #[inline]
    pub fn next(&self, prng: &mut Prng) -> u64 {
        fnv_hash(self.zipf.next(prng)) % self.records
    }
}

/// A share of the operations goes to the first records.
#[derive(Clone, Debug)]
pub struct Hotspot {
    hot: u64,
    cold: u64,
    hot_operations: f64,
}

impl Hotspot {
    /// `data` is the hot share of the records and `operations` the share of the operations that go there; both
    /// from 0 to 1.
    pub fn new(records: u64, data: f64, operations: f64) -> Hotspot {
        let hot = ((records as f64 * data) as u64).min(records);
        Hotspot { hot, cold: records - hot, hot_operations: operations }
    }

    /// The next record.
    pub fn next(&self, prng: &mut Prng) -> u64 {
        let is_hot = prng.unit() < self.hot_operations;
        if (is_hot && self.hot > 0) || self.cold == 0 {
            prng.below(self.hot.max(1))
        } else {
            self.hot + prng.below(self.cold)
        }
    }
}

#[cfg(test)]
mod tests;
