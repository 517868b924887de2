//! One worker's interpreter: compiles scripts and libraries, keeps what it compiled, and runs it.

use crate::convert::{Names, Outgoing};
use crate::host::{self, Host, Pulse};
use crate::limits::{COMPILED_SCRIPTS_MAX, INSTRUCTIONS_PER_PULSE, STATE_BYTES_MAX, VALUES_MAX};
use crate::raise::{self, Raise, Stop};
use crate::redis::{self, SANDBOX};
use crate::shebang::ScriptFlags;
use crate::{Sha, bits, cjson, cmsgpack, gate, random, structs};
use mlua::{
    ChunkMode, Function, HookTriggers, Lua, LuaOptions, MultiValue, Result, StdLib, Table, Value, VmState,
};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Instant;
use wire::{Protocol, Reply, Request, RequestBuf};

/// An interpreter.
pub struct Engine {
    lua: Lua,
    state: Rc<State>,
    names: Rc<Names>,
    sandbox: Sandbox,
    /// Compiled scripts. Functions themselves stay in the interpreter's tables: only so many values of it
    /// can be referred to from outside.
    scripts: HashSet<Sha>,
    compiled: Table,
    /// Libraries that are loaded, by number, and a table of functions for each.
    libraries: HashSet<u64>,
    loaded: Table,
}

