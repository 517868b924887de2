//! Tests of the configuration as a whole: the table against what Redis answers, starts from files and options, CONFIG
//! GET, SET and REWRITE, and random values.
//!
//! `tests/redis-7.0.15-config-get.txt` and the error texts were read off a running Redis 7.0.15.

use std::path::PathBuf;

use sys::Prng;

use super::parsed::{format, parse};
use super::rewrite::{Appended, rewritten};
use super::*;

/// CONFIG GET * of a Redis 7.0.15 without a file: a name and its value a line, less `dir`.
const REDIS: &str = include_str!("tests/redis-7.2.6-config-get.txt");
/// What its example file sets, in comments as well.
const EXAMPLE: &str = include_str!("tests/redis-7.2.6-example.txt");
const STOCK: &[u8] = include_bytes!("tests/stock.conf");

fn args(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| word.to_string()).collect()
}

fn served(startup: Result<Startup, ConfigError>) -> (Box<Config>, Vec<String>) {
    match startup {
        Ok(Startup::Serve { config, warnings }) => (config, warnings),
        Ok(_) => panic!("asked for help or the version"),
        Err(error) => panic!("{error}"),
    }
}

fn started(words: &[&str]) -> Config {
    *served(Config::from_args(&args(words))).0
}

fn refused(words: &[&str]) -> String {
    match Config::from_args(&args(words)) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{words:?} was accepted"),
    }
}

fn get(config: &Config, name: &str) -> String {
    let found = config.get(&[name]);
    assert_eq!(found.len(), 1, "{name}");
    String::from_utf8(found[0].1.clone()).unwrap()
}

fn set(config: &Config, name: &str, value: &str) -> Result<(), String> {
    config.set(&[(name, value)], Origin::Local).map(drop).map_err(|error| error.to_string())
}

/// A directory of this test alone, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("tarn-config-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn rows_are_lower_case_unique_and_sorted_within_their_area() {
    for area in table::AREAS {
        assert!(area.is_sorted_by(|left, right| left.name < right.name));
    }
    let mut names: Vec<&str> =
        TABLE.iter().flat_map(|row| std::iter::once(row.name).chain(row.alias)).collect();
    assert!(names.iter().all(|name| *name == name.to_ascii_lowercase()));
    names.sort_unstable();
    assert!(names.is_sorted_by(|left, right| left < right), "a name is taken twice");
}

#[test]
fn every_directive_of_redis_answers_with_its_default_in_its_format() {
    // Only this machine is listened to, nothing is saved, the log goes out under Tarn's own name, and the durable edition
    // is.
    const DIFFERENT: [&str; 5] = ["appendfsync", "appendonly", "bind", "save", "syslog-ident"];
    let config = Config::defaults();
    for line in REDIS.lines() {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        if !DIFFERENT.contains(&name) {
            assert_eq!(get(&config, name), value, "{name}");
        }
    }
}

#[test]
fn only_this_machine_is_listened_to_unless_told_otherwise() {
    assert_eq!(Config::defaults().bind(), ["127.0.0.1", "-::1"]);
}

#[test]
fn the_names_are_those_of_redis_and_few_more() {
    // The first two name places; the others are Tarn's own, one of Redis 7.0, and one of Redis 8.6.
    const MORE: [&str; 40] = [
        "cluster-config-servers",
        "cluster-zone",
        "dir",
        "port",
        "busy-reply-scope",
        "edition",
        "eager-spill",
        "ignore-unknown-directives",
        "log-piece-size",
        "log-retention",
        "log-segment-size",
        "lua-enable-deprecated-api",
        "min-sync-replicas",
        "proxy-bandwidth-limit",
        "proxy-cache-bytes",
        "proxy-cluster",
        "proxy-computed-bytes",
        "proxy-config-servers",
        "proxy-drain-timeout",
        "proxy-read-from",
        "proxy-restricted-scripts",
        "proxy-shard-timeout",
        "proxy-shards",
        "proxy-split-writes",
        "proxy-takeover",
        "proxy-users",
        "repl-rdb-version",
        "replica-log-keep",
        "shard-failover",
        "shard-lease",
        "shard-name",
        "shard-node",
        "shard-nodes",
        "shard-silence",
        "shard-store",
        "store-compression",
        "sync-timeout",
        "threads",
        "threads-min",
        "tls-auth-clients-user",
    ];
    let mut theirs: Vec<&str> = REDIS.lines().map(|line| line.split(' ').next().unwrap()).collect();
    theirs.extend(MORE);
    theirs.sort_unstable();
    let answered = TABLE.iter().filter(|row| !row.flags.contains(Flags::FILE_ONLY));
    let mut ours: Vec<&str> = answered.flat_map(|row| std::iter::once(row.name).chain(row.alias)).collect();
    ours.sort_unstable();
    assert_eq!(ours, theirs);
}

