//! Random programs that mean harm: whatever a script does, the interpreter answers, and works as before for the next one.
//!
//! `TARN_SEED` picks the run (printed), `TARN_STEPS` how many programs, or `TARN_SECONDS` for how long. The program that runs stands in
//! `tarn-script-fuzz.lua` in the folder for temporary files: what ends the process cannot be reported in another way.

mod prng;

use prng::Prng;
use std::time::{Duration, Instant};

use script::{Engine, Host, Pulse, Ran, Refusal, sha};
use wire::{Protocol, Reply, Request, RequestBuf};

/// What commands answer with, one after the other.
const REPLIES: &[&str] = &[
    "+PONG\r\n",
    ":7\r\n",
    "$2\r\nab\r\n",
    "$-1\r\n",
    "*-1\r\n",
    "*3\r\n:1\r\n*1\r\n$1\r\na\r\n$-1\r\n",
    "-ERR no such thing\r\n",
    "%1\r\n+a\r\n,1.5\r\n",
    "~2\r\n:1\r\n#t\r\n",
    "_\r\n",
    "=7\r\ntxt:abc\r\n",
    "(12345678901234567890\r\n",
];

/// Looks at the clock that a program has before it is ended.
const PULSES_MAX: u32 = 3;

struct Mixed {
    calls: usize,
    pulses: u32,
    began: Instant,
}

impl Host for Mixed {
    fn call(&mut self, request: Request<'_>, _: Protocol, out: &mut Vec<u8>) -> Result<(), Refusal> {
        self.calls += 1;
        if self.calls.is_multiple_of(13) {
            return Err(Refusal::Error(b"ERR refused".to_vec()));
        }
        out.extend_from_slice(REPLIES[(self.calls + request.len()) % REPLIES.len()].as_bytes());
        Ok(())
    }

    fn may_run(&mut self, request: Request<'_>) -> Option<bool> {
        (!request.len().is_multiple_of(3)).then_some(true)
    }

    fn log(&mut self, _: u8, _: &[u8]) {}

    fn note_error(&mut self, _: &[u8], _: bool) {}

    fn began(&self) -> Instant {
        self.began
    }

    fn pulse(&mut self) -> Pulse {
        self.pulses += 1;
        if self.pulses > PULSES_MAX {
            Pulse::End("Script killed by user with SCRIPT KILL.")
        } else {
            Pulse::GoOn
        }
    }
}

/// Functions that every program may call, with values that were not made for them.
const FUNCTIONS: &[&str] = &[
    "redis.call",
    "redis.pcall",
    "redis.log",
    "redis.sha1hex",
    "redis.error_reply",
    "redis.status_reply",
    "redis.setresp",
    "redis.set_repl",
    "redis.acl_check_cmd",
    "redis.replicate_commands",
    "redis.breakpoint",
    "redis.debug",
    "cjson.encode",
    "cjson.decode",
    "recoded",
    "cjson.encode_max_depth",
    "cjson.decode_max_depth",
    "cjson.encode_sparse_array",
    "cjson.encode_invalid_numbers",
    "cjson.encode_number_precision",
    "cjson.new",
    "cjson.encode_keep_buffer",
    "cjson.decode_invalid_numbers",
    "cmsgpack.pack",
    "cmsgpack.unpack",
    "cmsgpack.unpack_one",
    "cmsgpack.unpack_limit",
    "struct.pack",
    "struct.unpack",
    "struct.size",
    "bit.band",
    "bit.bxor",
    "bit.tohex",
    "bit.rol",
    "math.random",
    "math.randomseed",
    "math.floor",
    "math.max",
    "string.format",
    "string.char",
    "string.byte",
    "string.sub",
    "string.find",
    "string.match",
    "string.gsub",
    "string.gmatch",
    "string.gfind",
    "string.upper",
    "string.lower",
    "string.len",
    "string.rep",
    "string.reverse",
    "string.dump",
    "table.concat",
    "table.insert",
    "table.remove",
    "table.sort",
    "table.maxn",
    "table.foreach",
    "table.foreachi",
    "table.setn",
    "table.getn",
    "tostring",
    "tonumber",
    "type",
    "next",
    "pairs",
    "ipairs",
    "rawget",
    "rawset",
    "rawequal",
    "setmetatable",
    "getmetatable",
    "select",
    "unpack",
    "error",
    "assert",
    "pcall",
    "xpcall",
    "load",
    "loadstring",
    "collectgarbage",
    "gcinfo",
    "coroutine.create",
    "coroutine.resume",
    "coroutine.wrap",
    "coroutine.yield",
    "coroutine.status",
    "coroutine.running",
    "__redis__err__handler",
    "os.clock",
    "io.write",
    "dofile",
];

