//! Looks back: what a directory held where its stream was at an offset. For a server that has to give up what it wrote behind that.

use super::survey::Survey;
use super::{Case, Recovery};
use crate::block::begins_record;
use crate::reader::{Blocks, Found, Link, Segment};
use crate::{Lsn, Refusal, ReplicationId, Stream};
use std::path::Path;
use sys::UnixMs;
use sys::file::Fs;

/// See [`crate::Log::look_back`]; the log is durable up to `end`.
pub(crate) fn look_back(
    fs: &Fs,
    dir: &Path,
    place: (Option<ReplicationId>, u64),
    end: Lsn,
) -> Result<Option<(Recovery, Stream)>, Refusal> {
    let survey = Survey::of(fs, dir)?;
    if survey.bad_header.is_some() || survey.stranger.is_some() {
        return Ok(None);
    }
    // Where it was no stream, other data took the place of all: the log does not lead over that.
    let barrier = survey.chain.iter().rposition(|link| link.header.stream.is_none());
    let (first, floor) = barrier.map_or((0, Lsn::ZERO), |at| (at + 1, survey.chain[at].header.start));
    let Some(stream) = find(fs, &survey.chain[first..], place, end)? else { return Ok(None) };
    let cut = stream.at;
    let may_begin = |start: Lsn, end: Lsn| start >= floor && end <= cut && survey.reaches(start);
    let base = survey.checkpoints.iter().rposition(|one| may_begin(one.start(), one.end()));
    if base.is_none() && !(barrier.is_none() && survey.reaches(Lsn::ZERO)) {
        return Ok(None);
    }
    let links = survey.chain.clone().into();
    let moment = base.map_or(UnixMs(0), |index| survey.checkpoints[index].time());
    let recovery = Recovery {
        fs: fs.clone(),
        dir: dir.to_owned(),
        lock: None,
        survey,
        case: Case::Whole,
        base,
        links,
        end: cut,
        stream: Some(stream),
        is_beside_clients: false,
        last_time: moment,
        moment,
    };
    Ok(Some((recovery, stream)))
}

/// The stream where the last record ends that is of this name, if one is given, and not behind this offset. None: that is in none of these segments.
fn find(
    fs: &Fs,
    links: &[Link],
    (id, offset): (Option<ReplicationId>, u64),
    end: Lsn,
) -> Result<Option<Stream>, Refusal> {
    let is_named = |link: &Link| link.header.stream.is_some_and(|stream| id.is_none_or(|id| stream.id == id));
    let is_before =
        |link: &Link| is_named(link) && link.header.stream.is_some_and(|stream| stream.offset <= offset);
    let Some(last) = links.iter().rposition(is_before) else { return Ok(None) };
    let Some(first) = begins_before(fs, links, last)? else { return Ok(None) };
    let Some(mut stream) = links[first].header.stream.filter(|_| is_named(&links[first])) else {
        return Ok(None);
    };
    let other = links[last..].iter().find(|link| !is_named(link)).map(|link| link.header.start);
    let limit = other.map_or(end, |start| start.min(end));
    let mut blocks = Blocks::new(fs, links[first..].into(), stream.at, limit);
    while let Some(block) = blocks.next_block()? {
        for record in block.records() {
            let bytes = record.stream.len() as u64;
            if record.end() > limit || stream.offset + bytes > offset {
                return Ok(Some(stream));
            }
            let selected = (bytes > 0).then_some(record.ends_in);
            stream = stream.moved(record.end(), bytes, selected);
        }
    }
    Ok(Some(stream))
}

/// The last of these segments up to `last` that begins where a record does. None: that is not known of any.
fn begins_before(fs: &Fs, links: &[Link], last: usize) -> Result<Option<usize>, Refusal> {
    for at in (0..=last).rev() {
        let link = &links[at];
        let mut segment = Segment::open(fs, &link.path, link.header).map_err(Refusal::disk(&link.path))?;
        let found = match segment.next().map_err(Refusal::disk(&link.path))? {
            Found::Block(header, body) if header.lsn < link.end => begins_record(&body),
            _ => None,
        };
        match found {
            Some(true) => return Ok(Some(at)),
            // One that holds nothing, and before which nothing is, was begun behind a record.
            None if at == 0 => return Ok(Some(at)),
            _ => {}
        }
    }
    Ok(None)
}
