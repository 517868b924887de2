use super::{Handle, INNER_CHILDREN, LEAF_ELEMENTS, Tree};
use std::cmp::Ordering;
use sys::Prng;

/// A handle that is its member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name([u8; 4]);

impl Handle for Name {
    fn member(&self) -> &[u8] {
        &self.0
    }
}

fn name(number: u64) -> Name {
    Name((number as u32).to_be_bytes())
}

/// A sorted vector.
#[derive(Default)]
struct Model(Vec<(f64, Name)>);

fn order(left: (f64, Name), right: (f64, Name)) -> Ordering {
    left.0.partial_cmp(&right.0).expect("no score is NaN").then_with(|| left.1.0.cmp(&right.1.0))
}

impl Model {
    fn insert(&mut self, score: f64, handle: Name) {
        let at = self.0.partition_point(|element| order(*element, (score, handle)).is_lt());
        self.0.insert(at, (score, handle));
    }
}

fn compare(tree: &Tree<Name>, model: &Model, random: &mut Prng) {
    tree.check();
    assert_eq!(tree.range(0..usize::MAX).collect::<Vec<_>>(), model.0);
    let (first, last) = (random.below(model.0.len() as u64 + 2), random.below(model.0.len() as u64 + 2));
    let expected: Vec<_> =
        model.0.iter().copied().skip(first as usize).take(last.saturating_sub(first) as usize).collect();
    let ranks = first as usize..last as usize;
    assert_eq!(tree.range(ranks.clone()).collect::<Vec<_>>(), expected);
    assert!(tree.range(ranks).rev().eq(expected.into_iter().rev()));
    for (rank, (score, handle)) in model.0.iter().enumerate() {
        assert_eq!(tree.rank(*score, handle.member()), rank);
        assert_eq!(tree.at(rank), Some((*score, *handle)));
    }
    let bound = random.below(50) as f64;
    let below = model.0.iter().filter(|(score, _)| *score < bound).count();
    assert_eq!(tree.count_while(|score, _| score < bound), below);
    assert_eq!(tree.count_below(bound), below);
    let through = model.0.iter().filter(|(score, _)| *score <= bound).count();
    assert_eq!(tree.count_through(bound), through);
}

/// Runs random changes; `spread` is how many scores there are.
fn run(seed: u64, spread: u64, steps: usize) {
    println!("seed {seed}, {spread} scores");
    let mut random = Prng::from_seed(seed);
    let (mut tree, mut model) = (Tree::default(), Model::default());
    let mut growing = true;
    for step in 0..steps {
        if random.below(2000) == 0 {
            growing = !growing;
        }
        let score = random.below(spread) as f64 * if random.below(2) == 0 { -1.0 } else { 1.0 };
        let bias = if growing { 6 } else { 2 };
        let rank = random.below(model.0.len() as u64 + 1) as usize;
        match random.below(10) {
            pick if pick < bias => {
                let handle = name(random.below(1 << 32));
                if model.0.iter().all(|(_, other)| *other != handle) {
                    tree.insert(score, handle);
                    model.insert(score, handle);
                }
            }
            8 if rank < model.0.len() => {
                let (old, handle) = model.0.remove(rank);
                tree.update(old, score, handle);
                model.insert(score, handle);
            }
            9 if rank < model.0.len() => {
                // A small step, that mostly changes no order.
                let (old, handle) = model.0.remove(rank);
                tree.update(old, old + 0.25, handle);
                model.insert(old + 0.25, handle);
            }
            pick if pick % 2 == 0 => {
                let expected = (rank < model.0.len()).then(|| model.0.remove(rank));
                assert_eq!(tree.remove_at(rank), expected);
            }
            _ if rank < model.0.len() => {
                let (score, handle) = model.0.remove(rank);
                assert_eq!(tree.remove(score, &[0; 5]), None);
                assert_eq!(tree.remove(score, handle.member()), Some(handle));
            }
            _ => assert_eq!(tree.remove(score, &[0; 5]), None),
        }
        assert_eq!(tree.len(), model.0.len());
        if step % 500 == 0 {
            compare(&tree, &model, &mut random);
        }
    }
    compare(&tree, &model, &mut random);
    while !model.0.is_empty() {
        let rank = random.below(model.0.len() as u64) as usize;
        assert_eq!(tree.remove_at(rank), Some(model.0.remove(rank)));
    }
    tree.check();
    assert!(tree.root.is_none());
}

#[test]
fn trees_agree_with_a_sorted_vector() {
    for (seed, spread) in [(1, 1), (2, 20), (3, 1 << 40), (4, 3)] {
        run(seed, spread, 12_000);
    }
}

#[test]
fn ascending_insertion_fills_the_leaves_and_they_can_be_emptied_from_either_end() {
    let mut tree = Tree::default();
    for number in 0..200_000 {
        tree.insert(number as f64, name(number));
    }
    tree.check();
    assert!(tree.bytes() < 200_000 * 17, "{} bytes", tree.bytes());
    for number in 0..60_000 {
        assert_eq!(tree.remove_at(0), Some((number as f64, name(number))));
    }
    tree.check();
    for number in (60_000..200_000).rev() {
        assert_eq!(tree.remove_at(tree.len() - 1), Some((number as f64, name(number))));
        if number % 20_000 == 0 {
            tree.check();
        }
    }
    assert_eq!(tree.len(), 0);
    assert_eq!(tree.remove_at(0), None);
}

/// Ascending insertion leaves the last node of each level with as few children as there happen to be; what is taken out below it has it
/// joined with its neighbour.
#[test]
fn updates_go_where_they_belong_though_the_last_nodes_of_levels_are_small() {
    let full_leaf_level = (LEAF_ELEMENTS * INNER_CHILDREN) as u64;
    let sizes = (1..40).map(|more| full_leaf_level + more * 23);
    let deep = (0..4).map(|more| full_leaf_level * INNER_CHILDREN as u64 + 1 + more * 700);
    for size in sizes.chain(deep) {
        let mut random = Prng::from_seed(size);
        let (mut tree, mut model) = (Tree::default(), Model::default());
        for number in 0..size {
            tree.insert(number as f64, name(number));
            model.0.push((number as f64, name(number)));
        }
        for update in 0..60 {
            // Mostly of what lies at the end, and to everywhere.
            let near_end = size - 1 - random.below(if update % 4 == 0 { size } else { 200.min(size) });
            let (old, handle) = model.0.remove(near_end as usize);
            let new = random.below(2 * size) as f64 / 2.0 + 0.25;
            tree.update(old, new, handle);
            model.insert(new, handle);
            if update % 20 == 0 {
                tree.check();
            }
        }
        tree.check();
        assert!(tree.range(0..tree.len()).eq(model.0.iter().copied()), "size {size}");
    }
}

#[test]
fn a_small_step_leaves_the_leaf_alone() {
    let mut tree = Tree::default();
    for number in 0..1000 {
        tree.insert(number as f64, name(number));
    }
    tree.update(500.0, 500.5, name(500));
    tree.update(500.5, -0.0, name(500));
    assert_eq!(tree.rank(0.0, name(500).member()), 1);
    tree.check();
}
