//! The command line that repeats one measurement alone.

use crate::plan::{End, Plan};
use crate::work::{Distribution, KeyPattern, Memtier, Template, Work, Ycsb};

/// Writes a plan as a call of `tarn bench`. A password is left out: it belongs into `TARN_BENCH_PASSWORD`.
pub fn command_line(plan: &Plan) -> String {
    let mut words = vec!["tarn".to_owned(), "bench".to_owned()];
    let mut trailing = Vec::new();
    match &plan.work {
        Work::Ycsb(workload) => ycsb(&mut words, "run", workload),
        Work::YcsbLoad(workload) => ycsb(&mut words, "load", workload),
        Work::Request(template) => trailing = request(&mut words, template),
        Work::Memtier(options) => memtier(&mut words, options),
        Work::Uuids { value_bytes, seconds } => {
            words.extend(["ttl".into(), "--ttl".into(), seconds.to_string()]);
            words.extend(["-d".into(), value_bytes.to_string()]);
        }
    }
    words.extend(["-h".into(), plan.target.host.clone(), "-p".into(), plan.target.port.to_string()]);
    if plan.direct.is_some() {
        words.push("--cluster".into());
    }
    if let Some(user) = &plan.target.user {
        words.extend(["--user".into(), user.clone()]);
    }
    if let Some(tls) = &plan.target.tls {
        words.push("--tls".into());
        for (option, file) in
            [("--cacert", &tls.authorities), ("--cert", &tls.certificate), ("--key", &tls.key)]
        {
            words.extend(file.iter().flat_map(|file| [option.to_owned(), file.clone()]));
        }
    }
    if plan.target.database > 0 {
        words.extend(["--select-db".into(), plan.target.database.to_string()]);
    }
    load(&mut words, plan);
    words.extend(trailing);
    words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
}

fn ycsb(words: &mut Vec<String>, phase: &str, workload: &Ycsb) {
    words.extend(["ycsb".into(), phase.into()]);
    let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
    option("--records", workload.records.to_string());
    option("--fields", workload.fields.to_string());
    option("--field-bytes", workload.field_bytes.to_string());
    if phase == "run" {
        let named = Ycsb::named(workload.short_name(), workload.records);
        let short_name = if named.is_some() { workload.short_name() } else { "c" };
        option("--workload", short_name.to_owned());
        if named.as_ref().is_none_or(|named| named.mix != workload.mix) {
            let mix = workload.mix;
            let kinds = [
                ("read", mix.read),
                ("update", mix.update),
                ("insert", mix.insert),
                ("scan", mix.scan),
                ("read-modify-write", mix.read_modify_write),
            ];
            let shares = kinds.iter().filter(|(_, share)| *share > 0.0);
            let shares: Vec<String> = shares.map(|(kind, share)| format!("{kind}={share}")).collect();
            option("--mix", shares.join(","));
        }
        option("--distribution", workload.distribution.name().to_owned());
        if let Distribution::Hotspot { data, operations } = workload.distribution {
            option("--hotspot-data", data.to_string());
            option("--hotspot-operations", operations.to_string());
        }
        if workload.mix.scan > 0.0 {
            option("--scan-max", workload.scan_max.to_string());
        }
    }
    if workload.key_digits > 1 {
        option("--key-digits", workload.key_digits.to_string());
    }
    if workload.is_ordered {
        words.push("--ordered".into());
    }
    if workload.is_indexed {
        words.push("--index".into());
    }
}

/// The options of a request, and what comes behind all options.
fn request(words: &mut Vec<String>, template: &Template) -> Vec<String> {
    let keyspace = template.keyspace.map(|keyspace| ["-r".to_owned(), keyspace.to_string()]);
    let size = ["-d".to_owned(), template.value_bytes.to_string()];
    let (name, bytes) = (template.name.as_str(), template.value_bytes);
    let kv = Template::kv(name, bytes, template.keyspace);
    let is_test = kv.is_some_and(|test| Template { waits_for: template.waits_for, ..test } == *template);
    let script_run = Work::script_run(name, bytes, template.keyspace);
    let is_script_run = matches!(script_run, Some(Work::Request(run)) if run == *template) && !is_test;
    words.push(if is_script_run { "eval" } else { "kv" }.into());
    if template.waits_for > 0 {
        words.extend(["--wait".into(), template.waits_for.to_string()]);
    }
    if is_script_run || is_test {
        words.extend(["-t".into(), template.name.clone()]);
        words.extend(size.into_iter().chain(keyspace.into_iter().flatten()));
        return Vec::new();
    }
    words.extend(keyspace.into_iter().flatten());
    template.arguments.iter().map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
}

fn memtier(words: &mut Vec<String>, options: &Memtier) {
    let letter = |pattern| match pattern {
        KeyPattern::Random => 'R',
        KeyPattern::Gauss => 'G',
        KeyPattern::Sequential => 'S',
        KeyPattern::Parallel => 'P',
    };
    words.push("kv".into());
    let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
    option("--ratio", format!("{}:{}", options.sets, options.gets));
    option("--data-size", options.value_bytes.to_string());
    option("--key-pattern", format!("{}:{}", letter(options.set_pattern), letter(options.get_pattern)));
    option("--key-prefix", options.prefix.clone());
    option("--key-minimum", options.key_minimum.to_string());
    option("--key-maximum", options.key_maximum.to_string());
}

/// How hard it is pushed, and how long.
fn load(words: &mut Vec<String>, plan: &Plan) {
    let is_memtier = matches!(plan.work, Work::Memtier(_));
    // memtier_benchmark counts connections by thread and requests by connection.
    let (connections, operations_of) = if is_memtier {
        (plan.connections / plan.threads.max(1), u64::from(plan.connections.max(1)))
    } else {
        (plan.connections, 1)
    };
    let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
    option("-c", connections.to_string());
    option("--threads", plan.threads.to_string());
    option("-P", plan.pipeline.to_string());
    match plan.end {
        End::Operations(_) if matches!(plan.work, Work::YcsbLoad(_)) => {}
        End::Operations(operations) => option("-n", (operations / operations_of).to_string()),
        End::After(time) => option("--test-time", time.as_secs_f64().to_string()),
    }
    if let Some(rate) = plan.rate {
        option("--rate", rate.to_string());
    }
    if !plan.warm_up.is_zero() {
        option("--warm-up", plan.warm_up.as_secs_f64().to_string());
    }
    option("--seed", plan.seed.to_string());
}

/// In quotes if a shell would not take it as it stands.
fn shell_word(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=+:,./@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(shell_word("key:__rand_int__"), "key:__rand_int__");
        assert_eq!(shell_word("redis.call('SET')"), r"'redis.call('\''SET'\'')'");
        assert_eq!(shell_word(""), "''");
    }
}
