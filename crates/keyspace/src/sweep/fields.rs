//! Fields of hashes that expire: freed on time whatever else happens to their keys, in small steps, and
//! without work when nothing is due. Against a naive model.

use crate::fixture::{DB, NOW, new_keyspace};
use crate::{Edit, Expiry, Key, Keyspace, NewValue, Progress, Touch};
use std::collections::BTreeMap;
use sys::{Prng, UnixMs};
use value::collection::Thresholds;
use value::hash::{FieldExpiry, Hash};

/// How long after its time a field may still take memory.
const LAG_MS: u64 = 1024;

type Fields = BTreeMap<u64, Option<u64>>;

#[derive(Clone, Default)]
struct Entry {
    fields: Fields,
    expires_at: Option<u64>,
}

struct Fuzz {
    keyspace: Keyspace,
    model: BTreeMap<u64, Entry>,
    prng: Prng,
    now: UnixMs,
}

fn set_field(hash: &mut Hash, field: u64, expires_at: Option<u64>, now: UnixMs) {
    let name = field.to_string();
    hash.set(name.as_bytes(), b"v", FieldExpiry::Clear, &Thresholds::default(), now);
    hash.set_expiry(name.as_bytes(), expires_at.map(UnixMs));
}

impl Fuzz {
    fn edit(&self, keys: &[u64], work: impl FnOnce(&mut Edit<'_>, &[Key<'_>])) {
        let names: Vec<[u8; 8]> = keys.iter().map(|key| key.to_le_bytes()).collect();
        let keys: Vec<Key<'_>> = names.iter().map(|name| self.keyspace.key(DB, name)).collect();
        let batch = self.keyspace.enter(0);
        let mut edit = batch.edit(&keys, self.now, Touch::Yes);
        work(&mut edit, &keys);
        edit.finish();
    }

    /// Forgets the key in the model if its time is up, as any access does.
    fn touch(&mut self, key: u64) {
        if self.model.get(&key).is_some_and(|entry| entry.expires_at.is_some_and(|at| at <= self.now.0)) {
            self.model.remove(&key);
        }
    }

    fn set_fields(&mut self, key: u64) {
        self.touch(key);
        let count = 1 + self.prng.below(20);
        let changes: Vec<(u64, Option<u64>)> = (0..count)
            .map(|_| {
                (self.prng.below(40), self.prng.one_in(2).then(|| self.now.0 + 1 + self.prng.below(9000)))
            })
            .collect();
        let now = self.now;
        self.edit(&[key], |edit, keys| {
            let mut hash = edit.open_or_new(&keys[0], Hash::default).unwrap();
            changes.iter().for_each(|(field, at)| set_field(&mut hash, *field, *at, now));
            hash.touch();
        });
        self.model.entry(key).or_default().fields.extend(changes);
    }

    fn remove_fields(&mut self, key: u64) {
        self.touch(key);
        let Some(entry) = self.model.get_mut(&key) else { return };
        let (now, prng) = (self.now, &mut self.prng);
        let is_visible = |at: &Option<u64>| at.is_none_or(|at| at > now.0);
        let visible = entry.fields.iter().filter(|(_, at)| is_visible(at));
        let gone: Vec<u64> = visible.filter(|_| !prng.one_in(4)).map(|(field, _)| *field).collect();
        gone.iter().for_each(|field| {
            entry.fields.remove(field);
        });
        if entry.fields.is_empty() {
            self.model.remove(&key);
        }
        self.edit(&[key], |edit, keys| {
            let mut hash = edit.open::<Hash>(&keys[0]).unwrap().expect("the model has it");
            for field in &gone {
                assert!(hash.remove(field.to_string().as_bytes(), now));
            }
            hash.touch();
        });
    }

    fn expire_key(&mut self, key: u64) {
        self.touch(key);
        let at = self.prng.one_in(2).then(|| self.now.0 + 1 + self.prng.below(9000));
        self.edit(&[key], |edit, keys| {
            edit.set_expiry(&keys[0], at.map(UnixMs));
        });
        if let Some(entry) = self.model.get_mut(&key) {
            entry.expires_at = at;
        }
    }

    /// RENAME, or COPY.
    fn pass_on(&mut self, from: u64, to: u64) {
        self.touch(from);
        self.touch(to);
        let Some(entry) = self.model.get(&from).cloned().filter(|_| from != to) else { return };
        let copies = self.prng.one_in(2);
        let at = entry.expires_at.map(UnixMs);
        self.edit(&[from, to], |edit, keys| {
            let taken = if copies { edit.copy(&keys[0]) } else { edit.take(&keys[0]) };
            edit.put(&keys[1], taken.expect("the model has it"), at);
        });
        if !copies {
            self.model.remove(&from);
        }
        self.model.insert(to, entry);
    }

    fn overwrite(&mut self, key: u64) {
        self.edit(&[key], |edit, keys| edit.set(&keys[0], NewValue::Int(1), Expiry::Clear));
        self.edit(&[key], |edit, keys| {
            edit.remove(&keys[0]);
        });
        self.model.remove(&key);
    }

    fn sweep(&mut self) {
        self.now.0 += self.prng.below(3000);
        while self.keyspace.enter(0).sweep_expired(self.now, || true, |_, _| {}) == Progress::More {}
        let now = self.now.0;
        let model = std::mem::take(&mut self.model);
        for (key, mut entry) in model {
            let name = key.to_le_bytes();
            let there = self.keyspace.key(DB, &name);
            let batch = self.keyspace.enter(0);
            let view = batch.view(&[there], UnixMs(0), Touch::No);
            let hash = view.read::<Hash>(&there).unwrap();
            if entry.expires_at.is_some_and(|at| at <= now) {
                assert!(hash.is_none() || entry.expires_at.is_some_and(|at| at + LAG_MS > now));
            }
            entry.fields.retain(|field, at| {
                let kept = hash.and_then(|hash| hash.expires_at(field.to_string().as_bytes(), UnixMs(0)));
                let is_over = [*at, entry.expires_at].iter().flatten().any(|at| *at <= now);
                assert!(kept.is_some() || is_over, "freed too early");
                let is_late = [*at, entry.expires_at].iter().flatten().any(|at| at + LAG_MS <= now);
                assert!(kept.is_none() || !is_late, "not freed");
                assert!(kept.is_none_or(|kept| kept.map(|at| at.0) == *at));
                kept.is_some()
            });
            assert_eq!(hash.map_or(0, |hash| hash.len()), entry.fields.len());
            if hash.is_some() {
                assert!(!entry.fields.is_empty(), "a hash without fields");
                self.model.insert(key, entry);
            }
            view.finish();
        }
        assert_eq!(self.keyspace.len(DB), self.model.len() as u64);
    }

    fn run(seed: u64) {
        println!("seed {seed}");
        let prng = Prng::from_seed(seed);
        let mut fuzz = Fuzz { keyspace: new_keyspace(1), model: BTreeMap::new(), prng, now: NOW };
        for _ in 0..4000 {
            let key = fuzz.prng.below(30);
            match fuzz.prng.below(20) {
                0..8 => fuzz.set_fields(key),
                8..11 => fuzz.remove_fields(key),
                11..13 => fuzz.expire_key(key),
                13..15 => {
                    let to = fuzz.prng.below(30);
                    fuzz.pass_on(key, to);
                }
                15 => fuzz.overwrite(key),
                _ => fuzz.sweep(),
            }
        }
        fuzz.now.0 += 60_000;
        fuzz.sweep();
        assert!(fuzz.model.values().all(|entry| entry.fields.values().all(Option::is_none)));
        let database = fuzz.keyspace.database(DB);
        assert!(!database.needs_sweeps(), "keys are counted whose fields do not expire");
    }
}

