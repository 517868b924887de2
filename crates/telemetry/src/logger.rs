//! The server's log: lines in Redis' format on standard output or in `logfile`, and to syslog.
//!
//! Any thread logs with `log!(Notice, "...")`. A level that is off costs one relaxed load. A line is handed to one
//! writer thread over a bounded queue, so that a full disk or a reader that stalls never holds up a command: lines that
//! do not fit are dropped, counted, and the count is logged. Before `start` and after the guard is dropped, lines go
//! straight to standard output.
//!
//! 1. Logging never fails, panics or blocks the caller; errors of the disk lose lines, nothing else.
//! 2. A line of the log is one line of text, whatever bytes a client put into it, and at most `LINE_BYTES_MAX` long.

use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use parking_lot::RwLock;

pub use config::LogLevel;
use config::{Config, SyslogFacility};
use sys::file::Appended;

/// Longest text of a line; the rest is cut off.
const LINE_BYTES_MAX: usize = 4096;

/// Lines that may wait for the writer: at the longest, 16 MiB.
const QUEUE_LINES_MAX: usize = 4096;

/// How long `flush` waits for a writer that may be stuck on a pipe that nobody reads.
const FLUSH_WAIT: Duration = Duration::from_secs(2);

/// How long `flush` leaves a full queue to its writer before it looks again.
const FLUSH_PAUSE: Duration = Duration::from_millis(1);

/// The levels that are written: this one and above.
static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Notice as u8);
static QUEUE: RwLock<Option<SyncSender<Message>>> = RwLock::new(None);
static LOST_LINES: AtomicU64 = AtomicU64::new(0);

/// Logs a line: a level (`Debug`, `Verbose`, `Notice`, `Warning`), then the arguments of `format!`.
#[macro_export]
macro_rules! log {
    ($level:ident, $($argument:tt)+) => {
        if $crate::logger::is_on($crate::logger::LogLevel::$level) {
            $crate::logger::write($crate::logger::LogLevel::$level, format_args!($($argument)+));
        }
    };
}

/// Whether lines of a level are written.
#[inline]
pub fn is_on(level: LogLevel) -> bool {
    level as u8 >= LEVEL.load(Ordering::Relaxed)
}

