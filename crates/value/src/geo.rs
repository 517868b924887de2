//! Positions on Earth as 52-bit geohashes, which are the scores of a sorted set.
//!
//! A hash interleaves 26 bits of latitude (even places) and of longitude (odd
//! places), so that a cell of the grid is a range of scores. A search looks through
//! the cell of its centre and the eight around it ([`Area::cells`]) and asks of each
//! position there whether it lies inside ([`Area::distance_to`]).
//!
//! Thread rule: pure functions. The handlers of the geo family call them.
//!
//! 1. Every result is, to the last bit, what Redis computes: operations on floats stand in Redis' order.
//! 2. Cells come in the order in which Redis looks through them, for that is the order of unsorted replies.

#![expect(clippy::cast_possible_truncation, reason = "cells are the low bits of wider numbers")]

/// The mean radius of Earth that Redis calculates with, in metres.
const EARTH_RADIUS_METERS: f64 = 6_372_797.560_856;
/// Half of Earth's girth in the Mercator projection, in metres.
const MERCATOR_MAX_METERS: f64 = 20_037_726.37;
/// Largest longitude that is accepted, in degrees; the least is its negative.
pub const LONGITUDE_MAX: f64 = 180.0;
/// Largest latitude that is accepted, in degrees: where the Mercator projection is a square.
pub const LATITUDE_MAX: f64 = 85.051_128_78;
/// Bits of each coordinate in a score.
const STEPS_MAX: u32 = 26;

/// Degrees east and north.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    /// East of Greenwich.
    pub longitude: f64,
    /// North of the equator.
    pub latitude: f64,
}

impl Position {
    /// Whether both coordinates are within the limits.
    pub fn is_valid(self) -> bool {
        (-LONGITUDE_MAX..=LONGITUDE_MAX).contains(&self.longitude)
            && (-LATITUDE_MAX..=LATITUDE_MAX).contains(&self.latitude)
    }

    /// The score of this position.
    pub fn to_score(self) -> f64 {
        Cell::around(self, STEPS_MAX, LATITUDE_MAX).bits() as f64
    }

    /// The position that a score stands for: the middle of its cell.
    pub fn from_score(score: f64) -> Position {
        let bounds = Cell::from_bits(hash_of(score), STEPS_MAX).bounds();
        let middle = |range: (f64, f64), max: f64| ((range.0 + range.1) / 2.0).clamp(-max, max);
        Position {
            longitude: middle(bounds.longitude, LONGITUDE_MAX),
            latitude: middle(bounds.latitude, LATITUDE_MAX),
        }
    }

    /// The distance along a great circle, in metres.
    pub fn distance_to(self, other: Position) -> f64 {
        let v = ((other.longitude.radians() - self.longitude.radians()) / 2.0).sin();
        if v == 0.0 {
            return meridian_distance(self.latitude, other.latitude);
        }
        let (from, to) = (self.latitude.radians(), other.latitude.radians());
        let u = ((to - from) / 2.0).sin();
        let a = u * u + from.cos() * to.cos() * v * v;
        2.0 * EARTH_RADIUS_METERS * a.sqrt().asin()
    }

    /// The geohash in the notation of geohash.org, whose latitudes reach to the poles:
    /// eleven characters, of which the last means nothing.
    pub fn to_text(self) -> [u8; 11] {
        const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = Cell::around(self, STEPS_MAX, 90.0).bits();
        let mut text = [ALPHABET[0]; 11];
        for (at, letter) in text[..10].iter_mut().enumerate() {
            *letter = ALPHABET[(bits >> (52 - (at + 1) * 5)) as usize & 31];
        }
        text
    }
}

/// The hash in a score. For scores that are no hashes, negative and huge ones, C leaves
/// the result open; this is what Redis comes to on the processors that it mostly runs on.
fn hash_of(score: f64) -> u64 {
    const HALF: f64 = (1u64 << 63) as f64;
    let truncated = |number: f64| {
        let fits = (-HALF..HALF).contains(&number);
        (if fits { number as i64 } else { i64::MIN }) as u64
    };
    if score < HALF { truncated(score) } else { truncated(score - HALF) ^ 1 << 63 }
}

/// Between two latitudes of one meridian, in metres.
fn meridian_distance(from: f64, to: f64) -> f64 {
    EARTH_RADIUS_METERS * (to.radians() - from.radians()).abs()
}

/// Degrees and radians, rounded as Redis rounds them.
trait Angle {
    fn radians(self) -> f64;
    fn degrees(self) -> f64;
}

const RADIANS_PER_DEGREE: f64 = std::f64::consts::PI / 180.0;

impl Angle for f64 {
    fn radians(self) -> f64 {
        self * RADIANS_PER_DEGREE
    }

    fn degrees(self) -> f64 {
        self / RADIANS_PER_DEGREE
    }
}

/// A cell of the grid with `2^steps` columns and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    column: u32,
    row: u32,
    steps: u32,
}

