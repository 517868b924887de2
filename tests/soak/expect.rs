//! What a reply must be: exactly, in any order, or, of keys that expire, one thing before their time and another after it.

use std::fmt;
use wire::Value;

/// How much the server's moment for a request may differ from what this side's clock says, milliseconds.
pub const LAG_MS: u64 = 50;
/// Letters of a value in a complaint.
const SHOWN_MAX: usize = 240;

/// The time in which the server executed a request: between the sending and the reply, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub from: u64,
    pub to: u64,
}

/// When a key expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// Not before this moment.
    pub low: u64,
    /// Not after this one; None: `ttl_ms` after a reply that has not come.
    pub high: Option<u64>,
    ttl_ms: u64,
}

impl Expiry {
    pub fn at(moment: u64) -> Expiry {
        Expiry { low: moment, high: Some(moment), ttl_ms: 0 }
    }

    /// So long behind the execution of a request that is sent now.
    pub fn after(ttl_ms: u64, sent: u64) -> Expiry {
        Expiry { low: sent + ttl_ms - LAG_MS.min(sent), high: None, ttl_ms }
    }

    /// The request that set it had been executed by then.
    pub fn close(&mut self, by: u64) {
        let latest = by + LAG_MS + self.ttl_ms;
        self.high.get_or_insert(latest);
    }

    pub fn is_surely_ahead(&self, now: u64) -> bool {
        now + LAG_MS < self.low
    }

    pub fn is_surely_over(&self, now: u64) -> bool {
        self.high.is_some_and(|high| high + LAG_MS < now)
    }

    fn admits(&self, moment: u64, window: Window) -> bool {
        (self.low..=self.high.unwrap_or(window.to + LAG_MS + self.ttl_ms)).contains(&moment)
    }
}

