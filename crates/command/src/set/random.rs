//! SPOP and SRANDMEMBER: members picked by chance.

use super::reply_member;
use crate::args::Args;
use crate::error::{Error, Result};
use crate::generic::remove;
use crate::limits::RANDOM_REPEATED_MAX;
use crate::parse::{int, int_within};
use crate::row::Outcome;
use keyspace::{Class, Edit, Removal, View};
use value::number::IntBuffer;
use value::set::{Popped, Set};
use wire::Reply;

/// SPOP key [count]
pub(super) fn spop(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    if args.len() > 3 {
        return Err(Error::Syntax);
    }
    let key = args.key(1);
    let count = match args.len() {
        2 => None,
        _ => Some(int_within(args.bytes(2), 0..=i64::MAX, "ERR value is out of range, must be positive")?),
    };
    let wanted = count.map_or(1, |count| usize::try_from(count).unwrap_or(usize::MAX));
    let Some(len) = edit.read::<Set>(&key)?.map(|set| set.len()).filter(|_| wanted > 0) else {
        match count {
            Some(_) => reply.set(0),
            None => reply.null(),
        }
        return Ok(Outcome::Unchanged);
    };
    if count.is_some() {
        reply.set(wanted.min(len));
    }
    if wanted < len {
        let seed = edit.random();
        let Some(mut set) = edit.open::<Set>(&key)? else { unreachable!("the set was read above") };
        let mut prng = sys::Prng::from_seed(seed);
        let mut taken = Vec::new();
        let popped = set.pop(wanted, &args.settings.thresholds(), &mut || prng.next_u64(), &mut |member| {
            reply_member(reply, member);
            if args.is_logged() {
                taken.push(member.bytes(&mut IntBuffer::new()).to_vec());
            }
        });
        debug_assert_eq!(popped, Popped::Some);
        set.note(Class::SET, "spop");
        let words: Vec<&[u8]> =
            [b"SREM", key.bytes].into_iter().chain(taken.iter().map(|member| &member[..])).collect();
        args.log_as(&words);
    } else {
        // All go: the key is taken away as a whole, which is cheaper.
        let members = edit.read::<Set>(&key)?.into_iter().flat_map(|set| set.iter());
        let mut last = None;
        members.for_each(|member| {
            reply_member(reply, member);
            if args.len() == 2 && args.is_logged() {
                last = Some(member.bytes(&mut IntBuffer::new()).to_vec());
            }
        });
        edit.note(Class::SET, "spop", &key);
        remove(edit, &key);
        match last {
            Some(member) => args.log_as(&[b"SREM", key.bytes, &member]),
            None => args.log_removal(&key, Removal::Command),
        }
    }
    Ok(Outcome::Changed)
}

/// SRANDMEMBER key [count]
pub(super) fn srandmember(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let mut random = || view.random();
    match args.len() {
        2 => {
            let set = view.read::<Set>(&args.key(1))?;
            match set.and_then(|set| set.random(&mut random)) {
                Some(member) => reply_member(reply, member),
                None => reply.null(),
            }
            return Ok(());
        }
        3 => {}
        _ => return Err(Error::Syntax),
    }
    let count = int(args.bytes(2))?;
    if count == i64::MIN {
        return Err(Error::OUTSIDE_POSITIVE_INT64);
    }
    if count < -RANDOM_REPEATED_MAX {
        return Err(Error::text("ERR value is out of range"));
    }
    let Some(set) = view.read::<Set>(&args.key(1))?.filter(|_| count != 0) else {
        reply.array(0);
        return Ok(());
    };
    match usize::try_from(count) {
        Ok(count) if count >= set.len() => {
            reply.array(set.len());
            set.iter().for_each(|member| reply_member(reply, member));
        }
        Ok(count) => {
            reply.array(count);
            set.sample(count, &mut random, |member| reply_member(reply, member));
        }
        Err(_) => {
            // A negative count: so many, each picked anew.
            reply.array(count.unsigned_abs() as usize);
            for _ in 0..count.unsigned_abs() {
                if reply.is_over() {
                    break;
                }
                reply_member(reply, set.random(&mut random).expect("no key holds an empty set"));
            }
        }
    }
    Ok(())
}
