//! `tarn cluster`: the operator's tool. `up` runs a cluster; `backup` and `restore` go to servers, too ([`backup`]); all else is one request to a config server, and what moves slots shows how that goes.

use super::config_server::address;
use super::{option, progress, up, users, value_of};
use crate::asking::{Asking, Entry, Repeats, Watching};
use crate::backup::{self, Reach};
use crate::table::{self, TAKES_NO_CHANGES};
use lexopt::{Arg, Parser};
use net::tls;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

pub const USAGE: &str = "\
Runs a cluster for trials, and tends any cluster.

Usage: tarn cluster up [OPTION ...] [-- --DIRECTIVE VALUE ...]

Starts a whole cluster on this machine: a config server, all servers and a proxy, each with a directory in --dir. Ctrl-C ends
them; their data stay, and `up` goes on from there. What stands behind -- goes to each server.

  --shards COUNT     shards (3)
  --copies COUNT     servers of each (2)
  --port PORT        port of the first server; the others follow (7000)
  --config-port PORT port of the config server (7900)
  --proxy-port PORT  port of the proxy, which is one address for all of it (6400); none: there is none
  --dir DIR          where all lies (./tarn-cluster)
  --edition NAME     memory, durable or capacity (durable)
  --restore DIR      a new cluster begins with this backup

Usage: tarn cluster COMMAND [--config HOST:PORT[,HOST:PORT]] [--password TEXT] [--tls --cacert FILE]

  status [--json]              who is in the cluster, and how its shards stand
  topology                     what servers and proxies are told
  add-shard                    one shard more, as soon as there are servers for it
  remove-shard SHARD           its slots go to the other shards, and then it goes with its servers
  switch SHARD [--to ID]       another member is the shard's master; nothing is lost
  promote SHARD ID --accept-loss [--gone ID[,ID]|none]
                               a shard whose members are all gone for good begins anew with what this server has;
                               without --gone it only says who they are, and what is known of the loss; none: all
                               live, and have other data than what was acknowledged
  remove-server ID [--force]   a server goes, once another has its copy; --force: at once
  move-slots SHARD SLOT|FIRST-LAST ... [--from SHARD]
                               slots go to a shard, while they are served; --from: only if all are that shard's
  rebalance [--by slots|keys|bytes|ops] [--dry-run]
                               slots go to shards that have less than others (slots); --dry-run: says which would
  moves [--json]               slots that are on their way, and why those that have failed have
  cancel-move ID               a move ends without any change, or one that has failed is forgotten
  users list [--json]          the users of proxies that say `proxy-users cluster`
  users set 'user NAME RULE ...'
                               a user is this, at all of them; passwords (>TEXT) are hashed before they are sent
  users del NAME               a user goes
  backup DIR [--verify]        what all shards hold at one moment, while clients go on; --verify: looks at one, and asks
                               no cluster
  restore DIR                  brings a backup to a new cluster, whose config servers were begun with --await-restore yes
  set NAME VALUE               copies, shards, replace-after (seconds), move-rate (bytes a second, 0: unlimited),
                               auto-rebalance (no, slots, keys, bytes, ops) or rebalance-threshold (percent)

  move-slots, rebalance and remove-shard show how it goes until it is done; with --no-wait they only tell the moves.
  Whatever ends them, the moves go on: the same command again, or `moves`, shows them.
  An option that a command does not take is an error, and nothing is done.

  --config       where config servers are (127.0.0.1:7900)
  --password     what they want to hear
  --server-user, --server-password
                 what servers want to hear, for backup and restore (the same password, and no name)
  --tls          speak TLS with them, and with servers
  --cacert       the authorities that their certificates come from, in a file,
  --cacertdir    or in the files of a directory
  --cert, --key  what is shown to them";

/// The config server of a cluster that `up` has begun without other words.
pub const CONFIG_PORT: u16 = 7900;
/// The proxy of one.
pub const PROXY_PORT: u16 = 6400;
/// How long an answer may take that needs nobody else; a long one, each bit of it.
const ANSWERING: Duration = Duration::from_secs(10);
/// How long may take what waits for a copy.
const COPYING: Duration = Duration::from_secs(3700);

/// What each command takes beside [`FOR_ALL`]. Who says more means something that would not be done.
const TAKES: &[(&str, &[&str])] = &[
    ("status", &["json"]),
    ("topology", &[]),
    ("add-shard", &[]),
    ("remove-shard", &["no-wait"]),
    ("switch", &["to"]),
    ("promote", &["accept-loss", "gone"]),
    ("remove-server", &["force"]),
    ("move-slots", &["from", "no-wait"]),
    ("rebalance", &["by", "dry-run", "no-wait"]),
    ("moves", &["json"]),
    ("cancel-move", &[]),
    ("backup", &["verify", "server-user", "server-password"]),
    ("restore", &["server-user", "server-password"]),
    ("set", &[]),
    ("users", &["json"]),
];
/// How config servers are reached.
const FOR_ALL: &[&str] = &["config", "password", "tls", "cacert", "cacertdir", "cert", "key"];

