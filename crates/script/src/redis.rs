//! The table `redis`, and the functions that `sandbox.lua` takes from here.

use crate::arguments::{Arguments, c_text, to_int};
use crate::engine::{Fault, State};
use crate::gate;
use crate::host;
use crate::library::{self, BYTES_PER_INSTRUCTION};
use crate::limits::{LOG_LINE_BYTES_MAX, SOURCE_BYTES_MAX};
use crate::raise::{self, Raise, Stop};
use crate::raw::{self, Errors, caller, push_number};
use mlua::{Function, IntoLuaMulti, Lua, MultiValue, Result, Table, Value};
use std::rc::Rc;
use wire::{Protocol, RequestBuf};

/// Log levels and kinds of replication by name.
const NUMBERS: &[(&str, i64)] = &[
    ("LOG_DEBUG", 0),
    ("LOG_VERBOSE", 1),
    ("LOG_NOTICE", 2),
    ("LOG_WARNING", 3),
    ("REPL_NONE", 0),
    ("REPL_AOF", 1),
    ("REPL_SLAVE", 2),
    ("REPL_REPLICA", 2),
    ("REPL_ALL", 3),
];

/// Instructions in whose time a byte is compiled.
const COMPILING_WORK: usize = 4;

/// For functions that take many values, but not any number.
const TOO_MANY: &str = "too many arguments";

