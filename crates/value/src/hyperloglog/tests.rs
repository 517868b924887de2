//! HyperLogLogs against a model of plain registers, and against hostile bytes.

use super::*;
use sys::Prng;

fn below(prng: &mut Prng, bound: usize) -> usize {
    prng.below(bound as u64) as usize
}

fn registers_of(bytes: &[u8]) -> Registers {
    let mut registers = [0; REGISTERS];
    merge_into(&mut registers, bytes).unwrap();
    registers
}

#[test]
fn hash_is_murmur_64a_with_the_seed_of_redis() {
    // Register and value of elements as PFDEBUG DECODE of redis-server shows them.
    for (element, register, value) in
        [("a", 12_711, 2), ("hello", 9_216, 1), ("12345678", 10_579, 3), ("the quick brown fox", 15_795, 1)]
    {
        assert_eq!(Observation::of(element.as_bytes()), Observation { register, value }, "{element}");
    }
}

#[test]
fn both_encodings_keep_the_largest_value_of_each_register() {
    for (seed, sparse_max) in (0..40).map(|seed| (seed, [0, 50, 300, 3000, 20_000][seed % 5])) {
        let mut prng = Prng::from_seed(seed as u64);
        let (mut bytes, mut model) = (empty(), [0; REGISTERS]);
        let span = [20, 300, REGISTERS][seed % 3];
        for _ in 0..2000 {
            let value =
                if below(&mut prng, 500) == 0 { below(&mut prng, 52) } else { below(&mut prng, 6) } as u8;
            let seen = Observation::new(below(&mut prng, span), value.max(1));
            let grows = model[seen.register] < seen.value;
            model[seen.register] = model[seen.register].max(seen.value);
            assert_eq!(add(&mut bytes, seen, sparse_max), Ok(grows));
            assert!(bytes.len() <= sparse_max.max(HEADER_BYTES + 2) || bytes.len() == DENSE_BYTES);
        }
        assert!(registers_of(&bytes) == model);
        assert_eq!(count(&bytes), Ok(count_registers(&model)));
        make_dense(&mut bytes).unwrap();
        assert!(registers_of(&bytes) == model && bytes.len() == DENSE_BYTES);
        assert_eq!(count(&bytes), Ok(count_registers(&model)));
    }
}

#[test]
fn estimates_are_close() {
    let mut bytes = empty();
    assert_eq!((count(&bytes), cached(&bytes)), (Ok(0), Some(0)));
    let mut added = 0u64;
    for size in [1, 10, 100, 1000, 10_000, 100_000, 300_000] {
        while added < size {
            add(&mut bytes, Observation::of(&added.to_le_bytes()), 3000).unwrap();
            added += 1;
        }
        let estimate = count(&bytes).unwrap() as f64;
        assert!((estimate / size as f64 - 1.0).abs() < 0.03, "{estimate} of {size}");
    }
}

#[test]
fn cache_is_dropped_and_set() {
    let mut bytes = empty();
    drop_cached(&mut bytes);
    assert_eq!(cached(&bytes), None);
    set_cached(&mut bytes, 300);
    assert_eq!(cached(&bytes), Some(300));
    assert_eq!(bytes[8..16], [44, 1, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn only_right_headers_make_a_hyperloglog() {
    for bad in
        [&b""[..], b"HYLL", b"HYLX\x01aaaaaaaaaaaaa", b"HYLL\x02aaaaaaaaaaaaa", b"HYLL\x00aaaaaaaaaaaaa"]
    {
        assert_eq!(Encoding::of(bad), None);
    }
    assert_eq!(Encoding::of(&empty()), Some(Encoding::Sparse));
}

#[test]
fn hostile_bytes_never_panic() {
    let mut prng = Prng::from_seed(7);
    for _ in 0..3000 {
        let mut bytes = empty();
        (0..below(&mut prng, 60)).for_each(|_| {
            add(
                &mut bytes,
                Observation::new(below(&mut prng, REGISTERS), 1 + below(&mut prng, 32) as u8),
                3000,
            )
            .unwrap();
        });
        for _ in 0..1 + below(&mut prng, 4) {
            let at = HEADER_BYTES + below(&mut prng, bytes.len() - HEADER_BYTES);
            match below(&mut prng, 3) {
                0 => bytes[at] = below(&mut prng, 256) as u8,
                1 => bytes.truncate(at.max(HEADER_BYTES + 1)),
                _ => bytes.insert(at, below(&mut prng, 256) as u8),
            }
        }
        let _ = count(&bytes);
        let _ = merge_into(&mut [0; REGISTERS], &bytes);
        let _ = sparse::decode(&bytes);
        let _ = make_dense(&mut bytes.clone());
        for _ in 0..50 {
            let seen = Observation::new(below(&mut prng, REGISTERS), 1 + below(&mut prng, 50) as u8);
            if add(&mut bytes, seen, 3000).is_err() {
                break;
            }
        }
    }
}
