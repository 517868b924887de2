//! Arguments to numbers, moments and options, for all families.
//!
//! A handler reads its fixed arguments with the functions here and the optional
//! ones with [`Options`]: it asks for each option it knows, in a loop, and checks
//! once at the end. The first error is kept and what follows it is not looked at,
//! so that the handler has no ladder of error branches.
//!
//! Thread rule: pure functions of a request; any thread.
//!
//! Invariants:
//! 1. An [`Options`] loop ends: each round consumes a word or latches an error.
//! 2. Numbers of options are parsed after the last option was read, as Redis does:
//!    `SET k v EX x NO` is a syntax error, not a bad integer.

use crate::args::Args;
use crate::error::{Error, Result};
use sys::UnixMs;
use value::extended::Extended;
use value::number::parse_i64;
use wire::Request;

/// Whether one of these words is among a request's arguments, in any case.
pub fn has_word(request: &Request<'_>, words: &[&str]) -> bool {
    request.iter().skip(1).any(|arg| words.iter().any(|word| arg.eq_ignore_ascii_case(word.as_bytes())))
}

/// Whether a request gives a time to live, rather than a moment.
pub fn has_time_to_live(request: &Request<'_>) -> bool {
    has_word(request, &["ex", "px"])
}

/// A 64-bit integer argument.
///
/// # Errors
/// [`Error::NotInteger`].
#[inline]
pub fn int(text: &[u8]) -> Result<i64> {
    parse_i64(text).ok_or(Error::NotInteger)
}

/// A 64-bit integer argument that has to lie in `range`; otherwise `refusal` is
/// the answer, in full with its code, whatever is wrong with it.
///
/// # Errors
/// [`Error::Text`] with the refusal.
pub fn int_within(text: &[u8], range: std::ops::RangeInclusive<i64>, refusal: &'static str) -> Result<i64> {
    parse_i64(text).filter(|number| range.contains(number)).ok_or(Error::text(refusal))
}

/// The moment at which a wait of so many seconds ends. None: never, the argument is 0.
///
/// # Errors
/// The texts of a timeout that is no number, negative, or beyond the last moment.
pub fn timeout(text: &[u8], now: UnixMs) -> Result<Option<UnixMs>> {
    let seconds = Extended::parse(text).ok_or(Error::TIMEOUT_NOT_FLOAT)?;
    let ms = seconds.times_rounded_up(1000).ok_or(Error::TIMEOUT_OUT_OF_RANGE)?;
    match ms {
        ..0 => Err(Error::TIMEOUT_NEGATIVE),
        0 => Ok(None),
        ms => {
            let moment = ms.checked_add_unsigned(now.0).ok_or(Error::TIMEOUT_OUT_OF_RANGE)?;
            Ok(Some(UnixMs(moment.unsigned_abs())))
        }
    }
}

/// The moment at which a wait of so many milliseconds ends. None: never, the argument is 0.
///
/// # Errors
/// The texts of a timeout that is no integer, negative, or beyond the last moment.
pub fn timeout_ms(text: &[u8], now: UnixMs) -> Result<Option<UnixMs>> {
    let timeout = parse_i64(text).ok_or(Error::TIMEOUT_NOT_INTEGER)?;
    match u64::try_from(timeout).map_err(|_| Error::TIMEOUT_NEGATIVE)? {
        0 => Ok(None),
        ms if ms > i64::MAX as u64 - now.0 => Err(Error::TIMEOUT_OUT_OF_RANGE),
        ms => Ok(Some(UnixMs(now.0 + ms))),
    }
}

/// The options after a request's fixed arguments, read from left to right.
pub struct Options<'a> {
    request: Request<'a>,
    next: usize,
    error: Option<Error>,
}

impl<'a> Options<'a> {
    /// The words of a request from position `first` on.
    pub fn from(args: &Args<'a>, first: usize) -> Options<'a> {
        Options { request: args.request, next: first, error: None }
    }

    /// Whether there is another word to read and no error yet.
    pub fn more(&self) -> bool {
        self.error.is_none() && self.next < self.request.len()
    }

    /// Consumes the next word if it is `word`, in any case.
    pub fn take(&mut self, word: &str) -> bool {
        let found = self.at(self.next).is_some_and(|next| next.eq_ignore_ascii_case(word.as_bytes()));
        self.next += usize::from(found);
        found
    }

    /// Consumes the next word and the one after it if the first is `word`, in any
    /// case, and there is a second, which is returned.
    pub fn take_with_value(&mut self, word: &str) -> Option<&'a [u8]> {
        let value = self.at(self.next + 1)?;
        self.take(word).then(|| {
            self.next += 1;
            value
        })
    }

