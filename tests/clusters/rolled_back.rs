//! The store of decisions goes back to what it was, under everybody who knows more.

use super::cluster::{Cluster, Kind, PATIENT, wait_until};
use super::guided::Guided;
use super::rounds::tags;
use crate::slot_moves::move_and_wait;
use std::collections::BTreeMap;
use testkit::ask::{call, ok, text};
use topology::{ServerId, ShardId};
use wire::Value;

const SHARD: ShardId = ShardId(0);

/// Counts in keys with these tags, and what each has to be.
#[derive(Default)]
struct Counts(BTreeMap<String, i64>);

impl Counts {
    fn count(&mut self, guided: &mut Guided, tags: &[String]) {
        for tag in tags {
            let key = format!("count{{{tag}}}");
            let count = self.0.entry(key.clone()).or_default();
            let held = if *count > 0 { text(&count.to_string()) } else { Value::Null };
            assert_eq!(guided.call(&key, &["GET", &key]).unwrap(), held, "{key}");
            *count += 1;
            // What may be done twice: whoever is not answered asks again.
            assert_eq!(guided.call(&key, &["SET", &key, &count.to_string()]).unwrap(), ok(), "{key}");
        }
    }

    fn check(&self, guided: &mut Guided) {
        for (key, count) in &self.0 {
            assert_eq!(guided.call(key, &["GET", key]).unwrap(), text(&count.to_string()), "{key}");
        }
    }
}

/// All of etcd is stopped and started again, with what was kept of it under this name, if it is told.
fn begin_anew(cluster: &mut Cluster, put_back: Option<&str>, keep: Option<&str>) {
    let etcd = cluster.config.etcd.as_mut().expect("it is over etcd");
    (0..etcd.count()).for_each(|at| etcd.kill(at));
    if let Some(name) = keep {
        etcd.keep(name);
    }
    if let Some(name) = put_back {
        etcd.put_back(name);
    }
    etcd.mend();
}

fn master(cluster: &Cluster) -> Option<ServerId> {
    cluster.topology()?.master_of(SHARD).map(|master| master.id)
}

/// The role of a server in its shard, as it says itself.
fn role(cluster: &Cluster, id: ServerId) -> Option<String> {
    let Value::Array(words) = cluster.connect(id).ok()?.call(&["INSYNC", "STATUS"]).ok()? else {
        return None;
    };
    words.chunks(2).find_map(|pair| match pair {
        [Value::Bulk(name), Value::Bulk(is)] if name == b"role" => {
            Some(String::from_utf8_lossy(is).into_owned())
        }
        _ => None,
    })
}

#[test]
fn over_etcd_a_store_that_goes_back_takes_nothing_with_it() {
    // By a store that has gone back nobody takes the place of one who is missed.
    let directives = [&["--edition", "durable", "--min-sync-replicas", "1"], &PATIENT[..]].concat();
    let mut cluster = Cluster::begin_as(Kind::OverEtcd, (2, 2), &directives);
    // Some of slots that move, some that stay with each shard.
    let all = [(0, 999), (1000, 8191), (8192, 16_383)];
    let all = all.map(|(first, last)| tags(3, |slot| (first..=last).contains(&slot))).concat();
    let mut counts = Counts::default();
    let mut guided = Guided::new(&cluster);
    counts.count(&mut guided, &all);
    let former = master(&cluster).expect("there is one");
    begin_anew(&mut cluster, None, Some("early"));
    cluster.wait_until_whole();

    // What happens from here on the store will have forgotten.
    let other = cluster.topology_before().replicas_of(SHARD).next().expect("there is one").id;
    cluster.switch(SHARD, other);
    cluster.wait_until_whole();
    move_and_wait(&cluster, 1, "0-999");
    counts.count(&mut guided, &all);
    let (known, heir) = (cluster.topology().expect("it is there"), master(&cluster).expect("there is one"));
    assert_ne!(heir, former);
    begin_anew(&mut cluster, Some("early"), Some("late"));
    wait_until("config servers tell of the past", || {
        cluster.topology().is_some_and(|topology| topology.revision < known.revision)
    });
    wait_until("servers take nothing of it", || {
        known
            .servers
            .keys()
            .all(|id| cluster.output(*id).contains("PAST the store of decisions is at revision"))
    });
    for _ in 0..20 {
        counts.count(&mut guided, &all);
    }
    // The one that the store names is not master, whoever ends.
    cluster.kill(heir);
    wait_until("it is missed", || role(&cluster, former).is_some_and(|role| role != "member"));
    assert_ne!(role(&cluster, former).as_deref(), Some("master"));
    cluster.restart(heir);
    let mut client = cluster.connect_loaded(heir);
    let answer = call(&mut client, &["GET", &format!("count{{{}}}", all[3])]);
    assert!(matches!(answer, Value::Error(_)), "it serves by what nobody has confirmed: {answer:?}");

    // What was lost is found, and config servers begin with it.
    for at in 0..cluster.config.addresses().len() {
        cluster.config.kill(at);
    }
    begin_anew(&mut cluster, Some("late"), None);
    cluster.mend();
    cluster.wait_until_whole();
    let mut guided = Guided::new(&cluster);
    counts.check(&mut guided);
    counts.count(&mut guided, &all);
    let now = cluster.topology().expect("it is there");
    assert_eq!(now.slots, known.slots);
    assert!(now.shards[&SHARD].epoch >= known.shards[&SHARD].epoch);
}
