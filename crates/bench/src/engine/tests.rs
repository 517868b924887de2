//! Runs against servers made for it.
