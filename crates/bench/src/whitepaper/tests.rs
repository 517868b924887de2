//! Runs over a generator that is none: the order of the rounds, what is kept when something fails, what the chapters hold.

use super::chapters::{Amount, Before, CHAPTERS, Outline};
use super::edition::Copies;
use super::rounds::{Generator, Rounds};
use super::scale::{Pace, Scale, Size};
use super::*;
use crate::plan::{Observer, Plan, Target};
use crate::report::{Machine, Residence};
use crate::results::{ErrorCount, KindLatency, Limit, LimitedBy, Measurement};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A run's order of events, and what shall happen at some of them.
#[derive(Default)]
struct Script<'a> {
    seen: Vec<String>,
    /// The measurement at which a server dies, by its number.
    dies_at: Option<usize>,
    /// The measurement at which a server is not reached.
    unreached_at: Option<usize>,
    /// The measurement during which the user stops the run.
    interrupt_at: Option<(usize, &'a AtomicBool)>,
    /// Whether every reply is an error.
    is_refused: bool,
}

fn measured(plan: &Plan) -> Measurement {
    Measurement {
        server: plan.server.clone(),
        workload: plan.work.name(),
        command: crate::command_line::command_line(plan),
        connections: plan.connections,
        threads: plan.threads,
        pipeline: plan.pipeline,
        value_bytes: plan.work.value_bytes(),
        records: plan.work.records(),
        operations_asked: None,
        rate_asked: None,
        seconds: 2.0,
        operations: 1_000,
        kinds: Vec::new(),
        all: KindLatency::default(),
        series: Vec::new(),
        errors: Vec::new(),
        server_usage: None,
        proxy_usage: None,
        generator_cpu_us_per_operation: 0.1,
        limit: Limit { by: LimitedBy::Unknown, sentence: String::new() },
        timeline: None,
        unfinished: None,
    }
}

impl Generator for Script<'_> {
    fn prepare(&mut self, target: &Target, before: &Before) -> Result<(), Failure> {
        if *before != Before::AsItIs {
            self.seen.push(format!("prepare {}", target.port));
        }
        Ok(())
    }

    fn measure(&mut self, plan: &Plan, observer: &mut dyn Observer) -> Result<Measurement, Failure> {
        let number = self.seen.iter().filter(|event| event.starts_with("measure")).count();
        self.seen.push(format!("measure {}", plan.server));
        let mut result = measured(plan);
        if self.unreached_at == Some(number) {
            return Err(Failure("cannot connect to 127.0.0.1:2: Connection refused".to_owned()));
        }
        if self.dies_at == Some(number) {
            result.unfinished = Some("the server closed the connection".to_owned());
        }
        if let Some((at, flag)) = self.interrupt_at.filter(|(at, _)| *at == number) {
            flag.store(true, Ordering::Relaxed);
            assert!(observer.wants_to_stop(), "measurement {at} is not told to stop");
            result.unfinished = Some("stopped".to_owned());
        }
        if self.is_refused {
            result.operations = 0;
            result.errors = vec![ErrorCount { text: "NOAUTH Authentication required".to_owned(), count: 9 }];
        }
        Ok(result)
    }

    fn watch(
        &mut self,
        plan: &Plan,
        observer: &mut dyn Observer,
    ) -> (Result<Measurement, Failure>, Option<Residence>) {
        let residence = Residence { server: plan.server.clone(), looks: 1, ..Residence::default() };
        (self.measure(plan, observer), Some(residence))
    }
}

fn scale() -> Scale {
    let machine = Machine { cores: 2, memory_bytes: 4 << 30, ..Machine::default() };
    Scale::new(Size::Quick, 1.0, &machine, 2)
}

fn contestants() -> Vec<Contestant> {
    ["Tarn", "redis"]
        .iter()
        .zip(1..)
        .map(|(name, port)| Contestant::running((*name).to_owned(), Target { port, ..Target::default() }))
        .collect()
}

/// Runs the first section of the first chapter.
fn section(script: &mut Script, flag: &AtomicBool) -> (report::Section, Vec<String>) {
    let outline = (CHAPTERS[0].sections)(&scale()).remove(0);
    let pace = Pace { measure: Duration::from_secs(2), warm_up: Duration::from_secs(1) };
    let steps = 2 * outline.workloads.len();
    let mut rounds = Rounds::new(contestants(), script, flag, pace, steps);
    let section = rounds.section("memory", outline);
    (section, rounds.remarks().to_vec())
}

