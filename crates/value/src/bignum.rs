//! Natural numbers of any size: just what turning decimal texts into 80-bit floats and back takes.
//!
//! Used by `extended` only, for numbers of at most some 35,000 bits; every operation is one or two
//! nested loops over 64-bit limbs.
//!
//! 1. Limbs are stored lowest first and the last one is not zero; zero has no limbs.

#![expect(
    clippy::cast_possible_truncation,
    reason = "limbs are the low halves of wider products, and exponents are small"
)]

use crate::magnitude::Magnitude;

/// The largest power of ten in a limb.
const CHUNK_DIGITS: usize = 19;
const CHUNK: u64 = 10_000_000_000_000_000_000;

/// A natural number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bignum {
    limbs: Vec<u64>,
}

impl From<u64> for Bignum {
    fn from(value: u64) -> Self {
        let mut number = Self { limbs: vec![value] };
        number.trim();
        number
    }
}

impl Bignum {
    /// Reads ASCII digits, most significant first.
    pub fn from_decimal(digits: impl Iterator<Item = u8>) -> Self {
        let mut number = Self { limbs: Vec::new() };
        let (mut chunk, mut scale) = (0, 1);
        for byte in digits {
            chunk = chunk * 10 + u64::from(byte - b'0');
            scale *= 10;
            if scale == CHUNK {
                number.multiply_add(scale, chunk);
                (chunk, scale) = (0, 1);
            }
        }
        number.multiply_add(scale, chunk);
        number
    }

    /// The digits, most significant first.
    pub fn to_decimal(&self) -> String {
        let mut rest = self.clone();
        let mut chunks = Vec::new();
        while !rest.limbs.is_empty() {
            chunks.push(rest.divide_chunk());
        }
        let mut text = chunks.pop().unwrap_or(0).to_string();
        for chunk in chunks.iter().rev() {
            text.push_str(&format!("{chunk:0CHUNK_DIGITS$}"));
        }
        text
    }

    /// The value, if one limb holds it.
    pub fn to_u64(&self) -> Option<u64> {
        match self.limbs.as_slice() {
            [] => Some(0),
            [limb] => Some(*limb),
            _ => None,
        }
    }

    pub fn multiply_power_of_ten(&mut self, exponent: usize) {
        for _ in 0..exponent / CHUNK_DIGITS {
            self.multiply_add(CHUNK, 0);
        }
        self.multiply_add(10u64.pow((exponent % CHUNK_DIGITS) as u32), 0);
    }

    pub fn shift_left(&mut self, bits: usize) {
        let (words, bits) = (bits / 64, bits % 64);
        let mut carry = 0;
        for limb in &mut self.limbs {
            let wide = u128::from(*limb) << bits | carry;
            *limb = wide as u64;
            carry = wide >> 64;
        }
        self.limbs.push(carry as u64);
        self.limbs.splice(0..0, std::iter::repeat_n(0, words));
        self.trim();
    }

    /// The top 128 bits, and whether anything is below them.
    pub fn magnitude(&self) -> Magnitude {
        let skipped = self.limbs.len().saturating_sub(3);
        let limb = |index: usize| u128::from(self.limbs.get(index).copied().unwrap_or(0));
        let top = limb(skipped + 2);
        let low = limb(skipped + 1) << 64 | limb(skipped);
        let sticky = self.limbs[..skipped].iter().any(|&limb| limb != 0);
        let width = 64 - (top as u64).leading_zeros();
        if width == 0 {
            return Magnitude { mantissa: low, sticky, exponent: 0 };
        }
        // Up to 192 bits were gathered; those that a mantissa cannot hold join the sticky bit.
        let mantissa = low >> width | top << (128 - width);
        let lost = low & ((1 << width) - 1) != 0;
        Magnitude { mantissa, sticky: sticky || lost, exponent: (skipped * 64) as i64 + i64::from(width) }
    }

