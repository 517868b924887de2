//! Positions on Earth: the rows of Redis' geo group, and the handlers that add and
//! look up positions. Searching is in `search`.
//!
//! A geo key is a sorted set whose scores are geohashes.
//!
//! Thread rule: handlers run on any worker, with their keys' slots locked.

mod search;

use crate::args::Args;
use crate::error::{Error, Result};
use crate::key_use::{Begin, Find, KeySpec, OVERWRITES, READS};
use crate::row::Handler::{Read, Write};
use crate::row::{Flags, Group, Handler, Keys, Outcome, Row};
use crate::zset::add::{Presence, Rules, add};
use keyspace::{Edit, View};
use smallvec::SmallVec;
use value::geo::Position;
use value::number::parse_f64;
use value::zset::{Zset, ZsetRef};
use wire::{Protocol, Reply};

const SLOW: Flags = Flags::empty();

const SEARCH_COST: &str = "O(N+log(M)), N being the positions in the cells of the grid around the area and M \
                           those of the key";

/// A key that a word names.
const fn behind(word: &'static str, from: i64) -> KeySpec {
    KeySpec {
        begin: Begin::Keyword(word, from),
        find: Find::Range { last: 0, step: 1, limit: 0 },
        flags: OVERWRITES,
    }
}

/// The geo group.
pub const ROWS: &[Row] = &[
    row("geoadd", -5, Write(geoadd), Flags::DENYOOM)
        .complexity("O(log(N)) for each position added, N being the number of positions")
        .syntax("key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]")
        .summary("Adds members with their positions, or gives members other positions."),
    row("geodist", -4, Read(geodist), SLOW)
        .complexity("O(1)")
        .syntax("key member1 member2 [M | KM | FT | MI]")
        .summary("Tells the distance between two members."),
    row("geohash", -2, Read(geohash), SLOW)
        .complexity("O(1) for each member")
        .syntax("key [member [member ...]]")
        .summary("Replies with the positions of members as geohash texts."),
    row("geopos", -2, Read(geopos), SLOW)
        .complexity("O(1) for each member")
        .syntax("key [member [member ...]]")
        .summary("Replies with the longitudes and latitudes of members."),
    row("georadius", -6, Write(search::georadius), Flags::DENYOOM.union(Flags::MOVABLEKEYS))
        .keys(Keys::Movable(search::georadius_keys))
        .key_specs(&[KeySpec::at(1, READS), behind("STORE", 6), behind("STOREDIST", 6)])
        .complexity(SEARCH_COST)
        .syntax(
            "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] \
             [COUNT count [ANY]] [ASC | DESC] [STORE key | STOREDIST key]",
        )
        .summary("Finds the members within a distance of a position, and may store them."),
    row("georadius_ro", -6, Read(search::georadius_ro), SLOW)
        .since("3.2.10")
        .complexity(SEARCH_COST)
        .syntax(
            "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] \
             [COUNT count [ANY]] [ASC | DESC]",
        )
        .summary("Finds the members within a distance of a position."),
    row("georadiusbymember", -5, Write(search::georadiusbymember), Flags::DENYOOM.union(Flags::MOVABLEKEYS))
        .keys(Keys::Movable(search::georadiusbymember_keys))
        .key_specs(&[KeySpec::at(1, READS), behind("STORE", 5), behind("STOREDIST", 5)])
        .complexity(SEARCH_COST)
        .syntax(
            "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] \
             [ASC | DESC] [STORE key | STOREDIST key]",
        )
        .summary("Finds the members within a distance of a member, and may store them."),
    row("georadiusbymember_ro", -5, Read(search::georadiusbymember_ro), SLOW)
        .since("3.2.10")
        .complexity(SEARCH_COST)
        .syntax(
            "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] \
             [ASC | DESC]",
        )
        .summary("Finds the members within a distance of a member."),
    row("geosearch", -7, Read(search::geosearch), SLOW)
        .since("6.2.0")
        .complexity(SEARCH_COST)
        .syntax(
            "key <FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS radius <M | KM | FT | MI> | \
             BYBOX width height <M | KM | FT | MI>> [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] \
             [WITHHASH]",
        )
        .summary("Finds the members in a circle or a rectangle."),
    row("geosearchstore", -8, Write(search::geosearchstore), Flags::DENYOOM)
        .keys(Keys::TWO)
        .key_flags(&[OVERWRITES, READS])
        .since("6.2.0")
        .complexity(SEARCH_COST)
        .syntax(
            "destination source <FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS radius <M | KM \
             | FT | MI> | BYBOX width height <M | KM | FT | MI>> [ASC | DESC] [COUNT count [ANY]] [STOREDIST]",
        )
        .summary("Stores the members in a circle or a rectangle."),
];

