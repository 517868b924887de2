//! What changes a cluster: a node decides none of it. Config servers do, and this is where requests leave for them.
//!
//! Who asks waits, and a thread asks the config servers in turn; the worker serves others meanwhile. What config servers see to by themselves is
//! answered as Redis answers where there is nothing to do, or refused with a sentence.

use super::view;
use crate::blocking;
use crate::clustered::View;
use crate::commands::cluster::telling;
use crate::dispatch::Context;
use crate::insync::asking::Asking;
use crate::insync::dialling::TlsBy;
use crate::joining;
use crate::server::Server;
use command::{Error, Result, parse};
use keyspace::DbIndex;
use replication::insync::{Event, Loss, Role};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use sys::Shown;
use topology::{ServerId, ShardId};
use wire::{Reply, SLOTS, Value};

/// How long a config server may take. An order takes up to ten seconds there.
const ORDER_PATIENCE: Duration = Duration::from_secs(12);

/// How long it may take until what was ordered shows here.
const SHOWING: Duration = Duration::from_secs(2);

/// How long a server may take to begin a shard.
const BEGINNING: Duration = Duration::from_secs(10);

/// How often it is looked whether it does.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What a server is told that is to have another place.
const KEEPS_ITS_PLACE: &str = "ERR This node keeps its place in its shard: remove it (CLUSTER FORGET, or `tarn cluster remove-shard` with its shard), and start it with an empty directory to have another";

/// What is answered if the server ends meanwhile.
const GIVEN_UP: &[u8] = b"-ERR nobody can say what the config servers make of it\r\n";

/// CLUSTER FORGET node-id: the server leaves the cluster, everywhere; and its shard, if that has neither slots nor other servers.
pub(super) fn forget(context: &mut Context<'_, '_>, _: &mut Reply<'_>) -> Result<()> {
    let view = view(context)?;
    let word = context.request.arg(2).to_vec();
    let unknown = || Error::quoting("ERR Unknown node ", &word, "");
    let id = std::str::from_utf8(&word).ok().and_then(|text| text.parse::<ServerId>().ok());
    let id = id.ok_or_else(unknown)?;
    if view.id == Some(id) {
        return Err(Error::text("ERR I tried hard but I can't forget myself..."));
    }
    if view.other_master().is_some_and(|master| master.id == id) {
        return Err(Error::text("ERR Can't forget my master!"));
    }
    later(context, move |server| {
        let text = id.to_string();
        // Whether it is alone in its shard is for the config server that leads to see: this node may not have heard yet of who has come to it.
        let ordered = match ask(server, &[b"CLUSTER", b"REMOVE-SHARD", b"OF", text.as_bytes()]) {
            // A config server of an earlier version does not know the question.
            Err(why) if why.starts_with("NOTALONE ") || why.starts_with("ERR unknown subcommand") => {
                order(server, &[b"CLUSTER", b"REMOVE-SERVER", text.as_bytes(), b"FORCE"])
            }
            told => told.map(drop),
        };
        ordered.map_err(|why| match why.starts_with("ERR there is no server ") {
            true => format!("ERR Unknown node {text}"),
            false => why,
        })?;
        wait_until(server, SHOWING, |view| !view.topology.servers.contains_key(&id));
        Ok(())
    })
}

/// CLUSTER REPLICATE node-id: a server without a place gets one in that node's shard.
pub(super) fn replicate(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let view = view(context)?;
    let node = telling::node(&view, context.request.arg(2))?;
    if view.id == Some(node.id) {
        return Err(Error::text("ERR Can't replicate myself"));
    }
    let leads = view.topology.is_master(node);
    let shard = node.place.map(|place| place.shard).filter(|_| leads);
    if shard.is_none() && !node.is_met {
        return Err(Error::text("ERR I can only replicate a master, not a replica."));
    }
    let master = node.id;
    match (view.id, view.shard()) {
        (_, Some(own)) if shard == Some(own) => {
            reply.ok();
            Ok(())
        }
        (_, Some(own)) if view.topology.slots.count_of(own) == 0 || !view.leads => {
            Err(Error::text(KEEPS_ITS_PLACE))
        }
        (Some(own), None) => later(context, move |server| {
            let shard = shard.map_or_else(|| begin_with(server, master), Ok)?;
            let (own, shard) = (own.to_string(), shard.to_string());
            order(server, &[b"CLUSTER", b"PLACE-SERVER", own.as_bytes(), shard.as_bytes()])?;
            wait_until(server, SHOWING, |view| view.shard().is_some());
            Ok(())
        }),
        _ => Err(Error::text("ERR To set a master the node must be empty and without assigned slots.")),
    }
}

