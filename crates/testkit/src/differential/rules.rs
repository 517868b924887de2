//! All that excuses a difference, each with its reason: one table of rules, one of
//! requests that are never sent, one of commands that are never generated.
//!
//! Where Redis 7.0 and Valkey 8.0 differ, a rule says which of them answers as
//! Redis 7.2 does, for that is what Tarn must do.

use super::Answer;
use super::patience::{blocks_long, waits_long};
use crate::client::decode;
use crate::generate::Request;
use wire::Value;

/// The server that answers as Redis 7.2 does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Redis 7.0.
    Redis,
    /// Valkey 8.0.
    Valkey,
    /// Neither need be: 7.2 stands between them.
    Either,
}

/// How replies to a command are compared when they are not the same bytes.
#[derive(Clone, Copy, Debug)]
pub enum How {
    /// The elements of an aggregate, in any order.
    Unordered,
    /// The same, with what is inside of the elements in any order too.
    Nested,
    /// A script may show the order of members that are the same up to a byte 0, see `ties`; else it must be as at one real server.
    TiesAtZero,
    /// Numbers that are not negative may lie this far apart.
    Within(i64),
    /// When a key expires, in a unit of which a second has so many: servers set it at slightly different moments. The capacity edition
    /// holds a write up for ten seconds before it takes memory for full.
    Expiry(i64),
    /// The same kind of reply.
    Shape,
    /// A cursor and elements in any order; the elements count only where one call went through everything.
    Scan,
    /// A string, but for its last bytes.
    WithoutTail(usize),
    /// DUMP payloads of collections, whatever is in them.
    CollectionPayload,
    /// Moments in milliseconds, ids made of them, and times since, may lie some seconds apart.
    Moments,
    /// The payload of a stream: 7.2's has a type of its own, and all hold moments.
    StreamPayload,
    /// Where all real servers answer with this, which may come from an earlier request, the stream is given up.
    Stale(&'static str),
    /// Each contains one of these.
    Either(&'static str, &'static str),
    /// Where the real servers write the same numbers with more or with fewer digits, the second is right.
    ShorterNumbers,
    /// Where both write the same numbers with more digits than they need, fewer are right.
    FewerDigits,
    /// Where the real servers differ in words that Valkey 8 has changed, or in digits, see `wording`.
    Wording,
    /// Where one of the real servers has served who waited and the other has not, or with something else, Valkey is right.
    Served,
    /// Messages that hold this are as Valkey has them, where without them the real servers are the same.
    Tells(&'static str),
    /// Where the real servers differ and the parts of their replies named here occur, this one is right.
    Right(Side, &'static str, &'static str),
    /// The same, and they hold different things from then on, so that the stream is given up.
    Parts(Side, &'static str, &'static str),
}

/// One excuse.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// A command, lower case, with its subcommand after a bar; `*` stands for any.
    pub command: &'static str,
    /// What it excuses.
    pub how: How,
    /// Why that is right.
    pub reason: &'static str,
}

const fn rule(command: &'static str, how: How, reason: &'static str) -> Rule {
    Rule { command, how, reason }
}

/// Why groups have more consumers in Valkey than in Redis 7.0.
const CLAIMANTS: &str =
    "since Redis 7.2 a claim, or a read that waits, makes its consumer also when it gets nothing";

/// Why who waited may be told otherwise in Redis 7.0.
const RUN_AGAIN: &str = "who waited has its request run again since Redis 7.2";

/// Why another one of several libraries or functions may be named.
const CONFLICTS: &str =
    "which of several that are there already is found first follows each server's own table";

/// Why scripts' replies differ between real servers.
const WORDS: &str =
    "Valkey 8 speaks of itself in other words, and numbers have no more digits than they need since 7.2";

/// Why sorted members of a set may have changed places in a script's reply.
const TIES_AT_ZERO: &str = "SORT in scripts compares up to the first byte 0, and what is equal so far comes by the order of each server's own table";

/// Why one who waits for several keys may be served from another than the first.
const ALL_READY: &str =
    "SWAPDB makes keys ready in the order of the server's own table of those that are waited for";

/// Why a broken HyperLogLog is taken by Valkey.
const OVERFULL: &str = "registers behind the last one are refused by Redis 7.2.10, and by 7.0 as it is packaged, but not by Valkey 8.0.1";

/// Why an empty score is refused now and then.
const STALE_ERROR: &str =
    "a number out of range in an earlier request may still count as SORT's own error (errno)";

/// Why a transaction with a MULTI or a WATCH inside goes on.
const NESTED: &str = "what may not be in a transaction only gives it up since Valkey 8.0";

/// The rules.
pub const RULES: &[Rule] = &[
    rule("multi", How::Right(Side::Redis, "can not be nested", "inside a transaction"), NESTED),
    rule("watch", How::Right(Side::Redis, "inside MULTI is not allowed", "inside a transaction"), NESTED),
    rule("exec", How::Right(Side::Redis, "", "EXECABORT"), NESTED),
    rule("pfmerge", How::Parts(Side::Redis, "INVALIDOBJ", "OK"), OVERFULL),
    rule("pfcount", How::Parts(Side::Redis, "INVALIDOBJ", ":"), OVERFULL),
    rule("pfadd", How::Parts(Side::Redis, "INVALIDOBJ", ":"), OVERFULL),
    // It looks for its keys again, and says so where one is missing.
    rule("*", How::Tells("keymiss\r\n"), RUN_AGAIN),
    // In Redis 7.0 only once there is something for it.
    rule("*", How::Tells("xgroup-createconsumer\r\n"), CLAIMANTS),
    rule("blpop", How::Right(Side::Either, "*", "*"), ALL_READY),
    rule("brpop", How::Right(Side::Either, "*", "*"), ALL_READY),
    rule("blmpop", How::Right(Side::Either, "*", "*"), ALL_READY),
    rule("bzpopmin", How::Right(Side::Either, "*", "*"), ALL_READY),
    rule("bzpopmax", How::Right(Side::Either, "*", "*"), ALL_READY),
    rule("bzmpop", How::Right(Side::Either, "*", "*"), ALL_READY),
    rule("function|load", How::Either("Function f", "Function f"), CONFLICTS),
    rule("function|restore", How::Either("already exists", "already exists"), CONFLICTS),
    rule("eval", How::Wording, WORDS),
    rule("eval", How::TiesAtZero, TIES_AT_ZERO),
    rule("eval_ro", How::Wording, WORDS),
    rule("eval_ro", How::TiesAtZero, TIES_AT_ZERO),
    rule("evalsha", How::Wording, WORDS),
    rule("evalsha", How::TiesAtZero, TIES_AT_ZERO),
    rule("evalsha_ro", How::Wording, WORDS),
    rule("evalsha_ro", How::TiesAtZero, TIES_AT_ZERO),
    rule("fcall", How::Wording, WORDS),
    rule("fcall", How::TiesAtZero, TIES_AT_ZERO),
    rule("fcall_ro", How::Wording, WORDS),
    rule("fcall_ro", How::TiesAtZero, TIES_AT_ZERO),
    rule("function|load", How::Wording, WORDS),
    rule("function|restore", How::Wording, WORDS),
    rule("script|load", How::Wording, WORDS),
    rule(
        "function|list",
        How::Nested,
        "libraries and functions come in the order of each server's own table",
    ),
    rule("function|dump", How::Shape, "in the order of each server's own table; RESTORE is compared"),
    rule("scan", How::Right(Side::Redis, "", ""), "cursors and types are parsed more strictly since 8.0"),
    rule("object|refcount", How::Shape, "small integers are shared in Redis, unless they were copied"),
    rule("bitcount", How::Right(Side::Redis, "", ""), "arguments are looked at before the key since 8.0"),
    rule("bitpos", How::Right(Side::Redis, "", ""), "arguments are looked at before the key since 8.0"),
    rule("*|help", How::Shape, "help is in words of Tarn's own"),
    rule("hello", How::Shape, "names the server, its version and the connection"),
    rule("info", How::Shape, "each server's own"),
    rule("time", How::Shape, "the moment"),
    rule("lastsave", How::Shape, "the moment"),
    rule("lolwut", How::Shape, "each server draws its own"),
    rule("memory|usage", How::Shape, "each server's own sizes"),
    rule(
        "memory|usage",
        How::Right(Side::Valkey, ":", "$-1"),
        "Redis shows a key whose time is up until it is freed",
    ),
    rule(
        "memory|usage",
        How::Right(Side::Valkey, ":", "_"),
        "Redis shows a key whose time is up until it is freed",
    ),
    rule("memory|stats", How::Shape, "each server's own sizes"),
    rule("memory|doctor", How::Shape, "in words of Tarn's own"),
    rule("memory|malloc-stats", How::Shape, "each allocator's own"),
    rule("client|id", How::Shape, "each server counts its own connections"),
    rule("client|info", How::Shape, "numbers, addresses and times of each server's own"),
    rule("client|list", How::Shape, "numbers, addresses and times of each server's own"),
    rule("client|no-touch", How::Right(Side::Valkey, "unknown subcommand", ""), "new in Redis 7.2"),
    rule("client|setinfo", How::Right(Side::Valkey, "unknown subcommand", ""), "new in Redis 7.2"),
    rule(
        "config|set",
        How::Right(Side::Valkey, "warning\r\n", "nothing\r\n"),
        "`loglevel nothing` is new in Redis 7.2",
    ),
    rule(
        "config|set",
        How::Right(Side::Redis, "2147483647", "between 1 and 64"),
        "maxmemory-samples is limited since 8.0",
    ),
    rule("slowlog|len", How::Within(50), "commands new in Redis 7.2 are errors in 7.0, which are not logged"),
    rule("command|getkeys", How::Right(Side::Valkey, "wrong number", ""), "takes a command alone since 7.2"),
    rule(
        "command|getkeys",
        How::Right(Side::Valkey, "Invalid command", "no key"),
        "a command new in Redis 7.2",
    ),
    rule(
        "command|getkeysandflags",
        How::Right(Side::Valkey, "Invalid command", "no key"),
        "a command new in Redis 7.2",
    ),
    rule(
        "command|getkeysandflags",
        How::Right(Side::Valkey, "wrong number", ""),
        "takes a command alone since 7.2",
    ),
    rule("command|count", How::Shape, "a real server has more commands"),
    rule("command|list", How::Shape, "a real server has more commands"),
    rule("config|get", How::Unordered, "directives come in the order of each server's own table"),
    rule("slowlog|get", How::Shape, "measured times and addresses"),
    rule("latency|doctor", How::Shape, "in words of Tarn's own"),
    rule("latency|histogram", How::Shape, "measured times"),
    rule("keys", How::Unordered, "keys come in the order of each server's own table"),
    rule("smembers", How::Unordered, "members come in the order of each server's own table"),
    rule("sinter", How::Unordered, "members come in the order of each server's own table"),
    rule("sunion", How::Unordered, "members come in the order of each server's own table"),
    rule("sdiff", How::Unordered, "members come in the order of each server's own table"),
    rule("spop", How::Unordered, "members come in the order of each server's own table"),
    rule("srandmember", How::Shape, "random within a transaction; otherwise see `picks`"),
    rule("hrandfield", How::Shape, "random within a transaction; otherwise see `picks`"),
    rule("zrandmember", How::Shape, "random within a transaction; otherwise see `picks`"),
    rule("sscan", How::Scan, "cursors and their order are each server's own"),
    rule(
        "sscan",
        How::Right(Side::Redis, "", "invalid cursor"),
        "cursors are parsed more strictly since 8.0",
    ),
    rule("sscan", How::Right(Side::Redis, "invalid cursor", ""), "options are looked at first since 8.0"),
    rule("sort", How::Right(Side::Valkey, "*", "*"), "small sets have an order since Redis 7.2"),
    rule("sort_ro", How::Right(Side::Valkey, "*", "*"), "small sets have an order since Redis 7.2"),
    rule("sort", How::Right(Side::Redis, "", "can't be converted into double"), STALE_ERROR),
    rule("sort", How::Right(Side::Valkey, "can't be converted into double", ""), STALE_ERROR),
    rule("sort", How::Stale("can't be converted into double"), STALE_ERROR),
    rule("sort_ro", How::Stale("can't be converted into double"), STALE_ERROR),
    rule("sort_ro", How::Right(Side::Redis, "", "can't be converted into double"), STALE_ERROR),
    rule("sort_ro", How::Right(Side::Valkey, "can't be converted into double", ""), STALE_ERROR),
    rule(
        "object|encoding",
        How::Right(Side::Valkey, "hashtable", "listpack"),
        "small sets are listpacks since Redis 7.2",
    ),
    rule(
        "object|encoding",
        How::Right(Side::Valkey, "intset", "listpack"),
        "a set made of what is left of another is an intset again up to Redis 7.0",
    ),
    rule(
        "object|encoding",
        How::Right(Side::Valkey, "intset", "hashtable"),
        "SADD goes by how many members it is given, though some are the same, since Redis 7.2",
    ),
    rule(
        "object|encoding",
        How::Either("listpack", "skiplist"),
        "SORT leaves sorted sets in another encoding in Redis; cases hold when they change by themselves",
    ),
    rule("object|encoding", How::Right(Side::Valkey, "quicklist", "listpack"), "new for lists in Redis 7.2"),
    rule(
        "object|encoding",
        How::Right(Side::Valkey, "listpack", "hashtable"),
        "HSET goes by how many fields it is given, though some are the same, since Redis 7.2",
    ),
    rule("hkeys", How::Unordered, "fields come in the order of each server's own table"),
    rule("hvals", How::Unordered, "fields come in the order of each server's own table"),
    rule("hscan", How::Scan, "cursors and their order are each server's own"),
    rule(
        "hscan",
        How::Right(Side::Redis, "", "invalid cursor"),
        "cursors are parsed more strictly since 8.0",
    ),
    rule("hscan", How::Right(Side::Redis, "invalid cursor", ""), "options are looked at first since 8.0"),
    rule("zscan", How::Scan, "cursors and their order are each server's own"),
    rule(
        "zscan",
        How::Right(Side::Redis, "", "invalid cursor"),
        "cursors are parsed more strictly since 8.0",
    ),
    rule("zscan", How::Right(Side::Redis, "invalid cursor", ""), "options are looked at first since 8.0"),
    rule(
        "*",
        How::Right(Side::Valkey, "timeout is negative", "timeout is out of range"),
        "huge timeouts overflow before Redis 7.2",
    ),
    rule("zrank", How::Right(Side::Valkey, "wrong number", ""), "WITHSCORE is new in Redis 7.2"),
    rule("zrevrank", How::Right(Side::Valkey, "wrong number", ""), "WITHSCORE is new in Redis 7.2"),
    rule("lpos", How::Right(Side::Valkey, "", "value is out of range"), "checked since Redis 7.2"),
    rule(
        "command|getkeys",
        How::Right(Side::Valkey, "Invalid number", ""),
        "ZRANK takes more since Redis 7.2",
    ),
    rule(
        "command|getkeysandflags",
        How::Right(Side::Either, "+RW", "+OW"),
        "SINTERSTORE was said to read its destination before",
    ),
    rule(
        "command|getkeysandflags",
        How::Right(Side::Valkey, "Invalid number", ""),
        "ZRANK takes more since Redis 7.2",
    ),
    rule("blpop", How::Right(Side::Valkey, "", "WRONGTYPE"), RUN_AGAIN),
    rule("blpop", How::Served, RUN_AGAIN),
    rule("brpop", How::Right(Side::Valkey, "", "WRONGTYPE"), RUN_AGAIN),
    rule("brpop", How::Served, RUN_AGAIN),
    rule("blmpop", How::Right(Side::Valkey, "", "WRONGTYPE"), RUN_AGAIN),
    rule("blmpop", How::Served, RUN_AGAIN),
    rule("bzpopmin", How::Right(Side::Valkey, "", "WRONGTYPE"), RUN_AGAIN),
    rule("bzpopmin", How::Served, RUN_AGAIN),
    rule("bzpopmax", How::Right(Side::Valkey, "", "WRONGTYPE"), RUN_AGAIN),
    rule("bzpopmax", How::Served, RUN_AGAIN),
    rule("bzmpop", How::Right(Side::Valkey, "", "WRONGTYPE"), RUN_AGAIN),
    rule("bzmpop", How::Served, RUN_AGAIN),
    rule("blmove", How::Served, RUN_AGAIN),
    rule("brpoplpush", How::Served, RUN_AGAIN),
    rule(
        "*",
        How::Right(Side::Redis, "", "-NOSUB"),
        "who has no subscription may give it up before Valkey 8.0",
    ),
    rule("zscan", How::FewerDigits, "7.0 writes more, and Valkey 8 converts where XX passes by"),
    rule("*", How::ShorterNumbers, "since Redis 7.2 doubles have few digits more than they need, if any"),
    rule(
        "object|encoding",
        How::Right(Side::Either, "listpack", "skiplist"),
        "ZADD goes by how many it is given since Redis 7.2, and by how long they are since 8.0",
    ),
    rule("hgetall", How::Unordered, "fields come in the order of each server's own table"),
    rule(
        "readonly",
        How::Right(Side::Redis, "cluster support disabled", "OK"),
        "taken without a cluster since 8.0",
    ),
    rule(
        "readwrite",
        How::Right(Side::Redis, "cluster support disabled", "OK"),
        "taken without a cluster since 8.0",
    ),
    rule(
        "cluster|myshardid",
        How::Right(Side::Valkey, "unknown subcommand", "cluster support disabled"),
        "new in Redis 7.2",
    ),
    rule("scan", How::Scan, "cursors and their order are each server's own"),
    rule("randomkey", How::Shape, "random"),
    rule("dbsize", How::Shape, "counts keys that are past and not yet removed, which is a matter of luck"),
    rule("ttl", How::Expiry(1), "measured at slightly different moments"),
    rule("pttl", How::Expiry(1_000), "measured at slightly different moments"),
    rule("expiretime", How::Expiry(1), "set at slightly different moments"),
    rule("pexpiretime", How::Expiry(1_000), "set at slightly different moments"),
    rule(
        "object|idletime",
        How::Shape,
        "small integers are shared in Redis, and with them the moment of their last use",
    ),
    rule("object|freq", How::Shape, "a random walk"),
    rule("xadd", How::Moments, "an id may be the present moment"),
    rule("xrange", How::Moments, "ids may be moments"),
    rule("xrevrange", How::Moments, "ids may be moments"),
    rule("xread", How::Moments, "ids may be moments"),
    rule("xread", How::Right(Side::Redis, "Invalid stream ID", ""), "`+` is newer"),
    rule("xread", How::Right(Side::Valkey, "Unbalanced XREAD", "Unbalanced"), "another text since Redis 7.2"),
    rule(
        "xreadgroup",
        How::Right(Side::Valkey, "Unbalanced XREAD", "Unbalanced"),
        "another text since Redis 7.2",
    ),
    rule(
        "xread",
        How::Right(Side::Valkey, "", ""),
        "who waited is shown all streams with something new since Redis 7.2",
    ),
    rule("xreadgroup", How::Right(Side::Valkey, "UNBLOCKED", "NOGROUP"), RUN_AGAIN),
    rule("xreadgroup", How::Right(Side::Valkey, "NOGROUP the consumer group", "NOGROUP No such"), RUN_AGAIN),
    rule("xreadgroup", How::Right(Side::Valkey, "UNBLOCKED", "WRONGTYPE"), RUN_AGAIN),
    // With an event of it, behind which other events are one place later.
    rule("xreadgroup", How::Right(Side::Valkey, "", "__key"), CLAIMANTS),
    // Or one that 7.0 makes later.
    rule("xreadgroup", How::Right(Side::Valkey, "xgroup-createconsumer", ""), CLAIMANTS),
    rule("xreadgroup", How::Right(Side::Redis, "Invalid stream ID", ""), "`+` is newer"),
    rule("xreadgroup", How::Moments, "ids may be moments"),
    rule("xclaim", How::Moments, "ids may be moments"),
    rule("xautoclaim", How::Moments, "ids may be moments"),
    rule("xpending", How::Moments, "ids may be moments, and idle times are measured"),
    rule(
        "xinfo|stream",
        How::Right(Side::Valkey, "pel-count", "pel-count"),
        "consumers have more since Redis 7.2",
    ),
    rule("xinfo|stream", How::Moments, "ids may be moments, and moments are told"),
    rule("xinfo|groups", How::Moments, "ids may be moments"),
    rule("xinfo|groups", How::Right(Side::Valkey, "", ""), CLAIMANTS),
    rule("xinfo|consumers", How::Right(Side::Valkey, "", ""), CLAIMANTS),
    rule("xgroup|createconsumer", How::Right(Side::Valkey, ":1", ":0"), CLAIMANTS),
    rule("xinfo|consumers", How::Moments, "idle times are measured"),
    rule(
        "xsetid",
        How::Parts(Side::Valkey, "OK", "smaller than current"),
        "checked for empty streams too since Redis 7.2",
    ),
    rule(
        "xsetid",
        How::Right(Side::Valkey, "target stream top item", "smaller than current"),
        "the deleted id is looked at first since Redis 7.2",
    ),
    rule("dump", How::StreamPayload, "moments of deliveries, and 7.2's own type"),
    rule("dump", How::WithoutTail(10), "the format's version, 11 since Redis 7.2, and the checksum over it"),
    rule(
        "dump",
        How::CollectionPayload,
        "encodings newer than Redis 7.0 are not written; RESTORE is compared",
    ),
];

/// Commands that are not generated, with the reason.
pub const SKIPPED: &[(&str, &str)] = &[
    ("shutdown", "ends the server"),
    ("debug", "not part of what clients may rely on; DEBUG SLEEP stalls"),
    ("monitor", "turns the connection into a stream"),
    ("sync", "turns the connection into a stream"),
    ("eval", "random words are no scripts; streams of their own have generated ones"),
    ("eval_ro", "random words are no scripts; streams of their own have generated ones"),
    ("evalsha", "random words are no scripts; streams of their own have generated ones"),
    ("evalsha_ro", "random words are no scripts; streams of their own have generated ones"),
    ("fcall", "random words are no scripts; streams of their own have generated ones"),
    ("fcall_ro", "random words are no scripts; streams of their own have generated ones"),
    ("function", "random words are no scripts; streams of their own have generated ones"),
    ("script", "random words are no scripts; streams of their own have generated ones"),
    ("cluster", "about each server's own node; compared by the cases"),
    ("psync", "turns the connection into a stream"),
    ("replconf", "part of replication's handshake"),
    ("replicaof", "turns the server into a replica"),
    ("slaveof", "turns the server into a replica"),
    ("failover", "needs a replica"),
    ("insync", "Tarn's own, between nodes of a shard"),
    ("slotmove", "Tarn's own, between masters of a cluster"),
    ("wait", "blocks; there is no replica to wait for"),
    ("waitaof", "blocks; there is no replica to wait for"),
    ("migrate", "needs another server"),
    ("subscribe", "several replies to one request"),
    ("psubscribe", "several replies to one request"),
    ("ssubscribe", "several replies to one request"),
    ("unsubscribe", "several replies to one request"),
    ("punsubscribe", "several replies to one request"),
    ("sunsubscribe", "several replies to one request"),
    ("client|tracking", "messages come between the replies"),
    ("role", "replication's offset moves on its own"),
    ("quit", "closing races with replies still to be read"),
    ("save", "writes files; tested with durability"),
    ("bgsave", "writes files; tested with durability"),
    ("bgrewriteaof", "writes files; tested with durability"),
    ("module", "Tarn has none"),
    ("config|rewrite", "writes files; tested with the configuration"),
    ("acl", "users outlive a stream; rules have a tester of their own, `tests/acl.rs`"),
    ("command|info", "a real server has more commands; compared row by row by `rows_are_as_redis_has_them`"),
    ("command|docs", "summaries are Tarn's own; compared by the cases"),
    (
        "client|kill",
        "closes connections by numbers and addresses of each server's own; compared by the cases",
    ),
    ("client|pause", "stalls; compared by the cases"),
    ("client|reply", "no replies to be compared; compared by the cases"),
    ("restore-asking", "part of a cluster"),
    ("bexists", "Tarn's own; compared through a proxy"),
    ("delifeq", "newer than both real servers; compared by the cases"),
    ("msetex", "newer than both real servers; compared by the cases"),
    ("hexpire", "newer than both real servers; compared by the cases"),
    ("hexpireat", "newer than both real servers; compared by the cases"),
    ("hexpiretime", "newer than both real servers; compared by the cases"),
    ("hgetdel", "newer than both real servers; compared by the cases"),
    ("hgetex", "newer than both real servers; compared by the cases"),
    ("hpersist", "newer than both real servers; compared by the cases"),
    ("hpexpire", "newer than both real servers; compared by the cases"),
    ("hpexpireat", "newer than both real servers; compared by the cases"),
    ("hpexpiretime", "newer than both real servers; compared by the cases"),
    ("hpttl", "newer than both real servers; compared by the cases"),
    ("hsetex", "newer than both real servers; compared by the cases"),
    ("httl", "newer than both real servers; compared by the cases"),
    ("pfdebug", "not part of what clients may rely on"),
    ("pfselftest", "not part of what clients may rely on"),
];

/// A predicate over a request of the named command, and why such requests are never sent.
type Avoided = (&'static str, fn(&Request) -> bool, &'static str);

/// Why searches for the nearest few are not sent; the cases have some.
const TIES: &str = "of members at one distance, real servers pick by the accidents of an unstable sort";

/// Why no range begins before its first member.
const BACKWARD: &str = "a negative offset leaves nothing; since Valkey 8.0 it leaves something";

/// Requests that are not sent.
const AVOIDED: &[Avoided] = &[
    ("auth", names_a_stranger, "Valkey 8.0 sends no reply to a failed one in a pipeline"),
    ("hello", names_a_stranger, "Valkey 8.0 sends no reply to a failed one in a pipeline"),
    ("client", has_zero_byte, "since 7.2 a name ends at its zero byte; Tarn refuses it, as 7.0 does"),
    ("hello", has_zero_byte, "since 7.2 a name ends at its zero byte; Tarn refuses it, as 7.0 does"),
    ("hello", may_name_and_fail, "the name stays before Redis 7.2"),
    ("config", gets_all, "each server has directives of its own"),
    ("command", |request| request.len() == 1, "a real server has more commands"),
    ("bitcount", |request| request.len() == 3, "in Valkey 8 the end may be left out"),
    ("expire", |request| is_soon(request.get(2), 1_000), "would expire while the stream is played"),
    ("pexpire", |request| is_soon(request.get(2), 1), "would expire while the stream is played"),
    ("setex", |request| is_soon(request.get(2), 1_000), "would expire while the stream is played"),
    ("psetex", |request| is_soon(request.get(2), 1), "would expire while the stream is played"),
    ("restore", |request| is_soon(request.get(2), 1), "would expire while the stream is played"),
    ("restore", |request| overflows(request.get(2)), "the sum with the present overflows in real servers"),
    ("srandmember", wants_many, "real servers would go on for hours"),
    ("hrandfield", wants_many, "real servers would go on for hours"),
    ("hscan", has_novalues, "newer than Redis 7.0; compared by the cases"),
    (
        "lrem",
        |request| number(request.get(2)) == Some(i64::MIN),
        "refused by Valkey 8.0, done by Redis; compared by the cases",
    ),
    ("xsetid", sets_back, "7.0 looks at other ids than 7.2, and sets it"),
    ("lset", |request| number(request.get(2)).is_some_and(is_wide), "indexes have 32 bits in Valkey 8.0"),
    ("command", asks_of_one_merged, "real servers name no key where one of two groups of keys is empty"),
    ("command", asks_of_two_stores, "real servers name the first key, and write the last"),
    ("blpop", blocks_long, "nobody would end the wait"),
    ("brpop", blocks_long, "nobody would end the wait"),
    ("blmove", blocks_long, "nobody would end the wait"),
    ("brpoplpush", blocks_long, "nobody would end the wait"),
    ("blmpop", blocks_long, "nobody would end the wait"),
    ("bzpopmin", blocks_long, "nobody would end the wait"),
    ("bzpopmax", blocks_long, "nobody would end the wait"),
    ("bzmpop", blocks_long, "nobody would end the wait"),
    ("bexists", blocks_long, "nobody would end the wait"),
    ("xread", waits_long, "nobody would end the wait"),
    ("xreadgroup", waits_long, "nobody would end the wait"),
    ("zrange", skips_backward, BACKWARD),
    ("zrangestore", skips_backward, BACKWARD),
    ("zrangebyscore", skips_backward, BACKWARD),
    ("zrevrangebyscore", skips_backward, BACKWARD),
    ("zrangebylex", skips_backward, BACKWARD),
    ("zrevrangebylex", skips_backward, BACKWARD),
    ("sort", stores_ties, "small sets have an order since Redis 7.2, which equal weights keep"),
    (
        "zadd",
        is_long_behind_minus_zero,
        "Valkey 8.0 looks at the longest member before it packs a set, 7.2 at the first",
    ),
    ("zrandmember", wants_many, "real servers would go on for hours"),
    ("georadius", has_count, TIES),
    ("georadius_ro", has_count, TIES),
    ("georadiusbymember", has_count, TIES),
    ("georadiusbymember_ro", has_count, TIES),
    ("geosearch", has_count, TIES),
    ("geosearchstore", has_count, TIES),
    ("set", has_ifeq, "newer than both real servers; compared by the cases"),
    ("set", has_soon_option, "would expire while the stream is played"),
    ("getex", has_soon_option, "would expire while the stream is played"),
];

/// Times to live below this may run out, or come close, while a stream is played.
const SOON_MS: i64 = 100_000;

/// Whether a word is a positive time to live, in units of `unit_ms`, that is not far.
fn is_soon(word: Option<&Vec<u8>>, unit_ms: i64) -> bool {
    let number =
        word.and_then(|word| std::str::from_utf8(word).ok()).and_then(|text| text.parse::<i64>().ok());
    number.is_some_and(|number| number > 0 && number.saturating_mul(unit_ms) < SOON_MS)
}

/// Whether CONFIG GET asks for everything.
fn gets_all(request: &Request) -> bool {
    request.iter().skip(2).any(|word| !word.is_empty() && word.iter().all(|byte| *byte == b'*'))
}

/// Whether a score of -0 stands in front of a member that is too long for a packed set.
fn is_long_behind_minus_zero(request: &Request) -> bool {
    let zero = request.iter().position(|word| word.as_slice() == b"-0");
    zero.is_some_and(|at| request[at..].iter().any(|word| word.len() > 64))
}

fn has_zero_byte(request: &Request) -> bool {
    request.iter().any(|word| word.contains(&0))
}

/// Whether a HELLO gives a name and then something else.
fn may_name_and_fail(request: &Request) -> bool {
    let name_at = request.iter().position(|word| word.eq_ignore_ascii_case(b"setname"));
    name_at.is_some_and(|at| at + 2 != request.len())
}

/// Whether a user is named who does not exist.
fn names_a_stranger(request: &Request) -> bool {
    request.windows(3).any(|words| words[0].eq_ignore_ascii_case(b"auth") && words[1] != b"default")
}

/// Whether the present moment and this many milliseconds make more than 63 bits.
fn overflows(word: Option<&Vec<u8>>) -> bool {
    const HIGHEST_MS: i64 = i64::MAX - (1 << 48);
    let number = word.and_then(|word| std::str::from_utf8(word).ok()?.parse::<i64>().ok());
    number.is_some_and(|number| number > HIGHEST_MS)
}

/// Whether the id may be smaller than one that has been added.
fn sets_back(request: &Request) -> bool {
    request.get(2).is_some_and(|id| !id.starts_with(b"5-"))
}

fn is_wide(number: i64) -> bool {
    i32::try_from(number).is_err()
}

/// Whether the keys of a PFMERGE of one key are asked for.
fn asks_of_one_merged(request: &Request) -> bool {
    request.len() == 4 && request[2].eq_ignore_ascii_case(b"pfmerge")
}

/// Whether a SORT by weights, which may be equal, stores what it gets.
fn stores_ties(request: &Request) -> bool {
    let has = |option: &[u8]| request.iter().skip(2).any(|word| word.eq_ignore_ascii_case(option));
    has(b"by") && has(b"store")
}

/// Whether the keys of a GEORADIUS are asked for that says more than once where its result goes.
fn asks_of_two_stores(request: &Request) -> bool {
    let is_store =
        |word: &&Vec<u8>| word.eq_ignore_ascii_case(b"store") || word.eq_ignore_ascii_case(b"storedist");
    let is_search = |word: &Vec<u8>| word.to_ascii_lowercase().starts_with(b"georadius");
    request.get(2).is_some_and(is_search) && request.iter().filter(is_store).count() > 1
}

fn has_novalues(request: &Request) -> bool {
    request.iter().any(|word| word.eq_ignore_ascii_case(b"novalues"))
}

/// Whether a negative count asks for more than a real server can answer in time.
fn wants_many(request: &Request) -> bool {
    const PICKS_MAX: i64 = 10_000;
    number(request.get(2)).is_some_and(|count| count < -PICKS_MAX && count > i64::MIN)
}

fn number(word: Option<&Vec<u8>>) -> Option<i64> {
    word.and_then(|word| std::str::from_utf8(word).ok()?.parse().ok())
}

fn skips_backward(request: &Request) -> bool {
    let is_negative = |word: &Vec<u8>| word.first() == Some(&b'-');
    request.windows(2).any(|pair| pair[0].eq_ignore_ascii_case(b"limit") && is_negative(&pair[1]))
}

fn has_count(request: &Request) -> bool {
    request.iter().any(|word| word.eq_ignore_ascii_case(b"count"))
}

fn has_ifeq(request: &Request) -> bool {
    request.iter().any(|word| word.eq_ignore_ascii_case(b"ifeq"))
}

fn has_soon_option(request: &Request) -> bool {
    request.windows(2).any(|pair| {
        let option = pair[0].to_ascii_lowercase();
        (option == b"ex" && is_soon(Some(&pair[1]), 1_000)) || (option == b"px" && is_soon(Some(&pair[1]), 1))
    })
}

/// Whether Redis 7.0 refuses a request that is newer. In a transaction it would give up the transaction too.
pub fn is_newer(request: &Request) -> bool {
    let has_word = |word: &[u8]| request.iter().skip(1).any(|other| other.eq_ignore_ascii_case(word));
    match name_of(request).as_str() {
        "zrank" | "zrevrank" => request.len() > 3,
        "client" => has_word(b"no-touch") || has_word(b"setinfo"),
        "command" => true,
        _ => false,
    }
}

/// Whether a row's commands are generated.
pub fn is_generated(name: &str) -> bool {
    let container = name.split('|').next().unwrap_or(name);
    !SKIPPED.iter().any(|(skipped, _)| *skipped == name || *skipped == container)
}

/// Whether a request may be sent.
pub fn is_allowed(request: &Request) -> bool {
    let name = name_of(request);
    !AVOIDED.iter().any(|(command, is_avoided, _)| *command == name && is_avoided(request))
}

/// The rules for a request.
pub fn for_request(request: &Request) -> impl Iterator<Item = &'static Rule> {
    let name = name_of(request);
    let sub = request.get(1).map(|word| lower(word)).unwrap_or_default();
    RULES.iter().filter(move |rule| match rule.command.split_once('|') {
        Some((container, wanted)) => wanted == sub && (container == "*" || container == name),
        None => rule.command == "*" || rule.command == name,
    })
}

