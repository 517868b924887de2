//! INFO's section Memory, and the figures that it shares with MEMORY STATS.

use super::{Page, human_bytes, ratio};
use crate::dispatch::Context;
use crate::refusals::{self, Used};
use engine::durability::{self, FunctionCount};
use keyspace::reaper;
use net::client::Client;
use std::sync::atomic::Ordering;

/// Where memory goes, in bytes.
pub(crate) struct Usage {
    /// All that the program has allocated.
    pub used: u64,
    /// What of that does not count for `maxmemory`.
    pub uncounted: u64,
    /// The most that it ever had.
    pub peak: u64,
    /// What it had before the first client came.
    pub startup: u64,
    /// Clients and their buffers.
    pub clients: u64,
    /// Slots, tables and timers.
    pub tables: u64,
    /// What waits for the log's disk.
    pub log_buffer: u64,
    /// What is kept of the stream for replicas that come again.
    pub backlog: u64,
    /// What is kept beyond that, for those that are behind.
    pub replicas: u64,
    /// What the process has in memory.
    pub resident: u64,
}

impl Usage {
    /// Measures.
    pub(crate) fn now(context: &Context<'_, '_>) -> Usage {
        Usage::beside(context, 0)
    }

    /// The same without the bytes in which it is going to be told: whoever asks wants to know what there is otherwise.
    pub(super) fn beside(context: &Context<'_, '_>, telling_bytes: usize) -> Usage {
        let Used { all, uncounted } = refusals::used_bytes(&context.server.engine, &context.server.feeding);
        let used = all.saturating_sub(telling_bytes as u64);
        let stream = context.server.feeding.backlog_figures().allocated_bytes as u64;
        let size = context.server.engine.config.repl_backlog_size();
        Usage {
            used,
            uncounted,
            peak: context.server.samples.note_used_bytes(used),
            startup: context.server.startup_bytes,
            clients: context.server.net.clients.all().iter().map(|client| client_bytes(client)).sum(),
            tables: context.batch.overhead_bytes() as u64,
            log_buffer: context
                .server
                .engine
                .durability
                .log()
                .map_or(0, |log| log.status().buffer_bytes as u64),
            backlog: stream.min(size),
            replicas: stream.saturating_sub(size),
            resident: sys::process::resident_bytes(),
        }
    }

    /// All that is not keys and values.
    pub(crate) fn overhead(&self) -> u64 {
        self.startup + self.clients + self.tables + self.log_buffer + self.backlog + self.replicas
    }

    /// Keys and values.
    pub(crate) fn dataset(&self) -> u64 {
        self.used.saturating_sub(self.overhead())
    }

    /// The part of what was allocated since the start that is keys and values, in per cent.
    pub(crate) fn dataset_percent(&self) -> f64 {
        100.0 * ratio(self.dataset(), self.used.saturating_sub(self.startup))
    }

    /// Resident bytes for each used one.
    pub(crate) fn fragmentation(&self) -> f64 {
        ratio(self.resident, self.used)
    }

    /// Resident bytes beyond those used; negative if parts are not resident.
    pub(crate) fn fragmentation_bytes(&self) -> i64 {
        self.resident as i64 - self.used as i64
    }
}

fn client_bytes(client: &Client) -> u64 {
    let buffers = [&client.input_capacity, &client.output_bytes].map(|bytes| bytes.load(Ordering::Relaxed));
    (size_of::<Client>() + client.mail_bytes() + buffers.iter().sum::<usize>()) as u64
}

pub(super) fn memory(context: &mut Context<'_, '_>, page: &mut Page) {
    let usage = Usage::beside(context, page.bytes());
    let config = &context.server.engine.config;
    let machine = sys::process::machine_bytes();
    let fragmentation = format!("{:.2}", usage.fragmentation());
    page.lines(&[
        ("used_memory", &usage.used),
        ("used_memory_human", &human_bytes(usage.used)),
        ("used_memory_rss", &usage.resident),
        ("used_memory_rss_human", &human_bytes(usage.resident)),
        ("used_memory_peak", &usage.peak),
        ("used_memory_peak_human", &human_bytes(usage.peak)),
        ("used_memory_peak_perc", &format_args!("{:.2}%", 100.0 * ratio(usage.used, usage.peak))),
        ("used_memory_overhead", &usage.overhead()),
        ("used_memory_startup", &usage.startup),
        ("used_memory_dataset", &usage.dataset()),
        ("used_memory_dataset_perc", &format_args!("{:.2}%", usage.dataset_percent())),
        ("allocator_allocated", &usage.used),
        ("allocator_active", &usage.used),
        ("allocator_resident", &usage.resident),
        ("total_system_memory", &machine),
        ("total_system_memory_human", &human_bytes(machine)),
    ]);
    scripts(context, page);
    let buffers = context.server.feeding.buffers(config.repl_backlog_size());
    let (ceiling, policy) = (config.maxmemory(), config.maxmemory_policy().word());
    page.lines(&[
        ("maxmemory", &ceiling),
        ("maxmemory_human", &human_bytes(ceiling)),
        ("maxmemory_policy", &policy),
        ("allocator_frag_ratio", &"1.00"),
        ("allocator_frag_bytes", &0),
        ("allocator_rss_ratio", &fragmentation),
        ("allocator_rss_bytes", &usage.fragmentation_bytes()),
        ("rss_overhead_ratio", &"1.00"),
        ("rss_overhead_bytes", &0),
        ("mem_fragmentation_ratio", &fragmentation),
        ("mem_fragmentation_bytes", &usage.fragmentation_bytes()),
        ("mem_not_counted_for_evict", &usage.uncounted),
        ("mem_replication_backlog", &buffers.backlog),
        ("mem_total_replication_buffers", &(buffers.backlog + buffers.beyond)),
        ("mem_clients_slaves", &(buffers.beyond + buffers.outboxes)),
        ("mem_clients_normal", &usage.clients),
        ("mem_cluster_links", &0),
        ("mem_aof_buffer", &usage.log_buffer),
        ("mem_allocator", &"mimalloc"),
        ("active_defrag_running", &0),
        ("lazyfree_pending_objects", &reaper::pending()),
        ("lazyfreed_objects", &reaper::freed()),
    ]);
    store(context, page);
}

