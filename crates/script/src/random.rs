//! `math.random` and `math.randomseed`: the generator of POSIX' `lrand48`, as in Redis, so that a script that sets a seed
//! gets the same numbers everywhere.

use crate::arguments::Arguments;
use crate::gate;
use mlua::{Lua, MultiValue, Result, Table};
use std::cell::Cell;
use std::rc::Rc;

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const MASK: u64 = (1 << 48) - 1;
/// The low bits of the state after a seed is set.
const SEED_LOW: u64 = 0x330E;

fn seeded(seed: i64) -> u64 {
    ((seed as u64 & 0xffff_ffff) << 16) | SEED_LOW
}

/// Puts both functions into `math`.
pub(crate) fn install(lua: &Lua, math: &Table) -> Result<()> {
    let state = Rc::new(Cell::new(seeded(0)));
    let seed_state = state.clone();
    let next = move || {
        state.set(state.get().wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & MASK);
        (state.get() >> 17) as i64
    };
    let random = lua.create_function(move |lua, values: MultiValue| {
        let arguments = Arguments::new(lua, &values);
        let fraction = (next() % i64::from(i32::MAX)) as f64 / f64::from(i32::MAX);
        let int = |number| arguments.integer(number).map(|value| value as i32);
        let (low, high) = match arguments.len() {
            0 => return Ok(fraction),
            1 => (1, int(1)?),
            2 => (int(1)?, int(2)?),
            _ => return Err(crate::raise::text(lua, "wrong number of arguments")),
        };
        if low > high {
            return Err(arguments.bad(arguments.len(), "interval is empty"));
        }
        let span = high.wrapping_sub(low).wrapping_add(1);
        Ok((fraction * f64::from(span)).floor() + f64::from(low))
    })?;
    math.raw_set("random", gate::few(lua, random)?)?;
    let randomseed = lua.create_function(move |lua, values: MultiValue| {
        seed_state.set(seeded(Arguments::new(lua, &values).integer(1)?));
        Ok(())
    })?;
    math.raw_set("randomseed", gate::few(lua, randomseed)?)
}
