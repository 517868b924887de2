//! The interpreter that crate `script` runs scripts in: Lua 5.1.5, compiled from the sources that the crate `lua-src` carries, with the few
//! lines changed in which Redis' differs and that scripts can tell (`build.rs` has them, each with its reason).
//!
//! There is nothing here to call: it is what `mlua` is linked with.

#![forbid(unsafe_code)]

use mlua_sys as _;
