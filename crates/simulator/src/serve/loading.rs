//! Starting a runner and waiting until it is ready (`llm/llama_server.go`).

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::process::Command;

use super::completion;
use super::scheduler::{Runner, Scheduler, Want};
use crate::runner::record;
use crate::world::generation;

/// Contexts that an automatic one shrinks to when memory does not suffice.
const SMALLER_CONTEXTS: [u64; 2] = [32_768, 4_096];

/// Loads the wanted model. The error is the message for the client.
pub async fn load(scheduler: &Scheduler, want: &Want) -> Result<Runner, String> {
    let slots = scheduler.slots_for(want);
    if slots == 1 && !want.stored.model.is_mlx() && scheduler.environment.num_parallel > 1 {
        scheduler.log.warn(
            "sched.go:447",
            "model architecture does not currently support parallel requests",
            &[("architecture", &want.stored.model.architecture)],
        );
    }
    if want.stored.model.is_mlx() {
        return start(scheduler, want, want.context, 1).await.map_err(|failure| failure.message);
    }
    match start(scheduler, want, want.context, slots).await {
        Err(failure) if failure.out_of_memory && want.context_is_automatic => {
            let smaller =
                SMALLER_CONTEXTS.into_iter().find(|context| *context < want.context).ok_or(failure.message)?;
            scheduler.log.warn(
                "sched.go:520",
                "llama-server load failed; reducing automatic context and retrying once",
                &[("num_ctx", &smaller.to_string())],
            );
            start(scheduler, want, smaller, slots).await.map_err(|failure| failure.message)
        }
        other => other.map_err(|failure| failure.message),
    }
}

struct Failure {
    message: String,
    out_of_memory: bool,
}

/// What runs a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    LlamaServer,
    /// `ollama runner`, up to 0.24.
    Old,
    Mlx,
}

impl Engine {
    fn of(scheduler: &Scheduler, want: &Want) -> Self {
        if want.stored.model.is_mlx() {
            Self::Mlx
        } else if generation(&scheduler.version) >= (0, 30) {
            Self::LlamaServer
        } else {
            Self::Old
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::LlamaServer => "llama-server",
            Self::Old => "llama runner",
            Self::Mlx => "mlx runner",
        }
    }
}

async fn start(scheduler: &Scheduler, want: &Want, context: u64, slots: u64) -> Result<Runner, Failure> {
    let plain = |message: String| Failure { message, out_of_memory: false };
    let port = crate::ports::free().map_err(|error| plain(format!("no port for the runner: {error}")))?;
    let engine = Engine::of(scheduler, want);
    let word = engine.words();
    let (program, arguments) = command_line(scheduler, want, context, slots, port, engine)
        .map_err(|error| plain(format!("error starting {word}: {error}")))?;
    announce(scheduler, want, &program, &arguments, port, engine);

    let began = Instant::now();
    let mut child = Command::new(&program)
        .args(&arguments)
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| plain(format!("error starting {word}: {error}")))?;
    let pid = child.id().unwrap_or_default() as i32;
    scheduler.loading_pid.store(i64::from(pid), Ordering::SeqCst);
    let exited = Arc::new(AtomicBool::new(false));
    let (ended, mut end) = tokio::sync::oneshot::channel();
    let (flag, log) = (Arc::clone(&exited), scheduler.log.clone());
    tokio::spawn(async move {
        let status = child.wait().await;
        flag.store(true, Ordering::SeqCst);
        // A plain signal leaves no words.
        if let Ok(code) = status.as_ref()
            && code.code().is_some_and(|code| code != 0)
        {
            log.error(
                "llama_server.go:451",
                &format!("{word} terminated"),
                &[("error", "error: Internal Error"), ("exit", &exit_words(*code))],
            );
        }
        let _ = ended.send(status);
    });
    if engine == Engine::Old {
        tokio::spawn(completion::ask_old_runner_to_load(port, context, slots));
    }
    let limit = scheduler.environment.load_timeout.map(|limit| scheduler.world.clock.real(limit));
    let (mut progress, mut moved) = (0, began);
    loop {
        if completion::is_healthy(port, engine == Engine::Mlx, Duration::from_secs(2)).await {
            break;
        }
        tokio::select! {
            status = &mut end => {
                scheduler.loading_pid.store(0, Ordering::SeqCst);
                let words = match status {
                    Ok(Ok(status)) => exit_words(status),
                    Ok(Err(_)) | Err(_) => "exit status unknown".to_owned(),
                };
                return Err(failed(scheduler, want, context, slots, word, &words));
            }
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
        // The limit counts from the last progress; for the MLX engine, which tells none, from the start.
        let loaded = record::of(&scheduler.world, pid).map_or(0, |record| record.loaded);
        if loaded != progress && engine != Engine::Mlx {
            (progress, moved) = (loaded, Instant::now());
        }
        if limit.is_some_and(|limit| moved.elapsed() > limit) {
            crate::process_table::signal(pid, rustix::process::Signal::KILL);
            scheduler.loading_pid.store(0, Ordering::SeqCst);
            return Err(plain(match engine {
                Engine::LlamaServer | Engine::Old => format!("timed out waiting for {word} to start - "),
                Engine::Mlx => format!("timeout waiting for {word} to start"),
            }));
        }
    }
    scheduler.loading_pid.store(0, Ordering::SeqCst);
    let seconds = scheduler.world.clock.since(began).as_secs_f64();
    match engine {
        Engine::LlamaServer | Engine::Old => {
            scheduler.log.info("llama_server.go:598", &format!("{word} started in {seconds:.2} seconds"), &[]);
        }
        Engine::Mlx => scheduler.log.info("client.go:97", "mlx runner is ready", &[("port", &port.to_string())]),
    }
    let session = want.keep_alive.unwrap_or(scheduler.environment.keep_alive);
    Ok(Runner::new(want.stored.clone(), context, slots, want.options.clone(), pid, port, exited, session))
}

