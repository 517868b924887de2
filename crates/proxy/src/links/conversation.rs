//! What clients are owed, in the order of their requests.
//!
//! A conversation exists while its client is owed something, so that an idle one costs nothing.
//!
//! Thread rule: a worker's own.
//!
//! Invariants:
//! 1. Replies leave whole and in the order of the requests.
//! 2. An answer to a client that has gone away comes to nobody: a key has a generation.

use super::Patience;
use crate::joins::{Join, Part, Step};
use net::client::{Client, Signal};
use std::collections::VecDeque;
use std::sync::Arc;
use wire::Protocol;

/// What a conversation keeps of its memory for the next one.
const KEPT_BYTES_MAX: usize = 16 << 10;

/// Which conversation of a worker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    place: u32,
    generation: u32,
}

impl Key {
    /// Nobody's: what is owed to it comes to nobody.
    pub const NOBODY: Key = Key { place: u32::MAX, generation: 0 };
}

/// A reply that is owed.
#[derive(Debug)]
enum Owed {
    /// It is to come.
    Waited,
    /// It is to come, and the client does not want it.
    Unwanted,
    /// It is there, and others before it are not.
    Kept(Vec<u8>),
    /// It is made of several.
    Gathered(Box<Gathered>),
}

/// Replies of several servers that become one.
#[derive(Debug)]
struct Gathered {
    join: Join,
    /// The client's protocol and database.
    speaks: (Protocol, usize),
    parts: Vec<Vec<u8>>,
    missing: usize,
    /// How long those are together that have come.
    bytes: usize,
    is_wanted: bool,
}

/// One client's.
#[derive(Default)]
struct Conversation {
    generation: u32,
    client: Option<Arc<Client>>,
    /// The number of the first that is owed.
    first: u32,
    owed: VecDeque<Owed>,
    /// Replies that may go.
    ready: Vec<u8>,
    /// Bytes of those that wait for others before them.
    kept_bytes: usize,
    /// The most bytes of all: a client that is owed more than it may be is closed.
    bytes_max: usize,
    /// The client was woken for what is ready.
    is_woken: bool,
    /// Something that it has asked for went elsewhere: what it asks next waits.
    is_redirected: bool,
}

/// All of a worker's.
#[derive(Default)]
pub struct Conversations {
    places: Vec<Conversation>,
    free: Vec<u32>,
    /// What is to be asked before replies can be made that are made of several.
    further: Vec<Further>,
    /// Clients that do not wait at servers any more, though some of these have not answered.
    come: Vec<u64>,
}

/// A request that is to be made before a reply can be.
pub struct Further {
    /// Whose.
    pub whose: Key,
    /// Which reply its own is a part of.
    pub reply: (u32, u16),
    /// In which protocol and database.
    pub speaks: (Protocol, usize),
    /// What is asked of whom.
    pub part: Part,
    /// It waits there, for this client.
    pub waits: Option<(Patience, u64)>,
    /// It goes to whoever has its slot by then.
    pub follows: bool,
}

