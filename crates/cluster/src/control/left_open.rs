//! What is answered of what somebody wants where it, or a part of it, may have been done, and nobody can say whether it was.

/// Why that cannot be said by who has led when it was wanted.
const LEADS_NO_MORE: &str = "this config server leads no more";

/// Whether something of what somebody wants may have been done: somebody was asked to do it, or a change was, whose outcome is not known or which was only its first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Felt {
    /// Nothing was.
    No,
    /// Something may have been.
    Maybe,
}

impl Felt {
    /// The same, or what is known since.
    #[must_use]
    pub fn or(self, may_be_done: bool) -> Felt {
        if may_be_done { Felt::Maybe } else { self }
    }

    /// What is answered when nobody sees to it here any more; None: nothing of it was done.
    pub fn left_open(self, what: &str, again: Again) -> Option<String> {
        (self == Felt::Maybe).then(|| unknown(LEADS_NO_MORE, what, again))
    }
}

/// Whether it may be said once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// As it is, also if it was done.
    AsItIs,
    /// If it was not.
    IfUndone,
}

/// What is answered where something may have been done, and why nobody can say it.
pub fn unknown(why: &str, what: &str, again: Again) -> String {
    match again {
        Again::AsItIs => format!(
            "UNKNOWN {why}, and {what} may have been done, or a part of it: it may be said again as it is"
        ),
        Again::IfUndone => format!(
            "UNKNOWN {why}, and {what} may have been done: look at the status, and say it again if it was not"
        ),
    }
}
