//! HyperLogLogs: an estimate of how many different elements were added, in a string of at most 12 KB
//! (Flajolet et al., 2007), in Redis' own byte format, so that GET and DUMP give the same bytes.
//!
//! ```text
//! "HYLL" | encoding u8 | 3 zero bytes | cached cardinality u64, little-endian | registers
//! ```
//!
//! The highest bit of the cached cardinality says that it is out of date. Registers are 16,384 six-bit
//! numbers ("dense"), or run lengths of them (see [`sparse`]) as long as those take little room.
//!
//! 1. Strings come from clients, who may have SET anything: no function panics on one. What only a walk
//!    over the registers finds out is [`Corrupted`].
//! 2. Counts are Redis' to the digit (see [`estimate`]).

#![expect(clippy::cast_possible_truncation, reason = "registers are 6 bits of wider words")]

pub mod estimate;
pub mod sparse;

use estimate::Histogram;

/// Bytes before the registers.
pub const HEADER_BYTES: usize = 16;
/// How many registers there are.
pub const REGISTERS: usize = 1 << INDEX_BITS;
/// The length of every dense HyperLogLog.
pub const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * REGISTER_BITS / 8;

/// Bits of an element's hash that choose its register.
const INDEX_BITS: u32 = 14;
/// The other bits of the hash; a register counts the zeros they begin with.
const RUN_BITS: u32 = u64::BITS - INDEX_BITS;
const REGISTER_BITS: usize = 6;
const REGISTER_MAX: u8 = (1 << REGISTER_BITS) - 1;

const MAGIC: &[u8] = b"HYLL";
const ENCODING: usize = 4;
const CACHE: std::ops::Range<usize> = 8..HEADER_BYTES;
const CACHE_STALE: u8 = 0x80;
/// The seed that Redis hashes elements with.
const HASH_SEED: u64 = 0xadc8_3b19;

/// All registers, a byte each: what several HyperLogLogs are merged in.
pub type Registers = [u8; REGISTERS];

/// The registers of a string that has the right header are no such thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupted;

/// How the registers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Six bits each.
    Dense,
    /// As runs.
    Sparse,
}

impl Encoding {
    /// The encoding of a HyperLogLog; `None` if the string is none.
    pub fn of(bytes: &[u8]) -> Option<Encoding> {
        if bytes.len() < HEADER_BYTES || !bytes.starts_with(MAGIC) {
            return None;
        }
        match bytes[ENCODING] {
            0 if bytes.len() == DENSE_BYTES => Some(Encoding::Dense),
            1 => Some(Encoding::Sparse),
            _ => None,
        }
    }

    /// The name in PFDEBUG's reply.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Dense => "dense",
            Encoding::Sparse => "sparse",
        }
    }
}

/// What one element says: a register is at least this large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    register: usize,
    value: u8,
}

impl Observation {
    /// What an element says.
    #[inline]
    pub fn of(element: &[u8]) -> Observation {
        let hash = murmur(element);
        let run = hash >> INDEX_BITS | 1 << RUN_BITS;
        Observation { register: hash as usize % REGISTERS, value: run.trailing_zeros() as u8 + 1 }
    }

    /// A register's value as an observation.
    ///
    /// # Panics
    /// If there is no such register or it cannot hold the value.
    pub fn new(register: usize, value: u8) -> Observation {
        assert!(register < REGISTERS && value <= REGISTER_MAX, "a register's number and its six bits");
        Observation { register, value }
    }
}

/// An empty HyperLogLog, whose cached cardinality is right.
pub fn empty() -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    bytes[ENCODING] = 1;
    sparse::push_zeros(&mut bytes, REGISTERS);
    bytes
}

/// Adds an observation to a HyperLogLog, which becomes dense when its runs would take more than
/// `sparse_bytes_max` or cannot hold the value. Whether a register changed; the cache is the caller's.
///
/// # Errors
/// [`Corrupted`]; the bytes are then as before.
pub fn add(bytes: &mut Vec<u8>, seen: Observation, sparse_bytes_max: usize) -> Result<bool, Corrupted> {
    match Encoding::of(bytes) {
        None => Err(Corrupted),
        Some(Encoding::Dense) => {
            let changes = is_news(bytes, seen);
            add_dense(bytes, seen);
            Ok(changes)
        }
        Some(Encoding::Sparse) => match sparse::add(bytes, seen, sparse_bytes_max)? {
            sparse::Added::Unchanged => Ok(false),
            sparse::Added::Changed => Ok(true),
            sparse::Added::DoesNotFit => {
                make_dense(bytes)?;
                add_dense(bytes, seen);
                Ok(true)
            }
        },
    }
}

/// Whether an observation would change a dense HyperLogLog.
///
/// # Panics
/// If the bytes are not [`DENSE_BYTES`].
#[inline]
pub fn is_news(bytes: &[u8], seen: Observation) -> bool {
    assert!(bytes.len() == DENSE_BYTES, "a dense HyperLogLog has one length");
    dense_register(&bytes[HEADER_BYTES..], seen.register) < seen.value
}

/// Adds an observation to a dense HyperLogLog in place.
///
/// # Panics
/// If the bytes are not [`DENSE_BYTES`].
#[inline]
pub fn add_dense(bytes: &mut [u8], seen: Observation) {
    if is_news(bytes, seen) {
        set_dense_register(dense_registers_mut(bytes), seen.register, seen.value);
    }
}

