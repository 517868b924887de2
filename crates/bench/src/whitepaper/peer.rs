//! The servers of a run: Tarn first, then those to be started, then those that are running, then other editions of Tarn; and their replicas, in
//! chapters that ask for some.
//!
//! A server that was running before is not emptied unless it holds nothing or the user said so; every server's
//! database is left empty.

use super::chapters::{BESIDE, Stage};
use super::edition::{self, Companion, Copies, Edition, TARN, TWEMPROXY, Terms, Told};
use super::launch::Launched;
use super::options::Options;
use super::proxy::Proxy;
use super::trial::{Recipe, Trial};
use crate::Failure;
use crate::client::Client;
use crate::plan::Target;
use crate::report::Server;
use crate::secure::Tls;
use crate::usage;
use std::net::ToSocketAddrs;
use std::path::Path;
use std::time::{Duration, Instant};
use wire::Value;

/// Has Tarn answer a write when a replica has it, however long a slow disk takes: the WAIT beside it has no timeout either.
const IN_SYNC: &str = " --min-sync-replicas 1 --sync-timeout 60000";
/// How long a replica may take to follow.
const FOLLOW_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// Where a running server is, as the command line says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(pub Target);

impl Address {
    /// Parses `HOST[:PORT]` and `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`; `rediss://` speaks TLS.
    ///
    /// # Errors
    /// One sentence on what is wrong; it does not repeat a password.
    pub fn parse(text: &str) -> Result<Address, Failure> {
        let mut target = Target::default();
        let secure = text.strip_prefix("rediss://");
        target.tls = secure.map(|_| Tls::default());
        let rest = secure.or_else(|| text.strip_prefix("redis://")).unwrap_or(text);
        let (access, rest) =
            rest.rsplit_once('@').map_or((None, rest), |(access, rest)| (Some(access), rest));
        let wrong = |what: &str| Failure(format!("'{rest}' is no address: {what}."));
        if let Some(access) = access {
            let (user, password) = access.split_once(':').unwrap_or(("", access));
            target.user = (!user.is_empty()).then(|| user.to_owned());
            target.password = Some(password.to_owned());
        }
        let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
        if !database.is_empty() {
            target.database = database.parse().map_err(|_| wrong("the database is a number"))?;
        }
        let (host, port) = match place.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => place.rsplit_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
        };
        if host.is_empty() {
            return Err(wrong("it has no host"));
        }
        host.clone_into(&mut target.host);
        if let Some(port) = port {
            target.port = port.parse().map_err(|_| wrong("the port is a number below 65,536"))?;
        }
        Ok(Address(target))
    }
}

/// A command that starts a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCommand {
    /// What the server is called.
    pub name: String,
    /// The command line with `{port}` in it.
    pub template: String,
}

impl PeerCommand {
    /// Takes the program's name for the server's: the first word that ends with `-server`, or else the first.
    ///
    /// # Errors
    /// The command has no place for the port.
    pub fn parse(text: &str) -> Result<PeerCommand, Failure> {
        if !text.contains("{port}") {
            return Err(Failure(format!(
                "--peer-cmd '{text}' has no {{port}}, where the server's port is to be put."
            )));
        }
        let server = edition::server_word(text);
        let name =
            server.or_else(|| edition::words(text).next()).filter(|name| !name.is_empty()).unwrap_or("peer");
        Ok(PeerCommand { name: name.to_owned(), template: text.to_owned() })
    }
}

/// Which of two servers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The one that is measured.
    Master,
    /// The one that follows it.
    Replica,
}

/// One server of the run.
pub struct Contestant {
    /// Its name in tables; no other has it.
    pub name: String,
    /// Where it is.
    pub target: Target,
    /// How it came to run.
    pub terms: Terms,
    /// The process, if the run started it.
    pub launched: Option<Launched>,
    /// Who else has what it answers, as far as the run sees to it.
    pub copies: Copies,
    /// Its replica, for as long as it runs.
    replica: Option<Launched>,
    /// How its servers are started, in a chapter that has some for each measurement.
    pub recipe: Option<Recipe>,
    /// What the report says of it, if nobody can be asked.
    described: Option<Box<Server>>,
    /// Why it takes no further part.
    pub gone: Option<String>,
}

