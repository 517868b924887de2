//! The report as Markdown: the same tables as the page, without its charts.
//!
//! Everything from outside is escaped, so that a `|` or a backtick in a server's version breaks no table.

use super::page::COMMANDS_NEED;
use super::table::{Cell, Table};
use super::{Report, Section, Server, layouts, number, residence};
use std::fmt::Write;

/// The whole report.
pub fn markdown(report: &Report) -> String {
    let mut text = String::new();
    write_report(&mut text, report).expect("a string takes what is written");
    text
}

fn write_report(out: &mut String, report: &Report) -> std::fmt::Result {
    let machine = &report.machine;
    writeln!(out, "# Tarn whitepaper\n")?;
    writeln!(
        out,
        "{}, in {}, on {} ({} cores, {}). {}\n",
        escaped(&report.began),
        number::duration(report.lasted_seconds),
        escaped(&machine.processor),
        machine.cores,
        number::bytes(machine.memory_bytes),
        escaped(&report.scale)
    )?;
    if let Some(caution) = machine.caution() {
        writeln!(out, "**{}**\n", escaped(&caution))?;
    }
    if !report.remarks.is_empty() {
        writeln!(out, "**This report is not whole:**\n")?;
        list(out, &report.remarks)?;
    }
    if let Some(comparison) = layouts::comparison(report) {
        writeln!(out, "## At a glance\n")?;
        write_table(out, &comparison)?;
    }
    for chapter in &report.chapters {
        writeln!(out, "## {}\n\n{}\n", escaped(&chapter.title), escaped(&chapter.about))?;
        for server in &chapter.servers {
            write_server(out, server)?;
        }
        if !chapter.servers.is_empty() {
            writeln!(out)?;
        }
        for section in &chapter.sections {
            write_section(out, report, section)?;
        }
    }
    write_conditions(out, report)
}

fn write_section(out: &mut String, report: &Report, section: &Section) -> std::fmt::Result {
    writeln!(out, "### {}\n\n{}\n", escaped(&section.title), escaped(&section.about))?;
    if !section.is_measured() {
        return writeln!(out, "Nothing was measured here.\n");
    }
    write_table(out, &layouts::published_layout(report, section))?;
    if !section.cautions.is_empty() {
        writeln!(out, "What cannot be compared:\n")?;
        list(out, &section.cautions)?;
    }
    if let Some(table) = residence::table(report, section) {
        write_table(out, &table)?;
        if let Some(allowance) = &section.allowance {
            writeln!(out, "{}\n", escaped(&allowance.sentences()))?;
        }
        if let Some(read) = &report.machine.random_read {
            writeln!(out, "The disk itself: {}.\n", escaped(&read.sentence()))?;
        }
    }
    write_table(out, &layouts::details(report, section))?;
    let mut troubles = Vec::new();
    for run in section.rows.iter().flat_map(|row| &row.measurements) {
        let named = format!("{}, {}", run.workload, run.server);
        troubles.extend(run.errors.iter().map(|error| format!("{named}: {} × {}", error.count, error.text)));
        troubles.extend(run.unfinished.iter().map(|why| format!("{named}: {why}")));
    }
    if troubles.is_empty() { Ok(()) } else { list(out, &troubles) }
}

fn write_conditions(out: &mut String, report: &Report) -> std::fmt::Result {
    let machine = &report.machine;
    writeln!(out, "## Servers\n")?;
    for server in &report.servers {
        write_server(out, server)?;
    }
    writeln!(out, "\n## Machine\n")?;
    let disk = format!("{}{}", machine.disk, machine.disk_times());
    list(out, &[&machine.processor, &machine.kernel, &machine.system, &disk].map(String::clone))?;
    writeln!(out, "## Not measured\n")?;
    let absent: Vec<String> =
        report.absent.iter().map(|absent| format!("{}: {}", absent.title, absent.reason)).collect();
    list(out, &absent)?;
    let whole = plain(&report.command);
    writeln!(out, "## Commands\n\nThe whole run: `{whole}`. Each measurement alone:\n")?;
    let sections = report.chapters.iter().flat_map(|chapter| &chapter.sections);
    for measured in sections.flat_map(|section| &section.rows).flat_map(|row| &row.measurements) {
        writeln!(out, "- `{}`", plain(&measured.command))?;
    }
    writeln!(out, "\n{}", escaped(COMMANDS_NEED))
}

fn write_server(out: &mut String, server: &Server) -> std::fmt::Result {
    let started = server.command.as_ref().map_or(String::new(), |command| format!(", `{}`", plain(command)));
    let promise = server
        .promise
        .as_ref()
        .map_or(String::new(), |promise| format!(". A reply means: {}", promise.sentence));
    writeln!(
        out,
        "- **{}**: {}, {}{started}{}",
        escaped(&server.name),
        escaped(&server.version),
        escaped(&server.address),
        escaped(&promise)
    )
}

fn list(out: &mut String, lines: &[String]) -> std::fmt::Result {
    for line in lines {
        writeln!(out, "- {}", escaped(line))?;
    }
    writeln!(out)
}

fn write_table(out: &mut String, table: &Table) -> std::fmt::Result {
    writeln!(out, "{}:\n", escaped(&table.caption))?;
    let head: Vec<String> = table.head.iter().map(|name| escaped(name)).collect();
    writeln!(out, "| {} |", head.join(" | "))?;
    let rules: Vec<&str> = (0..table.head.len())
        .map(|column| if column < table.text_columns { "---" } else { "---:" })
        .collect();
    writeln!(out, "| {} |", rules.join(" | "))?;
    for line in &table.lines {
        let cells: Vec<String> = line.cells.iter().map(cell_text).collect();
        writeln!(out, "| {} |", cells.join(" | "))?;
    }
    writeln!(out)?;
    for mark in table.marks() {
        writeln!(out, "{} {}\n", escaped(mark.sign()), mark.meaning())?;
    }
    Ok(())
}

fn cell_text(cell: &Cell) -> String {
    let mut text = escaped(&cell.text);
    for mark in &cell.marks {
        text.push_str(&escaped(mark.sign()));
    }
    if let Some(note) = &cell.note {
        text.push_str(&format!(" ({})", escaped(note)));
    }
    text
}

/// Text that means itself: Markdown's and HTML's signs are escaped, line ends become spaces.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\r' => out.push(' '),
            '|' | '*' | '_' | '`' | '<' | '[' | '\\' => {
                out.push('\\');
                out.push(letter);
            }
            other => out.push(other),
        }
    }
    out
}

/// Text for a code span, which knows no escapes.
fn plain(text: &str) -> String {
    text.replace('`', "'").replace(['\n', '\r'], " ")
}
