//! Who is told what a log does, and makes nothing of it.

use log::{Failure, Lsn, Observer};

pub struct Nobody;

impl Observer for Nobody {
    fn committed(&self, _: Lsn) {}
    fn failed(&self, _: &Failure) {}
    fn resumed(&self) {}
}
