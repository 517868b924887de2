//! `tarn whitepaper`: one command that measures Tarn and its peers with the published workloads and writes a report.
//!
//! The story of a run, top down: options, servers, the chapters' outlines scaled to the machine, the rounds, the report.
//! One thread; the generator has its own. Invariants:
//!
//! 1. What was measured is never lost: a report is written after every chapter and at the end, whatever went wrong, and printed
//!    if it cannot be written.
//! 2. A run that did not do all that was asked says so in the report and with its exit code.
//! 3. Servers that the run started end with it; a server that was running before is never emptied unasked.
//! 4. Servers of one edition run at a time: the chapters that ask for another begin with others, in empty folders.

mod chapters;
mod disk;
mod edition;
mod happening;
mod launch;
mod machine;
mod options;
mod peer;
mod proxy;
mod reads;
mod rounds;
mod scale;
#[cfg(test)]
mod tests;
mod trial;
mod watch;

use crate::Failure;
use crate::report::{self, Absent, Chapter, Machine, RandomRead, Report, Server};
use chapters::Outline;
use disk::Place;
use edition::Edition;
use options::{Asked, Options};
use peer::Contestant;
use rounds::{Generator, Loaded, Rounds};
use scale::Scale;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use sys::file::Fs;

/// Runs the command with its arguments.
pub fn main(arguments: &[String]) -> ExitCode {
    let options = match options::parse(arguments) {
        Ok(Asked::Run(options)) => options,
        Ok(Asked::Help(text)) => {
            let _ = writeln!(std::io::stdout(), "{text}");
            return ExitCode::SUCCESS;
        }
        Err(failure) => {
            say(&format!("tarn whitepaper: {failure}"));
            return ExitCode::FAILURE;
        }
    };
    let is_interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if let Err(error) = signal_hook::flag::register(signal, is_interrupted.clone()) {
            say(&format!("tarn whitepaper: signals cannot be caught: {error}"));
            return ExitCode::FAILURE;
        }
    }
    match run(&options, &mut Loaded::new(&is_interrupted), &is_interrupted) {
        Ok(Ending::Whole) => ExitCode::SUCCESS,
        Ok(Ending::Partial) => ExitCode::FAILURE,
        Err(failure) => {
            say(&format!("tarn whitepaper: {failure}"));
            ExitCode::FAILURE
        }
    }
}

/// Tells the user. That nobody listens any more ends no run: servers are to be stopped and a report is to be written.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Whether everything that was asked for was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Whole,
    Partial,
}

/// One run. Fails only before anything was measured.
fn run(
    options: &Options,
    generator: &mut dyn Generator,
    is_interrupted: &AtomicBool,
) -> Result<Ending, Failure> {
    report::prepare(&options.out)?;
    let began = Instant::now();
    let place = disk::place();
    let mut report = opened(options, machine(options, &place)?);
    let scale = Scale::new(options.size, options.factor, &report.machine, peer::local_servers(options));
    must_have_room(options, &scale, &place)?;
    report.machine.random_read = random_read(options, &scale, &place)?;
    let mut edition = options.chapters.first().map_or(Edition::Memory, |chapter| chapter.edition);
    let contestants = peer::gather(options, edition, scale.maxmemory_mb(edition), &place.folder, &[])?;
    report.servers = described(&contestants, edition)?;
    let outlines: Vec<(&chapters::Chapter, Vec<Outline>)> =
        options.chapters.iter().map(|chapter| (*chapter, (chapter.sections)(&scale))).collect();
    let measured = || outlines.iter().flat_map(|(chapter, outlines)| counted(options, chapter, outlines));
    let pace = scale.pace(measured());
    let takes = report::duration(scale.estimate(pace, measured()));
    let total = measured().map(|(outline, servers)| outline.workloads.len() * servers).sum();
    report.scale = scale.sentence(pace);
    say(&format!("{} The run will take about {takes}.", report.scale));

    let mut servers = report.servers.clone();
    let mut rounds = Rounds::new(contestants, generator, is_interrupted, pace, total);
    rounds.set_folder(&place.folder);
    for (chapter, outlines) in outlines {
        if chapter.edition != edition && !rounds.is_interrupted() {
            edition = chapter.edition;
            servers = turn_to(edition, scale.maxmemory_mb(edition), &mut rounds, options, &place);
            introduce(&mut report, &servers);
        }
        let mut chapter = opened_chapter(chapter, &servers, options.twemproxy.is_some());
        chapter.sections =
            outlines.into_iter().map(|outline| rounds.section(&chapter.name, outline)).collect();
        report.chapters.push(chapter);
        report.remarks = rounds.remarks().to_vec();
        report.remarks.extend(in_memory(&report, &place));
        report.lasted_seconds = began.elapsed().as_secs_f64();
        // Whether it can be written matters at the end; until then there is hope.
        let _ = report::write(&report, &options.out);
    }
    rounds.leave();
    report.remarks = rounds.remarks().to_vec();
    report.remarks.extend(in_memory(&report, &place));
    drop(rounds);
    finish(&report, &options.out)
}

