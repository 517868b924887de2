//! A key's content in a form that depends on nothing but the data: not on encodings or on hash seeds. What is over and has not been
//! freed yet is there.

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

    /// From the reply to XINFO STREAM FULL, without how entries lie in memory.
    pub fn stream(reply: &[u8]) -> Content {
        let text = String::from_utf8_lossy(reply).into_owned();
        let mut lines: Vec<&str> = text.split("\r\n").collect();
        for name in ["radix-tree-keys", "radix-tree-nodes"] {
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
