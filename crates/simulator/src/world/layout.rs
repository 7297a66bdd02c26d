//! The files of a new world.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

use super::clock::ClockFile;
use super::{MARKER, Marker, Os, Owner, World, write_whole};
use crate::commands::brew;
use crate::models::{self, Format, Model};
use crate::releases::contents::{self, FLAW};
use crate::releases::flaw::Flaw;
use crate::releases::{Release, keeper};

/// Where the master copy of the multi-call program lies.
pub const PROGRAM: &str = ".sim/stablehand-sim";

/// Links that play commands on macOS.
const MACOS_COMMANDS: [&str; 15] = [
    "bin/launchctl",
    "usr/bin/open",
    "usr/bin/xattr",
    "usr/bin/codesign",
    "usr/sbin/spctl",
    "usr/bin/ditto",
    "usr/sbin/sysctl",
    "usr/bin/vm_stat",
    "usr/bin/footprint",
    "usr/sbin/ioreg",
    "usr/sbin/lsof",
    "usr/bin/plutil",
    "usr/bin/osascript",
    "bin/ps",
    "opt/homebrew/bin/brew",
];

/// Links that play commands on Linux.
const LINUX_COMMANDS: [&str; 4] = ["usr/bin/systemctl", "usr/bin/journalctl", "usr/bin/pkexec", "usr/bin/docker"];

/// Makes the world `dir` from nothing; `cask` says that the app came with Homebrew's cask.
pub fn create(dir: &Path, marker: &Marker, owner: Owner, cask: bool, speed: f64) -> Result<World> {
    std::fs::create_dir_all(dir.join(".sim/faults")).with_context(|| format!("cannot create {}", dir.display()))?;
    let dir = dir.canonicalize()?;
    let program = std::env::current_exe().context("the path of this program is not known")?;
    std::fs::copy(&program, dir.join(PROGRAM))
        .with_context(|| format!("cannot copy {} into the world", program.display()))?;
    ClockFile::starting_now(speed).write(&dir.join("clock.json"))?;
    let marker_path = dir.join(MARKER);
    write_whole(&marker_path, &serde_json::to_vec_pretty(marker)?)?;
    std::fs::set_permissions(&marker_path, std::fs::Permissions::from_mode(0o644))?;
    let world = World::open(&dir)?;
    write_whole(&world.state("owner"), serde_json::to_string(&owner)?.as_bytes())?;
    write_whole(&world.state("console"), marker.user.as_bytes())?;

    std::fs::create_dir_all(world.home().join(".ollama/logs"))?;
    let models: Vec<Model> = models::of_a_new_world()
        .into_iter()
        .filter(|model| match model.format {
            Format::Gguf => true,
            Format::Safetensors => marker.os == Os::Macos,
        })
        .collect();
    install_models(&world, &models)?;
    install_program(&world, &world.path(keeper::PROGRAM))?;
    match marker.os {
        Os::Macos => create_macos(&world, owner)?,
        Os::Linux => create_linux(&world, owner)?,
    }
    if cask {
        record_cask(&world, &marker.ollama)?;
    }
    Ok(world)
}

/// Puts a program file at `path`, in one go: another name of the master copy where the
/// system tells processes apart by the name they were started by, else a copy.
pub fn install_program(world: &World, path: &Path) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let master = world.dir.join(PROGRAM);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let neighbour = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let linked = std::env::consts::OS != "macos" && std::fs::hard_link(&master, &neighbour).is_ok();
    if !linked {
        std::fs::copy(&master, &neighbour).with_context(|| format!("cannot create {}", path.display()))?;
    }
    // Never written over: the old file may be another name of the master.
    std::fs::rename(&neighbour, path).with_context(|| format!("cannot create {}", path.display()))?;
    // Where the old file was the same one under another name, a rename leaves both (rename(2)).
    let _ = std::fs::remove_file(neighbour);
    Ok(())
}

/// Builds an Ollama.app of `version` at `bundle`.
pub fn install_bundle(world: &World, bundle: &Path, version: &str) -> Result<()> {
    contents::put(world, bundle, &contents::bundle(&Release::sound(version, 0)))
}

/// Where a bundle keeps its seal.
pub const SEAL: &str = "Contents/_CodeSignature/CodeResources";

/// Seals a bundle, in the name of a team and its authority or of Ollama's developer.
pub fn seal(bundle: &Path, version: &str, signer: Option<[&str; 2]>) -> Result<()> {
    write_whole(&bundle.join(SEAL), contents::seal(version, signer, true).as_bytes())
}

