//! What appending costs.

fn main() {}
