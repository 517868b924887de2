//! `maxclients` against the system's limit of open files.
//!
//! Every client takes a descriptor, and the server needs some for itself. The process'
//! limit is raised as far as the system lets it; if that is not enough, fewer clients
//! are served. In the capacity edition the files of its store take what is left, and have some for themselves in any case.

use config::{Config, Edition, Origin};
use parking_lot::Mutex;
use rlimit::Resource;
use std::io;
use telemetry::log;

/// For files, listening sockets and what each worker's runtime needs.
const OWN_DESCRIPTORS: u64 = 32;
/// Epoll instance, its wake-up and timer, with some to spare.
const DESCRIPTORS_OF_WORKER: u64 = 4;

/// A proxy's connections to each server that is named, by worker: both protocols, and a few databases.
const DESCRIPTORS_OF_LINK: u64 = 8;

/// A proxy keeps one part of so many for clients that wait at servers, where the limit is low: each of them takes another one.
const WAITING_PART: u64 = 4;

/// The least that a store gets along with.
const STORE_DESCRIPTORS_MIN: u64 = 16;
/// The most that one takes: 64 GB of the shortest segments, 4 TB of the longest ones.
const STORE_DESCRIPTORS_MAX: u64 = 16384;

/// Raises the limit so that `maxclients` clients can be served, or lowers `maxclients`.
///
/// # Errors
/// If not even one client could be served.
pub fn make_room_for_clients(config: &Config) -> io::Result<()> {
    let own = own_descriptors(config);
    let wanted = u64::from(config.maxclients());
    let (before, _) = Resource::NOFILE.get()?;
    let more = more_for_store(config) + more_for_waiting(config, config.maxclients());
    let limit = raise(wanted + own, more, raise_to)?;
    if limit > before {
        log!(Notice, "Raised the limit of open files from {before} to {limit}");
    }
    let possible = for_clients(config, limit.saturating_sub(own));
    if possible >= wanted {
        return Ok(());
    }
    if possible == 0 {
        let text = format!(
            "The limit of open files is {limit}, too low for a server; raise it with 'ulimit -n' to at least {}",
            own + with_waiting(config, wanted)
        );
        return Err(io::Error::other(text));
    }
    log!(
        Warning,
        "maxclients is lowered from {wanted} to {possible}: the limit of open files is {limit} and cannot be \
         raised to {}. To serve more, raise it with 'ulimit -n'",
        own + with_waiting(config, wanted)
    );
    config
        .set(&[("maxclients", possible.to_string())], Origin::Local)
        .map(drop)
        .map_err(|error| io::Error::other(error.to_string()))
}

/// How many clients the limit of open files allows after it has been raised for
/// `maxclients` of them as far as possible (CONFIG SET maxclients).
///
/// # Errors
/// If the system does not tell its limit.
pub fn clients_possible(config: &Config, maxclients: u32) -> io::Result<u64> {
    let own = own_descriptors(config);
    let limit = raise(u64::from(maxclients) + own, more_for_waiting(config, maxclients), raise_to)?;
    Ok(for_clients(config, limit.saturating_sub(own)))
}

/// How many connections a proxy in front of so many servers may give to clients that wait at one, or watch keys there, beside all that is to have a descriptor in any
/// case: whoever may come, and what everybody's requests go over. A cluster has more servers than are named: for these the limit is raised when they are known, as far as
/// possible. Where it is too low for what all of them might take, half of what the named ones leave is for who waits.
///
/// # Errors
/// If the system does not tell its limit.
pub fn for_waiting(config: &Config, servers: u64) -> io::Result<u64> {
    let clients = u64::from(config.maxclients());
    let others = clients + own_descriptors_before(config, servers.max(servers_behind(config)));
    let limit = raise(others, more_for_waiting(config, config.maxclients()), raise_to)?;
    let left = limit.saturating_sub(clients + own_descriptors(config));
    Ok(limit.saturating_sub(others).max(left / 2))
}

/// How many clients there may be where that is left for them: of a proxy's some may wait.
fn for_clients(config: &Config, left: u64) -> u64 {
    if servers_behind(config) > 0 { left - left / WAITING_PART } else { left }
}

/// How much is to be left for so many clients.
fn with_waiting(config: &Config, clients: u64) -> u64 {
    if servers_behind(config) > 0 { clients + clients.div_ceil(WAITING_PART - 1) } else { clients }
}

/// How many files a store may have open: what the clients leave, after the limit of open files has been raised for both as far as possible.
///
/// # Errors
/// If the system does not tell its limit.
pub fn of_store(config: &Config) -> io::Result<usize> {
    let others = u64::from(config.maxclients()) + own_descriptors(config);
    let left = raise_to(others + more_for_store(config))?.saturating_sub(others);
    Ok(left.min(more_for_store(config)) as usize + STORE_DESCRIPTORS_MIN as usize)
}

/// What the server needs for itself, with the least for a store.
fn own_descriptors(config: &Config) -> u64 {
    own_descriptors_before(config, servers_behind(config))
}

/// The same in front of so many servers.
fn own_descriptors_before(config: &Config, servers: u64) -> u64 {
    let of_store = if has_store(config) { STORE_DESCRIPTORS_MIN } else { 0 };
    let workers = config.threads().max(num_cores()) as u64;
    OWN_DESCRIPTORS + (DESCRIPTORS_OF_WORKER + DESCRIPTORS_OF_LINK * servers) * workers + of_store
}

