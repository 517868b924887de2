//! The doors to the outside: time, randomness, memory and files.
//!
//! Whatever a machine does that a seed cannot repeat comes in here, each as a
//! real door and, where a test needs one, a simulated one. The crates above take
//! these as parameters and never reach for `std::time`, an ambient random
//! number or the allocator themselves. Beside the moments of a clock there are those of
//! the history of what was written ([`Stamp`]), which all who show something of it share.

pub mod bell;
pub mod clock;
pub mod counter;
pub mod file;
pub mod memory;
pub mod oom;
pub mod pages;
pub mod prefetch;
pub mod prng;
pub mod process;
pub mod socket;
pub mod stamp;
pub mod thread;
pub mod ticks;

pub use bell::Bell;
pub use clock::{Clock, UnixMs};
pub use counter::Counter;
pub use oom::OomScore;
pub use prng::Prng;
pub use stamp::{Shown, Stamp};
pub use ticks::{TickClock, Ticks};