#[test]
fn every_line_of_the_example_file_of_redis_is_accepted() {
    for line in EXAMPLE.lines() {
        let (_, warnings) = served(Config::from_text(line.as_bytes()));
        assert!(
            !warnings.iter().any(|warning| warning.starts_with("Not directives")),
            "{line}: {warnings:?}"
        );
    }
    // And all of them in one file.
    served(Config::from_text(EXAMPLE.as_bytes()));
}

#[test]
fn a_packaged_redis_conf_starts_with_warnings_about_what_has_no_meaning() {
    let (config, warnings) = served(Config::from_text(STOCK));
    assert_eq!(config.bind(), ["127.0.0.1", "-::1"]);
    assert_eq!(config.logfile(), b"/var/log/redis/redis-server.log");
    assert_eq!(config.dir(), PathBuf::from("/var/lib/redis"));
    let named = ["`appendonly`", "`appendfsync`", "`daemonize`"];
    assert_eq!(warnings.len(), named.len(), "{warnings:?}");
    for (warning, name) in warnings.iter().zip(named) {
        assert!(warning.starts_with(name) && warning.contains("has no effect: "), "{warning}");
    }
}

#[test]
fn unknown_and_absent_directives_are_named_in_warnings_and_do_not_stop_the_start() {
    let text =
        b"port 7000\nspeed high\nsave 900 1\nactivedefrag yes\nrename-command FLUSHALL \"\"\nio-threads 1\n";
    let (config, warnings) = served(Config::from_text(text));
    assert_eq!(config.port(), 7000);
    assert_eq!(
        warnings,
        [
            "`activedefrag` has no effect: the allocator returns memory on its own; there is no defragmentation to steer",
            "Not directives of Tarn, and ignored: `speed` (line 2)",
        ]
    );
    let scratch = Scratch::new("unknown");
    let included = scratch.write("a.inc", "\nturbo\n");
    let path = scratch.write("tarn.conf", &format!("speed high\ninclude {included}\n"));
    let (_, warnings) = served(Config::from_args(&args(&[&path, "--port", "1"])));
    let unknown = format!("`speed` (line 1), `turbo` (line 2 of the configuration file {included})");
    assert_eq!(warnings, [format!("Not directives of Tarn, and ignored: {unknown}")]);
}

#[test]
fn unknown_directives_stop_the_start_where_they_are_not_to_be_ignored() {
    // Wherever it stands; the first of them is named.
    for text in
        ["speed high\nturbo\nignore-unknown-directives no\n", "ignore-unknown-directives no\nspeed high\n"]
    {
        let refusal = Config::from_text(text.as_bytes()).err().expect("refused").to_string();
        assert!(refusal.contains("speed high") && refusal.contains("Bad directive"), "{refusal}");
    }
    let (_, warnings) = served(Config::from_text(b"speed high\nignore-unknown-directives yes\n"));
    assert_eq!(warnings, ["Not directives of Tarn, and ignored: `speed` (line 1)"]);
    served(Config::from_text(b"ignore-unknown-directives no\nport 7000\n"));
}

