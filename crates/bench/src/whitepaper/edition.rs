//! What a chapter asks of its servers: the edition that Tarn is started in, and what a peer needs to promise the same.
//!
//! The capacity edition's chapters run other editions of Tarn beside it, as servers of their own names.
//!
//! Invariants: 1. What is added to a peer's command is added in the open: the report shows the whole command. 2. What a
//! server promises is asked of it and not inferred from what it was told. 3. A server that was running before is not changed.

use crate::report::{self, Promise};

/// Makes a Redis sync every write before its reply.
const ALWAYS: &str = "--appendonly yes --appendfsync always --save ''";
/// Makes a Redis a node of a cluster.
const IN_A_CLUSTER: &str = "--cluster-enabled yes";
/// Signs behind which the end of a command line need not belong to the server.
const SHELL_SIGNS: [char; 8] = [';', '|', '&', '#', '\n', '(', ')', '`'];

/// What the replies of a chapter's servers shall mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edition {
    /// Executed in memory.
    Memory,
    /// On disk.
    Durable,
    /// On disk, and what was not used of late is nowhere else, under a ceiling of memory.
    Capacity(Room),
    /// On a replica as well: each kept as an edition keeps it.
    Replicated(Kept),
    /// Executed in memory, by the master of the key's slot; each measurement has a cluster of its own.
    Cluster,
    /// Executed in memory, by servers behind the proxy that is measured; each measurement has some of its own.
    Proxies,
}

/// Where master and replica keep what they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// In memory.
    InMemory,
    /// On disk.
    OnDisk,
}

/// Who else has what a server answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// Nobody: it has no replica.
    None,
    /// A replica gets it at some time.
    Later,
    /// A replica has it when Tarn answers (`min-sync-replicas 1`).
    InSync,
    /// A replica has it when the WAIT behind each request is answered.
    Waited,
}

/// How the memory of the capacity edition compares to the data, as published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Seven times the data: all of it stays in memory.
    Ample,
    /// A quarter of the data.
    Scarce,
}

/// What Tarn is called that runs in the edition of its chapter.
pub const TARN: &str = "Tarn";
/// What Tarn is called with a replica that nobody waits for.
const TARN_FOLLOWED: &str = "Tarn with a replica";
/// What it is called without one.
const TARN_ALONE: &str = "Tarn alone";
/// What its durable edition is called beside another.
const TARN_DURABLE: &str = "Tarn durable";
/// What its memory edition is called beside another.
pub const TARN_MEMORY: &str = "Tarn memory";
/// What twemproxy is called, which the run starts by itself.
pub const TWEMPROXY: &str = "twemproxy";
/// Names that no peer gets.
pub const OWN_NAMES: [&str; 6] = [TARN, TARN_FOLLOWED, TARN_ALONE, TARN_DURABLE, TARN_MEMORY, TWEMPROXY];

/// A Tarn that runs beside the one that a chapter is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Companion {
    /// Its name in tables.
    pub name: &'static str,
    /// What its replies mean.
    pub edition: Edition,
    /// Who else has what it answered.
    pub copies: Copies,
}

const fn companion(name: &'static str, edition: Edition, copies: Copies) -> Companion {
    Companion { name, edition, copies }
}

const MEMORY: Companion = companion(TARN_MEMORY, Edition::Memory, Copies::None);
const DURABLE: Companion = companion(TARN_DURABLE, Edition::Durable, Copies::None);
const FOLLOWED_IN_MEMORY: Companion = companion(TARN_FOLLOWED, Edition::Memory, Copies::Later);
const FOLLOWED_ON_DISK: Companion = companion(TARN_FOLLOWED, Edition::Durable, Copies::Later);
const ALONE_IN_MEMORY: Companion = companion(TARN_ALONE, Edition::Memory, Copies::None);
const ALONE_ON_DISK: Companion = companion(TARN_ALONE, Edition::Durable, Copies::None);

