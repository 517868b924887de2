//! Replies that a socket has not taken yet: a queue of bytes.

/// Below this, what was sent is cut off in front only when all is sent.
const COMPACT_BYTES: usize = 64 << 10;

/// Bytes waiting to be written, oldest first.
#[derive(Debug, Default)]
pub struct Pending {
    bytes: Vec<u8>,
    sent: usize,
}

impl Pending {
    /// What is waiting.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// How much is waiting.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Whether nothing is waiting.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds bytes at the end.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Notes that the first `count` bytes were written. Memory goes back when
    /// all were.
    pub fn sent(&mut self, count: usize) {
        self.sent += count;
        assert!(self.sent <= self.bytes.len(), "no more is sent than was waiting");
        if self.is_empty() {
            *self = Pending::default();
        } else if self.sent > COMPACT_BYTES && self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.bytes.shrink_to(2 * self.bytes.len());
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_the_order_they_came() {
        let mut pending = Pending::default();
        let mut out = Vec::new();
        for round in 0..1000u32 {
            pending.extend(&vec![round as u8; 1000]);
            let count = pending.len().min(701);
            out.extend_from_slice(&pending.bytes()[..count]);
            pending.sent(count);
        }
        out.extend_from_slice(pending.bytes());
        let expected: Vec<u8> = (0..1000u32).flat_map(|round| vec![round as u8; 1000]).collect();
        assert!(out == expected);
    }
}
