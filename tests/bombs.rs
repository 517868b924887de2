//! Scripts that mean harm, over the wire: bombs of every kind, loops without an end, bytes that look like compiled code.
//! Each gets its reply, by SCRIPT KILL if it does not end by itself; the server stays up and within its memory, and
//! the next script finds everything as before.
//!
//! `TARN_SEED`, and `TARN_STEPS` or `TARN_SECONDS`, make a run another one or a longer one. What the interpreter itself stands
//! is tested closer to it, in `crates/script/tests`.

use crate::tarn;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use sys::Prng;
use testkit::{Budget, Client, Server};
use wire::Value;

/// Bombs of an ordinary test run.
const STEPS: u64 = 40;
/// How long a reply may take, with the kills on the way: a single call of the library cannot be ended.
const PATIENCE: Duration = Duration::from_secs(180);
/// Waits between two tries to end a script.
const KILL_AFTER: Duration = Duration::from_millis(100);
/// What the server may hold at most: what its one interpreter may, a reply made of that, and what both are made from.
const RESIDENT_BYTES_MAX: u64 = 1_600 << 20;

/// What scripts do: `$n` is a size, `$s` a text, `$b` bytes that look like compiled code, `$f` a function.
const BOMBS: &[&str] = &[
    // Without an end.
    "while true do end",
    "local function f() return f() end return f()",
    "for i = 1, math.huge do local t = {i, $s} end",
    "repeat pcall(error, 'x') until false",
    "while true do pcall(function() while true do end end) end",
    "local co = coroutine.wrap(function() while true do coroutine.yield() end end) while true do co() end",
    "coroutine.wrap(function() pcall(function() while true do end end) while true do end end)()",
    "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) return t[1]",
    "while true do redis.call('get', 'nosuch') end",
    "while true do redis.pcall('nosuch') end",
    "xpcall(function() while true do end end, function() while true do end end)",
    "while true do string.rep('x', 100) end",
    "while true do collectgarbage() end",
    // Deep.
    "local function f() return 1 + f() end return f()",
    "local function f() return pcall(f) end return f()",
    "local function f() return xpcall(f, f) end return f()",
    "local function f() return coroutine.wrap(f)() end return f()",
    "local function f() return pcall(coroutine.wrap(f)) end return f()",
    "local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x",
    "local t = setmetatable({}, {__tostring = tostring}) return tostring(t)",
    "local t t = setmetatable({}, {__tostring = function() return tostring(t) end}) return tostring(t)",
    "local t t = setmetatable({}, {__eq = function(a, b) return a == b end}) return t == setmetatable({}, getmetatable(t))",
    "local t t = setmetatable({}, {__concat = function(a, b) return a .. b end}) return t .. t",
    "local t = {} for i = 1, $n do t = {t} end return t",
    "local t = {} for i = 1, $n do t = {t} end return cjson.encode(t)",
    "local t = {} for i = 1, $n do t = {t} end return cmsgpack.pack(t)",
    "return cjson.decode(string.rep('[', $n) .. string.rep(']', $n))",
    "cjson.decode_max_depth(2^30) return cjson.decode(string.rep('{\"a\":', $n))",
    "return cmsgpack.unpack(string.rep('\\145', $n))",
    "return cmsgpack.unpack(string.rep('\\129\\1', $n))",
    "return loadstring(string.rep('(', $n))",
    "return loadstring(string.rep('do ', $n) .. string.rep(' end', $n))",
    "return loadstring('return ' .. string.rep('{', $n) .. string.rep('}', $n))",
    "return loadstring('return ' .. string.rep('-', $n) .. '1')",
    "return string.find(string.rep('(', $n), string.rep('(', $n))",
    // Large.
    "return string.rep('x', $n * 1000)",
    "return string.rep(string.rep('x', $n), $n)",
    "local s = 'x' while true do s = s .. s end",
    "local s = 'x' while true do s = string.format('%s%s', s, s) end",
    "local t = {} for i = 1, 2^40 do t[i] = i end",
    "local t = {} for i = 1, 2^40 do t['k' .. i] = {} end",
    "local t = {} while true do t = {t, t, string.rep('x', 1000)} end",
    "local t = {} for i = 1, 2^40 do t[i] = function() return t, i end end",
    "local t = {} for i = 1, 2^40 do t[i] = coroutine.create(function() end) end",
    "local t = {} t[2^30] = 1 t[2^31] = 2 return #t",
    "return string.rep('x', 2^40)",
    "return string.rep('x', -1), string.rep('', 2^40)",
    "return unpack({}, 1, $n * 1000)",
    "return unpack({}, -2^31, 2^31)",
    "return select('#', unpack({}, 1, 7999))",
    "return {unpack({1, 2, 3}, 1, $n)}",
    "return table.concat({}, $s, 1, 2^31)",
    "local t = {} for i = 1, 2000 do t[i] = string.rep('x', 1000) end return table.concat(t, string.rep('y', $n))",
    "return string.gsub(string.rep('x', $n), '.', string.rep('y', $n))",
    "return string.gsub(string.rep('x', 2000), '', function() return string.rep('z', $n) end)",
    "return string.format('%99.99f%99d', 1e300, 1)",
    "return string.format('%1000000d', 1)",
    "return string.format(string.rep('%99d', $n), unpack({}, 1, 100))",
    "return struct.pack('c' .. $n * 1000, 'x')",
    "return struct.pack('i' .. $n, 1)",
    "return struct.pack(string.rep('d', $n), 1)",
    "return struct.pack('!' .. $n .. 'd', 1)",
    "return struct.unpack('c' .. 2^31, 'x')",
    "return struct.unpack('c0', $s)",
    "return struct.unpack(string.rep('b', 5000), string.rep('x', 5000))",
    "return cmsgpack.unpack('\\221\\255\\255\\255\\255')",
    "return cmsgpack.unpack('\\223\\255\\255\\255\\255')",
    "return cmsgpack.unpack('\\219\\255\\255\\255\\255x')",
    "return cjson.encode({[2^31] = 1})",
    "cjson.encode_sparse_array(true, 0, 0) return cjson.encode({[2^53] = 1})",
    "cjson.encode_sparse_array(false, 0, 0) return cjson.encode({[$n] = 1})",
    "local t = {} t[1], t[2] = t, t return cjson.encode(t)",
    "local t = {} t[1], t[2] = t, t return t",
    "local t = {map = {}} t.map.x, t.map.y = t, t return t",
    "local t = {'x'} for i = 1, 14 do t = {t, t} end return t",
    "local t = {'x'} for i = 1, 14 do t = {t, t} end return cjson.encode(t)",
    "local t = {'x'} for i = 1, 14 do t = {t, t} end return cmsgpack.pack(t)",
    "local t = {} for i = 1, 7999 do t[i] = 'x' end return redis.call(unpack(t))",
    "return redis.call('set', 'k', string.rep('x', $n * 100))",
    "return redis.call('setrange', 'k', $n, 'x')",
    "for i = 1, 300 do redis.call('append', 'k', string.rep('x', 1000)) end",
    "return redis.sha1hex(string.rep('x', $n * 100))",
    "return bit.tohex($n, -2^31)",
    "redis.log(redis.LOG_DEBUG, string.rep('x', $n))",
    "return {unpack({}, -1, 2147483647)}",
    "return {unpack({}, -$n, 2^31 - 1)}",
    "return string.match(string.rep('a', $n), string.rep('a?', $n))",
    "return string.gsub(string.rep('a', $n), string.rep('(', $n), '')",
    // Patterns that try again and again within one call, and other calls that take their time.
    "return string.find(string.rep('a', 50), string.rep('a?', 50) .. 'b')",
    "return string.match(string.rep('a', $n), '.-.-.-.-.-b')",
    "return string.find(string.rep('a', $n), string.rep('a', $n / 2) .. 'b', 1, true)",
    "table.insert({}, 2^31, 1)",
    "table.insert({}, -$n * 1000, 1)",
    "local s = string.rep('x', $n) while true do s:upper() end",
    "local s = string.rep('x', $n) while true do local t = s .. 'x' end",
    "return string.find(string.rep('a', 24), string.rep('a*', 6) .. 'b')",
    "return string.find(string.rep('a', 18), string.rep('a?', 18) .. 'b')",
    "return string.match(string.rep('a', 80), '.-.-.-b')",
    "return string.gsub(string.rep('a', 200), 'a*a*b', 'x')",
    "return string.find(string.rep('a', 4000), '.-b')",
    // Compiled code, or what looks like it.
    "return tostring(loadstring($b))",
    "for i = 1, 50 do local f = loadstring($b .. i) if f then f() end end",
    "return load(function() return $b end)",
    "local d = string.dump(function(x) return x + 1 end) return loadstring(d)",
    "local d = string.dump(function() end) for i = 1, #d do local f = loadstring(d:sub(1, i) .. $b) if f then f() end end",
    "local t = {$b, $b} return load(function() return table.remove(t) end)",
    // Out of the sandbox.
    "return getmetatable(_G).__index",
    "getmetatable(_G).__index = nil",
    "getmetatable(_G).__newindex = nil x = 1",
    "rawset(_G, 'x', 1)",
    "setmetatable(_G, nil) x = 1",
    "table.insert(_G, 1) table.insert(string, 1) table.sort(redis)",
    "string.rep = $f",
    "getmetatable('').__index = {rep = $f}",
    "getmetatable('').__metatable = nil",
    "for k, v in pairs(_G) do pcall(v, $s) pcall(v, _G, $s) pcall(v, v, v) end",
    "for k, v in pairs(_G) do if type(v) == 'table' then for _, f in pairs(v) do if f ~= coroutine.yield then pcall(f, $s, $n) pcall(f, v) end end end end",
    "return __redis__err__handler({})",
    "__redis__err__handler(setmetatable({}, {__index = error}))",
    "error(setmetatable({}, {__index = function() while true do end end}))",
    "error(setmetatable({}, {__index = function() error('again') end}))",
    "error(setmetatable({}, {__tostring = function() error('again') end}))",
    "error(setmetatable({err = {}}, {__index = error}))",
    "setmetatable({}, {__gc = function() while true do end end}) collectgarbage()",
    "newproxy(true)",
    "return setmetatable({1, 2, 3}, {__index = function() return {} end})",
    "return setmetatable({}, {__index = function(_, k) if k == 'err' then error('x') end return 'x' end})",
    "return pcall($f, $s, $n)",
    "return xpcall($f, $f)",
    "return coroutine.wrap($f)($s)",
    "coroutine.yield($s)",
    "coroutine.wrap(function() redis.call('get', 'k') coroutine.yield() end)()",
    "table.sort({3, 1, 2, 5, 4}, function() return true end)",
    "local t = {} for i = 1, 1000 do t[i] = i end table.sort(t, function(a, b) return redis.call('get', 'k') == a end)",
    "table.sort({1, 2, 3}, coroutine.yield)",
    "next({}, $s)",
    "local t = {1, 2, 3} for k in pairs(t) do t[k .. 'x'] = 1 t[k] = nil end",
    "collectgarbage('stop') collectgarbage('setpause', 0) collectgarbage('setstepmul', 0)",
    "math.randomseed(0 / 0) return math.random(2^53, -2^53)",
    "return math.random(0, 2^63)",
];

