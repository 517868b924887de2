//! What every command has to look at before it runs.

bitflags::bitflags! {
    /// What every command has to look at before it runs. As long as none of these
    /// is set, dispatch takes its short way.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Attention: u32 {
        /// Some session monitors.
        const MONITORS = 1 << 0;
        /// A pause is on.
        const PAUSED = 1 << 1;
        /// There is a ceiling to memory.
        const MEMORY_CEILING = 1 << 2;
        /// A script, or MIGRATE, holds keys for longer than it should, or somebody has waited for such a one and has not had his turn.
        const SLOW_SCRIPT = 1 << 3;
        /// The last snapshot in the background failed.
        const SAVE_FAILED = 1 << 4;
        /// The log does not go on.
        const LOG_FAILED = 1 << 5;
        /// The disk is so far behind that no write should run for now.
        const LOG_FULL = 1 << 6;
        /// The data is being loaded.
        const LOADING = 1 << 7;
        /// Writes need replicas, and there are none.
        const NO_REPLICAS = 1 << 8;
        /// A master is followed.
        const FOLLOWING = 1 << 9;
        /// A copy of the master's data is being loaded beside those that are shown.
        const LOADING_BESIDE = 1 << 10;
    }
}
