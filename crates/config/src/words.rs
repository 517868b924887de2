//! The enumerations behind directives that take one of several words.
//!
//! A value's number in the table of values is its place in `WORDS`; `from_number` turns it back.

/// Declares an enumeration with the word of each variant, in the order in which error texts list them.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// The words, in the order of the variants.
            pub const WORDS: &[&str] = &[$($word),*];
            const ALL: &[$name] = &[$($name::$variant),*];

            /// The word that stands for it in the configuration.
            pub fn word(self) -> &'static str {
                Self::WORDS[self as usize]
            }

            /// The variant at a place in `WORDS`.
            pub(super) fn from_number(number: i64) -> $name {
                Self::ALL[number as usize]
            }
        }
    };
}

words! {
    /// How loud the log is: a message is written when its level is at least the configured one.
    LogLevel {
        /// Everything, for developers.
        Debug = "debug",
        /// Rarely useful detail.
        Verbose = "verbose",
        /// What an operator wants to know.
        Notice = "notice",
        /// What needs attention.
        Warning = "warning",
        /// Nothing at all.
        Nothing = "nothing",
    }
}

words! {
    /// What to do when `maxmemory` is reached. `keyspace::Eviction` acts on it and knows the same words.
    MaxmemoryPolicy {
        /// Least recently used among the keys with an expiry.
        VolatileLru = "volatile-lru",
        /// Least frequently used among the keys with an expiry.
        VolatileLfu = "volatile-lfu",
        /// Any key with an expiry.
        VolatileRandom = "volatile-random",
        /// The key with the nearest expiry.
        VolatileTtl = "volatile-ttl",
        /// Least recently used of all keys.
        AllkeysLru = "allkeys-lru",
        /// Least frequently used of all keys.
        AllkeysLfu = "allkeys-lfu",
        /// Any key.
        AllkeysRandom = "allkeys-random",
        /// Refuse writes instead.
        Noeviction = "noeviction",
    }
}

words! {
    /// Whether the kernel is told how willingly it ends the process where memory is short.
    OomScoreAdj {
        /// It is not.
        No = "no",
        /// As compared with what it was.
        Yes = "yes",
        /// The same.
        Relative = "relative",
        /// Whatever it was.
        Absolute = "absolute",
    }
}

words! {
    /// When the log syncs.
    AppendFsync {
        /// Once a second.
        Everysec = "everysec",
        /// Before each reply.
        Always = "always",
        /// When the log must for its own sake.
        No = "no",
    }
}

words! {
    /// Whom a proxy reads from.
    ReadFrom {
        /// The server that is written to.
        Master = "master",
        /// One that follows it, if there is one that may be read.
        Replica = "replica",
        /// Any of them.
        Any = "any",
    }
}

words! {
    /// Who keeps the users of a proxy.
    UsersFrom {
        /// Its own directives, and a file.
        File = "file",
        /// The store of decisions of a cluster.
        Cluster = "cluster",
    }
}

words! {
    /// Which edition is served.
    Edition {
        /// In memory; without a log unless `appendonly` says so.
        Memory = "memory",
        /// In memory with a log on disk.
        Durable = "durable",
        /// On disk with the hot part in memory.
        Capacity = "capacity",
    }
}

words! {
    /// Whether clients that speak TLS show certificates.
    TlsAuthClients {
        /// They are not asked.
        No = "no",
        /// Who shows none is not served.
        Yes = "yes",
        /// Who shows none is served as well.
        Optional = "optional",
    }
}

words! {
    /// Who is told that a script is busy.
    BusyScope {
        /// Who needs what it holds.
        Keys = "keys",
        /// Everybody, as in Redis.
        Server = "server",
    }
}

words! {
    /// Where a master's copy is loaded.
    DisklessLoad {
        /// In the place of what was here.
        Disabled = "disabled",
        /// The same: a copy goes to disk first.
        OnEmptyDb = "on-empty-db",
        /// Beside it, if it is of the same history.
        Swapdb = "swapdb",
    }
}

words! {
    /// What is done to objects that lie on disk only.
    StoreCompression {
        /// Nothing.
        No = "no",
        /// LZ4, where that saves something.
        Lz4 = "lz4",
    }
}

words! {
    /// Who may use a dangerous command.
    Access {
        /// Nobody.
        No = "no",
        /// Everybody.
        Yes = "yes",
        /// Clients of this machine.
        Local = "local",
    }
}

words! {
    /// Which service manager is told that the server is ready.
    Supervision {
        /// upstart.
        Upstart = "upstart",
        /// systemd, through NOTIFY_SOCKET.
        Systemd = "systemd",
        /// Whichever the environment names.
        Auto = "auto",
        /// None.
        No = "no",
    }
}

words! {
    /// The syslog facility of the log.
    SyslogFacility {
        /// LOG_USER.
        User = "user",
        /// LOG_LOCAL0.
        Local0 = "local0",
        /// LOG_LOCAL1.
        Local1 = "local1",
        /// LOG_LOCAL2.
        Local2 = "local2",
        /// LOG_LOCAL3.
        Local3 = "local3",
        /// LOG_LOCAL4.
        Local4 = "local4",
        /// LOG_LOCAL5.
        Local5 = "local5",
        /// LOG_LOCAL6.
        Local6 = "local6",
        /// LOG_LOCAL7.
        Local7 = "local7",
    }
}

impl SyslogFacility {
    /// The number of the facility in the syslog protocol.
    pub fn code(self) -> u8 {
        match self {
            SyslogFacility::User => 1,
            local => 16 + (local as u8 - SyslogFacility::Local0 as u8),
        }
    }
}
