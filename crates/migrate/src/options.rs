//! The role `tarn migrate`: its words. Ends with 0 if all is well, else with 1 and a sentence on standard error.

use crate::course;
use crate::limits::HOLD;
use crate::place::{Entry, Place, Url};
use lexopt::{Arg, Parser};
use net::tls;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "\
Imports data into a Tarn, a Redis or a Valkey, or a cluster of them, while clients go on writing to where they are.

Usage: tarn migrate --from redis://HOST:PORT --to redis://HOST:PORT [OPTION ...]

Copies all keys of the source, and whatever is written there meanwhile and afterwards, until the cut-over. A source that is
a node of a cluster stands for all of its masters, a target that is one for the whole cluster. An address may have a user
and a password, redis://USER:PASSWORD@HOST:PORT, and is rediss://... for TLS. Shows each second how far it is. Ctrl-C ends it;
the same command goes on from there, as long as the source still has what was written since.

  --verify             at the cut-over, compare the values of all keys (not the times to live of fields of hashes)
  --until-caught-up    cut over as soon as everything has come
  --hold SECONDS       writers are held at the source that long for the cut-over (60; 0: they are not held)
  --into-nonempty      the target may have keys; those that the source has, too, are replaced, and the others stay
  --anew               begin with a new copy, whatever an earlier run has left
  --cacert FILE        with TLS: the authorities that certificates come from, in a file,
  --cacertdir DIR      or in the files of a directory
  --cert FILE, --key FILE
                       what is shown to servers

Usage: tarn migrate cut-over --to redis://HOST:PORT

Asks the import into this target to end: writers are held at the source, the rest comes, times to live are put right, and, if
the import was begun with --verify, all values are compared. Ends with 0 as soon as the import has heard it, whatever comes of
it: that says the import, and its own exit status. Takes --to and the options of TLS only. docs/migrate.md has the steps.";

/// What is asked.
pub struct Options {
    /// Where the data are.
    pub from: (Place, Entry),
    /// Where they go.
    pub to: (Place, Entry),
    /// Values are compared at the end.
    pub verifies: bool,
    /// The end comes by itself.
    pub until_caught_up: bool,
    /// How long writers are held at the source.
    pub hold: Duration,
    /// The target may have keys.
    pub into_nonempty: bool,
    /// What an earlier run has left does not count.
    pub anew: bool,
}

/// Runs `tarn migrate` with the words that follow it.
#[must_use]
pub fn run(words: &[String]) -> ExitCode {
    if words.iter().any(|word| matches!(word.as_str(), "-h" | "--help")) {
        // A closed pipe has read enough.
        let _ = writeln!(io::stdout(), "{USAGE}");
        return ExitCode::SUCCESS;
    }
    match read(words).and_then(Asked::carry_out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            let _ = writeln!(io::stderr(), "tarn migrate: {sentence}");
            ExitCode::FAILURE
        }
    }
}

enum Asked {
    Import(Box<Options>),
    CutOver(Place, Entry),
}

impl Asked {
    fn carry_out(self) -> Result<(), String> {
        match self {
            Asked::Import(options) => course::run(&options),
            Asked::CutOver(place, entry) => course::ask_to_cut_over(&place, &entry),
        }
    }
}

#[derive(Default)]
struct Given {
    command: Option<String>,
    from: Option<String>,
    to: Option<String>,
    tls: tls::Settings,
    verifies: bool,
    until_caught_up: bool,
    hold: Option<String>,
    into_nonempty: bool,
    anew: bool,
    /// The names of the options.
    said: Vec<String>,
}

/// What `cut-over` takes: the import has all else.
const OF_CUT_OVER: [&str; 5] = ["to", "cacert", "cacertdir", "cert", "key"];

fn read(words: &[String]) -> Result<Asked, String> {
    let given = Given::read(words)?;
    if given.command.as_deref() == Some("cut-over")
        && let Some(stray) = given.said.iter().find(|name| !OF_CUT_OVER.contains(&name.as_str()))
    {
        return Err(format!(
            "'cut-over' takes no --{stray}, which is for the import that it asks to end; see --help"
        ));
    }
    let to = given.to.as_deref().ok_or("--to says where the data go; see --help")?;
    given.refuse_idle_files()?;
    let to = given.entry(to)?;
    if let Some(command) = &given.command {
        return match command.as_str() {
            "cut-over" => Ok(Asked::CutOver(to.0, to.1)),
            other => Err(format!("'{other}' is one word too many; see --help")),
        };
    }
    let from = given.from.as_deref().ok_or("--from says where the data are; see --help")?;
    let hold = match &given.hold {
        None => HOLD,
        Some(text) => Duration::from_secs(
            text.parse().map_err(|_| format!("--hold: '{text}' is no number of seconds"))?,
        ),
    };
    Ok(Asked::Import(Box::new(Options {
        from: given.entry(from)?,
        to,
        verifies: given.verifies,
        until_caught_up: given.until_caught_up,
        hold,
        into_nonempty: given.into_nonempty,
        anew: given.anew,
    })))
}