/// Has a server that was met begin a shard by itself, and waits until it is its master. Gives the shard.
///
/// # Errors
/// What stands behind `-`.
pub(super) fn begin_with(server: &Arc<Server>, id: ServerId) -> std::result::Result<ShardId, String> {
    order(server, &[b"CLUSTER", b"ADD-SHARD", b"WITH", id.to_string().as_bytes()])?;
    let begun = |view: &View| {
        let one = view.topology.servers.get(&id).filter(|one| view.topology.is_master(one));
        one.and_then(|one| one.place).map(|place| place.shard)
    };
    let mut shard = None;
    wait_until(server, BEGINNING, |view| {
        shard = begun(view);
        shard.is_some()
    });
    shard.ok_or_else(|| format!("ERR node {id} has not begun its shard in a while; ask again"))
}

/// CLUSTER FAILOVER [FORCE | TAKEOVER]: this node becomes master in its master's place; by force without asking that one.
pub(super) fn failover(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let view = view(context)?;
    let is_forced = match context.request.get(2) {
        None => false,
        Some(_) if context.request.len() > 3 => return Err(Error::Syntax),
        Some(word) if word.eq_ignore_ascii_case(b"force") || word.eq_ignore_ascii_case(b"takeover") => true,
        Some(_) => return Err(Error::Syntax),
    };
    let standing = context.server.shard.get().map(|shard| shard.standing());
    let is_replica = standing.as_ref().is_some_and(|standing| standing.role != Role::Master);
    let (Some(id), Some(shard), true) = (view.id, view.shard(), is_replica) else {
        return Err(Error::text("ERR You should send CLUSTER FAILOVER to a replica"));
    };
    if is_forced {
        let is_member = standing.is_some_and(|standing| standing.role == Role::Member && !standing.is_torn);
        let part = context.server.shard.get().filter(|_| is_member);
        let part = part.ok_or(Error::text(
            "ERR This node is not a member of the in-sync set: it may lack acknowledged writes",
        ))?;
        part.happened(Event::Promote { loss: Loss::Refused });
        reply.ok();
        return Ok(());
    }
    later(context, move |server| {
        let (shard, id) = (shard.to_string(), id.to_string());
        order(server, &[b"CLUSTER", b"SWITCH", shard.as_bytes(), b"TO", id.as_bytes()])
    })
}

/// CLUSTER MEET ip port [cluster-bus-port]: whoever is to be met comes by itself; from then on the two know of each other, if one of them waits for a place.
pub(super) fn meet(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let known = view(context)?;
    let request = context.request;
    let port = |word: &[u8], what| {
        let number = parse::int(word).ok().and_then(|port| u16::try_from(port).ok());
        number.ok_or_else(|| Error::quoting(what, word, ""))
    };
    let (host, number) = (
        String::from_utf8_lossy(request.arg(2)).into_owned(),
        port(request.arg(3), "ERR Invalid base port specified: ")?,
    );
    request.get(4).map(|word| port(word, "ERR Invalid bus port specified: ")).transpose()?;
    let find = move |view: &View| {
        let mut servers = view.topology.servers.values();
        let found = servers.find(|one| {
            let is_there = one.host == host || one.hostname == host && !host.is_empty();
            is_there && number > 0 && (one.port == number || one.tls_port == number)
        });
        found.map(|one| one.id)
    };
    let is_known = |view: &View, id: ServerId| unmet(view, [Some(id), view.id]).next().is_none();
    // Who has none may have been removed, which config servers know.
    let has_place = known.shard().is_some();
    if has_place && find(&known).is_some_and(|id| is_known(&known, id)) {
        reply.ok();
        return Ok(());
    }
    later(context, move |server| {
        let mut met = None;
        wait_until(server, SHOWING, |view| {
            met = find(view);
            met.is_some()
        });
        let Some(met) = met else {
            return Err("ERR That is no server of this cluster: a server comes by itself, to the config servers that its own `cluster-config-servers` names"
                .to_owned());
        };
        let view = server.clustered.get().map(|part| part.view()).unwrap_or_default();
        let own = view.id.filter(|_| !has_place);
        for id in unmet(&view, [Some(met), None]).chain(own) {
            order(server, &[b"CLUSTER", b"MEET-SERVER", id.to_string().as_bytes()])?;
        }
        wait_until(server, SHOWING, |view| is_known(view, met));
        Ok(())
    })
}