#[test]
fn an_option_that_cannot_be_accepted_is_named() {
    for (words, option, reason) in [
        (&["--speed", "high"][..], "speed \"high\"", "Bad directive or wrong number of arguments"),
        (&["--port"], "port", "wrong number of arguments"),
        (&["--port", "1", "--loglevel"], "loglevel", "wrong number of arguments"),
        (&["--port", "1", "2"], "port \"1\" \"2\"", "wrong number of arguments"),
        (
            &["--port", "--loglevel", "verbose"],
            "port \"--loglevel\" \"verbose\"",
            "wrong number of arguments",
        ),
        (
            &["--port", "--bla", "--loglevel", "verbose"],
            "port \"--bla\"",
            "argument couldn't be parsed into an integer",
        ),
        (&["--replicaof", "--127.0.0.1", "abc"], "replicaof \"--127.0.0.1\" \"abc\"", "Invalid master port"),
        (&["--replicaof", "--127.0.0.1", "--abc"], "replicaof \"--127.0.0.1\"", "wrong number of arguments"),
        (&["--maxmemory", "lots"], "maxmemory \"lots\"", "argument must be a memory value"),
        (&["-p", "1"], "\"-p\" \"1\"", "Bad directive or wrong number of arguments"),
        (&["--port '1"], "port '1", "Unbalanced quotes in configuration line"),
    ] {
        let expected = format!("Tarn cannot start with the option '{option}': {reason}");
        assert_eq!(refused(words), expected);
    }
    let flags = refused(&["--shutdown-on-sigint", "now force", "--shutdown-on-sigterm"]);
    assert!(flags.contains("'shutdown-on-sigterm': argument(s) must be one of the following"), "{flags}");
}

#[test]
fn save_without_a_value_means_no_save_points() {
    let without = |text: &[u8]| get(&served(Config::from_text(text)).0, "save");
    assert_eq!(without(b"save \nport 1\n"), "");
    assert_eq!(without(b"save 900 1\nsave \"\"\n"), "");
    assert_eq!(without(b"save 900 1\nsave\n"), "900 1", "as in Redis: it adds nothing");
    for words in [
        &["--save", "--loglevel", "verbose"][..],
        &["--loglevel", "verbose", "--save"],
        &["--save", "", "--loglevel", "verbose"],
        &["--save", "900 1", "--loglevel", "verbose", "--save", ""],
        &["--proc-title-template", "--save", "--save", "", "--loglevel", "verbose"],
    ] {
        let config = started(words);
        assert_eq!(
            (get(&config, "save"), get(&config, "loglevel")),
            ("".into(), "verbose".into()),
            "{words:?}"
        );
    }
}

#[test]
fn options_follow_the_rules_of_redis() {
    assert_eq!(started(&["--port", "0", "--maxmemory", "1gb"]).maxmemory(), 1 << 30);
    assert_eq!(started(&["--bind", "127.0.0.1", "::1", "--port", "1"]).bind(), ["127.0.0.1", "::1"]);
    assert_eq!(get(&started(&["--save", "900 1 300 10"]), "save"), "900 1 300 10");
    assert_eq!(get(&started(&["--save", "900", "1", "--save", "300", "10"]), "save"), "900 1 300 10");
    assert_eq!(get(&started(&["--save", ""]), "save"), "");
    assert_eq!(started(&["--requirepass", "a \"b\"\n"]).requirepass(), b"a \"b\"\n");
    assert_eq!(started(&["--requirepass", "--dashes", "--port", "1"]).requirepass(), b"--dashes");
    assert_eq!(
        get(&started(&["--shutdown-on-sigterm", "nosave force"]), "shutdown-on-sigterm"),
        "nosave force"
    );
    let both = started(&["--port 7", "--maxmemory-policy 'volatile-lru'", "--save '900 1'  ", "--hz 20"]);
    assert_eq!((both.port(), get(&both, "save").as_str()), (7, "900 1"));
    assert_eq!((get(&both, "maxmemory-policy").as_str(), both.hz()), ("volatile-lru", 20));
    assert_eq!(get(&started(&["--save", " 900  1 "]), "save"), "900 1");
    assert!(matches!(Config::from_args(&args(&["--help"])), Ok(Startup::Help)));
    assert!(matches!(Config::from_args(&args(&["-v"])), Ok(Startup::Version)));
}

