//! `docker(1)` with one container that holds Ollama, and the shim that runs it.
//! The values baked into the container's environment win over everything else.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process_table;
use crate::systemd::{Request, SERVICE};
use crate::wire::{self, Reply};
use crate::world::{Owner, World, moments, notes};

/// Id of the container.
pub const ID: &str = "8c1e4f0b7a2d96315ed84c70bf1a29e6403d5b7cc8f21e09a64d73b58fe01c92";
/// Length of the id in lists.
const SHORT: usize = 12;
const NAME: &str = "ollama";
const SHIM: &str = "containerd-shim-runc-v2";

/// Runs the command.
pub fn run(world: &World, arguments: &[String]) -> Reply {
    if notes::owner(world) != Owner::Container {
        return match arguments.first().map(String::as_str) {
            Some("ps") => Reply::said(header()),
            _ => Reply::failed(1, "Error response from daemon: No such container"),
        };
    }
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["ps" | "container", rest @ ..] => list(world, rest),
        ["inspect", rest @ ..] => match rest.last() {
            Some(name) if is_ours(name) => Reply::said(format!("{:#}\n", json!([inspection(world)]))),
            _ => Reply::failed(1, "[]\nError: No such object"),
        },
        ["stop", .., name] if is_ours(name) => {
            stop(world);
            Reply::said(format!("{name}\n"))
        }
        ["start", name] if is_ours(name) => start(world, name),
        ["restart", .., name] if is_ours(name) => {
            stop(world);
            start(world, name)
        }
        ["--version" | "version"] => Reply::said("Docker version 29.1.2, build simulated\n"),
        _ => Reply::failed(1, format!("docker: '{}' is not a docker command.", arguments.join(" "))),
    }
}

/// Runs the shim: the server with its baked environment, started again as
/// `--restart always` does.
pub fn shim(world: &World) -> ExitCode {
    loop {
        let child = Command::new(world.path("/usr/local/bin/ollama"))
            .arg("serve")
            .env_clear()
            .envs(world.base_environment())
            .envs(environment(world))
            .process_group(0)
            .stdin(Stdio::null())
            .spawn();
        match child {
            Ok(mut child) => {
                let server = child.id() as i32;
                let _ = child.wait();
                // The first process of a container takes all others with it.
                process_table::signal_group(server, Signal::KILL);
            }
            Err(_) => return ExitCode::FAILURE,
        }
        std::thread::sleep(world.clock.real(Duration::from_millis(500)));
    }
}

fn environment(world: &World) -> Vec<(String, String)> {
    [
        ("OLLAMA_HOST", format!("0.0.0.0:{}", world.marker.port)),
        ("OLLAMA_NUM_PARALLEL", "2".to_owned()),
        ("OLLAMA_MAX_LOADED_MODELS", "3".to_owned()),
        ("OLLAMA_KEEP_ALIVE", "24h".to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .to_vec()
}

fn is_ours(name: &str) -> bool {
    name == NAME || ID.starts_with(name)
}

fn server_pid(world: &World) -> Option<i32> {
    process_table::of(world).iter().find(|process| process.is_serve()).map(|process| process.pid)
}

fn header() -> String {
    format!(
        "{:<15}{:<22}{:<23}{:<16}{:<14}{:<35}NAMES\n",
        "CONTAINER ID", "IMAGE", "COMMAND", "CREATED", "STATUS", "PORTS"
    )
}

fn list(world: &World, options: &[&str]) -> Reply {
    let running = server_pid(world).is_some();
    let all = options.contains(&"-a") || options.contains(&"--all");
    let port = world.marker.port;
    let ports = format!("127.0.0.1:{port}->{port}/tcp");
    let status = if running { "Up 2 minutes" } else { "Exited (0)" };
    let as_json = options.iter().any(|word| word.contains("json"));
    let shown = running || all;
    if as_json {
        let row = json!({
            "ID": &ID[..SHORT], "Names": NAME, "Image": "ollama/ollama:latest", "Command": "\"/bin/ollama serve\"",
            "State": if running { "running" } else { "exited" }, "Status": status, "Ports": ports,
            "Labels": "",
        });
        return Reply::said(if shown { format!("{row}\n") } else { String::new() });
    }
    if options.contains(&"-q") {
        return Reply::said(if shown { format!("{}\n", &ID[..SHORT]) } else { String::new() });
    }
    let mut text = header();
    if shown {
        text.push_str(&format!(
            "{:<15}{:<22}{:<23}{:<16}{status:<14}{ports:<35}{NAME}\n",
            &ID[..SHORT],
            "ollama/ollama:latest",
            "\"/bin/ollama serve\"",
            "2 minutes ago"
        ));
    }
    Reply::said(text)
}

fn inspection(world: &World) -> Value {
    let pid = server_pid(world);
    let port = format!("{}/tcp", world.marker.port);
    let variables: Vec<String> = environment(world).into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    let bindings = json!({ port: [{ "HostIp": "127.0.0.1", "HostPort": world.marker.port.to_string() }] });
    json!({
        "Id": ID,
        "Created": moments::rfc3339_utc(world.clock.file().anchor_wall_unix_ms),
        "Path": "/bin/ollama",
        "Args": ["serve"],
        "State": {
            "Status": if pid.is_some() { "running" } else { "exited" },
            "Running": pid.is_some(), "Paused": false, "Restarting": false, "OOMKilled": false,
            "Dead": false, "Pid": pid.unwrap_or(0), "ExitCode": 0, "Error": "",
        },
        "Name": format!("/{NAME}"),
        "RestartCount": 0,
        "HostConfig": {
            "RestartPolicy": { "Name": "always", "MaximumRetryCount": 0 },
            "PortBindings": bindings.clone(),
            "NetworkMode": "bridge",
        },
        "Config": { "Image": "ollama/ollama:latest", "Env": variables, "Cmd": ["serve"], "Entrypoint": ["/bin/ollama"] },
        "NetworkSettings": { "Ports": if pid.is_some() { bindings } else { json!({}) } },
    })
}

fn stop(world: &World) {
    let processes = process_table::of(world);
    for process in processes.iter().filter(|process| process.name() == SHIM) {
        process_table::signal(process.pid, Signal::KILL);
    }
    for process in processes.iter().filter(|process| process.is_serve()) {
        process_table::signal(process.pid, Signal::TERM);
    }
    for _ in 0..200 {
        if server_pid(world).is_none() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn start(world: &World, name: &str) -> Reply {
    let shim = world.path(&format!("/usr/bin/{SHIM}")).display().to_string();
    let request = Request::Spawn {
        arguments: vec![shim, "-namespace".into(), "moby".into(), "-id".into(), ID.into()],
        environment: Vec::new(),
        output: world.state("container.log"),
    };
    match wire::ask(world, SERVICE, &request) {
        Ok(reply) if reply.code == 0 => Reply::said(format!("{name}\n")),
        Ok(reply) => reply,
        Err(error) => Reply::failed(1, format!("{error:#}")),
    }
}