fn counts(section: &report::Section) -> Vec<usize> {
    section.rows.iter().map(|row| row.measurements.len()).collect()
}

#[test]
fn servers_take_turns_at_every_workload() {
    let mut script = Script::default();
    let (section, remarks) = section(&mut script, &AtomicBool::new(false));
    assert_eq!(counts(&section), [2; 6]);
    assert!(remarks.is_empty());
    let expected =
        ["prepare 1", "measure Tarn", "prepare 2", "measure redis", "measure Tarn", "measure redis"];
    assert_eq!(script.seen, [expected, expected, expected].concat());
}

#[test]
fn a_server_that_dies_keeps_its_measurements_and_takes_no_further_part() {
    let mut script = Script { dies_at: Some(3), ..Script::default() };
    let (section, remarks) = section(&mut script, &AtomicBool::new(false));
    assert_eq!(counts(&section), [2, 2, 1, 1, 1, 1]);
    let [remark] = &remarks[..] else { panic!("{remarks:?}") };
    assert!(
        remark.starts_with("redis took no further part from GET 256\u{a0}B on: the server closed"),
        "{remark}"
    );
}

#[test]
fn a_server_that_is_not_reached_leaves_the_others_their_turns() {
    let mut script = Script { unreached_at: Some(0), ..Script::default() };
    let (section, remarks) = section(&mut script, &AtomicBool::new(false));
    assert_eq!(counts(&section), [1; 6]);
    assert!(section.rows.iter().all(|row| row.measurements[0].server == "redis"));
    assert!(remarks[0].contains("Connection refused."), "{remarks:?}");
}

#[test]
fn an_interrupt_keeps_what_was_measured_and_begins_nothing_more() {
    let flag = AtomicBool::new(false);
    let mut script = Script { interrupt_at: Some((2, &flag)), ..Script::default() };
    let (section, remarks) = section(&mut script, &flag);
    assert_eq!(counts(&section), [2, 1, 0, 0, 0, 0]);
    let [remark] = &remarks[..] else { panic!("{remarks:?}") };
    assert!(remark.starts_with("Stopped by a signal at GET 256\u{a0}B, measurement 3 of 12"), "{remark}");
}

#[test]
fn nothing_but_errors_is_remarked_upon() {
    let mut script = Script { is_refused: true, ..Script::default() };
    let (section, remarks) = section(&mut script, &AtomicBool::new(false));
    assert_eq!(counts(&section), [2; 6]);
    assert_eq!(remarks.len(), 12);
    assert!(remarks[0].ends_with("nothing but errors: NOAUTH Authentication required."), "{}", remarks[0]);
}

fn outlines(size: Size) -> Vec<Outline> {
    let machine = Machine { cores: 2, memory_bytes: 4 << 30, ..Machine::default() };
    let scale = Scale::new(size, 1.0, &machine, 2);
    CHAPTERS.iter().flat_map(|chapter| (chapter.sections)(&scale)).collect()
}

#[test]
fn chapters_are_named_once_and_in_lower_case() {
    let mut names: Vec<&str> = CHAPTERS.iter().map(|chapter| chapter.name).collect();
    let is_plain = |letter: char| letter.is_ascii_lowercase() || letter == '-';
    assert!(names.iter().all(|name| name.chars().all(is_plain)));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), CHAPTERS.len());
}

#[test]
fn every_workload_can_be_run() {
    for outline in outlines(Size::Standard).iter().chain(&outlines(Size::Quick)) {
        assert!(!outline.workloads.is_empty() && !outline.title.is_empty());
        for workload in &outline.workloads {
            assert!(workload.threads >= 1 && workload.threads <= workload.connections, "{}", workload.label);
            assert!(workload.connections.is_multiple_of(workload.threads), "{}", workload.label);
            assert!(workload.pipeline >= 1);
            assert!(
                matches!(workload.amount, Amount::Time(weight) if weight > 0.0)
                    || workload.amount.weight() == 0.0
            );
        }
        let labels: std::collections::BTreeSet<&str> =
            outline.workloads.iter().map(|workload| workload.label.as_str()).collect();
        assert_eq!(labels.len(), outline.workloads.len(), "labels of {} repeat", outline.title);
    }
}

