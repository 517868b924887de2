//! What README and the pages of `docs` print can be done: every command in them is run as it stands there, in a directory of its own, with the
//! program under test on the PATH.
//!
//! Ports become free ones, and what belongs to a Redis of the machine lies in the directory instead ([`Sandbox::line`]). A command that is not run is one
//! of [`NOT_RUN`], which says why and what is looked at in its place. What `--help` says is true, too.

use crate::imports::run;
use crate::operators::{shown_by, text};
use crate::security::functions;
use crate::{root, tarn};
use config::TABLE;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use testkit::ask::{ask, call_well};
use testkit::process::Deadline;
use testkit::{Client, Program, Server};

/// A kind of command that is not run.
struct NotRun {
    /// What it begins with.
    begin: &'static str,
    why: &'static str,
    /// Whether what it names is there.
    is_sound: fn(&str) -> bool,
}

const NOT_RUN: &[NotRun] = &[
    NotRun {
        begin: "cargo install ",
        why: "it builds the program anew, for minutes",
        is_sound: |line| line.contains("--path .") && root().join("Cargo.lock").exists(),
    },
    NotRun {
        begin: "cargo build --profile quick",
        why: "the same",
        is_sound: |_| manifest().contains("[profile.quick]"),
    },
    NotRun { begin: "./test ", why: "these tests, for minutes or hours", is_sound: names_a_test },
    NotRun {
        begin: "cargo +nightly test -p script",
        why: "it needs another compiler",
        is_sound: |line| {
            let name = line.split_once("--test ").unwrap().1.split(' ').next().unwrap();
            root().join(format!("crates/script/tests/{name}.rs")).exists()
        },
    },
    NotRun { begin: "export ", why: "for the other compiler", is_sound: |line| line.contains('=') },
    NotRun {
        begin: "tests/dtm/run ",
        why: "it fetches and builds another program",
        is_sound: |line| root().join(line.split(' ').next().unwrap()).exists(),
    },
    NotRun {
        begin: "tarn server --tls-port ",
        why: "it needs certificates; tests/tls.rs makes some",
        is_sound: |line| {
            let tls = "--tls-port --tls-cert-file --tls-key-file --tls-ca-cert-file --tls-cluster --tls-replication";
            let cluster = "--port --masterauth --requirepass --cluster-enabled --cluster-config-servers";
            has_options("server", &format!("{tls} {cluster}"), line)
        },
    },
    NotRun {
        begin: "redis-cli -p 6380 --tls ",
        why: "the same",
        is_sound: |line| line.contains("--cacert ca.crt"),
    },
    NotRun {
        begin: "tarn cluster ",
        why: "it serves until it is ended, or wants a cluster; tests/clusters.rs and tests/configs.rs have some",
        is_sound: |line| {
            let word = line.split(' ').nth(2).unwrap_or_default();
            let help = shown_by("cluster", &["--help"]);
            let is_named =
                help.contains(&format!("tarn cluster {word}")) || help.contains(&format!("\n  {word} "));
            is_named && has_options("cluster", &help, line)
        },
    },
    NotRun {
        begin: "tarn config --store dir:",
        why: "it serves until it is ended, and wants certificates; tests/clusters/secured.rs makes some",
        is_sound: |line| has_options("config", &shown_by("config", &["--help"]), line),
    },
    NotRun {
        begin: "tarn config --store etcd:",
        why: "it wants an etcd; the tests of crates/cluster have some",
        is_sound: |line| has_options("config", &shown_by("config", &["--help"]), line),
    },
    NotRun {
        begin: "tarn server --cluster-enabled yes ",
        why: "it wants a config server; tests/clusters.rs has one",
        is_sound: |line| has_options("server", "", line),
    },
    NotRun {
        begin: "tarn proxy ",
        why: "it serves until it is ended, and wants other servers; tests/proxies.rs has some",
        is_sound: |line| has_options("proxy", &shown_by("proxy", &["--help"]), line),
    },
    NotRun {
        begin: "tarn migrate ",
        why: "it wants servers, and an end; tests/migrations.rs has some",
        is_sound: |line| has_options("migrate", &shown_by("migrate", &["--help"]), line),
    },
    NotRun {
        begin: "redis-cli -p 6400",
        why: "it wants a proxy; tests/configs.rs has the one of a cluster",
        is_sound: |_| shown_by("cluster", &["--help"]).contains("one address for all of it (6400)"),
    },
    NotRun {
        begin: "redis-cli -c -p 7000",
        why: "it wants a cluster; tests/direct.rs talks to one",
        is_sound: |line| line.len() == "redis-cli -c -p 7000".len(),
    },
    NotRun {
        begin: "tarn whitepaper ",
        why: "it takes minutes; tests/whitepaper_runs.rs runs less of it",
        is_sound: |line| has_options("whitepaper", &shown_by("whitepaper", &["--help"]), line),
    },
];

