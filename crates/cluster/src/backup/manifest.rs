//! What a backup is of: `manifest.json` in its directory. It is written last, so that a directory without one holds no backup.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::path::Path;
use sys::file::{Fs, Kind};
use topology::{ShardId, SlotRange};

/// The file's name.
pub const NAME: &str = "manifest.json";
/// Its version.
const FORMAT: u64 = 1;
/// The longest that is read: of a thousand shards with scattered slots.
const BYTES_MAX: u64 = 8 << 20;

/// What a backup is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The cluster's id.
    pub cluster: String,
    /// The revision of its topology.
    pub revision: u64,
    /// When it was taken, by the clock of the machine on which the tool ran: nothing goes by it.
    pub taken_ms: u64,
    /// The shards that had slots.
    pub shards: Vec<ShardFile>,
}

/// A shard's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardFile {
    /// Its number then.
    pub shard: ShardId,
    /// Its slots.
    pub slots: Vec<SlotRange>,
    /// The name of its file, in the same directory.
    pub file: String,
    /// How long that is.
    pub bytes: u64,
    /// Its SHA-256.
    pub sha256: String,
    /// The name of the shard's stream.
    pub stream: String,
    /// Where in the stream the RDB stands.
    pub from: u64,
    /// Up to where it is contained.
    pub until: u64,
    /// The shard's epoch.
    pub epoch: u64,
    /// Keys in the RDB.
    pub keys: u64,
    /// What the servers hold their data in.
    pub edition: String,
}

