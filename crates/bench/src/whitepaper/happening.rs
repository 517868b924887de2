//! What happens to a cluster while it is measured: a master is killed, or slots go to another shard.
//!
//! The observer of the run begins it when it is time, and a thread of its own does it, so that nothing of the measurement waits for it. What was
//! begun ends with the measurement at the latest.

use super::chapters::{Happening, Stage};
use super::trial::{Trial, well};
use crate::Failure;
use crate::client::Client;
use crate::plan::{Observer, Progress, Target};
use crate::results::Event;
use rustix::process::{Pid, Signal, kill_process_group};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::Value;

const POLL: Duration = Duration::from_millis(10);

/// Slots by the first and the last of each range.
pub type Ranges = Vec<(u16, u16)>;

/// What was done when.
type Done = Result<Vec<(Instant, String)>, Failure>;

/// What is to be done; it ends when it is told that the measurement is over.
type Deed = Box<dyn FnOnce(&AtomicBool) -> Done + Send>;

/// What a happening does with this cluster, and the slots that it does it to.
///
/// # Errors
/// The cluster does not tell who has the slots.
pub fn prepare(trial: &Trial, stage: &Stage) -> Result<Option<(Deed, Ranges)>, Failure> {
    let Some(happening) = stage.happening else { return Ok(None) };
    let map = trial.map()?;
    let source = map.owner(0).unwrap_or_default();
    match happening {
        Happening::Kill => {
            let port = map.nodes()[source].target(&trial.target()).port;
            let group = trial.at(port).and_then(super::launch::Launched::group);
            let group = group.ok_or_else(|| Failure(format!("No server of the run has port {port}.")))?;
            Ok(Some((kill(group), map.ranges(source))))
        }
        Happening::Move { slots } => {
            let last = slots.saturating_sub(1);
            let other = map.masters().into_iter().find(|node| *node != source);
            let to = map.nodes()[other.unwrap_or(source)].target(&trial.target());
            let from = map.nodes()[source].target(&trial.target());
            let deed = match trial.config() {
                Some(config) => move_by_config_server(config, to, last),
                None => move_by_redis_cli(from, to, slots)?,
            };
            Ok(Some((deed, vec![(0, last)])))
        }
    }
}

fn kill(group: Pid) -> Deed {
    Box::new(move |_| {
        let at = Instant::now();
        kill_process_group(group, Signal::KILL)
            .map_err(|error| Failure(format!("The master cannot be killed: {error}.")))?;
        Ok(vec![(at, "kill -9 of a master".to_owned())])
    })
}

/// Asks Tarn's config server, and waits until the slots are the other shard's.
fn move_by_config_server(config: Target, to: Target, last: u16) -> Deed {
    Box::new(move |is_over| {
        let mut client = Client::connect(&config)?;
        let slots = format!("0-{last}");
        let at = Instant::now();
        // The shards are 0 and 1; the one that has the slots has not to be told where they are.
        let begun = well(&mut client, &["CLUSTER", "MOVE-SLOTS", "0", "1", &slots]);
        begun.or_else(|_| well(&mut client, &["CLUSTER", "MOVE-SLOTS", "1", "0", &slots]))?;
        let mut node = Client::connect(&to)?;
        let mut events = vec![(at, format!("{} slots begin to move", u32::from(last) + 1))];
        while !is_over.load(Ordering::Relaxed) {
            if has_slots(&mut node, &to, last)? {
                events.push((Instant::now(), "they have moved".to_owned()));
                return Ok(events);
            }
            std::thread::sleep(POLL);
        }
        let moves = match well(&mut client, &["CLUSTER", "MOVES"])? {
            Value::Bulk(text) | Value::Verbatim(_, text) => String::from_utf8_lossy(&text).into_owned(),
            _ => String::new(),
        };
        match moves.lines().find(|line| line.contains("failed")) {
            Some(line) => Err(Failure(format!("The slots have not moved: {line}"))),
            None => Ok(events),
        }
    })
}

/// Whether a node says that it has all slots up to this one.
fn has_slots(client: &mut Client, node: &Target, last: u16) -> Result<bool, Failure> {
    let map = crate::engine::direct::map::Map::ask(client, node)?;
    let is_its =
        |slot| map.owner(slot).is_some_and(|owner| map.nodes()[owner].target(node).port == node.port);
    Ok((0..=last).all(is_its))
}

