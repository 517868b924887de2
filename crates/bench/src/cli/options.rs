//! The options that all workloads share, under the names that redis-benchmark and memtier_benchmark give them too.

use super::arguments::Arguments;
use crate::Failure;
use crate::plan::{Direct, End, Plan, Target};
use crate::secure::Tls;
use crate::work::Work;
use std::time::Duration;

/// Connections unless the command line says otherwise, as in redis-benchmark.
const CONNECTIONS: u32 = 50;
/// Operations unless the command line says otherwise, as in redis-benchmark.
const OPERATIONS: u64 = 100_000;

/// What was given on the command line.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where the server is.
    pub target: Target,
    /// Whether it is a node of a cluster whose masters are all spoken to.
    pub is_cluster: bool,
    /// What the server is called in tables.
    pub server: Option<String>,
    /// Connections over all threads.
    pub connections: Option<u32>,
    /// Threads.
    pub threads: Option<u32>,
    /// Requests sent at once.
    pub pipeline: Option<u32>,
    /// Operations.
    pub operations: Option<u64>,
    /// Seconds to measure.
    pub seconds: Option<f64>,
    /// Seconds before.
    pub warm_up: f64,
    /// Operations per second.
    pub rate: Option<f64>,
    /// Seed of all random numbers.
    pub seed: Option<u64>,
    /// Size of the values.
    pub value_bytes: Option<u64>,
    /// Size of the key space.
    pub keyspace: Option<u64>,
    /// How results are shown.
    pub output: Output,
}

/// How results are shown.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// The file for all measurements as JSON.
    pub json: Option<String>,
    /// In which form they are printed.
    pub form: Form,
}

/// The form of what is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// A table with all that is known.
    #[default]
    Table,
    /// One line for each measurement, as `redis-benchmark -q` prints it.
    Quiet,
    /// Comma-separated, as `redis-benchmark --csv` prints it.
    Csv,
}

/// The part of the usage text about these options.
pub const SHARED_USAGE: &str = "
Of every load:
  -h, --host HOST          the server (127.0.0.1)
  -p, --port PORT          its port (6379)
  -a, --password TEXT      its password; better in TARN_BENCH_PASSWORD
      --user NAME          the user whose password it is
      --select-db N        the database (0)
      --cluster            the server is a node of a cluster: each request goes to the master of its key's slot, each
                           connection is one to every master, MOVED and ASK are followed
      --tls                speak TLS; without --cacert whoever answers is believed
      --cacert FILE        whose certificates count
      --cert FILE          our own certificate
      --key FILE           its key
  -c, --connections N      connections
      --threads N          threads of the generator (1)
  -P, --pipeline N         requests sent at once on a connection (1)
  -n, --operations N       operations; k, m and g stand for thousands, millions, billions
      --seconds N          measure for so long instead
      --warm-up N          seconds of the same load before measuring (0)
      --rate N             operations per second by the clock (open loop): latencies count
                           from the moment an operation was due, so that a stall counts
                           against everyone it delayed
      --seed N             the same seed gives the same operations (1)
      --json FILE          all that was measured as JSON ('-' for standard output)
      --name TEXT          what the server is called in tables
  -q                       one line for each measurement
      --csv                comma-separated values";

impl Options {
    /// The defaults, and the password from the environment.
    pub fn new() -> Options {
        let mut options = Options::default();
        options.target.password = std::env::var("TARN_BENCH_PASSWORD").ok();
        options
    }

    /// Takes an option with its value; false if it is none of these.
    ///
    /// # Errors
    /// One sentence about a value that is missing or wrong, or about what cannot be done.
    pub fn take(&mut self, option: &str, arguments: &mut Arguments) -> Result<bool, Failure> {
        match option {
            "-h" | "--host" | "--server" => self.target.host = arguments.text()?,
            "-p" | "--port" => {
                let port = arguments.count()?;
                let checked = u16::try_from(port).ok().filter(|port| *port > 0);
                self.target.port = checked.ok_or_else(|| arguments.wrong(&port.to_string(), "a port"))?;
            }
            "-a" | "--password" => self.target.password = Some(arguments.text()?),
            "--authenticate" => self.take_credentials(&arguments.text()?),
            "--user" => self.target.user = Some(arguments.text()?),
            "--database" | "--select-db" | "--dbnum" => self.target.database = arguments.small_count()?,
            "-c" | "--connections" | "--clients" => self.connections = Some(arguments.small_count()?),
            "--threads" => self.threads = Some(arguments.small_count()?),
            "-P" | "--pipeline" => self.pipeline = Some(arguments.small_count()?),
            "-n" | "--operations" | "--requests" => self.operations = Some(arguments.count()?),
            "--seconds" | "--test-time" => self.seconds = Some(arguments.number()?),
            "--warm-up" => self.warm_up = arguments.number()?,
            "--rate" | "--target" => self.rate = Some(arguments.number()?),
            "--seed" => self.seed = Some(arguments.count()?),
            "-d" | "--data-size" | "--value-bytes" => self.value_bytes = Some(arguments.count()?),
            "-r" | "--keyspace" => self.keyspace = Some(arguments.count()?.max(1)),
            "--json" | "--json-out-file" => self.output.json = Some(arguments.text()?),
            "--name" => self.server = Some(arguments.text()?),
            "-q" => self.output.form = Form::Quiet,
            "--csv" => self.output.form = Form::Csv,
            "--cluster" => self.is_cluster = true,
            "--tls" => drop(self.tls()),
            "--cacert" => self.tls().authorities = Some(arguments.text()?),
            "--cert" => self.tls().certificate = Some(arguments.text()?),
            "--key" => self.tls().key = Some(arguments.text()?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn tls(&mut self) -> &mut Tls {
        self.target.tls.get_or_insert_default()
    }

    /// memtier_benchmark's way: `PASSWORD` or `USER:PASSWORD`.
    pub fn take_credentials(&mut self, text: &str) {
        let (user, password) = text.split_once(':').map_or((None, text), |(user, rest)| (Some(user), rest));
        self.target.user = user.map(str::to_owned);
        self.target.password = Some(password.to_owned());
    }

    /// The plan for a workload by these options; what was not given is redis-benchmark's.
    ///
    /// # Errors
    /// Both an end by operations and one by time were given.
    pub fn plan(&self, work: Work) -> Result<Plan, Failure> {
        let end = match (self.operations, self.seconds) {
            (Some(_), Some(_)) => {
                return Err(Failure("a run ends by --operations or by --seconds, not by both".to_owned()));
            }
            (operations, None) => End::Operations(operations.unwrap_or(OPERATIONS)),
            (None, Some(seconds)) => End::After(span(seconds)),
        };
        let server = self.server.clone().unwrap_or_else(|| self.target.to_string());
        let plan = Plan {
            connections: self.connections.unwrap_or(CONNECTIONS),
            threads: self.threads.unwrap_or(1),
            pipeline: self.pipeline.unwrap_or(1),
            end,
            warm_up: span(self.warm_up),
            rate: self.rate,
            seed: self.seed.unwrap_or(1),
            direct: self.is_cluster.then(Direct::default),
            ..Plan::new(&server, self.target.clone(), work)
        };
        plan.check()?;
        Ok(plan)
    }
}

/// Seconds as a span; more than a year is one.
fn span(seconds: f64) -> Duration {
    const YEAR: f64 = 366.0 * 86_400.0;
    Duration::from_secs_f64(seconds.clamp(0.0, YEAR))
}
