//! The manifest of a Redis' append-only directory: which of its files hold the data, and in which order.
//!
//! A line is pairs of words, `file NAME seq NUMBER type LETTER`, in quotes where a word needs them; a line that begins with `#` is
//! a remark. Letters: `b` the base, of which there is at most one; `i` an increment, with growing numbers; `h` history, which a Redis
//! has not removed yet and nobody needs. Pure.

use std::fmt;

/// Longest line: Redis reads no more of one.
const LINE_BYTES_MAX: usize = 1024;

/// The files that count, by their names in the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// What the increments start from.
    pub base: Option<Vec<u8>>,
    /// What came after it, in order.
    pub increments: Vec<Vec<u8>>,
}

/// Why a manifest is not one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadManifest {
    /// Counted from 1; 0 if it is no line in particular.
    line: usize,
    /// In Redis' words.
    reason: &'static str,
}

impl fmt::Display for BadManifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(self.reason),
            line => write!(f, "line {line}: {}", self.reason),
        }
    }
}

/// A line's three facts.
struct File {
    name: Vec<u8>,
    number: i64,
    kind: Vec<u8>,
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// The first line that is wrong, and what is.
    pub fn parse(text: &[u8]) -> Result<Manifest, BadManifest> {
        let mut manifest = Manifest::default();
        let mut last_number = 0;
        let mut is_empty = true;
        for (index, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
            is_empty = false;
            let read = if line.starts_with(b"#") {
                Ok(())
            } else {
                read_line(line).and_then(|file| manifest.add(file, &mut last_number))
            };
            read.map_err(|reason| BadManifest { line: index + 1, reason })?;
        }
        match is_empty {
            true => Err(BadManifest { line: 0, reason: "Found an empty AOF manifest" }),
            false => Ok(manifest),
        }
    }

    /// All files in the order in which they are read.
    pub fn files(&self) -> impl Iterator<Item = &[u8]> {
        self.base.iter().chain(&self.increments).map(Vec::as_slice)
    }

    fn add(&mut self, file: File, last_number: &mut i64) -> Result<(), &'static str> {
        match &file.kind[..] {
            b"b" if self.base.is_some() => return Err("Found duplicate base file information"),
            b"b" => self.base = Some(file.name),
            b"h" => {}
            b"i" if file.number <= *last_number => return Err("Found a non-monotonic sequence number"),
            b"i" => {
                *last_number = file.number;
                self.increments.push(file.name);
            }
            _ => return Err("Unknown AOF file type"),
        }
        Ok(())
    }
}

const BAD_FORMAT: &str = "Invalid AOF manifest file format";

fn read_line(line: &[u8]) -> Result<File, &'static str> {
    let Some(line) = line.strip_suffix(b"\n").filter(|line| line.len() < LINE_BYTES_MAX) else {
        return Err("The AOF manifest file contains too long line");
    };
    let words = wire::split_words(line).map_err(|_| BAD_FORMAT)?;
    if words.len() < 6 || words.len() % 2 == 1 {
        return Err(BAD_FORMAT);
    }
    let (mut name, mut number, mut kind) = (None, None, None);
    for pair in words.chunks_exact(2) {
        // Words of later versions are passed over.
        match &pair[0].to_ascii_lowercase()[..] {
            b"file" => name = Some(pair[1].clone()),
            b"seq" => number = value::number::parse_i64(&pair[1]),
            b"type" => kind = Some(pair[1].clone()),
            _ => {}
        }
    }
    let (Some(name), Some(number), Some(kind)) = (name, number.filter(|number| *number > 0), kind) else {
        return Err(BAD_FORMAT);
    };
    if name.is_empty() || name.contains(&b'/') || name.contains(&b'\\') {
        return Err("File can't be a path, just a filename");
    }
    Ok(File { name, number, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Manifest::parse(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn files_come_in_order_and_history_does_not() {
        let text = "# a remark\nfile b.rdb seq 2 type b\nfile old seq 1 type h\nfile i1 seq 3 type i\n\
                    seq 7 FILE \"i 2\" type i later word\n";
        let manifest = Manifest::parse(text.as_bytes()).unwrap();
        assert_eq!(manifest.files().collect::<Vec<_>>(), [&b"b.rdb"[..], b"i1", b"i 2"]);
        assert_eq!(Manifest::parse(b"# nothing\n"), Ok(Manifest::default()));
    }

    #[test]
    fn what_redis_refuses_is_refused_in_its_words() {
        assert_eq!(refused(""), "Found an empty AOF manifest");
        assert_eq!(refused("\n"), "line 1: Invalid AOF manifest file format");
        assert_eq!(refused("file a seq 1\n"), "line 1: Invalid AOF manifest file format");
        assert_eq!(refused("file a seq 1 type\n"), "line 1: Invalid AOF manifest file format");
        assert_eq!(refused("file a seq 0 type i\n"), "line 1: Invalid AOF manifest file format");
        assert_eq!(refused("file \"a seq 1 type b\n"), "line 1: Invalid AOF manifest file format");
        assert_eq!(refused("file a seq 1 type b"), "line 1: The AOF manifest file contains too long line");
        assert_eq!(refused("file a/b seq 1 type b\n"), "line 1: File can't be a path, just a filename");
        assert_eq!(refused("file a seq 1 type x\n"), "line 1: Unknown AOF file type");
        let twice = "file a seq 1 type b\nfile c seq 2 type b\n";
        assert_eq!(refused(twice), "line 2: Found duplicate base file information");
        let back = "file a seq 2 type i\nfile c seq 2 type i\n";
        assert_eq!(refused(back), "line 2: Found a non-monotonic sequence number");
    }
}
