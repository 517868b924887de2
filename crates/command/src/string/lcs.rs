//! LCS: the longest common subsequence of two strings; `value::lcs` finds it.
//!
//! Thread rule: as for all handlers.
//!
//! Invariants:
//! 1. The keys are looked at before the options, as in Redis.

use super::Text;
use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::Options;
use keyspace::View;
use value::lcs::{Lcs, LcsError};
use wire::Reply;

/// What the reply consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The subsequence itself.
    Sequence,
    /// Its length.
    Length,
    /// Where its runs lie in the two strings.
    Runs,
}

/// The options of an LCS request.
struct Wanted {
    form: Form,
    /// Shorter runs are left out.
    run_bytes_min: u64,
    /// Whether each run comes with its length.
    run_lengths: bool,
}

impl Wanted {
    fn parse(args: &Args<'_>) -> Result<Wanted> {
        let mut options = Options::from(args, 3);
        let (mut length, mut runs, mut run_lengths, mut run_bytes_min) = (false, false, false, 0);
        while options.more() {
            if options.take("IDX") {
                runs = true;
            } else if options.take("LEN") {
                length = true;
            } else if options.take("WITHMATCHLEN") {
                run_lengths = true;
            } else if options.take("MINMATCHLEN") {
                run_bytes_min = u64::try_from(options.int()).unwrap_or(0);
            } else {
                options.refuse();
            }
        }
        options.finish()?;
        let form = match (runs, length) {
            (true, true) => {
                return Err(Error::text("ERR If you want both the length and indexes, please just use IDX."));
            }
            (true, false) => Form::Runs,
            (false, true) => Form::Length,
            (false, false) => Form::Sequence,
        };
        Ok(Wanted { form, run_bytes_min, run_lengths })
    }
}

/// LCS key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]
pub(super) fn lcs(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let (mut first_digits, mut second_digits) = (itoa::Buffer::new(), itoa::Buffer::new());
    let texts = (Text::of(view.get(&args.key(1))), Text::of(view.get(&args.key(2))));
    let (Ok(first), Ok(second)) = texts else {
        return Err(Error::text("ERR The specified keys must contain string values"));
    };
    let first = first.map_or(&b""[..], |text| text.bytes(&mut first_digits));
    let second = second.map_or(&b""[..], |text| text.bytes(&mut second_digits));
    let wanted = Wanted::parse(args)?;
    let bytes_max = args.string_bytes_max();
    if wanted.form == Form::Length {
        let len = value::lcs::lcs_len(first, second, bytes_max).map_err(refusal)?;
        reply.int(i64::from(len));
        return Ok(());
    }
    let found = value::lcs::lcs(first, second, bytes_max).map_err(refusal)?;
    match wanted.form {
        Form::Runs => reply_runs(&found, &wanted, reply),
        Form::Sequence | Form::Length => reply.bulk(&found.text),
    }
    Ok(())
}

fn refusal(error: LcsError) -> Error {
    Error::text(match error {
        LcsError::StringTooLong => "ERR String too long for LCS",
        LcsError::MemoryExceeded => {
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"
        }
    })
}

fn reply_runs(found: &Lcs, wanted: &Wanted, reply: &mut Reply<'_>) {
    reply.map(2);
    reply.bulk(b"matches");
    let matches = reply.deferred_array();
    let mut count = 0;
    for run in found.matches.iter().filter(|run| u64::from(run.bytes()) >= wanted.run_bytes_min) {
        count += 1;
        reply.array(2 + usize::from(wanted.run_lengths));
        for range in [&run.left, &run.right] {
            reply.array(2);
            reply.int(i64::from(*range.start()));
            reply.int(i64::from(*range.end()));
        }
        if wanted.run_lengths {
            reply.int(i64::from(run.bytes()));
        }
    }
    reply.end(matches, count);
    reply.bulk(b"len");
    reply.int(found.text.len() as i64);
}