/// Starts and reaches all servers for the chapters of an edition. The files of those that it starts are in folders within
/// the one given. Names and order are those of every call with these options; running servers of the names in `lost` are left out.
/// The capacity edition alone gets a ceiling for its memory: no other server could hold the data beneath it.
///
/// # Errors
/// A server does not start or cannot be reached, refuses the password, or holds keys that would be lost.
pub fn gather(
    options: &Options,
    edition: Edition,
    maxmemory_mb: Option<u64>,
    within: &Path,
    lost: &[String],
) -> Result<Vec<Contestant>, Failure> {
    if edition.is_staged() {
        return gather_staged(options, edition, within);
    }
    let tarn = Companion { name: TARN, edition, copies: edition.copies() };
    let mut contestants = vec![Contestant::tarn(tarn, maxmemory_mb, within)?];
    for command in &options.peer_commands {
        for copies in edition.copies_of_peers() {
            let name = unique(&format!("{}{}", command.name, copies.suffix()), &contestants);
            let terms = edition.terms(&command.template);
            let start = |name: &str, _: Part| Launched::shell(name, &terms.apply(&command.template), within);
            contestants.push(Contestant::started(name, terms, *copies, start)?);
        }
    }
    for (name, address) in &options.peers {
        contestants.push(Contestant::running(unique(name, &contestants), address.0.clone()));
    }
    contestants.retain(|contestant| contestant.launched.is_some() || !lost.contains(&contestant.name));
    for contestant in contestants.iter().filter(|contestant| contestant.launched.is_none()) {
        contestant.must_be_free(options.may_overwrite)?;
    }
    for companion in edition.companions() {
        contestants.push(Contestant::tarn(*companion, None, within)?);
    }
    Ok(contestants)
}

/// The contestants of a chapter whose every measurement begins servers of its own: each has some begun to be described.
fn gather_staged(options: &Options, edition: Edition, within: &Path) -> Result<Vec<Contestant>, Failure> {
    let (mut contestants, stage) = match edition {
        Edition::Proxies => (proxies(options), BESIDE),
        _ => (clusters(options), Stage::quiet(1)),
    };
    for contestant in &mut contestants {
        let Some(recipe) = contestant.recipe.clone() else { continue };
        let trial = Trial::begin(&recipe, &contestant.name, &stage, within)?;
        contestant.target = trial.entry();
        let server = contestant.describe(edition)?;
        contestant.described = Some(Box::new(of_trial(server, &trial, &recipe)?));
    }
    Ok(contestants)
}

/// Those that have clusters.
fn clusters(options: &Options) -> Vec<Contestant> {
    let mut contestants = vec![Contestant::staged(TARN.to_owned(), Terms::Edition, Recipe::Tarn)];
    for command in options.peer_commands.iter().filter(|command| Edition::Cluster.takes(&command.template)) {
        let terms = Edition::Cluster.terms(&command.template);
        let recipe = Recipe::Peer(terms.apply(&command.template));
        contestants.push(Contestant::staged(unique(&command.name, &contestants), terms, recipe));
    }
    contestants
}

/// The proxies that are measured beside each other, over servers of one kind.
fn proxies(options: &Options) -> Vec<Contestant> {
    let command = options.peer_commands.iter().find(|command| Edition::Proxies.takes(&command.template));
    let servers = command.map(|command| command.template.clone());
    let own = Recipe::Behind(Proxy::Tarn, servers.clone());
    let mut contestants = vec![Contestant::staged(TARN.to_owned(), Terms::Edition, own)];
    contestants.extend(options.twemproxy.clone().map(|program| {
        let recipe = Recipe::Behind(Proxy::Twemproxy(program), servers);
        Contestant::staged(TWEMPROXY.to_owned(), Terms::AsGiven, recipe)
    }));
    contestants
}

