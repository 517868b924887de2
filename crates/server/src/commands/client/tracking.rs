//! CLIENT TRACKING, CACHING, TRACKINGINFO and GETREDIR.

use crate::dispatch::Context;
use crate::server::Server;
use command::{Error, Result};
use notify::tracking::{Mode, OwnChanges, Reads, Tracker};
use std::collections::BTreeSet;
use wire::{Reply, Request};

/// The words behind CLIENT TRACKING ON | OFF.
#[derive(Default)]
struct Options<'a> {
    redirection: Option<u64>,
    broadcasts: bool,
    opts_in: bool,
    opts_out: bool,
    knows_own_changes: bool,
    prefixes: Vec<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(server: &Server, request: &Request<'a>) -> Result<Options<'a>> {
        let mut options = Options::default();
        let mut at = 3;
        while let Some(word) = request.get(at) {
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            match request.get(at + 1) {
                Some(id) if is("redirect") => {
                    if options.redirection.is_some() {
                        return Err(Error::text("ERR A client can only redirect to a single other client"));
                    }
                    options.redirection = Some(existing_client(server, id)?);
                    at += 1;
                }
                Some(prefix) if is("prefix") => {
                    options.prefixes.push(prefix);
                    at += 1;
                }
                _ if is("bcast") => options.broadcasts = true,
                _ if is("optin") => options.opts_in = true,
                _ if is("optout") => options.opts_out = true,
                _ if is("noloop") => options.knows_own_changes = true,
                _ => return Err(Error::Syntax),
            }
            at += 1;
        }
        Ok(options)
    }

    /// Whether the options go together, and with what holds already.
    fn check(&self, tracker: Option<&Tracker>) -> Result<()> {
        let mode = tracker.map(|tracker| &tracker.mode);
        if !self.broadcasts && !self.prefixes.is_empty() {
            return Err(Error::text("ERR PREFIX option requires BCAST mode to be enabled"));
        }
        if mode.is_some_and(|mode| matches!(mode, Mode::Broadcast(_)) != self.broadcasts) {
            return Err(Error::text(
                "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then \
                 re-enabling it with a different mode.",
            ));
        }
        if self.broadcasts && (self.opts_in || self.opts_out) {
            return Err(Error::text("ERR OPTIN and OPTOUT are not compatible with BCAST"));
        }
        if self.opts_in && self.opts_out {
            return Err(Error::text("ERR You can't specify both OPTIN mode and OPTOUT mode"));
        }
        match mode {
            Some(Mode::Reads(Reads::OptIn)) if self.opts_out => Err(SWITCHES_OPTIONS),
            Some(Mode::Reads(Reads::OptOut)) if self.opts_in => Err(SWITCHES_OPTIONS),
            Some(Mode::Broadcast(known)) => self.check_prefixes(known),
            _ => self.check_prefixes(&BTreeSet::new()),
        }
    }

    /// No prefix may be the beginning of another, or a key would be told of twice.
    fn check_prefixes(&self, known: &BTreeSet<Box<[u8]>>) -> Result<()> {
        for (at, prefix) in self.prefixes.iter().enumerate() {
            if let Some(other) = known.iter().find(|other| overlap(prefix, other)) {
                return Err(overlapping(prefix, "an existing prefix", other));
            }
            if let Some(other) = self.prefixes[at + 1..].iter().find(|other| overlap(prefix, other)) {
                return Err(overlapping(prefix, "another provided prefix", other));
            }
        }
        Ok(())
    }

    fn mode(&self) -> Mode {
        if self.broadcasts {
            let everything = [&b""[..]];
            let prefixes = if self.prefixes.is_empty() { &everything[..] } else { &self.prefixes };
            return Mode::Broadcast(prefixes.iter().map(|prefix| Box::from(*prefix)).collect());
        }
        Mode::Reads(match (self.opts_in, self.opts_out) {
            (true, _) => Reads::OptIn,
            (_, true) => Reads::OptOut,
            _ => Reads::All,
        })
    }
}

fn existing_client(server: &Server, word: &[u8]) -> Result<u64> {
    let id = value::number::parse_i64(word).ok_or(Error::NotInteger)?;
    let id = u64::try_from(id).ok().filter(|id| server.net.clients.get(*id).is_some());
    id.ok_or(Error::text("ERR The client ID you want redirect to does not exist"))
}

