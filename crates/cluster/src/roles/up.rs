//! `tarn cluster up`: a whole cluster on this machine, as children of this process.

mod children;

use super::operator::CONFIG_PORT;
use super::{option, value_of};
use crate::asking::{Entry, Watching};
use crate::backup::{self, Reach};
use crate::control::Setting;
use children::{Part, Parts};
use lexopt::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use sys::file::{Fs, Lock};

/// How often it is looked how the children are.
const LOOKING: Duration = Duration::from_millis(100);
/// How long a cluster may take until it serves.
const BEGINNING: Duration = Duration::from_secs(120);
/// How long the config server may take for an answer.
const ANSWERING: Duration = Duration::from_secs(2);
/// Who runs the cluster in a directory.
const LOCK: &str = "lock";
/// What the cluster was begun with.
const LAYOUT: &str = "layout";
/// The longest layout.
const LAYOUT_BYTES_MAX: u64 = 4096;

/// What a cluster is begun with.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Layout {
    shards: u16,
    copies: u16,
    port: u16,
    config_port: u16,
    edition: String,
}

impl Layout {
    fn to_line(&self) -> String {
        let Layout { shards, copies, port, config_port, edition } = self;
        format!("tarn-layout 1 {shards} {copies} {port} {config_port} {edition}\n")
    }

    fn from_line(line: &str) -> Option<Layout> {
        let words: Vec<&str> = line.strip_suffix('\n')?.split(' ').collect();
        let &["tarn-layout", "1", shards, copies, port, config_port, edition] = words.as_slice() else {
            return None;
        };
        let number = |word: &str| word.parse::<u16>().ok();
        Some(Layout {
            shards: number(shards)?,
            copies: number(copies)?,
            port: number(port)?,
            config_port: number(config_port)?,
            edition: edition.to_owned(),
        })
    }

    fn ports(&self) -> impl Iterator<Item = u16> + use<> {
        let count = usize::from(self.shards) * usize::from(self.copies);
        (self.port..=u16::MAX).take(count)
    }
}

/// How many shards there are if nobody says it.
const SHARDS: u16 = 3;

/// The words of `up`.
struct Given {
    dir: PathBuf,
    shards: Option<u16>,
    copies: Option<u16>,
    port: Option<u16>,
    config_port: Option<u16>,
    edition: Option<String>,
    /// The backup with which it begins.
    restore: Option<PathBuf>,
    directives: Vec<String>,
}

impl Given {
    fn read(words: &[String]) -> Result<Given, String> {
        let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
        let directives = words.get(end + 1..).unwrap_or_default().to_vec();
        let mut given = Given {
            dir: "tarn-cluster".into(),
            shards: None,
            copies: None,
            port: None,
            config_port: None,
            edition: None,
            restore: None,
            directives,
        };
        let mut parser = Parser::from_args(words[..end].iter().map(OsString::from));
        while let Some(arg) = parser.next().map_err(|error| error.to_string())? {
            let name = option(arg)?;
            let value = value_of(&mut parser, &name)?;
            let value = value.to_string_lossy().into_owned();
            let number = || {
                let number = value.parse::<u16>().ok().filter(|number| *number > 0);
                number.map(Some).ok_or_else(|| format!("--{name} wants a number, and not '{value}'"))
            };
            match name.as_str() {
                "dir" => given.dir = value.into(),
                "restore" => given.restore = Some(value.into()),
                "shards" | "copies" => {
                    // Before anything is written down that the config server would not begin with.
                    Setting::read(&name, &value).map_err(|why| format!("--{name}: {why}"))?;
                    match name.as_str() {
                        "shards" => given.shards = number()?,
                        _ => given.copies = number()?,
                    }
                }
                "port" => given.port = number()?,
                "config-port" => given.config_port = number()?,
                "edition" => match topology::Edition::named(&value) {
                    Some(_) => given.edition = Some(value),
                    None => {
                        return Err(format!("--edition is memory, durable or capacity, and not '{value}'"));
                    }
                },
                _ => return Err(format!("there is no option --{name}; see --help")),
            }
        }
        Ok(given)
    }

    /// Takes the directory, which is made if it is not there.
    fn lock(&self) -> Result<Lock, String> {
        let shown = self.dir.display();
        let about = |error: io::Error| format!("{shown}: {error}");
        Fs::Real.create_dir_all(&self.dir).map_err(about)?;
        let lock = Fs::Real.lock(&self.dir.join(LOCK)).map_err(about)?;
        lock.ok_or_else(|| format!("the cluster in {shown} runs: another `tarn cluster up` has it"))
    }