/// Those of two servers that wait for a place, and were not met.
fn unmet(view: &View, ids: [Option<ServerId>; 2]) -> impl Iterator<Item = ServerId> + '_ {
    let is_known = |id: &ServerId| {
        let server = view.topology.servers.get(id);
        server.is_some_and(|server| server.place.is_some() || server.is_met)
    };
    ids.into_iter().flatten().filter(move |id| !is_known(id))
}

/// CLUSTER RESET [HARD | SOFT]: a server without a place has nothing to forget.
pub(super) fn reset(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let known = view(context)?;
    let is_mode = |word: &[u8]| word.eq_ignore_ascii_case(b"hard") || word.eq_ignore_ascii_case(b"soft");
    if context.request.len() > 3 || context.request.get(2).is_some_and(|word| !is_mode(word)) {
        return Err(Error::Syntax);
    }
    if known.leads && has_keys(context) {
        return Err(Error::text("ERR CLUSTER RESET can't be called with master nodes containing keys"));
    }
    if known.shard().is_none() {
        reply.ok();
        return Ok(());
    }
    // It may have been removed just now. Whoever waits until it shows here may lose the connection, as the shard's clients do then.
    later(context, |server| {
        match was_removed(server) || wait_until(server, SHOWING, |view| view.shard().is_none()) {
        true => Ok(()),
        false => Err("ERR A server leaves its shard by CLUSTER FORGET at another node, or `tarn cluster remove-server`".to_owned()),
    }
    })
}

/// Whether config servers say that this server was removed.
fn was_removed(server: &Arc<Server>) -> bool {
    let id = server.clustered.get().and_then(|part| part.id()).map(|id| id.to_string());
    let told = id.map(|id| order(server, &[b"CLUSTER", b"MEET-SERVER", id.as_bytes()]));
    // Who has a place has been met already.
    told.is_some_and(|told| told.is_err_and(|why| why.contains("was removed from the cluster")))
}

/// CLUSTER ADDSLOTS slot ..., CLUSTER DELSLOTS slot ...
pub(super) fn change_slots(context: &mut Context<'_, '_>, _: &mut Reply<'_>) -> Result<()> {
    // Who stands alone has no slots, right ones or wrong ones.
    view(context)?;
    let slots: Result<Vec<u16>> = context.request.iter().skip(2).map(slot).collect();
    refuse_slots(context, &slots?)
}

/// CLUSTER ADDSLOTSRANGE first last ..., CLUSTER DELSLOTSRANGE first last ...
pub(super) fn change_ranges(context: &mut Context<'_, '_>, _: &mut Reply<'_>) -> Result<()> {
    view(context)?;
    let words: Vec<&[u8]> = context.request.iter().skip(2).collect();
    if words.len() % 2 == 1 {
        let sub = String::from_utf8_lossy(context.request.arg(1)).to_ascii_lowercase();
        return Err(Error::line(format!("ERR wrong number of arguments for 'cluster|{sub}' command")));
    }
    let mut slots = Vec::new();
    for pair in words.chunks_exact(2) {
        let (first, last) = (slot(pair[0])?, slot(pair[1])?);
        if first > last {
            return Err(Error::line(format!(
                "ERR start slot number {first} is greater than end slot number {last}"
            )));
        }
        slots.extend(first..=last);
    }
    refuse_slots(context, &slots)
}

/// Slots that are nobody's are given away by the leader of the config servers, and none is taken but by a move.
fn refuse_slots(context: &Context<'_, '_>, slots: &[u16]) -> Result<()> {
    let view = view(context)?;
    let is_addition = context.request.arg(1).to_ascii_lowercase().starts_with(b"add");
    let mut named = BTreeSet::new();
    for slot in slots {
        let wrong = match (view.topology.slots.owner(*slot).is_some(), is_addition) {
            (true, true) => "is already busy",
            (false, false) => "is already unassigned",
            _ if !named.insert(*slot) => "specified multiple times",
            _ => continue,
        };
        return Err(Error::line(format!("ERR Slot {slot} {wrong}")));
    }
    Err(Error::text(match is_addition {
        true => {
            "ERR The config servers give slots that are nobody's to shards by themselves, once as many shards as are wanted have begun (`tarn cluster status`)"
        }
        false => "ERR A slot is taken from its shard by a move to another only (`tarn cluster move-slots`)",
    }))
}

