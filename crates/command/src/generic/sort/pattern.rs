//! What SORT's patterns mean: `#` is the element, `prefix*suffix` a string's key with
//! the element in place of the star, `prefix*suffix->field` a field of a hash.
//!
//! Redis reads patterns as C strings: what follows a zero byte holds no star and no
//! arrow, but is part of the key or field all the same.

use crate::args::Args;
use keyspace::{Edit, Key, Object, ValueRef, View};
use value::collection::CollectionRef;
use value::listpack::Element;
use value::text::until_zero;

/// What BY and GET take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern<'a> {
    /// The element.
    Element,
    /// No star: nothing.
    Fixed,
    /// A key for each element.
    Keys {
        /// Before the star.
        prefix: &'a [u8],
        /// After it.
        suffix: &'a [u8],
        /// The field of a hash. None: the key holds a string.
        field: Option<&'a [u8]>,
    },
}

impl<'a> Pattern<'a> {
    pub(super) fn parse(text: &'a [u8]) -> Pattern<'a> {
        let shown = until_zero(text);
        if shown == b"#" {
            return Pattern::Element;
        }
        let Some(star) = shown.iter().position(|byte| *byte == b'*') else { return Pattern::Fixed };
        let after = star + 1;
        let arrow = shown[after..].windows(2).position(|pair| pair == b"->").map(|at| after + at);
        let (end, field) = match arrow.filter(|arrow| arrow + 2 < shown.len()) {
            Some(arrow) => (arrow, Some(&text[arrow + 2..])),
            None => (text.len(), None),
        };
        Pattern::Keys { prefix: &text[..star], suffix: &text[after..end], field }
    }

    /// Whether it names keys that the request does not.
    pub(super) fn names_keys(self) -> bool {
        matches!(self, Pattern::Keys { .. })
    }

    /// Whether all keys that it names are of the slot that a key has in a cluster: it has a hash tag before its star.
    pub(super) fn stays_with(self, key: &[u8]) -> bool {
        let Pattern::Keys { prefix, .. } = self else { return true };
        let tag = prefix.iter().position(|byte| *byte == b'{').map(|open| &prefix[open + 1..]);
        let has_tag = tag.is_some_and(|tag| tag.iter().position(|byte| *byte == b'}') > Some(0));
        has_tag && wire::key_slot(prefix) == wire::key_slot(key)
    }

    /// What it means for an element. None: nothing. Values are not copied: however many elements find the same one, it is there once.
    pub(super) fn find<'e>(
        self,
        keys: &'e impl Lookup,
        args: &Args<'_>,
        element: &'e [u8],
    ) -> Option<Element<'e>> {
        let (prefix, suffix, field) = match self {
            Pattern::Element => return Some(Element::Bytes(element)),
            Pattern::Fixed => return None,
            Pattern::Keys { prefix, suffix, field } => (prefix, suffix, field),
        };
        let name = [prefix, element, suffix].concat();
        let object = keys.look_up(&args.keyspace.key(args.db, &name))?;
        element_of(object, field, args)
    }

    /// Shows what it means for an element, of which nothing is kept that was read for it.
    pub(super) fn show<R>(
        self,
        keys: &impl Lookup,
        args: &Args<'_>,
        element: &[u8],
        show: impl FnOnce(Option<Element<'_>>) -> R,
    ) -> R {
        let (prefix, suffix, field) = match self {
            Pattern::Element => return show(Some(Element::Bytes(element))),
            Pattern::Fixed => return show(None),
            Pattern::Keys { prefix, suffix, field } => (prefix, suffix, field),
        };
        let name = [prefix, element, suffix].concat();
        keys.show(&args.keyspace.key(args.db, &name), |object| {
            show(object.and_then(|object| element_of(object, field, args)))
        })
    }
}

/// What an object holds that a pattern means.
fn element_of<'e>(object: Object<'e>, field: Option<&[u8]>, args: &Args<'_>) -> Option<Element<'e>> {
    match (object.value(), field) {
        (ValueRef::Bytes(text), None) => Some(Element::Bytes(text)),
        (ValueRef::Int(number), None) => Some(Element::Int(number)),
        (ValueRef::Collection(CollectionRef::Hash(hash)), Some(field)) => hash.get(field, args.now),
        _ => None,
    }
}

/// What is kept of what was shown.
pub(super) enum Kept {
    Int(i64),
    Bytes(Box<[u8]>),
}

impl Kept {
    pub(super) fn of(element: Element<'_>) -> Kept {
        match element {
            Element::Int(number) => Kept::Int(number),
            Element::Bytes(bytes) => Kept::Bytes(bytes.into()),
        }
    }

    pub(super) fn as_element(&self) -> Element<'_> {
        match self {
            Kept::Int(number) => Element::Int(*number),
            Kept::Bytes(bytes) => Element::Bytes(bytes),
        }
    }
}

/// Reading keys, counted as hits and misses.
pub(super) trait Lookup {
    /// A key's object.
    fn look_up(&self, key: &Key<'_>) -> Option<Object<'_>>;

    /// Shows a key's object, for no longer than it is looked at.
    fn show<R>(&self, key: &Key<'_>, show: impl FnOnce(Option<Object<'_>>) -> R) -> R {
        show(self.look_up(key))
    }
}

impl Lookup for View<'_> {
    fn look_up(&self, key: &Key<'_>) -> Option<Object<'_>> {
        self.get(key)
    }
}

impl Lookup for Edit<'_> {
    fn look_up(&self, key: &Key<'_>) -> Option<Object<'_>> {
        self.get_as_reader(key)
    }

    fn show<R>(&self, key: &Key<'_>, show: impl FnOnce(Option<Object<'_>>) -> R) -> R {
        self.show_as_reader(key, show)
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn patterns_name_keys_and_fields() {
        let keys = |prefix, suffix, field| Pattern::Keys { prefix, suffix, field };
        let cases: [(&[u8], Pattern<'_>); 9] = [
            (b"#", Pattern::Element),
            (b"##", Pattern::Fixed),
            (b"nosort", Pattern::Fixed),
            (b"w_*", keys(b"w_", b"", None)),
            (b"*", keys(b"", b"", None)),
            (b"h_*_x->f->g", keys(b"h_", b"_x", Some(b"f->g"))),
            (b"a->b*c->", keys(b"a->b", b"c->", None)),
            (b"w\0*", Pattern::Fixed),
            (b"*->f\0g", keys(b"", b"", Some(b"f\0g"))),
        ];
        for (text, expected) in cases {
            assert_eq!(Pattern::parse(text), expected, "{}", text.escape_ascii());
        }
    }
}
