//! A small generator of pseudo-random numbers (SplitMix64): the same seed gives the same run everywhere.

pub struct Prng(u64);

impl Prng {
    pub fn new(seed: u64) -> Prng {
        Prng(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is above 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// A length: mostly small, sometimes around the places where a header grows by a digit, rarely large.
    pub fn length(&mut self) -> usize {
        match self.below(40) {
            0 if self.one_in(5) => 70_000 + self.below(5),
            0 => 50 + self.below(100),
            1 => *self.pick(&[999, 1000, 1023, 1024, 9_999, 10_000, 16_383, 16_384, 16_385]),
            2..=5 => 97 + self.below(8),
            6..=12 => 8 + self.below(4),
            _ => self.below(6),
        }
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let plain = self.one_in(2);
        (0..len).map(|_| if plain { b'a' + self.below(26) as u8 } else { self.next() as u8 }).collect()
    }

    /// Changes some bytes of `stream`: replaced, removed, inserted, repeated, cut off.
    pub fn mutate(&mut self, stream: &mut Vec<u8>, alphabet: &[u8]) {
        for _ in 0..1 + self.below(4) {
            if stream.is_empty() {
                return;
            }
            // Mostly near the front, where the headers are.
            let near = if self.one_in(2) { stream.len() } else { stream.len().min(40) };
            let at = self.below(near);
            let byte = if self.one_in(4) { self.next() as u8 } else { *self.pick(alphabet) };
            match self.below(6) {
                0 | 1 => stream[at] = byte,
                2 => drop(stream.remove(at)),
                3 => stream.insert(at, byte),
                4 => {
                    let piece = stream[at..stream.len().min(at + 30)].to_vec();
                    stream.splice(at..at, piece);
                }
                _ => stream.truncate(at),
            }
        }
    }

    /// Ascending places to cut a stream of `len` bytes at, ending with `len`.
    pub fn cuts(&mut self, len: usize) -> Vec<usize> {
        let step_max = *self.pick(&[2, 5, 20, 300, 20_000]);
        let step_max = step_max.max(len / 2000 + 1);
        let mut cuts = Vec::new();
        let mut at = 0;
        while at < len {
            at = (at + 1 + self.below(step_max)).min(len);
            cuts.push(at);
        }
        cuts
    }
}
