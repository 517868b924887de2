//! The store in etcd: real ones, of one member and of three.

use super::{PATIENCE, compare, done, keeps_its_promises, next, put};
use crate::store::etcd::{Etcd, Options};
use crate::store::{Change, LeaseId, Outcome, Revision, Seen, Store};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use testkit::ask::wait_until;
use testkit::etcd::Etcd as Members;
use testkit::tls::Authority;

/// What is asked of real members beside what the testkit has them do.
trait Asked {
    fn store(&self) -> Etcd;
    fn store_with(&self, options: Options) -> Etcd;
    fn call(&self, path: &str, form: &serde_json::Value);
    fn compact(&self, revision: Revision);
}

impl Asked for Members {
    fn store(&self) -> Etcd {
        self.store_with(Options::default())
    }

    /// One that answers.
    fn store_with(&self, options: Options) -> Etcd {
        let store = Etcd::new(Options { endpoints: self.endpoints(), ..options }).expect("that makes sense");
        wait_until("etcd answers", || store.read("/").is_ok());
        store
    }

    /// Asks the gateway of the first member for something that the store does not.
    fn call(&self, path: &str, form: &serde_json::Value) {
        let answer = ureq::post(format!("{}{path}", self.endpoints()[0])).send(form.to_string().as_bytes());
        assert!(answer.is_ok(), "{path}: {answer:?}");
    }

    fn compact(&self, revision: Revision) {
        self.call("/v3/kv/compaction", &json!({ "revision": revision.0.to_string(), "physical": true }));
    }
}

#[test]
fn one_member_keeps_what_is_promised() {
    let members = Members::start(1);
    keeps_its_promises(&members.store(), &|revision| members.compact(revision));
}

#[test]
fn three_members_keep_what_is_promised() {
    let members = Members::start(3);
    keeps_its_promises(&members.store(), &|revision| members.compact(revision));
}

/// Tarn writes nothing else, but others can: it is for who reads the keys to make no sense of it, and all other keys are seen.
#[test]
fn what_is_no_text_hides_nothing() {
    let members = Members::start(1);
    let store = members.store();
    let begin = done(&store, Vec::new(), vec![put("/t/a", "1")]);
    let coded = |bytes: &[u8]| STANDARD.encode(bytes);
    for (key, value) in [(&b"/t/note"[..], &b"\xff"[..]), (b"/t/x\xfe", b"1")] {
        members.call("/v3/kv/put", &json!({ "key": coded(key), "value": coded(value) }));
    }
    let last = done(&store, Vec::new(), vec![put("/t/b", "2")]);
    let [strange, named] = [Revision(last.0 - 2), Revision(last.0 - 1)];
    let mut watch = store.watch("/t/", begin).expect("it answers");
    assert_eq!(next(&mut *watch), (strange, vec![super::set_to("/t/note", "\u{fffd}")]));
    assert_eq!(next(&mut *watch), (named, vec![super::set_to("/t/x\u{fffd}", "1")]));
    assert_eq!(next(&mut *watch), (last, vec![super::set_to("/t/b", "2")]));
    let all = store.read("/t/").expect("it answers");
    let expected = [
        ("/t/a", "1", begin),
        ("/t/b", "2", last),
        ("/t/note", "\u{fffd}", strange),
        ("/t/x\u{fffd}", "1", named),
    ];
    assert_eq!(super::held(&all), expected);
    assert_eq!(store.latest("/t/").map(|latest| latest.changed), Ok(last));
}

/// A lease, and when a key was written that it holds: once more where it had ended before.
fn led(store: &Etcd, length: Duration) -> (LeaseId, Revision) {
    let mut led = None;
    wait_until("a key is written while its lease lasts", || {
        let lease = store.grant(length).expect("it answers");
        let written = super::change(store, Vec::new(), vec![super::put_for("/t/led", "me", lease)]);
        if let Outcome::Done(at) = written {
            led = Some((lease, at));
        }
        led.is_some()
    });
    led.expect("it is written")
}

