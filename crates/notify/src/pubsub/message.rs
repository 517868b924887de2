//! A message as bytes, encoded once for all who get it.

use wire::{Protocol, Reply};

/// An array in RESP2; in RESP3 a push, which differs in its first byte only.
pub struct Message(Vec<u8>);

impl Message {
    /// Bulk strings one after the other.
    pub fn of_words(words: &[&[u8]]) -> Message {
        const HEADER_BYTES: usize = 16;
        let length = words.iter().map(|word| word.len() + HEADER_BYTES).sum::<usize>() + HEADER_BYTES;
        let mut bytes = Vec::with_capacity(length);
        let mut reply = Reply::new(&mut bytes, Protocol::Resp2);
        reply.array(words.len());
        words.iter().for_each(|word| reply.bulk(word));
        Message(bytes)
    }

    /// Appends it in a protocol.
    #[inline]
    pub fn write_to(&self, out: &mut Vec<u8>, protocol: Protocol) {
        let at = out.len();
        out.extend_from_slice(&self.0);
        if protocol == Protocol::Resp3 {
            out[at] = b'>';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocols_differ_in_the_first_byte_only() {
        let message = Message::of_words(&[b"message", b"c", b"hi"]);
        let mut out = Vec::new();
        message.write_to(&mut out, Protocol::Resp2);
        message.write_to(&mut out, Protocol::Resp3);
        let body = "3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), format!("*{body}>{body}"));
    }
}