/// Values, with the edges of what functions take.
const VALUES: &[&str] = &[
    "nil",
    "true",
    "0",
    "1",
    "-1",
    "3",
    "16",
    "4000",
    "8000",
    "70000",
    "2^31",
    "2^31 - 1",
    "-2^31",
    "-2",
    "2^53",
    "-2^63",
    "1e308",
    "0/0",
    "1/0",
    "''",
    "'get'",
    "'a\\0b'",
    "'%d%s%q%99999d'",
    "'%5.1f%99.99s%c%x'",
    "'>i4s<dxA'",
    "'[1,{\"a\":null}]'",
    "'{\"a\":[1,2,{\"b\":0x1.8p3}],\"c\":{},\"a\":\"\\\\u00e9\\\\n\",\"d\":-0.5e-3}'",
    "json(4, 0)",
    "json(4, 3)",
    "json(30, 40)",
    "cjson.encode(json(3, 1))",
    "{1, nil, 3, {x={}, [5]=1e300}}",
    "{[9]=0.1, ['a/\\n']=cjson.null}",
    "string.rep('\\1/', 3e5)",
    "'\"' .. string.rep('\\\\u20ac', 1e4) .. '\"'",
    "string.rep('[1,', 300)",
    "string.rep('[', 9000)",
    "'return 1'",
    "'(a*(.)%w(%s*))'",
    "'%b()%f[%w]'",
    "string.rep('a?', 3999)",
    "string.rep('(a*)', 40)",
    "string.rep('a', 5e4)",
    "'(.-)%1[^%s-a]*$'",
    "'^[%'",
    "'%1%0%9%'",
    "sparse()",
    "'err'",
    "string.rep('[', 2000)",
    "string.rep('{\"a\":', 1500)",
    "string.rep('\\145', 3000)",
    "string.rep('\\129\\1', 3000)",
    "string.rep('\\161a', 3999)..string.rep('\\129\\161a', 990)",
    "string.rep('i', 5000)",
    "'\\27Lua'",
    "'\\27Lua\\81\\0\\1\\4\\8\\4\\8\\0' .. string.rep('\\1', 99)",
    "string.dump(function(x) return x + 1 end)",
    "string.dump(again):sub(1, -9) .. '\\255\\255\\255\\127'",
    "string.rep('x', 1e5)",
    "KEYS",
    "ARGV",
    "_G",
    "redis",
    "string",
    "getmetatable('')",
    "{}",
    "{1,2,3}",
    "{err='ERR mine'}",
    "{ok='fine'}",
    "{err={}}",
    "{double=1.5}",
    "{map={[{}]=1,a={set={b=1}}}}",
    "{big_number='1\\r\\n2'}",
    "{verbatim_string={format='txt',string='x'}}",
    "deep(900)",
    "deep(1100)",
    "deep(3000)",
    "mapped(1100)",
    "ring()",
    "wild()",
    "function() end",
    "function(...) return ... end",
    "function() error({}) end",
    "function() error(wild()) end",
    "function() return 'return 1' end",
    "function(...) return redis.call(...) end",
    "function() coroutine.yield(1, 2) end",
    "function(f, ...) return pcall(f, ...) end",
    "redis.call",
    "pcall",
    "many(4100)",
    "grown(150, 99)",
    "coroutine.create(function(...) local n = 0 while true do n = n + 1 coroutine.yield(n, ...) end end)",
    "a",
    "b",
    "c",
];

/// What all programs begin with. `many(n)` is n values, `grown(depth, width)` as many by functions that pass on what
/// they got; both call `f` with them.
const BEGINNING: &str = "\
local a, b, c = {}, 'b', 3
local function deep(n) local t = {} for i = 1, n do t = {t} end return t end
local function mapped(n) local t = {} for i = 1, n do t = {map={[t]=t}} end return t end
local function ring() local t = {} t[1] = t t.map = t return t end
local function sparse() return {[1]=1, [2]=1, [4]=1, [8]=1, [2^4]=1, [2^5]=1, [2^6]=1, [2^7]=1, [2^8]=1, [2^9]=1, [2^10]=1,
  [2^11]=1, [2^12]=1, [2^13]=1, [2^14]=1, [2^15]=1, [2^16]=1, [2^17]=1, [2^18]=1, [2^19]=1, [2^20]=1, [2^21]=1, [2^22]=1} end