#[test]
fn options_win_over_the_file_and_later_lines_over_earlier_ones() {
    let scratch = Scratch::new("order");
    scratch.write("a1.inc", "timeout 1\nhz 20\n");
    scratch.write("a2.inc", "timeout 2\n");
    let include = scratch.0.join("a?.inc");
    let path = scratch.write("tarn.conf", &format!("port 7000\ninclude {}\nhz 30\n", include.display()));
    let config = started(&[&path, "--port", "7001"]);
    assert_eq!((config.port(), config.timeout_s(), config.hz()), (7001, 2, 30));
    assert_eq!(config.file(), Some(std::path::Path::new(&path)));
    let config = started(&[&path, "port", "7002", "--hz", "40"]);
    assert_eq!((config.port(), config.hz()), (7002, 40), "Redis takes words without dashes, too");

    let circle = scratch.0.join("circle.conf");
    scratch.write("circle.conf", &format!("include {}\n", circle.display()));
    assert!(refused(&[circle.to_str().unwrap()]).contains("include each other"));
    for (text, why) in [("include", "wrong number"), ("\u{feff}requirepass x", "byte order mark")] {
        std::fs::write(&circle, text).unwrap();
        assert!(refused(&[circle.to_str().unwrap()]).contains(why));
    }
    assert_eq!(
        refused(&["/nonexistent.conf"]),
        "Fatal error, can't open config file '/nonexistent.conf': No such file or directory"
    );
}

#[test]
fn a_bad_line_is_fatal_with_its_number_text_and_reason() {
    let scratch = Scratch::new("fatal");
    let title = format!("\n*** FATAL CONFIG FILE ERROR (Tarn {}) ***\n", env!("CARGO_PKG_VERSION"));
    for (text, line, reason) in [
        (
            "# c\nport 1\n\nmaxmemory lots\n",
            "line 4\n>>> 'maxmemory lots'",
            "argument must be a memory value",
        ),
        ("port \"12\n", "line 1\n>>> 'port \"12'", "Unbalanced quotes in configuration line"),
        ("port\n", "line 1\n>>> 'port'", "wrong number of arguments"),
        (
            "unixsocketperm 9\n",
            "line 1\n>>> 'unixsocketperm 9'",
            "argument couldn't be parsed as an octal number",
        ),
        ("replicaof a\n", "line 1\n>>> 'replicaof a'", "wrong number of arguments"),
    ] {
        let path = scratch.write("bad.conf", text);
        let expected = format!("{title}Reading the configuration file, at {line}\n{reason}");
        assert_eq!(refused(&[&path]), expected);
    }
    let included = scratch.write("bad.inc", "\nport x\n");
    let path = scratch.write("bad.conf", &format!("include {included}\n"));
    assert!(refused(&[&path]).contains(&format!("Reading the configuration file {included}, at line 2\n")));
}

#[test]
fn config_get_answers_names_as_asked_and_patterns_with_all_names() {
    let config = Config::defaults();
    let names = |patterns: &[&str]| -> Vec<String> {
        config.get(patterns).into_iter().map(|(name, _)| String::from_utf8(name).unwrap()).collect()
    };
    assert_eq!(names(&["HASH-MAX-ziplist-entries"]), ["HASH-MAX-ziplist-entries"]);
    assert_eq!(names(&["max*memory", "maxmemory", "MAXMEMORY"]), ["maxmemory"]);
    assert_eq!(names(&["slave-r*"]), ["slave-read-only"]);
    assert_eq!(names(&["*-max-?iplist-value"]), ["hash-max-ziplist-value", "zset-max-ziplist-value"]);
    assert_eq!(names(&["rdb-key-save-delay", "rdb-key-*"]), ["rdb-key-save-delay"]);
    assert!(names(&["rdb-key-*", "include", "user", "nothing", ""]).is_empty());
    assert!(names(&["*"]).len() > 180);
}