impl Conversations {
    /// Begins a conversation.
    pub fn begin(&mut self, client: &Arc<Client>, bytes_max: usize) -> Key {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Conversation::default());
            (self.places.len() - 1) as u32
        });
        let conversation = &mut self.places[place as usize];
        conversation.client = Some(client.clone());
        conversation.bytes_max = bytes_max;
        Key { place, generation: conversation.generation }
    }

    /// Ends one; what it was still owed comes to nobody.
    pub fn end(&mut self, key: Key) {
        let Some(conversation) = self.find(key) else { return };
        conversation.generation = conversation.generation.wrapping_add(1);
        conversation.client = None;
        conversation.owed.clear();
        conversation.owed.shrink_to(KEPT_BYTES_MAX / size_of::<Owed>());
        conversation.ready.clear();
        conversation.ready.shrink_to(KEPT_BYTES_MAX);
        conversation.is_woken = false;
        conversation.kept_bytes = 0;
        conversation.is_redirected = false;
        self.free.push(key.place);
    }

    fn find(&mut self, key: Key) -> Option<&mut Conversation> {
        find(&mut self.places, key)
    }

    /// A reply more is owed; gives its number. One that is not wanted is waited for all the same, so that what comes behind it cannot overtake its
    /// request by another link.
    pub fn owe(&mut self, key: Key, is_wanted: bool) -> u32 {
        self.push(key, if is_wanted { Owed::Waited } else { Owed::Unwanted })
    }

    /// A reply more is owed that so many servers make, in a client's protocol and database; gives its number.
    pub fn owe_joined(
        &mut self,
        key: Key,
        (join, parts): (Join, usize),
        speaks: (Protocol, usize),
        is_wanted: bool,
    ) -> u32 {
        let parts = vec![Vec::new(); parts];
        let gathered = Gathered { join, missing: parts.len(), parts, bytes: 0, speaks, is_wanted };
        self.push(key, Owed::Gathered(Box::new(gathered)))
    }

    fn push(&mut self, key: Key, owed: Owed) -> u32 {
        let Some(conversation) = self.find(key) else { return 0 };
        conversation.owed.push_back(owed);
        conversation.first.wrapping_add((conversation.owed.len() - 1) as u32)
    }

    /// The reply of this number has come, or a part of it.
    pub fn answer(&mut self, key: Key, (number, part): (u32, u16), reply: &[u8]) {
        let Some(conversation) = find(&mut self.places, key) else { return };
        let at = number.wrapping_sub(conversation.first) as usize;
        let Some(owed) = conversation.owed.get_mut(at) else { return };
        let joined;
        let reply = match owed {
            Owed::Unwanted => &[],
            Owed::Gathered(gathered) => {
                let client = conversation.client.as_ref().map_or(0, |client| client.id);
                let was_waiting = gathered.join.is_waiting();
                let Some(step) = gathered.take(part, reply) else { return };
                if was_waiting {
                    self.come.push(client);
                }
                let (whose, how) = ((key, number), (gathered.speaks, gathered.join.acts()));
                match step {
                    Step::Whole(whole) => joined = whole,
                    Step::More(parts) => return self.further.extend(further(whose, how, parts, None)),
                    Step::Wait(parts, patience) => {
                        let waits = Some((patience, client));
                        return self.further.extend(further(whose, how, parts, waits));
                    }
                }
                &joined[..]
            }
            Owed::Waited | Owed::Kept(_) => reply,
        };
        if at > 0 {
            *owed = Owed::Kept(reply.to_vec());
            conversation.kept_bytes += reply.len();
        } else {
            conversation.ready.extend_from_slice(reply);
            conversation.step();
        }
        let is_over = conversation.kept_bytes + conversation.ready.len() > conversation.bytes_max;
        if is_over && let Some(client) = conversation.client.clone() {
            client.signal(Signal::KILL);
            return self.end(key);
        }
        if at > 0 {
            return;
        }
        if !std::mem::replace(&mut conversation.is_woken, true)
            && let Some(client) = &conversation.client
        {
            client.wake();
        }
    }

    /// Takes what is to be asked before replies can be made.
    #[inline]
    pub fn take_further(&mut self) -> Vec<Further> {
        std::mem::take(&mut self.further)
    }

    /// Takes who does not wait at servers any more.
    #[inline]
    pub fn take_come(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.come)
    }

    /// Something that a client has asked for goes elsewhere.
    pub fn note_redirected(&mut self, key: Key) {
        let Some(conversation) = self.find(key) else { return };
        conversation.is_redirected = true;
        for owed in &mut conversation.owed {
            if let Owed::Gathered(gathered) = owed {
                gathered.join.give_up_keeping();
            }
        }
    }

    /// Whether something that it is owed went elsewhere.
    #[inline]
    pub fn is_redirected(&mut self, key: Key) -> bool {
        self.find(key).is_some_and(|conversation| conversation.is_redirected)
    }

    /// Whose a conversation is.
    pub fn client(&self, key: Key) -> Option<Arc<Client>> {
        let conversation = self.places.get(key.place as usize)?;
        conversation.client.clone().filter(|_| conversation.generation == key.generation)
    }

    /// Takes what may go; gives how many replies are still owed.
    pub fn take(&mut self, key: Key, out: &mut Vec<u8>) -> usize {
        let Some(conversation) = self.find(key) else { return 0 };
        conversation.is_woken = false;
        match out.is_empty() {
            true => std::mem::swap(out, &mut conversation.ready),
            false => out.append(&mut conversation.ready),
        }
        conversation.owed.len()
    }
}

fn find(places: &mut [Conversation], key: Key) -> Option<&mut Conversation> {
    places.get_mut(key.place as usize).filter(|one| one.generation == key.generation && one.client.is_some())
}

/// What is asked for this reply of a client's.
fn further(
    (whose, number): (Key, u32),
    (speaks, follows): ((Protocol, usize), bool),
    parts: Vec<Part>,
    waits: Option<(Patience, u64)>,
) -> impl Iterator<Item = Further> {
    let each = parts.into_iter().zip(0..);
    each.map(move |(part, place)| Further { whose, reply: (number, place), speaks, part, waits, follows })
}

impl Gathered {
    /// A part has come. Some: it was the last one.
    fn take(&mut self, part: u16, reply: &[u8]) -> Option<Step> {
        self.bytes += reply.len();
        let is_too_long = self.bytes > self.join.bytes_max();
        if is_too_long {
            self.parts.fill(Vec::new());
        } else if self.is_wanted || self.join.acts() {
            self.parts[usize::from(part)] = reply.to_vec();
        }
        self.missing -= 1;
        if self.missing > 0 && !self.join.is_ended_by(reply) {
            return None;
        }
        if !self.is_wanted && !self.join.acts() {
            return Some(Step::Whole(Vec::new()));
        }
        if is_too_long {
            return Some(Step::Whole(self.join.too_long()));
        }
        self.bytes = 0;
        let step = self.join.step(&std::mem::take(&mut self.parts));
        match &step {
            Step::More(more) | Step::Wait(more, _) => {
                self.parts = vec![Vec::new(); more.len()];
                self.missing = more.len();
                Some(step)
            }
            Step::Whole(_) if !self.is_wanted => Some(Step::Whole(Vec::new())),
            Step::Whole(_) => Some(step),
        }
    }
}

impl Conversation {
    /// The first is ready; so are those behind it that are kept.
    fn step(&mut self) {
        self.owed.pop_front();
        self.first = self.first.wrapping_add(1);
        while let Some(Owed::Kept(reply)) = self.owed.front() {
            self.ready.extend_from_slice(reply);
            self.kept_bytes -= reply.len();
            self.owed.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }
}
