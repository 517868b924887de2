//! Names of servers and shards.

use std::fmt;
use std::str::FromStr;

/// Which server it is, whatever its address: 40 hexadecimal digits, as the id of a node of Redis Cluster. It lies in the server's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId([u8; 20]);

impl ServerId {
    /// From random bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 20]) -> ServerId {
        ServerId(bytes)
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// The text names no server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoId;

impl FromStr for ServerId {
    type Err = NoId;

    fn from_str(text: &str) -> Result<ServerId, NoId> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 20];
        if text.len() != 2 * bytes.len() {
            return Err(NoId);
        }
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let (high, low) = (digit(pair[0]).ok_or(NoId)?, digit(pair[1]).ok_or(NoId)?);
            *byte = high << 4 | low;
        }
        Ok(ServerId(bytes))
    }
}

/// The number of a shard in its cluster. Never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

impl ShardId {
    /// No shard has this number, nor a higher one.
    pub const END: ShardId = ShardId(u16::MAX);
}

impl fmt::Display for ShardId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_forty_small_hexadecimal_digits() {
        let text = "00ff10a9b8c7d6e5f40312213243546576879809";
        assert_eq!(text.parse::<ServerId>().map(|id| id.to_string()), Ok(text.to_owned()));
        for wrong in ["", &text[1..], &format!("{text}0"), &text.to_uppercase(), &text.replace('f', "g")] {
            assert_eq!(wrong.parse::<ServerId>(), Err(NoId), "{wrong}");
        }
    }
}
