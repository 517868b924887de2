//! The rounds of a run: every workload against every server in turn, before the next workload begins.
//!
//! Invariants:
//! 1. The servers take turns in one order, so that a slow minute of the machine meets them all.
//! 2. A measurement that ended early is kept and remarked upon. Its server takes no further part.
//! 3. After an interrupt nothing more is begun.

use super::chapters::{Amount, Before, Fill, Outline, Stage, Workload};
use super::happening::{self, Acting};
use super::peer::{self, Contestant};
use super::scale::Pace;
use super::trial::{Recipe, Trial};
use super::watch::Watched;
use crate::Failure;
use crate::client::Client;
use crate::plan::{Direct, End, Observer, Plan, Progress, Target};
use crate::report::{self, Residence, Row, Section};
use crate::results::Measurement;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::Value;

/// Every run sends the same operations.
const SEED: u64 = 1;
/// Keys in one request of a fill.
const FILL_KEYS: u64 = 200;

/// What the rounds need of the rest of this crate; tests put something else in its place.
pub trait Generator {
    /// Brings a server to the state in which a workload begins.
    fn prepare(&mut self, target: &Target, before: &Before) -> Result<(), Failure>;

    /// Makes one measurement.
    fn measure(&mut self, plan: &Plan, observer: &mut dyn Observer) -> Result<Measurement, Failure>;

    /// Makes one measurement and watches the server's memory and disk meanwhile.
    fn watch(
        &mut self,
        plan: &Plan,
        observer: &mut dyn Observer,
    ) -> (Result<Measurement, Failure>, Option<Residence>);
}

/// The load generator of this crate.
pub struct Loaded<'a> {
    is_interrupted: &'a AtomicBool,
}

impl<'a> Loaded<'a> {
    /// One that stops to fill servers when the flag is set.
    pub fn new(is_interrupted: &'a AtomicBool) -> Self {
        Loaded { is_interrupted }
    }
}

impl Generator for Loaded<'_> {
    fn prepare(&mut self, target: &Target, before: &Before) -> Result<(), Failure> {
        if *before == Before::AsItIs {
            return Ok(());
        }
        let mut client = Client::connect(target)?;
        peer::empty(&mut client)?;
        if let Before::Filled(fill) = before { write(&mut client, fill, self.is_interrupted) } else { Ok(()) }
    }

    fn measure(&mut self, plan: &Plan, observer: &mut dyn Observer) -> Result<Measurement, Failure> {
        crate::run(plan, observer)
    }

    fn watch(
        &mut self,
        plan: &Plan,
        observer: &mut dyn Observer,
    ) -> (Result<Measurement, Failure>, Option<Residence>) {
        let watched = Watched::begin(&plan.target);
        let measured = self.measure(plan, observer);
        (measured, watched.map(|watched| watched.end(&plan.server, &plan.target)))
    }
}

/// Writes the keys of a fill.
pub fn write(client: &mut Client, fill: &Fill, is_interrupted: &AtomicBool) -> Result<(), Failure> {
    let value = vec![b'x'; usize::try_from(fill.value_bytes).unwrap_or(usize::MAX)];
    let behind_last = fill.first + fill.count;
    let mut next = fill.first;
    while next < behind_last {
        if is_interrupted.load(Ordering::Relaxed) {
            return Err(Failure("stopped while its keys were written".to_owned()));
        }
        let end = (next + FILL_KEYS).min(behind_last);
        let keys: Vec<String> = (next..end).map(|number| fill.key(number)).collect();
        let mut request: Vec<&[u8]> = vec![b"MSET"];
        for key in &keys {
            request.extend([key.as_bytes(), value.as_slice()]);
        }
        if let Value::Error(line) = client.request(&request)? {
            let line = String::from_utf8_lossy(&line);
            return Err(Failure(format!("the keys of the workload cannot be written: {line}")));
        }
        next = end;
    }
    Ok(())
}

/// A run under way.
pub struct Rounds<'a> {
    contestants: Vec<Contestant>,
    generator: &'a mut dyn Generator,
    is_interrupted: &'a AtomicBool,
    pace: Pace,
    remarks: Vec<String>,
    /// Where servers that are started for a measurement keep their files.
    folder: PathBuf,
    /// Measurements that were begun, of how many.
    begun: usize,
    total: usize,
}

impl<'a> Rounds<'a> {
    /// Begins a run of so many measurements, with the servers of its first chapter.
    pub fn new(
        contestants: Vec<Contestant>,
        generator: &'a mut dyn Generator,
        is_interrupted: &'a AtomicBool,
        pace: Pace,
        total: usize,
    ) -> Self {
        let folder = std::env::temp_dir();
        Rounds { contestants, generator, is_interrupted, pace, remarks: Vec::new(), folder, begun: 0, total }
    }

    /// Where servers that are started for a measurement keep their files.
    pub fn set_folder(&mut self, folder: &Path) {
        folder.clone_into(&mut self.folder);
    }