/// How a server came to run, which decides what can be said of its promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terms {
    /// Tarn, started in the edition.
    Edition,
    /// A command line to which these options were added.
    Added(&'static str),
    /// A command line as the user gave it.
    AsGiven,
    /// Running before, and not changed.
    Running,
}

/// What a server says of itself; none where it does not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Tarn's edition.
    pub edition: Option<String>,
    /// The ceiling of its memory in bytes; 0 is none.
    pub maxmemory: Option<String>,
    /// Whether there is an append-only file.
    pub appendonly: Option<String>,
    /// When that is synced.
    pub appendfsync: Option<String>,
}

impl Edition {
    /// As `--edition` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Edition::Memory | Edition::Cluster | Edition::Proxies | Edition::Replicated(Kept::InMemory) => {
                "memory"
            }
            Edition::Durable | Edition::Replicated(Kept::OnDisk) => "durable",
            Edition::Capacity(_) => "capacity",
        }
    }

    /// Who else has what Tarn answers in its chapters.
    pub fn copies(self) -> Copies {
        if matches!(self, Edition::Replicated(_)) { Copies::InSync } else { Copies::None }
    }

    /// The same of a peer that is started, once for each.
    pub fn copies_of_peers(self) -> &'static [Copies] {
        match self {
            Edition::Replicated(_) => &[Copies::Waited, Copies::Later],
            Edition::Memory
            | Edition::Durable
            | Edition::Capacity(_)
            | Edition::Cluster
            | Edition::Proxies => &[Copies::None],
        }
    }

    /// The Tarns that run beside the one that its chapters are about.
    pub fn companions(self) -> &'static [Companion] {
        match self {
            Edition::Memory | Edition::Durable | Edition::Cluster | Edition::Proxies => &[],
            Edition::Capacity(Room::Ample) => &[DURABLE, MEMORY],
            Edition::Capacity(Room::Scarce) => &[MEMORY],
            Edition::Replicated(Kept::InMemory) => &[FOLLOWED_IN_MEMORY, ALONE_IN_MEMORY],
            Edition::Replicated(Kept::OnDisk) => &[FOLLOWED_ON_DISK, ALONE_ON_DISK],
        }
    }

    /// Whether each measurement of its chapters begins servers of its own, so that none that were running before take part.
    pub fn is_staged(self) -> bool {
        matches!(self, Edition::Cluster | Edition::Proxies)
    }

    /// Whether a server that is started by a command line takes part in its chapters.
    pub fn takes(self, command: &str) -> bool {
        !self.is_staged() || is_plain(command)
    }

    /// How many servers are measured in its chapters, of which so many are started by command lines that take part and so many were running before.
    pub fn servers(self, commands: usize, running: usize) -> usize {
        let running = if self.is_staged() { 0 } else { running };
        1 + commands * self.copies_of_peers().len() + running + self.companions().len()
    }

    /// Whether a reply means in its chapters that what was written is on disk.
    pub fn is_on_disk(self) -> bool {
        self.name() != Edition::Memory.name()
    }

    /// The terms on which a peer is started by a command line.
    pub fn terms(self, command: &str) -> Terms {
        match self {
            Edition::Cluster if is_plain(command) => Terms::Added(IN_A_CLUSTER),
            _ if self.is_on_disk() && is_plain(command) => Terms::Added(ALWAYS),
            _ => Terms::AsGiven,
        }
    }
}

/// Whether a command line is that of a server whose options are known, and nothing else.
fn is_plain(command: &str) -> bool {
    matches!(server_word(command), Some("redis" | "valkey")) && !command.contains(SHELL_SIGNS)
}

impl Copies {
    /// Whether there is a replica.
    pub fn has_replica(self) -> bool {
        self != Copies::None
    }

    /// How many replicas each request waits for by itself.
    pub fn waited_for(self) -> u32 {
        u32::from(self == Copies::Waited)
    }