/// What the report says of one, of which is known already what it says itself.
fn of_trial(server: Server, trial: &Trial, recipe: &Recipe) -> Result<Server, Failure> {
    let Some(command) = trial.command_of_proxy() else {
        return Ok(Server { command: Some(trial.command()), ..server });
    };
    let behind = version(&Client::connect(&trial.target())?.info());
    let behind = format!("{} of {behind}, the first by {}", trial.servers(), trial.command());
    let mut settings = server.settings;
    settings.push(("Behind it".to_owned(), behind));
    let version = recipe.proxy().version().unwrap_or(server.version);
    Ok(Server { version, command: Some(command), settings, ..server })
}

/// A name that no server has yet, nor Tarn's other editions in other chapters.
fn unique(name: &str, contestants: &[Contestant]) -> String {
    let is_taken = |name: &str| {
        edition::OWN_NAMES.contains(&name) || contestants.iter().any(|contestant| contestant.name == name)
    };
    let mut number = 2;
    let mut unique = name.to_owned();
    while is_taken(&unique) {
        unique = format!("{name} {number}");
        number += 1;
    }
    unique
}

impl Contestant {
    /// Starts Tarn, and what is to follow it.
    fn tarn(tarn: Companion, maxmemory_mb: Option<u64>, within: &Path) -> Result<Contestant, Failure> {
        let ceiling = maxmemory_mb.map_or(String::new(), |mb| format!(" --maxmemory {mb}mb"));
        Contestant::started(tarn.name.to_owned(), Terms::Edition, tarn.copies, |name, part| {
            let waits = part == Part::Master && tarn.copies == Copies::InSync;
            let settings = if waits { format!("{ceiling}{IN_SYNC}") } else { ceiling.clone() };
            Launched::tarn(name, tarn.edition, &settings, within)
        })
    }

    /// Starts a server, and another one of the same kind that follows it, if there is to be one.
    fn started(
        name: String,
        terms: Terms,
        copies: Copies,
        start: impl Fn(&str, Part) -> Result<Launched, Failure>,
    ) -> Result<Contestant, Failure> {
        let launched = start(&name, Part::Master)?;
        let target = Target { port: launched.port, ..Target::default() };
        let replica = copies.has_replica().then(|| {
            let replica = start(&format!("The replica of {name}"), Part::Replica)?;
            follow(&replica, launched.port)?;
            Ok(replica)
        });
        let replica = replica.transpose()?;
        let launched = Some(launched);
        Ok(Contestant { target, launched, copies, replica, ..Contestant::absent(name, terms) })
    }

    /// One that was running before.
    pub fn running(name: String, target: Target) -> Contestant {
        Contestant { target, ..Contestant::absent(name, Terms::Running) }
    }

    /// One whose servers are begun when they are measured.
    fn staged(name: String, terms: Terms, recipe: Recipe) -> Contestant {
        Contestant { recipe: Some(recipe), ..Contestant::absent(name, terms) }
    }

    fn absent(name: String, terms: Terms) -> Contestant {
        Contestant {
            name,
            target: Target::default(),
            terms,
            launched: None,
            copies: Copies::None,
            replica: None,
            recipe: None,
            described: None,
            gone: None,
        }
    }

    /// Whether the run has started it, and can again.
    pub fn is_own(&self) -> bool {
        self.launched.is_some() || self.recipe.is_some()
    }

    /// Why its replica is of no use any more, if that has ended.
    pub fn has_lost_its_replica(&mut self) -> Option<String> {
        let replica = self.replica.as_mut()?;
        replica.ended().map(|status| format!(" Its replica ended ({status}){}", replica.last_words()))
    }

