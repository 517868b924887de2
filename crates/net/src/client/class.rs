//! The classes of clients by the names that commands have for them.

use config::ClientClass;

/// The class that CLIENT LIST TYPE and CLIENT KILL TYPE name. That of the
/// `master` has no limits of its own: `Some(None)`.
pub fn class_from_name(name: &[u8]) -> Option<Option<ClientClass>> {
    Some(match name.to_ascii_lowercase().as_slice() {
        b"normal" => Some(ClientClass::Normal),
        b"slave" | b"replica" => Some(ClientClass::Replica),
        b"pubsub" => Some(ClientClass::Pubsub),
        b"master" => None,
        _ => return None,
    })
}
