//! What looks at each row of the differences in `docs/scripting.md`, in the order of the page.

use super::Check::{self, Asked, Not, Started};

/// By the first cell of its row.
pub const CHECKS: &[(&str, Check)] = &[
    (
        "memory of interpreters",
        Asked(&[("INFO memory", "~ used_memory_vm_total:", "~ used_memory_vm_total:")]),
    ),
    (
        "locals of a library (`local n = 0` outside of its functions)",
        Started(
            &["--edition", "memory", "--threads", "2", "--threads-min", "2"],
            &[],
            &[
                (
                    r##"FUNCTION LOAD "#!lua name=l\nlocal n = 0\nredis.register_function('count', function() n = n + 1 return n end)""##,
                    "$1 l",
                    "$1 l",
                ),
                ("FCALL count 0", ":1", ":1"),
                ("@b FCALL count 0", ":1", ":2"),
            ],
        ),
    ),
    (
        "the sequence of `math.random`, and the seed that `math.randomseed` leaves behind",
        Started(
            &["--edition", "memory", "--threads", "2", "--threads-min", "2"],
            &[],
            &[
                (r#"EVAL "math.randomseed(1) return 1" 0"#, ":1", ":1"),
                (r#"@b EVAL "math.randomseed(1) return math.random(1000000)" 0"#, "~:", "~:"),
                (r#"@b EVAL "math.randomseed(1) return 1" 0"#, ":1", ":1"),
                // Both begin anew here; there the second goes on.
                (r#"EVAL "return math.random(1000000)" 0"#, ":41631", ":41631"),
                (r#"@b EVAL "return math.random(1000000)" 0"#, ":41631", "!:41631"),
            ],
        ),
    ),
    (
        "settings such as `cjson.encode_number_precision`",
        Asked(&[
            (r#"EVAL "cjson.encode_number_precision(3) return cjson.encode(1/3)" 0"#, "$5 0.333", "$5 0.333"),
            (r#"EVAL "return cjson.encode(1/3)" 0"#, "$16 0.33333333333333", "$5 0.333"),
        ]),
    ),
    (
        "a pattern of more than 4,000 repeated items and captures that match",
        Asked(&[(
            r#"EVAL "return string.find(('a'):rep(5000), ('a?'):rep(5000))" 0"#,
            "~pattern too complex",
            "",
        )]),
    ),
    ("`collectgarbage`", Not("when the collector runs shows in nothing that a script returns")),
    (
        "more than 4,000 values for `bit.*` and the others [above](#limits)",
        Asked(&[(
            r#"EVAL "local t = {} for i = 1, 5000 do t[i] = 1 end return bit.bor(unpack(t))" 0"#,
            "~-ERR",
            ":1",
        )]),
    ),
    (
        "a table that holds itself more than once, in a reply",
        Asked(&[(r#"EVAL "local t = {} t[1] = t t[2] = t return t" 0"#, "~-ERR", "")]),
    ),
    (
        "`SCRIPT DEBUG YES` and `SYNC`",
        Asked(&[("SCRIPT DEBUG YES", "~-ERR", "+OK"), ("SCRIPT DEBUG SYNC", "~-ERR", "+OK")]),
    ),
    (
        "`error` with a table that has no text in its field `err`, caught by nobody",
        Asked(&[(r#"EVAL "error({})" 0"#, "~-ERR unknown error", "")]),
    ),
    (
        "error of a function of `redis`, `cjson`, `cmsgpack`, `struct` or `bit` that leaves a `coroutine.wrap`",
        Asked(&[(
            r#"EVAL "local f = coroutine.wrap(function() cjson.decode('x') end)\n\nf()" 0"#,
            "~-ERR user_script:1: Expected value",
            "~user_script:3: user_script:1: Expected value",
        )]),
    ),
    (
        "`pcall()` of nothing",
        Asked(&[(r#"EVAL "return select('#', pcall(function() pcall() end))" 0"#, ":2", ":1")]),
    ),
    (
        "`cmsgpack._COPYRIGHT`",
        Asked(&[(r#"EVAL "return type(cmsgpack._COPYRIGHT)" 0"#, "$3 nil", "$6 string")]),
    ),
    (
        "order of functions in `FUNCTION LIST`",
        Asked(&[
            ("FUNCTION FLUSH", "+OK", ""),
            (
                r##"FUNCTION LOAD "#!lua name=l\nlocal f = function() end\nfor n = 9, 1, -1 do redis.register_function('f' .. n, f) end""##,
                "$1 l",
                "",
            ),
            ("FUNCTION LIST", "~$2 f9 ", ""),
            ("FUNCTION FLUSH", "+OK", ""),
        ]),
    ),
];