    /// The quotient of two numbers that are not zero, to at least 127 bits.
    ///
    /// Schoolbook division one bit at a time: 128 steps over the divisor's limbs.
    pub fn divide(mut self, mut divisor: Self) -> Magnitude {
        let scale = self.bits() as i64 - divisor.bits() as i64;
        if scale >= 0 {
            divisor.shift_left(scale as usize);
        } else {
            self.shift_left(scale.unsigned_abs() as usize);
        }
        // Both have the same number of bits now, so the quotient is between one half and two.
        let mut quotient = 0u128;
        for _ in 0..127 {
            quotient <<= 1;
            if self.at_least(&divisor) {
                self.subtract(&divisor);
                quotient |= 1;
            }
            self.shift_left(1);
        }
        Magnitude { mantissa: quotient, sticky: !self.limbs.is_empty(), exponent: scale - 126 }
    }

    fn bits(&self) -> usize {
        let top_zeros = self.limbs.last().map_or(0, |top| top.leading_zeros() as usize);
        self.limbs.len() * 64 - top_zeros
    }

    fn at_least(&self, other: &Self) -> bool {
        let by_length = self.limbs.len().cmp(&other.limbs.len());
        by_length.then_with(|| self.limbs.iter().rev().cmp(other.limbs.iter().rev())).is_ge()
    }

    /// Subtracts a number that is not larger.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = false;
        let others = other.limbs.iter().copied().chain(std::iter::repeat(0));
        for (limb, other) in self.limbs.iter_mut().zip(others) {
            let (difference, first) = limb.overflowing_sub(other);
            let (difference, second) = difference.overflowing_sub(u64::from(borrow));
            *limb = difference;
            borrow = first || second;
        }
        assert!(!borrow, "the subtrahend was larger");
        self.trim();
    }

    fn multiply_add(&mut self, factor: u64, addend: u64) {
        let mut carry = u128::from(addend);
        for limb in &mut self.limbs {
            let wide = u128::from(*limb) * u128::from(factor) + carry;
            *limb = wide as u64;
            carry = wide >> 64;
        }
        if carry != 0 {
            self.limbs.push(carry as u64);
        }
    }

    /// Divides by [`CHUNK`] in place and returns the remainder.
    fn divide_chunk(&mut self) -> u64 {
        let mut remainder = 0u128;
        for limb in self.limbs.iter_mut().rev() {
            let wide = remainder << 64 | u128::from(*limb);
            *limb = (wide / u128::from(CHUNK)) as u64;
            remainder = wide % u128::from(CHUNK);
        }
        self.trim();
        remainder as u64
    }

    fn trim(&mut self) {
        while self.limbs.last() == Some(&0) {
            self.limbs.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_texts_survive_the_round_trip() {
        for text in ["0", "1", "18446744073709551616", "10000000000000000000000000000000000000001"] {
            assert_eq!(Bignum::from_decimal(text.bytes()).to_decimal(), text);
        }
        let mut power = Bignum::from(1);
        power.multiply_power_of_ten(100);
        assert_eq!(power.to_decimal(), format!("1{}", "0".repeat(100)));
    }

    #[test]
    fn shifting_multiplies_by_powers_of_two() {
        let mut number = Bignum::from(3);
        number.shift_left(130);
        assert_eq!(number.to_decimal(), "4083388403051261561560495289181218537472");
    }

    #[test]
    fn quotients_carry_a_sticky_bit_when_inexact() {
        let exact = Bignum::from(12).divide(Bignum::from(4));
        assert!(!exact.sticky);
        assert_eq!(exact.round(64, -100).mantissa, 3 << 62);
        assert!(Bignum::from(1).divide(Bignum::from(3)).sticky);
    }

    #[test]
    fn magnitudes_keep_the_top_bits() {
        let mut number = Bignum::from(5);
        number.shift_left(1000);
        let magnitude = number.magnitude();
        assert!(!magnitude.sticky);
        assert_eq!(magnitude.round(3, -100).mantissa, 5);
        assert_eq!(magnitude.round(3, -100).exponent, 1000);
    }
}
