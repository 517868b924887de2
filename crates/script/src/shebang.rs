//! The first line of a script or library (`#!lua name=mylib flags=no-writes`), and what a library says of
//! each function that it registers.

use crate::engine::Loaded;
use crate::raise;
use mlua::{Function, Lua, MultiValue, Result, Table, Value};

/// What a script or function says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptFlags(u8);

impl ScriptFlags {
    /// It changes nothing.
    pub const NO_WRITES: ScriptFlags = ScriptFlags(1);
    /// It may run when memory is full.
    pub const ALLOW_OOM: ScriptFlags = ScriptFlags(2);
    /// It may run on a replica with stale data.
    pub const ALLOW_STALE: ScriptFlags = ScriptFlags(4);
    /// It does not run in a cluster.
    pub const NO_CLUSTER: ScriptFlags = ScriptFlags(8);
    /// Its keys may lie in several slots.
    pub const ALLOW_CROSS_SLOT_KEYS: ScriptFlags = ScriptFlags(16);

    /// Each with its name, in the order of FUNCTION LIST.
    pub const NAMES: [(ScriptFlags, &'static str); 5] = [
        (ScriptFlags::NO_WRITES, "no-writes"),
        (ScriptFlags::ALLOW_OOM, "allow-oom"),
        (ScriptFlags::ALLOW_STALE, "allow-stale"),
        (ScriptFlags::NO_CLUSTER, "no-cluster"),
        (ScriptFlags::ALLOW_CROSS_SLOT_KEYS, "allow-cross-slot-keys"),
    ];

    /// Whether it has all of `flags`.
    pub fn contains(self, flags: ScriptFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    fn named(name: &[u8]) -> Option<ScriptFlags> {
        Self::NAMES.iter().find(|(_, known)| known.as_bytes() == name).map(|(flag, _)| *flag)
    }

    fn with(self, flags: ScriptFlags) -> ScriptFlags {
        ScriptFlags(self.0 | flags.0)
    }
}

/// What a script's first line says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// None: there is no header, and the script is judged by what it does.
    pub flags: Option<ScriptFlags>,
}

impl Header {
    /// Reads the first line of a script.
    ///
    /// # Errors
    /// The error line.
    pub fn of_script(text: &[u8]) -> std::result::Result<Header, Vec<u8>> {
        let Some(words) =
            header_words(text, ["ERR Invalid script shebang", "ERR Invalid engine in script shebang"])?
        else {
            return Ok(Header::default());
        };
        let (engine, options) = words.split_first().expect("a header begins with a word");
        if engine != b"#!lua" {
            return Err([b"ERR Unexpected engine in script shebang: ", &engine[..]].concat());
        }
        let mut flags = ScriptFlags::default();
        for word in options {
            let Some(names) = word.strip_prefix(b"flags=") else {
                return Err([b"ERR Unknown lua shebang option: ", &word[..]].concat());
            };
            for name in names.split(|byte| *byte == b',').filter(|_| !names.is_empty()) {
                let flag = ScriptFlags::named(name)
                    .ok_or_else(|| [b"ERR Unexpected flag in script shebang: ", name].concat())?;
                flags = flags.with(flag);
            }
        }
        Ok(Header { flags: Some(flags) })
    }
}

/// The name that a library's first line gives it.
///
/// # Errors
/// The error line.
pub fn library_name(text: &[u8]) -> std::result::Result<Vec<u8>, Vec<u8>> {
    let Some(words) = header_words(text, ["ERR Invalid library metadata"; 2])? else {
        return Err(b"ERR Missing library metadata".to_vec());
    };
    let (engine, options) = words.split_first().expect("a header begins with a word");
    let mut name: Option<&[u8]> = None;
    for word in options {
        match word.split_at_checked(5) {
            Some((b"name=", _)) if name.is_some() => {
                return Err(b"ERR Invalid metadata value, name argument was given multiple times".to_vec());
            }
            Some((b"name=", rest)) => name = Some(rest),
            _ => return Err([b"ERR Invalid metadata value given: ", &word[..]].concat()),
        }
    }
    let name = name.ok_or("ERR Library name was not given")?;
    if !is_valid_name(name) {
        return Err(
            b"ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long"
                .to_vec(),
        );
    }
    if !engine[2..].eq_ignore_ascii_case(b"lua") {
        return Err([b"ERR Engine '", &engine[2..], b"' not found"].concat());
    }
    Ok(name.to_vec())
}

fn is_valid_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// The words of the first line, which may be quoted as in redis-cli, the engine's first; None if it is no header. The
/// error lines are for one that does not end, and for quotes that do not.
fn header_words(
    text: &[u8],
    [unfinished, unbalanced]: [&str; 2],
) -> std::result::Result<Option<Vec<Vec<u8>>>, Vec<u8>> {
    if !text.starts_with(b"#!") {
        return Ok(None);
    }
    let end = text.iter().position(|byte| *byte == b'\n').ok_or(unfinished)?;
    wire::split_words(&text[..end]).map(Some).map_err(|_| unbalanced.into())
}

/// What `redis.register_function` was given: a name and a function, or a table of both and more.
pub(crate) fn registration(lua: &Lua, values: &MultiValue) -> Result<(Loaded, Function)> {
    let (loaded, function) = match (values.len(), values.front()) {
        (1, Some(Value::Table(table))) => of_table(lua, table)?,
        (1, _) => {
            return Err(raise::reply(
                "ERR calling redis.register_function with a single argument is only applicable to Lua table \
                 (representing named arguments).",
            ));
        }
        (2, _) => of_pair(lua, &values[0], &values[1])?,
        _ => return Err(raise::reply("ERR wrong number of arguments to redis.register_function")),
    };
    if !is_valid_name(&loaded.name) {
        return Err(raise::reply(
            "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one \
             character long",
        ));
    }
    Ok((loaded, function))
}

fn of_pair(lua: &Lua, name: &Value, function: &Value) -> Result<(Loaded, Function)> {
    let Some(name) = text_of(lua, name.clone())?.filter(|_| is_text(name)) else {
        return Err(raise::reply("ERR first argument to redis.register_function must be a string"));
    };
    let Value::Function(function) = function else {
        return Err(raise::reply("ERR second argument to redis.register_function must be a function"));
    };
    let loaded = Loaded { name, description: None, flags: ScriptFlags::default() };
    Ok((loaded, function.clone()))
}

/// Numbers count as strings, as everywhere in Lua.
fn is_text(value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Integer(_) | Value::Number(_))
}

