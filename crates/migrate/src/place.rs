//! Where a server is, and what it wants to hear: `redis://[[user]:password@]host:port`, `rediss://` for TLS.

use rustls::ClientConfig;
use std::fmt;
use std::sync::Arc;

/// The port where none is said.
const PORT: u16 = 6379;

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// A name, or an address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(formatter, "[{}]:{}", self.host, self.port),
            false => write!(formatter, "{}:{}", self.host, self.port),
        }
    }
}

/// What it takes to get in, at a server or at all nodes of its cluster.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// The user; None: the one that needs no name.
    pub user: Option<String>,
    /// The password; None: without one.
    pub password: Option<String>,
    /// With TLS, from this context.
    pub tls: Option<Arc<ClientConfig>>,
}

impl Entry {
    /// What AUTH says, if anything.
    pub fn credentials(&self) -> Vec<&[u8]> {
        let password = self.password.as_deref().map(str::as_bytes);
        let user = self.user.as_deref().map(str::as_bytes).filter(|_| password.is_some());
        user.into_iter().chain(password).collect()
    }
}

/// What a URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Where.
    pub place: Place,
    /// Who.
    pub user: Option<String>,
    /// And with which password.
    pub password: Option<String>,
    /// Whether with TLS.
    pub is_secure: bool,
}

impl Url {
    /// Reads one.
    ///
    /// # Errors
    /// One sentence, which does not show a password.
    pub fn parse(text: &str) -> Result<Url, String> {
        let wrong = || "an address is redis://[user:password@]host:port, or rediss:// for TLS".to_owned();
        let (is_secure, rest) = match (text.strip_prefix("redis://"), text.strip_prefix("rediss://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(wrong()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (credentials, place) = match rest.rsplit_once('@') {
            Some((credentials, place)) => (Some(credentials), place),
            None => (None, rest),
        };
        let (mut user, mut password) = (None, None);
        if let Some(credentials) = credentials {
            let (name, secret) = credentials.split_once(':').unwrap_or(("", credentials));
            user = Some(plain(name).ok_or_else(wrong)?).filter(|name| !name.is_empty());
            password = Some(plain(secret).ok_or_else(wrong)?).filter(|secret| !secret.is_empty());
        }
        let place = place_of(place).ok_or_else(wrong)?;
        Ok(Url { place, user, password, is_secure })
    }
}

/// Reads `host:port`; an IPv6 address stands in brackets.
pub fn place_of(text: &str) -> Option<Place> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Some(PORT), |port| port.parse().ok().filter(|port| *port > 0))?;
    let is_host = !host.is_empty() && !host.contains(['/', '?']);
    is_host.then(|| Place { host: host.to_owned(), port })
}

/// A part of a URL without its percent signs.
fn plain(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        if *first == b'%' {
            let digits = std::str::from_utf8(behind.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &behind[2..];
        } else {
            bytes.push(*first);
            rest = behind;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_who() {
        let url = Url::parse("redis://ann:p%40ss@db.example:7000/").unwrap();
        assert_eq!(url.place.to_string(), "db.example:7000");
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("ann"), Some("p@ss")));
        let url = Url::parse("rediss://:secret@[::1]:6380").unwrap();
        assert_eq!(url.place, Place { host: "::1".to_owned(), port: 6380 });
        assert_eq!((url.user, url.password.as_deref(), url.is_secure), (None, Some("secret"), true));
        assert_eq!(Url::parse("redis://localhost").unwrap().place.port, 6379);
    }

    #[test]
    fn what_is_none_is_refused_without_its_password() {
        for text in
            ["localhost:1", "redis://", "redis://h:x", "redis://h:0", "redis://h:1/3", "redis://:%zz@h"]
        {
            let why = Url::parse(text).unwrap_err();
            assert!(!why.contains("zz"), "{why}");
        }
    }
}
