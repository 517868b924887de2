//! Seeded fuzzing of every module against a naive model of it.
//!
//! `TARN_SEED` picks the run (printed on failure), `TARN_STEPS` its length per test. Without them it is a
//! smoke test of some two seconds. The canary feeds the harness a model that is wrong on purpose.

#[path = "fuzz/list.rs"]
mod list;
#[path = "fuzz/listpack.rs"]
mod listpack;
#[path = "fuzz/models.rs"]
mod models;
#[path = "fuzz/stream.rs"]
mod stream;

use std::ops::RangeInclusive;

use value::bitfield::{FieldType, Overflow};
use value::bits::{Bit, BitOp, IndexRange, IndexUnit, Search, bitcount, bitop, bitpos};
use value::collection::Thresholds;
use value::crc64::crc64;
use value::extended::Extended;
use value::glob::{Case, glob_match};
use value::lcs::{lcs, lcs_len};
use value::number::{IntBuffer, format_f64, format_f64_17g, format_i64, parse_f64, parse_i64, parse_u64};
use value::rdb::{Restored, dump_string, restore};
use value::string::StringEncoding;
use value::{lzf, number};

/// Reproducible numbers, and bytes of kinds.
struct Prng(sys::Prng);

impl Prng {
    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn bytes_of(&mut self, alphabet: &[u8], lengths: RangeInclusive<usize>) -> Vec<u8> {
        let len = lengths.start() + self.below(lengths.end() - lengths.start() + 1);
        (0..len).map(|_| self.pick(alphabet)).collect()
    }

    /// Runs of equal bytes, repeats and noise: what compressors and bitmaps see.
    fn lumpy_bytes(&mut self, len_max: usize) -> Vec<u8> {
        let len = self.below(len_max + 1);
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let piece = 1 + self.below(40);
            match self.below(4) {
                0 => bytes.extend((0..piece).map(|_| self.next() as u8)),
                1 if !bytes.is_empty() => {
                    let start = self.below(bytes.len());
                    bytes.extend_from_within(start..bytes.len().min(start + piece));
                }
                _ => {
                    let byte = self.pick(&[0, 0xff, b'a', b'b']);
                    bytes.resize(bytes.len() + piece, byte);
                }
            }
        }
        bytes.truncate(len);
        bytes
    }

    /// An index near the bounds of something of this size, or a hostile one.
    fn index(&mut self, size: i64) -> i64 {
        match self.below(8) {
            0 => self.pick(&[i64::MIN, i64::MAX, size, -size, -1, 0]),
            _ => self.below(2 * size as usize + 9) as i64 - size - 4,
        }
    }
}

/// Runs a step with the run's generator, as often as asked for; a failure names the seed.
fn fuzz(steps_default: u64, mut step: impl FnMut(&mut Prng)) {
    let read = |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u64>().ok());
    let seed = read("TARN_SEED").unwrap_or(0x7a52);
    let steps = read("TARN_STEPS").unwrap_or(steps_default);
    for index in 0..steps {
        let mut prng =
            Prng(sys::Prng::from_seed(seed.wrapping_add(index.wrapping_mul(0x2545_f491_4f6c_dd1d))));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| step(&mut prng)));
        if let Err(cause) = outcome {
            eprintln!("failed at step {index} of TARN_SEED={seed} TARN_STEPS={steps}");
            std::panic::resume_unwind(cause);
        }
    }
}

const GLOB_BYTES: &[u8] = b"aabbcA-*?[]^\\\xf0";

fn glob_step(prng: &mut Prng, model: impl Fn(&[u8], &[u8], Case) -> bool) {
    let pattern = prng.bytes_of(GLOB_BYTES, 0..=9);
    let text = prng.bytes_of(b"aabbcA-]\xf0", 0..=8);
    let case = prng.pick(&[Case::Sensitive, Case::Insensitive]);
    let expected = model(&pattern, &text, case);
    assert_eq!(glob_match(&pattern, &text, case), expected, "{pattern:?} {text:?} {case:?}");
}

#[test]
fn globs_match_as_the_recursive_model_does() {
    fuzz(10_000, |prng| glob_step(prng, models::glob));
}

#[test]
#[should_panic(expected = "left == right")]
fn canary_wrong_glob_model_is_found_out() {
    fuzz(10_000, |prng| glob_step(prng, |pattern, text, _| models::glob(pattern, text, Case::Sensitive)));
}

