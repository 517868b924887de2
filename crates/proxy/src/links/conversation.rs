//! What clients are owed, in the order of their requests.
//!
//! A conversation exists while its client is owed something, so that an idle one costs nothing.
//!
//! Thread rule: a worker's own.
//!
//! Invariants:
//! 1. Replies leave whole and in the order of the requests.
//! 2. An answer to a client that has gone away comes to nobody: a key has a generation.

use super::crowds::{Crowds, Who};
use super::heirs::Seat;
use super::{Patience, Speech, heirs};
use crate::joins::{Join, Part, Step};
use crate::upstream::{NodeNo, Routes};
use command::table::CommandId;
use net::client::{Client, Signal};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use sys::Ticks;
use tokio::task::AbortHandle;

/// What a conversation keeps of its memory for the next one.
const KEPT_BYTES_MAX: usize = 16 << 10;

/// Which conversation of a worker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    speaks: Speech,
    parts: Vec<Vec<u8>>,
    missing: usize,
    /// How long those are together that have come.
    bytes: usize,
    /// How long those are that are kept, as far as that counts to what the client may be owed: what has a bound of its own does not.
    kept_bytes: usize,
    is_wanted: bool,
    asked: Asked,
    /// Among whom it waits, where one of those who wait for the same is given what comes.
    crowd: Option<Box<[u8]>>,
    /// What is said next is enough: somebody has its client woken, or its time is up.
    is_cut: bool,
    /// Ends its wait behind others.
    alarm: Option<Alarm>,
    /// Which masters are asked, by the parts of what only masters do; empty: that is done by no other server either.
    masters: Box<[Seat]>,
}

/// What is done at a moment, unless it is not wanted any more.
#[derive(Debug)]
pub struct Alarm(pub AbortHandle);

impl Drop for Alarm {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What a reply counts as when it is there.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Which command was asked for; None: it counts as none.
    pub command: Option<CommandId>,
    /// When; None: it waits at servers, which takes no time.
    pub since: Option<Ticks>,
}

/// What came of a reply of a server.
pub enum Came {
    /// It is what its client is owed.
    Whole,
    /// It was the last one of several, of which this is made: what that counts as, and the line if it is an error.
    Joined(Asked, Option<Box<[u8]>>),
    /// Others are missing, or what it was for was told already.
    Part,
    /// Its client has gone away.
    Nobodys,
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
    /// Something that it has asked for went elsewhere: what it asks next waits. To these servers that went which were named for once.
    redirected: Option<Vec<NodeNo>>,
    /// It sends no more, and is not to wait.
    is_leaving: bool,
    /// Nor for what there is.
    is_given_up: bool,
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
    /// Clients that were owed more than they may be.
    closed: Vec<Arc<Client>>,
    crowds: Crowds,
    /// Who waits behind others since the last look.
    behind: Vec<Behind>,
}

/// A client that waits behind another which waits for the same.
pub struct Behind {
    /// Whose reply.
    pub who: Who,
    /// The client's number.
    pub client: u64,
    /// For how long, if not for ever.
    pub time: Option<Duration>,
}

