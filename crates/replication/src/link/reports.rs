//! What a replica says to its master while it follows: how far it has come, and that it is alive.
//!
//! As Redis' replica does (`replicationCron`, `replicationSendAck` and `replicationSendNewlineToMaster` in `replication.c` of 7.2.6):
//! - `REPLCONF ACK <offset>` once a second, and at once when the stream begins: a master that streamed its RDB holds its stream
//!   back until the first one. Where something has come since, it does not wait for its second: a master that says a PING once a
//!   second, and waits for all that it has said (FAILOVER), would never hear of the last one if both kept step.
//! - `FACK <offset>` behind it where the replica makes what it applies durable (WAITAOF, Redis 7.2). Masters before that
//!   leave it unread, so that it needs no capability.
//! - A line end once a second while the RDB is loaded, which the master takes as a sign of life and does not answer.
//!
//! The answer to `REPLCONF GETACK *` is an [`acknowledgement`] too, and does not wait for its second.

use crate::insync::Moment;
use std::time::Duration;
use wire::encode_request;

/// Between two reports of the same.
const PERIOD: Duration = Duration::from_secs(1);

/// The same where there is something new to tell.
const NEWS_PERIOD: Duration = Duration::from_millis(100);

/// What there is to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The RDB is coming or being loaded.
    Loading,
    /// The stream is followed.
    Following {
        /// Bytes of the stream that are applied.
        applied: u64,
        /// Bytes of it that are durable here, where that is promised at all.
        durable: Option<u64>,
    },
}

/// When the next report is due.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reports {
    /// The last one, and when.
    last: Option<(Moment, Report)>,
}

impl Reports {
    /// On a new connection nothing was told.
    #[must_use]
    pub fn new() -> Reports {
        Reports::default()
    }

    /// The bytes to send now; nothing if a report is not due. Call again at [`Reports::due`].
    pub fn step(&mut self, now: Moment, report: Report) -> Vec<u8> {
        if now < self.due(now, report) {
            return Vec::new();
        }
        self.last = Some((now, report));
        match report {
            Report::Loading => b"\n".to_vec(),
            Report::Following { applied, durable } => acknowledgement(applied, durable),
        }
    }

    /// When the next report is due: `now` if one of this kind was never made.
    #[must_use]
    pub fn due(&self, now: Moment, report: Report) -> Moment {
        match self.last {
            Some((last, before)) if before == report => last.plus(PERIOD),
            Some((last, before)) if is_following(before) == is_following(report) => last.plus(NEWS_PERIOD),
            _ => now,
        }
    }
}

fn is_following(report: Report) -> bool {
    matches!(report, Report::Following { .. })
}

/// `REPLCONF ACK`, with FACK where something is `durable`.
#[must_use]
pub fn acknowledgement(applied: u64, durable: Option<u64>) -> Vec<u8> {
    let mut out = Vec::new();
    let applied = applied.to_string();
    match durable {
        None => encode_request(&mut out, &[b"REPLCONF", b"ACK", applied.as_bytes()]),
        Some(durable) => {
            let durable = durable.to_string();
            encode_request(&mut out, &[b"REPLCONF", b"ACK", applied.as_bytes(), b"FACK", durable.as_bytes()]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_come_once_a_second_and_at_once_when_the_stream_begins() {
        let mut reports = Reports::new();
        assert_eq!(reports.step(Moment(5), Report::Loading), b"\n");
        assert_eq!(reports.step(Moment(1_000_004), Report::Loading), b"");
        assert_eq!(reports.step(Moment(1_000_005), Report::Loading), b"\n");
        let following = Report::Following { applied: 7, durable: None };
        let sent = reports.step(Moment(1_000_006), following);
        assert_eq!(sent, b"*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n$1\r\n7\r\n");
        assert_eq!(reports.due(Moment(1_000_007), following), Moment(2_000_006));
        assert_eq!(reports.step(Moment(2_000_005), following), b"");
        // A long pause brings one report, not one for each second.
        assert_eq!(reports.step(Moment(9_000_000), following), sent);
        assert_eq!(reports.step(Moment(9_000_001), following), b"");
        let further = Report::Following { applied: 8, durable: None };
        assert_eq!(reports.due(Moment(9_000_001), further), Moment(9_100_000));
        assert!(reports.step(Moment(9_100_000), further).ends_with(b"\r\n8\r\n"));
    }

    #[test]
    fn what_is_durable_stands_behind_what_is_applied() {
        assert_eq!(
            acknowledgement(12, Some(0)),
            b"*5\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n$2\r\n12\r\n$4\r\nFACK\r\n$1\r\n0\r\n"
        );
    }
}
