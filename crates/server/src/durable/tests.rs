use command::effects::Scope;
use command::table::{self, Runs};
use command::{Args, execute};
use config::{Config, Startup};
use engine::Engine;
use engine::durability::apply::{Applier, OnDatabases, Refusal, placed};
use keyspace::{DbIndex, HashSeed, Stamp, Touch};
use std::sync::Arc;
use sys::{Clock, UnixMs};
use wire::{Protocol, Reply, RequestBuf};

/// An engine whose limits are as narrow as they can be.
fn engine() -> Arc<Engine> {
    let text = b"loglevel warning\nrequirepass secret\nproto-max-bulk-len 1mb\nhll-sparse-max-bytes 0\n";
    let Ok(Startup::Serve { config, .. }) = Config::from_text(text) else {
        panic!("the directives are known")
    };
    crate::commands::install();
    let engine = Engine::new(*config, 2, Clock::Real, HashSeed::from_entropy());
    engine.follow_config(usize::MAX);
    engine
}

fn apply(engine: &Engine, effect: &RequestBuf) -> Result<(), Refusal> {
    let effect = effect.as_request();
    let command = table::find_for(&effect).ok_or_else(|| Refusal::unknown(&effect))?;
    let (Some(Scope::Key(_) | Scope::OnlyKey), Runs::Data(row)) = (command.effect, command.row.handler)
    else {
        return Err(Refusal::unknown(&effect));
    };
    if command.effect.unwrap().key_position(row, &effect).is_none() {
        return Err(Refusal::NoKey(row.name));
    }
    let mut applier = Applier::new(engine, 0);
    let mut batch = applier.enter();
    applier.on_key(&mut batch, row, (DbIndex(0), UnixMs(1_000_000)), &effect)
}

/// Applies an effect on two keys, at the end of a record.
fn transfer(engine: &Engine, words: &str, end: u64) -> Result<(), Refusal> {
    let effect = effect(words);
    let effect = effect.as_request();
    let command = table::find_for(&effect).ok_or_else(|| Refusal::unknown(&effect))?;
    let (Some(Scope::Transfer), Runs::Data(row)) = (command.effect, command.row.handler) else {
        return Err(Refusal::unknown(&effect));
    };
    let placed = placed(engine, DbIndex(0), row, &effect)?;
    Applier::new(engine, 0).transfer(row, &placed, Stamp(end))
}

fn effect(words: &str) -> RequestBuf {
    RequestBuf::from_args(words.split(' '))
}

