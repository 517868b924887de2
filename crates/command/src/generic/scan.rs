//! SCAN, KEYS, RANDOMKEY, DBSIZE: what is in a database.
//!
//! Thread rule: slots are locked one by one, so that these see a key that is
//! there throughout, and may or may not see one that comes or goes meanwhile.
//! None of them counts as a use of the keys it shows, as a hit or as a miss.

use crate::args::Args;
use crate::category::Categories;
use crate::error::{Error, Result};
use crate::parse::int;
use crate::row::Handler::Walk;
use crate::row::{Flags, Group, Row, row};
use keyspace::{Batch, Cursor, Object, Touch};
use value::glob::{Case, glob_match};
use wire::Reply;

/// Rows of this file.
pub const ROWS: &[Row] = &[
    row("dbsize", 1, Walk(dbsize))
        .passes_by(|_| true)
        .flags(Flags::FAST)
        .group(Group::Server)
        .in_categories(Categories::KEYSPACE)
        .since("1.0.0")
        .complexity("O(1)")
        .summary("Tells how many keys the session's database has.")
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"]),
    row("keys", 2, Walk(keys))
        .flags(Flags::DANGEROUS)
        .group(Group::Generic)
        .since("1.0.0")
        .complexity("O(N) in the number of keys of the database.")
        .syntax("pattern")
        .summary("Lists all keys that match a pattern.")
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"]),
    row("randomkey", 1, Walk(randomkey))
        .passes_by(|_| true)
        .group(Group::Generic)
        .since("1.0.0")
        .complexity("O(1)")
        .summary("Picks a key of the session's database by chance.")
        .tips(&["request_policy:all_shards", "response_policy:special", "nondeterministic_output"]),
    row("scan", -2, Walk(scan))
        .group(Group::Generic)
        .since("2.8.0")
        .complexity("O(1) per call, O(N) for all calls of a scan over N keys.")
        .syntax("cursor [MATCH pattern] [COUNT count] [TYPE type]")
        .summary("Goes over the keys of the session's database, some at each call.")
        .tips(&["nondeterministic_output", "request_policy:special", "response_policy:special"]),
];

/// DBSIZE
fn dbsize(batch: &Batch<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply.int(batch.shown(args.db).0 as i64);
    Ok(())
}

/// KEYS pattern
fn keys(batch: &Batch<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let pattern = Pattern::new(args.bytes(1));
    let array = reply.deferred_array();
    let mut shown = 0;
    let are_all = batch.try_for_each(args.db, args.now, |object| {
        if pattern.matches(object.key()) {
            reply.bulk(object.key());
            shown += 1;
        }
    });
    reply.end(array, shown);
    pass_by_unreadable(batch);
    if are_all { Ok(()) } else { Err(Error::InUse) }
}

/// A key that lies where the disk does not read, or in a page that is damaged, has no name: whoever asks for the others gets them. The
/// shelf tells the operator.
fn pass_by_unreadable(batch: &Batch<'_>) {
    let _ = batch.take_unreadable();
}

/// RANDOMKEY
fn randomkey(batch: &Batch<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let mut over = Vec::new();
    let note = |key: &[u8]| {
        if over.len() < FREED_MAX {
            over.push(key.to_vec());
        }
    };
    let picked = batch.try_random_key(args.db, args.now, note);
    free(batch, args, &over);
    match picked.ok_or(Error::InUse)? {
        Some(key) => {
            pass_by_unreadable(batch);
            reply.bulk(&key);
        }
        None => reply.null(),
    }
    Ok(())
}

/// SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]
fn scan(batch: &Batch<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let cursor = cursor(args.bytes(1)).ok_or(Error::CURSOR)?;
    let options = ScanOptions::of_keys(args)?;
    let (mut is_held_up, mut over) = (false, Vec::new());
    reply_scanned(reply, |keys, count| {
        let show = |object: Object<'_>| {
            if object.is_expired(args.now) {
                over.push(object.key().to_vec());
            } else if options.wants(object) {
                keys.bulk(object.key());
                *count += 1;
            }
        };
        let next = batch.try_scan_also_over(args.db, cursor, options.count, show);
        is_held_up = next.is_none();
        next.unwrap_or(cursor).0
    });
    pass_by_unreadable(batch);
    free(batch, args, &over);
    if is_held_up { Err(Error::InUse) } else { Ok(()) }
}

