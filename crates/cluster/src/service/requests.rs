//! What is said to a config server, and what it answers.

use super::desk::{Desk, Followed, Letter, Question, ToldUsers, in_thread};
use super::{moves, peer, users};
use crate::control::{Force, Losing, Order, Restored, Standing, key};
use crate::store::{Change, Compare, Entry, Outcome, Revision, Store, Unavailable, Write};
use replication::insync::Decision;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::oneshot;
use topology::{Place, Server, ServerId, ShardId, SlotMap};
use wire::{Protocol, Reply, Value};

/// How often a decision is read again when somebody else changes it at the same time.
const TRIES: usize = 3;
/// How long the leader may take to say how all stands; else it is told as it is known here.
const STATUS_WITHIN: Duration = Duration::from_secs(2);

/// What a connection remembers.
pub struct Session {
    /// Whether it has said the password, or needs none.
    pub is_known: bool,
    /// What it speaks.
    pub protocol: Protocol,
    /// Its number.
    id: u64,
}

impl Session {
    /// A new one.
    pub fn new(desk: &Desk) -> Session {
        let is_known = desk.settings.password.is_none();
        Session { is_known, protocol: Protocol::Resp2, id: desk.clients_ever.get() }
    }
}

/// What comes after a reply.
pub enum Flow {
    /// The next request.
    Next,
    /// The end of the connection.
    End,
    /// Whatever is later than a revision, until the connection ends.
    Follow {
        /// What it is.
        of: Followed,
        /// The one that is known.
        revision: u64,
        /// How far the store had been seen when it was asked.
        seen: Option<Revision>,
        /// Users as they were then: what is told of them to all may come later.
        users: Option<ToldUsers>,
    },
}

/// What is answered: a value, or what stands behind `-`.
pub(super) type Answer = Result<Value, String>;

pub(super) fn simple(text: impl Into<String>) -> Value {
    Value::Simple(text.into().into_bytes())
}

pub(super) fn bulk(text: impl AsRef<[u8]>) -> Value {
    Value::Bulk(text.as_ref().to_vec())
}

pub(super) fn syntax() -> String {
    "ERR syntax error".to_owned()
}

/// A word in capital letters, and as text: what is not text is no word that is known.
pub(super) fn upper(word: &[u8]) -> String {
    String::from_utf8_lossy(word).to_ascii_uppercase()
}

pub(super) fn text(word: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(word).map_err(|_| "ERR that is no text".to_owned())
}

pub(super) fn number<T: std::str::FromStr>(word: &[u8]) -> Result<T, String> {
    text(word)?.parse().map_err(|_| "ERR value is not an integer or out of range".to_owned())
}

pub(super) fn id(word: &[u8]) -> Result<ServerId, String> {
    text(word)?.parse().map_err(|_| "ERR an id of a server is 40 small hexadecimal digits".to_owned())
}

/// Answers a request.
pub async fn answer(desk: &Rc<Desk>, session: &mut Session, words: Vec<Vec<u8>>, out: &mut Vec<u8>) -> Flow {
    let name = upper(&words[0]);
    let (answer, flow) = match name.as_str() {
        "QUIT" => (Ok(simple("OK")), Flow::End),
        "AUTH" => (authenticate(desk, session, &words[1..]), Flow::Next),
        "HELLO" => (hello(desk, session, &words[1..]), Flow::Next),
        _ if !session.is_known => (Err("NOAUTH Authentication required.".to_owned()), Flow::Next),
        "TOPOLOGY" => topology(desk, &words[1..]).await,
        "USERS" => users::answer(desk, &words, Passed::No).await,
        _ => (carry_out(desk, session, &name, &words, Passed::No).await, Flow::Next),
    };
    let is_quiet = matches!(flow, Flow::Follow { .. });
    let mut reply = Reply::new(out, session.protocol);
    match answer {
        Err(line) => {
            reply.error(line);
            Flow::Next
        }
        Ok(_) if is_quiet => flow,
        Ok(value) => {
            write(&mut reply, &value);
            flow
        }
    }
}

fn write(reply: &mut Reply<'_>, value: &Value) {
    match value {
        Value::Simple(text) => reply.simple(text),
        Value::Int(number) => reply.int(*number),
        Value::Bulk(bytes) => reply.bulk(bytes),
        Value::Array(values) => {
            reply.array(values.len());
            values.iter().for_each(|value| write(reply, value));
        }
        Value::Map(pairs) => {
            reply.map(pairs.len());
            for (key, value) in pairs {
                write(reply, key);
                write(reply, value);
            }
        }
        _ => reply.null(),
    }
}

