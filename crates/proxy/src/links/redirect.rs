//! What a node of a cluster says of a slot that is not its own.

use crate::upstream::Node;

/// Where a request is to be made instead.
#[derive(Debug, PartialEq, Eq)]
pub enum Redirection {
    /// The slot is another's, for good.
    Moved(u16, Node),
    /// This request is to be made elsewhere, behind an ASKING.
    Ask(u16, Node),
}

impl Redirection {
    /// The slot in question.
    pub fn slot(&self) -> u16 {
        match self {
            Redirection::Moved(slot, _) | Redirection::Ask(slot, _) => *slot,
        }
    }
}

/// Reads an error, line end and all. One without a host means the host of the node that says so.
pub fn read(line: &[u8], said_by: &Node) -> Option<Redirection> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix("\r\n")?;
    let [word, slot, place] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
    let slot: u16 = slot.parse().ok().filter(|slot| usize::from(*slot) < wire::SLOTS)?;
    let node = match place.strip_prefix(':') {
        Some(port) => Node { host: said_by.host.clone(), port: port.parse().ok()? },
        // A node that was told to show a name, and has none.
        None => Node::parse(place).ok().filter(|node| node.host != "?")?,
    };
    match word {
        "-MOVED" => Some(Redirection::Moved(slot, node)),
        "-ASK" => Some(Redirection::Ask(slot, node)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_are_told_from_other_errors() {
        let node = |text| Node::parse(text).unwrap();
        let by = node("10.0.0.1:7000");
        let read = |line: &str| read(line.as_bytes(), &by);
        assert_eq!(
            read("-MOVED 3999 10.0.0.2:7001\r\n"),
            Some(Redirection::Moved(3999, node("10.0.0.2:7001")))
        );
        assert_eq!(read("-ASK 0 :7001\r\n"), Some(Redirection::Ask(0, node("10.0.0.1:7001"))));
        assert!(read("-MOVED 1 2001:db8::1:7001\r\n").is_some());
        for line in [
            "-ERR x\r\n",
            "-MOVED 16384 a:1\r\n",
            "-MOVED 1\r\n",
            "-MOVED 1 ?:1\r\n",
            "-MOVED 1 a:1 b\r\n",
            "-MOVED 1 a:1",
            "-MOVED 1 a\rb:1\r\n",
            "-moved 1 a:1\r\n",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
