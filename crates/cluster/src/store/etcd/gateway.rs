//! Requests to the members of etcd over HTTP: which one is asked, for how long, who asks, and what is known when something goes wrong.

use parking_lot::Mutex;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, Timeout, http};

/// How long it may take to reach one member.
const CONNECTING: Duration = Duration::from_millis(400);
/// How long one member may take for an answer.
const ANSWERING: Duration = Duration::from_millis(1000);
/// How long a call may take, whatever happens.
const CALL: Duration = Duration::from_millis(2500);
/// For how long a watch is read from one member.
pub const WATCHING: Duration = Duration::from_secs(60);
/// The longest answer.
const BODY_BYTES_MAX: u64 = 512 << 20;

/// gRPC's numbers for refusals that come before anything is done: what was asked makes no sense, or is not allowed. That there is no room (8) is said
/// of what was done, too.
const REFUSALS: [u64; 6] = [3, 5, 7, 11, 12, 16];
/// gRPC's number for somebody unknown.
const UNKNOWN_USER: u64 = 16;
/// gRPC's number for something that is not there.
const NOT_FOUND: u64 = 5;

/// Where etcd is, and who asks.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `http://host:port` or `https://host:port` of each member.
    pub endpoints: Vec<String>,
    /// The user; empty: none.
    pub user: String,
    /// Its password.
    pub password: String,
    /// The authorities that the members' certificates come from; None: those of the web.
    pub authorities: Option<PathBuf>,
    /// The own certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// Whether something that failed may have been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// It was not and will not be.
    NotDone,
    /// Nobody can say.
    Unknown,
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub struct Failure {
    /// As a sentence.
    pub sentence: String,
    /// Whether what was asked may have been done.
    pub certainty: Certainty,
    /// gRPC's number, if etcd has given one.
    code: Option<u64>,
}

impl Failure {
    /// Whether it is because a lease is over.
    pub fn is_unknown_lease(&self) -> bool {
        self.code == Some(NOT_FOUND)
    }

    fn is_about_token(&self) -> bool {
        self.code == Some(UNKNOWN_USER) || self.sentence.contains("auth token")
    }

    fn unknown(sentence: String) -> Failure {
        Failure { sentence, certainty: Certainty::Unknown, code: None }
    }
}

/// The members of etcd.
pub struct Gateway {
    agent: Agent,
    options: Options,
    /// Which member is asked first: the last one that answered.
    first: AtomicUsize,
    /// What shows who asks, once etcd has given it.
    token: Mutex<Option<String>>,
}

impl Gateway {
    /// # Errors
    /// A sentence: something of it makes no sense.
    pub fn new(mut options: Options) -> Result<Gateway, String> {
        for endpoint in &mut options.endpoints {
            *endpoint = endpoint.trim_end_matches('/').to_owned();
            let uri: Option<http::Uri> = endpoint.parse().ok();
            let is_one = uri.is_some_and(|uri| {
                matches!(uri.scheme_str(), Some("http" | "https"))
                    && uri.host().is_some()
                    && uri.path() == "/"
            });
            if !is_one {
                return Err(format!("'{endpoint}' is no address of etcd: http://HOST:PORT"));
            }
        }
        if options.endpoints.is_empty() {
            return Err("no address of etcd is given".to_owned());
        }
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .timeout_connect(Some(CONNECTING))
            .tls_config(tls(&options)?)
            .user_agent("tarn")
            .build()
            .new_agent();
        Ok(Gateway { agent, options, first: AtomicUsize::new(0), token: Mutex::new(None) })
    }

    /// Where it is, for people.
    pub fn shown(&self) -> String {
        self.options.endpoints.join(", ")
    }

    /// Asks for something that may be asked twice: one member after another, until one answers.
    pub fn ask(&self, path: &str, form: &Value) -> Result<Value, Failure> {
        self.try_all(path, form, |_| true)
    }

    /// Asks for something that is to be done once.
    pub fn change(&self, path: &str, form: &Value) -> Result<Value, Failure> {
        self.try_all(path, form, |failure| failure.certainty == Certainty::NotDone && failure.code.is_none())
    }

