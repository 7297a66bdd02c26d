//! A command that goes on writing: its lines as they come.

use super::{CommandError, Invocation, command};
use crate::machine::Machine;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::Child;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

/// How many lines wait for whoever takes them; beyond it the command has to wait.
const WAITING: usize = 4096;
/// What is kept of its standard error, for words.
const ERROR_BYTES: u64 = 4096;

/// The lines of a command that runs. It is killed when this is dropped.
#[derive(Debug)]
pub struct Lines {
    waiting: mpsc::Receiver<Vec<u8>>,
    said: oneshot::Receiver<String>,
    _child: Child,
}

/// What a look for the next line comes upon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextLine {
    /// A line, without its break.
    Line(Vec<u8>),
    /// There is none yet.
    NotYet,
    /// The command has ended; its last words on standard error, which may be empty.
    Ended(String),
}

/// Starts a command whose lines are taken while it runs; its time is not limited. Of a longer line the first
/// `most_line_bytes` are kept.
///
/// # Errors
/// When it cannot be started.
pub fn lines(machine: &Machine, invocation: &Invocation, most_line_bytes: usize) -> Result<Lines, CommandError> {
    let program = invocation.program.clone();
    let mut child = command(machine, invocation)
        .spawn()
        .map_err(|source| CommandError::NotStarted { program: program.clone(), source })?;
    let (sender, waiting) = mpsc::channel(WAITING);
    let (last_words, said) = oneshot::channel();
    let (out, err) = (child.stdout.take(), child.stderr.take());
    tokio::spawn(async move {
        let mut words = Vec::new();
        let overhear = async {
            if let Some(err) = err {
                let mut err = err.take(ERROR_BYTES);
                let _cut_short = err.read_to_end(&mut words).await;
                let _drained = tokio::io::copy(&mut err.into_inner(), &mut tokio::io::sink()).await;
            }
        };
        let listen = async {
            if let Some(out) = out {
                hand_on(out, most_line_bytes, &sender).await;
            }
        };
        tokio::join!(listen, overhear);
        let _nobody_asks = last_words.send(String::from_utf8_lossy(&words).trim().to_owned());
        // Only now: whoever sees that no line comes any more finds the words.
        drop(sender);
    });
    Ok(Lines { waiting, said, _child: child })
}

impl Lines {
    /// The next line, without waiting for one.
    pub fn next_now(&mut self) -> NextLine {
        match self.waiting.try_recv() {
            Ok(line) => NextLine::Line(line),
            Err(TryRecvError::Empty) => NextLine::NotYet,
            Err(TryRecvError::Disconnected) => NextLine::Ended(self.said.try_recv().unwrap_or_default()),
        }
    }
}

async fn hand_on(stream: impl AsyncRead + Unpin, most_line_bytes: usize, to: &mpsc::Sender<Vec<u8>>) {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        let Ok(block) = stream.fill_buf().await else { return };
        if block.is_empty() {
            return;
        }
        let end = block.iter().position(|byte| *byte == b'\n');
        let part = &block[..end.unwrap_or(block.len())];
        let room = most_line_bytes.saturating_sub(line.len()).min(part.len());
        line.extend_from_slice(&part[..room]);
        let used = part.len() + usize::from(end.is_some());
        stream.consume(used);
        if end.is_some() && to.send(std::mem::take(&mut line)).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::world_folder;

    #[tokio::test]
    async fn lines_come_while_the_command_runs_and_long_ones_are_cut() {
        let (_dir, machine) = world_folder("linux");
        let script = "echo one; printf 'abcdefgh\\n\\nhalf'; exec sleep 60";
        let mut lines = lines(&machine, &Invocation::new("/bin/sh").args(["-c", script]), 4).unwrap();
        for line in ["one", "abcd", ""] {
            assert_eq!(lines.waiting.recv().await.unwrap(), line.as_bytes());
        }
        assert_eq!(lines.next_now(), NextLine::NotYet, "half a line is none");
    }

    #[tokio::test]
    async fn an_end_is_told_with_the_last_words() {
        let (_dir, machine) = world_folder("linux");
        let invocation = Invocation::new("/bin/sh").args(["-c", "echo a; echo no leave >&2; exit 1"]);
        let mut lines = lines(&machine, &invocation, 100).unwrap();
        assert_eq!(lines.waiting.recv().await.unwrap(), b"a");
        assert_eq!(lines.waiting.recv().await, None);
        assert_eq!(lines.next_now(), NextLine::Ended("no leave".to_owned()));
        assert!(super::lines(&machine, &Invocation::new("/no/such/program"), 9).is_err());
    }
}
