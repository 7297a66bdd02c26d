//! The release server, what it publishes, and what becomes of an archive that is put in place.

use std::io::{Cursor, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use ring::digest;
use serde_json::Value;

use crate::sandbox::{Sandbox, eventually, signal, text};

const LIST: &str = "/repos/ollama/ollama/releases?per_page=10";

/// Status, head and body of an answer. A connection that breaks ends the body.
fn get(sandbox: &Sandbox, path: &str, headers: &str) -> (u16, String, Vec<u8>) {
    let Ok(mut stream) = TcpStream::connect(host(sandbox)) else { return (0, String::new(), Vec::new()) };
    let request = format!("GET {path} HTTP/1.0\r\nHost: {}\r\n{headers}\r\n", host(sandbox));
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap_or(answer.len());
    let head = text(&answer[..end]);
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, head, answer.get(end + 4..).unwrap_or_default().to_vec())
}

fn host(sandbox: &Sandbox) -> String {
    let address = std::fs::read_to_string(sandbox.dir().join("releases/address")).unwrap();
    address.trim().strip_prefix("http://").unwrap().to_owned()
}

fn header(head: &str, name: &str) -> Option<String> {
    let prefix = format!("{name}: ");
    head.lines().find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned)
}

fn list(sandbox: &Sandbox) -> Value {
    let (status, _, body) = get(sandbox, LIST, "");
    assert_eq!(status, 200, "{}", text(&body));
    serde_json::from_slice(&body).unwrap()
}

/// Where a file of a release really lies, as the redirect tells.
fn place(sandbox: &Sandbox, version: &str, name: &str) -> Option<String> {
    let (status, head, _) = get(sandbox, &format!("/ollama/ollama/releases/download/v{version}/{name}"), "");
    let base = format!("http://{}", host(sandbox));
    (status == 302).then(|| header(&head, "location").unwrap().strip_prefix(&base).unwrap().to_owned())
}

fn file(sandbox: &Sandbox, version: &str, name: &str) -> Vec<u8> {
    get(sandbox, &place(sandbox, version, name).unwrap(), "").2
}

