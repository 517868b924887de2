//! What a table is made of: cells of text, lines with their origin, and marks on figures with a condition.
//!
//! Page and Markdown draw the same [`Table`], so that no figure stands in one and not in the other. A table lists the marks
//! that it used. `layouts` makes them.

use crate::results::{LimitedBy, Measurement};
use std::collections::BTreeSet;

/// A condition on a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// The generator had no time left.
    Generator,
    /// Server and generator waited for processors.
    Machine,
    /// The run ended early.
    Unfinished,
    /// Some operations got errors.
    Errors,
}

impl Mark {
    /// The sign beside the figure.
    pub fn sign(self) -> &'static str {
        match self {
            Mark::Generator => "*",
            Mark::Machine => "§",
            Mark::Unfinished => "†",
            Mark::Errors => "‡",
        }
    }

    /// What the sign means.
    pub fn meaning(self) -> &'static str {
        match self {
            Mark::Generator => "The generator was the limit, not the server: the server can do more.",
            Mark::Machine => {
                "Processors were short: the server and the generator waited for them, for each other's sake or for other programs'. This shows the machine more than the server."
            }
            Mark::Unfinished => "The run ended early; the figure covers what was measured until then.",
            Mark::Errors => {
                "Some operations got errors; they are counted with the details and in no rate or latency."
            }
        }
    }

    /// The conditions of a measurement.
    pub fn of(measurement: &Measurement) -> Vec<Mark> {
        let mut marks = Vec::new();
        match measurement.limit.by {
            LimitedBy::Generator => marks.push(Mark::Generator),
            LimitedBy::Machine => marks.push(Mark::Machine),
            LimitedBy::Server | LimitedBy::Rate | LimitedBy::Unknown => {}
        }
        if measurement.unfinished.is_some() {
            marks.push(Mark::Unfinished);
        }
        if measurement.errors_total() > 0 {
            marks.push(Mark::Errors);
        }
        marks
    }
}

/// One cell.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// The figure or name; empty if there is none.
    pub text: String,
    /// A second figure in smaller letters.
    pub note: Option<String>,
    /// Conditions on the figure.
    pub marks: Vec<Mark>,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell { text, ..Cell::default() }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// Where a line's figures come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This run, from the server at this place.
    Measured(usize),
    /// A publication.
    Published,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Where it comes from.
    pub origin: Origin,
    /// As many as the table has columns.
    pub cells: Vec<Cell>,
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// The columns' names.
    pub head: Vec<String>,
    /// How many columns from the left hold text; all others hold figures.
    pub text_columns: usize,
    /// The lines.
    pub lines: Vec<Line>,
}

impl Table {
    /// The conditions that some figure has.
    pub fn marks(&self) -> BTreeSet<Mark> {
        self.lines.iter().flat_map(|line| &line.cells).flat_map(|cell| cell.marks.iter().copied()).collect()
    }
}
