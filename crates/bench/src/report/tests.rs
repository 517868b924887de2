//! The report of a made-up run: every figure is there, nothing from outside is read as markup, the page asks
//! nobody for anything, charts say what they show, and the same model gives the same bytes.

use super::*;
use crate::results::{
    ErrorCount, Event, KindLatency, Limit, LimitedBy, Second, ServerUsage, Silence, Step, TimeLine,
    UsageSource,
};

/// A name as an attacker or a careless user would give it.
const HOSTILE: &str = "<script>\"'&|`*";

fn latency(kind: &str, scale: f64) -> KindLatency {
    let percentiles = [0.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.999, 100.0];
    let steps = [0.4, 1.0, 1.1, 1.3, 1.5, 2.1, 2.4, 4.0, 6.0, 12.0, 30.0, 41.0];
    KindLatency {
        kind: kind.to_owned(),
        count: 123_456,
        average_us: scale * 1.05,
        min_us: scale * 0.4,
        p50_us: scale,
        p90_us: scale * 1.3,
        p95_us: scale * 1.5,
        p99_us: scale * 2.1,
        p999_us: scale * 4.0,
        max_us: scale * 41.0,
        curve: percentiles.into_iter().zip(steps.map(|step| step * scale)).collect(),
    }
}

fn measurement(server: &str, kinds: &[&str], per_second: u64, scale: f64) -> Measurement {
    let second = |second: u32| Second {
        second,
        operations: per_second - u64::from(second % 3) * per_second / 20,
        errors: 0,
        average_us: scale,
        p99_us: scale * 2.0,
        max_us: scale * 9.0,
    };
    Measurement {
        server: server.to_owned(),
        workload: kinds.join("+"),
        command: format!("tarn bench kv -t {} --as {server}", kinds.join(",")),
        connections: 64,
        threads: 1,
        pipeline: 100,
        value_bytes: 256,
        records: Some(1_048_576),
        operations_asked: None,
        rate_asked: None,
        seconds: 6.0,
        operations: per_second * 6,
        kinds: kinds.iter().map(|kind| latency(kind, scale)).collect(),
        all: latency("all", scale),
        series: (0..6).map(second).collect(),
        errors: Vec::new(),
        server_usage: Some(ServerUsage {
            source: UsageSource::Proc,
            cpu_us_per_operation: 0.84,
            cores_used: 0.97,
            busiest_thread: Some(0.97),
            cores_lacked: Some(0.13),
            rss_bytes: 400 << 20,
            rss_bytes_max: 401 << 20,
        }),
        proxy_usage: None,
        generator_cpu_us_per_operation: 0.31,
        limit: Limit { by: LimitedBy::Server, sentence: "The server had no time left.".to_owned() },
        timeline: None,
        unfinished: None,
    }
}

fn server(name: &str) -> Server {
    Server {
        name: name.to_owned(),
        version: format!("{name} 7.0.15"),
        address: "127.0.0.1:7001".to_owned(),
        command: Some(format!("{name}-server --port 7001 --save \"\"")),
        is_local: true,
        settings: vec![("Threads".to_owned(), "2".to_owned())],
        promise: None,
    }
}

