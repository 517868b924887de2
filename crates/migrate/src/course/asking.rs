//! The cut-over is asked for by a key of the target, which the import that sees it marks as taken. Who asks waits for that.

use crate::ending::{Ending, Orders, pause, stopped};
use crate::limits::{ANSWER, FORGETTING, LOOKING, PAUSE, REQUEST};
use crate::place::{Entry, Place};
use crate::screen::say;
use crate::target::bookmark::{ASKED, CUT_OVER, ENDED, FIRST_SOURCE, Stage, TAKEN, Tags};
use crate::target::{Job, Target};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;
use wire::{Value, key_slot};

/// Asks the import into a target to end.
///
/// # Errors
/// There is none, it does not answer, or the target does not take the request.
pub fn ask_to_cut_over(place: &Place, entry: &Entry) -> Result<(), String> {
    let orders = Orders::default();
    let target = Target::open(place, entry, &orders, &Arc::new(Tags::find()));
    target.and_then(|mut target| ask(&mut target, &orders)).map_err(|why| why.to_string())
}

fn ask(target: &mut Target, orders: &Orders) -> Result<(), Ending> {
    if target.state_of(FIRST_SOURCE)?.is_none() {
        return stopped("there is no import into this target");
    }
    if target.value(CUT_OVER)?.is_some_and(|value| value == TAKEN) {
        say(&format!(
            "the import into this target was asked to cut over less than {} s ago, and has heard it; what comes of it that import says, with its exit status",
            REQUEST.as_secs()
        ));
        return Ok(());
    }
    write(target, ASKED)?;
    let began = Instant::now();
    while began.elapsed() < ANSWER {
        match target.value(CUT_OVER)? {
            Some(value) if value == TAKEN => return heard(),
            Some(value) if value == ENDED => {
                say(
                    "the import into this target has heard the request, and has ended without a cut-over: it says why",
                );
                return Ok(());
            }
            Some(_) => {}
            None => return gone(target),
        }
        pause(PAUSE, &mut || orders.look()).map_err(|_| Ending::Interrupted)?;
    }
    let left = REQUEST.saturating_sub(ANSWER).as_secs();
    stopped(format!(
        "no import has heard the request in {} s: look whether `tarn migrate` runs. It may be heard for {left} s yet",
        ANSWER.as_secs()
    ))
}

fn heard() -> Result<(), Ending> {
    say(
        "the import into this target is asked to cut over, and has heard it; what comes of it that import says, with its exit status",
    );
    Ok(())
}

/// The request is there no more: the import ends, and was quick, or something else has removed it.
fn gone(target: &mut Target) -> Result<(), Ending> {
    match target.state_of(FIRST_SOURCE)?.map(|state| state.stage) {
        None | Some(Stage::Spoilt) => heard(),
        Some(_) => stopped("the target has lost the request, as by FLUSHALL or a new copy: ask again"),
    }
}

/// Tells who asks that the request is heard.
///
/// # Errors
/// The target does not take it, or it is to end.
pub fn take(target: &mut Target) -> Result<(), Ending> {
    write(target, TAKEN)
}

/// Tells that the request is heard by nobody any more, where an attempt ends that has heard it, and has not made the cut-over. As far as the target takes that at once; else what
/// was told goes by itself.
pub fn forget(place: &Place, entry: &Entry, tags: &Arc<Tags>, owner: u64) {
    let (place, entry, tags) = (place.clone(), entry.clone(), tags.clone());
    let orders = Orders::default();
    let its = orders.clone();
    let forgetting = move || -> Result<(), Ending> {
        let mut target = Target::open(&place, &entry, &its, &tags)?;
        let is_own = target.state_of(FIRST_SOURCE)?.is_some_and(|state| state.owner == owner);
        match is_own && target.value(CUT_OVER)?.is_some_and(|value| value == TAKEN) {
            true => write(&mut target, ENDED),
            false => Ok(()),
        }
    };
    let began = Instant::now();
    let Ok(thread) = thread::Builder::new().name("forgetting".to_owned()).spawn(forgetting) else { return };
    while !thread.is_finished() && began.elapsed() < FORGETTING {
        thread::sleep(LOOKING);
    }
    orders.gives_up.store(true, Ordering::Relaxed);
    // What came of it is told by why the attempt ended.
    drop(thread.join());
}

/// It goes by itself: nobody is to find it who begins later.
fn write(target: &mut Target, value: &[u8]) -> Result<(), Ending> {
    let (slot, seconds) = (key_slot(CUT_OVER.as_bytes()), REQUEST.as_secs().to_string());
    let words: [&[u8]; 5] = [b"SET", CUT_OVER.as_bytes(), value, b"EX", seconds.as_bytes()];
    let mut job = Job::question(0, slot, &words);
    target.ask(std::slice::from_mut(&mut job))?;
    match job.replies.first() {
        Some(Value::Simple(_)) => Ok(()),
        other => stopped(format!("the target does not take the request: {other:?}")),
    }
}
