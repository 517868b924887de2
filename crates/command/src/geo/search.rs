//! Searching positions: GEOSEARCH, GEOSEARCHSTORE, and GEORADIUS in its four forms.
//!
//! All are one search. A [`Form`] says how a command names the centre, the area and the
//! destination; options and the search itself are the same.
//!
//! Thread rule: as for all handlers.

use super::{member_position, meters_per_unit, position, reply_distance, reply_position};
use crate::args::Args;
use crate::error::{Error, Result};
use crate::parse::int;
use crate::row::Outcome;
use crate::zset::store;
use keyspace::{Edit, View};
use value::geo::{Area, Position, Shape};
use value::number::parse_f64;
use value::text::until_zero;
use value::zset::{ScoreBound, ScoreRange, Zset, ZsetRef};
use wire::{Reply, Request};

/// How a command is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// GEORADIUS: key, longitude, latitude, radius, unit.
    AroundPosition,
    /// GEORADIUSBYMEMBER: key, member, radius, unit.
    AroundMember,
    /// GEOSEARCH: key; the rest are options.
    Search,
    /// GEOSEARCHSTORE: destination, key; the rest are options.
    SearchStore,
}

impl Form {
    /// Where the options begin.
    const fn fixed_words(self) -> usize {
        match self {
            Form::AroundPosition => 6,
            Form::AroundMember => 5,
            Form::Search => 2,
            Form::SearchStore => 3,
        }
    }

    const fn is_search(self) -> bool {
        matches!(self, Form::Search | Form::SearchStore)
    }
}

/// Whether GEORADIUS may store what it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storing {
    Allowed,
    Forbidden,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    AsFound,
    Nearest,
    Farthest,
}

/// A radius or a rectangle, in the unit of the request.
#[derive(Clone, Copy, Debug)]
struct Extent {
    shape: Shape,
    meters_per_unit: f64,
}

/// A request, parsed.
#[derive(Debug)]
struct Query {
    /// None: the key is not there, and so is the member that was to be the centre.
    centre: Option<Position>,
    extent: Option<Extent>,
    order: Order,
    /// 0: all.
    count: usize,
    is_any: bool,
    with_distance: bool,
    with_hash: bool,
    with_position: bool,
    /// The position of the key to store to, and whether distances become the scores.
    destination: Option<usize>,
    stores_distance: bool,
}

/// What is read of the options of a search so far.
struct Parser<'p, 'a> {
    args: &'p Args<'a>,
    zset: Option<ZsetRef<'p>>,
    form: Form,
    storing: Storing,
    next: usize,
    has_centre: Option<&'static str>,
    query: Query,
}

impl Parser<'_, '_> {
    /// Consumes an option of this name that has so many words behind it; where the first of them is.
    fn take(&mut self, name: &str, operands: usize) -> Option<usize> {
        let taken = self.args.is(self.next, name) && self.next + operands < self.args.len();
        taken.then(|| {
            let first = self.next + 1;
            self.next += 1 + operands;
            first
        })
    }

    /// Consumes one option.
    fn option(&mut self) -> Result<()> {
        if self.take("WITHDIST", 0).is_some() {
            self.query.with_distance = true;
        } else if self.take("WITHHASH", 0).is_some() {
            self.query.with_hash = true;
        } else if self.take("WITHCOORD", 0).is_some() {
            self.query.with_position = true;
        } else if self.take("ANY", 0).is_some() {
            self.query.is_any = true;
        } else if self.take("ASC", 0).is_some() {
            self.query.order = Order::Nearest;
        } else if self.take("DESC", 0).is_some() {
            self.query.order = Order::Farthest;
        } else if let Some(at) = self.take("COUNT", 1) {
            let count = usize::try_from(int(self.args.bytes(at))?).ok().filter(|count| *count > 0);
            self.query.count = count.ok_or(Error::text("ERR COUNT must be > 0"))?;
        } else if self.form.is_search() {
            return self.search_option();
        } else if self.storing == Storing::Allowed {
            return self.store_option();
        } else {
            return Err(Error::Syntax);
        }
        Ok(())
    }

