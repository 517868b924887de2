//! What a tool shows of how far it is.

use std::io::{self, IsTerminal, Write};

/// Shows how far it is: one line that is written again and again on a terminal, a line for each step elsewhere.
pub struct Screen {
    is_terminal: bool,
    last: String,
}

impl Screen {
    pub fn new() -> Screen {
        Screen { is_terminal: io::stdout().is_terminal(), last: String::new() }
    }

    /// A closed pipe has read enough.
    pub fn show(&mut self, line: &str, step: &str) {
        let mut out = io::stdout();
        if self.is_terminal {
            let _ = write!(out, "\r\x1b[K{line}");
            let _ = out.flush();
        } else if step != self.last {
            let _ = writeln!(out, "{line}");
        }
        step.clone_into(&mut self.last);
    }

    /// Says something that stays.
    pub fn say(&mut self, line: &str) {
        let before = if self.is_terminal { "\r\x1b[K" } else { "" };
        let _ = writeln!(io::stdout(), "{before}{line}");
    }

    /// Nothing more is shown: what stands there stays.
    pub fn end(&self) {
        if self.is_terminal {
            let _ = writeln!(io::stdout());
        }
    }
}