#[test]
fn config_set_refuses_in_the_words_of_redis() {
    let config = Config::defaults();
    let failed = |name: &str, reason: &str| {
        format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}")
    };
    for (name, value, reason) in [
        ("maxmemory", "1x", "argument must be a memory value"),
        ("maxmemory", "-1", "argument must be a memory value"),
        ("maxmemory", "1.5gb", "argument must be a memory value"),
        ("maxmemory", "99999999999gb", "argument must be between 0 and 9223372036854775807 inclusive"),
        (
            "client-query-buffer-limit",
            "1",
            "argument must be between 1048576 and 9223372036854775807 inclusive",
        ),
        ("timeout", "", "argument couldn't be parsed into an integer"),
        ("timeout", "+1", "argument couldn't be parsed into an integer"),
        ("timeout", "-1", "argument must be between 0 and 2147483647 inclusive"),
        ("latency-tracking", "maybe", "argument must be 'yes' or 'no'"),
        ("maxmemory-clients", "x", "argument must be a memory or percent value"),
        ("maxmemory-clients", "101%", "percentage argument must be less or equal to 100"),
        ("appendfsync", "x", "argument(s) must be one of the following: everysec, always, no"),
        ("databases", "1", "can't set immutable config"),
        ("databases", "16", "can't set immutable config"),
        ("edition", "memory", "can't set immutable config"),
        ("threads", "5", "can't set immutable config"),
        ("save", "900 x", "Invalid save parameters"),
        ("save", "0 1", "Invalid save parameters"),
        ("save", " 1  2 ", "Invalid save parameters"),
        (
            "client-output-buffer-limit",
            "normal 1 2",
            "Wrong number of arguments in buffer limit configuration.",
        ),
        (
            "client-output-buffer-limit",
            "x 1 2 3",
            "Invalid client class specified in buffer limit configuration.",
        ),
        (
            "client-output-buffer-limit",
            "normal 1 2 -3",
            "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
        ),
        ("notify-keyspace-events", "Kq", "Invalid event class character. Use 'Ag$lshzxeKEtmdn'."),
        ("oom-score-adj-values", "1 2", "wrong number of arguments"),
        (
            "oom-score-adj-values",
            "1 3000 3",
            "Invalid oom-score-adj-values, elements must be between -2000 and 2000.",
        ),
        ("latency-tracking-info-percentiles", "nan", "Invalid latency-tracking-info-percentiles parameters"),
        (
            "latency-tracking-info-percentiles",
            "101",
            "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]",
        ),
        (
            "shutdown-on-sigterm",
            "save nosave",
            "shutdown options SAVE and NOSAVE can't be used simultaneously",
        ),
        ("proc-title-template", "", "template format is invalid or contains unknown variables"),
        ("proc-title-template", "{x}", "template format is invalid or contains unknown variables"),
    ] {
        assert_eq!(set(&config, name, value), Err(failed(name, reason)), "{name} {value}");
    }
    for unknown in ["speed", "user", "rename-command", ""] {
        let expected = format!("ERR Unknown option or number of arguments for CONFIG SET - '{unknown}'");
        assert_eq!(set(&config, unknown, "1"), Err(expected));
    }
    // A bad value is told of the directive by its own name, other refusals by the name that was asked for.
    assert_eq!(set(&config, "MaxMemory", "-1"), Err(failed("maxmemory", "argument must be a memory value")));
    let twice = config.set(&[("hz", "10"), ("HZ", "11")], Origin::Local).unwrap_err();
    assert_eq!(twice.to_string(), failed("HZ", "duplicate parameter"));
}

#[test]
fn protected_directives_open_to_whom_the_configuration_says() {
    let protected = "ERR CONFIG SET failed (possibly related to argument 'dir') - can't set protected config";
    let tmp = [("dir", "/tmp")];
    let set = |config: &Config, origin| config.set(&tmp, origin).map_err(|error| error.to_string()).map(drop);
    assert_eq!(set(&Config::defaults(), Origin::Local), Err(protected.to_owned()));
    let local = started(&["--enable-protected-configs", "local"]);
    assert_eq!(set(&local, Origin::Remote), Err(protected.to_owned()));
    assert_eq!(set(&local, Origin::Local), Ok(()));
    assert_eq!(local.dir(), PathBuf::from("/tmp"));
    let missing = local.set(&[("dir", "/nonexistent")], Origin::Local).unwrap_err().to_string();
    assert!(missing.ends_with("'dir') - No such file or directory"), "{missing}");
}