    /// What the directory says, or what is to be begun there.
    fn layout(&self) -> Result<Layout, String> {
        let path = self.dir.join(LAYOUT);
        let about = |error: io::Error| format!("{}: {error}", path.display());
        if Fs::Real.kind(&path).map_err(about)?.is_none() {
            let layout = Layout {
                shards: self.shards.unwrap_or(SHARDS),
                copies: self.copies.unwrap_or(2),
                port: self.port.unwrap_or(7000),
                config_port: self.config_port.unwrap_or(CONFIG_PORT),
                edition: self.edition.clone().unwrap_or_else(|| "durable".to_owned()),
            };
            let last = u32::from(layout.port) + u32::from(layout.shards) * u32::from(layout.copies) - 1;
            if last > 65_535 {
                return Err(format!(
                    "there are no {} ports from {} on",
                    last + 1 - u32::from(layout.port),
                    layout.port
                ));
            }
            if (u32::from(layout.port)..=last).contains(&u32::from(layout.config_port)) {
                return Err(format!(
                    "the config server's port {} is one of the servers'",
                    layout.config_port
                ));
            }
            Fs::Real.replace(&path, layout.to_line().as_bytes()).map_err(about)?;
            return Ok(layout);
        }
        let bytes = Fs::Real.read(&path, LAYOUT_BYTES_MAX).map_err(about)?;
        let layout = std::str::from_utf8(&bytes).ok().and_then(Layout::from_line);
        let layout = layout.ok_or_else(|| format!("{} is damaged", path.display()))?;
        let wanted = Layout {
            shards: self.shards.unwrap_or(layout.shards),
            copies: self.copies.unwrap_or(layout.copies),
            port: self.port.unwrap_or(layout.port),
            config_port: self.config_port.unwrap_or(layout.config_port),
            edition: self.edition.clone().unwrap_or_else(|| layout.edition.clone()),
        };
        if wanted != layout {
            return Err(format!(
                "the cluster in {} was begun with --shards {} --copies {} --port {} --config-port {} --edition {}; leave these out, or take another --dir",
                self.dir.display(),
                layout.shards,
                layout.copies,
                layout.port,
                layout.config_port,
                layout.edition
            ));
        }
        Ok(layout)
    }
}

fn say(text: &str) {
    // Who closed standard output does not want to see this.
    let _ = writeln!(io::stdout(), "{text}");
}

/// Runs `tarn cluster up`.
pub fn run(words: &[String]) -> Result<(), String> {
    let mut given = Given::read(words)?;
    if let Some(backup) = &given.restore {
        // Before anything is there that would wait for it.
        let wanted = backup::count_shards(backup)?;
        let is_new = Fs::Real.kind(&given.dir.join(LAYOUT)).is_ok_and(|kind| kind.is_none());
        if is_new {
            given.shards.get_or_insert(wanted.max(SHARDS));
        }
        if given.shards.is_some_and(|shards| shards < wanted) {
            return Err(format!("the backup has {wanted} shards: say --shards {wanted}, or more"));
        }
    }
    let _lock = given.lock()?;
    let layout = given.layout()?;
    for told in children::end_left(&given.dir)? {
        say(&told);
    }
    let is_enough = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, is_enough.clone())
            .map_err(|error| format!("cannot hear signals: {error}"))?;
    }
    let mut parts = Parts(Vec::new());
    begin(&mut parts, &given, &layout)?;
    if let Some(backup) = &given.restore {
        restore(backup, &given, &layout, &is_enough)?;
    }
    let served = await_service(&mut parts, &layout, &is_enough)?;
    if let Some(table) = served {
        say(table.trim_end());
        let password = given.password().map_or(String::new(), |text| format!(" -a {text}"));
        say(&format!("\nNext: redis-cli -c -p {}{password}", layout.port));
        say(&format!("      tarn cluster status --config 127.0.0.1:{}", layout.config_port));
        say("Ctrl-C ends the cluster; its data stay.");
    }
    while !is_enough.load(Ordering::SeqCst) {
        parts.ended().iter().for_each(|told| say(told));
        std::thread::sleep(LOOKING);
    }
    say("The cluster ends.");
    parts.end();
    Ok(())
}

impl Given {
    /// The password that servers are given behind `--`.
    fn password(&self) -> Option<&str> {
        let at = self.directives.iter().position(|word| word == "--requirepass")?;
        self.directives.get(at + 1).map(String::as_str)
    }
}

