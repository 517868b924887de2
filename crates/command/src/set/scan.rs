//! SSCAN: a set's members, some at each call.
//!
//! A cursor is a position in the order of hashes, which neither growth nor shrinking
//! changes. Compact sets come whole.

use super::reply_member;
use crate::args::Args;
use crate::error::{Error, Result};
use crate::generic::scan::{ScanOptions, cursor};
use keyspace::View;
use value::number::IntBuffer;
use value::set::Set;
use value::table::{POSITION_BITS, Position};
use wire::Reply;

/// SSCAN key cursor [MATCH pattern] [COUNT count]
pub(super) fn sscan(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let cursor = cursor(args.bytes(2)).ok_or(Error::CURSOR)?;
    let Some(set) = view.read::<Set>(&args.key(1))? else {
        // The options of a scan of nothing are not looked at.
        reply.array(2);
        reply.bulk(b"0");
        reply.array(0);
        return Ok(());
    };
    let options = ScanOptions::of_members(args, 3)?;
    // The cursor comes first in the reply and is known last.
    let mut shown = Vec::new();
    let mut members = Reply::new(&mut shown, reply.protocol());
    let mut count = 0;
    // A cursor that no scan has given stands for the last position.
    let from = Position(cursor.0.min((1 << POSITION_BITS) - 1));
    let next = set.scan(from, options.count, |member| {
        if options.matches(member.bytes(&mut IntBuffer::new())) {
            reply_member(&mut members, member);
            count += 1;
        }
    });
    reply.array(2);
    reply.bulk_int(next.map_or(0, |position| position.0 as i64));
    reply.array(count);
    reply.raw(&shown);
    Ok(())
}
