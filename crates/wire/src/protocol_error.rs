//! What a session is told when its bytes are no request, in Redis' words.
//!
//! The parser returns it, the session sends [`ProtocolError::line`] after the replies to the requests before
//! it, and closes. Each text was compared with a live redis-server 7.0.15 (see the parser's tests).

/// Bytes that are no request. The session sends [`ProtocolError::line`] as an error reply and closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// The count after `*` is no integer or above 2^31 - 1.
    InvalidMultibulkLength,
    /// The length after `$` is no integer, negative or above `proto-max-bulk-len`.
    InvalidBulkLength,
    /// An argument starts with this byte instead of `$`.
    ExpectedDollar(u8),
    /// No line end within 64 KB after `*`.
    CountLineTooLong,
    /// No line end within 64 KB where `$length` belongs.
    LengthLineTooLong,
    /// No line end within 64 KB of an inline request.
    InlineTooLong,
    /// An inline request with unbalanced quotes.
    UnbalancedQuotes,
    /// More than 10 arguments before authentication.
    UnauthenticatedMultibulkLength,
    /// More than 16 KB in an argument before authentication.
    UnauthenticatedBulkLength,
}

impl ProtocolError {
    /// The error line in Redis' words, without the leading `-` and the line end: `ERR Protocol error: ...`.
    /// An unexpected byte appears as it is, but for a line end, which would end the reply.
    pub fn line(&self) -> Vec<u8> {
        let mut line = b"ERR Protocol error: ".to_vec();
        line.extend_from_slice(self.reason().as_bytes());
        if let ProtocolError::ExpectedDollar(got) = self {
            let shown = if matches!(got, b'\r' | b'\n') { b' ' } else { *got };
            line.extend_from_slice(&[shown, b'\'']);
        }
        line
    }

    fn reason(&self) -> &'static str {
        match self {
            ProtocolError::InvalidMultibulkLength => "invalid multibulk length",
            ProtocolError::InvalidBulkLength => "invalid bulk length",
            ProtocolError::ExpectedDollar(_) => "expected '$', got '",
            ProtocolError::CountLineTooLong => "too big mbulk count string",
            ProtocolError::LengthLineTooLong => "too big bulk count string",
            ProtocolError::InlineTooLong => "too big inline request",
            ProtocolError::UnbalancedQuotes => "unbalanced quotes in request",
            ProtocolError::UnauthenticatedMultibulkLength => "unauthenticated multibulk length",
            ProtocolError::UnauthenticatedBulkLength => "unauthenticated bulk length",
        }
    }
}

impl std::fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.line().escape_ascii())
    }
}

impl std::error::Error for ProtocolError {}