    /// What distinguishes the name of a peer that is started more than once.
    pub fn suffix(self) -> &'static str {
        match self {
            Copies::None | Copies::InSync => "",
            Copies::Later => " with a replica",
            Copies::Waited => " with WAIT 1",
        }
    }
}

impl Room {
    /// Memory and data, as the publication writes it.
    pub fn ratio(self) -> &'static str {
        match self {
            Room::Ample => "7:1",
            Room::Scarce => "1:4",
        }
    }

    /// The memory by the data.
    pub fn memory_by_data(self) -> f64 {
        match self {
            Room::Ample => 7.0,
            Room::Scarce => 0.25,
        }
    }
}

impl Terms {
    /// The command line with what is added to it.
    pub fn apply(self, command: &str) -> String {
        match self {
            Terms::Added(options) => format!("{command} {options}"),
            Terms::Edition | Terms::AsGiven | Terms::Running => command.to_owned(),
        }
    }
}

/// What the first program of a command line that is called `SOMETHING-server` is called before that.
pub fn server_word(command: &str) -> Option<&str> {
    words(command).find_map(|word| word.strip_suffix("-server"))
}

/// The words of a command line without quotes and folders.
pub fn words(command: &str) -> impl Iterator<Item = &str> {
    let words = command.split_whitespace().map(|word| word.trim_matches(['"', '\'']));
    words.map(|word| word.rsplit('/').next().unwrap_or(word))
}

impl Told {
    /// What a reply means, as far as anybody here can know.
    pub fn promise(&self, terms: Terms) -> Promise {
        let settings = self.settings();
        let verdict = match self.is_synced() {
            Some(true) => "On disk",
            Some(false) => "Not yet on disk",
            None => "Not known",
        };
        let sentence = match terms {
            Terms::Edition => format!("{verdict}: it says {settings}."),
            Terms::Added(options) => {
                format!("{verdict}: it says {settings}. The run added {options} to its command.")
            }
            Terms::AsGiven => format!(
                "{verdict}: it says {settings}. The run added nothing to its command, which is not plainly that of a redis-server or valkey-server."
            ),
            Terms::Running => format!(
                "Not known: it was running already, nothing was changed, and where its files are is not known. It says {settings}."
            ),
        };
        Promise { is_on_disk: self.is_synced() == Some(true) && terms != Terms::Running, sentence }
    }

    /// Whether it says that it syncs before it replies.
    fn is_synced(&self) -> Option<bool> {
        if self.is_durable() {
            return Some(true);
        }
        match (self.appendonly.as_deref()?, self.appendfsync.as_deref()) {
            ("yes", sync) => sync.map(|sync| sync == "always"),
            _ => Some(false),
        }
    }

    /// Whether it is an edition of Tarn that always syncs, whose other settings have no say.
    fn is_durable(&self) -> bool {
        matches!(self.edition.as_deref(), Some("durable" | "capacity"))
    }

    fn settings(&self) -> String {
        let of = |value: &Option<String>| value.clone().unwrap_or_else(|| "not told".to_owned());
        match &self.edition {
            Some(edition) if self.is_durable() => format!("edition {edition}"),
            _ => format!("appendonly {}, appendfsync {}", of(&self.appendonly), of(&self.appendfsync)),
        }
    }

