//! What a script's text tells of the keys that it will touch, so that it can run beside others that touch other keys.
//!
//! This is a look at words, not an understanding of the program: what looks as if it might reach for a key that was
//! not declared counts as doing so. What looks harmless and does so anyway is found out when it happens.

/// How far a script reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It calls no command.
    Nowhere,
    /// All keys in its calls are words of KEYS, as far as the text tells.
    Declared,
    /// It may touch any key.
    Anywhere,
}

/// The positions of a command's keys, by its name and the number of words.
pub type KeysOf<'a> = &'a dyn Fn(&[u8], usize) -> Option<Vec<usize>>;

/// Looks at a script's text. `keys_of` gives the positions of the keys among a call's words, for a command that is
/// named literally: `None` if that takes more than the command's name and the number of words.
pub fn reach(text: &[u8], keys_of: KeysOf<'_>) -> Reach {
    let words = split(text);
    let locals = key_locals(&words);
    let mut found = Reach::Nowhere;
    let mut at = 0;
    while at < words.len() {
        match words[at] {
            Word::Name(b"redis" | b"server") => {
                let Some(call) = call_at(&words, at) else {
                    // `redis` used as a value may be called by another name later.
                    if words.get(at + 1) != Some(&Word::Sign(b'.')) {
                        return Reach::Anywhere;
                    }
                    match words.get(at + 2) {
                        Some(Word::Name(b"call" | b"pcall")) => return Reach::Anywhere,
                        _ => at += 2,
                    }
                    continue;
                };
                if !is_declared(&words[call.clone()], &locals, keys_of) {
                    return Reach::Anywhere;
                }
                found = Reach::Declared;
                // The arguments may hold further calls.
                at = call.start;
            }
            Word::Name(b"_G" | b"load" | b"loadstring") => return Reach::Anywhere,
            _ => at += 1,
        }
    }
    found
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word<'a> {
    Name(&'a [u8]),
    /// A string without escapes.
    Text(&'a [u8]),
    /// A number, or a string that is not plain.
    Value,
    Sign(u8),
}

/// The text as words, without comments.
fn split(text: &[u8]) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut rest = text;
    if rest.starts_with(b"#!") {
        rest = &rest[line_end(rest)..];
    }
    while let Some(&byte) = rest.first() {
        let taken = match byte {
            b' ' | b'\t' | b'\r' | b'\n' => 1,
            b'-' if rest.starts_with(b"--") => match long_bracket(&rest[2..]) {
                Some(length) => 2 + length,
                None => line_end(rest),
            },
            b'\'' | b'"' => {
                let (word, length) = quoted(rest);
                words.push(word);
                length
            }
            b'[' if long_bracket(rest).is_some() => {
                words.push(Word::Value);
                long_bracket(rest).unwrap_or(rest.len())
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let length = rest
                    .iter()
                    .position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')
                    .unwrap_or(rest.len());
                words.push(Word::Name(&rest[..length]));
                length
            }
            b'0'..=b'9' => {
                words.push(Word::Value);
                rest.iter()
                    .position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'.')
                    .unwrap_or(rest.len())
            }
            sign => {
                words.push(Word::Sign(sign));
                1
            }
        };
        rest = &rest[taken..];
    }
    words
}

fn line_end(text: &[u8]) -> usize {
    text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len())
}

fn quoted(text: &[u8]) -> (Word<'_>, usize) {
    let mut at = 1;
    let mut is_plain = true;
    while at < text.len() && text[at] != text[0] {
        if text[at] == b'\\' {
            is_plain = false;
            at += 1;
        }
        at += 1;
    }
    let end = at.min(text.len());
    let word = if is_plain { Word::Text(&text[1..end]) } else { Word::Value };
    (word, (at + 1).min(text.len()))
}

