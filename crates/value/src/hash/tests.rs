//! Hashes against a naive model, in every encoding and across the thresholds, with fields that expire.

use super::*;
use crate::rdb::{Restored, dump, keep, restore};
use std::collections::BTreeMap;
use sys::Prng;

const START: u64 = 1_700_000_000_000;

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    value: Vec<u8>,
    expires_at: Option<UnixMs>,
}

struct Fuzz {
    hash: Hash,
    /// With the fields whose time is up until they are freed.
    model: BTreeMap<Vec<u8>, Entry>,
    thresholds: Thresholds,
    now: UnixMs,
    prng: Prng,
    /// How many different names there are.
    names: u64,
    uses_expiry: bool,
}

impl Fuzz {
    fn new(seed: u64) -> Fuzz {
        let mut prng = Prng::from_seed(seed);
        let thresholds = Thresholds {
            hash_max_listpack_entries: [0, 1, 8, 128][prng.below(4) as usize],
            hash_max_listpack_value: [0, 5, 64, 300][prng.below(4) as usize],
            ..Thresholds::default()
        };
        let names = [4, 20, 200, 3000][prng.below(4) as usize];
        let uses_expiry = prng.one_in(2);
        let now = UnixMs(START);
        Fuzz { hash: Hash::default(), model: BTreeMap::new(), thresholds, now, prng, names, uses_expiry }
    }