/// A run over two servers: a table of rates and one of operations, with one marked figure of each kind.
fn example() -> Report {
    let rates = |label: &str, kind: &str, tarn: u64, redis: u64| Row {
        label: label.to_owned(),
        measurements: vec![
            measurement("Tarn", &[kind], tarn, 812.0),
            measurement("redis", &[kind], redis, 2_310.0),
        ],
        residences: Vec::new(),
    };
    let mut rows = vec![
        rates("SET 256 B", "set", 912_345, 301_234),
        rates("GET 256 B", "get", 1_412_345, 412_345),
        rates("SET 1024 B", "set", 612_345, 251_234),
    ];
    rows[1].measurements[0].limit.by = LimitedBy::Generator;
    rows[2].measurements[0].limit.by = LimitedBy::Machine;
    rows[2].measurements[1].unfinished = Some("redis closed the connection after 3 s.".to_owned());
    rows[2].measurements[1].errors =
        vec![ErrorCount { text: "OOM command not allowed".to_owned(), count: 7_654 }];
    rows[2].measurements[1].series[3].errors = 7_654;
    let codis = published().iter().filter(|figure| figure.instance == "direct 4G high-spec");
    let figures =
        codis.take(3).enumerate().map(|(row, one)| Figure { row, published: one.clone() }).collect();
    let essd = published().iter().find(|figure| figure.workload == "uniform-50-50").unwrap();
    let memory = Section {
        title: "SET and GET by value size".to_owned(),
        about: "64 connections, 100 requests in flight on each, random keys of 1,048,576.".to_owned(),
        layout: Layout::Rates,
        rows,
        figures,
        cautions: vec!["The published instances' cores are not said.".to_owned()],
        allowance: None,
    };
    let ycsb = Section {
        title: "Load, read, update".to_owned(),
        about: "Values of 100 bytes.".to_owned(),
        layout: Layout::Operations,
        rows: vec![Row {
            label: "Uniform 50/50".to_owned(),
            measurements: vec![measurement("Tarn", &["read", "update"], 98_765, 301.0)],
            residences: Vec::new(),
        }],
        figures: vec![Figure { row: 0, published: essd.clone() }],
        cautions: Vec::new(),
        allowance: None,
    };
    Report {
        command: "tarn whitepaper --peer-cmd 'redis-server --port {port}'".to_owned(),
        began: "22 November 2026, 04:00 UTC".to_owned(),
        lasted_seconds: 245.0,
        scale: "Measured for 6 s each.".to_owned(),
        machine: Machine {
            processor: "Example CPU at 2.5 GHz".to_owned(),
            cores: 2,
            memory_bytes: 4 << 30,
            kernel: "Linux 6.18".to_owned(),
            system: "Debian 12".to_owned(),
            disk: "ext4 on vda".to_owned(),
            synced_write: None,
            random_read: None,
            load: Some(0.12),
        },
        servers: vec![server("Tarn"), server("redis")],
        chapters: vec![Chapter {
            name: "memory".to_owned(),
            title: "Memory".to_owned(),
            about: "How fast is it when everything is in memory?".to_owned(),
            servers: Vec::new(),
            sections: vec![memory, ycsb],
        }],
        absent: vec![Absent { title: "Durable".to_owned(), reason: "Comes with that edition.".to_owned() }],
        remarks: Vec::new(),
    }
}

fn hostile() -> Report {
    let mut report = example();
    report.servers[1].name = HOSTILE.to_owned();
    report.servers[1].version = HOSTILE.to_owned();
    report.remarks = vec![HOSTILE.to_owned()];
    for row in
        report.chapters.iter_mut().flat_map(|chapter| &mut chapter.sections).flat_map(|part| &mut part.rows)
    {
        row.label = format!("{HOSTILE} {}", row.label);
        for measured in row.measurements.iter_mut().filter(|measured| measured.server == "redis") {
            measured.server = HOSTILE.to_owned();
            measured.command = HOSTILE.to_owned();
            measured.errors = vec![ErrorCount { text: HOSTILE.to_owned(), count: 3 }];
        }
    }
    report
}

#[test]
fn every_figure_is_on_the_page_and_in_the_markdown() {
    let report = example();
    for text in [page::page(&report), markdown(&report)] {
        for figure in [
            "912,300",
            "301,200",
            "1,412,000",
            "155,000",
            "400,000",
            "46,610",
            "98,770",
            "1,684",
            "7654",
            "0.84",
            "853",
            "3,248",
            "33,292",
            "401 MB",
            "3.03×",
            "direct 4G high-spec",
        ] {
            assert!(text.contains(figure), "{figure} is missing");
        }
        for name in ["Example CPU", "Linux 6.18", "ext4 on vda", "redis 7.0.15", "Comes with that edition"] {
            assert!(text.contains(name), "{name} is missing");
        }
    }
}

#[test]
fn marked_figures_say_what_their_marks_mean() {
    let report = example();
    let page = page::page(&report);
    for mark in [table::Mark::Generator, table::Mark::Machine, table::Mark::Unfinished, table::Mark::Errors] {
        let meaning = maud::html! { (mark.meaning()) }.into_string();
        assert!(page.contains(&meaning), "{mark:?}");
    }
    assert!(page.contains("redis closed the connection after 3 s."));
    assert!(page.contains("OOM command not allowed"));
}

