//! Data commands: what goes into crate `command`, and what the server has to do with what comes out.

use super::Context;
use crate::blocking::Beginner;
use crate::dispatch::ownership;
use command::{Args, Error, Flags, Hashed, Outcome, Row, Waiting, execute};
use engine::snapshot;
use std::cell::Cell;
use wire::Reply;

impl Context<'_, '_> {
    #[inline]
    pub(super) fn run_data(
        &mut self,
        row: &Row,
        hashed: Hashed<'_>,
        waiting: Waiting<'_>,
        reply: &mut Reply<'_>,
    ) -> command::Result<()> {
        match row.flags.contains(Flags::EMPTIES_ALL) {
            true => self.run_flushall(row, waiting, reply),
            false => self.run_row(row, hashed, waiting, reply),
        }
    }

    /// FLUSHALL. Where there are save points, the file says so, too, before anybody else comes, as in Redis.
    #[cold]
    fn run_flushall(
        &mut self,
        row: &Row,
        waiting: Waiting<'_>,
        reply: &mut Reply<'_>,
    ) -> command::Result<()> {
        let holds = snapshot::is_wanted_of_flush(&self.server.engine) && !self.batch.holds_all();
        if holds && !self.batch.try_hold_all() {
            return Err(Error::InUse);
        }
        let done = self.run_row(row, Hashed::NONE, waiting, reply);
        if done.is_ok() && snapshot::is_wanted_of_flush(&self.server.engine) {
            // One in the background may have some of what is gone, and is given up. What fails is in the log.
            let _ = snapshot::save_held_instead(&self.server.engine, self.batch, self.now);
        }
        if holds && !self.batch.has_ready() {
            self.batch.release();
        }
        done
    }

    #[inline]
    fn run_row(
        &mut self,
        row: &Row,
        hashed: Hashed<'_>,
        waiting: Waiting<'_>,
        reply: &mut Reply<'_>,
    ) -> command::Result<()> {
        let engine = &*self.server.engine;
        let args = Args {
            hashed,
            waiting,
            ..Args::new(self.request, &engine.keyspace, (self.session.db, self.now), &engine.settings)
        };
        let args = if self.session.runs_script { args.of_script() } else { args };
        let outcome = execute(row, self.batch, &args, self.session.touch, reply);
        if outcome == Ok(Outcome::Changed) {
            self.batch.count_write();
        }
        if row.flags.contains(Flags::EMPTIES_DATABASE) && outcome.is_ok() {
            self.server.tracking.invalidate_all(&self.server.net.clients, Some(self.worker));
        }
        outcome.map(|_| ())
    }

    /// Runs a command that may have to wait for its keys.
    pub(super) fn run_blocking(
        &mut self,
        row: &'static Row,
        hashed: Hashed<'_>,
        reply: &mut Reply<'_>,
    ) -> command::Result<()> {
        if self.session.transaction.is_some() || self.session.runs_script {
            return self.run_data(row, hashed, Waiting::Never, reply);
        }
        let (began, engine) = (Cell::new(None), &*self.server.engine);
        let args = Args {
            hashed,
            waiting: Waiting::Begins(&Beginner {
                server: self.server,
                session: self.session,
                command: self.command,
                first_tried: self.server.ticks.now(),
                began: &began,
            }),
            ..Args::new(self.request, &engine.keyspace, (self.session.db, self.now), &engine.settings)
        };
        let outcome = execute(row, self.batch, &args, self.session.touch, reply);
        self.session.waits = began.get();
        if self.session.waits.is_some() {
            ownership::note_wait(self.server, self.session.client.id);
        }
        if outcome == Ok(Outcome::Changed) {
            self.batch.count_write();
        }
        outcome.map(|_| ())
    }
}
