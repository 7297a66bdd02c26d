//! Homebrew's cask and formula, and how they are upgraded to what the world has published.

use serde_json::Value;

use crate::sandbox::{Sandbox, eventually, text};

fn brew(sandbox: &Sandbox, words: &[&str]) -> (i32, String) {
    let output = sandbox.command("opt/homebrew/bin/brew", words);
    (output.status.code().unwrap(), format!("{}{}", text(&output.stdout), text(&output.stderr)))
}

fn told(sandbox: &Sandbox, words: &[&str]) -> Value {
    serde_json::from_str(&brew(sandbox, words).1).unwrap()
}

fn version(sandbox: &Sandbox) -> String {
    sandbox.http("GET", "/api/version", "").1
}

#[test]
fn a_cask_is_upgraded_and_marked_while_the_old_app_goes_on() {
    let sandbox = Sandbox::start(&["--ollama", "0.22.1", "--cask"]);
    assert_eq!(brew(&sandbox, &["list", "--versions", "ollama-app"]), (0, "ollama-app 0.22.1\n".to_owned()));
    assert_eq!(brew(&sandbox, &["list", "--cask"]).1, "ollama-app\n");
    let cask = told(&sandbox, &["info", "--json=v2", "--cask", "ollama-app"])["casks"][0].clone();
    assert_eq!(
        (&cask["version"], &cask["installed"], &cask["outdated"]),
        (&"0.24.0".into(), &"0.22.1".into(), &true.into())
    );
    assert_eq!(told(&sandbox, &["outdated", "--json=v2"])["casks"][0]["name"], "ollama-app");
    let (code, said) = brew(&sandbox, &["fetch", "--cask", "ollama-app"]);
    assert!(code == 0 && said.contains("Downloaded to: "), "{said}");
    sandbox.fault(&["no-network"]);
    let (code, said) = brew(&sandbox, &["upgrade", "--cask", "ollama-app"]);
    assert!(code == 0 && said.ends_with("🍺  ollama-app was successfully upgraded!\n"), "{said}");
    assert!(said.contains("did not quit"), "{said}");
    assert!(version(&sandbox).contains("0.22.1"), "the old one goes on");
    let app = sandbox.dir().join("Applications/Ollama.app");
    let mark = sandbox.command("usr/bin/xattr", &["-p", "com.apple.quarantine", app.to_str().unwrap()]);
    assert!(text(&mark.stdout).starts_with("0181;") && text(&mark.stdout).contains(";Homebrew\\x20Cask;"), "{mark:?}");
    sandbox.restart_app();
    assert!(version(&sandbox).contains("0.24.0"));
    let (code, said) = brew(&sandbox, &["upgrade", "--cask", "ollama-app"]);
    assert_eq!(
        (code, said.as_str()),
        (0, "Warning: Not upgrading ollama-app, the latest version is already installed\n")
    );
}

#[test]
fn the_formula_is_upgraded_and_its_service_goes_on_until_it_is_restarted() {
    let sandbox = Sandbox::start(&["--ollama", "0.30.0", "--owner", "brew"]);
    let formula = told(&sandbox, &["info", "--json=v2", "--formula", "ollama"])["formulae"][0].clone();
    assert_eq!((&formula["versions"]["stable"], &formula["outdated"]), (&"0.24.0".into(), &false.into()));
    let (code, said) = brew(&sandbox, &["upgrade", "--formula", "ollama"]);
    assert_eq!((code, said.as_str()), (0, "Warning: ollama 0.30.0 already installed\n"));
    sandbox.verb("release", &["--bad", "llama-server-missing", "0.30.5"]);
    let (code, said) = brew(&sandbox, &["upgrade", "--formula", "ollama"]);
    assert!(code == 0 && said.contains("Removing: "), "{said}");
    assert_eq!(brew(&sandbox, &["list", "--versions", "ollama"]).1, "ollama 0.30.5\n");
    let client = sandbox.command("opt/homebrew/bin/ollama", &["--version"]);
    let said = text(&client.stdout);
    assert!(said.contains("version is 0.30.0") && said.contains("client version is 0.30.5"), "{said}");
    brew(&sandbox, &["services", "restart", "ollama"]);
    eventually(|| version(&sandbox).contains("0.30.5"));
    let (status, words) = sandbox.http("POST", "/api/generate", "{\"model\":\"smollm:135m\",\"prompt\":\"hi\"}");
    assert!(status == 500 && words.contains("llama-server binary not found"), "{words}");
}

#[test]
fn what_goes_wrong_is_told_in_homebrews_words_and_leaves_the_app() {
    let sandbox = Sandbox::start(&["--ollama", "0.22.1", "--cask", "--owner", "none"]);
    let upgrade = || brew(&sandbox, &["upgrade", "--cask", "ollama-app"]);
    let fails = |words: &str| {
        let (code, said) = upgrade();
        assert!(code == 1 && said.contains(words), "{said}");
        assert_eq!(brew(&sandbox, &["list", "--versions", "ollama-app"]).1, "ollama-app 0.22.1\n");
        assert!(sandbox.dir().join("Applications/Ollama.app/Contents/Info.plist").is_file());
    };
    sandbox.fault(&["no-network"]);
    fails("Could not resolve host");
    sandbox.fault(&["clear"]);
    for (kind, words) in [
        ("wrong-hash", "SHA-256 mismatch"),
        ("truncated", "curl: (18)"),
        ("no-asset", "404"),
        ("corrupt-zip", "exited with 3"),
    ] {
        sandbox.verb("release", &["--bad", kind, "0.24.1"]);
        fails(words);
    }
    sandbox.verb("release", &["0.24.1"]);
    sandbox.fault(&["brew-at-work"]);
    fails("has already locked");
    sandbox.fault(&["clear"]);
    assert_eq!(upgrade().0, 0);
    assert_eq!(brew(&sandbox, &["upgrade", "--formula", "ollama"]), (1, "Error: ollama not installed\n".to_owned()));
    let (code, said) = brew(&sandbox, &["info", "--json=v2", "--cask", "nothing"]);
    assert!(code == 1 && said.contains("No Cask with this name exists"), "{said}");
}