/// SHA-256 in hexadecimal digits.
pub fn hexadecimal(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What never ends to be read, or begins, is no part of a backup.
///
/// # Errors
/// It is something else than a file.
pub fn refuse_what_is_no_file(path: &Path) -> Result<(), String> {
    match Fs::Real.kind(path) {
        Ok(Some(Kind::Directory | Kind::Other)) => Err(format!("{} is no file", path.display())),
        // Whoever reads it says so.
        Ok(Some(Kind::File) | None) | Err(_) => Ok(()),
    }
}

impl Manifest {
    fn to_json(&self) -> Value {
        let shards = self.shards.iter().map(|one| {
            let slots: Vec<Value> = one.slots.iter().map(|range| json!([range.first, range.last])).collect();
            json!({
                "shard": one.shard.0, "slots": slots, "file": one.file, "bytes": one.bytes, "sha256": one.sha256,
                "stream": one.stream, "from": one.from, "until": one.until, "epoch": one.epoch, "keys": one.keys,
                "edition": one.edition,
            })
        });
        json!({
            "cluster": self.cluster, "revision": self.revision, "taken_ms": self.taken_ms,
            "written_by": concat!("tarn ", env!("CARGO_PKG_VERSION")), "shards": shards.collect::<Vec<_>>(),
        })
    }

    /// Writes it, whole or not at all.
    pub fn write(&self, dir: &Path) -> Result<(), String> {
        let backup = self.to_json();
        let sum = hexadecimal(&Sha256::digest(backup.to_string().as_bytes()));
        let text = format!("{:#}\n", json!({ "format": FORMAT, "backup": backup, "sha256": sum }));
        let path = dir.join(NAME);
        let written = Fs::Real.replace(&path, text.as_bytes());
        written.map_err(|error| format!("{} cannot be written: {error}", path.display()))
    }

    /// Reads it.
    ///
    /// # Errors
    /// One sentence.
    pub fn read(dir: &Path) -> Result<Manifest, String> {
        let path = dir.join(NAME);
        refuse_what_is_no_file(&path)?;
        let text = Fs::Real.read(&path, BYTES_MAX).map_err(|error| {
            format!("{} cannot be read ({error}): a backup is whole when it has one", path.display())
        })?;
        let shown = path.display();
        let damaged = || format!("{shown} is damaged, or no manifest of a backup");
        let json: Value = serde_json::from_slice(&text).map_err(|_| damaged())?;
        match json["format"].as_u64() {
            Some(FORMAT) => {}
            Some(format) => {
                return Err(format!(
                    "{shown} is of format {format}, and this version knows format {FORMAT}: use the program that wrote it"
                ));
            }
            None => return Err(damaged()),
        }
        let sum = hexadecimal(&Sha256::digest(json["backup"].to_string().as_bytes()));
        if json["sha256"].as_str() != Some(&sum) {
            return Err(damaged());
        }
        Manifest::from_json(&json["backup"]).filter(Manifest::is_sound).ok_or_else(damaged)
    }

    /// Whether there are shards, each with a file of its own, and no slot is two shards'.
    fn is_sound(&self) -> bool {
        let (mut shards, mut files, mut slots) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let are_new = self.shards.iter().all(|one| {
            shards.insert(one.shard)
                && files.insert(&one.file)
                && one.slots.iter().flat_map(|range| range.slots()).all(|slot| slots.insert(slot))
        });
        are_new && !self.shards.is_empty()
    }

    fn from_json(json: &Value) -> Option<Manifest> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let slots = |value: &Value| {
            let ranges = value.as_array()?.iter().map(|range| {
                let end = |at: usize| u16::try_from(range[at].as_u64()?).ok();
                let range = SlotRange { first: end(0)?, last: end(1)? };
                (range.first <= range.last && usize::from(range.last) < wire::SLOTS).then_some(range)
            });
            ranges.collect::<Option<Vec<SlotRange>>>()
        };
        let shards = json["shards"].as_array()?.iter().map(|one| {
            let file = text(&one["file"]).filter(|name| !name.contains(['/', '\\']) && name != "..")?;
            Some(ShardFile {
                shard: ShardId(u16::try_from(one["shard"].as_u64()?).ok()?),
                slots: slots(&one["slots"])?,
                file,
                bytes: one["bytes"].as_u64()?,
                sha256: text(&one["sha256"])?,
                stream: text(&one["stream"])?,
                from: one["from"].as_u64()?,
                until: one["until"].as_u64()?,
                epoch: one["epoch"].as_u64()?,
                keys: one["keys"].as_u64()?,
                edition: text(&one["edition"])?,
            })
        });
        Some(Manifest {
            cluster: text(&json["cluster"])?,
            revision: json["revision"].as_u64()?,
            taken_ms: json["taken_ms"].as_u64()?,
            shards: shards.collect::<Option<Vec<_>>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Manifest {
        let one = ShardFile {
            shard: ShardId(3),
            slots: vec![SlotRange { first: 0, last: 99 }],
            file: "shard-3.aof".to_owned(),
            bytes: 7,
            sha256: "ab".to_owned(),
            stream: "cd".to_owned(),
            from: 1,
            until: 2,
            epoch: 4,
            keys: 5,
            edition: "memory".to_owned(),
        };
        Manifest { cluster: "c".to_owned(), revision: 8, taken_ms: 9, shards: vec![one] }
    }

    #[test]
    fn what_is_written_is_read_and_damage_and_the_future_are_refused() {
        let dir = tempfile::tempdir().expect("there is room");
        let path = dir.path().join(NAME);
        assert!(
            Manifest::read(dir.path()).is_err_and(|why| why.contains("a backup is whole when it has one"))
        );
        example().write(dir.path()).expect("there is room");
        assert_eq!(Manifest::read(dir.path()), Ok(example()));
        let text = Fs::Real.read(&path, BYTES_MAX).expect("it is there");
        let text = String::from_utf8(text).expect("it is text");
        for (from, to, why) in [
            ("\"keys\": 5", "\"keys\": 6", "damaged"),
            ("\"format\": 1", "\"format\": 2", "is of format 2"),
            ("{", "", "damaged"),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text);
            Fs::Real.replace(&path, changed.as_bytes()).expect("there is room");
            assert!(Manifest::read(dir.path()).is_err_and(|said| said.contains(why)), "{why}");
        }
    }
}
