//! Directives of a proxy.

use crate::row::{BOOL, Kind, MEMORY, Row, TEXT, int, works};
use crate::words::{ReadFrom, UsersFrom};

/// Sorted by name.
pub(super) const ROWS: &[Row] = &[
    works("proxy-bandwidth-limit", MEMORY, "0").here(
        "Tarn's own, of `tarn proxy`: how many bytes a second are sent to its clients and taken from them, together; who sends more waits; 0: as many as come",
    ),
    works("proxy-cache-bytes", MEMORY, "0").here(
        "Tarn's own, of `tarn proxy`: memory for replies to reads of hot keys, which are kept until a server tells of the key; 0: none is kept",
    ),
    works("proxy-cluster", TEXT, "").fixed().here(
        "Tarn's own, of `tarn proxy`: some nodes of the cluster behind it, as `host:port` with commas between them; it is asked who has which slots, and followed",
    ),
    works("proxy-computed-bytes", MEMORY, "64mb").here(
        "Tarn's own, of `tarn proxy`: the most bytes of keys of several slots that one command has copied, to be answered by the proxy: SINTER, ZUNION, PFCOUNT and the like",
    ),
    works("proxy-config-servers", TEXT, "").fixed().here(
        "Tarn's own, of `tarn proxy`: `host:port` of each config server of the Tarn cluster behind it, with commas between them: they name its nodes where none that is known answers, beside `proxy-cluster` or without, and tell whether those that answer were left behind; and they keep the proxy's users where `proxy-users cluster` says so",
    ),
    works("proxy-drain-timeout", int(0, 604_800), "3600").here(
        "Tarn's own, of `tarn proxy`: for how many seconds a proxy that another has taken over from serves the connections that it has; 0: until their clients end them",
    ),
    works("proxy-read-from", Kind::Enum(ReadFrom::WORDS), "master").here(
        "Tarn's own, of `tarn proxy`: who answers reads of one slot: the master, a replica that has what the client has written (else the master), or any of them",
    ),
    works("proxy-restricted-scripts", BOOL, "no").here(
        "Tarn's own, of `tarn proxy`: whether users whose rights are limited may run scripts and functions, which may do at the servers all that the proxy may: no server knows the limits; no: they are refused",
    ),
    works("proxy-shard-timeout", int(0, 86_400), "10").fixed().here(
        "Tarn's own, of `tarn proxy`: seconds after which a server that owes replies and sends nothing counts as lost; 0: never",
    ),
    works("proxy-shards", TEXT, "").fixed().here(
        "Tarn's own, of `tarn proxy`: the servers behind it, as `host:port` with commas between them; each has as many slots as the others, or those that stand in front of it as `first-last=`",
    ),
    works("proxy-split-writes", BOOL, "yes").here(
        "Tarn's own, of `tarn proxy`: whether MSET, DEL and UNLINK of keys of several slots are done in parts, which are not done at one moment and of which some may fail; no: they are refused",
    ),
    works("proxy-takeover", TEXT, "").fixed().here(
        "Tarn's own, of `tarn proxy`: a socket file by which a new process of the same proxy takes over from the one that runs: it accepts connections in its place, and nobody is refused meanwhile",
    ),
    works("proxy-users", Kind::Enum(UsersFrom::WORDS), "file").fixed().here(
        "Tarn's own, of `tarn proxy`: who keeps its users: `file`, its own directives and `aclfile`, or `cluster`, the store of decisions of the cluster, for all of its proxies",
    ),
];