/// What the capacity edition has on disk, and what it has moved since the start.
fn store(context: &Context<'_, '_>, page: &mut Page) {
    let server = context.server;
    let Some(store) = server.engine.residency.store() else { return };
    let (stats, counts) = (store.stats(), &server.engine.residency.counts);
    let [reads, spilled, dropped, image_bytes, segments, records, stretches] = [
        &counts.cold_reads,
        &counts.spilled,
        &counts.dropped_clean,
        &counts.image_bytes,
        &counts.cleaned_segments,
        &counts.cleaned_records,
        &counts.stretches_emptied,
    ]
    .map(|count| count.load(Ordering::Relaxed));
    let (keys, changes) = (server.engine.keyspace.stats(), server.engine.keyspace.writes());
    let looked_up = keys.hits.get() + keys.misses.get() + changes;
    let in_memory = 1.0 - ratio(reads, looked_up.max(reads));
    page.lines(&[
        ("store_bytes", &stats.bytes_total),
        ("store_bytes_human", &human_bytes(stats.bytes_total)),
        ("store_bytes_live", &stats.bytes_live),
        ("store_bytes_dead", &stats.bytes_dead),
        ("store_segments", &stats.segments_in_use),
        ("store_segments_free", &stats.segments_free),
        ("store_records", &stats.records_live),
        ("store_cold_reads", &reads),
        ("store_failed_reads", &counts.failed_reads.load(Ordering::Relaxed)),
        ("store_keys_shadowing", &server.engine.keyspace.shadowing()),
        ("store_bytes_read", &stats.bytes_read),
        ("store_hit_ratio", &format_args!("{in_memory:.4}")),
        ("store_objects_spilled", &spilled),
        ("store_objects_dropped", &dropped),
        ("store_bytes_written", &stats.bytes_written),
        ("store_write_amplification", &format_args!("{:.2}", ratio(stats.bytes_written, image_bytes))),
        ("store_segments_cleaned", &segments),
        ("store_records_cleaned", &records),
        ("store_stretches_emptied", &stretches),
        ("store_is_full", &u8::from(server.engine.residency.is_stuck())),
        ("store_last_write_status", &if server.engine.residency.refusal().is_none() { "ok" } else { "err" }),
    ]);
}

/// What scripts and functions take. Both run in the same interpreters.
fn scripts(context: &Context<'_, '_>, page: &mut Page) {
    let (scripts, interpreters) =
        (&context.server.engine.scripts, context.server.engine.interpreter_bytes.get() as u64);
    let texts = scripts.bytes() as u64;
    let kept = context
        .server
        .engine
        .durability
        .key_counts
        .while_behind(&context.server.engine, || context.server.net.gate.open_to());
    let counted = kept.unwrap_or_else(|| durability::counts_of_now(&context.server.engine, context.batch));
    let FunctionCount { libraries, functions, code_bytes: code } = counted.functions;
    page.lines(&[
        ("used_memory_lua", &interpreters),
        ("used_memory_vm_eval", &interpreters),
        ("used_memory_lua_human", &human_bytes(interpreters)),
        ("used_memory_scripts_eval", &texts),
        ("number_of_cached_scripts", &scripts.len()),
        ("number_of_functions", &functions),
        ("number_of_libraries", &libraries),
        ("used_memory_vm_functions", &0),
        ("used_memory_vm_total", &interpreters),
        ("used_memory_vm_total_human", &human_bytes(interpreters)),
        ("used_memory_functions", &code),
        ("used_memory_scripts", &(texts + code)),
        ("used_memory_scripts_human", &human_bytes(texts + code)),
    ]);
}