    fn must_be_free(&self, may_overwrite: bool) -> Result<(), Failure> {
        let mut client = Client::connect(&self.target)?;
        match client.request(&[b"DBSIZE"])? {
            Value::Int(0) => Ok(()),
            Value::Int(_) if may_overwrite => empty(&mut client),
            Value::Int(keys) => Err(Failure(format!(
                "{} holds {keys} keys in database {}, which the run would remove. Name another database, or say --overwrite.",
                self.name, self.target.database
            ))),
            other => Err(Failure(format!("{} does not say whether it is empty: {other:?}.", self.name))),
        }
    }

    /// What the report says of it in the chapters of an edition.
    ///
    /// # Errors
    /// It cannot be reached.
    pub fn describe(&self, edition: Edition) -> Result<Server, Failure> {
        if let Some(server) = &self.described {
            return Ok(Server::clone(server));
        }
        let mut client = Client::connect(&self.target)?;
        let info = client.info();
        let field = |name: &str| {
            info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::to_owned)
        };
        let mut settings = Vec::new();
        let threads = setting(&mut client, "threads").or_else(|| setting(&mut client, "io-threads"));
        let threads = threads.map(|count| if count == "0" { "one for each core".to_owned() } else { count });
        settings.extend(threads.map(|threads| ("Threads".to_owned(), threads)));
        let save = setting(&mut client, "save");
        let save = save.map(|save| if save.is_empty() { "none".to_owned() } else { save });
        settings.extend(save.map(|save| ("Save points".to_owned(), save)));
        let told = told(&mut client);
        settings.extend(told.listed());
        let replicas = field("connected_slaves").filter(|replicas| replicas != "0");
        settings.extend(replicas.map(|replicas| ("Replicas".to_owned(), replicas)));
        let waited = setting(&mut client, "min-sync-replicas").filter(|replicas| replicas != "0");
        settings.extend(waited.map(|replicas| ("Replicas that have what it answers".to_owned(), replicas)));
        settings.extend(field("mem_allocator").map(|allocator| ("Allocator".to_owned(), allocator)));
        Ok(Server {
            name: self.name.clone(),
            version: version(&info),
            address: format!("{}:{}", self.target.host, self.target.port),
            command: self.launched.as_ref().map(|launched| launched.command.clone()),
            is_local: is_local(&self.target),
            settings,
            promise: edition.is_on_disk().then(|| told.promise(self.terms)),
        })
    }

    /// Empties the database of a server that was running before, once the run is over.
    pub fn leave(&self) -> Result<(), Failure> {
        if self.is_own() { Ok(()) } else { empty(&mut Client::connect(&self.target)?) }
    }
}