    /// Ends with these servers: empties those that were running before, stops the others. Gives the names of those that
    /// were running before and failed: nobody can start them again.
    pub fn leave(&mut self) -> Vec<String> {
        let mut lost = Vec::new();
        for contestant in self.contestants.drain(..) {
            match (&contestant.gone, contestant.is_own()) {
                (None, _) => self.remarks.extend(contestant.leave().err().map(|failure| failure.0)),
                (Some(_), false) => lost.push(contestant.name),
                (Some(_), true) => {}
            }
        }
        lost
    }

    /// Goes on with other servers; those that ran so far are left before.
    pub fn enter(&mut self, contestants: Vec<Contestant>) {
        debug_assert!(self.contestants.is_empty(), "servers of two editions would share the machine");
        self.contestants = contestants;
    }

    /// Notes that a part of the run could not be done.
    pub fn remark(&mut self, remark: String) {
        self.remarks.push(remark);
    }

    /// Whether the user asked the run to end.
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted.load(Ordering::Relaxed)
    }

    /// What went wrong so far.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Runs a section and makes its part of the report.
    pub fn section(&mut self, chapter: &str, outline: Outline) -> Section {
        let is_watched = outline.allowance.is_some();
        let row = |workload: &Workload| (workload.group, self.row(chapter, workload, is_watched));
        let rows = outline.workloads.iter().map(row);
        let mut rows: Vec<(usize, Row)> = rows.collect();
        rows.sort_by_key(|(group, _)| *group);
        let rows = rows.into_iter().map(|(_, row)| row).collect();
        Section {
            title: outline.title,
            about: outline.about,
            layout: outline.layout,
            rows,
            figures: outline.figures,
            cautions: outline.cautions,
            allowance: outline.allowance,
        }
    }

    fn row(&mut self, chapter: &str, workload: &Workload, is_watched: bool) -> Row {
        let (mut measurements, mut residences) = (Vec::new(), Vec::new());
        for place in 0..self.contestants.len() {
            self.begun += 1;
            if self.contestants[place].gone.is_some() || self.was_interrupted(workload) {
                continue;
            }
            let (measured, residence) = self.turn(chapter, workload, place, is_watched);
            residences.extend(residence.filter(|_| measured.is_some()));
            measurements.extend(measured);
        }
        Row { label: workload.label.clone(), measurements, residences }
    }

    /// Whether the run is to end; the first to ask after the interrupt remarks upon it.
    fn was_interrupted(&mut self, workload: &Workload) -> bool {
        let is = self.is_interrupted();
        if is && !self.remarks.iter().any(|remark| remark.starts_with("Stopped ")) {
            self.remarks.push(format!(
                "Stopped by a signal at {}, measurement {} of {}; what follows was not measured.",
                workload.label, self.begun, self.total
            ));
        }
        is
    }

    /// One server's turn at a workload.
    fn turn(
        &mut self,
        chapter: &str,
        workload: &Workload,
        place: usize,
        is_watched: bool,
    ) -> (Option<Measurement>, Option<Residence>) {
        let contestant = &self.contestants[place];
        let title =
            format!("[{}/{}] {chapter}: {}, {}", self.begun, self.total, workload.label, contestant.name);
        let plan = plan(workload, contestant, self.pace);
        let mut watch = Watch {
            title: &title,
            is_interrupted: self.is_interrupted,
            is_drawing: std::io::stderr().is_terminal(),
        };
        if let Some(stage) = &workload.stage {
            let Some(recipe) = stage.recipe(contestant) else { return (None, None) };
            watch.draw("beginning a cluster");
            let (generator, folder) = (&mut *self.generator, &self.folder);
            let result = staged(generator, plan, (recipe, stage, &workload.before), folder, &mut watch);
            watch.finish(&result);
            return (self.judge(workload, place, result), None);
        }
        watch.draw("filling");
        let (result, residence) = match self.generator.prepare(&contestant.target, &workload.before) {
            Ok(()) if is_watched => self.generator.watch(&plan, &mut watch),
            Ok(()) => (self.generator.measure(&plan, &mut watch), None),
            Err(failure) => (Err(failure), None),
        };
        let result = result.map(|mut measured| {
            measured.server.clone_from(&contestant.name);
            measured
        });
        watch.finish(&result);
        (self.judge(workload, place, result), residence)
    }

    /// Remarks upon what went wrong and keeps what was measured.
    fn judge(
        &mut self,
        workload: &Workload,
        place: usize,
        result: Result<Measurement, Failure>,
    ) -> Option<Measurement> {
        let is_interrupted = self.was_interrupted(workload);
        let (trouble, measured) = match result {
            Ok(measured) => (measured.unfinished.clone(), Some(measured)),
            Err(failure) => (Some(failure.0), None),
        };
        let measured = measured.filter(|measured| measured.operations + measured.errors_total() > 0);
        if let Some(trouble) = trouble.filter(|_| !is_interrupted) {
            let contestant = &mut self.contestants[place];
            let words = contestant.launched.as_mut().and_then(|launched| {
                launched.ended().map(|status| format!(" It ended ({status}){}", launched.last_words()))
            });
            let words = words.or_else(|| contestant.has_lost_its_replica());
            self.remarks.push(format!(
                "{} took no further part from {} on: {}{}",
                contestant.name,
                workload.label,
                sentence(&trouble),
                words.unwrap_or_default()
            ));
            contestant.gone = Some(trouble);
        } else if let Some(measured) = measured.as_ref().filter(|one| one.operations == 0) {
            let text = measured.errors.first().map_or("", |error| error.text.as_str());
            self.remarks.push(format!(
                "{} answered {} with nothing but errors: {}",
                self.contestants[place].name,
                workload.label,
                sentence(text)
            ));
        }
        measured
    }
}

