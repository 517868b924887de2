//! A large set takes less memory than in Redis 7.0, whose `used_memory` grows by 72.7 bytes for
//! each of a million members of 16 bytes.

use sys::memory::{CountingAllocator, used_bytes};
use value::collection::{Thresholds, Type};
use value::set::Set;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const MEMBERS: u64 = 200_000;
const BYTES_PER_MEMBER_MAX: u64 = 48;

#[test]
fn many_members_take_less_than_in_redis() {
    let before = used_bytes();
    let thresholds = Thresholds::default();
    let mut set = Set::new_for(b"m", usize::MAX, &thresholds);
    for number in 0..MEMBERS {
        set.insert(format!("member:{number:09}").as_bytes(), &thresholds);
    }
    let taken = used_bytes() - before;
    println!("{} bytes per member", taken as f64 / MEMBERS as f64);
    assert!(taken < MEMBERS * BYTES_PER_MEMBER_MAX, "{taken} bytes");
    let estimated = set.as_ref().allocated_bytes(5) as u64;
    assert!(estimated.abs_diff(taken) < taken / 20, "{estimated} estimated, {taken} taken");
    drop(set);
    assert!(used_bytes() - before < 1 << 20, "memory was not given back");
}
