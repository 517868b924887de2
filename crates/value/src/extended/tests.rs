use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    NotFloat,
    NotFinite,
}

fn text(value: Extended) -> String {
    let mut out = Vec::new();
    value.write(&mut out);
    String::from_utf8(out).unwrap()
}

fn increment(value: &str, by: &str) -> Result<String, Refused> {
    let parse = |text: &str| Extended::parse(text.as_bytes()).ok_or(Refused::NotFloat);
    let (value, by) = (parse(value)?, parse(by)?);
    value.checked_add(by).map(text).ok_or(Refused::NotFinite)
}

/// What a Redis server on x86-64 replied to `SET f <first>`, `INCRBYFLOAT f <second>`.
const REPLIES: &[(&str, &str, Result<&str, Refused>)] = &[
    ("0", "0.1", Ok("0.1")),
    ("3", "0.1", Ok("3.1")),
    ("0.1", "0.2", Ok("0.3")),
    ("10.50", "0.1", Ok("10.6")),
    ("5.0e3", "2.0e2", Ok("5200")),
    ("1", "-1", Ok("0")),
    ("-0", "0", Ok("0")),
    ("-0", "-0", Ok("0")),
    ("1", "1e-17", Ok("1.00000000000000001")),
    ("1", "1e-18", Ok("1")),
    ("0", "1e-17", Ok("0.00000000000000001")),
    ("0", "5e-18", Ok("0")),
    ("0", "5.1e-18", Ok("0.00000000000000001")),
    ("0", "-4e-18", Ok("0")),
    ("-1", "0.9999999999999999999", Ok("0")),
    ("0.99999999999999999999", "0", Ok("1")),
    ("9.99999999999999999", "0.00000000000000001", Ok("10")),
    ("9223372036854775807", "1", Ok("9223372036854775808")),
    ("18446744073709551615", "1", Ok("18446744073709551616")),
    ("18446744073709551616", "1", Ok("18446744073709551616")),
    ("18446744073709551616", "3", Ok("18446744073709551620")),
    ("36893488147419103232", "1", Ok("36893488147419103232")),
    ("36893488147419103232", "3", Ok("36893488147419103236")),
    ("36893488147419103232", "2", Ok("36893488147419103232")),
    ("73786976294838206464", "4", Ok("73786976294838206464")),
    ("73786976294838206464", "12", Ok("73786976294838206480")),
    ("-18446744073709551616", "0.5", Ok("-18446744073709551616")),
    ("18446744073709551616", "-0.5", Ok("18446744073709551616")),
    ("18446744073709551616", "-0.25", Ok("18446744073709551616")),
    ("18446744073709551616", "-0.75", Ok("18446744073709551615")),
    ("18446744073709551616.0000000000000001", "0", Ok("18446744073709551616")),
    ("36893488147419103233", "0", Ok("36893488147419103232")),
    ("36893488147419103235", "0", Ok("36893488147419103236")),
    ("36893488147419103233.0000001", "0", Ok("36893488147419103232")),
    ("123456789.123456789123456789", "0.1", Ok("123456789.22345678912097355")),
    ("1e30", "1", Ok("1000000000000000000024696061952")),
    ("1e30", "-1e30", Ok("0")),
    ("1e-4950", "0", Ok("0")),
    ("1e-4950", "1", Ok("1")),
    ("0x1p3", "0x.8", Ok("8.5")),
    ("0xffffffffffffffffff", "0", Ok("4722366482869645213696")),
    ("0x1.00000000000000008p0", "0", Ok("1")),
    ("0x1.000000000000000080000001p0", "1e-30", Ok("1")),
    ("0x1p-16445", "0x1p-16445", Ok("0")),
    ("+5", ".5", Ok("5.5")),
    ("5.", "-0x2", Ok("3")),
    ("inf", "1", Err(Refused::NotFinite)),
    ("1", "-inf", Err(Refused::NotFinite)),
    ("infinity", "-INFINITY", Err(Refused::NotFinite)),
    ("1e4932", "1e4932", Err(Refused::NotFinite)),
    ("-1.18973149535723176502e4932", "-1e4932", Err(Refused::NotFinite)),
    ("nan", "1", Err(Refused::NotFloat)),
    ("1", "nan", Err(Refused::NotFloat)),
    ("1e4933", "1", Err(Refused::NotFloat)),
    ("1", "1e-4952", Err(Refused::NotFloat)),
    ("0x1p-16446", "0", Err(Refused::NotFloat)),
    ("0x1p16384", "0", Err(Refused::NotFloat)),
    ("1 ", "1", Err(Refused::NotFloat)),
    (" 1", "1", Err(Refused::NotFloat)),
    ("", "1", Err(Refused::NotFloat)),
    ("1e", "1", Err(Refused::NotFloat)),
    ("0x", "1", Err(Refused::NotFloat)),
    (".", "1", Err(Refused::NotFloat)),
    ("1e5x", "1", Err(Refused::NotFloat)),
    ("0e999999999999999999999", "7", Ok("7")),
    ("1e-999999999999999999999", "0", Err(Refused::NotFloat)),
    ("1e999999999999999999999", "0", Err(Refused::NotFloat)),
    ("17179869184.00000000000000001", "3.00000000000000003", Ok("17179869187")),
    ("1234567890123456789012345678901234567890", "0.5", Ok("1234567890123456788999898750329779388416")),
];

