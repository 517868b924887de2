//! Key slots: CRC16 of the key, or of its hash tag, modulo 16,384, as in Redis Cluster.
//!
//! On the path of every keyed command of a cluster, hence eight bytes per step instead of one. Pure
//! functions.

/// Number of slots of a database.
pub const SLOTS: usize = 16_384;

/// CRC16 with polynomial 0x1021, no reflection, initial value 0 (the variant called XMODEM).
const POLYNOMIAL: u16 = 0x1021;

/// `TABLES[k][b]`: what byte `b` contributes to the checksum when `k` more bytes follow it.
static TABLES: [[u16; 256]; 8] = tables();

const fn tables() -> [[u16; 256]; 8] {
    let mut tables = [[0u16; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "it is below 256")]
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ POLYNOMIAL } else { crc << 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut follow = 1;
    while follow < 8 {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[follow - 1][byte];
            tables[follow][byte] = (crc << 8) ^ tables[0][(crc >> 8) as usize];
            byte += 1;
        }
        follow += 1;
    }
    tables
}

/// CRC16 (XMODEM) of `bytes`.
pub fn crc16(bytes: &[u8]) -> u16 {
    let mut crc = 0u16;
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let [high, low] = crc.to_be_bytes();
        crc = TABLES[7][usize::from(chunk[0] ^ high)]
            ^ TABLES[6][usize::from(chunk[1] ^ low)]
            ^ TABLES[5][usize::from(chunk[2])]
            ^ TABLES[4][usize::from(chunk[3])]
            ^ TABLES[3][usize::from(chunk[4])]
            ^ TABLES[2][usize::from(chunk[5])]
            ^ TABLES[1][usize::from(chunk[6])]
            ^ TABLES[0][usize::from(chunk[7])];
    }
    for &byte in chunks.remainder() {
        crc = (crc << 8) ^ TABLES[0][usize::from((crc >> 8) as u8 ^ byte)];
    }
    crc
}

/// The part of a key that decides its slot: what stands between the first `{` and the first `}` after it, if
/// that is not empty, else the whole key.
pub fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = memchr::memchr(b'{', key) else { return key };
    let tail = &key[open + 1..];
    match memchr::memchr(b'}', tail) {
        Some(close) if close > 0 => &tail[..close],
        _ => key,
    }
}

/// The slot of a key, below [`SLOTS`].
#[inline]
pub fn key_slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) & SLOT_MASK
}

#[expect(clippy::cast_possible_truncation, reason = "there are no more slots than checksums, see below")]
const SLOT_MASK: u16 = (SLOTS - 1) as u16;

const _: () = assert!(SLOTS.is_power_of_two() && SLOTS <= 1 << u16::BITS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc16_has_the_published_check_value() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(crc16(b""), 0);
    }

    #[test]
    fn eight_bytes_a_step_equals_bit_by_bit() {
        let bytes: Vec<u8> = (0..200u32).map(|i| (i * 37 + 11) as u8).collect();
        for len in 0..bytes.len() {
            let mut crc = 0u16;
            for &byte in &bytes[..len] {
                crc ^= u16::from(byte) << 8;
                for _ in 0..8 {
                    crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
                }
            }
            assert_eq!(crc16(&bytes[..len]), crc, "{len}");
        }
    }

    /// Slots as CLUSTER KEYSLOT of a live redis-server 7.0.15 gives them.
    #[test]
    fn slots_are_those_of_redis_cluster() {
        for (key, slot) in SLOTS_OF_REDIS {
            assert_eq!(key_slot(key), *slot, "{}", key.escape_ascii());
        }
    }

    const SLOTS_OF_REDIS: &[(&[u8], u16)] = &[
        (b"foo", 12182),
        (b"{user1000}.following", 3443),
        (b"foo{}{bar}", 8363),
        (b"foo{{bar}}zap", 4015),
        (b"foo{bar}{zap}", 5061),
        (b"", 0),
        (b"a", 15495),
        (b"key:000000000001", 8924),
        (b"someverylongkeynamewithmorethan16bytes", 8018),
        (b"{}", 15257),
        (b"}{a}", 15495),
        (b"a{b", 13340),
    ];

    #[test]
    fn only_the_first_complete_and_filled_tag_counts() {
        assert_eq!(hash_tag(b"{user}.a"), b"user");
        assert_eq!(hash_tag(b"a{}b{c}"), b"a{}b{c}");
        assert_eq!(hash_tag(b"a{{b}}"), b"{b");
        assert_eq!(hash_tag(b"a{b"), b"a{b");
        assert_eq!(hash_tag(b"a}b{c}"), b"c");
    }
}
