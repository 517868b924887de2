//! Directives of a proxy.

use crate::row::{BOOL, MEMORY, Row, TEXT, int, works};

/// Sorted by name.
pub(super) const ROWS: &[Row] = &[
    works("proxy-cluster", TEXT, "").fixed().here(
        "Tarn's own, of `tarn proxy`: some nodes of the cluster behind it, as `host:port` with commas between them; it is asked who has which slots, and followed",
    ),
    works("proxy-computed-bytes", MEMORY, "64mb").here(
        "Tarn's own, of `tarn proxy`: the most bytes of keys of several slots that one command has copied, to be answered by the proxy: SINTER, ZUNION, PFCOUNT and the like",
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
];
