//! Checkpoints as the first version wrote them, made from those of this version by the description of their bytes alone
//! (`docs/formats/checkpoint.md`).

const HEADER_BYTES: usize = 64;
const CHUNK_HEADER_BYTES: usize = 24;
const TRAILER: u32 = 2;

/// What a chunk's first byte says.
const SLOTS: u8 = 1;
const NUMBERS: u8 = 4;
const INDEX: u8 = 5;
const PART: u8 = 7;
const DATABASES: u8 = 8;

/// The same checkpoint, of the first version: databases are called as commands called them, and how a store does is said only where
/// there is one. `numbers` are their constant numbers.
pub fn checkpoint(newer: &[u8], numbers: &[u32], has_store: bool) -> Vec<u8> {
    let mut older = newer[..HEADER_BYTES].to_vec();
    assert_eq!(u32_at(newer, 8), 2);
    older[8..12].copy_from_slice(&1_u32.to_le_bytes());
    let crc = crc32c::crc32c(&older[..56]);
    older[56..60].copy_from_slice(&crc.to_le_bytes());
    let (mut at, mut index, mut is_told) = (HEADER_BYTES, 0_u64, false);
    while at < newer.len() {
        let (bytes, kind) = (u32_at(newer, at + 8) as usize, u32_at(newer, at + 12));
        at += CHUNK_HEADER_BYTES;
        let mut body = newer[at..at + bytes].to_vec();
        at += bytes;
        if kind == TRAILER {
            body[..8].copy_from_slice(&index.to_le_bytes());
            let length = older.len() as u64;
            body[16..].copy_from_slice(&length.to_le_bytes());
        } else if body[0] == DATABASES {
            is_told = true;
            assert_eq!(body[1], u8::from(has_store));
            if !has_store {
                continue;
            }
            body.drain(..2);
            body.insert(0, NUMBERS);
        } else if [SLOTS, INDEX, PART].contains(&body[0]) {
            let name = numbers.iter().position(|number| *number == u32_at(&body, 1)).unwrap();
            body[1..5].copy_from_slice(&(name as u32).to_le_bytes());
        }
        put_chunk(&mut older, kind, index, &body);
        index += 1;
    }
    assert!(is_told);
    older
}

fn put_chunk(out: &mut Vec<u8>, kind: u32, index: u64, body: &[u8]) {
    let mut header = [0; CHUNK_HEADER_BYTES];
    header[4..8].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
    header[8..12].copy_from_slice(&(body.len() as u32).to_le_bytes());
    header[12..16].copy_from_slice(&kind.to_le_bytes());
    header[16..].copy_from_slice(&index.to_le_bytes());
    let crc = crc32c::crc32c(&header[4..]);
    header[..4].copy_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&header);
    out.extend_from_slice(body);
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}
