//! `redis.call` and its kin, with requests made from the rows: keys are declared or not, words come as literals, numbers,
//! or from the script's arguments.
//!
//! Invariant: what a command answers is shown only if all servers answer alike; otherwise it is called for what it does, or
//! its elements are sorted.

use super::Lua;
use super::values::quoted;
use crate::differential::judge::is;
use crate::differential::picks;
use crate::differential::rules::{self, How};
use crate::generate::{Request, words};
use command::Group;

/// Keys that a script declares at most by what it calls.
const KEYS_MAX: usize = 12;
/// Words longer than this are shortened: a script should be readable.
const WORD_BYTES_MAX: usize = 300;

/// Requests that are no data commands: most are refused in scripts.
const OTHERS: &[&str] = &[
    "ping",
    "echo text",
    "select 1",
    "select 0",
    "select 99",
    "multi",
    "exec",
    "watch k1",
    "subscribe c",
    "publish c m",
    "eval return 0",
    "evalsha x 0",
    "script load x",
    "function list",
    "fcall f 0",
    "auth x",
    "hello 3",
    "reset",
    "quit",
    "monitor",
    "config get maxmemory",
    "config set maxmemory 0",
    "client getname",
    "client reply off",
    "client id",
    "acl whoami",
    "command count",
    "save",
    "bgsave",
    "shutdown nosave",
    "nosuch",
    "nosuch a b",
    "get",
    "get a b",
    "set k1",
    "GET k1",
    "debug sleep 0",
    "flushall extra extra",
    "swapdb 0 1",
    "swapdb 1 0",
    "object help extra extra",
    "object nosuch k1",
    // Refused by Redis, and by Valkey 8.0 not any more: only called, and compared by the cases.
    "xread block 0 streams x1 $",
    "XREAD count 1 BLOCK x streams x1 $",
    // Of a key that nobody has: of one that is there, Valkey makes the consumer before it refuses to wait.
    "xreadgroup group g c block 10 streams nostream >",
    "sort s1 by nosort",
    "sort s1 by nosort desc limit 1 3",
    "sort_ro s2 by nosort get # limit 0 2",
    "sort z1 by nosort",
    "psync x x",
    "readonly",
    "asking",
    "cluster info",
    "role x",
];

/// How a reply may be used.
enum Use {
    /// It is the same everywhere.
    Shown,
    /// The same but for how numbers are written: in a reply, where rules see it, but not in a text.
    Direct,
    /// Its elements have no order.
    Sorted,
    /// It differs: called for its effects.
    Called,
}

impl Lua<'_, '_> {
    /// A statement with a command.
    pub(super) fn command_statement(&mut self) -> String {
        let request = self.request();
        let how = usage(self.is_number_text(&request), &request);
        let call = self.call_of(&request);
        match how {
            Use::Shown if self.one_in(4) => format!("keep({call})"),
            Use::Shown if self.one_in(6) => format!("try(function() return {call} end)"),
            Use::Shown if self.one_in(12) => format!("keep(cjson.encode({call}))"),
            Use::Shown if self.one_in(12) => format!("keep(cmsgpack.unpack(cmsgpack.pack({call})))"),
            Use::Shown | Use::Direct if self.one_in(16) => format!("r = {{r, {call}}}"),
            Use::Shown | Use::Direct => format!("r[#r + 1] = {call}"),
            Use::Sorted => format!("try(function() return sorted({call}) end)"),
            Use::Called => format!("pcall(function() return {call} end)"),
        }
    }

    /// An expression with a command whose reply is the same everywhere.
    pub(super) fn command(&mut self) -> String {
        for _ in 0..20 {
            let request = self.request();
            if matches!(usage(self.is_number_text(&request), &request), Use::Shown) {
                return self.call_of(&request);
            }
        }
        "redis.call('ping')".to_owned()
    }

    /// The words of a command, with commas.
    pub(super) fn words(&mut self) -> String {
        for _ in 0..20 {
            let request = self.request();
            if matches!(usage(self.is_number_text(&request), &request), Use::Shown) {
                return self.listed(&request);
            }
        }
        "'ping'".to_owned()
    }

