//! Versions and suites by the names that OpenSSL has for them.

use super::{Settings, Versions};
use rustls::SupportedCipherSuite;
use rustls::crypto::ring::{ALL_CIPHER_SUITES, cipher_suite as suite};
use rustls::version::{TLS12, TLS13};

/// The suites of TLS 1.3, in OpenSSL's order.
const SUITES_13: &[(&str, SupportedCipherSuite)] = &[
    ("TLS_AES_256_GCM_SHA384", suite::TLS13_AES_256_GCM_SHA384),
    ("TLS_CHACHA20_POLY1305_SHA256", suite::TLS13_CHACHA20_POLY1305_SHA256),
    ("TLS_AES_128_GCM_SHA256", suite::TLS13_AES_128_GCM_SHA256),
];

/// Those of TLS 1.2.
const SUITES_12: &[(&str, SupportedCipherSuite)] = &[
    ("ECDHE-ECDSA-AES256-GCM-SHA384", suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES256-GCM-SHA384", suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-AES128-GCM-SHA256", suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
];

/// Words of a list of ciphers that stand for all that are here: strong, and with keys of their own for every connection.
const ALL: &[&str] = &[
    "DEFAULT",
    "ALL",
    "HIGH",
    "ECDHE",
    "EECDH",
    "KECDHE",
    "KEECDH",
    "ECDH",
    "TLSV1.2",
    "AEAD",
    "COMPLEMENTOFDEFAULT",
];

/// What the settings choose.
///
/// # Errors
/// A sentence that names the directive of which nothing is left.
pub fn chosen(
    settings: &Settings,
    warnings: &mut Vec<String>,
) -> Result<(Vec<SupportedCipherSuite>, Versions), String> {
    let mut versions = versions(&settings.protocols, warnings)?;
    let modern = by_name(&settings.ciphersuites)?;
    let older = by_expression(&settings.ciphers)?;
    let mut suites = Vec::new();
    if versions.contains(&&TLS13) {
        suites.extend(modern);
    }
    if versions.contains(&&TLS12) {
        suites.extend(older);
    }
    if settings.ciphers.is_empty() && settings.ciphersuites.is_empty() {
        suites.sort_by_key(|suite| ALL_CIPHER_SUITES.iter().position(|known| known == suite));
    }
    versions.sort_by_key(|version| std::cmp::Reverse(u16::from(version.version)));
    Ok((suites, versions))
}

/// The versions of a list of names.
fn versions(names: &str, warnings: &mut Vec<String>) -> Result<Versions, String> {
    let mut found: Versions = Vec::new();
    let mut too_old = Vec::new();
    for name in names.split_ascii_whitespace() {
        let version = match name.to_ascii_lowercase().as_str() {
            "tlsv1.3" => &TLS13,
            "tlsv1.2" => &TLS12,
            "tlsv1" | "tlsv1.1" => {
                too_old.push(name);
                continue;
            }
            _ => {
                return Err(format!(
                    "Invalid tls-protocols specified: '{name}'. Use a combination of 'TLSv1.2' and 'TLSv1.3'"
                ));
            }
        };
        if !found.contains(&version) {
            found.push(version);
        }
    }
    if names.trim_ascii().is_empty() {
        return Ok(vec![&TLS13, &TLS12]);
    }
    if !too_old.is_empty() {
        let names = too_old.join(" and ");
        if found.is_empty() {
            return Err(format!("tls-protocols: {names} cannot be had, being broken; use 'TLSv1.2 TLSv1.3'"));
        }
        warnings.push(format!("tls-protocols: {names} cannot be had, being broken, and is left out"));
    }
    Ok(found)
}

/// The suites of TLS 1.3 that a list names; all if it names nothing.
fn by_name(list: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    if list.is_empty() {
        return Ok(SUITES_13.iter().map(|(_, suite)| *suite).collect());
    }
    let mut found = Vec::new();
    for word in words(list) {
        // OpenSSL has two more, for small devices.
        if word.starts_with("TLS_AES_128_CCM") {
            continue;
        }
        let Some((_, suite)) = SUITES_13.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)) else {
            return Err(format!("tls-ciphersuites: '{word}' is no suite of TLS 1.3"));
        };
        if !found.contains(suite) {
            found.push(*suite);
        }
    }
    match found.is_empty() {
        true => Err("tls-ciphersuites: none of these suites can be had".to_owned()),
        false => Ok(found),
    }
}

