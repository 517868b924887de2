//! What a worker's connections share: they take turns at its desk.
//!
//! Thread rule: the worker's own.

use crate::gate::Queue;
use crate::handshakes::Handshakes;
use crate::service::Service;
use crate::stream::secure::{SEALED_BYTES, Scratch};
use std::cell::RefCell;
use std::sync::Arc;

/// Bytes read at once.
const INPUT_BYTES: usize = SEALED_BYTES;

/// A worker's desk.
pub struct Desk<S: Service> {
    /// What is served.
    pub service: Arc<S>,
    /// Runs requests.
    pub runner: RefCell<S::Runner>,
    /// Used by one connection at a time, between two waits.
    pub buffers: RefCell<Buffers>,
    /// Connections whose replies wait for the disk.
    pub gate_queue: Queue,
    /// Connections that have yet to agree on keys.
    pub handshakes: Handshakes,
    /// The worker's number.
    pub index: usize,
}

/// A worker's buffers.
pub struct Buffers {
    /// What was read last.
    pub input: Vec<u8>,
    /// The requests found in it.
    pub requests: wire::Batch,
    /// The replies to them.
    pub output: Vec<u8>,
    /// What is on its way between these and sockets with TLS.
    pub sealed: Scratch,
}

impl<S: Service> Desk<S> {
    /// The desk of worker number `index`.
    pub fn new(service: Arc<S>, index: usize) -> Desk<S> {
        Desk {
            runner: RefCell::new(service.runner(index)),
            buffers: RefCell::new(Buffers {
                input: vec![0; INPUT_BYTES],
                requests: wire::Batch::new(),
                output: Vec::new(),
                sealed: Scratch::default(),
            }),
            gate_queue: Queue::default(),
            handshakes: Handshakes::default(),
            service,
            index,
        }
    }

    /// `proto-max-bulk-len` as the parser wants it.
    #[inline]
    pub fn bulk_bytes_max(&self) -> u64 {
        self.service.config().proto_max_bulk_len() as u64
    }
}
