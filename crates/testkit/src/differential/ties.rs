//! Members of a set that SORT in a script takes for the same: it compares as C does, up to the first byte 0. In which order such come
//! follows from the set's own order and an unstable sort, and a hash table's order from a number that each server draws when it starts.
//!
//! Pure: a reply in, and out one that is the same for all orders of such members, and of nothing else.

use wire::Value;

/// How scripts, and the encoders that they have, write a byte 0 in a text.
const ZEROS: &[&[u8]] = &[b"\0", br"\000", br"\u0000"];
/// What follows a member in a text, if it is not the last.
const ENDS: &[u8] = b"\",";

/// Whether a reply has a byte 0, or a text that stands for one.
pub(super) fn has_zero(reply: &[u8]) -> bool {
    (0..reply.len()).any(|at| zero_at(&reply[at..]).is_some())
}

/// A reply that is the same whatever the order of members that are the same up to a byte 0. Of a part of what was sorted it is the same,
/// too, whichever of these are in it.
pub(super) fn in_one_order(value: &Value, is_part: bool) -> Value {
    match value {
        Value::Array(values) => {
            let mut ordered = values.clone();
            ordered.chunk_by_mut(are_tied).for_each(|tied| tied.sort_by_key(|value| text(value).to_vec()));
            Value::Array(ordered.iter().map(|value| in_one_order(value, is_part)).collect())
        }
        Value::Bulk(text) if has_zero(text) => {
            let mut common = up_to_zeros(text);
            if !is_part {
                // What changes places in a text takes all its bytes along.
                let mut bytes = text.clone();
                bytes.sort_unstable();
                common.extend(bytes);
            }
            Value::Bulk(common)
        }
        other => other.clone(),
    }
}

fn text(value: &Value) -> &[u8] {
    if let Value::Bulk(text) = value { text } else { b"" }
}

fn are_tied(a: &Value, b: &Value) -> bool {
    let up_to_zero = |value| text(value).split(|byte| *byte == 0).next();
    matches!((a, b), (Value::Bulk(_), Value::Bulk(_))) && up_to_zero(a) == up_to_zero(b)
}

/// A text without what its members have from a byte 0 on.
fn up_to_zeros(text: &[u8]) -> Vec<u8> {
    let mut rest = text;
    let mut common = Vec::new();
    while let Some((first, others)) = rest.split_first() {
        rest = if let Some(zero) = zero_at(rest) {
            let len = zero.len() + rest[zero.len()..].iter().take_while(|byte| !ENDS.contains(byte)).count();
            &rest[len..]
        } else {
            common.push(*first);
            others
        };
    }
    common
}

fn zero_at(text: &[u8]) -> Option<&'static [u8]> {
    ZEROS.iter().copied().find(|zero| text.starts_with(zero))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn are_alike(a: &[&str], b: &[&str], is_part: bool) -> bool {
        let ordered = |texts: &[&str]| {
            let texts = texts.iter().map(|text| Value::Bulk(text.as_bytes().to_vec()));
            in_one_order(&Value::Array(texts.collect()), is_part)
        };
        ordered(a) == ordered(b)
    }

    #[test]
    fn only_members_that_are_the_same_up_to_a_zero_byte_may_change_places() {
        assert!(are_alike(&["0", "1", "1\0", "2"], &["0", "1\0", "1", "2"], false));
        assert!(are_alike(&["1\0b", "1", "1\0a"], &["1\0a", "1\0b", "1"], false));
        assert!(!are_alike(&["1", "2", "1\0"], &["1\0", "2", "1"], false));
        assert!(!are_alike(&["1", "1"], &["1\0", "1"], false));
        assert!(!are_alike(&["1\0a"], &["1\0b"], false));
        assert!(!are_alike(&["1\0", "2"], &["2", "1\0"], false));
        assert!(!are_alike(&["1", "1\0"], &["1\0", "1", "2"], false));
    }

    #[test]
    fn members_change_places_in_texts_too() {
        let are_alike = |a: &str, b: &str| are_alike(&[a], &[b], false);
        assert!(are_alike(r#"{1="1",2="1\000"}"#, r#"{1="1\000",2="1"}"#));
        assert!(are_alike(r#"{1="2",2="a\000b",3="a"}"#, r#"{1="2",2="a",3="a\000b"}"#));
        assert!(are_alike(r#"["1\u0000","1"]"#, r#"["1","1\u0000"]"#));
        assert!(!are_alike(r#"["1\u0000","2"]"#, r#"["2\u0000","3"]"#));
        assert!(!are_alike(r#"["1","1"]"#, r#"["1","1\u0000"]"#));
        assert!(!are_alike(r#"{2="a\000b",3="a"}"#, r#"{2="a",3="a\000c"}"#));
    }

    #[test]
    fn a_part_may_show_another_one() {
        assert!(are_alike(&["1", "2"], &["1\0", "2"], true));
        assert!(!are_alike(&["1", "2"], &["1\0", "3"], true));
        assert!(!are_alike(&["1"], &["1\0", "2"], true));
    }
}
