//! Rules, users and files as values, without a server.

use super::file::parse;
use super::*;
use command::table;
use command::{Flags, Group, Row};
use std::sync::LazyLock;
use sys::{Prng, UnixMs};
use wire::RequestBuf;

/// Of the server's own commands, those that the tests name.
const FAMILY: &[Row<()>] =
    &[Row::new("client", -2, Flags::empty(), ()).group(Group::Connection).subcommands(&[
        Row::new("client|id", 2, Flags::empty(), ()).group(Group::Connection),
        Row::new("client|info", 2, Flags::empty(), ()).group(Group::Connection),
        Row::new("client|list", -2, Flags::ADMIN, ()).group(Group::Connection),
    ])];

/// Tells the table of commands of these.
fn install() {
    static HANDLERS: LazyLock<Vec<()>> = LazyLock::new(|| table::install(&[FAMILY]));
    LazyLock::force(&HANDLERS);
}

fn user(rules: &str) -> User {
    try_user(rules).unwrap()
}

fn try_user(rules: &str) -> Result<User, SetUserError> {
    install();
    let words: Vec<&str> = rules.split(' ').collect();
    User::new(b"u", NewChannels::None).with_rules(&words, NewChannels::None)
}

fn described(rules: &str) -> String {
    String::from_utf8(user(rules).describe()).unwrap()
}

fn check(user: &User, line: &str) -> Result<(), Denied> {
    install();
    let request = RequestBuf::from_args(line.split(' '));
    let command = table::find_for(&request.as_request()).unwrap();
    user.check(command, &request.as_request())
}

#[test]
fn last_rule_about_a_command_is_the_one_that_is_shown() {
    assert_eq!(described("+get"), "off sanitize-payload resetchannels -@all +get");
    for (rules, shown) in [
        ("+get +set -get +GET", "-@all +set +get"),
        ("+client|list -client +client|id", "-@all -client +client|id"),
        ("+client|id +client|info -client", "-@all -client"),
        ("+get|a +get|A +get|b +get", "-@all +get"),
        ("+set +setnx -set", "-@all +setnx -set"),
        ("+@all -get +get", "+@all +get"),
        ("+@read +get -@READ", "-@all +get -@read"),
        ("+get -@all +@all", "+@all"),
    ] {
        assert_eq!(described(rules), format!("off sanitize-payload resetchannels {shown}"), "{rules}");
    }
}

#[test]
fn only_everything_is_everything() {
    assert!(user("~* &* +@all").is_unrestricted());
    assert!(user("+get (~* &* +@all)").is_unrestricted());
    for rules in ["~* +@all", "&* +@all", "~* &* +@all -get", "~* &* +@all -get +get", "%RW~* &* +@all"] {
        assert!(!user(rules).is_unrestricted(), "{rules}");
    }
}

#[test]
fn strongest_reason_is_told() {
    let user = user("+@all -set ~a (+get ~b)");
    assert_eq!(check(&user, "set a b"), Err(Denied::Command));
    assert_eq!(check(&user, "get b"), Ok(()));
    assert_eq!(check(&user, "get c"), Err(Denied::Key(1)));
    assert_eq!(check(&user, "mget a a c d"), Err(Denied::Key(3)));
    assert!(Denied::Command < Denied::Key(1) && Denied::Key(9) < Denied::Channel(1));
}

#[test]
fn subscribing_to_a_pattern_needs_the_very_pattern() {
    let user = user("&news:* (&sport)");
    assert!(user.allows_channel(b"news:1", false) && user.allows_channel(b"sport", false));
    assert!(user.allows_channel(b"news:*", true) && !user.allows_channel(b"news:1", true));
    assert!(!user.allows_channel(b"other", false));
}

#[test]
fn passwords_open_users_that_are_on() {
    let with = user("on >a >b");
    assert!(with.accepts(b"a") && with.accepts(b"b") && !with.accepts(b"c") && !with.accepts(b""));
    assert!(!user("on").accepts(b""));
    assert!(user("on nopass").accepts(b"anything"));
    assert!(!user("nopass").accepts(b"anything"));
    assert!(!user("on >a >b <a").accepts(b"a"));
    assert!(!user("on nopass >a").accepts(b"x"), "a password ends nopass");
}