fn text_of(lua: &Lua, value: Value) -> Result<Option<Vec<u8>>> {
    Ok(lua.coerce_string(value)?.map(|text| text.as_bytes().to_vec()))
}

fn of_table(lua: &Lua, table: &Table) -> Result<(Loaded, Function)> {
    let (mut name, mut function, mut description, mut flags) = (None, None, None, ScriptFlags::default());
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let Some(key) = text_of(lua, key.clone())?.filter(|_| is_text(&key)) else {
            return Err(raise::reply(
                "ERR named argument key given to redis.register_function is not a string",
            ));
        };
        match (&key[..], value) {
            (b"function_name", value) if is_text(&value) => name = text_of(lua, value)?,
            (b"function_name", _) => {
                return Err(raise::reply(
                    "ERR function_name argument given to redis.register_function must be a string",
                ));
            }
            (b"description", value) if is_text(&value) => description = text_of(lua, value)?,
            (b"description", _) => {
                return Err(raise::reply(
                    "ERR description argument given to redis.register_function must be a string",
                ));
            }
            (b"callback", Value::Function(callback)) => function = Some(callback),
            (b"callback", _) => {
                return Err(raise::reply(
                    "ERR callback argument given to redis.register_function must be a function",
                ));
            }
            (b"flags", Value::Table(names)) => flags = flags_of(&names)?,
            (b"flags", _) => {
                return Err(raise::reply(
                    "ERR flags argument to redis.register_function must be a table representing function flags",
                ));
            }
            _ => return Err(raise::reply("ERR unknown argument given to redis.register_function")),
        }
    }
    let name =
        name.ok_or_else(|| raise::reply("ERR redis.register_function must get a function name argument"))?;
    let function =
        function.ok_or_else(|| raise::reply("ERR redis.register_function must get a callback argument"))?;
    Ok((Loaded { name, description, flags }, function))
}

fn flags_of(names: &Table) -> Result<ScriptFlags> {
    let mut flags = ScriptFlags::default();
    for name in names.sequence_values::<Value>() {
        let flag = match name? {
            Value::String(name) => ScriptFlags::named(&name.as_bytes()),
            _ => None,
        };
        flags = flags.with(flag.ok_or_else(|| raise::reply("ERR unknown flag given"))?);
    }
    Ok(flags)
}