#[test]
fn nothing_from_outside_is_read_as_markup() {
    let report = hostile();
    let page = page::page(&report);
    assert!(!page.contains("<script"), "a name became an element");
    assert!(page.contains("&lt;script&gt;"));
    let markdown = markdown(&report);
    let columns = |line: &str| line.replace("\\|", "").matches('|').count();
    let mut tables = markdown.split("\n\n").filter(|block| block.starts_with('|')).peekable();
    assert!(tables.peek().is_some());
    for table in tables {
        let width = columns(table.lines().next().unwrap());
        assert!(table.lines().all(|line| columns(line) == width), "{table}");
    }
    assert!(
        !markdown
            .replace("\\<", "")
            .replace(&format!("`{}`", HOSTILE.replace('`', "'")), "")
            .contains("<script")
    );
}

#[test]
fn an_option_in_a_label_is_not_divided() {
    let mut report = example();
    report.chapters[0].sections[0].rows[0].label = "SET -P\u{a0}50".to_owned();
    let page = page::page(&report);
    let whole = "SET <span class=\"option\">-P\u{a0}50</span></th>";
    assert!(page.contains(whole), "{page}");
}

#[test]
fn the_page_asks_nobody_for_anything() {
    let page = page::page(&example());
    for request in
        ["http:", "https:", "//", " src=", "url(", "@import", "<script", "<link", "<img", "<iframe"]
    {
        assert!(!page.contains(request), "{request} is in the page");
    }
    let targets = page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    for target in targets {
        let id = target.strip_prefix('#').unwrap_or_else(|| panic!("{target} leads out of the page"));
        assert!(page.contains(&format!("id=\"{id}\"")), "{target} leads nowhere");
    }
}

#[test]
fn every_chart_says_what_it_shows() {
    let page = page::page(&example());
    let charts: Vec<&str> =
        page.split("<svg ").skip(1).map(|rest| rest.split("</svg>").next().unwrap()).collect();
    assert_eq!(charts.len(), 2 * 2 + 4 + 4, "bars twice for each section, two panels for each row");
    for chart in charts {
        let labels = chart.split("aria-labelledby=\"").nth(1).unwrap().split('"').next().unwrap();
        let [title, description] = labels.split(' ').collect::<Vec<_>>()[..] else { panic!("{labels}") };
        assert!(chart.contains("role=\"img\""));
        assert!(chart.contains(&format!("<title id=\"{title}\">")), "{title}");
        assert!(chart.contains(&format!("<desc id=\"{description}\">")), "{description}");
        assert!(chart.contains("Tarn"), "{chart}");
        assert!(!chart.contains("NaN") && !chart.contains("inf"), "{chart}");
    }
}

#[test]
fn ids_are_unique() {
    let page = page::page(&example());
    let mut ids: Vec<&str> =
        page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

#[test]
fn colours_come_from_the_palette_alone() {
    let page = page::page(&example());
    let style_end = page.find("</style>").unwrap();
    assert!(!page[style_end..].contains("style=") && !page[style_end..].contains("fill=\"#"));
    assert!(page.contains("prefers-color-scheme:dark") && page.contains("@media print"));
    let style = include_str!("page/style.css");
    let colours = style.split('#').skip(1).filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    assert_eq!(colours.count(), 0);
}

#[test]
fn the_same_model_gives_the_same_bytes() {
    assert_eq!(page::page(&example()), page::page(&example()));
    assert_eq!(sheet::sheet(&example()), sheet::sheet(&example()));
    assert_eq!(markdown(&example()), markdown(&example()));
}

#[test]
fn a_run_that_measured_nothing_is_still_a_report() {
    let mut report = example();
    report.remarks = vec!["Stopped before anything was measured.".to_owned()];
    for row in
        report.chapters.iter_mut().flat_map(|chapter| &mut chapter.sections).flat_map(|part| &mut part.rows)
    {
        row.measurements.clear();
    }
    let page = page::page(&report);
    assert!(
        page.contains("Stopped before anything was measured.") && page.contains("Nothing was measured here.")
    );
    assert!(!page.contains("<svg "));
    report.chapters.clear();
    report.servers.clear();
    assert!(page::page(&report).contains("Stopped before anything was measured."));
    assert!(markdown(&report).contains("Stopped before anything was measured."));
}

#[test]
fn the_sheet_continues_the_list_of_published_figures() {
    let text = String::from_utf8(sheet::sheet(&example())).unwrap();
    let list = include_str!("published.csv");
    assert!(text.starts_with(list.lines().next().unwrap()));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1 + 7 + 4, "{text}");
    let records: Vec<Published> =
        csv::Reader::from_reader(text.as_bytes()).into_deserialize().map(Result::unwrap).collect();
    let tarn = records.iter().find(|record| record.instance == "Tarn").unwrap();
    assert_eq!((tarn.qps, tarn.cores, tarn.write_avg_us), (Some(912_345.0), Some(2), Some(852.6)));
}

