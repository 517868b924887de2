//! DEBUG DIGEST and DIGEST-VALUE: forty hexadecimal digits for what is there, the same as Redis' for the same keys.
//!
//! Whatever an encoding keeps in no order is joined so that order does not count. When a key expires is not in it, only that it does;
//! nor are a stream's groups.
//!
//! Pure but for the handlers, which hold what they look at.

use super::{look, with_all};
use crate::dispatch::Context;
use crate::server::Server;
use command::Result;
use command::execute::readable;
use keyspace::{Batch, Key, Object, Touch, ValueRef, View};
use sha1::{Digest as _, Sha1};
use std::fmt::Write;
use std::mem;
use sys::UnixMs;
use value::collection::CollectionRef;
use value::hash::HashRef;
use value::number::{IntBuffer, format_i64};
use value::set::SetRef;
use value::stream::{Order, Stream, StreamId};
use value::zset::ZsetRef;
use wire::Reply;
use wire::number::write_double;

/// The digest of something; zeroes are that of nothing.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Digest([u8; 20]);

impl Digest {
    /// Adds a part whose place among the others does not count.
    fn add(&mut self, part: &[u8]) {
        let sum: [u8; 20] = Sha1::digest(part).into();
        self.0.iter_mut().zip(sum).for_each(|(byte, other)| *byte ^= other);
    }

    /// Adds a part that comes behind those before.
    fn mix(&mut self, part: &[u8]) {
        self.add(part);
        self.0 = Sha1::digest(self.0).into();
    }

    /// Of two parts in this order.
    fn of_pair(first: &[u8], second: &[u8]) -> Digest {
        let mut pair = Digest::default();
        pair.mix(first);
        pair.mix(second);
        pair
    }

    fn hex(&self) -> String {
        self.0.iter().fold(String::with_capacity(40), |mut text, byte| {
            write!(text, "{byte:02x}").expect("a string takes every text");
            text
        })
    }
}

/// Redis' numbers of the types.
fn type_number(value: &ValueRef<'_>) -> u32 {
    match value {
        ValueRef::Bytes(_) | ValueRef::Int(_) => 0,
        ValueRef::Collection(CollectionRef::List(_)) => 1,
        ValueRef::Collection(CollectionRef::Set(_)) => 2,
        ValueRef::Collection(CollectionRef::Zset(_)) => 3,
        ValueRef::Collection(CollectionRef::Hash(_)) => 4,
        ValueRef::Collection(CollectionRef::Stream(_)) => 6,
    }
}

/// Adds what a key holds.
fn mix_value(digest: &mut Digest, object: Object<'_>, now: UnixMs) {
    let value = object.value();
    digest.mix(&type_number(&value).to_be_bytes());
    let mut digits = IntBuffer::new();
    match value {
        ValueRef::Bytes(bytes) => digest.mix(bytes),
        ValueRef::Int(number) => digest.mix(format_i64(number, &mut digits)),
        ValueRef::Collection(CollectionRef::List(list)) => {
            list.iter().for_each(|element| digest.mix(element.bytes(&mut digits)));
        }
        ValueRef::Collection(CollectionRef::Set(set)) => add_set(digest, set),
        ValueRef::Collection(CollectionRef::Zset(zset)) => add_zset(digest, zset),
        ValueRef::Collection(CollectionRef::Hash(hash)) => add_hash(digest, hash, now),
        ValueRef::Collection(CollectionRef::Stream(stream)) => mix_stream(digest, stream),
    }
    if object.expires_at().is_some() {
        digest.add(b"!!expire!!");
    }
}

fn add_set(digest: &mut Digest, set: SetRef<'_>) {
    let mut digits = IntBuffer::new();
    set.iter().for_each(|member| digest.add(member.bytes(&mut digits)));
}

fn add_zset(digest: &mut Digest, zset: ZsetRef<'_>) {
    let mut digits = IntBuffer::new();
    for (member, score) in zset.iter(0..zset.len()) {
        let mut text = Vec::new();
        write_double(&mut text, score);
        digest.add(&Digest::of_pair(member.bytes(&mut digits), &text).0);
    }
}

fn add_hash(digest: &mut Digest, hash: HashRef<'_>, now: UnixMs) {
    let (mut name_digits, mut value_digits) = (IntBuffer::new(), IntBuffer::new());
    hash.for_each(now, |name, value| {
        let name = name.bytes(&mut name_digits);
        let mut field = Digest::of_pair(name, value.bytes(&mut value_digits));
        if hash.expires_at(name, now).flatten().is_some() {
            field.add(b"!!hexpire!!");
        }
        digest.add(&field.0);
    });
}

fn mix_stream(digest: &mut Digest, stream: &Stream) {
    let mut digits = IntBuffer::new();
    for entry in stream.entries.range(StreamId::MIN, StreamId::MAX, Order::Ascending) {
        digest.mix(format!("{}.{}", entry.id.ms, entry.id.seq).as_bytes());
        for (name, value) in entry.fields() {
            digest.mix(name.bytes(&mut digits));
            digest.mix(value.bytes(&mut digits));
        }
    }
}

/// DEBUG DIGEST: of all keys of all databases.
pub fn of_all(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let digest = with_all(context, |context| {
        let digest = of_keyspace(context.server, context.batch, context.now);
        readable(context.batch).map(|()| digest)
    })?;
    reply.simple(digest);
    Ok(())
}

/// The digits for all keys. Of keys that cannot be read the batch knows.
pub fn of_keyspace(server: &Server, batch: &mut Batch<'_>, now: UnixMs) -> String {
    batch.exclusively(now, Touch::No, |all| {
        let mut digest = Digest::default();
        for db in server.engine.databases().filter(|db| !all.is_empty(*db)) {
            // A database that has only keys whose time is up has none.
            let mut is_begun = false;
            all.for_each(db, |object| {
                if !mem::replace(&mut is_begun, true) {
                    digest.mix(&db.0.to_be_bytes());
                }
                let mut key = Digest::default();
                key.mix(object.key());
                mix_value(&mut key, object, now);
                digest.add(&key.0);
            });
        }
        digest.hex()
    })
}

/// DEBUG DIGEST-VALUE [key ...]: of what each holds, without its name; zeroes for none.
pub fn of_values(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let keyspace = &context.server.engine.keyspace;
    let keys: Vec<_> =
        context.request.iter().skip(2).map(|name| keyspace.key(context.session.db, name)).collect();
    let now = context.now;
    let of_key = |view: &View<'_>, key: &Key<'_>| {
        let mut digest = Digest::default();
        view.peek(key).into_iter().for_each(|object| mix_value(&mut digest, object, now));
        digest.hex()
    };
    let digests: Vec<_> =
        look(context, &keys, |view| Ok(keys.iter().map(|key| of_key(view, key)).collect()))?;
    reply.array(digests.len());
    digests.into_iter().for_each(|digest| reply.simple(digest));
    Ok(())
}
