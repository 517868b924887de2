//! The access clock of objects: 24 bits that say how recently (LRU) or how often
//! (LFU) a key was used. Same meaning as in Redis, so that `OBJECT IDLETIME` and
//! `OBJECT FREQ` agree: LRU counts seconds, wrapping around; LFU is 16 bits of
//! minutes and an 8-bit logarithmic counter.

use crate::policy::Policy;
use sys::UnixMs;

const LRU_MASK: u64 = (1 << 24) - 1;
/// A new key's frequency, so that it is not the first to go.
const LFU_START: u32 = 5;

/// The clock of a key that has just been made.
#[inline]
pub(crate) fn fresh(policy: &Policy, now: UnixMs) -> u32 {
    if policy.eviction().counts_frequency() {
        minutes(now) << 8 | LFU_START
    } else {
        (now.seconds() & LRU_MASK) as u32
    }
}

/// The clock after one more access. `random` decides whether a frequency grows.
#[inline]
pub(crate) fn touched(clock: u32, policy: &Policy, now: UnixMs, random: impl FnOnce() -> f64) -> u32 {
    if !policy.eviction().counts_frequency() {
        return (now.seconds() & LRU_MASK) as u32;
    }
    let counter = frequency(clock, policy, now);
    let grows = counter < 255 && {
        let above = f64::from(counter.saturating_sub(LFU_START));
        random() < 1.0 / (above * f64::from(policy.lfu_log_factor()) + 1.0)
    };
    minutes(now) << 8 | (counter + u32::from(grows))
}

/// The frequency counter, less one for each decay period since the last access.
pub(crate) fn frequency(clock: u32, policy: &Policy, now: UnixMs) -> u32 {
    let elapsed = minutes(now).wrapping_sub(clock >> 8) & 0xffff;
    let periods = match policy.lfu_decay_minutes() {
        0 => 0,
        per => elapsed / per,
    };
    (clock & 0xff).saturating_sub(periods)
}

/// Seconds since the last access.
pub(crate) fn idle_seconds(clock: u32, now: UnixMs) -> u64 {
    now.seconds().wrapping_sub(u64::from(clock)) & LRU_MASK
}

/// The clock of a key that was idle for so many seconds at `now`.
pub(crate) fn of_idle_seconds(idle: u64, now: UnixMs) -> u32 {
    (now.seconds().wrapping_sub(idle) & LRU_MASK) as u32
}

/// The clock of a key with this frequency.
pub(crate) fn of_frequency(frequency: u8, now: UnixMs) -> u32 {
    minutes(now) << 8 | u32::from(frequency)
}

fn minutes(now: UnixMs) -> u32 {
    (now.seconds() / 60 & 0xffff) as u32
}
