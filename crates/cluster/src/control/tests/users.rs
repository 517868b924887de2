//! Users of proxies, while config servers and the store fail.

use super::*;
use crate::control::UserChange;

impl World {
    fn change_user(&mut self, name: &str, line: Option<&str>, known: Option<u64>) -> Result<String, String> {
        let change = UserChange { name: name.to_owned(), line: line.map(str::to_owned), known };
        let order = Event::Wants;
        let (at, ticket) = self.ask(|ticket| order(ticket, Order::User(change))).expect("somebody leads");
        self.run_until("there is an answer", Duration::from_secs(30), |world| {
            world.configs[at].answers.contains_key(&ticket)
        });
        self.configs[at].answers[&ticket].clone()
    }
}

fn world() -> World {
    World::whole(31, 2)
}

fn revision(answer: Result<String, String>) -> u64 {
    answer.unwrap().strip_prefix("revision ").and_then(|word| word.parse().ok()).expect("a revision")
}

#[test]
fn many_are_changed_at_once_and_none_by_what_is_old() {
    let mut world = world();
    let first = revision(world.change_user("alice", Some("user alice on"), None));
    let mut asked = Vec::new();
    for number in 0..30 {
        let name = format!("u{number}");
        let line = Some(format!("user {name} on"));
        let change = UserChange { name, line, known: Some(first) };
        asked.extend(world.ask(|ticket| Event::Wants(ticket, Order::User(change))));
    }
    // Two that were thought of by the same: one is the first.
    for rule in ["off", "nopass"] {
        let line = Some(format!("user alice {rule}"));
        let change = UserChange { name: "alice".to_owned(), line, known: Some(first) };
        asked.extend(world.ask(|ticket| Event::Wants(ticket, Order::User(change))));
    }
    world.run_until("all are answered", Duration::from_secs(30), |world| {
        asked.iter().all(|(at, ticket)| world.configs[*at].answers.contains_key(ticket))
    });
    let answers: Vec<_> =
        asked.iter().map(|(at, ticket)| world.configs[*at].answers[ticket].clone()).collect();
    let (done, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    // As many as go into one change are not old to each other.
    assert!(
        !done.is_empty()
            && refused.iter().all(|why| why.as_ref().is_err_and(|why| why.starts_with("CHANGED")))
    );
    let kept = world.store.entries.keys().filter(|key| key.contains("/users/")).count();
    assert_eq!(kept, done.len() + 1 - usize::from(world.value("users/alice").unwrap().0 != "user alice on"));
}

#[test]
fn a_change_of_which_nobody_knows_is_said_to_be_unknown() {
    let mut world = world();
    world.is_full = true;
    let answer = world.change_user("alice", Some("user alice on"), None);
    assert!(answer.as_ref().is_err_and(|why| why.starts_with("UNKNOWN") && why.contains(FULL)), "{answer:?}");
    world.is_full = false;
    world.run_for(Duration::from_secs(3));
    let answer = world.change_user("alice", None, None);
    assert!(answer.as_ref().is_err_and(|why| why.starts_with("NOUSER")), "{answer:?}");
    assert!(revision(world.change_user("alice", Some("user alice on"), None)) > 0);
}
