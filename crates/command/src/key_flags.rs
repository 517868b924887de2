//! Which words of a request are keys where one of them counts the others, and what the request does with each.

use crate::key_use::{Begin, Find, KeyFlags};
use crate::table::Command;
use wire::Request;

/// How the number of keys was read. Redis falls back to each command's own rules where its specifications do
/// not lead to the keys; those read what begins like a number, take the keys they count first, and tell no flags.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// By the specifications.
    Exactly,
    /// As those rules do.
    Loosely,
}

/// Whether one of a command's words says how many keys it has.
pub fn counts_its_keys(command: &Command) -> bool {
    command.row.key_specs.iter().any(|spec| matches!(spec.find, Find::Numkeys { .. }))
}

/// The keys of such a command, and how they were counted; None of others.
pub fn counted(command: &Command, request: &Request<'_>) -> Option<(Vec<usize>, Counted)> {
    let ways = [Counted::Exactly, Counted::Loosely].into_iter();
    ways.filter(|_| counts_its_keys(command))
        .find_map(|way| Some((counted_keys(command, request, way)?, way)))
}

/// The words that a client takes for keys that knows nothing of a command but its specifications, where these say that one of its
/// words counts them: also of a request that will be refused.
pub fn named_by_count(command: &Command, request: &Request<'_>) -> Vec<usize> {
    counted(command, request).map_or(Vec::new(), |(positions, _)| positions)
}

/// The keys of such a command, found as a client finds them that knows nothing but its
/// specifications. None: the number is none, or says more than there is.
fn counted_keys(command: &Command, request: &Request<'_>, counted: Counted) -> Option<Vec<usize>> {
    let mut positions = Vec::new();
    let number_of = match counted {
        Counted::Exactly => value::number::parse_i64,
        Counted::Loosely => leading_number,
    };
    let mut specs = command.row.key_specs.to_vec();
    if counted == Counted::Loosely {
        specs.reverse();
    }
    for spec in specs {
        let Begin::Index(begin) = spec.begin else { continue };
        let begin = begin as i64;
        let (first, last, step) = match spec.find {
            Find::Range { last, step, .. } => (begin, begin + last, step),
            Find::Numkeys { number, first, step } => {
                let word = request.get(usize::try_from(begin + number).ok()?)?;
                let keys = number_of(word).filter(|keys| *keys > 0)?;
                let first = begin + first;
                (first, first.checked_add((keys - 1).checked_mul(step)?)?, step)
            }
            Find::Unknown => continue,
        };
        if last >= request.len() as i64 {
            return None;
        }
        positions.extend((first..=last).step_by(step.max(1) as usize).map(|position| position as usize));
    }
    Some(positions)
}

/// The number with which a text begins, as C's `atoi` reads it, if it has few enough digits.
fn leading_number(text: &[u8]) -> Option<i64> {
    let text = text.trim_ascii_start();
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = std::str::from_utf8(&text[..digits]).ok()?;
    number.parse::<i32>().ok().map(i64::from)
}

/// What this request does with a key: as the row says, or as it tells from the words.
pub fn flags_of(command: &Command, request: &Request<'_>, number: usize) -> KeyFlags {
    let told = command.row.key_flags_by.and_then(|by| by(request));
    told.unwrap_or_else(|| command.row.key_flags_of(number) - KeyFlags::VARIABLE_FLAGS)
}
