//! The colours of the page: one set for light and one for dark, as CSS variables, with their contrast checked.
//!
//! Every server keeps one colour in all charts. Invariant, held by a test: text and a server's colour reach WCAG's
//! 4.5 to 1 on every ground that they stand on, since a server's colour also writes its name.

use std::fmt::Write;

/// Servers with a colour of their own; further ones share the last.
pub const SERIES: usize = 6;

/// One set of colours, as `0xRRGGBB`.
pub struct Palette {
    /// The page.
    pub ground: u32,
    /// Tables' heads, boxes.
    pub raised: u32,
    /// Text.
    pub text: u32,
    /// Notes, units, axes' texts.
    pub muted: u32,
    /// Lines of tables and grids.
    pub line: u32,
    /// The remark of a run that failed in part.
    pub warning: u32,
    /// The servers'.
    pub series: [u32; SERIES],
}

/// Dark on white; also what is printed.
pub const LIGHT: Palette = Palette {
    ground: 0xffffff,
    raised: 0xf4f6f7,
    text: 0x17212b,
    muted: 0x54616d,
    line: 0xd9dfe4,
    warning: 0x9a3412,
    series: [0x0b6b75, 0xb4460f, 0x5a46b2, 0x806000, 0xa3256b, 0x44631a],
};

/// Light on near black.
pub const DARK: Palette = Palette {
    ground: 0x12171c,
    raised: 0x1b2229,
    text: 0xe8edf1,
    muted: 0xa3b0bb,
    line: 0x313b45,
    warning: 0xfdba74,
    series: [0x4fc9d0, 0xf49a62, 0xb0a3ff, 0xdcb94f, 0xf286bc, 0xa5cc6b],
};

impl Palette {
    /// The colours as declarations of CSS variables.
    pub fn variables(&self) -> String {
        let mut css = String::new();
        let named = [
            ("ground", self.ground),
            ("raised", self.raised),
            ("text", self.text),
            ("muted", self.muted),
            ("line", self.line),
            ("warning", self.warning),
        ];
        for (name, colour) in named {
            let _ = write!(css, "--{name}:#{colour:06x};");
        }
        for (place, colour) in self.series.iter().enumerate() {
            let _ = write!(css, "--s{place}:#{colour:06x};");
        }
        css
    }
}

/// The class that gives an element the colour of the server at a place.
pub fn class(place: usize) -> String {
    format!("s{}", place.min(SERIES - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WCAG's relative luminance.
    fn luminance(colour: u32) -> f64 {
        let channel = |shift: u32| {
            let value = f64::from((colour >> shift) & 0xff) / 255.0;
            if value <= 0.03928 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(16) + 0.7152 * channel(8) + 0.0722 * channel(0)
    }

    /// WCAG's contrast of two colours.
    fn contrast(a: u32, b: u32) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn contrast_is_as_wcag_defines_it() {
        assert!((contrast(0x000000, 0xffffff) - 21.0).abs() < 0.01);
        assert!((contrast(0x777777, 0xffffff) - 4.48).abs() < 0.01);
    }

    #[test]
    fn all_that_is_read_stands_out_from_its_ground() {
        for (name, palette) in [("light", LIGHT), ("dark", DARK)] {
            let read = [palette.text, palette.muted, palette.warning].into_iter().chain(palette.series);
            for colour in read {
                for ground in [palette.ground, palette.raised] {
                    let reached = contrast(colour, ground);
                    assert!(reached >= 4.5, "{name}: {colour:06x} on {ground:06x} reaches {reached:.2}");
                }
            }
        }
    }

    #[test]
    fn servers_colours_differ() {
        for palette in [LIGHT, DARK] {
            let mut seen = palette.series.to_vec();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), SERIES);
        }
        assert_eq!(class(0), "s0");
        assert_eq!(class(99), "s5");
    }
}