/// A request that is to be made before a reply can be.
pub struct Further {
    /// Whose.
    pub whose: Key,
    /// Which reply its own is a part of.
    pub reply: (u32, u16),
    /// By which of a server's links.
    pub speaks: Speech,
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
        let first = conversation.first;
        let mut crowds = Vec::new();
        for (owed, number) in conversation.owed.drain(..).zip(0..) {
            if let Owed::Gathered(gathered) = owed {
                crowds.extend(gathered.crowd.map(|crowd| (crowd, first.wrapping_add(number))));
            }
        }
        conversation.owed.shrink_to(KEPT_BYTES_MAX / size_of::<Owed>());
        conversation.ready.clear();
        conversation.ready.shrink_to(KEPT_BYTES_MAX);
        conversation.is_woken = false;
        conversation.kept_bytes = 0;
        conversation.redirected = None;
        (conversation.is_leaving, conversation.is_given_up) = (false, false);
        self.free.push(key.place);
        // Who was next behind another that has gone, and goes now, is given nothing.
        self.further.retain(|further| further.whose != key);
        for (crowd, number) in crowds {
            self.leave_crowd(&crowd, (key, number));
        }
    }

    /// Somebody waits among others no more: if it was the first of them, the next one goes on, whose client is woken for it.
    fn leave_crowd(&mut self, crowd: &[u8], who: Who) {
        let Some((key, number)) = self.crowds.leave(crowd, who) else { return };
        let Some(conversation) = find(&mut self.places, key) else { return };
        let Some(gathered) = conversation.gathered(number) else { return };
        gathered.alarm = None;
        if let Step::More(parts) = gathered.join.go_on() {
            gathered.expect(parts.len());
            let how = (gathered.speaks, gathered.join.acts());
            self.further.extend(further((key, number), how, parts, None));
        }
        if let Some(client) = &conversation.client {
            client.wake();
        }
    }

    fn find(&mut self, key: Key) -> Option<&mut Conversation> {
        find(&mut self.places, key)
    }

    /// A reply more is owed; gives its number. One that is not wanted is waited for all the same, so that what comes behind it cannot overtake its
    /// request by another link.
    pub fn owe(&mut self, key: Key, is_wanted: bool) -> u32 {
        self.push(key, if is_wanted { Owed::Waited } else { Owed::Unwanted })
    }

    /// A reply more is owed that so many servers make, as a client speaks; gives its number.
    pub fn owe_joined(
        &mut self,
        key: Key,
        (join, parts): (Join, usize),
        speaks: Speech,
        (asked, is_wanted): (Asked, bool),
    ) -> u32 {
        let parts = vec![Vec::new(); parts];
        let missing = parts.len();
        let gathered = Gathered {
            join,
            missing,
            parts,
            bytes: 0,
            kept_bytes: 0,
            speaks,
            is_wanted,
            asked,
            crowd: None,
            is_cut: false,
            alarm: None,
            masters: Box::default(),
        };
        self.push(key, Owed::Gathered(Box::new(gathered)))
    }

    /// What is made of several is asked of these masters, and where one is none any more of who is in its place.
    pub fn note_masters(&mut self, key: Key, number: u32, masters: Box<[Seat]>) {
        if let Some(gathered) = self.find(key).and_then(|conversation| conversation.gathered(number)) {
            gathered.masters = masters;
        }
    }

    /// Whether somebody else may do what a master has not done that is none any more.
    pub fn has_heirs(&mut self, key: Key, number: u32) -> bool {
        let gathered = self.find(key).and_then(|conversation| conversation.gathered(number));
        gathered.is_some_and(|gathered| !gathered.masters.is_empty())
    }

    /// Who does a part by these routes that a master has not done which was asked for it, and is asked now; None: that is not known, or it is no such part.
    pub fn heir(&mut self, key: Key, (number, part): (u32, u16), routes: &Routes) -> Option<NodeNo> {
        let masters = &mut self.find(key)?.gathered(number)?.masters;
        let heir = heirs::heir(masters, usize::from(part), routes)?;
        masters[usize::from(part)].node = heir;
        Some(heir)
    }

    fn push(&mut self, key: Key, owed: Owed) -> u32 {
        let Some(conversation) = self.find(key) else { return 0 };
        conversation.owed.push_back(owed);
        conversation.first.wrapping_add((conversation.owed.len() - 1) as u32)
    }

    /// The reply of this number has come, or a part of it.
    pub fn answer(&mut self, key: Key, (number, part): (u32, u16), reply: &[u8]) -> Came {
        let Some(conversation) = find(&mut self.places, key) else { return Came::Nobodys };
        let at = number.wrapping_sub(conversation.first) as usize;
        let Some(owed) = conversation.owed.get_mut(at) else { return Came::Part };
        let (joined, came);
        let mut left = None;
        let reply = match owed {
            Owed::Unwanted => {
                came = Came::Whole;
                &[]
            }
            Owed::Gathered(gathered) => {
                let client = conversation.client.as_ref().map_or(0, |client| client.id);
                let (was_waiting, kept_before) = (gathered.join.is_waiting(), gathered.kept_bytes);
                let step = gathered.take(part, reply);
                conversation.kept_bytes += gathered.kept_bytes;
                conversation.kept_bytes -= kept_before;
                let Some(step) = step else {
                    self.bound(key);
                    return Came::Part;
                };
                if was_waiting {
                    self.come.push(client);
                }
                let (whose, how) = ((key, number), (gathered.speaks, gathered.join.acts()));
                match step {
                    Step::Whole(whole) => (joined, left) = (whole, gathered.crowd.take()),
                    Step::More(parts) => {
                        self.further.extend(further(whose, how, parts, None));
                        return Came::Part;
                    }
                    Step::Wait(parts, patience) => {
                        gathered.asked.since = None;
                        let waits = Some((patience, client));
                        match gathered.comes_first(&mut self.crowds, whose) {
                            true => self.further.extend(further(whose, how, parts, waits)),
                            false => self.behind.push(gathered.stand_behind(whose, client)),
                        }
                        self.note_waiting(key);
                        return Came::Part;
                    }
                }
                let error = Some(&joined).filter(|joined| joined.starts_with(b"-"));
                came = Came::Joined(gathered.asked, error.map(|line| line[..].into()));
                if gathered.is_wanted { &joined[..] } else { &[] }
            }
            Owed::Waited | Owed::Kept(_) => {
                came = Came::Whole;
                reply
            }
        };
        if at > 0 {
            *owed = Owed::Kept(reply.to_vec());
            conversation.kept_bytes += reply.len();
        } else {
            conversation.ready.extend_from_slice(reply);
            conversation.step();
        }
        if let Some(crowd) = left {
            self.leave_crowd(&crowd, (key, number));
        }
        self.bound(key);
        if let Some(conversation) = find(&mut self.places, key).filter(|_| at == 0)
            && !std::mem::replace(&mut conversation.is_woken, true)
            && let Some(client) = &conversation.client
        {
            client.wake();
        }
        came
    }

    /// Closes a client that is owed more than it may be.
    #[inline]
    fn bound(&mut self, key: Key) {
        let Some(conversation) = find(&mut self.places, key) else { return };
        if conversation.kept_bytes + conversation.ready.len() <= conversation.bytes_max {
            return;
        }
        let Some(client) = conversation.client.clone() else { return };
        client.signal(Signal::KILL);
        self.closed.push(client);
        self.end(key);
    }

    /// Whether a reply is to be kept of which so much has come, and not the end: its client is there, and wants it. One that would be owed more than it may be is closed at once, and
    /// not when all of that is here.
    pub fn wants(&mut self, key: Key, reply: u32, bytes: usize) -> bool {
        let Some(conversation) = self.find(key) else { return false };
        let more = match conversation.owed.get(reply.wrapping_sub(conversation.first) as usize) {
            None | Some(Owed::Unwanted) => return false,
            Some(Owed::Gathered(gathered)) if !gathered.is_wanted && !gathered.join.acts() => return false,
            // What is read to be computed with has a bound of its own.
            Some(Owed::Gathered(gathered)) if gathered.join.bytes_max() < usize::MAX => 0,
            Some(_) => bytes,
        };
        conversation.kept_bytes += more;
        self.bound(key);
        self.find(key).map(|conversation| conversation.kept_bytes -= more).is_some()
    }

    /// Takes who was closed since it was owed too much.
    #[inline]
    pub fn take_closed(&mut self) -> Vec<Arc<Client>> {
        std::mem::take(&mut self.closed)
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

    /// Something that a client has asked for goes elsewhere: to this server, if one is named for once.
    pub fn note_redirected(&mut self, key: Key, asked: Option<NodeNo>) {
        let Some(conversation) = self.find(key) else { return };
        let all = conversation.redirected.get_or_insert_default();
        all.extend(asked.filter(|node| !all.contains(node)));
        for owed in &mut conversation.owed {
            if let Owed::Gathered(gathered) = owed {
                gathered.join.give_up_keeping();
            }
        }
    }

    /// Takes who waits behind others since the last look.
    #[inline]
    pub fn take_behind(&mut self) -> Vec<Behind> {
        std::mem::take(&mut self.behind)
    }

    /// Which reply a client waits for at servers, or behind another.
    pub fn waited_for(&mut self, key: Key) -> Option<u32> {
        let conversation = self.find(key)?;
        let waits = |owed: &Owed| matches!(owed, Owed::Gathered(gathered) if gathered.waits());
        let at = conversation.owed.iter().position(waits)?;
        Some(conversation.first.wrapping_add(at as u32))
    }

    /// Whether a client waits for this reply behind another.
    pub fn is_behind(&mut self, (key, number): Who) -> bool {
        let gathered = self.find(key).and_then(|conversation| conversation.gathered(number));
        gathered.is_some_and(|gathered| gathered.join.is_behind())
    }

    /// The wait for this reply behind others has an end.
    pub fn set_alarm(&mut self, (key, number): Who, alarm: Alarm) {
        if let Some(gathered) = self.find(key).and_then(|conversation| conversation.gathered(number)) {
            gathered.alarm = Some(alarm);
        }
    }

    /// What is said next of this reply is enough: its client was woken, or its time is up. False: it does not wait.
    pub fn cut(&mut self, (key, number): Who) -> bool {
        let gathered = self.find(key).and_then(|conversation| conversation.gathered(number));
        let Some(gathered) = gathered.filter(|gathered| gathered.waits()) else { return false };
        gathered.is_cut = true;
        gathered.join.note_woken();
        true
    }

    /// Whether it is looked what there is for a client, which has not waited, or that is taken for it.
    pub fn is_looked_for(&mut self, key: Key) -> bool {
        let looks = |owed: &Owed| matches!(owed, Owed::Gathered(gathered) if gathered.looks());
        self.find(key).is_some_and(|conversation| conversation.owed.iter().any(looks))
    }

    /// A client sends no more: it is woken when it begins to wait. Whether that is news.
    pub fn note_leaving(&mut self, key: Key) -> bool {
        self.find(key).is_some_and(|conversation| !std::mem::replace(&mut conversation.is_leaving, true))
    }

    /// A client that sends no more is not told what there is either.
    pub fn give_up(&mut self, key: Key) {
        let conversation = self.find(key).filter(|conversation| conversation.is_leaving);
        if let Some(conversation) = conversation {
            conversation.is_given_up = true;
            if let Some(client) = &conversation.client {
                client.wake();
            }
        }
    }

    /// Whether that is so.
    pub fn is_given_up(&mut self, key: Key) -> bool {
        self.find(key).is_some_and(|conversation| conversation.is_given_up)
    }

    /// A client begins to wait.
    pub fn note_waiting(&mut self, key: Key) {
        let conversation = self.find(key).filter(|conversation| conversation.is_leaving);
        if let Some(client) = conversation.and_then(|conversation| conversation.client.as_ref()) {
            client.wake();
        }
    }

    /// Whether something that it is owed went elsewhere, and to which servers that were named for once.
    #[inline]
    pub fn redirected(&self, key: Key) -> Option<&[NodeNo]> {
        let conversation = self.places.get(key.place as usize)?;
        conversation.redirected.as_deref().filter(|_| conversation.generation == key.generation)
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
    (speaks, follows): (Speech, bool),
    parts: Vec<Part>,
    waits: Option<(Patience, u64)>,
) -> impl Iterator<Item = Further> {
    let each = parts.into_iter().zip(0..);
    each.map(move |(part, place)| Further { whose, reply: (number, place), speaks, part, waits, follows })
}

impl Gathered {
    /// So many parts are asked for.
    fn expect(&mut self, count: usize) {
        self.parts = vec![Vec::new(); count];
        self.missing = count;
    }

    /// It is about to wait. Whether nobody else does for the same.
    fn comes_first(&mut self, crowds: &mut Crowds, who: Who) -> bool {
        let Some(mut crowd) = self.join.crowd() else { return true };
        crowd.extend_from_slice(&self.speaks.db.to_le_bytes());
        let is_first = crowds.come(&crowd, who);
        self.crowd = Some(crowd.into());
        is_first
    }

    /// It waits behind another.
    fn stand_behind(&mut self, who: Who, client: u64) -> Behind {
        self.expect(1);
        Behind { who, client, time: self.join.stand_behind() }
    }

    /// Whether it may wait, and has not done so yet, or is about to have something.
    fn looks(&self) -> bool {
        self.join.may_wait() && (self.asked.since.is_some() || self.join.is_taking())
    }

    /// Whether it waits at servers, or behind another.
    fn waits(&self) -> bool {
        self.join.is_waiting() || self.join.is_behind()
    }

    /// A part has come. Some: it was the last one.
    fn take(&mut self, part: u16, reply: &[u8]) -> Option<Step> {
        self.bytes += reply.len();
        let bytes_max = self.join.bytes_max();
        let (is_too_long, is_joined) = (self.bytes > bytes_max, self.is_wanted || self.join.acts());
        if is_too_long {
            self.parts.fill(Vec::new());
        } else if is_joined || reply.starts_with(b"-") {
            self.parts[usize::from(part)] = reply.to_vec();
            self.kept_bytes += if bytes_max == usize::MAX { reply.len() } else { 0 };
        }
        self.missing -= 1;
        if self.missing > 0 && !self.join.is_ended_by(reply) && !self.is_cut {
            return None;
        }
        (self.bytes, self.kept_bytes) = (0, 0);
        if !is_joined {
            // Only whether it is an error.
            let error = self.parts.iter().find(|part| !part.is_empty());
            return Some(Step::Whole(error.cloned().unwrap_or_default()));
        }
        if is_too_long {
            return Some(Step::Whole(self.join.too_long()));
        }
        let step = self.join.step(&std::mem::take(&mut self.parts));
        if let Step::More(more) | Step::Wait(more, _) = &step {
            self.expect(more.len());
        }
        Some(step)
    }
}

impl Conversation {
    /// What is gathered for the reply of this number.
    fn gathered(&mut self, number: u32) -> Option<&mut Gathered> {
        match self.owed.get_mut(number.wrapping_sub(self.first) as usize) {
            Some(Owed::Gathered(gathered)) => Some(gathered),
            _ => None,
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group_reads::GroupRead;
    use crate::stream_waits::Streams;
    use crate::upstream::Upstream;
    use sys::UnixMs;
    use wire::{Protocol, RequestBuf};

    const SPEAKS: Speech = Speech { protocol: Protocol::Resp2, db: 0, is_no_touch: false };

    fn begin(conversations: &mut Conversations, client: u64, bytes_max: usize) -> Key {
        let nowhere = || "127.0.0.1:1".to_owned();
        let client = Client::new(client, nowhere(), nowhere(), 0, (0, 0), UnixMs(0));
        conversations.begin(&Arc::new(client), bytes_max)
    }

    /// Has a client wait for entries of two servers, which have none.
    fn wait(conversations: &mut Conversations, key: Key) {
        let routes = Upstream::fixed("a:1,b:1,c:1").unwrap().routes();
        let words = "XREADGROUP GROUP g one BLOCK 0 STREAMS foo hello > >".split(' ');
        let streams = Streams::of(&routes, &RequestBuf::from_args(words).as_request()).unwrap();
        let (read, parts) = GroupRead::begin(&streams, Protocol::Resp2).unwrap();
        let asked = Asked { command: None, since: Some(Ticks(1)) };
        let owed = (Join::GroupRead(Box::new(read)), parts.len());
        let number = conversations.owe_joined(key, owed, SPEAKS, (asked, true));
        let group: &[u8] = b"*1\r\n*4\r\n$4\r\nname\r\n$1\r\ng\r\n$17\r\nlast-delivered-id\r\n$3\r\n0-0\r\n";
        for (part, reply) in [(0, group), (1, group), (0, b"*-1\r\n"), (1, b"*-1\r\n")] {
            assert!(matches!(conversations.answer(key, (number, part), reply), Came::Part));
        }
    }

    #[test]
    fn who_goes_away_with_the_one_in_front_is_given_nothing() {
        let mut conversations = Conversations::default();
        let keys = [1, 2, 3].map(|client| begin(&mut conversations, client, usize::MAX));
        keys.iter().for_each(|key| wait(&mut conversations, *key));
        assert_eq!(conversations.take_behind().len(), 2);
        conversations.take_further();
        conversations.end(keys[0]);
        conversations.end(keys[1]);
        let next = conversations.take_further();
        assert!(next.len() == 2 && next.iter().all(|further| further.whose == keys[2]));
    }

    #[test]
    fn what_nobody_wants_is_not_kept_however_long_it_is() {
        let mut conversations = Conversations::default();
        let key = begin(&mut conversations, 1, 1000);
        let (unwanted, wanted) = (conversations.owe(key, false), conversations.owe(key, true));
        assert!(!conversations.wants(key, unwanted, 2000));
        assert!(conversations.take_closed().is_empty());
        assert!(conversations.wants(key, wanted, 500));
        assert!(!conversations.wants(key, wanted, 2000));
        assert_eq!(conversations.take_closed().len(), 1, "it is owed more than it may be");
    }
}
