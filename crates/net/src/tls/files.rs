//! Certificates and keys, as they lie in PEM files.

use super::Settings;
use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use sys::file::{Fs, Kind};

/// The longest file that is read: a system's whole list of authorities has some hundred kilobytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The certificates of a file, in its order; there is at least one.
///
/// # Errors
/// A sentence that names the directive.
pub fn certificates(path: &Path, directive: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = read(path, directive)?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&bytes)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("{directive} {}: {}", path.display(), damage(&error)))?;
    match found.is_empty() {
        true => Err(format!("{directive} {}: there is no certificate in it (PEM)", path.display())),
        false => Ok(found),
    }
}

/// The key of a file.
///
/// # Errors
/// A sentence that names the directive; an encrypted key is one.
pub fn key(path: &Path, directive: &str) -> Result<PrivateKeyDer<'static>, String> {
    let bytes = read(path, directive)?;
    let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    if has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED") {
        return Err(format!(
            "{directive} {}: the key is encrypted, and this version reads none such; `openssl pkey -in FILE -out FILE` \
             writes it without a password",
            path.display()
        ));
    }
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| {
        format!("{directive} {}: there is no private key in it (PEM): {}", path.display(), damage(&error))
    })
}

/// What is wrong with a file. Tells nothing of what is in it, which may be a key.
fn damage(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::NoItemsFound => "nothing in it begins as one",
        pem::Error::MissingSectionEnd { .. } => "it has no end line of its own; its line breaks may be lost",
        pem::Error::IllegalSectionStart { .. } => "its first line is damaged; its line breaks may be lost",
        pem::Error::Base64Decode(_) => "it is damaged within",
        _ => "it cannot be read",
    }
}

/// Why nobody can show a certificate with a key, which lie in these files under these directives.
pub fn unusable(error: &rustls::Error, files: (&Path, &Path), directives: (&str, &str)) -> String {
    let certificate = format!("{} {}", directives.0, files.0.display());
    let key = format!("{} {}", directives.1, files.1.display());
    match error {
        rustls::Error::InconsistentKeys(_) => format!("{certificate} and {key} do not go together: {error}"),
        rustls::Error::General(_) => format!(
            "{key}: there is no use for such a key; there is for RSA of 2048 bits and more, ECDSA with P-256 and P-384, \
             and Ed25519"
        ),
        _ => format!("{certificate}: there is no use for it: {error}"),
    }
}

/// The authorities that the settings name, if they name any.
///
/// # Errors
/// A sentence that names the directive.
pub fn authorities(settings: &Settings, warnings: &mut Vec<String>) -> Result<Option<RootCertStore>, String> {
    let (file, dir) = (&settings.authorities_file, &settings.authorities_dir);
    if file.as_os_str().is_empty() && dir.as_os_str().is_empty() {
        return Ok(None);
    }
    let mut store = RootCertStore::empty();
    if !file.as_os_str().is_empty() {
        let found = certificates(file, "tls-ca-cert-file")?;
        let count = found.len();
        let (added, left_out) = store.add_parsable_certificates(found);
        if added == 0 {
            return Err(format!(
                "tls-ca-cert-file {}: none of its certificates can be an authority's",
                file.display()
            ));
        }
        if left_out > 0 {
            let path = file.display();
            warnings.push(format!(
                "tls-ca-cert-file {path}: {left_out} of {count} certificates cannot be an authority's"
            ));
        }
    }
    if !dir.as_os_str().is_empty() {
        let before = store.len();
        for path in in_directory(dir)? {
            // Other files lie there as well, and links to the same ones.
            store.add_parsable_certificates(certificates(&path, "tls-ca-cert-dir").unwrap_or_default());
        }
        if store.len() == before {
            warnings.push(format!(
                "tls-ca-cert-dir {}: there is no authority's certificate in it",
                dir.display()
            ));
        }
    }
    match store.is_empty() {
        true => Err("There is no authority's certificate in tls-ca-cert-file and tls-ca-cert-dir".to_owned()),
        false => Ok(Some(store)),
    }
}

fn in_directory(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let names = Fs::Real.list(dir).map_err(|error| format!("tls-ca-cert-dir {}: {error}", dir.display()))?;
    Ok(names.into_iter().map(|name| dir.join(name)).collect())
}

fn read(path: &Path, directive: &str) -> Result<Vec<u8>, String> {
    if path.as_os_str().is_empty() {
        return Err(format!("No {directive} configured!"));
    }
    let place = || format!("{directive} {}", path.display());
    // Where nobody writes, reading from a pipe would take for ever.
    if matches!(Fs::Real.kind(path), Ok(Some(Kind::Other))) {
        return Err(format!("{}: that is no file", place()));
    }
    Fs::Real.read(path, FILE_BYTES_MAX).map_err(|error| format!("{}: {error}", place()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::tls::Authority;

    #[test]
    fn errors_of_damaged_keys_do_not_show_them() {
        let dir = std::env::temp_dir().join(format!("tarn-files-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let whole = Authority::new("authority").itself().key;
        let damaged = [
            whole.replace('\n', ""),
            whole.replace('\n', " "),
            whole.replace('\n', "\\n"),
            whole.replacen("KEY-----\n", "KEY", 1),
            whole[..100].to_owned(),
            whole.replacen("KEY-----\n", "KEY-----\n!", 1),
        ];
        for text in damaged {
            let path = dir.join("damaged.key");
            std::fs::write(&path, &text).unwrap();
            let error = key(&path, "tls-key-file").unwrap_err();
            let told = error.strip_prefix(&format!("tls-key-file {}: ", path.display())).unwrap();
            assert!(told.len() < 120 && !told.contains(|letter: char| letter.is_ascii_digit()), "{error}");
        }
        std::fs::write(dir.join("whole.key"), &whole).unwrap();
        assert!(key(&dir.join("whole.key"), "tls-key-file").is_ok());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