/// A chapter's outlines, each with the number of servers that it is run over.
fn counted<'a>(
    options: &Options,
    chapter: &chapters::Chapter,
    outlines: &'a [Outline],
) -> impl Iterator<Item = (&'a Outline, usize)> {
    let commands = options.peer_commands.iter().filter(|command| chapter.edition.takes(&command.template));
    // What is measured are proxies there, and what the commands start is behind them.
    let is_of_proxies = chapter.edition == Edition::Proxies;
    let others = if is_of_proxies { usize::from(options.twemproxy.is_some()) } else { commands.count() };
    let servers = chapter.edition.servers(others, options.peers.len());
    outlines.iter().map(move |outline| (outline, servers))
}

/// The machine, with the time of a sync if a chapter depends on it.
fn machine(options: &Options, place: &Place) -> Result<Machine, Failure> {
    let mut machine = machine::here(place);
    if options.chapters.iter().any(|chapter| chapter.edition.is_on_disk()) {
        let took = disk::synced_write(&place.folder)
            .map_err(|error| unusable(place, "written and synced", &error))?;
        machine.synced_write = Some(took);
    }
    Ok(machine)
}

fn unusable(place: &Place, what: &str, error: &io::Error) -> Failure {
    Failure(format!(
        "Nothing can be {what} in {}, where servers are to keep their files: {error}. TMPDIR names another folder.",
        place.folder.display()
    ))
}

/// What random reads take, if a chapter depends on them: of a file as large as the most data of a chapter.
fn random_read(options: &Options, scale: &Scale, place: &Place) -> Result<Option<RandomRead>, Failure> {
    let rooms = options.chapters.iter().filter_map(|chapter| match chapter.edition {
        Edition::Capacity(room) => Some(scale.capacity(room).data_bytes),
        Edition::Memory | Edition::Durable | Edition::Replicated(_) | Edition::Cluster | Edition::Proxies => {
            None
        }
    });
    let Some(data_bytes) = rooms.max() else { return Ok(None) };
    let read = reads::random_reads(&place.folder, data_bytes);
    read.map(Some).map_err(|error| unusable(place, "written and read at random", &error))
}

/// Refuses a run whose disk has no room for the files of a chapter's servers. Where that cannot be found out, the run will tell.
fn must_have_room(options: &Options, scale: &Scale, place: &Place) -> Result<(), Failure> {
    let Ok(free) = Fs::Real.bytes_left(&place.folder) else { return Ok(()) };
    let needs = options.chapters.iter().map(|chapter| (chapter.name, scale.disk_bytes(chapter.edition)));
    match needs.max_by_key(|(_, needed)| *needed) {
        Some((chapter, needed)) if needed > free => Err(no_room(chapter, needed, free, &place.folder)),
        _ => Ok(()),
    }
}

fn no_room(chapter: &str, needed: u64, free: u64, folder: &Path) -> Failure {
    Failure(format!(
        "The chapter {chapter} may take {} in {}, where servers keep their files, and {} are free there. TMPDIR names another folder, --scale takes fewer records, --chapters leaves the chapter out.",
        report::bytes(needed),
        folder.display(),
        report::bytes(free)
    ))
}