    fn name(&mut self) -> Vec<u8> {
        match self.prng.below(self.names) {
            0 => Vec::new(),
            number if number % 7 == 1 => number.to_string().into_bytes(),
            number if number % 50 == 2 => vec![b'n'; 60 + number as usize],
            number => format!("field:{number}").into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        match self.prng.below(10) {
            0 => vec![b'v'; self.prng.below(400) as usize],
            1..4 => (self.prng.next_u64() as i64 >> self.prng.below(64)).to_string().into_bytes(),
            _ => format!("value {}", self.prng.below(100)).into_bytes(),
        }
    }

    fn is_visible(&self, entry: &Entry) -> bool {
        entry.expires_at.is_none_or(|at| at > self.now)
    }

    fn there(&self, name: &[u8]) -> Option<&Entry> {
        self.model.get(name).filter(|entry| self.is_visible(entry))
    }

    fn set(&mut self) {
        let (name, value) = (self.name(), self.value());
        let expiry = if self.prng.one_in(3) { FieldExpiry::Keep } else { FieldExpiry::Clear };
        let kept =
            self.there(&name).and_then(|entry| entry.expires_at).filter(|_| expiry == FieldExpiry::Keep);
        let expected = if self.there(&name).is_some() { Set::Replaced } else { Set::Added };
        assert_eq!(self.hash.set(&name, &value, expiry, &self.thresholds, self.now), expected);
        self.model.insert(name, Entry { value, expires_at: kept });
    }

    fn remove(&mut self) {
        let name = self.name();
        let was_there = self.there(&name).is_some();
        assert_eq!(self.hash.remove(&name, self.now), was_there);
        if was_there {
            self.model.remove(&name);
        }
    }

    fn expire(&mut self) {
        let name = self.name();
        let at = match self.prng.below(20) {
            0 => UnixMs(self.prng.next_u64() >> 1),
            1 => UnixMs(self.prng.below(START)),
            2..6 => UnixMs(self.now.0 + self.prng.below(1 << 34)),
            _ => UnixMs(self.now.0 + self.prng.below(5000)),
        };
        let expires_at = if self.prng.one_in(5) { None } else { Some(at) };
        if let Some(entry) = self.model.get_mut(&name) {
            entry.expires_at = expires_at;
            self.hash.set_expiry(&name, expires_at);
        }
    }

    /// Time goes by, and what is due is freed.
    fn sweep(&mut self) {
        self.now.0 += self.prng.below(2000);
        let most = 1 + self.prng.below(50) as usize;
        loop {
            let (freed, removed) = self.hash.remove_expired(self.now, most, |_| {});
            assert!(freed <= 64 * most);
            if removed == Removed::All {
                break;
            }
        }
        // What has been due for longer than the timers' unit is gone.
        let (now, lag) = (self.now.0, 1024);
        self.model.retain(|name, entry| {
            let is_gone = self.hash.as_ref().expires_at(name, UnixMs(0)).is_none();
            let at = entry.expires_at.map_or(u64::MAX, |at| at.0);
            assert!(!is_gone || at <= now, "freed too early");
            assert!(is_gone || at.saturating_add(lag) > now, "not freed");
            !is_gone
        });
    }

    fn scan(&mut self) {
        let (mut seen, mut cursor) = (BTreeMap::new(), 0);
        loop {
            let count = 1 + self.prng.below(30) as usize;
            let (hash, now) = (self.hash.as_ref(), self.now);
            cursor = hash.scan(cursor, count, now, |name, value| {
                seen.insert(name.to_vec(), value.to_vec());
            });
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(seen, self.visible());
    }

    fn visible(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let visible = self.model.iter().filter(|(_, entry)| self.is_visible(entry));
        visible.map(|(name, entry)| (name.clone(), entry.value.clone())).collect()
    }

    fn image(&mut self) {
        if self.model.is_empty() {
            return;
        }
        let payload = dump(CollectionRef::Hash(self.hash.as_ref()));
        let Ok(Restored::Collection(Collection::Hash(hash))) = restore(&payload, &self.thresholds) else {
            panic!("what was written is not read");
        };
        self.hash = if self.prng.one_in(2) { hash } else { hash.as_ref().to_owned() };
    }

    fn check(&mut self) {
        let (hash, now) = (self.hash.as_ref(), self.now);
        if let HashRef::Table(fields) = hash {
            fields.check();
        }
        let mut seen = BTreeMap::new();
        hash.for_each(now, |name, value| {
            assert!(seen.insert(name.to_vec(), value.to_vec()).is_none());
        });
        let visible = self.visible();
        assert_eq!(seen, visible);
        assert_eq!((hash.len(), hash.visible(now)), (self.model.len(), visible.len()));
        for name in [self.name(), self.name()] {
            let entry = self.there(&name).cloned();
            let hash = self.hash.as_ref();
            assert_eq!(hash.get(&name, now).map(Element::to_vec), entry.clone().map(|entry| entry.value));
            assert_eq!(hash.expires_at(&name, now), entry.map(|entry| entry.expires_at));
        }
        let prng = &mut self.prng;
        match self.hash.as_ref().random(now, || prng.next_u64()) {
            Some((name, value)) => assert_eq!(visible.get(&name.to_vec()), Some(&value.to_vec())),
            None => assert!(visible.is_empty()),
        }
        let first = self.model.values().filter_map(|entry| entry.expires_at).min();
        let next = self.hash.as_ref().next_expiry();
        assert_eq!(first.is_some(), next.is_some());
        assert!(first.is_none_or(|first| next.is_some_and(|next| next.0 < first.0.max(START).saturating_add(1024))));
    }

    fn run(seed: u64, steps: u64) {
        println!("seed {seed}");
        let mut fuzz = Fuzz::new(seed);
        for step in 0..steps {
            match fuzz.prng.below(40) {
                0..20 => fuzz.set(),
                20..30 => fuzz.remove(),
                30..36 if fuzz.uses_expiry => fuzz.expire(),
                36 if fuzz.uses_expiry => fuzz.sweep(),
                37 => fuzz.scan(),
                38 => fuzz.image(),
                _ => {}
            }
            if step % 16 == 0 {
                fuzz.check();
            }
        }
    }
}

#[test]
fn hashes_are_as_their_model_in_every_encoding() {
    let seed = std::env::var("TARN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let runs = std::env::var("TARN_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(20);
    (seed..seed + runs).for_each(|seed| Fuzz::run(seed, 1500));
}

fn set(hash: &mut Hash, name: &str, value: &str) {
    hash.set(name.as_bytes(), value.as_bytes(), FieldExpiry::Clear, &Thresholds::default(), UnixMs(START));
}

#[test]
fn a_hash_becomes_a_table_beyond_either_threshold() {
    let mut hash = Hash::default();
    (0..128).for_each(|number| set(&mut hash, &number.to_string(), "v"));
    set(&mut hash, "7", &"v".repeat(64));
    assert_eq!(hash.as_ref().encoding(), Encoding::Listpack);
    let mut long = hash.clone();
    set(&mut hash, "128", "v");
    assert_eq!(hash.as_ref().encoding(), Encoding::Hashtable);
    set(&mut long, "7", &"v".repeat(65));
    assert_eq!(long.as_ref().encoding(), Encoding::Hashtable);
    let mut named = Hash::default();
    set(&mut named, &"n".repeat(65), "v");
    assert_eq!(named.as_ref().encoding(), Encoding::Hashtable);
}

#[test]
fn fields_that_expire_at_once_are_freed_in_small_steps() {
    let mut fields = Fields::default();
    let at = UnixMs(START + 1000);
    for number in 0..20_000u32 {
        fields.set(&number.to_le_bytes(), b"v", Some(at));
    }
    let (mut steps, now) = (0, UnixMs(START + 2000));
    assert_eq!(fields.visible(now), 0);
    assert!(fields.random(now, || 7).is_none());
    loop {
        let (freed, removed) = fields.remove_expired(now, 256, |_| {});
        assert!(freed <= 2560, "{freed}");
        steps += 1;
        if removed == Removed::All {
            break;
        }
    }
    assert!(fields.is_empty() && fields.next_expiry().is_none() && steps > 50);
}

#[test]
fn expiries_of_any_age_have_timers() {
    let mut fields = Fields::default();
    for at in [0, 1, START, START + 5000, 1 << 45, i64::MAX as u64] {
        fields.set(&at.to_le_bytes(), b"v", Some(UnixMs(at)));
    }
    fields.check();
    assert_eq!(fields.remove_expired(UnixMs(START + 1024), 100, |_| {}), (3, Removed::All));
    assert!(fields.next_expiry().is_some_and(|at| (START + 5000..START + 5600).contains(&at.0)));
    assert_eq!(fields.remove_expired(UnixMs(START + 9000), 100, |_| {}), (1, Removed::All));
    assert_eq!(fields.len(), 2);
    fields.check();
}

fn read(body: &[u8]) -> Option<Hash> {
    let mut payload = [body, &10u16.to_le_bytes()].concat();
    payload.extend_from_slice(&crate::crc64::crc64(0, &payload).to_le_bytes());
    match restore(&payload, &Thresholds::default()) {
        Ok(Restored::Collection(Collection::Hash(hash))) => Some(hash),
        Ok(other) => panic!("no hash: {other:?}"),
        Err(_) => None,
    }
}

fn texts(hash: &Hash) -> String {
    let mut all = Vec::new();
    hash.as_ref().for_each(UnixMs(0), |name, value| {
        let at = hash.as_ref().expires_at(&name.to_vec(), UnixMs(0)).unwrap().map_or(0, |at| at.0);
        all.push(format!("{}={}@{at}", name.to_vec().escape_ascii(), value.to_vec().escape_ascii()));
    });
    all.sort_unstable();
    all.join(" ")
}

#[test]
fn old_and_newer_images_are_read() {
    let zipmap = read(b"\x09\x10\x02\x03one\x011\x021\0\x03two\x012\0\x00\xff");
    assert!(zipmap.is_none(), "bytes that are said to be unused and are not there");
    let zipmap = read(b"\x09\x12\x02\x03one\x01\x021xx\x03two\x01\x002\xff").unwrap();
    assert_eq!((texts(&zipmap), zipmap.as_ref().encoding()), ("one=1@0 two=2@0".into(), Encoding::Listpack));
    let early = read(b"\x16\x02\x05\x01a\x01b\x00\x01c\x01d").unwrap();
    assert_eq!(texts(&early), "a=b@5 c=d@0");
    let timed = read(b"\x18\x07\0\0\0\0\0\0\0\x02\x03\x01a\x01b\x01\x01c\x01d").unwrap();
    assert_eq!((texts(&timed), timed.as_ref().encoding()), ("a=b@9 c=d@7".into(), Encoding::Hashtable));
    let mut listpack = Listpack::new();
    ["a", "b", "9", "c", "d", "0"].iter().for_each(|text| listpack.push_back(text.as_bytes()));
    let listpack = listpack.into_bytes();
    let body = [b"\x19\x09\0\0\0\0\0\0\0".as_slice(), &[listpack.len() as u8], &listpack].concat();
    assert_eq!(texts(&read(&body).unwrap()), "a=b@9 c=d@0");
    assert_eq!(texts(&read(&[b"\x17", &body[9..]].concat()).unwrap()), "a=b@9 c=d@0");
}

#[test]
fn hostile_images_are_refused() {
    let doubled = b"\x04\x02\x01a\x01b\x01a\x01c";
    for body in [&b"\x04\0"[..], doubled, b"\x04\x80\xff\xff\xff\xff\x01a\x01b", b"\x09\x01\xff", b"\x10\x00"]
    {
        assert!(read(body).is_none(), "{body:?}");
    }
    let mut odd = Listpack::new();
    odd.push_back(b"a");
    let odd = odd.into_bytes();
    assert!(read(&[&[16, odd.len() as u8], &odd[..]].concat()).is_none());
    let mut prng = Prng::from_seed(3);
    let mut good = Vec::new();
    for round in 0..4000 {
        let mut hash = Hash::default();
        (0..1 + prng.below(6)).for_each(|number| set(&mut hash, &format!("f{number}"), "value"));
        if round % 2 == 0 {
            hash.set_expiry(b"f0", Some(UnixMs(START)));
        }
        good.clear();
        hash.as_ref().write_image(&mut good, &mut keep);
        for _ in 0..1 + prng.below(3) {
            let at = prng.below(good.len() as u64) as usize;
            good[at] = prng.next_u64() as u8;
        }
        if round % 3 == 0 {
            good[0] = Hash::IMAGE_TYPES[prng.below(8) as usize];
        }
        if Hash::IMAGE_TYPES.contains(&good[0])
            && let Some(hash) = read(&good)
        {
            assert!(!hash.is_empty());
            texts(&hash);
        }
    }
}