/// Follows a change of `loglevel`.
pub fn set_level(level: LogLevel) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Logs a line whatever the level in force; use `log!`.
pub fn write(level: LogLevel, text: fmt::Arguments) {
    let line = Line { level, at: Timestamp::now(), text: one_line(text) };
    let queue = QUEUE.read();
    let Some(queue) = queue.as_ref() else {
        // There is nowhere to report that standard output is gone.
        let _ = io::stdout().write_all(line.format(&TimeZone::system()).as_bytes());
        return;
    };
    if let Err(TrySendError::Full(_)) = queue.try_send(Message::Line(line)) {
        LOST_LINES.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until the lines logged so far are written, for a short while at most. Call it before the process ends.
pub fn flush() {
    let deadline = Instant::now() + FLUSH_WAIT;
    let (done, wait) = sync_channel(1);
    let queue = QUEUE.read().clone();
    while let Some(queue) = &queue {
        match queue.try_send(Message::Flush(done.clone())) {
            Err(TrySendError::Full(_)) if Instant::now() < deadline => std::thread::sleep(FLUSH_PAUSE),
            Err(_) => return,
            Ok(()) => {
                let _ = wait.recv_timeout(deadline.saturating_duration_since(Instant::now()));
                return;
            }
        }
    }
}

/// Opens the log that the configuration asks for and starts its writer. The log ends when the guard is dropped. Fails
/// where the log file cannot be opened.
pub fn start(config: &Config) -> io::Result<Running> {
    let logfile = config.logfile();
    let output = match logfile.is_empty() {
        true => Output::Stdout,
        false => Appended::open(&PathBuf::from(std::ffi::OsString::from_vec(logfile)))
            .map(Output::File)
            .map_err(|error| io::Error::new(error.kind(), format!("Can't open the log file: {error}")))?,
    };
    let syslog =
        config.syslog_enabled().then(|| Syslog::new(config.syslog_facility(), &config.syslog_ident()));
    let (queue, messages) = sync_channel(QUEUE_LINES_MAX);
    let mut writer = Writer { output, syslog, zone: TimeZone::system() };
    let thread = std::thread::Builder::new().name("log".to_owned()).spawn(move || writer.run(&messages))?;
    set_level(config.log_level());
    *QUEUE.write() = Some(queue);
    Ok(Running { thread: Some(thread) })
}

/// The running log; dropping it writes what is queued and ends the writer.
#[must_use]
pub struct Running {
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        flush();
        *QUEUE.write() = None;
        // A writer that is stuck is left behind: the process is about to end.
        if let Some(thread) = self.thread.take().filter(|thread| thread.is_finished()) {
            let _ = thread.join();
        }
    }
}

enum Message {
    Line(Line),
    Flush(SyncSender<()>),
}

struct Line {
    level: LogLevel,
    at: Timestamp,
    text: String,
}

impl Line {
    /// `pid:role day month year time mark text`, with the line end.
    fn format(&self, zone: &TimeZone) -> String {
        let mark = match self.level {
            LogLevel::Debug => '.',
            LogLevel::Verbose => '-',
            LogLevel::Notice => '*',
            LogLevel::Warning | LogLevel::Nothing => '#',
        };
        let at = self.at.to_zoned(zone.clone()).strftime("%d %b %Y %H:%M:%S%.3f").to_string();
        format!("{}:M {at} {mark} {}\n", std::process::id(), self.text)
    }
}

/// The bytes of a text of which [`write`] may show something.
pub fn shown(text: &[u8]) -> &[u8] {
    /// Behind the longest line, so that no character of it is cut in two.
    const CHARACTER_BYTES_MAX: usize = 4;
    &text[..text.len().min(LINE_BYTES_MAX + CHARACTER_BYTES_MAX)]
}

/// A text without line ends and other control characters, cut to its longest.
fn one_line(text: fmt::Arguments) -> String {
    let mut line = Cut(String::new());
    // The only failure is the cut.
    let _ = line.write_fmt(text);
    line.0
}

/// Collects text until the line is full.
struct Cut(String);

impl fmt::Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if self.0.len() + character.len_utf8() > LINE_BYTES_MAX {
                return Err(fmt::Error);
            }
            self.0.push(if character.is_control() { ' ' } else { character });
        }
        Ok(())
    }
}

/// What the writer thread owns.
struct Writer {
    output: Output,
    syslog: Option<Syslog>,
    zone: TimeZone,
}

impl Writer {
    /// Ends when the queue has no sender any more.
    fn run(&mut self, messages: &Receiver<Message>) {
        while let Ok(message) = messages.recv() {
            match message {
                Message::Line(line) => self.put(&line),
                Message::Flush(done) => drop(done.try_send(())),
            }
            let lost = LOST_LINES.swap(0, Ordering::Relaxed);
            if lost > 0 {
                let text = format!(
                    "{lost} lines of this log were lost: they came faster than they could be written"
                );
                self.put(&Line { level: LogLevel::Warning, at: Timestamp::now(), text });
            }
        }
    }

    fn put(&mut self, line: &Line) {
        self.output.put(&line.format(&self.zone));
        if let Some(syslog) = &mut self.syslog {
            syslog.put(line, &self.zone);
        }
    }
}

/// Where lines go.
enum Output {
    Stdout,
    File(Appended),
}

impl Output {
    /// Writes a line; one that cannot be written is lost.
    fn put(&mut self, line: &str) {
        let _ = match self {
            Output::Stdout => io::stdout().write_all(line.as_bytes()),
            Output::File(file) => file.write(line.as_bytes()),
        };
    }
}

/// The local syslog daemon, spoken to by datagrams.
struct Syslog {
    facility: SyslogFacility,
    ident: String,
    socket: Option<UnixDatagram>,
}

impl Syslog {
    const PATH: &'static str = "/dev/log";

    fn new(facility: SyslogFacility, ident: &[u8]) -> Syslog {
        Syslog { facility, ident: String::from_utf8_lossy(ident).into_owned(), socket: None }
    }

