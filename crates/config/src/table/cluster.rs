//! Directives of a node of a cluster, as its clients meet it.

use crate::row::{BOOL, Kind, PORT, Row, TEXT, works};

/// Numbered as `topology::Endpoint` is.
const ENDPOINTS: Kind = Kind::Enum(&["ip", "hostname", "unknown-endpoint"]);

/// Sorted by name.
pub(super) const ROWS: &[Row] = &[
    works("cluster-allow-pubsubshard-when-down", BOOL, "yes"),
    works("cluster-allow-reads-when-down", BOOL, "no"),
    works("cluster-announce-hostname", Kind::Text(hostname), ""),
    works("cluster-announce-human-nodename", Kind::Text(node_name), "")
        .here("kept, and shown by CONFIG GET; the log of a node names others by their ids"),
    works("cluster-announce-ip", TEXT, "").here("a name is taken as well"),
    works("cluster-announce-port", PORT, "0"),
    works("cluster-announce-tls-port", PORT, "0"),
    works("cluster-config-servers", TEXT, "")
        .fixed()
        .here("Tarn's own: `host:port` of each config server (`tarn config`), with commas between them"),
    works("cluster-enabled", BOOL, "no").at_start(),
    works("cluster-preferred-endpoint-type", ENDPOINTS, "ip"),
    works("cluster-require-full-coverage", BOOL, "yes")
        .here("whether a slot without a master closes all slots (`CLUSTERDOWN`): one that is nobody's, or whose shard has not begun or whose master was removed. A shard all of whose servers are dead closes no other slots: its decision still names a master, to whom clients are sent"),
    works("cluster-zone", Kind::Text(zone), "")
        .fixed()
        .here("Tarn's own: the machine, rack or building; copies of a shard go to different ones"),
];

fn node_name(text: &[u8]) -> Result<(), &'static str> {
    // What has a meaning in the file of nodes.
    match text.iter().any(|byte| b"!#$%&()*+:;<>?@[]^{|}~\0".contains(byte)) {
        true => Err("Announced human node name contained invalid character"),
        false => Ok(()),
    }
}

fn zone(text: &[u8]) -> Result<(), &'static str> {
    match text.len() < 256 && text.iter().all(u8::is_ascii_graphic) && text != b"-" {
        true => Ok(()),
        false => Err("a zone is one word of less than 256 characters"),
    }
}

fn hostname(text: &[u8]) -> Result<(), &'static str> {
    if text.len() >= 256 {
        return Err("Hostnames must be less than 256 characters");
    }
    match text.iter().all(|&byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.') {
        true => Ok(()),
        false => Err("Hostnames may only contain alphanumeric characters, hyphens or dots"),
    }
}
