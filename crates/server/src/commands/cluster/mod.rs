//! CLUSTER, and what clients of a cluster say to a node: ASKING, READONLY, READWRITE.
//!
//! A server that stands alone answers all of them with one error, HELP too, as Redis does with
//! `cluster-enabled no`. The rows are there because clients probe for them and ACL rules name them.
//!
//! What a node of a cluster tells is in `telling`; what changes the cluster is not decided by a node, and is in `forward`.

mod cut;
mod forward;
mod setslot;
mod slot_stats;
mod telling;

use super::{HELP_FLAGS, row, unknown_subcommand};
use crate::clustered::View;
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use command::category::Categories;
use command::{Error, Flags, Group, Reach, Result, Row, Shows};
use std::sync::Arc;

/// CLUSTER, ASKING, READONLY and READWRITE.
pub const ROWS: &[Row<ServerHandler>] = &[
    row("asking", 1, Reach::Around, Flags::FAST, telling::asking)
        .shows(Shows::Nothing)
        .group(Group::Cluster)
        .in_categories(Categories::CONNECTION)
        .since("3.0.0")
        .complexity("O(1)")
        .summary("Says that the next command follows an ASK redirection."),
    row("cluster", -2, Reach::Around, Flags::empty(), |context, _| unknown_subcommand(context))
        .shows(Shows::Nothing)
        .group(Group::Cluster)
        .since("3.0.0")
        .complexity("Depends on the subcommand.")
        .summary("Shows and changes a cluster.")
        .subcommands(SUBCOMMANDS),
    row("readonly", 1, Reach::Around, MODE, telling::read_only)
        .shows(Shows::Nothing)
        .group(Group::Cluster)
        .in_categories(Categories::CONNECTION)
        .since("3.0.0")
        .complexity("O(1)")
        .summary("Lets the connection read from a replica of a cluster."),
    row("readwrite", 1, Reach::Around, MODE, telling::read_write)
        .shows(Shows::Nothing)
        .group(Group::Cluster)
        .in_categories(Categories::CONNECTION)
        .since("3.0.0")
        .complexity("O(1)")
        .summary("Ends READONLY."),
];

const MODE: Flags = Flags::FAST.union(Flags::LOADING).union(Flags::STALE);
/// Subcommands that show something.
const SHOWS: Flags = Flags::STALE;
/// Subcommands that show an administrator something.
const SHOWS_ADMIN: Flags = Flags::STALE.union(Flags::ADMIN);
/// Subcommands that change something.
const CHANGES: Flags = SHOWS_ADMIN.union(Flags::NO_ASYNC_LOADING);
const VARIES: &[&str] = &["nondeterministic_output"];

