//! One worker's interpreter: compiles scripts and libraries, keeps what it compiled, and runs it.

use crate::bytecode::{LIBRARIES, Uses};
use crate::host::{self, Host, Pulse};
use crate::limits::{
    BUFFER_BYTES_KEPT_MAX, COLLECTOR_PAUSE_PERCENT, GARBAGE_BYTES_DEFAULT, GARBAGE_BYTES_MIN, LOAD_TIMEOUT,
    STATE_BYTES_MAX, VALUES_MAX,
};
use crate::raise::{self, Raise, Stop};
use crate::raw::run::{self, Ended, Raw, Run, Takes};
use crate::raw::{self, Anchors};
use crate::redis::{self, SANDBOX};
use crate::shebang::ScriptFlags;
use crate::{Sha, bits, cjson, cmsgpack, gate, library, random, structs};
use mlua::{Function, Lua, LuaOptions, MultiValue, Result, StdLib, Table, Value};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::ffi::c_int;
use std::rc::Rc;
use std::time::{Duration, Instant};
use wire::{Protocol, Reply, Request, RequestBuf};

/// An interpreter.
pub struct Engine {
    lua: Lua,
    raw: Raw,
    state: Rc<State>,
    sandbox: Sandbox,
    /// What is compiled, by number: only so many values of the interpreter can be referred to from outside.
    functions: Table,
    /// Numbers that are free again, and the first that was never given.
    free: Vec<c_int>,
    next: c_int,
    /// Libraries that are loaded, by number, and the functions of each.
    libraries: HashMap<u64, HashMap<Vec<u8>, Compiled>>,
    /// What scripts find that keep no reference to libraries, and what those find that keep none to KEYS and ARGV either.
    direct: Table,
    kept: Table,
    /// How much may be left behind, and at which size it is freed therefore.
    garbage_bytes_max: Cell<usize>,
    collects_at: Cell<usize>,
}

/// A script or function that is compiled, until it is given to [`Engine::forget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compiled {
    number: c_int,
    takes: Takes,
}

/// What `sandbox.lua` gave back.
struct Sandbox {
    env: Table,
    globals: Table,
    loading_redis: Table,
    run: Function,
    begin_load: Function,
    end_load: Function,
    show_to: Function,
}

/// What functions of the interpreter share with the engine.
#[derive(Default)]
pub(crate) struct State {
    /// What the script chose with `redis.setresp`.
    pub protocol: Cell<Protocol>,
    pub buffers: RefCell<Buffers>,
    pub fault: RefCell<Option<Fault>>,
    pub stop: Cell<Option<Stop>>,
    pub env: RefCell<Option<Table>>,
    /// The globals KEYS and ARGV are those of the last run.
    pub has_globals: Cell<bool>,
    /// Words in the tables that are KEYS and ARGV again and again.
    pub kept: Cell<Kept>,
    /// Bytes of the words of the last run, where scripts find them.
    pub words_bytes: Cell<usize>,
    /// Functions find what is for them at the moment, and not scripts.
    pub shows_functions: Cell<bool>,
    /// What has been done since the host was asked last, in instructions.
    pub work: Cell<usize>,
    /// When it was looked at how long instructions took.
    pub looked_at: Cell<Option<Instant>>,
    /// What the host said in the middle of a search, until it is raised.
    pub stopped: RefCell<Option<mlua::Error>>,
    /// How many coroutines there have been.
    pub coroutines: Cell<u32>,
    pub anchors: OnceCell<Anchors>,
    /// Until when a library may take to load. None: none is being loaded.
    pub load_until: Cell<Option<Instant>>,
    pub json: cjson::Settings,
    /// What `cjson` makes of a value, or of a string with escapes.
    pub json_text: RefCell<Vec<u8>>,
    /// Why it failed, on the way to whoever says so.
    pub json_failed: Cell<Option<cjson::Failed>>,
}

/// How much is in the tables that are KEYS and ARGV again and again.
#[derive(Clone, Copy, Default)]
pub(crate) struct Kept {
    pub keys: usize,
    pub arguments: usize,
}

impl Kept {
    /// As much as in either.
    pub fn max(self, other: Kept) -> Kept {
        Kept { keys: self.keys.max(other.keys), arguments: self.arguments.max(other.arguments) }
    }
}

