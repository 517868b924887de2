//! The integration tests: one binary, a module for each kind.
//!
//! docs/testing.md says what each is for and how to run the long ones.

mod differential;

use testkit::Program;

/// The `tarn` that was built with these tests, or the one that `TARN_BIN` names.
fn tarn() -> Program {
    let path = std::env::var_os("TARN_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_tarn").into());
    Program::Tarn(path.into())
}