    /// A request that may be made by a script.
    fn request(&mut self) -> Request {
        loop {
            if self.one_in(10) {
                let text = self.choose(OTHERS);
                return words(&text.split(' ').collect::<Vec<_>>());
            }
            let request = self.generator.data_request();
            let has_outcome =
                !picks::changes(&request) && !picks::may_convert(&request) && !rules::is_newer(&request);
            let name = request[0].to_ascii_lowercase();
            // Streams have claimants of their own in 7.0.
            if has_outcome && rules::is_allowed(&request) && !name.starts_with(b"x") && !is_waiting(&name) {
                return request;
            }
        }
    }

    /// Whether scores or places are in the reply.
    fn is_number_text(&self, request: &Request) -> bool {
        let name = String::from_utf8_lossy(&request[0]).to_ascii_lowercase();
        let spec = self.generator.specs.iter().find(|spec| spec.name == name);
        spec.is_none_or(|spec| matches!(spec.group, Group::SortedSet | Group::Geo)) || name.ends_with("float")
    }

    fn call_of(&mut self, request: &Request) -> String {
        let function = self.choose(&["redis.call", "redis.pcall", "redis.pcall"]);
        format!("{function}({})", self.listed(request))
    }

    /// The words as expressions.
    fn listed(&mut self, request: &Request) -> String {
        let declares = !self.one_in(4);
        let listed: Vec<String> = request
            .iter()
            .enumerate()
            .map(|(at, word)| {
                let word = &word[..word.len().min(WORD_BYTES_MAX)];
                if at > 0 && declares && at < 4 && is_key(word) {
                    return self.declared(word);
                }
                let is_number = !word.is_empty()
                    && word.len() < 6
                    && word.iter().all(u8::is_ascii_digit)
                    && word[0] != b'0';
                match self.generator.prng.below(8) {
                    0 if at > 0 && self.args.len() < KEYS_MAX => {
                        self.args.push(word.to_vec());
                        format!("{}[{}]", self.names.1, self.args.len())
                    }
                    1 | 2 if at > 0 && is_number => String::from_utf8_lossy(word).into_owned(),
                    _ => quoted(word),
                }
            })
            .collect();
        let list = listed.join(", ");
        if self.one_in(16) { format!("unpack({{{list}}})") } else { list }
    }

    /// A key as a word of `KEYS`.
    fn declared(&mut self, key: &[u8]) -> String {
        let at = self.keys.iter().position(|known| known == key).unwrap_or_else(|| {
            self.keys.push(key.to_vec());
            self.keys.len() - 1
        });
        format!("{}[{}]", self.names.0, at + 1)
    }
}

/// Whether scripts may call a command since Redis 7.2 only, in which it does not wait.
fn is_waiting(name: &[u8]) -> bool {
    const WAITING: [&[u8]; 8] =
        [b"blpop", b"brpop", b"blmove", b"brpoplpush", b"blmpop", b"bzpopmin", b"bzpopmax", b"bzmpop"];
    WAITING.contains(&name)
}

fn is_key(word: &[u8]) -> bool {
    crate::values::KEYS.contains(&word)
        || matches!(word, [letter, digit] if letter.is_ascii_lowercase() && digit.is_ascii_digit())
        || word.starts_with(b"{t}")
}

/// Whether all servers answer alike in scripts, though not elsewhere: sets have an order there where none is asked for.
fn is_same_in_scripts(request: &Request) -> bool {
    let has_option = |option: &[u8]| request.iter().skip(1).any(|word| word.eq_ignore_ascii_case(option));
    (is(request, "sort") || is(request, "sort_ro")) && has_option(b"nosort")
}

fn usage(is_number_text: bool, request: &Request) -> Use {
    if is_same_in_scripts(request) {
        return Use::Shown;
    }
    // What is given up where real servers part is the same everywhere else.
    let is_own = |rule: &&rules::Rule| rule.command != "*" && !matches!(rule.how, How::Parts(..));
    let own: Vec<How> = rules::for_request(request).filter(is_own).map(|rule| rule.how).collect();
    if own.is_empty()
        && picks::Pick::of(request).is_none()
        && !["client", "info"].iter().any(|name| is(request, name))
    {
        return if is_number_text { Use::Direct } else { Use::Shown };
    }
    let is_set = own.iter().all(|how| matches!(how, How::Unordered)) && !own.is_empty();
    if is_set { Use::Sorted } else { Use::Called }
}
