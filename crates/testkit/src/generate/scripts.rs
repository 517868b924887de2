//! Streams of scripts and functions: EVAL and its kin with generated Lua (see [`super::lua`]), SCRIPT, FUNCTION and FCALL,
//! in and out of transactions, with data commands between them.
//!
//! Invariants:
//! 1. What goes by a name (EVALSHA, FCALL) mostly names something that was loaded before.
//! 2. FUNCTION RESTORE of what FUNCTION DUMP gave stands as [`DUMPED`]: each server gets back its own.

use super::lua::{Lua, Written};
use super::{CONNECTIONS, Generator, Request, Step, words};
use crate::spec::Spec;
use crate::values::{self, pick};
use sha1::{Digest, Sha1};
use sys::Prng;

/// Stands for the payload of a server's own latest FUNCTION DUMP.
pub const DUMPED: &[u8] = b"(dumped)";
/// Scripts and functions that a stream remembers.
const REMEMBERED_MAX: usize = 40;
/// Libraries are few, so that they meet.
const LIBRARIES: u64 = 4;

/// Headers of scripts, most of them right.
const HEADERS: &[&str] = &[
    "#!lua\n",
    "#!lua flags=no-writes\n",
    "#!lua flags=no-writes\n",
    "#!lua flags=allow-oom\n",
    "#!lua flags=allow-stale\n",
    "#!lua flags=no-cluster\n",
    "#!lua flags=allow-cross-slot-keys\n",
    "#!lua flags=no-writes,allow-stale\n",
    "#!lua flags=\n",
    "#!lua flags=nosuch\n",
    "#!lua flags=no-writes,\n",
    "#!lua name=x\n",
    "#!lua nosuch=1\n",
    "#!lua",
    "#!python\n",
    "#!\n",
    "#! lua\n",
    "#!lua flags=no-writes flags=allow-oom\n",
    "#!lua\tflags=no-writes\n",
];

const FLAGS: &[&str] = &[
    "'no-writes'",
    "'no-writes'",
    "'allow-oom'",
    "'allow-stale'",
    "'no-cluster'",
    "'allow-cross-slot-keys'",
    "'nosuch'",
    "1",
    "'no-writes', 'allow-stale'",
    "",
];

/// Code of libraries that is refused, or may be.
const REFUSED: &[&str] = &[
    "redis.register_function('f')",
    "redis.register_function('f', 1)",
    "redis.register_function(1, function() end)",
    "redis.register_function('bad name', function() end)",
    "redis.register_function('', function() end)",
    "redis.register_function('f', function() end, {})",
    "redis.register_function{function_name='f'}",
    "redis.register_function{callback=function() end}",
    "redis.register_function{function_name='f', callback=1}",
    "redis.register_function{function_name=1, callback=function() end}",
    "redis.register_function{function_name='f', callback=function() end, nosuch=1}",
    "redis.register_function{function_name='f', callback=function() end, flags=1}",
    "redis.register_function{function_name='f', callback=function() end, description=1}",
    "redis.register_function{function_name='f', callback=function() end, [1]=1}",
    "redis.register_function('f', function() end) redis.register_function('f', function() end)",
    "redis.register_function()",
    "redis.register_function",
    "redis.call('ping')",
    "redis.setresp(3)",
    "redis.nosuch()",
    "redis.log(redis.LOG_NOTICE)",
    "nosuch()",
    "x = 1",
    "return string.rep('x', 3)",
    "error('while loading')",
    "error({err='CODE while loading'})",
    "error(nil)",
    "local t = nil t.x = 1",
    "syntax error here",
    "return 1",
    "",
];

/// Names by which functions are called; those behind the fourth are nobody's own.
const FUNCTIONS: &[&str] = &["f1", "f2", "f3", "f4", "F1", "nosuch"];

/// The stream of a seed: about `len` requests.
pub fn generate(specs: &[Spec], seed: u64, len: usize) -> Vec<Step> {
    let generator = Generator::new(specs, seed);
    let mut stream =
        Stream { generator, scripts: Vec::new(), steps: Vec::new(), batch: CONNECTIONS, is_sound: false };
    for connection in (0..CONNECTIONS).filter(|connection| connection % 2 == 1) {
        stream.steps.push(Step { connection, batch: connection, request: words(&["HELLO", "3"]) });
    }
    while stream.steps.len() < len {
        stream.turn();
    }
    stream.steps
}

struct Stream<'a> {
    generator: Generator<'a>,
    /// Scripts that have been sent.
    scripts: Vec<Written>,
    steps: Vec<Step>,
    batch: usize,
    /// Whether words are counted rightly: where several things are wrong, servers differ in what they look at first.
    is_sound: bool,
}