const FUNCTIONS: &[&str] = &[
    "redis.call",
    "redis.pcall",
    "redis.log",
    "pcall",
    "error",
    "next",
    "tostring",
    "setmetatable",
    "loadstring",
    "unpack",
    "string.rep",
    "string.gsub",
    "string.format",
    "cjson.encode",
    "cjson.decode",
    "cmsgpack.unpack",
    "struct.pack",
    "struct.unpack",
    "table.concat",
    "coroutine.wrap",
    "coroutine.yield",
];

/// The text of a bomb.
fn bomb(prng: &mut Prng) -> String {
    let template = BOMBS[prng.below(BOMBS.len() as u64) as usize];
    let mut text = String::new();
    let mut letters = template.chars();
    while let Some(letter) = letters.next() {
        match (letter == '$').then(|| letters.next()).flatten() {
            None => text.push(letter),
            Some('n') => {
                let size = [3, 99, 250, 1_000, 5_000, 20_000, 150_000][prng.below(7) as usize];
                text.push_str(&(size + prng.below(3)).to_string());
            }
            Some('s') => {
                let texts = [
                    "''",
                    "'text'",
                    "'%s%d%q'",
                    "{}",
                    "nil",
                    "-1",
                    "2^53",
                    "string.rep('x', 1e4)",
                    "print",
                    "_G",
                ];
                text.push_str(texts[prng.below(10) as usize]);
            }
            Some('f') => text.push_str(FUNCTIONS[prng.below(FUNCTIONS.len() as u64) as usize]),
            Some('b') => text.push_str(&looks_compiled(prng)),
            Some(other) => panic!("no hole is called '{other}'"),
        }
    }
    text
}