#[test]
fn published_figures_stand_beside_rows_that_there_are() {
    for outline in outlines(Size::Standard).iter().chain(&outlines(Size::Quick)) {
        assert!(
            outline.figures.iter().all(|figure| figure.row < outline.workloads.len()),
            "{}",
            outline.title
        );
        assert!(outline.figures.is_empty() || !outline.cautions.is_empty(), "{}", outline.title);
    }
    let beside = |source: &str| {
        let outlines = outlines(Size::Standard);
        let figures = outlines.iter().flat_map(|outline| &outline.figures);
        figures.filter(|figure| figure.published.source == source).count()
    };
    let all = |source: &str, edition: &str| {
        report::published().iter().filter(|one| one.source == source && one.edition == edition).count()
    };
    assert_eq!(beside("codis-report"), all("codis-report", "memory"));
    assert_eq!(beside("ecs-report-2016"), all("ecs-report-2016", "memory"));
    assert_eq!(
        beside("dtm-report"),
        2 + 4,
        "SET stands in pipelining and in scripts; dtm's transactions are not measured"
    );
    assert_eq!(
        beside("whitepaper-2020"),
        6 + 2 * 2 + all("whitepaper-2020", "durable"),
        "one cluster for each number of cores, those of two masters beside two shards, directly and through proxies, and the durable edition"
    );
    assert_eq!(beside("whitepaper-essd-2025"), all("whitepaper-essd-2025", "capacity"));
}

#[test]
fn what_is_published_is_measured_or_said_to_be_missing() {
    let absent: String = chapters::ABSENT.iter().map(|(title, _)| title.to_lowercase()).collect();
    assert!(absent.contains("dtm"), "{absent}");
}

fn durable(size: Size) -> Outline {
    let machine = Machine { cores: 2, memory_bytes: 4 << 30, ..Machine::default() };
    let chapter = CHAPTERS.iter().find(|chapter| chapter.name == "durable").unwrap();
    assert_eq!(chapter.edition, Edition::Durable);
    (chapter.sections)(&Scale::new(size, 1.0, &machine, 2)).remove(0)
}

#[test]
fn durable_sizes_are_run_one_by_one_and_shown_workload_by_workload() {
    for (size, sizes) in [(Size::Standard, 5), (Size::Quick, 2)] {
        let outline = durable(size);
        let figures = outline.figures.clone();
        let run: Vec<String> = outline.workloads.iter().map(|workload| workload.label.clone()).collect();
        assert_eq!(run[..3], ["Load, 128\u{a0}B", "C, zipfian, 128\u{a0}B", "A, zipfian, 128\u{a0}B"]);
        let flag = AtomicBool::new(false);
        let mut script = Script::default();
        let pace = Pace { measure: Duration::from_secs(2), warm_up: Duration::from_secs(1) };
        let mut rounds = Rounds::new(contestants(), &mut script, &flag, pace, 2 * run.len());
        let section = rounds.section("durable", outline);
        let shown: Vec<&str> = section.rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!(shown.len(), 3 * sizes);
        assert!(shown[..sizes].iter().all(|label| label.starts_with("Load, ")), "{shown:?}");
        assert!(shown[2 * sizes..].iter().all(|label| label.starts_with("A, ")), "{shown:?}");
        assert_eq!(figures.len(), 3 * sizes, "every row has its published figure");
        for figure in figures {
            let row = &section.rows[figure.row];
            let measured = &row.measurements[0];
            assert_eq!(figure.published.value_bytes, Some(measured.value_bytes), "{}", row.label);
            assert!(measured.workload.starts_with(&figure.published.workload), "{}", measured.workload);
        }
    }
}

fn capacity(size: Size, room: edition::Room) -> Outline {
    let machine = Machine { cores: 2, memory_bytes: 16 << 30, ..Machine::default() };
    let chapter = CHAPTERS.iter().find(|chapter| chapter.edition == Edition::Capacity(room)).unwrap();
    (chapter.sections)(&Scale::new(size, 1.0, &machine, 2)).remove(0)
}

#[test]
fn capacity_chapters_load_once_and_stand_beside_the_figures_of_their_ratio() {
    for (room, ratio) in
        [(edition::Room::Ample, "memory:data 7:1"), (edition::Room::Scarce, "memory:data 1:4")]
    {
        for size in [Size::Standard, Size::Quick] {
            let outline = capacity(size, room);
            let [load, reads @ ..] = &outline.workloads[..] else { panic!("{}", outline.title) };
            assert!(matches!(load.amount, Amount::Operations { .. }) && load.before == Before::Empty);
            assert!(
                reads
                    .iter()
                    .all(|one| one.before == Before::AsItIs && one.work.records() == load.work.records())
            );
            assert_eq!(outline.figures.len(), 4 * 5, "every workload of five instances");
            for figure in &outline.figures {
                assert_eq!(figure.published.scenario, ratio);
                assert_eq!(
                    figure.published.workload,
                    outline.workloads[figure.row].work.name().replace(" uniform", "")
                );
            }
            let allowance = outline.allowance.as_ref().unwrap();
            let by_data = allowance.maxmemory_bytes as f64 / allowance.data_bytes as f64;
            let is_right = (room.memory_by_data() * 0.9..room.memory_by_data() * 1.1).contains(&by_data);
            assert!(is_right || allowance.maxmemory_bytes == 8 << 20, "{size:?} {room:?}: {by_data}");
        }
    }
}

