//! ACL LOG.

use super::wrong_arguments;
use crate::dispatch::Context;
use acl::Entry;
use command::{Error, Result};
use sys::UnixMs;
use wire::Reply;

/// Entries that are shown unless told otherwise.
const SHOWN_USUALLY: i64 = 10;

/// ACL LOG [count | RESET]
pub fn log(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let (log, request) = (&context.server.acl.log, context.request);
    let count = match request.len() {
        2 => SHOWN_USUALLY,
        3 if request.arg(2).eq_ignore_ascii_case(b"reset") => {
            log.clear();
            reply.ok();
            return Ok(());
        }
        3 => value::number::parse_i64(request.arg(2)).ok_or(Error::NotInteger)?,
        _ => return Err(wrong_arguments(request.arg(1))),
    };
    let entries = log.newest(usize::try_from(count).unwrap_or(0));
    reply.array(entries.len());
    entries.iter().for_each(|entry| write(entry, context.now, reply));
    Ok(())
}

fn write(entry: &Entry, now: UnixMs, reply: &mut Reply<'_>) {
    let age_ms = now.0.saturating_sub(entry.updated_at.0);
    reply.map(10);
    reply.bulk(b"count");
    reply.int(entry.count as i64);
    reply.bulk(b"reason");
    reply.bulk(entry.reason.word().as_bytes());
    reply.bulk(b"context");
    reply.bulk(entry.setting.word().as_bytes());
    reply.bulk(b"object");
    reply.bulk(&entry.object);
    reply.bulk(b"username");
    reply.bulk(&entry.user);
    reply.bulk(b"age-seconds");
    reply.double(age_ms as f64 / 1000.0);
    reply.bulk(b"client-info");
    reply.bulk(entry.client.as_bytes());
    reply.bulk(b"entry-id");
    reply.int(entry.id as i64);
    reply.bulk(b"timestamp-created");
    reply.int(entry.created_at.0 as i64);
    reply.bulk(b"timestamp-last-updated");
    reply.int(entry.updated_at.0 as i64);
}