/// Has a server follow another one of this machine, and waits until it has all there is.
fn follow(replica: &Launched, master: u16) -> Result<(), Failure> {
    let mut client = Client::connect(&Target { port: replica.port, ..Target::default() })?;
    if let Value::Error(line) =
        client.request(&[b"REPLICAOF", b"127.0.0.1", master.to_string().as_bytes()])?
    {
        return Err(Failure(format!("REPLICAOF is refused: {}.", String::from_utf8_lossy(&line))));
    }
    let began = Instant::now();
    while usage::field(&client.info(), "master_link_status") != Some("up") {
        if began.elapsed() > FOLLOW_MAX {
            let waited = FOLLOW_MAX.as_secs();
            return Err(Failure(format!("A replica has not got its master's data after {waited} s.")));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// How many servers of a run share this machine in the chapters of one edition, without that edition's companions.
pub fn local_servers(options: &Options) -> usize {
    let running = options.peers.iter().filter(|(_, address)| is_local(&address.0)).count();
    1 + options.peer_commands.len() + running
}

fn is_local(target: &Target) -> bool {
    let addresses = (target.host.as_str(), target.port).to_socket_addrs();
    addresses.is_ok_and(|mut addresses| addresses.all(|address| address.ip().is_loopback()))
}

/// Removes all keys of the connection's database.
///
/// # Errors
/// The server refuses.
pub fn empty(client: &mut Client) -> Result<(), Failure> {
    match client.request(&[b"FLUSHDB"])? {
        Value::Error(line) => {
            Err(Failure(format!("FLUSHDB is refused: {}.", String::from_utf8_lossy(&line))))
        }
        _ => Ok(()),
    }
}

/// What the server says of its promise.
fn told(client: &mut Client) -> Told {
    Told {
        edition: setting(client, "edition"),
        maxmemory: setting(client, "maxmemory"),
        appendonly: setting(client, "appendonly"),
        appendfsync: setting(client, "appendfsync"),
    }
}

/// A setting's value, if the server tells.
fn setting(client: &mut Client, name: &str) -> Option<String> {
    match client.request(&[b"CONFIG", b"GET", name.as_bytes()]).ok()? {
        Value::Array(pair) => match pair.get(1)? {
            Value::Bulk(value) => Some(String::from_utf8_lossy(value).into_owned()),
            _ => None,
        },
        _ => None,
    }
}

/// Product and version from INFO: a product of another name tells its own version beside the Redis version it speaks.
fn version(info: &str) -> String {
    let versions = || {
        info.lines().filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.strip_suffix("_version")?, value.trim()))
        })
    };
    let redis = versions().find(|(product, _)| *product == "redis").map(|(_, version)| version);
    let own = versions().find(|(product, _)| !["redis", "gcc"].contains(product) && !product.contains('_'));
    match (own, redis) {
        (Some((product, version)), Some(redis)) => format!("{product} {version}, speaking Redis {redis}"),
        (Some((product, version)), None) => format!("{product} {version}"),
        (None, Some(redis)) => format!("Redis {redis}"),
        (None, None) => "not said".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_in_all_their_forms() {
        let parsed = |text: &str| Address::parse(text).unwrap().0;
        let plain = parsed("db.example:7000");
        assert_eq!((plain.host.as_str(), plain.port, plain.database), ("db.example", 7000, 0));
        assert_eq!(parsed("db.example").port, 6379);
        let whole = parsed("redis://me:a@b:c@[::1]:7001/3");
        assert_eq!((whole.host.as_str(), whole.port, whole.database), ("::1", 7001, 3));
        assert_eq!((whole.user.as_deref(), whole.password.as_deref()), (Some("me"), Some("a@b:c")));
        assert_eq!(parsed("redis://:secret@h").password.as_deref(), Some("secret"));
    }

    #[test]
    fn wrong_addresses_are_refused_without_their_passwords() {
        for text in ["", ":7000", "h:port", "h:99999", "redis://:secret@h:x", "redis://:secret@h/x"] {
            let said = Address::parse(text).unwrap_err().0;
            assert!(said.contains("no address") && !said.contains("secret"), "{text}: {said}");
        }
    }

    #[test]
    fn a_started_server_is_named_by_its_program() {
        let name = |text: &str| PeerCommand::parse(text).unwrap().name;
        assert_eq!(name("redis-server --port {port}"), "redis");
        assert_eq!(name("nice redis-server --port {port}"), "redis");
        assert_eq!(name("/opt/keydb --port {port}"), "keydb");
        assert_eq!(name("/opt/valkey/bin/valkey-server --port {port}"), "valkey");
        assert!(PeerCommand::parse("redis-server --port 6379").is_err());
    }

    #[test]
    fn versions_name_their_product() {
        assert_eq!(version("redis_version:7.0.15\r\ngcc_version:12.2.0\r\n"), "Redis 7.0.15");
        assert_eq!(
            version("redis_version:7.2.4\r\ntarn_version:0.1.0\r\n"),
            "tarn 0.1.0, speaking Redis 7.2.4"
        );
        assert_eq!(version(""), "not said");
    }
}