/// A line without the variables that stand in front, and the core that it is bound to.
fn command(line: &str) -> &str {
    match line.split_once(' ') {
        Some((word, rest)) if word.contains('=') => command(rest),
        _ => line.strip_prefix("taskset -c 0 ").unwrap_or(line),
    }
}

fn manifest() -> String {
    std::fs::read_to_string(root().join("Cargo.toml")).unwrap()
}

/// Whether the last word of a line is the beginning of a test's name.
fn names_a_test(line: &str) -> bool {
    let mut known = BTreeSet::new();
    functions(&root().join("tests"), &mut known);
    functions(&root().join("crates"), &mut known);
    let name = line.rsplit(' ').next().unwrap();
    known.iter().any(|test| test.starts_with(name))
}

/// Whether a role knows all options of a line: by its help, or as directives where it takes these.
fn has_options(role: &str, help: &str, line: &str) -> bool {
    let takes_directives = ["server", "import", "export"].contains(&role);
    // Behind a quote it is another program's.
    let own = line.split(['\'', '"']).step_by(2);
    own.flat_map(|part| part.split([' ', '`'])).filter_map(|word| word.strip_prefix("--")).all(|option| {
        option == "help"
            || help.contains(&format!("--{option}"))
            || takes_directives && TABLE.iter().any(|row| row.is_named(option.as_bytes()))
    })
}

