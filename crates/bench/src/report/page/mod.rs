//! The page: one HTML file that needs nothing else.
//!
//! The story comes first (what failed, the comparison), then the chapters, then what a reader needs to judge them: servers,
//! machine, method, what was not measured, every command. `style.css` is compiled in; the colours come from `palette`.

mod chapters;

use super::table::{Cell, Line, Origin, Table};
use super::{Machine, Report, Server, layouts, number, palette};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// What the commands suppose to be there.
pub const COMMANDS_NEED: &str = "The run wrote every key of the range once before GET, SET, their mix and scripts, and loaded the records before reads and updates; TARN_BENCH_PASSWORD holds a password.";
const STYLE: &str = include_str!("style.css");

/// The whole page.
pub fn page(report: &Report) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Tarn whitepaper: " (report.began) }
                style { (PreEscaped(style())) }
            }
            body {
                (opening(report))
                main {
                    (contents(report))
                    (comparison(report))
                    @for chapter in &report.chapters { (chapters::chapter(report, chapter)) }
                    (servers(report))
                    (machine(&report.machine))
                    (method(report))
                    (absent(report))
                    (commands(report))
                }
                footer {
                    p {
                        "Drawn by " (command_line(&report.command)) ". The same figures, with every percentile curve, are in "
                        code { "report.json" } ", " code { "report.csv" } " and " code { "report.md" } " beside this page."
                    }
                }
            }
        }
    }
    .into_string()
}

/// The style with its colours: light unless the reader prefers dark, and light on paper.
fn style() -> String {
    let (light, dark) = (palette::LIGHT.variables(), palette::DARK.variables());
    let mut style = format!(
        ":root{{color-scheme:light dark;{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n{STYLE}"
    );
    for place in 0..palette::SERIES {
        style.push_str(&format!(".s{place}{{--own:var(--s{place})}}\n"));
    }
    style
}

fn opening(report: &Report) -> Markup {
    let names: Vec<&str> = report.servers.iter().map(|server| server.name.as_str()).collect();
    html! {
        header {
            p class="over" { "Tarn whitepaper" }
            h1 { (joined(&names)) ", measured" }
            p class="lead" {
                (report.began) ", in " (number::duration(report.lasted_seconds)) ", on "
                (report.machine.cores) " cores and " (number::bytes(report.machine.memory_bytes)) " of memory. "
                (report.scale)
            }
            @if let Some(caution) = report.machine.caution() {
                p class="caution" { (caution) }
            }
            @if !report.remarks.is_empty() {
                section class="remarks" aria-labelledby="remarks" {
                    h2 id="remarks" { "This report is not whole" }
                    ul { @for remark in &report.remarks { li { (remark) } } }
                }
            }
        }
    }
}