/// The length of a long bracket (`[[...]]`, `[==[...]==]`), if the text begins with one.
fn long_bracket(text: &[u8]) -> Option<usize> {
    let signs = text.strip_prefix(b"[")?.iter().take_while(|byte| **byte == b'=').count();
    if text.get(1 + signs) != Some(&b'[') {
        return None;
    }
    let close: Vec<u8> = [b"]".as_slice(), &vec![b'='; signs], b"]"].concat();
    let body = &text[2 + signs..];
    let end = body.windows(close.len()).position(|window| window == close);
    Some(end.map_or(text.len(), |end| 2 + signs + end + close.len()))
}

/// Names of locals that are only ever given words of KEYS: `local a, b = KEYS[1], KEYS[2]`.
fn key_locals<'a>(words: &[Word<'a>]) -> Vec<&'a [u8]> {
    let mut locals: Vec<&[u8]> = Vec::new();
    let mut at = 0;
    while at < words.len() {
        if words[at] == Word::Name(b"local")
            && let Some(names) = key_assignment(&words[at + 1..])
        {
            locals.extend(names);
        }
        at += 1;
    }
    let others = other_bindings(words);
    // One that is given anything else anywhere is none.
    locals.retain(|local| {
        if others.contains(local) {
            return false;
        }
        let is_name = |word: &Word<'_>| *word == Word::Name(local);
        let declared = words.windows(2).filter(|two| two[0] == Word::Name(b"local") && is_name(&two[1]));
        let list = words.windows(2).filter(|two| two[0] == Word::Sign(b',') && is_name(&two[1]));
        let assigned = words.windows(2).enumerate().filter(|(at, two)| {
            is_name(&two[0]) && two[1] == Word::Sign(b'=') && words.get(at + 2) != Some(&Word::Sign(b'='))
        });
        declared.count() + list.count().min(1) >= 1 && assigned.count() <= 1
    });
    locals
}

/// Names of parameters and of variables of loops.
fn other_bindings<'a>(words: &[Word<'a>]) -> Vec<&'a [u8]> {
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let is_end = |word: &Word<'_>| match words[at] {
            Word::Name(b"for") => matches!(word, Word::Sign(b'=') | Word::Name(b"in")),
            _ => *word == Word::Sign(b')'),
        };
        if matches!(word, Word::Name(b"for" | b"function")) {
            let names = words[at + 1..].iter().take_while(|word| !is_end(word));
            found.extend(names.filter_map(|word| match word {
                Word::Name(name) => Some(*name),
                _ => None,
            }));
        }
    }
    found
}

/// `a, b = KEYS[1], KEYS[2]`: the names, if there are as many keys.
fn key_assignment<'a>(words: &[Word<'a>]) -> Option<Vec<&'a [u8]>> {
    let mut names = Vec::new();
    let mut at = 0;
    loop {
        let Word::Name(name) = words.get(at)? else { return None };
        names.push(*name);
        match words.get(at + 1)? {
            Word::Sign(b',') => at += 2,
            Word::Sign(b'=') => break,
            _ => return None,
        }
    }
    at += 2;
    for index in 0..names.len() {
        at += key_word(&words[at..])?;
        let is_last = index + 1 == names.len();
        match (is_last, words.get(at)) {
            (false, Some(Word::Sign(b','))) => at += 1,
            (true, Some(Word::Sign(_))) => return None,
            (true, _) => {}
            (false, _) => return None,
        }
    }
    Some(names)
}

/// How many words `KEYS[...]` takes, if the words begin with it.
fn key_word(words: &[Word<'_>]) -> Option<usize> {
    let [Word::Name(b"KEYS" | b"keys"), Word::Sign(b'['), rest @ ..] = words else { return None };
    let mut depth = 1;
    for (at, word) in rest.iter().enumerate() {
        match word {
            Word::Sign(b'[') => depth += 1,
            Word::Sign(b']') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 3);
        }
    }
    None
}

