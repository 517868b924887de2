//! Users of proxies, while config servers and the store fail.

use super::*;
use crate::control::UserChange;

impl World {
    fn change_user(&mut self, name: &str, line: Option<&str>, known: Option<u64>) -> Result<String, String> {
        self.carry(change(name, line, known))
    }

    fn carry(&mut self, change: UserChange) -> Result<String, String> {
        let order = Event::Wants;
        let (at, ticket) = self.ask(|ticket| order(ticket, Order::User(change))).expect("somebody leads");
        self.answer_to(at, ticket)
    }

    fn answer_to(&mut self, at: usize, ticket: Ticket) -> Result<String, String> {
        self.run_until("there is an answer", Duration::from_secs(30), |world| {
            world.configs[at].answers.contains_key(&ticket)
        });
        self.configs[at].answers[&ticket].clone()
    }

    /// Has the store take a change of which who leads does not hear, and somebody else write that user's line; gives what is answered when the store is back.
    fn change_unheard(&mut self, change: UserChange, later: Option<&str>) -> Result<String, String> {
        let at = self.leader().expect("somebody leads");
        let key = format!("{PREFIX}{}", key::user(&change.name));
        // Not so long that it leads no more.
        (self.is_mute, self.configs[at].cut_until) = (true, self.now.plus(Duration::from_secs(1)));
        let (at, ticket) = self.ask(|ticket| Event::Wants(ticket, Order::User(change))).expect("it leads");
        self.run_for(Duration::from_millis(500));
        if let Some(line) = later {
            let writes = vec![Write::Put { key, value: line.to_owned(), lease: None }];
            self.store.change(&Change { compares: Vec::new(), writes });
        }
        self.run_for(Duration::from_millis(600));
        self.is_mute = false;
        self.answer_to(at, ticket)
    }
}

fn change(name: &str, line: Option<&str>, known: Option<u64>) -> UserChange {
    UserChange { name: name.to_owned(), line: line.map(str::to_owned), known, cluster: String::new() }
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
        let line = format!("user {name} on");
        let change = change(&name, Some(&line), Some(first));
        asked.extend(world.ask(|ticket| Event::Wants(ticket, Order::User(change))));
    }
    // Two that were thought of by the same: one is the first.
    for rule in ["off", "nopass"] {
        let line = format!("user alice {rule}");
        let change = change("alice", Some(&line), Some(first));
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
fn a_change_that_the_store_does_not_take_is_known_to_be_undone() {
    let mut world = world();
    world.is_full = true;
    let answer = world.change_user("alice", Some("user alice on"), None);
    assert!(answer.as_ref().is_err_and(|why| why.starts_with("ERR ") && why.contains(FULL)), "{answer:?}");
    world.is_full = false;
    world.run_for(Duration::from_secs(3));
    let answer = world.change_user("alice", None, None);
    assert!(answer.as_ref().is_err_and(|why| why.starts_with("NOUSER")), "{answer:?}");
    assert!(revision(world.change_user("alice", Some("user alice on"), None)) > 0);
}

#[test]
fn a_change_that_may_have_been_done_is_not_said_to_be_refused() {
    let mut world = world();
    let known = revision(world.change_user("alice", Some("user alice on"), None));
    let unheard = change("alice", Some("user alice on ~a"), Some(known));
    let answer = world.change_unheard(unheard.clone(), Some("user alice off"));
    let what = "users were changed since this was thought of, and `users set alice` may have been done";
    assert!(answer.as_ref().is_err_and(|why| why.starts_with(&format!("UNKNOWN {what}"))), "{answer:?}");
    // It is sure where it is so, and where nothing was tried.
    let known = world.store.revision.0;
    let later = UserChange { known: Some(known), ..unheard.clone() };
    assert!(revision(world.change_unheard(later, None)) > known);
    let answer = world.change_user("alice", Some("user alice off"), Some(known));
    assert!(answer.as_ref().is_err_and(|why| why.starts_with("CHANGED")), "{answer:?}");
    assert!(revision(world.change_unheard(change("alice", None, None), None)) > known);
    let answer = world.change_user("alice", None, None);
    assert!(answer.as_ref().is_err_and(|why| why.starts_with("NOUSER")), "{answer:?}");
}

#[test]
fn users_of_another_cluster_are_not_changed() {
    let mut world = world();
    let (own, ..) = world.value(key::CLUSTER).expect("there is one").clone();
    let of = |cluster: &str, line| UserChange { cluster: cluster.to_owned(), ..change("alice", line, None) };
    assert!(revision(world.carry(of(&own, Some("user alice on")))) > 0);
    for line in [Some("user alice off"), Some("user alice on"), None] {
        let answer = world.carry(of(&"d".repeat(40), line));
        assert!(answer.as_ref().is_err_and(|why| why.starts_with("WRONGCLUSTER")), "{answer:?}");
    }
    assert_eq!(world.value("users/alice").map(|(line, ..)| line.as_str()), Some("user alice on"));
}