#[test]
fn a_lease_that_nobody_renews_ends() {
    let members = Members::start(1);
    let store = members.store();
    let (lease, at) = led(&store, Duration::from_secs(1));
    let mut watch = store.watch("/t/", at).expect("it answers");
    assert_eq!(next(&mut *watch).1, [super::gone("/t/led")]);
    assert_eq!(store.renew(lease), Ok(false));
}

/// What is gone is not found by a read: only who watches elsewhere hears of it.
#[test]
fn the_end_of_a_lease_is_seen_when_the_member_that_tells_stands_still() {
    let members = Members::start(3);
    members.store();
    // Another, which asks the first member first.
    let store = members.store();
    let (_, at) = led(&store, Duration::from_secs(3));
    let mut watch = store.watch("/t/", at).expect("it answers");
    members.signal(0, "-STOP");
    assert_eq!(next(&mut *watch).1, [super::gone("/t/led")]);
    members.signal(0, "-CONT");
}

/// Changes until it is done, for as long as nobody is reached or nobody can say; how long that took.
fn insist(store: &Etcd, key: &str, value: &str) -> Duration {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let now = store.get(key).ok().map(|entry| entry.map(|entry| (entry.value, entry.revision)));
        match now {
            Some(Some((held, _))) if held == value => return begun.elapsed(),
            None => continue,
            Some(now) => {
                let revision = now.map_or(Revision(0), |(_, revision)| revision);
                let _ = store.change(&Change {
                    compares: vec![compare(key, revision)],
                    writes: vec![put(key, value)],
                });
            }
        }
    }
    panic!("etcd does not come back")
}

#[test]
fn the_loss_of_any_member_is_overcome() {
    let mut members = Members::start(3);
    let store = members.store();
    let begin = done(&store, Vec::new(), vec![put("/t/a", "begin")]);
    let mut watched = begin;
    let mut watch = store.watch("/t/", begin).expect("it answers");
    let mut values = Vec::new();
    for at in 0..3 {
        for how in ["killed", "stopped"] {
            match how {
                "killed" => members.kill(at),
                _ => members.signal(at, "-STOP"),
            }
            let value = format!("member {at} is {how}");
            let took = insist(&store, "/t/a", &value);
            println!("{value}: {took:?}");
            values.push(value);
            // Whoever watches sees it too, if need be by another watch.
            let begun = Instant::now();
            loop {
                assert!(begun.elapsed() < PATIENCE, "the watch does not see it");
                match watch.next(Duration::from_millis(100)) {
                    Ok(Seen::Changes { revision, changed }) => {
                        assert!(revision > watched);
                        watched = revision;
                        if changed[0].value.as_ref() == values.last() {
                            break;
                        }
                    }
                    Ok(Seen::Quiet) => {}
                    Ok(Seen::Compacted) => panic!("nothing was forgotten"),
                    Err(_) => {
                        if let Ok(another) = store.watch("/t/", watched) {
                            watch = another;
                        }
                    }
                }
            }
            match how {
                "killed" => members.run(at),
                _ => members.signal(at, "-CONT"),
            }
            wait_until("the member is back", || {
                let endpoints = vec![members.endpoints()[at].clone()];
                Etcd::new(Options { endpoints, ..Options::default() }).is_ok_and(|one| one.read("/").is_ok())
            });
        }
    }
}

