//! The rules of `tidy`, each a function from a source to complaints.
//!
//! They read text, not syntax trees: sources are formatted, so that a line tells
//! enough. Words that must not occur are put together here from halves, so that
//! this file may be checked too.

/// What is wrong, one line each, beginning with the path.
pub type Complaints = Vec<String>;

/// A file below the root.
pub struct Source {
    /// With slashes, from the root.
    pub path: String,
    /// What is in it.
    pub text: String,
}

impl Source {
    /// Whether all of it is tests.
    fn is_test(&self) -> bool {
        self.path.starts_with("tests/")
            || self.path.contains("/tests/")
            || self.path.contains("/benches/")
            || self.path.ends_with("/tests.rs")
    }

    /// Its lines up to its tests.
    fn lines(&self) -> Vec<&str> {
        let lines: Vec<&str> = self.text.lines().collect();
        let tests =
            lines.windows(2).position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod tests"));
        lines[..tests.unwrap_or(lines.len())].to_vec()
    }

    fn at(&self, line: usize, what: &str) -> String {
        format!("{}:{}: {what}", self.path, line + 1)
    }
}

/// Dependencies on crates that are not below, and on the testkit outside of tests.
pub fn edges(manifest: &Source, order: &[&str]) -> Complaints {
    let mut complaints = Complaints::new();
    let own = manifest.path.strip_prefix("crates/").and_then(|rest| rest.split('/').next()).unwrap_or("tarn");
    let own_rank = order.iter().position(|name| *name == own);
    if own_rank.is_none() && own != "testkit" {
        complaints.push(format!("{}: this crate has no place in the order", manifest.path));
    }
    let mut section = "";
    for (at, line) in manifest.text.lines().enumerate() {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
            continue;
        }
        let is_dev = section == "dev-dependencies";
        let name = line.split(['.', '=', ' ']).next().unwrap_or("");
        if !(is_dev || section == "dependencies") || (own == "testkit" && name != "testkit") {
            continue;
        }
        if name == "testkit" && !is_dev {
            complaints.push(manifest.at(at, "the testkit is for tests only"));
        }
        let rank = order.iter().position(|other| *other == name);
        if rank.zip(own_rank).is_some_and(|(rank, own_rank)| rank <= own_rank) {
            complaints.push(manifest.at(at, &format!("{own} must not use {name}, which is above it")));
        }
    }
    complaints
}

/// Pairs of crates of which the first has the second among its dependencies, though they are to know nothing of each other.
pub fn acquaintances(manifest: &Source, apart: &[(&str, &str)]) -> Complaints {
    let own = manifest.path.strip_prefix("crates/").and_then(|rest| rest.split('/').next()).unwrap_or("tarn");
    let is_there =
        |name: &str| manifest.text.lines().any(|line| line.split(['.', '=', ' ']).next() == Some(name));
    let known = apart.iter().filter(|(one, other)| *one == own && is_there(other));
    known.map(|(one, other)| format!("{}: {one} is to know nothing of {other}", manifest.path)).collect()
}

/// Uses of modules of a crate that are not below the own one, as `module -> module`.
pub fn rises(source: &Source, folder: &str, order: &[&str]) -> Complaints {
    let Some(rest) = source.path.strip_prefix(folder).filter(|_| !source.is_test()) else {
        return Complaints::new();
    };
    let own = rest.split(['/', '.']).next().unwrap_or("");
    if own == "lib" {
        return Complaints::new();
    }
    let Some(own_rank) = order.iter().position(|name| *name == own) else {
        return vec![format!("{own}: this module has no place in the order")];
    };
    let text = source.lines().join("\n");
    let mut named = Vec::new();
    for behind in text.split("crate::").skip(1) {
        let group = behind.strip_prefix('{').and_then(|group| group.split('}').next());
        named.extend(group.unwrap_or(behind).split(',').take(if group.is_some() { usize::MAX } else { 1 }));
    }
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut rises = Complaints::new();
    for name in named.iter().filter_map(|name| name.trim().split(|letter| !is_word(letter)).next()) {
        let is_above = order.iter().position(|other| *other == name).is_some_and(|rank| rank < own_rank);
        let rise = format!("{own} -> {name}");
        if is_above && !rises.contains(&rise) {
            rises.push(rise);
        }
    }
    rises
}

/// The path, if the file is longer than `max` without its tests.
pub fn long_file(source: &Source, max: usize) -> Complaints {
    let is_long = !source.is_test() && source.lines().len() > max;
    if is_long { vec![source.path.clone()] } else { Complaints::new() }
}

