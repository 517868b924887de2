//! The users of a proxy, where a cluster's store of decisions keeps them for all of its proxies (`proxy-users cluster`).
//!
//! One thread follows config servers, one after another: what it hears takes the place of what was known, as by ACL LOAD. Another has the config servers change
//! users for clients, one request after another, and is done when the change was heard here, too. While no config server is reached, what is known counts.
//!
//! Thread rule: shared. No worker waits: a client whose request is done is woken.

use crate::upstream::ClusterId;
use acl::{DEFAULT_USER, User, is_valid_name, new_channels, reads_back};
use command::Error;
use command::table::Command;
use config::UsersFrom;
use net::client::Client;
use parking_lot::{Condvar, Mutex};
use server::commands::acl::put_out;
use server::insync::asking::{Asking, said};
use server::insync::dialling::TlsBy;
use server::rights;
use server::server::Server;
use server::shard::{self, Address};
use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use telemetry::log;
use wire::{Request, RequestBuf, Value};

/// How long it may take to reach a config server, and how long it may be silent: it says something every second, or is about to tell users, of which some bytes come.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the leader may take for a change: it gives up after ten seconds itself.
const CHANGING: Duration = Duration::from_secs(15);
/// For how long config servers are asked that say that they can do nothing, or are not there: another leads after three seconds.
const UNABLE: Duration = Duration::from_secs(4);
/// How long a change may wait for others before it is given up.
const WAITING: Duration = Duration::from_secs(20);
/// How long it may take until what was changed is heard here.
const HEARING: Duration = Duration::from_secs(2);
/// How often a change is thought of anew that others were faster than.
const TRIES: usize = 8;
/// How often it is looked whether the proxy ends.
const LOOK: Duration = Duration::from_millis(50);
/// Before the next config server is tried.
const RETRY: Duration = Duration::from_millis(200);
/// Changes that may wait for their turn.
const WANTS_MAX: usize = 128;
/// How answers begin by which nothing was done, and another config server may do it.
const UNDONE: [&str; 4] = ["NOLEADER", "UNAVAILABLE", "UNREACHED", "WRONGCLUSTER"];

/// The longest line of a user that a store keeps.
const LINE_BYTES_MAX: usize = 64 << 10;
/// The most bytes of names that are deleted at once.
const WORDS_BYTES_MAX: usize = 1 << 20;
const TOO_LONG: Error =
    Error::text("ERR proxy: the rules of a user that the cluster's store keeps are 64 KB long at most");
const NO_LINE: Error = Error::text(
    "ERR proxy: the cluster's store keeps a user as a line, and these rules would be read from it as others: within the parentheses of a selector no rule ends with one",
);

/// What a client wants of users.
pub enum Want {
    /// ACL SETUSER.
    Set {
        /// Whose.
        name: Vec<u8>,
        /// What is to be different.
        rules: Vec<Vec<u8>>,
    },
    /// ACL DELUSER.
    Delete(Vec<Vec<u8>>),
    /// ACL LOAD.
    Load,
    /// ACL SAVE.
    Save,
}

impl Want {
    /// Looks whether it makes sense by what is known here.
    ///
    /// # Errors
    /// In the words of ACL.
    pub fn look(&self, host: &Server) -> Result<(), Error> {
        match self {
            Want::Set { name, .. } if !is_valid_name(name) => {
                Err(Error::text("ERR Usernames can't contain spaces or null characters"))
            }
            Want::Set { name, rules }
                if name.len() + rules.iter().map(Vec::len).sum::<usize>() > LINE_BYTES_MAX =>
            {
                Err(TOO_LONG)
            }
            Want::Set { name, rules } => line_after(host, name, rules).map(drop),
            Want::Delete(names) if names.iter().map(Vec::len).sum::<usize>() > WORDS_BYTES_MAX => {
                Err(Error::text("ERR proxy: the names are too long together"))
            }
            Want::Delete(names) if names.iter().any(|name| name == DEFAULT_USER.as_bytes()) => {
                Err(Error::text("ERR The 'default' user cannot be removed"))
            }
            Want::Delete(_) | Want::Load | Want::Save => Ok(()),
        }
    }
}