/// Which of two real servers that differ is right, if a rule says so.
pub fn right_side(request: &Request, redis: &Answer, valkey: &Answer) -> Option<Side> {
    for_request(request).find_map(|rule| match rule.how {
        How::Right(side, in_redis, in_valkey) | How::Parts(side, in_redis, in_valkey)
            if contains(redis, in_redis) && contains(valkey, in_valkey) =>
        {
            Some(side)
        }
        How::ShorterNumbers => are_same_numbers(redis, valkey).then_some(Side::Valkey),
        How::Served => [redis, valkey].iter().all(|answer| !is_error(answer)).then_some(Side::Valkey),
        _ => None,
    })
}

/// Whether two real servers that differ hold different things from then on, as a rule says.
pub fn have_parted(request: &Request, redis: &Answer, valkey: &Answer) -> bool {
    for_request(request).any(|rule| matches!(rule.how, How::Parts(_, in_redis, in_valkey) if contains(redis, in_redis) && contains(valkey, in_valkey)))
}

/// Whether an answer of all real servers may have more digits than it should, as a rule says.
pub fn may_have_fewer_digits(request: &Request) -> bool {
    for_request(request).any(|rule| matches!(rule.how, How::FewerDigits))
}

/// Whether an answer of all real servers may have its reason in an earlier request, as a rule says.
pub fn may_be_stale(request: &Request, answer: &Answer) -> bool {
    for_request(request).any(|rule| matches!(rule.how, How::Stale(part) if contains(answer, part)))
}