/// The pages, with their names.
fn pages() -> Vec<(String, String)> {
    let mut paths = vec![root().join("README.md")];
    for folder in ["docs", "docs/formats"] {
        let names = std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        paths.extend(names.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        (name, std::fs::read_to_string(path).unwrap())
    };
    paths.into_iter().map(read).collect()
}

/// The lines of a page that are set as code, block by block: indented behind an empty line, or between fences. Drawings are none.
fn blocks(page: &str) -> Vec<Vec<&str>> {
    let (mut blocks, mut block, mut may_begin) = (Vec::new(), Vec::new(), true);
    let (mut is_fenced, mut is_file) = (false, false);
    for line in page.lines().chain([""]) {
        let is_fence = line.starts_with("```");
        is_fenced ^= is_fence;
        // The file of another program, which is tested where that is.
        is_file = line == "```haproxy" || is_file && !is_fence;
        let code = match line.strip_prefix("    ") {
            _ if is_fence || is_file => None,
            _ if is_fenced => Some(line),
            Some(code) if may_begin || !block.is_empty() => Some(code),
            _ => None,
        };
        match code {
            Some(code) => block.push(code),
            None if block.is_empty() => {}
            None => blocks.push(std::mem::take(&mut block)),
        }
        may_begin = line.is_empty();
    }
    let is_drawing = |block: &Vec<&str>| block.iter().any(|line| line.starts_with('+'));
    blocks.retain(|block| !is_drawing(block));
    blocks
}

/// A directory in which a page's commands run one after the other.
struct Sandbox {
    /// Owns the directory; a Redis that has ended and left its data there.
    redis: Server,
    running: Option<Running>,
}

/// A `tarn server` of a page.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
    port: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Sandbox {
    fn new() -> Sandbox {
        let mut redis =
            Server::start(Program::Redis, &["--appendonly", "yes", "--appendfsync", "always"]).unwrap();
        call_well(&mut redis.connect().unwrap(), &["SET", "of-redis", "1"]);
        redis.kill();
        let dir = redis.dir();
        std::fs::create_dir(dir.join("bin")).unwrap();
        let Program::Tarn(path) = tarn() else { unreachable!("the program under test is Tarn") };
        std::os::unix::fs::symlink(std::path::absolute(path).unwrap(), dir.join("bin/tarn")).unwrap();
        // As Debian's: it names places that are a Redis' own.
        let of_redis = dir.join("of-redis");
        let of_redis = text(&of_redis);
        let file = format!(
            "bind 127.0.0.1 -::1\nport 6379\ndaemonize yes\npidfile {of_redis}/redis-server.pid\nlogfile {of_redis}/redis-server.log\n\
             dir {of_redis}\ndbfilename dump.rdb\nappendonly no\nlist-compress-depth 0\n"
        );
        std::fs::write(dir.join("redis.conf"), file).unwrap();
        Sandbox { redis, running: None }
    }

    fn dir(&self) -> &Path {
        self.redis.dir()
    }

    /// A page's line as it is run here.
    fn line(&self, line: &str) -> String {
        let dir = text(self.dir());
        let tomorrow =
            Command::new("date").args(["-u", "-d", "tomorrow", "+%FT%TZ"]).output().unwrap().stdout;
        line.replace("/etc/redis/redis.conf", &format!("{dir}/redis.conf"))
            .replace("/var/lib/redis", &format!("{dir}/appendonlydir"))
            .replace("2026-11-22T09:00:00Z", String::from_utf8(tomorrow).unwrap().trim())
    }

    fn shell(&self, line: &str) -> Command {
        let path = format!("{}/bin:{}", text(self.dir()), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(self.dir()).env("PATH", path).stdin(Stdio::null());
        command
    }

    /// Runs a command that ends.
    fn run(&mut self, line: &str) {
        self.stop();
        let Output { status, stdout, stderr } = self.shell(&self.line(line)).output().unwrap();
        let said = [stdout, stderr].concat();
        assert!(status.success() && !said.is_empty(), "{line}: {}", String::from_utf8_lossy(&said));
    }

    /// Starts a server on a free port, and gives it something to keep.
    fn start(&mut self, line: &str) {
        self.stop();
        let command = line.split(" #").next().unwrap().trim_end();
        // The last one counts.
        let command = format!("exec {} --port 0", self.line(command));
        let mut child = self.shell(&command).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let _deadline = Deadline::of(&child);
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        while !said.contains("Ready to accept connections") {
            let count = output.read_line(&mut said).unwrap();
            assert!(count > 0, "{line} has ended, and said: {said}");
        }
        let address = said.split_once("Listening on 127.0.0.1:").expect("it prints where it listens").1;
        let port = address.lines().next().unwrap().to_owned();
        let mut client = Client::connect(format!("127.0.0.1:{port}").parse().unwrap()).unwrap();
        call_well(&mut client, &["SET", "key", "value"]);
        self.running = Some(Running { child, output, port });
    }

    /// Ends the server as Ctrl-C does; what it has to say last is read, so that it can.
    fn stop(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        let pid = running.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let _deadline = Deadline::of(&running.child);
        let mut said = String::new();
        std::io::Read::read_to_string(&mut running.output, &mut said).unwrap();
        assert!(running.child.wait().unwrap().success(), "{said}");
    }

    /// Follows what somebody types into redis-cli, and compares what it shows.
    fn talk(&mut self, lines: &[&str]) {
        const PROMPT: &str = "127.0.0.1:6379> ";
        let port = &self.running.as_ref().expect("a server was started before").port;
        for (at, typed) in
            lines.iter().enumerate().filter_map(|(at, line)| Some((at, line.strip_prefix(PROMPT)?)))
        {
            let shown: String = lines[at + 1..]
                .iter()
                .take_while(|line| !line.starts_with(PROMPT))
                .map(|line| format!("{line}\n"))
                .collect();
            let mut cli = self.shell(&format!("redis-cli --no-raw -p {port}"));
            let mut cli = cli.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            writeln!(cli.stdin.take().unwrap(), "{typed}").unwrap();
            let output = cli.wait_with_output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), shown, "{typed}");
        }
    }
}