/// Makes a sparse HyperLogLog dense; a dense one stays as it is. Whether it changed.
///
/// # Errors
/// [`Corrupted`]; the bytes are then as before.
pub fn make_dense(bytes: &mut Vec<u8>) -> Result<bool, Corrupted> {
    if Encoding::of(bytes).ok_or(Corrupted)? == Encoding::Dense {
        return Ok(false);
    }
    let mut dense = vec![0; DENSE_BYTES];
    dense[..HEADER_BYTES].copy_from_slice(&bytes[..HEADER_BYTES]);
    dense[ENCODING] = 0;
    let registers = dense_registers_mut(&mut dense);
    sparse::for_each_run(&bytes[HEADER_BYTES..], |first, length, value| {
        if value > 0 {
            (first..first + length).for_each(|register| set_dense_register(registers, register, value));
        }
    })?;
    *bytes = dense;
    Ok(true)
}

/// Raises `into` to the registers of a HyperLogLog where those are larger.
///
/// # Errors
/// [`Corrupted`]; `into` may have been raised by a part of them.
pub fn merge_into(into: &mut Registers, bytes: &[u8]) -> Result<(), Corrupted> {
    match Encoding::of(bytes).ok_or(Corrupted)? {
        Encoding::Dense => {
            let dense = &bytes[HEADER_BYTES..];
            for (group, values) in into.chunks_exact_mut(4).zip(dense.chunks_exact(3)) {
                let bits = u32::from_le_bytes([values[0], values[1], values[2], 0]);
                for (index, register) in group.iter_mut().enumerate() {
                    *register = (*register).max((bits >> (index * REGISTER_BITS)) as u8 & REGISTER_MAX);
                }
            }
            Ok(())
        }
        Encoding::Sparse => sparse::for_each_run(&bytes[HEADER_BYTES..], |first, length, value| {
            if value > 0 {
                into[first..first + length]
                    .iter_mut()
                    .for_each(|register| *register = (*register).max(value));
            }
        }),
    }
}

/// The number of different elements that a HyperLogLog has seen, counted anew.
///
/// # Errors
/// [`Corrupted`].
pub fn count(bytes: &[u8]) -> Result<u64, Corrupted> {
    let mut histogram = Histogram::default();
    match Encoding::of(bytes).ok_or(Corrupted)? {
        Encoding::Dense => {
            for values in bytes[HEADER_BYTES..].chunks_exact(3) {
                let bits = u32::from_le_bytes([values[0], values[1], values[2], 0]);
                (0..4).for_each(|index| {
                    histogram.add((bits >> (index * REGISTER_BITS)) as u8 & REGISTER_MAX, 1)
                });
            }
        }
        Encoding::Sparse => {
            sparse::for_each_run(&bytes[HEADER_BYTES..], |_, length, value| histogram.add(value, length))?;
        }
    }
    Ok(histogram.cardinality())
}

/// As [`count`], of merged registers.
pub fn count_registers(registers: &Registers) -> u64 {
    let mut histogram = Histogram::default();
    registers.iter().for_each(|value| histogram.add(*value, 1));
    histogram.cardinality()
}

/// The cached cardinality, if it is up to date.
pub fn cached(bytes: &[u8]) -> Option<u64> {
    let cache = bytes.get(CACHE)?.first_chunk()?;
    (cache[7] & CACHE_STALE == 0).then(|| u64::from_le_bytes(*cache))
}

/// Writes the cached cardinality.
///
/// # Panics
/// If the bytes are shorter than a header.
pub fn set_cached(bytes: &mut [u8], cardinality: u64) {
    bytes[CACHE].copy_from_slice(&cardinality.to_le_bytes());
}

/// Marks the cached cardinality as out of date.
///
/// # Panics
/// If the bytes are shorter than a header.
pub fn drop_cached(bytes: &mut [u8]) {
    bytes[CACHE.end - 1] |= CACHE_STALE;
}

fn dense_registers_mut(bytes: &mut [u8]) -> &mut [u8] {
    assert!(bytes.len() == DENSE_BYTES, "a dense HyperLogLog has one length");
    &mut bytes[HEADER_BYTES..]
}

/// Registers lie one after the other from the lowest bit on: four in three bytes.
fn dense_register(dense: &[u8], register: usize) -> u8 {
    let (byte, shift) = (register * REGISTER_BITS / 8, register * REGISTER_BITS % 8);
    let high = dense.get(byte + 1).copied().unwrap_or(0);
    (u16::from_le_bytes([dense[byte], high]) >> shift) as u8 & REGISTER_MAX
}

fn set_dense_register(dense: &mut [u8], register: usize, value: u8) {
    let (byte, shift) = (register * REGISTER_BITS / 8, register * REGISTER_BITS % 8);
    let high = dense.get(byte + 1).copied().unwrap_or(0);
    let bits = u16::from_le_bytes([dense[byte], high]) & !(u16::from(REGISTER_MAX) << shift);
    let [low, high] = (bits | u16::from(value) << shift).to_le_bytes();
    dense[byte] = low;
    if let Some(next) = dense.get_mut(byte + 1) {
        *next = high;
    }
}

/// MurmurHash64A (Appleby, public domain) of an element.
fn murmur(element: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut hash = HASH_SEED ^ (element.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, tail) = element.as_chunks::<8>();
    for word in words {
        let mixed = u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        let mixed = (mixed ^ mixed >> SHIFT).wrapping_mul(MULTIPLIER);
        hash = (hash ^ mixed).wrapping_mul(MULTIPLIER);
    }
    if !tail.is_empty() {
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(MULTIPLIER);
    hash ^ hash >> SHIFT
}

#[cfg(test)]
mod tests;
