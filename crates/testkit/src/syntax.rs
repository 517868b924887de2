//! The notation of a row's `syntax` column, parsed: what redis-cli's help prints.
//!
//! `[x]` may be left out, `[x ...]` may also be repeated, `<a | b>` and `[a | b]`
//! are alternatives, capitals and signs are sent as they stand, and any other
//! word names an argument.

/// A piece of a command's arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A word that is sent as it stands.
    Literal(String),
    /// A named argument.
    Argument(String),
    /// One of these sequences.
    Choice(Vec<Vec<Node>>),
    /// May be left out.
    Optional(Vec<Vec<Node>>),
    /// None, one or several times.
    Repeated(Vec<Vec<Node>>),
}

/// Parses a syntax line.
///
/// # Panics
/// If its brackets do not match: the command table is at fault.
pub fn parse(line: &str) -> Vec<Node> {
    let tokens = split(line);
    let mut at = 0;
    let alternatives = parse_alternatives(&tokens, &mut at);
    assert!(at == tokens.len(), "unbalanced brackets in the syntax '{line}'");
    one_sequence(alternatives.sequences)
}

struct Alternatives {
    sequences: Vec<Vec<Node>>,
    repeated: bool,
}

fn parse_alternatives(tokens: &[String], at: &mut usize) -> Alternatives {
    let mut sequences = vec![Vec::new()];
    let mut repeated = false;
    while let Some(token) = tokens.get(*at) {
        let node = match token.as_str() {
            "]" | ">" => break,
            "|" => {
                sequences.push(Vec::new());
                None
            }
            "..." => {
                repeated = true;
                None
            }
            open @ ("[" | "<") => {
                *at += 1;
                let inner = parse_alternatives(tokens, at);
                let close = if open == "[" { "]" } else { ">" };
                assert!(tokens.get(*at).is_some_and(|token| token == close), "no {close} in a syntax");
                Some(match (open, inner.repeated) {
                    ("[", true) => Node::Repeated(inner.sequences),
                    ("[", false) => Node::Optional(inner.sequences),
                    _ => Node::Choice(inner.sequences),
                })
            }
            word => Some(leaf(word)),
        };
        *at += 1;
        sequences.last_mut().expect("it begins with one").extend(node);
    }
    Alternatives { sequences, repeated }
}

fn leaf(word: &str) -> Node {
    if word == "\"\"" {
        Node::Literal(String::new())
    } else if word.bytes().any(|byte| byte.is_ascii_lowercase()) {
        Node::Argument(word.to_owned())
    } else {
        Node::Literal(word.to_owned())
    }
}

fn one_sequence(mut sequences: Vec<Vec<Node>>) -> Vec<Node> {
    if sequences.len() == 1 { sequences.remove(0) } else { vec![Node::Choice(sequences)] }
}

/// Words and signs, each on its own.
fn split(line: &str) -> Vec<String> {
    let mut spaced = String::new();
    for letter in line.chars() {
        if "[]<>|".contains(letter) {
            spaced.extend([' ', letter, ' ']);
        } else {
            spaced.push(letter);
        }
    }
    spaced.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(word: &str) -> Node {
        Node::Literal(word.to_owned())
    }

    fn argument(word: &str) -> Node {
        Node::Argument(word.to_owned())
    }

    #[test]
    fn alternatives_may_be_left_out_as_a_whole() {
        let expected = vec![
            argument("key"),
            argument("value"),
            Node::Optional(vec![vec![literal("NX")], vec![literal("XX")]]),
            Node::Optional(vec![vec![literal("GET")]]),
            Node::Optional(vec![
                vec![literal("EX"), argument("seconds")],
                vec![literal("PX"), argument("milliseconds")],
            ]),
        ];
        assert_eq!(parse("key value [NX | XX] [GET] [EX seconds | PX milliseconds]"), expected);
        assert_eq!(parse("key value [NX|XX] [GET] [EX seconds|PX milliseconds]"), expected);
    }

    #[test]
    fn dots_repeat_what_stands_before_them() {
        let pair = vec![argument("key"), argument("value")];
        let expected = [pair.clone(), vec![Node::Repeated(vec![pair])]].concat();
        assert_eq!(parse("key value [key value ...]"), expected);
    }

    #[test]
    fn choices_nest() {
        let expected = vec![Node::Repeated(vec![
            vec![literal("GET"), argument("encoding")],
            vec![
                Node::Optional(vec![vec![
                    literal("OVERFLOW"),
                    Node::Choice(vec![vec![literal("WRAP")], vec![literal("SAT")]]),
                ]]),
                literal("SET"),
            ],
        ])];
        assert_eq!(parse("[GET encoding | [OVERFLOW <WRAP | SAT>] SET ...]"), expected);
    }

    #[test]
    #[should_panic(expected = "unbalanced")]
    fn closing_bracket_without_an_opening_one_is_refused() {
        parse("key ]");
    }
}