fn described(contestants: &[Contestant], edition: Edition) -> Result<Vec<Server>, Failure> {
    contestants.iter().map(|contestant| contestant.describe(edition)).collect()
}

/// Goes on with servers of another edition and describes them. Where that fails, its chapters are not measured.
fn turn_to(
    edition: Edition,
    maxmemory_mb: Option<u64>,
    rounds: &mut Rounds,
    options: &Options,
    place: &Place,
) -> Vec<Server> {
    let lost = rounds.leave();
    let gathered = peer::gather(options, edition, maxmemory_mb, &place.folder, &lost);
    let described = gathered.and_then(|contestants| Ok((described(&contestants, edition)?, contestants)));
    match described {
        Ok((servers, contestants)) => {
            rounds.enter(contestants);
            servers
        }
        Err(failure) => {
            rounds.remark(format!("The chapters of edition {} were not measured: {failure}", edition.name()));
            Vec::new()
        }
    }
}

/// Puts servers on the report's list that were in no chapter before.
fn introduce(report: &mut Report, servers: &[Server]) {
    for server in servers {
        if !report.servers.iter().any(|known| known.name == server.name) {
            report.servers.push(server.clone());
        }
    }
}

/// A chapter before it is run. Servers that promise more than the report's list says are its own.
fn opened_chapter(chapter: &chapters::Chapter, servers: &[Server], has_twemproxy: bool) -> Chapter {
    let is_short = chapter.edition == Edition::Proxies && !has_twemproxy;
    let missing = if is_short { format!(" {}", proxy::TWEMPROXY_MISSING) } else { String::new() };
    Chapter {
        name: chapter.name.to_owned(),
        title: chapter.title.to_owned(),
        about: format!("{}{missing}", chapter.about),
        servers: if chapter.edition != Edition::Memory { servers.to_vec() } else { Vec::new() },
        sections: Vec::new(),
    }
}

/// What is wrong with chapters about a disk whose servers had none.
fn in_memory(report: &Report, place: &Place) -> Option<String> {
    let is_asked = report.machine.synced_write.is_some();
    (is_asked && place.is_in_memory).then(|| {
        format!(
            "The servers kept their files in memory ({}), for no folder on a disk was found: the chapters of the durable and the capacity edition say nothing about a disk. TMPDIR names another folder.",
            place.text
        )
    })
}

/// The report before anything is measured.
fn opened(options: &Options, machine: Machine) -> Report {
    let mut absent: Vec<Absent> = chapters::CHAPTERS
        .iter()
        .filter(|chapter| !options.chapters.iter().any(|chosen| chosen.name == chapter.name))
        .map(|chapter| Absent {
            title: chapter.title.to_owned(),
            reason: "This run was asked to leave the chapter out.".to_owned(),
        })
        .collect();
    absent.extend(
        chapters::ABSENT
            .iter()
            .map(|(title, reason)| Absent { title: (*title).to_owned(), reason: (*reason).to_owned() }),
    );
    Report {
        command: options.command.clone(),
        began: jiff::Timestamp::now().strftime("%-d %B %Y, %H:%M UTC").to_string(),
        lasted_seconds: 0.0,
        scale: String::new(),
        machine,
        servers: Vec::new(),
        chapters: Vec::new(),
        absent,
        remarks: Vec::new(),
    }
}

/// Says where the report is, or prints it where the disk did not take it.
fn finish(report: &Report, folder: &Path) -> Result<Ending, Failure> {
    for remark in &report.remarks {
        say(&format!("tarn whitepaper: {remark}"));
    }
    match report::write(report, folder) {
        Ok(page) => say(&format!("The report is {}.", page.display())),
        Err(failure) => {
            say(&format!("tarn whitepaper: {failure} The report follows as Markdown."));
            let _ = writeln!(std::io::stdout(), "{}", report::markdown(report));
            return Ok(Ending::Partial);
        }
    }
    Ok(if report.remarks.is_empty() { Ending::Whole } else { Ending::Partial })
}