/// Names in a row: "a", "a and b", "a, b and c".
fn joined(names: &[&str]) -> String {
    match names {
        [] => "Nothing".to_owned(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

fn contents(report: &Report) -> Markup {
    html! {
        nav aria-label="Contents" {
            @for chapter in &report.chapters { a href={ "#" (chapter.name) } { (chapter.title) } }
            a href="#servers" { "Servers" }
            a href="#machine" { "Machine" }
            a href="#method" { "Method" }
            a href="#absent" { "Not measured" }
            a href="#commands" { "Commands" }
        }
    }
}

fn comparison(report: &Report) -> Markup {
    let Some(table) = layouts::comparison(report) else { return html! {} };
    html! {
        section id="glance" {
            h2 { "At a glance" }
            p {
                "Above 1×, " (report.servers[0].name) " answered more operations per second than the other server under the same "
                "load, taken in turn on the same machine. The median and the range are over the workloads of a table."
            }
            (drawn(&table))
        }
    }
}

/// A table with the meaning of its marks.
fn drawn(table: &Table) -> Markup {
    html! {
        (framed(table, "scroll"))
        @for mark in table.marks() {
            p class="note" { (mark.sign()) " " (mark.meaning()) }
        }
    }
}

/// A table of many columns, whose marks were explained before.
fn dense(table: &Table) -> Markup {
    framed(table, "scroll dense")
}

/// A table in a box that scrolls by itself where the page is narrow.
fn framed(table: &Table, class: &str) -> Markup {
    html! {
        div class=(class) role="region" tabindex="0" aria-label=(table.caption) {
            table {
                caption { (table.caption) }
                thead {
                    tr {
                        @for (column, name) in table.head.iter().enumerate() {
                            th scope="col" class=[(column >= table.text_columns).then_some("number")] { (words(name)) }
                        }
                    }
                }
                tbody { @for line in &table.lines { (drawn_line(line, table.text_columns)) } }
            }
        }
    }
}

fn drawn_line(line: &Line, text_columns: usize) -> Markup {
    let class = match line.origin {
        Origin::Measured(place) => format!("measured {}", palette::class(place)),
        Origin::Published => "published".to_owned(),
    };
    html! {
        tr class=(class) {
            @for (column, cell) in line.cells.iter().enumerate() {
                @if column == 0 {
                    th scope="row" { (content(cell)) }
                } @else {
                    td class=[(column >= text_columns).then_some("number")] { (content(cell)) }
                }
            }
        }
    }
}

fn content(cell: &Cell) -> Markup {
    html! {
        @if cell.text.is_empty() {
            span class="none" aria-label="no figure" { "–" }
        } @else {
            (words(&cell.text))
        }
        @for mark in &cell.marks { sup title=(mark.meaning()) { (mark.sign()) } }
        @if let Some(note) = &cell.note { small { (note) } }
    }
}

/// A command whose words stay whole where there is room: a line must not end behind the dashes of an option.
fn command_line(command: &str) -> Markup {
    html! {
        code {
            @for (index, word) in command.split(' ').enumerate() {
                @if index > 0 { " " }
                span { (word) }
            }
        }
    }
}

/// A text of a table whose options stay whole.
fn words(text: &str) -> Markup {
    html! {
        @for (index, word) in text.split(' ').enumerate() {
            @if index > 0 { " " }
            @if word.starts_with('-') { span class="option" { (word) } } @else { (word) }
        }
    }
}

fn servers(report: &Report) -> Markup {
    html! {
        section id="servers" {
            h2 { "Servers" }
            div class="sheets" {
                @for (place, server) in report.servers.iter().enumerate() { (server_sheet(place, server)) }
            }
        }
    }
}

fn server_sheet(place: usize, server: &Server) -> Markup {
    html! {
        article class="sheet" {
            h3 class={ "name " (palette::class(place)) } { (server.name) }
            dl {
                dt { "Version" } dd { (server.version) }
                dt { "Address" } dd { (server.address) @if !server.is_local { ", another machine" } }
                dt { "Started by" }
                dd {
                    @match &server.command {
                        Some(command) => (command_line(command)),
                        None => "somebody else: it was running already",
                    }
                }
                @for (name, value) in &server.settings { dt { (name) } dd { (value) } }
                @if let Some(promise) = &server.promise { dt { "A reply means" } dd { (promise.sentence) } }
            }
        }
    }
}

fn machine(machine: &Machine) -> Markup {
    html! {
        section id="machine" {
            h2 { "Machine" }
            p { "The generator ran here, and with it every server whose address is not another machine's: they share these cores." }
            dl {
                dt { "Processor" } dd { (machine.processor) }
                dt { "Cores" } dd { (machine.cores) }
                dt { "Memory" } dd { (number::bytes(machine.memory_bytes)) }
                dt { "Kernel" } dd { (machine.kernel) }
                dt { "System" } dd { (machine.system) }
                dt { "Disk" } dd { (machine.disk) (machine.disk_times()) }
                @if let Some(load) = machine.load {
                    dt { "Load before the run" } dd { (format!("{load:.2}")) " (one minute's average)" }
                }
            }
        }
    }
}

fn method(report: &Report) -> Markup {
    html! {
        section id="method" {
            h2 { "Method and limits" }
            ul {
                li { "The servers take turns at every workload, always in the same order, so that a slow minute of the machine meets them all; one server is idle while another is measured." }
                li { "Every figure comes after a warm-up with the same load. Latencies are from sending a request, or the batch it is in, to its reply; percentiles come from HDR histograms of three digits." }
                li { "The load is a closed loop unless a table says otherwise: a connection waits for its replies before it sends again, so a server that stands still is also asked less. Pipelined latencies are those of the batch." }
                li { "Errors are counted with the details and are in no rate and no latency." }
                li { "Where the generator had no time left, the figure says so: it is then a lower bound of what the server can do. On a machine of few cores generator and server compete." }
                li { "Cores used and lacked: processor time that the server had, and for which it was ready and had to wait, for each second. What it lacked, the generator or other programs had." }
                li { "One run is one sample. Run it again before you believe a difference of less than a tenth; a shared or virtual machine may differ by more." }
                li { "Published figures come from other machines, other networks, other years. They stand beside the measured ones to show the scale of things; no ratio is formed with them." }
                @if report.servers.iter().any(|server| !server.is_local) {
                    li { "A server on another machine was measured through the network between: its latencies hold that network's." }
                }
            }
        }
    }
}

fn absent(report: &Report) -> Markup {
    html! {
        section id="absent" {
            h2 { "Not measured" }
            p { "The published reports hold more than this run's chapters:" }
            dl class="wide" {
                @for absent in &report.absent { dt { (absent.title) } dd { (absent.reason) } }
            }
        }
    }
}

fn commands(report: &Report) -> Markup {
    let rows =
        || report.chapters.iter().flat_map(|chapter| &chapter.sections).flat_map(|section| &section.rows);
    html! {
        section id="commands" {
            h2 { "Commands" }
            p { "The whole run: " (command_line(&report.command)) "." }
            p {
                "Each measurement alone, with the address of a server in place of one that the run started. " (COMMANDS_NEED)
            }
            ul class="commands" {
                @for measured in rows().flat_map(|row| &row.measurements) { li { (command_line(&measured.command)) } }
            }
        }
    }
}