const SUBCOMMANDS: &[Row<ServerHandler>] = &[
    sub("cluster|addslots", -3, CHANGES, forward::change_slots)
        .shows(Shows::Nothing)
        .complexity("O(N), N being the number of slots")
        .syntax("slot [slot ...]")
        .summary("Gives slots to the node."),
    sub("cluster|addslotsrange", -4, CHANGES, forward::change_ranges)
        .shows(Shows::Nothing)
        .since("7.0.0")
        .complexity("O(N), N being the number of slots")
        .syntax("start-slot end-slot [start-slot end-slot ...]")
        .summary("Gives ranges of slots to the node."),
    sub("cluster|bumpepoch", 2, CHANGES, forward::bump_epoch)
        .shows(Shows::Nothing)
        .summary("Raises the epoch.")
        .tips(VARIES),
    sub("cluster|count-failure-reports", 3, SHOWS_ADMIN, telling::failure_reports)
        .shows(Shows::Nothing)
        .complexity("O(N), N being the number of reports")
        .syntax("node-id")
        .summary("Counts the reports that a node has failed.")
        .tips(VARIES),
    sub("cluster|countkeysinslot", 3, SHOWS, telling::count_keys)
        .syntax("slot")
        .summary("Counts the keys of a slot."),
    sub("cluster|cut", 4, SHOWS_ADMIN.union(Flags::NOSCRIPT).union(Flags::NO_MULTI), cut::cut)
        .shows(Shows::Everything)
        .syntax("<HOLD milliseconds | POSITION cut | RELEASE cut>")
        .summary("Holds writes back for a moment, for a backup of the whole cluster.")
        .tips(VARIES),
    sub("cluster|delslots", -3, CHANGES, forward::change_slots)
        .shows(Shows::Nothing)
        .complexity("O(N), N being the number of slots")
        .syntax("slot [slot ...]")
        .summary("Takes slots from the node."),
    sub("cluster|delslotsrange", -4, CHANGES, forward::change_ranges)
        .shows(Shows::Nothing)
        .since("7.0.0")
        .complexity("O(N), N being the number of slots")
        .syntax("start-slot end-slot [start-slot end-slot ...]")
        .summary("Takes ranges of slots from the node."),
    sub("cluster|failover", -2, CHANGES, forward::failover)
        .shows(Shows::Nothing)
        .syntax("[FORCE | TAKEOVER]")
        .summary("Makes a replica take the place of its master."),
    sub("cluster|flushslots", 2, CHANGES, forward::flush_slots)
        .shows(Shows::Nothing)
        .summary("Takes all slots from the node."),
    sub("cluster|forget", 3, CHANGES, forward::forget)
        .shows(Shows::Nothing)
        .syntax("node-id")
        .summary("Removes a node from the cluster."),
    sub("cluster|getkeysinslot", 4, SHOWS, telling::keys)
        .complexity("O(N), N being the number of keys asked for")
        .syntax("slot count")
        .summary("Returns keys of a slot.")
        .tips(VARIES),
    sub(
        "cluster|hear",
        5,
        SHOWS_ADMIN.union(Flags::NOSCRIPT).union(Flags::NO_MULTI).union(Flags::LOADING),
        telling::hear,
    )
    .shows(Shows::Nothing)
    .syntax("cluster-id")
    .summary("Is what another node says to be told of what is published."),
    sub("cluster|help", 2, HELP_FLAGS, telling::help)
        .shows(Shows::Nothing)
        .since("5.0.0")
        .summary("Lists the subcommands."),
    sub("cluster|info", 2, SHOWS, telling::info)
        .shows(Shows::Nothing)
        .summary("Tells the state of the node.")
        .tips(VARIES),
    sub("cluster|keyslot", 3, SHOWS, telling::key_slot)
        .shows(Shows::Nothing)
        .complexity("O(N), N being the number of bytes in the key")
        .syntax("key")
        .summary("Tells the slot of a key."),
    sub("cluster|links", 2, SHOWS, telling::links)
        .shows(Shows::Nothing)
        .since("7.0.0")
        .complexity("O(N), N being the number of nodes")
        .summary("Lists the connections to other nodes.")
        .tips(VARIES),
    sub("cluster|meet", -4, CHANGES, forward::meet)
        .shows(Shows::Nothing)
        .syntax("ip port [cluster_bus_port]")
        .summary("Brings a node into the cluster."),
    sub("cluster|myid", 2, SHOWS, telling::my_id).shows(Shows::Nothing).summary("Tells the id of the node."),
    sub("cluster|myshardid", 2, SHOWS, telling::my_shard_id)
        .shows(Shows::Nothing)
        .since("7.2.0")
        .summary("Tells the id of the node's shard.")
        .tips(VARIES),
    sub("cluster|nodes", 2, SHOWS, telling::nodes)
        .shows(Shows::Nothing)
        .complexity("O(N), N being the number of nodes")
        .summary("Tells what the node knows of the cluster.")
        .tips(VARIES),
    sub("cluster|replicas", 3, SHOWS_ADMIN, telling::replicas)
        .shows(Shows::Nothing)
        .since("5.0.0")
        .syntax("node-id")
        .summary("Lists the replicas of a master.")
        .tips(VARIES),
    sub("cluster|replicate", 3, CHANGES, forward::replicate)
        .shows(Shows::Nothing)
        .syntax("node-id")
        .summary("Makes the node a replica of a master."),
    sub("cluster|reset", -2, SHOWS_ADMIN.union(Flags::NOSCRIPT), forward::reset)
        .shows(Shows::Nothing)
        .complexity("O(N), N being the number of nodes")
        .syntax("[HARD | SOFT]")
        .summary("Makes the node forget the cluster."),
    sub("cluster|saveconfig", 2, CHANGES, forward::save_config)
        .shows(Shows::Nothing)
        .summary("Saves the state of the cluster on disk."),
    sub("cluster|set-config-epoch", 3, CHANGES, forward::set_config_epoch)
        .shows(Shows::Nothing)
        .syntax("config-epoch")
        .summary("Sets the epoch of a new node."),
    sub("cluster|setslot", -4, CHANGES, setslot::set_slot)
        .shows(Shows::Nothing)
        .syntax("slot <IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE>")
        .summary("Moves a slot, step by step."),
    sub("cluster|shards", 2, SHOWS.union(Flags::LOADING), telling::shards)
        .shows(Shows::Nothing)
        .since("7.0.0")
        .complexity("O(N), N being the number of nodes")
        .summary("Lists the shards with their slots and nodes.")
        .tips(VARIES),
    sub("cluster|slaves", 3, SHOWS_ADMIN, telling::replicas)
        .shows(Shows::Nothing)
        .syntax("node-id")
        .summary("Lists the replicas of a master.")
        .tips(VARIES),
    sub("cluster|slot-stats", -4, SHOWS.union(Flags::LOADING), slot_stats::slot_stats)
        .since("8.0.0")
        .complexity(
            "O(N) where N is the total number of slots based on arguments. O(N*log(N)) with ORDERBY subcommand.",
        )
        .syntax("<SLOTSRANGE start-slot end-slot | ORDERBY metric [LIMIT limit] [ASC | DESC]>")
        .summary("Counts the keys of the node's slots, in their order or by how many these are.")
        .tips(&["nondeterministic_output", "request_policy:all_shards"]),
    sub("cluster|slots", 2, SHOWS.union(Flags::LOADING), telling::slots)
        .shows(Shows::Nothing)
        .complexity("O(N), N being the number of nodes")
        .summary("Lists ranges of slots with their nodes.")
        .tips(VARIES),
];

const fn sub(name: &'static str, arity: i32, flags: Flags, handler: ServerHandler) -> Row<ServerHandler> {
    row(name, arity, Reach::Around, flags, handler).group(Group::Cluster).since("3.0.0").complexity("O(1)")
}

/// The cluster as this server knows it.
///
/// # Errors
/// The server stands alone.
fn view(context: &Context<'_, '_>) -> Result<Arc<View>> {
    let part = context.server.clustered.get();
    let part = part.ok_or(Error::text("ERR This instance has cluster support disabled"))?;
    Ok(part.view())
}
