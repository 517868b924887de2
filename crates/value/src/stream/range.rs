//! Going through entries from one id to another, in either direction.
//!
//! 1. Only live entries come, each once, in the order of their ids or against it.

use std::collections::{BTreeMap, btree_map};

use super::id::StreamId;
use super::node::{Entry, Node, NodeEntries};

/// Which way to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From the lowest id on.
    Ascending,
    /// From the highest id down.
    Descending,
}

/// The entries between two ids.
#[derive(Clone)]
pub struct Range<'a> {
    nodes: Option<btree_map::Range<'a, StreamId, Node>>,
    current: Option<NodeEntries<'a>>,
    start: StreamId,
    end: StreamId,
    order: Order,
}

impl<'a> Range<'a> {
    #[inline]
    pub(super) fn new(
        nodes: &'a BTreeMap<StreamId, Node>,
        start: StreamId,
        end: StreamId,
        order: Order,
    ) -> Range<'a> {
        let nodes = (start <= end).then(|| {
            // The first entry may lie in the node that begins before it.
            let first = nodes.range(..=start).next_back().map_or(start, |(node_id, _)| *node_id);
            nodes.range(first..=end)
        });
        Range { nodes, current: None, start, end, order }
    }

    #[inline]
    fn next_in_node(&mut self) -> Option<Entry<'a>> {
        let current = self.current.as_mut()?;
        match self.order {
            Order::Ascending => current.find(|entry| entry.id >= self.start),
            Order::Descending => current.rfind(|entry| entry.id <= self.end),
        }
    }

    fn enter_next_node(&mut self) -> Option<()> {
        let nodes = self.nodes.as_mut()?;
        let (node_id, node) = match self.order {
            Order::Ascending => nodes.next()?,
            Order::Descending => nodes.next_back()?,
        };
        self.current = Some(node.entries(*node_id));
        Some(())
    }
}

impl<'a> Iterator for Range<'a> {
    type Item = Entry<'a>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        loop {
            if let Some(entry) = self.next_in_node() {
                let is_within = entry.id >= self.start && entry.id <= self.end;
                if !is_within {
                    (self.nodes, self.current) = (None, None);
                }
                return is_within.then_some(entry);
            }
            self.enter_next_node()?;
        }
    }
}
