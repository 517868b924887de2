//! What to do with each mix of signs that a directory can show: one table, a row per case.
//!
//! Pure. The rows do not overlap and leave nothing out; a test tries every mix. What the signs mean and why each row
//! is right: `docs/durability.md`, under the row's name.

/// What the beginnings of the files say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Headers {
    /// All are of this log and of a version that is known.
    Good,
    /// One was written by a newer program.
    Newer,
    /// One is not a log's.
    Foreign,
    /// One is damaged.
    Damaged,
    /// They belong to several logs.
    Mixed,
}

/// What replaying would begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// There is no checkpoint: with nothing, at 0.
    Beginning,
    /// The newest checkpoint.
    Newest,
    /// The newest is damaged; an older one, or 0, and the log reaches back to it.
    Older,
    /// Every checkpoint from which the log could go on is damaged.
    Lost,
}

/// How far back the chain of segments goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// There are no segments.
    None,
    /// There are no segments, and some were begun.
    Gone,
    /// To the end of imported data; neither a checkpoint with them nor a record is there.
    Imported,
    /// To where a server began it beside clients; neither a checkpoint nor a record is there.
    BesideClients,
    /// To the base, or further.
    Enough,
    /// Not to the base, and no older segment is there.
    Late,
    /// Not to the base: a segment is missing between those that are there.
    Gap,
}

/// How the last segment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// With a whole record.
    Clean,
    /// With something that was being written.
    Torn,
    /// Something is damaged that was durable.
    Damaged,
    /// Clean or torn, but before the end of the checkpoint.
    Short,
    /// Clean or torn, but a later segment was begun and is not there.
    Missing,
}

/// All of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signs {
    pub headers: Headers,
    pub base: Origin,
    pub reach: Reach,
    pub tail: Tail,
}

/// What the signs amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Nothing is there: a new log begins at 0.
    New,
    /// An import was cut short before the checkpoint was complete that holds what was imported: it is to be done again.
    CutShort,
    /// A server began the log beside its clients, and ended before its first checkpoint was complete and before anything was written: what
    /// the directory held before counts.
    NotComplete,
    /// A checkpoint, if there is one, and the log from there to its end.
    Whole,
    /// The same, without what was being written at the end.
    TornTail,
    /// The newest checkpoint is damaged; the log reaches back to an older one.
    OlderCheckpoint,
    /// Refused: a newer program's files.
    NewerVersion,
    /// Refused: somebody else's files.
    NotOurs,
    /// Refused: the beginning of a file is damaged.
    HeaderDamaged,
    /// Refused: files of several logs.
    Mixed,
    /// Refused: no usable checkpoint.
    CheckpointDamaged,
    /// Refused: a checkpoint without a log.
    LogGone,
    /// Refused: the log begins too late.
    LogLate,
    /// Refused: a segment is missing.
    SegmentMissing,
    /// Refused: damage before the end.
    DamagedMiddle,
    /// Refused: the log ends before the checkpoint does.
    LogShort,
    /// Refused: the last segment is missing.
    LastMissing,
}

/// A row: a case, and for each sign the values that belong to it.
struct Row {
    case: Case,
    headers: &'static [Headers],
    base: &'static [Origin],
    reach: &'static [Reach],
    tail: &'static [Tail],
}

const ANY_ORIGIN: &[Origin] = &[Origin::Beginning, Origin::Newest, Origin::Older, Origin::Lost];
const ANY_REACH: &[Reach] = &[
    Reach::None,
    Reach::Gone,
    Reach::Imported,
    Reach::BesideClients,
    Reach::Enough,
    Reach::Late,
    Reach::Gap,
];
const ANY_TAIL: &[Tail] = &[Tail::Clean, Tail::Torn, Tail::Damaged, Tail::Short, Tail::Missing];
const USABLE: &[Origin] = &[Origin::Beginning, Origin::Newest, Origin::Older];
const GOOD: &[Headers] = &[Headers::Good];

const fn bad_headers(case: Case, headers: &'static [Headers]) -> Row {
    Row { case, headers, base: ANY_ORIGIN, reach: ANY_REACH, tail: ANY_TAIL }
}

const fn row(case: Case, base: &'static [Origin], reach: &'static [Reach], tail: &'static [Tail]) -> Row {
    Row { case, headers: GOOD, base, reach, tail }
}

/// The table.
const TABLE: &[Row] = &[
    bad_headers(Case::NewerVersion, &[Headers::Newer]),
    bad_headers(Case::NotOurs, &[Headers::Foreign]),
    bad_headers(Case::HeaderDamaged, &[Headers::Damaged]),
    bad_headers(Case::Mixed, &[Headers::Mixed]),
    row(Case::CheckpointDamaged, &[Origin::Lost], ANY_REACH, ANY_TAIL),
    row(Case::New, &[Origin::Beginning], &[Reach::None], ANY_TAIL),
    row(Case::LogGone, &[Origin::Newest, Origin::Older], &[Reach::None], ANY_TAIL),
    row(Case::LogGone, USABLE, &[Reach::Gone], ANY_TAIL),
    row(Case::CutShort, USABLE, &[Reach::Imported], ANY_TAIL),
    row(Case::NotComplete, USABLE, &[Reach::BesideClients], ANY_TAIL),
    row(Case::LogLate, USABLE, &[Reach::Late], ANY_TAIL),
    row(Case::SegmentMissing, USABLE, &[Reach::Gap], ANY_TAIL),
    row(Case::DamagedMiddle, USABLE, &[Reach::Enough], &[Tail::Damaged]),
    row(Case::LogShort, USABLE, &[Reach::Enough], &[Tail::Short]),
    row(Case::LastMissing, USABLE, &[Reach::Enough], &[Tail::Missing]),
    row(Case::OlderCheckpoint, &[Origin::Older], &[Reach::Enough], &[Tail::Clean, Tail::Torn]),
    row(Case::Whole, &[Origin::Beginning, Origin::Newest], &[Reach::Enough], &[Tail::Clean]),
    row(Case::TornTail, &[Origin::Beginning, Origin::Newest], &[Reach::Enough], &[Tail::Torn]),
];

impl Signs {
    /// The one case that the signs amount to.
    pub fn case(self) -> Case {
        let mut rows = TABLE.iter().filter(|row| row.holds(self));
        let row = rows.next().expect("the table leaves nothing out");
        assert!(rows.next().is_none(), "the rows do not overlap");
        row.case
    }
}

impl Row {
    fn holds(&self, signs: Signs) -> bool {
        self.headers.contains(&signs.headers)
            && self.base.contains(&signs.base)
            && self.reach.contains(&signs.reach)
            && self.tail.contains(&signs.tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mix_of_signs_is_one_case_and_every_row_is_needed() {
        let headers = [Headers::Good, Headers::Newer, Headers::Foreign, Headers::Damaged, Headers::Mixed];
        let mut seen = Vec::new();
        for headers in headers {
            for &base in ANY_ORIGIN {
                for &reach in ANY_REACH {
                    for &tail in ANY_TAIL {
                        seen.push(Signs { headers, base, reach, tail }.case());
                    }
                }
            }
        }
        assert_eq!(seen.len(), 700);
        assert!(TABLE.iter().all(|row| seen.contains(&row.case)));
    }
}
