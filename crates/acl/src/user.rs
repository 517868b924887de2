//! A user: flags, passwords and selectors, as a value that rules turn into another value.

use crate::rules::{RuleError, SetUserError, has_space, is, join_selectors};
use crate::selector::{NewChannels, Selector};
use bitflags::bitflags;
use command::table::Command;
use sha2::{Digest as _, Sha256};
use wire::Request;

/// Whose rights a connection has before it authenticates.
pub const DEFAULT_USER: &str = "default";

bitflags! {
    /// A user's flags.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct UserFlags: u8 {
        /// `on`: it may authenticate.
        const ON = 1;
        /// `nopass`: with any password.
        const NOPASS = 1 << 1;
        /// `skip-sanitize-payload`: RESTORE trusts what it sends.
        const SKIP_SANITIZE = 1 << 2;
    }
}

/// Why a request is refused; what matters more is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    /// The command.
    Command,
    /// The key at this position.
    Key(usize),
    /// The channel at this position.
    Channel(usize),
}

/// A password's SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hash([u8; 32]);

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    name: Vec<u8>,
    flags: UserFlags,
    passwords: Vec<Hash>,
    /// What is given without parentheses.
    root: Selector,
    /// What is given in parentheses.
    others: Vec<Selector>,
}

impl User {
    /// A user that may do nothing and cannot authenticate.
    pub fn new(name: &[u8], channels: NewChannels) -> User {
        User {
            name: name.to_vec(),
            flags: UserFlags::empty(),
            passwords: Vec::new(),
            root: Selector::new(channels),
            others: Vec::new(),
        }
    }

    /// The default user as it is unless told otherwise: everybody, with every right.
    pub fn everybody() -> User {
        let mut user = User::new(DEFAULT_USER.as_bytes(), NewChannels::All);
        user.flags = UserFlags::ON | UserFlags::NOPASS;
        for rule in [&b"~*"[..], b"+@all"] {
            user.root.apply(rule).expect("these rules are right");
        }
        user
    }

    /// The name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The flags.
    pub fn flags(&self) -> UserFlags {
        self.flags
    }

    /// Whether anybody is this user, without a password.
    pub fn is_open(&self) -> bool {
        self.flags.contains(UserFlags::ON | UserFlags::NOPASS)
    }

    /// Whether it may do everything, whatever comes.
    pub fn is_unrestricted(&self) -> bool {
        self.selectors().any(Selector::is_all)
    }

