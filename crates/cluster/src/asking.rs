//! A config server, or a server, asked by a tool: in time, one request after another, or several before their answers.

use net::connect::Outgoing;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_rustls::rustls::ClientConfig;
use wire::{Decoder, Value, encode_request};

/// How long reaching it may take.
const CONNECTING: Duration = Duration::from_secs(2);
/// How long an answer may take that another could give, too.
const READING: Duration = Duration::from_secs(4);
/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;

/// What it takes to get in.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// The user; None: the one that needs no name.
    pub user: Option<String>,
    /// The password; None: without one.
    pub password: Option<String>,
    /// With TLS, from this context.
    pub tls: Option<Arc<ClientConfig>>,
}

/// Why nobody is asked.
enum Unasked {
    /// Another may be.
    NotReached(String),
    /// Others would say the same.
    Refused(String),
}

/// Why there is no value.
pub enum Failure {
    /// It is refused: the answer.
    Said(String),
    /// Nobody knows what became of the request.
    Broken(String),
}

impl Failure {
    fn sentence(self) -> String {
        match self {
            Failure::Said(text) | Failure::Broken(text) => text,
        }
    }
}

/// Whether a request may be asked of another where it got no answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Repeats {
    /// It changes nothing.
    Yes,
    /// It may have been carried out.
    No,
}

/// What a config server says that can do nothing now, and has done nothing.
pub fn is_unable(why: &str) -> bool {
    ["NOLEADER", "UNAVAILABLE", "UNREACHED"].iter().any(|word| why.starts_with(word))
}

/// Whether who asks is not let in, or may not ask that, and will not be the next time either.
pub fn keeps_out(why: &str) -> bool {
    ["NOPERM", "WRONGPASS", "NOAUTH"].iter().any(|word| why.contains(word))
}

/// What is asked again and again while something goes on: of the config server that answered last, and of the others where that one does no more, or not well enough.
pub struct Watching {
    places: Vec<(String, u16)>,
    entry: Entry,
    last: Option<Asking>,
}

impl Watching {
    /// Nobody is asked yet.
    pub fn of(places: Vec<(String, u16)>, entry: Entry) -> Watching {
        Watching { places, entry, last: None }
    }

    /// Asks something that changes nothing.
    ///
    /// # Errors
    /// Nobody answers.
    pub fn ask(
        &mut self,
        words: &[&str],
        patience: Duration,
        is_enough: impl Fn(&str) -> bool,
    ) -> Result<String, String> {
        if let Some(mut asking) = self.last.take()
            && let Ok(text) = asking.hear_text(words, patience.min(READING))
            && is_enough(&text)
        {
            self.last = Some(asking);
            return Ok(text);
        }
        let request = (words, patience);
        let (asking, text) =
            Asking::first(&self.places, &self.entry, request, Repeats::Yes, |text| is_enough(text))?;
        self.last = is_enough(&text).then_some(asking);
        Ok(text)
    }
}

/// How long something is waited for.
#[derive(Clone, Copy)]
enum Patience {
    /// All of it is to be there then.
    Whole(Duration),
    /// Some of it is to come so often.
    Bits(Duration),
}

impl Patience {
    fn length(self) -> Duration {
        match self {
            Patience::Whole(length) | Patience::Bits(length) => length,
        }
    }
}

/// A connection.
pub struct Asking {
    /// Who is asked, for sentences.
    name: String,
    outgoing: Outgoing,
    decoder: Decoder,
}

impl Asking {
    /// Asks several, one after another, until one gives an answer that is good enough; if there is none, the first that is an answer.
    pub fn first(
        places: &[(String, u16)],
        entry: &Entry,
        (words, patience): (&[&str], Duration),
        repeats: Repeats,
        is_enough: impl Fn(&str) -> bool,
    ) -> Result<(Asking, String), String> {
        let ask = |asking: &mut Asking, patience| asking.hear_text(words, patience);
        Asking::first_to(places, entry, (ask, patience), repeats, |text: &String| is_enough(text))
    }

    /// The same for what is more than a request and its answer: what is given is told how long it may take.
    pub fn first_to<T>(
        places: &[(String, u16)],
        entry: &Entry,
        (mut ask, patience): (impl FnMut(&mut Asking, Duration) -> Result<T, Failure>, Duration),
        repeats: Repeats,
        is_enough: impl Fn(&T) -> bool,
    ) -> Result<(Asking, T), String> {
        let (mut answered, mut refused) = (None, None);
        let mut last = "no config server is given".to_owned();
        for (at, place) in places.iter().enumerate() {
            let mut asking = match Asking::to_config_server(place, entry) {
                Err(Unasked::NotReached(why)) => {
                    last = why;
                    continue;
                }
                Err(Unasked::Refused(why)) => return Err(why),
                Ok(asking) => asking,
            };
            let is_last = at + 1 == places.len();
            let patience = if repeats == Repeats::Yes && !is_last { patience.min(READING) } else { patience };
            match ask(&mut asking, patience) {
                Ok(answer) if is_enough(&answer) => return Ok((asking, answer)),
                Ok(answer) => drop(answered.get_or_insert((asking, answer))),
                Err(Failure::Said(why)) if is_unable(&why) => refused = Some(why),
                Err(Failure::Broken(why)) if repeats == Repeats::Yes => last = why,
                Err(failure) => return Err(failure.sentence()),
            }
        }
        answered.ok_or_else(|| refused.unwrap_or(last))
    }

