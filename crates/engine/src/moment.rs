//! Moments as people read them.

use jiff::Timestamp;
use std::fmt;
use sys::UnixMs;

/// A moment in RFC 3339.
pub struct Moment(pub UnixMs);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match i64::try_from(self.0.0).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()) {
            Some(time) => write!(f, "{time:.3}"),
            None => write!(f, "@{}", self.0.0),
        }
    }
}
