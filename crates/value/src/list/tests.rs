//! Where a list changes its form, and the rope of nodes. Sequences of edits are fuzzed in `tests/fuzz`.

use super::node::Node;
use super::rope::{NodeAt, Rope};
use super::*;
use crate::collection::Thresholds;
use crate::rdb::{Reader, RestoreError, keep};

const FILL: Fill = Fill::bytes(8192);

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
fn a_text_that_no_room_in_front_holds_goes_into_the_midst() {
    let fill = Fill::bytes(65_536);
    for bytes in 65_500..=65_540 {
        for side in [Side::Before, Side::After] {
            let mut list = List::new();
            for text in [b"a", b"b", b"c"] {
                push(&mut list, text, End::Tail, fill);
            }
            let text = vec![b'x'; bytes];
            list.grow(fill, bytes, 1);
            assert!(list.insert(b"b", side, &text));
            let at = 1 + usize::from(side == Side::After);
            let texts: Vec<_> = list.as_ref().iter().map(|element| element.to_vec()).collect();
            assert_eq!(texts.len(), 4);
            assert!(texts[at] == text, "{bytes} bytes, {side:?}");
        }
    }
}

#[test]
fn list_is_native_beyond_one_node_and_compact_again_at_half() {
    let mut list = list_of(5, b"x", Fill::count(4));
    assert_eq!(list.as_ref().encoding().name(), "quicklist");
    assert_eq!(shape(&list), ["4", "1"]);
    list.pop(1, End::Tail);
    list.shrink(Fill::count(4));
    assert_eq!(list.as_ref().encoding().name(), "quicklist");
    list.pop(2, End::Head);
    list.shrink(Fill::count(4));
    assert_eq!(list.as_ref().encoding().name(), "listpack");
    assert_eq!(list.len(), 2);
}

#[test]
fn loaded_list_is_compact_within_the_whole_limit() {
    let mut list = list_of(5, b"x", Fill::count(4));
    list.pop(1, End::Tail);
    list.settle(Fill::count(4), Room::Whole);
    assert_eq!(list.as_ref().encoding().name(), "listpack");
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
    let fill = Fill::count(4);
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

fn image(list: &List) -> Vec<u8> {
    let mut out = Vec::new();
    list.as_ref().write_image(&mut out, &mut keep);
    out
}

fn read(image: &[u8], setting: i32) -> Result<List, RestoreError> {
    let thresholds = Thresholds { list_max_listpack_size: setting, ..Thresholds::default() };
    List::read_image(image[0], &mut Reader::over(&image[1..]), &thresholds)
}

fn texts(list: &List) -> Vec<Vec<u8>> {
    list.as_ref().iter().map(Element::to_vec).collect()
}

#[test]
fn images_come_back_node_by_node() {
    let large = vec![b'x'; 9000];
    for count in [1, 2, 5, 9] {
        let fill = Fill::count(4);
        let mut list = list_of(count, b"text", fill);
        push(&mut list, b"-70000", End::Head, fill);
        let same = read(&image(&list), 4).unwrap();
        assert_eq!((texts(&same), shape(&same)), (texts(&list), shape(&list)));
        push(&mut list, &large, End::Tail, fill);
        let same = read(&image(&list), 4).unwrap();
        assert_eq!((texts(&same), shape(&same)), (texts(&list), shape(&list)));
    }
    assert_eq!(image(&list_of(1, b"5", FILL)), [18, 1, 2, 9, 9, 0, 0, 0, 1, 0, 5, 1, 0xff]);
}

#[test]
fn images_of_older_versions_are_read() {
    let ziplist = b"\x0e\0\0\0\x0c\0\0\0\x02\0\x00\xf2\x02\xf3\xff";
    let mut one = vec![10, ziplist.len() as u8];
    one.extend_from_slice(ziplist);
    assert!(read(&one, -2).is_err(), "the total is one too small");
    one[2] += 1;
    assert_eq!(texts(&read(&one, -2).unwrap()), [b"1", b"2"]);
    let several = [&[14, 2], &one[1..], &one[1..]].concat();
    let list = read(&several, -2).unwrap();
    assert_eq!(texts(&list), [b"1", b"2", b"1", b"2"]);
    assert_eq!(shape(&list), ["2", "2"]);
    let list = read(b"\x01\x02\x01a\xc0\x05", -2).unwrap();
    assert_eq!(texts(&list), [b"a", b"5"]);
    assert_eq!(list.as_ref().encoding().name(), "listpack");
}

#[test]
fn damaged_images_are_refused_or_readable() {
    let mut list = list_of(6, b"text", Fill::count(4));
    push(&mut list, &[b'x'; 9000], End::Tail, Fill::count(4));
    let good = image(&list);
    for cut in 0..good.len() {
        assert!(good[..cut].is_empty() || read(&good[..cut], -2).is_err());
    }
    for (index, flip) in (1..good.len()).flat_map(|index| [(index, 1), (index, 0x80), (index, 0xff)]) {
        let mut bad = good.clone();
        bad[index] ^= flip;
        if let Ok(list) = read(&bad, -2) {
            assert_eq!(list.as_ref().iter().count(), list.len());
        }
    }
    for empty in [b"\x01\0".as_slice(), b"\x0e\0", b"\x12\0", b"\x12\x01\x01\0", b"\x12\x01\x03\x01a"] {
        assert!(read(empty, -2).is_err());
    }
    assert!(read(b"\x01\x81\xff\xff\xff\xff\xff\xff\xff\xff", -2).is_err());
}

#[test]
fn full_nodes_have_hardly_any_spare_room() {
    for end in [End::Head, End::Tail] {
        let mut list = List::new();
        (0..10_000).for_each(|index| push(&mut list, format!("element:{index}").as_bytes(), end, FILL));
        let texts: usize = list.as_ref().iter().map(Element::len).sum();
        let bytes = list.as_ref().allocated_bytes(0);
        assert!(bytes < texts + texts / 4, "{bytes} for {texts}");
    }
}

#[test]
fn texts_as_long_as_the_largest_node_are_pushed_at_either_end() {
    for length in (65_500..=65_540).chain([8180, 8192, 8193]) {
        for (first, second) in [(End::Head, End::Head), (End::Head, End::Tail), (End::Tail, End::Head)] {
            let (mut list, long) = (List::new(), vec![b'x'; length]);
            for (text, end) in [(&long[..], first), (b"short", second), (&long[..], second), (b"last", first)]
            {
                push(&mut list, text, end, Fill::from_setting(-5));
            }
            let mut lengths: Vec<usize> = list.as_ref().iter().map(Element::len).collect();
            lengths.sort_unstable();
            assert_eq!(lengths, [4, 5, length, length]);
        }
    }
}

#[test]
fn node_pushed_at_both_ends_never_reserves_more_than_its_limit() {
    for ends in [[End::Head, End::Head], [End::Tail, End::Tail], [End::Head, End::Tail]] {
        let mut node = Node::of(b"first", ends[0], 0, 8192);
        let (mut moves, mut place) = (0, node.bytes().as_ptr_range());
        while node.size() + 20 <= 8192 {
            let end = ends[node.count() % 2];
            node.push(b"element", end, 8192);
            let now = node.bytes().as_ptr_range();
            moves += usize::from(now.start != place.start && now.end != place.end);
            place = now;
            assert!(node.allocated_bytes() <= 8192 + size_of::<Node>());
        }
        assert!(
            Listpack::validated(node.bytes().to_vec()).is_some_and(|all| all.as_ref().len() == node.count())
        );
        assert!(moves < 40, "{moves} moves of {} elements", node.count());
    }
}
