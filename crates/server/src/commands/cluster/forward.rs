//! What changes a cluster: a node decides none of it. Config servers do, and this is where requests leave for them.

use super::view;
use crate::dispatch::Context;
use command::{Error, Result};
use wire::Reply;

/// CLUSTER MEET, ADDSLOTS, ADDSLOTSRANGE, DELSLOTS, DELSLOTSRANGE, FLUSHSLOTS, REPLICATE, FORGET, FAILOVER, SETSLOT, BUMPEPOCH, RESET, SAVECONFIG,
/// SET-CONFIG-EPOCH
pub(super) fn forward(context: &mut Context<'_, '_>, _: &mut Reply<'_>) -> Result<()> {
    view(context)?;
    Err(Error::text(
        "ERR The config servers decide that for the whole cluster: ask one of them (`tarn cluster`)",
    ))
}