/// Whether another config server has passed a request on to this one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Passed {
    Yes,
    No,
}

async fn carry_out(
    desk: &Rc<Desk>,
    session: &Session,
    name: &str,
    words: &[Vec<u8>],
    passed: Passed,
) -> Answer {
    match name {
        "PING" => Ok(words.get(1).map_or_else(|| simple("PONG"), bulk)),
        "ECHO" if words.len() == 2 => Ok(bulk(&words[1])),
        "INFO" => Ok(bulk(info(desk))),
        "COMMAND" => Ok(command(words)),
        "CLIENT" => client(session, words),
        "SELECT" => Ok(simple("OK")),
        "SERVER" => server(desk, words, passed).await,
        "DECISION" => decision(desk, words).await,
        "CLUSTER" => cluster(desk, words, passed).await,
        "MOVE" => by_leader(desk, words, passed, Question::Asks(moves::said(words)?)).await,
        "USERS" => users::carry_out(desk, words, passed).await,
        "CONFIG-SERVER" => Box::pin(config_server(desk, session, words, passed)).await,
        _ => {
            let shown: String = String::from_utf8_lossy(&words[0]).chars().take(128).collect();
            Err(format!(
                "ERR unknown command '{shown}': this is a config server of a Tarn cluster, see CLUSTER HELP"
            ))
        }
    }
}

/// Whether two secrets are the same, in a time that does not tell where they differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differs = one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b));
    one.len() == other.len() && differs == 0
}

fn authenticate(desk: &Desk, session: &mut Session, words: &[Vec<u8>]) -> Answer {
    // There are no users: a name that servers have for each other says nothing here.
    let ([password] | [_, password]) = words else {
        return Err("ERR wrong number of arguments for 'auth' command".to_owned());
    };
    match &desk.settings.password {
        // Servers say what they say to each other, whether or not it is wanted here.
        None => Ok(simple("OK")),
        Some(own) if is_same(own.as_bytes(), password) => {
            session.is_known = true;
            Ok(simple("OK"))
        }
        Some(_) => Err("WRONGPASS invalid username-password pair or user is disabled.".to_owned()),
    }
}

fn hello(desk: &Desk, session: &mut Session, words: &[Vec<u8>]) -> Answer {
    let mut protocol = session.protocol;
    let mut rest = words;
    if let [version, others @ ..] = words {
        protocol = match version.as_slice() {
            b"2" => Protocol::Resp2,
            b"3" => Protocol::Resp3,
            _ => return Err("NOPROTO unsupported protocol version".to_owned()),
        };
        rest = others;
    }
    while let [option, others @ ..] = rest {
        rest = match (upper(option).as_str(), others) {
            ("AUTH", [user, password, others @ ..]) => {
                authenticate(desk, session, &[user.clone(), password.clone()])?;
                others
            }
            ("SETNAME", [_, others @ ..]) => others,
            _ => return Err(syntax()),
        };
    }
    if !session.is_known {
        return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time".to_owned());
    }
    session.protocol = protocol;
    let version = if protocol == Protocol::Resp3 { 3 } else { 2 };
    Ok(Value::Map(vec![
        (bulk("server"), bulk("tarn-config")),
        (bulk("version"), bulk(env!("CARGO_PKG_VERSION"))),
        (bulk("proto"), Value::Int(version)),
        (bulk("id"), Value::Int(i64::try_from(session.id).unwrap_or(i64::MAX))),
        (bulk("mode"), bulk("config")),
        (bulk("role"), bulk(if desk.known().leads { "leader" } else { "follower" })),
        (bulk("modules"), Value::Array(Vec::new())),
    ]))
}

