//! Reaching a target: what kind it is, its nodes and their connections, and what the loss of one means.

use super::nodes::{Redirection, Slots};
use super::owning::{ENDER, LOOKER};
use super::turn::is_passing;
use super::{Ending, Entry, Kind, Place, Tags, Target, Trouble, stopped};
use crate::connection::{Connection, shown};
use crate::ending::{Orders, pause, unreached};
use crate::limits::{PATIENCE, PAUSE};
use crate::screen::say;
use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use value::stream::Reads;
use wire::{Value, encode_request};

impl Target {
    /// Reaches it, and finds out what it is.
    ///
    /// # Errors
    /// One sentence.
    pub fn open(place: &Place, entry: &Entry, orders: &Orders, tags: &Arc<Tags>) -> Result<Target, Ending> {
        let its = orders.clone();
        let mut look: Box<dyn FnMut() -> io::Result<()>> = Box::new(move || its.look());
        let wrong = |error: io::Error| unreached(&error, format!("the target {place}: {}", sentence(&error)));
        let mut connection = Connection::open(place, entry, &mut *look).map_err(wrong)?;
        let reads = reads(&mut connection, &mut *look)?;
        let mut slots = Slots::of_one(place.clone());
        let is_node = connection.field("cluster", "cluster_enabled", &mut *look).map_err(wrong)?.as_deref()
            == Some("1");
        let kind = match is_node {
            true => {
                let reply = connection.ask_line("CLUSTER SLOTS", &mut *look).map_err(wrong)?;
                slots
                    .take(&reply, place)
                    .map_err(|why| Ending::Later(format!("the target {place}: {why}")))?;
                if slots.unowned() > 0 {
                    let why = format!("the target {place} knows no master of some slots");
                    return Err(Ending::Later(why));
                }
                Kind::Slots
            }
            false => kind_of_server(&mut connection, &mut *look).map_err(wrong)?,
        };
        // Whoever is behind a proxy may be older than that says to be.
        let reads = if kind == Kind::Bare { Reads::Redis70 } else { reads };
        Ok(Target {
            entry: entry.clone(),
            orders: orders.clone(),
            look,
            kind,
            reads,
            slots,
            connections: Vec::new(),
            processes: HashMap::new(),
            name: LOOKER.to_owned(),
            tags: tags.clone(),
            writer: None,
            ender: None,
            claims: false,
            has_unheard: false,
            databases: BTreeSet::new(),
            moved_from: BTreeSet::new(),
            said: None,
            heard: Rc::new(Cell::new(Instant::now())),
            silence_max: None,
        })
    }

    /// Says which servers may take keys away to have room: that nothing is missing is not known then.
    ///
    /// # Errors
    /// It is to end.
    pub fn warn_of_eviction(&mut self) -> Result<(), Ending> {
        let masters = if self.kind == Kind::Bare { Vec::new() } else { self.masters() };
        for node in masters {
            let Value::Bulk(text) = self.ask_node(node, &[b"INFO", b"memory"])? else { continue };
            if let Some(policy) = eviction(&String::from_utf8_lossy(&text)) {
                say(&format!(
                    "the target {} takes keys away when its memory is full (maxmemory-policy {policy}), and only --verify finds that: set it to noeviction until the cut-over is made",
                    self.place(node)
                ));
            }
        }
        Ok(())
    }

    /// Where a node is.
    pub(super) fn place(&self, node: usize) -> Place {
        self.slots.places[node].clone()
    }

