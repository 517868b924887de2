//! The named limits of a migration, each with its reason.

use std::time::Duration;

/// How long nothing may come from the other side of a connection, or go there, that is asked something: longer than any command of a stream takes, and FLUSHALL.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long reaching a server may take.
pub const CONNECTING: Duration = Duration::from_secs(5);
/// How often somebody who waits looks whether there is something to report, or whether it is to end.
pub const LOOKING: Duration = Duration::from_millis(50);
/// Between two tries of what could not be done.
pub const PAUSE: Duration = Duration::from_millis(100);
/// Between two tries of what takes long, such as reaching a source, or a new copy.
pub const LONG_PAUSE: Duration = Duration::from_secs(1);
/// Bytes that are written within [`PATIENCE`], at the least.
pub const WRITTEN_BYTES: usize = 16 << 10;
/// Bytes that are read at once.
pub const READ_BYTES: usize = 256 << 10;
/// Requests of a stream that go to the target in one transaction, and their bytes, unless the source has more in one: it stands still for others
/// meanwhile.
pub const ROUND_REQUESTS_MAX: usize = 1000;
/// See [`ROUND_REQUESTS_MAX`].
pub const ROUND_BYTES_MAX: usize = 256 << 10;
/// Bytes of a copy that are under way.
pub const COPY_BYTES_MAX: usize = 1 << 20;
/// A value that is longer is brought in pieces.
pub const VALUE_BYTES_MAX: usize = 120 << 10;
/// A string that a copy declares to be longer is refused before it comes.
pub const STRING_BYTES_MAX: u64 = 2 << 30;
/// Keys that are looked at together.
pub const PAGE_KEYS: usize = 500;
/// Values that are compared together, of each side, by what the source says that they take; a larger one is compared alone.
pub const COMPARED_BYTES_MAX: usize = 4 << 20;
/// What a value counts for that a source does not tell the size of.
pub const VALUE_BYTES_UNKNOWN: usize = 512 << 10;
/// Differences that are told one by one.
pub const DIFFERENCES_TOLD_MAX: usize = 10;
/// How long whoever asks for the cut-over waits until the import has seen it: it looks twice a second.
pub const ANSWER: Duration = Duration::from_secs(10);
/// How long an attempt that has come to nothing tries to take away that it has heard the request.
pub const FORGETTING: Duration = Duration::from_secs(2);
/// How long a request for the cut-over counts that no import has seen.
pub const REQUEST: Duration = Duration::from_secs(60);
/// How long writers are held at the source for the end, unless an option says so.
pub const HOLD: Duration = Duration::from_secs(60);
