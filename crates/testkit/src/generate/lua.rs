//! Lua for scripts, from a grammar: templates whose holes (`$s`, a string; `$v`, any value) are filled at random, and
//! statements around them. What a script finds goes into the table `r`, which it mostly returns.
//!
//! The same generator gives the same scripts. Rooms: [`calls`] has the templates of the interpreter's libraries,
//! [`values`] what the holes are filled with, [`commands`] `redis.call` with requests made from the rows.
//!
//! Invariants:
//! 1. One statement is one line, unless it has others in it: a script can be shrunk by lines.
//! 2. Every loop ends, and no script shows an address, a moment, or anything in the order of a table.
//! 3. What a script changes for those after it in a real server (settings of `cjson`) it sets back.

mod calls;
mod commands;
mod values;

use super::Generator;
use crate::values::pick;
use sys::Prng;

/// Statements inside statements.
const DEPTH_MAX: usize = 3;
/// Most statements of one block.
const BLOCK_MAX: u64 = 4;

/// What scripts begin with: a table of results, `show`, which makes a text of any value, `keep`, which adds such texts to the
/// results, `try`, which does so with what a function gives or fails with, and `sorted` for arrays without an order.
const BEGINNING: &str = "\
local r, a, b, c = {}, 1, 'b', {3, x = 'y'}
local function show(v, depth)
  local kind, parts = type(v), {}
  if kind == 'number' then return string.format('%.17g', v) end
  if kind == 'string' then return string.format('%q', v) end
  if v == cjson.null then return 'null' end
  if kind ~= 'table' then return kind == 'boolean' and tostring(v) or kind end
  if (depth or 0) > 5 then return '...' end
  for key, value in pairs(v) do
    parts[#parts + 1] = show(key, 5) .. '=' .. show(value, (depth or 0) + 1)
  end
  table.sort(parts)
  return '{' .. table.concat(parts, ',') .. '}'
end
local function keep(...)
  for i = 1, select('#', ...) do r[#r + 1] = show((select(i, ...))) end
end
local function try(f, ...) keep(pcall(f, ...)) end
local function sorted(t)
  if type(t) == 'table' and #t > 0 then table.sort(t) end
  return t
end";

/// What sets all settings of `cjson` back.
const SETTINGS_BACK: &str = "\
cjson.encode_sparse_array(false, 2, 10) cjson.encode_max_depth(1000) cjson.decode_max_depth(1000)
cjson.encode_number_precision(14) cjson.encode_keep_buffer(true) cjson.encode_invalid_numbers(false)
cjson.decode_invalid_numbers(true)";

/// A script's text, and the words that it is called with.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    pub text: String,
    pub keys: Vec<Vec<u8>>,
    pub args: Vec<Vec<u8>>,
}

/// One script, being written.
pub(super) struct Lua<'g, 'a> {
    generator: &'g mut Generator<'a>,
    keys: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
    /// What the tables of keys and arguments are called.
    names: (&'static str, &'static str),
    lines: Vec<String>,
    /// Whether settings of `cjson` are changed.
    is_setting: bool,
}

impl<'g, 'a> Lua<'g, 'a> {
    /// A script for EVAL.
    pub fn script(generator: &'g mut Generator<'a>) -> Written {
        Lua::new(generator, ("KEYS", "ARGV")).write()
    }

    /// The body of a function of a library, whose parameters are `keys` and `args`.
    pub fn function_body(generator: &'g mut Generator<'a>) -> Written {
        Lua::new(generator, ("keys", "args")).write()
    }

    fn new(generator: &'g mut Generator<'a>, names: (&'static str, &'static str)) -> Lua<'g, 'a> {
        let count = generator.prng.below(4);
        let args = (0..count).map(|_| crate::values::value(&mut generator.prng)).collect();
        let keys = (0..generator.prng.below(3)).map(|_| crate::values::key(&mut generator.prng)).collect();
        let is_setting = generator.prng.one_in(12);
        Lua { generator, keys, args, names, lines: Vec::new(), is_setting }
    }

    fn prng(&mut self) -> &mut Prng {
        &mut self.generator.prng
    }

    fn one_in(&mut self, chance: u64) -> bool {
        self.generator.prng.one_in(chance)
    }

    fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        pick(&mut self.generator.prng, choices)
    }

    fn write(mut self) -> Written {
        if self.one_in(6) {
            return self.short();
        }
        self.lines.push(BEGINNING.to_owned());
        if self.is_setting {
            self.lines.push("local function body()".to_owned());
            for _ in 0..=self.prng().below(3) {
                let setting = self.choose(calls::SETTINGS);
                let call = self.expand(setting, 1);
                self.lines.push(format!("try(function() return {call} end)"));
            }
        }
        if self.one_in(6) {
            let version = self.choose(&["3", "3", "3", "2"]);
            self.lines.push(format!("redis.setresp({version})"));
        }
        self.block(DEPTH_MAX);
        let last = self.last();
        self.lines.push(last);
        if self.is_setting {
            self.lines.push("end".to_owned());
            self.lines.push("local ok, result = pcall(body)".to_owned());
            self.lines.push(SETTINGS_BACK.to_owned());
            self.lines.push("if ok then return result end".to_owned());
            self.lines.push("return {'failed', show(result)}".to_owned());
        }
        self.finish()
    }

    /// A script of one line, as most clients send them.
    fn short(mut self) -> Written {
        let line = match self.prng().below(6) {
            0 => format!("return {}", self.value(3)),
            1 => format!("return {}", self.reply_table(2)),
            2 => self.expand("error($e)", 1),
            3 => format!("local a, b, c = 1, 'b', {{}} return {}", self.call(1)),
            _ => format!("return {}", self.command()),
        };
        self.lines.push(line);
        self.finish()
    }

    fn finish(self) -> Written {
        Written { text: self.lines.join("\n"), keys: self.keys, args: self.args }
    }

    fn block(&mut self, depth: usize) {
        for _ in 0..=self.generator.prng.below(BLOCK_MAX) {
            self.statement(depth);
        }
    }

    /// One statement; `depth` more may be in it.
    fn statement(&mut self, depth: usize) {
        let line = match self.generator.prng.below(24) {
            0..=6 => self.command_statement(),
            7..=12 => self.call_statement(),
            13 => {
                let values = self.value(2);
                format!("keep({values})")
            }
            14 => {
                let (name, value) = (self.choose(&["a", "b", "c"]), self.value(2));
                format!("{name} = {value}")
            }
            15 => self.expand("try(function() error($r) end)", 1),
            16 => self.expand("keep(xpcall(function() $E end, $h))", 1),
            17 => {
                let misuse = self.choose(calls::MISUSES);
                let misuse = self.expand(misuse, 1);
                format!("try(function() {misuse} end)")
            }
            18 => {
                let idiom = self.choose(calls::IDIOMS);
                self.expand(idiom, 1)
            }
            19 => {
                let result = self.reply_table(1);
                format!("r[#r + 1] = {result}")
            }
            20 if depth > 0 => return self.inside("for i = 1, $l do", "end", depth),
            21 if depth > 0 => return self.inside("if $v then", "end", depth),
            22 if depth > 0 => return self.inside("try(function(...)", "end, $v)", depth),
            _ if depth > 0 => {
                return self.inside(
                    "do local co = coroutine.wrap(function(...)",
                    "end) try(co, $v) end",
                    depth,
                );
            }
            _ => self.call_statement(),
        };
        self.lines.push(line);
    }

    fn inside(&mut self, begin: &str, end: &str, depth: usize) {
        let (begin, end) = (self.expand(begin, 0), self.expand(end, 0));
        self.lines.push(begin);
        self.block(depth - 1);
        self.lines.push(end);
    }

    /// A library's function, called in one of the ways in which errors look different.
    fn call_statement(&mut self) -> String {
        let template = self.template();
        match self.generator.prng.below(8) {
            0 => {
                let call = self.expand(template, 2);
                format!("keep({call})")
            }
            // Called by `pcall` itself, a function of C knows neither its name nor a line.
            1 | 2 if template.ends_with(')') && !template.contains(":") => {
                let (name, arguments) = template.split_once('(').expect("a call has a parenthesis");
                let comma = if arguments == ")" { "" } else { ", " };
                self.expand(&format!("try({name}{comma}{arguments}"), 2)
            }
            3 => {
                let call = self.expand(template, 2);
                format!("try(function() local f = {call} return f end)")
            }
            _ => {
                let call = self.expand(template, 2);
                format!("try(function() return {call} end)")
            }
        }
    }

    fn template(&mut self) -> &'static str {
        let library = self.choose(calls::LIBRARIES);
        self.choose(library)
    }

    /// A call of a library's function.
    fn call(&mut self, depth: usize) -> String {
        let template = self.template();
        self.expand(template, depth)
    }

    fn last(&mut self) -> String {
        match self.generator.prng.below(16) {
            0 => String::new(),
            1 => format!("return {}", self.value(2)),
            2 => format!("return {}", self.reply_table(2)),
            3 => self.expand("error($e)", 1),
            4 => format!("return {}", self.command()),
            5 => "return r, 1".to_owned(),
            _ => "return r".to_owned(),
        }
    }

    /// Fills the holes of a template.
    fn expand(&mut self, template: &str, depth: usize) -> String {
        let mut filled = String::with_capacity(2 * template.len());
        let mut letters = template.chars();
        while let Some(letter) = letters.next() {
            if letter == '$' {
                let hole = letters.next().expect("a hole has a letter");
                let value = self.fill(hole, depth);
                filled.push_str(&value);
            } else {
                filled.push(letter);
            }
        }
        filled
    }

    fn fill(&mut self, hole: char, depth: usize) -> String {
        // Now and then something that the function does not expect.
        if !"dlzNOEhergcuqwVT".contains(hole) && self.one_in(14) {
            return self.value(depth.min(1));
        }
        match hole {
            'n' | 'N' => self.number(),
            'i' => self.small(),
            'b' => self.generator.prng.below(258).to_string(),
            's' => self.string(depth),
            'z' => self.plain_string().to_owned(),
            't' => self.choose(&["true", "false", "nil"]).to_owned(),
            'v' => self.value(depth),
            // As many values as may come.
            'V' => {
                (0..self.generator.prng.below(4)).map(|_| self.value(depth)).collect::<Vec<_>>().join(", ")
            }
            'a' => self.list(depth),
            'm' => self.table(depth),
            'p' => self.choose(calls::PATTERNS).to_owned(),
            'x' => self.choose(calls::REPLACEMENTS).to_owned(),
            'f' => self.format(),
            'j' => self.json(),
            'k' => self.packed(),
            'q' => self.structure(),
            'u' => self.choose(calls::STRUCTURES).to_owned(),
            // Not 0: beside a -0 the interpreter takes it for that.
            'l' => (1 + self.generator.prng.below(3)).to_string(),
            'd' => self.choose(&["a", "b", "c"]).to_owned(),
            'g' => self.choose(calls::GLOBALS).to_owned(),
            'c' => self.command(),
            'w' => self.words(),
            'e' => {
                let error = self.choose(calls::ERRORS);
                self.expand(error, depth.saturating_sub(1))
            }
            'r' => {
                let error = self.choose(calls::CAUGHT);
                self.expand(error, depth.saturating_sub(1))
            }
            'h' => self.choose(calls::HANDLERS).to_owned(),
            'O' => self.choose(calls::OPERATORS).to_owned(),
            'E' => {
                let failing = self.choose(calls::FAILING);
                self.expand(failing, depth.saturating_sub(1))
            }
            'T' => self.reply_table(1),
            other => panic!("no hole is called '{other}'"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::data_specs;

    #[test]
    fn all_templates_can_be_filled() {
        let specs = data_specs();
        for seed in 0..300 {
            let mut generator = Generator::new(&specs, seed);
            let script = Lua::script(&mut generator);
            assert!(!script.text.contains('$') || script.text.contains("'"), "{}", script.text);
        }
    }

    #[test]
    fn same_seed_writes_the_same() {
        let specs = data_specs();
        let write = || Lua::script(&mut Generator::new(&specs, 7)).text;
        assert_eq!(write(), write());
    }
}
