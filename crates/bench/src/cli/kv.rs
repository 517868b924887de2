//! `tarn bench kv`: single commands under the options of redis-benchmark, or SET and GET in a ratio under those of
//! memtier_benchmark, whose options switch to its way of counting: `-c` by thread, `-n` by connection.

use super::arguments::{Arguments, Given, parse_count};
use super::options::{Options, Output};
use crate::Failure;
use crate::plan::Plan;
use crate::work::{KV_TESTS, KeyPattern, Memtier, Template, Work};

pub const USAGE: &str = "\
Usage: tarn bench kv [OPTION ...]               redis-benchmark's tests
       tarn bench kv [OPTION ...] COMMAND ...   any command; __rand_int__ is random with -r
       tarn bench kv --ratio 1:1 [OPTION ...]   SET and GET as memtier_benchmark makes them

      -t NAME,...          tests: ping_inline, ping_mbulk, set, get, incr, lpush, rpush, lpop, rpop, sadd, hset,
                           spop, zadd, zpopmin, lrange, lrange_100 (300, 500, 600), mset, xadd (all but xadd)
  -d N                     size of values (3)
  -r N                     random keys below N
      --wait N             WAIT N 0 behind each request, which is answered when so many replicas have what it wrote
Any of these makes it memtier_benchmark: -c then counts by thread (50), -n by connection (10k), --threads is 4, -d is 32:
      --ratio S:G          SETs to GETs (1:10)
      --key-pattern S:G    R random, G Gaussian, S sequential, P sequential in parts (R:R)
      --key-prefix TEXT, --key-minimum N, --key-maximum N
                           keys (memtier-, 0, 10m)
      --rate-limiting N    operations per second of each connection
      --cluster-mode       as --cluster";

/// memtier_benchmark's defaults.
mod memtier_defaults {
    pub const CLIENTS: u32 = 50;
    pub const THREADS: u32 = 4;
    pub const REQUESTS: u64 = 10_000;
    pub const VALUE_BYTES: u64 = 32;
    pub const KEY_MAXIMUM: u64 = 10_000_000;
}

/// redis-benchmark's size of values.
const VALUE_BYTES: u64 = 3;

/// Options of redis-benchmark and memtier_benchmark that change nothing here: everything is random by seed, errors
/// are always shown, and percentiles too.
const IGNORED: &[&str] = &[
    "-e",
    "-R",
    "--random-data",
    "--distinct-client-seed",
    "--randomize",
    "--hide-histogram",
    "--no-expiry",
];
/// The same with a value.
const IGNORED_WITH_VALUE: &[&str] = &["--precision", "--print-percentiles", "-k"];

/// What was given beyond the shared options.
#[derive(Default)]
struct Asked {
    tests: Option<String>,
    command: Vec<String>,
    waits_for: u32,
    is_memtier: bool,
    ratio: Option<(u32, u32)>,
    patterns: Option<(KeyPattern, KeyPattern)>,
    prefix: Option<String>,
    key_minimum: Option<u64>,
    key_maximum: Option<u64>,
    rate_of_connection: Option<f64>,
    credentials: Option<String>,
}

/// Reads the command line.
///
/// # Errors
/// One sentence about what is wrong with it.
pub fn plans(words: &[String]) -> Result<(Vec<Plan>, Output), Failure> {
    let mut asked = Asked::default();
    let mut options = Options::new();
    let mut arguments = Arguments::new(words);
    while let Some(given) = arguments.next()? {
        match given {
            Given::Word(word) => {
                asked.command.push(word);
                asked.command.extend(arguments.rest());
            }
            Given::Option(option) => asked.take(&option, &mut options, &mut arguments)?,
        }
    }
    let plans = if asked.is_memtier { vec![asked.memtier(&options)?] } else { asked.tests(&options)? };
    Ok((plans, options.output))
}