/// What `sandbox.lua` gave back.
struct Sandbox {
    env: Table,
    globals: Table,
    loading_redis: Table,
    run: Function,
    run_with: Function,
    begin_load: Function,
    end_load: Function,
    clean: Function,
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
    /// Until when a library may take to load. None: none is being loaded.
    pub load_until: Cell<Option<Instant>>,
    pub json: cjson::Settings,
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
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// With a reply, which may be an error.
    Replied,
    /// With an error that the script did not return; it has been written as the reply.
    Failed,
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
        let state = Rc::new(State::default());
        let names = Rc::new(Names::new(&lua)?);
        let globals = lua.globals();
        random::install(&lua, &globals.raw_get("math")?)?;
        globals.raw_set("redis", redis::table(&lua, &state, &names, version)?)?;
        globals.raw_set("bit", bits::table(&lua)?)?;
        globals.raw_set("cjson", cjson::table(&lua, &state)?)?;
        globals.raw_set("cmsgpack", cmsgpack::table(&lua)?)?;
        globals.raw_set("struct", structs::table(&lua)?)?;
        let inner = redis::inner_functions(&lua, &state)?;
        let built: Table = lua.load(include_str!("sandbox.lua")).set_name(SANDBOX).call((globals, inner))?;
        let sandbox = Sandbox {
            env: built.raw_get("env")?,
            globals: built.raw_get("globals")?,
            loading_redis: built.raw_get("loading_redis")?,
            run: built.raw_get("run")?,
            run_with: built.raw_get("run_with")?,
            begin_load: built.raw_get("begin_load")?,
            end_load: built.raw_get("end_load")?,
            clean: built.raw_get("clean")?,
        };
        *state.env.borrow_mut() = Some(sandbox.env.clone());
        let (compiled, loaded) = (lua.create_table()?, lua.create_table()?);
        let engine = Engine {
            lua,
            state,
            names,
            sandbox,
            scripts: HashSet::new(),
            compiled,
            libraries: HashSet::new(),
            loaded,
        };
        engine.watch_time()?;
        Ok(engine)
    }

    /// Asks the host now and then whether the script may go on.
    fn watch_time(&self) -> Result<()> {
        let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS_PER_PULSE);
        let state = self.state.clone();
        self.lua.set_global_hook(triggers, move |_, _| {
            if let Some(until) = state.load_until.get()
                && Instant::now() > until
            {
                return Err(Raise::Stop(Stop::Killed("FUNCTION LOAD timeout")).into());
            }
            match host::with(|host| host.pulse()) {
                Some(Pulse::End(text)) => Err(Raise::Stop(Stop::Killed(text)).into()),
                Some(Pulse::GoOn) | None => Ok(VmState::Continue),
            }
        })
    }

    /// Bytes that the interpreter holds.
    pub fn used_bytes(&self) -> usize {
        self.lua.used_memory()
    }

    /// Whether a script is compiled.
    pub fn has_script(&self, sha: &Sha) -> bool {
        self.scripts.contains(sha)
    }

    /// Compiles a script, whose header has been read.
    ///
    /// # Errors
    /// It does not compile; the error line.
    pub fn compile(&mut self, sha: Sha, text: &[u8]) -> std::result::Result<(), Failure> {
        if self.scripts.len() >= COMPILED_SCRIPTS_MAX {
            self.flush_scripts();
        }
        let function = self
            .compile_text(text, "@user_script")
            .map_err(|message| [b"ERR Error compiling script (new function): ", &message[..]].concat())?;
        self.keep_script(sha, function).map_err(|error| format!("ERR {error}").into_bytes())
    }

    fn keep_script(&mut self, sha: Sha, function: Function) -> Result<()> {
        self.compiled.raw_set(self.lua.create_string(sha)?, function)?;
        self.scripts.insert(sha);
        Ok(())
    }

    fn compile_text(&self, text: &[u8], name: &str) -> std::result::Result<Function, Failure> {
        // The header is no Lua; its line still counts.
        let body = match text.strip_prefix(b"#!") {
            Some(_) => &text[text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len())..],
            None => text,
        };
        let chunk = self.lua.load(body).set_name(name).set_mode(ChunkMode::Text);
        chunk.set_environment(self.sandbox.env.clone()).into_function().map_err(|error| {
            match raise::root(&error) {
                Raise::Text(message) | Raise::Reply(message) => message,
                Raise::Stop(_) => Vec::new(),
            }
        })
    }

    /// Forgets all compiled scripts.
    pub fn flush_scripts(&mut self) {
        self.scripts.clear();
        // Clearing only fails without memory for nothing that it needs.
        let _ = self.compiled.clear();
        // What is left behind goes in the collector's time.
        let _ = self.lua.gc_step();
    }

    /// Runs a compiled script. The request's words from `first` on are its keys, and those behind them its arguments.
    ///
    /// # Panics
    /// If the script is not compiled.
    pub fn run_script(
        &mut self,
        sha: &Sha,
        words: (Request<'_>, usize, usize),
        host: &mut dyn Host,
        reply: &mut Reply<'_>,
    ) -> Ran {
        let name = String::from_utf8_lossy(sha);
        self.run(&name, host, reply, |engine| {
            let (keys, args) = engine.keys_and_args(words)?;
            engine.sandbox.globals.raw_set("KEYS", keys)?;
            engine.sandbox.globals.raw_set("ARGV", args)?;
            let function: Function = engine.compiled.raw_get(engine.lua.create_string(sha)?)?;
            engine.sandbox.run.call::<(bool, Value)>(function)
        })
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
        let Ok(function) = self.loaded_function(library, name) else {
            reply.error("ERR Function not found");
            return Ran::Failed;
        };
        let shown = String::from_utf8_lossy(name);
        self.run(&shown, host, reply, |engine| {
            let (keys, args) = engine.keys_and_args(words)?;
            engine.sandbox.globals.raw_set("KEYS", Value::Nil)?;
            engine.sandbox.globals.raw_set("ARGV", Value::Nil)?;
            engine.sandbox.run_with.call::<(bool, Value)>((function, keys, args))
        })
    }

    fn loaded_function(&self, library: u64, name: &[u8]) -> Result<Function> {
        let functions: Table = self.loaded.raw_get(library as i64)?;
        functions.raw_get(self.lua.create_string(name)?)
    }

    fn keys_and_args(&self, (request, first, keys): (Request<'_>, usize, usize)) -> Result<(Table, Table)> {
        let table = |from: usize, to: usize| {
            let table = self.lua.create_table_with_capacity(to - from, 0)?;
            for index in from..to {
                table.raw_seti(index - from + 1, self.lua.create_string(request.arg(index))?)?;
            }
            Ok::<Table, mlua::Error>(table)
        };
        Ok((table(first, first + keys)?, table(first + keys, request.len())?))
    }

    fn run(
        &mut self,
        name: &str,
        host: &mut dyn Host,
        reply: &mut Reply<'_>,
        call: impl FnOnce(&Engine) -> Result<(bool, Value)>,
    ) -> Ran {
        self.state.protocol.set(Protocol::Resp2);
        self.state.fault.take();
        self.state.stop.set(None);
        self.state.json.reset();
        let mark = reply.mark();
        let result = host::in_place_of(host, || call(self));
        let ran = match result {
            Ok((true, value)) => {
                let protocol = self.state.protocol.get();
                let mut outgoing = Outgoing { names: &self.names, reply, protocol, begin: mark, too_deep: 0 };
                match outgoing.value(&value, 0) {
                    Ok(()) => Ran::Replied,
                    Err(error) => {
                        reply.rollback(mark);
                        self.fail(name, Some(&error), reply)
                    }
                }
            }
            Ok((false, Value::String(text))) if self.state.fault.borrow().is_none() => {
                let line = [b"ERR ", &text.as_bytes()[..]].concat();
                *self.state.fault.borrow_mut() = Some(Fault { message: line, place: None });
                self.fail(name, None, reply)
            }
            Ok((false, _)) => self.fail(name, None, reply),
            Err(error) => self.fail(name, Some(&error), reply),
        };
        self.tidy();
        ran
    }

    /// Answers with the error that ended the run.
    fn fail(&self, name: &str, error: Option<&mlua::Error>, reply: &mut Reply<'_>) -> Ran {
        let fault = self.state.fault.take();
        if self.state.stop.get() == Some(Stop::Restart) {
            return Ran::Restart;
        }
        let (mut line, place) = match (fault, error.map(raise::root)) {
            (Some(fault), _) => (fault.message, fault.place),
            (None, Some(Raise::Text(text) | Raise::Reply(text))) => ([b"ERR ", &text[..]].concat(), None),
            (None, _) => (b"ERR execution failure".to_vec(), None),
        };
        if let Some((source, number)) = place {
            line.extend_from_slice(format!(" script: {name}, on {source}:{number}.").as_bytes());
        }
        reply.error(line);
        Ran::Failed
    }

    /// Takes away what the run left in places that the next one would find.
    fn tidy(&self) {
        // Both only fail without memory; then the next run collects.
        let _ = self.sandbox.clean.call::<()>(());
        if self.lua.used_memory() > STATE_BYTES_MAX / 2 {
            let _ = self.lua.gc_collect();
        }
    }

    /// Whether a library is loaded.
    pub fn has_library(&self, library: u64) -> bool {
        self.libraries.contains(&library)
    }

    /// Drops libraries that are not in `keep`.
    pub fn retain_libraries(&mut self, keep: impl Fn(u64) -> bool) {
        let loaded = &self.loaded;
        self.libraries.retain(|library| {
            let keeps = keep(*library);
            if !keeps {
                // Taking away needs no memory.
                let _ = loaded.raw_set(*library as i64, Value::Nil);
            }
            keeps
        });
    }

    /// Runs a library's code, which registers its functions, under a number of the caller's choice.
    ///
    /// # Errors
    /// The error line.
    pub fn load_library(&mut self, library: u64, text: &[u8]) -> std::result::Result<Vec<Loaded>, Failure> {
        let main = self
            .compile_text(text, "@user_function")
            .map_err(|message| [b"ERR Error compiling function: ", &message[..]].concat())?;
        let registered: Rc<RefCell<Vec<(Loaded, Function)>>> = Rc::default();
        self.state.fault.take();
        self.state.stop.set(None);
        let result = self.load_with(&main, &registered);
        self.tidy();
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
        let functions = self.lua.create_table()?;
        for (loaded, function) in registered {
            functions.raw_set(self.lua.create_string(&loaded.name)?, function)?;
        }
        self.loaded.raw_set(library as i64, functions)?;
        self.libraries.insert(library);
        Ok(())
    }

    fn load_with(
        &self,
        main: &Function,
        registered: &Rc<RefCell<Vec<(Loaded, Function)>>>,
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
        let register = self.lua.create_function(move |lua, values: MultiValue| {
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
        self.state.load_until.set(Some(Instant::now() + crate::limits::LOAD_TIME_MAX));
        self.sandbox.begin_load.call::<()>(())?;
        let result = self.sandbox.run.call::<(bool, Value)>(main.clone());
        self.state.load_until.set(None);
        self.sandbox.end_load.call::<()>(())?;
        found.raw_set("register_function", Value::Nil)?;
        result
    }
}
