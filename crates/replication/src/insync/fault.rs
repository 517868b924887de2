//! Mistakes that tests plant, so that they prove that the simulator finds them.
//!
//! Outside of tests none can be planted, and asking for one is a constant `false`.

/// One mistake in the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "only tests plant any"))]
pub(super) enum Fault {
    /// The master counts a lease from when the answer came.
    LeaseFromAnswer,
    /// A member asks to be master while it has lent time to read.
    LeaseNotWaitedOut,
    /// A member waits exactly as long as it has lent, by its own clock.
    ClockRateIgnored,
    /// A process that starts assumes that the one before it lent nothing.
    LeaseForgottenAtStart,
    /// A member goes on lending while it waits to become master.
    LendsAsCandidate,
    /// What was acknowledged to another epoch, on another link, counts.
    ForeignAcknowledgement,
    /// Whoever asks becomes master, member or not.
    NonMemberPromoted,
    /// Who was a member when it last looked takes itself for one.
    RemovedMemberPromoted,
    /// The same node with other data counts as the same member.
    LifeIgnored,
    /// Writes that wait are acknowledged though members have become too few.
    MinimumIgnored,
    /// A member counts no more as soon as its removal is proposed.
    GateBeforeRemoval,
    /// A new member counts only once its addition is confirmed.
    AdditionCountsLate,
    /// A learner is added without having what is committed.
    AddedBehind,
    /// A new master adds learners without what it held itself when it was promoted.
    AddedBehindEpoch,
    /// A former master's tail is cut where the shorter log ends.
    CutAtShorterEnd,
    /// What a replica has received counts as durable.
    ReceivedCounts,
    /// A member that comes forward within one long request counts as one that stands still.
    ProgressIgnored,
    /// A member that answers, and does nothing, counts as one that comes forward.
    AnswersAreProgress,
    /// A master that starts again goes on in its epoch.
    EpochResumed,
    /// A master hands over and goes on reading.
    YieldedAndReading,
    /// A proposal without an answer is taken for one that was not carried out.
    SilenceIsRefusal,
}