/// The table as scripts find it.
pub(crate) fn table(lua: &Lua, state: &Rc<State>, version: &str) -> Result<Table> {
    let redis = lua.create_table()?;
    for (name, number) in NUMBERS {
        redis.raw_set(*name, *number)?;
    }
    redis.raw_set("REDIS_VERSION", version)?;
    redis.raw_set("REDIS_VERSION_NUM", version_number(version))?;
    redis.raw_set("call", caller(lua, state, Errors::Raised)?)?;
    redis.raw_set("pcall", caller(lua, state, Errors::Returned)?)?;
    redis.raw_set("log", gate::bounded(lua, lua.create_function(log)?, TOO_MANY)?)?;
    redis.raw_set("sha1hex", charged(lua, state, sha1hex)?)?;
    redis.raw_set("error_reply", charged(lua, state, error_reply)?)?;
    redis.raw_set("status_reply", charged(lua, state, status_reply)?)?;
    redis.raw_set("set_repl", lua.create_function(set_repl)?)?;
    redis.raw_set("acl_check_cmd", gate::bounded(lua, acl_check_cmd(lua, state)?, TOO_MANY)?)?;
    redis.raw_set("replicate_commands", lua.create_function(|_, _: MultiValue| Ok(true))?)?;
    redis.raw_set("breakpoint", lua.create_function(|_, _: MultiValue| Ok(false))?)?;
    redis.raw_set("debug", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    let state = state.clone();
    let setresp = lua.create_function(move |lua, values: MultiValue| {
        if values.len() != 1 {
            return Err(raise::reply("ERR redis.setresp() requires one argument."));
        }
        state.protocol.set(match lua.coerce_number(values[0].clone())?.map_or(0, to_int) {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return Err(raise::reply("ERR RESP version must be 2 or 3.")),
        });
        Ok(())
    })?;
    redis.raw_set("setresp", setresp)?;
    gate::few_in(lua, &redis, &["call", "pcall", "log", "acl_check_cmd"])?;
    Ok(redis)
}

/// A function that counts for the bytes of the first value, if that is a string.
fn charged<T: IntoLuaMulti>(
    lua: &Lua,
    state: &Rc<State>,
    function: impl Fn(&Lua, MultiValue) -> Result<T> + 'static,
) -> Result<Function> {
    let state = state.clone();
    lua.create_function(move |lua, values: MultiValue| {
        let bytes = values.front().and_then(Value::as_string).map_or(0, |text| text.as_bytes().len());
        state.charge(bytes / BYTES_PER_INSTRUCTION)?;
        function(lua, values)
    })
}

/// What `sandbox.lua` builds on.
pub(crate) fn inner_functions(lua: &Lua, state: &Rc<State>) -> Result<Table> {
    let inner = lua.create_table()?;
    let plain = lua.create_function(|lua, value: Value| {
        let seen = raise::plain(lua, value)?;
        let stops = seen.is_none();
        (seen.unwrap_or(Value::Nil), stops).into_lua_multi(lua)
    })?;
    inner.raw_set("plain", plain)?;
    inner.raw_set("make", gate::makers(lua)?)?;
    let faulty = state.clone();
    inner.raw_set("fault", lua.create_function(move |lua, value: Value| note_fault(lua, &faulty, value))?)?;
    let writing = state.clone();
    let insert = lua.create_function(move |lua, behind| library::insert(lua, &writing, behind))?;
    inner.raw_set("insert", insert)?;
    let loading = state.clone();
    let loadstring = lua.create_function(move |lua, values: MultiValue| {
        let arguments = Arguments::new(lua, &values);
        let text = arguments.string(1)?.as_bytes().to_vec();
        let name = match arguments.is_given(2) {
            true => arguments.string(2)?.as_bytes().to_vec(),
            false => text.clone(),
        };
        load_text(lua, &loading, &text, &name)
    })?;
    inner.raw_set("loadstring", gate::few(lua, loadstring)?)?;
    let loading = state.clone();
    let load = lua.create_function(move |lua, values: MultiValue| {
        let arguments = Arguments::new(lua, &values);
        let Value::Function(pieces) = arguments.get(1) else {
            let got = values.front().map_or("no value", crate::arguments::type_name);
            return Err(arguments.bad(1, format!("function expected, got {got}")));
        };
        let name = match arguments.is_given(2) {
            true => arguments.string(2)?.as_bytes().to_vec(),
            false => b"=(load)".to_vec(),
        };
        let pieces = pieces.clone();
        // Whoever loads while pieces are made must not find the interpreter full of our references.
        drop(values);
        let mut text = Vec::new();
        while let Value::String(piece) = pieces.call(())? {
            if piece.as_bytes().is_empty() {
                break;
            }
            text.extend_from_slice(&piece.as_bytes());
            if text.len() > SOURCE_BYTES_MAX {
                break;
            }
        }
        load_text(lua, &loading, &text, &name)
    })?;
    inner.raw_set("load", gate::few(lua, load)?)?;
    Ok(inner)
}

/// Compiles text for a script.
fn load_text(lua: &Lua, state: &State, text: &[u8], name: &[u8]) -> Result<MultiValue> {
    if text.len() > SOURCE_BYTES_MAX {
        return (Value::Nil, "chunk is too large").into_lua_multi(lua);
    }
    state.charge(text.len() * COMPILING_WORK)?;
    let env = state.env.borrow().clone().expect("the sandbox is built before scripts run");
    match raw::compile(lua, text, name, &env)? {
        Ok(function) => function.into_lua_multi(lua),
        Err(message) => (Value::Nil, lua.create_string(message)?).into_lua_multi(lua),
    }
}

/// Notes what went wrong and where, while the stack still shows it.
fn note_fault(lua: &Lua, state: &State, raised: Value) -> Result<Value> {
    let mut is_counted = false;
    let message = match &raised {
        Value::Error(error) => match raise::root(error) {
            Raise::Reply(line) => line,
            Raise::Text(text) => [b"ERR ", &text[..]].concat(),
            Raise::Stop(stop) => {
                state.stop.set(Some(stop));
                match stop {
                    Stop::Restart => Vec::new(),
                    Stop::Killed(text) => [b"ERR ", text.as_bytes()].concat(),
                }
            }
        },
        Value::Table(table) => {
            is_counted = table.raw_get::<bool>("ignore_error_stats_update")?;
            // An error of the table's own metamethods is one error too many.
            match table.get::<Value>("err").unwrap_or(Value::Nil) {
                Value::Nil => b"ERR unknown error".to_vec(),
                line => {
                    lua.coerce_string(line)?.map_or_else(Vec::new, |line| c_text(&line.as_bytes()).to_vec())
                }
            }
        }
        Value::String(text) => [b"ERR ", c_text(&text.as_bytes())].concat(),
        other => format!("ERR {}", other.to_string()?).into_bytes(),
    };
    let is_stopping = state.fault.borrow().is_some() && state.stop.get().is_some();
    if !is_stopping {
        let place = place_of_fault(lua);
        *state.fault.borrow_mut() = Some(Fault { message, place, is_counted });
    }
    Ok(raised)
}

/// The source and line of the function that raised an error, or of the one that called it if it is none of Lua's.
fn place_of_fault(lua: &Lua) -> Option<(String, i64)> {
    let at = |level| {
        lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let name = source.source.map(|name| name.into_owned()).unwrap_or_default();
            (source.what == "C", name, debug.current_line().map_or(-1, |line| line as i64))
        })
    };
    // The interpreter's own functions and those of the sandbox are not where scripts go wrong.
    let is_inner = |(is_c, source): (bool, &str)| is_c || source == SANDBOX || source == TAIL_CALL;
    let (mut level, mut place) = (1, at(1)?);
    while is_inner((place.0, &place.1)) {
        level += 1;
        match at(level) {
            Some(next) => place = next,
            None => break,
        }
    }
    Some((place.1, place.2))
}

/// What the interpreter calls a frame that a tail call has taken the place of.
pub(crate) const TAIL_CALL: &str = "=(tail call)";

