use super::*;

fn shortest(value: f64) -> String {
    String::from_utf8(format_f64(value).as_bytes().to_vec()).unwrap()
}

fn seventeen(value: f64) -> String {
    String::from_utf8(format_f64_17g(value).as_bytes().to_vec()).unwrap()
}

#[test]
fn integers_are_accepted_in_their_canonical_spelling_only() {
    for value in [0, 1, -1, 10, 99, i64::MAX, i64::MIN, i64::MAX - 1, 1_000_000_000_000_000_000] {
        assert_eq!(parse_i64(format_i64(value, &mut IntBuffer::new())), Some(value));
    }
    let refused = [
        "",
        "-",
        "+1",
        "-0",
        "00",
        "01",
        "-01",
        " 1",
        "1 ",
        "1.0",
        "1e3",
        "0x1",
        "1\0",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "99999999999999999999",
        "111111111111111111111",
        "/1",
        "1:",
    ];
    for text in refused {
        assert_eq!(parse_i64(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn unsigned_integers_reach_the_full_range() {
    assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
    assert_eq!(parse_u64(b"0"), Some(0));
    for text in ["", "-1", "+1", "00", "18446744073709551616", "99999999999999999999", "1x"] {
        assert_eq!(parse_u64(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn floats_are_accepted_as_by_the_c_library() {
    let accepted = [
        ("0", 0.0),
        ("-0", -0.0),
        ("+5", 5.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e5", 1e5),
        ("1E+5", 1e5),
        ("0x10", 16.0),
        ("-0X1.8P1", -3.0),
        ("0x.8", 0.5),
        ("0x8.", 8.0),
        ("0x1p-1074", 5e-324),
        ("0x1.fffffffffffffp1023", f64::MAX),
        ("inf", f64::INFINITY),
        ("-Infinity", f64::NEG_INFINITY),
        ("+INF", f64::INFINITY),
        ("0e99999", 0.0),
        ("1e-310", 1e-310),
        ("0x1.0000000000000800p0", 1.0),
        ("0x1.00000000000008001p0", 1.0 + f64::EPSILON),
    ];
    for (text, value) in accepted {
        assert_eq!(parse_f64(text.as_bytes()).map(f64::to_bits), Some(f64::to_bits(value)), "{text}");
    }
}

#[test]
fn floats_that_redis_refuses_are_refused() {
    let refused = [
        "",
        " 1",
        "1 ",
        "\t1",
        "nan",
        "-nan",
        "nan(1)",
        "NaN",
        "1e",
        "1e+",
        "e5",
        ".",
        "-",
        "+",
        "--1",
        "0x",
        "0x.",
        "0xp1",
        "0x1p",
        "1e400",
        "-1e400",
        "1e-400",
        "0x1p1024",
        "0x1p-1080",
        "infi",
        "in",
        "1_0",
        "1\0",
        "1.2.3",
        "1f",
        "0x1.fffffffffffff8p1023",
        "1e99999999999999999999",
        "\u{0661}",
    ];
    for text in refused {
        assert_eq!(parse_f64(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn shortest_form_is_that_of_redis_7_2() {
    let cases = [
        (0.0, "0"),
        (-0.0, "-0"),
        (3.0, "3"),
        (-17.0, "-17"),
        (0.1, "0.1"),
        (-2.5, "-2.5"),
        (1e17, "100000000000000000"),
        (4e18, "4000000000000000000"),
        (5e18, "5e+18"),
        (1e22, "1e+22"),
        (1e300, "1e+300"),
        (-1e-7, "-1e-7"),
        (0.000001, "0.000001"),
        (0.0000012, "1.2e-6"),
        (0.00012345678, "1.2345678e-4"),
        (0.0012345678, "0.0012345678"),
        (1.5e-10, "1.5e-10"),
        (123456.789, "123456.789"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (f64::NAN, "nan"),
        (5e-324, "5e-324"),
        (f64::MAX, "1.7976931348623157e+308"),
        (1.2345678901234567e25, "1.2345678901234566e+25"),
        (12345678901234567890.0, "12345678901234567000"),
    ];
    for (value, text) in cases {
        assert_eq!(shortest(value), text);
    }
}

#[test]
fn seventeen_digit_form_is_that_of_c() {
    let cases = [
        (0.1, "0.10000000000000001"),
        (3.0, "3"),
        (1e22, "1e+22"),
        (1e300, "1.0000000000000001e+300"),
        (123456789012345678.0, "1.2345678901234568e+17"),
        (1e-310, "9.9999999999999694e-311"),
        (12345678901234567.0, "12345678901234568"),
        (0.0001, "0.0001"),
        (0.00001, "1.0000000000000001e-05"),
        (-0.5, "-0.5"),
        (-0.0, "-0"),
        (1e16, "10000000000000000"),
        (1e17, "1e+17"),
        (-1.2345678901234567e-300, "-1.2345678901234568e-300"),
    ];
    for (value, text) in cases {
        assert_eq!(seventeen(value), text);
    }
}
