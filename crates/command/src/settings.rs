//! The limits and thresholds that handlers look at. The server owns the
//! configuration and stores changes here; handlers only read.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use value::collection::Thresholds;
use value::rdb::Checksum;
use value::stream::Reads;

/// Settings shared by all workers. Each is read alone, so relaxed order is enough.
#[derive(Debug)]
pub struct Settings {
    string_bytes_max: AtomicU64,
    flushes_in_background: AtomicBool,
    piece_bytes: AtomicUsize,
    images_for: AtomicU8,
    ignores_checksums: AtomicBool,
    thresholds: SharedThresholds,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            string_bytes_max: AtomicU64::new(512 << 20),
            flushes_in_background: AtomicBool::new(false),
            piece_bytes: AtomicUsize::new(PIECE_BYTES_DEFAULT),
            images_for: AtomicU8::new(0),
            ignores_checksums: AtomicBool::new(false),
            thresholds: SharedThresholds::default(),
        }
    }
}

impl Settings {
    /// When compact encodings give way to native ones.
    #[inline]
    pub fn thresholds(&self) -> Thresholds {
        self.thresholds.get()
    }

    /// Sets [`Settings::thresholds`].
    pub fn set_thresholds(&self, thresholds: Thresholds) {
        self.thresholds.set(thresholds);
    }

    /// The longest string that a command may build (`proto-max-bulk-len`), in bytes.
    pub fn string_bytes_max(&self) -> u64 {
        self.string_bytes_max.load(Ordering::Relaxed)
    }

    /// Sets [`Settings::string_bytes_max`].
    pub fn set_string_bytes_max(&self, bytes: u64) {
        self.string_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// How much of a large value one request of the log holds; a value is large that is longer.
    pub fn piece_bytes(&self) -> usize {
        self.piece_bytes.load(Ordering::Relaxed)
    }

    /// Sets [`Settings::piece_bytes`].
    pub fn set_piece_bytes(&self, bytes: usize) {
        self.piece_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Who reads the values that are logged as a whole: replicas, too.
    pub fn image_reads(&self) -> Reads {
        match self.images_for.load(Ordering::Relaxed) {
            0 => Reads::Redis72,
            1 => Reads::Redis70,
            _ => Reads::Redis50,
        }
    }

    /// Sets [`Settings::image_reads`].
    pub fn set_image_reads(&self, reads: Reads) {
        let number = match reads {
            Reads::Redis72 => 0,
            Reads::Redis70 => 1,
            Reads::Redis50 => 2,
        };
        self.images_for.store(number, Ordering::Relaxed);
    }

    /// Whether payloads and files must have the right checksum (DEBUG SET-SKIP-CHECKSUM-VALIDATION).
    pub fn checksum(&self) -> Checksum {
        match self.ignores_checksums.load(Ordering::Relaxed) {
            true => Checksum::Ignored,
            false => Checksum::Checked,
        }
    }

    /// Sets [`Settings::checksum`].
    pub fn set_checksum(&self, checksum: Checksum) {
        self.ignores_checksums.store(checksum == Checksum::Ignored, Ordering::Relaxed);
    }

    /// Whether FLUSHALL and FLUSHDB are asynchronous unless told otherwise
    /// (`lazyfree-lazy-user-flush`).
    pub fn flushes_in_background(&self) -> bool {
        self.flushes_in_background.load(Ordering::Relaxed)
    }

    /// Sets [`Settings::flushes_in_background`].
    pub fn set_flushes_in_background(&self, on: bool) {
        self.flushes_in_background.store(on, Ordering::Relaxed);
    }
}

/// Long enough that a request's other words are nothing beside it; two of them fit a block of the log.
const PIECE_BYTES_DEFAULT: usize = 120 << 10;

/// [`Thresholds`] of which each can be read and changed alone.
macro_rules! shared_thresholds {
    ($($name:ident: $atomic:ident),* $(,)?) => {
        #[derive(Debug)]
        struct SharedThresholds {
            $($name: $atomic,)*
        }

        impl Default for SharedThresholds {
            fn default() -> SharedThresholds {
                let thresholds = Thresholds::default();
                SharedThresholds { $($name: $atomic::new(thresholds.$name),)* }
            }
        }

        impl SharedThresholds {
            #[inline]
            fn get(&self) -> Thresholds {
                Thresholds { $($name: self.$name.load(Ordering::Relaxed),)* }
            }

            fn set(&self, thresholds: Thresholds) {
                $(self.$name.store(thresholds.$name, Ordering::Relaxed);)*
            }
        }
    };
}

shared_thresholds! {
    list_max_listpack_size: AtomicI32,
    list_plain_bytes_min: AtomicUsize,
    hash_max_listpack_entries: AtomicUsize,
    hash_max_listpack_value: AtomicUsize,
    set_max_intset_entries: AtomicUsize,
    set_max_listpack_entries: AtomicUsize,
    set_max_listpack_value: AtomicUsize,
    zset_max_listpack_entries: AtomicUsize,
    zset_max_listpack_value: AtomicUsize,
    stream_node_max_bytes: AtomicUsize,
    stream_node_max_entries: AtomicUsize,
    hll_sparse_max_bytes: AtomicUsize,
}
