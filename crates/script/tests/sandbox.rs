//! Scripts that mean harm, or go wrong: the interpreter lives on and answers with an error, and no script finds
//! what another one left.

mod engine;

use engine::{run, run_compiled, run_for};
use script::Engine;
use script::limits::STACK_BYTES;
use std::time::{Duration, Instant};

/// A script with a table `t` that has few elements and whose length is 2^n, where it says `SPARSE(n)`.
fn sparse(text: &str) -> String {
    let Some((_, rest)) = text.split_once("SPARSE(") else { return text.to_owned() };
    let (last, rest) = rest.split_once(')').expect("the tests write it whole");
    let keys: Vec<_> =
        (0..=last.parse().expect("a number")).map(|power: u32| format!("[2^{power}] = 1")).collect();
    format!("local t = {{{}}} {rest}", keys.join(", "))
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
        "cjson.decode_max_depth(1e9) return cjson.decode(string.rep('{\"a\":', 1e6))",
        "local t = {} for i = 1, 1e5 do t = {t} end cjson.encode_max_depth(1e9) return cjson.encode(t)",
        "local t = {} for i = 1, 1e5 do t = {a = t} end cjson.encode_max_depth(1e9) return cjson.encode(t)",
        "return cjson.decode('[' .. ('{},'):rep(8e6) .. '1]')",
        "return cmsgpack.unpack(string.rep('\\161a', 1e5))",
        "return cmsgpack.unpack(string.rep('\\145', 1e5))",
        "return unpack({}, 1, 1e7)",
        "return {unpack({}, -1, 2147483647)}",
        "return {unpack({}, -2^31, 2^31 - 1)}",
        "return {unpack({1, 2, 3}, -2147483648, 2147483646)}",
        "return {unpack({1}, 2147483640, 2147483647), unpack({1}, -2147483648, 2147483647)}",
        "return string.match(string.rep('a', 3e6), string.rep('a?', 3e6))",
        "return string.find(string.rep('a', 1e5), string.rep('a*', 1e5))",
        "return string.gsub(string.rep('a', 1e5), string.rep('a-', 1e5), '')",
        "return string.gmatch(string.rep('a', 1e5), string.rep('(a', 1e5))()",
        "table.insert({}, 2^31, 1)",
        "table.insert({}, -2^31, 1)",
        "SPARSE(29) table.remove(t, 1)",
        "SPARSE(29) table.insert(t, 1, 1)",
        "SPARSE(29) table.sort(t, redis.debug)",
        "local s = string.rep('x', 1e8) return struct.pack(string.rep('s', 3000), unpack((function() local t = {} for i = 1, 3000 do t[i] = s end return t end)()))",
        "local s = string.rep('x', 1e8) local t = {} for i = 1, 3000 do t[i] = s end return redis.call('set', unpack(t))",
        "local s = string.rep('x', 1e8) local t = {} for i = 1, 3000 do t[i] = s end return redis.acl_check_cmd('set', unpack(t))",
        "return assert(load(function() return string.rep('x', 1e7) end))",
        "error({})",
        "local function r() return coroutine.wrap(r)() end return r()",
        "coroutine.yield(1)",
    ] {
        println!("{text}");
        let reply = run(&mut engine, &sparse(text));
        assert!(reply.starts_with('-'), "{text}: {}", &reply[..reply.len().min(100)]);
        assert_eq!(run(&mut engine, "return redis.call('ping')"), "+PONG\r\n", "after {text}");
    }
}

#[test]
fn a_script_is_ended_in_the_middle_of_a_call() {
    let thread = std::thread::Builder::new().stack_size(32 << 20).spawn(end_in_the_middle);
    thread.unwrap().join().unwrap();
}

