//! A simulated network between nodes in one thread: links that bring messages in order, each at its own pace, until they break, while ways between nodes may be cut.
//!
//! What is sent into a cut way waits, as a kernel sends it again and again, and comes when the way is open. A node that lost its power says nothing to
//! anybody. Messages that had come before their receiver closed the link are still handed to it.

use std::collections::{BTreeMap, BTreeSet};
use sys::Prng;

/// What travels on a link.
#[derive(Clone, Debug)]
pub enum Parcel<P> {
    /// What was sent.
    Sent(P),
    /// The other side has closed it.
    Closed,
}

/// One end of a link: a process of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The node.
    pub node: usize,
    /// Which of its processes.
    pub process: u64,
}

/// A connection.
#[derive(Clone, Debug)]
struct Link<P> {
    /// Who dialled, and who was dialled.
    ends: [End; 2],
    is_open: bool,
    /// When the last message to each end comes.
    last: [u64; 2],
    /// What waits for a cut way to open, by the end that it goes to.
    stalled: [Vec<Parcel<P>>; 2],
}

/// All links and ways.
#[derive(Clone, Debug)]
pub struct Network<P> {
    links: BTreeMap<u64, Link<P>>,
    made: u64,
    cut: BTreeSet<(usize, usize)>,
    slow: BTreeSet<(usize, usize)>,
    delay_max: u64,
}

impl<P> Network<P> {
    /// All ways open. A message takes so many microseconds at the most.
    #[must_use]
    pub fn new(delay_max: u64) -> Network<P> {
        let (cut, slow) = (BTreeSet::new(), BTreeSet::new());
        Network { links: BTreeMap::new(), made: 0, cut, slow, delay_max }
    }

    /// How long a message takes.
    pub fn delay(&self, from: usize, to: usize, prng: &mut Prng) -> u64 {
        let delay = 20 + prng.below(self.delay_max);
        if self.slow.contains(&(from, to)) { delay * 100 } else { delay }
    }

    /// Whether anything comes from one node to another.
    #[must_use]
    pub fn is_open(&self, from: usize, to: usize) -> bool {
        !self.cut.contains(&(from, to))
    }

    /// Cuts a way.
    pub fn cut(&mut self, from: usize, to: usize) {
        self.cut.insert((from, to));
    }

    /// Makes a way slow.
    pub fn slow(&mut self, from: usize, to: usize) {
        self.slow.insert((from, to));
    }

    /// Opens a way and makes it fast again. What waited is sent now; replies with where it goes, when it comes and what it is.
    pub fn open(
        &mut self,
        from: usize,
        to: usize,
        now: u64,
        prng: &mut Prng,
    ) -> Vec<(u64, End, u64, Parcel<P>)> {
        self.slow.remove(&(from, to));
        self.cut.remove(&(from, to));
        let mut due = Vec::new();
        for (id, link) in &mut self.links {
            for side in 0..2 {
                if link.ends[side].node == to && link.ends[1 - side].node == from {
                    due.extend(std::mem::take(&mut link.stalled[side]).into_iter().map(|it| (*id, side, it)));
                }
            }
        }
        due.into_iter()
            .filter_map(|(id, side, parcel)| {
                let (at, end) = self.schedule(id, side, now, prng)?;
                Some((at, end, id, parcel))
            })
            .collect()
    }

    /// A link between two processes.
    pub fn connect(&mut self, dialler: End, dialled: End) -> u64 {
        self.made += 1;
        let id = self.made;
        let link =
            Link { ends: [dialler, dialled], is_open: true, last: [0; 2], stalled: [Vec::new(), Vec::new()] };
        self.links.insert(id, link);
        id
    }

    /// Sends on a link; replies with when it comes and to whom, or nothing if it waits or is lost.
    pub fn send(
        &mut self,
        id: u64,
        from: usize,
        parcel: Parcel<P>,
        now: u64,
        prng: &mut Prng,
    ) -> Option<(u64, End, Parcel<P>)> {
        let link = self.links.get_mut(&id).filter(|link| link.is_open)?;
        let side = if link.ends[0].node == from { 1 } else { 0 };
        let way = (from, link.ends[side].node);
        if self.cut.contains(&way) {
            link.stalled[side].push(parcel);
            return None;
        }
        let (at, end) = self.schedule(id, side, now, prng)?;
        Some((at, end, parcel))
    }

    fn schedule(&mut self, id: u64, side: usize, now: u64, prng: &mut Prng) -> Option<(u64, End)> {
        let link = self.links.get(&id)?;
        let (from, to) = (link.ends[1 - side].node, link.ends[side].node);
        let at = (now + self.delay(from, to, prng)).max(link.last[side] + 1);
        let link = self.links.get_mut(&id)?;
        link.last[side] = at;
        Some((at, link.ends[side]))
    }

    /// One end closes a link: it takes nothing more, and what was sent before goes on its way, with the end behind it. Replies with when the
    /// other end learns it; nothing if that waits for a cut way to open, or the link was closed already.
    pub fn close(&mut self, id: u64, from: usize, now: u64, prng: &mut Prng) -> Option<(u64, End)> {
        let due = self.send(id, from, Parcel::Closed, now, prng).map(|(at, end, _)| (at, end));
        if let Some(link) = self.links.get_mut(&id) {
            link.is_open = false;
        }
        due
    }

    /// A link breaks for both ends.
    pub fn break_one(&mut self, now: u64, prng: &mut Prng) -> Option<(u64, Vec<(u64, End)>)> {
        let open: Vec<u64> = self.links.iter().filter(|(_, link)| link.is_open).map(|(id, _)| *id).collect();
        let id = *open.get(prng.below(open.len().max(1) as u64) as usize)?;
        let ends = [self.schedule(id, 0, now, prng), self.schedule(id, 1, now, prng)];
        let link = self.links.get_mut(&id)?;
        link.is_open = false;
        link.stalled = [Vec::new(), Vec::new()];
        Some((id, ends.into_iter().flatten().collect()))
    }

    /// A process is gone. The others learn of it if its kernel is there to tell them.
    pub fn gone(&mut self, end: End, tells: bool, now: u64, prng: &mut Prng) -> Vec<(u64, u64, End)> {
        let its: Vec<u64> = self
            .links
            .iter()
            .filter(|(_, link)| link.is_open && link.ends.contains(&end))
            .map(|(id, _)| *id)
            .collect();
        let mut told = Vec::new();
        for id in its {
            if tells {
                told.extend(self.close(id, end.node, now, prng).map(|(at, other)| (id, at, other)));
            } else if let Some(link) = self.links.get_mut(&id) {
                link.is_open = false;
                link.stalled = [Vec::new(), Vec::new()];
            }
        }
        self.links.retain(|_, link| link.is_open || link.stalled.iter().any(|stalled| !stalled.is_empty()));
        told
    }
}
