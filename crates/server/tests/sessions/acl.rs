//! Users over sockets: what a change does to sessions that are open, files, and the log.

use crate::harness::TestServer;
use wire::Value;

const NO_KEY: &str = "NOPERM No permissions to access a key";

/// A file below the system's folder for such, gone at the end.
struct File(std::path::PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let path = std::env::temp_dir().join(format!("tarn-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        File(path)
    }

    fn read(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn changed_rules_hold_for_sessions_that_are_open() {
    let server = TestServer::start("");
    let (mut admin, mut peer) = (server.connect(), server.connect());
    admin.ask("ACL SETUSER u on nopass +@all ~a &*");
    assert_eq!(peer.ask("AUTH u x"), "OK");
    assert_eq!(peer.ask("SET b 1"), NO_KEY);
    admin.ask("ACL SETUSER u ~*");
    assert_eq!(peer.ask("SET b 1"), "OK");
    assert_eq!(peer.ask("FLUSHALL"), "OK");
    admin.ask("ACL SETUSER u -flushall");
    assert_eq!(peer.ask("FLUSHALL"), "NOPERM User u has no permissions to run the 'flushall' command");
    admin.ask("ACL SETUSER u off");
    assert_eq!(peer.ask("PING"), "PONG", "who is in stays in");
    assert!(peer.ask("AUTH u x").starts_with("WRONGPASS"));
    assert_eq!(peer.ask("ACL WHOAMI"), "u");
}

#[test]
fn own_rules_change_within_a_pipeline() {
    let server = TestServer::start("");
    let mut peer = server.connect();
    peer.send(&[
        "SET a 1",
        "ACL SETUSER default -set",
        "SET a 2",
        "GET a",
        "ACL SETUSER default +set",
        "SET a 3",
    ]);
    let refused = "NOPERM User default has no permissions to run the 'set' command";
    assert_eq!(peer.texts(6), ["OK", "OK", refused, "1", "OK", "OK"]);
}

#[test]
fn transactions_are_checked_when_they_run() {
    let server = TestServer::start("");
    let (mut admin, mut peer) = (server.connect(), server.connect());
    admin.ask("ACL SETUSER u on nopass +@all ~a");
    peer.send(&["AUTH u x", "MULTI", "SET b 1", "EXEC", "MULTI", "SET a 1", "INCR a", "SORT a GET x*"]);
    let aborted = "EXECABORT Transaction discarded because of previous errors.";
    assert_eq!(peer.texts(8), ["OK", "OK", NO_KEY, aborted, "OK", "QUEUED", "QUEUED", "QUEUED"]);
    admin.ask("ACL SETUSER u -incr");
    peer.send(&["EXEC"]);
    let Some(Value::Array(replies)) = peer.reply() else { panic!("no array") };
    assert_eq!(replies[0], Value::Simple("OK".into()));
    let errors: Vec<String> = replies[1..]
        .iter()
        .map(|reply| match reply {
            Value::Error(line) => String::from_utf8_lossy(line).into_owned(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(errors[0].starts_with("NOPERM ACLs rules changed"), "{errors:?}");
    assert!(errors[1].starts_with("ERR GET option of SORT denied"), "{errors:?}");
    let entries = server.server.acl.log.newest(9);
    let seen: Vec<_> = entries.iter().map(|entry| (entry.object.as_slice(), entry.setting.word())).collect();
    assert_eq!(seen, [(&b"incr"[..], "multi"), (b"b", "multi")]);
}

#[test]
fn who_waits_for_a_key_needs_the_right_to_it_when_it_comes() {
    let server = TestServer::start("");
    let (mut admin, mut peer) = (server.connect(), server.connect());
    admin.ask("ACL SETUSER u on nopass +@all ~*");
    peer.send(&["AUTH u x", "BLPOP list 0"]);
    assert_eq!(peer.text(), "OK");
    server.wait_until("it waits", || server.server.blocked.count() == 1);
    admin.ask("ACL SETUSER u resetkeys ~other");
    assert_eq!(admin.ask("RPUSH list a"), "1");
    assert_eq!(peer.text(), NO_KEY);
    assert_eq!(admin.ask("LLEN list"), "1");
}

#[test]
fn deleted_users_are_put_out() {
    let server = TestServer::start("");
    let (mut admin, mut peer, mut other) = (server.connect(), server.connect(), server.connect());
    admin.ask("ACL SETUSER u on nopass +@all");
    peer.ask("AUTH u x");
    assert_eq!(peer.field("user"), "u");
    assert_eq!(admin.ask("ACL DELUSER u"), "1");
    assert_eq!(peer.text(), "END");
    assert_eq!(other.ask("PING"), "PONG");
    admin.ask("ACL SETUSER u on nopass +@all");
    other.send(&["AUTH u x", "ACL DELUSER u", "PING"]);
    assert_eq!(other.texts(3), ["OK", "1", "END"]);
}

#[test]
fn clients_are_killed_by_user() {
    let server = TestServer::start("");
    let (mut admin, mut peer) = (server.connect(), server.connect());
    admin.ask("ACL SETUSER u on nopass +@all");
    peer.ask("AUTH u x");
    assert_eq!(admin.ask("CLIENT KILL USER u"), "1");
    assert_eq!(peer.text(), "END");
    assert_eq!(admin.ask("CLIENT KILL USER u"), "0");
}

#[test]
fn strangers_may_only_authenticate_where_the_default_user_is_off() {
    let server = TestServer::start("user default off\nuser u on >pw ~* +@all");
    let mut peer = server.connect();
    assert_eq!(peer.ask("PING"), "NOAUTH Authentication required.");
    assert_eq!(peer.ask("AUTH u pw"), "OK");
    assert_eq!(peer.ask("PING"), "PONG");
    assert_eq!(peer.ask("RESET"), "RESET");
    assert_eq!(peer.ask("PING"), "NOAUTH Authentication required.");
    peer.send(&["HELLO 3 AUTH u pw"]);
    assert!(matches!(peer.reply(), Some(Value::Map(_))));
    assert_eq!(peer.ask("ACL WHOAMI"), "u");
}

#[test]
fn requirepass_is_the_default_users_password() {
    let server = TestServer::start("requirepass secret");
    let mut peer = server.connect();
    peer.ask("AUTH secret");
    assert_eq!(peer.ask("ACL SETUSER default >other"), "OK");
    assert_eq!(peer.ask("CONFIG SET timeout 0"), "OK");
    assert_eq!(peer.ask("AUTH other"), "OK", "another directive does not set the password back");
    assert_eq!(peer.ask("CONFIG SET requirepass third"), "OK");
    assert!(peer.ask("AUTH other").starts_with("WRONGPASS"));
    assert_eq!(peer.ask("AUTH third"), "OK");
}

#[test]
fn failures_are_counted_and_logged_with_their_numbers() {
    let server = TestServer::start("acllog-max-len 2");
    let (mut admin, mut peer) = (server.connect(), server.connect());
    admin.ask("ACL SETUSER u on nopass +@all -lolwut ~a");
    peer.ask("AUTH u x");
    for _ in 0..3 {
        peer.ask("GET b");
    }
    peer.ask("LOLWUT");
    peer.ask("AUTH v x");
    admin.send(&["ACL LOG"]);
    let Some(Value::Array(entries)) = admin.reply() else { panic!("no array") };
    assert_eq!(entries.len(), 2);
    let counts = &server.server.counts;
    let denied =
        [&counts.denied_keys, &counts.denied_commands, &counts.denied_channels, &counts.auth_failures];
    assert_eq!(denied.map(|count| count.get()), [3, 1, 0, 1]);
}

#[test]
fn file_is_loaded_and_saved() {
    let file = File::new("users.acl", "user alice on >a ~x +get (+set ~y)\n");
    let server = TestServer::start(&format!("aclfile {}", file.0.display()));
    let (mut admin, mut peer) = (server.connect(), server.connect());
    peer.ask("AUTH alice a");
    admin.ask("ACL SETUSER bob on");
    assert_eq!(admin.ask("ACL SAVE"), "OK");
    let saved = file.read();
    assert!(saved.contains("\nuser bob on sanitize-payload resetchannels -@all\n"), "{saved}");
    assert!(saved.ends_with("user default on nopass sanitize-payload ~* &* +@all\n"), "{saved}");
    std::fs::write(&file.0, "user alice on >a ~x +get\nuser carol +nosuch\n").unwrap();
    assert!(admin.ask("ACL LOAD").contains(":2: Error in applying operation '+nosuch': Unknown command"));
    assert_eq!(peer.ask("SET y 1"), "OK", "nothing changed");
    std::fs::write(&file.0, "user alice on >a ~x +get\n").unwrap();
    assert_eq!(admin.ask("ACL LOAD"), "OK");
    assert_eq!(peer.ask("SET y 1"), "NOPERM User alice has no permissions to run the 'set' command");
    assert_eq!(peer.ask("GET x"), "NULL");
    std::fs::write(&file.0, "\n").unwrap();
    assert_eq!(admin.ask("ACL LOAD"), "OK");
    assert_eq!(peer.text(), "END");
}

#[test]
fn users_are_written_into_the_configuration() {
    let server = TestServer::start("user u on >pw ~a (+get ~b)");
    let lines = server.server.acl.config_lines();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1][..3], [b"u".to_vec(), b"on".to_vec(), b"sanitize-payload".to_vec()]);
}

#[test]
fn subscribers_who_lose_the_right_are_disconnected() {
    for (subscribe, narrowed, is_kept) in [
        ("SUBSCRIBE a", "resetchannels &a*", true),
        ("SUBSCRIBE a", "resetchannels &b*", false),
        ("SSUBSCRIBE a", "resetchannels", false),
        ("PSUBSCRIBE a*", "resetchannels &a*", true),
        ("PSUBSCRIBE a*", "resetchannels &a &*b", false),
        ("PSUBSCRIBE a*", "resetchannels (&a* +get)", true),
        ("SUBSCRIBE a", "-subscribe", true),
    ] {
        let server = TestServer::start("");
        let (mut admin, mut peer) = (server.connect(), server.connect());
        admin.ask("ACL SETUSER u on nopass +@all ~* &*");
        assert_eq!(peer.ask("AUTH u x"), "OK");
        peer.ask(subscribe);
        assert_eq!(admin.ask(&format!("ACL SETUSER u {narrowed}")), "OK");
        let left = admin.ask("CLIENT LIST").lines().count();
        assert_eq!(left, if is_kept { 2 } else { 1 }, "{subscribe}, then {narrowed}");
    }
    let server = TestServer::start("");
    let (mut admin, mut peer) = (server.connect(), server.connect());
    admin.ask("ACL SETUSER u on nopass +@all ~* &*");
    peer.ask("AUTH u x");
    for request in ["HELLO 3", "SSUBSCRIBE a"] {
        peer.send(&[request]);
        peer.reply();
    }
    assert_eq!(peer.ask("ACL SETUSER u resetchannels"), "OK", "one's own connection gets its reply");
    assert_eq!(peer.text(), "END");
}

#[test]
fn the_log_shows_a_client_with_the_command_that_was_refused() {
    let server = TestServer::start("");
    let (mut admin, mut peer) = (server.connect(), server.connect());
    admin.ask("ACL SETUSER u on >pw +@all -get ~*");
    assert!(peer.ask("AUTH u wrong").starts_with("WRONGPASS"));
    assert_eq!(peer.ask("AUTH u pw"), "OK");
    let newest = || server.server.acl.log.newest(1)[0].client.clone();
    assert!(newest().contains(" cmd=auth "));
    // Also in front of others that the same read brings.
    peer.send(&["GET k", "PING"]);
    peer.texts(2);
    assert!(newest().contains(" cmd=get "), "{}", newest());
    peer.send(&["MULTI", "SET k v", "EXEC"]);
    peer.texts(2);
    peer.reply();
    admin.ask("ACL LOG RESET");
    let script = "return redis.pcall('get', 'k')";
    peer.send_words(&["EVAL", script, "0"]);
    peer.reply();
    assert!(newest().contains(" cmd=eval "), "{}", newest());
    admin.ask("ACL LOG RESET");
    peer.ask("MULTI");
    peer.send_words(&["EVAL", script, "0"]);
    peer.send(&["EXEC"]);
    peer.text();
    peer.reply();
    assert!(newest().contains(" cmd=exec "), "{}", newest());
    peer.ask("MULTI");
    peer.ask("SET k v");
    assert_eq!(admin.ask("ACL SETUSER u -set"), "OK");
    peer.send(&["EXEC"]);
    peer.reply();
    assert!(newest().contains(" cmd=exec "), "{}", newest());
    // Who waited waits no more when it is served.
    assert_eq!(peer.ask("RESET"), "RESET");
    peer.ask("AUTH u pw");
    peer.send(&["BLPOP l 0"]);
    server.wait_until("it waits", || server.server.blocked.count() == 1);
    admin.ask("ACL SETUSER u -blpop");
    admin.ask("ACL LOG RESET");
    admin.ask("RPUSH l v");
    assert!(peer.text().starts_with("NOPERM"));
    assert!(newest().contains(" flags=N "), "{}", newest());
}