    /// Connects to a config server that lives: the kernel accepts connections for one that stands still.
    fn to_config_server((host, port): &(String, u16), entry: &Entry) -> Result<Asking, Unasked> {
        let mut asking = Asking::of(format!("the config server {host}:{port}"), (host, *port), entry)?;
        match asking.hear(&["PING"], CONNECTING) {
            Err(Failure::Broken(why)) => Err(Unasked::NotReached(why)),
            // Whatever it is, it is said again to what is asked.
            Ok(_) | Err(Failure::Said(_)) => Ok(asking),
        }
    }

    /// Connects to a server.
    pub fn to_server((host, port): (&str, u16), entry: &Entry) -> Result<Asking, String> {
        Asking::of(format!("the server {host}:{port}"), (host, port), entry).map_err(|why| match why {
            Unasked::NotReached(why) | Unasked::Refused(why) => why,
        })
    }

    fn of(name: String, (host, port): (&str, u16), entry: &Entry) -> Result<Asking, Unasked> {
        let deadline = Instant::now() + CONNECTING;
        let outgoing = Outgoing::connect(host.to_owned(), port, entry.tls.clone(), deadline, &mut || Ok(()))
            .map_err(|error| Unasked::NotReached(format!("{name} is not reached: {error}")))?;
        let mut asking = Asking { name, outgoing, decoder: Decoder::new() };
        if let Some(password) = &entry.password {
            let words = entry.user.as_deref().into_iter().chain([password.as_str()]);
            let words: Vec<&str> = ["AUTH"].into_iter().chain(words).collect();
            asking.hear(&words, CONNECTING).map_err(|failure| match failure {
                Failure::Said(why) => Unasked::Refused(why),
                Failure::Broken(why) => Unasked::NotReached(why),
            })?;
        }
        Ok(asking)
    }

    /// Asks, and gives what is not an error.
    pub fn ask(&mut self, words: &[&str], patience: Duration) -> Result<Value, String> {
        self.hear(words, patience).map_err(Failure::sentence)
    }

