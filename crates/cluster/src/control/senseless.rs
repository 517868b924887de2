//! What the store holds under the cluster's keys and cannot be read here, or is missing there: a value was spoilt, or written by a later version. It is an operator's
//! matter. Nothing of it is written over, and nothing is decided that it may forbid; all else goes on.

use super::moves::is_unfinished;
use super::view::{Standing, View, key};
use topology::{Move, ShardId};

/// What to do about a key.
pub fn mend(key: &str) -> String {
    format!("the store holds something in {} that makes no sense: mend or remove it", key.escape_debug())
}

/// What stands still because of a key.
fn consequence(key: &str) -> &'static str {
    match key.split('/').next().unwrap_or_default() {
        key::CLUSTER => "nothing is decided before",
        key::LEADER => "no config server leads before",
        key::POLICY => "no setting is changed, no shard begins and no server gets a place before",
        key::SLOTS => "slots stay where they are, moves stand still, and nobody is told of any change before",
        key::LAST_MOVE => "no move begins before",
        "servers" => "the server is not let in, no shard begins and none gets another server before",
        "shards" => "its moves stand still, no shard begins or goes, and slots are given to nobody before",
        "numbers" => "the shard gets no server, and no shard begins before",
        "users" => "proxies keep what they know of the user, and nobody changes it before",
        "moves" => "no other move begins before",
        _ => "nothing is done with it",
    }
}

impl View {
    /// What an operator has to see to, a sentence for each.
    #[must_use]
    pub fn troubles(&self) -> Vec<String> {
        let of_key = |key: &String| format!("{}; {}", mend(key), consequence(key));
        let numbers = self.shards.keys().filter_map(|shard| self.next_number(*shard).err());
        let of_numbers = numbers.filter(|why| why.contains(MISSING));
        let missing = self.missing_last_move().into_iter().chain(of_numbers);
        self.senseless.iter().map(of_key).chain(missing).collect()
    }

    /// Whether a key holds something that makes no sense.
    #[must_use]
    pub fn is_senseless(&self, key: &str) -> bool {
        self.senseless.contains(key)
    }

    /// What to do about the first key that makes no sense, of those that begin so; None: there is none.
    #[must_use]
    pub fn why_senseless(&self, beginning: &str) -> Option<String> {
        let first = self.senseless.range(beginning.to_owned()..).next();
        first.filter(|key| key.starts_with(beginning)).map(|key| mend(key))
    }

    /// The same of one key.
    #[must_use]
    pub fn why_spoilt(&self, key: &str) -> Option<String> {
        self.is_senseless(key).then(|| mend(key))
    }

    fn missing_last_move(&self) -> Option<String> {
        let has_moves = !self.moves.is_empty() || self.why_senseless("moves/").is_some();
        // Also what is about to be written counts.
        let is_missing = has_moves && self.last_move == 0 && !self.is_senseless(key::LAST_MOVE);
        is_missing.then(|| {
            let key = key::LAST_MOVE;
            format!("the store holds moves{MISSING} {key}: write the number of the last move there that ever was; no move begins before")
        })
    }

    /// The number that the next move gets.
    ///
    /// # Errors
    /// Nobody can say which were given.
    pub fn next_move(&self) -> Result<u64, String> {
        let why = self.why_spoilt(key::LAST_MOVE).or_else(|| self.missing_last_move());
        let last = self.moves.keys().copied().max().unwrap_or(0).max(self.last_move);
        why.map_or_else(|| last.checked_add(1).ok_or_else(|| mend(key::LAST_MOVE)), Err)
    }

    /// The number that the next server of a shard gets: none that another ever had.
    ///
    /// # Errors
    /// Nobody can say which were given.
    pub fn next_number(&self, shard: ShardId) -> Result<u32, String> {
        let key = key::number(shard);
        if let Some(why) = self.why_spoilt(&key) {
            return Err(why);
        }
        let placed = self.placed_in(shard).keys().copied().max();
        let is_there =
            self.shards.contains_key(&shard) || self.is_senseless(&key::shard(shard)) || placed.is_some();
        if is_there && !self.numbers.contains_key(&shard) {
            return Err(format!(
                "the store holds shard {shard}{MISSING} {key}: write the highest number there that a server of the shard ever had; the shard gets no server before"
            ));
        }
        let decided = self.shards.get(&shard).and_then(|standing| match standing {
            Standing::Unbegun(node) => Some(*node),
            Standing::Begun(_) => standing.members().into_iter().max(),
        });
        let known = [self.numbers.get(&shard).copied(), placed, decided];
        let last = known.into_iter().flatten().max().unwrap_or(0);
        last.checked_add(1).ok_or_else(|| mend(&key))
    }

    /// Why no move can begin, whichever it is; None: one can.
    #[must_use]
    pub fn why_no_move(&self) -> Option<String> {
        let spoilt = self.why_spoilt(key::SLOTS).or_else(|| self.why_senseless("moves/"));
        spoilt.or_else(|| self.next_move().err())
    }

    /// Why nobody is told how the cluster looks: whose the slots are cannot be read, and that they are nobody's would have servers refuse what they have.
    #[must_use]
    pub fn why_untold(&self) -> Option<String> {
        self.why_spoilt(key::SLOTS)
    }

    /// Why a move can neither go on nor fail: what it is about cannot be read.
    #[must_use]
    pub fn why_stands_still(&self, one: &Move) -> Option<String> {
        let spoilt = [one.from, one.to].into_iter().find_map(|shard| self.why_spoilt(&key::shard(shard)));
        self.why_spoilt(key::SLOTS).or(spoilt).filter(|_| is_unfinished(one))
    }

    /// Why no shard can begin; None: one can.
    #[must_use]
    pub fn why_no_shard(&self) -> Option<String> {
        ["servers/", "shards/", "numbers/"].into_iter().find_map(|kind| self.why_senseless(kind))
    }
}

/// What tells of a key that is not there.
const MISSING: &str = ", and no";
