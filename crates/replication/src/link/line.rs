//! Lines that arrive in any pieces: what a master says before the RDB begins.
//!
//! A line ends with a line feed; a carriage return before it belongs to the end. Both are as Redis reads them (`syncReadLine`).

use super::ending::Ending;
use super::limits::LINE_BYTES_MAX;

/// The beginning of a line whose end has not arrived.
#[derive(Debug, Default)]
pub(super) struct Line {
    begun: Vec<u8>,
}

impl Line {
    /// Takes bytes up to the end of a line: how many, and the line if it is whole.
    ///
    /// # Errors
    /// If it is longer than [`LINE_BYTES_MAX`].
    pub fn take(&mut self, bytes: &[u8]) -> Result<(usize, Option<Vec<u8>>), Ending> {
        let end = memchr::memchr(b'\n', bytes);
        let rest = &bytes[..end.unwrap_or(bytes.len())];
        if self.begun.len() + rest.len() > LINE_BYTES_MAX {
            self.begun = Vec::new();
            return Err(Ending::new(format!("The master sent a line of more than {LINE_BYTES_MAX} bytes.")));
        }
        self.begun.extend_from_slice(rest);
        let Some(end) = end else { return Ok((bytes.len(), None)) };
        let mut line = std::mem::take(&mut self.begun);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok((end + 1, Some(line)))
    }
}