/// Path and name of each function longer than `max`. Tests may hold long tables.
pub fn long_functions(source: &Source, max: usize) -> Complaints {
    let lines = if source.is_test() { Vec::new() } else { source.lines() };
    let mut complaints = Complaints::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        let closing = format!("{indent}}}");
        let Some(length) = lines[start..].iter().position(|line| *line == closing) else { continue };
        // A signature without a body ends before the brace of something else does.
        let has_body = lines[start..].iter().find(|line| line.ends_with('{') || line.ends_with(';'));
        if has_body.is_some_and(|line| line.ends_with('{')) && length + 1 > max {
            complaints.push(format!("{}: {name}", source.path));
        }
    }
    complaints
}

/// The name of the function that a line begins.
fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    if rest.starts_with("//") {
        return None;
    }
    for word in ["pub(crate) ", "pub(super) ", "pub ", "const ", "async ", "unsafe ", "extern \"C\" "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let name = rest.strip_prefix("fn ")?;
    name.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()
}

/// Files, types and functions with names that could stand for anything.
pub fn banned_names(source: &Source) -> Complaints {
    const TYPES: &[&str] =
        &["Manager", "Helper", "Util", "Utils", "Common", "Base", "Impl", "Data", "Info", "Supervisor"];
    const FUNCTIONS: &[&str] = &["manager", "helper", "util", "utils", "supervisor", "new2"];
    let mut complaints = Complaints::new();
    let stem = source.path.rsplit('/').next().and_then(|name| name.strip_suffix(".rs")).unwrap_or("");
    // The INFO command is called that by everybody.
    let is_info = source.path.contains("/info.rs") || source.path.contains("/info/");
    let is_banned_file = TYPES.iter().any(|word| word.eq_ignore_ascii_case(stem) && *word != "Info");
    if is_banned_file || stem == "helpers" || stem == "misc" {
        complaints.push(format!("{}: says nothing as the name of a file", source.path));
    }
    for (at, line) in source.text.lines().enumerate() {
        if let Some(name) = type_name(line) {
            let words = camel_words(name);
            if words.iter().any(|word| TYPES.contains(&word.as_str()) && !(word == "Info" && is_info)) {
                complaints.push(source.at(at, &format!("'{name}' says nothing as the name of a type")));
            }
        }
        if let Some(name) = function_name(line) {
            let is_vague = name.starts_with("do_")
                || name.starts_with("process_")
                || name == "process"
                || name == "handle";
            if is_vague || name.split('_').any(|word| FUNCTIONS.contains(&word)) {
                complaints.push(source.at(at, &format!("'{name}' says nothing as the name of a function")));
            }
        }
    }
    complaints
}

fn type_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    for word in ["pub(crate) ", "pub(super) ", "pub "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
    let name = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    name.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()
}

/// The words of a name in capitals and small letters.
fn camel_words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for letter in name.chars() {
        match words.last_mut() {
            Some(word) if !letter.is_uppercase() => word.push(letter),
            _ => words.push(letter.to_string()),
        }
    }
    words
}

/// A file that does not begin with what it is. For `name/tests.rs`, `name.rs` tells.
pub fn no_header(source: &Source) -> Complaints {
    let has_one = source.path.ends_with("/tests.rs")
        || source.text.starts_with("//! ") && source.text.lines().nth(1).is_some();
    if has_one { Complaints::new() } else { vec![format!("{}: does not begin with //!", source.path)] }
}

/// Marks of unfinished work.
pub fn left_for_later(source: &Source) -> Complaints {
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("to", "do!("),
        concat!("unimpl", "emented!("),
        concat!("#[ig", "nore"),
        concat!("dbg", "!("),
    ];
    find(source, &marks)
}

/// The path, if there is `unsafe` in the file.
pub fn with_unsafe(source: &Source) -> Complaints {
    if source.text.lines().any(opens_unsafe) { vec![source.path.clone()] } else { Complaints::new() }
}

/// Libraries that have none of the files with `unsafe` and do not forbid it.
pub fn not_forbidding_unsafe(source: &Source, files: &[&str]) -> Complaints {
    let Some(folder) = source.path.strip_suffix("lib.rs") else { return Complaints::new() };
    let has_some = files.iter().any(|file| file.starts_with(folder));
    if has_some || source.text.contains("#![forbid(unsafe_code)]") {
        return Complaints::new();
    }
    vec![format!("{}: does not forbid unsafe code", source.path)]
}

/// Whether a line of code has the keyword.
fn opens_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or("");
    [" {", " impl", " fn", " extern"]
        .iter()
        .any(|next| code.contains(&[concat!("un", "safe"), next].concat()))
}

