//! Stub.
use mlua::{Lua, Result, Table};
pub(crate) fn table(lua: &Lua) -> Result<Table> { lua.create_table() }
