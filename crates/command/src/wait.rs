//! What a command says that has to wait for a key: BLPOP on an empty list.
//!
//! The handler writes nothing and returns [`Outcome::Blocked`](crate::Outcome); `execute`
//! queues the session up before it unlocks the keys. When one of them changes, the same
//! request is run again from its beginning, as in Redis 7.2.

use crate::args::Args;
use keyspace::{Key, Ticket, TypeName};
use smallvec::SmallVec;
use sys::UnixMs;
use wire::Reply;

/// How long a session waits, for what, and what it gets if nothing comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The positions of the keys it waits for.
    pub keys: SmallVec<[usize; 4]>,
    /// The type of value that ends the wait.
    pub wants: TypeName,
    /// Whether it also ends when a key goes away or changes its type.
    pub also_when_gone: bool,
    /// When it ends at the latest. None: it lasts.
    pub until: Option<UnixMs>,
    /// The reply at that moment.
    pub null: Null,
    /// Words to be taken in place of the request's when it is run again: what they
    /// meant when the wait began (`$` of XREAD).
    pub rewritten: Vec<(usize, Vec<u8>)>,
}

/// The two nulls of RESP2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Null {
    /// `*-1`.
    Array,
    /// `$-1`.
    Value,
}

impl Null {
    /// Replies with it.
    pub fn write(self, reply: &mut Reply<'_>) {
        match self {
            Null::Array => reply.null_array(),
            Null::Value => reply.null(),
        }
    }
}

/// Whether a request may make its session wait.
#[derive(Clone, Copy)]
pub enum Waiting<'a> {
    /// It may not: it is part of a transaction or of a script.
    Never,
    /// Its session waits already; this is another try.
    Already,
    /// It may.
    Begins(&'a dyn Sessions),
}

/// The owner of the sessions that wait.
pub trait Sessions {
    /// The ticket of the session that is to wait.
    fn ticket(&self) -> Ticket;

    /// Notes that the session begins to wait: it is in the queues of these keys, whose slots are still locked. From now on
    /// its wait can be ended, and then it leaves those queues.
    fn begin_wait(&self, wait: &Wait, args: &Args<'_>, keys: &[Key<'_>]);
}
