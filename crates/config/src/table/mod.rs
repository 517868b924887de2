//! The table of directives: every name of a Redis 7.2 configuration file, and Tarn's own.
//!
//! One file an area, each sorted by name (a test holds it). A row's place in `TABLE` is its identity at run time:
//! `Config` keeps values in arrays by that index, and `index_of` finds it while compiling.

mod absent;
mod cluster;
mod durability;
mod feeding;
mod memory;
mod network;
mod proxy;
mod replication;
mod server;
mod shard;
mod tls;

use crate::row::Row;

pub(super) const AREAS: [&[Row]; 11] = [
    network::ROWS,
    server::ROWS,
    memory::ROWS,
    durability::ROWS,
    feeding::ROWS,
    tls::ROWS,
    replication::ROWS,
    shard::ROWS,
    cluster::ROWS,
    proxy::ROWS,
    absent::ROWS,
];

/// How many directives there are.
pub const COUNT: usize = AREAS[0].len()
    + AREAS[1].len()
    + AREAS[2].len()
    + AREAS[3].len()
    + AREAS[4].len()
    + AREAS[5].len()
    + AREAS[6].len()
    + AREAS[7].len()
    + AREAS[8].len()
    + AREAS[9].len()
    + AREAS[10].len();

/// All directives, area by area.
pub const TABLE: &[Row; COUNT] = &joined();

const fn joined() -> [Row; COUNT] {
    let mut rows = [AREAS[0][0]; COUNT];
    let (mut area, mut filled) = (0, 0);
    while area < AREAS.len() {
        let mut index = 0;
        while index < AREAS[area].len() {
            rows[filled] = AREAS[area][index];
            filled += 1;
            index += 1;
        }
        area += 1;
    }
    rows
}

/// The place of a directive in `TABLE`; a name that is not there does not compile.
pub const fn index_of(name: &str) -> usize {
    let mut index = 0;
    while index < COUNT {
        if is_same(TABLE[index].name.as_bytes(), name.as_bytes()) {
            return index;
        }
        index += 1;
    }
    panic!("no directive of this name")
}

const fn is_same(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    let mut index = 0;
    while index < left.len() {
        if left[index] != right[index] {
            return false;
        }
        index += 1;
    }
    true
}

/// The place of the directive that answers to a name, in any case.
pub fn find(name: &[u8]) -> Option<usize> {
    TABLE.iter().position(|row| row.is_named(name))
}
