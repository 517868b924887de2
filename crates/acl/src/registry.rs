//! All users by name, and the version that tells sessions of a change.
//!
//! 1. `version` changes while `users` is locked for writing only, so whoever reads both
//!    under the lock gets a pair that belongs together.
//! 2. The default user is always there.

use crate::AclLog;
use crate::kept::Kept;
use crate::rules::SetUserError;
use crate::selector::NewChannels;
use crate::user::{DEFAULT_USER, User};
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Users in the order of their names.
pub type Users = BTreeMap<Vec<u8>, Arc<User>>;

/// All users.
pub struct Registry {
    pub(super) users: RwLock<Users>,
    state: State,
    /// Of users that are kept elsewhere, if they are. Its lock is taken behind that of the users.
    pub(super) kept: Mutex<Option<Kept>>,
    /// What `requirepass` said when it was last looked at.
    requirepass: Mutex<Vec<u8>>,
    /// Held while the users are written to `aclfile`: the file ends up with those of the last ACL SAVE.
    pub(super) saving: Mutex<()>,
    /// What was refused.
    pub log: AclLog,
}

/// What every command reads, on a cache line that only changes write to.
#[repr(align(64))]
struct State {
    version: AtomicU64,
    /// Whether who connects is the default user without a password.
    is_open: AtomicBool,
}

impl Default for Registry {
    /// The default user alone, open to everybody.
    fn default() -> Registry {
        let users = Users::from([(DEFAULT_USER.into(), Arc::new(User::everybody()))]);
        Registry {
            users: RwLock::new(users),
            state: State { version: AtomicU64::new(0), is_open: AtomicBool::new(true) },
            requirepass: Mutex::default(),
            kept: Mutex::default(),
            saving: Mutex::default(),
            log: AclLog::default(),
        }
    }
}

impl Registry {
    /// Which state the users are in; every change gives another number.
    #[inline]
    pub fn version(&self) -> u64 {
        self.state.version.load(Ordering::Acquire)
    }

    /// Whether clients need not authenticate.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.state.is_open.load(Ordering::Acquire)
    }

    /// A user by name.
    pub fn get(&self, name: &[u8]) -> Option<Arc<User>> {
        self.users.read().get(name).cloned()
    }

    /// A user by name, and the version that this is true of.
    pub fn get_versioned(&self, name: &[u8]) -> (Option<Arc<User>>, u64) {
        let users = self.users.read();
        (users.get(name).cloned(), self.version())
    }

    /// The default user.
    pub fn default_user(&self) -> Arc<User> {
        self.get(DEFAULT_USER.as_bytes()).expect("the default user cannot be deleted")
    }

    /// All users.
    pub fn all(&self) -> Users {
        self.users.read().clone()
    }

    /// ACL SETUSER: changes a user, or makes one. Returns the user before and after.
    ///
    /// # Errors
    /// A rule is wrong; nothing changed.
    pub fn set_user<W: AsRef<[u8]>>(
        &self,
        name: &[u8],
        rules: &[W],
        channels: NewChannels,
    ) -> Result<(Option<Arc<User>>, Arc<User>), SetUserError> {
        let mut users = self.users.write();
        let before = users.get(name).cloned();
        let fresh = || Arc::new(User::new(name, channels));
        let after = Arc::new(before.clone().unwrap_or_else(fresh).with_rules(rules, channels)?);
        users.insert(name.to_vec(), after.clone());
        self.changed(users);
        Ok((before, after))
    }

    /// Makes `requirepass` the default user's only password if the directive has changed:
    /// one that has not says nothing against a password given by ACL SETUSER since.
    pub fn follow_requirepass(&self, password: &[u8]) {
        let mut before = self.requirepass.lock();
        if *before == password {
            return;
        }
        *before = password.to_vec();
        let mut users = self.users.write();
        if self.kept.lock().as_ref().is_some_and(|kept| kept.has_default) {
            return;
        }
        if let Some(user) = users.get_mut(DEFAULT_USER.as_bytes()) {
            Arc::make_mut(user).set_password(password);
        }
        self.changed(users);
    }

    /// ACL DELUSER, for any but the default user. Returns whether there was one.
    pub fn remove(&self, name: &[u8]) -> bool {
        let mut users = self.users.write();
        let was_there = users.remove(name).is_some();
        self.changed(users);
        was_there
    }

    /// ACL LOAD: these users instead of all others. A default user that is not among
    /// them is as it is at first.
    pub fn replace(&self, mut fresh: Users) {
        fresh.entry(DEFAULT_USER.into()).or_insert_with(|| Arc::new(User::everybody()));
        let mut users = self.users.write();
        *users = fresh;
        self.changed(users);
    }

    pub(super) fn changed(&self, users: RwLockWriteGuard<'_, Users>) {
        let is_open = users.get(DEFAULT_USER.as_bytes()).is_some_and(|user| user.is_open());
        self.state.is_open.store(is_open, Ordering::Release);
        self.state.version.fetch_add(1, Ordering::Release);
        drop(users);
    }

    /// The user whom name and password fit.
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        self.get(name).filter(|user| user.accepts(password))
    }
}
