//! Which of the program's memory lies in huge pages.
//!
//! mimalloc asks for transparent huge pages for all that it reserves. For a large
//! keyspace that is right: tables and objects are visited in random order, and
//! with 2 MB pages a visit needs no page walk (about a fifth less time for each
//! pipelined GET at a million keys). But what a server allocates at its start,
//! thread by thread and size by size, is spread thinly, and in huge pages it
//! would take 10 MB instead of 4. So the first few megabytes stay in small pages.

#![allow(unsafe_code)] // madvise is a system call without a safe wrapper.

use std::fs;
use std::ops::Range;

/// What stays in small pages: more than an empty server needs.
const SMALL_PAGES_BYTES: usize = 16 << 20;

/// Keeps the beginning of the allocator's memory in small pages. To be called
/// first of all in `main`; where it does not succeed, the program only takes some
/// megabytes more.
pub fn begin_with_small_pages() {
    let probe = Box::new(0u8);
    let address = std::ptr::from_ref(&*probe).addr();
    let Some(area) = fs::read_to_string("/proc/self/maps").ok().and_then(|maps| area_of(&maps, address))
    else {
        return;
    };
    let bytes = area.len().min(SMALL_PAGES_BYTES);
    // SAFETY: advice about page sizes changes no contents; the range lies within
    // a mapping of this process, as its list of mappings has just said.
    unsafe { libc::madvise(area.start as *mut libc::c_void, bytes, libc::MADV_NOHUGEPAGE) };
}

/// From now on no memory of the process becomes a huge page. To be called before there is much; where it does not succeed, what
/// is freed goes back to the system in larger pieces.
pub fn without_huge_pages() {
    const DISABLED: libc::c_ulong = 1;
    const UNUSED: libc::c_ulong = 0;
    // SAFETY: a setting of the process that concerns how the kernel maps its memory, and no contents.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, DISABLED, UNUSED, UNUSED, UNUSED) };
}

/// The mapping that holds an address, from the text of `/proc/self/maps`.
fn area_of(maps: &str, address: usize) -> Option<Range<usize>> {
    maps.lines()
        .filter_map(|line| {
            let (start, end) = line.split_whitespace().next()?.split_once('-')?;
            Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
        })
        .find(|area| area.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_its_mapping() {
        let maps = "1000-2000 r-xp 0 fe:00 1 /bin/a\n3000-5000 rw-p 0 00:00 0\n";
        assert_eq!(area_of(maps, 0x3fff), Some(0x3000..0x5000));
        assert_eq!(area_of(maps, 0x2000), None);
        assert_eq!(area_of("nonsense", 1), None);
    }
}
