//! SSCAN: a set's members, some at each call.
//!
//! A cursor is a position in the order of hashes, which neither growth nor shrinking
//! changes. Compact sets come whole.

use super::reply_member;
use crate::args::Args;
use crate::error::{Error, Result};
use crate::generic::scan::{ScanOptions, cursor, reply_scanned};
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
        reply_scanned(reply, |_, _| 0);
        return Ok(());
    };
    let options = ScanOptions::of_members(args, 3)?;
    // A cursor that no scan has given stands for the last position.
    let from = Position(cursor.0.min((1 << POSITION_BITS) - 1));
    reply_scanned(reply, |members, count| {
        let next = set.scan(from, options.count, |member| {
            if options.matches(member.bytes(&mut IntBuffer::new())) {
                reply_member(members, member);
                *count += 1;
            }
        });
        next.map_or(0, |position| position.0)
    });
    Ok(())
}