/// A string that begins as Lua's compiled code does.
fn looks_compiled(prng: &mut Prng) -> String {
    let mut bytes = b"\x1bLua\x51\x00\x01\x04\x08\x04\x08\x00".to_vec();
    bytes.truncate(1 + prng.below(12) as usize);
    bytes.extend((0..prng.below(200)).map(|_| prng.next_u64() as u8));
    let escaped: String = bytes.iter().map(|byte| format!("\\{byte:03}")).collect();
    format!("'{escaped}'")
}

/// The reply of a script that was sent, which is ended if it takes long; and whether it was.
fn awaited(server: &Server, client: &mut Client, text: &str) -> (Vec<u8>, bool) {
    let began = Instant::now();
    let mut is_killed = false;
    client.stream().set_read_timeout(Some(KILL_AFTER)).unwrap();
    loop {
        match client.read_reply() {
            Ok(reply) => return (reply, is_killed),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => panic!("{error} instead of a reply to: {text}"),
        }
        assert!(began.elapsed() < PATIENCE, "no reply to: {text}");
        let mut other = server.connect().unwrap();
        other.stream().set_read_timeout(Some(5 * KILL_AFTER)).unwrap();
        match other.call(&["SCRIPT", "KILL"]) {
            // It came before the script was noticed, and waits for it.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Ok(Value::Simple(_)) => is_killed = true,
            // It has ended meanwhile, has not been noticed yet, or has written and ends by itself.
            Ok(Value::Error(line)) if line.starts_with(b"NOTBUSY") || line.starts_with(b"UNKILLABLE") => {}
            other => panic!("SCRIPT KILL gives {other:?} for: {text}"),
        }
    }
}