#[test]
fn values_are_answered_in_the_form_of_redis() {
    let config = Config::defaults();
    for (name, value, answer) in [
        ("maxmemory", "1KB", "1024"),
        ("maxmemory", "1k", "1000"),
        ("maxmemory", "", "0"),
        ("maxmemory-clients", "5%", "5%"),
        ("maxmemory-clients", "0%", "0"),
        ("maxmemory-policy", "ALLKEYS-LRU", "allkeys-lru"),
        ("hz", "1000", "500"),
        ("hz", "0", "1"),
        ("repl-backlog-size", "100", "16384"),
        ("save", "+1 02", "1 2"),
        ("save", "", ""),
        ("notify-keyspace-events", "KEA", "AKE"),
        ("notify-keyspace-events", "mKn$Eg", "g$nKEm"),
        ("notify-keyspace-events", "tg$zlhsxe", "g$lshzxet"),
        ("latency-tracking-info-percentiles", "1.123456789 99.99999 1e1 0x1p4", "1.123457 99.99999 10 16"),
        ("latency-tracking-info-percentiles", "", ""),
        ("shutdown-on-sigterm", "FORCE now", "now force"),
        ("shutdown-on-sigterm", "default", "default"),
        (
            "client-output-buffer-limit",
            "normal 1mb 2kb 3 replica 4 5 6",
            "normal 1048576 2048 3 slave 4 5 6 pubsub 33554432 8388608 60",
        ),
        ("bind", "127.0.0.1 -::1", "127.0.0.1 -::1"),
        ("bind", "", ""),
        ("proc-title-template", "{{{title}} {port}", "{{{title}} {port}"),
        ("oom-score-adj", "relative", "yes"),
        ("oom-score-adj", "absolute", "absolute"),
    ] {
        set(&config, name, value).unwrap();
        assert_eq!(get(&config, name), answer, "{name} {value}");
    }
    assert_eq!(config.output_limit(ClientClass::Replica).soft_s, 6);
}

#[test]
fn replacing_a_file_keeps_its_permissions_and_the_link_to_it() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new("replace");
    let path = scratch.write("real.conf", "old");
    let link = scratch.0.join("link.conf");
    std::os::unix::fs::symlink("real.conf", &link).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    sys::file::Fs::Real.replace(&link, b"new").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn config_set_changes_all_or_nothing() {
    let config = Config::defaults();
    assert!(config.set(&[("maxmemory", "5"), ("hz", "x")], Origin::Local).is_err());
    assert_eq!(config.maxmemory(), 0);

    let changed = config.set(&[("maxmemory", "5"), ("hz", "10"), ("timeout", "7")], Origin::Local).unwrap();
    assert_eq!(changed.iter().map(|change| change.name()).collect::<Vec<_>>(), ["maxmemory", "timeout"]);
    assert_eq!((config.maxmemory(), config.timeout_s()), (5, 7));

    let refused = config.set_and_apply(&[("timeout", "8"), ("port", "1")], Origin::Local, |_| {
        assert_eq!((config.timeout_s(), config.port()), (8, 1));
        Err(CannotApply {
            name: "port",
            reason: "Unable to listen on this port. Check server logs.".to_owned(),
        })
    });
    assert_eq!(
        refused.unwrap_err().to_string(),
        "ERR CONFIG SET failed (possibly related to argument 'port') - \
         Unable to listen on this port. Check server logs."
    );
    assert_eq!((config.timeout_s(), config.port()), (7, 6379));
}