fn end_in_the_middle() {
    let mut engine = Engine::new("7.2.4");
    for text in [
        "return string.find(('a'):rep(50), ('a?'):rep(50) .. 'b')",
        "return string.match(('a'):rep(1e4), '.-.-.-.-b')",
        "return string.gsub(('a'):rep(1e5), '.-b', '')",
        "for word in string.gmatch(('a'):rep(1e5), '.-b') do end",
        "return string.find(('a'):rep(1e6), ('a'):rep(5e5) .. 'b', 1, true)",
        "return string.gsub(('a'):rep(1e6), '.', redis.debug)",
        "pcall(string.find, ('a'):rep(50), ('a?'):rep(50) .. 'b') while true do end",
        "local co = coroutine.wrap(function() return ('a'):rep(50):find(('a?'):rep(50) .. 'b') end) return co()",
        "SPARSE(24) table.insert(t, 1, 1)",
        "SPARSE(24) table.remove(t, 1)",
        "return string.match(string.rep('a', 1e5), string.rep('a+', 1e5))",
        "SPARSE(29) table.foreachi(t, redis.debug)",
        "local t = {} for i = 1, 2e5 do t[i] = i end for i = 1, 1e3 do table.sort(t, redis.debug) end",
        "local s, t = ('x'):rep(1e5), {} for i = 1, 1e3 do t[i] = s .. i end for i = 1, 1e3 do table.sort(t) end",
        "local s = ('x'):rep(1e7) for i = 1, 1e9 do s:upper() end",
        "local s = ('x'):rep(1e7) for i = 1, 1e9 do local t = s .. i end",
        "local s = ('1'):rep(1e7) for i = 1, 1e9 do local t = tonumber(s) end",
        "local s = ('x'):rep(1e7) for i = 1, 1e9 do local t = cjson.encode({s}) end",
        "local t = {} for i = 1, 1e6 do t[i] = {} end for i = 1, 1e9 do collectgarbage() end",
        "for i = 1, 1e9 do loadstring(('x = 1 '):rep(1e5)) end",
        "local t = {} for i = 1, 16 do t = {t, t, t, t} end return cmsgpack.pack(t, t, t)",
        "local s = ('x'):rep(1e7) for i = 1, 1e9 do redis.sha1hex(s) end",
        "local s = ('x'):rep(1e7) for i = 1, 1e9 do redis.status_reply(s) end",
        "local s = ('x'):rep(1e7) for i = 1, 1e9 do pcall(redis.acl_check_cmd, 'set', s) end",
        "local s = ('\\0'):rep(1e7) local t = s .. 'x' for i = 1, 1e9 do local c = s < t end",
    ] {
        println!("{text}");
        let began = Instant::now();
        let reply = run_for(&mut engine, 5, &sparse(text));
        assert!(reply.starts_with("-ERR Script killed by user with SCRIPT KILL."), "{text}: {reply}");
        assert!(began.elapsed() < Duration::from_secs(120), "{text}: {:?}", began.elapsed());
        assert_eq!(run(&mut engine, "return redis.call('ping')"), "+PONG\r\n", "after {text}");
    }
}