#[test]
fn hostile_scripts_do_no_harm() {
    let budget = Budget::from_env(1, STEPS);
    // One thread, so that all share one interpreter.
    let directives = ["--edition", "memory", "--threads", "1", "--busy-reply-threshold", "30"];
    let mut server = Server::start(tarn(), &directives).unwrap();
    let (is_over, resident) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut bombs, mut kills, mut errors) = (0, 0, 0);
    std::thread::scope(|scope| {
        let _ends = testkit::Ends(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                resident.fetch_max(server.resident_bytes().unwrap_or(0), Ordering::Relaxed);
                // Memory has no event that could be waited for.
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut client = server.connect().unwrap();
            while budget.allows(bombs) {
                let text = bomb(&mut Prng::from_seed(budget.seed.wrapping_add(bombs)));
                client.send_request(&["EVAL", &text, "1", "k", "x"]).unwrap();
                let (reply, is_killed) = awaited(&server, &mut client, &text);
                bombs += 1;
                kills += u64::from(is_killed);
                errors += u64::from(reply.starts_with(b"-"));
                client.stream().set_read_timeout(Some(PATIENCE)).unwrap();
                let sound =
                    "return {redis.call('get', 'nosuch') == false, #string.rep('x', 3), cjson.encode({1})}";
                let reply = client.call(&["EVAL", sound, "0"]).unwrap();
                let expected = [Value::Int(1), Value::Int(3), Value::Bulk(b"[1]".to_vec())];
                assert_eq!(reply, Value::Array(expected.to_vec()), "after: {text}");
                let most = resident.load(Ordering::Relaxed);
                assert!(most < RESIDENT_BYTES_MAX, "{most} bytes are held, at: {text}");
                client.call(&["DEL", "k"]).unwrap();
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    assert!(server.ended().unwrap().is_none(), "{}", server.output());
    let (most, now) = (resident.into_inner() >> 20, server.resident_bytes().unwrap() >> 20);
    println!("{bombs} scripts, {errors} errors, {kills} killed; {most} MB held at most, {now} MB in the end");
}
