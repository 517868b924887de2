//! What goes over all keys: of a cluster that is all nodes together.

use super::{Checked, Client, Pair, routed};
use std::collections::BTreeMap;
use testkit::client::decode;
use testkit::differential::judge::{Queue, Verdict, judge};
use testkit::differential::show;
use testkit::generate::{Request, words};
use topology::Topology;
use wire::{Value, key_slot};

/// Databases of a server as it starts.
const DATABASES: u32 = 16;

/// When keys expire was set at slightly different moments, in milliseconds.
const EXPIRY_MS_MAX: i64 = 20_000;

/// Strings of a list.
pub fn texts(reply: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let wrong = || format!("no list: {}", reply.escape_ascii());
    let Some(Value::Array(values)) = decode(reply) else { return Err(wrong()) };
    let text = |value| if let Value::Bulk(text) = value { Ok(text) } else { Err(wrong()) };
    values.into_iter().map(text).collect()
}

fn sorted(mut keys: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    keys.sort_unstable();
    keys
}

/// DBSIZE is the sum of all nodes', KEYS and SCAN are what all list, and RANDOMKEY is one of these.
pub fn count(client: &mut Client) -> Checked {
    let (many, one) = client.both(&words(&["KEYS", "*"]))?;
    let one = sorted(texts(&one)?);
    let keys: Vec<Vec<u8>> = many.iter().map(|reply| texts(reply)).collect::<Result<Vec<_>, _>>()?.concat();
    if sorted(keys) != one {
        return Err("KEYS * differs".to_owned() + &difference(&many, &one)?);
    }
    let (many, _) = client.both(&words(&["DBSIZE"]))?;
    let sizes = many.iter().filter_map(|reply| decode(reply));
    let sum: i64 = sizes.map(|size| if let Value::Int(size) = size { size } else { i64::MIN }).sum();
    if sum != one.len() as i64 {
        return Err(format!("DBSIZE makes {sum}, of {} keys", one.len()));
    }
    let mut scanned: Vec<Vec<u8>> = Vec::new();
    for reply in client.many.everywhere(&words(&["SCAN", "0", "COUNT", "1000000"]))? {
        match decode(&reply) {
            Some(Value::Array(parts)) if parts[0] == Value::Bulk(b"0".to_vec()) => {
                let Value::Array(keys) = &parts[1] else { return Err("SCAN lists nothing".into()) };
                scanned.extend(
                    keys.iter()
                        .filter_map(|key| if let Value::Bulk(key) = key { Some(key.clone()) } else { None }),
                );
            }
            _ => return Err(format!("SCAN: {}", reply.escape_ascii())),
        }
    }
    if sorted(scanned) != one {
        return Err("SCAN differs".into());
    }
    for reply in client.many.everywhere(&words(&["RANDOMKEY"]))? {
        if let Some(Value::Bulk(key)) = decode(&reply)
            && one.binary_search(&key).is_err()
        {
            return Err(format!("RANDOMKEY is {}", key.escape_ascii()));
        }
    }
    Ok(())
}

fn difference(many: &[Vec<u8>], one: &[Vec<u8>]) -> Result<String, String> {
    let mut told = String::new();
    let mut seen: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for reply in many {
        for key in texts(reply)? {
            *seen.entry(key).or_default() += 1;
        }
    }
    for (key, count) in &seen {
        if *count > 1 || !one.contains(key) {
            told += &format!(
                "; {} is at {count} nodes of the cluster, and {}",
                key.escape_ascii(),
                one.contains(key)
            );
        }
    }
    for key in one.iter().filter(|key| !seen.contains_key(*key)) {
        told += &format!("; {} is with the one server only", key.escape_ascii());
    }
    Ok(told)
}

/// Compares all keys of all databases: types, values and when they expire. Encodings are not: what has moved was made anew.
pub fn compare(pair: &Pair, topology: &Topology) -> Checked {
    let mut nodes: BTreeMap<_, _> = pair
        .moving
        .nodes
        .iter()
        .map(|node| (*node, testkit::Client::connect(*node).expect("it serves")))
        .collect();
    let mut alone = pair.alone.connect().expect("it serves");
    for db in 0..DATABASES {
        let select = words(&["SELECT", &db.to_string()]);
        routed::pipeline(&mut alone, &[&select])?;
        let list = words(&["KEYS", "*"]);
        let one = sorted(texts(&routed::pipeline(&mut alone, &[&list])?[0])?);
        let mut many = Vec::new();
        for client in nodes.values_mut() {
            many.push(routed::pipeline(client, &[&select, &list])?.swap_remove(1));
        }
        let keys: Vec<Vec<u8>> =
            many.iter().map(|reply| texts(reply)).collect::<Result<Vec<_>, _>>()?.concat();
        if sorted(keys) != one {
            return Err(format!("the keys of database {db} differ{}", difference(&many, &one)?));
        }
        for key in &one {
            let owner = pair.moving.owner(topology, key_slot(key));
            let owner = nodes.get_mut(&owner).expect("it is a node");
            compare_key(owner, &mut alone, key).map_err(|wrong| format!("database {db}: {wrong}"))?;
        }
    }
    Ok(())
}

pub fn compare_key(owner: &mut testkit::Client, alone: &mut testkit::Client, key: &[u8]) -> Checked {
    let ask = |before: &[&str], after: &[&str]| [words(before), vec![key.to_vec()], words(after)].concat();
    let asks: Vec<Request> = vec![
        ask(&["TYPE"], &[]),
        ask(&["DEBUG", "DIGEST-VALUE"], &[]),
        ask(&["XINFO", "STREAM"], &["FULL", "COUNT", "0"]),
        ask(&["PEXPIRETIME"], &[]),
    ];
    let all: Vec<&Request> = asks.iter().collect();
    let (many, one) = (routed::pipeline(owner, &all)?, routed::pipeline(alone, &all)?);
    for ((request, many), one) in asks.iter().zip(many).zip(one) {
        let is_same = match (decode(&many), decode(&one)) {
            (Some(Value::Int(a)), Some(Value::Int(b))) => {
                a == b || a > 0 && b > 0 && (a - b).abs() < EXPIRY_MS_MAX
            }
            (Some(a), Some(b)) if a == b => true,
            _ => {
                judge(request, &[Some(many.clone()), Some(one.clone())], &mut Queue::default())
                    == Verdict::Same
            }
        };
        if !is_same {
            return Err(format!(
                "{}\nthe cluster: {}\none server: {}",
                show(request),
                many.escape_ascii(),
                one.escape_ascii()
            ));
        }
    }
    Ok(())
}