/// What befell the interpreter of Redis, by the numbers under which it was told, and what must come of it.
const BEFELL: &[(&str, &str, &str)] = &[
    ("CVE-2025-46817", "return {unpack({}, -1, 2147483647)}", "-ERR too many results to unpack"),
    ("CVE-2025-46817", "return {unpack({1}, -2147483648, 2147483647)}", "-ERR too many results"),
    (
        "CVE-2025-46818",
        "getmetatable('').__index = function() return 1 end",
        "-ERR Attempt to modify a readonly",
    ),
    (
        "CVE-2025-46818",
        "getmetatable('').__add = function() return 1 end",
        "-ERR Attempt to modify a readonly",
    ),
    ("CVE-2025-46818", "setmetatable(getmetatable(''), {})", "-ERR Attempt to modify a readonly"),
    ("CVE-2025-46818", "rawset(getmetatable(''), '__call', print)", "-ERR"),
    (
        "CVE-2025-46818",
        "return {tostring(getmetatable(1)), tostring(getmetatable(nil)), tostring(getmetatable(true)), tostring(getmetatable(type))}",
        "*4\r\n$3\r\nnil\r\n$3\r\nnil\r\n$3\r\nnil\r\n$3\r\nnil\r\n",
    ),
    (
        "CVE-2025-46819",
        "return loadstring('return [' .. ('='):rep(1e6) .. '[x]' .. ('='):rep(1e6) .. ']')()",
        "$1\r\nx\r\n",
    ),
    (
        "CVE-2025-46819",
        "return (loadstring('return [' .. ('='):rep(1e6) .. '[x]' .. ('='):rep(1e6)))",
        "$-1\r\n",
    ),
    ("CVE-2025-46819", "return (loadstring('return [' .. ('='):rep(1e7)))", "$-1\r\n"),
    (
        "CVE-2025-49844",
        "local n = 0 for i = 1, 200 do local f = loadstring(('local a' .. i .. ' = \"' .. ('x'):rep(i * 50) .. i .. '\" '):rep(150), ('n'):rep(i) .. i) \
         collectgarbage('step', 1) if f then f() n = n + 1 end end return n",
        ":200\r\n",
    ),
    ("CVE-2024-31449", "return bit.tohex(65535, -2147483648)", "$8\r\n0000FFFF\r\n"),
    ("CVE-2024-31449", "return bit.tohex(65535, 2^31) .. bit.tohex(1, -2^53)", "$8\r\n"),
    ("CVE-2024-46981", "return newproxy == nil and 1", "-ERR Script attempted to access nonexistent"),
    ("CVE-2022-24834", "return #cjson.encode({('\\0'):rep(1e6)})", ":6000004\r\n"),
    ("CVE-2022-24735", "redis.call = function() end", "-ERR Attempt to modify a readonly"),
    (
        "CVE-2022-24735",
        "setmetatable(_G, {__index = function() return 1 end})",
        "-ERR Attempt to modify a readonly",
    ),
    ("CVE-2022-24736", "error(nil)", "-ERR"),
    ("CVE-2022-24736", "return error()", "-ERR"),
    (
        "CVE-2021-32626",
        "return cmsgpack.pack(unpack((function() local t = {} for i = 1, 7000 do t[i] = i end return t end)()))",
        "-ERR",
    ),
    ("CVE-2020-14147", "return struct.pack('i2147483648', 1)", "-ERR integral size overflow"),
    (
        "CVE-2020-14147",
        "return struct.unpack('c2147483647', 'x')",
        "-ERR bad argument #2 to 'unpack' (data string too short)",
    ),
    ("CVE-2018-11219", "return struct.unpack('c0', 'x')", "-ERR format 'c0' needs a previous size"),
    ("CVE-2018-11218", "return cmsgpack.unpack('\\221\\255\\255\\255\\255')", "-ERR Missing bytes in input."),
    ("CVE-2014-5461", "local function f(a, b, c, ...) return ... end return f()", "$-1\r\n"),
    (
        "CVE-2014-5461",
        "return select('#', (loadstring('return (function(' .. ('a, '):rep(190) .. '...) return ... end)()'))())",
        ":0\r\n",
    ),
    ("CVE-2015-4335", "return loadstring(string.dump(function() return 1 end)) == nil and 1", ":1\r\n"),
];