impl Stream<'_> {
    fn turn(&mut self) {
        let connection = self.generator.prng.below(CONNECTIONS as u64) as usize;
        let mut requests = Vec::new();
        match self.generator.prng.below(40) {
            0 => {
                requests.push(words(&["MULTI"]));
                for _ in 0..self.generator.prng.below(4) {
                    requests.push(self.request());
                }
                // Their replies differ in their order, which is seen alone only.
                requests.retain(|request| !is_about_libraries(request));
                requests.push(words(&["EXEC"]));
            }
            1 => {
                requests.push(words(&["FUNCTION", "DUMP"]));
                self.send(connection, &mut requests);
                requests.extend(self.restore());
            }
            2 => {
                // Nothing that takes memory is done; where, the scripts' flags say.
                requests.push(words(&["CONFIG", "SET", "maxmemory", "1"]));
                self.is_sound = true;
                requests.extend((0..3).map(|_| self.request()));
                self.is_sound = false;
                requests.push(words(&["CONFIG", "SET", "maxmemory", "0"]));
            }
            _ => {
                for _ in 0..=self.generator.prng.below(6) {
                    requests.push(self.request());
                }
            }
        }
        self.send(connection, &mut requests);
    }

    fn send(&mut self, connection: usize, requests: &mut Vec<Request>) {
        for request in requests.drain(..) {
            self.steps.push(Step { connection, batch: self.batch, request });
        }
        self.batch += 1;
    }

    fn request(&mut self) -> Request {
        match self.generator.prng.below(30) {
            0..=14 => self.eval(),
            15..=17 => self.eval_known(),
            18 => self.script_command(),
            19..=21 => self.load(),
            22 => self.function_command(),
            23..=26 => self.call(),
            _ => loop {
                let request = self.generator.data_request();
                if super::may_be_queued(&request)
                    && crate::differential::rules::is_allowed(&request)
                    && crate::differential::picks::Pick::of(&request).is_none()
                {
                    return request;
                }
            },
        }
    }

    fn eval(&mut self) -> Request {
        let mut written = Lua::script(&mut self.generator);
        if self.generator.prng.one_in(8) {
            let header = pick(&mut self.generator.prng, HEADERS);
            written.text = format!("{header}{}", written.text);
        }
        if self.generator.prng.one_in(60) && !self.is_sound {
            written.text.push_str(pick(
                &mut self.generator.prng,
                &["\ngoto done", "\nend", " 'open", "\nx = = 1", "]]"],
            ));
        }
        let name = pick(&mut self.generator.prng, &["EVAL", "EVAL", "EVAL", "eval", "EVAL_RO"]);
        let mut request = vec![name.as_bytes().to_vec(), written.text.clone().into_bytes()];
        self.extend(&mut request, &written);
        if self.scripts.len() >= REMEMBERED_MAX {
            self.scripts.remove(0);
        }
        // One that is refused for want of memory is not kept by all servers.
        if !self.is_sound {
            self.scripts.push(written);
        }
        request
    }

    fn eval_known(&mut self) -> Request {
        let written = self.known();
        let mut sha = sha_of(&written.text);
        match self.generator.prng.below(16) {
            0 => sha.make_ascii_uppercase(),
            1 => sha.truncate(39),
            2 => sha.replace_range(0..1, "x"),
            _ => {}
        }
        let name = pick(&mut self.generator.prng, &["EVALSHA", "EVALSHA", "evalsha", "EVALSHA_RO"]);
        let mut request = words(&[name, &sha]);
        self.extend(&mut request, &written);
        request
    }

    fn known(&mut self) -> Written {
        match self.scripts.len() as u64 {
            0 => Written { text: "return 1".into(), ..Written::default() },
            count => self.scripts[self.generator.prng.below(count) as usize].clone(),
        }
    }

    /// Appends the number of keys, the keys and the arguments, now and then wrongly.
    fn extend(&mut self, request: &mut Request, written: &Written) {
        let count = match self.generator.prng.below(40) {
            0 if !self.is_sound => pick::<&str>(
                &mut self.generator.prng,
                &["-1", "x", "", "99", "1.5", "9223372036854775808", "2"],
            )
            .to_owned(),
            _ => written.keys.len().to_string(),
        };
        request.push(count.into_bytes());
        request.extend(written.keys.iter().chain(&written.args).cloned());
        if self.generator.prng.one_in(60) && !self.is_sound {
            request.truncate(1 + self.generator.prng.below(request.len() as u64) as usize);
        }
    }

    fn script_command(&mut self) -> Request {
        let (known, other) = (self.known().text, Lua::script(&mut self.generator));
        match self.generator.prng.below(12) {
            0..=3 => {
                let request = words(&["SCRIPT", "LOAD", &other.text]);
                self.scripts.push(other);
                request
            }
            4..=7 => words(&["SCRIPT", "EXISTS", &sha_of(&known), &sha_of(&other.text), "x"]),
            8 => words(&["SCRIPT", "FLUSH"]),
            9 => words(&["SCRIPT", "FLUSH", pick(&mut self.generator.prng, &["SYNC", "async", "x"])]),
            10 => words(&["script", "kill"]),
            _ => words(&["SCRIPT", pick(&mut self.generator.prng, &["LOAD", "EXISTS", "NOSUCH", "KILL"])]),
        }
    }

    /// FUNCTION LOAD of a library of some functions.
    fn load(&mut self) -> Request {
        let number = self.generator.prng.below(LIBRARIES);
        let mut code = match self.generator.prng.below(30) {
            0 => pick(&mut self.generator.prng, HEADERS).to_owned(),
            1 => pick::<&str>(
                &mut self.generator.prng,
                &[
                    "#!lua name=a-b\n",
                    "#!lua name=\n",
                    "#!lua name=a name=b\n",
                    "",
                    "#!lua name=l1 engine=x\n",
                ],
            )
            .to_owned(),
            _ => format!("#!lua name=l{number}\n"),
        };
        if self.generator.prng.one_in(8) {
            code.push_str(pick(&mut self.generator.prng, REFUSED));
        } else {
            // Names belong to libraries for the most part: else few would load.
            for at in 0..=self.generator.prng.below(2) {
                let own = FUNCTIONS[(number as usize + at as usize * 2) % 4];
                let name = if self.generator.prng.one_in(8) {
                    pick(&mut self.generator.prng, &FUNCTIONS[..4])
                } else {
                    own
                };
                code.push_str(&self.registration(name));
            }
        }
        let mut request = words(&["FUNCTION", "LOAD"]);
        if !self.generator.prng.one_in(4) {
            request.push(b"REPLACE".to_vec());
        }
        request.push(code.into_bytes());
        request
    }

    fn registration(&mut self, name: &str) -> String {
        let body = Lua::function_body(&mut self.generator).text;
        let function = format!("function(keys, args)\n{body}\nend");
        match self.generator.prng.below(3) {
            0 => format!("redis.register_function('{name}', {function})\n"),
            1 => {
                let flags = pick(&mut self.generator.prng, FLAGS);
                format!(
                    "redis.register_function{{function_name='{name}', callback={function}, flags={{{flags}}}}}\n"
                )
            }
            _ => format!(
                "local calls = 0\nredis.register_function{{function_name='{name}', description='says {name}', callback={function}}}\n"
            ),
        }
    }

    fn call(&mut self) -> Request {
        let name = pick(&mut self.generator.prng, &["FCALL", "FCALL", "fcall", "FCALL_RO"]);
        let mut request = words(&[name, pick(&mut self.generator.prng, FUNCTIONS)]);
        let prng = &mut self.generator.prng;
        let written = Written {
            keys: (0..prng.below(4)).map(|_| values::key(prng)).collect(),
            args: (0..prng.below(6)).map(|_| argument(prng)).collect(),
            ..Written::default()
        };
        self.extend(&mut request, &written);
        request
    }

    fn function_command(&mut self) -> Request {
        let library = format!("l{}", self.generator.prng.below(LIBRARIES + 1));
        match self.generator.prng.below(12) {
            0..=2 => words(&["FUNCTION", "DELETE", &library]),
            3 => words(&["FUNCTION", "LIST"]),
            4 => words(&["FUNCTION", "LIST", "WITHCODE"]),
            5 => words(&["FUNCTION", "LIST", "LIBRARYNAME", &library, "WITHCODE"]),
            6 => words(&[
                "FUNCTION",
                "LIST",
                "LIBRARYNAME",
                pick(&mut self.generator.prng, &["*", "l[12]", "x*"]),
            ]),
            7 => words(&["FUNCTION", "STATS"]),
            8 => words(&["FUNCTION", "FLUSH"]),
            9 => words(&["FUNCTION", "KILL"]),
            10 => words(&[
                "FUNCTION",
                pick(&mut self.generator.prng, &["LOAD", "DELETE", "LIST", "NOSUCH", "RESTORE"]),
                "x",
            ]),
            _ => words(&["FUNCTION", "FLUSH", pick(&mut self.generator.prng, &["SYNC", "ASYNC", "x"])]),
        }
    }

    fn restore(&mut self) -> Vec<Request> {
        let mut requests = Vec::new();
        match self.generator.prng.below(4) {
            0 => requests.push(words(&["FUNCTION", "FLUSH"])),
            1 => requests.extend([self.load(), self.load()]),
            2 => requests.push(words(&["FUNCTION", "DELETE", "l1"])),
            _ => {}
        }
        let mut request = words(&["FUNCTION", "RESTORE"]);
        request.push(DUMPED.to_vec());
        if !self.generator.prng.one_in(4) {
            request.extend(words(&[pick(
                &mut self.generator.prng,
                &["FLUSH", "APPEND", "REPLACE", "replace", "x"],
            )]));
        }
        requests.extend([request, words(&["FUNCTION", "LIST", "WITHCODE"])]);
        requests
    }
}

fn is_about_libraries(request: &Request) -> bool {
    request[0].eq_ignore_ascii_case(b"function")
}

fn sha_of(text: &str) -> String {
    Sha1::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A value that patterns may take the square of, and be done in time everywhere.
fn argument(prng: &mut Prng) -> Vec<u8> {
    const BYTES_MAX: usize = 16_384;
    let mut value = values::value(prng);
    value.truncate(BYTES_MAX);
    value
}
