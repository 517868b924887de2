//! A key's content in a form that depends on nothing but what clients can see: not on encodings, on hash seeds, or on
//! whether what is over has been freed yet.

use testkit::client::decode;
use wire::Value;

/// A field of a hash, its value, and when it is over.
pub type Field = (Vec<u8>, Vec<u8>, Option<u64>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub expires_at: Option<u64>,
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A string, or a reply that shows all of it in order.
    Bytes(Vec<u8>),
    /// A set's members, sorted.
    Members(Vec<Vec<u8>>),
    /// A hash's fields, sorted.
    Fields(Vec<Field>),
}

impl Shown {
    /// What is left of it at a moment; None if it is gone.
    pub fn at(&self, now: u64) -> Option<Shown> {
        if self.expires_at.is_some_and(|at| at <= now) {
            return None;
        }
        let Content::Fields(fields) = &self.content else { return Some(self.clone()) };
        let left: Vec<Field> =
            fields.iter().filter(|(_, _, over)| over.is_none_or(|at| at > now)).cloned().collect();
        let is_gone = left.is_empty();
        (!is_gone).then_some(Shown { expires_at: self.expires_at, content: Content::Fields(left) })
    }
}

impl Content {
    /// From the reply to SMEMBERS.
    pub fn set(reply: &[u8]) -> Content {
        let mut members = texts(reply);
        members.sort_unstable();
        Content::Members(members)
    }

    /// From the reply to HGETALL; without moments.
    pub fn pairs(reply: &[u8]) -> Vec<Field> {
        let mut words = texts(reply).into_iter();
        let mut fields = Vec::new();
        while let (Some(field), Some(value)) = (words.next(), words.next()) {
            fields.push((field, value, None));
        }
        fields.sort_unstable();
        fields
    }

    /// From the reply to HPEXPIRETIME.
    pub fn add_moments(fields: &mut [Field], reply: &[u8]) {
        let Some(Value::Array(moments)) = decode(reply) else { panic!("HPEXPIRETIME gives an array") };
        for (field, moment) in fields.iter_mut().zip(moments) {
            let Value::Int(at) = moment else { panic!("moments are numbers") };
            field.2 = u64::try_from(at).ok();
        }
    }

    /// From the reply to XINFO STREAM FULL, without how entries lie in memory, and without what images that Redis 7.0
    /// reads do not hold.
    pub fn stream(reply: &[u8]) -> Content {
        let text = String::from_utf8_lossy(reply).into_owned();
        let mut lines: Vec<&str> = text.split("\r\n").collect();
        for name in ["radix-tree-keys", "radix-tree-nodes", "active-time"] {
            while let Some(at) = lines.iter().position(|line| *line == name) {
                lines.drain(at..at + 2);
            }
        }
        Content::Bytes(lines.join(" ").into_bytes())
    }
}

fn texts(reply: &[u8]) -> Vec<Vec<u8>> {
    let Some(Value::Array(words)) = decode(reply) else { panic!("an array") };
    words
        .into_iter()
        .map(|word| match word {
            Value::Bulk(text) => text,
            other => panic!("{other:?} is no text"),
        })
        .collect()
}