/// A text with a full stop.
fn sentence(text: &str) -> String {
    let text = text.trim();
    if text.ends_with(['.', '!', '?']) { text.to_owned() } else { format!("{text}.") }
}

impl Stage {
    /// How a contestant's cluster is begun for it; none if the contestant takes no part.
    fn recipe<'a>(&self, contestant: &'a Contestant) -> Option<&'a Recipe> {
        let recipe = contestant.recipe.as_ref()?;
        (self.peer_options.is_empty() || *recipe != Recipe::Tarn).then_some(recipe)
    }
}

/// Begins a cluster, makes a measurement over it while happens what is to happen, and ends it.
fn staged(
    generator: &mut dyn Generator,
    plan: Plan,
    (recipe, stage, before): (&Recipe, &Stage, &Before),
    folder: &Path,
    watch: &mut Watch<'_>,
) -> Result<Measurement, Failure> {
    let trial = Trial::begin(recipe, &plan.server, stage, folder)?;
    watch.draw("filling");
    if let Before::Filled(fill) = before {
        trial.fill(fill, watch.is_interrupted)?;
    }
    let plan = trial.plan(plan);
    let Some((deed, slots)) = happening::prepare(&trial, stage)? else {
        return generator.measure(&plan, watch);
    };
    let plan = Plan { direct: Some(Direct { watched: Some(slots) }), ..plan };
    let mut acting = Acting::new(watch, Duration::from_secs_f64(stage.after_seconds), deed);
    let mut measured = generator.measure(&plan, &mut acting)?;
    match acting.finish() {
        Ok(events) => {
            if let Some(line) = &mut measured.timeline {
                line.events = events;
            }
        }
        Err(failure) => {
            measured.unfinished.get_or_insert(failure.0);
        }
    }
    Ok(measured)
}

/// A workload for a server.
pub fn plan(workload: &Workload, contestant: &Contestant, pace: Pace) -> Plan {
    let (end, warm_up) = match workload.amount {
        Amount::Time(weight) => (End::After(pace.measure.mul_f64(weight)), pace.warm_up),
        Amount::Seconds(seconds) => (End::After(Duration::from_secs_f64(seconds)), pace.warm_up),
        // A load that began with a warm-up would write its first records twice.
        Amount::Operations { count, .. } => (End::Operations(count), Duration::ZERO),
    };
    Plan {
        server: contestant.name.clone(),
        command: None,
        target: contestant.target.clone(),
        direct: None,
        through: None,
        connections: workload.connections,
        threads: workload.threads,
        pipeline: workload.pipeline,
        end,
        warm_up,
        rate: None,
        seed: SEED,
        work: workload.work.clone().waiting_for(contestant.copies.waited_for()),
    }
}

/// Shows how a measurement goes: a line that is drawn over itself on a terminal, one line at the end elsewhere.
struct Watch<'a> {
    title: &'a str,
    is_interrupted: &'a AtomicBool,
    is_drawing: bool,
}

impl Watch<'_> {
    /// Progress is a courtesy: a closed standard error ends nothing.
    fn draw(&self, text: &str) {
        if self.is_drawing {
            let _ = write!(std::io::stderr(), "\r\x1b[K{}  {text}", self.title);
        }
    }

    fn finish(&self, result: &Result<Measurement, Failure>) {
        let text = match result {
            Ok(measured) => format!(
                "{}/s, average {}, 99 % {}{}",
                report::rate(measured.operations_per_second()),
                report::latency(measured.all.average_us),
                report::latency(measured.all.p99_us),
                measured.unfinished.as_ref().map(|why| format!(" ({why})")).unwrap_or_default()
            ),
            Err(failure) => failure.0.clone(),
        };
        let begin = if self.is_drawing { "\r\x1b[K" } else { "" };
        let _ = writeln!(std::io::stderr(), "{begin}{}  {text}", self.title);
    }
}

impl Observer for Watch<'_> {
    fn progress(&mut self, progress: &Progress) {
        let text = match progress.measured {
            None => "warming up".to_owned(),
            Some(_) => {
                let left =
                    progress.left.map(|left| format!(", {} s left", left.as_secs())).unwrap_or_default();
                format!("{}/s{left}", report::rate(progress.rate))
            }
        };
        self.draw(&text);
    }

    fn wants_to_stop(&self) -> bool {
        self.is_interrupted.load(Ordering::Relaxed)
    }
}