    /// Sends a line, connecting first where there is no connection or the daemon was restarted.
    fn put(&mut self, line: &Line, zone: &TimeZone) {
        let text = self.format(line, zone);
        if self.socket.as_ref().is_some_and(|socket| socket.send(text.as_bytes()).is_ok()) {
            return;
        }
        self.socket = connect(Self::PATH).ok();
        if let Some(socket) = &self.socket {
            let _ = socket.send(text.as_bytes());
        }
    }

    /// `<priority>month day time ident[pid]: text`.
    fn format(&self, line: &Line, zone: &TimeZone) -> String {
        let severity = match line.level {
            LogLevel::Debug => 7,
            LogLevel::Verbose => 6,
            LogLevel::Notice => 5,
            LogLevel::Warning | LogLevel::Nothing => 4,
        };
        let priority = u32::from(self.facility.code()) * 8 + severity;
        let at = line.at.to_zoned(zone.clone()).strftime("%b %e %H:%M:%S").to_string();
        format!("<{priority}>{at} {}[{}]: {}", self.ident, std::process::id(), line.text)
    }
}

fn connect(path: &str) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Startup;
    use std::path::Path;

    fn line(level: LogLevel) -> Line {
        let at = "2026-11-21T21:30:31.123Z".parse().unwrap();
        Line { level, at, text: "Ready to accept connections".to_owned() }
    }

    #[test]
    fn lines_have_the_format_of_redis() {
        let expected =
            format!("{}:M 21 Nov 2026 21:30:31.123 # Ready to accept connections\n", std::process::id());
        assert_eq!(line(LogLevel::Warning).format(&TimeZone::UTC), expected);
    }

    #[test]
    fn syslog_lines_carry_facility_severity_and_ident() {
        let syslog = Syslog::new(SyslogFacility::Local3, b"tarn");
        let expected =
            format!("<157>Nov 21 21:30:31 tarn[{}]: Ready to accept connections", std::process::id());
        assert_eq!(syslog.format(&line(LogLevel::Notice), &TimeZone::UTC), expected);
    }

    #[test]
    fn client_bytes_cannot_forge_lines_or_fill_the_queue() {
        assert_eq!(one_line(format_args!("a\nb\r\x1bc")), "a b  c");
        assert_eq!(one_line(format_args!("{}", "x".repeat(1 << 20))).len(), LINE_BYTES_MAX);
        let long = "x".to_owned() + &"\u{1d11e}".repeat(LINE_BYTES_MAX);
        let cut = String::from_utf8_lossy(shown(long.as_bytes()));
        assert_eq!(one_line(format_args!("{cut}")), one_line(format_args!("{long}")));
    }

    #[test]
    fn a_full_disk_loses_lines_and_nothing_else() {
        let mut output = Output::File(Appended::open(Path::new("/dev/full")).unwrap());
        output.put("no room for this\n");
        output.put("nor for this\n");
    }

    #[test]
    fn a_log_file_that_was_moved_away_is_opened_anew() {
        let directory = std::env::temp_dir().join(format!("tarn-logger-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (path, moved) = (directory.join("log"), directory.join("log.1"));
        let mut output = Output::File(Appended::open(&path).unwrap());
        output.put("first\n");
        std::fs::rename(&path, &moved).unwrap();
        output.put("second\n");
        assert_eq!(std::fs::read_to_string(&moved).unwrap(), "first\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "second\n");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_was_logged_is_in_the_file_when_the_log_ends() {
        let path = std::env::temp_dir().join(format!("tarn-logger-{}.log", std::process::id()));
        let text = format!("loglevel verbose\nlogfile {}", path.display());
        let Ok(Startup::Serve { config, .. }) = Config::from_text(text.as_bytes()) else {
            panic!("not served")
        };
        let running = start(&config).unwrap();
        crate::log!(Debug, "not {}", "this");
        crate::log!(Verbose, "but {}", "this");
        set_level(LogLevel::Warning);
        crate::log!(Notice, "nor this");
        drop(running);
        let written = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(
            written.contains(" - but this\n")
                && !written.contains("not this")
                && !written.contains("nor this")
        );
        let unopenable = Config::from_text(b"logfile /nonexistent/log");
        let Ok(Startup::Serve { config, .. }) = unopenable else { panic!("not served") };
        assert!(start(&config).err().unwrap().to_string().starts_with("Can't open the log file: "));
    }
}
