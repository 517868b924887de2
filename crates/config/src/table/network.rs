//! Directives about sockets, clients and access.

use crate::row::{BOOL, Flags, INT, Kind, LONG, PORT, Row, TEXT, absent, int, memory_from, works};

const MIB: i64 = 1 << 20;

/// Sorted by name.
pub(super) const ROWS: &[Row] = &[
    works("acl-pubsub-default", Kind::Enum(&["allchannels", "resetchannels"]), "resetchannels"),
    works("aclfile", TEXT, "").at_start(),
    works("acllog-max-len", LONG, "128"),
    works("bind", Kind::Words, "127.0.0.1 -::1")
        .here("Redis listens at every address by default and relies on protected mode"),
    absent("bind-source-addr", TEXT, "", "connections to masters and of MIGRATE come from where the system has them come from"),
    works(
        "client-output-buffer-limit",
        Kind::OutputLimits,
        "normal 0 0 0 replica 256mb 64mb 60 pubsub 32mb 8mb 60",
    ),
    works("client-query-buffer-limit", memory_from(MIB), "1gb")
        .here("counts what a session keeps as well: requests of a transaction, watched keys, channels, a waiting request"),
    works("maxclients", int(1, u32::MAX as i64), "10000"),
    works("min-replicas-max-lag", INT, "10").alias("min-slaves-max-lag"),
    works("min-replicas-to-write", INT, "0").alias("min-slaves-to-write"),
    works("port", PORT, "6379")
        .here("0 at the start takes a free port and prints it, if there is no Unix socket; set to 0 later, it ends listening"),
    works("protected-mode", BOOL, "yes"),
    works("proto-max-bulk-len", memory_from(MIB), "512mb"),
    works("rename-command", Kind::Lines { words_min: 2 }, "").flags(Flags::FILE_ONLY)
        .here(
            "for clients and scripts; logs and error texts have the own names of commands. Not for those by which nodes of a cluster or shard speak to each other",
        ),
    works("requirepass", TEXT, "").flags(Flags::SENSITIVE),
    absent("socket-mark-id", int(0, u32::MAX as i64), "0", "sockets are not marked").at_start(),
    works("tcp-backlog", INT, "511").at_start(),
    works("tcp-keepalive", INT, "300"),
    works("timeout", INT, "0")
        .here("as in Redis; in a cluster whoever brings slots of another shard, or of a backup, may be silent, too"),
    works("tracking-table-max-keys", LONG, "1000000")
        .here("bounds the bytes as well, 256 for each key"),
    works("unixsocket", TEXT, "").at_start(),
    works("unixsocketperm", Kind::Octal, "0").at_start(),
    works("user", Kind::Lines { words_min: 1 }, "").flags(Flags::FILE_ONLY),
];
