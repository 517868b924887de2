//! What operators and masters say of moves, in words.

use super::requests::{id, number, syntax, text, upper};
use crate::control::{Epochs, Measure, Request, Shift, Word};
use std::collections::BTreeSet;
use topology::{ShardId, SlotRange};
use wire::SLOTS;

/// A subcommand of CLUSTER that is about moves; None: it is about something else.
pub fn ordered(sub: &str, words: &[Vec<u8>]) -> Result<Option<Request>, String> {
    let request = match (sub, words) {
        ("MOVE-SLOTS", [from, to, slots @ ..]) if !slots.is_empty() => {
            let from = if from == b"-" { None } else { Some(ShardId(number(from)?)) };
            let slots: Result<Vec<SlotRange>, String> = slots.iter().map(|word| range(word)).collect();
            let shift = Shift { from, to: ShardId(number(to)?), slots: slots? };
            Request::Begin { shifts: vec![shift], begun: BTreeSet::new() }
        }
        ("CANCEL-MOVE", [id]) => Request::Cancel(number(id)?),
        ("REMOVE-SHARD", [shard]) => Request::RemoveShard(ShardId(number(shard)?)),
        ("REMOVE-SHARD", [of, server]) if upper(of) == "OF" => Request::RemoveShardOf(id(server)?),
        ("REBALANCE", words) => rebalance(words)?,
        _ => return Ok(None),
    };
    Ok(Some(request))
}

fn rebalance(mut words: &[Vec<u8>]) -> Result<Request, String> {
    let (mut by, mut is_dry) = (Measure::Slots, false);
    while let [option, rest @ ..] = words {
        words = match (upper(option).as_str(), rest) {
            ("BY", [measure, rest @ ..]) => {
                by = Measure::named(&upper(measure).to_ascii_lowercase()).ok_or_else(syntax)?;
                rest
            }
            ("DRY-RUN", rest) => {
                is_dry = true;
                rest
            }
            _ => return Err(syntax()),
        };
    }
    Ok(Request::Rebalance { by, is_dry })
}

/// A slot, or all from one to another.
fn range(word: &[u8]) -> Result<SlotRange, String> {
    let word = text(word)?;
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let slot = |digits: &str| digits.parse::<u16>().ok().filter(|slot| usize::from(*slot) < SLOTS);
    match (slot(first), slot(last)) {
        (Some(first), Some(last)) if first <= last => Ok(SlotRange { first, last }),
        _ => Err(format!("ERR '{word}' is no slot, nor FIRST-LAST: slots are 0 to {}", SLOTS - 1)),
    }
}

/// What a master says of its move (MOVE).
pub fn said(words: &[Vec<u8>]) -> Result<Request, String> {
    let [_, what, id, attempt, rest @ ..] = words else { return Err(usage()) };
    let (id, attempt) = (number(id)?, number(attempt)?);
    let what = upper(what);
    let epochs = |from: &[u8], to: &[u8]| Ok::<_, String>(Epochs { from: number(from)?, to: number(to)? });
    let word = match (what.as_str(), rest) {
        ("CAUGHT-UP", [from, to]) => Word::CaughtUp(epochs(from, to)?),
        ("READY", [from, to]) => Word::Ready(epochs(from, to)?),
        ("FAILED", [kind, reason]) => {
            let reason = String::from_utf8_lossy(reason).into_owned();
            match upper(kind).as_str() {
                "AGAIN" => Word::Failed(reason),
                "FINAL" => Word::FailedForGood(reason),
                _ => return Err(usage()),
            }
        }
        ("PROGRESS", [figures]) => Word::Progress(text(figures)?.to_owned()),
        _ => return Err(usage()),
    };
    Ok(Request::Said { id, attempt, word })
}

fn usage() -> String {
    "ERR MOVE CAUGHT-UP|READY ID ATTEMPT EPOCH-FROM EPOCH-TO, MOVE FAILED ID ATTEMPT AGAIN|FINAL REASON, or MOVE PROGRESS ID ATTEMPT FIGURES"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::ServerId;

    fn words(line: &str) -> Vec<Vec<u8>> {
        line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn what_is_said_of_moves_is_read() {
        let slots = |first, last| SlotRange { first, last };
        let begin = |from: Option<u16>, to, slots| {
            let shift = Shift { from: from.map(ShardId), to: ShardId(to), slots };
            Request::Begin { shifts: vec![shift], begun: BTreeSet::new() }
        };
        let rebalance = |by, is_dry| Request::Rebalance { by, is_dry };
        for (line, read) in [
            ("MOVE-SLOTS - 2 1 5-16383", begin(None, 2, vec![slots(1, 1), slots(5, 16_383)])),
            ("MOVE-SLOTS 0 2 7", begin(Some(0), 2, vec![slots(7, 7)])),
            ("CANCEL-MOVE 7", Request::Cancel(7)),
            ("REMOVE-SHARD 7", Request::RemoveShard(ShardId(7))),
            (
                "REMOVE-SHARD of 0707070707070707070707070707070707070707",
                Request::RemoveShardOf(ServerId::from_bytes([7; 20])),
            ),
            ("REBALANCE", rebalance(Measure::Slots, false)),
            ("REBALANCE dry-run by OPS", rebalance(Measure::Ops, true)),
        ] {
            let all = words(line);
            let sub = upper(&all[0]);
            assert_eq!(ordered(&sub, &all[1..]), Ok(Some(read)), "{line}");
        }
        for line in [
            "MOVE-SLOTS - 2 5-4",
            "MOVE-SLOTS - 2 16384",
            "MOVE-SLOTS - 2 1-2-3",
            "MOVE-SLOTS - x 1",
            "CANCEL-MOVE x",
            "REBALANCE BY colour",
            "REBALANCE BY",
        ] {
            let all = words(line);
            assert!(ordered(&upper(&all[0]), &all[1..]).is_err(), "{line}");
        }
        assert_eq!(ordered("MOVE-SLOTS", &words("- 2")), Ok(None));
        let word = |word| Ok(Request::Said { id: 3, attempt: 2, word });
        let epochs = Epochs { from: 4, to: 5 };
        assert_eq!(said(&words("MOVE CAUGHT-UP 3 2 4 5")), word(Word::CaughtUp(epochs)));
        assert_eq!(said(&words("move ready 3 2 4 5")), word(Word::Ready(epochs)));
        assert_eq!(said(&words("MOVE FAILED 3 2 AGAIN why")), word(Word::Failed("why".to_owned())));
        assert_eq!(said(&words("MOVE FAILED 3 2 FINAL why")), word(Word::FailedForGood("why".to_owned())));
        assert_eq!(said(&words("MOVE PROGRESS 3 2 keys=1")), word(Word::Progress("keys=1".to_owned())));
        for line in
            ["MOVE", "MOVE READY 3 2 4", "MOVE FAILED 3 2 NOW why", "MOVE READY a 2 4 5", "MOVE 1 2 3"]
        {
            assert!(said(&words(line)).is_err(), "{line}");
        }
    }
}
