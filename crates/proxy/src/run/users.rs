//! Requests that change the users of a proxy, where a cluster's store keeps them: they are answered when that is done.

use super::{Runner, Verdict};
use crate::serve::Front;
use crate::users::{Answer, Want};
use command::Error;
use command::table::Command;
use server::commands::acl::see_to_own;
use server::session::ReplyMode;
use telemetry::stats::Ending;
use wire::{Reply, Request};

impl Runner {
    /// Has users changed for a client, when it is owed nothing.
    pub(super) fn change_users(
        &self,
        front: &mut Front,
        command: &'static Command,
        request: &Request<'_>,
    ) -> Verdict {
        let Some(users) = self.proxy.users.as_ref().filter(|_| front.owed == 0) else { return Verdict::Here };
        let words = |from: usize| request.iter().skip(from).map(<[u8]>::to_vec).collect::<Vec<_>>();
        let want = match command.row.name {
            "acl|setuser" => Want::Set { name: request.arg(2).to_vec(), rules: words(3) },
            "acl|deluser" => Want::Delete(words(2)),
            "acl|load" => Want::Load,
            _ => Want::Save,
        };
        let by = (command, request, self.proxy.host.acl.version());
        if let Err(why) = want.look(&self.proxy.host).and_then(|()| users.want(&front.inner.client, want, by))
        {
            return Verdict::Refuse(why);
        }
        front.changes_users = true;
        Verdict::Wait
    }

    /// Looks whether that is done.
    pub(super) fn changed_users(&self, front: &mut Front) -> Verdict {
        let users = self.proxy.users.as_ref().expect("they are kept by a cluster");
        match users.answer_to(front.inner.client.id) {
            None => Verdict::Wait,
            Some(answer) => {
                front.changes_users = false;
                Verdict::Changed(answer)
            }
        }
    }

    /// Answers a client whose request has changed users, itself among them maybe.
    pub(super) fn give_answer(
        &self,
        front: &mut Front,
        command: Option<&Command>,
        answer: Answer,
        out: &mut Vec<u8>,
    ) {
        let answer = match answer {
            Answer::Refused(line) => {
                self.refuse(front, command, Error::line(line), out);
                // It may have lost rights meanwhile, or be nobody any more.
                return see_to_own(&self.proxy.host, &mut front.inner);
            }
            answer => answer,
        };
        match front.inner.reply_mode {
            ReplyMode::Skip => front.inner.reply_mode = front.inner.usual_mode(),
            _ if front.inner.is_silent() => {}
            _ => {
                let mut reply = Reply::new(out, front.inner.protocol);
                match answer {
                    Answer::Count(count) => reply.int(count),
                    _ => reply.ok(),
                }
            }
        }
        if let Some(command) = command {
            self.note(command, Ending::Done);
        }
        see_to_own(&self.proxy.host, &mut front.inner);
    }
}