/// CLUSTER FLUSHSLOTS
pub(super) fn flush_slots(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let view = view(context)?;
    if has_keys(context) {
        return Err(Error::text("ERR DB must be empty to perform CLUSTER FLUSHSLOTS."));
    }
    let owns = view.shard().is_some_and(|shard| view.topology.slots.count_of(shard) > 0);
    if owns {
        return Err(Error::text(
            "ERR A slot is taken from its shard by a move to another only (`tarn cluster move-slots`)",
        ));
    }
    reply.ok();
    Ok(())
}

/// CLUSTER BUMPEPOCH: an epoch rises when another becomes master, and never else.
pub(super) fn bump_epoch(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let view = view(context)?;
    let shard = view.shard().and_then(|shard| view.topology.shards.get(&shard));
    reply.simple(format!("STILL {}", shard.map_or(0, |shard| shard.epoch)));
    Ok(())
}

/// CLUSTER SAVECONFIG: what a node is told it keeps at once.
pub(super) fn save_config(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    view(context)?;
    reply.ok();
    Ok(())
}

/// CLUSTER SET-CONFIG-EPOCH config-epoch: for a node that is by itself, as none is here.
pub(super) fn set_config_epoch(context: &mut Context<'_, '_>, _: &mut Reply<'_>) -> Result<()> {
    view(context)?;
    let epoch = parse::int(context.request.arg(2))?;
    match epoch < 0 {
        true => Err(Error::line(format!("ERR Invalid config epoch specified: {epoch}"))),
        false => Err(Error::text(
            "ERR The user can assign a config epoch only when the node does not know any other node.",
        )),
    }
}

fn slot(word: &[u8]) -> Result<u16> {
    let number = parse::int(word).ok().and_then(|number| u16::try_from(number).ok());
    number.filter(|slot| usize::from(*slot) < SLOTS).ok_or(Error::text("ERR Invalid or out of range slot"))
}

/// Whether there are keys of the server's own slots.
fn has_keys(context: &Context<'_, '_>) -> bool {
    let databases = context.server.engine.keyspace.databases();
    (0..databases).any(|db| context.batch.shown(DbIndex(db)).0 > 0)
}

/// Has the client wait for what a thread comes to: nothing, or what stands behind `-`.
pub(super) fn later(
    context: &mut Context<'_, '_>,
    work: impl FnOnce(&Arc<Server>) -> std::result::Result<(), String> + Send + 'static,
) -> Result<()> {
    if context.session.transaction.is_some() || context.session.runs_script {
        return Err(Error::text("ERR Neither a transaction nor a script waits for the config servers"));
    }
    let waiter = blocking::wait_for_time(context.server, context.session, None, GIVEN_UP.to_vec());
    context.session.waits = Some(None);
    let server = context.server.clone();
    let waiting = waiter.clone();
    let ordering = move || {
        let answer = match work(&server) {
            Ok(()) => "+OK\r\n".to_owned(),
            Err(why) => format!("-{}\r\n", why.replace(['\r', '\n'], " ")),
        };
        blocking::answer(&server, &waiting, answer.as_bytes(), Shown::NOTHING);
    };
    if std::thread::Builder::new().name("cluster-order".to_owned()).spawn(ordering).is_err() {
        blocking::answer(context.server, &waiter, b"-ERR No thread can be started\r\n", Shown::NOTHING);
    }
    Ok(())
}

/// Asks the config servers in turn until one answers.
///
/// # Errors
/// What stands behind `-`.
pub(super) fn order(server: &Arc<Server>, words: &[&[u8]]) -> std::result::Result<(), String> {
    ask(server, words).map(drop)
}

/// The same, and what is answered.
fn ask(server: &Arc<Server>, words: &[&[u8]]) -> std::result::Result<Value, String> {
    let config_servers = joining::config_servers(server).map_err(|error| format!("ERR {error}"))?;
    let mut last = String::new();
    for address in &config_servers {
        let asked =
            Asking::to(server, address, TlsBy::Cluster, ORDER_PATIENCE).and_then(|mut way| way.ask(words));
        match asked.map_err(|error| error.to_string()) {
            Ok(told) => return Ok(told),
            Err(why) if ["ERR ", "NOTALONE "].iter().any(|code| why.starts_with(code)) => return Err(why),
            Err(why) => last = why,
        }
    }
    Err(format!("ERR No config server carries it out: {last}"))
}

/// Whether something comes to be so, as this server sees it, in a while.
fn wait_until(server: &Server, longest: Duration, mut is_so: impl FnMut(&View) -> bool) -> bool {
    let begun = Instant::now();
    while !server.engine.is_ending() {
        if server.clustered.get().is_some_and(|part| is_so(&part.view())) {
            return true;
        }
        if begun.elapsed() >= longest {
            break;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    false
}
