//! The command line of `tarn whitepaper`: parsed whole before anything is done.
//!
//! Passwords in peers' addresses never reach the report: [`Options::command`] has them masked.

use super::chapters::{CHAPTERS, Chapter};
use super::peer::{Address, PeerCommand};
use super::proxy;
use super::scale::Size;
use crate::Failure;
use crate::secure::Tls;
use lexopt::prelude::*;
use std::path::PathBuf;

const USAGE: &str = "\
Measures Tarn and its peers with the published workloads and writes a report.

Usage: tarn whitepaper [OPTIONS]

  --peer NAME=ADDRESS    a server that is running, as HOST[:PORT] or redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE],
                         or rediss:// for TLS; its database must be empty, is filled, and is emptied at the end
  --cacert FILE          whose certificates count at peers with TLS; without it whoever answers is believed
  --cert FILE --key FILE what to show them, if they ask
  --overwrite            empty the databases of such peers even if they hold keys
  --peer-cmd COMMAND     a server to start, such as 'redis-server --port {port} --save \"\" --appendonly no';
                         {port} becomes a free port; it runs in a folder of its own that is removed afterwards; for
                         the chapters durable, capacity and replicated-durable, a redis-server or valkey-server is started
                         anew with --appendonly yes --appendfsync always --save '' added; for the chapters replicated it is
                         started twice more, each time with another one that follows it; for the chapters cluster and
                         cluster-proxies, as often as a cluster has servers, with --cluster-enabled yes added; for the
                         chapter twemproxy, the first of them twice, behind the proxies that are measured: Tarn's, and
                         twemproxy, if its program, nutcracker, is on the PATH or in /usr/sbin
  --chapters A,B         only these chapters (default: all)
  --quick                under 7 minutes instead of under 40 with one peer, over fewer keys: enough for a look;
                         without the chapters capacity, replicated, cluster and twemproxy under 2 instead of under 10
  --scale FACTOR         that many times the keys and the time (default 1)
  --out DIR              folder of the report (default: report)

Folders of servers are made in TMPDIR (default: /tmp; /var/tmp if that is in memory): on its disk the chapters durable,
capacity and replicated-durable are measured. capacity-scarce loads up to 8 million records (1.1 GB) into each server; it wants up to 10 GB of free
space there with one peer, and says so before it begins.
--peer and --peer-cmd may be given several times. Ctrl-C ends the run and keeps what was measured.

Chapters:";

/// What the command line asks for.
pub enum Asked {
    /// A run.
    Run(Box<Options>),
    /// This text.
    Help(String),
}

/// A run as it was asked for.
pub struct Options {
    /// Servers that are running.
    pub peers: Vec<(String, Address)>,
    /// Servers to be started.
    pub peer_commands: Vec<PeerCommand>,
    /// The program of twemproxy, if it is there.
    pub twemproxy: Option<PathBuf>,
    /// Whether a peer's keys may be lost.
    pub may_overwrite: bool,
    /// The chapters, in the table's order.
    pub chapters: Vec<&'static Chapter>,
    /// How long and how much.
    pub size: Size,
    /// Multiplies keys and time.
    pub factor: f64,
    /// The report's folder.
    pub out: PathBuf,
    /// The command line as it may be shown.
    pub command: String,
}

/// Parses the arguments behind the role.
///
/// # Errors
/// One sentence on the first argument that cannot be used.
pub fn parse(arguments: &[String]) -> Result<Asked, Failure> {
    let mut options = Options {
        peers: Vec::new(),
        peer_commands: Vec::new(),
        twemproxy: proxy::find_twemproxy(std::env::var_os("PATH").as_deref()),
        may_overwrite: false,
        chapters: CHAPTERS.iter().collect(),
        size: Size::Standard,
        factor: 1.0,
        out: PathBuf::from("report"),
        command: shown(arguments),
    };
    let mut tls = Tls::default();
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(failure)? {
        match argument {
            Long("peer") => options.peers.push(named_address(&text(&mut parser)?)?),
            Long("peer-cmd") => options.peer_commands.push(PeerCommand::parse(&text(&mut parser)?)?),
            Long("cacert") => tls.authorities = Some(text(&mut parser)?),
            Long("cert") => tls.certificate = Some(text(&mut parser)?),
            Long("key") => tls.key = Some(text(&mut parser)?),
            Long("overwrite") => options.may_overwrite = true,
            Long("chapters") => options.chapters = chosen(&text(&mut parser)?)?,
            Long("quick") => options.size = Size::Quick,
            Long("scale") => options.factor = factor(&text(&mut parser)?)?,
            Long("out") => options.out = parser.value().map_err(failure)?.into(),
            Short('h') | Long("help") => return Ok(Asked::Help(usage())),
            other => return Err(failure(other.unexpected())),
        }
    }
    for of_peer in options.peers.iter_mut().filter_map(|(_, address)| address.0.tls.as_mut()) {
        of_peer.clone_from(&tls);
    }
    Ok(Asked::Run(Box::new(options)))
}

fn usage() -> String {
    let mut text = USAGE.to_owned();
    for chapter in CHAPTERS {
        text.push_str(&format!("\n  {:<16} {}", chapter.name, chapter.title));
    }
    text
}

fn text(parser: &mut lexopt::Parser) -> Result<String, Failure> {
    parser.value().and_then(ValueExt::string).map_err(failure)
}

