//! Limits of scripts, each with its reason.

use std::time::Duration;

/// Bytes that one worker's interpreter may hold. A script beyond it ends with an error; the server lives on.
pub const STATE_BYTES_MAX: usize = 512 << 20;

/// The stack of a thread that runs scripts: what they nest goes through functions that call themselves. Only what is used of it
/// takes memory.
pub const STACK_BYTES: usize = 32 << 20;

/// How much the interpreter may grow, in percent of what was in use, until it collects again. What scripts find takes 200 KB, which
/// each round looks through; the interpreter's own choice is a round for every 200 KB that scripts leave behind.
pub const COLLECTOR_PAUSE_PERCENT: i32 = 400;

/// Bytes that scripts may leave behind in an interpreter until it frees them all at once, if nothing less is
/// [wanted](crate::Engine::set_garbage_bytes_max): before the next script meets the limit.
pub const GARBAGE_BYTES_DEFAULT: usize = STATE_BYTES_MAX / 2;

/// The same at least, however little is wanted: freeing looks through all that is in use.
pub const GARBAGE_BYTES_MIN: usize = 1 << 20;

/// Bytes of a reply, and of what `cjson` or `cmsgpack` make of a value: as much as the interpreter could give back.
pub const OUTPUT_BYTES_MAX: usize = STATE_BYTES_MAX;

/// Instructions, or as much work in one call of the library, between two looks at the clock: some 300 microseconds of a tight loop.
pub const INSTRUCTIONS_PER_PULSE: usize = 100_000;

/// Instructions between two looks at how long they took, at the most.
pub const INSTRUCTIONS_PER_LOOK: u32 = 1000;

/// Instructions of a run until the first look: more than short scripts have, and few enough that all may be slow.
pub const INSTRUCTIONS_BEFORE_LOOK: u32 = 20;

/// How long it may take until the next look: where instructions are slow it comes sooner, at last after each.
pub const LOOK_TIME: Duration = Duration::from_millis(10);

/// How deep a pattern may go: one level for each item that is repeated, and each bracket of a capture. A level takes less than 2 KB of
/// the thread's stack, without optimization.
pub const PATTERN_DEPTH_MAX: usize = 4000;

/// Elements of a table that one call goes through: more than fit into the interpreter.
pub const ELEMENTS_MAX: i64 = 1 << 25;

/// Bytes of text that `load` and `loadstring` compile.
pub const SOURCE_BYTES_MAX: usize = 64 << 20;

/// Bytes of a line for the server's log that the host is given: it shows less.
pub const LOG_LINE_BYTES_MAX: usize = 64 << 10;

/// Coroutines that are made between two looks at the clock: each counts its instructions for itself.
pub const COROUTINES_PER_PULSE: u32 = 100;

/// Tables inside tables that a reply may have: as deep as Redis' interpreter's stack lets it go, within this
/// thread's own stack.
pub const REPLY_DEPTH_MAX: usize = 1000;

/// Tables in one reply that may lie deeper, each of which becomes an error: a table that holds itself twice has no end of them.
pub const TOO_DEEP_MAX: usize = 1000;

/// Compiled scripts that a worker should keep at the most. Beyond it it drops all, and compiles again what is called.
pub const COMPILED_SCRIPTS_MAX: usize = 10_000;

/// Bytes that a worker's buffers keep from one script to the next.
pub const BUFFER_BYTES_KEPT_MAX: usize = 64 << 10;

/// Values that go between a script and a function of this crate at once: the interpreter has room for 8,000 that
/// this crate refers to, and each level of what is packed or unpacked beside them refers to up to three.
/// `redis.call` takes any number.
pub const VALUES_MAX: usize = 4000;

/// Values that a function of this crate sees that takes fewer.
pub const FIXED_VALUES_MAX: usize = 16;

const _: () = assert!(VALUES_MAX + 3 * REPLY_DEPTH_MAX < 8000 - 256);

/// How long the code of a library may take to run when a client brings it.
pub const LOAD_TIME_MAX: Duration = Duration::from_millis(500);

/// What a library is told that takes longer to load.
pub const LOAD_TIMEOUT: &str = "FUNCTION LOAD timeout";
/// How long it may take where it has been accepted once: at a start, or on another thread. The machine may be slower than it was, and
/// what was acknowledged must be there.
pub const LOAD_AGAIN_TIME_MAX: Duration = Duration::from_secs(60);
