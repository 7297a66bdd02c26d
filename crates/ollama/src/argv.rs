//! Which part of Ollama a process plays, from its program file and its argument list.
//!
//! Paths are recognised by their end, never by where they begin: a bundle may lie in a home folder, on another volume,
//! under a random path of app translocation, or below the folder of a simulated world.

use stablehand_engine::Known;
use stablehand_engine::owner::{enclosing_bundle, lies_in_ollama};
use stablehand_engine::process::{Process, Role, RunnerArgs, RunnerKind};
use std::path::{Path, PathBuf};

/// The part of Ollama that a process plays; `None` for clients (`ollama run`) and everybody else.
///
/// A `llama-server` is Ollama's when it serves one of Ollama's blobs or lies in a folder of Ollama's; anybody may run
/// one of his own.
pub fn role(process: &Process) -> Option<Role> {
    let argv = process.argv.known().map_or(&[][..], Vec::as_slice);
    let called = argv.first().map(|name| undeleted(Path::new(name)));
    let program = process.executable.known().map(|path| undeleted(path));
    let absolute = |path: &PathBuf| path.is_absolute();
    let path = program.clone().or_else(|| called.clone().filter(absolute));
    if let Some(role) = path.as_deref().and_then(|path| app_role(path, argv)) {
        return Some(role);
    }
    let is = |name: &str| {
        [&program, &called].into_iter().flatten().any(|path| path.file_name().is_some_and(|file| file == name))
    };
    let first = argv.get(1).map(String::as_str);
    if is("ollama") {
        return match first? {
            "serve" | "start" => Some(Role::Serve),
            "runner" => Some(Role::Runner(ollama_runner(&argv[2..]))),
            _ => None,
        };
    }
    if is("llama-server") {
        let args = llama_server(argv.get(1..)?);
        let serves_blob = args.model.known().is_some_and(|model| model.contains("/blobs/sha256-"));
        let in_ollama = path.as_deref().is_some_and(lies_in_ollama);
        let has_model = args.model.known().is_some();
        return (has_model && (serves_blob || in_ollama)).then_some(Role::Runner(args));
    }
    None
}

/// What the command line of a runner says of it, as the log shows it: joined by spaces, without quotes. A model path
/// with a space in it is put together again up to the next option.
pub fn runner_of_command_line(command_line: &str) -> Option<RunnerArgs> {
    let words: Vec<String> = command_line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
    let first_option = words.iter().position(|word| word.starts_with('-')).unwrap_or(words.len());
    let (program, options) = words.split_at(first_option);
    if program.last().is_some_and(|word| word == "runner") {
        return Some(ollama_runner(options));
    }
    let file = program.last()?.rsplit('/').next()?;
    (file == "llama-server").then(|| llama_server(options))
}

/// Architectures that Ollama gives a single slot, whatever `OLLAMA_NUM_PARALLEL` says (`ollama server/sched.go`).
pub const SINGLE_SLOT_ARCHITECTURES: [&str; 11] = [
    "lfm2",
    "lfm2moe",
    "mllama",
    "nemotron_h",
    "nemotron_h_moe",
    "nemotron_h_omni",
    "qwen35",
    "qwen35moe",
    "qwen3next",
    "qwen3vl",
    "qwen3vlmoe",
];

/// Why a model of this architecture gets one slot; `None` when it gets as many as the setting says. Embedding models
/// and MLX models get one as well, whatever their architecture.
pub fn forced_to_one(architecture: &str) -> Option<&'static str> {
    SINGLE_SLOT_ARCHITECTURES
        .contains(&architecture)
        .then_some("Ollama works on one request at a time with models of this architecture, whatever the setting says")
}

/// Linux appends ` (deleted)` to the path of a program that was replaced while it runs, as an upgrade does.
fn undeleted(path: &Path) -> PathBuf {
    match path.to_str().and_then(|text| text.strip_suffix(" (deleted)")) {
        Some(text) => PathBuf::from(text),
        None => path.to_path_buf(),
    }
}

fn app_role(path: &Path, argv: &[String]) -> Option<Role> {
    let bundle = enclosing_bundle(path)?;
    let inside = path.strip_prefix(bundle).ok()?;
    if inside == Path::new("Contents/MacOS/Ollama") {
        return Some(Role::Gui { bundle: bundle.to_path_buf() });
    }
    let shim = inside.starts_with("Contents/Frameworks/Squirrel.framework")
        && inside.file_name().is_some_and(|file| file == "Squirrel")
        && argv.get(1).is_some_and(|word| word == "background");
    shim.then(|| Role::Shim { bundle: bundle.to_path_buf() })
}

fn llama_server(options: &[String]) -> RunnerArgs {
    let value = |names: &[&str]| option(options, names);
    RunnerArgs {
        kind: RunnerKind::LlamaServer,
        model: given(value(&["--model", "-m"]), "its arguments name no model"),
        port: number(value(&["--port"]), "its arguments name no port"),
        slots: number(value(&["-np", "--parallel"]), "its arguments do not say how many slots it has"),
        context_tokens: number(value(&["-c", "--ctx-size"]), "its arguments do not say how long its context is"),
    }
}

fn ollama_runner(options: &[String]) -> RunnerArgs {
    let value = |names: &[&str]| option(options, names);
    let model = given(value(&["--model"]), "its arguments name no model");
    let port = number(value(&["--port"]), "its arguments name no port");
    if options.iter().any(|word| word == "--mlx-engine") {
        let context = "an MLX runner is not told its context by its arguments";
        return RunnerArgs {
            kind: RunnerKind::Mlx,
            model,
            port,
            slots: Known::Is(1),
            context_tokens: Known::unknown(context),
        };
    }
    let told_later = "this runner is told it by a request, not by its arguments";
    RunnerArgs {
        kind: RunnerKind::OllamaRunner,
        model,
        port,
        slots: number(value(&["--parallel"]), told_later),
        context_tokens: number(value(&["--ctx-size"]), told_later),
    }
}

/// The value of an option, as the next word or after `=`. Words up to the next option belong to it: only a path with
/// spaces has more than one, and only where the words came from a log line.
fn option(options: &[String], names: &[&str]) -> Option<String> {
    for (index, word) in options.iter().enumerate() {
        if names.contains(&word.as_str()) {
            let rest = options.get(index + 1..)?;
            // A negative number is a value and no option.
            let ends =
                |word: &String| word.starts_with('-') && !word[1..].starts_with(|next: char| next.is_ascii_digit());
            let words: Vec<&str> = rest.iter().take_while(|word| !ends(word)).map(String::as_str).collect();
            return if words.is_empty() { None } else { Some(words.join(" ")) };
        }
        if let Some((name, value)) = word.split_once('=')
            && names.contains(&name)
        {
            return Some(value.to_owned());
        }
    }
    None
}

fn given(value: Option<String>, reason: &str) -> Known<String> {
    value.map_or_else(|| Known::unknown(reason), Known::Is)
}

fn number<T: std::str::FromStr>(value: Option<String>, reason: &str) -> Known<T> {
    match value {
        None => Known::unknown(reason),
        Some(text) => {
            text.parse().map_or_else(|_| Known::unknown(format!("its arguments hold no number: {text}")), Known::Is)
        }
    }
}

#[cfg(test)]
mod tests;
