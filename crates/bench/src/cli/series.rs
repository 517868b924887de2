//! `tarn bench ttl` and `tarn bench eval`: the same load over several connections, pipelines and requests.

use super::arguments::{Arguments, Given, parse_count};
use super::options::{Options, Output};
use crate::Failure;
use crate::plan::Plan;
use crate::work::{SCRIPT_RUNS, Work};

pub const TTL_USAGE: &str = "\
Usage: tarn bench ttl [OPTION ...]    SET of new random UUIDs that expire

  -c, --connections LIST   connections of each run (1,2,4)
  -P, --pipeline LIST      requests sent at once in each run (1,50)
      --ttl SECONDS        time to live (60)
  -d N                     size of values (32)";

pub const EVAL_USAGE: &str = "\
Usage: tarn bench eval [OPTION ...]    what scripts cost over the commands that they call

      -t NAME,...          set (the command alone), eval (a script of one SET), evalsha (the same by its SHA-1),
                           eval-ten (a script of ten SETs); with -P, all of them
  -P, --pipeline N         requests sent at once (all with 1, then set and evalsha with 50)
  -d N                     size of values (3)
  -r N                     random keys below N (1m)";

const TTL_SECONDS: u64 = 60;
const TTL_VALUE_BYTES: u64 = 32;
const SCRIPT_VALUE_BYTES: u64 = 3;
const SCRIPT_KEYS: u64 = 1_000_000;
const PIPELINE: u32 = 50;

/// Reads the command line of `ttl`.
///
/// # Errors
/// One sentence about what is wrong with it.
pub fn ttl_plans(words: &[String]) -> Result<(Vec<Plan>, Output), Failure> {
    let mut options = Options::new();
    let mut arguments = Arguments::new(words);
    let (mut connections, mut pipelines, mut seconds) = (vec![1, 2, 4], vec![1, PIPELINE], TTL_SECONDS);
    while let Some(given) = arguments.next()? {
        match given {
            Given::Option(option) => match option.as_str() {
                "-c" | "--connections" => connections = list(&mut arguments)?,
                "-P" | "--pipeline" => pipelines = list(&mut arguments)?,
                "--ttl" => seconds = arguments.count()?.max(1),
                option => take_shared(option, &mut options, &mut arguments, "ttl")?,
            },
            Given::Word(word) => return Err(Failure(format!("'{word}' is not expected here"))),
        }
    }
    let value_bytes = options.value_bytes.unwrap_or(TTL_VALUE_BYTES);
    let mut plans = Vec::new();
    for pipeline in pipelines {
        for connections in &connections {
            options.connections = Some(*connections);
            options.pipeline = Some(pipeline);
            plans.push(options.plan(Work::Uuids { value_bytes, seconds })?);
        }
    }
    // One seed would write the same keys again in each run.
    let seed = options.seed.unwrap_or(1);
    for (number, plan) in plans.iter_mut().enumerate() {
        plan.seed = seed.wrapping_add(number as u64);
    }
    Ok((plans, options.output))
}

/// Reads the command line of `eval`.
///
/// # Errors
/// One sentence about what is wrong with it.
pub fn eval_plans(words: &[String]) -> Result<(Vec<Plan>, Output), Failure> {
    let mut options = Options::new();
    let mut arguments = Arguments::new(words);
    let mut names: Option<String> = None;
    while let Some(given) = arguments.next()? {
        match given {
            Given::Option(option) if option == "-t" => names = Some(arguments.text()?),
            Given::Option(option) => take_shared(&option, &mut options, &mut arguments, "eval")?,
            Given::Word(word) => return Err(Failure(format!("'{word}' is not expected here"))),
        }
    }
    let value_bytes = options.value_bytes.unwrap_or(SCRIPT_VALUE_BYTES);
    let keyspace = Some(options.keyspace.unwrap_or(SCRIPT_KEYS));
    let is_default = names.is_none() && options.pipeline.is_none();
    let asked: Vec<String> = match names {
        Some(names) => names.split(',').map(str::to_owned).collect(),
        None => SCRIPT_RUNS.iter().map(|name| (*name).to_owned()).collect(),
    };
    let mut plans = Vec::new();
    let mut add = |name: &str, pipeline: Option<u32>| {
        let work = Work::script_run(name, value_bytes, keyspace)
            .ok_or_else(|| Failure(format!("-t: there is no run '{name}'")))?;
        plans.push(Options { pipeline, ..options.clone() }.plan(work)?);
        Ok::<(), Failure>(())
    };
    asked.iter().try_for_each(|name| add(name, options.pipeline))?;
    if is_default {
        ["set", "evalsha"].iter().try_for_each(|name| add(name, Some(PIPELINE)))?;
    }
    Ok((plans, options.output))
}

fn take_shared(
    option: &str,
    options: &mut Options,
    arguments: &mut Arguments,
    name: &str,
) -> Result<(), Failure> {
    if options.take(option, arguments)? {
        Ok(())
    } else {
        Err(Failure(format!("'{option}' is not an option of 'tarn bench {name}'")))
    }
}

/// Numbers with commas between.
fn list(arguments: &mut Arguments) -> Result<Vec<u32>, Failure> {
    let text = arguments.text()?;
    let numbers = text.split(',').map(|part| parse_count(part).and_then(|number| u32::try_from(number).ok()));
    numbers.collect::<Option<Vec<u32>>>().ok_or_else(|| arguments.wrong(&text, "a list of whole numbers"))
}