/// What a read replies with.
fn look(engine: &Engine, words: &str) -> String {
    let request = effect(words);
    let Runs::Data(row) = table::find_for(&request.as_request()).unwrap().row.handler else {
        panic!("a data command")
    };
    let args =
        Args::new(request.as_request(), &engine.keyspace, (DbIndex(0), UnixMs(1_000_000)), &engine.settings);
    let mut out = Vec::new();
    let mut reply = Reply::new(&mut out, Protocol::Resp2);
    let _ = execute(row, &mut engine.keyspace.enter(0), &args, Touch::No, &mut reply).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn limits_of_today_do_not_judge_what_was_done() {
    let engine = engine();
    for words in ["SETRANGE s 2000000 x", "SETBIT b 80000000 1"] {
        assert_eq!(apply(&engine, &effect(words)), Ok(()), "{words}");
    }
    let long = RequestBuf::from_args([&b"APPEND"[..], b"s", &[b'y'; 2 << 20]]);
    assert_eq!(apply(&engine, &long), Ok(()));
    assert_eq!(look(&engine, "STRLEN s"), format!(":{}\r\n", 2_000_001 + (2 << 20)));
    assert_eq!(look(&engine, "STRLEN b"), ":10000001\r\n");
    // It was sparse when it was logged.
    assert_eq!(apply(&engine, &effect("PFADD h a b c")), Ok(()));
    assert_eq!(look(&engine, "PFDEBUG ENCODING h"), "+sparse\r\n");
}

#[test]
fn what_is_no_effect_is_refused_and_never_run_on_all() {
    let engine = engine();
    for words in [
        "GET k",
        "KEYS *",
        "XREAD STREAMS k 0",
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
        assert!(matches!(apply(&engine, &effect(words)), Err(Refusal::Unknown(_))), "{words}");
    }
    for words in [
        "DEL a b",
        "RENAMENX a b",
        "MSET a 1 b 2",
        "XREADGROUP GROUP g c STREAMS a b > >",
        "XREADGROUP GROUP g c X a b >",
    ] {
        assert!(matches!(apply(&engine, &effect(words)), Err(Refusal::NoKey(_))), "{words}");
    }
    for words in ["RENAME a", "MOVE a", "COPY a b", "COPY a b DB 1", "COPY a b REPLACE DB 1"] {
        assert!(matches!(transfer(&engine, words, 1), Err(Refusal::NoKey(_))), "{words}");
    }
    assert_eq!(transfer(&engine, "MOVE a 99", 1), Err(Refusal::Database("99".to_owned())));
    assert_eq!(apply(&engine, &effect("SET k")), Err(Refusal::Arity("set")));
}

#[test]
fn what_goes_from_key_to_key_is_done_as_far_as_it_is_due_and_needs_its_source() {
    const END: u64 = 10;
    // Which of source and target are later than the effect; what they hold then: nothing, the old value of the target, or the source's.
    for (words, source_later, target_later, expected) in [
        ("RENAME s t", false, false, Some("- s")),
        ("RENAME s t", false, true, Some("- t")),
        ("RENAME s t", true, false, None),
        ("RENAME s t", true, true, Some("s t")),
        ("COPY s t REPLACE", false, false, Some("s s")),
        ("COPY s t REPLACE", false, true, Some("s t")),
        ("COPY s t REPLACE", true, false, None),
        ("COPY s t DB 0 REPLACE", true, true, Some("s t")),
        ("RENAME missing t", false, false, None),
        ("RENAME missing t", false, true, None),
        ("COPY missing t REPLACE", false, true, None),
        ("MOVE missing 1", false, false, None),
        ("MOVE s 1", false, false, Some("- t")),
    ] {
        let engine = engine();
        for line in ["SET s s PXAT 1000001", "SET t t"] {
            assert_eq!(apply(&engine, &effect(line)), Ok(()));
        }
        // Whatever has come to be over since.
        engine.keyspace.set_active_expiry(false);
        let batch = engine.keyspace.enter(0);
        for (name, is_later) in [("s", source_later), ("missing", source_later), ("t", target_later)] {
            let slot = engine.keyspace.key(DbIndex(0), name.as_bytes()).slot;
            batch.restore_stamp(DbIndex(0), slot, Stamp(if is_later { END } else { END - 1 }));
        }
        drop(batch);
        let applied = transfer(&engine, words, END);
        let name = words.split(' ').next().unwrap().to_lowercase();
        match expected {
            None => {
                assert!(matches!(applied, Err(Refusal::NoSource(row)) if row == name), "{words}: {applied:?}")
            }
            Some(expected) => {
                assert_eq!(applied, Ok(()), "{words}");
                let held = ["s", "t"].map(|key| match &look(&engine, &format!("GET {key}"))[..] {
                    "$-1\r\n" => "-".to_owned(),
                    reply => reply[4..5].to_owned(),
                });
                assert_eq!(held.join(" "), expected, "{words}, {source_later}, {target_later}");
            }
        }
    }
}

#[test]
fn only_databases_that_are_there_are_named() {
    let engine = engine();
    let of = |words: &str| OnDatabases::of(&engine, DbIndex(3), &effect(words).as_request());
    assert_eq!(of("FLUSHALL ASYNC"), Ok(OnDatabases::Flush(None)));
    assert_eq!(of("flushdb"), Ok(OnDatabases::Flush(Some(DbIndex(3)))));
    assert_eq!(of("SWAPDB 0 2"), Ok(OnDatabases::Swap(DbIndex(0), DbIndex(2))));
    assert_eq!(of("SWAPDB 0 99"), Err(Refusal::Database("99".to_owned())));
    assert!(matches!(of("SWAPDB 0"), Err(Refusal::Unknown(_))));
}

#[test]
fn libraries_take_the_place_of_all_others() {
    let engine = engine();
    let code = b"#!lua name=l\nredis.register_function('put', function(k, a) return 1 end)";
    let payload = value::rdb::dump_libraries([&code[..]].into_iter());
    let whole = RequestBuf::from_args([&b"FUNCTION"[..], b"RESTORE", &payload, b"FLUSH"]);
    let command = table::find_for(&whole.as_request()).unwrap();
    assert_eq!(command.effect, Some(Scope::Libraries));
    let applier = Applier::new(&engine, 1);
    assert_eq!(applier.libraries(command, &whole.as_request()), Ok(()));
    assert!(engine.scripts.with_libraries(|all| all.by_name.contains_key(&b"l"[..])));
    let added = RequestBuf::from_args([&b"FUNCTION"[..], b"RESTORE", &payload, b"APPEND"]);
    assert!(matches!(applier.libraries(command, &added.as_request()), Err(Refusal::Arity(_))));
    // What adds none is a record all the same, for those who wait for it.
    let none = value::rdb::dump_libraries(std::iter::empty());
    let nothing = RequestBuf::from_args([&b"FUNCTION"[..], b"RESTORE", &none]);
    assert_eq!(applier.libraries(command, &nothing.as_request()), Ok(()));
    let some = RequestBuf::from_args([&b"FUNCTION"[..], b"RESTORE", &payload]);
    assert!(matches!(applier.libraries(command, &some.as_request()), Err(Refusal::Arity(_))));
    assert!(engine.scripts.with_libraries(|all| all.by_name.contains_key(&b"l"[..])));
}