fn publish(sandbox: &Sandbox, words: &[&str]) -> String {
    let output = sandbox.verb("release", words);
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

fn sha256(bytes: &[u8]) -> String {
    digest::digest(&digest::SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn version_answered(sandbox: &Sandbox) -> String {
    let (_, body) = sandbox.http("GET", "/api/version", "");
    serde_json::from_str::<Value>(&body).map_or_else(|_| body, |value| value["version"].as_str().unwrap().to_owned())
}

/// Ends the app and puts a release's app in its place by two renames.
fn replace_app(sandbox: &Sandbox, version: &str) {
    if let Some(gui) = sandbox.pid("gui") {
        signal(gui, "TERM");
    }
    eventually(|| sandbox.pid("gui").is_none() && sandbox.pid("serve").is_none());
    let staged = sandbox.dir().join("Applications/.staged");
    zip::ZipArchive::new(Cursor::new(file(sandbox, version, "Ollama-darwin.zip"))).unwrap().extract(&staged).unwrap();
    let app = sandbox.dir().join("Applications/Ollama.app");
    std::fs::rename(&app, sandbox.dir().join(format!("before-{version}"))).unwrap();
    std::fs::rename(staged.join("Ollama.app"), app).unwrap();
}

#[test]
fn a_new_world_has_two_good_releases_whose_files_match_their_hashes() {
    let sandbox = Sandbox::start(&["--ollama", "0.22.1"]);
    let all = list(&sandbox);
    let tags: Vec<&str> = all.as_array().unwrap().iter().map(|release| release["tag_name"].as_str().unwrap()).collect();
    assert_eq!(tags, ["v0.24.0", "v0.22.1"]);
    for version in ["0.24.0", "0.22.1"] {
        let sums = text(&file(&sandbox, version, "sha256sum.txt"));
        let zip = file(&sandbox, version, "Ollama-darwin.zip");
        assert!(sums.contains(&format!("{}  ./Ollama-darwin.zip\n", sha256(&zip))), "{sums}");
    }
    let (_, _, one) = get(&sandbox, "/repos/ollama/ollama/releases/tags/v0.24.0", "");
    let one: Value = serde_json::from_slice(&one).unwrap();
    assert_eq!(one, all[0]);
    let zip = file(&sandbox, "0.24.0", "Ollama-darwin.zip");
    assert_eq!(one["assets"][0]["size"], zip.len());
    assert_eq!(get(&sandbox, "/repos/ollama/ollama/releases/tags/v9.9.9", "").0, 404);
}

#[test]
fn what_has_not_changed_costs_nothing_of_the_limit() {
    let sandbox = Sandbox::start(&["--owner", "none"]);
    let (_, head, _) = get(&sandbox, LIST, "");
    let state = header(&head, "etag").unwrap();
    assert_eq!(header(&head, "x-ratelimit-remaining").as_deref(), Some("59"));
    let (status, head, body) = get(&sandbox, LIST, &format!("If-None-Match: {state}\r\n"));
    assert_eq!((status, body.len()), (304, 0));
    assert_eq!(header(&head, "x-ratelimit-remaining").as_deref(), Some("59"));
    publish(&sandbox, &["0.25.0"]);
    assert_eq!(get(&sandbox, LIST, &format!("If-None-Match: {state}\r\n")).0, 200);
    assert_eq!(list(&sandbox)[0]["tag_name"], "v0.25.0");
}

#[test]
fn a_file_is_sent_on_from_where_it_stopped() {
    let sandbox = Sandbox::start(&["--owner", "none"]);
    let at = place(&sandbox, "0.24.0", "Ollama-darwin.zip").unwrap();
    let (_, head, whole) = get(&sandbox, &at, "");
    let state = header(&head, "etag").unwrap();
    let rest = format!("Range: bytes={}-\r\n", whole.len() - 100);
    let (status, head, end) = get(&sandbox, &at, &format!("{rest}If-Range: {state}\r\n"));
    assert_eq!((status, end.as_slice()), (206, &whole[whole.len() - 100..]));
    let range = format!("bytes {}-{}/{}", whole.len() - 100, whole.len() - 1, whole.len());
    assert_eq!(header(&head, "content-range"), Some(range));
    let (status, _, again) = get(&sandbox, &at, &format!("{rest}If-Range: \"another\"\r\n"));
    assert_eq!((status, again.len()), (200, whole.len()));
    assert_eq!(get(&sandbox, &at, &format!("Range: bytes={}-\r\n", whole.len())).0, 416);
}

#[test]
fn a_release_server_that_was_killed_comes_back_at_the_same_address() {
    let sandbox = Sandbox::start(&["--owner", "none"]);
    let before = host(&sandbox);
    list(&sandbox);
    let server = sandbox.pid("releases").unwrap();
    signal(server, "KILL");
    eventually(|| sandbox.pid("releases") != Some(server));
    list(&sandbox);
    assert_ne!(sandbox.pid("releases").unwrap(), server);
    sandbox.verb("stop", &[]);
    assert_eq!(get(&sandbox, LIST, "").0, 0);
    sandbox.restart(&[]);
    list(&sandbox);
    assert_eq!(host(&sandbox), before);
}

#[test]
fn the_network_goes_and_comes_and_questions_are_refused() {
    let sandbox = Sandbox::start(&["--owner", "none"]);
    sandbox.fault(&["no-network"]);
    assert!(TcpStream::connect(host(&sandbox)).is_err());
    sandbox.fault(&["clear"]);
    list(&sandbox);
    sandbox.fault(&["rate-limited", "--seconds", "300"]);
    let (status, head, body) = get(&sandbox, LIST, "");
    assert_eq!((status, header(&head, "x-ratelimit-remaining").as_deref()), (403, Some("0")));
    assert!(text(&body).contains("API rate limit exceeded"), "{}", text(&body));
    let reset: i64 = header(&head, "x-ratelimit-reset").unwrap().parse().unwrap();
    let wait = reset - sandbox.status()["wall_unix_ms"].as_i64().unwrap() / 1000;
    assert!((200..=300).contains(&wait), "{wait}");
    sandbox.fault(&["clear"]);
    sandbox.fault(&["too-many-requests", "--seconds", "30"]);
    let (status, head, _) = get(&sandbox, LIST, "");
    assert_eq!((status, header(&head, "retry-after").as_deref()), (429, Some("30")));
    sandbox.fault(&["clear"]);
    sandbox.fault(&["proxy-wanted"]);
    assert_eq!(get(&sandbox, LIST, "").0, 407);
    sandbox.fault(&["clear"]);
    sandbox.fault(&["releases-fail"]);
    assert_eq!(get(&sandbox, LIST, "").0, 502);
}

#[test]
fn downloads_are_cut_once_or_always_or_come_in_slowly() {
    let sandbox = Sandbox::start(&["--owner", "none", "--speed", "400"]);
    publish(&sandbox, &["--bad", "cut-once", "0.25.0"]);
    publish(&sandbox, &["--bad", "truncated", "0.25.1"]);
    publish(&sandbox, &["--bad", "slow", "0.25.2"]);
    let size = list(&sandbox)[0]["assets"][0]["size"].as_u64().unwrap() as usize;
    let lengths = |version: &str| [(); 2].map(|()| file(&sandbox, version, "Ollama-darwin.zip").len());
    assert_eq!(lengths("0.25.0"), [size / 2, size]);
    assert_eq!(lengths("0.25.1"), [size / 2, size / 2]);
    let from = sandbox.status()["wall_unix_ms"].as_i64().unwrap();
    assert_eq!(file(&sandbox, "0.25.2", "Ollama-darwin.zip").len(), size);
    let took = sandbox.status()["wall_unix_ms"].as_i64().unwrap() - from;
    assert!(took > 100_000, "{took}");
}

#[test]
fn bad_releases_are_bad_in_the_way_they_say() {
    let sandbox = Sandbox::start(&["--owner", "none"]);
    let published = |kind: &str| {
        publish(&sandbox, &["--bad", kind, "0.25.0"]);
        list(&sandbox)[0].clone()
    };
    let names = |release: &Value| -> Vec<String> {
        let assets = release["assets"].as_array().unwrap().iter();
        assets.map(|asset| asset["name"].as_str().unwrap().to_owned()).collect()
    };
    let sums = || text(&file(&sandbox, "0.25.0", "sha256sum.txt"));
    let zip = || file(&sandbox, "0.25.0", "Ollama-darwin.zip");
    published("wrong-hash");
    assert!(sums().contains("Ollama-darwin.zip") && !sums().contains(&sha256(&zip())));
    published("no-hash");
    assert!(!sums().contains("Ollama-darwin.zip"));
    assert_eq!(names(&published("no-sums")), ["Ollama-darwin.zip", "install.sh"]);
    assert_eq!(names(&published("no-asset")), ["install.sh", "sha256sum.txt"]);
    assert!(published("long-notes")["body"].as_str().unwrap().len() > 1_000_000);
    published("corrupt-zip");
    assert!(sums().contains(&sha256(&zip())));
    let folder = tempfile::tempdir().unwrap();
    assert!(zip::ZipArchive::new(Cursor::new(zip())).unwrap().extract(folder.path()).is_err());
    published("huge-by-header");
    let mut archive = zip::ZipArchive::new(Cursor::new(zip())).unwrap();
    let claimed: u64 = (0..archive.len()).map(|index| archive.by_index_raw(index).unwrap().size()).sum();
    assert!(claimed > 10_000_000_000, "{claimed}");
    published("zip-slip");
    let archive = zip::ZipArchive::new(Cursor::new(zip())).unwrap();
    assert!(archive.index_for_name("Ollama.app/Contents/Resources/../../../../slipped").is_some());
    published("absolute-link");
    let mut archive = zip::ZipArchive::new(Cursor::new(zip())).unwrap();
    let mut target = String::new();
    archive.by_name("Ollama.app/Contents/Resources/accounts").unwrap().read_to_string(&mut target).unwrap();
    assert_eq!(target, "/etc/passwd");
}

#[test]
fn kinds_are_listed_and_what_cannot_be_published_is_refused() {
    let sandbox = Sandbox::start(&["--os", "linux", "--owner", "none"]);
    let listed = publish(&sandbox, &["--bad"]);
    assert!(listed.contains("will-not-start") && listed.lines().count() > 20, "{listed}");
    assert!(publish(&sandbox, &["--bad", "nonsense", "0.25.0"]).contains("no release is bad in the way \"nonsense\""));
    assert!(publish(&sandbox, &["--bad", "will-not-start"]).contains("which version?"));
    assert!(publish(&sandbox, &["--bad", "llama-server-missing", "0.24.9"]).contains("came with 0.30"));
    assert!(publish(&sandbox, &["--bad", "wrong-team", "0.25.0"]).contains("only apps of macOS are signed"));
    assert!(publish(&sandbox, &["../0.25.0"]).contains("cannot be part of a tag"));
    assert_eq!(list(&sandbox).as_array().unwrap().len(), 2);
}

#[test]
fn an_app_that_is_put_in_place_by_renames_runs_at_its_own_version() {
    let sandbox = Sandbox::start(&["--ollama", "0.22.1"]);
    assert_eq!(version_answered(&sandbox), "0.22.1");
    replace_app(&sandbox, "0.24.0");
    let app = sandbox.dir().join("Applications/Ollama.app");
    assert!(app.join("Contents/Frameworks/Squirrel.framework/Versions/Current").is_symlink());
    assert!(app.join("Contents/Resources/en.lproj").is_dir());
    let mode = |path: &str| std::fs::metadata(app.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("Contents/MacOS/Ollama"), mode("Contents/Info.plist")), (0o755, 0o644));
    let program = sandbox.command("usr/local/bin/ollama", &["--version"]);
    assert!(text(&program.stdout).contains("client version is 0.24.0"), "{program:?}");
    sandbox.open_app();
    eventually(|| sandbox.status()["answering"] == true);
    assert_eq!(version_answered(&sandbox), "0.24.0");
    let gui = sandbox.pid("gui").unwrap();
    assert_eq!(std::fs::read_link(format!("/proc/{gui}/exe")).unwrap(), app.join("Contents/MacOS/Ollama"));
    let (status, words) =
        sandbox.http("POST", "/api/generate", "{\"model\":\"smollm:135m\",\"prompt\":\"hi\",\"stream\":false}");
    assert!(status == 200 && words.contains("\"eval_count\":80"), "{words}");
}

#[test]
fn many_first_starts_at_once_are_one_program() {
    let sandbox = Sandbox::start(&["--owner", "none", "--ollama", "0.22.1"]);
    replace_app(&sandbox, "0.24.0");
    let start = || {
        let mut command = std::process::Command::new(sandbox.dir().join("usr/local/bin/ollama"));
        command.arg("--version").stdout(std::process::Stdio::piped()).spawn().unwrap()
    };
    let starts: Vec<_> = (0..16).map(|_| start()).collect();
    for started in starts {
        let output = started.wait_with_output().unwrap();
        assert!(text(&output.stdout).contains("client version is 0.24.0"), "{output:?}");
    }
    let folder = std::fs::read_dir(sandbox.dir().join("Applications/Ollama.app/Contents/Resources")).unwrap();
    let mut names: Vec<_> = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["en.lproj", "mlx.metallib", "ollama"]);
}

#[test]
fn an_app_of_a_bad_release_fails_in_the_way_it_says() {
    let sandbox = Sandbox::start(&["--ollama", "0.31.0"]);
    let ask =
        || sandbox.http("POST", "/api/generate", "{\"model\":\"smollm:135m\",\"prompt\":\"hi\",\"stream\":false}");
    let start = |kind: &str| {
        publish(&sandbox, &["--bad", kind, "0.31.1"]);
        replace_app(&sandbox, "0.31.1");
        std::fs::remove_dir_all(sandbox.dir().join("before-0.31.1")).unwrap();
        let app = sandbox.dir().join("Applications/Ollama.app");
        let words = ["-g", "-j", "-a", app.to_str().unwrap(), "--env", "OLLAMA_NUM_PARALLEL=3"];
        assert!(sandbox.command("usr/bin/open", &words).status.success());
    };
    let answers = || eventually(|| sandbox.status()["answering"] == true);
    start("wrong-version");
    answers();
    assert_eq!(version_answered(&sandbox), "0.21.2");
    start("loses-settings");
    answers();
    assert!(sandbox.server_log().contains("OLLAMA_NUM_PARALLEL:1 "));
    start("generates-nothing");
    answers();
    let (status, words) = ask();
    assert!(status == 200 && words.contains("\"response\":\"\""), "{words}");
    start("llama-server-missing");
    answers();
    let (status, words) = ask();
    assert!(
        status == 500 && words.contains("error starting llama-server: llama-server binary not found (checked: "),
        "{words}"
    );
    start("server-crashes");
    eventually(|| sandbox.server_log().matches("server config").count() > 1);
    start("will-not-start");
    eventually(|| sandbox.pid("gui").is_none());
    let program = sandbox.command("usr/local/bin/ollama", &["--version"]);
    assert!(!program.status.success() && text(&program.stderr).contains("Library not loaded"), "{program:?}");
}

#[test]
fn signatures_of_bad_apps_are_told_by_codesign_and_spctl() {
    let sandbox = Sandbox::start(&["--owner", "none"]);
    let requirement = "-R=anchor apple generic and identifier \"com.electron.ollama\" and certificate leaf[subject.OU] = \"3MU9H2V9Y9\"";
    let codes = |kind: &str| {
        publish(&sandbox, &["--bad", kind, "0.25.0"]);
        let folder = tempfile::tempdir().unwrap();
        let zip = file(&sandbox, "0.25.0", "Ollama-darwin.zip");
        zip::ZipArchive::new(Cursor::new(zip)).unwrap().extract(folder.path()).unwrap();
        let app = folder.path().join("Ollama.app");
        let app = app.to_str().unwrap();
        let codesign = sandbox.command("usr/bin/codesign", &["--verify", "--deep", "--strict", requirement, app]);
        let spctl = sandbox.command("usr/sbin/spctl", &["-a", "-vv", "-t", "exec", app]);
        (codesign.status.code().unwrap(), spctl.status.code().unwrap(), text(&spctl.stderr))
    };
    let (codesign, spctl, _) = codes("wrong-hash");
    assert_eq!((codesign, spctl), (0, 0));
    let (codesign, spctl, said) = codes("wrong-team");
    assert_eq!((codesign, spctl), (3, 0));
    assert!(said.contains("(K7QX2D4M9B)"), "{said}");
    assert_eq!(codes("broken-seal").0, 1);
    assert_eq!(codes("unsigned").0, 1);
    let (codesign, spctl, said) = codes("not-notarised");
    assert_eq!((codesign, spctl), (0, 3));
    assert!(said.contains("source=Unnotarized Developer ID"), "{said}");
}

#[test]
fn a_tarball_beside_the_others_runs_once_the_link_leads_to_it() {
    let sandbox = Sandbox::start(&["--os", "linux", "--ollama", "0.22.1"]);
    let name = list(&sandbox)[0]["assets"][0]["name"].as_str().unwrap().to_owned();
    let packed = file(&sandbox, "0.24.0", &name);
    let plain = ruzstd::decoding::StreamingDecoder::new(Cursor::new(packed)).unwrap();
    let folder = sandbox.dir().join("usr/local/lib/versions/0.24.0");
    tar::Archive::new(plain).unpack(&folder).unwrap();
    assert!(folder.join("lib/ollama/libggml-base.so").is_symlink() && folder.join("lib/ollama/vulkan").is_dir());
    switch(&folder, &sandbox.dir().join("usr/local/bin/ollama"));
    sandbox.command("usr/bin/systemctl", &["restart", "ollama"]);
    eventually(|| sandbox.status()["answering"] == true);
    assert_eq!(version_answered(&sandbox), "0.24.0");
    let server = sandbox.pid("serve").unwrap();
    assert_eq!(std::fs::read_link(format!("/proc/{server}/exe")).unwrap(), folder.join("bin/ollama"));
}

fn switch(folder: &Path, link: &Path) {
    let neighbour = link.with_file_name(".ollama");
    symlink(folder.join("bin/ollama"), &neighbour).unwrap();
    std::fs::rename(neighbour, link).unwrap();
}