#[test]
fn increments_are_byte_for_byte_those_of_a_long_double() {
    for &(value, by, expected) in REPLIES {
        assert_eq!(increment(value, by), expected.map(str::to_string), "{value} + {by}");
    }
}

#[test]
fn the_largest_value_prints_in_full() {
    let largest = text(Extended::parse(b"1.18973149535723176502e4932").unwrap());
    assert_eq!(largest.len(), 4933);
    assert!(largest.starts_with("1189731495357231765021263853030970205169063322294624200440323733891737"));
    assert_eq!(text(Extended::parse(largest.as_bytes()).unwrap()), largest);
}

#[test]
fn text_of_five_kilobytes_is_refused_and_one_byte_less_is_not() {
    let text = [b'1'].iter().chain([b'.'].iter()).copied().chain(std::iter::repeat(b'3'));
    let longest: Vec<u8> = text.take(EXTENDED_TEXT_BYTES_MAX - 1).collect();
    assert!(Extended::parse(&longest).is_some());
    assert!(Extended::parse(&[longest.as_slice(), b"3"].concat()).is_none());
    assert!(Extended::parse(&vec![b'1'; 50_000_000]).is_none());
}

#[test]
fn long_digits_with_a_long_exponent_stay_within_the_arithmetic_limit() {
    let zeros = "0".repeat(5000);
    assert_eq!(increment(&format!("0.{zeros}1e5001"), "0").unwrap(), "1");
    assert_eq!(increment(&format!("1{zeros}e-5000"), "0").unwrap(), "1");
    assert_eq!(increment(&format!("1{zeros}e4933"), "0"), Err(Refused::NotFloat));
    assert_eq!(increment(&format!("1{}e-9800", "9".repeat(5000)), "0").unwrap(), "0");
    assert_eq!(increment(&format!("0.{zeros}"), "2").unwrap(), "2");
}

#[test]
fn integers_are_exact() {
    for value in [0, 1, -1, i64::MAX, i64::MIN] {
        assert_eq!(text(Extended::from_i64(value)), value.to_string());
        assert_eq!(Extended::parse(value.to_string().as_bytes()), Some(Extended::from_i64(value)));
    }
}

#[test]
fn infinity_is_parsed_and_printed_but_never_a_sum() {
    let infinity = Extended::parse(b"inf").unwrap();
    assert!(!infinity.is_finite());
    assert_eq!(text(infinity), "inf");
    assert_eq!(text(Extended::parse(b"-infinity").unwrap()), "-inf");
    assert_eq!(infinity.checked_add(Extended::from_i64(0)), None);
}

#[test]
fn products_are_rounded_up() {
    let cases = [
        ("0", Some(0)),
        ("0.001", Some(1)),
        ("0.0011", Some(2)),
        ("1e-4000", Some(1)),
        ("-1e-4000", Some(0)),
        ("-0.0001", Some(0)),
        ("-0.0011", Some(-1)),
        ("-1", Some(-1000)),
        ("1.5", Some(1500)),
        ("0x10", Some(16_000)),
        ("9223372036854775.807", Some(i64::MAX)),
        ("9223372036854775.808", None),
        ("1e300", None),
        ("1e4930", None),
        ("inf", None),
        ("-1e300", Some(i64::MIN)),
        ("-inf", Some(i64::MIN)),
    ];
    for (text, product) in cases {
        assert_eq!(Extended::parse(text.as_bytes()).unwrap().times_rounded_up(1000), product, "{text}");
    }
}
