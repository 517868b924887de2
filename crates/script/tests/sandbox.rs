//! Scripts that mean harm, or go wrong: the interpreter lives on and answers with an error, and no script finds
//! what another one left.

use script::{Compiled, Engine, Header, Host, Pulse, Ran, Refusal, sha};
use wire::{Protocol, Reply, Request, RequestBuf};

/// Answers every command with `+PONG`.
struct Echo;

impl Host for Echo {
    fn call(&mut self, _: Request<'_>, _: Protocol, out: &mut Vec<u8>) -> Result<(), Refusal> {
        out.extend_from_slice(b"+PONG\r\n");
        Ok(())
    }

    fn may_run(&mut self, _: Request<'_>) -> Option<bool> {
        None
    }

    fn log(&mut self, _: u8, _: &[u8]) {}

    fn pulse(&mut self) -> Pulse {
        Pulse::GoOn
    }
}

fn run(engine: &mut Engine, text: &str) -> String {
    Header::of_script(text.as_bytes()).expect("the tests have sound headers");
    let script = match engine.compile(text.as_bytes()) {
        Ok(script) => script,
        Err(line) => return format!("-{}\r\n", String::from_utf8_lossy(&line)),
    };
    let out = run_compiled(engine, script, text);
    engine.forget(script);
    out
}