#[test]
fn integers_are_parsed_as_by_the_standard_library_if_canonical() {
    fuzz(13_300, |prng| {
        let text = match prng.below(3) {
            0 => prng.bytes_of(b"0123456789-+ .", 0..=21),
            1 => prng.bytes_of(b"0129", 18..=21),
            _ => (prng.next() as i64 >> prng.below(64)).to_string().into_bytes(),
        };
        let utf8 = std::str::from_utf8(&text).unwrap();
        let signed = utf8.parse::<i64>().ok().filter(|value| value.to_string() == utf8);
        let unsigned = utf8.parse::<u64>().ok().filter(|value| value.to_string() == utf8);
        assert_eq!(parse_i64(&text), signed, "{utf8}");
        assert_eq!(parse_u64(&text), unsigned, "{utf8}");
        let encoding = StringEncoding::of(&text);
        assert_eq!(matches!(encoding, StringEncoding::Int(_)), signed.is_some());
        if let Some(value) = signed {
            assert_eq!(format_i64(value, &mut IntBuffer::new()), text);
        }
    });
}

#[test]
fn floats_survive_both_text_forms() {
    fuzz(6_600, |prng| {
        let value = match prng.below(3) {
            0 => f64::from_bits(prng.next()),
            1 => prng.below(1_000_000) as f64 / prng.pick(&[1.0, 10.0, 1000.0, 1e9]),
            _ => (prng.next() as i64 >> prng.below(64)) as f64,
        };
        if value.is_nan() {
            return;
        }
        for text in [format_f64(value), format_f64_17g(value)] {
            let back = parse_f64(text.as_bytes()).unwrap();
            assert_eq!(back.to_bits(), value.to_bits(), "{value}");
        }
    });
}

#[test]
fn any_float_text_is_parsed_without_panic_and_printed_stably() {
    fuzz(4_000, |prng| {
        let text = match prng.below(3) {
            0 => prng.bytes_of(b"0123456789.e-+", 0..=24),
            1 => [b"0x".to_vec(), prng.bytes_of(b"0123456789abcdefF.pP-+", 0..=40)].concat(),
            _ => {
                [prng.bytes_of(b"0123456789", 1..=40), b"e".to_vec(), prng.bytes_of(b"-0123", 1..=5)].concat()
            }
        };
        let narrow = parse_f64(&text);
        let Some(wide) = Extended::parse(&text) else {
            assert_eq!(narrow, None, "{}", text.escape_ascii());
            return;
        };
        let mut printed = Vec::new();
        wide.write(&mut printed);
        let mut again = Vec::new();
        Extended::parse(&printed).unwrap().write(&mut again);
        assert_eq!(printed, again, "{}", text.escape_ascii());
    });
}

#[test]
fn extended_sums_are_exact_where_integers_are() {
    fuzz(4_000, |prng| {
        let left = prng.next() as i64 >> prng.below(64);
        let right = prng.next() as i64 >> prng.below(64);
        // Eighths of 60-bit integers need at most 64 bits.
        let (left, right) = (left / 16, right / 16);
        let eighths = |value: i64| {
            format!("{}{}.{:03}", if value < 0 { "-" } else { "" }, value.abs() / 8, value.abs() % 8 * 125)
        };
        let parse = |value: i64| Extended::parse(eighths(value).as_bytes()).unwrap();
        let mut sum = Vec::new();
        parse(left).checked_add(parse(right)).unwrap().write(&mut sum);
        let expected = eighths(left + right);
        let expected = expected.trim_end_matches('0').trim_end_matches('.');
        let expected = if expected == "-0" { "0" } else { expected };
        assert_eq!(std::str::from_utf8(&sum).unwrap(), expected, "{left} {right}");
    });
}

#[test]
fn checksums_are_those_of_the_bitwise_model() {
    fuzz(300, |prng| {
        let bytes = prng.lumpy_bytes(100);
        let start = prng.next();
        assert_eq!(crc64(start, &bytes), models::crc64(start, &bytes));
    });
}

#[test]
fn strings_survive_compression_and_dumps() {
    fuzz(300, |prng| {
        let value = prng.lumpy_bytes(1200);
        if let Some(packed) = lzf::compress(&value, value.len().saturating_sub(4)) {
            assert!(packed.len() <= value.len() - 4);
            assert_eq!(models::lzf_decompress(&packed), Some(value.clone()));
            assert_eq!(lzf::decompress(&packed, value.len()), Some(value.clone()));
        }
        let restored = restore(&dump_string(&value), &Thresholds::default());
        assert!(matches!(restored, Ok(Restored::String(found)) if found == value));
    });
}

