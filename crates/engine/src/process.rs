//! Processes as the rules see them: who they are, who started them, and which part of Ollama they play.

use crate::known::Known;
use crate::time::Wall;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// One life of one process. A pid alone is reused by the system; with the kernel's start mark it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Process id.
    pub pid: u32,
    /// The kernel's start mark in the platform's own unit. Only equality means anything.
    pub birth: u64,
}

/// A process as the process table shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Which life this is.
    pub id: Identity,
    /// Pid of the parent; `None` for the first process or an unreadable one.
    pub parent: Option<u32>,
    /// Numeric owner.
    pub uid: Known<u32>,
    /// When it started.
    pub started: Wall,
    /// Path of the program file.
    pub executable: Known<PathBuf>,
    /// Arguments, the first being the name it was called by.
    pub argv: Known<Vec<String>>,
    /// Its environment at the last exec, *only* the variables that matter here (`OLLAMA_*`, `LLAMA_ARG_*`); the rest
    /// may hold secrets and is dropped where it is read. "Not readable" is unknown, never empty.
    pub environment: Known<BTreeMap<String, String>>,
}

/// Which generation of runner a process is. They differ in what they can tell about progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnerKind {
    /// `llama-server`, Ollama 0.30 and newer.
    LlamaServer,
    /// `ollama runner`, Ollama 0.24 and older.
    OllamaRunner,
    /// `ollama runner --mlx-engine`: serves one request at a time, whatever the setting says.
    Mlx,
}

/// What a runner's argument list says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerArgs {
    /// Generation.
    pub kind: RunnerKind,
    /// `--model`: a blob path, or a model name under MLX.
    pub model: Known<String>,
    /// `--port` on 127.0.0.1.
    pub port: Known<u16>,
    /// `-np`: how many requests it takes at once.
    pub slots: Known<u32>,
    /// `-c`: tokens of context for all slots together.
    pub context_tokens: Known<u64>,
}

/// Which part of Ollama a process plays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The menu-bar program of Ollama.app in this bundle.
    Gui {
        /// Path of the bundle.
        bundle: PathBuf,
    },
    /// The login shim inside the bundle (`Squirrel background`).
    Shim {
        /// Path of the bundle.
        bundle: PathBuf,
    },
    /// `ollama serve`.
    Serve,
    /// A model's process.
    Runner(RunnerArgs),
}

/// A process that belongs to Ollama, with the part it plays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The process.
    pub process: Process,
    /// Its part.
    pub role: Role,
}

/// Whose a runner is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Belonging {
    /// It runs below this server.
    Server(Identity),
    /// It runs below another server than the one that is looked after: of another port, or of somebody else.
    Elsewhere,
    /// Its server has ended.
    LeftBehind,
    /// Nobody saw it below a server. It may be somebody's own, who only uses a model of Ollama's.
    Unknown,
}

impl Belonging {
    /// The living server.
    pub fn server(&self) -> Option<Identity> {
        match self {
            Self::Server(id) => Some(*id),
            Self::Elsewhere | Self::LeftBehind | Self::Unknown => None,
        }
    }
}
