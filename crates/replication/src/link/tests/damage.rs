//! Damaged transcripts: no machine panics, keeps more than it may, or hands out what depends on how the bytes were cut.

use super::super::form::{Arriving, Room, note_whole};
use super::stream::{play as play_stream, play_by_runs};
use super::*;
use testkit::seed::Budget;

/// A number below a bound that fits memory.
fn below(prng: &mut Prng, bound: usize) -> usize {
    usize::try_from(prng.below(bound as u64)).unwrap()
}

/// Some bytes replaced, removed, put in, said twice or cut off.
fn damage(bytes: &mut Vec<u8>, prng: &mut Prng) {
    const ALPHABET: &[u8] = b"\r\n$*+-:0123459EOF xMULTISELECT";
    for _ in 0..1 + prng.below(4) {
        if bytes.is_empty() {
            return;
        }
        let at = below(prng, bytes.len());
        let byte = if prng.one_in(4) {
            prng.next_u64().to_le_bytes()[0]
        } else {
            ALPHABET[below(prng, ALPHABET.len())]
        };
        match prng.below(6) {
            0 | 1 => bytes[at] = byte,
            2 => drop(bytes.remove(at)),
            3 => bytes.insert(at, byte),
            4 => {
                let again = bytes[at..bytes.len().min(at + 40)].to_vec();
                bytes.splice(at..at, again);
            }
            _ => bytes.truncate(at),
        }
    }
}

/// Some requests of a master, mostly in an order that it would send.
fn stream(prng: &mut Prng) -> Vec<u8> {
    const LINES: &[&str] =
        &["SET a 1", "SELECT 2", "PING", "MULTI", "EXEC", "REPLCONF GETACK *", "DEL a b c", "HSET h f v g w"];
    let mut out = Vec::new();
    for _ in 0..prng.below(12) {
        if prng.one_in(3) {
            out.extend(requests(&[
                "MULTI",
                LINES[below(prng, 3)],
                "SELECT 12",
                LINES[6 + below(prng, 2)],
                "EXEC",
            ]));
        } else if prng.one_in(12) {
            out.push(b'\n');
        } else if prng.one_in(12) {
            let words = 1 + below(prng, 30);
            out.extend(format!("*{words}\r\n").into_bytes());
            out.extend(b"$0\r\n\r\n".repeat(words));
        } else {
            let line = if prng.one_in(9) { LINES[below(prng, LINES.len())] } else { LINES[below(prng, 3)] };
            out.extend(requests(&[line]));
        }
    }
    out
}

/// Runs `step` for each seed and tells which one failed.
fn run(steps: u64, step: fn(&mut Prng)) {
    let budget = Budget::from_env(1, steps);
    let mut done = 0;
    while budget.allows(done) {
        let seed = budget.seed.wrapping_add(done);
        let told = std::panic::catch_unwind(|| step(&mut Prng::from_seed(seed)));
        assert!(told.is_ok(), "repeat with TARN_SEED={seed} TARN_STEPS=1");
        done += 1;
    }
}

#[test]
fn a_damaged_stream_is_the_same_however_it_is_cut() {
    run(10_000, |prng| {
        let mut bytes = stream(prng);
        damage(&mut bytes, prng);
        let bound = [30, 80, 200, 5000][below(prng, 4)];
        let whole = play_stream(&bytes, &[bytes.len()], bound);
        for cutting in [vec![1; bytes.len()], random_cutting(bytes.len(), prng)] {
            let (units, place, ending) = play_stream(&bytes, &cutting, bound);
            assert_eq!((&units, place, ending.is_some()), (&whole.0, whole.1, whole.2.is_some()));
            let by_runs = play_by_runs(&bytes, &cutting, bound, |count| below(prng, count + 1));
            assert_eq!(by_runs, (units, place, ending));
        }
        let joined: Vec<u8> = whole.0.iter().flat_map(|unit| unit.bytes.clone()).collect();
        assert!(bytes.starts_with(&joined));
    });
}

#[test]
fn a_request_is_taken_where_the_parser_of_clients_takes_it_in_its_shortest_form() {
    run(20_000, |prng| {
        let mut bytes = stream(prng);
        damage(&mut bytes, prng);
        if !matches!(bytes[..], [b'*', b'1'..=b'9', ..]) {
            return;
        }
        let taken = Arriving::default().look(&bytes, Room::of(1 << 20, 0));
        let at_once = note_whole(&bytes, 0, 1 << 20, &mut Vec::new());
        assert_eq!(at_once, taken.as_ref().ok().copied().flatten());
        let limits = wire::Limits { bulk_bytes_max: 1 << 20, ..wire::Limits::default() };
        let mut batch = wire::Batch::new();
        match wire::Parser::new().parse(&bytes, &limits, &mut batch, 1) {
            // What cannot become one in that form may be known to be none already.
            Ok(0) => assert!(matches!(taken, Ok(None) | Err(_))),
            Ok(used) => match batch.request(0, &bytes).as_sent() {
                Some(sent) => {
                    assert!(matches!(taken, Ok(Some(bytes)) if bytes == used && bytes == sent.len()))
                }
                None => assert!(taken.is_err()),
            },
            Err(_) => assert!(taken.is_err()),
        }
    });
}

#[test]
fn a_damaged_transfer_is_the_same_however_it_is_cut() {
    run(10_000, |prng| {
        let rdb: Vec<u8> = (0..prng.below(200)).map(|_| ID.as_bytes()[below(prng, 40)]).collect();
        let mut master = if prng.one_in(2) {
            [format!("\n$EOF:{ID}\r\n").as_bytes(), &rdb, ID.as_bytes()].concat()
        } else {
            [format!("\n${}\r\n", rdb.len()).as_bytes(), &rdb].concat()
        };
        master.extend(stream(prng));
        damage(&mut master, prng);
        let play = |cutting: &[usize]| {
            let mut transfer = Transfer::new(150);
            let mut handed_out = Vec::new();
            let mut used = 0;
            for piece in pieces(&master, cutting) {
                let Ok(taken) = transfer.step(piece) else { return None };
                taken.parts().iter().for_each(|part| handed_out.extend_from_slice(part));
                used += taken.used;
            }
            Some((handed_out, used))
        };
        let whole = play(&[master.len()]);
        for cutting in [vec![1; master.len()], random_cutting(master.len(), prng)] {
            assert_eq!(play(&cutting), whole);
        }
    });
}

#[test]
fn a_damaged_handshake_is_the_same_however_it_is_cut() {
    run(10_000, |prng| {
        let asks = [Ask::Full, Ask::Rest { id: ID.parse().unwrap(), offset: 7 }];
        let ask = asks[below(prng, 2)];
        let end = [format!("\n+FULLRESYNC {ID} 12\r\n"), format!("+CONTINUE {OTHER_ID}\r\n")];
        let mut master = format!("+PONG\r\n+OK\r\n-ERR no\r\n{}", end[below(prng, 2)]).into_bytes();
        master.extend(stream(prng));
        damage(&mut master, prng);
        let play = |cutting: &[usize]| {
            let (mut handshake, mut sent) = Handshake::begin(Replica::default(), ask);
            let (mut used, mut outcome) = (0, None);
            for piece in pieces(&master, cutting) {
                let step = handshake.step(piece);
                sent.extend(step.send);
                used += step.used;
                outcome = step.outcome;
            }
            (sent, outcome, used)
        };
        let whole = play(&[master.len()]);
        for cutting in [vec![1; master.len()], random_cutting(master.len(), prng)] {
            assert_eq!(play(&cutting), whole);
        }
    });
}
