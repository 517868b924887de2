//! The files of reply cases: bytes sent, bytes expected, in a form that reads well.
