use super::*;
use stablehand_engine::process::Identity;
use stablehand_engine::time::Wall;

#[test]
fn every_part_of_the_app_is_known_wherever_the_bundle_lies() {
    for folder in
        ["", "/Users/sim", "/Volumes/Big Disk", "/private/var/folders/x/AppTranslocation/1B2C/d", "/tmp/world-1"]
    {
        let bundle = PathBuf::from(format!("{folder}/Applications/Ollama.app"));
        let inside = |path: &str| bundle.join(path).to_string_lossy().into_owned();
        assert_eq!(
            of(&inside("Contents/MacOS/Ollama"), &["Ollama", "hidden"]),
            Some(Role::Gui { bundle: bundle.clone() })
        );
        let shim = inside("Contents/Frameworks/Squirrel.framework/Versions/A/Squirrel");
        assert_eq!(of(&shim, &[&shim, "background"]), Some(Role::Shim { bundle: bundle.clone() }));
        let ollama = inside("Contents/Resources/ollama");
        assert_eq!(of(&ollama, &[&ollama, "serve"]), Some(Role::Serve));
        assert_eq!(of(&ollama, &[&ollama, "run", "gemma3"]), None);
        let server = inside("Contents/Resources/llama-server");
        let argv = [&server, "--model", "/m/x.gguf", "--port", "49934", "-c", "32768", "-np", "4"];
        assert!(matches!(of(&server, &argv), Some(Role::Runner(_))));
    }
}

#[test]
fn a_renamed_bundle_is_still_a_gui() {
    let path = "/Applications/Ollama 0.30.app/Contents/MacOS/Ollama";
    let bundle = PathBuf::from("/Applications/Ollama 0.30.app");
    assert_eq!(of(path, &["/Applications/Ollama 0.30.app/Contents/MacOS/Ollama"]), Some(Role::Gui { bundle }));
}

#[test]
fn a_server_is_known_by_program_or_by_the_name_it_was_called() {
    assert_eq!(of("/usr/local/bin/ollama", &["/usr/local/bin/ollama", "serve"]), Some(Role::Serve));
    assert_eq!(of("/usr/local/bin/ollama", &["ollama", "start"]), Some(Role::Serve));
    assert_eq!(of("/nix/store/x/bin/.ollama-wrapped", &["/nix/store/x/bin/ollama", "serve"]), Some(Role::Serve));
    assert_eq!(of("/usr/local/bin/ollama (deleted)", &["ollama", "serve"]), Some(Role::Serve));
    assert_eq!(of("/bin/zsh", &["zsh", "-c", "ollama serve"]), None);
    assert_eq!(of("/usr/local/bin/ollama", &["ollama"]), None);
    assert_eq!(of("/usr/local/bin/ollama", &["ollama", "stop", "gemma3"]), None);
    assert_eq!(of("/usr/local/bin/ollama-bench", &["ollama-bench", "serve"]), None);
}

#[test]
fn the_arguments_of_a_llama_server_are_read() {
    let program = "/opt/homebrew/Cellar/ollama/0.34.1/libexec/lib/ollama/llama-server";
    let argv = [
        program,
        "--model",
        "/Volumes/SSD/ollama/blobs/sha256-ab12",
        "--port",
        "50123",
        "--host",
        "127.0.0.1",
        "--no-webui",
        "--offline",
        "-c",
        "65536",
        "-np",
        "2",
        "--log-verbosity",
        "4",
        "--flash-attn",
        "on",
        "-b",
        "2048",
    ];
    let Some(Role::Runner(args)) = of(program, &argv) else { panic!("no runner") };
    assert_eq!(args.kind, RunnerKind::LlamaServer);
    assert_eq!(args.model, Known::Is("/Volumes/SSD/ollama/blobs/sha256-ab12".to_owned()));
    assert_eq!((args.port, args.slots, args.context_tokens), (Known::Is(50123), Known::Is(2), Known::Is(65536)));
}

