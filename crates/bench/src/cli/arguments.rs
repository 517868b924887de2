//! The arguments one by one, with values that are checked and complaints that name the option.

use crate::Failure;
use lexopt::{Arg, Parser};
use std::ffi::OsString;

/// One argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// An option with its dashes; its value is asked for next.
    Option(String),
    /// Anything else.
    Word(String),
}

/// The arguments of a subcommand.
pub struct Arguments {
    parser: Parser,
    option: String,
}

impl Arguments {
    /// From the words behind the subcommand's name.
    pub fn new(words: &[String]) -> Arguments {
        Arguments { parser: Parser::from_args(words.iter().map(OsString::from)), option: String::new() }
    }

    /// The next argument.
    ///
    /// # Errors
    /// An option has a value that was not asked for.
    pub fn next(&mut self) -> Result<Option<Given>, Failure> {
        let given = match self.parser.next().map_err(|error| Failure(error.to_string()))? {
            None => return Ok(None),
            Some(Arg::Short(letter)) => Given::Option(format!("-{letter}")),
            Some(Arg::Long(name)) => Given::Option(format!("--{name}")),
            Some(Arg::Value(word)) => Given::Word(word.to_string_lossy().into_owned()),
        };
        if let Given::Option(option) = &given {
            self.option.clone_from(option);
        }
        Ok(Some(given))
    }

    /// All that is left, as it stands.
    pub fn rest(&mut self) -> Vec<String> {
        let words = self.parser.raw_args().into_iter().flatten();
        words.map(|word| word.to_string_lossy().into_owned()).collect()
    }

    /// The value of the option just returned.
    ///
    /// # Errors
    /// There is none.
    pub fn text(&mut self) -> Result<String, Failure> {
        let value = self.parser.value().map_err(|_| Failure(format!("{} needs a value", self.option)))?;
        Ok(value.to_string_lossy().into_owned())
    }

    /// A whole number; `k`, `m` and `g` behind it stand for thousands, millions and billions.
    ///
    /// # Errors
    /// It is none, or does not fit 64 bits.
    pub fn count(&mut self) -> Result<u64, Failure> {
        let text = self.text()?;
        parse_count(&text).ok_or_else(|| self.wrong(&text, "a whole number"))
    }

    /// A whole number that is not as large.
    ///
    /// # Errors
    /// As [`Arguments::count`].
    pub fn small_count(&mut self) -> Result<u32, Failure> {
        let text = self.text()?;
        let number = parse_count(&text).and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| self.wrong(&text, "a whole number of this size"))
    }

    /// A number that is not negative.
    ///
    /// # Errors
    /// It is none.
    pub fn number(&mut self) -> Result<f64, Failure> {
        let text = self.text()?;
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
        number.ok_or_else(|| self.wrong(&text, "a number"))
    }

    /// A complaint about a value of the option just returned.
    pub fn wrong(&self, value: &str, expected: &str) -> Failure {
        Failure(format!("{}: '{value}' is not {expected}", self.option))
    }
}

/// Reads a whole number with `k`, `m` or `g` behind it.
pub fn parse_count(text: &str) -> Option<u64> {
    let (digits, unit) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (&text[..at], 1_000),
        (at, 'm' | 'M') => (&text[..at], 1_000_000),
        (at, 'g' | 'G') => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_64_bits_and_units() {
        assert_eq!(parse_count("18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_count("640m"), Some(640_000_000));
        assert_eq!((parse_count("1x"), parse_count("-1"), parse_count("")), (None, None, None));
    }
}