#[derive(Default)]
struct Given {
    words: Vec<String>,
    /// The names of the options.
    said: Vec<String>,
    config: Option<String>,
    entry: Entry,
    wants_tls: bool,
    tls: tls::Settings,
    to: Option<String>,
    from: Option<String>,
    by: Option<String>,
    is_json: bool,
    is_forced: bool,
    accepts_loss: bool,
    gone: Option<String>,
    is_dry: bool,
    is_short: bool,
    is_look: bool,
    server_user: Option<String>,
    server_password: Option<String>,
}

impl Given {
    fn read(words: &[String]) -> Result<Given, String> {
        let mut parser = Parser::from_args(words.iter().map(OsString::from));
        let mut given = Given::default();
        while let Some(arg) = parser.next().map_err(|error| error.to_string())? {
            let name = match arg {
                Arg::Value(word) => {
                    given.words.push(word.to_string_lossy().into_owned());
                    continue;
                }
                other => option(other)?,
            };
            let mut value =
                || value_of(&mut parser, &name).map(|value| Some(value.to_string_lossy().into_owned()));
            match name.as_str() {
                "json" => given.is_json = true,
                "force" => given.is_forced = true,
                "accept-loss" => given.accepts_loss = true,
                "gone" => given.gone = value()?,
                "config" => given.config = value()?,
                "password" => given.entry.password = value()?,
                "tls" => given.wants_tls = true,
                "cacert" => given.tls.authorities_file = value()?.unwrap_or_default().into(),
                "cacertdir" => given.tls.authorities_dir = value()?.unwrap_or_default().into(),
                "cert" => given.tls.certificate = value()?.unwrap_or_default().into(),
                "key" => given.tls.key = value()?.unwrap_or_default().into(),
                "to" => given.to = value()?,
                "from" => given.from = value()?,
                "by" => given.by = value()?,
                "dry-run" => given.is_dry = true,
                "verify" => given.is_look = true,
                "server-user" => given.server_user = value()?,
                "server-password" => given.server_password = value()?,
                "no-wait" => given.is_short = true,
                _ => return Err(format!("there is no option --{name}; see --help")),
            }
            given.said.push(name);
        }
        given.refuse_strays()?;
        given.secure()?;
        Ok(given)
    }

    /// Refuses options that are another command's.
    fn refuse_strays(&self) -> Result<(), String> {
        let Some((command, takes)) = self.words.first().and_then(|word| takes_of(word)) else {
            return Ok(());
        };
        let takes = |name: &&String| FOR_ALL.contains(&name.as_str()) || takes.contains(&name.as_str());
        match self.said.iter().find(|name| !takes(name)) {
            None => Ok(()),
            Some(stray) if (command, stray.as_str()) == ("restore", "verify") => {
                Err("--verify is for `tarn cluster backup DIR`: `restore` looks at all of a backup anyway"
                    .to_owned())
            }
            Some(stray) => Err(format!("'{command}' takes no --{stray}; see --help")),
        }
    }

    /// Reads what it speaks TLS by, if it does.
    fn secure(&mut self) -> Result<(), String> {
        let names_files =
            [&self.tls.authorities_file, &self.tls.authorities_dir, &self.tls.certificate, &self.tls.key];
        match self.wants_tls {
            true => {
                let context = tls::Contexts::outgoing(&self.tls);
                self.entry.tls =
                    Some(context.map_err(|why| format!("--cacert, --cacertdir, --cert, --key: {why}"))?);
                Ok(())
            }
            false if names_files.iter().any(|path| !path.as_os_str().is_empty()) => {
                Err("--cacert, --cacertdir, --cert and --key go with --tls".to_owned())
            }
            false => Ok(()),
        }
    }

    /// Who is asked how things go.
    fn watching(&self) -> Result<Watching, String> {
        Ok(Watching::of(self.places()?, self.entry.clone()))
    }

    /// Has a request answered by the first config server that can.
    fn ask(&self, request: &[&str], patience: Duration) -> Result<String, String> {
        let repeats = match request {
            ["CLUSTER", "STATUS", ..] => Repeats::Yes,
            _ => Repeats::No,
        };
        // One that is cut off from the store tells what it knows all the same.
        let is_enough = |text: &str| match request {
            ["CLUSTER", "STATUS", ..] => is_of_now(text),
            _ => true,
        };
        let answer = Asking::first(&self.places()?, &self.entry, (request, patience), repeats, is_enough);
        answer.map(|(_, text)| text)
    }