local function bad() error('bad') end
local function worse() error({err = 'worse'}) end
local function again(...) return again and pcall(again, ...) or ... end
local function wild() return setmetatable({}, {__index = bad, __newindex = worse, __call = function(...) return ... end,
  __tostring = bad, __concat = worse, __eq = bad, __lt = bad, __le = bad, __len = bad, __unm = bad, __add = bad,
  __gc = bad, __mode = 'kv'}) end
local function many(n) local t = {} for i = 1, n do t[i] = 'v' .. i end return unpack(t) end
local function grown(depth, width, ...)
  if depth == 0 then return ... end
  if width == 2 then return grown(depth - 1, width, 'x' .. depth, depth, ...) end
  return grown(depth - 1, width, 'x', many(width), ...)
end
local turn = 7
local function roll(n) turn = (turn * 1103515245 + 12345) % 2147483648 return math.floor(turn / 65536) % n end
local function json(depth, harm)
  local kind, t = roll(depth > 0 and 8 or 5), {}
  local text = kind == 0 and 'null' or kind == 1 and 'true' or kind == 2 and tostring(roll(9999) / (1 + roll(8)))
    or kind < 5 and '\"k' .. roll(9) .. (roll(3) == 0 and '\\\\n\\\\ud83d\\\\ude00\"' or '\"')
  if not text then
    for i = 1, roll(depth > 5 and 3 or 20) do t[i] = json(depth - 1, harm) end
    if kind > 6 then for i = 1, #t do t[i] = '\"k' .. roll(30) .. '\":' .. t[i] end end
    text = kind > 6 and '{' .. table.concat(t, ',') .. '}' or '[' .. table.concat(t, ', ') .. ']'
  end
  if roll(100) < harm then
    local at = roll(#text + 1)
    text = text:sub(1, at) .. string.char(roll(256)) .. text:sub(at + roll(3))
  end
  return text
end
local function recoded(v) return cjson.encode(cjson.decode(cjson.encode(v))) end
local function loop(f, n) for i = 1, n do pcall(f, i) end end
";

struct Program {
    prng: Prng,
    text: String,
}

impl Program {
    fn value(&mut self, depth: usize) -> String {
        match self.prng.below(10) {
            0 | 1 if depth > 0 => self.call(depth - 1),
            2 if depth > 0 => {
                format!("{{{}, [{}]={}}}", self.value(depth - 1), self.key(), self.value(depth - 1))
            }
            3 if depth > 0 => {
                format!("({} {} {})", self.value(depth - 1), self.operator(), self.value(depth - 1))
            }
            4 if depth > 0 => {
                format!("function(...) {} return {} end", self.statement(depth - 1), self.value(0))
            }
            _ => self.prng.pick(VALUES).to_owned(),
        }
    }

    fn key(&mut self) -> &'static str {
        self.prng.pick(&["'a'", "1", "2", "'err'", "'ok'", "'map'", "'set'", "'__index'", "1.5", "true"])
    }

    fn operator(&mut self) -> &'static str {
        self.prng.pick(&["+", "-", "*", "/", "%", "^", "..", "==", "<", "<=", "~=", "and", "or"])
    }

    fn call(&mut self, depth: usize) -> String {
        let function = self.prng.pick(FUNCTIONS);
        let count = self.prng.below(4);
        let mut values: Vec<String> = (0..count).map(|_| self.value(depth)).collect();
        match self.prng.below(12) {
            0 => {
                format!("pcall({function}{}{})", if values.is_empty() { "" } else { ", " }, values.join(", "))
            }
            1 => format!("coroutine.wrap(function(...) return {function}(...) end)({})", values.join(", ")),
            2 => format!(
                "select(2, xpcall(function() return {function}({}) end, {}))",
                values.join(", "),
                self.value(0)
            ),
            3 => {
                values.push(
                    self.prng
                        .pick(&["many(3999)", "many(4001)", "many(7999)", "grown(2100, 2)", "grown(100, 99)"])
                        .into(),
                );
                format!("{function}({})", values.join(", "))
            }
            _ => format!("{function}({})", values.join(", ")),
        }
    }

    fn statement(&mut self, depth: usize) -> String {
        let name = self.prng.pick(&["a", "b", "c"]);
        let next = depth.saturating_sub(1);
        match self.prng.below(12) {
            0 => format!("{name} = {}", self.value(depth)),
            1 => format!("pcall(function() {name}[{}] = {} end)", self.key(), self.value(depth)),
            2 => {
                format!("for i = 1, {} do {} end", self.prng.pick(&["3", "50", "1e3"]), self.statement(next))
            }
            3 => format!("pcall(function() {} end)", self.statement(next)),
            4 => format!("loop(function(i) {} end, {})", self.statement(next), self.prng.pick(&["3", "20"])),
            5 => format!("local function r() {} return pcall(r) end pcall(r)", self.statement(0)),
            6 => format!(
                "local function r(...) return select('#', ...) < 1500 and r('x', ...) end pcall(r, {})",
                self.value(0)
            ),
            7 => format!("local function r() return coroutine.wrap(r)({}) end pcall(r)", self.value(0)),
            8 => format!(
                "pcall(function() local s = 'ab' for i = 1, 9 do s = {} end end)",
                self.prng.pick(&[
                    "s .. s",
                    "s:rep(2)",
                    "s:gsub('.', '%0%0')",
                    "{s, s}",
                    "cjson.encode(s) .. s"
                ])
            ),
            _ => format!("{name} = select(2, pcall(function() return {} end))", self.call(depth)),
        }
    }

    fn write(mut self) -> String {
        self.text.push_str(BEGINNING);
        for _ in 0..1 + self.prng.below(6) {
            let depth = 1 + self.prng.below(3);
            let statement = self.statement(depth);
            self.text.push_str(&statement);
            self.text.push('\n');
        }
        if self.prng.below(40) == 0 {
            // As much memory as the interpreter has takes a second to fill.
            let grow = self.prng.pick(&[
                "s .. s",
                "s:rep(3)",
                "s:gsub('.', '%0%0')",
                "{s, s}",
                "{s, cjson.encode(1)}",
            ]);
            self.text.push_str(&format!("local s = 'ab' while true do s = {grow} end\n"));
        }
        let last = self.value(2);
        self.text + "do return " + &last + " end"
    }
}

