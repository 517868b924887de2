//! Which requests wait for longer than a stream of requests can.

use crate::generate::Request;

/// Whether a timeout in seconds is a long time, or 0, which is for ever.
pub fn blocks_long(request: &Request) -> bool {
    const LONG_SECONDS: f64 = 0.01;
    let word = match request[0].to_ascii_lowercase().as_slice() {
        b"blmpop" | b"bzmpop" => request.get(1),
        b"bexists" => request.get(2),
        _ => request.last(),
    };
    let Some(word) = word else { return false };
    let text = String::from_utf8_lossy(word);
    let number = text.parse::<f64>().ok();
    number.is_some_and(|number| !(number < 0.0 || number > 0.0 && number < LONG_SECONDS || number > 1e300))
        || text.contains('x') && text.len() > 1
}

/// Whether BLOCK has an operand that is a long time, or 0, which is for ever.
pub fn waits_long(request: &Request) -> bool {
    const LONG_MS: i64 = 10;
    request.windows(2).any(|pair| {
        let number = std::str::from_utf8(&pair[1]).ok().and_then(|text| text.parse::<i64>().ok());
        pair[0].eq_ignore_ascii_case(b"block") && number.is_some_and(|number| number == 0 || number > LONG_MS)
    })
}
