//! Functions that stand in place of those of Lua's own library: random calls give the same values and errors as those give in a
//! plain interpreter. `TARN_SEED` picks them (printed), `TARN_STEPS` says how many programs of them.

mod engine;
mod prng;

use engine::run;
use prng::Prng;
use script::Engine;

/// Up to `most` of these, in a row.
fn joined(prng: &mut Prng, most: usize, from: &[&'static str]) -> String {
    (0..prng.below(most + 1)).map(|_| prng.pick(from)).collect()
}

/// What texts are made of.
const TEXT: &[&str] =
    &["a", "a", "b", "ab", "(", ")", " ", "1", "x=1,", "\\0", "\\200", "\\11", "]", "%%", "-", "A"];

/// What patterns are made of.
const PATTERN: &[&str] = &[
    "a", "b", ".", "%a", "%d", "%s", "%w", "%p", "%l", "%u", "%x", "%c", "%z", "%A", "%S", "%W", "%%", "%.",
    "(", ")", "()", "(a", "b)", "(.-)", "(a*)", "%1", "%2", "%0", "%9", "%b()", "%bab", "%b", "%f[%w]",
    "%f[a]", "%fa", "%f", "[ab]", "[^a]", "[a-c]", "[%a_]", "[]]", "[^]]", "[]", "[", "[a-", "[%", "]", "^",
    "$", "*", "+", "-", "?", "a*", "a-", "b?", "%", "\\0", "=", ",",
];

/// What replaces a match.
const REPLACEMENT: &[&str] = &[
    "'x'",
    "''",
    "'%0%0'",
    "'%1'",
    "'<%1-%2>'",
    "'%'",
    "'%9'",
    "'%%'",
    "5",
    "nil",
    "true",
    "{a='1', b=2, [1]=3}",
    "{a={}}",
    "{ab=false}",
    "function(...) return table.concat({...}, '|') end",
    "function(a) return a == 'a' and {} end",
    "function() end",
    "function(a) error('no ' .. a) end",
    "tostring",
    "string.upper",
    "setmetatable({}, {__index = function(t, k) return k .. k end})",
];

/// Numbers as places and counts.
const NUMBER: &[&str] = &[
    "1", "2", "3", "0", "-1", "-3", "7", "100", "-100", "1.7", "'2'", "'x'", "nil", "2^31", "-2^31", "2^53",
    "1e300",
];

/// Elements.
const ELEMENT: &[&str] =
    &["1", "2", "3", "3", "0.5", "-7", "'a'", "'b'", "'ab'", "'a\\0b'", "nil", "{}", "true"];

/// Elements that have an order.
const ORDERED: &[&str] = &["1", "2", "3", "3", "3", "0.5", "-7", "100", "42", "41"];

/// What decides the order, well or not.
const ORDER: &[&str] = &[
    "nil",
    "function(a, b) return a < b end",
    "function(a, b) return a > b end",
    "function(a, b) return a <= b end",
    "function() return true end",
    "function() return false end",
    "function(a, b) return nil end",
    "function(a, b) if a == 3 then error('three') end return a < b end",
    "rawequal",
    "1",
    "function(a, b) return (a * 7) % 5 < (b * 7) % 5 end",
];

fn table(prng: &mut Prng, most: usize, from: &[&'static str]) -> String {
    let elements: Vec<_> = (0..prng.below(most + 1)).map(|_| prng.pick(from)).collect();
    format!("{{{}}}", elements.join(", "))
}

fn call(prng: &mut Prng) -> String {
    let text = joined(prng, 12, TEXT);
    let pattern = joined(prng, 5, PATTERN);
    let (number, other) = (prng.pick(NUMBER), prng.pick(NUMBER));
    match prng.below(14) {
        0 => format!("string.find('{text}', '{pattern}')"),
        1 => {
            format!("string.find('{text}', '{pattern}', {number}, {})", prng.pick(&["true", "false", "nil"]))
        }
        2 => format!("string.match('{text}', '{pattern}', {number})"),
        3 => format!("('{text}'):match('{pattern}')"),
        4 => format!("all('{text}', '{pattern}')"),
        5 => format!("string.gsub('{text}', '{pattern}', {})", prng.pick(REPLACEMENT)),
        6 => format!("string.gsub('{text}', '{pattern}', {}, {number})", prng.pick(REPLACEMENT)),
        7 => format!("unpack({}, {number}, {other})", table(prng, 6, ELEMENT)),
        8 => {
            // Places far in front take the interpreter's own function minutes.
            let place = prng.pick(&["1", "2", "5", "0", "-2", "9", "2.9", "'2'", "'x'", "nil", "2^31 - 1"]);
            format!("changed(table.insert, {}, {place}, {})", table(prng, 6, ELEMENT), prng.pick(ELEMENT))
        }
        9 => format!("changed(table.insert, {}, {})", table(prng, 6, ELEMENT), prng.pick(ELEMENT)),
        10 => format!("changed(table.remove, {}, {number})", table(prng, 6, ELEMENT)),
        11 => format!("changed(table.sort, {}, {})", table(prng, 30, ORDERED), prng.pick(ORDER)),
        12 => format!(
            "table.{}({}, function(k, v) if v == {number} then return k end end)",
            prng.pick(&["foreach", "foreachi"]),
            table(prng, 6, ELEMENT)
        ),
        _ => match prng.below(5) {
            0 => format!(
                "string.rep('{text}', {})",
                prng.pick(&["0", "1", "3", "-1", "2.9", "nil", "'x'", "-2^31"])
            ),
            1 => format!("table.concat({}, '{text}', {number}, {other})", table(prng, 6, ELEMENT)),
            2 => format!("table.sort({})", table(prng, 9, ELEMENT)),
            3 => format!("string.{}()", prng.pick(&["find", "match", "gmatch", "gsub", "rep", "gfind"])),
            _ => format!(
                "{}(5)",
                prng.pick(&["unpack", "table.remove", "table.insert", "table.sort", "table.foreach"])
            ),
        },
    }
}

/// What programs begin with: values as a text.
const BEGINNING: &str = "\
local function show(...)
  local out = {}
  for i = 1, select('#', ...) do
    local v = select(i, ...)
    out[i] = type(v) == 'table' and 'table' or type(v) .. ':' .. tostring(v)
  end
  return table.concat(out, ';')
end
local function all(s, p)
  local out = {}
  for a, b, c in string.gmatch(s, p) do out[#out + 1] = show(a, b, c) end
  return table.concat(out, '/')
end
local function changed(f, t, ...)
  local got = show(pcall(f, t, ...))
  local out = {}
  for i = -3, 40 do out[#out + 1] = show(t[i]) end
  return got .. ' ' .. table.concat(out, ',')
end
local out = {}
";

#[test]
fn calls_give_what_the_library_gives() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (seed, steps) = (number("TARN_SEED").unwrap_or(1), number("TARN_STEPS").unwrap_or(60));
    println!("TARN_SEED={seed}");
    let mut engine = Engine::new("7.2.4");
    for step in 0..steps {
        let mut prng = Prng(seed.wrapping_add(step.wrapping_mul(0x1_0000_0001)));
        let calls: Vec<String> = (0..100).map(|_| call(&mut prng)).collect();
        let lines =
            calls.iter().map(|call| format!("out[#out + 1] = show(pcall(function() return {call} end))\n"));
        let text = format!("{BEGINNING}{}return table.concat(out, '\\n')", lines.collect::<String>());
        let lua = mlua::Lua::new();
        let plain: mlua::String =
            lua.load(&text).set_name("@user_script").eval().expect("the library answers");
        let ours = run(&mut engine, &text);
        let ours = ours.split_once("\r\n").expect("a bulk").1.trim_end_matches("\r\n");
        let (theirs, first) = (plain.to_string_lossy(), BEGINNING.lines().count());
        for (at, (ours, theirs)) in ours.split('\n').zip(theirs.split('\n')).enumerate() {
            assert_eq!(
                ours,
                theirs,
                "TARN_SEED={seed}, step {step}, line {}: {}",
                first + at,
                calls.get(at).map_or("", |call| call)
            );
        }
    }
}
