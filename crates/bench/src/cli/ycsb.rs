//! `tarn bench ycsb load|run`.

use super::arguments::{Arguments, Given};
use super::options::{Options, Output};
use crate::Failure;
use crate::plan::{End, Plan};
use crate::work::{Distribution, Mix, Work, Ycsb};

pub const USAGE: &str = "\
Usage: tarn bench ycsb load [OPTION ...]    write the records
       tarn bench ycsb run [OPTION ...]     run a workload over them

      --workload NAME      a: 50 % read 50 % update     b: 95 % read 5 % update
                           c: read only                 d: 95 % read 5 % insert, latest
                           e: 95 % scan 5 % insert      f: 50 % read 50 % read-modify-write
                           uniform-read, zipfian-read, uniform-50-50: those of published reports (a)
      --records N          records that are loaded (100k)
      --distribution NAME  uniform, zipfian, latest or hotspot in place of the workload's own
      --hotspot-data X, --hotspot-operations X
                           the hot share of the records, and of the operations (0.2, 0.8)
      --mix LIST           shares of the operations, such as read=0.9,update=0.1
      --fields N           fields of a record: 1 is a string, more are a hash (10)
      --field-bytes N      size of each (100); -d with one field
      --key-digits N       digits to which key numbers are padded (1)
      --ordered            number keys in order instead of hashing the numbers
      --scan-max N         longest scan (100)
      --index              keep the index that workload e scans while loading or running another";

/// What was given for the workload.
struct Asked {
    workload: String,
    records: u64,
    distribution: Option<String>,
    hotspot: (f64, f64),
    mix: Option<String>,
    fields: Option<u32>,
    field_bytes: Option<u64>,
    key_digits: Option<u32>,
    scan_max: Option<u64>,
    is_ordered: bool,
    is_indexed: bool,
}

/// Reads the command line.
///
/// # Errors
/// One sentence about what is wrong with it.
pub fn plans(words: &[String]) -> Result<(Vec<Plan>, Output), Failure> {
    let mut asked = Asked {
        workload: "a".to_owned(),
        records: 100_000,
        distribution: None,
        hotspot: (0.2, 0.8),
        mix: None,
        fields: None,
        field_bytes: None,
        key_digits: None,
        scan_max: None,
        is_ordered: false,
        is_indexed: false,
    };
    let mut options = Options::new();
    let mut arguments = Arguments::new(words);
    let mut phase = None;
    while let Some(given) = arguments.next()? {
        match given {
            Given::Word(word) if phase.is_none() => phase = Some(word),
            Given::Word(word) => return Err(Failure(format!("'{word}' is not expected here"))),
            Given::Option(option) => {
                if !asked.take(&option, &mut arguments)? && !options.take(&option, &mut arguments)? {
                    return Err(Failure(format!("'{option}' is not an option of 'tarn bench ycsb'")));
                }
            }
        }
    }
    let workload = asked.workload(options.value_bytes)?;
    let plan = match phase.as_deref() {
        Some("load") if options.operations.is_some() || options.seconds.is_some() => {
            return Err(Failure("a load writes each of the --records once and ends by itself".to_owned()));
        }
        Some("load") => {
            let plan = options.plan(Work::YcsbLoad(workload))?;
            Plan { end: End::Operations(asked.records), ..plan }
        }
        Some("run") => options.plan(Work::Ycsb(workload))?,
        _ => return Err(Failure(format!("'load' or 'run' is needed\n\n{USAGE}"))),
    };
    Ok((vec![plan], options.output))
}