#[test]
fn the_files_are_there_and_replace_older_ones() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("new/report");
    prepare(&folder).unwrap();
    write(&example(), &folder).unwrap();
    let page = write(&example(), &folder).unwrap();
    assert_eq!(std::fs::read_to_string(page).unwrap(), page::page(&example()));
    let mut names: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["index.html", "report.csv", "report.json", "report.md"]);
    let json = std::fs::read(folder.join("report.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["chapters"][0]["sections"][0]["rows"][0]["measurements"][0]["operations"], 912_345 * 6);
}

#[test]
fn a_full_disk_is_named_and_leaves_the_older_page() {
    let folder = tempfile::tempdir().unwrap();
    let page = write(&example(), folder.path()).unwrap();
    std::os::unix::fs::symlink("/dev/full", folder.path().join(".index.html.new")).unwrap();
    let failure = write(&example(), folder.path()).unwrap_err();
    assert!(failure.0.contains("index.html cannot be written: No space left on device"), "{failure}");
    assert_eq!(std::fs::read_to_string(page).unwrap(), page::page(&example()));
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let failure = prepare(&file.join("report")).unwrap_err();
    assert!(failure.0.contains("cannot be made"), "{failure}");
}

#[test]
fn a_busy_machine_is_mentioned_first() {
    let mut report = example();
    assert!(!page::page(&report).contains("busy with other things"));
    report.machine.load = Some(3.5);
    for text in [page::page(&report), markdown(&report)] {
        let at = text.find("a load of 3.5 on 2 cores").unwrap();
        assert!(at < text.find("At a glance").unwrap());
    }
}

#[test]
fn a_chapter_that_asks_for_a_promise_says_what_each_server_promises() {
    let mut report = example();
    let promise = |is_on_disk, sentence: &str| Some(Promise { is_on_disk, sentence: sentence.to_owned() });
    let mut servers = [server("Tarn"), server("redis")];
    servers[0].promise = promise(true, "On disk, it says.");
    servers[1].promise = promise(false, HOSTILE);
    servers[1].command = Some("redis-server --appendfsync always".to_owned());
    report.machine.synced_write = Some(SyncedWrite { p50_us: 512.0, average_us: 1_234.0 });
    for text in [page::page(&report), markdown(&report)] {
        assert!(!text.contains("A reply means") && !text.contains("less or not known"));
    }
    report.chapters[0].servers = servers.into();
    for text in [page::page(&report), markdown(&report)] {
        let words = [
            "On disk, it says.",
            "its promise is less or not known",
            "syncing it took 1.2 ms on average, 512 µs in the median",
        ];
        for word in words {
            assert!(text.contains(word), "{word} is missing");
        }
        assert!(text.replace("</span> <span>", " ").contains("redis-server --appendfsync always"));
        assert!(!text.replace("\\<", "").contains("<script"));
    }
}

#[test]
fn a_second_that_was_cut_short_is_no_dip() {
    let mut report = example();
    let row = &mut report.chapters[0].sections[0].rows[0];
    for measured in &mut row.measurements {
        measured.seconds = 5.4;
        measured.series[5].operations = 7;
    }
    let row = &report.chapters[0].sections[0].rows[0];
    let drawn = chart::seconds(&report, row, "x").into_string();
    assert!(drawn.contains("over 5 seconds") && !drawn.contains("between 7 "), "{drawn}");
}

/// The example with memory and disk watched at its last workload.
fn watched() -> Report {
    let mut report = example();
    report.machine.random_read = Some(RandomRead {
        depth: 32,
        file_bytes: 1 << 30,
        way: "io_uring".to_owned(),
        per_second: 70_000.0,
        average_us: 455.0,
        p50_us: 410.0,
        p99_us: 790.1,
    });
    let section = &mut report.chapters[0].sections[1];
    section.allowance = Some(Allowance::new("Tarn", 288 << 20, 1_208_000_000, "redis"));
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let row = &mut section.rows[0];
    row.measurements.push(measurement("redis", &["read", "update"], 200_000, 160.0));
    row.residences = vec![
        Residence {
            server: "Tarn".to_owned(),
            looks: 61,
            rss_bytes_max: Some(366 << 20),
            cold_reads: Some(123_456),
            hit_ratio: Some(0.257),
            disk_read_bytes: Some(500 << 20),
            disk_written_bytes: Some(700 << 20),
            store: vec![
                field("store_bytes_live", "943718400"),
                field("store_bytes_dead", "104857600"),
                field("store_write_amplification", "1.37"),
            ],
        },
        Residence {
            server: "redis".to_owned(),
            looks: 61,
            rss_bytes_max: Some(2 << 30),
            ..Residence::default()
        },
    ];
    report
}

#[test]
fn memory_and_disk_stand_beside_what_was_allowed() {
    let mut report = watched();
    let figures = [
        "366 MB",
        "366.4 MB",
        "held",
        "2 GB",
        "25.7 %",
        "123,456",
        "900 MB",
        "100 MB",
        "1.37",
        "500 MB",
        "700 MB",
        "0.49×",
        "0.80×",
        "70,000 a second",
        "790.1 µs at 99 %",
        "288 MB of memory",
    ];
    for text in [page::page(&report), markdown(&report)] {
        for figure in figures {
            assert!(text.contains(figure), "{figure} is missing");
        }
        assert!(!text.contains("exceeded"));
    }
    report.chapters[0].sections[1].rows[0].residences[0].rss_bytes_max = Some(400 << 20);
    for text in [page::page(&report), markdown(&report)] {
        assert!(text.contains("exceeded by 33.6 MB"), "{text}");
    }
}

#[test]
fn the_sheet_holds_what_was_watched() {
    let text = sheet::sheet(&watched());
    let mut reader = csv::Reader::from_reader(&text[..]);
    let lines: Vec<std::collections::HashMap<String, String>> =
        reader.deserialize().map(Result::unwrap).collect();
    let watched: Vec<_> =
        lines.iter().filter(|line| line["chapter"] == "memory" && line["row"] == "Uniform 50/50").collect();
    let of = |name: &str, column: &str| {
        watched.iter().find(|line| line["instance"] == name).unwrap()[column].clone()
    };
    assert_eq!(of("Tarn", "ceiling_bytes"), ((288_u64 << 20) * 105 / 100 + (64 << 20)).to_string());
    assert_eq!(of("Tarn", "store_bytes_live"), "943718400");
    assert_eq!((of("Tarn", "hit_ratio"), of("redis", "hit_ratio")), ("0.257".to_owned(), String::new()));
    assert_eq!(
        (of("redis", "ceiling_bytes"), of("redis", "server_rss_bytes_max")),
        (String::new(), (2u64 << 30).to_string())
    );
}

#[test]
fn memory_of_a_server_that_nobody_saw_is_no_verdict() {
    let mut report = watched();
    report.chapters[0].sections[1].rows[0].residences[0] =
        Residence { server: "Tarn".to_owned(), ..Residence::default() };
    let text = markdown(&report);
    assert!(!text.contains("held") && !text.contains("exceeded") && text.contains("366.4 MB"), "{text}");
    report.chapters[0].sections[1].rows[0].residences.clear();
    assert!(!markdown(&report).contains("memory and disk"));
}

#[test]
fn a_table_of_costs_has_the_processor_time_beside_each_rate() {
    let mut report = example();
    assert!(!markdown(&report).contains("0.84 µs of CPU"));
    report.chapters[0].sections[0].layout = Layout::Costs;
    let text = markdown(&report);
    assert!(text.contains("912,300 (0.84 µs of CPU)") && text.contains("processor time for each"), "{text}");
    report.chapters[0].sections[0].rows[0].measurements[0].server_usage = None;
    assert!(markdown(&report).contains("| 912,300 |"), "what is not known is not said");
}

#[test]
fn a_table_of_a_load_through_proxies_tells_their_processor_time_from_the_servers() {
    let mut report = example();
    let section = &mut report.chapters[0].sections[0];
    section.layout = Layout::Proxied;
    let clusters = published().iter().filter(|figure| figure.edition == "cluster");
    let published = clusters.take(1).map(|figure| Figure { row: 0, published: figure.clone() });
    section.figures = published.collect();
    let measured = &mut section.rows[0].measurements[0];
    measured.proxy_usage =
        measured.server_usage.clone().map(|all| ServerUsage { cpu_us_per_operation: 0.34, ..all });
    for text in [page::page(&report), markdown(&report)] {
        for part in ["Proxies' CPU", "at most, 96 MB/s"] {
            assert!(text.replace("&#39;", "'").contains(part), "{part} is missing");
        }
    }
    let text = markdown(&report);
    let lines: Vec<&str> = text.lines().filter(|line| line.ends_with(" | 0.34 | 0.50 |")).collect();
    let [line] = lines[..] else { panic!("{text}") };
    assert!(line.contains("Tarn, measured | ") && line.contains(" | 64 | 912,300 | "), "{line}");
    let sheet = String::from_utf8(sheet::sheet(&report)).unwrap();
    assert!(sheet.contains("proxy_cpu_us_per_operation") && sheet.contains(",0.84,0.34,"), "{sheet}");
}

/// A section in which a master was killed: Tarn was back after a second, redis was not.
fn failover() -> Section {
    let measured = |server: &str, silence_ms: f64, errors: u64| {
        let steps = (0..60).map(|number| Step {
            operations: if (10..20).contains(&number) { 4_321 } else { 9_876 },
            errors: if number == 10 { errors } else { 0 },
            watched: if (10..20).contains(&number) { 0 } else { 3_210 },
        });
        Measurement {
            errors: vec![ErrorCount { text: "the server closed a connection".to_owned(), count: errors }],
            timeline: Some(TimeLine {
                step_ms: 100,
                steps: steps.collect(),
                silence: Silence { from_ms: 1_003.0, ms: silence_ms },
                events: vec![Event { at_ms: 1_001.0, what: "kill -9 of a master".to_owned() }],
            }),
            ..measurement(server, &["set", "get"], 90_000, 500.0)
        }
    };
    Section {
        title: "A master is killed".to_owned(),
        about: "Three shards.".to_owned(),
        layout: Layout::TimeLine,
        rows: vec![Row {
            label: "A master is killed".to_owned(),
            measurements: vec![measured("Tarn", 1_012.3, 50), measured("redis", 4_997.0, 61)],
            residences: Vec::new(),
        }],
        figures: Vec::new(),
        cautions: Vec::new(),
        allowance: None,
    }
}

#[test]
fn a_time_line_shows_how_long_nothing_was_written_and_is_in_no_comparison() {
    let mut report = example();
    report.chapters[0].sections = vec![failover()];
    for text in [page::page(&report), markdown(&report)] {
        for part in [
            "1012.3",
            "98,760",
            "43,210",
            "4997.0",
            "not over when the measurement ended",
            "closed a connection",
        ] {
            assert!(text.contains(part), "{part} is missing");
        }
        assert!(!text.contains("At a glance"), "there is nothing to compare");
    }
    let page = page::page(&report);
    for part in [
        "Tenth by tenth",
        "50 errors, ",
        "kill -9 of a master",
        "class=\"event s0\"",
        "class=\"curve watched s1\"",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    assert!(!page.contains("Second by second"));
    let sheet = String::from_utf8(sheet::sheet(&report)).unwrap();
    let (head, first) = (sheet.lines().next().unwrap(), sheet.lines().nth(1).unwrap());
    let column = head.split(',').position(|name| name == "without_writes_ms").unwrap();
    assert_eq!(first.split(',').nth(column), Some("1012.3"));
}