/// The suites of TLS 1.2 that one of OpenSSL's lists comes down to; all if it is empty.
fn by_expression(list: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    let list = if list.is_empty() { "DEFAULT" } else { list };
    let (mut found, mut banned) = (Vec::<usize>::new(), Vec::new());
    for word in words(list) {
        let (sign, word) = match word.as_bytes()[0] {
            sign @ (b'!' | b'-' | b'+') => (sign, &word[1..]),
            _ => (b' ', word),
        };
        // How to sort is all that these say.
        if word.is_empty() || word.starts_with('@') {
            continue;
        }
        let meant: Vec<usize> =
            (0..SUITES_12.len()).filter(|&index| is_meant(word, SUITES_12[index].0)).collect();
        match sign {
            b'!' => {
                banned.extend(meant.iter().copied());
                found.retain(|index| !meant.contains(index));
            }
            b'-' => found.retain(|index| !meant.contains(index)),
            b'+' => found.sort_by_key(|index| meant.contains(index)),
            _ => {
                for index in meant {
                    if !found.contains(&index) && !banned.contains(&index) {
                        found.push(index);
                    }
                }
            }
        }
    }
    match found.is_empty() {
        true => Err(format!(
            "tls-ciphers: '{list}' leaves no suite of TLS 1.2 that can be had; those are {}",
            SUITES_12.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
        )),
        false => Ok(found.into_iter().map(|index| SUITES_12[index].1).collect()),
    }
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split([':', ',', ' ']).filter(|word| !word.is_empty())
}

/// Whether a word of a list means a suite: by its name, or by parts of it with `+` between them.
fn is_meant(word: &str, name: &str) -> bool {
    word.eq_ignore_ascii_case(name) || word.split('+').all(|part| is_part(&part.to_ascii_uppercase(), name))
}

fn is_part(part: &str, name: &str) -> bool {
    match part {
        "RSA" | "ARSA" => name.contains("-RSA-"),
        "ECDSA" | "AECDSA" => name.contains("-ECDSA-"),
        "AES" | "AESGCM" => name.contains("-AES"),
        "AES128" => name.contains("-AES128-"),
        "AES256" => name.contains("-AES256-"),
        "CHACHA20" => name.contains("-CHACHA20-"),
        "SHA256" => name.ends_with("-SHA256"),
        "SHA384" => name.ends_with("-SHA384"),
        part => ALL.contains(&part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<&'static str> {
        let suites = by_expression(list).unwrap();
        let name = |suite| SUITES_12.iter().find(|(_, known)| *known == suite).unwrap().0;
        suites.into_iter().map(name).collect()
    }

    #[test]
    fn lists_of_ciphers_mean_what_openssl_takes_them_for() {
        assert_eq!(names("").len(), 6);
        assert_eq!(names("DEFAULT:!MEDIUM").len(), 6);
        assert_eq!(names("ECDHE-RSA-AES128-GCM-SHA256"), ["ECDHE-RSA-AES128-GCM-SHA256"]);
        assert_eq!(
            names("ECDHE+AESGCM:!ECDSA"),
            ["ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES128-GCM-SHA256"]
        );
        assert_eq!(names("CHACHA20 HIGH -CHACHA20").len(), 4);
        assert_eq!(names("HIGH:+AES256").last(), Some(&"ECDHE-RSA-AES256-GCM-SHA384"));
        assert_eq!(names("!AES:ALL:@SECLEVEL=2").len(), 2);
        assert!(by_expression("RC4-MD5").unwrap_err().contains("leaves no suite"));
        assert!(by_expression("!").unwrap_err().contains("leaves no suite"));
    }

    #[test]
    fn suites_of_tls_1_3_keep_the_order_of_the_list() {
        let suites = by_name("TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384").unwrap();
        assert_eq!(suites, [suite::TLS13_AES_128_GCM_SHA256, suite::TLS13_AES_256_GCM_SHA384]);
        assert_eq!(by_name("").unwrap().len(), 3);
        assert!(by_name("TLS_NONE").unwrap_err().contains("TLS_NONE"));
        assert!(by_name("TLS_AES_128_CCM_SHA256").is_err());
    }

    #[test]
    fn old_versions_are_left_out_and_refused_alone() {
        let mut warnings = Vec::new();
        assert_eq!(versions("", &mut warnings).unwrap().len(), 2);
        assert_eq!(versions("TLSv1.1 tlsv1.2", &mut warnings).unwrap(), [&TLS12]);
        assert_eq!(warnings.len(), 1);
        assert!(versions("TLSv1", &mut warnings).is_err());
        assert!(versions("SSLv3", &mut warnings).is_err());
    }
}
