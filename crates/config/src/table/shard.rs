//! Directives of a shard with an in-sync set: which node this is, who the others are, and where it lies who is master.

use crate::row::{Row, TEXT, int, works};

/// The longest span that may be set, in milliseconds.
const SPAN_MS_MAX: i64 = 600_000;

/// Sorted by name.
pub(super) const ROWS: &[Row] = &[
    works("shard-failover", int(0, SPAN_MS_MAX), "0").fixed().here(
        "Tarn's own: a member that has heard nothing from its master for so many milliseconds proposes itself; 0 leaves that to `INSYNC PROMOTE`",
    ),
    works("shard-lease", int(100, SPAN_MS_MAX), "1000").fixed().here(
        "Tarn's own: for how many milliseconds a member lends its master time to read; a failover takes at least as long. Never make it shorter while the shard runs",
    ),
    works("shard-name", TEXT, "").fixed().here("Tarn's own: the shard that this server is a node of; empty: of none"),
    works("shard-node", int(0, u32::MAX as i64), "0")
        .fixed()
        .here("Tarn's own: the number of this node among `shard-nodes`"),
    works("shard-nodes", TEXT, "")
        .fixed()
        .here("Tarn's own: all nodes of the shard, as `number=host:port` with commas between them"),
    works("shard-silence", int(50, SPAN_MS_MAX), "500")
        .fixed()
        .here("Tarn's own: a member that acknowledges nothing for so many milliseconds is removed from the in-sync set"),
    works("shard-store", TEXT, "").fixed().here(
        "Tarn's own: `host:port` of the store of decisions, a Tarn of the durable edition or a Redis with `appendfsync always`, that says who is master and who is a member",
    ),
];
