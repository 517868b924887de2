//! What a replica says and makes of each reply.

use super::*;

/// All that one handshake came to.
#[derive(Debug, Default, PartialEq)]
struct Played {
    sent: Vec<u8>,
    notes: Vec<String>,
    used: usize,
    outcome: Option<Outcome>,
}

/// Plays a master's bytes, in these pieces.
fn play(replica: &Replica, ask: Ask, master: &[u8], cutting: &[usize]) -> Played {
    let (mut handshake, sent) = Handshake::begin(replica.clone(), ask);
    let mut played = Played { sent, ..Played::default() };
    for piece in pieces(master, cutting) {
        let step = handshake.step(piece);
        assert!(step.used == piece.len() || step.outcome.is_some());
        played.used += step.used;
        played.sent.extend(step.send);
        played.notes.extend(step.notes);
        played.outcome = step.outcome;
    }
    played
}

/// The same however the bytes come; and before the last of those that are used there is no outcome.
fn play_all(replica: &Replica, ask: Ask, master: &[u8]) -> Played {
    let played = play(replica, ask, master, &[master.len()]);
    for cutting in cuttings(master.len(), &mut Prng::from_seed(1)) {
        assert_eq!(play(replica, ask, master, &cutting), played, "{cutting:?}");
    }
    for length in 0..played.used {
        assert_eq!(play(replica, ask, &master[..length], &[length]).outcome, None, "{length}");
    }
    played
}

fn known() -> Ask {
    Ask::Rest { id: ID.parse().unwrap(), offset: 41 }
}

/// The outcome where the master answers PSYNC like this.
fn psync(ask: Ask, reply: &str) -> Option<Outcome> {
    let master = format!("+PONG\r\n+OK\r\n+OK\r\n{reply}");
    play_all(&Replica::default(), ask, master.as_bytes()).outcome
}

