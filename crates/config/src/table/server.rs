//! Directives about the process, its threads, its log and what it reports about itself.

use crate::DATABASES_MAX;

use crate::row::{BOOL, Flags, INT, Kind, LONG, Row, TEXT, absent, int, works};
use crate::words::{Access, BusyScope, Edition, LogLevel, OomScoreAdj, Supervision, SyslogFacility};

const CPU_LISTS: &str = "threads are not pinned to cores; use taskset or your service manager";
const CRASH: &str = "a crash prints the place of the fault and ends the process";
const SERVICE: &str = "the process stays in the foreground; run it under your service manager";
const TITLE: &str = "the process keeps the name and arguments that it was started with";
const TEST_HOOK: &str = "it only serves Redis' own tests";

/// Redis looks no more often.
const WATCHDOG_MS_MIN: i64 = 200;

/// Redis takes either for a path (`pathIsBaseName`).
fn is_path(name: &[u8]) -> bool {
    name.iter().any(|byte| matches!(byte, b'/' | b'\\'))
}

const FILE_NAME: Kind = Kind::Text(|text| match is_path(text) {
    true => Err("dbfilename can't be a path, just a filename"),
    false => Ok(()),
});

const APPEND_FILE: Kind = Kind::Text(|text| match is_path(text) || text.is_empty() {
    true => Err("appendfilename can't be a path, just a filename"),
    false => Ok(()),
});
const APPEND_DIR: Kind = Kind::Text(|text| match is_path(text) || text.is_empty() {
    true => Err("appenddirname can't be a path, just a dirname"),
    false => Ok(()),
});

