//! Runs scripts in an engine without a server.

use script::{Compiled, Engine, Header, Host, Pulse, Ran, Refusal, sha};
use std::time::Instant;
use wire::{Protocol, Reply, Request, RequestBuf};

/// Answers every command with `+PONG`, and lets a script go on for so many pulses.
pub struct Echo {
    pub pulses: u64,
    pub began: Instant,
}

impl Host for Echo {
    fn call(&mut self, _: Request<'_>, _: Protocol, out: &mut Vec<u8>) -> Result<(), Refusal> {
        out.extend_from_slice(b"+PONG\r\n");
        Ok(())
    }

    fn may_run(&mut self, _: Request<'_>) -> Option<bool> {
        None
    }

    fn log(&mut self, _: u8, _: &[u8]) {}

    fn note_error(&mut self, _: &[u8], _: bool) {}

    fn began(&self) -> Instant {
        self.began
    }

    fn pulse(&mut self) -> Pulse {
        match self.pulses.checked_sub(1) {
            Some(rest) => {
                self.pulses = rest;
                Pulse::GoOn
            }
            None => Pulse::End("Script killed by user with SCRIPT KILL."),
        }
    }
}

/// The reply to a script that nobody ends.
pub fn run(engine: &mut Engine, text: &str) -> String {
    run_for(engine, u64::MAX, text)
}

/// The reply to a script that is ended after so many pulses.
pub fn run_for(engine: &mut Engine, pulses: u64, text: &str) -> String {
    Header::of_script(text.as_bytes()).expect("the tests have sound headers");
    let script = match engine.compile(text.as_bytes()) {
        Ok(script) => script,
        Err(line) => return format!("-{}\r\n", String::from_utf8_lossy(&line)),
    };
    let out = run_compiled(engine, pulses, script, text);
    engine.forget(script);
    out
}

/// The same for one that is compiled.
pub fn run_compiled(engine: &mut Engine, pulses: u64, script: Compiled, text: &str) -> String {
    let mut out = Vec::new();
    let words = RequestBuf::from_args(["eval", "", "0"]);
    let mut reply = Reply::new(&mut out, Protocol::Resp2);
    let name = sha(text.as_bytes());
    let ran = engine.run_script(
        script,
        &name,
        (words.as_request(), 3, 0),
        &mut Echo { pulses, began: Instant::now() },
        &mut reply,
    );
    assert_ne!(ran, Ran::Restart);
    String::from_utf8_lossy(&out).into_owned()
}