    /// STORE and STOREDIST of GEORADIUS.
    fn store_option(&mut self) -> Result<()> {
        if let Some(at) = self.take("STORE", 1) {
            (self.query.destination, self.query.stores_distance) = (Some(at), false);
        } else if let Some(at) = self.take("STOREDIST", 1) {
            (self.query.destination, self.query.stores_distance) = (Some(at), true);
        } else {
            return Err(Error::Syntax);
        }
        Ok(())
    }

    /// The options that GEOSEARCH alone has.
    fn search_option(&mut self) -> Result<()> {
        const MEMBER: &str = "FROMMEMBER";
        const POSITION: &str = "FROMLONLAT";
        let is_circle = self.query.extent.map(|extent| matches!(extent.shape, Shape::Circle { .. }));
        if self.has_centre != Some(POSITION)
            && let Some(at) = self.take(MEMBER, 1)
        {
            self.has_centre = Some(MEMBER);
            if let Some(zset) = self.zset {
                self.query.centre = Some(centre_member(zset, self.args.bytes(at))?);
            }
        } else if self.has_centre != Some(MEMBER)
            && let Some(at) = self.take(POSITION, 2)
        {
            self.query.centre = Some(position(self.args, at)?);
            self.has_centre = Some(POSITION);
        } else if is_circle != Some(false)
            && let Some(at) = self.take("BYRADIUS", 2)
        {
            self.query.extent = Some(circle(self.args, at)?);
        } else if is_circle != Some(true)
            && let Some(at) = self.take("BYBOX", 3)
        {
            self.query.extent = Some(rectangle(self.args, at)?);
        } else if self.form == Form::SearchStore && self.take("STOREDIST", 0).is_some() {
            self.query.stores_distance = true;
        } else {
            return Err(Error::Syntax);
        }
        Ok(())
    }
}

impl Query {
    fn parse(args: &Args<'_>, zset: Option<ZsetRef<'_>>, form: Form, storing: Storing) -> Result<Query> {
        let mut query = Query {
            centre: None,
            extent: None,
            order: Order::AsFound,
            count: 0,
            is_any: false,
            with_distance: false,
            with_hash: false,
            with_position: false,
            destination: (form == Form::SearchStore).then_some(1),
            stores_distance: false,
        };
        match (form, zset) {
            (Form::AroundPosition, _) => {
                query.centre = Some(position(args, 2)?);
                query.extent = Some(circle(args, 4)?);
            }
            (Form::AroundMember, Some(zset)) => {
                query.centre = Some(centre_member(zset, args.bytes(2))?);
                query.extent = Some(circle(args, 3)?);
            }
            // Of a key that is not there not even the radius is looked at.
            (Form::AroundMember, None) | (Form::Search | Form::SearchStore, _) => {}
        }
        let next = form.fixed_words();
        let mut parser = Parser { args, zset, form, storing, next, has_centre: None, query };
        while parser.next < args.len() {
            parser.option()?;
        }
        let has_centre = parser.has_centre.is_some() || !form.is_search();
        let mut query = parser.query;
        query.check(args, form, has_centre)?;
        if query.count > 0 && query.order == Order::AsFound && !query.is_any {
            query.order = Order::Nearest;
        }
        Ok(query)
    }