    /// The same as a list of settings.
    pub fn listed(&self) -> Vec<(String, String)> {
        let file = [("Append-only file", &self.appendonly), ("Synced", &self.appendfsync)];
        let is_kept = self.appendonly.as_deref() == Some("yes");
        let shown = match (self.is_durable(), is_kept) {
            (true, _) => 0,
            (false, false) => 1,
            (false, true) => 2,
        };
        let maxmemory = self.maxmemory.as_ref().filter(|bytes| *bytes != "0");
        let maxmemory = maxmemory.map(|bytes| bytes.parse().map_or(bytes.clone(), report::bytes));
        [("Edition", &self.edition), ("Most memory", &maxmemory)]
            .into_iter()
            .chain(file.into_iter().take(shown))
            .filter_map(|(title, value)| Some((title.to_owned(), value.clone()?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(appendonly: Option<&str>, appendfsync: Option<&str>) -> Told {
        Told {
            edition: None,
            maxmemory: None,
            appendonly: appendonly.map(str::to_owned),
            appendfsync: appendfsync.map(str::to_owned),
        }
    }

    #[test]
    fn only_a_plain_command_of_a_known_server_gets_options() {
        let terms = |command| {
            assert_eq!(Edition::Durable.terms(command), Edition::Capacity(Room::Scarce).terms(command));
            Edition::Durable.terms(command)
        };
        for command in
            ["redis-server --port {port}", "nice -n 5 /opt/valkey-server --port {port} --save \"\""]
        {
            assert_eq!(terms(command), Terms::Added(ALWAYS), "{command}");
            assert_eq!(Edition::Memory.terms(command), Terms::AsGiven);
        }
        for command in ["keydb-server --port {port}", "redis-server --port {port} | tee log", "tarn {port}"] {
            assert_eq!(terms(command), Terms::AsGiven, "{command}");
        }
        let whole = Terms::Added(ALWAYS).apply("redis-server --port 1 --appendonly no");
        assert!(
            whole.ends_with("--appendonly no --appendonly yes --appendfsync always --save ''"),
            "{whole}"
        );
    }

    #[test]
    fn settings_that_have_no_say_are_not_listed() {
        let titles = |told: &Told| told.listed().into_iter().map(|(title, _)| title).collect::<Vec<_>>();
        let tarn = Told { edition: Some("durable".to_owned()), ..told(Some("no"), Some("everysec")) };
        assert_eq!(titles(&tarn), ["Edition"]);
        assert_eq!(titles(&told(Some("no"), Some("everysec"))), ["Append-only file"]);
        assert_eq!(titles(&told(Some("yes"), Some("always"))), ["Append-only file", "Synced"]);
        assert!(titles(&told(None, None)).is_empty());
        let tarn = Told { maxmemory: Some("301989888".to_owned()), ..tarn };
        assert_eq!(tarn.listed()[1], ("Most memory".to_owned(), "288 MB".to_owned()));
        assert_eq!(titles(&Told { maxmemory: Some("0".to_owned()), ..tarn }), ["Edition"]);
    }

    #[test]
    fn a_promise_is_what_the_server_says_and_no_more() {
        let always = told(Some("yes"), Some("always"));
        for (told, terms, is_on_disk, words) in [
            (always.clone(), Terms::Added(ALWAYS), true, "The run added --appendonly yes"),
            (always.clone(), Terms::AsGiven, true, "added nothing"),
            (always, Terms::Running, false, "Not known: it was running already"),
            (
                told(Some("no"), Some("everysec")),
                Terms::Added(ALWAYS),
                false,
                "Not yet on disk: it says appendonly no",
            ),
            (told(Some("yes"), Some("everysec")), Terms::AsGiven, false, "appendfsync everysec"),
            (told(None, None), Terms::AsGiven, false, "Not known: it says appendonly not told"),
        ] {
            let promise = told.promise(terms);
            assert_eq!(promise.is_on_disk, is_on_disk, "{promise:?}");
            assert!(promise.sentence.contains(words), "{promise:?}");
        }
        let tarn = |edition: &str| Told { edition: Some(edition.to_owned()), ..told(Some("no"), None) };
        assert_eq!(tarn("durable").promise(Terms::Edition).sentence, "On disk: it says edition durable.");
        assert!(tarn("durable").promise(Terms::AsGiven).is_on_disk);
        assert_eq!(tarn("capacity").promise(Terms::Edition).sentence, "On disk: it says edition capacity.");
        assert!(!tarn("memory").promise(Terms::Edition).is_on_disk);
    }
}
