//! A node's log and disk: records in memory, those that a power cut leaves, and what else is kept.
//!
//! A model, not the crate `log`: a position is a number of records, a sync takes what was appended when it began, and a cut is one step.

use super::super::{Beginning, Epoch, History, Life};
use log::Lsn;
use std::collections::BTreeMap;
use sys::Prng;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// An epoch begins.
    Begin { epoch: Epoch, origin: u64, is_lossy: bool, by: Life },
    /// A register has another value, which no other write ever gave to any register.
    Write { register: u64, value: u64 },
}

/// The log of one life of a node.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// As appended.
    pub log: Vec<Record>,
    /// What a power cut leaves for certain.
    pub synced: Vec<Record>,
    /// The epoch persisted.
    pub epoch: Epoch,
    /// Where a sync under way began, if there is one.
    syncing: bool,
    /// Syncs from before a cut tell nothing any more.
    pub generation: u64,
    pub is_cutting: bool,
    /// The last write of each register: where its record ends, and its value.
    registers: BTreeMap<u64, (usize, u64)>,
}

impl Disk {
    /// An empty one, of which no sync from before is told.
    pub fn empty(generation: u64) -> Disk {
        Disk { generation, ..Disk::default() }
    }

    /// Appends a record, in memory for now.
    pub fn append(&mut self, record: Record) {
        self.log.push(record);
        if let Record::Write { register, value } = record {
            self.registers.insert(register, (self.log.len(), value));
        }
    }

    fn truncate(&mut self, end: usize) {
        self.registers.clear();
        let mut log = std::mem::take(&mut self.log);
        log.truncate(end);
        log.into_iter().for_each(|record| self.append(record));
    }

    /// Up to where a sync that begins now reaches; nothing if one is under way or there is nothing to sync.
    pub fn begin_sync(&mut self) -> Option<usize> {
        if self.syncing || self.is_cutting || self.synced.len() == self.log.len() {
            return None;
        }
        self.syncing = true;
        Some(self.log.len())
    }

    /// A sync has reached `end`.
    pub fn end_sync(&mut self, end: usize) {
        self.syncing = false;
        self.synced.extend_from_slice(&self.log[self.synced.len()..end]);
    }

    /// Removes what lies behind `end`, in memory for now.
    pub fn begin_cut(&mut self, end: usize) {
        self.truncate(end);
        self.generation += 1;
        (self.is_cutting, self.syncing) = (true, false);
    }

    /// The cut is durable.
    pub fn end_cut(&mut self, end: usize) {
        self.synced.truncate(end);
        self.is_cutting = false;
    }

    /// What a process finds that starts now: all that was synced, and by chance more that was written.
    pub fn restart(&mut self, is_power_cut: bool, prng: &mut Prng) {
        let kept = self.synced.len();
        if !self.is_cutting && self.log.len() > kept && !(is_power_cut && prng.one_in(2)) {
            let more = prng.below((self.log.len() - kept + 1) as u64) as usize;
            self.synced.extend_from_slice(&self.log[kept..kept + more]);
        }
        let (synced, epoch, generation) = (std::mem::take(&mut self.synced), self.epoch, self.generation + 1);
        *self = Disk { log: synced.clone(), synced, epoch, generation, ..Disk::default() };
        self.truncate(usize::MAX);
    }

    /// The epochs of the log.
    pub fn history(&self) -> History {
        let mut origin = 0;
        let mut beginnings = Vec::new();
        for (at, record) in self.log.iter().enumerate() {
            if let Record::Begin { epoch, origin: first, is_lossy, by } = *record {
                origin = first;
                beginnings.push(Beginning { epoch, first: Lsn(at as u64), is_lossy, by });
            }
        }
        History::new(origin, beginnings)
    }

    /// Where a register was written last, as the end of that record, and what was written.
    pub fn last_write(&self, register: u64) -> (usize, Option<u64>) {
        self.registers.get(&register).map_or((0, None), |(end, value)| (*end, Some(*value)))
    }
}