fn run(engine: &mut Engine, text: &str) -> (Option<Ran>, Vec<u8>) {
    let name = sha(text.as_bytes());
    let mut out = Vec::new();
    let Ok(script) = engine.compile(text.as_bytes()) else { return (None, out) };
    let words = RequestBuf::from_args(["eval", "", "1", "key", "one", "two"]);
    let mut reply = Reply::new(&mut out, Protocol::Resp3);
    let mut host = Mixed { calls: 0, pulses: 0, began: Instant::now() };
    let ran = engine.run_script(script, &name, (words.as_request(), 3, 1), &mut host, &mut reply);
    engine.forget(script);
    (Some(ran), out)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

fn run_programs() {
    let (seed, steps) = (number("TARN_SEED").unwrap_or(1), number("TARN_STEPS").unwrap_or(20));
    println!("TARN_SEED={seed}");
    let shown = std::env::temp_dir().join("tarn-script-fuzz.lua");
    let mut engine = Engine::new("7.2.4");
    let mut compiled = 0;
    let deadline = number("TARN_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let steps = if deadline.is_some() { u64::MAX } else { steps };
    let mut done = 0;
    for step in 0..steps {
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            break;
        }
        done += 1;
        let prng = Prng(seed.wrapping_add(step.wrapping_mul(0x1_0000_0001)));
        let text = Program { prng, text: String::new() }.write();
        std::fs::write(&shown, &text).expect("the folder for temporary files can be written");
        let (ran, out) = run(&mut engine, &text);
        compiled += u64::from(ran.is_some());
        assert_ne!(ran, Some(Ran::Restart), "step {step}:\n{text}");
        assert!(ran.is_none() || !out.is_empty(), "step {step} has no reply:\n{text}");
        let sound =
            "return {redis.call('ping') and 1, #{unpack({1,2,3})}, cjson.encode({1}), type(string.rep)}";
        let (_, out) = run(&mut engine, sound);
        let expected = "*4\r\n:1\r\n:3\r\n$3\r\n[1]\r\n$8\r\nfunction\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected, "after step {step}:\n{text}");
    }
    println!("{done} programs");
    assert!(compiled * 10 >= done * 9, "{compiled} of {done} programs compile");
}

#[test]
fn no_program_harms_the_interpreter() {
    // With the stack that workers have.
    let thread = std::thread::Builder::new().stack_size(32 << 20).spawn(run_programs);
    thread.unwrap().join().unwrap();
}
