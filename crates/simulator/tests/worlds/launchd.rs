use std::os::unix::fs::PermissionsExt;

use crate::sandbox::{Sandbox, eventually, text};

fn uid() -> String {
    let output = std::process::Command::new("/usr/bin/id").arg("-u").output().unwrap();
    text(&output.stdout).trim().to_owned()
}

fn write_agent(sandbox: &Sandbox, label: &str, words: &[&str]) -> String {
    let arguments: String = words.iter().map(|word| format!("<string>{word}</string>")).collect();
    let path = sandbox.home().join(format!("Library/LaunchAgents/{label}.plist"));
    std::fs::write(
        &path,
        format!(
            "<?xml version=\"1.0\"?><plist version=\"1.0\"><dict><key>Label</key><string>{label}</string>\
             <key>ProgramArguments</key><array>{arguments}</array><key>KeepAlive</key><true/></dict></plist>"
        ),
    )
    .unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    path.display().to_string()
}

#[test]
fn a_job_is_loaded_kept_alive_drained_and_gone() {
    let sandbox = Sandbox::start(&["--owner", "none"]);
    let domain = format!("gui/{}", uid());
    let target = format!("{domain}/t.keeper");
    let plist = write_agent(&sandbox, "t.keeper", &["/bin/cat", "/dev/zero"]);
    assert!(sandbox.launchctl(&["bootstrap", &domain, &plist]).status.success());
    let again = sandbox.launchctl(&["bootstrap", &domain, &plist]);
    assert_eq!(again.status.code(), Some(5));
    assert!(text(&again.stderr).starts_with("Bootstrap failed: 5: Input/output error\n"));
    let printed = text(&sandbox.launchctl(&["print", &target]).stdout);
    assert!(printed.contains("\n\tstate = running\n"), "{printed}");

    sandbox.launchctl(&["kill", "SIGKILL", &target]);
    eventually(|| text(&sandbox.launchctl(&["print", &target]).stdout).contains("\n\truns = 2\n"));

    sandbox.fault(&["bootstrap-5-after-bootout"]);
    assert!(sandbox.launchctl(&["bootout", &target]).status.success());
    assert_eq!(sandbox.launchctl(&["bootstrap", &domain, &plist]).status.code(), Some(5));
    eventually(|| sandbox.launchctl(&["print", &target]).status.code() == Some(113));
    assert!(sandbox.launchctl(&["bootstrap", &domain, &plist]).status.success());
}

#[test]
fn errors_have_the_codes_of_macos() {
    let sandbox = Sandbox::start(&["--owner", "none"]);
    let domain = format!("gui/{}", uid());
    let none = format!("{domain}/no.such");
    let printed = sandbox.launchctl(&["print", &none]);
    assert_eq!(printed.status.code(), Some(113));
    assert!(text(&printed.stderr).starts_with("Bad request.\nCould not find service \"no.such\""));
    assert_eq!(sandbox.launchctl(&["bootout", &none]).status.code(), Some(3));
    assert_eq!(sandbox.launchctl(&["bootstrap", "gui/99999", "/x"]).status.code(), Some(125));
    assert_eq!(sandbox.launchctl(&["getenv", "NOT_SET"]).stdout, b"");

    sandbox.fault(&["setenv-denied"]);
    let denied = sandbox.launchctl(&["setenv", "A", "b"]);
    assert!(!denied.status.success());
    assert_eq!(text(&denied.stderr), "Not privileged to set domain environment.\n");

    sandbox.fault(&["no-gui-session"]);
    assert_eq!(text(&sandbox.launchctl(&["managername"]).stdout), "Background\n");
    assert_eq!(sandbox.launchctl(&["print", &domain]).status.code(), Some(125));
    assert!(!sandbox.dir().join(".sim/console").exists());
}

#[test]
fn a_disabled_agent_cannot_be_loaded() {
    let sandbox = Sandbox::start(&["--owner", "none"]);
    let domain = format!("gui/{}", uid());
    let plist = write_agent(&sandbox, "dev.stablehand.ollama-env", &["/bin/cat", "/dev/zero"]);
    sandbox.fault(&["agent-disabled"]);
    assert_eq!(sandbox.launchctl(&["bootstrap", &domain, &plist]).status.code(), Some(5));
    let listed = text(&sandbox.launchctl(&["print-disabled", &domain]).stdout);
    assert!(listed.contains("\t\t\"dev.stablehand.ollama-env\" => disabled\n"), "{listed}");
    sandbox.fault(&["clear"]);
    assert!(sandbox.launchctl(&["bootstrap", &domain, &plist]).status.success());
}