/// Whether a message is as Valkey has it, by a rule for this request.
pub fn is_as_valkey_has_it(request: &Request, message: &[u8]) -> bool {
    for_request(request).any(|rule| matches!(rule.how, How::Tells(part) if has_part(message, part)))
}

fn is_error(answer: &Answer) -> bool {
    answer.as_ref().is_some_and(|reply| reply.starts_with(b"-"))
}

/// Whether two answers differ in nothing but how numbers are written.
pub fn are_same_numbers(a: &Answer, b: &Answer) -> bool {
    fn are_same(a: &Value, b: &Value) -> bool {
        let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<f64>().ok();
        match (a, b) {
            (Value::Array(a), Value::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| are_same(a, b))
            }
            (Value::Bulk(a), Value::Bulk(b)) => a == b || number(a).is_some_and(|a| Some(a) == number(b)),
            _ => a == b,
        }
    }
    let value = |answer: &Answer| decode(answer.as_ref()?);
    value(a).zip(value(b)).is_some_and(|(a, b)| are_same(&a, &b))
}

fn contains(answer: &Answer, part: &str) -> bool {
    answer.as_ref().map_or(part.is_empty(), |reply| has_part(reply, part))
}

/// Whether a reply has these bytes anywhere.
pub fn has_part(reply: &[u8], part: &str) -> bool {
    part.is_empty() || reply.windows(part.len()).any(|window| window == part.as_bytes())
}

/// Whether the second word says what the request means.
pub fn is_container(request: &Request) -> bool {
    const CONTAINERS: &[&str] = &[
        "client", "command", "config", "latency", "memory", "object", "slowlog", "xgroup", "xinfo", "script",
        "function",
    ];
    CONTAINERS.contains(&name_of(request).as_str())
}

fn name_of(request: &Request) -> String {
    request.first().map(|word| lower(word)).unwrap_or_default()
}

fn lower(word: &[u8]) -> String {
    String::from_utf8_lossy(&word.to_ascii_lowercase()).into_owned()
}

#[cfg(test)]
mod tests;