/// The line of a user after these rules.
fn line_after(host: &Server, name: &[u8], rules: &[Vec<u8>]) -> Result<Vec<u8>, Error> {
    let config = &host.engine.config;
    let channels = new_channels(config);
    let before = host.acl.get(name).unwrap_or_else(|| Arc::new(User::new(name, channels)));
    let user = before.with_rules(rules, channels).map_err(|error| error.reply())?;
    let line = user.line();
    match line.len() {
        ..=LINE_BYTES_MAX if reads_back(&user, config) => Ok(line),
        ..=LINE_BYTES_MAX => Err(NO_LINE),
        _ => Err(TOO_LONG),
    }
}

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Ok,
    /// So many are gone.
    Count(i64),
    /// What stands behind `-`.
    Refused(String),
}

/// Why a request to config servers has come to nothing.
enum Failure {
    /// Nothing was done: what the last one said, or why it was not reached.
    Undone(String),
    /// Nobody can say.
    Unknown(String),
    /// It was refused, in these words.
    Said(String),
    /// Its client has lost the right to it, or is nobody any more: what it is told.
    Denied(String),
}

impl Failure {
    fn answer(self) -> Answer {
        Answer::Refused(match self {
            Failure::Undone(why) => {
                format!("ERR proxy: the users are not changed, since no config server does it: {why}")
            }
            Failure::Unknown(why) => {
                format!("UNANSWERED It is not known whether the users are changed: {why}")
            }
            Failure::Said(why) => format!("ERR proxy: the users are not changed: {why}"),
            Failure::Denied(line) => line,
        })
    }
}

#[derive(Default)]
struct State {
    /// Up to where they are known.
    revision: u64,
    /// By the numbers of clients: what they are told; None: that is not known yet.
    asked: HashMap<u64, Option<Answer>>,
}

/// A proxy's users.
pub struct Users {
    config_servers: Vec<Address>,
    /// Whose users are heard: those of the cluster behind the proxy, if it is in front of one.
    cluster: Arc<ClusterId>,
    state: Mutex<State>,
    /// That something was heard.
    heard: Condvar,
    /// Held while what was heard is taken.
    taking: Mutex<()>,
    wants: SyncSender<Wanted>,
}

/// Of a client, who may be another by the time that it is done.
struct Wanted {
    client: Arc<Client>,
    want: Want,
    since: Instant,
    command: &'static Command,
    words: RequestBuf,
    /// The version of all rights under which it was admitted.
    rights: u64,
}