    /// Opens a stream of lines at one member, which is told too.
    pub fn open(&self, path: &str, form: &Value) -> Result<(String, http::Response<Body>), Failure> {
        self.with_members(
            Instant::now() + CALL,
            |_| true,
            |endpoint| {
                let answer = self.send(endpoint, path, form, ANSWERING, Some(WATCHING))?;
                if answer.status() == http::StatusCode::OK {
                    Ok((endpoint.to_owned(), answer))
                } else {
                    Err(refusal(endpoint, answer))
                }
            },
        )
    }

    /// Whether a member is the one that is asked first: the last one that answered.
    pub fn is_first(&self, endpoint: &str) -> bool {
        let endpoints = &self.options.endpoints;
        endpoints[self.first.load(Ordering::Relaxed) % endpoints.len()] == endpoint
    }

    /// Has the next member be asked first from now on.
    pub fn turn(&self) {
        self.first.fetch_add(1, Ordering::Relaxed);
    }

    fn try_all(&self, path: &str, form: &Value, goes_on: fn(&Failure) -> bool) -> Result<Value, Failure> {
        let deadline = Instant::now() + CALL;
        self.with_members(deadline, goes_on, |endpoint| {
            let left = deadline.saturating_duration_since(Instant::now()).min(ANSWERING);
            let answer = self.send(endpoint, path, form, left, None)?;
            if answer.status() == http::StatusCode::OK {
                body(endpoint, answer)
            } else {
                Err(refusal(endpoint, answer))
            }
        })
    }

    /// Tries one member after another as long as a failure allows it. A token that is over is asked for again, once.
    fn with_members<T>(
        &self,
        deadline: Instant,
        goes_on: fn(&Failure) -> bool,
        ask: impl Fn(&str) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let endpoints = &self.options.endpoints;
        let first = self.first.load(Ordering::Relaxed);
        let mut last = Failure::unknown("it was not asked".to_owned());
        for at in (first..).take(endpoints.len()) {
            let endpoint = &endpoints[at % endpoints.len()];
            let mut asked = self.authenticate(endpoint).and_then(|()| ask(endpoint));
            if let Err(failure) = &asked
                && failure.is_about_token()
                && !self.options.user.is_empty()
            {
                *self.token.lock() = None;
                asked = self.authenticate(endpoint).and_then(|()| ask(endpoint));
            }
            match asked {
                Ok(answer) => {
                    if at != first {
                        self.first.store(at % endpoints.len(), Ordering::Relaxed);
                    }
                    return Ok(answer);
                }
                Err(failure) if goes_on(&failure) && Instant::now() < deadline => last = failure,
                Err(failure) => {
                    // Whoever asks next asks another.
                    self.first.store((at + 1) % endpoints.len(), Ordering::Relaxed);
                    return Err(failure);
                }
            }
        }
        Err(last)
    }

    /// Has etcd give a token, if one is needed and there is none.
    fn authenticate(&self, endpoint: &str) -> Result<(), Failure> {
        let Options { user, password, .. } = &self.options;
        if user.is_empty() || self.token.lock().is_some() {
            return Ok(());
        }
        let form = json!({ "name": user, "password": password });
        // Whatever becomes of this, what is asked for was not sent.
        let asked = self.send(endpoint, "/v3/auth/authenticate", &form, ANSWERING, None).and_then(|answer| {
            match answer.status() {
                http::StatusCode::OK => body(endpoint, answer),
                _ => Err(refusal(endpoint, answer)),
            }
        });
        let answer = asked.map_err(|failure| Failure { certainty: Certainty::NotDone, ..failure })?;
        let token = answer["token"].as_str().map(str::to_owned);
        let is_given = token.is_some();
        *self.token.lock() = token;
        is_given.then_some(()).ok_or_else(|| Failure {
            sentence: format!("{endpoint} gives no token for a user and a password"),
            certainty: Certainty::NotDone,
            code: None,
        })
    }

    fn send(
        &self,
        endpoint: &str,
        path: &str,
        form: &Value,
        patience: Duration,
        reading: Option<Duration>,
    ) -> Result<http::Response<Body>, Failure> {
        let mut request =
            self.agent.post(format!("{endpoint}{path}")).header("Content-Type", "application/json");
        if let Some(token) = self.token.lock().as_ref() {
            request = request.header("Authorization", token);
        }
        let config = request.config();
        let config = match reading {
            None => config.timeout_global(Some(patience)),
            Some(reading) => config.timeout_recv_response(Some(patience)).timeout_recv_body(Some(reading)),
        };
        config.build().send(form.to_string().as_bytes()).map_err(|error| failure(endpoint, &error))
    }
}

