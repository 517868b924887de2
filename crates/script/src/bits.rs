//! The table `bit`: operations on 32-bit integers.

use crate::arguments::Arguments;
use crate::gate;
use mlua::{Lua, MultiValue, Result, Table};

type Unary = fn(u32) -> u32;
type Binary = fn(u32, u32) -> u32;

/// The table.
pub(crate) fn table(lua: &Lua) -> Result<Table> {
    let bit = lua.create_table()?;
    let unary: [(&'static str, Unary); 3] = [("tobit", |x| x), ("bnot", |x| !x), ("bswap", u32::swap_bytes)];
    for (name, operation) in unary {
        let function = lua.create_function(move |lua, values: MultiValue| {
            Ok(signed(operation(bits(&Arguments::new(lua, &values), 1)?)))
        })?;
        bit.raw_set(name, function)?;
    }
    let folds: [(&'static str, Binary); 3] =
        [("band", |x, y| x & y), ("bor", |x, y| x | y), ("bxor", |x, y| x ^ y)];
    for (name, operation) in folds {
        let function = lua.create_function(move |lua, values: MultiValue| {
            let arguments = Arguments::new(lua, &values);
            let mut result = bits(&arguments, 1)?;
            // From the last one on, as errors show.
            for number in (2..=arguments.len()).rev() {
                result = operation(result, bits(&arguments, number)?);
            }
            Ok(signed(result))
        })?;
        bit.raw_set(name, gate::bounded(lua, function, "too many arguments")?)?;
    }
    let shifts: [(&'static str, Binary); 5] = [
        ("lshift", |x, n| x << n),
        ("rshift", |x, n| x >> n),
        ("arshift", |x, n| ((x as i32) >> n) as u32),
        ("rol", u32::rotate_left),
        ("ror", u32::rotate_right),
    ];
    for (name, operation) in shifts {
        let function = lua.create_function(move |lua, values: MultiValue| {
            let arguments = Arguments::new(lua, &values);
            let (value, count) = (bits(&arguments, 1)?, bits(&arguments, 2)?);
            Ok(signed(operation(value, count & 31)))
        })?;
        bit.raw_set(name, function)?;
    }
    bit.raw_set("tohex", lua.create_function(tohex)?)?;
    gate::few_in(lua, &bit, &["band", "bor", "bxor"])?;
    Ok(bit)
}

fn signed(bits: u32) -> i64 {
    i64::from(bits as i32)
}

/// A number's low 32 bits, rounded to the nearest integer first. Added to the constant, they are the last bits of the sum, as
/// in the library that Redis has; which bits of a number beyond 2^51 these are follows from that.
fn bits(arguments: &Arguments<'_>, number: usize) -> Result<u32> {
    const SHIFTED: f64 = 6_755_399_441_055_744.0;
    Ok((arguments.number(number)? + SHIFTED).to_bits() as u32)
}

fn tohex(lua: &Lua, values: MultiValue) -> Result<String> {
    let arguments = Arguments::new(lua, &values);
    let value = bits(&arguments, 1)?;
    let digits = match arguments.len() > 1 {
        true => bits(&arguments, 2)? as i32,
        false => 8,
    };
    let count = digits.unsigned_abs().min(8) as usize;
    let text = if digits < 0 { format!("{value:08X}") } else { format!("{value:08x}") };
    Ok(text[8 - count..].to_owned())
}