/// The sentence of a refusal.
fn refusal(outcome: Option<Outcome>) -> String {
    match outcome {
        Some(Outcome::Refused(ending)) => ending.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_replica_introduces_itself_and_asks() {
    let replica = Replica {
        user: Some(b"tarn".to_vec()),
        password: Some(b"secret".to_vec()),
        listening_port: 6380,
        announced_address: Some("10.0.0.7".to_owned()),
        version: Some("8.0.0".to_owned()),
        names: Vec::new(),
        hands_over: false,
        is_whole: true,
        node: Some(3),
    };
    let master = format!("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n\n\n+FULLRESYNC {ID} 77\r\n$3\r\nRED");
    let played = play_all(&replica, Ask::Full, master.as_bytes());
    let sent = [
        "PING",
        "AUTH tarn secret",
        "REPLCONF listening-port 6380",
        "REPLCONF ip-address 10.0.0.7",
        "REPLCONF capa eof capa psync2 capa tarn capa whole capa node-3",
        "REPLCONF version 8.0.0",
        "PSYNC ? -1",
    ];
    assert_eq!(played.sent, requests(&sent));
    assert_eq!(played.outcome, Some(Outcome::Full { id: ID.parse().unwrap(), offset: 77 }));
    assert_eq!(&master[played.used..], "$3\r\nRED");
    assert!(played.notes.is_empty());
    assert!(!format!("{replica:?}").contains("secret"));
}

#[test]
fn a_stream_goes_on_behind_what_the_replica_has() {
    let master = b"+PONG\r\n+OK\r\n+OK\r\n+CONTINUE\r\n*1\r\n";
    let played = play_all(&Replica::default(), known(), master);
    let psync = format!("PSYNC {ID} 42");
    let sent = ["PING", "REPLCONF listening-port 0", "REPLCONF capa eof capa psync2 capa tarn", &psync];
    assert_eq!(played.sent, requests(&sent));
    assert_eq!(played.outcome, Some(Outcome::Partial { renamed: None }));
    assert_eq!(&master[played.used..], b"*1\r\n");
}

#[test]
fn who_hands_over_says_so_and_knows_whether_it_came_to_that() {
    let replica = Replica { hands_over: true, ..Replica::default() };
    let played =
        play_all(&replica, known(), format!("+PONG\r\n+OK\r\n+OK\r\n+CONTINUE {OTHER_ID}\r\n").as_bytes());
    let psync = format!("PSYNC {ID} 42 FAILOVER");
    let sent = ["PING", "REPLCONF listening-port 0", "REPLCONF capa eof capa psync2 capa tarn", &psync];
    assert_eq!(played.sent, requests(&sent));
    let asks = |master: &[u8]| {
        let (mut handshake, _) = Handshake::begin(replica.clone(), known());
        handshake.step(master);
        handshake.has_asked()
    };
    assert!(asks(b"+PONG\r\n+OK\r\n+OK\r\n"));
    assert!(asks(b"+PONG\r\n+OK\r\n+OK\r\n-ERR no\r\n"));
    assert!(!asks(b"+PONG\r\n+OK\r\n"));
    assert!(!asks(b"-LOADING\r\n"));
}

#[test]
fn a_master_is_asked_where_the_streams_part() {
    let names = vec![(ID.parse().unwrap(), 41), (OTHER_ID.parse().unwrap(), 30)];
    let replica = Replica { names, ..Replica::default() };
    let outcome = |reply: &str| {
        let played = play_all(&replica, known(), format!("+PONG\r\n+OK\r\n+OK\r\n{reply}").as_bytes());
        let psync = format!("PSYNC {ID} 42");
        let common = format!("REPLCONF common {ID}:41,{OTHER_ID}:30");
        let introduction =
            ["PING", "REPLCONF listening-port 0", "REPLCONF capa eof capa psync2 capa tarn", &common];
        let is_parted = matches!(played.outcome, Some(Outcome::Parted { .. } | Outcome::Later(_)));
        let asks: &[&str] = if is_parted { &[] } else { &[&psync] };
        assert_eq!(played.sent, requests(&[&introduction, asks].concat()));
        played.outcome.unwrap()
    };
    let parted = |id: &str, offset| Outcome::Parted { id: id.parse().unwrap(), offset };
    assert_eq!(outcome(&format!("+COMMON {ID} 40\r\n")), parted(ID, 40));
    assert_eq!(outcome(&format!("+COMMON {OTHER_ID} 30\r\n")), parted(OTHER_ID, 30));
    // It has all of it, another stream, or what was not asked about, or does not know the question.
    let full = Outcome::Full { id: OTHER_ID.parse().unwrap(), offset: 7 };
    for answer in [
        format!("+COMMON {ID} 41"),
        format!("+COMMON {ID} 43"),
        format!("+COMMON {OTHER_ID} 31"),
        format!("+COMMON {} 1", "1".repeat(40)),
        "+COMMON none".to_owned(),
        "+COMMON".to_owned(),
        "-ERR Unrecognized REPLCONF option: common".to_owned(),
    ] {
        assert_eq!(outcome(&format!("{answer}\r\n+FULLRESYNC {OTHER_ID} 7\r\n")), full, "{answer}");
    }
    let later = outcome("-NOMASTERLINK Can't SYNC while not connected with my master\r\n");
    assert!(matches!(later, Outcome::Later(_)), "{later:?}");
}

#[test]
fn a_new_name_is_told_and_the_same_one_is_none() {
    assert_eq!(psync(known(), &format!("+CONTINUE {ID}\r\n")), Some(Outcome::Partial { renamed: None }));
    let renamed = Some(OTHER_ID.parse().unwrap());
    assert_eq!(psync(known(), &format!("+CONTINUE {OTHER_ID}\r\n")), Some(Outcome::Partial { renamed }));
    // A master without that stream gives all of its own.
    let full = Outcome::Full { id: OTHER_ID.parse().unwrap(), offset: 0 };
    assert_eq!(psync(known(), &format!("\r\n+FULLRESYNC {OTHER_ID} 0\r\n")), Some(full));
}

#[test]
fn a_master_that_wants_a_password_tells_so_where_it_counts() {
    let wants = b"-NOAUTH Authentication required.\r\n";
    let password = Replica { password: Some(b"secret".to_vec()), ..Replica::default() };
    for ping in [&wants[..], b"-NOPERM this user has no permissions\r\n", b"-ERR operation not permitted\r\n"]
    {
        let master = [ping, b"+OK\r\n+OK\r\n+OK\r\n+CONTINUE\r\n"].concat();
        let played = play_all(&password, known(), &master);
        assert_eq!(played.outcome, Some(Outcome::Partial { renamed: None }));
    }
    let played = play_all(&Replica::default(), Ask::Full, &wants.repeat(4));
    assert_eq!(
        refusal(played.outcome),
        "Unexpected reply to PSYNC from master: -NOAUTH Authentication required."
    );
    assert_eq!(played.notes.len(), 2);
    let wrong = play_all(&password, Ask::Full, b"+PONG\r\n-WRONGPASS invalid\r\n+OK\r\n");
    assert_eq!(refusal(wrong.outcome), "Unable to AUTH to MASTER: -WRONGPASS invalid");
}

#[test]
fn a_refused_option_changes_nothing() {
    let replica = Replica { version: Some("9.9.9".to_owned()), ..Replica::default() };
    let no = "-ERR Unrecognized REPLCONF option\r\n";
    let master = format!("+PONG\r\n{no}{no}{no}+FULLRESYNC {ID} 5\r\n");
    let played = play_all(&replica, Ask::Full, master.as_bytes());
    assert!(matches!(played.outcome, Some(Outcome::Full { offset: 5, .. })));
    let note =
        "(Non critical) Master does not understand REPLCONF version: -ERR Unrecognized REPLCONF option";
    assert_eq!((played.notes.len(), played.notes[2].as_str()), (3, note));
}

#[test]
fn a_master_that_will_be_able_to_is_tried_later() {
    for reply in ["-LOADING Redis is loading the dataset in memory", "-NOMASTERLINK Can't SYNC"] {
        let outcome = psync(known(), &format!("\n{reply}\r\n"));
        assert!(
            matches!(&outcome, Some(Outcome::Later(ending)) if ending.sentence().ends_with(reply)),
            "{outcome:?}"
        );
        let early = play_all(&Replica::default(), known(), format!("{reply}\r\n").as_bytes());
        assert!(matches!(early.outcome, Some(Outcome::Later(_))));
    }
}

#[test]
fn what_cannot_be_right_is_refused() {
    let wrong = [
        "",
        " ?",
        " 12 4",
        &format!(" {ID}"),
        &format!(" {ID} x"),
        &format!(" {ID} -1"),
        &format!(" {ID} 1 1"),
    ]
    .map(|rest| format!("+FULLRESYNC{rest}\r\n"));
    for reply in wrong {
        let sentence = refusal(psync(known(), &reply));
        assert!(sentence.starts_with("Master replied with wrong +FULLRESYNC syntax"), "{sentence}");
    }
    let beyond = format!("+FULLRESYNC {ID} {}\r\n", limits::OFFSET_MAX + 1);
    assert!(refusal(psync(known(), &beyond)).starts_with("Master replied with wrong"));
    assert!(refusal(psync(known(), "+CONTINUE abc\r\n")).starts_with("Master replied with wrong +CONTINUE"));
    assert!(refusal(psync(Ask::Full, "+CONTINUE\r\n")).starts_with("Master continues a stream"));
    assert!(
        refusal(psync(known(), "-ERR unknown command 'PSYNC'\r\n")).starts_with("Master does not support")
    );
    assert!(refusal(psync(known(), "+WHAT\r\n")).starts_with("Unexpected reply to PSYNC"));
    for master in ["HTTP/1.1 400 Bad Request\r\n", "\r\n", "+PONG\r\n:1\r\n", "+PONG\r\n\r\n", "-ERR no\r\n"]
    {
        refusal(play_all(&Replica::default(), known(), master.as_bytes()).outcome);
    }
}

#[test]
fn a_line_without_end_is_refused() {
    let endless = vec![b'x'; limits::LINE_BYTES_MAX + 1];
    let step = Handshake::begin(Replica::default(), Ask::Full).0.step(&endless);
    assert!(refusal(step.outcome).contains("a line of more than 4096 bytes"));
}