impl Asked {
    fn take(
        &mut self,
        option: &str,
        options: &mut Options,
        arguments: &mut Arguments,
    ) -> Result<(), Failure> {
        match option {
            "-t" => {
                // memtier_benchmark's -t is a number of threads.
                let text = arguments.text()?;
                match text.parse::<u32>() {
                    Ok(threads) => (options.threads, self.is_memtier) = (Some(threads), true),
                    Err(_) => self.tests = Some(text),
                }
                return Ok(());
            }
            "-P" | "--protocol" => {
                // And its -P is the protocol.
                let text = arguments.text()?;
                match text.as_str() {
                    "redis" | "resp2" => self.is_memtier = true,
                    number => {
                        let count = parse_count(number).and_then(|count| u32::try_from(count).ok());
                        options.pipeline =
                            Some(count.ok_or_else(|| arguments.wrong(number, "a number of requests"))?);
                    }
                }
                return Ok(());
            }
            "-a" => {
                // memtier_benchmark's may have a user before it.
                let text = arguments.text()?;
                options.target.password = Some(text.clone());
                self.credentials = Some(text);
                return Ok(());
            }
            "--ratio" => {
                self.ratio = Some(pair(arguments, "a ratio such as 1:10", |part| part.parse().ok())?)
            }
            "--key-pattern" => {
                self.patterns = Some(pair(arguments, "a pattern such as R:R", pattern)?);
            }
            "--key-prefix" => self.prefix = Some(arguments.text()?),
            "--key-minimum" => self.key_minimum = Some(arguments.count()?),
            "--key-maximum" => self.key_maximum = Some(arguments.count()?),
            "--rate-limiting" => self.rate_of_connection = Some(arguments.number()?),
            "-s" => {
                // redis-benchmark's -s is a socket's path, memtier_benchmark's a host.
                options.target.host = arguments.text()?;
                if options.target.host.starts_with('/') {
                    return Err(Failure("-s: sockets of files are not supported, only TCP".to_owned()));
                }
                return Ok(());
            }
            "--hide-histogram" | "--cluster-mode" => options.is_cluster |= option == "--cluster-mode",
            "--wait" => return self.take_replicas(arguments),
            option if IGNORED.contains(&option) => return Ok(()),
            option if IGNORED_WITH_VALUE.contains(&option) => {
                let value = arguments.text()?;
                if option == "-k" && value != "1" {
                    return Err(Failure("-k: connections are always kept".to_owned()));
                }
                return Ok(());
            }
            option if options.take(option, arguments)? => return Ok(()),
            _ => return Err(Failure(format!("'{option}' is not an option of 'tarn bench kv'"))),
        }
        self.is_memtier = true;
        Ok(())
    }

    fn take_replicas(&mut self, arguments: &mut Arguments) -> Result<(), Failure> {
        let count = arguments.count()?;
        let replicas =
            u32::try_from(count).map_err(|_| arguments.wrong(&count.to_string(), "a number of replicas"));
        self.waits_for = replicas?;
        Ok(())
    }

    /// redis-benchmark's tests, or the command that was given.
    fn tests(&self, options: &Options) -> Result<Vec<Plan>, Failure> {
        let size = options.value_bytes.unwrap_or(VALUE_BYTES);
        if !self.command.is_empty() {
            let words: Vec<&str> = self.command.iter().map(String::as_str).collect();
            let template = Template::of(&label(&self.command), &words, options.keyspace);
            return Ok(vec![options.plan(Work::Request(template).waiting_for(self.waits_for))?]);
        }
        self.chosen(options)?
            .into_iter()
            .filter_map(|name| Template::kv(name, size, options.keyspace))
            .map(|template| options.plan(Work::Request(template).waiting_for(self.waits_for)))
            .collect()
    }