    /// All users: their lines may be many, and come over a slow way.
    fn ask_users(&self) -> Result<String, String> {
        let ask = |asking: &mut Asking, patience| asking.hear_long_text(&["USERS", "GET"], patience);
        let answer = Asking::first_to(&self.places()?, &self.entry, (ask, ANSWERING), Repeats::Yes, |_| true);
        answer.map(|(_, text)| text)
    }

    /// How config servers and servers are reached.
    fn reach(&self) -> Result<Reach, String> {
        let servers = Entry {
            user: self.server_user.clone(),
            password: self.server_password.clone().or_else(|| self.entry.password.clone()),
            tls: self.entry.tls.clone(),
        };
        Ok(Reach { places: self.places()?, config: self.entry.clone(), servers })
    }

    fn places(&self) -> Result<Vec<(String, u16)>, String> {
        let text = self.config.as_deref().unwrap_or("127.0.0.1");
        let places: Option<Vec<(String, u16)>> =
            text.split(',').map(|place| address(place.trim(), CONFIG_PORT)).collect();
        places.ok_or_else(|| format!("--config wants HOST:PORT, and not '{text}'"))
    }
}

/// A command that there is, and the options that it takes.
fn takes_of(command: &str) -> Option<(&'static str, &'static [&'static str])> {
    TAKES.iter().find(|(name, _)| *name == command).copied()
}

/// Runs `tarn cluster`.
pub fn run(words: &[String]) -> Result<(), String> {
    if words.first().is_some_and(|word| word == "up") {
        return up::run(&words[1..]);
    }
    let given = Given::read(words)?;
    let all: Vec<&str> = given.words.iter().map(String::as_str).collect();
    let (request, patience) = match all.as_slice() {
        ["status"] => (vec!["CLUSTER", "STATUS", "JSON"], ANSWERING),
        ["topology"] => return show_topology(&given),
        ["add-shard"] => (vec!["CLUSTER", "ADD-SHARD"], ANSWERING),
        ["users", words @ ..] => return tend_users(&given, words),
        ["set", name, value] => (vec!["CLUSTER", "SET", name, value], ANSWERING),
        ["backup", dir] if given.is_look => return backup::verify(Path::new(dir)).map(drop),
        ["backup", dir] => return backup::take(&given.reach()?, Path::new(dir)),
        ["restore", dir] => {
            return backup::restore(&given.reach()?, Path::new(dir), &backup::Stand::default());
        }
        ["remove-shard", shard] => return remove_shard(&given, shard),
        ["switch", shard] => {
            let mut request = vec!["CLUSTER", "SWITCH", shard];
            request.extend(given.to.as_deref().map(|to| ["TO", to]).into_iter().flatten());
            (request, 2 * ANSWERING)
        }
        ["promote", shard, id] if given.accepts_loss => {
            let mut request = vec!["CLUSTER", "PROMOTE", shard, id, "ACCEPT-LOSS"];
            let gone = given.gone.as_deref().map(|gone| if gone == "none" { "-" } else { gone });
            request.extend(gone.iter().flat_map(|gone| std::iter::once("GONE").chain(gone.split(','))));
            (request, 2 * ANSWERING)
        }
        ["promote", _, _] => {
            return Err("promote gives up what was acknowledged and this server lacks: say --accept-loss, if no member of the shard will ever come back; `switch` loses nothing".to_owned());
        }
        ["remove-server", id] => {
            let mut request = vec!["CLUSTER", "REMOVE-SERVER", id];
            request.extend(given.is_forced.then_some("FORCE"));
            (request, COPYING)
        }
        ["moves"] => (vec!["CLUSTER", "STATUS", "JSON"], ANSWERING),
        ["cancel-move", id] => (vec!["CLUSTER", "CANCEL-MOVE", id], ANSWERING),
        ["move-slots", to, slots @ ..] if !slots.is_empty() => {
            let mut request = vec!["CLUSTER", "MOVE-SLOTS", given.from.as_deref().unwrap_or("-"), to];
            request.extend(slots);
            return move_slots(&given, &request);
        }
        ["rebalance"] => {
            let mut request = vec!["CLUSTER", "REBALANCE"];
            request.extend(given.by.as_deref().map(|by| ["BY", by]).into_iter().flatten());
            request.extend(given.is_dry.then_some("DRY-RUN"));
            return move_slots(&given, &request);
        }
        [] => return Err("what is to be done is missing; see --help".to_owned()),
        [command, ..] if takes_of(command).is_some() => {
            return Err(format!("'{command}' wants other words; see --help"));
        }
        [other, ..] => return Err(format!("'{other}' is no command of tarn cluster; see --help")),
    };
    let answer = given.ask(&request, patience)?;
    let answer = shown(&all, given.is_json, answer);
    // A closed pipe has read enough.
    let _ = writeln!(io::stdout(), "{}", answer.trim_end());
    Ok(())
}

/// What is shown of an answer.
fn shown(command: &[&str], is_json: bool, answer: String) -> String {
    match command {
        ["status"] if !is_json => table::of(&read(&answer)),
        ["moves"] if is_json => {
            // What is read by a program is what it always was.
            let status = read(&answer);
            warn(&status);
            status["moves"].to_string()
        }
        ["moves"] => table::of_moves(&read(&answer)),
        _ => answer,
    }
}

/// Whether a status, as JSON, is of a config server with which all is well, and that reaches the one that leads: whose it is if there is such a one.
pub fn is_of_now(json: &str) -> bool {
    let status = read(json);
    status["is_of_leader"].as_bool() != Some(false) && state_of_store(json).is_none_or(|state| state == "ok")
}

/// Whether it tells what there is, though its store may take no changes.
pub fn is_read(json: &str) -> bool {
    state_of_store(json).is_none_or(|state| state == "ok" || state.starts_with(TAKES_NO_CHANGES))
}

/// How the store of decisions is, by a status; None: that does not say it.
fn state_of_store(json: &str) -> Option<String> {
    let status = read(json);
    status["store"].as_str().map(str::to_owned)
}

fn read(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_default()
}

/// Says beside what is shown why it may be old.
fn warn(status: &Value) {
    // Who closed standard error does not want to see this.
    let _ = write!(io::stderr(), "{}", table::warnings(status));
}

/// The topology of a config server that has news of the store, or else of the first that says one; with what is wrong with its store.
///
/// # Errors
/// Nobody says one.
pub fn topology(places: &[(String, u16)], entry: &Entry) -> Result<(Value, String), String> {
    // What it says itself: a status may be the leader's, whose store is well.
    let ask = |asking: &mut Asking, patience| {
        let info = asking.hear_text(&["INFO"], patience)?;
        let state = info.lines().find_map(|line| line.strip_prefix("store_status:"));
        Ok((json!({ "store": state }), asking.hear_long_text(&["TOPOLOGY", "GET"], patience)?))
    };
    let is_enough = |(status, _): &(Value, String)| is_read(&status.to_string());
    Asking::first_to(places, entry, (ask, ANSWERING), Repeats::Yes, is_enough).map(|(_, told)| told)
}

fn show_topology(given: &Given) -> Result<(), String> {
    let (status, text) = topology(&given.places()?, &given.entry)?;
    if !is_read(&status.to_string()) {
        warn(&status);
    }
    // A closed pipe has read enough.
    let _ = writeln!(io::stdout(), "{}", text.trim_end());
    Ok(())
}

/// Shows the users of proxies, or changes one.
fn tend_users(given: &Given, words: &[&str]) -> Result<(), String> {
    let answer = match words {
        ["list"] => users::shown(&given.ask_users()?, given.is_json),
        ["set" | "del", ..] if given.is_json => {
            return Err("--json goes with `users list`; see --help".to_owned());
        }
        ["set", line] => given.ask(&["USERS", "SET", &users::hashed(line)?], 2 * ANSWERING)?,
        ["del", name] => given.ask(&["USERS", "DEL", name], 2 * ANSWERING)?,
        _ => return Err("'users' wants other words; see --help".to_owned()),
    };
    // A closed pipe has read enough.
    let _ = writeln!(io::stdout(), "{}", answer.trim_end());
    Ok(())
}

/// Has a shard go, step by step.
fn remove_shard(given: &Given, shard: &str) -> Result<(), String> {
    loop {
        let answer = given.ask(&["CLUSTER", "REMOVE-SHARD", shard], 2 * ANSWERING)?;
        // A closed pipe has read enough.
        let _ = writeln!(io::stdout(), "{}", answer.trim_end());
        match progress::named(&answer) {
            Some(ids) if !given.is_short => progress::show(ids, given.watching()?)?,
            Some(_) => {
                // Standard output has the moves, for whoever waits for them.
                let _ = writeln!(
                    io::stderr(),
                    "shard {shard} stays until this is said again when its moves are over"
                );
                return Ok(());
            }
            None => return Ok(()),
        }
    }
}

/// Begins moves, and shows them until they are over.
fn move_slots(given: &Given, request: &[&str]) -> Result<(), String> {
    let answer = given.ask(request, 2 * ANSWERING)?;
    // A closed pipe has read enough.
    let _ = writeln!(io::stdout(), "{}", answer.trim_end());
    match progress::named(&answer) {
        Some(ids) if !ids.is_empty() && !given.is_short => progress::show(ids, given.watching()?),
        _ => Ok(()),
    }
}
