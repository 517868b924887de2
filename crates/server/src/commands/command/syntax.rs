//! A row's syntax, in the notation of redis-cli's help, to COMMAND DOCS' arguments.
//!
//! The notation: `UPPER` words are tokens, others stand for what a client puts in
//! their place; `[...]` may be left out, `<...>` may not, `|` separates choices.
//! `key [key ...]` may be repeated. A test reads the syntax of every row.
//!
//! Two steps: words and brackets become a tree; the tree becomes arguments, where
//! repetitions are found and tokens are put to what they introduce.

/// One argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Argument {
    /// Its name; for choices and blocks made from those of their parts.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The word that stands before it.
    pub token: Option<String>,
    /// Whether it may be left out.
    pub optional: bool,
    /// Whether it may be repeated.
    pub multiple: bool,
    /// Whether the token is repeated with it.
    pub multiple_token: bool,
}

/// What an argument is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A word of the client.
    Word,
    /// Only the token.
    Token,
    /// One of these.
    OneOf(Vec<Argument>),
    /// All of these.
    Block(Vec<Argument>),
}

/// Reads a syntax that is well formed.
pub(super) fn parse(syntax: &str) -> Vec<Argument> {
    let spaced = ["[", "]", "<", ">", "|"]
        .iter()
        .fold(syntax.to_owned(), |text, mark| text.replace(mark, &format!(" {mark} ")));
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let mut choices = read_choices(&words, &mut at);
    assert!(at == words.len() && choices.len() == 1, "brackets match and choices are in them: {syntax}");
    arguments(&choices.remove(0))
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Word(String),
    Token(String),
    Group { optional: bool, choices: Vec<Vec<Node>>, repeats: bool },
}

/// Reads up to a closing bracket or the end.
fn read_choices(words: &[&str], at: &mut usize) -> Vec<Vec<Node>> {
    let mut choices = vec![Vec::new()];
    while let Some(word) = words.get(*at) {
        let last = choices.last_mut().expect("there is always a choice");
        match *word {
            "]" | ">" => break,
            "|" => choices.push(Vec::new()),
            "[" | "<" => {
                *at += 1;
                let inner = read_choices(words, at);
                let repeats = words[*at - 1] == "...";
                last.push(Node::Group { optional: *word == "[", choices: inner, repeats });
            }
            "..." => {}
            word if word.bytes().any(|byte| byte.is_ascii_lowercase()) => {
                last.push(Node::Word(word.to_owned()))
            }
            word => last.push(Node::Token(word.to_owned())),
        }
        *at += 1;
    }
    choices
}

/// Nodes that belong together, and whether they may be repeated.
struct Unit {
    nodes: Vec<Node>,
    multiple: bool,
}

/// Finds `a b [a b ...]`.
fn units(nodes: &[Node]) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    for node in nodes {
        if let Node::Group { choices, repeats: true, .. } = node
            && let [repeated] = &choices[..]
            && units.len() >= repeated.len()
        {
            let start = units.len() - repeated.len();
            let before: Vec<Node> = units[start..].iter().flat_map(|unit| unit.nodes.clone()).collect();
            if before == *repeated {
                units.truncate(start);
                units.push(Unit { nodes: before, multiple: true });
                continue;
            }
        }
        units.push(Unit { nodes: vec![node.clone()], multiple: false });
    }
    units
}

/// The arguments of a sequence. A token introduces all that follows it.
fn arguments(nodes: &[Node]) -> Vec<Argument> {
    let units = units(nodes);
    let mut found = Vec::new();
    for (index, unit) in units.iter().enumerate() {
        match &unit.nodes[..] {
            [Node::Token(token)] if index + 1 < units.len() => {
                let rest: Vec<Argument> = units[index + 1..].iter().map(of_unit).collect();
                found.push(introduced(token, rest));
                return found;
            }
            _ => found.push(of_unit(unit)),
        }
    }
    found
}

/// What a token introduces becomes one argument with that token.
fn introduced(token: &str, mut rest: Vec<Argument>) -> Argument {
    if rest.len() == 1 && rest[0].token.is_none() && !rest[0].optional {
        let only = rest.remove(0);
        return Argument { token: Some(token.to_owned()), ..only };
    }
    let block = Argument::new(token.to_ascii_lowercase(), Kind::Block(rest));
    Argument { token: Some(token.to_owned()), ..block }
}

