//! Settings: of a cluster that begins, and of one that is there.

use super::*;

#[test]
fn what_was_said_for_a_new_cluster_is_compared_with_the_one_that_is_there() {
    let own = Policy { copies: 3, restore: 1, ..policy(4) };
    let options = |said: &[&'static str]| Options {
        prefix: PREFIX.to_owned(),
        own: Leader { name: "c".to_owned(), host: "h".to_owned(), port: 1 },
        cluster: String::new(),
        policy: own,
        said: said.iter().copied().collect(),
        lease: Duration::from_secs(3),
    };
    let there = Policy { shards: 5, ..policy(5) };
    let all = ["copies", "shards", "replace-after", "await-restore"];
    let told = options(&all).differing(&there);
    let begins = |at: usize, begin: &str| assert!(told[at].starts_with(begin), "{told:?}");
    begins(
        0,
        "--copies is 3, and the cluster, which is there already, has 2: `tarn cluster set copies VALUE`",
    );
    begins(1, "--shards is 4, and the cluster, which is there already, has 5: ");
    begins(2, "--await-restore is yes, and the cluster, which is there already, has no: ");
    assert_eq!(told.len(), 3);
    // What nobody has said, and what it has taken over, is as it is.
    assert_eq!(options(&[]).differing(&there), Vec::<String>::new());
    assert_eq!(options(&all).differing(&own), Vec::<String>::new());
}
