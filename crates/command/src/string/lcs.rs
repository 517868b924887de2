//! LCS: the longest common subsequence of two strings, by the table of the
//! lengths of all prefixes' subsequences.
//!
//! Thread rule: as for all handlers.
//!
//! Invariants:
//! 1. The table takes at most `proto-max-bulk-len` bytes; it is refused otherwise.
//! 2. Of several longest subsequences the same one is found as by Redis: from the
//!    end, a step goes back in the second string unless the first promises more.

use super::Text;
use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::Options;
use keyspace::View;
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
    run_bytes_min: usize,
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
                run_bytes_min = usize::try_from(options.int()).unwrap_or(0);
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
    let table = Table::fill(first, second, args.settings.string_bytes_max())?;
    match wanted.form {
        Form::Length => reply.int(i64::from(table.common())),
        Form::Sequence => reply.bulk(&sequence(&table, first, second)),
        Form::Runs => reply_runs(&table, first, second, &wanted, reply),
    }
    Ok(())
}

/// The common subsequence.
fn sequence(table: &Table, first: &[u8], second: &[u8]) -> Vec<u8> {
    let mut sequence = vec![0; table.common() as usize];
    let mut end = sequence.len();
    table.runs_backwards(first, second, |run| {
        sequence[end - run.len..end].copy_from_slice(&first[run.first..run.first + run.len]);
        end -= run.len;
    });
    sequence
}

fn reply_runs(table: &Table, first: &[u8], second: &[u8], wanted: &Wanted, reply: &mut Reply<'_>) {
    reply.map(2);
    reply.bulk(b"matches");
    let matches = reply.deferred_array();
    let mut count = 0;
    table.runs_backwards(first, second, |run| {
        if run.len < wanted.run_bytes_min {
            return;
        }
        count += 1;
        reply.array(2 + usize::from(wanted.run_lengths));
        for start in [run.first, run.second] {
            reply.array(2);
            reply.int(start as i64);
            reply.int((start + run.len - 1) as i64);
        }
        if wanted.run_lengths {
            reply.int(run.len as i64);
        }
    });
    reply.end(matches, count);
    reply.bulk(b"len");
    reply.int(i64::from(table.common()));
}

/// Bytes that are the same in both strings, from these positions on.
struct Run {
    first: usize,
    second: usize,
    len: usize,
}

/// At row `i` and column `j` the length of the longest common subsequence of the
/// first `i` bytes of one string and the first `j` of the other.
struct Table {
    lengths: Vec<u32>,
    columns: usize,
}

impl Table {
    fn fill(first: &[u8], second: &[u8], bytes_max: u64) -> Result<Table> {
        const LEN_END: usize = u32::MAX as usize - 1;
        if first.len() >= LEN_END || second.len() >= LEN_END {
            return Err(Error::text("ERR String too long for LCS"));
        }
        let columns = second.len() + 1;
        // Neither factor reaches 2^32, so the product stays below 2^64.
        let cells = (first.len() as u64 + 1) * columns as u64;
        if cells > bytes_max / size_of::<u32>() as u64 {
            let refusal = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";
            return Err(Error::text(refusal));
        }
        let mut lengths = Vec::new();
        lengths.try_reserve_exact(cells as usize).map_err(|_| {
            Error::text("ERR Insufficient memory, failed allocating transient memory for LCS")
        })?;
        lengths.resize(cells as usize, 0u32);
        for (i, byte) in first.iter().enumerate() {
            let (above, row) = lengths[i * columns..(i + 2) * columns].split_at_mut(columns);
            for (j, other) in second.iter().enumerate() {
                row[j + 1] = if byte == other { above[j] + 1 } else { above[j + 1].max(row[j]) };
            }
        }
        Ok(Table { lengths, columns })
    }

    /// The length of the longest common subsequence.
    fn common(&self) -> u32 {
        *self.lengths.last().expect("a table has at least one cell")
    }

    /// Tells the runs that make up the subsequence, the last one first.
    fn runs_backwards(&self, first: &[u8], second: &[u8], mut tell: impl FnMut(Run)) {
        let (mut i, mut j) = (first.len(), second.len());
        while i > 0 && j > 0 {
            let mut len = 0;
            while len < i.min(j) && first[i - 1 - len] == second[j - 1 - len] {
                len += 1;
            }
            if len > 0 {
                (i, j) = (i - len, j - len);
                tell(Run { first: i, second: j, len });
            } else if self.lengths[(i - 1) * self.columns + j] > self.lengths[i * self.columns + j - 1] {
                i -= 1;
            } else {
                j -= 1;
            }
        }
    }
}