#[test]
fn damaged_streams_and_payloads_never_panic() {
    fuzz(600, |prng| {
        let value = prng.lumpy_bytes(200);
        let mut payload = dump_string(&value);
        payload.truncate(payload.len() - 8);
        for _ in 0..=prng.below(3) {
            let index = prng.below(payload.len() - 2);
            payload[index] = prng.next() as u8;
        }
        let stream = &payload[1..payload.len() - 2];
        let len = prng.below(400);
        assert_eq!(
            lzf::decompress(stream, len),
            models::lzf_decompress(stream).filter(|out| out.len() == len)
        );
        let crc = crc64(0, &payload);
        payload.extend_from_slice(&crc.to_le_bytes());
        // Whatever comes of it, it must not be blamed on the footer.
        let restored = restore(&payload, &Thresholds::default());
        assert!(!matches!(restored, Err(value::rdb::RestoreError::BadFooter)));
    });
}

#[test]
fn bit_searches_and_counts_agree_with_single_bits() {
    fuzz(4_000, |prng| {
        let bytes = prng.lumpy_bytes(150);
        let unit = prng.pick(&[IndexUnit::Byte, IndexUnit::Bit]);
        let size = bytes.len() as i64 * if unit == IndexUnit::Bit { 8 } else { 1 };
        let range = IndexRange { start: prng.index(size), end: prng.index(size), unit };
        let bit = prng.pick(&[Bit::Zero, Bit::One]);
        assert_eq!(bitcount(&bytes, Some(range)), models::bitcount(&bytes, range), "{bytes:?} {range:?}");
        for search in [Search::Within(range), Search::From(range.start)] {
            let expected = models::bitpos(&bytes, bit, search);
            assert_eq!(bitpos(&bytes, bit, search), expected, "{bytes:?} {bit:?} {search:?}");
        }
    });
}

#[test]
fn bit_operations_agree_with_single_bytes() {
    fuzz(600, |prng| {
        let op = prng.pick(&[BitOp::And, BitOp::Or, BitOp::Xor, BitOp::Not]);
        let count = if op == BitOp::Not { 1 } else { 1 + prng.below(5) };
        let inputs: Vec<Vec<u8>> = (0..count).map(|_| prng.lumpy_bytes(100)).collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        assert_eq!(bitop(op, &inputs), models::bitop(op, &inputs), "{op:?} {inputs:?}");
    });
}

#[test]
fn bit_fields_agree_with_single_bits() {
    fuzz(4_000, |prng| {
        let mut bytes = prng.lumpy_bytes(20);
        let signed = prng.below(2) == 1;
        let width = 1 + prng.below(if signed { 64 } else { 63 }) as u64;
        let name = format!("{}{width}", if signed { 'i' } else { 'u' });
        let field = FieldType::parse(name.as_bytes()).unwrap();
        let offset = prng.below(200) as u64;
        assert_eq!(
            field.get(&bytes, offset),
            models::field_get(&bytes, offset, width, signed),
            "{name} {offset}"
        );
        bytes.resize(40, 0);
        let before = bytes.clone();
        let value = prng.next() as i64 >> prng.below(64);
        let stored = field.fit(value, Overflow::Wrap).unwrap();
        field.set(&mut bytes, offset, stored);
        assert_eq!(field.get(&bytes, offset), stored);
        for at in (0..320).filter(|at| !(offset..offset + width).contains(at)) {
            assert_eq!(models::bit(&bytes, at), models::bit(&before, at), "{name} {offset} {at}");
        }
        let fitting = field.fit(value, Overflow::Fail);
        assert!(fitting.is_none_or(|fitting| fitting == value && stored == value));
    });
}

#[test]
fn subsequences_are_those_of_the_full_table() {
    fuzz(400, |prng| {
        let alphabet = &b"abcdefgh"[..1 + prng.below(8)];
        let len_max = prng.pick(&[5, 30, 150]);
        let (left, right) = (prng.bytes_of(alphabet, 0..=len_max), prng.bytes_of(alphabet, 0..=len_max));
        let found = lcs(&left, &right, u64::MAX).unwrap();
        assert_eq!(found, models::lcs(&left, &right), "{left:?} {right:?}");
        assert_eq!(lcs_len(&left, &right, u64::MAX), Ok(found.text.len() as u32));
    });
}

#[test]
fn short_float_form_is_never_longer_than_needed() {
    fuzz(3_300, |prng| {
        let value = prng.below(100_000) as f64 / 1000.0;
        let text = number::format_f64(value);
        assert!(text.as_bytes().len() <= 6, "{value}");
    });
}