    /// Sees to it that there is a connection to a node. What another connection of this name was about is not under way any more then.
    pub(super) fn node(&mut self, node: usize) -> Result<(), Trouble> {
        self.fail_if_over()?;
        if self.connections.len() < self.slots.places.len() {
            self.connections.resize_with(self.slots.places.len(), || None);
        }
        if self.connections[node].is_some() {
            return Ok(());
        }
        let place = self.place(node);
        let mut connection = match Connection::open(&place, &self.entry, &mut *self.look) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(Ending::Stopped(format!("the target {place}: {error}")).into());
            }
            opened => opened?,
        };
        connection.ask(&[b"CLIENT", b"SETNAME", self.name.as_bytes()], &mut *self.look)?;
        if self.writer.is_some() && self.kind != Kind::Bare {
            end_others(&mut connection, &self.name, &mut *self.look)?;
            if self.claims {
                end_others(&mut connection, ENDER, &mut *self.look)?;
            }
            self.check_process(&place, &mut connection)?;
        }
        self.connections[node] = Some(connection);
        if let Some(writer) = &mut self.writer {
            writer.is_confirmed = false;
        }
        if let Some(ender) = &mut self.ender {
            ender.is_confirmed = false;
        }
        Ok(())
    }

    /// Whether a server is the process that it was: another may have less than was answered. In a server whose stream is followed the state says so.
    fn check_process(&mut self, place: &Place, connection: &mut Connection) -> Result<(), Trouble> {
        let process = connection.field("server", "run_id", &mut *self.look)?.unwrap_or_default();
        let known = self.processes.entry(place.clone()).or_insert_with(|| process.clone());
        if *known == process {
            return Ok(());
        }
        *known = process;
        match self.kind == Kind::One && self.is_following() {
            true => Ok(()),
            false => Err(Ending::NeedsCopy(format!(
                "the target {place} was started again, and may have less than it had answered"
            ))
            .into()),
        }
    }

    /// What the loss of a connection means. Its slots may be elsewhere.
    pub(super) fn lost(&mut self, node: usize, error: &io::Error) -> Result<(), Ending> {
        self.fail_if_over()?;
        let had = self.connections.get_mut(node).is_some_and(|connection| connection.take().is_some());
        if had && self.kind == Kind::Bare && self.writer.is_some() {
            return Err(behind_proxy());
        }
        let place = self.place(node);
        self.tell(format!("the target {place} is not reached: {}", sentence(error)));
        if self.kind != Kind::Slots {
            return Ok(());
        }
        let before = self.slots.clone();
        self.ask_for_slots(Some(node))?;
        self.note_moves(&before);
        match self.writer.is_some() && self.moved_from.contains(&node) {
            true => Err(Ending::NeedsCopy(format!(
                "another server has taken the place of the target's master {place}, and may have less than it had answered"
            ))),
            false => Ok(()),
        }
    }

    /// Asks the nodes, but one, who has which slots. Nobody may say.
    pub(super) fn ask_for_slots(&mut self, but: Option<usize>) -> Result<(), Ending> {
        for (number, place) in self.slots.places.clone().into_iter().enumerate() {
            if but == Some(number) {
                continue;
            }
            self.fail_if_over()?;
            let Ok(mut connection) = Connection::open(&place, &self.entry, &mut *self.look) else { continue };
            let Ok(reply) = connection.ask_line("CLUSTER SLOTS", &mut *self.look) else { continue };
            if self.slots.take(&reply, &place).is_ok() {
                break;
            }
        }
        Ok(())
    }

    /// Follows a node that says that a slot is elsewhere. Gives whom to ask once.
    pub(super) fn follow(&mut self, node: usize, redirection: Redirection) -> Option<usize> {
        match redirection {
            Redirection::Ask(place) => self.slots.number(&place).map(usize::from),
            Redirection::Moved(slot, place) => {
                self.slots.give(slot, &place);
                self.moved_from.insert(node);
                None
            }
        }
    }
}

/// By which policy a server takes keys away, as its INFO says; None: it does not.
fn eviction(info: &str) -> Option<&str> {
    let field = |name: &str| {
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim_end)
    };
    let is_limited = field("maxmemory").is_some_and(|bytes| bytes != "0");
    field("maxmemory_policy").filter(|policy| is_limited && *policy != "noeviction")
}

/// What was under way may be done yet, or may not.
pub(super) fn behind_proxy() -> Ending {
    Ending::NeedsCopy(
        "a connection to the proxy was lost, and it is not known what of it was done behind it".to_owned(),
    )
}

/// The newest form of values that a server reads. One that does not tell times to live as moments is too old.
fn reads(connection: &mut Connection, look: net::connect::Look<'_>) -> Result<Reads, Ending> {
    let asked = connection.field("server", "redis_version", look);
    let wrong = |error: io::Error| unreached(&error, format!("the target: {}", sentence(&error)));
    let version = asked.map_err(wrong)?;
    let mut numbers = version.as_deref().unwrap_or_default().split('.').map(|part| part.parse::<u32>());
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or_default();
    let version = (next(), next());
    match connection.ask_line("PEXPIRETIME tarn-migrate:none", look) {
        Ok(Value::Int(-2)) | Ok(Value::Error(_)) if version >= (7, 2) => Ok(Reads::Redis72),
        Ok(Value::Int(_)) | Ok(Value::Error(_)) if version >= (7, 0) => Ok(Reads::Redis70),
        Ok(_) => stopped("the target is older than Redis 7.0, and cannot be imported into"),
        Err(error) => Err(wrong(error)),
    }
}

/// Whether it is a server itself: a transaction may have any keys, and it knows this connection by its name. One that is not ready yet is waited for.
fn kind_of_server(connection: &mut Connection, look: net::connect::Look<'_>) -> io::Result<Kind> {
    let mut is_said = false;
    loop {
        let replies = probe(connection, look)?;
        let passing = replies.iter().find_map(|reply| match reply {
            Value::Error(line) if is_passing(line) => Some(shown(line)),
            _ => None,
        });
        let Some(why) = passing else {
            let is_server = matches!(replies.last(), Some(Value::Array(_)))
                && matches!(&replies[1], Value::Bulk(list) if !ids_called(list, LOOKER).is_empty());
            return Ok(if is_server { Kind::One } else { Kind::Bare });
        };
        if !is_said {
            say(&format!("the target refuses: {why}; it is tried again"));
            is_said = true;
        }
        pause(PAUSE, look)?;
    }
}