/// The version a program file belongs to, from its surroundings, and what is wrong with it.
pub fn version_of_program(executable: &Path) -> Option<(String, Option<Flaw>)> {
    let flaw_in = |folder: PathBuf| Flaw::named(std::fs::read_to_string(folder.join(FLAW)).ok()?.trim());
    for folder in executable.ancestors().skip(1).take(7) {
        if let Some(version) = version_of_bundle(folder) {
            return Some((version, flaw_in(folder.join("Contents/Resources"))));
        }
        for libraries in ["", "lib/ollama", "libexec/lib/ollama"] {
            let libraries = folder.join(libraries);
            if let Ok(text) = std::fs::read_to_string(libraries.join("version")) {
                return Some((text.trim().to_owned(), flaw_in(libraries)));
            }
        }
        if folder.join(MARKER).exists() {
            break;
        }
    }
    None
}

/// `CFBundleShortVersionString` of a bundle.
pub fn version_of_bundle(bundle: &Path) -> Option<String> {
    let file = bundle.join("Contents/Info.plist");
    let value = plist::Value::from_file(file).ok()?;
    let version = value.as_dictionary()?.get("CFBundleShortVersionString")?;
    version.as_string().map(str::to_owned)
}

/// The label and file of the Homebrew service.
pub fn brew_plist(world: &World) -> (String, PathBuf) {
    let label = "homebrew.mxcl.ollama".to_owned();
    let file = world.home().join(format!("Library/LaunchAgents/{label}.plist"));
    (label, file)
}

/// Installs the Homebrew formula and its service file.
pub fn install_brew(world: &World, version: &str) -> Result<()> {
    let prefix = world.path("/opt/homebrew");
    let keg = prefix.join("Cellar/ollama").join(version);
    contents::put(world, &keg, &contents::keg(&Release::sound(version, 0)))?;
    link_keg(world, &keg)?;
    write_brew_service(world)
}

/// Writes the service file of the formula, as `brew services start` does.
pub fn write_brew_service(world: &World) -> Result<()> {
    let prefix = world.path("/opt/homebrew");
    std::fs::create_dir_all(prefix.join("var/log"))?;
    let opt = prefix.join("opt/ollama");
    let (label, file) = brew_plist(world);
    let log = prefix.join("var/log/ollama.log").display().to_string();
    let job = json!({
        "Label": label,
        "ProgramArguments": [opt.join("bin/ollama").display().to_string(), "serve"],
        "KeepAlive": true,
        "RunAtLoad": true,
        "WorkingDirectory": prefix.join("var").display().to_string(),
        "EnvironmentVariables": {
            "OLLAMA_FLASH_ATTENTION": "1",
            "OLLAMA_KV_CACHE_TYPE": "q8_0",
        },
        "StandardOutPath": log,
        "StandardErrorPath": log,
        "LimitLoadToSessionType": ["Aqua", "Background", "LoginWindow", "StandardIO", "System"],
    });
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    plist::to_file_xml(&file, &job)?;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644))?;
    Ok(())
}

/// Makes a keg the one that is in use: `opt/ollama` and `bin/ollama` lead to it.
pub fn link_keg(world: &World, keg: &Path) -> Result<()> {
    let prefix = world.path("/opt/homebrew");
    relink(keg, &prefix.join("opt/ollama"))?;
    relink(&keg.join("bin/ollama"), &prefix.join("bin/ollama"))
}

/// Homebrew's own record that the app came from its cask.
pub fn record_cask(world: &World, version: &str) -> Result<()> {
    let room = world.path("/opt/homebrew/Caskroom").join(brew::CASK);
    let folder = room.join(version);
    std::fs::create_dir_all(&folder)?;
    relink(&world.path("/Applications/Ollama.app"), &folder.join("Ollama.app"))?;
    write_whole(&room.join(".metadata/INSTALL_RECEIPT.json"), b"{\"installed_on_request\":true}")
}

fn relink(target: &Path, link: &Path) -> Result<()> {
    std::fs::create_dir_all(link.parent().unwrap_or(link))?;
    if link.is_symlink() {
        std::fs::remove_file(link)?;
    }
    symlink(target, link).with_context(|| format!("cannot create {}", link.display()))
}

fn create_macos(world: &World, owner: Owner) -> Result<()> {
    link_commands(world, &MACOS_COMMANDS)?;
    install_program(world, &world.path("/sbin/launchd"))?;
    install_program(world, &world.path("/bin/zsh"))?;
    std::fs::create_dir_all(world.home().join("Library/LaunchAgents"))?;
    std::fs::create_dir_all(world.home().join("Library/Caches"))?;
    if owner == Owner::Brew {
        return install_brew(world, &world.marker.ollama);
    }
    let bundle = world.path("/Applications/Ollama.app");
    install_bundle(world, &bundle, &world.marker.ollama)?;
    crate::app::settings::create(world)?;
    let tool = world.path("/usr/local/bin/ollama");
    std::fs::create_dir_all(world.path("/usr/local/bin"))?;
    symlink(bundle.join("Contents/Resources/ollama"), tool)?;
    Ok(())
}

