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
    ((now.seconds() / 60) & 0xffff) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Eviction;

    const NOW: UnixMs = UnixMs(1_700_000_000_000);

    #[test]
    fn idle_time_counts_seconds_since_the_last_use() {
        let policy = Policy::default();
        let clock = fresh(&policy, NOW);
        assert_eq!(idle_seconds(clock, UnixMs(NOW.0 + 61_000)), 61);
        assert_eq!(idle_seconds(of_idle_seconds(1000, NOW), NOW), 1000);
        assert_eq!(touched(clock, &policy, UnixMs(NOW.0 + 5000), || 0.0), clock + 5);
    }

    #[test]
    fn frequency_grows_ever_more_slowly_and_decays_by_the_minute() {
        let policy = Policy::default();
        policy.set_eviction(Eviction::AllLfu);
        let clock = fresh(&policy, NOW);
        assert_eq!(frequency(clock, &policy, NOW), 5);
        // At 5 every use counts; at 15 one in 101 does.
        assert_eq!(touched(clock, &policy, NOW, || 0.999) & 0xff, 6);
        assert_eq!(touched(of_frequency(15, NOW), &policy, NOW, || 0.011) & 0xff, 15);
        assert_eq!(touched(of_frequency(15, NOW), &policy, NOW, || 0.009) & 0xff, 16);
        assert_eq!(touched(of_frequency(255, NOW), &policy, NOW, || 0.0) & 0xff, 255);
        assert_eq!(frequency(of_frequency(20, NOW), &policy, UnixMs(NOW.0 + 3 * 60_000)), 17);
        policy.set_lfu_decay_minutes(0);
        assert_eq!(frequency(of_frequency(20, NOW), &policy, UnixMs(NOW.0 + 3 * 60_000)), 20);
    }
}