fn of_unit(unit: &Unit) -> Argument {
    let argument = match &unit.nodes[..] {
        [node] => of_node(node),
        nodes => together(arguments(nodes)),
    };
    let repeats_token = argument.multiple_token || unit.multiple && argument.token.is_some();
    Argument { multiple: argument.multiple || unit.multiple, multiple_token: repeats_token, ..argument }
}

fn of_node(node: &Node) -> Argument {
    match node {
        Node::Word(name) => Argument::new(name.clone(), Kind::Word),
        Node::Token(token) => {
            let plain = Argument::new(token.to_ascii_lowercase(), Kind::Token);
            Argument { token: Some(token.clone()), ..plain }
        }
        Node::Group { optional, choices, repeats } => {
            let (choices, multiple) = without_repetition(choices);
            let argument = one_of(choices.iter().map(|nodes| together(arguments(nodes))).collect());
            Argument {
                optional: *optional || argument.optional,
                multiple: argument.multiple || multiple || *repeats,
                ..argument
            }
        }
    }
}

/// `[a | b [a | b ...]]` repeats the whole choice.
fn without_repetition(choices: &[Vec<Node>]) -> (Vec<Vec<Node>>, bool) {
    let mut once = choices.to_vec();
    if choices.len() > 1
        && let Some(Node::Group { choices: repeated, repeats: true, .. }) = once.last_mut().and_then(Vec::pop)
        && repeated == once
    {
        return (once, true);
    }
    (choices.to_vec(), false)
}

fn together(mut all: Vec<Argument>) -> Argument {
    match all.len() {
        1 => all.remove(0),
        _ => Argument::new(joined(&all), Kind::Block(all)),
    }
}

fn one_of(mut choices: Vec<Argument>) -> Argument {
    match choices.len() {
        1 => choices.remove(0),
        _ => Argument::new(joined(&choices), Kind::OneOf(choices)),
    }
}

fn joined(all: &[Argument]) -> String {
    all.iter().map(|argument| argument.name.as_str()).collect::<Vec<_>>().join("-")
}

impl Argument {
    fn new(name: String, kind: Kind) -> Argument {
        Argument { name, kind, token: None, optional: false, multiple: false, multiple_token: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes arguments the way redis-cli does.
    fn written(all: &[Argument]) -> String {
        all.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    fn one(argument: &Argument) -> String {
        let body = match &argument.kind {
            Kind::Word => argument.name.clone(),
            Kind::Token => String::new(),
            Kind::OneOf(all) => all.iter().map(one).collect::<Vec<_>>().join(" | "),
            Kind::Block(all) => written(all),
        };
        let body = match (&argument.kind, argument.optional && argument.token.is_none()) {
            (Kind::OneOf(_), false) => format!("<{body}>"),
            _ => body,
        };
        let token = argument.token.clone().unwrap_or_default();
        let text = match argument.multiple {
            true if argument.multiple_token => format!("{token} {body} [{token} {body} ...]"),
            true => format!("{token} {body} [{body} ...]"),
            false => format!("{token} {body}"),
        };
        let text = text.trim().to_owned();
        if argument.optional { format!("[{text}]") } else { text }
    }

    #[test]
    fn syntax_is_written_back_as_it_was_read() {
        crate::commands::install();
        for command in command::table::all() {
            assert_eq!(written(&parse(command.row.syntax)), command.row.syntax, "{}", command.row.name);
        }
    }

    #[test]
    fn tokens_go_with_what_they_introduce() {
        let set = parse("key value [NX | XX] [GET] [EX seconds | KEEPTTL]");
        assert_eq!(set.len(), 5);
        assert!(matches!(&set[2].kind, Kind::OneOf(all) if all.len() == 2 && all[0].kind == Kind::Token));
        assert!(set[2].optional && set[3].kind == Kind::Token);
        let Kind::OneOf(expiry) = &set[4].kind else { panic!("{set:?}") };
        assert_eq!((expiry[0].name.as_str(), expiry[0].token.as_deref()), ("seconds", Some("EX")));
        let sort = parse("key [LIMIT offset count] [GET pattern [GET pattern ...]]");
        assert!(matches!(&sort[1].kind, Kind::Block(all) if all.len() == 2));
        assert!(sort[2].multiple && sort[2].multiple_token && sort[2].optional);
        let mset = parse("key value [key value ...]");
        assert!(matches!(&mset[..], [Argument { kind: Kind::Block(_), multiple: true, .. }]));
    }
}