/// Has redis-cli move them, as an operator would.
fn move_by_redis_cli(from: Target, to: Target, slots: u16) -> Result<Deed, Failure> {
    let id = |target: &Target| match well(&mut Client::connect(target)?, &["CLUSTER", "MYID"])? {
        Value::Bulk(id) => Ok(String::from_utf8_lossy(&id).into_owned()),
        _ => Err(Failure("CLUSTER MYID is answered with no name.".to_owned())),
    };
    let (source, target) = (id(&from)?, id(&to)?);
    let mut command = Command::new("redis-cli");
    command.args(["--cluster", "reshard", &from.to_string(), "--cluster-from", &source]);
    command.args(["--cluster-to", &target, "--cluster-slots", &slots.to_string(), "--cluster-yes"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(Box::new(move |is_over| {
        let at = Instant::now();
        let failed = |error: std::io::Error| Failure(format!("redis-cli cannot move the slots: {error}."));
        let mut child = command.spawn().map_err(failed)?;
        let mut events = vec![(at, format!("{slots} slots begin to move"))];
        loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                if !status.success() {
                    return Err(Failure(format!("redis-cli did not move the slots: {status}.")));
                }
                events.push((Instant::now(), "they have moved".to_owned()));
                return Ok(events);
            }
            if is_over.load(Ordering::Relaxed) {
                // What it has not moved by now is in no measurement; the cluster ends with it.
                child.kill().and_then(|()| child.wait()).map_err(failed)?;
                return Ok(events);
            }
            std::thread::sleep(POLL);
        }
    }))
}

/// The observer of a run in which something happens.
pub struct Acting<'a> {
    observer: &'a mut dyn Observer,
    /// How long after the beginning of the measurement.
    after: Duration,
    deed: Option<Deed>,
    /// When the measurement began.
    began: Option<Instant>,
    is_over: Arc<AtomicBool>,
    doing: Option<JoinHandle<Done>>,
}

impl<'a> Acting<'a> {
    /// One that tells another observer of everything.
    pub fn new(observer: &'a mut dyn Observer, after: Duration, deed: Deed) -> Acting<'a> {
        let is_over = Arc::new(AtomicBool::new(false));
        Acting { observer, after, deed: Some(deed), began: None, is_over, doing: None }
    }

    /// The measurement has ended: what happened when.
    ///
    /// # Errors
    /// It could not be done, or it was not time for it.
    pub fn finish(mut self) -> Result<Vec<Event>, Failure> {
        self.is_over.store(true, Ordering::Relaxed);
        let (Some(began), Some(doing)) = (self.began, self.doing.take()) else {
            return Err(Failure("The measurement ended before anything happened.".to_owned()));
        };
        let broken = |_| Failure("What was to happen broke off.".to_owned());
        let done = doing.join().map_err(broken)??;
        let at_ms = |at: Instant| at.saturating_duration_since(began).as_secs_f64() * 1e3;
        Ok(done.into_iter().map(|(at, what)| Event { at_ms: at_ms(at), what }).collect())
    }
}

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Observer for Acting<'_> {
    fn progress(&mut self, progress: &Progress) {
        self.observer.progress(progress);
        let Some(measured) = progress.measured else { return };
        self.began.get_or_insert_with(|| Instant::now().checked_sub(measured).unwrap_or_else(Instant::now));
        if measured < self.after {
            return;
        }
        if let Some(deed) = self.deed.take() {
            let is_over = self.is_over.clone();
            let thread = std::thread::Builder::new().name("happening".to_owned());
            self.doing = thread.spawn(move || deed(&is_over)).ok();
        }
    }

    fn wants_to_stop(&self) -> bool {
        self.observer.wants_to_stop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Unobserved;

    fn progress(measured: Option<Duration>) -> Progress {
        Progress { measured, operations: 0, errors: 0, rate: 0.0, left: None }
    }

    fn noted(times: &Arc<std::sync::atomic::AtomicU32>) -> Deed {
        let times = times.clone();
        Box::new(move |is_over| {
            times.fetch_add(1, Ordering::Relaxed);
            let begun = Instant::now();
            while !is_over.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            Ok(vec![(begun, "it begins".to_owned())])
        })
    }

    #[test]
    fn it_happens_once_when_it_is_time_and_ends_with_the_measurement() {
        let times = Arc::default();
        let mut unobserved = Unobserved;
        let mut acting = Acting::new(&mut unobserved, Duration::from_secs(3), noted(&times));
        for measured in [None, Some(1.0), Some(2.9), Some(3.1), Some(4.0)] {
            acting.progress(&progress(measured.map(Duration::from_secs_f64)));
        }
        let events = acting.finish().unwrap();
        assert_eq!(times.load(Ordering::Relaxed), 1);
        // The measurement began a second before it was first told of.
        assert!(events.len() == 1 && events[0].at_ms >= 1_000.0, "{events:?}");
    }

    #[test]
    fn a_measurement_that_ends_before_is_said_to() {
        let times = Arc::default();
        let mut unobserved = Unobserved;
        let mut acting = Acting::new(&mut unobserved, Duration::from_secs(3), noted(&times));
        acting.progress(&progress(Some(Duration::from_secs(1))));
        assert!(acting.finish().unwrap_err().0.contains("before anything happened"));
        assert_eq!(times.load(Ordering::Relaxed), 0);
    }
}