#[test]
fn rule_that_is_wrong_changes_nothing_and_is_named() {
    let refused = |rules: &str| try_user(rules).unwrap_err();
    let rule = |rule: &str, error| SetUserError::Rule(rule.into(), error);
    assert_eq!(refused("+get nosuch +set"), rule("nosuch", RuleError::Syntax));
    assert_eq!(refused("+client|list|x"), rule("+client|list|x", RuleError::FirstArgumentOfSubcommand));
    assert_eq!(refused("on (+get ( ~x"), SetUserError::Unmatched(b"(+get".into()));
    assert_eq!(refused("%R"), rule("%R", RuleError::Syntax));
    assert_eq!(refused("(+get (~x))"), rule("(+get (~x))", RuleError::Syntax));
}

#[test]
fn attempts_that_are_alike_are_one_entry_for_a_minute() {
    let log = AclLog::default();
    let attempt = |object: &'static [u8]| Attempt {
        reason: Reason::Key,
        setting: Setting::TopLevel,
        object,
        user: b"u",
    };
    let note = |object, ms| log.note(attempt(object), String::new, UnixMs(ms), 3);
    note(b"a", 0);
    note(b"b", 10);
    note(b"a", 60_000);
    note(b"a", 120_000);
    note(b"a", 180_001);
    let seen: Vec<_> = log.newest(9).iter().map(|entry| (entry.object[0], entry.count, entry.id)).collect();
    assert_eq!(seen, [(b'a', 1, 2), (b'a', 3, 0), (b'b', 1, 1)]);
    note(b"c", 180_002);
    assert_eq!(log.newest(9).len(), 3);
    log.clear();
    note(b"c", 180_003);
    assert_eq!(log.newest(9)[0].id, 4);
}

#[test]
fn file_is_taken_as_a_whole_or_not_at_all() {
    install();
    let good = b"user a on >x ~k +get (%R~y  +set)\r\n\n  user default off\n";
    let users = parse(good, "f", NewChannels::None).unwrap();
    assert_eq!(users.len(), 2);
    assert!(!users[&b"default"[..]].is_open());
    let bad = b"user a on\nuser a off\nfoo\nuser b +nosuch nosuch on2\nuser c (+get\nuser d\te\n";
    let LoadError(text) = parse(bad, "f", NewChannels::None).unwrap_err();
    assert_eq!(
        text,
        "WARNING: Duplicate user 'a' found on line 2. f:3 should start with user keyword followed by the username. \
         f:4: Error in applying operation '+nosuch': Unknown command or category name in ACL. f:4: Syntax error. \
         f:5: Unmatched parenthesis in selector definition.'f:6: username 'd\te' contains invalid characters. \
         WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
    );
}

