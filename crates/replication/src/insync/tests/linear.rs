//! Whether what clients saw could have happened one operation after the other.
//!
//! Every write is unique, and the committed log says in which order writes of a register took effect. So each operation has its
//! place: the n-th write of a register at 2n, a read of it at 2n + 1. The history is linearizable, in that very order, if no operation that ended
//! before another began has a later place. (Checking against the log's own order is stricter than against any.)

use super::disk::Record;
use std::collections::BTreeMap;

/// What a client asked for, and what it learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    pub register: u64,
    /// What it wrote; `None` for a read.
    pub wrote: Option<u64>,
    /// What a read showed.
    pub saw: Option<u64>,
    pub began: u64,
    /// When the reply came; `None` if none did.
    pub ended: Option<u64>,
    /// Whether the master answered; replicas may show what is old.
    pub is_at_master: bool,
}

/// What is wrong with a history, if anything is.
pub fn complaint(operations: &[Operation], committed: &[Record]) -> Option<String> {
    let mut places = BTreeMap::new();
    let mut counts = BTreeMap::new();
    for record in committed {
        if let Record::Write { register, value } = record {
            let count = counts.entry(*register).or_insert(0u64);
            *count += 1;
            if places.insert(*value, (*register, 2 * *count)).is_some() {
                return Some(format!("{value} was written twice"));
            }
        }
    }
    let mut moments: Vec<(u64, bool, usize)> = Vec::new();
    let mut place_of = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        let place = match operation.wrote.or(operation.saw) {
            None => Some(1),
            Some(value) => places
                .get(&value)
                .filter(|(register, _)| *register == operation.register)
                .map(|(_, place)| place + u64::from(operation.wrote.is_none())),
        };
        place_of.push(place.unwrap_or(u64::MAX));
        if let (None, Some(_)) = (place, operation.ended) {
            return Some(format!("{operation:?} is not in the committed log"));
        }
        if let (Some(ended), true) = (operation.ended, operation.is_at_master) {
            moments.push((operation.began, false, index));
            moments.push((ended, true, index));
        }
    }
    // What begins in the same moment in which another ends is not behind it.
    moments.sort_unstable();
    let mut ended: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
    let mut least = vec![(0, usize::MAX); operations.len()];
    for (_, is_end, index) in moments {
        let register = operations[index].register;
        if is_end {
            let latest = ended.entry(register).or_insert((0, usize::MAX));
            if latest.0 < place_of[index] {
                *latest = (place_of[index], index);
            }
            let (before, other) = least[index];
            let is_write = operations[index].wrote.is_some();
            if place_of[index] < before || is_write && place_of[index] == before {
                return Some(format!(
                    "{:?} is seen before {:?}, which had ended when it began",
                    operations[index],
                    operations.get(other)
                ));
            }
        } else {
            least[index] = ended.get(&register).copied().unwrap_or((0, usize::MAX));
        }
    }
    None
}

#[test]
fn stale_reads_lost_writes_and_wrong_orders_are_found() {
    let log: Vec<Record> = (1..=3).map(|value| Record::Write { register: 0, value }).collect();
    let write = |value, began, ended| Operation {
        register: 0,
        wrote: Some(value),
        saw: None,
        began,
        ended: Some(ended),
        is_at_master: true,
    };
    let read = |value, began, ended| Operation { wrote: None, saw: value, ..write(0, began, ended) };
    let check = |operations: &[Operation]| complaint(operations, &log).is_none();
    assert!(check(&[write(1, 0, 5), read(Some(1), 6, 7), write(2, 6, 20), read(Some(1), 8, 9)]));
    assert!(check(&[write(2, 0, 9), write(1, 0, 9), read(None, 0, 1), read(Some(3), 0, 1)]));
    assert!(!check(&[write(1, 0, 5), read(None, 6, 7)]), "stale");
    assert!(!check(&[read(Some(2), 0, 5), read(Some(1), 6, 7)]), "back again");
    assert!(!check(&[write(2, 0, 5), write(1, 6, 7)]), "wrong order");
    assert!(!check(&[write(4, 0, 5)]), "lost");
    assert!(!check(&[read(Some(4), 0, 5)]), "taken back");
}
