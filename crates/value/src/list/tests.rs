//! Where a list changes its form, and the rope of nodes. Sequences of edits are fuzzed in `tests/fuzz`.

use super::node::Node;
use super::rope::{NodeAt, Rope};
use super::*;

const FILL: Fill = Fill::Bytes(8192);

fn push(list: &mut List, text: &[u8], end: End, fill: Fill) {
    list.grow(fill, text.len(), 1);
    list.push(text, end);
}

fn list_of(count: usize, text: &[u8], fill: Fill) -> List {
    let mut list = List::new();
    (0..count).for_each(|_| push(&mut list, text, End::Tail, fill));
    list
}

/// The nodes of a quicklist: `p` for a plain one, else the count.
fn shape(list: &List) -> Vec<String> {
    let List::Quicklist(quicklist) = list else {
        return Vec::new();
    };
    let name = |node: &Node| if node.is_plain() { "p".into() } else { node.count().to_string() };
    quicklist.rope.iter().map(name).collect()
}

#[test]
fn list_is_native_beyond_one_node_and_compact_again_at_half() {
    let mut list = list_of(5, b"x", Fill::Count(4));
    assert_eq!(list.as_ref().encoding(), "quicklist");
    assert_eq!(shape(&list), ["4", "1"]);
    list.pop(1, End::Tail);
    list.shrink(Fill::Count(4));
    assert_eq!(list.as_ref().encoding(), "quicklist");
    list.pop(2, End::Head);
    list.shrink(Fill::Count(4));
    assert_eq!(list.as_ref().encoding(), "listpack");
    assert_eq!(list.len(), 2);
}

#[test]
fn loaded_list_is_compact_within_the_whole_limit() {
    let mut list = list_of(5, b"x", Fill::Count(4));
    list.pop(1, End::Tail);
    list.settle(Fill::Count(4), Room::Whole);
    assert_eq!(list.as_ref().encoding(), "listpack");
}

#[test]
fn large_text_has_a_node_of_its_own() {
    let large = vec![b'x'; 8193];
    let mut list = list_of(2, b"a", FILL);
    push(&mut list, &large, End::Tail, FILL);
    push(&mut list, b"b", End::Tail, FILL);
    assert_eq!(shape(&list), ["2", "p", "1"]);
    assert!(list.insert(&large, Side::Before, b"c"));
    assert!(list.insert(&large, Side::After, b"d"));
    assert_eq!(shape(&list), ["3", "p", "2"]);
    assert!(list.set(1, &large));
    assert_eq!(shape(&list), ["1", "p", "1", "p", "2"]);
    assert!(list.set(1, b"small"));
    assert_eq!(shape(&list), ["1", "2", "p", "2"]);
}

#[test]
fn full_node_splits_around_an_insertion() {
    let fill = Fill::Count(4);
    let mut list = List::new();
    (0..12).for_each(|index| push(&mut list, format!("e{index}").as_bytes(), End::Tail, fill));
    assert_eq!(shape(&list), ["4", "4", "4"]);
    assert!(list.insert(b"e5", Side::After, b"new"));
    assert_eq!(shape(&list), ["4", "2", "3", "4"]);
    assert!(list.insert(b"e7", Side::After, b"last"));
    assert_eq!(shape(&list), ["4", "2", "4", "4"]);
    assert!(list.insert(b"e3", Side::After, b"edge"));
    assert_eq!(shape(&list), ["4", "3", "4", "4"]);
    let texts: Vec<_> =
        list.as_ref().iter().map(|element| String::from_utf8(element.to_vec()).unwrap()).collect();
    assert_eq!(texts.join(" "), "e0 e1 e2 e3 edge e4 e5 new e6 e7 last e8 e9 e10 e11");
}

#[test]
fn rope_keeps_its_counts_through_thousands_of_edits() {
    let mut rope = Rope::default();
    let mut model: Vec<usize> = Vec::new();
    let mut state = 1u64;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % bound
    };
    let node = |count: usize| {
        let mut listpack = Listpack::new();
        (0..count).for_each(|_| listpack.push_back(b"1"));
        Node::packed(listpack)
    };
    let place = |rope: &Rope, index: usize, model: &[usize]| -> NodeAt {
        rope.seek(model[..index].iter().sum()).unwrap().0
    };
    for step in 0..6_000 {
        let (count, index) = (1 + below(3), below(model.len() + 1));
        let is_growing = step % 3_000 < 1_700;
        if index == model.len() {
            rope.push(node(count), End::Tail);
            model.push(count);
        } else if is_growing || below(4) == 0 {
            let at = place(&rope, index, &model);
            let new = rope.insert_before(at, node(count));
            assert_eq!(rope.get(new).count(), count);
            model.insert(index, count);
        } else {
            let at = place(&rope, index, &model);
            let (removed, next) = rope.remove(at);
            assert_eq!(removed.count(), model.remove(index));
            assert_eq!(next.map(|next| rope.get(next).count()), model.get(index).copied());
        }
        if step % 50 == 0 {
            rope.verify();
            assert!(rope.iter().map(Node::count).eq(model.iter().copied()));
        }
    }
}
