//! The report on the disk: one folder with the page and the same report as Markdown, CSV and JSON.
//!
//! Each file is written under another name and renamed, so that a report from an earlier run is replaced whole or not at
//! all. Every failure is one sentence that names the file.

use super::{Report, markdown, page, sheet};
use crate::Failure;
use std::fs;
use std::path::{Path, PathBuf};

/// Makes the folder and writes a first file into it, to find out before a long run that a report cannot be written.
///
/// # Errors
/// The folder cannot be made or written to.
pub fn prepare(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| {
        Failure(format!("The folder {} for the report cannot be made: {error}.", folder.display()))
    })?;
    let probe = folder.join(".probe");
    fs::write(&probe, "A report will be written here.\n").map_err(|error| failure(&probe, &error))?;
    fs::remove_file(&probe).map_err(|error| failure(&probe, &error))
}

/// Writes the report's files and returns the page's path.
///
/// # Errors
/// A file cannot be written, such as on a full disk; those that can be are there, the page before all others.
pub fn write(report: &Report, folder: &Path) -> Result<PathBuf, Failure> {
    let json = serde_json::to_vec(report).expect("the model has no keys that JSON cannot have");
    let page = place(folder, "index.html", page::page(report).as_bytes());
    let others = [
        place(folder, "report.md", markdown(report).as_bytes()),
        place(folder, "report.csv", &sheet::sheet(report)),
        place(folder, "report.json", &json),
    ];
    let page = page?;
    others.into_iter().collect::<Result<Vec<PathBuf>, Failure>>().map(|_| page)
}

fn place(folder: &Path, name: &str, content: &[u8]) -> Result<PathBuf, Failure> {
    let path = folder.join(name);
    let draft = folder.join(format!(".{name}.new"));
    let written = fs::write(&draft, content).and_then(|()| fs::rename(&draft, &path));
    if let Err(error) = written {
        // A draft that is cut short helps nobody; if it cannot be removed either, the first error says enough.
        let _ = fs::remove_file(&draft);
        return Err(failure(&path, &error));
    }
    Ok(path)
}

fn failure(path: &Path, error: &std::io::Error) -> Failure {
    Failure(format!("{} cannot be written: {error}.", path.display()))
}