    /// The names of the tests, in redis-benchmark's order.
    fn chosen(&self, options: &Options) -> Result<Vec<&'static str>, Failure> {
        let asked: Option<Vec<String>> = self
            .tests
            .as_ref()
            .map(|tests| tests.split(',').map(|name| name.trim().to_lowercase()).collect());
        let Some(asked) = asked else {
            // No master of a cluster takes the random keys of an MSET together.
            let left_out = ["xadd", if options.is_cluster { "mset" } else { "" }];
            return Ok(KV_TESTS
                .iter()
                .map(|test| test.name)
                .filter(|name| !left_out.contains(name))
                .collect());
        };
        let is_known =
            |name: &String| name == "ping" || KV_TESTS.iter().any(|test| test.name == name.as_str());
        if let Some(unknown) = asked.iter().find(|name| !is_known(name)) {
            return Err(Failure(format!("-t: there is no test '{unknown}'")));
        }
        let is_chosen = |name: &str| {
            asked.iter().any(|asked| {
                let is_group = (asked == "ping" && name.starts_with("ping"))
                    || (asked == "lrange" && name.starts_with("lrange"))
                    || (name == "lrange" && asked.starts_with("lrange"));
                asked == name || is_group
            })
        };
        Ok(KV_TESTS.iter().map(|test| test.name).filter(|name| is_chosen(name)).collect())
    }

    fn memtier(&self, options: &Options) -> Result<Plan, Failure> {
        use memtier_defaults::{CLIENTS, KEY_MAXIMUM, REQUESTS, THREADS, VALUE_BYTES};
        let is_waiting = self.waits_for > 0;
        if self.tests.is_some() || !self.command.is_empty() || options.keyspace.is_some() || is_waiting {
            return Err(Failure(
                "options of memtier_benchmark go with no tests, no command, no -r of redis-benchmark and no --wait"
                    .to_owned(),
            ));
        }
        let (sets, gets) = self.ratio.unwrap_or((1, 10));
        let (set_pattern, get_pattern) = self.patterns.unwrap_or((KeyPattern::Random, KeyPattern::Random));
        let key_minimum = self.key_minimum.unwrap_or(0);
        let key_maximum = self.key_maximum.unwrap_or(KEY_MAXIMUM);
        if u64::from(sets) + u64::from(gets) == 0 || u32::MAX - sets < gets {
            return Err(Failure("--ratio: at least one part must be above 0".to_owned()));
        }
        if key_minimum > key_maximum || key_maximum == u64::MAX {
            return Err(Failure("--key-maximum must not be below --key-minimum".to_owned()));
        }
        let work = Work::Memtier(Memtier {
            sets,
            gets,
            value_bytes: options.value_bytes.unwrap_or(VALUE_BYTES),
            prefix: self.prefix.clone().unwrap_or_else(|| "memtier-".to_owned()),
            key_minimum,
            key_maximum,
            set_pattern,
            get_pattern,
        });
        let threads = options.threads.unwrap_or(THREADS);
        let connections = options.connections.unwrap_or(CLIENTS).saturating_mul(threads);
        let each = options.operations.unwrap_or(REQUESTS);
        let is_by_time = options.seconds.is_some() && options.operations.is_none();
        let operations = (!is_by_time).then(|| each.saturating_mul(connections.into()));
        let rate = self.rate_of_connection.map(|rate| rate * f64::from(connections)).or(options.rate);
        let (threads, connections) = (Some(threads), Some(connections));
        let mut options = Options { threads, connections, operations, rate, ..options.clone() };
        if let Some(credentials) = &self.credentials {
            options.take_credentials(credentials);
        }
        options.plan(work)
    }
}

/// What tables call a command: its first words, without values.
fn label(command: &[String]) -> String {
    const WORDS: usize = 3;
    const BYTES: usize = 40;
    let mut label = command[..command.len().min(WORDS)].join(" ");
    if let Some((at, _)) = label.char_indices().nth(BYTES) {
        label.truncate(at);
    }
    label
}