#[test]
fn a_password_is_said_and_said_again() {
    let mut members = Members::start(1);
    let open = members.store();
    done(&open, Vec::new(), vec![put("/t/a", "1")]);
    members.call("/v3/auth/user/add", &json!({ "name": "root", "password": "secret" }));
    members.call("/v3/auth/role/add", &json!({ "name": "root" }));
    members.call("/v3/auth/user/grant", &json!({ "user": "root", "role": "root" }));
    members.call("/v3/auth/enable", &json!({}));
    let as_user = |password: &str| Options {
        endpoints: members.endpoints(),
        user: "root".to_owned(),
        password: password.to_owned(),
        ..Options::default()
    };
    let next = |store: &Etcd| store.change(&Change { compares: Vec::new(), writes: vec![put("/t/a", "2")] });
    for wrong in [Options { endpoints: members.endpoints(), ..Options::default() }, as_user("guess")] {
        let store = Etcd::new(wrong).expect("that makes sense");
        assert!(store.read("/t/").is_err_and(|why| why.0.contains("http://")));
        assert!(matches!(next(&store), Outcome::Unreached(_)), "{:?}", next(&store));
        assert!(store.watch("/t/", Revision(1)).is_err());
    }
    let store = Etcd::new(as_user("secret")).expect("that makes sense");
    assert!(matches!(next(&store), Outcome::Done(_)));
    let at = store.read("/t/").expect("it answers").revision;
    // It knows its tokens no more.
    members.kill(0);
    members.run(0);
    wait_until("it answers again", || store.read("/t/").is_ok());
    let mut watch = store.watch("/t/", at).expect("it answers");
    assert!(matches!(next(&store), Outcome::Done(_)));
    assert_eq!(super::next(&mut *watch).1, [super::set_to("/t/a", "2")]);
}

#[test]
fn it_is_spoken_to_with_tls() {
    let authority = Authority::new("etcd's");
    let (own, client) = (authority.issue("server"), authority.issue("client"));
    let write = |dir: &std::path::Path, name: &str, text: &str| -> PathBuf {
        let path = dir.join(name);
        let mut file = std::fs::File::create(&path).expect("it can be made");
        file.write_all(text.as_bytes()).expect("it can be written");
        path
    };
    let members = Members::start_with(1, "https", |dir| {
        let path = |name: &str, text: &str| write(dir, name, text).display().to_string();
        let (certificate, key) = (path("server.crt", &own.certificate), path("server.key", &own.key));
        let authorities = path("ca.crt", authority.pem());
        [
            "--cert-file",
            &certificate,
            "--key-file",
            &key,
            "--client-cert-auth",
            "--trusted-ca-file",
            &authorities,
        ]
        .map(str::to_owned)
        .to_vec()
    });
    let dir = members.dir();
    let certificate =
        Some((write(dir, "client.crt", &client.certificate), write(dir, "client.key", &client.key)));
    let authorities = Some(dir.join("ca.crt"));
    let store =
        members.store_with(Options { authorities: authorities.clone(), certificate, ..Options::default() });
    let at = done(&store, Vec::new(), vec![put("/t/a", "1")]);
    let mut watch = store.watch("/t/", Revision(at.0 - 1)).expect("it answers");
    assert_eq!(super::next(&mut *watch), (at, vec![super::set_to("/t/a", "1")]));
    // Without a certificate, and without knowing the authority.
    for wrong in [Options { authorities, ..Options::default() }, Options::default()] {
        let store = Etcd::new(Options { endpoints: members.endpoints(), ..wrong }).expect("that makes sense");
        assert!(store.read("/").is_err());
    }
    let missing = Options {
        endpoints: members.endpoints(),
        authorities: Some(dir.join("server.key")),
        ..Options::default()
    };
    assert!(Etcd::new(missing).map(drop).is_err_and(|why| why.contains("no certificate")));
}

/// All of etcd is put back to what it was: a watch tells so, and does not wait for what is never told again.
#[test]
fn a_store_that_goes_back_is_read_anew() {
    let mut members = Members::start(1);
    let store = members.store();
    let early = done(&store, Vec::new(), vec![put("/t/a", "1")]);
    members.kill(0);
    members.keep("early");
    members.run(0);
    wait_until("etcd answers", || store.read("/").is_ok());
    for number in 0..5 {
        done(&store, Vec::new(), vec![put("/t/a", &format!("later {number}"))]);
    }
    let late = store.read("/t/").expect("it answers").revision;
    members.kill(0);
    members.put_back("early");
    members.run(0);
    wait_until("etcd answers", || store.read("/").is_ok());
    let mut watch = store.watch("/t/", late).expect("it answers");
    wait_until("it is told", || matches!(watch.next(Duration::from_millis(100)), Ok(Seen::Compacted)));
    assert_eq!(super::held(&store.read("/t/").expect("it answers")), [("/t/a", "1", early)]);
}
