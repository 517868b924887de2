//! The log's limits, each with its reason.

use crate::Lsn;

/// Blocks begin at multiples of this, bytes: what one sync made durable shares no sector and no page with what is written
/// later, whatever the disk's sector size is, and direct access needs no other alignment.
pub const BLOCK_ALIGN: usize = sys::file::DIRECT_ALIGN;

/// A block's length at most, bytes: small enough that the memory that is being filled stays in the processor's cache,
/// large enough that a write of it costs the disk little more than its bytes.
pub const BLOCK_BYTES_MAX: usize = 256 * 1024;

/// A segment's length if the option says nothing, bytes.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 * 1024 * 1024;

/// A segment's length at least: its header and a block.
pub const SEGMENT_BYTES_MIN: u64 = 2 * BLOCK_ALIGN as u64;

/// A segment's length at least on a disk that has no room for longer ones, bytes: several blocks.
pub const SHORT_SEGMENT_BYTES: u64 = 1024 * 1024;

/// A segment's length at most: recovery reads the last one twice.
pub const SEGMENT_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// Memory for records that are not durable yet if the option says nothing, bytes. A disk that takes 100 MB/s is half a
/// second behind then, and workers wait before they execute more.
pub const BUFFER_BYTES_DEFAULT: usize = 48 * 1024 * 1024;

/// Bytes that are written and not synced, at most: they are kept in memory, to be written again if the sync fails.
/// Under `everysec` and `no` the log syncs early when it reaches this.
pub const UNSYNCED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Blocks that are there for as long as the log is: one that is being filled, one on its way to the disk, and one for what comes before
/// that is back. Writes that wait for each other need no more, so that what the log takes does not change with them.
pub const LASTING_BLOCKS: usize = 3;

/// Empty blocks kept for reuse, bytes.
pub const FREE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Milliseconds between syncs under `everysec`.
pub const SYNC_INTERVAL_MS: u64 = 1000;

/// Milliseconds between writes under `everysec` and `no`: what a killed process may lose under those.
pub const WRITE_INTERVAL_MS: u64 = 10;

/// Milliseconds between attempts to go on after a failure.
pub const RETRY_INTERVAL_MS: u64 = 500;

/// Segments that lie ready to be written; a disk that takes a whole segment while the next is prepared is too fast for
/// one thread of preparing.
pub const SPARE_SEGMENTS: usize = 1;

/// Segments kept as spares when a checkpoint has made them dispensable: what is written between two checkpoints then goes
/// where zeros need not be written first. As many as were written since the checkpoint before, but at least so many.
pub const SPARE_SEGMENTS_KEPT: usize = 8;

/// Where a log begins that has imported data before it. From 0 on a log is all that there is; behind this one there is a checkpoint
/// that holds what was there before the first record, or the import was cut short.
pub const IMPORTED_START: Lsn = Lsn(1);

/// Where a log begins that a server began beside its clients, which had its data in memory before; or further on, and its first segment says
/// so. Without a checkpoint it was not complete, and what counts is what the directory held before it.
pub const BESIDE_CLIENTS_START: Lsn = Lsn(2);

/// Databases that a record can name.
pub const DATABASES_MAX: u32 = 1 << 24;

/// A checkpoint's chunk at most, bytes: each reading thread holds one.
pub const CHUNK_BYTES_MAX: usize = 1 << 30;

const _: () = assert!(BLOCK_BYTES_MAX.is_multiple_of(BLOCK_ALIGN));
const _: () = assert!(UNSYNCED_BYTES_MAX < BUFFER_BYTES_DEFAULT);

/// Bytes of a checkpoint between syncs: so little waits in the page cache that the log's own syncs stay short.
pub const CHECKPOINT_SYNC_BYTES: u64 = 8 * 1024 * 1024;
