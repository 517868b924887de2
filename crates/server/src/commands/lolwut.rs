//! LOLWUT: a picture. A tarn is a lake in the mountains.

use super::row;
use crate::dispatch::Context;
use crate::dispatch::handlers::ServerHandler;
use command::parse::int;
use command::version::REDIS_VERSION;
use command::{Flags, Group, Reach, Result, Row, Shows};
use sys::Prng;
use wire::Reply;

/// Columns of the picture.
const WIDTH: usize = 66;
/// Height of the tallest mountain.
const HEIGHT: usize = 9;

/// LOLWUT.
pub const ROWS: &[Row<ServerHandler>] =
    &[row("lolwut", -1, Reach::Around, Flags::READONLY.union(Flags::FAST), lolwut)
        .shows(Shows::Nothing)
        .group(Group::Server)
        .since("5.0.0")
        .syntax("[VERSION version]")
        .summary("Draws a picture and tells the version.")];

/// LOLWUT [VERSION version]
fn lolwut(context: &mut Context<'_, '_>, reply: &mut Reply<'_>) -> Result<()> {
    let request = context.request;
    if request.len() >= 3 && request.arg(1).eq_ignore_ascii_case(b"version") {
        // There is one picture for all versions, of one size. In Redis these two are drawn as large as is asked for, by so many numbers.
        let sizes = match int(request.arg(2))? {
            5 => 3,
            6 => 2,
            _ => 0,
        };
        for word in request.iter().skip(3).take(sizes) {
            int(word)?;
        }
    }
    let text = format!(
        "{}\nTarn ver. {} (Redis ver. {REDIS_VERSION})\n",
        picture(&mut Prng::from_entropy()),
        env!("CARGO_PKG_VERSION")
    );
    reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// Mountains, and below the shore their reflection in rippled water.
fn picture(prng: &mut Prng) -> String {
    let heights = skyline(prng);
    let mut text = String::new();
    let mut add = |line: String| {
        text.push_str(line.trim_end());
        text.push('\n');
    };
    for level in (1..=HEIGHT).rev() {
        add((0..WIDTH).map(|column| rock(&heights, column, level)).collect());
    }
    add("~".repeat(WIDTH));
    for level in 1..=HEIGHT / 2 {
        let mirrored = |column: usize| match heights[column] >= 2 * level {
            _ if prng.below(6) == 0 => '~',
            true => '`',
            false => ' ',
        };
        add((0..WIDTH).map(mirrored).collect());
    }
    text
}

fn rock(heights: &[usize], column: usize, level: usize) -> char {
    let (here, before) = (heights[column], if column == 0 { 0 } else { heights[column - 1] });
    let behind = heights.get(column + 1).copied().unwrap_or(0);
    match level {
        level if level > here => ' ',
        level if level < here => {
            if level + 2 > HEIGHT {
                '*'
            } else {
                '.'
            }
        }
        _ if before < here && behind < here => '^',
        _ if before < here => '/',
        _ if behind < here => '\\',
        _ => '_',
    }
}

/// The height of each column: a walk that rises and falls in slopes.
fn skyline(prng: &mut Prng) -> Vec<usize> {
    let mut height = 2;
    let mut rises = true;
    (0..WIDTH)
        .map(|_| {
            if height >= HEIGHT || height <= 1 || prng.below(4) == 0 {
                rises = height <= 1 || height < HEIGHT && !rises;
            }
            height = if rises { height + 1 } else { height - 1 };
            height.clamp(1, HEIGHT)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picture_keeps_its_frame() {
        for seed in 0..200 {
            let picture = picture(&mut Prng::from_seed(seed));
            assert_eq!(picture.lines().count(), HEIGHT + 1 + HEIGHT / 2);
            assert!(picture.lines().all(|line| line.len() <= WIDTH));
        }
    }
}