#[test]
fn rewriting_keeps_the_file_and_changes_what_changed() {
    let scratch = Scratch::new("rewrite");
    let path = scratch.write(
        "tarn.conf",
        "# mine\nmaxmemory 1gb\n\nspeed high\nsave 900 1\nsave 300 10\nTIMEOUT 5\nuser a on\nhz 20",
    );
    let config = started(&[&path, "--port", "7000"]);
    set(&config, "timeout", "9").unwrap();
    set(&config, "save", "1 2").unwrap();
    set(&config, "client-output-buffer-limit", "pubsub 1gb 5 6").unwrap();
    set(&config, "requirepass", "a b\n").unwrap();
    config.rewrite(Appended::Changed).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        text,
        "# mine\nmaxmemory 1gb\n\nspeed high\nsave 1 2\ntimeout 9\nuser a on\nhz 20\n\
         # Generated by CONFIG REWRITE\n\
         client-output-buffer-limit normal 0 0 0\n\
         client-output-buffer-limit replica 256mb 64mb 60\n\
         client-output-buffer-limit pubsub 1gb 5 6\n\
         port 7000\nrequirepass \"a b\\n\"\n"
    );
    let again = started(&[&path]);
    assert_eq!(again.get(&["*"]), config.get(&["*"]));
    again.rewrite(Appended::Changed).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 1, "no temporary file is left");
    assert_eq!(
        Config::defaults().rewrite(Appended::Changed).unwrap_err().to_string(),
        "ERR The server is running without a config file"
    );
}

/// Texts that are likely to be taken for a value, and some that are none.
fn any_text(prng: &mut Prng) -> Vec<u8> {
    const TEXTS: [&str; 24] = [
        "",
        "0",
        "1",
        "-1",
        "yes",
        "no",
        "100mb",
        "5%",
        "-5%",
        "99999999999999999999",
        "9223372036854775807",
        "gb",
        "normal 1 2 3",
        "replica 1gb 2 3",
        "900 1",
        "900 1 300",
        "KEA",
        "save now",
        "50 99.9",
        "1 2 3",
        "a b",
        "no one",
        "localhost 1",
        "allkeys-lru",
    ];
    if prng.one_in(3) {
        let length = prng.below(12);
        return (0..length).map(|_| prng.next_u64() as u8).collect();
    }
    TEXTS[prng.below(TEXTS.len() as u64) as usize].into()
}

#[test]
fn random_values_never_panic_and_what_is_accepted_survives_a_rewrite() {
    let seed = std::env::var("TARN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let steps = std::env::var("TARN_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(500);
    println!("TARN_SEED={seed}");
    let mut prng = Prng::from_seed(seed);
    for _ in 0..steps {
        let mut values = load::default_values();
        for _ in 0..prng.below(4) {
            let index = prng.below(COUNT as u64) as usize;
            let row = &TABLE[index];
            let text = any_text(&mut prng);
            let words: Vec<&[u8]> = match row.kind.takes_several_words() {
                true => text.split(|&byte| byte == b' ').collect(),
                false => vec![&text],
            };
            if let Ok(value) = parse(row, &words, Some(values[index].clone())) {
                format(row, &value);
                if !matches!(row.kind, Kind::Lines { .. }) && row.name != "edition" {
                    values[index] = value;
                }
            }
        }
        for appended in [Appended::Changed, Appended::All] {
            let text = rewritten(b"# a file\n", &values, appended);
            let (read, _) = served(Config::from_text(&text));
            assert_eq!(*read.values.read(), values, "{}", String::from_utf8_lossy(&text));
        }
    }
}

#[test]
fn random_files_never_panic() {
    let mut prng = Prng::from_seed(2);
    for _ in 0..1000 {
        let mut text = Vec::new();
        for _ in 0..prng.below(6) {
            text.extend_from_slice(TABLE[prng.below(COUNT as u64) as usize].name.as_bytes());
            text.push(b' ');
            text.extend(any_text(&mut prng));
            text.push(b'\n');
        }
        if let Ok(Startup::Serve { config, .. }) = Config::from_text(&text) {
            let name = TABLE[prng.below(COUNT as u64) as usize].name;
            let _ = config.set(&[(name.as_bytes().to_vec(), any_text(&mut prng))], Origin::Remote);
            config.get(&["*"]);
        }
    }
}

#[test]
fn errors_of_lines_with_secrets_do_not_show_them() {
    for line in [
        "requirepass hidden extra",
        "REQUIREPASS \"hidden",
        "masterauth hidden x",
        "user bob >hidden nonsense",
    ] {
        if let Err(error) = Config::from_text(format!("edition memory\n{line}").as_bytes()) {
            assert!(!error.to_string().contains("hidden"), "{error}");
            assert!(error.to_string().contains("(redacted)"), "{error}");
        }
    }
    assert!(Config::from_text(b"requirepass hidden extra").is_err());
}