/// Blocks of `unsafe` without `// SAFETY:` close above, and functions without `# Safety`.
pub fn unsafe_without_reason(source: &Source) -> Complaints {
    /// Lines between the reason and its block, most of them the reason's own.
    const DISTANCE_MAX: usize = 12;
    let lines: Vec<&str> = source.text.lines().collect();
    let is_reasoned = |at: usize| {
        let above = &lines[at.saturating_sub(DISTANCE_MAX)..=at];
        above.iter().any(|line| line.contains("SAFETY:") || line.contains("# Safety"))
    };
    let opened = (0..lines.len()).filter(|at| opens_unsafe(lines[*at]));
    opened.filter(|at| !is_reasoned(*at)).map(|at| source.at(at, "unsafe without // SAFETY:")).collect()
}

/// Lints switched off without a word about it.
pub fn allowed_without_reason(source: &Source) -> Complaints {
    let mut complaints = Complaints::new();
    let mut above = "";
    let lines: Vec<&str> = source.text.lines().collect();
    for (at, line) in lines.iter().copied().enumerate() {
        let code = line.trim_start();
        // One that is long goes over several lines.
        let end = lines[at..].iter().position(|line| line.trim_end().ends_with(']')).unwrap_or(0);
        let is_allowance =
            code.starts_with("#[allow(") || code.starts_with("#![allow(") || code.starts_with("#[expect(");
        let is_reasoned = code.contains("//")
            || lines[at..=at + end].iter().any(|line| line.contains("reason ="))
            || above.trim_start().starts_with("// ");
        if is_allowance && !is_reasoned {
            complaints.push(source.at(at, "a lint is switched off without a reason"));
        }
        above = line;
    }
    complaints
}

/// Files touched past the door in `sys::file`. Tests and what only they use may.
pub fn files_past_the_door(source: &Source) -> Complaints {
    const WORDS: &[&str] =
        &["std::fs", "tokio::fs", "unix::fs", "File::open(", "File::create(", "OpenOptions"];
    let free = ["crates/sys/", "crates/testkit/", "crates/bench/"];
    if source.is_test() || free.iter().any(|folder| source.path.starts_with(folder)) {
        return Complaints::new();
    }
    let mut complaints = Complaints::new();
    for (at, line) in source.lines().iter().enumerate() {
        let code = line.split("//").next().unwrap_or("");
        for word in WORDS.iter().filter(|word| code.contains(**word)) {
            complaints.push(source.at(at, &format!("'{word}': files are reached through sys::file")));
        }
    }
    complaints
}

/// Paths of somebody's machine and names of package mirrors.
pub fn places(source: &Source) -> Complaints {
    let places = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("deb.", "debian"),
        concat!("py", "pi.org"),
        concat!("crates", ".io"),
    ];
    find(source, &places)
}