#[test]
fn somebody_elses_llama_server_is_nobodys_runner() {
    let program = "/home/sim/llama.cpp/build/bin/llama-server";
    assert_eq!(of(program, &[program, "--model", "/home/sim/gguf/x.gguf", "--port", "8080"]), None);
    let blob = "/home/sim/.ollama/models/blobs/sha256-ab12";
    assert!(of(program, &[program, "-m", blob]).is_some());
    let ours = "/usr/local/lib/ollama/llama-server (deleted)";
    assert!(of(ours, &[ours, "--model=/models/x.gguf", "--port=5"]).is_some());
    assert_eq!(of("/usr/local/lib/ollama/llama-server", &["llama-server", "--list-devices", "--offline"]), None);
}

#[test]
fn old_and_mlx_runners_say_less() {
    let program = "/Applications/Ollama.app/Contents/Resources/ollama";
    let Some(Role::Runner(old)) =
        of(program, &[program, "runner", "--ollama-engine", "--model", "/m/blobs/sha256-1", "--port", "61000"])
    else {
        panic!("no runner")
    };
    assert_eq!((old.kind, old.port), (RunnerKind::OllamaRunner, Known::Is(61000)));
    assert!(old.slots.known().is_none());
    let Some(Role::Runner(mlx)) =
        of(program, &[program, "runner", "--mlx-engine", "--model", "qwen3:4b-mlx", "--port", "61001"])
    else {
        panic!("no runner")
    };
    assert_eq!((mlx.kind, mlx.slots), (RunnerKind::Mlx, Known::Is(1)));
}

#[test]
fn what_cannot_be_read_has_no_part() {
    let mut process = process("/x", &[]);
    process.executable = Known::unknown("not readable");
    process.argv = Known::unknown("not readable");
    assert_eq!(role(&process), None);
    process.argv = Known::Is(vec!["/Applications/Ollama.app/Contents/MacOS/Ollama".to_owned()]);
    assert!(matches!(role(&process), Some(Role::Gui { .. })));
    process.argv = Known::Is(vec!["ollama".to_owned(), "serve".to_owned()]);
    assert_eq!(role(&process), Some(Role::Serve));
}

#[test]
fn a_command_line_of_the_log_is_put_together_again() {
    let line = "/Volumes/Big Disk/Ollama.app/Contents/Resources/llama-server --model /Volumes/Big Disk/m/blobs/sha256-1 \
                --port 53411 -c 16384 -np 4 --no-jinja";
    let args = runner_of_command_line(line).unwrap();
    assert_eq!(args.model, Known::Is("/Volumes/Big Disk/m/blobs/sha256-1".to_owned()));
    assert_eq!((args.port, args.slots), (Known::Is(53411), Known::Is(4)));
    let old = runner_of_command_line("/usr/bin/ollama runner --model /m/x --port 5").unwrap();
    assert_eq!(old.kind, RunnerKind::OllamaRunner);
    assert_eq!(runner_of_command_line("/bin/sh -c true"), None);
    assert_eq!(runner_of_command_line(""), None);
}

#[test]
fn a_few_architectures_get_one_slot() {
    assert!(forced_to_one("qwen35").is_some());
    assert!(forced_to_one("qwen3").is_none());
    assert!(SINGLE_SLOT_ARCHITECTURES.is_sorted());
}

fn of(program: &str, argv: &[&str]) -> Option<Role> {
    role(&process(program, argv))
}

fn process(program: &str, argv: &[&str]) -> Process {
    Process {
        id: Identity { pid: 1, birth: 1 },
        parent: None,
        uid: Known::Is(501),
        started: Wall::from_unix_ms(0),
        executable: Known::Is(PathBuf::from(program)),
        argv: Known::Is(argv.iter().map(|word| (*word).to_owned()).collect()),
        environment: Known::unknown("not read"),
    }
}
