//! Whose a certificate is: the common name in its subject.

use rustls::pki_types::CertificateDer;

/// The object identifier of a common name: 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const IDENTIFIER: u8 = 0x06;
const EXPLICIT_0: u8 = 0xa0;
/// Texts of one byte a character, or UTF-8.
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];

/// The first common name of a certificate's subject, if it has one. The certificate has been checked before.
pub fn common_name(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let (whole, _) = element(certificate, SEQUENCE)?;
    let (mut rest, _) = element(whole, SEQUENCE)?;
    if let Some((_, behind)) = element(rest, EXPLICIT_0) {
        // The version.
        rest = behind;
    }
    // Serial number, algorithm, issuer, validity.
    for _ in 0..4 {
        rest = any(rest)?.2;
    }
    let (mut names, _) = element(rest, SEQUENCE)?;
    while let Some((mut set, behind)) = element(names, SET) {
        while let Some((pair, next)) = element(set, SEQUENCE) {
            let (kind, text) = element(pair, IDENTIFIER)?;
            let (tag, text, _) = any(text)?;
            if kind == COMMON_NAME && TEXTS.contains(&tag) {
                return Some(text.to_vec());
            }
            set = next;
        }
        names = behind;
    }
    None
}

/// The content of the first element, if it is of this kind, and what is behind it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    any(bytes).filter(|(found, ..)| *found == tag).map(|(_, content, behind)| (content, behind))
}

/// The kind and the content of the first element, and what is behind it.
fn any(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], mut rest) = bytes.split_first_chunk::<2>()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        // So many bytes hold it.
        let count = usize::from(first & 0x7f);
        if count > 4 {
            return None;
        }
        let (digits, behind) = rest.split_at_checked(count)?;
        length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
        rest = behind;
    }
    let (content, behind) = rest.split_at_checked(length)?;
    Some((tag, content, behind))
}
