//! The distributions against their definitions.

use super::*;

const DRAWS: u64 = 2_000_000;

/// How often each of the first `ranks` numbers was drawn.
fn frequencies(ranks: usize, mut draw: impl FnMut() -> u64) -> Vec<f64> {
    let mut counts = vec![0u64; ranks];
    for _ in 0..DRAWS {
        if let Some(count) = counts.get_mut(draw() as usize) {
            *count += 1;
        }
    }
    counts.into_iter().map(|count| count as f64 / DRAWS as f64).collect()
}

/// What Gray's method gives rank `rank` of `items`: the width of the numbers that it turns into this rank.
fn gray_probability(rank: u64, items: u64) -> f64 {
    let zeta_items: f64 = (1..=items).map(|i| (i as f64).powf(-0.99)).sum();
    let zeta_two = 1.0 + 0.5f64.powf(0.99);
    let eta = (1.0 - (2.0 / items as f64).powf(0.01)) / (1.0 - zeta_two / zeta_items);
    // The inverse of `items * (eta * u - eta + 1) ^ (1 / (1 - theta))`.
    let unit = |rank: u64| ((rank as f64 / items as f64).powf(0.01) - 1.0 + eta) / eta;
    match rank {
        0 => 1.0 / zeta_items,
        1 => (zeta_two - 1.0) / zeta_items,
        2 => unit(3) - zeta_two / zeta_items,
        _ => unit(rank + 1) - unit(rank),
    }
}

#[test]
fn sums_agree_with_adding_term_by_term() {
    for items in [1, 2, 999, 1000, 1001, 5000, 3_000_000] {
        let summed: f64 = (1..=items).rev().map(|i| (i as f64).powf(-THETA)).sum();
        assert!((zeta(items, THETA) / summed - 1.0).abs() < 1e-12, "{items}");
    }
    // YCSB's constant was summed in single steps from the large end; it is good to 10 digits.
    assert!((zeta(SCRAMBLED_ITEMS, THETA) / SCRAMBLED_ZETA - 1.0).abs() < 1e-9);
}

#[test]
fn the_first_100_ranks_are_as_frequent_as_defined() {
    const ITEMS: u64 = 100_000;
    let zipf = Zipf::new(ITEMS);
    let mut prng = Prng::from_seed(1);
    let found = frequencies(100, || zipf.next(&mut prng));
    for (rank, frequency) in found.iter().enumerate() {
        let expected = gray_probability(rank as u64, ITEMS);
        let deviation = (expected * (1.0 - expected) / DRAWS as f64).sqrt();
        assert!((frequency - expected).abs() < 5.0 * deviation, "rank {rank}: {frequency} not {expected}");
        // Gray's method follows the law itself closely from the start.
        let law = (rank as f64 + 1.0).powf(-THETA) / zeta(ITEMS, THETA);
        assert!((expected / law - 1.0).abs() < 0.3, "rank {rank}: {expected} by {law}");
    }
    let both = found[0] + found[1];
    let law = (1.0 + 0.5f64.powf(THETA)) / zeta(ITEMS, THETA);
    assert!((both / law - 1.0).abs() < 0.02, "{both} by {law}");
}

#[test]
fn ranks_are_never_beyond_the_last() {
    for items in [1, 2, 3, 10, u64::MAX / 2] {
        let zipf = Zipf::new(items);
        for unit in [0.0, 0.3, 0.9999, 1.0 - f64::EPSILON] {
            assert!(zipf.rank(unit) < items.max(2), "{unit} of {items}");
        }
    }
}

#[test]
fn growing_is_like_beginning_larger() {
    let mut grown = Zipf::new(1000);
    (1001..=1500).for_each(|items| grown.grow(items));
    grown.grow(9000);
    grown.grow(10);
    let begun = Zipf::new(9000);
    for step in 0..1000 {
        let unit = f64::from(step) / 1000.0;
        assert!(grown.rank(unit).abs_diff(begun.rank(unit)) <= 1, "{unit}");
    }
}

/// Computed by a separate program from the definition of FNV-1a, over eight bytes, low byte first.
const HASHES: [(u64, u64); 6] = [
    (0, 6284781860667377211),
    (1, 8517097267634966620),
    (2, 1820151046732198393),
    (12345, 1792800413050876852),
    (9999999999, 3605131173811637474),
    (9223372036854775807, 8289549613075766851),
];

#[test]
fn scattering_is_fnv_over_eight_bytes() {
    for (number, hash) in HASHES {
        assert_eq!(fnv_hash(number), hash, "{number}");
    }
}

#[test]
fn popular_records_are_scattered_and_as_popular_as_their_ranks() {
    const RECORDS: u64 = 1000;
    // Each record is as popular as all ranks together that are hashed to it. The first ranks are added up one by
    // one; the others hit all records alike.
    const RANKS: u64 = 1_000_000;
    let zipf = Zipf::with_zeta(SCRAMBLED_ITEMS, SCRAMBLED_ZETA);
    let unit = |rank: u64| ((rank as f64 / SCRAMBLED_ITEMS as f64).powf(0.01) - 1.0 + zipf.eta) / zipf.eta;
    let mut expected = vec![(1.0 - unit(RANKS)) / RECORDS as f64; RECORDS as usize];
    expected[(fnv_hash(0) % RECORDS) as usize] += 1.0 / SCRAMBLED_ZETA;
    expected[(fnv_hash(1) % RECORDS) as usize] += (zipf.zeta_two - 1.0) / SCRAMBLED_ZETA;
    expected[(fnv_hash(2) % RECORDS) as usize] += unit(3) - zipf.zeta_two / SCRAMBLED_ZETA;
    (3..RANKS).for_each(|rank| expected[(fnv_hash(rank) % RECORDS) as usize] += unit(rank + 1) - unit(rank));

    let scrambled = ScrambledZipf::new(RECORDS);
    let mut prng = Prng::from_seed(2);
    let found = frequencies(100, || scrambled.next(&mut prng));
    for (record, frequency) in found.iter().enumerate() {
        let expected = expected[record];
        let deviation = (expected / DRAWS as f64).sqrt();
        assert!(
            (frequency - expected).abs() < 5.0 * deviation + 0.01 * expected,
            "{record}: {frequency} not {expected}"
        );
    }
}

#[test]
fn hot_records_get_their_share_of_the_operations() {
    let hotspot = Hotspot::new(1000, 0.2, 0.8);
    let mut prng = Prng::from_seed(3);
    let found = frequencies(1000, || hotspot.next(&mut prng));
    let hot: f64 = found[..200].iter().sum();
    assert!((hot - 0.8).abs() < 0.002, "{hot}");
    assert!(found[..200].iter().all(|frequency| (frequency / 0.004 - 1.0).abs() < 0.08));
    assert!(found[200..].iter().all(|frequency| (frequency / 0.00025 - 1.0).abs() < 0.3));
}
