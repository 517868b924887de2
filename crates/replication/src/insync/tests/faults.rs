//! Every mistake that is planted in the state machine is found, and within how many seeds.
//!
//! Two need a course of events that is too rare for seeds; `scenes.rs` plays it: `ForeignAcknowledgement` and `AddedBehindEpoch`.

use super::super::Fault;
use super::plan::Plan;
use super::play;
use testkit::seed::found_within;

macro_rules! planted {
    ($($name:ident: $fault:ident, $plans:ident, $seeds:expr;)*) => {
        $(#[test]
        fn $name() {
            let play = |seed| play(seed, Plan::$plans(seed, Some(Fault::$fault)));
            found_within(stringify!($fault), 1..=$seeds, play);
        })*
    };
}

planted! {
    a_lease_counted_from_the_answer_is_found: LeaseFromAnswer, about_leases, 500;
    a_lease_not_waited_out_is_found: LeaseNotWaitedOut, about_leases, 500;
    a_lease_waited_out_without_the_clocks_rates_is_found: ClockRateIgnored, about_leases, 1_000;
    a_lease_forgotten_at_the_start_is_found: LeaseForgottenAtStart, about_leases, 500;
    a_candidate_that_lends_is_found: LendsAsCandidate, about_leases, 500;
    the_promotion_of_no_member_is_found: NonMemberPromoted, from_seed, 200;
    the_promotion_of_a_removed_member_is_found: RemovedMemberPromoted, from_seed, 200;
    a_life_taken_for_another_is_found: LifeIgnored, from_seed, 200;
    a_minimum_ignored_is_found: MinimumIgnored, from_seed, 200;
    a_gate_opened_before_a_removal_is_found: GateBeforeRemoval, from_seed, 200;
    an_addition_that_counts_late_is_found: AdditionCountsLate, about_learners, 200;
    a_learner_added_behind_is_found: AddedBehind, about_learners, 2_000;
    a_cut_at_the_wrong_place_is_found: CutAtShorterEnd, from_seed, 200;
    a_replica_that_acknowledges_what_it_received_is_found: ReceivedCounts, from_seed, 200;
    a_member_removed_in_the_middle_of_a_long_request_is_found: ProgressIgnored, about_long_requests, 20;
    answers_that_count_as_progress_are_found: AnswersAreProgress, about_long_requests, 20;
    an_epoch_resumed_is_found: EpochResumed, from_seed, 200;
    a_master_that_hands_over_and_reads_is_found: YieldedAndReading, about_leases, 500;
    a_silent_store_taken_for_a_refusal_is_found: SilenceIsRefusal, from_seed, 200;
}
