//! Who holds keys for long: scripts and functions that are slow, and MIGRATEs that wait for another server; and who waits for them.
//!
//! Nobody waits for one with a worker's thread (see `dispatch/reach`). Who waits has a claim ([`claims`]), so that its turn
//! comes however many others begin.
//!
//! Thread rule: any thread. What a run holds is locked behind the list of those that are slow.

mod claims;

pub use claims::{ClaimId, Needs};

use crate::bells::Bells;
use claims::{Claim, Claims, Standing};
use engine::{Attention, Engine};
use keyspace::Holding;
use net::client::Client;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// What runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A script.
    Script,
    /// The function of this name.
    Function(Vec<u8>),
    /// MIGRATE, which ends by itself.
    Migration,
}

/// A run of a script, of a function or of MIGRATE, as others see it.
pub struct Run {
    /// What runs.
    pub what: What,
    /// The words of the request.
    pub words: Vec<Vec<u8>>,
    /// When it began.
    pub began: Instant,
    /// It has changed something.
    pub wrote: AtomicBool,
    /// Somebody wants it to end.
    pub is_killed: AtomicBool,
    /// What it holds of the keyspace.
    pub holding: Mutex<Holding>,
}

impl Run {
    /// Whether it is a script or a function.
    pub fn is_script(&self) -> bool {
        self.what != What::Migration
    }
}

/// All who hold keys for long, and who waits for them.
#[derive(Default)]
pub struct Holders(Mutex<State>);

#[derive(Default)]
struct State {
    slow: Vec<Arc<Run>>,
    claims: Claims,
}

/// A request that asks whether it may run.
pub struct Asking<'a> {
    /// Whose it is.
    pub client: &'a Arc<Client>,
    /// What it needs.
    pub needs: Needs,
    /// It may hold for long what it needs.
    pub may_take_long: bool,
    /// It may not run on the worker that its client is on.
    pub is_misplaced: bool,
    /// How many workers could run it, its own among them.
    pub free_workers: usize,
}

/// What a request finds.
pub enum Way {
    /// Nothing is in its way.
    Free,
    /// It has to run elsewhere, and can.
    Elsewhere,
    /// A run is in its way.
    Behind(Arc<Run>),
    /// Others come before, and it is woken when it may be its turn.
    InLine,
}

/// A claim of one of the server's own threads, for as long as this is there.
pub struct Claimed<'s> {
    holders: &'s Holders,
    engine: &'s Engine,
    id: ClaimId,
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.holders.take_back(self.engine, self.id);
    }
}

impl State {
    /// Of the runs in somebody's way the script that has run longest, or else a MIGRATE.
    fn first(&self, is_in_the_way: impl Fn(&Run) -> bool) -> Option<Arc<Run>> {
        let in_the_way = self.slow.iter().filter(|run| is_in_the_way(run));
        in_the_way.min_by_key(|run| (!run.is_script(), run.began)).cloned()
    }

    /// Whether others wait for a claim: nothing is in its way that was there before it.
    fn is_due(&self, claim: &Claim) -> bool {
        !self.slow.iter().any(|run| run.began < claim.since && claim.needs.is_hindered_by(run))
    }

    /// What a request finds whose claim this is, and what the claim has come to.
    fn look(&self, claim: Option<ClaimId>, asking: &Asking<'_>) -> (Way, Standing) {
        if let Some(run) = self.first(|run| asking.needs.is_hindered_by(run)) {
            return (Way::Behind(run), Standing::default());
        }
        if !asking.may_take_long {
            return (Way::Free, Standing::default());
        }
        if let Some(earlier) = self.claims.before(claim, &asking.needs.slots, |claim| self.is_due(claim)) {
            return (Way::InLine, Standing { behind: Some(earlier), needs_worker: false });
        }
        if let Some(earlier) = self.claims.before_for_workers(claim, asking.free_workers) {
            return (Way::InLine, Standing { behind: Some(earlier), needs_worker: true });
        }
        let way = match asking.is_misplaced {
            false => Way::Free,
            true if asking.free_workers > 0 => Way::Elsewhere,
            true => self.first(|_| true).map_or(Way::Free, Way::Behind),
        };
        (way, Standing { behind: None, needs_worker: asking.is_misplaced })
    }