impl State {
    /// Asks the host whether what runs may go on.
    pub fn pulse(&self) -> Result<()> {
        if self.load_until.get().is_some_and(|until| Instant::now() > until) {
            return Err(Raise::Stop(Stop::Killed(LOAD_TIMEOUT)).into());
        }
        match host::with(|host| host.pulse()) {
            Some(Pulse::End(text)) => Err(Raise::Stop(Stop::Killed(text)).into()),
            Some(Pulse::GoOn) | None => Ok(()),
        }
    }

    /// The same, if it has not said so already.
    pub fn tick(&self) -> Result<()> {
        self.stopped.take().map_or_else(|| self.pulse(), Err)
    }

    /// See [`Anchors`].
    #[inline]
    pub fn anchors(&self) -> &Anchors {
        self.anchors.get().expect("scripts run when the sandbox stands")
    }
}

/// Kept from one `redis.call` to the next.
#[derive(Default)]
pub(crate) struct Buffers {
    pub request: RequestBuf,
    pub reply: Vec<u8>,
}

/// An error that ended a run.
pub(crate) struct Fault {
    pub message: Vec<u8>,
    /// Source and line.
    pub place: Option<(String, i64)>,
    /// It was counted where it came up.
    pub is_counted: bool,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// With a reply, which may be an error.
    Replied,
    /// With an error that the script did not return; it has been written as the reply.
    Failed {
        /// It comes from a command, and was counted there.
        is_counted: bool,
    },
    /// It is to begin again under other locks. Nothing has been written.
    Restart,
}

/// An error line, with its code.
pub type Failure = Vec<u8>;

/// A function of a library that was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Its name.
    pub name: Vec<u8>,
    /// What its author says of it.
    pub description: Option<Vec<u8>>,
    /// What it may do.
    pub flags: ScriptFlags,
}

impl Engine {
    /// An interpreter that calls itself `version`.
    ///
    /// # Panics
    /// If there is no memory for one.
    pub fn new(version: &str) -> Engine {
        Engine::build(version).expect("the sandbox is sound, and a new interpreter is small")
    }

