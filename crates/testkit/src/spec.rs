//! What the generator knows of a command: taken from its row, of whichever kind
//! the row's handler is.

use crate::syntax::{self, Node};
use command::{Group, Row};

/// One command as the generator sees it.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The row's name: lower case, a bar before a subcommand.
    pub name: String,
    /// How many words a request has; negative: at least that many.
    pub arity: i32,
    /// What follows the name.
    pub syntax: Vec<Node>,
    /// Whether requests carry a subcommand, so that this row alone is never the whole name.
    pub is_container: bool,
    /// The family that it belongs to.
    pub group: Group,
}

impl Spec {
    /// A generic command by its name, arity and syntax.
    pub fn new(name: &str, arity: i32, syntax: &str) -> Spec {
        Spec {
            name: name.to_owned(),
            arity,
            syntax: syntax::parse(syntax),
            is_container: false,
            group: Group::Generic,
        }
    }

    /// The words that a request begins with.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.name.split('|')
    }
}

/// The commands of `rows` and of their subcommands.
pub fn specs<H>(rows: &[Row<H>]) -> Vec<Spec> {
    let mut found = Vec::new();
    for row in rows {
        let is_container = !row.subcommands.is_empty();
        found.push(Spec { is_container, group: row.group, ..Spec::new(row.name, row.arity, row.syntax) });
        found.extend(specs(row.subcommands));
    }
    found
}

/// The data commands, from all families.
pub fn data_specs() -> Vec<Spec> {
    command::FAMILIES.iter().flat_map(|rows| specs(rows)).collect()
}