#[test]
fn quotes_in_parentheses_are_read_back_as_they_were() {
    let user = user(r#"~"a ("~\"b\\'" +get)"#);
    let line = [b"user u ", &user.describe()[..]].concat();
    assert_eq!(*parse(&line, "f", NewChannels::None).unwrap()[&b"u"[..]], user);
    assert!(user.selectors().last().unwrap().keys_text().ends_with(br#"~"b\'"#));
}

#[test]
fn what_ends_as_a_selector_does_ends_one_in_a_line() {
    install();
    let config = config::Config::defaults();
    let of =
        |words: &[&str]| User::new(b"u", NewChannels::None).with_rules(words, NewChannels::None).unwrap();
    for words in [&["on", ">secret", "~a", "(~b +get)"][..], &["(%R~b +@read)", r#"("~\"b" &c)"#], &["%RW~*"]]
    {
        assert!(reads_back(&of(words), &config), "{words:?}");
    }
    // The first one would have the right to `get c))` with any key.
    for words in [&["(~b) +get|c)"][..], &["(~b) ~c)"], &["(&b)  +get)"]] {
        assert!(!reads_back(&of(words), &config), "{words:?}");
    }
}

/// Pieces of rules, put together without sense.
fn random_rule(prng: &mut Prng) -> Vec<u8> {
    const PIECES: &[&[u8]] = &[
        b"+",
        b"-",
        b"@",
        b"~",
        b"&",
        b"%",
        b"R",
        b"w",
        b"(",
        b")",
        b"|",
        b"*",
        b"get",
        b"client",
        b"list",
        b"all",
        b"read",
        b"on",
        b"off",
        b"reset",
        b">",
        b"<",
        b"#",
        b"!",
        b" ",
        b"\"",
        b"\\",
        b"'",
        b"\x00",
        b"\xff",
        b"\n",
        b"keys",
        b"channels",
        b"commands",
        b"config",
        b"nopass",
        b"user",
        b"0123456789abcdef",
    ];
    let count = prng.below(8);
    (0..count).flat_map(|_| PIECES[prng.below(PIECES.len() as u64) as usize]).copied().collect()
}

#[test]
fn any_rules_give_a_user_that_reads_back_as_itself_or_an_error() {
    install();
    let mut accepted = 0;
    for seed in 0..20_000 {
        let mut prng = Prng::from_seed(seed);
        let words: Vec<Vec<u8>> = (0..=prng.below(5)).map(|_| random_rule(&mut prng)).collect();
        let Ok(user) = User::new(b"u", NewChannels::None).with_rules(&words, NewChannels::None) else {
            continue;
        };
        accepted += 1;
        let line = [b"user u ", &user.describe()[..]].concat();
        let users = parse(&line, "f", NewChannels::None)
            .unwrap_or_else(|error| panic!("{seed}: {words:?}\n{}\n{}", line.escape_ascii(), error.0));
        let again = users[&b"u"[..]].describe();
        assert_eq!(again, user.describe(), "{seed}: {}", line.escape_ascii());
    }
    assert!(accepted > 500, "{accepted}");
}

#[test]
fn any_file_is_read_or_refused() {
    install();
    for seed in 0..5_000 {
        let mut prng = Prng::from_seed(seed);
        let mut text = Vec::new();
        for _ in 0..prng.below(6) {
            if !prng.one_in(4) {
                text.extend_from_slice(b"user ");
            }
            for _ in 0..prng.below(5) {
                text.extend(random_rule(&mut prng));
                text.push(b' ');
            }
            text.push(if prng.one_in(5) { b'\r' } else { b'\n' });
        }
        drop(parse(&text, "f", NewChannels::All));
    }
}

#[test]
fn what_cannot_be_read_stays_what_it_was() {
    install();
    let (registry, config) = (Registry::default(), config::Config::defaults());
    let names = || {
        let all = registry.all();
        all.keys().map(|name| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(registry.kept(), None);
    let told = registry.take_kept(1, b"user alice on ~a*\nuser bob off\n", &config);
    assert_eq!((told.len(), names()), (0, vec!["alice".into(), "bob".into(), "default".into()]));
    let alice = registry.get(b"alice");
    let later = b"user alice on what-comes-later\nunreadable carol\n";
    let told = registry.take_kept(2, later, &config);
    assert_eq!((told.len(), names()), (2, vec!["alice".into(), "default".into()]));
    assert_eq!(registry.get(b"alice"), alice);
    assert_eq!(registry.take_kept(3, later, &config), Vec::<String>::new(), "it is told once");
    let kept = registry.kept().unwrap();
    assert_eq!((kept.revision, kept.unread.len(), kept.has_default), (3, 2, false));
    // The default user is what the lines say, as long as they do.
    assert!(registry.is_open());
    registry.take_kept(
        4,
        b"user default on #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b ~*\n",
        &config,
    );
    assert!(!registry.is_open());
    registry.follow_requirepass(b"another");
    assert!(registry.authenticate(b"default", b"secret").is_some());
    registry.take_kept(5, b"", &config);
    assert!(registry.is_open());
}