/// A row of the group; its one key is argument 1 unless it says otherwise.
const fn row(name: &'static str, arity: i32, handler: Handler, flags: Flags) -> Row {
    crate::row::row(name, arity, handler).flags(flags).keys(Keys::FIRST).group(Group::Geo).since("3.2.0")
}

/// Metres per unit of a distance.
fn meters_per_unit(word: &[u8]) -> Result<f64> {
    const UNITS: [(&[u8], f64); 4] = [(b"m", 1.0), (b"km", 1000.0), (b"ft", 0.3048), (b"mi", 1609.34)];
    let unit = UNITS.iter().find(|(name, _)| word.eq_ignore_ascii_case(name));
    let text = "ERR unsupported unit provided. please use M, KM, FT, MI";
    unit.map(|(_, meters)| *meters).ok_or(Error::text(text))
}

/// The position that words `at` and `at + 1` name.
fn position(args: &Args<'_>, at: usize) -> Result<Position> {
    let degrees = |at| parse_f64(args.bytes(at)).ok_or(Error::NotFloat);
    let position = Position { longitude: degrees(at)?, latitude: degrees(at + 1)? };
    if position.is_valid() {
        return Ok(position);
    }
    let Position { longitude, latitude } = position;
    Err(Error::line(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}")))
}

/// The position of a member.
fn member_position(zset: ZsetRef<'_>, member: &[u8]) -> Option<Position> {
    zset.score(member).map(Position::from_score)
}

/// Replies with a distance: four digits behind the point, a half rounded to even.
fn reply_distance(reply: &mut Reply<'_>, distance: f64) {
    const SCALE: f64 = 10_000.0;
    let scaled = (distance * SCALE).round_ties_even() as u64;
    let text = format!("{}.{:04}", scaled / SCALE as u64, scaled % SCALE as u64);
    reply.bulk(text.as_bytes());
}

/// Replies with a coordinate: up to 17 digits behind the point, without zeros at the end.
fn reply_coordinate(reply: &mut Reply<'_>, degrees: f64) {
    let text = format!("{degrees:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let text = if text == "-0" { b"0" } else { text.as_bytes() };
    match reply.protocol() {
        Protocol::Resp2 => reply.bulk(text),
        Protocol::Resp3 => {
            reply.raw(b",");
            reply.raw(text);
            reply.raw(b"\r\n");
        }
    }
}

/// Replies with both coordinates.
fn reply_position(reply: &mut Reply<'_>, position: Position) {
    reply.array(2);
    reply_coordinate(reply, position.longitude);
    reply_coordinate(reply, position.latitude);
}

/// GEOADD key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]
fn geoadd(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    let (mut nx, mut xx, mut ch) = (false, false, false);
    let mut first = 2;
    while first < args.len() {
        match () {
            () if args.is(first, "nx") => nx = true,
            () if args.is(first, "xx") => xx = true,
            () if args.is(first, "ch") => ch = true,
            () => break,
        }
        first += 1;
    }
    if !(args.len() - first).is_multiple_of(3) || nx && xx {
        return Err(Error::Syntax);
    }
    let mut members: SmallVec<[(&[u8], f64); 8]> = SmallVec::new();
    for at in (first..args.len()).step_by(3) {
        members.push((args.bytes(at + 2), position(args, at)?.to_score()));
    }
    if members.is_empty() {
        return Err(Error::Syntax);
    }
    let presence = match (nx, xx) {
        (true, _) => Presence::Absent,
        (_, true) => Presence::Present,
        _ => Presence::Any,
    };
    let rules = Rules { presence, counts_changed: ch, ..Rules::default() };
    add(edit, args, rules, &members, reply)
}

/// GEODIST key member1 member2 [M | KM | FT | MI]
fn geodist(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let unit = match args.len() {
        4 => 1.0,
        5 => meters_per_unit(args.bytes(4))?,
        _ => return Err(Error::Syntax),
    };
    let zset = view.read::<Zset>(&args.key(1))?;
    let position = |at| zset.and_then(|zset| member_position(zset, args.bytes(at)));
    match position(2).zip(position(3)) {
        Some((from, to)) => reply_distance(reply, from.distance_to(to) / unit),
        None => reply.null(),
    }
    Ok(())
}

/// GEOHASH key [member [member ...]]
fn geohash(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let zset = view.read::<Zset>(&args.key(1))?;
    reply.array(args.len() - 2);
    for at in 2..args.len() {
        match zset.and_then(|zset| member_position(zset, args.bytes(at))) {
            Some(position) => reply.bulk(&position.to_text()),
            None => reply.null(),
        }
    }
    Ok(())
}

/// GEOPOS key [member [member ...]]
fn geopos(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let zset = view.read::<Zset>(&args.key(1))?;
    reply.array(args.len() - 2);
    for at in 2..args.len() {
        match zset.and_then(|zset| member_position(zset, args.bytes(at))) {
            Some(position) => reply_position(reply, position),
            None => reply.null_array(),
        }
    }
    Ok(())
}
