//! BEXISTS: which of some keys is there, and waiting for one. Tarn's own: by it a proxy waits for keys of several servers, and takes from none before it knows where
//! there is something.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::key_use::LOOKS;
use crate::parse::timeout;
use crate::row::Handler::BlockingRead;
use crate::row::{Flags, Group, Keys, Outcome, Row, row};
use crate::wait::{Null, Wait};
use keyspace::{TypeName, View};
use wire::Reply;

/// Rows of this file.
pub const ROWS: &[Row] = &[row("bexists", -4, BlockingRead(bexists))
    .flags(Flags::BLOCKING.union(Flags::NO_TOUCH))
    .keys(Keys::Range { first: FIRST, last: -1, step: 1 })
    .group(Group::Generic)
    .since("7.0.0")
    .complexity("O(N) in the number of keys.")
    .syntax("<LIST | ZSET> <NOWAIT | timeout> key [key ...]")
    .key_flags(&[LOOKS])
    .summary("Tells the first of the keys that is there, waiting for one that holds a list, or a sorted set, if none is.")];

/// The position of the first key.
const FIRST: usize = 3;

/// BEXISTS <LIST | ZSET> <NOWAIT | timeout> key [key ...]. One that holds something else counts as well, as in the commands that wait for keys: they say what is
/// wrong with it.
fn bexists(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let wants = match () {
        () if args.is(1, "LIST") => TypeName::List,
        () if args.is(1, "ZSET") => TypeName::Zset,
        () => return Err(Error::Syntax),
    };
    let until = if args.is(2, "NOWAIT") { None } else { Some(timeout(args.bytes(2), args.now)?) };
    let keys = FIRST..args.len();
    let is_there = |position: &usize| {
        let key = args.key(*position);
        view.reaches(&key) && view.peek(&key).is_some()
    };
    let (found, null) = (keys.clone().find(is_there), Null::Value);
    match (found, until) {
        (Some(position), _) => reply.bulk(args.bytes(position)),
        (None, None) => null.write(reply),
        (None, Some(until)) => {
            return Ok(Outcome::Blocked(Box::new(Wait {
                keys: keys.collect(),
                wants,
                also_when_gone: false,
                until,
                null,
                rewritten: Vec::new(),
            })));
        }
    }
    Ok(Outcome::Unchanged)
}
