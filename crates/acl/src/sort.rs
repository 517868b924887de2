//! SORT's BY and GET read keys that the request does not name, so they need permission
//! to read every key.
//!
//! What is wrong with the options before them is told first, by the command itself.

use crate::user::User;
use command::table::{Command, Runs};
use command::{Error, Handler};
use wire::Request;

/// The error of a SORT that reads further keys, for a user who may not.
pub fn refusal(user: &User, command: &Command, request: &Request<'_>) -> Option<Error> {
    let Runs::Data(row) = command.row.handler else { return None };
    let stores = match row.handler {
        Handler::ReadAround(..) => false,
        Handler::WriteAround(..) => true,
        _ => return None,
    };
    if user.may_read_every_key(command, request) {
        return None;
    }
    let mut at = 2;
    while let Some(option) = request.get(at) {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        let operand = request.get(at + 1);
        let is_number = |at| request.get(at).is_some_and(|word| value::number::parse_i64(word).is_some());
        at += match operand {
            _ if is("asc") || is("desc") || is("alpha") => 1,
            Some(_) if is("limit") && is_number(at + 1) && is_number(at + 2) => 3,
            Some(_) if is("store") && stores => 2,
            Some(pattern) if is("by") && !pattern.contains(&b'*') => 2,
            Some(_) if is("by") => {
                return Some(Error::text(
                    "ERR BY option of SORT denied due to insufficient ACL permissions.",
                ));
            }
            Some(_) if is("get") => {
                return Some(Error::text(
                    "ERR GET option of SORT denied due to insufficient ACL permissions.",
                ));
            }
            _ => return None,
        };
    }
    None
}
