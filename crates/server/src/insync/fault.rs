//! Mistakes that tests plant in the driver, so that they prove that the simulator finds them.
//!
//! Outside of tests none can be planted, and asking for one is a constant `false`.

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// What a member has done counts as being on its disk.
    DoneIsDurable,
    /// A former master says that its tail is cut, and leaves it.
    TailKept,
    /// A member that asks to be master takes itself for it before that is decided.
    AskedIsDecided,
}

impl Fault {
    /// Whether this is the one that was planted.
    pub fn is(planted: Option<Fault>, fault: Fault) -> bool {
        cfg!(test) && planted == Some(fault)
    }
}
