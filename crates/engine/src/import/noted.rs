//! Which RDB file lay in a directory when its log began: it was loaded then, or left aside for what was loaded, and says nothing new later,
//! whatever its times are. One that the memory edition has saved since is another.
//!
//! A small file beside the log says it, by the length of the RDB file and its last bytes, which end in a checksum. It goes where all `log-*`
//! go, and where it is missing the files' times decide alone.

use std::fmt::Write;
use std::io;
use std::path::Path;
use sys::file::{Fs, Mode};

const NAME: &str = "log-began-beside";
/// Longest text that is read.
const TEXT_BYTES_MAX: u64 = 1000;
/// How much of an RDB file's end tells it from others.
const END_BYTES: usize = 64;

/// Notes what lies there now. Called when a log begins, before it does.
///
/// # Errors
/// Those of the disk.
pub fn note(dir: &Path, snapshot: &Path) -> io::Result<()> {
    let text = mark_of(snapshot)?.unwrap_or_else(|| "nothing\n".to_owned());
    Fs::Real.replace(&dir.join(NAME), text.as_bytes())
}

/// Whether this file lay there when the log began; None if that is not known.
pub(super) fn lay_there(dir: &Path, snapshot: &Path) -> Option<bool> {
    let noted = Fs::Real.read(&dir.join(NAME), TEXT_BYTES_MAX).ok()?;
    let mark = mark_of(snapshot).ok()??;
    Some(noted == mark.as_bytes())
}

/// What tells a file from others; None if there is none.
fn mark_of(path: &Path) -> io::Result<Option<String>> {
    let file = match Fs::Real.open(path, Mode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let (bytes, mut end) = (file.len()?, [0; END_BYTES]);
    let count = file.read_full_at(&mut end, bytes.saturating_sub(END_BYTES as u64))?;
    let mut text = format!("{bytes} ");
    end[..count].iter().for_each(|byte| write!(text, "{byte:02x}").expect("a string takes all"));
    text.push('\n');
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_content_and_not_by_its_times() {
        let dir = std::env::temp_dir().join(format!("tarn-noted-{}", std::process::id()));
        Fs::Real.create_dir_all(&dir).unwrap();
        let path = dir.join("dump.rdb");
        assert_eq!(lay_there(&dir, &path), None);
        note(&dir, &path).unwrap();
        Fs::Real.write(&path, b"short").unwrap();
        assert_eq!(lay_there(&dir, &path), Some(false));
        note(&dir, &path).unwrap();
        assert_eq!(lay_there(&dir, &path), Some(true));
        for other in [b"shorT".to_vec(), b"short ".to_vec(), vec![b'x'; 100], Vec::new()] {
            Fs::Real.write(&path, &other).unwrap();
            assert_eq!(lay_there(&dir, &path), Some(false));
            note(&dir, &path).unwrap();
            assert_eq!(lay_there(&dir, &path), Some(true));
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
