//! What is said to a config server of the users of proxies (USERS), in words.

use super::desk::{Desk, Followed, Question};
use super::requests::{
    Answer, Flow, Passed, bulk, by_leader, cut_off, follow_of, number, simple, text, unavailable, upper,
};
use crate::control::{Order, UserChange, UserLine, look_at_name};
use std::rc::Rc;
use wire::Value;

const USAGE: &str = "ERR USERS GET, USERS FOLLOW REVISION, USERS SET LINE [IF-AT REVISION] [OF CLUSTER-ID], or USERS DEL NAME [IF-AT REVISION] [OF CLUSTER-ID]";

const HELP: &[&str] = &[
    "USERS GET",
    "    The users of proxies: `users REVISION CLUSTER`, and a line for each, as ACL LIST shows it.",
    "USERS FOLLOW REVISION",
    "    The same whenever it is later than REVISION, until the connection ends.",
    "USERS SET LINE [IF-AT REVISION] [OF CLUSTER-ID]",
    "    A user is what its line says: `user NAME RULE ...`, with hashes for passwords; IF-AT: unless users were changed since; OF: if this is that cluster.",
    "USERS DEL NAME [IF-AT REVISION] [OF CLUSTER-ID]",
    "    A user goes.",
];

/// Answers what is asked of users, or has them followed.
pub async fn answer(desk: &Rc<Desk>, words: &[Vec<u8>], passed: Passed) -> (Answer, Flow) {
    match words {
        [_, sub, revision] if upper(sub) == "FOLLOW" && passed == Passed::No => {
            follow_of(desk, Followed::Users, revision).await
        }
        _ => (carry_out(desk, words, passed).await, Flow::Next),
    }
}

/// Answers all but what is followed.
pub async fn carry_out(desk: &Rc<Desk>, words: &[Vec<u8>], passed: Passed) -> Answer {
    let sub = words.get(1).map(|word| upper(word)).unwrap_or_default();
    let change = match (sub.as_str(), &words[2.min(words.len())..]) {
        ("HELP", []) => return Ok(Value::Array(HELP.iter().map(|line| simple(*line)).collect())),
        ("GET", []) => {
            // Who has just changed a user, anywhere, is shown it.
            let (_, users) = desk.users().await.map_err(|why| cut_off(&why))?;
            return users.map(|users| bulk(users.text.as_bytes())).ok_or_else(|| unavailable(desk));
        }
        ("SET", [line, condition @ ..]) => {
            let UserLine { name, text } = UserLine::read(text(line)?).map_err(|why| format!("ERR {why}"))?;
            let (known, cluster) = conditions(condition)?;
            UserChange { name, line: Some(text), known, cluster }
        }
        ("DEL", [name, condition @ ..]) => {
            let name = text(name)?.to_owned();
            look_at_name(&name).map_err(|why| format!("ERR {why}"))?;
            let (known, cluster) = conditions(condition)?;
            UserChange { name, line: None, known, cluster }
        }
        _ => return Err(USAGE.to_owned()),
    };
    by_leader(desk, words, passed, Question::Wants(Order::User(change))).await
}

/// By which revision a change was thought of, if another is to forbid it, and for which cluster; empty: for this one.
fn conditions(mut words: &[Vec<u8>]) -> Result<(Option<u64>, String), String> {
    let (mut known, mut cluster) = (None, String::new());
    while let [condition, value, rest @ ..] = words {
        match upper(condition).as_str() {
            "IF-AT" => known = Some(number(value)?),
            "OF" => text(value)?.clone_into(&mut cluster),
            _ => return Err(USAGE.to_owned()),
        }
        words = rest;
    }
    match words {
        [] => Ok((known, cluster)),
        _ => Err(USAGE.to_owned()),
    }
}
