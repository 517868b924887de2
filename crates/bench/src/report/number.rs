//! Figures as text: thousands separated, units named, as many digits as a measurement carries.
//!
//! One place for all tables, charts and files, so that a figure reads the same everywhere.

use std::fmt::Write;

/// A whole number with its thousands separated: `1,048,576`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Operations per second, in four digits at most: the rest is noise.
pub fn rate(per_second: f64) -> String {
    if !per_second.is_finite() || per_second <= 0.0 {
        return "0".to_owned();
    }
    let step = 10_f64.powf((per_second.log10().floor() - 3.0).max(0.0));
    grouped(((per_second / step).round() * step).round() as u64)
}

/// A latency in microseconds, without its unit: one decimal below ten.
pub fn micros(micros: f64) -> String {
    if micros < 10.0 { format!("{micros:.1}") } else { grouped(micros.round() as u64) }
}

/// A latency with the unit that suits its size: `800 µs`, `1.5 ms`, `2 s`.
pub fn latency(micros: f64) -> String {
    match micros {
        small if small < 1_000.0 => format!("{} µs", short(small)),
        middle if middle < 1_000_000.0 => format!("{} ms", short(middle / 1_000.0)),
        long => format!("{} s", short(long / 1_000_000.0)),
    }
}

/// A rate for an axis: `250k`, `1.5M`.
pub fn compact(number: f64) -> String {
    match number {
        small if small < 1_000.0 => short(small),
        middle if middle < 1_000_000.0 => format!("{}k", short(middle / 1_000.0)),
        large => format!("{}M", short(large / 1_000_000.0)),
    }
}

/// Bytes in the unit that suits their size, in powers of 1024: `3.8 GB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KB", "MB", "GB", "TB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1_024.0 && unit + 1 < UNITS.len() {
        value /= 1_024.0;
        unit += 1;
    }
    format!("{} {}", short(value), UNITS[unit])
}

/// A duration: `42 s`, `7 min 05 s`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    let mut text = String::new();
    if whole >= 60 {
        let _ = write!(text, "{} min {:02} s", whole / 60, whole % 60);
    } else {
        let _ = write!(text, "{whole} s");
    }
    text
}

/// A factor: `2.3×`.
pub fn factor(factor: f64) -> String {
    format!("{factor:.2}×")
}

/// Up to one decimal, none that is zero.
pub fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        assert_eq!([0, 999, 1_000, 1_048_576].map(grouped), ["0", "999", "1,000", "1,048,576"]);
    }

    #[test]
    fn rates_carry_four_digits() {
        assert_eq!([0.0, 87.4, 12_345.6, 1_234_567.0].map(rate), ["0", "87", "12,350", "1,235,000"]);
    }

    #[test]
    fn units_suit_the_size() {
        assert_eq!([0.5, 800.0, 1_500.0, 2_000_000.0].map(latency), ["0.5 µs", "800 µs", "1.5 ms", "2 s"]);
        assert_eq!([50.0, 250_000.0, 1_500_000.0].map(compact), ["50", "250k", "1.5M"]);
        assert_eq!([512, 4 << 30].map(bytes), ["512 bytes", "4 GB"]);
        assert_eq!([42.2, 425.0].map(duration), ["42 s", "7 min 05 s"]);
    }
}