/// Sorted by name.
pub(super) const ROWS: &[Row] = &[
    absent("always-show-logo", BOOL, "no", "there is no logo").at_start(),
    works("aof-load-truncated", BOOL, "yes")
        .here("for append-only files of a Redis; the log has rules of its own"),
    absent("aof_rewrite_cpulist", TEXT, "", CPU_LISTS).at_start(),
    works("appenddirname", APPEND_DIR, "appendonlydir").at_start()
        .here("where append-only files of a Redis are looked for"),
    works("appendfilename", APPEND_FILE, "appendonly.aof").at_start()
        .here("what append-only files of a Redis are looked for"),
    absent("bgsave_cpulist", TEXT, "", CPU_LISTS).at_start(),
    absent("bio_cpulist", TEXT, "", CPU_LISTS).at_start(),
    works("busy-reply-scope", Kind::Enum(BusyScope::WORDS), "keys")
        .here("Tarn's own: who is told that a script is busy: who needs its `keys`, or all clients of the `server`, as in Redis"),
    works("busy-reply-threshold", LONG, "5000").alias("lua-time-limit"),
    absent("crash-log-enabled", BOOL, "yes", CRASH),
    absent("crash-memcheck-enabled", BOOL, "yes", CRASH),
    absent("daemonize", BOOL, "no", SERVICE).at_start(),
    works("databases", int(1, DATABASES_MAX as i64), "16").at_start(),
    works("dbfilename", FILE_NAME, "dump.rdb").flags(Flags::PROTECTED),
    works("dir", Kind::Directory, "./tarn-data")
        .flags(Flags::PROTECTED.union(Flags::NOT_WHILE_LOADING))
        .here("made if it is missing; Redis uses the directory that it was started in. Stays as it is once there is a log"),
    absent("disable-thp", BOOL, "yes", "there is no fork that huge pages could slow down").at_start(),
    absent("dynamic-hz", BOOL, "yes", "timers run at `hz` whatever the number of clients"),
    works("edition", Kind::Enum(Edition::WORDS), "durable").fixed()
        .here("Tarn's own: `memory` has its data in memory only, `durable` has each write on disk before its reply, `capacity` as well, and data beyond `maxmemory` on disk"),
    works("enable-debug-command", Kind::Enum(Access::WORDS), "no").at_start(),
    absent("enable-module-command", Kind::Enum(Access::WORDS), "no", "modules cannot be loaded").at_start(),
    works("enable-protected-configs", Kind::Enum(Access::WORDS), "no").at_start(),
    works("hz", INT, "10").adjust(|hz| hz.clamp(1, 500))
        .here("how often what is due is looked for; an idle server sleeps"),
    works("ignore-unknown-directives", BOOL, "yes").fixed()
        .here("Tarn's own: whether a file may hold directives that there are none of here, which a warning names; `no` refuses it, as Redis does"),
    absent(
        "ignore-warnings",
        TEXT,
        "",
        "the start makes no checks of the operating system that could be ignored",
    ),
    absent("io-threads", int(1, 128), "1", "every worker reads, executes and writes; see `threads`")
        .at_start(),
    absent("io-threads-do-reads", BOOL, "no", "every worker reads, executes and writes; see `threads`")
        .at_start(),
    works("latency-monitor-threshold", LONG, "0"),
    works("latency-tracking", BOOL, "yes"),
    works("latency-tracking-info-percentiles", Kind::Percentiles, "50 99 99.9"),
    absent("locale-collate", TEXT, "", "SORT ALPHA compares bytes"),
    works("logfile", TEXT, "").at_start(),
    works("loglevel", Kind::Enum(LogLevel::WORDS), "notice"),
    works("notify-keyspace-events", Kind::KeyspaceEvents, ""),
    works("oom-score-adj", Kind::Enum(OomScoreAdj::WORDS), "no")
        // `relative` is the long name of `yes`.
        .adjust(|index| if index == OomScoreAdj::Relative as i64 { OomScoreAdj::Yes as i64 } else { index }),
    works("oom-score-adj-values", Kind::OomScores, "0 200 800")
        .here("the third is for children that write files, of which there are none"),
    works("pidfile", TEXT, "").at_start(),
    absent("proc-title-template", Kind::Text(title_template), "{title} {listen-addr} {server-mode}", TITLE),
    works("save", Kind::Save, "")
        .here("files are written only when they are asked for, as the log has everything"),
    absent("server_cpulist", TEXT, "", CPU_LISTS).at_start(),
    absent("set-proc-title", BOOL, "yes", TITLE).at_start(),
    works("shutdown-on-sigint", Kind::ShutdownFlags, "default"),
    works("shutdown-on-sigterm", Kind::ShutdownFlags, "default"),
    works("shutdown-timeout", INT, "10"),
    works("slowlog-log-slower-than", int(-1, i64::MAX), "10000"),
    works("slowlog-max-len", LONG, "128"),
    works("stop-writes-on-bgsave-error", BOOL, "yes"),
    works("supervised", Kind::Enum(Supervision::WORDS), "no").at_start()
        .here("`upstart` is a warning"),
    works("syslog-enabled", BOOL, "no").at_start(),
    works("syslog-facility", Kind::Enum(SyslogFacility::WORDS), "local0").at_start(),
    works("syslog-ident", TEXT, "tarn").at_start()
        .here("the program's own name"),
    works("threads", int(0, 1024), "0").fixed()
        .here("Tarn's own: worker threads at the most; 0 is one for each core"),
    works("threads-min", int(1, 1024), "1")
        .here("Tarn's own: how many of them serve clients whatever the load is; of the others as many as it asks for"),
    absent("use-exit-on-panic", BOOL, "no", TEST_HOOK).flags(Flags::HIDDEN),
    absent("watchdog-period", INT, "0", "slow commands are in the slow log and in LATENCY")
        .adjust(|ms| if ms == 0 { 0 } else { ms.max(WATCHDOG_MS_MIN) })
        .flags(Flags::HIDDEN),
];

/// The placeholders that `proc-title-template` may use.
const TITLE_WORDS: [&str; 7] =
    ["title", "listen-addr", "server-mode", "port", "tls-port", "unixsocket", "config-file"];

/// `{word}` is a placeholder, `{{` a brace. These two may stand for nothing, and a title of nothing is none.
const MAYBE_EMPTY: [&str; 2] = ["title", "server-mode"];

fn title_template(text: &[u8]) -> Result<(), &'static str> {
    let refused = Err("template format is invalid or contains unknown variables");
    let mut shows_something = false;
    let mut rest = text;
    while let Some(open) = rest.iter().position(|&byte| byte == b'{') {
        shows_something |= open > 0;
        rest = &rest[open + 1..];
        if let Some(behind) = rest.strip_prefix(b"{") {
            shows_something = true;
            rest = behind;
            continue;
        }
        let Some(close) = rest.iter().position(|&byte| byte == b'}') else { return refused };
        let is_placeholder = |known: &&str| known.as_bytes() == &rest[..close];
        if !TITLE_WORDS.iter().any(&is_placeholder) {
            return refused;
        }
        shows_something |= !MAYBE_EMPTY.iter().any(is_placeholder);
        rest = &rest[close + 1..];
    }
    if shows_something || !rest.is_empty() { Ok(()) } else { refused }
}
