//! `tarn cluster up`: a whole cluster on this machine, as children of this process.

mod children;

use super::operator::{CONFIG_PORT, PROXY_PORT};
use super::{option, value_of};
use crate::asking::{Entry, Watching};
use crate::backup::{self, Reach, Stand};
use crate::control::Setting;
use children::{Part, Parts, Role};
use lexopt::Parser;
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use sys::file::{Fs, Lock};

/// How often it is looked how the children are.
const LOOKING: Duration = Duration::from_millis(100);
/// How long a cluster may take until it serves.
const BEGINNING: Duration = Duration::from_secs(120);
/// How long servers may take until all have heard that the cluster serves.
const HEARING: Duration = Duration::from_secs(5);
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

    /// Whether a port is one of these.
    fn has_port(&self, port: u16) -> bool {
        port == self.config_port || self.ports().any(|own| own == port)
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
    /// None: no proxy is begun.
    proxy_port: Option<u16>,
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
            proxy_port: Some(PROXY_PORT),
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
                "proxy-port" if value == "none" => given.proxy_port = None,
                "proxy-port" => given.proxy_port = number()?,
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
    if let Some(port) = given.proxy_port.filter(|port| layout.has_port(*port)) {
        return Err(format!(
            "the proxy's port {port} is a server's, or the config server's: see --proxy-port"
        ));
    }
    for told in children::end_left(&given.dir)? {
        say(&told);
    }
    if let Some(port) = given.proxy_port {
        let taken = |error: io::Error| {
            format!("the proxy's port {port} cannot be had ({error}): say --proxy-port PORT, or none")
        };
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(taken)?;
    }
    let is_enough = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
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
        begin_proxy(&mut parts, &given, &layout, &is_enough)?;
        say(table.trim_end());
        let password = given.password().map_or(String::new(), |text| format!(" -a {text}"));
        say(&format!("\nNext: redis-cli -c -p {}{password}", layout.port));
        if let Some(port) = given.proxy_port {
            say(&format!(
                "      redis-cli -p {port}{password}, the proxy, or any client of one Redis server"
            ));
        }
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
        self.directive("--requirepass")
    }

    fn directive(&self, name: &str) -> Option<&str> {
        // Of several the last one counts.
        let at = self.directives.iter().rposition(|word| word == name)?;
        self.directives.get(at + 1).map(String::as_str)
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn begin(parts: &mut Parts, given: &Given, layout: &Layout) -> Result<(), String> {
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
    parts.0.push(Part::begin(Role::Config, &dir("config"), &config)?);
    let place = format!("127.0.0.1:{port}");
    for at in layout.ports() {
        let port = at.to_string();
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
        parts.0.push(Part::begin(Role::Server(at), &dir(&port), &server)?);
    }
    Ok(())
}

/// Begins the proxy, unless there is to be none, and waits until it listens. The cluster serves.
fn begin_proxy(
    parts: &mut Parts,
    given: &Given,
    layout: &Layout,
    is_enough: &AtomicBool,
) -> Result<(), String> {
    let Some(at) = given.proxy_port else { return Ok(()) };
    let dir = given.dir.join("proxy");
    Fs::Real.create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let (port, shown) = (at.to_string(), dir.display().to_string());
    let config = format!("127.0.0.1:{}", layout.config_port);
    let mut proxy = words(&["proxy", "--port", &port, "--bind", "127.0.0.1", "--dir", &shown]);
    proxy.extend(words(&["--proxy-config-servers", &config, "--proxy-drain-timeout", "1"]));
    if let Some(password) = given.password() {
        proxy.extend(words(&["--requirepass", password, "--masterauth", password]));
    }
    if let Some(databases) = given.directive("--databases") {
        proxy.extend(words(&["--databases", databases]));
    }
    let begin = || Part::begin(Role::Proxy(at), &dir, &proxy).map(|part| Parts(vec![part]));
    let (begun, mut begins) = (Instant::now(), begin()?);
    while !is_enough.load(Ordering::SeqCst) {
        let listens = TcpStream::connect((Ipv4Addr::LOCALHOST, at)).is_ok();
        // One who has taken the port meanwhile would be somebody else, and this one's proxy would end.
        std::thread::sleep(LOOKING);
        match begins.ended().into_iter().next() {
            None if listens => break,
            None => {}
            // A server may not have heard yet that the cluster serves: then a proxy ends at once.
            Some(told) if begun.elapsed() > HEARING => return Err(told),
            Some(_) => begins = begin()?,
        }
        if begun.elapsed() > BEGINNING {
            return Err(format!("the proxy does not serve after {} s", BEGINNING.as_secs()));
        }
    }
    parts.0.append(&mut begins.0);
    Ok(())
}

/// Brings back what a backup holds, unless it is to end before.
fn restore(backup: &Path, given: &Given, layout: &Layout, is_enough: &AtomicBool) -> Result<(), String> {
    let servers = Entry { password: given.password().map(str::to_owned), ..Entry::default() };
    let places = vec![("127.0.0.1".to_owned(), layout.config_port)];
    let reach = Reach { places, config: Entry::default(), servers };
    let begun = Instant::now();
    let backup = backup.to_owned();
    let stand = Arc::new(Stand::default());
    let its = stand.clone();
    let work = move || {
        while reach.topology().is_err() && begun.elapsed() < BEGINNING {
            std::thread::sleep(LOOKING);
        }
        backup::restore(&reach, &backup, &its)
    };
    // It waits for servers for as long as they take, and ends with the process.
    let work = std::thread::Builder::new().name("restore".to_owned()).spawn(work);
    let work = work.map_err(|error| format!("cannot begin a thread: {error}"))?;
    while !work.is_finished() {
        if is_enough.load(Ordering::SeqCst) {
            return Err(ended(stand.give_up()));
        }
        std::thread::sleep(LOOKING);
    }
    work.join().unwrap_or_else(|_| Err("the restore broke off".to_owned()))
}

/// What is told where a restore was ended before it had said that it is done.
fn ended(is_given_up: bool) -> String {
    match is_given_up {
        true => "it was ended, and nothing is restored: the same command begins it again".to_owned(),
        false => "it was ended when the backup was brought and its end asked for: whether it is restored is not known. The same command without --restore shows it: a cluster that has it serves all keys".to_owned(),
    }
}

/// The servers that do not hold everything that was acknowledged in their shards yet, a line each.
fn not_whole(status: &Value) -> Vec<String> {
    let each = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let mut told = Vec::new();
    for shard in each(&status["shards"]) {
        for server in each(&shard["servers"]) {
            if server["is_member"].as_bool() != Some(true) {
                let (host, port) = (server["host"].as_str().unwrap_or("-"), &server["port"]);
                told.push(format!("the copy of shard {} at {host}:{port} is not whole yet", shard["shard"]));
            }
        }
    }
    told
}

/// Whether a cluster can be given to its clients, and what is told of its copies; None: it cannot yet. That copies are whole is waited for as long as it is not late.
fn is_ready(status: &Value, is_late: bool) -> Option<Vec<String>> {
    let missing = not_whole(status);
    (status["serves"].as_bool() == Some(true) && (missing.is_empty() || is_late)).then_some(missing)
}

/// Waits until all slots are served, and all copies are whole, or that takes too long, and gives a table; None: it is to end before.
fn await_service(
    parts: &mut Parts,
    layout: &Layout,
    is_enough: &AtomicBool,
) -> Result<Option<String>, String> {
    let places = vec![("127.0.0.1".to_owned(), layout.config_port)];
    let mut watching = Watching::of(places, Entry::default());
    let begun = Instant::now();
    while !is_enough.load(Ordering::SeqCst) {
        if let Some(told) = parts.ended().into_iter().next() {
            return Err(told);
        }
        let is_late = begun.elapsed() > BEGINNING;
        let why = match watching.ask(&["CLUSTER", "STATUS", "JSON"], ANSWERING, |_| true) {
            Err(why) => why,
            Ok(text) => {
                let status: Value = serde_json::from_str(&text).unwrap_or_default();
                if let Some(missing) = is_ready(&status, is_late) {
                    let table = crate::table::of(&status);
                    return Ok(Some(missing.iter().fold(table, |told, line| told + line + "\n")));
                }
                format!(
                    "{} of 16384 slots have a shard, and not all copies may be whole",
                    status["slots_covered"]
                )
            }
        };
        if is_late {
            return Err(format!("the cluster does not serve after {} s: {why}", BEGINNING.as_secs()));
        }
        std::thread::sleep(LOOKING);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_cluster_that_serves_is_given_to_clients_though_a_copy_takes_long() {
        let server =
            |port: u16, is_member: bool| json!({ "host": "h", "port": port, "is_member": is_member });
        let status = |serves: bool, is_whole: bool| {
            let shard = json!({ "shard": 1, "servers": [server(7002, true), server(7003, is_whole)] });
            json!({ "serves": serves, "shards": [shard] })
        };
        assert_eq!(is_ready(&status(true, true), false), Some(Vec::new()));
        assert_eq!(is_ready(&status(true, false), false), None, "it may come in a moment");
        let told = "the copy of shard 1 at h:7003 is not whole yet".to_owned();
        assert_eq!(is_ready(&status(true, false), true), Some(vec![told]));
        assert_eq!(is_ready(&status(false, true), true), None);
        assert!(ended(true).contains("nothing is restored") && ended(false).contains("is not known"));
    }
}