/// The edges of a cell, in degrees.
struct Bounds {
    longitude: (f64, f64),
    latitude: (f64, f64),
}

impl Cell {
    /// The cell that holds a position. At the very maximum of a coordinate it is one
    /// beyond the last, as in Redis.
    fn around(position: Position, steps: u32, latitude_max: f64) -> Cell {
        let scale = (1u64 << steps) as f64;
        let index = |value: f64, max: f64| ((value + max) / (max + max) * scale) as u32;
        Cell {
            column: index(position.longitude, LONGITUDE_MAX),
            row: index(position.latitude, latitude_max),
            steps,
        }
    }

    fn from_bits(bits: u64, steps: u32) -> Cell {
        Cell { column: every_second_bit(bits >> 1), row: every_second_bit(bits), steps }
    }

    fn bits(self) -> u64 {
        spread(self.row) | spread(self.column) << 1
    }

    fn bounds(self) -> Bounds {
        let scale = (1u64 << self.steps) as f64;
        let edge = |index: f64, max: f64| -max + index / scale * (max + max);
        let edges =
            |index: u32, max| (edge(f64::from(index), max), edge(f64::from(index.wrapping_add(1)), max));
        Bounds { longitude: edges(self.column, LONGITUDE_MAX), latitude: edges(self.row, LATITUDE_MAX) }
    }

    /// The cell so many columns east and rows north; the grid has no edges.
    fn neighbour(self, east: i32, north: i32) -> Cell {
        let mask = (1u32 << self.steps) - 1;
        // A coordinate that does not move keeps what lies beyond the grid.
        let moved = |index: u32, by: i32| if by == 0 { index } else { index.wrapping_add_signed(by) & mask };
        Cell { column: moved(self.column, east), row: moved(self.row, north), ..self }
    }

    /// The scores in the cell: from the first up to the second, which is not one of them.
    fn scores(self) -> (f64, f64) {
        let shift = 52 - 2 * self.steps;
        ((self.bits() << shift) as f64, ((self.bits() + 1) << shift) as f64)
    }
}

/// Puts a zero before every bit.
fn spread(bits: u32) -> u64 {
    const MASKS: [u64; 5] = [
        0x5555_5555_5555_5555,
        0x3333_3333_3333_3333,
        0x0f0f_0f0f_0f0f_0f0f,
        0x00ff_00ff_00ff_00ff,
        0x0000_ffff_0000_ffff,
    ];
    let mut spread = u64::from(bits);
    for (step, mask) in MASKS.iter().enumerate().rev() {
        spread = (spread | spread << (1 << step)) & mask;
    }
    spread
}

/// Undoes [`spread`]; odd bits are dropped.
fn every_second_bit(bits: u64) -> u32 {
    const MASKS: [u64; 6] = [
        0x5555_5555_5555_5555,
        0x3333_3333_3333_3333,
        0x0f0f_0f0f_0f0f_0f0f,
        0x00ff_00ff_00ff_00ff,
        0x0000_ffff_0000_ffff,
        0x0000_0000_ffff_ffff,
    ];
    let mut packed = bits & MASKS[0];
    for (step, mask) in MASKS.iter().enumerate().skip(1) {
        packed = (packed | packed >> (1 << (step - 1))) & mask;
    }
    packed as u32
}

/// What a search covers, in metres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// All within a distance.
    Circle {
        /// The distance.
        radius: f64,
    },
    /// All within a distance to the east or west and one to the north or south.
    Rectangle {
        /// From west to east.
        width: f64,
        /// From south to north.
        height: f64,
    },
}

/// A shape on the map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    /// Its middle.
    pub centre: Position,
    /// What is around that.
    pub shape: Shape,
}

impl Area {
    /// The distance from the centre, in metres, if the position is inside.
    pub fn distance_to(&self, position: Position) -> Option<f64> {
        match self.shape {
            Shape::Circle { radius } => {
                Some(self.centre.distance_to(position)).filter(|distance| *distance <= radius)
            }
            Shape::Rectangle { width, height } => {
                let north = meridian_distance(position.latitude, self.centre.latitude);
                // Parallels get shorter towards the poles: the width counts at the position's own.
                let at_side = Position { latitude: position.latitude, ..self.centre };
                let is_inside = north <= height / 2.0 && position.distance_to(at_side) <= width / 2.0;
                is_inside.then(|| self.centre.distance_to(position))
            }
        }
    }