/// What a reply must be.
#[derive(Clone, Debug)]
pub enum Expect {
    Simple(&'static str),
    Int(i64),
    /// A string, or that there is none.
    Text(Option<String>),
    Array(Vec<Expect>),
    /// Strings in any order; sorted here.
    Members(Vec<String>),
    /// Names, each followed by its value, in any order; sorted here.
    Pairs(Vec<(String, String)>),
    /// A name somewhere in a flat list of names and values, followed by this.
    Field(&'static str, Box<Expect>),
    /// An error that begins so.
    Error(&'static str),
    /// Of a key that expires.
    Until(Expiry, Box<Expect>, Box<Expect>),
    /// The moment at which the key expires.
    Moment(Expiry),
    /// How long the key has still to live.
    Left(Expiry),
}

impl Expect {
    pub fn text(text: &str) -> Expect {
        Expect::Text(Some(text.to_owned()))
    }

    pub fn texts<'a>(texts: impl Iterator<Item = &'a String>) -> Expect {
        Expect::Array(texts.map(|text| Expect::text(text)).collect())
    }

    pub fn ok() -> Expect {
        Expect::Simple("OK")
    }

    pub fn wrong_type() -> Expect {
        Expect::Error("WRONGTYPE ")
    }

    /// Whether a reply is this.
    pub fn fits(&self, reply: &Value, window: Window) -> bool {
        match (self, reply) {
            (Expect::Simple(text), Value::Simple(found)) => text.as_bytes() == found,
            (Expect::Int(number), Value::Int(found)) => number == found,
            (Expect::Text(Some(text)), Value::Bulk(found)) => text.as_bytes() == found,
            (Expect::Text(None), Value::Null | Value::NullArray) => true,
            (Expect::Array(all), Value::Array(found)) => {
                all.len() == found.len() && all.iter().zip(found).all(|(one, found)| one.fits(found, window))
            }
            (Expect::Members(members), Value::Array(found)) => {
                let mut found: Vec<&[u8]> = found.iter().filter_map(bulk).collect();
                found.sort_unstable();
                found.iter().copied().eq(members.iter().map(String::as_bytes))
            }
            (Expect::Pairs(pairs), Value::Array(found)) => {
                let mut found: Vec<_> = found
                    .chunks(2)
                    .map(|pair| (bulk(&pair[0]), pair.get(1).and_then(|value| bulk(value))))
                    .collect();
                found.sort_unstable();
                let pairs = pairs.iter().map(|(name, value)| (Some(name.as_bytes()), Some(value.as_bytes())));
                found.into_iter().eq(pairs)
            }
            (Expect::Field(name, value), Value::Array(found)) => {
                let at = found.iter().position(|word| bulk(word) == Some(name.as_bytes()));
                at.and_then(|at| found.get(at + 1)).is_some_and(|found| value.fits(found, window))
            }
            (Expect::Error(text), Value::Error(found)) => found.starts_with(text.as_bytes()),
            (Expect::Until(expiry, before, after), _) => {
                !expiry.is_surely_over(window.from) && before.fits(reply, window)
                    || !expiry.is_surely_ahead(window.to) && after.fits(reply, window)
            }
            (Expect::Moment(expiry), Value::Int(at)) => *at >= 0 && expiry.admits(*at as u64, window),
            (Expect::Left(expiry), Value::Int(left)) => {
                let low = expiry.low.saturating_sub(window.to + LAG_MS);
                let high = expiry.high.map_or(u64::MAX, |high| (high + LAG_MS).saturating_sub(window.from));
                *left >= 0 && (low..=high).contains(&(*left as u64))
            }
            _ => false,
        }
    }

    /// About so many bytes will come.
    pub fn bytes(&self) -> usize {
        8 + match self {
            Expect::Text(Some(text)) => text.len(),
            Expect::Array(all) => all.iter().map(Expect::bytes).sum(),
            Expect::Members(members) => members.iter().map(|member| member.len() + 8).sum(),
            Expect::Pairs(pairs) => pairs.iter().map(|(name, value)| name.len() + value.len() + 16).sum(),
            Expect::Until(_, before, _) => before.bytes(),
            _ => 0,
        }
    }
}

fn bulk(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Bulk(text) => Some(text),
        _ => None,
    }
}

/// A complaint's words for something long: its ends and its length.
pub fn shorten(text: &str) -> String {
    if text.chars().count() <= SHOWN_MAX {
        return text.to_owned();
    }
    let letters: Vec<char> = text.chars().collect();
    let (head, tail) = (&letters[..SHOWN_MAX / 2], &letters[letters.len() - SHOWN_MAX / 4..]);
    let [head, tail] = [head, tail].map(|part| part.iter().collect::<String>());
    format!("{head} ... {tail} ({} letters)", letters.len())
}

/// Where two long texts begin to differ, or both shortened.
pub fn contrast(expected: &Expect, found: &Value, window: Window) -> String {
    let mut text = String::new();
    describe(expected, found, window, &mut text);
    text
}

fn describe(expected: &Expect, found: &Value, window: Window, text: &mut String) {
    use fmt::Write as _;
    let show = |what: &dyn fmt::Debug| shorten(&format!("{what:?}"));
    match (expected, found) {
        (Expect::Until(expiry, before, after), _) => {
            let _ = write!(text, "the key expires at {expiry:?}, asked at {window:?}: ");
            describe(if expiry.is_surely_over(window.from) { after } else { before }, found, window, text);
        }
        (Expect::Array(all), Value::Array(replies)) => {
            let differs = |(one, reply): (&Expect, &Value)| !one.fits(reply, window);
            let at = all.iter().zip(replies).position(differs).unwrap_or(all.len().min(replies.len()));
            let _ = write!(text, "{} elements expected, {} there; [{at}]: ", all.len(), replies.len());
            match (all.get(at), replies.get(at)) {
                (Some(one), Some(reply)) => describe(one, reply, window, text),
                (one, reply) => {
                    let _ = write!(text, "expected {}, there is {}", show(&one), show(&shown(reply)));
                }
            }
        }
        (Expect::Text(Some(one)), Value::Bulk(other)) => {
            let other = String::from_utf8_lossy(other);
            let at = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
            let _ = write!(
                text,
                "{} bytes expected, {} there, alike up to {at}: expected {}, there is {}",
                one.len(),
                other.len(),
                shorten(one),
                shorten(&other)
            );
        }
        (Expect::Members(members), Value::Array(replies)) => {
            let found: Vec<_> =
                replies.iter().filter_map(bulk).map(|word| String::from_utf8_lossy(word)).collect();
            let missing: Vec<_> =
                members.iter().filter(|name| !found.iter().any(|one| one == *name)).collect();
            let extra: Vec<_> = found.iter().filter(|name| !members.iter().any(|one| one == *name)).collect();
            let _ = write!(
                text,
                "{} members expected, {} there; missing {}; too many {}",
                members.len(),
                found.len(),
                show(&missing),
                show(&extra)
            );
        }
        (Expect::Pairs(pairs), Value::Array(replies)) => {
            let mut found: Vec<_> =
                replies.chunks(2).map(|pair| (shown(pair.first()), shown(pair.get(1)))).collect();
            found.sort();
            let expected: Vec<_> = pairs.clone();
            let missing: Vec<_> = expected.iter().filter(|pair| !found.contains(pair)).collect();
            let extra: Vec<_> = found.iter().filter(|pair| !expected.contains(pair)).collect();
            let _ = write!(
                text,
                "{} fields expected, {} there; missing {}; too many {}",
                expected.len(),
                found.len(),
                show(&missing),
                show(&extra)
            );
        }
        _ => {
            let _ = write!(text, "expected {}, there is {}", show(expected), shorten(&shown(Some(found))));
        }
    }
}

/// A reply in letters.
pub fn shown(reply: Option<&Value>) -> String {
    match reply {
        None => "nothing".to_owned(),
        Some(Value::Bulk(text) | Value::Simple(text) | Value::Error(text)) => {
            String::from_utf8_lossy(text).into_owned()
        }
        Some(Value::Array(all)) => {
            format!("[{}]", all.iter().map(|one| shown(Some(one))).collect::<Vec<_>>().join(", "))
        }
        Some(other) => format!("{other:?}"),
    }
}