impl Asked {
    fn take(&mut self, option: &str, arguments: &mut Arguments) -> Result<bool, Failure> {
        match option {
            "-w" | "--workload" => {
                let name = arguments.text()?.to_lowercase();
                self.workload = name.strip_prefix("workload").unwrap_or(&name).to_owned();
            }
            "--records" => self.records = arguments.count()?.max(1),
            "--distribution" => self.distribution = Some(arguments.text()?),
            "--hotspot-data" => self.hotspot.0 = arguments.number()?,
            "--hotspot-operations" => self.hotspot.1 = arguments.number()?,
            "--mix" => self.mix = Some(arguments.text()?),
            "--fields" => self.fields = Some(arguments.small_count()?),
            "--field-bytes" => self.field_bytes = Some(arguments.count()?),
            "--key-digits" => self.key_digits = Some(arguments.small_count()?),
            "--scan-max" => self.scan_max = Some(arguments.count()?),
            "--ordered" => self.is_ordered = true,
            "--index" => self.is_indexed = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn workload(&self, value_bytes: Option<u64>) -> Result<Ycsb, Failure> {
        const FIELDS_MAX: u32 = 100_000;
        const DIGITS_MAX: u32 = 1000;
        let refuse = |sentence: String| Err(Failure(sentence));
        let Some(mut workload) = Ycsb::named(&self.workload, self.records) else {
            return refuse(format!("--workload: there is no workload '{}'", self.workload));
        };
        if self.records > i64::MAX as u64 {
            return refuse(format!("--records: at most {}", i64::MAX));
        }
        workload.fields = self.fields.unwrap_or(workload.fields);
        if workload.fields == 0 || workload.fields > FIELDS_MAX {
            return refuse(format!("--fields: between 1 and {FIELDS_MAX}"));
        }
        let field_bytes = match (self.field_bytes, value_bytes) {
            (Some(bytes), _) => Some(bytes),
            (None, Some(bytes)) if workload.fields == 1 => Some(bytes),
            (None, Some(_)) => return refuse("-d is for records of one field; use --field-bytes".to_owned()),
            (None, None) => None,
        };
        workload.field_bytes = field_bytes.unwrap_or(workload.field_bytes);
        workload.key_digits = self.key_digits.unwrap_or(workload.key_digits);
        if workload.key_digits > DIGITS_MAX {
            return refuse(format!("--key-digits: at most {DIGITS_MAX}"));
        }
        workload.scan_max = self.scan_max.unwrap_or(workload.scan_max);
        workload.is_ordered = self.is_ordered;
        if let Some(mix) = &self.mix {
            workload.mix = parse_mix(mix)?;
        }
        if let Some(name) = &self.distribution {
            workload.distribution = self.distribution(name)?;
        }
        workload.is_indexed = self.is_indexed || workload.mix.scan > 0.0;
        workload.relabel(&self.workload);
        Ok(workload)
    }

    fn distribution(&self, name: &str) -> Result<Distribution, Failure> {
        let (data, operations) = self.hotspot;
        match name {
            "uniform" => Ok(Distribution::Uniform),
            "zipfian" => Ok(Distribution::Zipfian),
            "latest" => Ok(Distribution::Latest),
            "hotspot" if data <= 1.0 && operations <= 1.0 => Ok(Distribution::Hotspot { data, operations }),
            "hotspot" => Err(Failure("the shares of a hotspot are between 0 and 1".to_owned())),
            _ => Err(Failure(format!("--distribution: there is no distribution '{name}'"))),
        }
    }
}

/// Reads shares of operations such as `read=0.9,update=0.1`.
fn parse_mix(text: &str) -> Result<Mix, Failure> {
    let mut mix = Mix { read: 0.0, update: 0.0, insert: 0.0, scan: 0.0, read_modify_write: 0.0 };
    for part in text.split(',') {
        let wrong = || Failure(format!("--mix: '{part}' is not a kind of operation and its share"));
        let (kind, share) = part.split_once('=').ok_or_else(wrong)?;
        let share =
            share.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(wrong)?;
        match kind {
            "read" => mix.read = share,
            "update" => mix.update = share,
            "insert" => mix.insert = share,
            "scan" => mix.scan = share,
            "read-modify-write" => mix.read_modify_write = share,
            _ => return Err(wrong()),
        }
    }
    let sum = mix.read + mix.update + mix.insert + mix.scan + mix.read_modify_write;
    if (sum - 1.0).abs() < 1e-6 {
        Ok(mix)
    } else {
        Err(Failure(format!("--mix: the shares add up to {sum}, not to 1")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::command_line;

    fn read(line: &str) -> Result<Plan, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        plans(&words).map(|(mut plans, _)| plans.remove(0))
    }

    #[test]
    fn numbers_of_records_and_operations_have_64_bits() {
        let plan = read("run --records 7680000000 --operations 240m --workload c --fields 1 -d 100").unwrap();
        assert_eq!(plan.end, End::Operations(240_000_000));
        assert_eq!((plan.work.records(), plan.work.value_bytes()), (Some(7_680_000_000), 100));
        assert_eq!(read("load --records 640m").unwrap().end, End::Operations(640_000_000));
    }

    #[test]
    fn a_plan_s_command_line_gives_the_same_plan() {
        for line in [
            "load --records 1000 --fields 1 -d 128 --index",
            "run --workload workloadE --records 1000 -n 500 --scan-max 50 --ordered --key-digits 12",
            "run -w a --distribution hotspot --hotspot-data 0.1 --rate 5000 --test-time 3",
            "run -w uniform-50-50 --mix read=0.9,update=0.1",
        ] {
            let plan = read(line).unwrap();
            let written = command_line(&plan);
            let again = read(written.strip_prefix("tarn bench ycsb ").unwrap()).unwrap();
            assert_eq!(format!("{plan:?}"), format!("{again:?}"), "{written}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_in_one_sentence() {
        for (line, sentence) in [
            ("run -w z", "--workload: there is no workload 'z'"),
            ("load -n 5", "a load writes each"),
            ("run --mix read=0.5", "--mix: the shares add up to 0.5"),
            ("run --fields 0", "--fields: between 1"),
            ("run -d 5", "-d is for records of one field"),
            ("walk", "'load' or 'run' is needed"),
        ] {
            let failure = read(line).unwrap_err().0;
            assert!(failure.starts_with(sentence), "{line}: {failure}");
        }
    }
}