impl Wanted {
    /// Looks whether its client may want it still.
    ///
    /// # Errors
    /// What the client is told.
    fn look(&self, host: &Server) -> Result<(), Failure> {
        let (request, now) = (self.words.as_request(), host.engine.clock.now());
        let admitted = rights::admit_waiting(host, &self.client, self.rights, self.command, &request, now);
        admitted.map_err(|error| Failure::Denied(String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }
}

impl Users {
    /// Follows the users that this cluster's store keeps, if it does; waits until they are heard.
    ///
    /// # Errors
    /// One sentence for the operator: the directives make no sense, or a thread does not begin.
    pub fn begin(host: &Arc<Server>, cluster: &Arc<ClusterId>) -> Result<Option<Arc<Users>>, String> {
        let config = &host.engine.config;
        let places = String::from_utf8_lossy(&config.proxy_config_servers()).into_owned();
        if config.proxy_users() == UsersFrom::File {
            return Ok(None);
        }
        let named: Option<Vec<Address>> =
            places.split(',').map(|place| shard::address(place.trim())).collect();
        let config_servers = named.ok_or(
            "`proxy-users cluster` wants `proxy-config-servers`: `host:port` of each config server, with commas between them",
        )?;
        if !config.users().is_empty() || !config.aclfile().is_empty() {
            return Err("`proxy-users cluster` has the cluster's store keep the users: no `user` lines, and no `aclfile`".to_owned());
        }
        let (wants, wanted) = sync_channel(WANTS_MAX);
        let users = Arc::new(Users {
            config_servers,
            cluster: cluster.clone(),
            state: Mutex::default(),
            heard: Condvar::new(),
            taking: Mutex::default(),
            wants,
        });
        let begin = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let begun = std::thread::Builder::new().name(name.to_owned()).spawn(run);
            begun.map(drop).map_err(|error| format!("cannot begin a thread: {error}"))
        };
        let (own, server) = (users.clone(), host.clone());
        begin("users", Box::new(move || own.run(&server)))?;
        let (own, server) = (users.clone(), host.clone());
        begin("users-change", Box::new(move || own.change(&server, &wanted)))?;
        if !users.wait_for(1, RETRY) {
            log!(Notice, "No client is served before config servers have told who the users are");
            while !users.wait_for(1, PATIENCE) {}
        }
        Ok(Some(users))
    }

    /// Waits until the users are known up to there, for no longer than that; whether they are.
    fn wait_for(&self, revision: u64, longest: Duration) -> bool {
        let deadline = Instant::now() + longest;
        let mut state = self.state.lock();
        while state.revision < revision {
            if self.heard.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.revision >= revision
    }

    fn revision(&self) -> u64 {
        self.state.lock().revision
    }

    /// Follows config servers for as long as the proxy runs.
    fn run(&self, host: &Arc<Server>) {
        let mut troubles = vec![String::new(); self.config_servers.len()];
        let mut next = 0;
        while !host.engine.is_ending() {
            let Err(error) = self.follow(host, next, &mut troubles[next]);
            let (trouble, Address { host: name, port }) = (error.to_string(), &self.config_servers[next]);
            if troubles[next] != trouble && !host.engine.is_ending() {
                log!(Warning, "The config server {name}:{port} does not tell of users: {trouble}");
                troubles[next] = trouble;
            }
            next = (next + 1) % self.config_servers.len();
            std::thread::sleep(RETRY);
        }
    }

    fn follow(&self, host: &Arc<Server>, which: usize, trouble: &mut String) -> io::Result<Infallible> {
        let address = &self.config_servers[which];
        let mut asking = Asking::to(host, address, TlsBy::Cluster, PATIENCE)?;
        let known = self.revision().to_string();
        asking.say(&[b"USERS", b"FOLLOW", known.as_bytes()])?;
        let mut told = asking.receive_long()?;
        asking.look_every(LOOK)?;
        if !std::mem::take(trouble).is_empty() {
            log!(Notice, "The config server {}:{} tells of users", address.host, address.port);
        }
        loop {
            match told {
                Value::Bulk(text) if text.is_empty() => {}
                Value::Bulk(text) => drop(self.take(host, &text)?),
                _ => return Err(io::Error::other("what it says are no users")),
            }
            told = asking.receive_long()?;
        }
    }

    /// Takes users that were told, if they are not older than those that are known. Gives their revision.
    fn take(&self, host: &Server, text: &[u8]) -> io::Result<u64> {
        let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
        let (head, lines) = text.split_at(end);
        let head = String::from_utf8_lossy(head).into_owned();
        let words: Vec<&str> = head.split(' ').collect();
        let ["users", revision, cluster] = words[..] else {
            return Err(io::Error::other("what it says are no users"));
        };
        let revision: u64 = revision.parse().map_err(|_| io::Error::other("it tells no revision"))?;
        let _taking = self.taking.lock();
        self.cluster.agree(cluster).map_err(io::Error::other)?;
        if revision < self.revision() {
            return Ok(revision);
        }
        for sentence in host.acl.take_kept(revision, lines, &host.engine.config) {
            log!(Warning, "{sentence}");
        }
        put_out(host, |client| self.state.lock().asked.contains_key(&client));
        self.state.lock().revision = revision.max(1);
        self.heard.notify_all();
        Ok(revision)
    }

    /// A client wants something of users: it is woken when that is done.
    ///
    /// # Errors
    /// Too many do.
    pub fn want(
        &self,
        client: &Arc<Client>,
        want: Want,
        (command, request, rights): (&'static Command, &Request<'_>, u64),
    ) -> Result<(), Error> {
        self.state.lock().asked.insert(client.id, None);
        let words = RequestBuf::from_args(request.iter());
        let wanted = Wanted { client: client.clone(), want, since: Instant::now(), command, words, rights };
        self.wants.try_send(wanted).map_err(|_| {
            self.forget(client.id);
            Error::text("ERR proxy: too many changes of users are under way")
        })
    }

    /// What a client is told, if that is known by now.
    pub fn answer_to(&self, client: u64) -> Option<Answer> {
        let asked = &mut self.state.lock().asked;
        let is_known = asked.get(&client).is_none_or(Option::is_some);
        let gone = || Answer::Refused("ERR proxy: nobody changes users any more".to_owned());
        is_known.then(|| asked.remove(&client).flatten().unwrap_or_else(gone))
    }

    /// A client is gone.
    pub fn forget(&self, client: u64) {
        self.state.lock().asked.remove(&client);
    }

    /// Does what clients want, for as long as the proxy runs.
    fn change(&self, host: &Arc<Server>, all: &Receiver<Wanted>) {
        while let Ok(wanted) = all.recv() {
            // Who is gone wants nothing any more that nobody has begun.
            if !self.is_asked_by(&wanted.client) {
                continue;
            }
            let done = match &wanted.want {
                _ if wanted.since.elapsed() > WAITING => {
                    Err(Failure::Undone("others were to be changed first".to_owned()))
                }
                Want::Set { name, rules } => self.set(host, &wanted, (name, rules)),
                Want::Delete(names) => self.delete(host, &wanted, names),
                Want::Load => wanted.look(host).and_then(|()| self.read(host)).map(|_| Answer::Ok),
                Want::Save => wanted.look(host).and_then(|()| self.save(host)),
            };
            if let Some(asked) = self.state.lock().asked.get_mut(&wanted.client.id) {
                *asked = Some(done.unwrap_or_else(Failure::answer));
            }
            wanted.client.wake();
        }
    }

    fn is_asked_by(&self, client: &Client) -> bool {
        self.state.lock().asked.contains_key(&client.id)
    }

    fn set(
        &self,
        host: &Arc<Server>,
        wanted: &Wanted,
        (name, rules): (&[u8], &[Vec<u8>]),
    ) -> Result<Answer, Failure> {
        for _ in 0..TRIES {
            let known = self.revision();
            // Behind that: whoever takes its rights away later is not known here yet, and forbids it where it is done.
            wanted.look(host)?;
            if host.acl.kept().is_some_and(|kept| kept.unread.contains(name)) {
                return Err(Failure::Said(
                    "the store holds a line of this user that this proxy cannot read".to_owned(),
                ));
            }
            let line = match line_after(host, name, rules) {
                Ok(line) => line,
                Err(error) => {
                    return Ok(Answer::Refused(String::from_utf8_lossy(error.as_bytes()).into_owned()));
                }
            };
            let at = known.to_string();
            let words: [&[u8]; 5] = [b"USERS", b"SET", &line, b"IF-AT", at.as_bytes()];
            match self.order(host, wanted.since, &words) {
                Ok(revision) => return self.heard_of(revision, known).map(|()| Answer::Ok),
                // Others were faster: what they have changed is heard first.
                Err(Failure::Said(why)) if why.starts_with("CHANGED") => {
                    self.wait_for(known + 1, HEARING);
                }
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::Said("others change them all the time; try again".to_owned()))
    }

    /// Waits until a change is heard that was made at this revision, when that one was known.
    fn heard_of(&self, revision: u64, known: u64) -> Result<(), Failure> {
        if revision < known {
            let why =
                "the store of decisions has gone back behind what this proxy knows of users: start it again";
            return Err(Failure::Unknown(why.to_owned()));
        }
        self.wait_for(revision, HEARING);
        Ok(())
    }

    fn delete(&self, host: &Arc<Server>, wanted: &Wanted, names: &[Vec<u8>]) -> Result<Answer, Failure> {
        // Of those that are there: others may have come a moment ago.
        self.read(host)?;
        let unread = host.acl.kept().map(|kept| kept.unread).unwrap_or_default();
        let is_there = |name: &&Vec<u8>| {
            let is_name = is_valid_name(name) && std::str::from_utf8(name).is_ok();
            is_name && (host.acl.get(name).is_some() || unread.contains(*name))
        };
        let mut deleted = 0;
        for name in names.iter().filter(is_there).collect::<BTreeSet<_>>() {
            wanted.look(host)?;
            if !self.is_asked_by(&wanted.client) {
                break;
            }
            let known = self.revision();
            match self.order(host, wanted.since, &[b"USERS", b"DEL", name]) {
                Ok(revision) => {
                    deleted += 1;
                    self.heard_of(revision, known)?;
                }
                Err(Failure::Said(why)) if why.starts_with("NOUSER") => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(Answer::Count(deleted))
    }

    /// What is known here came from the store, but for users whose lines cannot be read: what there is has to be known.
    fn save(&self, host: &Arc<Server>) -> Result<Answer, Failure> {
        self.read(host)?;
        match host.acl.kept().is_some_and(|kept| !kept.unread.is_empty()) {
            true => Err(Failure::Said(
                "the store holds lines of users that this proxy cannot read (INFO: users_unread_names)"
                    .to_owned(),
            )),
            false => Ok(Answer::Ok),
        }
    }

    /// Reads the users anew.
    fn read(&self, host: &Arc<Server>) -> Result<u64, Failure> {
        let mut last = String::new();
        for address in &self.config_servers {
            let read = Asking::to(host, address, TlsBy::Cluster, PATIENCE).and_then(|mut asking| {
                // What comes first is no older than the question.
                asking.say(&[b"USERS", b"FOLLOW", b"0"])?;
                match asking.receive_long()? {
                    Value::Bulk(text) if !text.is_empty() => self.take(host, &text),
                    _ => Err(io::Error::other("it does not tell who the users are")),
                }
            });
            match read {
                Ok(revision) if revision >= self.revision() => return Ok(revision),
                Ok(_) => {
                    "it knows less than was heard already; if its store was put back, start this proxy again"
                        .clone_into(&mut last)
                }
                Err(error) => last = error.to_string(),
            }
        }
        Err(Failure::Undone(last))
    }

    /// Has a config server of the cluster do something that is wanted since then; gives the revision of it.
    fn order(&self, host: &Arc<Server>, since: Instant, words: &[&[u8]]) -> Result<u64, Failure> {
        let cluster = self.cluster.known();
        let words = [words, &[&b"OF"[..], cluster.as_bytes()]].concat();
        loop {
            let mut last = String::new();
            for address in &self.config_servers {
                match order_at(host, address, &words) {
                    Err(Failure::Undone(why)) => last = why,
                    done => return done,
                }
            }
            if since.elapsed() > UNABLE || host.engine.is_ending() {
                return Err(Failure::Undone(last));
            }
            std::thread::sleep(RETRY);
        }
    }
}

/// Has one config server do something.
fn order_at(host: &Arc<Server>, address: &Address, words: &[&[u8]]) -> Result<u64, Failure> {
    let shown = |why: &dyn fmt::Display| format!("{}:{}: {why}", address.host, address.port);
    let mut asking = Asking::to(host, address, TlsBy::Cluster, PATIENCE)
        .map_err(|error| Failure::Undone(shown(&error)))?;
    asking.set_patience(CHANGING);
    match asking.ask(words) {
        Ok(Value::Simple(line)) => {
            let line = String::from_utf8_lossy(&line).into_owned();
            let revision = line.strip_prefix("revision ").and_then(|word| word.parse().ok());
            revision.ok_or_else(|| Failure::Unknown(shown(&"it says something else")))
        }
        Ok(_) => Err(Failure::Unknown(shown(&"it says something else"))),
        Err(error) => Err(failure(&error, &shown)),
    }
}

/// Why a request has come to nothing that was sent. What the other side says stands alone; all else is the connection's, TLS' too, and nobody can say what has become of it.
fn failure(error: &io::Error, shown: &dyn Fn(&dyn fmt::Display) -> String) -> Failure {
    match said(error) {
        None => Failure::Unknown(shown(error)),
        Some(line) if UNDONE.iter().any(|code| line.starts_with(code)) => Failure::Undone(line.to_owned()),
        Some(line) if line.starts_with("UNKNOWN") => Failure::Unknown(line.to_owned()),
        Some(line) => Failure::Said(line.strip_prefix("ERR ").unwrap_or(line).to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_breaks_a_connection_is_no_word_of_the_other_side() {
        let shown = |why: &dyn fmt::Display| format!("h:1: {why}");
        let broken = io::Error::other("received corrupt message");
        let Failure::Unknown(why) = failure(&broken, &shown) else { panic!("it may have been done") };
        assert_eq!(why, "h:1: received corrupt message");
    }
}