    /// To be called when there are other runs or claims than before.
    fn show(&self, engine: &Engine) {
        engine.set_attention(Attention::SLOW_SCRIPT, !self.slow.is_empty() || !self.claims.is_empty());
    }

    /// To be called when runs hold what they did not hold before, or no more.
    fn show_held(&self, engine: &Engine) {
        engine.keyspace.set_slow_holders(self.slow.iter().map(|run| run.holding.lock().clone()).collect());
    }
}

impl Holders {
    /// The slow scripts and functions.
    pub fn scripts(&self) -> Vec<Arc<Run>> {
        self.0.lock().slow.iter().filter(|run| run.is_script()).cloned().collect()
    }

    /// A slow run: a script if there is one, and of those the one that has run longest.
    pub fn any(&self) -> Option<Arc<Run>> {
        self.0.lock().first(|_| true)
    }

    /// Whether a slow run holds the whole keyspace.
    pub fn has_all(&self) -> bool {
        self.0.lock().slow.iter().any(|run| run.holding.lock().is_all())
    }

    /// What is in a request's way. If something is, `claim` is there from now on, until [`Holders::take_back`].
    pub fn ask(&self, engine: &Engine, claim: &mut Option<ClaimId>, asking: &Asking<'_>) -> Way {
        let mut state = self.0.lock();
        let (way, standing) = state.look(*claim, asking);
        match (&way, *claim) {
            (Way::Free, None) => {}
            (_, Some(id)) => state.claims.set(id, standing),
            (_, None) => {
                *claim = Some(state.claims.put_up(Some(asking.client), &asking.needs, standing));
                state.show(engine);
            }
        }
        way
    }

    /// Has those who may hold keys for long wait for a thread of the server's own that needs these: it looks again and again, and would find
    /// another of them each time.
    #[cold]
    pub fn claim<'s>(&'s self, engine: &'s Engine, slots: Holding) -> Claimed<'s> {
        let needs = Needs { slots, passes_migrations: false };
        let mut state = self.0.lock();
        let id = state.claims.put_up(None, &needs, Standing::default());
        state.show(engine);
        drop(state);
        Claimed { holders: self, engine, id }
    }

    /// Has all of them wait while a thread of the server's own gets everything to itself, by `get_alone`.
    pub fn claiming_all<T>(&self, engine: &Engine, get_alone: impl FnOnce() -> T) -> T {
        let _claim = self.claim(engine, Holding::all());
        get_alone()
    }

    /// A request has what it claimed, or wants it no more.
    #[cold]
    pub fn take_back(&self, engine: &Engine, claim: ClaimId) {
        let mut state = self.0.lock();
        let woken = state.claims.take_back(claim);
        state.show(engine);
        drop(state);
        woken.iter().for_each(|client| client.wake());
    }

    /// Shows a run that takes long: who needs what it holds asks from now on before it waits.
    pub fn add(&self, engine: &Engine, run: &Arc<Run>) {
        let mut state = self.0.lock();
        state.slow.push(run.clone());
        state.show(engine);
        state.show_held(engine);
    }

    /// A slow run holds more than before. Who stands in line behind somebody that it keeps from running looks again.
    pub fn note_holding_more(&self, engine: &Engine) {
        let state = self.0.lock();
        state.show_held(engine);
        let waiting = state.claims.clients();
        drop(state);
        waiting.iter().for_each(|client| client.wake());
    }

    /// A slow run is over. All who have a claim look again, and go to sleep again if it is not their turn. (Who only waits for messages that
    /// the run has sealed is woken by these.)
    pub fn remove(&self, engine: &Engine, bells: &Bells, run: &Arc<Run>) {
        let mut state = self.0.lock();
        state.slow.retain(|known| !Arc::ptr_eq(known, run));
        state.show(engine);
        state.show_held(engine);
        let waiting = state.claims.clients();
        drop(state);
        waiting.iter().for_each(|client| client.wake());
        // Workers have put off what they could not hold.
        bells.ring_all();
    }
}