    /// Refuses what does not go together.
    fn check(&self, args: &Args<'_>, form: Form, has_centre: bool) -> Result<()> {
        if self.destination.is_some() && (self.with_distance || self.with_hash || self.with_position) {
            let what = if form.is_search() { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            return Err(Error::line(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        let name = until_zero(args.bytes(0));
        if !has_centre {
            let text = "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for ";
            return Err(Error::quoting(text, name, ""));
        }
        if form.is_search() && self.extent.is_none() {
            let text = "ERR exactly one of BYRADIUS and BYBOX can be specified for ";
            return Err(Error::quoting(text, name, ""));
        }
        if self.is_any && self.count == 0 {
            return Err(Error::text("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }

    /// What lies in the area, in the order asked for.
    fn find(&self, zset: ZsetRef<'_>) -> Vec<Found> {
        let (Some(centre), Some(Extent { shape, .. })) = (self.centre, self.extent) else {
            return Vec::new();
        };
        let area = Area { centre, shape };
        let enough = if self.is_any { self.count } else { usize::MAX };
        let mut found = Vec::new();
        for (first, end) in area.cells() {
            let range = ScoreRange {
                min: ScoreBound { score: first, is_exclusive: false },
                max: ScoreBound { score: end, is_exclusive: true },
            };
            for (member, score) in zset.iter(zset.ranks_by_score(&range)) {
                if found.len() >= enough {
                    return self.sorted(found);
                }
                let position = Position::from_score(score);
                if let Some(distance) = area.distance_to(position) {
                    found.push(Found { member: member.to_vec(), score, position, distance });
                }
            }
        }
        self.sorted(found)
    }

    fn sorted(&self, mut found: Vec<Found>) -> Vec<Found> {
        match self.order {
            Order::AsFound => {}
            Order::Nearest => found.sort_by(|left, right| left.distance.total_cmp(&right.distance)),
            Order::Farthest => found.sort_by(|left, right| right.distance.total_cmp(&left.distance)),
        }
        if self.count > 0 {
            found.truncate(self.count);
        }
        found
    }

    /// A distance in the unit of the request.
    fn in_unit(&self, distance: f64) -> f64 {
        distance / self.extent.map_or(1.0, |extent| extent.meters_per_unit)
    }

    fn reply(&self, found: &[Found], reply: &mut Reply<'_>) {
        let extras = [self.with_distance, self.with_hash, self.with_position];
        let extras = extras.iter().filter(|is_wanted| **is_wanted).count();
        reply.array(found.len());
        for item in found {
            if extras > 0 {
                reply.array(1 + extras);
            }
            reply.bulk(&item.member);
            if self.with_distance {
                reply_distance(reply, self.in_unit(item.distance));
            }
            if self.with_hash {
                reply.int(item.score as i64);
            }
            if self.with_position {
                reply_position(reply, item.position);
            }
        }
    }
}

/// A member in the area.
struct Found {
    member: Vec<u8>,
    score: f64,
    position: Position,
    distance: f64,
}

fn centre_member(zset: ZsetRef<'_>, member: &[u8]) -> Result<Position> {
    member_position(zset, member).ok_or(Error::text("ERR could not decode requested zset member"))
}

/// The radius and its unit at `at`.
fn circle(args: &Args<'_>, at: usize) -> Result<Extent> {
    let radius = parse_f64(args.bytes(at)).ok_or(Error::text("ERR need numeric radius"))?;
    if radius < 0.0 {
        return Err(Error::text("ERR radius cannot be negative"));
    }
    let meters_per_unit = meters_per_unit(args.bytes(at + 1))?;
    Ok(Extent { shape: Shape::Circle { radius: radius * meters_per_unit }, meters_per_unit })
}

/// The width, the height and their unit at `at`.
fn rectangle(args: &Args<'_>, at: usize) -> Result<Extent> {
    let width = parse_f64(args.bytes(at)).ok_or(Error::text("ERR need numeric width"))?;
    let height = parse_f64(args.bytes(at + 1)).ok_or(Error::text("ERR need numeric height"))?;
    if width < 0.0 || height < 0.0 {
        return Err(Error::text("ERR height or width cannot be negative"));
    }
    let meters_per_unit = meters_per_unit(args.bytes(at + 2))?;
    let shape = Shape::Rectangle { width: width * meters_per_unit, height: height * meters_per_unit };
    Ok(Extent { shape, meters_per_unit })
}

fn read(view: &View<'_>, args: &Args<'_>, form: Form, reply: &mut Reply<'_>) -> Result<()> {
    let zset = view.read::<Zset>(&args.key(1))?;
    let query = Query::parse(args, zset, form, Storing::Forbidden)?;
    let found = zset.map_or(Vec::new(), |zset| query.find(zset));
    query.reply(&found, reply);
    Ok(())
}

fn read_or_store(edit: &mut Edit<'_>, args: &Args<'_>, form: Form, reply: &mut Reply<'_>) -> Result<Outcome> {
    let source = args.key(if form == Form::SearchStore { 2 } else { 1 });
    let zset = edit.read_as_reader::<Zset>(&source)?;
    let query = Query::parse(args, zset, form, Storing::Allowed)?;
    let found = zset.map_or(Vec::new(), |zset| query.find(zset));
    let Some(destination) = query.destination else {
        query.reply(&found, reply);
        return Ok(Outcome::Unchanged);
    };
    reply.int(found.len() as i64);
    let members = found.into_iter().map(|item| {
        let score = if query.stores_distance { query.in_unit(item.distance) } else { item.score };
        (item.member, score)
    });
    let zset = Zset::from_members(members.collect(), &args.settings.thresholds());
    let event = if form.is_search() { "geosearchstore" } else { "georadiusstore" };
    let is_changed = store(edit, args, destination, zset, event);
    Ok(if is_changed { Outcome::Changed } else { Outcome::Unchanged })
}

/// GEOSEARCH key <FROMMEMBER ... | FROMLONLAT ...> <BYRADIUS ... | BYBOX ...> [options]
pub(super) fn geosearch(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    read(view, args, Form::Search, reply)
}

/// GEORADIUS_RO key longitude latitude radius unit [options]
pub(super) fn georadius_ro(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    read(view, args, Form::AroundPosition, reply)
}

/// GEORADIUSBYMEMBER_RO key member radius unit [options]
pub(super) fn georadiusbymember_ro(view: &View<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<()> {
    read(view, args, Form::AroundMember, reply)
}

/// GEOSEARCHSTORE destination source <FROMMEMBER ... | FROMLONLAT ...> <BYRADIUS ... | BYBOX ...> [options]
pub(super) fn geosearchstore(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    read_or_store(edit, args, Form::SearchStore, reply)
}

/// GEORADIUS key longitude latitude radius unit [options] [STORE key | STOREDIST key]
pub(super) fn georadius(edit: &mut Edit<'_>, args: &Args<'_>, reply: &mut Reply<'_>) -> Result<Outcome> {
    read_or_store(edit, args, Form::AroundPosition, reply)
}

/// GEORADIUSBYMEMBER key member radius unit [options] [STORE key | STOREDIST key]
pub(super) fn georadiusbymember(
    edit: &mut Edit<'_>,
    args: &Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<Outcome> {
    read_or_store(edit, args, Form::AroundMember, reply)
}

/// The keys of GEORADIUS.
pub(super) fn georadius_keys(request: &Request<'_>, positions: &mut Vec<usize>) {
    keys_with_destination(request, Form::AroundPosition, positions);
}

/// The keys of GEORADIUSBYMEMBER.
pub(super) fn georadiusbymember_keys(request: &Request<'_>, positions: &mut Vec<usize>) {
    keys_with_destination(request, Form::AroundMember, positions);
}

/// Key 1, and the last that STORE or STOREDIST names.
fn keys_with_destination(request: &Request<'_>, form: Form, positions: &mut Vec<usize>) {
    positions.push(1);
    let mut destination = None;
    let mut at = form.fixed_words();
    while let Some(word) = request.get(at) {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        let stores = is("STORE") || is("STOREDIST");
        if stores && at + 1 < request.len() {
            destination = Some(at + 1);
        }
        at += if stores || is("COUNT") { 2 } else { 1 };
    }
    positions.extend(destination);
}