    /// The ranges of scores in which all positions inside lie, each from the first
    /// score up to the second, which is not one of them.
    pub fn cells(&self) -> impl Iterator<Item = (f64, f64)> {
        let edges = self.edges();
        let mut middle = Cell::around(self.centre, self.steps(), LATITUDE_MAX);
        if middle.steps > 1 && middle.reaches_too_little(&edges) {
            middle = Cell::around(self.centre, middle.steps - 1, LATITUDE_MAX);
        }
        let bounds = middle.bounds();
        let is_needed = move |(east, north): (i32, i32)| {
            middle.steps < 2
                || !(north < 0 && bounds.latitude.0 < edges.latitude.0
                    || north > 0 && bounds.latitude.1 > edges.latitude.1
                    || east < 0 && bounds.longitude.0 < edges.longitude.0
                    || east > 0 && bounds.longitude.1 > edges.longitude.1)
        };
        const DIRECTIONS: [(i32, i32); 9] =
            [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let mut previous = None;
        DIRECTIONS.into_iter().filter(move |direction| is_needed(*direction)).filter_map(
            move |(east, north)| {
                let cell = middle.neighbour(east, north);
                // On a coarse grid, going east and going west lead to the same cell. The
                // middle is compared with nothing, as in Redis.
                let is_new = previous != Some(cell);
                if (east, north) != (0, 0) {
                    previous = Some(cell);
                }
                is_new.then(|| cell.scores())
            },
        )
    }

    /// The rectangle of degrees around the area.
    fn edges(&self) -> Bounds {
        let Position { longitude, latitude } = self.centre;
        let (width, height) = match self.shape {
            Shape::Circle { radius } => (radius, radius),
            Shape::Rectangle { width, height } => (width / 2.0, height / 2.0),
        };
        let north = (height / EARTH_RADIUS_METERS).degrees();
        let widest = if latitude < 0.0 { latitude - north } else { latitude + north };
        let east = (width / EARTH_RADIUS_METERS / widest.radians().cos()).degrees();
        Bounds {
            longitude: (longitude - east, longitude + east),
            latitude: (latitude - north, latitude + north),
        }
    }

    /// How fine a grid has cells just large enough for nine of them to cover the area.
    fn steps(&self) -> u32 {
        let mut radius = match self.shape {
            Shape::Circle { radius } => radius,
            Shape::Rectangle { width, height } => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
        };
        if radius == 0.0 {
            return STEPS_MAX;
        }
        let mut steps = 1i32;
        while radius < MERCATOR_MAX_METERS {
            radius *= 2.0;
            steps += 1;
        }
        steps -= 2;
        let latitude = self.centre.latitude.abs();
        // Towards the poles cells are narrower.
        steps -= i32::from(latitude > 66.0) + i32::from(latitude > 80.0);
        steps.clamp(1, STEPS_MAX as i32) as u32
    }
}

impl Cell {
    /// Whether the cells around this one end before the edges.
    fn reaches_too_little(self, edges: &Bounds) -> bool {
        self.neighbour(0, 1).bounds().latitude.1 < edges.latitude.1
            || self.neighbour(0, -1).bounds().latitude.0 > edges.latitude.0
            || self.neighbour(1, 0).bounds().longitude.1 < edges.longitude.1
            || self.neighbour(-1, 0).bounds().longitude.0 > edges.longitude.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PALERMO: Position = Position { longitude: 13.361389, latitude: 38.115556 };
    const CATANIA: Position = Position { longitude: 15.087269, latitude: 37.502669 };

    #[test]
    fn scores_are_those_of_redis() {
        assert_eq!(PALERMO.to_score(), 3479099956230698.0);
        assert_eq!(CATANIA.to_score(), 3479447370796909.0);
        let restored = Position::from_score(3479099956230698.0);
        assert_eq!((restored.longitude, restored.latitude), (13.361389338970184, 38.1155563954963));
        assert_eq!(&PALERMO.to_text(), b"sqc8b49rny0");
        assert_eq!(&CATANIA.to_text(), b"sqdtr74hyu0");
    }

    #[test]
    fn bits_are_interleaved_and_back() {
        for number in [0, 1, 2, 0x0155_5555, 0x03ff_ffff, u32::MAX] {
            assert_eq!(every_second_bit(spread(number)), number);
            assert_eq!(every_second_bit(spread(number) << 1), 0);
        }
        assert_eq!(spread(0b1011), 0b100_0101);
    }

    #[test]
    fn every_position_inside_lies_in_a_cell() {
        for radius in [0.0, 1.0, 5_000.0, 200_000.0, 3_000_000.0, 20_000_000.0] {
            for latitude in [-85.0, -70.0, 0.0, 30.0, 81.0] {
                let centre = Position { longitude: 179.5, latitude };
                let area = Area { centre, shape: Shape::Circle { radius } };
                let score = centre.to_score();
                assert!(area.cells().any(|(first, end)| first <= score && score < end));
                assert!(area.cells().count() <= 9);
            }
        }
    }

    #[test]
    fn rectangles_are_narrower_towards_the_poles() {
        let centre = Position { longitude: 0.0, latitude: 60.0 };
        let area = Area { centre, shape: Shape::Rectangle { width: 200_000.0, height: 500_000.0 } };
        let at = |longitude: f64, latitude: f64| area.distance_to(Position { longitude, latitude }).is_some();
        assert!(at(0.0, 62.2) && !at(0.0, 62.3));
        assert!(at(1.79, 60.0) && !at(1.81, 60.0));
        assert!(at(1.91, 62.0) && !at(1.79, 59.0));
    }
}