fn info(desk: &Desk) -> String {
    let known = desk.known();
    let leader = known.leader.map_or("-".to_owned(), |leader| format!("{}:{}", leader.host, leader.port));
    let shown = [
        ("tarn_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("mode", "config".to_owned()),
        ("process_id", std::process::id().to_string()),
        ("tcp_port", desk.settings.port.to_string()),
        ("tls_port", desk.settings.tls_port.to_string()),
        ("uptime_in_seconds", desk.begun.elapsed().as_secs().to_string()),
        ("connected_clients", desk.clients.get().to_string()),
        ("total_connections_received", desk.clients_ever.get().to_string()),
        ("total_commands_processed", desk.requests.get().to_string()),
        ("used_memory", sys::memory::used_bytes().to_string()),
        ("cluster", known.cluster),
        ("leads", u8::from(known.leads).to_string()),
        ("leader", leader),
        ("topology_revision", known.revision.to_string()),
        ("moves", known.moves.to_string()),
        ("topology_bytes", known.text.len().to_string()),
        ("users_revision", known.users.revision.to_string()),
        ("users_bytes", known.users.text.len().to_string()),
        ("store", desk.store.place()),
        ("store_status", desk.store_status()),
    ];
    let lines = shown.iter().map(|(name, value)| format!("{name}:{value}\r\n"));
    format!("# Config server\r\n{}", lines.collect::<String>())
}

/// Enough for a client that asks for all commands when it connects.
fn command(words: &[Vec<u8>]) -> Value {
    match words.get(1).map(|word| upper(word)).as_deref() {
        Some("COUNT") => Value::Int(0),
        Some("DOCS") => Value::Map(Vec::new()),
        _ => Value::Array(Vec::new()),
    }
}

fn client(session: &Session, words: &[Vec<u8>]) -> Answer {
    match words.get(1).map(|word| upper(word)).as_deref() {
        Some("ID") => Ok(Value::Int(i64::try_from(session.id).unwrap_or(i64::MAX))),
        Some("GETNAME") => Ok(bulk("")),
        Some("SETNAME" | "SETINFO" | "NO-EVICT" | "NO-TOUCH") => Ok(simple("OK")),
        _ => Err("ERR unknown subcommand of CLIENT: this is a config server".to_owned()),
    }
}

async fn topology(desk: &Desk, words: &[Vec<u8>]) -> (Answer, Flow) {
    match words {
        [sub] if upper(sub) == "GET" => {
            let known = desk.known();
            let answer = match known.text.is_empty() || known.untold.is_some() {
                true => Err(unavailable(desk)),
                false => Ok(bulk(known.text.as_bytes())),
            };
            (answer, Flow::Next)
        }
        [sub, revision] if upper(sub) == "FOLLOW" => follow_of(desk, Followed::Topology, revision).await,
        _ => (Err("ERR TOPOLOGY GET, or TOPOLOGY FOLLOW REVISION".to_owned()), Flow::Next),
    }
}

/// Has somebody follow what is later than a revision, once what is known here is no older than the request.
pub(super) async fn follow_of(desk: &Desk, of: Followed, revision: &[u8]) -> (Answer, Flow) {
    let revision = match number(revision) {
        Ok(revision) => revision,
        Err(line) => return (Err(line), Flow::Next),
    };
    let seen = desk.known().seen(of);
    let known = match of {
        Followed::Topology => desk.wait_until_fresh().await.map(|store| (store, None)),
        Followed::Users => desk.users().await,
    };
    match known {
        Ok((store, _)) if store.0 < revision => (Err(past(store.0, revision)), Flow::Next),
        // The store may have come to that revision again by what else is written to it.
        Ok((_, Some(users))) if users.revision < revision => {
            (Err(past(users.revision, revision)), Flow::Next)
        }
        Ok((_, users)) => (Ok(Value::Null), Flow::Follow { of, revision, seen, users }),
        Err(why) => (Err(cut_off(&why)), Flow::Next),
    }
}

/// What is answered to who knows what the store has forgotten.
pub(super) fn past(seen: u64, revision: u64) -> String {
    format!(
        "PAST the store of decisions is at revision {seen}, and has forgotten revision {revision}: it was restored from a backup, and what it says is not believed"
    )
}

/// Why nothing is told of the cluster.
pub(super) fn unavailable(desk: &Desk) -> String {
    let why = desk.known().untold.unwrap_or_else(|| desk.news.trouble());
    match why.is_empty() {
        true => "UNAVAILABLE there is no cluster yet; try again".to_owned(),
        false => cut_off(&why),
    }
}

/// What is answered while the store gives no news.
pub(super) fn cut_off(why: &str) -> String {
    format!("UNAVAILABLE the store of decisions gives no answer to rely on: {why}")
}

/// Whether what this config server knows may be relied on.
///
/// # Errors
/// What stands behind `-`.
pub fn has_news(desk: &Desk) -> Result<(), String> {
    match desk.news.is_fresh() {
        true => Ok(()),
        false => Err(cut_off(&desk.news.trouble())),
    }
}

/// What the leader does: here if this one leads, else by the leader.
pub(super) async fn by_leader(desk: &Desk, words: &[Vec<u8>], passed: Passed, question: Question) -> Answer {
    if desk.known().leads || passed == Passed::Yes {
        return desk.ask(question).await.map(simple);
    }
    peer::pass_on(desk, words).await
}

/// Whether the store says of a server of this cluster what that says itself, so that nothing has to be written: then anybody may let it in, and servers
/// need not wait until somebody leads to be told how the cluster looks.
fn knows_already(desk: &Desk, cluster: &str, server: &Server) -> bool {
    let known = desk.known();
    let prefix = format!("server {} ", server.id);
    let as_said = |line: &str| {
        Server::from_line(line).map(|known| Server { place: None, is_met: false, ..known }).as_ref()
            == Some(server)
    };
    has_news(desk).is_ok()
        && !cluster.is_empty()
        && known.cluster == cluster
        && known.text.lines().find(|line| line.starts_with(&prefix)).is_some_and(as_said)
}

async fn server(desk: &Rc<Desk>, words: &[Vec<u8>], passed: Passed) -> Answer {
    let sub = words.get(1).map(|word| upper(word)).unwrap_or_default();
    match (sub.as_str(), &words[2.min(words.len())..]) {
        ("JOIN", [cluster, line]) => {
            let cluster = text(cluster)?;
            let cluster = if cluster == "-" { "" } else { cluster };
            let line = text(line)?;
            let server = Server::from_line(line).or_else(|| Server::from_line(&format!("{line} -")));
            let server = server.ok_or("ERR that is no record of a server")?;
            let server = Server { place: None, ..server };
            if !desk.known().leads && passed == Passed::No && knows_already(desk, cluster, &server) {
                return Ok(simple(format!("id {cluster}")));
            }
            by_leader(desk, words, passed, Question::Joins(cluster.to_owned(), server)).await
        }
        ("HERE", [id_word, figures]) => {
            let (id, figures) = (id(id_word)?, text(figures)?.to_owned());
            has_news(desk)?;
            let is_known = here(desk, id, Duration::ZERO, figures).await;
            match is_known {
                true => Ok(simple("OK")),
                false => Err("NOSERVER the cluster has no such server: say SERVER JOIN".to_owned()),
            }
        }
        _ => Err("ERR SERVER JOIN CLUSTER-ID|- LINE, or SERVER HERE ID FIGURES".to_owned()),
    }
}

async fn here(desk: &Desk, id: ServerId, ago: Duration, figures: String) -> bool {
    let (answer, answered) = oneshot::channel();
    // The service may have ended.
    let _ = desk.letters.send(Letter::Here { id, ago, figures, answer }).await;
    answered.await.unwrap_or(false)
}

/// What config servers say to each other.
async fn config_server(desk: &Rc<Desk>, session: &Session, words: &[Vec<u8>], passed: Passed) -> Answer {
    let sub = words.get(1).map(|word| upper(word)).unwrap_or_default();
    match (sub.as_str(), &words[2.min(words.len())..]) {
        // Once: what is passed on is not passed on again, however often somebody says so.
        ("PASSED", [name, ..]) if passed == Passed::No => {
            let name = upper(name);
            carry_out(desk, session, &name, &words[2..], Passed::Yes).await
        }
        ("HEARD", heard) if heard.len() % 3 == 0 => {
            for one in heard.chunks_exact(3) {
                let ago = Duration::from_millis(number(&one[1])?);
                here(desk, id(&one[0])?, ago, text(&one[2])?.to_owned()).await;
            }
            Ok(bulk(desk.known().silent.as_bytes()))
        }
        _ => Err(syntax()),
    }
}

async fn cluster(desk: &Rc<Desk>, words: &[Vec<u8>], passed: Passed) -> Answer {
    let sub = words.get(1).map(|word| upper(word)).unwrap_or_default();
    let rest = &words[2.min(words.len())..];
    if let Some(request) = moves::ordered(&sub, rest)? {
        let answer = by_leader(desk, words, passed, Question::Asks(request)).await?;
        return Ok(match answer {
            // It may be several lines.
            Value::Simple(lines) if sub == "REBALANCE" => Value::Bulk(lines),
            other => other,
        });
    }
    let order = match (sub.as_str(), rest) {
        ("HELP", []) => return Ok(Value::Array(HELP.iter().map(|line| simple(*line)).collect())),
        ("STATUS" | "MOVES", rest) => {
            let is_json = match rest {
                [] => false,
                [form] if upper(form) == "JSON" => true,
                _ => return Err(syntax()),
            };
            return status(desk, words, passed, sub == "MOVES", is_json).await;
        }
        ("ADD-SHARD", []) => Order::AddShard,
        ("ADD-SHARD", [with, server]) if upper(with) == "WITH" => Order::Begin(id(server)?),
        ("MEET-SERVER", [server]) => Order::Meet(id(server)?),
        ("SET", [name, value]) => Order::Set(text(name)?.to_ascii_lowercase(), text(value)?.to_owned()),
        ("SWITCH", [shard]) => Order::Switch(ShardId(number(shard)?), None),
        ("SWITCH", [shard, to, server]) if upper(to) == "TO" => {
            Order::Switch(ShardId(number(shard)?), Some(id(server)?))
        }
        ("RESTORE", [step]) if upper(step) == "BEGIN" => Order::BeginRestore,
        ("RESTORE", [step, restore, slots, epochs @ ..]) if upper(step) == "END" && epochs.len() % 2 == 0 => {
            let slots = SlotMap::from_line(text(slots)?).ok_or("ERR that says of no slots who has them")?;
            let epoch = |pair: &[Vec<u8>]| Ok::<_, String>((ShardId(number(&pair[0])?), number(&pair[1])?));
            let epochs = epochs.chunks_exact(2).map(epoch).collect::<Result<_, _>>()?;
            Order::EndRestore(number(restore)?, Restored { slots, epochs })
        }
        ("PLACE-SERVER", [server, shard]) => Order::Place(id(server)?, ShardId(number(shard)?)),
        ("REMOVE-SERVER", [server]) => Order::Remove(id(server)?, Force::No),
        ("REMOVE-SERVER", [server, force]) if upper(force) == "FORCE" => {
            Order::Remove(id(server)?, Force::Yes)
        }
        ("PROMOTE", [shard, heir, accept, rest @ ..]) if upper(accept) == "ACCEPT-LOSS" => {
            let gone = match rest {
                [] => None,
                [word, nobody] if upper(word) == "GONE" && nobody == b"-" => Some(BTreeSet::new()),
                [word, ids @ ..] if upper(word) == "GONE" && !ids.is_empty() => {
                    Some(ids.iter().map(|word| id(word)).collect::<Result<_, _>>()?)
                }
                _ => return Err(syntax()),
            };
            Order::Lose(Losing { shard: ShardId(number(shard)?), heir: id(heir)?, gone })
        }
        _ => return Err("ERR unknown subcommand or wrong number of arguments; see CLUSTER HELP".to_owned()),
    };
    by_leader(desk, words, passed, Question::Wants(order)).await
}

const HELP: &[&str] = &[
    "CLUSTER STATUS [JSON]",
    "    Who is in the cluster, and how its shards stand.",
    "CLUSTER ADD-SHARD [WITH ID]",
    "    One shard more, as soon as there are servers for it; or at once, with one server that waits for a place.",
    "CLUSTER REMOVE-SHARD SHARD",
    "    Its slots go to the others: the moves. Said again when it has none, it goes with its servers.",
    "CLUSTER REMOVE-SHARD OF ID",
    "    A server goes with its shard, if it is the only one there, and the shard has no slots.",
    "CLUSTER SWITCH SHARD [TO ID]",
    "    Another member is the shard's master. Nothing is lost.",
    "CLUSTER PROMOTE SHARD ID ACCEPT-LOSS [GONE ID ...|-]",
    "    A shard whose members are all gone for good begins anew with what this server has; without GONE: what is known of it.",
    "CLUSTER MEET-SERVER ID",
    "    Clients of Redis Cluster are told of a server that waits for a place.",
    "CLUSTER PLACE-SERVER ID SHARD",
    "    A server that waits for a place has one in this shard.",
    "CLUSTER REMOVE-SERVER ID [FORCE]",
    "    A server goes, once another has its copy.",
    "CLUSTER MOVE-SLOTS FROM|- TO SLOT|FIRST-LAST ...",
    "    Slots go to another shard: the moves.",
    "CLUSTER MOVES [JSON]",
    "    How far each move is, and why those that have failed have.",
    "CLUSTER CANCEL-MOVE ID",
    "    A move ends without any change, or one that has failed is forgotten.",
    "CLUSTER REBALANCE [BY slots|keys|bytes|ops] [DRY-RUN]",
    "    Slots go to the shards that have less than others: the moves.",
    "CLUSTER RESTORE BEGIN",
    "    Somebody brings a backup to a cluster that waits for one: `+restore N`. Who has begun before does not go on.",
    "CLUSTER RESTORE END N SLOTS [SHARD EPOCH ...]",
    "    All of it is there, brought to masters in these epochs, and slots have these owners.",
    "CLUSTER SET copies|shards|replace-after|move-rate|auto-rebalance|rebalance-threshold VALUE",
    "    A setting of the cluster.",
    "TOPOLOGY GET",
    "    What servers and proxies are told.",
    "USERS HELP",
    "    What can be said of the users of proxies.",
];

/// How all stands, from the leader if it can be asked: it alone hears of everybody.
async fn status(
    desk: &Rc<Desk>,
    words: &[Vec<u8>],
    passed: Passed,
    is_of_moves: bool,
    is_json: bool,
) -> Answer {
    if !desk.known().leads
        && passed == Passed::No
        && let Ok(Ok(answer)) = tokio::time::timeout(STATUS_WITHIN, peer::pass_on(desk, words)).await
    {
        return Ok(answer);
    }
    let status = desk.status().await;
    Ok(bulk(match (is_of_moves, is_json) {
        (false, true) => status.to_string(),
        (false, false) => crate::table::of(&status),
        (true, true) => status["moves"].to_string(),
        (true, false) => crate::table::of_moves(&status),
    }))
}

async fn decision(desk: &Rc<Desk>, words: &[Vec<u8>]) -> Answer {
    let sub = words.get(1).map(|word| upper(word)).unwrap_or_default();
    let prefix = desk.settings.control.prefix.clone();
    let name = |shard: ShardId| format!("{prefix}{}", key::shard(shard));
    let store = desk.store.clone();
    match (sub.as_str(), &words[2.min(words.len())..]) {
        ("GET", [shard]) => {
            let name = name(ShardId(number(shard)?));
            in_thread(move || get(&*store, &name)).await
        }
        ("SET", [shard, version, line]) => {
            let shard = ShardId(number(shard)?);
            let (name, version, line) = (name(shard), number(version)?, text(line)?.to_owned());
            let places = desk.known().places;
            let server_of = move |node: u32| {
                let id = places.get(&Place { shard, node })?;
                Some(format!("{prefix}{}", key::server(*id)))
            };
            in_thread(move || set(&*store, &name, version, &line, server_of)).await
        }
        ("TRY", [shard]) => {
            let name = name(ShardId(number(shard)?));
            in_thread(move || try_to_set(&*store, &name)).await
        }
        _ => Err("ERR DECISION GET SHARD, DECISION SET SHARD VERSION LINE, or DECISION TRY SHARD".to_owned()),
    }
}

/// Version and line of a decision; version 0 and nothing, if nobody has decided anything yet.
fn decided(entry: &Entry) -> Result<(u64, Value), String> {
    match Standing::from_line(&entry.value) {
        Some(Standing::Unbegun(_)) => Ok((0, Value::Null)),
        Some(Standing::Begun(decision)) => Ok((decision.version.0, bulk(&entry.value))),
        None => {
            Err(format!("UNREACHED the store holds something in {} that is no decision: mend it", entry.key))
        }
    }
}

fn there(store: &dyn Store, name: &str) -> Result<Entry, String> {
    match store.get(name) {
        Ok(Some(entry)) => Ok(entry),
        Ok(None) => Err("NOSHARD the cluster has no such shard".to_owned()),
        Err(Unavailable(why)) => Err(format!("UNREACHED the store of decisions gives no answer: {why}")),
    }
}

fn get(store: &dyn Store, name: &str) -> Answer {
    decided(&there(store, name)?).map(|(_, line)| line)
}

/// Has the store take the decision that is there once more: whoever is about to yield has to know that another can be written down.
fn try_to_set(store: &dyn Store, name: &str) -> Answer {
    let entry = there(store, name)?;
    decided(&entry)?;
    let put = Write::Put { key: name.to_owned(), value: entry.value, lease: None };
    let compares = vec![Compare { key: name.to_owned(), revision: entry.revision }];
    match store.change(&Change { compares, writes: vec![put] }) {
        // Somebody else has changed it: then it can be.
        Outcome::Done(_) | Outcome::Conflict => Ok(simple("OK")),
        Outcome::Unknown(why) | Outcome::Unreached(why) => {
            Err(format!("UNREACHED the store of decisions takes no changes: {why}"))
        }
    }
}

/// Who is master or a member by a decision and was not by what the store holds.
fn newly_named(next: &Decision, entry: &str) -> BTreeSet<u32> {
    let before = Standing::from_line(entry);
    let (master, members) = (before.as_ref().and_then(Standing::master), before.map(|one| one.members()));
    let members = members.unwrap_or_default();
    let new = next.members.iter().map(|member| member.node.0).filter(|node| !members.contains(node));
    new.chain(Some(next.master.node.0).filter(|node| Some(*node) != master)).collect()
}

/// Compares the version and sets the decision. What it says is the shard's own affair, except that its version follows, and that who becomes master or a
/// member has a place in the cluster: `server_of` gives the key of a node's server.
fn set(
    store: &dyn Store,
    name: &str,
    version: u64,
    line: &str,
    server_of: impl Fn(u32) -> Option<String>,
) -> Answer {
    let next = match Standing::from_line(line) {
        Some(Standing::Begun(decision)) if Some(decision.version.0) == version.checked_add(1) => decision,
        _ => return Err(format!("ERR that is no decision of version {}", version.saturating_add(1))),
    };
    let unavailable = |Unavailable(why): Unavailable| format!("UNREACHED the decision is not made: {why}");
    for _ in 0..TRIES {
        let entry = there(store, name)?;
        let (now, shown) = decided(&entry)?;
        if now != version {
            return Ok(Value::Array(vec![Value::Int(0), shown]));
        }
        let put = Write::Put { key: name.to_owned(), value: line.to_owned(), lease: None };
        let mut compares = vec![Compare { key: name.to_owned(), revision: entry.revision }];
        // They may be removed at the same time.
        for node in newly_named(&next, &entry.value) {
            let server = server_of(node).map(|key| store.get(&key)).transpose().map_err(unavailable)?;
            match server {
                Some(Some(server)) => compares.push(Compare { key: server.key, revision: server.revision }),
                _ => return Err(format!("UNREACHED node {node} has no place in the cluster")),
            }
        }
        match store.change(&Change { compares, writes: vec![put] }) {
            Outcome::Done(_) => return Ok(Value::Array(vec![Value::Int(1), bulk(line)])),
            Outcome::Conflict => {}
            Outcome::Unknown(why) => {
                return Err(format!("UNKNOWN nobody can say whether that is the decision now: {why}"));
            }
            Outcome::Unreached(why) => return Err(format!("UNREACHED the decision is not made: {why}")),
        }
    }
    Err("UNREACHED others change the decision at the same time; ask again".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use replication::insync::{Epoch, Life, MemberId, NodeId, Version};

    #[test]
    fn whoever_a_decision_newly_names_has_to_have_a_place() {
        let member = |node| MemberId { node: NodeId(node), life: Life(1) };
        let decision = |master, members: &[u32]| Decision {
            version: Version(1),
            epoch: Epoch(1),
            master: member(master),
            members: members.iter().copied().map(member).collect(),
            is_lossy: false,
        };
        let before = Standing::Begun(decision(1, &[1, 2])).to_line();
        let new = |master, members: &[u32]| newly_named(&decision(master, members), &before);
        assert_eq!(new(1, &[1, 2]), BTreeSet::new());
        assert_eq!(new(1, &[1]), BTreeSet::new(), "who leaves may have none");
        assert_eq!(new(1, &[1, 2, 3]), BTreeSet::from([3]));
        assert_eq!(new(2, &[2, 4]), BTreeSet::from([2, 4]));
        assert_eq!(newly_named(&decision(1, &[1]), "none 0 1"), BTreeSet::from([1]));
    }
}