#[test]
fn fields_are_freed_on_time_whatever_happens_to_their_keys() {
    let seed = std::env::var("TARN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let runs = std::env::var("TARN_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(4);
    (seed..seed + runs).for_each(Fuzz::run);
}

#[test]
fn many_fields_that_expire_at_once_are_freed_in_small_steps() {
    let keyspace = new_keyspace(1);
    let key = keyspace.key(DB, b"hash");
    let batch = keyspace.enter(0);
    let mut edit = batch.edit(&[key], NOW, Touch::Yes);
    let mut hash = edit.open_or_new(&key, Hash::default).unwrap();
    (0..20_000).for_each(|field| set_field(&mut hash, field, Some(NOW.0 + 1000), NOW));
    hash.touch();
    drop(hash);
    edit.finish();
    let later = UnixMs(NOW.0 + 1000 + LAG_MS);
    let mut calls = 0;
    loop {
        let before =
            batch.view(&[key], NOW, Touch::No).read::<Hash>(&key).unwrap().map_or(0, |hash| hash.len());
        let mut steps = 0;
        let one_step = || {
            steps += 1;
            steps == 1
        };
        let progress = batch.sweep_expired(later, one_step, |_, _| panic!("the key itself does not expire"));
        let after =
            batch.view(&[key], NOW, Touch::No).read::<Hash>(&key).unwrap().map_or(0, |hash| hash.len());
        assert!(before - after <= 2 * crate::limits::SWEEP_KEYS_MAX, "{before} {after}");
        calls += 1;
        if progress == Progress::Done {
            break;
        }
    }
    assert!(calls > 50 && keyspace.is_empty(DB));
    assert!(!keyspace.database(DB).needs_sweeps());
}