fn exit_words(status: std::process::ExitStatus) -> String {
    status.to_string().replace("exit status: ", "exit status ")
}

fn failed(scheduler: &Scheduler, want: &Want, context: u64, slots: u64, word: &str, exit: &str) -> Failure {
    let available = scheduler.world.marker.gpu_working_set_bytes;
    let out_of_memory = want.stored.model.loaded_bytes(context, slots) > available;
    let message = if out_of_memory {
        format!("{word} reported out-of-memory during startup: error: failed to allocate buffer for kv cache")
    } else {
        format!("{word} process has terminated: {exit}")
    };
    scheduler.log.info(
        "sched.go:489",
        "Load failed",
        &[("model", &want.stored.blob.display().to_string()), ("error", &message)],
    );
    Failure { message, out_of_memory }
}

fn announce(scheduler: &Scheduler, want: &Want, program: &str, arguments: &[String], port: u16, engine: Engine) {
    let log = &scheduler.log;
    let blob = want.stored.blob.display().to_string();
    let total = scheduler.world.marker.memory_bytes;
    log.info(
        "sched.go:470",
        "system memory",
        &[
            ("total", &crate::world::moments::human_bytes(total)),
            ("free", &crate::world::moments::human_bytes(total / 4 * 3)),
            ("free_swap", "0 B"),
        ],
    );
    let command = std::iter::once(program).chain(arguments.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    match engine {
        Engine::LlamaServer => {
            log.info("llama_server.go:188", "using llama-server for model", &[("model", &blob)]);
            log.info("llama_server.go:402", "starting llama-server", &[("cmd", &command)]);
            log.info("llama_server.go:560", "loading model via llama-server", &[]);
            log.info("llama_server.go:571", "waiting for llama-server to start responding", &[]);
            log.info(
                "llama_server.go:583",
                "waiting for llama-server to become available",
                &[("status", "llm server loading model")],
            );
        }
        Engine::Old => {
            log.info("server.go:400", "starting runner", &[("cmd", &command)]);
            log.info("server.go:1250", "waiting for llama runner to start responding", &[]);
        }
        Engine::Mlx => log.info(
            "client.go:388",
            "starting mlx runner subprocess",
            &[("model", &want.stored.model.name), ("port", &port.to_string())],
        ),
    }
}

fn command_line(
    scheduler: &Scheduler,
    want: &Want,
    context: u64,
    slots: u64,
    port: u16,
    engine: Engine,
) -> std::io::Result<(String, Vec<String>)> {
    let executable = std::env::current_exe()?;
    let blob = want.stored.blob.display().to_string();
    let as_runner = |kind: &str, model: &str| {
        let arguments = ["runner", kind, "--model", model, "--port", &port.to_string()];
        (executable.display().to_string(), arguments.map(str::to_owned).to_vec())
    };
    match engine {
        Engine::Old => return Ok(as_runner("--ollama-engine", &blob)),
        Engine::Mlx => return Ok(as_runner("--mlx-engine", &want.stored.model.name)),
        Engine::LlamaServer => {}
    }
    let folder = executable.parent().unwrap_or(&executable);
    let prefix = folder.parent().unwrap_or(folder);
    let candidates = [
        folder.join("llama-server"),
        prefix.join("lib/ollama/llama-server"),
        prefix.join("libexec/lib/ollama/llama-server"),
    ];
    let program = candidates.iter().find(|candidate| candidate.is_file()).ok_or_else(|| {
        // `llm/llama_server.go`, FindLlamaServer
        let checked: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
        std::io::Error::other(format!(
            "llama-server binary not found (checked: {}). Run 'cmake -S llama/server --preset cpu && cmake --build --preset cpu' first",
            checked.join(", ")
        ))
    })?;
    let program = program.canonicalize()?;
    let environment = &scheduler.environment;
    let mut arguments: Vec<String> = [
        "--model",
        &blob,
        "--port",
        &port.to_string(),
        "--host",
        "127.0.0.1",
        "--no-webui",
        "--offline",
        "-c",
        &(context * slots).to_string(),
        "-np",
        &slots.to_string(),
        "--log-verbosity",
        "4",
        "--no-log-prefix",
        "--no-log-timestamps",
    ]
    .map(str::to_owned)
    .to_vec();
    if !environment.kv_cache_type.is_empty() {
        for flag in ["--cache-type-k", "--cache-type-v"] {
            arguments.extend([flag.to_owned(), environment.kv_cache_type.clone()]);
        }
    }
    let flash = match environment.flash_attention {
        Some(true) => "on",
        Some(false) => "off",
        None => "auto",
    };
    let batch = want.stored.model.batch_tokens;
    for word in ["--flash-attn", flash, "-b", &batch.to_string(), "-ub", &batch.min(512).to_string()] {
        arguments.push(word.to_owned());
    }
    Ok((program.display().to_string(), arguments))
}
