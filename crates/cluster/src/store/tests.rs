//! Tests of stores.
