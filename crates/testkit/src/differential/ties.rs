//! Members of a set that SORT in a script takes for the same: it compares as C does, up to the first byte 0. In which order such come
//! follows from the set's own order and an unstable sort, and a hash table's order from a number that each server draws when it starts.
//!
//! Pure: two replies in, a verdict out. But for such members that have changed places everything has to be the same.

use super::wording;
use wire::Value;

/// How scripts, and the encoders that they have, write a byte 0 in a text.
const ZEROS: &[&[u8]] = &[b"\0", br"\000", br"\u0000"];

/// Whether two replies are the same but for the places of members that are the same up to a byte 0. Of `parts` of what was sorted it may be
/// another one of these that is shown.
pub(super) fn are_alike(a: &Value, b: &Value, parts: bool) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            let (a, b) = (in_one_order(a), in_one_order(b));
            a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| are_alike(a, b, parts))
        }
        (Value::Bulk(one), Value::Bulk(other)) => {
            wording::is_shorter(a, b)
                || parts && up_to_zero(one) == up_to_zero(other)
                || one.len() == other.len() && without_zeros(one) == without_zeros(other)
        }
        _ => wording::is_shorter(a, b),
    }
}

/// Elements of which those that follow each other and are the same up to a byte 0 are in the order of their bytes.
fn in_one_order(values: &[Value]) -> Vec<Value> {
    let text = |value: &Value| if let Value::Bulk(text) = value { Some(text.clone()) } else { None };
    let are_tied =
        |a: &Value, b: &Value| text(a).zip(text(b)).is_some_and(|(a, b)| up_to_zero(&a) == up_to_zero(&b));
    let mut ordered = values.to_vec();
    ordered.chunk_by_mut(are_tied).for_each(|tied| tied.sort_by_key(text));
    ordered
}

fn up_to_zero(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A text that members were written into, without their bytes 0, which is what members have that change places in it.
fn without_zeros(text: &[u8]) -> Vec<u8> {
    let mut rest = text;
    let mut without = Vec::new();
    while let Some((first, others)) = rest.split_first() {
        let zero = ZEROS.iter().find_map(|zero| rest.strip_prefix(*zero));
        if zero.is_none() {
            without.push(*first);
        }
        rest = zero.unwrap_or(others);
    }
    without
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Value {
        Value::Array(texts.iter().map(|text| Value::Bulk(text.as_bytes().to_vec())).collect())
    }

    #[test]
    fn only_members_that_are_the_same_up_to_a_zero_byte_may_change_places() {
        let are_alike = |a: &[&str], b: &[&str]| are_alike(&texts(a), &texts(b), false);
        assert!(are_alike(&["0", "1", "1\0", "2"], &["0", "1\0", "1", "2"]));
        assert!(are_alike(&["1\0b", "1", "1\0a"], &["1\0a", "1\0b", "1"]));
        assert!(!are_alike(&["1", "2", "1\0"], &["1\0", "2", "1"]));
        assert!(!are_alike(&["1", "1"], &["1\0", "1"]));
        assert!(!are_alike(&["1\0", "2"], &["2", "1\0"]));
        assert!(!are_alike(&["1", "1\0"], &["1\0", "1", "2"]));
    }

    #[test]
    fn members_change_places_in_texts_too() {
        let are_alike = |a: &str, b: &str| are_alike(&texts(&[a]), &texts(&[b]), false);
        assert!(are_alike(r#"{1="1",2="1\000"}"#, r#"{1="1\000",2="1"}"#));
        assert!(are_alike(r#"["1\u0000","1"]"#, r#"["1","1\u0000"]"#));
        assert!(!are_alike(r#"["1\u0000","2"]"#, r#"["2\u0000","3"]"#));
        assert!(!are_alike(r#"["1","1"]"#, r#"["1","1\u0000"]"#));
    }

    #[test]
    fn a_part_may_show_another_one() {
        assert!(are_alike(&texts(&["1", "2"]), &texts(&["1\0", "2"]), true));
        assert!(!are_alike(&texts(&["1", "2"]), &texts(&["1\0", "3"]), true));
        assert!(!are_alike(&texts(&["1"]), &texts(&["1\0", "2"]), true));
    }
}