    fn hear(&mut self, words: &[&str], patience: Duration) -> Result<Value, Failure> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.say(&words, patience).map_err(Failure::Broken)?;
        self.next(patience)
    }

    /// The same where it is text.
    pub fn hear_text(&mut self, words: &[&str], patience: Duration) -> Result<String, Failure> {
        self.hear_text_by(words, Patience::Whole(patience))
    }

    /// The same where it is so long a text that it counts only whether some of it comes all the time.
    pub fn hear_long_text(&mut self, words: &[&str], patience: Duration) -> Result<String, Failure> {
        self.hear_text_by(words, Patience::Bits(patience))
    }

    fn hear_text_by(&mut self, words: &[&str], patience: Patience) -> Result<String, Failure> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.say(&words, patience.length()).map_err(Failure::Broken)?;
        match self.next_by(patience)? {
            Value::Simple(text) | Value::Bulk(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            _ => Err(Failure::Said(format!("{} says something that is no text", self.name))),
        }
    }

    /// Says something whose answer is received later.
    pub fn say(&mut self, words: &[&[u8]], patience: Duration) -> Result<(), String> {
        let mut bytes = Vec::new();
        encode_request(&mut bytes, words);
        self.outgoing.set_deadline(Instant::now() + patience);
        self.outgoing.write_all(&bytes, &mut || Ok(())).map_err(|error| self.broken(&error))
    }

    fn broken(&self, error: &dyn std::fmt::Display) -> String {
        format!("{} gives no answer: {error}", self.name)
    }

    /// The next answer, if it is not an error.
    pub fn receive(&mut self, patience: Duration) -> Result<Value, String> {
        self.next(patience).map_err(Failure::sentence)
    }

    /// The same with why there is none.
    pub fn next(&mut self, patience: Duration) -> Result<Value, Failure> {
        self.next_by(Patience::Whole(patience))
    }

    fn next_by(&mut self, patience: Patience) -> Result<Value, Failure> {
        let broken = |asking: &Asking, error: &dyn std::fmt::Display| Failure::Broken(asking.broken(error));
        self.outgoing.set_deadline(Instant::now() + patience.length());
        let mut buffer = vec![0; READ_BYTES];
        loop {
            if let Patience::Bits(length) = patience {
                self.outgoing.set_deadline(Instant::now() + length);
            }
            match self.decoder.decode().map_err(|error| broken(self, &error))? {
                Some(Value::Error(text)) => {
                    return Err(Failure::Said(String::from_utf8_lossy(&text).into_owned()));
                }
                Some(value) => return Ok(value),
                None => {
                    let read = self.outgoing.read(&mut buffer, &mut || Ok(()));
                    match read.map_err(|error| broken(self, &error))? {
                        0 => return Err(broken(self, &"it has closed the connection")),
                        count => self.decoder.feed(&buffer[..count]),
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Asking, Entry, Repeats, Watching};
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Somebody who answers PING, and all else with this line; None: nothing. How often that was asked.
    fn somebody(pong: Option<&'static str>, line: Option<&'static str>) -> ((String, u16), Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let port = listener.local_addr().expect("it has one").port();
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let Ok(mut socket) = socket else { continue };
                let mut buffer = [0; 1024];
                while let Ok(count @ 1..) = socket.read(&mut buffer) {
                    let is_ping = buffer[..count].ends_with(b"PING\r\n");
                    let answer = if is_ping { pong } else { line };
                    counted.fetch_add(usize::from(!is_ping), Ordering::SeqCst);
                    if let Some(answer) = answer {
                        let _ = socket.write_all(format!("{answer}\r\n").as_bytes());
                    }
                }
            }
        });
        (("127.0.0.1".to_owned(), port), asked)
    }

    fn first(
        places: &[&(String, u16)],
        repeats: Repeats,
        is_enough: impl Fn(&str) -> bool,
    ) -> Result<String, String> {
        let places: Vec<_> = places.iter().map(|place| (*place).clone()).collect();
        let request = (&["CLUSTER", "SWITCH", "0"][..], PATIENCE);
        Asking::first(&places, &Entry::default(), request, repeats, is_enough).map(|(_, text)| text)
    }

    #[test]
    fn who_can_do_nothing_is_not_the_only_one_that_is_asked() {
        let pong = Some("+PONG");
        let (able, asked) = somebody(pong, Some("+OK"));
        for line in ["-NOLEADER nobody leads", "-UNAVAILABLE no news", "-UNREACHED nothing was done"] {
            let (unable, _) = somebody(pong, Some(line));
            assert_eq!(first(&[&unable, &able], Repeats::No, |_| true), Ok("OK".to_owned()), "{line}");
            let nobody = ("127.0.0.1".to_owned(), 1);
            let refused = first(&[&unable, &nobody], Repeats::No, |_| true);
            assert_eq!(refused, Err(line[1..].to_owned()));
        }
        // Who stands still was asked nothing.
        let (still, nothing) = somebody(None, None);
        assert_eq!(first(&[&still, &able], Repeats::No, |_| true), Ok("OK".to_owned()));
        assert_eq!(nothing.load(Ordering::SeqCst), 0);
        assert_eq!(asked.load(Ordering::SeqCst), 4);
    }

    #[test]
    fn what_may_have_been_done_is_asked_of_nobody_else() {
        let pong = Some("+PONG");
        let (able, asked) = somebody(pong, Some("+OK"));
        for line in ["-ERR shard 0 has no other member that lives", "-UNKNOWN nobody can say"] {
            let (other, _) = somebody(pong, Some(line));
            assert_eq!(first(&[&other, &able], Repeats::No, |_| true), Err(line[1..].to_owned()));
        }
        // It ends before it has answered.
        let (other, _) = somebody(pong, Some("?"));
        assert!(first(&[&other, &able], Repeats::No, |_| true).is_err_and(|why| why.contains("no answer")));
        assert_eq!(asked.load(Ordering::SeqCst), 0);
        assert_eq!(first(&[&other, &able], Repeats::Yes, |_| true), Ok("OK".to_owned()));
    }

    #[test]
    fn an_answer_that_is_not_good_enough_is_better_than_none() {
        let pong = Some("+PONG");
        let (old, new) = (somebody(pong, Some("+old")).0, somebody(pong, Some("+new")).0);
        let nobody = ("127.0.0.1".to_owned(), 1);
        let is_new = |text: &str| text == "new";
        assert_eq!(first(&[&old, &new], Repeats::Yes, is_new), Ok("new".to_owned()));
        assert_eq!(first(&[&old, &nobody], Repeats::Yes, is_new), Ok("old".to_owned()));
    }

    /// Somebody who gives one answer, and is gone.
    fn somebody_who_goes() -> (String, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let port = listener.local_addr().expect("it has one").port();
        std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("somebody comes");
            let mut buffer = [0; 1024];
            for answer in ["+PONG\r\n", "+first\r\n"] {
                let _ = socket.read(&mut buffer);
                let _ = socket.write_all(answer.as_bytes());
            }
        });
        ("127.0.0.1".to_owned(), port)
    }

    #[test]
    fn what_is_asked_again_and_again_is_asked_of_who_knows_it() {
        let pong = Some("+PONG");
        let ((old, _), (new, asked)) = (somebody(pong, Some("+old")), somebody(pong, Some("+new")));
        let mut watching = Watching::of(vec![somebody_who_goes(), old, new], Entry::default());
        let mut ask = || watching.ask(&["CLUSTER", "STATUS"], PATIENCE, |text| text != "old");
        assert_eq!(ask(), Ok("first".to_owned()));
        assert_eq!([ask(), ask()], [Ok("new".to_owned()), Ok("new".to_owned())]);
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }
}