/// The words between the parentheses of `redis.call(...)` at `at`.
fn call_at(words: &[Word<'_>], at: usize) -> Option<std::ops::Range<usize>> {
    let [_, Word::Sign(b'.'), Word::Name(b"call" | b"pcall"), Word::Sign(b'('), ..] = words[at..] else {
        return None;
    };
    let start = at + 4;
    let mut depth = 1;
    for (index, word) in words.iter().enumerate().skip(start) {
        match word {
            Word::Sign(b'(' | b'{' | b'[') => depth += 1,
            Word::Sign(b')' | b'}' | b']') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(start..index);
        }
    }
    None
}

/// Whether all keys of a call are words of KEYS.
fn is_declared(words: &[Word<'_>], locals: &[&[u8]], keys_of: KeysOf<'_>) -> bool {
    let arguments = arguments(words);
    let Some([Word::Text(command)]) = arguments.first().copied() else { return false };
    // A call or `...` as the last argument may stand for any number of words.
    if let Some(last) = arguments.last()
        && (last.contains(&Word::Name(b"unpack")) || last.last() == Some(&Word::Sign(b'.')))
    {
        return keys_of(command, usize::MAX).is_some_and(|keys| {
            keys.iter().all(|position| arguments.get(*position).is_some_and(|word| is_key(word, locals)))
        });
    }
    keys_of(command, arguments.len()).is_some_and(|keys| {
        keys.iter().all(|position| arguments.get(*position).is_some_and(|word| is_key(word, locals)))
    })
}

fn is_key(words: &[Word<'_>], locals: &[&[u8]]) -> bool {
    key_word(words) == Some(words.len()) || matches!(words, [Word::Name(name)] if locals.contains(name))
}

/// The arguments of a call, split at its commas.
fn arguments<'w, 'a>(words: &'w [Word<'a>]) -> Vec<&'w [Word<'a>]> {
    let mut depth = 0;
    words
        .split(|word| {
            match word {
                Word::Sign(b'(' | b'{' | b'[') => depth += 1,
                Word::Sign(b')' | b'}' | b']') => depth -= 1,
                _ => {}
            }
            depth == 0 && *word == Word::Sign(b',')
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach_of(text: &str) -> Reach {
        reach(text.as_bytes(), &|command, words| match command {
            b"get" | b"set" | b"rpush" => Some(vec![1]),
            b"mget" if words < usize::MAX => Some((1..words).collect()),
            b"ping" => Some(vec![]),
            _ => None,
        })
    }

    #[test]
    fn scripts_with_literal_keys_reach_only_those() {
        for text in [
            "return redis.call('get', KEYS[1])",
            "local a = KEYS[1] return redis.call('set', a, ARGV[1])",
            "local a, b = KEYS[1], KEYS[2]\nredis.pcall('mget', a, b, KEYS[3 + 1])",
            "redis.call('rpush', KEYS[1], unpack(ARGV))",
            "redis.call('set', KEYS[1], redis.call('get', KEYS[2]))",
            "redis.call('ping')",
        ] {
            assert_eq!(reach_of(text), Reach::Declared, "{text}");
        }
    }

    #[test]
    fn whatever_else_is_called_reaches_anywhere() {
        for text in [
            "return redis.call('get', 'x')",
            "return redis.call('get', KEYS[1] .. 'x')",
            "return redis.call(ARGV[1], KEYS[1])",
            "local c = redis.call return c('get', KEYS[1])",
            "local r = redis return r.call('get', KEYS[1])",
            "redis.call('mget', unpack(KEYS))",
            "local a = KEYS[1] .. 'x' redis.call('get', a)",
            "local a = KEYS[1] a = 'x' redis.call('get', a)",
            "redis.call('keys', '*')",
            "redis.call 'ping'",
            "redis['call']('get', 'x')",
            "loadstring('x')()",
        ] {
            assert_eq!(reach_of(text), Reach::Anywhere, "{text}");
        }
    }

    #[test]
    fn scripts_without_calls_reach_nowhere() {
        for text in [
            "return 1",
            "return KEYS[1]",
            "-- redis.call('get', 'x')\nreturn 'redis.call'",
            "--[[ redis ]] return redis.sha1hex('')",
        ] {
            assert_eq!(reach_of(text), Reach::Nowhere, "{text}");
        }
    }
}
