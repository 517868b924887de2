//! The directives that generated CONFIG requests name, with the values that they
//! are set to: every stream begins with the first value of each.
//!
//! Invariants:
//! 1. No value makes replies depend on how fast a server is, closes connections or removes keys.
//! 2. A request that sets a directive of this table sets it to a value of this table.

use crate::generate::Request;
use crate::values::pick;
use sys::Prng;

type Setting = (&'static str, &'static [&'static str]);

const COUNTS: &[&str] = &["128", "1", "0", "-1", "4294967296", "9223372036854775807", "x", "", "1k", "16"];
const SIZES: &[&str] = &["64", "1kb", "1k", "0", "-1", "1gb", "10MB", "1.5", "b", "", "3 gb", "3000"];
const WORDS_OF_TRUTH: &[&str] = &["no", "yes", "YES", "true", "1", "", "nO"];

/// Directives whose meaning Redis and Tarn share, and values for them, good and bad.
pub const SETTINGS: &[Setting] = &[
    ("hash-max-listpack-entries", COUNTS),
    ("hash-max-ziplist-value", SIZES),
    ("set-max-intset-entries", COUNTS),
    ("zset-max-listpack-value", SIZES),
    ("hll-sparse-max-bytes", SIZES),
    ("list-max-listpack-size", &["-2", "-1", "0", "-5", "128", "x", "2147483647", "2147483648", "-6"]),
    ("list-compress-depth", &["0", "1", "-1", "x", "2147483648"]),
    ("stream-node-max-entries", &["3", "100", "1", "0", "5", "-1", "x"]),
    ("stream-node-max-bytes", &["4096", "60", "200", "0", "1kb", "-1", "x"]),
    ("lazyfree-lazy-user-del", WORDS_OF_TRUTH),
    ("lazyfree-lazy-user-flush", WORDS_OF_TRUTH),
    ("activerehashing", WORDS_OF_TRUTH),
    (
        "maxmemory-policy",
        &[
            "noeviction",
            "allkeys-lru",
            "volatile-lru",
            "ALLKEYS-LFU",
            "volatile-ttl",
            "allkeys-random",
            "lfu",
        ],
    ),
    ("maxmemory", &["0", "0mb", "-1", "x", "1tb"]),
    ("maxmemory-samples", &["5", "10", "0", "64", "-1", "ten"]),
    ("lfu-log-factor", &["10", "0", "-1", "100"]),
    ("lfu-decay-time", &["1", "0", "-1", "1000"]),
    ("active-expire-effort", &["1", "10", "0", "11"]),
    ("slowlog-log-slower-than", &["-1", "0", "-2", "x", "9223372036854775808"]),
    ("slowlog-max-len", &["128", "0", "1", "-1", "5", "1000"]),
    ("latency-monitor-threshold", &["0", "-1", "x", "100000"]),
    ("latency-tracking", WORDS_OF_TRUTH),
    ("latency-tracking-info-percentiles", &["50 99 99.9", "", "100", "101", "50 x", "0.001", "-1"]),
    (
        "notify-keyspace-events",
        &["", "KEA", "AKE", "g$lshzxetdmn", "Kx", "E", "K$lshzxe", "nope!", "KEAmn", "AmnKE", "e"],
    ),
    (
        "client-output-buffer-limit",
        &[
            "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
            "normal 100mb 0 0",
            "replica 512mb 64mb 10 pubsub 64mb 8mb 10",
            "master 1 1 1",
            "normal 1gb 1",
            "normal 1gb 1gb -1",
            "normal x 1gb 1",
            "",
        ],
    ),
    ("client-query-buffer-limit", &["1gb", "1mb", "1048575", "512mb", "x"]),
    ("tracking-table-max-keys", COUNTS),
    ("acllog-max-len", COUNTS),
    ("loglevel", &["notice", "warning", "NOTICE", "loud"]),
    ("maxclients", &["10000", "0", "-1", "x", "5000"]),
    // Often enough for timeouts to be noticed soon.
    ("hz", &["500", "0", "501", "x", "100"]),
    ("tcp-keepalive", &["300", "0", "-1", "60"]),
    ("acl-pubsub-default", &["resetchannels", "allchannels", "AllChannels", "some"]),
    ("shutdown-timeout", &["10", "0", "-1"]),
    ("databases", &["16", "1"]),
    ("tcp-backlog", &["511", "128"]),
    ("no-such-directive", &["1", ""]),
];

/// Settings that CONFIG SET refuses whatever the value; a stream does not begin with them.
const REFUSED: &[&str] = &["databases", "tcp-backlog", "no-such-directive"];

/// The request with which a stream begins.
pub fn reset() -> Request {
    let mut request = crate::generate::words(&["CONFIG", "SET"]);
    for (name, values) in SETTINGS.iter().filter(|(name, _)| !REFUSED.contains(name)) {
        request.extend([name.as_bytes().to_vec(), values[0].as_bytes().to_vec()]);
    }
    request
}

/// The name of a directive.
pub fn name(prng: &mut Prng) -> Vec<u8> {
    let name = pick(prng, SETTINGS).0;
    if prng.one_in(8) { name.to_ascii_uppercase().into_bytes() } else { name.as_bytes().to_vec() }
}

/// Directives as CONFIG GET may ask for them.
pub fn pattern(prng: &mut Prng) -> Vec<u8> {
    const PATTERNS: &[&str] = &[
        "slowlog-*",
        "SLOWLOG-M*",
        "lfu-*",
        "maxmemory-[ps]*",
        "hash-max-*pack*",
        "maxmemory-polic?",
        "nosuch*",
    ];
    if prng.one_in(3) { pick(prng, PATTERNS).as_bytes().to_vec() } else { name(prng) }
}

/// Puts a value of the table behind every directive that a CONFIG SET names.
pub fn fit(prng: &mut Prng, request: &mut Request) {
    for pair in request[2..].chunks_exact_mut(2) {
        let named = SETTINGS.iter().find(|(name, _)| pair[0].eq_ignore_ascii_case(name.as_bytes()));
        if let Some((_, values)) = named {
            pair[1] = pick(prng, values).as_bytes().to_vec();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::words;

    #[test]
    fn directives_get_values_of_their_own() {
        let mut request = words(&["config", "set", "MaxMemory", "1", "other", "1", "hz"]);
        fit(&mut Prng::from_seed(1), &mut request);
        let values = SETTINGS.iter().find(|(name, _)| *name == "maxmemory").unwrap().1;
        assert!(values.iter().any(|value| value.as_bytes() == request[3]));
        assert_eq!(request[4..], words(&["other", "1", "hz"]));
    }
}