/// Keys that one SCAN or RANDOMKEY frees; the sweep frees the others.
const FREED_MAX: usize = 1000;

/// Frees keys that were met with their time up, as any look at them does.
fn free(batch: &Batch<'_>, args: &Args<'_>, names: &[Vec<u8>]) {
    for name in names.iter().take(FREED_MAX) {
        let keys = [args.keyspace.key(args.db, name)];
        // What is held belongs to others, or to who waited for one of the keys before.
        if batch.is_holding() && !batch.holds(&keys) {
            return;
        }
        let Some(view) = batch.try_view(&keys, args.now, Touch::No) else { return };
        view.peek(&keys[0]);
        view.finish();
    }
    pass_by_unreadable(batch);
}

/// Replies to SCAN, HSCAN, SSCAN or ZSCAN: `scan` writes what it shows, counts that, and
/// returns the cursor to go on with.
pub(crate) fn reply_scanned(reply: &mut Reply<'_>, scan: impl FnOnce(&mut Reply<'_>, &mut usize) -> u64) {
    // The cursor comes first in the reply and is known last.
    let (mut shown, mut count) = (Vec::new(), 0);
    let next = scan(&mut reply.part(&mut shown), &mut count);
    reply.array(2);
    reply.bulk_int(next as i64);
    reply.array(count);
    reply.raw(&shown);
}

/// The key pattern of KEYS and SCAN.
pub(crate) enum Pattern<'a> {
    All,
    Glob(&'a [u8]),
}

impl<'a> Pattern<'a> {
    pub(crate) fn new(pattern: &'a [u8]) -> Pattern<'a> {
        if pattern == b"*" { Pattern::All } else { Pattern::Glob(pattern) }
    }

    pub(crate) fn matches(&self, key: &[u8]) -> bool {
        match self {
            Pattern::All => true,
            Pattern::Glob(pattern) => glob_match(pattern, key, Case::Sensitive),
        }
    }
}

/// What SCAN, HSCAN, SSCAN and ZSCAN look at.
pub(crate) struct ScanOptions<'a> {
    pattern: Pattern<'a>,
    /// How many keys or elements to look at.
    pub(crate) count: usize,
    /// A type that Tarn does not know leaves no key.
    type_name: Option<&'a [u8]>,
}

impl<'a> ScanOptions<'a> {
    /// Of a scan of keys.
    fn of_keys(args: &Args<'a>) -> Result<ScanOptions<'a>> {
        ScanOptions::parse(args, 2, true)
    }

    /// Of a scan of a collection's elements, from word `first` on.
    pub(crate) fn of_members(args: &Args<'a>, first: usize) -> Result<ScanOptions<'a>> {
        ScanOptions::parse(args, first, false)
    }

    /// Of an option given twice the last counts.
    fn parse(args: &Args<'a>, first: usize, has_type: bool) -> Result<ScanOptions<'a>> {
        let mut options = ScanOptions { pattern: Pattern::All, count: 10, type_name: None };
        for position in (first..args.len()).step_by(2) {
            let operand = position + 1;
            if operand >= args.len() {
                return Err(Error::Syntax);
            }
            if args.is(position, "count") {
                options.count = match int(args.bytes(operand))? {
                    count @ 1.. => count as usize,
                    _ => return Err(Error::Syntax),
                };
            } else if args.is(position, "match") {
                options.pattern = Pattern::new(args.bytes(operand));
            } else if has_type && args.is(position, "type") {
                options.type_name = Some(args.bytes(operand));
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(options)
    }

    fn wants(&self, object: Object<'_>) -> bool {
        self.type_name
            .is_none_or(|name| name.eq_ignore_ascii_case(object.value().type_name().name().as_bytes()))
            && self.pattern.matches(object.key())
    }

    /// Whether a text matches the pattern.
    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        self.pattern.matches(text)
    }
}

/// A cursor as C's `strtoul` reads it: a sign is allowed and a negative number
/// wraps around, no text is 0, and a zero byte ends the text. But Redis refuses
/// white space in front.
pub(crate) fn cursor(text: &[u8]) -> Option<Cursor> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(Cursor(0));
    }
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0u64, |number, digit| {
        let digit = digit.wrapping_sub(b'0');
        let number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
        (digit <= 9).then_some(number)
    })?;
    Some(Cursor(if negative { number.wrapping_neg() } else { number }))
}
