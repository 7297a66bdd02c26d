//! Starting a runner and waiting until it is ready (`llm/llama_server.go`).

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::process::Command;

use super::completion;
use super::scheduler::{Runner, Scheduler, Want};
use crate::world::generation;

/// Contexts that an automatic one shrinks to when memory does not suffice.
const SMALLER_CONTEXTS: [u64; 2] = [32_768, 4_096];

/// Loads the wanted model. The error is the message for the client.
pub async fn load(scheduler: &Scheduler, want: &Want) -> Result<Runner, String> {
    let slots = scheduler.slots_for(want);
    if slots == 1 && scheduler.environment.num_parallel > 1 {
        scheduler.log.warn(
            "sched.go:447",
            "model architecture does not currently support parallel requests",
            &[("architecture", &want.stored.model.architecture)],
        );
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

async fn start(scheduler: &Scheduler, want: &Want, context: u64, slots: u64) -> Result<Runner, Failure> {
    let plain = |message: String| Failure { message, out_of_memory: false };
    let port = crate::ports::free().map_err(|error| plain(format!("no port for the runner: {error}")))?;
    let own = generation(&scheduler.version) >= (0, 30);
    let word = if own { "llama-server" } else { "llama runner" };
    let (program, arguments) = command_line(scheduler, want, context, slots, port, own)
        .map_err(|error| plain(format!("unable to find the runner: {error}")))?;
    announce(scheduler, want, &program, &arguments, own);

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
    let flag = Arc::clone(&exited);
    tokio::spawn(async move {
        let status = child.wait().await;
        flag.store(true, Ordering::SeqCst);
        let _ = ended.send(status);
    });
    if !own {
        tokio::spawn(completion::ask_old_runner_to_load(port, context, slots));
    }
    let limit = scheduler.environment.load_timeout.map(|limit| scheduler.world.clock.real(limit));
    loop {
        if completion::is_healthy(port, Duration::from_secs(2)).await {
            break;
        }
        tokio::select! {
            status = &mut end => {
                scheduler.loading_pid.store(0, Ordering::SeqCst);
                let available = scheduler.world.marker.gpu_working_set_bytes;
                let out_of_memory = want.stored.model.loaded_bytes(context, slots) > available;
                let words = match status {
                    Ok(Ok(status)) => status.to_string().replace("exit status: ", "exit status "),
                    Ok(Err(_)) | Err(_) => "exit status unknown".to_owned(),
                };
                let message = if out_of_memory {
                    format!("{word} reported out-of-memory during startup: error: failed to allocate buffer for kv cache")
                } else {
                    format!("{word} process has terminated: {words}")
                };
                scheduler.log.info(
                    "sched.go:489",
                    "Load failed",
                    &[("model", &want.stored.blob.display().to_string()), ("error", &message)],
                );
                return Err(Failure { message, out_of_memory });
            }
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
        if limit.is_some_and(|limit| began.elapsed() > limit) {
            crate::process_table::signal(pid, rustix::process::Signal::KILL);
            scheduler.loading_pid.store(0, Ordering::SeqCst);
            return Err(plain(format!("timed out waiting for {word} to start - ")));
        }
    }
    scheduler.loading_pid.store(0, Ordering::SeqCst);
    let seconds = scheduler.world.clock.since(began).as_secs_f64();
    scheduler.log.info("llama_server.go:598", &format!("{word} started in {seconds:.2} seconds"), &[]);
    let session = want.keep_alive.unwrap_or(scheduler.environment.keep_alive);
    Ok(Runner::new(want.stored.clone(), context, slots, want.options.clone(), pid, port, exited, session))
}

fn announce(scheduler: &Scheduler, want: &Want, program: &str, arguments: &[String], own: bool) {
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
    if own {
        log.info("llama_server.go:188", "using llama-server for model", &[("model", &blob)]);
        log.info("llama_server.go:402", "starting llama-server", &[("cmd", &command)]);
        log.info("llama_server.go:560", "loading model via llama-server", &[]);
        log.info("llama_server.go:571", "waiting for llama-server to start responding", &[]);
        log.info(
            "llama_server.go:583",
            "waiting for llama-server to become available",
            &[("status", "llm server loading model")],
        );
    } else {
        log.info("server.go:400", "starting runner", &[("cmd", &command)]);
        log.info("server.go:1250", "waiting for llama runner to start responding", &[]);
    }
}

fn command_line(
    scheduler: &Scheduler,
    want: &Want,
    context: u64,
    slots: u64,
    port: u16,
    own: bool,
) -> std::io::Result<(String, Vec<String>)> {
    let executable = std::env::current_exe()?;
    let blob = want.stored.blob.display().to_string();
    if !own {
        let arguments = ["runner", "--ollama-engine", "--model", &blob, "--port", &port.to_string()];
        return Ok((executable.display().to_string(), arguments.map(str::to_owned).to_vec()));
    }
    let folder = executable.parent().unwrap_or(&executable);
    let candidates = [
        folder.join("llama-server"),
        folder.join("../lib/ollama/llama-server"),
        folder.join("../libexec/lib/ollama/llama-server"),
    ];
    let program = candidates
        .iter()
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| std::io::Error::other("no llama-server beside ollama"))?
        .canonicalize()?;
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
    for word in ["--flash-attn", flash, "-b", "2048", "-ub", "512"] {
        arguments.push(word.to_owned());
    }
    Ok((program.display().to_string(), arguments))
}