#[test]
fn what_befell_others_is_an_error_or_an_answer() {
    let mut engine = Engine::new("7.2.4");
    for (number, text, begin) in BEFELL {
        let reply = run(&mut engine, text);
        let said = reply.replacen("user_script:1: ", "", 1);
        assert!(said.starts_with(begin), "{number}, {text}: {}", &reply[..reply.len().min(200)]);
    }
    assert_eq!(run(&mut engine, "return ('x'):upper()"), "$1\r\nX\r\n");
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

/// Each expression, and what it gives or the error.
const JSON: &[(&str, &str)] = &[
    (r#"cjson.encode(cjson.decode('{"a":1,"b":[1,2,3]}'))"#, r#"{"a":1,"b":[1,2,3]}"#),
    (
        r#"cjson.encode(cjson.decode('[1,2,{},[],"x",null,true,false]'))"#,
        r#"[1,2,{},{},"x",null,true,false]"#,
    ),
    (r#"cjson.decode([["\u0041\ud83d\ude00\n\/"]])"#, "A\u{1f600}\n/"),
    (r"cjson.decode('[1]\0 anything')[1]", "1"),
    ("cjson.decode('[0x1.8p3]')[1]", "12"),
    ("cjson.decode('[0x.8]')[1]", "0.5"),
    ("cjson.decode('-nan(12)')", "-nan"),
    ("cjson.decode('1e400')", "inf"),
    (
        "cjson.encode({2^-21, 0.1, -0.00001, 123456789012345, 1e14, 99999999999999, -0.0})",
        "[4.7683715820312e-07,0.1,-1e-05,1.2345678901234e+14,1e+14,99999999999999,-0]",
    ),
    ("cjson.encode({[1] = 1, [2] = 2, [4] = 4})", "[1,2,null,4]"),
    ("cjson.encode({[2^40] = 1})", r#"{"1099511627776":1}"#),
    ("cjson.encode({[1.5] = cjson.null})", r#"{"1.5":null}"#),
    (r#"cjson.encode('\0\31\127"/\\')"#, r#""\u0000\u001f\u007f\"\/\\""#),
    ("cjson.encode({[1] = 1, [100] = 1})", "Cannot serialise table: excessively sparse array"),
    (
        "cjson.encode({1, nil, {[true] = 1}})",
        "Cannot serialise boolean: table key must be a number or string",
    ),
    ("cjson.encode(0/0)", "Cannot serialise number: must not be NaN or Inf"),
    ("cjson.encode(redis.call)", "Cannot serialise function: type not supported"),
    ("cjson.encode(1, 2)", "bad argument #1 to 'encode' (expected 1 argument)"),
    ("cjson.decode(true)", "bad argument #1 to 'decode' (string expected, got boolean)"),
    (r#"cjson.decode('\0"')"#, "JSON parser does not support UTF-16 or UTF-32"),
    ("cjson.decode('x')", "Expected value but found invalid token at character 1"),
    (r#"cjson.decode('"a\0"')"#, "Expected value but found unexpected end of string at character 3"),
    ("cjson.decode('[1,]')", "Expected value but found T_ARR_END at character 4"),
    (r#"cjson.decode('{"a":1,}')"#, "Expected object key string but found T_OBJ_END at character 8"),
    (r#"cjson.decode('{"a" 1}')"#, "Expected colon but found T_NUMBER at character 6"),
    ("cjson.decode('[1 2]')", "Expected comma or array end but found T_NUMBER at character 4"),
    ("cjson.decode('1 2')", "Expected the end but found T_NUMBER at character 3"),
    (r#"cjson.decode([["\ud800"]])"#, "Expected value but found invalid unicode escape code at character 2"),
    ("cjson.decode(('['):rep(1001))", "Found too many nested data structures (1001) at character 1001"),
];

#[test]
fn json_is_read_and_written_as_redis_does() {
    let mut engine = Engine::new("7.2.4");
    for (expression, expected) in JSON {
        let reply = run(&mut engine, &format!("return tostring({expression})"));
        let value = format!("${}\r\n{expected}\r\n", expected.len());
        let error = format!("-ERR user_script:1: {expected} script: ");
        assert!(reply == value || reply.starts_with(&error), "{expression}: {reply}");
    }
}

#[test]
fn tables_of_json_end_and_are_ordered_like_those_that_grew() {
    let mut engine = Engine::new("7.2.4");
    let text = r#"
        local function seen(t)
          local found = {#t}
          for key, value in pairs(t) do found[#found + 1] = tostring(key) .. '=' .. tostring(value) end
          return table.concat(found, ' ')
        end
        for count = 0, 40 do
          local grown, list, object, words, pairs = {}, {}, {}, {}, {}
          for i = 1, count do
            grown[i], words[i], pairs[i] = i, i, string.format('"k%d":%d', i * 7, i)
            object['k' .. i * 7] = i
          end
          list = cjson.decode('[' .. table.concat(words, ',') .. ']')
          local decoded = cjson.decode('{' .. table.concat(pairs, ',') .. '}')
          if seen(list) ~= seen(grown) or seen(decoded) ~= seen(object) then return count end
          for hole = count, 1, -2 do
            grown[hole], list[hole], object['k' .. hole * 7], decoded['k' .. hole * 7] = nil, nil, nil, nil
            if seen(list) ~= seen(grown) or seen(decoded) ~= seen(object) then return {count, hole} end
          end
        end
        return 'the same'"#;
    assert_eq!(run(&mut engine, text), "$8\r\nthe same\r\n");
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
        assert_eq!(run_compiled(&mut engine, u64::MAX, *script, "x"), format!(":{number}\r\n"));
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
    // They are gone through by recursion.
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

#[test]
fn a_library_has_the_time_that_it_is_given() {
    let code = b"#!lua name=long\nfor i = 1, 1000000 do end redis.register_function('f', function() end)";
    let mut engine = Engine::new("7.2.4");
    let few_instructions = format!(
        "#!lua name=few\nlocal a = '{}' local b = a .. 'x' local c = a < b redis.register_function('f', function() end)",
        "\\0".repeat(2 << 20)
    );
    for code in [&code[..], few_instructions.as_bytes()] {
        let late = engine.load_library(1, code, Duration::from_millis(1)).unwrap_err();
        assert!(late.ends_with(b"ERR FUNCTION LOAD timeout"), "{}", late.escape_ascii());
        assert!(!engine.has_library(1));
    }
    for code in [&code[..], few_instructions.as_bytes()] {
        assert_eq!(engine.load_library(1, code, Duration::from_secs(600)).unwrap().len(), 1);
    }
}
