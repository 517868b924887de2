//! The published figures, compiled in: what performance reports of cloud Redis services and of their users say.
//!
//! `published.csv` is the one list; each line names its source, edition, instance and, where it was published, the number
//! of cores. Chapters pick the lines that stand beside their rows.

use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

const LINES: &str = include_str!("published.csv");

/// One published figure. What the source does not say is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The short name of the publication, see [`Published::title`].
    pub source: String,
    /// memory, durable, capacity, cluster or proxied.
    pub edition: String,
    /// The instance as the source names it.
    pub instance: String,
    /// Cores of the instance.
    pub cores: Option<u32>,
    /// Master nodes.
    pub masters: Option<u32>,
    /// Connections that it admits.
    pub max_connections: Option<u64>,
    /// Its network, in MB/s.
    pub bandwidth_mb_s: Option<f64>,
    /// The scenario, such as the ratio of memory to data.
    pub scenario: String,
    /// Records loaded.
    pub records: Option<u64>,
    /// Operations run.
    pub operations: Option<u64>,
    /// Client threads.
    pub threads: Option<u32>,
    /// The workload as the source names it.
    pub workload: String,
    /// Bytes of a value.
    pub value_bytes: Option<u64>,
    /// Operations per second.
    pub qps: Option<f64>,
    /// Average latency of reads, in microseconds.
    pub read_avg_us: Option<f64>,
    /// 99 % latency of reads, in microseconds.
    pub read_p99_us: Option<f64>,
    /// Average latency of writes, in microseconds.
    pub write_avg_us: Option<f64>,
    /// 99 % latency of writes, in microseconds.
    pub write_p99_us: Option<f64>,
    /// Seconds that the run took.
    pub seconds: Option<f64>,
}

impl Published {
    /// The instance in words; the cluster edition's are named by their memory alone.
    pub fn label(&self) -> String {
        match self.edition.as_str() {
            "cluster" => format!("cluster of {}", self.instance),
            _ => self.instance.clone(),
        }
    }

    /// The publication in words.
    pub fn title(&self) -> &str {
        match self.source.as_str() {
            "whitepaper-2020" => "Performance whitepaper of the cloud service Tair, 2020",
            "whitepaper-essd-2025" => "Performance whitepaper of Tair's disk-based (ESSD) edition, 2025",
            "codis-report" => {
                "A user's comparison of cloud instances and a Codis proxy, with redis-benchmark"
            }
            "dtm-report" => "The transaction coordinator dtm's report on Redis",
            "ecs-report-2016" => "A user's comparison of a cloud instance and own servers, 2016",
            other => other,
        }
    }
}

/// All published figures, in the list's order.
pub fn published() -> &'static [Published] {
    static ALL: OnceLock<Vec<Published>> = OnceLock::new();
    ALL.get_or_init(|| {
        csv::Reader::from_reader(LINES.as_bytes())
            .into_deserialize()
            .map(|line| line.expect("the list that is compiled in is read by a test"))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_list_is_read() {
        assert_eq!(published().len(), LINES.lines().count() - 1);
        assert!(published().iter().all(|figure| figure.qps.is_some()));
    }

    #[test]
    fn every_source_has_a_title() {
        assert!(published().iter().all(|figure| figure.title() != figure.source));
    }
}