/// What it answers to a small transaction, whose answer is the last one, and to who is there, the second.
fn probe(connection: &mut Connection, look: net::connect::Look<'_>) -> io::Result<Vec<Value>> {
    let mut bytes = Vec::new();
    let requests = [
        &[&b"CLIENT"[..], b"SETNAME", LOOKER.as_bytes()][..],
        &[b"CLIENT", b"LIST"],
        &[b"MULTI"],
        &[b"EXISTS", b"tarn-migrate:a"],
        &[b"EXISTS", b"tarn-migrate:b"],
        &[b"EXEC"],
    ];
    requests.iter().for_each(|words| encode_request(&mut bytes, words));
    connection.say(&bytes, look)?;
    requests.iter().map(|_| connection.hear(look)).collect()
}

/// Ends all other connections of this name, and waits until they are gone: nothing of what was sent on them is done any more.
fn end_others(connection: &mut Connection, name: &str, look: net::connect::Look<'_>) -> Result<(), Trouble> {
    let own = match connection.ask_line("CLIENT ID", look)? {
        Value::Int(own) => own,
        _ => {
            return Err(
                Ending::Stopped("the target does not say which connection is which".to_owned()).into()
            );
        }
    };
    let began = Instant::now();
    loop {
        let Value::Bulk(list) = connection.ask_line("CLIENT LIST", look)? else {
            return Err(Ending::Stopped("the target does not show its connections".to_owned()).into());
        };
        let others: Vec<i64> = ids_called(&list, name).into_iter().filter(|id| *id != own).collect();
        if others.is_empty() {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            return Err(
                Ending::Stopped("an older connection to the target cannot be ended".to_owned()).into()
            );
        }
        for id in others {
            // It may have ended by itself.
            connection.ask_line(&format!("CLIENT KILL ID {id}"), look)?;
        }
        pause(PAUSE / 10, look)?;
    }
}

/// The numbers of connections of a name in a list.
fn ids_called(list: &[u8], name: &str) -> Vec<i64> {
    let list = String::from_utf8_lossy(list);
    let field =
        |line: &str, of: &str| line.split(' ').find_map(|word| word.strip_prefix(of)).map(str::to_owned);
    list.lines()
        .filter(|line| field(line, "name=").as_deref() == Some(name))
        .filter_map(|line| field(line, "id=")?.parse().ok())
        .collect()
}

/// An error as a sentence has it.
pub(super) fn sentence(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut => "it gives no answer".to_owned(),
        ErrorKind::UnexpectedEof => "it has closed the connection".to_owned(),
        ErrorKind::InvalidData => "it does not speak this protocol".to_owned(),
        ErrorKind::PermissionDenied => error.to_string(),
        _ => shown(config::sentence(error).as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Connection, Entry, Kind, Place, eviction, ids_called, kind_of_server};
    use std::io::Write;
    use std::net::TcpListener;
    use wire::Decoder;

    #[test]
    fn a_server_that_loads_its_data_is_no_proxy() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place { host: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() };
        let answers = std::thread::spawn(move || {
            let (mut socket, mut decoder) = (listener.accept().unwrap().0, Decoder::new());
            let loading = "-LOADING it loads\r\n".repeat(6);
            let list = "id=3 name=tarn-migrate-look";
            let ready = format!(
                "+OK\r\n${}\r\n{list}\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:0\r\n:0\r\n",
                list.len()
            );
            for answer in [loading, ready] {
                let mut asked = 0;
                while asked < 6 {
                    let mut bytes = [0; 1000];
                    let count = std::io::Read::read(&mut socket, &mut bytes).unwrap();
                    decoder.feed(&bytes[..count]);
                    while decoder.decode().unwrap().is_some() {
                        asked += 1;
                    }
                }
                socket.write_all(answer.as_bytes()).unwrap();
            }
        });
        let mut connection = Connection::open(&place, &Entry::default(), &mut || Ok(())).unwrap();
        assert_eq!(kind_of_server(&mut connection, &mut || Ok(())).unwrap(), Kind::One);
        answers.join().unwrap();
    }

    #[test]
    fn a_server_evicts_only_if_its_memory_is_limited() {
        let info = |bytes: u32, policy: &str| {
            format!("# Memory\r\nmaxmemory_human:0B\r\nmaxmemory:{bytes}\r\nmaxmemory_policy:{policy}\r\n")
        };
        assert_eq!(eviction(&info(1000, "volatile-lru")), Some("volatile-lru"));
        assert_eq!((eviction(&info(0, "allkeys-lru")), eviction(&info(9, "noeviction"))), (None, None));
    }

    #[test]
    fn connections_are_found_by_name() {
        let list = b"id=3 addr=a:1 name=tarn-migrate:0 age=1\nid=4 addr=b:1 name= age=1\nid=5 name=tarn-migrate:01\n";
        assert_eq!(ids_called(list, "tarn-migrate:0"), [3]);
    }
}