fn failure(error: lexopt::Error) -> Failure {
    Failure(format!("{error}. `tarn whitepaper --help` lists the options."))
}

fn named_address(text: &str) -> Result<(String, Address), Failure> {
    let (name, address) = text.split_once('=').ok_or_else(|| {
        Failure(format!("--peer '{}' is not NAME=ADDRESS, such as redis=127.0.0.1:6379.", masked(text)))
    })?;
    if name.is_empty() {
        return Err(Failure("--peer needs a name before the '='.".to_owned()));
    }
    Ok((name.to_owned(), Address::parse(address)?))
}

fn chosen(names: &str) -> Result<Vec<&'static Chapter>, Failure> {
    let names: Vec<&str> = names.split(',').map(str::trim).collect();
    for name in &names {
        if !CHAPTERS.iter().any(|chapter| chapter.name == *name) {
            let known: Vec<&str> = CHAPTERS.iter().map(|chapter| chapter.name).collect();
            return Err(Failure(format!("There is no chapter '{name}'; there are {}.", known.join(", "))));
        }
    }
    Ok(CHAPTERS.iter().filter(|chapter| names.contains(&chapter.name)).collect())
}

fn factor(text: &str) -> Result<f64, Failure> {
    match text.parse::<f64>() {
        Ok(factor) if (0.01..=1000.0).contains(&factor) => Ok(factor),
        _ => Err(Failure(format!("--scale '{text}' is not a number from 0.01 to 1000."))),
    }
}

/// The command line as a shell would take it, without passwords.
fn shown(arguments: &[String]) -> String {
    let mut text = String::from("tarn whitepaper");
    for argument in arguments {
        text.push(' ');
        text.push_str(&quoted(&masked(argument)));
    }
    text
}

/// An argument in quotes if a shell would divide or expand it.
fn quoted(argument: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=./:,@%+".contains(letter);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', "'\\''"))
}

/// A text with the password of an address in it replaced.
fn masked(text: &str) -> String {
    let Some(begin) = text.find("://").map(|at| at + 3) else { return text.to_owned() };
    let Some(end) = text[begin..].rfind('@').map(|at| begin + at) else { return text.to_owned() };
    match text[begin..end].find(':') {
        Some(colon) => format!("{}PASSWORD{}", &text[..=begin + colon], &text[end..]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Options, String> {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        match parse(&arguments) {
            Ok(Asked::Run(options)) => Ok(*options),
            Ok(Asked::Help(_)) => panic!("help"),
            Err(failure) => Err(failure.0),
        }
    }

    #[test]
    fn no_argument_asks_for_a_standard_run_of_all_chapters() {
        let options = parsed(&[]).unwrap();
        assert_eq!(options.chapters.len(), CHAPTERS.len());
        assert_eq!((options.size, options.factor), (Size::Standard, 1.0));
        assert_eq!(options.out, PathBuf::from("report"));
    }

    #[test]
    fn chapters_come_in_the_tables_order() {
        let options = parsed(&["--chapters", "ttl,memory"]).unwrap();
        let names: Vec<&str> = options.chapters.iter().map(|chapter| chapter.name).collect();
        assert_eq!(names, ["memory", "ttl"]);
    }

    #[test]
    fn mistakes_are_named() {
        for (arguments, words) in [
            (&["--chapters", "moon"][..], "no chapter 'moon'"),
            (&["--peer", "127.0.0.1:6379"], "NAME=ADDRESS"),
            (&["--peer", "redis=127.0.0.1:port"], "port"),
            (&["--peer-cmd", "redis-server"], "{port}"),
            (&["--scale", "much"], "--scale"),
            (&["--colour"], "--colour"),
            (&["--out"], "--out"),
        ] {
            let said = parsed(arguments).err().unwrap();
            assert!(said.contains(words), "{arguments:?}: {said}");
        }
    }

    #[test]
    fn the_shown_command_can_be_repeated_and_keeps_no_password() {
        let peer_command = "redis-server --port {port} --save \"\"";
        let options =
            parsed(&["--peer-cmd", peer_command, "--peer", "x=redis://me:s3cret@example:1/2"]).unwrap();
        assert!(options.command.contains("--peer-cmd 'redis-server --port {port} --save \"\"'"));
        assert!(options.command.contains("x=redis://me:PASSWORD@example:1/2"), "{}", options.command);
        assert!(!options.command.contains("s3cret"));
    }

    #[test]
    fn peers_with_tls_are_asked_for_the_certificates_that_count() {
        let addresses = ["--peer", "a=rediss://me:s3cret@example", "--peer", "b=redis://example"];
        let files = ["--cacert", "ca.crt", "--cert", "us.crt", "--key", "us.key"];
        let options = parsed(&[&addresses[..], &files[..]].concat()).unwrap();
        let tls = options.peers[0].1.0.tls.as_ref().unwrap();
        assert_eq!(tls.authorities.as_deref(), Some("ca.crt"));
        assert_eq!(tls.certificate.as_deref().zip(tls.key.as_deref()), Some(("us.crt", "us.key")));
        assert_eq!(options.peers[1].1.0.tls, None);
        assert!(!options.command.contains("s3cret"));
    }

    #[test]
    fn help_lists_every_chapter() {
        assert!(CHAPTERS.iter().all(|chapter| usage().contains(chapter.name)));
    }
}