fn create_linux(world: &World, owner: Owner) -> Result<()> {
    link_commands(world, &LINUX_COMMANDS)?;
    install_program(world, &world.path("/lib/systemd/systemd"))?;
    install_program(world, &world.path("/bin/zsh"))?;
    install_program(world, &world.path("/usr/bin/containerd-shim-runc-v2"))?;
    let tool = world.path("/usr/local/bin/ollama");
    contents::put(world, &world.path("/usr/local"), &contents::tarball(&Release::sound(&world.marker.ollama, 0)))?;
    std::fs::create_dir_all(world.path("/etc/systemd/system"))?;
    std::fs::create_dir_all(world.home().join(".config/systemd/user"))?;
    let tool = tool.display();
    let (unit, target) = match owner {
        Owner::UserUnit => (
            format!(
                "[Unit]\nDescription=Ollama Service\n\n[Service]\nExecStart={tool} serve\nRestart=always\nRestartSec=3\n\n[Install]\nWantedBy=default.target\n"
            ),
            world.home().join(".config/systemd/user"),
        ),
        Owner::Systemd => (
            format!(
                "[Unit]\nDescription=Ollama Service\nAfter=network-online.target\n\n[Service]\nExecStart={tool} serve\nUser=ollama\nGroup=ollama\nRestart=always\nRestartSec=3\nEnvironment=\"PATH={}\"\n\n[Install]\nWantedBy=default.target\n",
                world.search_path()
            ),
            world.path("/etc/systemd/system"),
        ),
        Owner::App | Owner::Brew | Owner::Manual | Owner::Container | Owner::None => return Ok(()),
    };
    write_whole(&target.join("ollama.service"), unit.as_bytes())?;
    let wants = target.join("default.target.wants");
    std::fs::create_dir_all(&wants)?;
    symlink(target.join("ollama.service"), wants.join("ollama.service"))?;
    Ok(())
}

fn link_commands(world: &World, commands: &[&str]) -> Result<()> {
    for command in commands {
        let link = world.dir.join(command);
        if let Some(folder) = link.parent() {
            std::fs::create_dir_all(folder)?;
        }
        symlink(world.dir.join(PROGRAM), &link).with_context(|| format!("cannot create {}", link.display()))?;
    }
    Ok(())
}

fn install_models(world: &World, models: &[Model]) -> Result<()> {
    let store = world.home().join(".ollama/models");
    for model in models {
        let configuration = json!({
            "model_format": model.format,
            "model_family": model.architecture,
            "model_families": [model.architecture],
            "model_type": model.parameter_size,
            "file_type": model.quantization,
            "architecture": "amd64",
            "os": "linux",
        })
        .to_string();
        let configuration_digest: String = model.blob_digest.chars().rev().collect();
        write_whole(&store.join(format!("blobs/sha256-{configuration_digest}")), configuration.as_bytes())?;
        let mut layers = Vec::new();
        for (digest, layer) in weights_layers(model) {
            write_whole(&store.join(format!("blobs/sha256-{digest}")), &serde_json::to_vec_pretty(model)?)?;
            layers.push(layer);
        }
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
            "config": {
                "mediaType": "application/vnd.docker.container.image.v1+json",
                "digest": format!("sha256:{configuration_digest}"),
                "size": configuration.len(),
            },
            "layers": layers,
        });
        let (name, tag) = model.name.split_once(':').unwrap_or((&model.name, "latest"));
        write_whole(
            &store.join(format!("manifests/registry.ollama.ai/library/{name}/{tag}")),
            manifest.to_string().as_bytes(),
        )?;
    }
    Ok(())
}

/// Digest and manifest entry of each blob of a model's weights: one for GGUF,
/// one per tensor for the MLX engine (a few stand for all).
fn weights_layers(model: &Model) -> Vec<(String, serde_json::Value)> {
    match model.format {
        Format::Gguf => {
            let layer = json!({
                "mediaType": "application/vnd.ollama.image.model",
                "digest": format!("sha256:{}", model.blob_digest),
                "size": model.weights_bytes,
            });
            vec![(model.blob_digest.clone(), layer)]
        }
        Format::Safetensors => {
            let names = ["model.embed_tokens.weight", "model.layers.weight", "lm_head.weight"];
            let share = model.weights_bytes / names.len() as u64;
            names
                .iter()
                .enumerate()
                .map(|(index, name)| {
                    let mut digest = model.blob_digest.clone();
                    digest.replace_range(..1, &index.to_string());
                    let layer = json!({
                        "mediaType": "application/vnd.ollama.image.tensor",
                        "digest": format!("sha256:{digest}"),
                        "size": share,
                        "name": name,
                    });
                    (digest, layer)
                })
                .collect()
        }
    }
}