/// The chunk name of `sandbox.lua`, whose functions are taken for the interpreter's own.
pub(crate) const SANDBOX: &str = "=sandbox";

fn acl_check_cmd(lua: &Lua, state: &Rc<State>) -> Result<Function> {
    let state = state.clone();
    lua.create_function(move |_, values: MultiValue| {
        let mut bytes = 0;
        for value in &values {
            bytes += value.as_string().map_or(0, |text| text.as_bytes().len());
            raise::check_output(bytes)?;
        }
        state.charge(bytes / BYTES_PER_INSTRUCTION)?;
        may_run(&values)
    })
}

fn may_run(values: &MultiValue) -> Result<bool> {
    let mut request = RequestBuf::new();
    for value in values {
        match value {
            Value::String(text) => request.push(&text.as_bytes()),
            Value::Integer(number) => push_number(&mut request, *number as f64),
            Value::Number(number) => push_number(&mut request, *number),
            _ => {
                let line = "ERR Lua redis lib command arguments must be strings or integers";
                return Err(raise::reply(line));
            }
        }
    }
    if values.is_empty() {
        return Err(raise::reply("ERR Please specify at least one argument for this redis lib call"));
    }
    match host::with(|host| host.may_run(request.as_request())).flatten() {
        Some(may_run) => Ok(may_run),
        None => Err(raise::reply("ERR Invalid command passed to redis.acl_check_cmd()")),
    }
}

fn log(lua: &Lua, values: MultiValue) -> Result<()> {
    if values.len() < 2 {
        return Err(raise::reply("ERR redis.log() requires two arguments or more."));
    }
    let Some(level) = lua.coerce_number(values[0].clone())? else {
        return Err(raise::reply("ERR First argument must be a number (log level)."));
    };
    let level = match to_int(level) {
        level @ 0..=3 => level as u8,
        _ => return Err(raise::reply("ERR Invalid debug level.")),
    };
    let mut line = Vec::new();
    for value in values.iter().skip(1) {
        if let Some(text) = lua.coerce_string(value.clone())? {
            if !line.is_empty() {
                line.push(b' ');
            }
            let room = LOG_LINE_BYTES_MAX.saturating_sub(line.len());
            line.extend(text.as_bytes().iter().take(room));
        }
    }
    host::with(|host| host.log(level, &line));
    Ok(())
}

fn sha1hex(lua: &Lua, values: MultiValue) -> Result<mlua::String> {
    if values.len() != 1 {
        return Err(raise::reply("ERR wrong number of arguments"));
    }
    let text = lua.coerce_string(values[0].clone())?;
    let name = text.map_or_else(|| crate::sha(b""), |text| crate::sha(&text.as_bytes()));
    lua.create_string(name)
}

fn error_reply(lua: &Lua, values: MultiValue) -> Result<Table> {
    let Some(text) = only_string(&values) else { return wrong_arguments(lua) };
    let text = c_text(&text);
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let line = match text.iter().position(|byte| *byte == b' ') {
        Some(blank) => [&text[..=blank], without_line_ends(&text[blank + 1..])].concat(),
        // One word is no code.
        None => [b"ERR ", without_line_ends(text)].concat(),
    };
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(line)?)?;
    Ok(table)
}

fn without_line_ends(text: &[u8]) -> &[u8] {
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let begin = text.iter().position(|byte| !is_end(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !is_end(byte)).map_or(begin, |last| last + 1);
    &text[begin..end]
}

fn status_reply(lua: &Lua, values: MultiValue) -> Result<Table> {
    let Some(text) = only_string(&values) else { return wrong_arguments(lua) };
    let table = lua.create_table()?;
    table.raw_set("ok", lua.create_string(text)?)?;
    Ok(table)
}

fn only_string(values: &MultiValue) -> Option<Vec<u8>> {
    match values.front() {
        Some(Value::String(text)) if values.len() == 1 => Some(text.as_bytes().to_vec()),
        _ => None,
    }
}

fn wrong_arguments(lua: &Lua) -> Result<Table> {
    raise::error_table(lua, b"ERR wrong number or type of arguments")
}

fn set_repl(lua: &Lua, values: MultiValue) -> Result<()> {
    if values.len() != 1 {
        return Err(raise::reply("ERR redis.set_repl() requires one argument."));
    }
    match lua.coerce_number(values[0].clone())?.map_or(0, to_int) {
        0..=3 => Ok(()),
        _ => Err(raise::reply(
            "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
        )),
    }
}

/// `7.2.4` as 0x070204.
fn version_number(version: &str) -> i64 {
    version.split('.').filter_map(|part| part.parse::<i64>().ok()).fold(0, |number, part| number << 8 | part)
}
