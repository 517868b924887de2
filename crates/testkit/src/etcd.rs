//! etcd to test with: members as processes of one cluster, which can be killed, stopped and started again.

use crate::process::{free_port, fresh_dir};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long a member may take to say how it stands.
const STATUS_WITHIN: Duration = Duration::from_secs(1);

/// Members of one etcd. They end with their handle.
#[derive(Debug)]
pub struct Etcd {
    dir: PathBuf,
    members: Vec<Member>,
    scheme: &'static str,
    more: Vec<String>,
}

#[derive(Debug)]
struct Member {
    client: u16,
    peer: u16,
    child: Option<Child>,
}

impl Etcd {
    /// So many members. They may not answer yet.
    ///
    /// # Panics
    /// If etcd cannot be run.
    pub fn start(count: usize) -> Etcd {
        Etcd::start_with(count, "http", |_| Vec::new())
    }

    /// The same with clients who speak another scheme, and with more words that may name files of the directory.
    ///
    /// # Panics
    /// If etcd cannot be run.
    pub fn start_with(count: usize, scheme: &'static str, more: impl Fn(&Path) -> Vec<String>) -> Etcd {
        let dir = fresh_dir().expect("a directory");
        let port = || free_port().expect("there is a port");
        let members = (0..count).map(|_| Member { client: port(), peer: port(), child: None }).collect();
        let more = more(&dir);
        let mut etcd = Etcd { dir, members, scheme, more };
        for at in 0..count {
            etcd.run(at);
        }
        etcd
    }

    /// Starts a member that was killed.
    ///
    /// # Panics
    /// If etcd cannot be run.
    pub fn run(&mut self, at: usize) {
        let url = |scheme: &str, port: u16| format!("{scheme}://127.0.0.1:{port}");
        let all: Vec<String> = self
            .members
            .iter()
            .enumerate()
            .map(|(at, member)| format!("m{at}={}", url("http", member.peer)))
            .collect();
        let (client, peer) = (url(self.scheme, self.members[at].client), url("http", self.members[at].peer));
        let name = format!("m{at}");
        let child = Command::new("etcd")
            .args(["--name", &name, "--data-dir"])
            .arg(self.dir.join(&name))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &all.join(","), "--logger", "zap", "--log-level", "error"])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500", "--unsafe-no-fsync"])
            .args(&self.more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd can be run: ./test installs it (etcd-server)");
        self.members[at].child = Some(child);
    }

    /// Ends a member at once, if it lives.
    pub fn kill(&mut self, at: usize) {
        if let Some(mut child) = self.members[at].child.take() {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends a member that lives a signal.
    ///
    /// # Panics
    /// If it was killed.
    pub fn signal(&self, at: usize, signal: &str) {
        let id = self.members[at].child.as_ref().expect("it lives").id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().expect("kill can be run").success());
    }

    /// Has all members run again that were killed or stopped.
    ///
    /// # Panics
    /// If etcd cannot be run.
    pub fn mend(&mut self) {
        for at in 0..self.count() {
            match self.members[at].child {
                Some(_) => self.signal(at, "-CONT"),
                None => self.run(at),
            }
        }
    }

    /// Keeps what all members hold, under a name. They were killed.
    ///
    /// # Panics
    /// If it cannot be copied.
    pub fn keep(&self, name: &str) {
        self.copy(|at| (format!("m{at}"), format!("{name}-{at}")));
    }

    /// Has all members hold what was kept under a name, and nothing else. They were killed.
    ///
    /// # Panics
    /// If it cannot be copied.
    pub fn put_back(&self, name: &str) {
        self.copy(|at| (format!("{name}-{at}"), format!("m{at}")));
    }

    fn copy(&self, names: impl Fn(usize) -> (String, String)) {
        for at in 0..self.count() {
            assert!(self.members[at].child.is_none(), "it was killed");
            let (from, to) = names(at);
            let (from, to) = (self.dir.join(from), self.dir.join(to));
            // It may be the first copy.
            let _ = std::fs::remove_dir_all(&to);
            let copied = Command::new("cp").arg("-a").args([&from, &to]).status();
            assert!(copied.expect("cp can be run").success());
        }
    }

    /// How many members there are, those that were killed among them.
    pub fn count(&self) -> usize {
        self.members.len()
    }

    /// Where clients reach a member.
    pub fn address(&self, at: usize) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.members[at].client).into()
    }

    /// The same of all of them, as URLs.
    pub fn endpoints(&self) -> Vec<String> {
        (0..self.count()).map(|at| format!("{}://{}", self.scheme, self.address(at))).collect()
    }

    /// Its directory, which goes with the handle.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The member that says that it leads, if one does. Of members that speak HTTP.
    pub fn leader(&self) -> Option<usize> {
        (0..self.count()).find(|at| self.members[*at].child.is_some() && self.leads(*at).unwrap_or(false))
    }

    fn leads(&self, at: usize) -> io::Result<bool> {
        let mut stream = TcpStream::connect(self.address(at))?;
        stream.set_read_timeout(Some(STATUS_WITHIN))?;
        let request = "POST /v3/maintenance/status HTTP/1.1\r\nHost: etcd\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let number = |name: &str| {
            let begin = format!("\"{name}\":\"");
            answer.split_once(&begin)?.1.split('"').next()
        };
        Ok(number("leader").is_some_and(|leader| Some(leader) == number("member_id")))
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for at in 0..self.count() {
            self.kill(at);
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