fn find(source: &Source, words: &[&str]) -> Complaints {
    let mut complaints = Complaints::new();
    for (at, line) in source.text.lines().enumerate() {
        for word in words.iter().filter(|word| line.contains(**word)) {
            complaints.push(source.at(at, &format!("'{word}'")));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn edges_go_down_only() {
        let order = ["server", "command", "wire"];
        let check = |path: &str, text: &str| edges(&source(path, text), &order).len();
        assert_eq!(
            check("crates/command/Cargo.toml", "[dependencies]\nwire.workspace = true\nserde = \"1\"\n"),
            0
        );
        assert_eq!(
            check("crates/command/Cargo.toml", "[dependencies]\nserver = { path = \"../server\" }\n"),
            1
        );
        assert_eq!(check("crates/wire/Cargo.toml", "[dev-dependencies]\ncommand.workspace = true\n"), 1);
        assert_eq!(check("crates/command/Cargo.toml", "[dependencies]\ntestkit.workspace = true\n"), 1);
        assert_eq!(check("crates/command/Cargo.toml", "[dev-dependencies]\ntestkit.workspace = true\n"), 0);
        assert_eq!(check("crates/new/Cargo.toml", "[dependencies]\n"), 1);
    }

    #[test]
    fn modules_use_what_is_below_them() {
        let order = ["start", "server", "slow"];
        let check = |path: &str, text: &str| rises(&source(path, text), "crates/server/src/", &order);
        assert_eq!(check("crates/server/src/slow.rs", "use crate::server::Server;\n"), ["slow -> server"]);
        let group = "use crate::{slow, start};\nuse crate::slow;\n";
        assert_eq!(check("crates/server/src/server/part.rs", group), ["server -> start"]);
        assert!(
            check("crates/server/src/start.rs", "use crate::server::Server;\nuse crate::slow;\n").is_empty()
        );
        assert!(check("crates/net/src/slow.rs", "use crate::server::Server;\n").is_empty());
        assert_eq!(check("crates/server/src/new.rs", "").len(), 1);
    }

    #[test]
    fn some_crates_know_nothing_of_each_other() {
        let manifest = source("crates/net/Cargo.toml", "[dependencies]\nengine.workspace = true\n");
        assert_eq!(acquaintances(&manifest, &[("net", "engine"), ("engine", "net")]).len(), 1);
        assert!(acquaintances(&manifest, &[("net", "keyspace"), ("notify", "engine")]).is_empty());
    }

    #[test]
    fn tests_do_not_count_as_lines_of_a_file() {
        let text = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", "line\n".repeat(5), "test\n".repeat(20));
        assert!(long_file(&source("src/a.rs", &text), 5).is_empty());
        assert_eq!(long_file(&source("src/a.rs", &text), 4), ["src/a.rs"]);
    }

    #[test]
    fn functions_are_measured_to_their_closing_brace() {
        let body = "        x();\n".repeat(8);
        let text = format!(
            "impl A {{\n    pub fn long(\n        a: u8,\n    ) -> u8 {{\n{body}    }}\n\n    fn short() {{\n    }}\n}}\n"
        );
        assert_eq!(long_functions(&source("src/a.rs", &text), 10), ["src/a.rs: long"]);
        assert!(long_functions(&source("src/a.rs", &text), 12).is_empty());
        let signature = "trait T {\n    fn none(&self);\n    fn other(&self);\n}\nfn f() {\n}\n";
        assert!(long_functions(&source("src/a.rs", signature), 2).is_empty());
    }

    #[test]
    fn names_that_could_stand_for_anything_are_found() {
        let check = |path: &str, text: &str| banned_names(&source(path, text)).len();
        assert_eq!(
            check("src/a.rs", "pub struct KeyManager;\nfn do_it() {}\nfn process_key() {}\nenum Kind {}\n"),
            3
        );
        assert_eq!(check("src/a.rs", "struct Database;\nstruct Implied;\nfn done() {}\n"), 0);
        assert_eq!(check("src/util.rs", ""), 1);
        assert_eq!(check("crates/server/src/commands/info.rs", "struct InfoSection;\n"), 0);
        assert_eq!(check("src/a.rs", "struct InfoSection;\n"), 1);
    }

    #[test]
    fn unfinished_work_is_found() {
        let text = ["//! a", concat!("// TO", "DO: more"), concat!("    to", "do!()")].join("\n");
        assert_eq!(left_for_later(&source("src/a.rs", &text)).len(), 2);
    }

    #[test]
    fn files_are_reached_through_their_door() {
        let text = "use std::fs;\n// std::fs\n#[cfg(test)]\nmod tests {\n    std::fs::read();\n}\n";
        assert_eq!(files_past_the_door(&source("crates/server/src/a.rs", text)).len(), 1);
        assert!(files_past_the_door(&source("crates/sys/src/file/real.rs", text)).is_empty());
        assert!(files_past_the_door(&source("crates/server/tests/a.rs", text)).is_empty());
    }

    #[test]
    fn unsafe_needs_its_place_and_its_reason() {
        let block = concat!("    un", "safe { go() }\n");
        let reasoned = format!("    // SAFETY: it may.\n{block}");
        assert_eq!(with_unsafe(&source("crates/wire/src/a.rs", block)), ["crates/wire/src/a.rs"]);
        assert_eq!(unsafe_without_reason(&source("crates/sys/src/a.rs", block)).len(), 1);
        assert!(unsafe_without_reason(&source("crates/sys/src/a.rs", &reasoned)).is_empty());
        let library = source("crates/wire/src/lib.rs", "//! w\n");
        assert_eq!(not_forbidding_unsafe(&library, &["crates/sys/src/a.rs"]).len(), 1);
        assert!(not_forbidding_unsafe(&library, &["crates/wire/src/a.rs"]).is_empty());
    }

    #[test]
    fn headers_allowances_and_places_are_checked() {
        assert_eq!(no_header(&source("src/a.rs", "fn main() {}\n")).len(), 1);
        assert!(no_header(&source("src/a.rs", "//! A.\n\nfn main() {}\n")).is_empty());
        assert_eq!(allowed_without_reason(&source("src/a.rs", "#[allow(dead_code)]\nfn a() {}\n")).len(), 1);
        assert!(
            allowed_without_reason(&source("src/a.rs", "#[allow(dead_code)] // Why.\nfn a() {}\n"))
                .is_empty()
        );
        assert_eq!(places(&source("docs/a.md", concat!("see /wo", "rk/x\n"))).len(), 1);
    }
}
