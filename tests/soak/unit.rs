//! What is there as a whole or not at all: a request alone, a transaction or a script.

use super::expect::Expect;

/// Runs requests in a row: `ARGV` has of each its name, how many keys and how many other words it has, and those words. The
/// text shows no keys, so the server must take it for one that may touch any.
const LOOP: &str = "local replies, key, at = {}, 1, 1
while at <= #ARGV do
  local words, keys, others = {ARGV[at]}, tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  for _ = 1, keys do words[#words + 1] = KEYS[key]; key = key + 1 end
  for other = 1, others do words[#words + 1] = ARGV[at + 2 + other] end
  replies[#replies + 1] = redis.call(unpack(words))
  at = at + 3 + others
end
return replies";
/// A script that spells its calls out has so many words at most, lest there be too many scripts.
const SPELLED_WORDS_MAX: usize = 4;

/// How the requests of a unit are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Alone,
    /// MULTI, the requests, EXEC.
    Transaction,
    /// EVAL of a script that calls them.
    Script,
}

/// Requests that are executed together, and what each of them must be answered.
#[derive(Debug)]
pub struct Unit {
    pub form: Form,
    pub requests: Vec<Vec<String>>,
    pub expects: Vec<Expect>,
}

impl Unit {
    /// What goes over the wire.
    pub fn wire(&self) -> Vec<Vec<String>> {
        let word = |word: &str| vec![word.to_owned()];
        match self.form {
            Form::Alone => self.requests.clone(),
            Form::Transaction => [vec![word("MULTI")], self.requests.clone(), vec![word("EXEC")]].concat(),
            Form::Script => vec![self.script()],
        }
    }

    /// What must come back, a reply for each request on the wire; the last is the unit's.
    pub fn replies(&self) -> Vec<Expect> {
        let whole = || Expect::Array(self.expects.clone());
        match self.form {
            Form::Alone => self.expects.clone(),
            Form::Transaction => {
                let queued = self.requests.iter().map(|_| Expect::Simple("QUEUED"));
                [Expect::ok()].into_iter().chain(queued).chain([whole()]).collect()
            }
            Form::Script => vec![whole()],
        }
    }

    /// About so many bytes go over the wire in both directions.
    pub fn bytes(&self) -> usize {
        let sent: usize = self.requests.iter().flatten().map(|word| word.len() + 8).sum();
        sent + self.expects.iter().map(Expect::bytes).sum::<usize>()
    }

    /// A line for a complaint.
    pub fn shown(&self) -> String {
        let words: Vec<String> = self.requests.iter().map(|words| short(words)).collect();
        format!("{:?} {}", self.form, words.join("; "))
    }

    fn script(&self) -> Vec<String> {
        let is_spelled = self.requests.iter().all(|request| request.len() <= SPELLED_WORDS_MAX);
        let (mut calls, mut keys, mut args) = (Vec::new(), Vec::new(), Vec::new());
        for request in &self.requests {
            let (own, others) = request[1..].split_at(key_count(&request[0]));
            let places = keys.len() + 1..keys.len() + own.len() + 1;
            let mut call: Vec<String> = places.map(|at| format!("KEYS[{at}]")).collect();
            keys.extend_from_slice(own);
            if !is_spelled {
                args.extend([request[0].clone(), own.len().to_string(), others.len().to_string()]);
            }
            call.extend((args.len()..).take(others.len()).map(|at| format!("ARGV[{}]", at + 1)));
            args.extend_from_slice(others);
            calls.push(format!("redis.call('{}', {})", request[0], call.join(", ")));
        }
        let text = if is_spelled { format!("return {{{}}}", calls.join(", ")) } else { LOOP.to_owned() };
        [vec!["EVAL".to_owned(), text, keys.len().to_string()], keys, args].concat()
    }
}

/// Words behind the name that are keys, of a command that [`is_scripted`].
fn key_count(name: &str) -> usize {
    match name {
        "RENAME" | "COPY" | "SMOVE" | "LMOVE" => 2,
        _ => 1,
    }
}

/// Whether a request's keys stand at its beginning, one or two of them.
pub fn is_scripted(request: &[String]) -> bool {
    let has_one = !matches!(&request[0][..], "DEL" | "UNLINK") || request.len() == 2;
    has_one && !matches!(&request[0][..], "MSET" | "MGET" | "SUNIONSTORE")
}

/// A request in short.
pub fn short(words: &[String]) -> String {
    let word = |word: &String| match word.char_indices().nth(24) {
        Some((at, _)) => format!("{}..({})", &word[..at], word.len()),
        None => word.clone(),
    };
    let text = words.iter().take(8).map(word).collect::<Vec<_>>().join(" ");
    if words.len() > 8 { format!("{text} .. ({} words)", words.len()) } else { text }
}
