//! What looks at each row of `docs/differences.md`, in the order of the page.

use super::Check::{self, Asked, By, Not, Started, Test};
use super::by_hand;

/// By the first cell of its row.
pub const CHECKS: &[(&str, Check)] = &[
    ("`bind` default", By(by_hand::defaults)),
    ("`dir` and `syslog-ident` defaults", By(by_hand::defaults)),
    ("`port 0`", By(by_hand::a_free_port)),
    ("unknown directive in a file", By(by_hand::unknown_directives)),
    ("an option that cannot be accepted", By(by_hand::bad_options)),
    (
        "`daemonize`, `io-threads`, `activedefrag`, `*_cpulist`, `set-proc-title` and the like",
        By(by_hand::directives_without_effect),
    ),
    (
        "`activedefrag yes`, any `locale-collate`",
        Asked(&[
            ("CONFIG SET activedefrag yes", "+OK", "~-ERR"),
            ("CONFIG SET activedefrag no", "+OK", ""),
            ("CONFIG SET locale-collate nonsense", "+OK", ""),
            ("CONFIG SET locale-collate \"\"", "+OK", ""),
        ]),
    ),
    (
        "amounts of memory from 2^63 bytes on; directives whose values hold a NUL",
        Asked(&[
            ("CONFIG SET maxmemory 9223372036854775808", "~-ERR", "+OK"),
            ("CONFIG SET maxmemory 0", "+OK", "+OK"),
            ("CONFIG SET masteruser \"a\\x00b\"", "+OK", "+OK"),
            ("CONFIG GET masteruser", "*2 $10 masteruser $3 a\\x00b", "*2 $10 masteruser $1 a"),
            ("CONFIG SET masteruser \"\"", "+OK", "+OK"),
        ]),
    ),
    (
        "`rename-command`",
        Started(
            &["--edition", "memory", "--rename-command", "APPEND", "x", "--slowlog-log-slower-than", "0"],
            &["--rename-command", "APPEND", "x", "--slowlog-log-slower-than", "0"],
            &[
                ("APPEND k v", "~-ERR unknown command", "~-ERR unknown command"),
                ("x k v", ":1", ":1"),
                ("SLOWLOG GET 1", "~ append ", "~ x "),
            ],
        ),
    ),
    ("`save` default", By(by_hand::defaults)),
    ("`BGSAVE` and save points", Not("what changes while a snapshot runs is a race")),
    (
        "`BGSAVE SCHEDULE`, `BGSAVE` in a transaction",
        Not("it shows only while a rewrite runs, which takes no time here"),
    ),
    ("`appendonly yes`", By(by_hand::a_log_of_its_own)),
    (
        "an RDB file beside append-only files that are older",
        Test("append_only_files_that_are_older_than_a_snapshot_are_not_loaded_in_silence"),
    ),
    (
        "an RDB file in `dir` beside a log",
        Test("what_the_memory_edition_has_saved_beside_a_log_is_not_passed_over"),
    ),
    ("edition durable", By(by_hand::the_durable_edition)),
    ("edition capacity", Test("what_is_said_of_a_directory_of_the_capacity_edition_leads_on")),
    (
        "`store-compression`",
        Asked(&[("CONFIG GET store-compression", "*2 $17 store-compression $2 no", "*0")]),
    ),
    ("`appendfsync everysec`", Not("what is lost depends on the moment of the kill")),
    (
        "`busy-reply-scope`",
        Asked(&[("CONFIG GET busy-reply-scope", "*2 $16 busy-reply-scope $4 keys", "*0")]),
    ),
    (
        "`CONFIG SET appendonly no`",
        Started(
            &["--edition", "durable"],
            &["--appendonly", "yes"],
            &[("CONFIG SET appendonly no", "~-ERR CONFIG SET failed", "+OK")],
        ),
    ),
    (
        "`CONFIG SET dir`",
        Started(
            &["--edition", "durable", "--enable-protected-configs", "yes"],
            &["--appendonly", "yes", "--enable-protected-configs", "yes"],
            &[("CONFIG SET dir /", "~-ERR CONFIG SET failed", "+OK")],
        ),
    ),
    ("`tls-protocols`", Test("old_versions_are_left_out_and_refused_alone")),
    ("`tls-ciphers`, `tls-ciphersuites`", Test("lists_of_ciphers_mean_what_openssl_takes_them_for")),
    (
        "`tls-key-file-pass`, `tls-dh-params-file`, `tls-session-cache-size`",
        Test("a_start_that_cannot_have_tls_says_why_and_ends"),
    ),
    ("certificates", Test("an_authority_is_no_client")),
    (
        "connections at `tls-port` that are too many, or refused by protected mode",
        Test("those_who_are_too_many_are_closed_without_a_word"),
    ),
    ("SIGHUP", Test("certificates_are_read_again_when_told")),
    ("`BGREWRITEAOF`", By(by_hand::a_checkpoint_in_place_of_a_rewrite)),
    ("`appendfilename`, `appenddirname`", By(by_hand::where_a_redis_files_are_looked_for)),
    ("`log-retention`", Asked(&[("CONFIG GET log-retention", "*2 $13 log-retention $2 no", "*0")])),
    (
        "`log-segment-size`",
        Asked(&[("CONFIG GET log-segment-size", "*2 $16 log-segment-size $8 67108864", "*0")]),
    ),
    (
        "`aof_*` fields of `INFO`",
        Started(
            &["--edition", "durable"],
            &["--appendonly", "yes"],
            &[
                ("INFO persistence", "~aof_enabled:1", "~aof_enabled:1"),
                ("INFO persistence", "~ log_", "! log_"),
            ],
        ),
    ),
    (
        "a log that cannot be written",
        Test("while_the_log_has_failed_everyone_is_answered_and_nobody_shown_what_is_not_on_disk"),
    ),
    ("RDB files", By(by_hand::rdb_versions)),
    (
        "clients that wait in `BLPOP` and its kin while a `STORE` (`SORT ... STORE`, `SUNIONSTORE`, ...) or `RENAME` puts another type in their key's place",
        By(by_hand::waiting_for_what_replaces_another_type),
    ),
    (
        "a transaction or script that writes much",
        Test("what_one_script_or_transaction_writes_stays_within_the_ceiling"),
    ),
    ("clients that are waiting", Test("who_needs_a_migrating_key_waits_for_it_and_nobody_else_does")),
    ("`KEYS`, `SCAN`, `DBSIZE`", Not("what others write meanwhile is a race")),
    (
        "`FLUSHALL` on an empty keyspace, `SWAPDB x x`",
        Started(
            &["--edition", "memory"],
            &[],
            &[
                ("SWAPDB 0 0", "+OK", "+OK"),
                ("INFO persistence", "~rdb_changes_since_last_save:0", "~rdb_changes_since_last_save:1"),
            ],
        ),
    ),
    ("line ends", By(by_hand::long_lines)),
    ("NUL in a protocol line", By(by_hand::nul_in_a_line)),
    (
        "option words with a NUL (`\"NX\\x00\"`)",
        Asked(&[("SET k v \"NX\\x00\"", "-ERR syntax error", "+OK")]),
    ),
    ("`LOLWUT`, `HELP` texts, DOCS summaries", Asked(&[("LOLWUT", "~Tarn ver.", "~Redis ver.")])),
    (
        "`INFO`",
        Asked(&[
            ("INFO server", "~ redis_version:7.2.", "~ redis_version:7.0."),
            ("INFO server", "~ tarn_version:", "! tarn_version:"),
        ]),
    ),
    (
        "`INFO`'s values, such as the host that a replica says it has",
        Asked(&[
            ("REPLICAOF \"x\\r\\nrole:master\" 1", "+OK", "+OK"),
            ("INFO replication", "~ master_host:x__role:master ", "~ master_host:x role:master "),
            ("REPLICAOF NO ONE", "+OK", "+OK"),
        ]),
    ),
    ("`INFO`'s `eventloop_*`", Test("info_tells_of_the_rounds_of_workers")),
    (
        "`INFO`'s `used_memory_lua`, `used_memory_vm_*`",
        Not("how many workers run scripts depends on the load"),
    ),
    ("`CLIENT LIST`", By(by_hand::the_buffers_of_clients)),
    ("`WATCH` while data are loaded", Not("a start with little to load is over before anybody asks")),
    ("messages of several publishers", Not("the order in which threads publish is a race")),
    ("`CLIENT TRACKING ... BCAST`", Not("how changes of several threads are parted into messages is a race")),
    ("`tracking-table-max-keys`", By(by_hand::the_table_of_tracked_keys)),
    (
        "order of names in `UNSUBSCRIBE` and `PUNSUBSCRIBE` without arguments",
        Asked(&[
            ("SUBSCRIBE c", "*3 $9 subscribe $1 c :1", ""),
            ("SUBSCRIBE a", "*3 $9 subscribe $1 a :2", ""),
            ("UNSUBSCRIBE", "*3 $11 unsubscribe $1 a :1", ""),
            ("@ ", "*3 $11 unsubscribe $1 c :0", ""),
        ]),
    ),
    ("`LATENCY`'s `expire-cycle`", Not("a machine without load has no such event")),
    (
        "`MONITOR`",
        Asked(&[
            ("@m MONITOR", "+OK", "+OK"),
            ("SELECT 5", "+OK", "+OK"),
            ("@m", "~ [0 ", "~ [5 "),
            ("@m RESET", "+RESET", "+RESET"),
        ]),
    ),
    ("`MIGRATE`", Test("who_needs_a_migrating_key_waits_for_it_and_nobody_else_does")),
    (
        "`MIGRATE` in a transaction or script, of a key that this may have written before",
        Test("what_its_own_transaction_has_written_is_not_sent"),
    ),
    ("`MIGRATE`'s timeout", Test("targets_that_mean_harm_cost_neither_time_nor_memory")),
    ("clients that have not authenticated", Test("strangers_together_have_little")),
    ("`maxmemory-clients 0`", Test("clients_without_a_limit_of_their_own_stay_below_maxmemory")),
    ("`client-output-buffer-limit` and a pipeline", By(by_hand::replies_that_the_socket_takes)),
    ("`client-query-buffer-limit`", Test("what_a_session_keeps_counts_for_the_query_buffer_limit")),
    ("bytes of `tracking-table-max-keys`", Test("keys_that_clients_cache_take_little_however_long_they_are")),
    (
        "client names and labels of over 4,096 bytes; scripts of over 256 MB in all by SCRIPT LOAD",
        Asked(&[("CLIENT SETNAME {x4097}", "~-ERR", "+OK"), ("CLIENT SETNAME {x4096}", "+OK", "+OK")]),
    ),
    (
        "`SET ... IFEQ`",
        Asked(&[
            ("SET k v", "+OK", "+OK"),
            ("SET k w IFEQ x", "$-1", "~-ERR syntax error"),
            ("SET k w IFEQ v", "+OK", "~-ERR syntax error"),
            ("GET k", "$1 w", "$1 v"),
        ]),
    ),
    ("`MEMORY USAGE`", By(by_hand::sizes_of_values)),
    (
        "`MODULE LOAD`, `LOADEX`, `UNLOAD`",
        Started(
            &["--edition", "memory", "--enable-module-command", "yes"],
            &["--enable-module-command", "yes"],
            &[("MODULE LOAD /x.so", "~-ERR Modules are not supported", "~-ERR Error loading the extension")],
        ),
    ),
    (
        "`DEBUG`",
        Asked(&[
            ("RPUSH list a", ":1", ":1"),
            ("DEBUG QUICKLIST list", "~-ERR unknown subcommand", ""),
            ("DEBUG SDSLEN list", "~-ERR unknown subcommand", ""),
            ("DEBUG STRUCTSIZE", "~-ERR unknown subcommand", "~bits:64"),
        ]),
    ),
    (
        "`DEBUG RELOAD`",
        Asked(&[("SET k v", "+OK", ""), ("DEBUG RELOAD NOFLUSH", "~-ERR", ""), ("GET k", "$1 v", "")]),
    ),
    ("`DEBUG LOADAOF`", Asked(&[("DEBUG LOADAOF", "~-ERR", "")])),
    (
        "`DEBUG SET-DISABLE-DENY-SCRIPTS`",
        Asked(&[
            (r#"EVAL "return redis.call('CLIENT', 'ID')" 0"#, "~-ERR This Redis command is not allowed", ""),
            ("DEBUG SET-DISABLE-DENY-SCRIPTS 1", "+OK", ""),
            (r#"EVAL "return redis.call('CLIENT', 'ID')" 0"#, "~:", ""),
            (
                r#"EVAL "return redis.call('SUBSCRIBE', 'a')" 0"#,
                "~-ERR This Redis command is not allowed",
                "",
            ),
            ("DEBUG SET-DISABLE-DENY-SCRIPTS 0", "+OK", ""),
        ]),
    ),
    ("`COMMAND DOCS`, `COMMAND INFO`", Asked(&[("COMMAND DOCS set", "! history", "~ history")])),
    (
        "`OBJECT REFCOUNT` of small integers",
        Asked(&[
            ("SET k 5", "+OK", "+OK"),
            ("OBJECT REFCOUNT k", ":2147483647", ":2147483647"),
            ("CONFIG SET maxmemory 1gb maxmemory-policy allkeys-lru", "+OK", "+OK"),
            ("OBJECT REFCOUNT k", ":1", ":2147483647"),
            ("CONFIG SET maxmemory 0 maxmemory-policy noeviction", "+OK", "+OK"),
        ]),
    ),
    ("`RESTORE` of a stream", By(by_hand::streams_that_contradict_themselves)),
    (
        "`XADD` that fails on a key that is not there",
        Asked(&[("XADD s 0-0 f v", "~-ERR", "~-ERR"), ("EXISTS s", ":0", "")]),
    ),
    (
        "a SCAN cursor that no scan has returned",
        Asked(&[
            ("MSET a 1 b 2 c 3", "+OK", "+OK"),
            ("SCAN 18446744073709551615 COUNT 100", "*2 $1 0 *0", ""),
        ]),
    ),
    (
        "rights for `GEORADIUS ... STORE a ... STORE b`",
        Asked(&[
            ("ACL SETUSER u on nopass ~k ~a +georadius", "+OK", "+OK"),
            ("ACL DRYRUN u GEORADIUS k 1 2 3 m STORE a STORE b", "~no permissions to access", "+OK"),
        ]),
    ),
    (
        "`DUMP`",
        Asked(&[("SET k v", "+OK", "+OK"), ("DUMP k", "~\\x00\\x01v\\n\\x00", "~\\x00\\x01v\\n\\x00")]),
    ),
    (
        "a hash with a field that expires",
        Asked(&[
            ("HSET h f v", ":1", ""),
            ("HEXPIRE h 100 FIELDS 1 f", "*1 :1", ""),
            ("OBJECT ENCODING h", "$9 hashtable", ""),
            ("DUMP h", "~ \\x18", ""),
        ]),
    ),
    (
        "a field whose time is up",
        Asked(&[
            ("DEBUG SET-ACTIVE-EXPIRE 0", "+OK", ""),
            ("HSET h f 1 g 2", ":2", ""),
            ("HPEXPIRE h 1 FIELDS 1 f", "*1 :1", ""),
            ("DEBUG SLEEP 0.01", "+OK", ""),
            ("HGET h f", "$-1", ""),
            ("HLEN h", ":2", ""),
            ("HSET h f 3", ":1", ""),
            ("DEBUG SET-ACTIVE-EXPIRE 1", "+OK", ""),
        ]),
    ),
    (
        "doubles of 16 digits and more",
        Asked(&[
            ("ZADD z 280.25807497506503 a", ":1", ":1"),
            ("ZSCORE z a", "$16 280.258074975065", "$18 280.25807497506503"),
        ]),
    ),
    (
        "`CLIENT REPLY OFF` in a transaction",
        Not("what is sent there is the beginning of a reply without its end"),
    ),
    (
        "`CLIENT KILL` of the own connection in a transaction",
        Not("it is one reply more on a connection that is about to be closed"),
    ),
    (
        "`CLIENT TRACKING ... BCAST NOLOOP`",
        Asked(&[
            ("HELLO 3", "~%", "~%"),
            ("CLIENT TRACKING ON BCAST NOLOOP", "+OK", "+OK"),
            (r#"EVAL "return redis.call('INCR', KEYS[1])" 1 k"#, ":1", ":1"),
            ("@ ", "", "~invalidate"),
            ("PING", "+PONG", "+PONG"),
        ]),
    ),
    ("a tracking client's own changes", Test("who_changes_too_much_itself_is_told_to_forget_everything")),
    (
        "`BITFIELD` whose writes all fail (`OVERFLOW FAIL`) on a string that grows by it",
        Asked(&[
            ("BITFIELD b SET u8 0 1", "*1 :0", "*1 :0"),
            ("WATCH b", "+OK", "+OK"),
            ("BITFIELD b OVERFLOW FAIL INCRBY u1 3000 5", "*1 $-1", "*1 $-1"),
            ("MULTI", "+OK", "+OK"),
            ("PING", "+QUEUED", "+QUEUED"),
            ("EXEC", "*-1", "*1 +PONG"),
        ]),
    ),
    (
        "writes on a key of another type, LFU counts of commands that look at a key twice",
        Asked(&[
            ("CONFIG SET maxmemory-policy allkeys-lfu lfu-log-factor 0", "+OK", "+OK"),
            ("SET k v", "+OK", "+OK"),
            ("OBJECT FREQ k", ":5", ":5"),
            ("LPUSH k v", "~-WRONGTYPE", "~-WRONGTYPE"),
            ("OBJECT FREQ k", ":5", ":6"),
            ("CONFIG SET maxmemory-policy noeviction lfu-log-factor 10", "+OK", "+OK"),
        ]),
    ),
    (
        "`rdb_changes_since_last_save`, and so save points",
        Asked(&[
            ("SAVE", "+OK", "+OK"),
            ("RPUSH l 1 2 3", ":3", ":3"),
            ("INFO persistence", "~rdb_changes_since_last_save:1 ", "~rdb_changes_since_last_save:3 "),
        ]),
    ),
    (
        "`keyspace_hits`, `rdb_saves`",
        Asked(&[
            ("SET k v", "+OK", ""),
            ("CONFIG RESETSTAT", "+OK", ""),
            ("SCAN 0 TYPE string", "*2 $1 0 *1 $1 k", ""),
            ("INFO stats", "~keyspace_hits:0 ", ""),
        ]),
    ),
    (
        "words that the slow log and MONITOR hide",
        Asked(&[
            ("CONFIG SET slowlog-log-slower-than 0", "+OK", "+OK"),
            ("CONFIG SET nosuch secret", "~-ERR", "~-ERR"),
            ("SLOWLOG GET 1", "!secret", "~secret"),
            ("CONFIG SET slowlog-log-slower-than 10000", "+OK", "+OK"),
        ]),
    ),
    (
        "doubles in RESP3",
        Asked(&[
            ("HELLO 3", "~%", "~%"),
            ("ZADD z 0.1 a", ":1", ":1"),
            ("ZSCORE z a", ",0.1", ",0.10000000000000001"),
        ]),
    ),
    ("protected mode's refusal, fatal start-up errors", By(by_hand::fatal_errors)),
    ("a client that has closed its sending half", Test("half_closed_connection_gets_its_replies")),
    ("`supervised upstart`", By(by_hand::upstart)),
    (
        "`ACL SETUSER` first arguments with spaces (`+get|a b`)",
        Asked(&[("ACL SETUSER u \"+get|a b\"", "~-ERR", "+OK"), ("ACL DELUSER u", "", ":1")]),
    ),
    (
        "patterns with quotes in an ACL selector",
        Asked(&[
            (r#"ACL SETUSER u "(\"~b\\\"c\" +get)""#, "+OK", "+OK"),
            ("ACL LIST", r#"~(\"~b\\\"c\" "#, r#"~(~b\"c "#),
            ("ACL DELUSER u", ":1", ":1"),
        ]),
    ),
    ("`ACL LOAD`", By(by_hand::users_who_are_gone)),
    (
        "`PFMERGE key` without sources",
        Asked(&[
            ("ACL SETUSER u on nopass +@all ~other", "+OK", "+OK"),
            ("@u AUTH u x", "+OK", "+OK"),
            ("@u PFMERGE k", "~-NOPERM", "+OK"),
            ("ACL DELUSER u", ":1", ":1"),
        ]),
    ),
    (
        "`ACL LOG`",
        Asked(&[("AUTH {x5000} y", "~-WRONGPASS", "~-WRONGPASS"), ("ACL LOG 1", "~$4096 xxx", "~$5000 xxx")]),
    ),
    (
        "SORT of a sorted set",
        Asked(&[
            ("ZADD z 1 a", ":1", ":1"),
            ("SORT_RO z BY nosort", "*1 $1 a", "*1 $1 a"),
            ("OBJECT ENCODING z", "$8 listpack", "$8 skiplist"),
        ]),
    ),
    (
        "counts below -134,217,728 of SRANDMEMBER, HRANDFIELD and ZRANDMEMBER",
        Asked(&[
            ("SADD s a", ":1", ""),
            ("HSET h a 1", ":1", ""),
            ("ZADD z 1 a", ":1", ""),
            ("SRANDMEMBER s -134217729", "~-ERR", ""),
            ("HRANDFIELD h -134217729", "~-ERR", ""),
            ("ZRANDMEMBER z -134217729", "~-ERR", ""),
        ]),
    ),
    (
        "SORT's BY and GET without permission",
        Asked(&[
            ("ACL SETUSER u on nopass +@all ~k", "+OK", "+OK"),
            ("CONFIG RESETSTAT", "+OK", "+OK"),
            ("@u AUTH u x", "+OK", "+OK"),
            ("@u SORT k GET x_*", "~-", "~-ERR"),
            ("INFO commandstats", "~cmdstat_sort:calls=0,", "~cmdstat_sort:calls=1,"),
            ("ACL DELUSER u", ":1", ":1"),
        ]),
    ),
    (
        "client names and labels with a NUL",
        Asked(&[
            ("CLIENT SETINFO lib-name \"a\\x00b\"", "~-ERR", ""),
            ("CLIENT SETNAME \"a\\x00b\"", "~-ERR", ""),
        ]),
    ),
    (
        "WATCH of a key that a busy script holds",
        Test("a_transaction_can_be_left_while_a_script_holds_everything"),
    ),
    ("a reply of more than 512 MB to a command of a script", Test("scripts_are_given_replies_up_to_a_bound")),
    (
        "SORT that looks up more on disk than a quarter of `maxmemory` (capacity edition)",
        Test("what_is_looked_at_is_lent_once_and_takes_a_part_of_memory_at_most"),
    ),
    (
        "`DEBUG POPULATE` with values beyond `proto-max-bulk-len`",
        Asked(&[("DEBUG POPULATE 1 big 536870913", "~-ERR", "")]),
    ),
];