    /// Consumes the next word and the two after it if the first is `word`, in any case,
    /// and there are two more, which are returned.
    pub fn take_with_two(&mut self, word: &str) -> Option<(&'a [u8], &'a [u8])> {
        let values = (self.at(self.next + 1)?, self.at(self.next + 2)?);
        self.take(word).then(|| {
            self.next += 2;
            values
        })
    }

    /// How many words there are to read.
    pub fn left(&self) -> usize {
        self.request.len().saturating_sub(self.next)
    }

    /// Consumes the next word, whatever it is; a syntax error if there is none.
    pub fn word(&mut self) -> &'a [u8] {
        match self.at(self.next) {
            Some(word) => {
                self.next += 1;
                word
            }
            None => {
                self.refuse();
                b""
            }
        }
    }

    /// Consumes the next word as an integer; 0 stands in for one that is not.
    pub fn int(&mut self) -> i64 {
        let text = self.word();
        if self.error.is_some() {
            return 0;
        }
        int(text).unwrap_or_else(|error| {
            self.fail(error);
            0
        })
    }

    /// Latches a syntax error: the next word is no option that fits here.
    pub fn refuse(&mut self) {
        self.fail(Error::Syntax);
    }

    /// Latches an error; the first one stays.
    pub fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// The first error that was latched.
    pub fn finish(self) -> Result<()> {
        self.error.map_or(Ok(()), Err)
    }

    fn at(&self, position: usize) -> Option<&'a [u8]> {
        if self.error.is_some() { None } else { self.request.get(position) }
    }
}

/// How the number of an expiry option is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryUnit {
    /// EX: seconds from now.
    Seconds,
    /// PX: milliseconds from now.
    Milliseconds,
    /// EXAT: seconds since 1970.
    UnixSeconds,
    /// PXAT: milliseconds since 1970.
    UnixMilliseconds,
}

impl ExpiryUnit {
    const WORDS: [(&'static str, ExpiryUnit); 4] = [
        ("EX", ExpiryUnit::Seconds),
        ("PX", ExpiryUnit::Milliseconds),
        ("EXAT", ExpiryUnit::UnixSeconds),
        ("PXAT", ExpiryUnit::UnixMilliseconds),
    ];

    /// Whether the number is a moment, not a span from now.
    pub fn is_absolute(self) -> bool {
        matches!(self, ExpiryUnit::UnixSeconds | ExpiryUnit::UnixMilliseconds)
    }
}

/// What a request says about a key's expiry: at most one of these. The number is
/// kept as text until all options are read (invariant 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpiryOption<'a> {
    /// Nothing.
    #[default]
    Unsaid,
    /// KEEPTTL.
    Keep,
    /// PERSIST.
    Persist,
    /// EX, PX, EXAT or PXAT with its number.
    Expire(ExpiryUnit, &'a [u8]),
}

impl<'a> ExpiryOption<'a> {
    /// Consumes EX, PX, EXAT or PXAT with its number, unless another expiry option
    /// was there before. The same one again replaces the first.
    pub fn take_expire(&mut self, options: &mut Options<'a>) -> bool {
        for (word, unit) in ExpiryUnit::WORDS {
            let fits = match self {
                ExpiryOption::Unsaid => true,
                ExpiryOption::Expire(before, _) => *before == unit,
                ExpiryOption::Keep | ExpiryOption::Persist => false,
            };
            if fits && let Some(text) = options.take_with_value(word) {
                *self = ExpiryOption::Expire(unit, text);
                return true;
            }
        }
        false
    }

    /// Consumes KEEPTTL, unless another expiry option was there before.
    pub fn take_keep(&mut self, options: &mut Options<'a>) -> bool {
        self.take_word(options, "KEEPTTL", ExpiryOption::Keep)
    }

    /// Consumes PERSIST, unless another expiry option was there before.
    pub fn take_persist(&mut self, options: &mut Options<'a>) -> bool {
        self.take_word(options, "PERSIST", ExpiryOption::Persist)
    }

    fn take_word(&mut self, options: &mut Options<'a>, word: &str, meaning: ExpiryOption<'a>) -> bool {
        let taken = (*self == ExpiryOption::Unsaid || *self == meaning) && options.take(word);
        if taken {
            *self = meaning;
        }
        taken
    }

