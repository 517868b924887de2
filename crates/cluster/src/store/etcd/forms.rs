//! What goes to etcd's gateway and comes from it, as JSON: keys and values in base64, numbers as text, and what is nothing is left out.

use crate::store::{Change, Changed, Entry, Reading, Revision, Write};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// A text in base64.
pub fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

/// A text from base64. Bytes that are none are replaced: anybody may write a key beside Tarn's, which is no reason to see none of them.
fn decoded(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(String::new()),
        Value::String(text) => Some(String::from_utf8_lossy(&STANDARD.decode(text).ok()?).into_owned()),
        _ => None,
    }
}

/// A number, as text or not.
pub fn number(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.parse().ok(),
        value => value.as_u64(),
    }
}

/// The first key behind all that begin with a prefix.
pub fn end_of(prefix: &str) -> String {
    let mut bytes = prefix.as_bytes().to_vec();
    // Names are ASCII: no byte is the last one.
    if let Some(last) = bytes.last_mut() {
        *last += 1;
    }
    STANDARD.encode(bytes)
}

/// What is read.
pub struct Range {
    key: String,
    end: Option<String>,
    /// Which of these keys.
    which: Which,
}

#[derive(Clone, Copy)]
enum Which {
    All,
    /// Any one that was changed behind this revision.
    After(Revision),
    /// The name of the one that was changed last.
    Last,
}

impl Range {
    pub fn prefix(prefix: &str) -> Range {
        Range { key: encoded(prefix), end: Some(end_of(prefix)), which: Which::All }
    }

    pub fn key(key: &str) -> Range {
        Range { key: encoded(key), end: None, which: Which::All }
    }

    /// Whether anything was changed behind a revision.
    pub fn later(prefix: &str, after: Revision) -> Range {
        Range { which: Which::After(after), ..Range::prefix(prefix) }
    }

    /// What was changed last.
    pub fn last(prefix: &str) -> Range {
        Range { which: Which::Last, ..Range::prefix(prefix) }
    }

    pub fn to_json(&self) -> Value {
        let mut form = json!({ "key": self.key });
        if let Some(end) = &self.end {
            form["range_end"] = json!(end);
        }
        match self.which {
            Which::All => {}
            Which::After(after) => {
                form["min_mod_revision"] = json!((after.0 + 1).to_string());
                form["limit"] = json!("1");
            }
            Which::Last => {
                form["sort_order"] = json!("DESCEND");
                form["sort_target"] = json!("MOD");
                form["limit"] = json!("1");
                form["keys_only"] = json!(true);
            }
        }
        form
    }
}

/// The revision of the whole store when it answered.
pub fn revision(answer: &Value) -> Option<Revision> {
    number(&answer["header"]["revision"]).map(Revision)
}

fn entry(form: &Value) -> Option<Entry> {
    let key = decoded(&form["key"]).filter(|key| !key.is_empty())?;
    Some(Entry { key, value: decoded(&form["value"])?, revision: Revision(number(&form["mod_revision"])?) })
}

/// An answer to a [`Range`].
pub fn reading(answer: &Value) -> Option<Reading> {
    let entries = match &answer["kvs"] {
        Value::Null => Some(Vec::new()),
        Value::Array(forms) => forms.iter().map(entry).collect(),
        _ => None,
    };
    Some(Reading { revision: revision(answer)?, entries: entries? })
}

/// A change as a transaction.
pub fn transaction(change: &Change) -> Value {
    let compares = change.compares.iter().map(|compare| {
        json!({
            "key": encoded(&compare.key),
            "target": "MOD",
            "result": "EQUAL",
            "mod_revision": compare.revision.0.to_string(),
        })
    });
    let writes = change.writes.iter().map(|write| match write {
        Write::Put { key, value, lease } => {
            let mut put = json!({ "key": encoded(key), "value": encoded(value) });
            if let Some(lease) = lease {
                put["lease"] = json!(lease.0.to_string());
            }
            json!({ "request_put": put })
        }
        Write::Delete { key } => json!({ "request_delete_range": { "key": encoded(key) } }),
    });
    json!({ "compare": compares.collect::<Vec<_>>(), "success": writes.collect::<Vec<_>>() })
}

/// What a line of a watch says.
#[derive(Debug, PartialEq, Eq)]
pub enum Watched {
    /// It begins.
    Begun,
    /// Changes, by revision.
    Changes(Vec<(Revision, Vec<Changed>)>),
    /// What was asked for is not there any more.
    Compacted,
    /// It ends. Why, as a sentence.
    Over(String),
}

/// Reads a line of a watch; None: it makes no sense.
pub fn watched(line: &[u8]) -> Option<Watched> {
    let answer: Value = serde_json::from_slice(line).ok()?;
    if let Some(message) = answer["error"]["message"].as_str() {
        return Some(Watched::Over(format!("etcd has ended the watch: {message}")));
    }
    let result = answer["result"].as_object()?;
    let is = |name: &str| result.get(name) == Some(&Value::Bool(true));
    if number(&answer["result"]["compact_revision"]).is_some_and(|revision| revision > 0) {
        return Some(Watched::Compacted);
    }
    if is("canceled") {
        let why = answer["result"]["cancel_reason"].as_str().unwrap_or("it does not say why");
        return Some(Watched::Over(format!("etcd has ended the watch: {why}")));
    }
    if is("created") {
        return Some(Watched::Begun);
    }
    let mut changes: Vec<(Revision, Vec<Changed>)> = Vec::new();
    let events = match result.get("events") {
        None => &Vec::new(),
        Some(events) => events.as_array()?,
    };
    for event in events {
        let Entry { key, value, revision } = entry(&event["kv"])?;
        let value = match event["type"].as_str() {
            None | Some("PUT") => Some(value),
            Some("DELETE") => None,
            Some(_) => return None,
        };
        let changed = Changed { key, value };
        match changes.last_mut().filter(|(last, _)| *last == revision) {
            Some((_, others)) => others.push(changed),
            None => changes.push((revision, vec![changed])),
        }
    }
    Some(Watched::Changes(changes))
}
