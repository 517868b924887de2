//! Compression of images with LZ4, in one block each.
//!
//! Pure. What is unpacked is never longer than its head says, and never by more than LZ4 can pack.

use crate::limits::{PACK_BYTES_MIN, PACK_RATIO_MAX};

/// What is done to images when they are written. Records say for themselves what was done to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Nothing.
    #[default]
    None,
    /// LZ4, where it saves at least an eighth.
    Lz4,
}

/// Packs images into memory that it keeps.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    scratch: Vec<u8>,
}

impl Packer {
    /// The image packed; None if that is not worth it.
    pub fn pack(&mut self, compression: Compression, plain: &[u8]) -> Option<&[u8]> {
        if compression == Compression::None
            || plain.len() < PACK_BYTES_MIN
            || u32::try_from(plain.len()).is_err()
        {
            return None;
        }
        let room = lz4_flex::block::get_maximum_output_size(plain.len());
        if self.scratch.len() < room {
            self.scratch.resize(room, 0);
        }
        let packed = lz4_flex::block::compress_into(plain, &mut self.scratch).ok()?;
        (packed <= plain.len() - plain.len() / 8).then(|| &self.scratch[..packed])
    }
}

/// Appends what was packed to `out`. None, with `out` as it was, if it is not what the length says.
pub(crate) fn unpack(packed: &[u8], plain_bytes: u32, out: &mut Vec<u8>) -> Option<()> {
    let is_possible = u64::from(plain_bytes) <= (packed.len() as u64 + 1) * PACK_RATIO_MAX;
    let start = out.len();
    if !is_possible {
        return None;
    }
    out.resize(start + plain_bytes as usize, 0);
    match lz4_flex::block::decompress_into(packed, &mut out[start..]) {
        Ok(bytes) if bytes == plain_bytes as usize => Some(()),
        _ => {
            out.truncate(start);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_back_and_nothing_else_does() {
        let mut packer = Packer::default();
        let plain = b"tarn ".repeat(1000);
        let packed = packer.pack(Compression::Lz4, &plain).unwrap().to_vec();
        assert!(packed.len() < 100);
        let mut out = b"before".to_vec();
        assert_eq!(unpack(&packed, 5000, &mut out), Some(()));
        assert_eq!((&out[..6], &out[6..]), (&b"before"[..], plain.as_slice()));
        for wrong in [4999, 5001, u32::MAX] {
            assert_eq!(unpack(&packed, wrong, &mut out), None, "{wrong}");
        }
        assert_eq!(out.len(), 5006);
        assert_eq!(packer.pack(Compression::None, &plain), None);
        let mut prng = sys::Prng::from_seed(1);
        let noise: Vec<u8> = (0..500).map(|_| prng.next_u64() as u8).collect();
        assert_eq!(packer.pack(Compression::Lz4, &noise), None);
        assert_eq!(packer.pack(Compression::Lz4, &[0; PACK_BYTES_MIN - 1]), None);
    }

    #[test]
    fn the_tightest_packing_is_within_the_ratio() {
        let zeros = vec![0; 4 << 20];
        let packed = Packer::default().pack(Compression::Lz4, &zeros).unwrap().to_vec();
        assert_eq!(unpack(&packed, 4 << 20, &mut Vec::new()), Some(()));
    }
}