impl Given {
    fn read(words: &[String]) -> Result<Given, String> {
        let mut parser = Parser::from_args(words.iter().map(OsString::from));
        let mut given = Given::default();
        while let Some(arg) = parser.next().map_err(|error| error.to_string())? {
            let name = match arg {
                Arg::Long(name) => name.to_owned(),
                Arg::Short(letter) => return Err(format!("there is no option -{letter}; see --help")),
                Arg::Value(word) if given.command.is_none() => {
                    given.command = Some(word.to_string_lossy().into_owned());
                    continue;
                }
                Arg::Value(word) => {
                    return Err(format!("'{}' is one word too many; see --help", word.to_string_lossy()));
                }
            };
            let mut value = || {
                let value = parser.value().map_err(|_| format!("--{name} needs a value"))?;
                Ok::<String, String>(value.to_string_lossy().into_owned())
            };
            match name.as_str() {
                "from" => given.from = Some(value()?),
                "to" => given.to = Some(value()?),
                "hold" => given.hold = Some(value()?),
                "cacert" => given.tls.authorities_file = value()?.into(),
                "cacertdir" => given.tls.authorities_dir = value()?.into(),
                "cert" => given.tls.certificate = value()?.into(),
                "key" => given.tls.key = value()?.into(),
                "verify" => given.verifies = true,
                "until-caught-up" => given.until_caught_up = true,
                "into-nonempty" => given.into_nonempty = true,
                "anew" => given.anew = true,
                other => return Err(format!("there is no option --{other}; see --help")),
            }
            given.said.push(name);
        }
        Ok(given)
    }

    /// Refuses what TLS is spoken by where nobody speaks it: who names it does not want a password to go as it is.
    fn refuse_idle_files(&self) -> Result<(), String> {
        let is_tls = |url: &String| Url::parse(url).is_ok_and(|url| url.is_secure);
        let addresses = [&self.from, &self.to].into_iter().flatten();
        let idle =
            self.said.iter().find(|name| matches!(name.as_str(), "cacert" | "cacertdir" | "cert" | "key"));
        match idle {
            Some(name) if !addresses.into_iter().any(is_tls) => {
                Err(format!("--{name} is for TLS, and no address says rediss://"))
            }
            _ => Ok(()),
        }
    }

    fn entry(&self, url: &str) -> Result<(Place, Entry), String> {
        let url = Url::parse(url)?;
        let tls = match url.is_secure {
            true => Some(tls::Contexts::outgoing(&self.tls)?),
            false => None,
        };
        Ok((url.place, Entry { user: url.user, password: url.password, tls }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(line: &str) -> String {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        read(&words).err().unwrap_or_default()
    }

    #[test]
    fn words_that_are_none_are_refused_with_a_sentence() {
        assert!(wrong("--from redis://a").contains("--to says"));
        assert!(wrong("--to redis://a").contains("--from says"));
        assert!(wrong("begin --to redis://a").contains("one word too many"));
        assert!(wrong("--to redis://a --from redis://b --hold soon").contains("no number"));
        assert!(wrong("--to redis://a --from rediss://b").contains("authority"));
        assert_eq!(wrong("--to redis://a --from redis://b --hold 0 --verify"), "");
        assert_eq!(wrong("cut-over --to redis://a"), "");
        for stray in
            ["--from redis://b", "--verify", "--hold 9", "--anew", "--until-caught-up", "--into-nonempty"]
        {
            let name = stray.split(' ').next().unwrap_or_default();
            let told = wrong(&format!("cut-over --to redis://a {stray}"));
            assert!(told.contains(&format!("takes no {name}")), "{told}");
        }
        for name in ["--cacert", "--cacertdir", "--cert", "--key"] {
            let idle = format!("{name} is for TLS, and no address says rediss://");
            assert_eq!(wrong(&format!("--to redis://a --from redis://b {name} x")), idle);
            assert_eq!(wrong(&format!("cut-over --to redis://a {name} x")), idle);
            assert!(!wrong(&format!("--to redis://a --from rediss://b {name} x")).contains("is for TLS"));
        }
    }
}
