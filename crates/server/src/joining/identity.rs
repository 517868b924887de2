//! Who a server of a cluster is: its id, and the cluster's, in a file of its directory.

use std::io;
use std::path::{Path, PathBuf};
use sys::Prng;
use sys::file::Fs;
use topology::ServerId;

/// The file's name in the server's directory.
const NAME: &str = "cluster-id";

/// The longest file that is read.
const BYTES_MAX: u64 = 1024;

/// Who this server is.
pub struct Identity {
    path: PathBuf,
    /// Its id, drawn when its directory was new.
    pub id: ServerId,
    /// The cluster that it is in; None: it has joined none yet.
    pub cluster: Option<String>,
}

impl Identity {
    /// What is kept in a directory; where there is nothing, an id is drawn and kept.
    ///
    /// # Errors
    /// Those of the disk; the file is damaged: who this is cannot be guessed.
    pub fn open(dir: &Path) -> io::Result<Identity> {
        let path = dir.join(NAME);
        if Fs::Real.kind(&path)?.is_some() {
            let bytes = Fs::Real.read(&path, BYTES_MAX)?;
            let (id, cluster) = read(&bytes).ok_or_else(|| damaged(&path))?;
            return Ok(Identity { path, id, cluster });
        }
        let mut random = Prng::from_entropy();
        let mut bytes = [0; 20];
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&random.next_u64().to_le_bytes()[..part.len()]);
        }
        let identity = Identity { path, id: ServerId::from_bytes(bytes), cluster: None };
        identity.keep()?;
        Ok(identity)
    }

    /// Whether a directory holds one.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn is_kept(dir: &Path) -> io::Result<bool> {
        Ok(Fs::Real.kind(&dir.join(NAME))?.is_some())
    }

    /// Keeps that it is in this cluster.
    ///
    /// # Errors
    /// Those of the disk; it is in another.
    pub fn join(&mut self, cluster: &str) -> io::Result<()> {
        match &self.cluster {
            Some(own) if own == cluster => return Ok(()),
            Some(own) => {
                return Err(io::Error::other(format!(
                    "the config server is of cluster {cluster}, and the data here of cluster {own}"
                )));
            }
            None => {}
        }
        self.cluster = Some(cluster.to_owned());
        self.keep().inspect_err(|_| self.cluster = None)
    }

    fn keep(&self) -> io::Result<()> {
        let cluster = self.cluster.as_deref().unwrap_or("-");
        Fs::Real.replace(&self.path, format!("tarn-server 1 {} {cluster}\n", self.id).as_bytes())
    }
}

fn read(bytes: &[u8]) -> Option<(ServerId, Option<String>)> {
    let line = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let (id, cluster) = line.strip_prefix("tarn-server 1 ")?.split_once(' ')?;
    let cluster = match cluster {
        "-" => None,
        // A cluster's id has the same form.
        some => Some(some.parse::<ServerId>().ok()?.to_string()),
    };
    Some((id.parse().ok()?, cluster))
}

fn damaged(path: &Path) -> io::Error {
    let text = format!(
        "{} is damaged, so that it is not known which server of a cluster this is; without the file it comes as a new one",
        path.display()
    );
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_it_is_is_kept_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut first = Identity::open(dir.path()).expect("it is new");
        let cluster = "c0ffee0000000000000000000000000000000001";
        first.join(cluster).expect("it is in none yet");
        let again = Identity::open(dir.path()).expect("it is whole");
        assert_eq!((again.id, again.cluster.as_deref()), (first.id, Some(cluster)));
        assert!(first.join(cluster).is_ok());
        assert!(first.join("c0ffee0000000000000000000000000000000002").is_err());
        for damage in ["", "tarn-server 1 - -\n", "tarn-server 2 a b\n"] {
            std::fs::write(dir.path().join(NAME), damage).expect("it can be written");
            assert!(Identity::open(dir.path()).is_err(), "{damage}");
        }
    }
}
