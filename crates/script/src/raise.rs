//! Errors that functions of the interpreter raise, and where they happened.

use crate::limits::OUTPUT_BYTES_MAX;
use crate::redis::{SANDBOX, TAIL_CALL};
use mlua::{Error, Lua, Value};
use std::fmt;

/// An error raised by a function of this crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Raise {
    /// A table with the line in its field `err`.
    Reply(Vec<u8>),
    /// A string.
    Text(Vec<u8>),
    /// The end of the run, which no `pcall` stops.
    Stop(Stop),
}

/// Why a run ends without being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It begins again under other locks.
    Restart,
    /// Somebody wants it to end; this is the error.
    Killed(&'static str),
}

impl fmt::Display for Raise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Raise::Reply(line) | Raise::Text(line) => f.write_str(&String::from_utf8_lossy(line)),
            Raise::Stop(_) => f.write_str("stopped"),
        }
    }
}

impl std::error::Error for Raise {}

impl From<Raise> for Error {
    fn from(raise: Raise) -> Error {
        Error::external(raise)
    }
}

/// A string as an error, the place of the caller before it.
pub(crate) fn text(lua: &Lua, message: impl AsRef<[u8]>) -> Error {
    Raise::Text([place_of_caller(lua).as_bytes(), message.as_ref()].concat()).into()
}

/// A table as an error.
pub(crate) fn reply(line: impl Into<Vec<u8>>) -> Error {
    Raise::Reply(line.into()).into()
}

/// An argument that is not what it should be, in the words of Lua's own library.
pub(crate) fn bad_argument(lua: &Lua, number: usize, message: impl AsRef<[u8]>) -> Error {
    // The function that the script called is the gate before the one that runs.
    let called = lua.inspect_stack(1, |debug| {
        let names = debug.names();
        (names.name.map(|name| name.into_owned()), names.name_what == Some("method"))
    });
    let (name, is_method) = called.unwrap_or_default();
    let name = name.unwrap_or_else(|| "?".to_owned());
    let begin = match number {
        1 if is_method => format!("calling '{name}' on bad self ("),
        number => format!("bad argument #{} to '{name}' (", number.saturating_sub(usize::from(is_method))),
    };
    text(lua, [begin.as_bytes(), message.as_ref(), b")"].concat())
}

/// `name:line: ` of the Lua function that called the running one; empty if that was no Lua function.
fn place_of_caller(lua: &Lua) -> String {
    let at = |level| {
        lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let is_inner = source.source.is_some_and(|name| name == SANDBOX || name == TAIL_CALL);
            let name = source.short_src.map(|name| name.into_owned()).unwrap_or_default();
            let place = debug.current_line().map(|line| format!("{name}:{line}: ")).unwrap_or_default();
            (is_inner, place)
        })
    };
    // A gate, and at times the sandbox, stands between a script and the functions of the host.
    let outer = (2..).map_while(at).find(|(is_inner, _)| !is_inner);
    outer.map(|(_, place)| place).unwrap_or_default()
}

/// Refuses to write more of a value than the interpreter itself could hold: one that holds a table twice at each of many
/// levels has no end.
pub(crate) fn check_output(bytes: usize) -> mlua::Result<()> {
    match bytes > OUTPUT_BYTES_MAX {
        true => Err(too_large()),
        false => Ok(()),
    }
}

/// The error of what is more than the interpreter could hold.
pub(crate) fn too_large() -> Error {
    Error::MemoryError("not enough memory".into())
}

/// What an error comes down to.
pub(crate) fn root(error: &Error) -> Raise {
    match error {
        Error::CallbackError { cause, .. } | Error::WithContext { cause, .. } => root(cause),
        Error::ExternalError(inner) => match inner.downcast_ref::<Raise>() {
            Some(raise) => raise.clone(),
            None => Raise::Text(inner.to_string().into_bytes()),
        },
        Error::MemoryError(_) => Raise::Text(b"not enough memory".to_vec()),
        Error::RuntimeError(message) => Raise::Text(message.clone().into_bytes()),
        Error::SyntaxError { message, .. } => Raise::Text(message.clone().into_bytes()),
        other => Raise::Text(other.to_string().into_bytes()),
    }
}

/// A value raised as an error, with errors of this crate in the form that scripts see: a table, or a string.
/// None: the run has to stop.
pub(crate) fn plain(lua: &Lua, value: Value) -> mlua::Result<Option<Value>> {
    let Value::Error(error) = value else { return Ok(Some(value)) };
    Ok(match root(&error) {
        Raise::Reply(line) => Some(Value::Table(error_table(lua, &line)?)),
        Raise::Text(line) => Some(Value::String(lua.create_string(line)?)),
        Raise::Stop(_) => None,
    })
}

/// The table that stands for an error of a function of `redis`.
pub(crate) fn error_table(lua: &Lua, line: &[u8]) -> mlua::Result<mlua::Table> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set("err", lua.create_string(line)?)?;
    Ok(table)
}