    /// The root selector, then the others.
    pub fn selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.others)
    }

    /// The same user after more rules, all of them or none.
    ///
    /// # Errors
    /// Names the first word that is wrong.
    pub fn with_rules<W: AsRef<[u8]>>(
        &self,
        words: &[W],
        channels: NewChannels,
    ) -> Result<User, SetUserError> {
        let mut user = self.clone();
        for rule in join_selectors(words).map_err(SetUserError::Unmatched)? {
            user.apply(&rule, channels).map_err(|error| SetUserError::Rule(rule, error))?;
        }
        Ok(user)
    }

    /// Applies one rule; a selector in parentheses is one rule.
    pub fn apply(&mut self, rule: &[u8], channels: NewChannels) -> Result<(), RuleError> {
        match rule {
            b"" => {}
            _ if is(rule, "on") => self.flags |= UserFlags::ON,
            _ if is(rule, "off") => self.flags -= UserFlags::ON,
            _ if is(rule, "nopass") => {
                self.flags |= UserFlags::NOPASS;
                self.passwords.clear();
            }
            _ if is(rule, "resetpass") => {
                self.flags -= UserFlags::NOPASS;
                self.passwords.clear();
            }
            _ if is(rule, "skip-sanitize-payload") => self.flags |= UserFlags::SKIP_SANITIZE,
            _ if is(rule, "sanitize-payload") => self.flags -= UserFlags::SKIP_SANITIZE,
            _ if is(rule, "clearselectors") => self.others.clear(),
            _ if is(rule, "reset") => *self = User::new(&self.name, channels),
            [b'>', password @ ..] => self.add_password(Hash::of(password)),
            [b'#', hex @ ..] => self.add_password(Hash::from_hex(hex)?),
            [b'<', password @ ..] => self.remove_password(Hash::of(password))?,
            [b'!', hex @ ..] => self.remove_password(Hash::from_hex(hex)?)?,
            [b'(', .., b')'] => self.others.push(Selector::parse(rule, channels)?),
            _ => self.root.apply(rule)?,
        }
        Ok(())
    }

    fn add_password(&mut self, hash: Hash) {
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
        self.flags -= UserFlags::NOPASS;
    }

    fn remove_password(&mut self, hash: Hash) -> Result<(), RuleError> {
        let place = self.passwords.iter().position(|known| *known == hash);
        self.passwords.remove(place.ok_or(RuleError::NoSuchPassword)?);
        Ok(())
    }

    /// `requirepass`: this password only, or none at all.
    pub fn set_password(&mut self, password: &[u8]) {
        self.passwords.clear();
        match password {
            b"" => self.flags |= UserFlags::NOPASS,
            _ => self.add_password(Hash::of(password)),
        }
    }

    /// Whether the password opens the user. Every hash is compared in full, so that the
    /// time it takes tells nothing.
    pub fn accepts(&self, password: &[u8]) -> bool {
        if !self.flags.contains(UserFlags::ON) {
            return false;
        }
        let given = Hash::of(password);
        let fits =
            self.passwords.iter().fold(false, |fits, known| fits | known.is_equal_in_constant_time(&given));
        self.flags.contains(UserFlags::NOPASS) || fits
    }

    /// Whether a request may run, whose arity is right.
    ///
    /// # Errors
    /// The strongest reason of all selectors.
    pub fn check(&self, command: &Command, request: &Request<'_>) -> Result<(), Denied> {
        let mut worst = Denied::Command;
        for selector in self.selectors() {
            match selector.check(command, request) {
                Ok(()) => return Ok(()),
                Err(denied) => worst = worst.max(denied),
            }
        }
        Err(worst)
    }

    /// Whether a request may run and may also read keys that it does not name.
    pub fn may_read_every_key(&self, command: &Command, request: &Request<'_>) -> bool {
        self.selectors()
            .any(|selector| selector.reads_every_key() && selector.check(command, request).is_ok())
    }

    /// Whether a channel may be subscribed to; those who already have are put out if not.
    pub fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.selectors().any(|selector| selector.allows_channel(channel, is_pattern))
    }

    /// The words of ACL GETUSER's flags, in Redis' order.
    pub fn flag_words(&self) -> Vec<&'static str> {
        let mut words = vec![if self.flags.contains(UserFlags::ON) { "on" } else { "off" }];
        if self.flags.contains(UserFlags::NOPASS) {
            words.push("nopass");
        }
        let skips = self.flags.contains(UserFlags::SKIP_SANITIZE);
        words.push(if skips { "skip-sanitize-payload" } else { "sanitize-payload" });
        words
    }

    /// The hashes of the passwords, in hexadecimal.
    pub fn password_hashes(&self) -> impl ExactSizeIterator<Item = String> {
        self.passwords.iter().map(Hash::hex)
    }

    /// The user as a line of ACL LIST and of files.
    pub fn line(&self) -> Vec<u8> {
        [b"user ", self.name(), b" ", &self.describe()].concat()
    }

    /// The rules that make this user, as in ACL LIST and in files.
    pub fn describe(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for word in self.flag_words() {
            out.extend_from_slice(word.as_bytes());
            out.push(b' ');
        }
        for hash in self.password_hashes() {
            out.push(b'#');
            out.extend_from_slice(hash.as_bytes());
            out.push(b' ');
        }
        self.root.describe(&mut out);
        for selector in &self.others {
            let mut rules = Vec::new();
            selector.describe(&mut rules);
            let words: Vec<Vec<u8>> = rules.split(|byte| *byte == b' ').map(quoted_if_needed).collect();
            out.extend_from_slice(b" (");
            out.extend(words.join(&b' '));
            out.push(b')');
        }
        out
    }
}

impl Hash {
    fn of(password: &[u8]) -> Hash {
        Hash(Sha256::digest(password).into())
    }

    fn from_hex(hex: &[u8]) -> Result<Hash, RuleError> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(RuleError::BadHash),
        };
        if hex.len() != 64 {
            return Err(RuleError::BadHash);
        }
        let mut hash = [0; 32];
        for (byte, digits) in hash.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = digit(digits[0])? << 4 | digit(digits[1])?;
        }
        Ok(Hash(hash))
    }

    fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn is_equal_in_constant_time(&self, other: &Hash) -> bool {
        let differing = self.0.iter().zip(other.0).fold(0, |bits, (a, b)| bits | (a ^ b));
        std::hint::black_box(differing) == 0
    }
}

/// A word as it may stand in parentheses, where quotes have a meaning.
fn quoted_if_needed(word: &[u8]) -> Vec<u8> {
    match word.iter().any(|byte| b"\"'\\".contains(byte)) {
        true => wire::quote(word).into_bytes(),
        false => word.to_vec(),
    }
}

/// Whether a user may have this name.
pub fn is_valid_name(name: &[u8]) -> bool {
    !has_space(name)
}
