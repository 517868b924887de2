use super::*;

fn unit(form: Form, writes: &[&[&str]]) -> Unit {
    Unit::new(
        form,
        writes.iter().map(|write| write.iter().map(|word| (*word).to_owned()).collect()).collect(),
    )
}

fn alone(write: &[&str]) -> Unit {
    unit(Form::Alone, &[write])
}

/// A ledger with the first units answered and the others open.
fn ledger(units: &[Unit], answered: usize) -> Ledger {
    let mut ledger = Ledger::new("c0".to_owned());
    for (at, unit) in units.iter().enumerate() {
        ledger.sent(unit.clone());
        if at < answered {
            let reply = Value::Array(unit.writes.iter().map(|_| Value::Int(1)).collect());
            let reply = if unit.form == Form::Alone { Value::Int(1) } else { reply };
            assert_eq!(ledger.answered(&reply), Answer::Done);
        }
    }
    ledger
}

/// What is there after these units.
fn found(units: &[Unit]) -> State {
    let mut state = State::default();
    units.iter().for_each(|unit| state.apply(unit, None));
    state.added.clear();
    state
}

#[test]
fn open_units_may_be_there_or_not_and_answered_ones_must() {
    let units =
        [alone(&["SET", "c0:text:0", "a"]), alone(&["INCR", "c0:seq"]), alone(&["LPUSH", "c0:list:0", "b"])];
    for there in 0..=3 {
        let settled = ledger(&units, 1).settle(found(&units[..there]), Refusals::Never);
        assert_eq!(
            settled.map(|settled| settled.survived).ok(),
            there.checked_sub(1).map(|open| open as u64)
        );
    }
}

#[test]
fn a_gap_is_no_prefix() {
    let units = [alone(&["SET", "c0:text:0", "a"]), alone(&["SET", "c0:text:1", "b"])];
    assert!(ledger(&units, 0).settle(found(&units[1..]), Refusals::Never).is_err());
}

#[test]
fn where_some_may_have_been_refused_a_gap_may_be_but_nothing_that_was_answered_is_missing() {
    let units = [
        alone(&["SET", "c0:text:0", "a"]),
        alone(&["INCR", "c0:seq"]),
        alone(&["SET", "c0:text:0", "b"]),
        alone(&["INCR", "c0:seq"]),
        alone(&["EXPIRE", "c0:text:0", "100"]),
    ];
    let gap = [units[0].clone(), units[3].clone(), units[4].clone()];
    assert!(ledger(&units, 1).settle(found(&gap), Refusals::Never).is_err());
    let settled = ledger(&units, 1).settle(found(&gap), Refusals::DiskFull);
    assert_eq!(settled.map(|settled| settled.survived).ok(), Some(2));
    assert!(ledger(&units, 3).settle(found(&gap), Refusals::DiskFull).is_err());
    let both = [unit(Form::Transaction, &[&["INCR", "c0:seq"], &["SADD", "c0:set:0", "a"]])];
    assert!(ledger(&both, 0).settle(found(&[alone(&["INCR", "c0:seq"])]), Refusals::DiskFull).is_err());
}

#[test]
fn half_of_a_transaction_or_script_is_no_prefix() {
    for form in [Form::Transaction, Form::Script] {
        let (first, second): (&[&str], &[&str]) = (&["SET", "c0:text:0", "a"], &["SADD", "c0:set:0", "b"]);
        let units = [unit(form, &[first, second])];
        assert!(ledger(&units, 0).settle(found(&[]), Refusals::Never).is_ok());
        assert!(ledger(&units, 0).settle(found(&units), Refusals::Never).is_ok());
        assert!(ledger(&units, 0).settle(found(&[alone(first)]), Refusals::Never).is_err());
        assert!(ledger(&units, 0).settle(found(&[alone(second)]), Refusals::Never).is_err());
    }
}

#[test]
fn an_open_spop_may_have_taken_any_member_but_one_only() {
    let fill = [alone(&["SADD", "c0:set:0", "a"]), alone(&["SADD", "c0:set:0", "b"])];
    let units = [fill.as_slice(), &[alone(&["SPOP", "c0:set:0"])]].concat();
    for member in ["a", "b"] {
        assert!(
            ledger(&units, 2).settle(found(&[alone(&["SADD", "c0:set:0", member])]), Refusals::Never).is_ok()
        );
    }
    assert!(ledger(&units, 2).settle(found(&[alone(&["SADD", "c0:set:0", "c"])]), Refusals::Never).is_err());
    assert!(ledger(&units, 2).settle(found(&[]), Refusals::Never).is_err());
}

#[test]
fn a_time_to_live_that_starts_anew_is_noticed() {
    let units = [alone(&["SET", "c0:text:0", "a"]), alone(&["EXPIRE", "c0:text:0", "100"])];
    let mut late = units.clone();
    late[1].sent_ms += 1000;
    let later = [units[0].clone(), alone(&["EXPIRE", "c0:text:0", "101"])];
    assert!(ledger(&units, 2).settle(found(&units), Refusals::Never).is_ok());
    for found in [found(&late), found(&later), found(&units[..1])] {
        assert!(ledger(&units, 2).settle(found, Refusals::Never).is_err());
    }
}

#[test]
fn counters_are_the_sum_of_what_is_there() {
    let counter = COUNTERS[0];
    let units = [unit(Form::Transaction, &[&["INCR", "c0:seq"], &["INCR", counter]])];
    let sum = |there: &[Unit], total| {
        let mut books = Books::new(1);
        books.ledgers = vec![ledger(&units, 0)];
        let added = books.ledgers[0].settle(found(there), Refusals::Never).unwrap().added;
        books.settle_counter(counter, total, &[added])
    };
    assert!(sum(&units, 1).is_ok());
    assert!(sum(&[], 0).is_ok());
    assert!(sum(&units, 0).is_err());
    assert!(sum(&[], 1).is_err());
}

#[test]
fn refused_units_are_not_there() {
    let units = [alone(&["SET", "c0:text:0", "a"])];
    let refused = || {
        let mut ledger = ledger(&units, 0);
        let answer = ledger.answered(&Value::Error(b"MISCONF".to_vec()));
        assert_eq!(answer, Answer::Refused("MISCONF".to_owned()));
        ledger
    };
    assert!(refused().settle(found(&[]), Refusals::Never).is_ok());
    assert!(refused().settle(found(&units), Refusals::Never).is_err());
}