#[test]
fn only_peers_that_the_run_starts_are_sent_wait_in_replicated_chapters() {
    let chapter = CHAPTERS.iter().find(|chapter| chapter.name == "replicated-durable").unwrap();
    let edition = chapter.edition;
    assert_eq!(edition.copies_of_peers(), [Copies::Waited, Copies::Later]);
    assert_eq!((edition.copies(), edition.servers(1, 1)), (Copies::InSync, 1 + 2 + 1 + 2));
    let mut contestants = contestants();
    contestants[1].copies = Copies::Waited;
    let workload = &(chapter.sections)(&scale())[0].workloads[0];
    let pace = Pace { measure: Duration::from_secs(2), warm_up: Duration::from_secs(1) };
    let commands: Vec<String> = contestants
        .iter()
        .map(|contestant| crate::command_line::command_line(&rounds::plan(workload, contestant, pace)))
        .collect();
    assert!(!commands[0].contains("--wait") && commands[1].contains("kv --wait 1 -t set "), "{commands:?}");
}

#[test]
fn too_little_room_on_disk_is_one_sentence_with_a_way_out() {
    let said = no_room("capacity-scarce", 10 << 30, 3 << 30, Path::new("/tmp")).0;
    for part in ["capacity-scarce may take 10 GB in /tmp", "3 GB are free", "TMPDIR", "--scale", "--chapters"]
    {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn every_measurement_of_a_capacity_chapter_is_watched_and_no_other() {
    let flag = AtomicBool::new(false);
    let mut script = Script { dies_at: Some(3), ..Script::default() };
    let pace = Pace { measure: Duration::from_secs(2), warm_up: Duration::from_secs(1) };
    let outline = capacity(Size::Quick, edition::Room::Scarce);
    let watched = Rounds::new(contestants(), &mut script, &flag, pace, 8).section("capacity-scarce", outline);
    let residences: Vec<usize> = watched.rows.iter().map(|row| row.residences.len()).collect();
    assert_eq!((residences, counts(&watched)), (vec![2, 2, 1, 1], vec![2, 2, 1, 1]));
    let mut script = Script::default();
    let (section, _) = section(&mut script, &flag);
    assert!(section.allowance.is_none() && section.rows.iter().all(|row| row.residences.is_empty()));
}

#[test]
fn scripts_stand_beside_the_command_that_they_call() {
    let chapter = CHAPTERS.iter().find(|chapter| chapter.name == "scripts").unwrap();
    let outlines = (chapter.sections)(&scale());
    let beside = |outline: &Outline| -> Vec<(String, f64)> {
        let figures = outline.figures.iter();
        figures
            .map(|figure| (outline.workloads[figure.row].label.clone(), figure.published.qps.unwrap()))
            .collect()
    };
    let named = |label: &str, per_second: f64| (label.to_owned(), per_second);
    let [one_at_a_time, pipelined] = &outlines[..] else { panic!("{}", outlines.len()) };
    assert_eq!(
        beside(one_at_a_time),
        [named("SET", 1e5), named("EVAL of one SET", 1e5), named("EVAL of ten SETs", 61e3)]
    );
    assert_eq!(beside(pipelined), [named("SET -P\u{a0}50", 15e5)]);
    for outline in &outlines {
        let (first, scripts) = outline.workloads.split_first().unwrap();
        assert!(first.label.starts_with("SET") && matches!(first.before, Before::Filled(_)));
        for script in scripts {
            assert!(script.label.starts_with("EVAL") && script.before == Before::AsItIs, "{}", script.label);
            assert_eq!(script.work.records(), first.work.records(), "{}", script.label);
            assert_eq!(script.work.value_bytes(), first.work.value_bytes(), "{}", script.label);
        }
    }
}

#[test]
fn clusters_are_begun_for_who_has_a_recipe_and_for_nobody_else() {
    let chapter = CHAPTERS.iter().find(|chapter| chapter.name == "cluster").unwrap();
    let edition = chapter.edition;
    let plain = "redis-server --port {port} --save \"\"";
    assert!(edition.takes(plain) && !edition.takes("keydb --port {port}"));
    assert!(edition.terms(plain).apply(plain).ends_with("--save \"\" --cluster-enabled yes"));
    assert_eq!(edition.servers(1, 5), 2, "what was running before takes no part");
    for size in [Size::Standard, Size::Quick] {
        let machine = Machine { cores: 2, memory_bytes: 4 << 30, ..Machine::default() };
        let outlines = (chapter.sections)(&Scale::new(size, 1.0, &machine, 2));
        let stages =
            || outlines.iter().flat_map(|outline| &outline.workloads).map(|one| (one, one.stage.unwrap()));
        let shards: Vec<u16> = stages().map(|(_, stage)| stage.shards).collect();
        assert_eq!(shards, [1, 2, 4, 3, 3, 2]);
        for (workload, stage) in stages().filter(|(_, stage)| stage.happening.is_some()) {
            let Amount::Seconds(seconds) = workload.amount else { panic!("{}", workload.label) };
            assert!(stage.after_seconds >= 1.0 && seconds > stage.after_seconds + 3.0, "{}", workload.label);
        }
        assert!(outlines[1..].iter().all(|outline| outline.layout == report::Layout::TimeLine));
    }
    let flag = AtomicBool::new(false);
    let mut script = Script::default();
    let pace = Pace { measure: Duration::from_secs(2), warm_up: Duration::from_secs(1) };
    let mut rounds = Rounds::new(contestants(), &mut script, &flag, pace, 6);
    let section = rounds.section("cluster", (chapter.sections)(&scale()).remove(0));
    assert_eq!((counts(&section), rounds.remarks().len()), (vec![0; 3], 0));
}

#[test]
fn what_goes_through_proxies_is_measured_in_the_printed_database_and_by_the_printed_shards() {
    let chapter = CHAPTERS.iter().find(|chapter| chapter.name == "cluster-proxies").unwrap();
    assert_eq!(chapter.edition, Edition::Cluster);
    let [outline] = &(chapter.sections)(&scale())[..] else { panic!("one section") };
    let stages = outline.workloads.iter().map(|workload| workload.stage.unwrap());
    let seen: Vec<_> = stages.map(|stage| (stage.shards, stage.proxies, stage.database)).collect();
    assert_eq!(seen, [(1, 2, 10), (2, 2, 10), (4, 2, 10)]);
    assert!(outline.workloads.iter().all(|workload| workload.connections == 200));
    for figure in &outline.figures {
        let masters = figure.published.masters;
        assert_eq!(masters, outline.workloads[figure.row].stage.map(|stage| u32::from(stage.shards)));
    }
}

#[test]
fn a_chapter_of_proxies_says_when_there_is_no_twemproxy() {
    let chapter = CHAPTERS.iter().find(|chapter| chapter.name == "twemproxy").unwrap();
    let edition = chapter.edition;
    assert!(edition.takes("redis-server --port {port}") && !edition.takes("keydb --port {port}"));
    let outlines = (chapter.sections)(&scale());
    let Ok(Asked::Run(mut options)) = options::parse(&["--peer=a=h".to_owned()]) else {
        panic!("it is fine")
    };
    for (program, servers) in [(Some("/usr/sbin/nutcracker".into()), 2), (None, 1)] {
        options.twemproxy = program;
        let is_there = options.twemproxy.is_some();
        let opened = opened_chapter(chapter, &[], is_there);
        assert_eq!(opened.about.ends_with(proxy::TWEMPROXY_MISSING), !is_there, "{}", opened.about);
        let counted = counted(&options, chapter, &outlines).map(|(_, servers)| servers);
        assert_eq!(counted.collect::<Vec<_>>(), [servers]);
    }
    let memory = opened_chapter(&CHAPTERS[0], &[], false);
    assert_eq!(memory.about, CHAPTERS[0].about);
}

#[test]
fn a_running_server_that_failed_is_not_asked_again() {
    let flag = AtomicBool::new(false);
    let mut script = Script::default();
    let pace = Pace { measure: Duration::from_secs(2), warm_up: Duration::from_secs(1) };
    let mut contestants = contestants();
    contestants[1].gone = Some("the server closed the connection".to_owned());
    contestants.remove(0);
    let mut rounds = Rounds::new(contestants, &mut script, &flag, pace, 1);
    assert_eq!(rounds.leave(), ["redis"]);
    assert!(rounds.remarks().is_empty() && rounds.leave().is_empty());
}
