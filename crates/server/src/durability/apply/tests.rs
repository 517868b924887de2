use super::*;
use crate::config::{Config, Startup};
use crate::dispatch::table::{self, Runs};
use command::effects::Scope;
use std::sync::Arc;
use wire::RequestBuf;

/// A server whose limits are as narrow as they can be.
fn server() -> Arc<Server> {
    let text = b"loglevel warning\nrequirepass secret\nproto-max-bulk-len 1mb\nhll-sparse-max-bytes 0\n";
    let Ok(Startup::Serve { config, .. }) = Config::from_text(text) else {
        panic!("the directives are known")
    };
    Server::new(*config, 2)
}

fn apply(server: &Server, effect: &RequestBuf) -> Result<(), Refusal> {
    let effect = effect.as_request();
    let command = table::find_for(&effect).ok_or_else(|| Refusal::unknown(&effect))?;
    let (Some(Scope::Key(_) | Scope::OnlyKey), Runs::Data(row)) = (command.effect, command.row.handler)
    else {
        return Err(Refusal::unknown(&effect));
    };
    if command.effect.unwrap().key_position(row, &effect).is_none() {
        return Err(Refusal::NoKey(row.name));
    }
    let mut applier = Applier::new(server, 0);
    let mut batch = applier.enter();
    applier.on_key(&mut batch, row, (DbIndex(0), UnixMs(1_000_000)), &effect)
}

fn effect(words: &str) -> RequestBuf {
    RequestBuf::from_args(words.split(' '))
}

/// What a read replies with.
fn look(server: &Server, words: &str) -> String {
    let request = effect(words);
    let Runs::Data(row) = table::find_for(&request.as_request()).unwrap().row.handler else {
        panic!("a data command")
    };
    let args =
        Args::new(request.as_request(), &server.keyspace, (DbIndex(0), UnixMs(1_000_000)), &server.settings);
    let mut out = Vec::new();
    let mut reply = Reply::new(&mut out, Protocol::Resp2);
    let _ = execute(row, &mut server.keyspace.enter(0), &args, Touch::No, &mut reply).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn limits_of_today_do_not_judge_what_was_done() {
    let server = server();
    for words in ["SETRANGE s 2000000 x", "SETBIT b 80000000 1"] {
        assert_eq!(apply(&server, &effect(words)), Ok(()), "{words}");
    }
    let long = RequestBuf::from_args([&b"APPEND"[..], b"s", &[b'y'; 2 << 20]]);
    assert_eq!(apply(&server, &long), Ok(()));
    assert_eq!(look(&server, "STRLEN s"), format!(":{}\r\n", 2_000_001 + (2 << 20)));
    assert_eq!(look(&server, "STRLEN b"), ":10000001\r\n");
    // It was sparse when it was logged.
    assert_eq!(apply(&server, &effect("PFADD h a b c")), Ok(()));
    assert_eq!(look(&server, "PFDEBUG ENCODING h"), "+sparse\r\n");
}

#[test]
fn what_is_no_effect_is_refused_and_never_run_on_all() {
    let server = server();
    for words in [
        "GET k",
        "KEYS *",
        "XREAD STREAMS k 0",
        "MOVE a 1",
        "COPY a b",
        "SORT a STORE b",
        "ZUNIONSTORE a 1 b",
        "LMPOP 1 a LEFT",
        "EVAL x 0",
        "PUBLISH a b",
        "MULTI",
        "CONFIG SET dir x",
        "SHUTDOWN NOSAVE",
        "JSON.SET a",
    ] {
        assert!(matches!(apply(&server, &effect(words)), Err(Refusal::Unknown(_))), "{words}");
    }
    for words in [
        "DEL a b",
        "RENAME a b",
        "MSET a 1 b 2",
        "XREADGROUP GROUP g c STREAMS a b > >",
        "XREADGROUP GROUP g c X a b >",
    ] {
        assert!(matches!(apply(&server, &effect(words)), Err(Refusal::NoKey(_))), "{words}");
    }
    assert_eq!(apply(&server, &effect("SET k")), Err(Refusal::Arity("set")));
}

#[test]
fn only_databases_that_are_there_are_named() {
    let server = server();
    let of = |words: &str| OnDatabases::of(&server, DbIndex(3), &effect(words).as_request());
    assert_eq!(of("FLUSHALL ASYNC"), Ok(OnDatabases::Flush(None)));
    assert_eq!(of("flushdb"), Ok(OnDatabases::Flush(Some(DbIndex(3)))));
    assert_eq!(of("SWAPDB 0 2"), Ok(OnDatabases::Swap(DbIndex(0), DbIndex(2))));
    assert_eq!(of("SWAPDB 0 99"), Err(Refusal::Database("99".to_owned())));
    assert!(matches!(of("SWAPDB 0"), Err(Refusal::Unknown(_))));
}

#[test]
fn libraries_take_the_place_of_all_others() {
    let server = server();
    let code = b"#!lua name=l\nredis.register_function('put', function(k, a) return 1 end)";
    let payload = value::rdb::dump_libraries([&code[..]].into_iter());
    let whole = RequestBuf::from_args([&b"FUNCTION"[..], b"RESTORE", &payload, b"FLUSH"]);
    let command = table::find_for(&whole.as_request()).unwrap();
    assert_eq!(command.effect, Some(Scope::Libraries));
    let applier = Applier::new(&server, 1);
    assert_eq!(applier.libraries(command, &whole.as_request()), Ok(()));
    assert!(server.scripts.with_libraries(|all| all.by_name.contains_key(&b"l"[..])));
    let added = RequestBuf::from_args([&b"FUNCTION"[..], b"RESTORE", &payload, b"APPEND"]);
    assert!(matches!(applier.libraries(command, &added.as_request()), Err(Refusal::Arity(_))));
}