/// How many servers are named that a proxy is in front of, or that name these.
fn servers_behind(config: &Config) -> u64 {
    let named = [config.proxy_shards(), config.proxy_cluster(), config.proxy_config_servers()];
    named.iter().flat_map(|text| text.split(|byte| *byte == b',')).filter(|name| !name.is_empty()).count()
        as u64
}

/// What a proxy takes beyond the least, where there is so much: a client that waits for a key, or watches some, has a connection to a server to itself.
fn more_for_waiting(config: &Config, maxclients: u32) -> u64 {
    if servers_behind(config) > 0 { u64::from(maxclients) } else { 0 }
}

/// What a store takes beyond the least, where there is so much.
fn more_for_store(config: &Config) -> u64 {
    if has_store(config) { STORE_DESCRIPTORS_MAX - STORE_DESCRIPTORS_MIN } else { 0 }
}

fn has_store(config: &Config) -> bool {
    config.edition() == Edition::Capacity
}

fn num_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Raises the limit to what is wanted and more, or at least to what is wanted: what is too much by a system's measure gives a privileged process no more than its
/// hard limit.
fn raise(wanted: u64, more: u64, raise_to: impl Fn(u64) -> io::Result<u64>) -> io::Result<u64> {
    match raise_to(wanted + more)? {
        limit if limit < wanted => raise_to(wanted),
        limit => Ok(limit),
    }
}

/// Raises the limit of open files to `wanted`, or as far as possible; returns what it is then.
fn raise_to(wanted: u64) -> io::Result<u64> {
    // Who wants less at the same time is not to take back what another has just got.
    static RAISES: Mutex<()> = Mutex::new(());
    let _raises = RAISES.lock();
    let (soft, hard) = Resource::NOFILE.get()?;
    if soft >= wanted {
        return Ok(soft);
    }
    // Only a privileged process may raise the hard limit.
    if Resource::NOFILE.set(wanted, hard.max(wanted)).is_err() {
        let highest = hard.min(wanted);
        if highest > soft {
            Resource::NOFILE.set(highest, hard)?;
        }
    }
    Ok(Resource::NOFILE.get()?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Startup;

    #[test]
    fn the_limit_is_never_lowered() {
        let (before, _) = Resource::NOFILE.get().unwrap();
        assert!(raise_to(1).unwrap() >= before);
        assert!(clients_possible(&Config::defaults(), 10).unwrap() >= 10);
    }

    #[test]
    fn what_is_more_than_wanted_takes_nothing_from_what_is() {
        // Privileged: the hard limit is 500, and the system has 1000.
        let raise_to = |limit| Ok(if limit > 1000 { 500 } else { limit });
        let raised = |wanted, more| raise(wanted, more, raise_to).unwrap();
        assert_eq!(
            [raised(700, 100), raised(700, 700), raised(400, 700), raised(1100, 0)],
            [800, 700, 500, 500]
        );
    }

    fn read(text: &str) -> Box<Config> {
        match Config::from_text(text.as_bytes()) {
            Ok(Startup::Serve { config, .. }) => config,
            _ => panic!("{text} is right"),
        }
    }

    #[test]
    fn a_proxy_has_room_for_those_who_wait_at_servers() {
        let (server, proxy) = (read("maxclients 100"), read("maxclients 100\nproxy-cluster a:1"));
        assert_eq!([more_for_waiting(&server, 100), more_for_waiting(&proxy, 100)], [0, 100]);
    }

    #[test]
    fn some_of_a_proxys_clients_may_wait_however_few_there_may_be() {
        let (server, proxy) = (read("maxclients 100"), read("maxclients 100\nproxy-cluster a:1"));
        assert_eq!([for_clients(&server, 80), for_clients(&proxy, 80), for_clients(&proxy, 1)], [80, 60, 1]);
        let leaves = |config, clients| for_clients(config, with_waiting(config, clients));
        assert!((0..200).all(|clients| leaves(&server, clients) == clients));
        assert!((0..200).all(|clients| (clients..clients + 2).contains(&leaves(&proxy, clients))));
        // What more servers take is not theirs.
        let waiting = |servers| for_waiting(&proxy, servers).unwrap();
        let of_one = waiting(1);
        assert!(of_one < Resource::NOFILE.get().unwrap().0 - 100);
        // None can be raised so far. Some may wait all the same.
        let most = u64::from(u32::MAX);
        let least = waiting(most);
        assert!((1..waiting(1)).contains(&least) && waiting(2 * most) == least);
    }

    #[test]
    fn a_store_has_what_the_clients_leave() {
        let without = own_descriptors(&read("maxclients 100"));
        let config = read("maxclients 100\nedition capacity");
        assert_eq!(own_descriptors(&config), without + STORE_DESCRIPTORS_MIN);
        let of_store = of_store(&config).unwrap() as u64;
        let limit = Resource::NOFILE.get().unwrap().0;
        assert!((STORE_DESCRIPTORS_MIN..=STORE_DESCRIPTORS_MAX).contains(&of_store));
        assert!(of_store == STORE_DESCRIPTORS_MIN || 100 + without + of_store <= limit);
    }
}