fn overlap(one: &[u8], other: &[u8]) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

fn overlapping(prefix: &[u8], what: &str, other: &[u8]) -> Error {
    let mut line = b"ERR Prefix '".to_vec();
    line.extend_from_slice(prefix);
    line.extend_from_slice(format!("' overlaps with {what} '").as_bytes());
    line.extend_from_slice(other);
    line.extend_from_slice(b"'. Prefixes for a single client must not overlap.");
    Error::line(line)
}

const SWITCHES_OPTIONS: Error = Error::text(
    "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it \
     with a different mode.",
);

/// CLIENT TRACKING ON | OFF [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]
pub fn tracking(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let (server, request) = (context.server, context.request);
    let options = Options::parse(server, &request)?;
    if request.arg(2).eq_ignore_ascii_case(b"on") {
        options.check(context.session.tracking.as_deref())?;
        let own_changes = if options.knows_own_changes { OwnChanges::Known } else { OwnChanges::Told };
        let wanted = Tracker {
            mode: options.mode(),
            redirection: options.redirection,
            own_changes,
            is_singled_out: false,
        };
        let session = &mut *context.session;
        server.tracking.enable(&server.engine.keyspace, &session.client, &mut session.tracking, wanted);
    } else if request.arg(2).eq_ignore_ascii_case(b"off") {
        let session = &mut *context.session;
        server.tracking.disable(&server.engine.keyspace, &session.client, &mut session.tracking);
    } else {
        return Err(Error::Syntax);
    }
    reply.ok();
    Ok(())
}

/// CLIENT CACHING YES | NO
pub fn caching(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let word = context.request.arg(2);
    let Some(tracker) = &mut context.session.tracking else {
        return Err(Error::text(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode \
             enabled",
        ));
    };
    if word.eq_ignore_ascii_case(b"yes") {
        if tracker.mode != Mode::Reads(Reads::OptIn) {
            return Err(Error::text(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            ));
        }
    } else if word.eq_ignore_ascii_case(b"no") {
        if tracker.mode != Mode::Reads(Reads::OptOut) {
            return Err(Error::text(
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            ));
        }
    } else {
        return Err(Error::Syntax);
    }
    tracker.is_singled_out = true;
    reply.ok();
    Ok(())
}

/// CLIENT GETREDIR
pub fn redirection(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    reply.int(redirection_of(context.session.tracking.as_deref()));
    Ok(())
}

/// -1 stands for no tracking, 0 for no redirection.
fn redirection_of(tracker: Option<&Tracker>) -> i64 {
    tracker.map_or(-1, |tracker| tracker.redirection.unwrap_or(0) as i64)
}

/// CLIENT TRACKINGINFO
pub fn tracking_info(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    use net::client::Traits;
    let tracker = context.session.tracking.as_deref();
    let mut flags = vec![if tracker.is_some() { "on" } else { "off" }];
    if let Some(Tracker { mode, own_changes, is_singled_out, .. }) = tracker {
        let of_mode: &[&str] = match (mode, is_singled_out) {
            (Mode::Broadcast(_), _) => &["bcast"],
            (Mode::Reads(Reads::All), _) => &[],
            (Mode::Reads(Reads::OptIn), false) => &["optin"],
            (Mode::Reads(Reads::OptIn), true) => &["optin", "caching-yes"],
            (Mode::Reads(Reads::OptOut), false) => &["optout"],
            (Mode::Reads(Reads::OptOut), true) => &["optout", "caching-no"],
        };
        flags.extend(of_mode);
        if *own_changes == OwnChanges::Known {
            flags.push("noloop");
        }
        if context.session.client.traits().contains(Traits::BROKEN_REDIRECTION) {
            flags.push("broken_redirect");
        }
    }
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"redirect");
    reply.int(redirection_of(tracker));
    reply.bulk(b"prefixes");
    match tracker.map(|tracker| &tracker.mode) {
        Some(Mode::Broadcast(prefixes)) => {
            reply.array(prefixes.len());
            prefixes.iter().for_each(|prefix| reply.bulk(prefix));
        }
        _ => reply.array(0),
    }
    Ok(())
}