    fn build(version: &str) -> Result<Engine> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        lua.set_memory_limit(STATE_BYTES_MAX)?;
        lua.gc_inc(COLLECTOR_PAUSE_PERCENT, 0, 0);
        let state = Rc::new(State::default());
        let globals = lua.globals();
        random::install(&lua, &globals.raw_get("math")?)?;
        library::install(&lua, &state)?;
        globals.raw_set("redis", redis::table(&lua, &state, version)?)?;
        globals.raw_set("bit", bits::table(&lua)?)?;
        globals.raw_set("cjson", cjson::table(&lua, &state)?)?;
        globals.raw_set("cmsgpack", cmsgpack::table(&lua, &state)?)?;
        globals.raw_set("struct", structs::table(&lua)?)?;
        let inner = redis::inner_functions(&lua, &state)?;
        inner.raw_set("counted", gate::coroutine_maker(&lua, &state)?)?;
        let fault: Function = inner.raw_get("fault")?;
        let built: Table = lua.load(include_str!("sandbox.lua")).set_name(SANDBOX).call((globals, inner))?;
        let sandbox = Sandbox {
            env: built.raw_get("env")?,
            globals: built.raw_get("globals")?,
            loading_redis: built.raw_get("loading_redis")?,
            run: built.raw_get("run")?,
            begin_load: built.raw_get("begin_load")?,
            end_load: built.raw_get("end_load")?,
            show_to: built.raw_get("show_to")?,
        };
        *state.env.borrow_mut() = Some(sandbox.env.clone());
        let functions = lua.create_table()?;
        let make: Function = built.raw_get("direct")?;
        let (direct, kept): (Table, Table) = (make.call(LIBRARIES.to_vec())?, make.call(LIBRARIES.to_vec())?);
        let (ticking, tables) = (state.clone(), (&sandbox.globals, &direct, &kept));
        let tick = lua.create_function(move |_, ()| ticking.tick())?;
        let anchors = Anchors::new(&lua, tables, (&fault, &tick), &functions)?;
        let is_first = state.anchors.set(anchors).is_ok();
        debug_assert!(is_first, "they are only set here");
        let raw = Raw::of(&lua)?;
        let (free, libraries) = (Vec::new(), HashMap::new());
        let (garbage_bytes_max, collects_at) = (Cell::new(GARBAGE_BYTES_DEFAULT), Cell::new(STATE_BYTES_MAX));
        let engine = Engine {
            lua,
            raw,
            state,
            sandbox,
            functions,
            free,
            next: 1,
            libraries,
            direct,
            kept,
            garbage_bytes_max,
            collects_at,
        };
        engine.watch_time()?;
        engine.free_garbage();
        Ok(engine)
    }

    /// Frees what scripts leave behind when it is more than so many bytes, within
    /// [`GARBAGE_BYTES_MIN`] and [`GARBAGE_BYTES_DEFAULT`]. Without that the interpreter would take several times what is in use,
    /// until scripts run again.
    pub fn set_garbage_bytes_max(&self, bytes: usize) {
        let bytes = bytes.clamp(GARBAGE_BYTES_MIN, GARBAGE_BYTES_DEFAULT);
        if self.garbage_bytes_max.replace(bytes) > bytes {
            self.free_garbage();
        }
    }

    fn free_garbage(&self) {
        // Of the room in which it joins strings the interpreter gives up a part at a time.
        while self.collect() / 2 > self.garbage_bytes_max.get() {}
        let used = self.lua.used_memory();
        let room = STATE_BYTES_MAX.saturating_sub(used) / 2;
        self.collects_at.set(used + self.garbage_bytes_max.get().min(room));
    }

    /// Returns how many bytes that freed.
    fn collect(&self) -> usize {
        let before = self.lua.used_memory();
        // It only fails for finalizers, which scripts cannot make.
        let _ = self.lua.gc_collect();
        before.saturating_sub(self.lua.used_memory())
    }

    /// Asks the host now and then whether the script may go on.
    fn watch_time(&self) -> Result<()> {
        crate::library::watch(&self.lua, &self.state)
    }

    /// Bytes that the interpreter holds.
    pub fn used_bytes(&self) -> usize {
        self.lua.used_memory()
    }

    /// Compiles a script, whose header has been read.
    ///
    /// # Errors
    /// It does not compile; the error line.
    pub fn compile(&mut self, text: &[u8]) -> std::result::Result<Compiled, Failure> {
        let compiled = self
            .compile_text(text, "@user_script")
            .map_err(|message| [b"ERR Error compiling script (new function): ", &message[..]].concat())
            .and_then(|function| {
                self.keep_script(function).map_err(|error| format!("ERR {error}").into_bytes())
            });
        // What the compiler was shown may have been long, and may never run.
        self.tidy();
        compiled
    }

    /// Gives a script the environment that does for what it uses.
    fn keep_script(&mut self, function: Function) -> Result<Compiled> {
        let (environment, takes) = match Uses::of(&function.dump(true)) {
            Uses { assigns: true, .. } => (&self.sandbox.env, Takes::Globals),
            Uses { holds_libraries: true, .. } => (&self.sandbox.globals, Takes::Globals),
            Uses { holds_words: true, .. } => (&self.direct, Takes::Direct),
            _ => (&self.kept, Takes::Kept),
        };
        function.set_environment(environment.clone())?;
        self.keep(function, takes)
    }

    fn keep(&mut self, function: Function, takes: Takes) -> Result<Compiled> {
        let number = self.free.last().copied().unwrap_or(self.next);
        self.functions.raw_set(number, function)?;
        if self.free.pop().is_none() {
            self.next += 1;
        }
        Ok(Compiled { number, takes })
    }

    /// Gives up what was compiled. The memory goes in the collector's time.
    pub fn forget(&mut self, compiled: Compiled) {
        // Taking away needs no memory.
        let _ = self.functions.raw_set(compiled.number, Value::Nil);
        self.free.push(compiled.number);
    }

    fn compile_text(&self, text: &[u8], name: &str) -> std::result::Result<Function, Failure> {
        // The header is no Lua; its line still counts.
        let body = match text.strip_prefix(b"#!") {
            Some(_) => &text[text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len())..],
            None => text,
        };
        raw::compile(&self.lua, body, name.as_bytes(), &self.sandbox.env)
            .unwrap_or_else(|error| Err(error.to_string().into_bytes()))
    }

    /// Runs a compiled script, which others know by `name`. The request's words from `first` on are its keys, and those
    /// behind them its arguments.
    pub fn run_script(
        &mut self,
        script: Compiled,
        name: &Sha,
        words: (Request<'_>, usize, usize),
        host: &mut dyn Host,
        reply: &mut Reply<'_>,
    ) -> Ran {
        self.run(script, name, words, host, reply)
    }

    /// Runs a library's function, which must be loaded.
    pub fn run_function(
        &mut self,
        library: u64,
        name: &[u8],
        words: (Request<'_>, usize, usize),
        host: &mut dyn Host,
        reply: &mut Reply<'_>,
    ) -> Ran {
        let Some(function) = self.libraries.get(&library).and_then(|functions| functions.get(name)) else {
            reply.error("ERR Function not found");
            return Ran::Failed { is_counted: false };
        };
        self.run(*function, name, words, host, reply)
    }

    fn run(
        &mut self,
        Compiled { number, takes }: Compiled,
        name: &[u8],
        words: (Request<'_>, usize, usize),
        host: &mut dyn Host,
        reply: &mut Reply<'_>,
    ) -> Ran {
        self.show_to(takes);
        let state = &*self.state;
        state.protocol.set(Protocol::Resp2);
        state.fault.take();
        state.stop.set(None);
        state.stopped.take();
        state.looked_at.set(None);
        state.json.reset();
        let mut run = Run { state, function: number, takes, words, reply, ended: Ended::Replied };
        let ended = host::in_place_of(host, || run::run(self.raw, &mut run));
        let ran = match ended {
            Ended::Replied => Ran::Replied,
            Ended::Failed => self.fail(name, reply),
        };
        self.tidy();
        ran
    }

    /// Lets scripts, or functions, find what is for them.
    #[inline]
    fn show_to(&self, takes: Takes) {
        let to_functions = takes == Takes::Arguments;
        if self.state.shows_functions.replace(to_functions) != to_functions {
            // It only fails without memory for nothing that it needs.
            let _ = self.sandbox.show_to.call::<()>(!to_functions);
        }
    }

    /// Answers with the error that ended the run.
    #[cold]
    fn fail(&self, name: &[u8], reply: &mut Reply<'_>) -> Ran {
        let fault = self.state.fault.take();
        if self.state.stop.get() == Some(Stop::Restart) {
            return Ran::Restart;
        }
        let (mut line, mut is_counted) = (Vec::new(), false);
        if let Some(Fault { message, place, is_counted: counted }) = fault {
            (line, is_counted) = (message, counted);
            if let Some((source, number)) = place {
                let name = String::from_utf8_lossy(name);
                line.extend_from_slice(format!(" script: {name}, on {source}:{number}.").as_bytes());
            }
        }
        reply.error(line);
        Ran::Failed { is_counted }
    }

    /// Frees what the run left, if it is much.
    fn tidy(&self) {
        if self.state.words_bytes.get() > BUFFER_BYTES_KEPT_MAX {
            self.drop_words();
        }
        // What ended the run may have jumped over whoever does this after a call.
        self.state.buffers.borrow_mut().keep_small();
        let text = &mut *self.state.json_text.borrow_mut();
        if text.capacity() > BUFFER_BYTES_KEPT_MAX {
            *text = Vec::new();
        }
        if self.lua.used_memory() > self.collects_at.get() {
            self.free_garbage();
        }
    }

    /// Gives up the words of the last run. The next one gets its own in any case.
    #[cold]
    fn drop_words(&self) {
        let tables = (&self.sandbox.globals, &self.direct, &self.kept);
        // It only fails without memory for two empty tables: then the next run puts its own words into those that are there.
        if self.state.anchors().drop_words(&self.lua, tables).is_ok() {
            self.state.words_bytes.set(0);
            self.state.has_globals.set(false);
            self.state.kept.set(Kept::default());
        }
    }

    /// Whether a library is loaded.
    pub fn has_library(&self, library: u64) -> bool {
        self.libraries.contains_key(&library)
    }

    /// Whether any is.
    pub fn has_libraries(&self) -> bool {
        !self.libraries.is_empty()
    }

    /// Drops libraries that are not in `keep`.
    pub fn retain_libraries(&mut self, keep: impl Fn(u64) -> bool) {
        let gone: Vec<u64> = self.libraries.keys().copied().filter(|library| !keep(*library)).collect();
        for functions in gone.iter().filter_map(|library| self.libraries.remove(library)).collect::<Vec<_>>()
        {
            functions.into_values().for_each(|function| self.forget(function));
        }
    }

    /// Runs a library's code, which registers its functions, under a number of the caller's choice. It may take so long.
    ///
    /// # Errors
    /// The error line.
    pub fn load_library(
        &mut self,
        library: u64,
        text: &[u8],
        time_max: Duration,
    ) -> std::result::Result<Vec<Loaded>, Failure> {
        let loaded = self.run_library(library, text, time_max);
        self.tidy();
        loaded
    }

    fn run_library(
        &mut self,
        library: u64,
        text: &[u8],
        time_max: Duration,
    ) -> std::result::Result<Vec<Loaded>, Failure> {
        let main = self
            .compile_text(text, "@user_function")
            .map_err(|message| [b"ERR Error compiling function: ", &message[..]].concat())?;
        let registered: Rc<RefCell<Vec<(Loaded, Function)>>> = Rc::default();
        self.state.fault.take();
        self.state.stop.set(None);
        let result = self.load_with(&main, &registered, time_max);
        match result {
            Ok((true, _)) => {}
            Ok((false, _)) | Err(_) => {
                let message = match (self.state.fault.take(), result) {
                    (Some(fault), _) => fault.message,
                    (None, Err(error)) => error.to_string().into_bytes(),
                    (None, Ok(_)) => b"not enough memory".to_vec(),
                };
                return Err([b"ERR Error registering functions: ", &message[..]].concat());
            }
        }
        let registered = registered.take();
        if registered.is_empty() {
            return Err(b"ERR No functions registered".to_vec());
        }
        let loaded = registered.iter().map(|(loaded, _)| loaded.clone()).collect();
        self.keep_library(library, registered).map_err(|error| format!("ERR {error}").into_bytes())?;
        Ok(loaded)
    }

    fn keep_library(&mut self, library: u64, registered: Vec<(Loaded, Function)>) -> Result<()> {
        let mut functions = HashMap::new();
        for (loaded, function) in registered {
            functions.insert(loaded.name, self.keep(function, Takes::Arguments)?);
        }
        self.libraries.insert(library, functions);
        Ok(())
    }

    fn load_with(
        &self,
        main: &Function,
        registered: &Rc<RefCell<Vec<(Loaded, Function)>>>,
        time_max: Duration,
    ) -> Result<(bool, Value)> {
        let redis: Table = self.sandbox.globals.raw_get::<Table>("redis")?;
        let found = &self.sandbox.loading_redis;
        for name in [
            "log",
            "LOG_DEBUG",
            "LOG_VERBOSE",
            "LOG_NOTICE",
            "LOG_WARNING",
            "REDIS_VERSION",
            "REDIS_VERSION_NUM",
        ] {
            found.raw_set(name, redis.get::<Value>(name)?)?;
        }
        let list = registered.clone();
        // A library may keep the function, and call it when it is loaded.
        let is_loading = Rc::new(Cell::new(true));
        let loads = is_loading.clone();
        let register = self.lua.create_function(move |lua, values: MultiValue| {
            if !loads.get() {
                return Err(too_late());
            }
            let one = crate::shebang::registration(lua, &values)?;
            let mut list = list.borrow_mut();
            if list.len() >= VALUES_MAX / 2 {
                return Err(raise::reply("ERR Too many functions in one library"));
            }
            if list.iter().any(|(known, _)| known.name == one.0.name) {
                return Err(raise::reply("ERR Function already exists in the library"));
            }
            list.push(one);
            Ok(())
        })?;
        found.raw_set("register_function", gate::few(&self.lua, register)?)?;
        self.state.load_until.set(Some(Instant::now() + time_max));
        self.sandbox.begin_load.call::<()>(())?;
        self.state.looked_at.set(Some(Instant::now()));
        self.watch_time()?;
        let result = self.sandbox.run.call::<(bool, Value)>(main.clone());
        let (ended, until) = (Instant::now(), self.state.load_until.take());
        is_loading.set(false);
        self.sandbox.end_load.call::<()>(())?;
        // So may a function that has kept the table.
        let refuse = self.lua.create_function(|_, _: MultiValue| Err::<(), _>(too_late()))?;
        found.raw_set("register_function", gate::few(&self.lua, refuse)?)?;
        // Few instructions can take long, with nobody asking in between.
        if until.is_some_and(|until| ended > until) {
            return Err(raise::reply(format!("ERR {LOAD_TIMEOUT}")));
        }
        result
    }
}

/// The error of whoever registers a function when its library is loaded.
fn too_late() -> mlua::Error {
    raise::reply("ERR redis.register_function can only be called on FUNCTION LOAD command")
}