/// What is known when the HTTP client gives up.
fn failure(endpoint: &str, error: &ureq::Error) -> Failure {
    use std::io::ErrorKind;
    let is_before = match error {
        ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed
        | ureq::Error::BadUri(_)
        | ureq::Error::Http(_)
        | ureq::Error::Tls(_)
        | ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect) => true,
        ureq::Error::Io(error) => matches!(
            error.kind(),
            ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable
        ),
        _ => false,
    };
    let certainty = if is_before { Certainty::NotDone } else { Certainty::Unknown };
    Failure { sentence: format!("{endpoint}: {error}"), certainty, code: None }
}

fn read(endpoint: &str, mut answer: http::Response<Body>) -> Result<Vec<u8>, Failure> {
    let read = answer.body_mut().with_config().limit(BODY_BYTES_MAX).read_to_vec();
    read.map_err(|error| Failure::unknown(format!("{endpoint}: {error}")))
}

fn body(endpoint: &str, answer: http::Response<Body>) -> Result<Value, Failure> {
    let bytes = read(endpoint, answer)?;
    let form = serde_json::from_slice::<Value>(&bytes).ok().filter(Value::is_object);
    let form =
        form.ok_or_else(|| Failure::unknown(format!("{endpoint} says something that is no answer of etcd")))?;
    match form["error"]["message"].as_str() {
        None => Ok(form),
        Some(message) => Err(refused(endpoint, message, form["error"]["grpc_code"].as_u64())),
    }
}

/// What etcd says when it does not do what it is asked for.
fn refusal(endpoint: &str, answer: http::Response<Body>) -> Failure {
    let status = answer.status();
    let read = read(endpoint, answer).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let form = read.unwrap_or_default();
    let nested = &form["error"];
    let message = [&form["message"], &nested["message"], nested].iter().find_map(|value| value.as_str());
    match message {
        Some(message) => refused(endpoint, message, form["code"].as_u64().or(nested["grpc_code"].as_u64())),
        None => {
            Failure::unknown(format!("{endpoint} answers HTTP's status {status}: it is no etcd, or not well"))
        }
    }
}

fn refused(endpoint: &str, message: &str, code: Option<u64>) -> Failure {
    let is_refusal = code.is_some_and(|code| REFUSALS.contains(&code));
    let certainty = if is_refusal { Certainty::NotDone } else { Certainty::Unknown };
    let message: String = message.chars().filter(|letter| !letter.is_control()).take(300).collect();
    Failure { sentence: format!("{endpoint}: {message}"), certainty, code }
}

fn pem(path: &Path) -> Result<Vec<PemItem<'static>>, String> {
    let bytes = sys::file::Fs::Real
        .read(path, 16 << 20)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let items: Result<Vec<_>, _> = parse_pem(&bytes).collect();
    items.map_err(|error| format!("{} is no PEM file: {error}", path.display()))
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let items = pem(path)?.into_iter();
    let found: Vec<_> = items
        .filter_map(|item| match item {
            PemItem::Certificate(certificate) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() { Err(format!("there is no certificate in {}", path.display())) } else { Ok(found) }
}

fn private_key(path: &Path) -> Result<PrivateKey<'static>, String> {
    let found = pem(path)?.into_iter().find_map(|item| match item {
        PemItem::PrivateKey(key) => Some(key),
        _ => None,
    });
    found.ok_or_else(|| format!("there is no key in {}", path.display()))
}

fn tls(options: &Options) -> Result<TlsConfig, String> {
    let mut config = TlsConfig::builder();
    if let Some(path) = &options.authorities {
        config = config.root_certs(RootCerts::Specific(Arc::new(certificates(path)?)));
    }
    if let Some((certificate, key)) = &options.certificate {
        let own = ClientCert::new_with_certs(&certificates(certificate)?, private_key(key)?);
        config = config.client_cert(Some(own));
    }
    Ok(config.build())
}