fn run_compiled(engine: &mut Engine, script: Compiled, text: &str) -> String {
    let mut out = Vec::new();
    let words = RequestBuf::from_args(["eval", "", "0"]);
    let mut reply = Reply::new(&mut out, Protocol::Resp2);
    let name = sha(text.as_bytes());
    let ran = engine.run_script(script, &name, (words.as_request(), 3, 0), &mut Echo, &mut reply);
    assert_ne!(ran, Ran::Restart);
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn bombs_end_with_an_error_and_leave_the_interpreter_usable() {
    // With the stack that workers have.
    let thread = std::thread::Builder::new().stack_size(32 << 20).spawn(bombs_end_with_an_error);
    thread.unwrap().join().unwrap();
}

fn bombs_end_with_an_error() {
    let mut engine = Engine::new("7.2.4");
    for text in [
        "return string.rep('x', 1e10)",
        "local s = 'x' while true do s = s .. s end",
        "local function f() return f() + 1 end return f()",
        "local t = {} t[1] = t return cjson.encode(t)",
        "cjson.decode_max_depth(1e9) return cjson.decode(string.rep('[', 1e6))",
        "return cmsgpack.unpack(string.rep('\\161a', 1e5))",
        "return cmsgpack.unpack(string.rep('\\145', 1e5))",
        "return unpack({}, 1, 1e7)",
        "error({})",
        "local function r() return coroutine.wrap(r)() end return r()",
        "coroutine.yield(1)",
    ] {
        let reply = run(&mut engine, text);
        assert!(reply.starts_with('-'), "{text}: {}", &reply[..reply.len().min(100)]);
        assert_eq!(run(&mut engine, "return redis.call('ping')"), "+PONG\r\n", "after {text}");
    }
}

#[test]
fn no_script_changes_what_another_finds() {
    let mut engine = Engine::new("7.2.4");
    for text in [
        "x = 1",
        "string.upper = nil",
        "rawset(string, 'upper', 1)",
        "setmetatable(_G, {})",
        "getmetatable('').__index = nil",
        "redis.call = 1",
        "KEYS = 1",
        "for _, t in pairs(_G) do if type(t) == 'table' then t.x = 1 end end",
    ] {
        assert!(run(&mut engine, text).contains("Attempt to modify a readonly table"), "{text}");
    }
    let refused = run(&mut engine, "table.insert(string, 'left behind')");
    assert!(refused.starts_with("-ERR Attempt to modify a readonly table script: "), "{refused}");
    assert_eq!(run(&mut engine, "return #string"), ":0\r\n");
    run(&mut engine, "cjson.encode_number_precision(3)");
    assert_eq!(run(&mut engine, "return cjson.encode_number_precision()"), ":14\r\n");
}

#[test]
fn code_that_was_compiled_before_is_not_loaded() {
    let mut engine = Engine::new("7.2.4");
    let text = "return tostring(loadstring(string.dump(function() return 1 end)))";
    assert_eq!(run(&mut engine, text), "$3\r\nnil\r\n");
    assert_eq!(run(&mut engine, "return loadstring('return 7')()"), ":7\r\n");
}

#[test]
fn many_scripts_are_kept_and_forgotten_ones_make_room() {
    let mut engine = Engine::new("7.2.4");
    let compiled: Vec<_> =
        (0..12_000).map(|number| engine.compile(format!("return {number}").as_bytes()).unwrap()).collect();
    for (number, script) in compiled.iter().enumerate() {
        assert_eq!(run_compiled(&mut engine, *script, "x"), format!(":{number}\r\n"));
    }
    engine.forget(compiled[7]);
    assert_eq!(engine.compile(b"return 1").unwrap(), compiled[7]);
}

#[test]
fn any_number_of_words_goes_to_a_command() {
    let mut engine = Engine::new("7.2.4");
    let listed = "local t = {} for i = 1, N do t[i] = 'a' .. i end return redis.call(unpack(t))";
    let grown = "local function f(n, ...) if n == 0 then return redis.pcall(...) end return f(n - 1, 'a', ...) end return f(N)";
    for count in [3999, 4000, 4001, 7000, 7990, 7999] {
        assert_eq!(run(&mut engine, &listed.replace('N', &count.to_string())), "+PONG\r\n", "{count}");
    }
    for count in [3999, 4001, 7999, 8000, 8100, 20_000] {
        assert_eq!(run(&mut engine, &grown.replace('N', &count.to_string())), "+PONG\r\n", "{count}");
    }
    let too_many = run(&mut engine, &listed.replace('N', "8000"));
    assert!(too_many.starts_with("-ERR user_script:1: too many results to unpack script: "), "{too_many}");
    let words = "local t = {} for i = 1, 7000 do t[i] = i end t[6000] = {} return redis.call(unpack(t))";
    let refused = run(&mut engine, words);
    assert!(
        refused.starts_with("-ERR Lua redis lib command arguments must be strings or integers"),
        "{refused}"
    );
    assert!(refused.ends_with(", on @user_script:1.\r\n"), "{refused}");
}

#[test]
fn too_many_values_for_a_function_are_an_error_or_passed_over() {
    let mut engine = Engine::new("7.2.4");
    let values = "local t = {} for i = 1, 7999 do t[i] = '1' end ";
    for (call, error) in [
        ("cjson.encode", "-ERR user_script:1: bad argument #1 to 'encode' (expected 1 argument)"),
        (
            "cmsgpack.pack",
            "-ERR user_script:1: bad argument #0 to 'pack' (Too many arguments for MessagePack pack.)",
        ),
        ("struct.pack", "-ERR user_script:1: too many arguments"),
        ("bit.bor", "-ERR user_script:1: too many arguments"),
        ("redis.acl_check_cmd", "-ERR user_script:1: too many arguments"),
        ("math.random", "-ERR user_script:1: wrong number of arguments"),
        ("redis.sha1hex", "-ERR wrong number of arguments"),
    ] {
        let reply = run(&mut engine, &format!("{values} return {call}(unpack(t))"));
        assert!(reply.starts_with(error), "{call}: {reply}");
        assert!(reply.ends_with(", on @user_script:1.\r\n"), "{call}: {reply}");
    }
    assert_eq!(run(&mut engine, &format!("{values} return bit.tobit(unpack(t))")), ":1\r\n");
}

#[test]
fn values_without_an_end_are_an_error() {
    // They are gone through by recursion, for which workers have as large a stack.
    const STACK_BYTES: usize = 32 << 20;
    let walk = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(refuse_values_without_an_end);
    walk.expect("a thread can be made").join().expect("the values were refused");
}

fn refuse_values_without_an_end() {
    let mut engine = Engine::new("7.2.4");
    let itself = "local t = {} t[1] = t t[2] = t return t";
    assert_eq!(run(&mut engine, itself), "-ERR reached lua stack limit\r\n");
    let twice = "local t = {('x'):rep(1e6)} for i = 1, 14 do t = {t, t, t} end ";
    for end in ["t", "cjson.encode(t)", "cmsgpack.pack(t)"] {
        let reply = run(&mut engine, &format!("{twice} return {end}"));
        let shown: String = reply.chars().take(100).collect();
        assert!(reply.starts_with('-'), "{end}: {shown}");
    }
}
