use super::*;
use crate::generate::words;

#[test]
fn every_excuse_has_a_reason() {
    assert!(RULES.iter().all(|rule| !rule.reason.is_empty()));
    assert!(SKIPPED.iter().all(|(_, reason)| !reason.is_empty()));
    assert!(AVOIDED.iter().all(|(_, _, reason)| !reason.is_empty()));
}

#[test]
fn times_to_live_that_would_run_out_are_not_sent() {
    assert!(!is_allowed(&words(&["EXPIRE", "k", "1"])));
    assert!(!is_allowed(&words(&["set", "k", "v", "PX", "5000"])));
    assert!(is_allowed(&words(&["expire", "k", "-1"])));
    assert!(is_allowed(&words(&["expire", "k", "100"])));
}