    /// The moment that the option names, if it names one; `command` is the name for
    /// the error's text.
    ///
    /// # Errors
    /// As [`expires_at`].
    pub fn moment(self, now: UnixMs, command: &str) -> Result<Option<UnixMs>> {
        match self {
            ExpiryOption::Expire(unit, text) => expires_at(text, unit, now, command).map(Some),
            _ => Ok(None),
        }
    }
}

/// The moment at which a key with this expiry argument expires; it may be past if
/// the argument is a moment.
///
/// # Errors
/// [`Error::NotInteger`]; [`Error::expire_time`] if the number is not positive or
/// the moment lies beyond 2^63 milliseconds.
pub fn expires_at(text: &[u8], unit: ExpiryUnit, now: UnixMs, command: &str) -> Result<UnixMs> {
    let number = int(text)?;
    let ms = match unit {
        ExpiryUnit::Seconds => number.checked_mul(1000).and_then(|ms| ms.checked_add_unsigned(now.0)),
        ExpiryUnit::Milliseconds => number.checked_add_unsigned(now.0),
        ExpiryUnit::UnixSeconds => number.checked_mul(1000),
        ExpiryUnit::UnixMilliseconds => Some(number),
    };
    match ms {
        Some(ms) if number > 0 => Ok(UnixMs(ms.unsigned_abs())),
        _ => Err(Error::expire_time(command)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::RequestBuf;

    fn with_options<T>(words: &[&str], read: impl FnOnce(Options<'_>) -> T) -> T {
        let request = RequestBuf::from_args(words);
        read(Options { request: request.as_request(), next: 0, error: None })
    }

    #[test]
    fn first_error_stays_and_ends_the_reading() {
        let result = with_options(&["COUNT", "x", "COUNT", "2", "FOO"], |mut options| {
            while options.more() {
                if options.take("count") {
                    options.int();
                } else {
                    options.refuse();
                }
            }
            assert!(!options.take("COUNT"), "nothing is read behind an error");
            options.finish()
        });
        assert_eq!(result, Err(Error::NotInteger));
    }

    #[test]
    fn option_without_its_value_is_not_taken() {
        with_options(&["LIMIT"], |mut options| {
            assert_eq!(options.take_with_value("LIMIT"), None);
            assert!(options.more());
            assert!(options.take("LIMIT"));
            assert!(options.word().is_empty());
            assert_eq!(options.finish(), Err(Error::Syntax));
        });
    }

    #[test]
    fn one_kind_of_expiry_is_taken_and_its_last_number_counts() {
        with_options(&["ex", "1", "EX", "2", "PX", "3"], |mut options| {
            let mut expiry = ExpiryOption::default();
            assert!(expiry.take_expire(&mut options) && expiry.take_expire(&mut options));
            assert!(!expiry.take_expire(&mut options) && !expiry.take_keep(&mut options));
            assert_eq!(expiry.moment(UnixMs(1000), "set"), Ok(Some(UnixMs(3000))));
        });
    }

    #[test]
    fn moments_end_with_63_bits() {
        let now = UnixMs(1000);
        let refused = Err(Error::expire_time("set"));
        for (text, unit, moment) in [
            ("9223372036854774807", ExpiryUnit::Milliseconds, Ok(UnixMs(i64::MAX as u64))),
            ("9223372036854774808", ExpiryUnit::Milliseconds, refused.clone()),
            ("9223372036854774", ExpiryUnit::Seconds, Ok(UnixMs(9_223_372_036_854_775_000))),
            ("9223372036854775", ExpiryUnit::Seconds, refused.clone()),
            ("9223372036854775", ExpiryUnit::UnixSeconds, Ok(UnixMs(9_223_372_036_854_775_000))),
            ("9223372036854776", ExpiryUnit::UnixSeconds, refused.clone()),
            ("0", ExpiryUnit::UnixMilliseconds, refused),
            ("x", ExpiryUnit::Seconds, Err(Error::NotInteger)),
        ] {
            assert_eq!(expires_at(text.as_bytes(), unit, now, "set"), moment, "{text}");
        }
    }

    #[test]
    fn integers_outside_their_range_give_the_refusal() {
        for text in ["0", "11", "x", ""] {
            assert_eq!(int_within(text.as_bytes(), 1..=10, "ERR no"), Err(Error::text("ERR no")), "{text}");
        }
        assert_eq!(int_within(b"10", 1..=10, "ERR no"), Ok(10));
    }
}