fn begin(parts: &mut Parts, given: &Given, layout: &Layout) -> Result<(), String> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let dir = |name: &str| given.dir.join(name);
    let store = format!("dir:{}", dir("store").display());
    let (port, copies, shards) =
        (layout.config_port.to_string(), layout.copies.to_string(), layout.shards.to_string());
    let mut config = words(&["config", "--store", &store, "--port", &port, "--copies", &copies]);
    config.extend(words(&["--shards", &shards]));
    if given.restore.is_some() {
        config.extend(words(&["--await-restore", "yes"]));
    }
    if let Some(password) = given.password() {
        config.extend(words(&["--server-password", password]));
    }
    parts.0.push(Part::begin("the config server".to_owned(), &dir("config"), &config)?);
    let place = format!("127.0.0.1:{port}");
    for port in layout.ports() {
        let port = port.to_string();
        let data = dir(&port);
        Fs::Real.create_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
        let data = data.display().to_string();
        let mut server = words(&["server", "--port", &port, "--bind", "127.0.0.1", "--dir", &data]);
        server.extend(words(&["--edition", &layout.edition, "--cluster-enabled", "yes"]));
        server.extend(words(&["--cluster-config-servers", &place]));
        // All of a shard end at once with this process, and what it holds is to stay: that takes a log in the memory edition, too.
        server.extend(words(&["--appendonly", "yes", "--appendfsync", "always"]));
        if let Some(password) = given.password() {
            server.extend(words(&["--masterauth", password]));
        }
        server.extend(given.directives.iter().cloned());
        parts.0.push(Part::begin(format!("the server at 127.0.0.1:{port}"), &dir(&port), &server)?);
    }
    Ok(())
}

/// Brings back what a backup holds, unless it is to end before: then nothing is restored, and it can be said again.
fn restore(backup: &Path, given: &Given, layout: &Layout, is_enough: &AtomicBool) -> Result<(), String> {
    let servers = Entry { password: given.password().map(str::to_owned), ..Entry::default() };
    let places = vec![("127.0.0.1".to_owned(), layout.config_port)];
    let reach = Reach { places, config: Entry::default(), servers };
    let begun = Instant::now();
    let backup = backup.to_owned();
    let work = move || {
        while reach.topology().is_err() && begun.elapsed() < BEGINNING {
            std::thread::sleep(LOOKING);
        }
        backup::restore(&reach, &backup)
    };
    // It waits for servers for as long as they take, and ends with the process.
    let work = std::thread::Builder::new().name("restore".to_owned()).spawn(work);
    let work = work.map_err(|error| format!("cannot begin a thread: {error}"))?;
    while !work.is_finished() {
        if is_enough.load(Ordering::SeqCst) {
            say("Nothing is restored: the same command begins it again.");
            return Ok(());
        }
        std::thread::sleep(LOOKING);
    }
    work.join().unwrap_or_else(|_| Err("the restore broke off".to_owned()))
}

/// Whether each server of each shard holds everything that was acknowledged.
fn is_whole(status: &serde_json::Value) -> bool {
    let shards = status["shards"].as_array().into_iter().flatten();
    let mut servers = shards.flat_map(|shard| shard["servers"].as_array().into_iter().flatten());
    servers.all(|server| server["is_member"].as_bool() == Some(true))
}

/// Waits until all slots are served, and all copies are whole, and gives a table; None: it is to end before.
fn await_service(
    parts: &mut Parts,
    layout: &Layout,
    is_enough: &AtomicBool,
) -> Result<Option<String>, String> {
    let places = vec![("127.0.0.1".to_owned(), layout.config_port)];
    let mut watching = Watching::of(places, Entry::default());
    let begun = Instant::now();
    let mut last = String::new();
    while !is_enough.load(Ordering::SeqCst) {
        if let Some(told) = parts.ended().into_iter().next() {
            return Err(told);
        }
        if begun.elapsed() > BEGINNING {
            return Err(format!("the cluster does not serve after {} s: {last}", BEGINNING.as_secs()));
        }
        match watching.ask(&["CLUSTER", "STATUS", "JSON"], ANSWERING, |_| true) {
            Err(why) => last = why,
            Ok(text) => {
                let status: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
                if status["serves"].as_bool() == Some(true) && is_whole(&status) {
                    return watching.ask(&["CLUSTER", "STATUS"], ANSWERING, |_| true).map(Some);
                }
                last = format!(
                    "{} of 16384 slots have a shard, and not all copies may be whole",
                    status["slots_covered"]
                );
            }
        }
        std::thread::sleep(LOOKING);
    }
    Ok(None)
}