/// Reads two things with a colon between.
fn pair<T>(
    arguments: &mut Arguments,
    expected: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<(T, T), Failure> {
    let text = arguments.text()?;
    let parts = text.split_once(':').and_then(|(a, b)| Some((read(a)?, read(b)?)));
    parts.ok_or_else(|| arguments.wrong(&text, expected))
}

fn pattern(letter: &str) -> Option<KeyPattern> {
    match letter {
        "R" => Some(KeyPattern::Random),
        "G" => Some(KeyPattern::Gauss),
        "S" => Some(KeyPattern::Sequential),
        "P" => Some(KeyPattern::Parallel),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::command_line;
    use crate::plan::End;
    use std::time::Duration;

    fn read(line: &str) -> Result<Vec<Plan>, Failure> {
        plans(
            &wire::split_words(line.as_bytes())
                .unwrap()
                .into_iter()
                .map(|word| String::from_utf8(word).unwrap())
                .collect::<Vec<_>>(),
        )
        .map(|(plans, _)| plans)
    }

    #[test]
    fn redis_benchmark_s_lines_run_as_printed() {
        let plans =
            read("-h 10.0.0.1 -p 7000 -a secret -c 64 -P 100 -n 1000000 -r 1048576 -d 256 -t set,get -q")
                .unwrap();
        assert_eq!(plans.len(), 2);
        let plan = &plans[1];
        assert_eq!(plan.target.to_string(), "10.0.0.1:7000");
        assert_eq!(plan.target.password.as_deref(), Some("secret"));
        assert_eq!((plan.connections, plan.threads, plan.pipeline), (64, 1, 100));
        assert_eq!(plan.end, End::Operations(1_000_000));
        let Work::Request(template) = &plan.work else { panic!("{plan:?}") };
        assert_eq!((template.name.as_str(), template.keyspace), ("get", Some(1_048_576)));

        let plans =
            read("-n 10 -r 100 eval \"redis.call('SET', KEYS[1], ARGV[1])\" 1 key:__rand_int__ -x").unwrap();
        let Work::Request(template) = &plans[0].work else { panic!("{plans:?}") };
        assert_eq!(template.arguments.len(), 5, "what follows the command belongs to it");
        assert_eq!(read("-q").unwrap().len(), KV_TESTS.len() - 1);
        assert_eq!(read("-t lrange_300").unwrap().len(), 2);
    }

    #[test]
    fn memtier_s_lines_count_by_thread_and_connection() {
        let plans = read(
            "-s 10.0.0.1 -p 7000 -a u:secret --ratio=1:1 --test-time=60 -c 20 --threads=10 --key-pattern=S:G \
             --select-db=10 -d 32 --hide-histogram -P redis",
        )
        .unwrap();
        let plan = &plans[0];
        assert_eq!((plan.connections, plan.threads, plan.pipeline), (200, 10, 1));
        assert_eq!((plan.target.database, plan.target.user.as_deref()), (10, Some("u")));
        assert_eq!(plan.end, End::After(Duration::from_secs(60)));
        let Work::Memtier(memtier) = &plan.work else { panic!("{plan:?}") };
        assert_eq!((memtier.set_pattern, memtier.get_pattern), (KeyPattern::Sequential, KeyPattern::Gauss));
        assert_eq!(read("--ratio 1:10").unwrap()[0].end, End::Operations(2_000_000));
        assert_eq!(read("-t 2 -c 1 -n 5").unwrap()[0].end, End::Operations(10));
    }

    #[test]
    fn a_plan_s_command_line_gives_the_same_plan() {
        for line in [
            "-t mset -c 7 -n 99 -d 11",
            "-t get -r 1000 --test-time 2.5 --rate 1000 --warm-up 1 --seed 7 --select-db 3 --user bob",
            "-P 50 eval \"return 1\" 0",
            "--wait 2 -t set -r 10",
            "--wait 1 incr counter",
            "--cluster -t set -r 10",
            "--cluster-mode --ratio 1:1 -c 2 -n 10",
            "--ratio 2:3 -c 4 --threads 2 --key-pattern P:R --key-maximum 99 -n 10 --key-prefix k",
        ] {
            let plan = &read(line).unwrap()[0];
            let written = command_line(plan);
            let again = read(written.strip_prefix("tarn bench kv ").unwrap()).unwrap();
            assert_eq!(format!("{plan:?}"), format!("{:?}", again[0]), "{written}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_in_one_sentence() {
        for (line, sentence) in [
            ("--cacert", "--cacert needs a value"),
            ("-c none", "-c: 'none' is not a whole number"),
            ("--wait 1 --ratio 1:1", "options of memtier_benchmark go with no tests"),
            ("-t nonsense", "-t: there is no test 'nonsense'"),
            ("--nonsense", "'--nonsense' is not an option"),
            ("-c", "-c needs a value"),
            ("-n 5 --seconds 5", "a run ends by --operations or by --seconds"),
            ("-c 2 --threads 3", "there must be at least one connection for each thread"),
            ("--cluster -t mset -r 10", "mset has keys of several slots"),
            ("--ratio 0:0", "--ratio: at least one part"),
            ("-p 70000", "-p: '70000' is not a port"),
        ] {
            let failure = read(line).unwrap_err().0;
            assert!(failure.starts_with(sentence), "{line}: {failure}");
        }
    }
}