#[test]
fn every_command_that_a_page_prints_can_be_run() {
    let mut count = 0;
    for (page, content) in pages() {
        let blocks = blocks(&content);
        let mut sandbox = None;
        for block in blocks {
            let sandbox = sandbox.get_or_insert_with(Sandbox::new);
            if block[0] == "$ redis-cli" {
                sandbox.talk(&block[1..]);
                continue;
            }
            for line in block {
                count += 1;
                match NOT_RUN.iter().find(|kind| command(line).starts_with(kind.begin)) {
                    Some(kind) => assert!((kind.is_sound)(line), "{page}: {line} (not run: {})", kind.why),
                    None if line.starts_with("tarn server ") || line == "tarn server" => sandbox.start(line),
                    None if line.starts_with("tarn ") => sandbox.run(line),
                    None => panic!("{page}: nobody knows how to run: {line}"),
                }
            }
        }
        if let Some(mut sandbox) = sandbox {
            sandbox.stop();
            assert!(!sandbox.dir().join("of-redis").exists(), "what belongs to a Redis is left alone");
        }
    }
    assert!(count > 30, "{count} commands");
}

#[test]
fn the_trial_beside_a_redis_says_what_it_does_and_leaves_the_redis_alone() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let line = readme.lines().find(|line| line.contains("/etc/redis/redis.conf")).unwrap().trim();
    let mut sandbox = Sandbox::new();
    sandbox.start(line);
    let address = format!("127.0.0.1:{}", sandbox.running.as_ref().unwrap().port).parse().unwrap();
    let mut client = Client::connect(address).unwrap();
    assert_eq!(ask(&mut client, &["EXISTS", "of-redis", "key"]), "Int(1)");
    assert!(sandbox.dir().join("trial").exists());
    sandbox.stop();
}

#[test]
fn commands_within_sentences_have_roles_and_options_that_there_are() {
    let mut count = 0;
    for (page, content) in pages() {
        let spans = content.split('`').skip(1).step_by(2).filter(|span| span.starts_with("tarn "));
        for span in spans.filter(|span| !span.contains("ROLE") && *span != "tarn --help") {
            count += 1;
            let words: Vec<&str> = span.split_whitespace().collect();
            let help = match (words[1], words.get(2)) {
                // An option of every load.
                ("bench", Some(word)) if word.starts_with('-') => vec!["kv", "--help"],
                ("bench", Some(load)) => vec![*load, "--help"],
                _ => vec!["--help"],
            };
            let help = shown_by(words[1], &help);
            assert!(has_options(words[1], &help, span), "{page}: {span}");
        }
    }
    assert!(count > 20, "{count} commands");
}

#[test]
fn every_role_tells_what_it_does_and_its_version() {
    let version = shown_by("--version", &[]);
    assert_eq!(version, format!("tarn {}\n", env!("CARGO_PKG_VERSION")));
    let usage = shown_by("--help", &[]);
    let mut roles = BTreeSet::new();
    for line in usage.lines() {
        roles.extend(line.split_once("tarn ").and_then(|(_, rest)| rest.split(' ').next()));
    }
    roles.retain(|role| role.chars().all(|letter| letter.is_ascii_lowercase()));
    let expected = [
        "bench",
        "check",
        "cluster",
        "config",
        "export",
        "import",
        "migrate",
        "proxy",
        "restore",
        "server",
        "whitepaper",
    ];
    assert_eq!(roles.iter().copied().collect::<Vec<_>>(), expected);
    for role in roles {
        let help = shown_by(role, &["--help"]);
        assert!(help.contains(&format!("Usage: tarn {role} ")), "{help}");
        let said = shown_by(role, &["--version"]);
        assert!(said == version || role == "server" && said.starts_with("Tarn server v="), "{said}");
    }
    let output = run("nonsense", &[]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.starts_with("tarn: 'nonsense' is not a role.\n") && said.contains("Usage: tarn server"),
        "{said}"
    );
}
