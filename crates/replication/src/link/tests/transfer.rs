//! The RDB in both forms, its mark split in every way.

use super::*;

/// What a transfer handed out.
#[derive(Debug, PartialEq)]
struct Played {
    rdb: Vec<u8>,
    used: usize,
    is_complete: bool,
}

/// Plays a master's bytes, in these pieces.
fn play(master: &[u8], cutting: &[usize]) -> Result<Played, Ending> {
    let mut transfer = Transfer::new(1_000_000);
    let mut played = Played { rdb: Vec::new(), used: 0, is_complete: false };
    for piece in pieces(master, cutting) {
        let taken = transfer.step(piece)?;
        assert!(taken.used == piece.len() || taken.is_complete);
        assert!(!played.is_complete || (taken.used == 0 && taken.is_complete));
        taken.parts().iter().for_each(|part| played.rdb.extend_from_slice(part));
        played.used += taken.used;
        played.is_complete = taken.is_complete;
        assert_eq!(transfer.handed_out(), played.rdb.len() as u64);
    }
    Ok(played)
}

/// The transfer of `rdb` behind `head` and before `tail`, however it is cut.
fn is_carried(head: &[u8], rdb: &[u8], mark: &[u8], prng: &mut Prng) {
    let tail = b"*1\r\n$4\r\nPING\r\n";
    let master = [head, rdb, mark, tail].concat();
    let used = master.len() - tail.len();
    for cutting in cuttings(master.len(), prng) {
        let played = play(&master, &cutting).unwrap();
        let expected = Played { rdb: rdb.to_vec(), used, is_complete: true };
        assert_eq!(played, expected, "{cutting:?} of {}", master.escape_ascii());
    }
    for length in 0..used {
        let played = play(&master[..length], &[length]).unwrap();
        assert!(!played.is_complete && rdb.starts_with(&played.rdb), "{length}");
    }
}

#[test]
fn an_rdb_of_known_length_is_carried() {
    let mut prng = Prng::from_seed(2);
    for head in [&b"$30\r\n"[..], b"\n\n\r\n$30\r\n"] {
        is_carried(head, &[7; 30], b"", &mut prng);
        is_carried(head, b"$EOF:\r\n\r\nREDIS0011.......\r\n\r\n\n", b"", &mut prng);
    }
}

#[test]
fn an_rdb_before_a_mark_is_carried() {
    let mut prng = Prng::from_seed(3);
    let marks: [&[u8]; 4] = [
        ID.as_bytes(),
        b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        b"abababababababababababababababababababab",
        b"aaaaaaaaaaaaaaaaaaabaaaaaaaaaaaaaaaaaaab",
    ];
    for mark in marks {
        let head = [b"\n$EOF:", mark, b"\r\n"].concat();
        // What ends like the beginning of the mark, or holds most of it, is RDB all the same.
        let beginnings = [&mark[..39], b"z", &mark[..20], b"z", &mark[..1], b"z"].concat();
        for rdb in [&b"REDIS0011 and more"[..], b"", b"z", &beginnings] {
            is_carried(&head, rdb, mark, &mut prng);
        }
    }
}

/// The first place of the mark ends the RDB, also where its beginnings overlap: held against a search through all of it.
#[test]
fn the_first_mark_ends_the_rdb() {
    for seed in 0..300 {
        let mut prng = Prng::from_seed(seed);
        let letter = |prng: &mut Prng| b'a' + u8::from(prng.one_in(12));
        let mark: Vec<u8> = (0..40).map(|_| letter(&mut prng)).collect();
        let mut rest: Vec<u8> = (0..prng.below(300)).map(|_| letter(&mut prng)).collect();
        for _ in 0..prng.below(4) {
            let beginning = usize::try_from(prng.below(40)).unwrap();
            rest.extend_from_slice(&mark[..beginning]);
        }
        rest.extend_from_slice(&mark);
        rest.extend_from_slice(&mark[..11]);
        let expected = rest.windows(40).position(|window| window == mark).unwrap();
        let master = [b"$EOF:", &mark[..], b"\r\n", &rest].concat();
        for cutting in (0..10).map(|_| random_cutting(master.len(), &mut prng)) {
            let played = play(&master, &cutting).unwrap();
            assert_eq!(
                (&played.rdb[..], played.used),
                (&rest[..expected], 47 + expected + 40),
                "seed {seed}"
            );
        }
    }
}

#[test]
fn slices_are_of_what_came_in() {
    let mut transfer = Transfer::new(100);
    assert_eq!(transfer.form(), None);
    let received = b"$8\r\nREDIS001*";
    let taken = transfer.step(received).unwrap();
    assert_eq!((taken.parts()[1].as_ptr(), taken.used), (received[4..].as_ptr(), 12));
    assert_eq!(transfer.form(), Some(Form::Length(8)));
}

#[test]
fn what_is_no_rdb_is_refused() {
    let sentence = |master: &[u8]| play(master, &[master.len()]).unwrap_err().to_string();
    assert_eq!(
        sentence(b"\n-ERR cannot fork\r\n"),
        "MASTER aborted replication with an error: ERR cannot fork"
    );
    assert!(sentence(b"*1\r\n").starts_with("Bad protocol from MASTER, the first byte is not '$'"));
    for line in ["$", "$0", "$-1", "$+4", "$4x", "$99999999999999999999", "$EOF:abc", &format!("$EOF:{ID}0")]
    {
        let master = format!("{line}\r\n");
        assert!(sentence(master.as_bytes()).starts_with("Bad protocol from MASTER, the "), "{line}");
    }
    assert!(sentence(b"$1000001\r\n").contains("larger than the 1000000 bytes"));
    let endless = [format!("$EOF:{ID}\r\n").as_bytes(), &[b'x'; 1_000_001]].concat();
    assert!(sentence(&endless).contains("larger than the 1000000 bytes"));
    assert!(sentence(&[b'$'; 5000]).contains("a line of more than 4096 bytes"));
}
