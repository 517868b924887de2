use super::*;
use config::{Config, Startup};
use wire::RequestBuf;

fn server() -> Arc<Server> {
    let Ok(Startup::Serve { config, .. }) = Config::from_text(b"loglevel warning\nrequirepass secret\n")
    else {
        panic!("the directives are known")
    };
    crate::commands::install();
    crate::assembly::new(*config, 2)
}

fn run(replay: &mut Replay<'_>, db: u32, words: &str) -> Result<DbIndex, Rejection> {
    let request = RequestBuf::from_args(words.split(' '));
    replay.apply(DbIndex(db), UnixMs(1_000_000), &request.as_request())
}

/// What a read replies with.
fn look(replay: &mut Replay<'_>, db: u32, words: &str) -> String {
    run(replay, db, words).unwrap();
    String::from_utf8_lossy(&replay.reply).into_owned()
}

#[test]
fn data_commands_run_in_the_database_given() {
    let server = server();
    let mut replay = Replay::new(&server, 0);
    for words in ["SET a 1", "RPUSH list x y", "PEXPIREAT a 2000000", "DEL list", "SWAPDB 0 1"] {
        assert_eq!(run(&mut replay, 0, words), Ok(DbIndex(0)), "{words}");
    }
    assert_eq!(look(&mut replay, 0, "GET a"), "$-1\r\n");
    assert_eq!(look(&mut replay, 1, "GET a"), "$1\r\n1\r\n");
    assert_eq!(look(&mut replay, 1, "PTTL a"), ":1000000\r\n");
    run(&mut replay, 1, "FLUSHALL").unwrap();
    assert_eq!(look(&mut replay, 1, "DBSIZE"), ":0\r\n");
}

#[test]
fn select_gives_back_another_database() {
    let server = server();
    let mut replay = Replay::new(&server, 0);
    assert_eq!(run(&mut replay, 0, "SELECT 3"), Ok(DbIndex(3)));
    assert!(matches!(run(&mut replay, 3, "SELECT 99"), Err(Rejection::Failed("select", _))));
    assert_eq!(run(&mut replay, 3, "SET a 1"), Ok(DbIndex(3)));
}

#[test]
fn scripts_and_functions_run_whatever_users_may() {
    let server = server();
    let mut replay = Replay::new(&server, 1);
    let mut run = |words: &[&str]| {
        let request = RequestBuf::from_args(words);
        replay.apply(DbIndex(2), UnixMs(1_000_000), &request.as_request())
    };
    let code =
        "#!lua name=l\nredis.register_function('put', function(k, a) redis.call('SET', k[1], a[1]) end)";
    assert_eq!(run(&["FUNCTION", "LOAD", "REPLACE", code]), Ok(DbIndex(2)));
    assert_eq!(run(&["FCALL", "put", "1", "f", "x"]), Ok(DbIndex(2)));
    let script = "redis.call('SELECT', '0'); return redis.call('SET', KEYS[1], '1')";
    assert_eq!(run(&["EVAL", script, "1", "e"]), Ok(DbIndex(2)));
    assert_eq!(run(&["PUBLISH", "channel", "x"]), Ok(DbIndex(2)));
    assert!(matches!(run(&["EVAL", "error('no')", "0"]), Err(Rejection::Failed("eval", _))));
    assert_eq!(look(&mut replay, 2, "GET f"), "$1\r\nx\r\n");
    assert_eq!(look(&mut replay, 0, "GET e"), "$1\r\n1\r\n");
}

#[test]
fn what_no_log_holds_is_rejected() {
    let server = server();
    let mut replay = Replay::new(&server, 0);
    assert_eq!(run(&mut replay, 0, "SHUTDOWN NOSAVE"), Err(Rejection::Foreign("shutdown")));
    assert_eq!(run(&mut replay, 0, "CONFIG SET dir x"), Err(Rejection::Foreign("config|set")));
    assert_eq!(run(&mut replay, 0, "MULTI"), Err(Rejection::Foreign("multi")));
    assert_eq!(run(&mut replay, 0, "GET"), Err(Rejection::Arity("get")));
    let unknown = run(&mut replay, 0, "JSON.SET a").unwrap_err();
    assert_eq!(unknown.to_string(), "unknown command 'JSON.SET'");
    run(&mut replay, 0, "SET a 1").unwrap();
    let failed = run(&mut replay, 0, "RPUSH a 1").unwrap_err();
    assert!(failed.to_string().starts_with("'rpush' was answered with 'WRONGTYPE "), "{failed}");
}
