//! `tarn proxy --check`: whether all that a proxy would be in front of is there, and what it is, and whether each slot is somebody's.

use crate::upstream::{self, Node, Routes};
use server::server::Server;
use wire::Value;

/// Prints a line for each server, and one for slots that nobody has. False: something could not be served.
pub fn run(host: &Server, routes: &Routes) -> bool {
    let mut are_sound = true;
    for number in &routes.masters {
        let node = &routes.nodes[usize::from(*number)];
        let (place, slots) = (node.to_string(), routes.slots_of(*number));
        match look_at(host, node) {
            Ok(what) => println!("{place:24} {slots:5} slots  {what}"),
            Err(why) => {
                are_sound = false;
                println!("{place:24} {slots:5} slots  NOT SERVED: {why}");
            }
        }
    }
    let lost = routes.unserved();
    if lost > 0 {
        are_sound = false;
        println!("{lost} slots: NOT SERVED: nobody has them");
    }
    are_sound
}

/// What a server is.
fn look_at(host: &Server, node: &Node) -> Result<String, String> {
    // Who has the last one has those before it.
    let last = host.engine.config.databases().saturating_sub(1);
    let replies = upstream::ask(host, node, &["INFO server", "INFO replication", &format!("SELECT {last}")])?;
    if let Some(Value::Error(line)) = replies.last() {
        let line = String::from_utf8_lossy(line);
        return Err(if replies.len() == 3 { format!("database {last}: {line}") } else { line.into_owned() });
    }
    let [Value::Bulk(server), Value::Bulk(replication), _] = &replies[..] else {
        return Err("it does not say what it is".to_owned());
    };
    let field = |text: &[u8], name: &str| {
        let text = String::from_utf8_lossy(text).into_owned();
        text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned()))
    };
    let names = [("tarn_version", "Tarn"), ("valkey_version", "Valkey"), ("redis_version", "Redis")];
    let what = names.iter().find_map(|(name, what)| Some(format!("{what} {}", field(server, name)?)));
    match field(replication, "role").as_deref() {
        Some("master") => Ok(format!("{}, a master", what.unwrap_or_else(|| "a server".to_owned()))),
        Some(role) => Err(format!("its role is {role}: it takes no writes")),
        None => Err("it does not say whether it is a master".to_owned()),
    }
}
