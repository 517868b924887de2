//! Whether replicas may have been sent what is not on disk here, as a start has to know of it.
//!
//! Where the log does not sync at once replicas are sent what it has written, and what is in no file where it rests. A power cut takes that
//! back, and what is written in its place is not what they have, at the same offsets. How the log syncs after the start says nothing of how it did
//! before; so a file says so, from before the first such byte on, until a start has begun a stream of another name.

use crate::server::Server;
use ::log::SyncPolicy;
use engine::durability;
use std::io;
use std::path::PathBuf;

/// The file's name in the server's directory. It is empty.
const NAME: &str = "replicas-ahead-of-disk";

fn path(server: &Server) -> PathBuf {
    server.engine.dir().join(NAME)
}

/// Whether the run before, or this one, may have sent replicas what a power cut takes back.
pub fn is_noted(server: &Server) -> bool {
    server.engine.fs().kind(&path(server)).is_ok_and(|kind| kind.is_some())
}

/// Says so, if it may from now on by what is configured. To be called before.
///
/// # Errors
/// If the disk refuses.
pub fn note(server: &Server) -> io::Result<()> {
    let policy = durability::policy(&server.engine.config);
    let has_log = policy.is_some() || server.engine.durability.log().is_some();
    match has_log && policy != Some(SyncPolicy::Always) && !is_noted(server) {
        true => server.engine.fs().replace(&path(server), b""),
        false => Ok(()),
    }
}

/// The stream has another name on disk, which nobody has heard yet.
pub fn forget(server: &Server) {
    // What stays costs another name.
    let _ = server.engine.fs().remove(&path(server));
}
