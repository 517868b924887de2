//! What a chapter asks of its servers: the edition that Tarn is started in, and what a peer needs to promise the same.
//!
//! Invariants: 1. What is added to a peer's command is added in the open: the report shows the whole command. 2. What a
//! server promises is asked of it and not inferred from what it was told. 3. A server that was running before is not changed.

use crate::report::Promise;

/// Makes a Redis sync every write before its reply.
const ALWAYS: &str = "--appendonly yes --appendfsync always --save ''";
/// Signs behind which the end of a command line need not belong to the server.
const SHELL_SIGNS: [char; 8] = [';', '|', '&', '#', '\n', '(', ')', '`'];

/// What the replies of a chapter's servers shall mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edition {
    /// Executed in memory.
    Memory,
    /// On disk.
    Durable,
}

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
    /// Whether there is an append-only file.
    pub appendonly: Option<String>,
    /// When that is synced.
    pub appendfsync: Option<String>,
}

impl Edition {
    /// As `--edition` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Edition::Memory => "memory",
            Edition::Durable => "durable",
        }
    }

    /// The terms on which a peer is started by a command line.
    pub fn terms(self, command: &str) -> Terms {
        let is_known = matches!(server_word(command), Some("redis" | "valkey"));
        match self {
            Edition::Durable if is_known && !command.contains(SHELL_SIGNS) => Terms::Added(ALWAYS),
            Edition::Durable | Edition::Memory => Terms::AsGiven,
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
        let (is_synced, says) = self.says();
        let (is_on_disk, sentence) = match terms {
            Terms::Running => (
                false,
                format!(
                    "Not known: it was running already, nothing was changed, and where its files are is not known. {says}"
                ),
            ),
            Terms::Added(options) => (is_synced, format!("{says} The run added {options} to its command.")),
            Terms::AsGiven => (
                is_synced,
                format!(
                    "{says} The run added nothing to its command, which is not plainly that of a redis-server or valkey-server."
                ),
            ),
            Terms::Edition => (is_synced, says),
        };
        Promise { is_on_disk, sentence }
    }

    /// Whether it says that it syncs before it replies, and that in words.
    fn says(&self) -> (bool, String) {
        if let Some(edition) = &self.edition
            && edition == Edition::Durable.name()
        {
            return (true, "On disk: it says that its edition is durable.".to_owned());
        }
        let of = |value: &Option<String>| value.clone().unwrap_or_else(|| "not told".to_owned());
        let settings = format!("appendonly {}, appendfsync {}", of(&self.appendonly), of(&self.appendfsync));
        match (self.appendonly.as_deref(), self.appendfsync.as_deref()) {
            (Some("yes"), Some("always")) => {
                (true, format!("It says {settings}: a write is synced before its reply."))
            }
            (None, _) | (Some("yes"), None) => {
                (false, format!("It does not tell whether a write is on disk ({settings})."))
            }
            _ => (false, format!("It says {settings}: a reply does not mean that a write is on disk.")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(appendonly: Option<&str>, appendfsync: Option<&str>) -> Told {
        Told {
            edition: None,
            appendonly: appendonly.map(str::to_owned),
            appendfsync: appendfsync.map(str::to_owned),
        }
    }

    #[test]
    fn only_a_plain_command_of_a_known_server_gets_options() {
        let terms = |command| Edition::Durable.terms(command);
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
    fn a_promise_is_what_the_server_says_and_no_more() {
        let always = told(Some("yes"), Some("always"));
        for (told, terms, is_on_disk, words) in [
            (always.clone(), Terms::Added(ALWAYS), true, "The run added --appendonly yes"),
            (always.clone(), Terms::AsGiven, true, "added nothing"),
            (always, Terms::Running, false, "Not known: it was running already"),
            (told(Some("no"), Some("everysec")), Terms::Added(ALWAYS), false, "does not mean"),
            (told(Some("yes"), Some("everysec")), Terms::AsGiven, false, "appendfsync everysec"),
            (told(None, None), Terms::AsGiven, false, "does not tell"),
        ] {
            let promise = told.promise(terms);
            assert_eq!(promise.is_on_disk, is_on_disk, "{promise:?}");
            assert!(promise.sentence.contains(words), "{promise:?}");
        }
        let tarn = |edition: &str| Told { edition: Some(edition.to_owned()), ..told(Some("no"), None) };
        assert!(tarn("durable").promise(Terms::Edition).is_on_disk);
        assert!(!tarn("memory").promise(Terms::Edition).is_on_disk);
    }
}
