//! Deeds on files of the system, carried out as root by `pkexec(1)`: this very program, with the name of the deed and
//! the order on its standard input.
//!
//! A service of the system starts what such a deed leaves, so nothing of it may lie where somebody else can write. Root
//! believes the order nothing that it can check: every path has to be one of the few that an install of Ollama has, and
//! an archive is hashed again where nobody can change it any more.

use super::deeds::{Before, Files};
use super::{finding, journal};
use serde::{Deserialize, Serialize};
use stablehand_engine::plan::{Again, StepFailure};
use stablehand_engine::upgrade::deed::Deed;
use stablehand_engine::upgrade::fault::Fault;
use stablehand_engine::upgrade::order::{Order, Switch};
use stablehand_ollama::releases;
use stablehand_platform::command::{Invocation, run};
use stablehand_platform::machine::{Machine, WORLD_VARIABLE};
use stablehand_platform::paths::versions_of_the_system;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// `pkexec(1)`
const PKEXEC: &str = "/usr/bin/pkexec";
/// The person at the dialog gave no rights, or nobody could be asked (`pkexec(1)`).
const REFUSED: [Option<i32>; 2] = [Some(126), Some(127)];
/// Where programs of a service of the system lie.
const PREFIXES: [&str; 3] = ["/usr/local", "/usr", "/opt/ollama"];

/// Whether a deed changes files of the system.
pub(super) fn is_needed(deed: Deed, order: &Order) -> bool {
    order.polkit
        && match deed {
            Deed::Unpack
            | Deed::KeepCopy
            | Deed::SwitchLink
            | Deed::LinkBack
            | Deed::DropReplaced
            | Deed::DropNew
            | Deed::DropCopy
            | Deed::Commit => true,
            Deed::Download
            | Deed::BrewFetch
            | Deed::CheckHash
            | Deed::CheckVersion
            | Deed::CheckSignature
            | Deed::ClearQuarantine
            | Deed::Stop
            | Deed::SetUpdaterAside
            | Deed::CopyDatabase
            | Deed::UseOldDatabase
            | Deed::MoveOut
            | Deed::MoveIn
            | Deed::Brew
            | Deed::CheckInPlace
            | Deed::ClearInPlace
            | Deed::Start
            | Deed::Prove
            | Deed::StopNew
            | Deed::MoveNewOut
            | Deed::MoveOldBack
            | Deed::SetDatabaseAside
            | Deed::PutDatabaseBack
            | Deed::PutUpdaterBack
            | Deed::StartOld
            | Deed::ProveOld
            | Deed::DropDatabaseCopy
            | Deed::Tidy => false,
        }
}

/// What the program that is root says.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Said {
    Done(String),
    Failed { code: String, reason: String },
}

/// Lets root carry a deed out.
///
/// # Errors
/// A [`Fault`].
pub(super) async fn carry_out(machine: &Machine, deed: Deed, order: &Order) -> Result<String, Fault> {
    let place = &order.slots.place;
    let failed = |reason: String| Fault::File { path: place.clone(), reason };
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let written = journal::order_text(order).map_err(failed)?;
    let asked = Invocation::new(machine.at(PKEXEC)).arg(program).args(["deed", deed.name()]).stdin(written);
    let asked = match machine.simulated() {
        Some(world) => asked.env(WORLD_VARIABLE, world),
        None => asked,
    };
    let output = run(machine, &asked.timeout(deed.allowance())).await.map_err(|error| failed(error.to_string()))?;
    if REFUSED.contains(&output.code) {
        return Err(Fault::Server(StepFailure {
            code: "polkit-refused",
            message: format!("the rights to change {} were not given: {}", place.display(), output.said()),
            hint: "run it at the screen, or as root: sudo stablehand upgrade".to_owned(),
            again: Again::Never,
        }));
    }
    match serde_json::from_str(&output.stdout) {
        Ok(Said::Done(note)) => Ok(note),
        Ok(Said::Failed { code, .. }) if code == "upgrade-no-space" => Err(Fault::NoSpace(place.clone())),
        Ok(Said::Failed { code, .. }) if code == "download-wrong-hash" => Err(Fault::WrongHash),
        Ok(Said::Failed { reason, .. }) => Err(failed(reason)),
        Err(_) => Err(failed(output.said())),
    }
}

/// The root's side: reads the order, carries one deed out, and says how it went as JSON.
///
/// # Errors
/// The reason, when nothing was begun.
pub(super) async fn serve(machine: &Machine, deed: &str, order: &[u8]) -> Result<String, String> {
    if machine.uid() != 0 && machine.simulated().is_none() {
        return Err("this is run by pkexec, as root".to_owned());
    }
    let deed = Deed::named(deed).ok_or_else(|| format!("there is no deed «{deed}»"))?;
    let order = journal::order_of(order)?;
    if !is_needed(deed, &order) {
        return Err(format!("{} needs no rights of root", deed.name()));
    }
    believable(machine, &order)?;
    let before: Before = Arc::new(|_what, _path| Ok(()));
    let files = Files { machine: machine.clone(), before };
    let done = match files.change(deed, &order).await {
        Some(done) => done,
        None if deed == Deed::Unpack => unpack(&files, order).await,
        // The one deed that is left of those that need it.
        None => files.keep_copy(&order).await,
    };
    let said = match done {
        Ok(note) => Said::Done(note),
        Err(fault) => Said::Failed { code: fault.code().to_owned(), reason: fault.to_string() },
    };
    serde_json::to_string(&said).map_err(|error| error.to_string())
}

/// Unpacks archives that were brought where nobody else can write, and hashed there.
async fn unpack(files: &Files, mut order: Order) -> Result<String, Fault> {
    let folder = order.slots.new.with_file_name(format!(".{}.download", order.id));
    let fetched = fetch_and_unpack(files, &mut order, &folder).await;
    let disk = files.disk();
    let removed = disk.remove_tree(&folder);
    fetched.and_then(|note| removed.map(|()| note))
}

async fn fetch_and_unpack(files: &Files, order: &mut Order, folder: &Path) -> Result<String, Fault> {
    let disk = files.disk();
    disk.create_folders(folder)?;
    for (index, download) in order.downloads.iter_mut().enumerate() {
        let safe = folder.join(index.to_string());
        let from = download.file.clone();
        disk.change("write", &safe, || fs::copy(&from, &safe).map(|_bytes| ()))?;
        download.file = safe;
        releases::check(download).await?;
    }
    let note = files.unpack(order, &|_| {}).await?;
    files.open_to_all(&order.slots.new)?;
    Ok(note)
}

/// Whether every path of an order is one that an install of Ollama by its script has.
fn believable(machine: &Machine, order: &Order) -> Result<(), String> {
    let versions = versions_of_the_system(machine);
    let slots = &order.slots;
    let own = |path: &Path| path.parent() == Some(versions.as_path()) && finding::is_of_a_version(path);
    let prefix = slots.place.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let known_prefix = PREFIXES.iter().any(|known| machine.at(known) == prefix);
    let right = order.switch == Switch::Link
        && known_prefix
        && slots.place == prefix.join("bin/ollama")
        && own(&slots.old)
        && own(&slots.new)
        && order.replaced.iter().all(|path| *path == prefix.join("lib/ollama"))
        && order.remove.iter().all(|path| own(path))
        && finding::time_of(&order.id).is_some();
    if right { Ok(()) } else { Err("the order names paths that an install of Ollama does not have".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stablehand_engine::upgrade::order::{Goal, Slots};

    fn order(machine: &Machine) -> Order {
        let versions = versions_of_the_system(machine);
        Order {
            id: "20261130T101112345".to_owned(),
            goal: Goal::Upgrade,
            switch: Switch::Link,
            from: "0.22.1".to_owned(),
            to: "0.24.0".to_owned(),
            owner: "systemd".to_owned(),
            port: 11434,
            polkit: true,
            work: machine.home().join("work/a"),
            slots: Slots {
                place: machine.at("/usr/local/bin/ollama"),
                old: versions.join("0.22.1-20261130T101112345"),
                new: versions.join("0.24.0-20261130T101112345"),
                discard: machine.home().join("work/a/d"),
            },
            downloads: vec![],
            aside: vec![],
            database: None,
            remove: vec![],
            replaced: vec![machine.at("/usr/local/lib/ollama")],
            pin: None,
        }
    }

    fn world() -> (tempfile::TempDir, Machine) {
        let dir = tempfile::tempdir().unwrap();
        let marker = r#"{"format":1,"os":"linux","user":"sim","home":"/home/sim","port":41873,"ollama":"0.22.1","memory_bytes":68719476736,"gpu_working_set_bytes":51539607552}"#;
        fs::write(dir.path().join("stablehand-world.json"), marker).unwrap();
        let clock = r#"{"speed":1.0,"anchor_monotonic_ms":0,"anchor_wall_unix_ms":1796000000000,"slept_ms":0}"#;
        fs::write(dir.path().join("clock.json"), clock).unwrap();
        fs::create_dir_all(dir.path().join("home/sim")).unwrap();
        let machine = Machine::world(dir.path()).unwrap();
        (dir, machine)
    }

    #[test]
    fn root_believes_the_paths_of_an_install_and_no_others() {
        let (_dir, machine) = world();
        let good = order(&machine);
        assert_eq!(believable(&machine, &good), Ok(()));
        type Spoil = fn(&mut Order);
        let spoils: [Spoil; 6] = [
            |order| order.slots.place = "/etc/passwd".into(),
            |order| order.slots.new = "/tmp/evil".into(),
            |order| order.slots.old = order.slots.old.join("../../../etc"),
            |order| order.remove.push("/etc".into()),
            |order| order.replaced.push("/usr/lib".into()),
            |order| order.switch = Switch::Renames,
        ];
        for (number, spoil) in spoils.into_iter().enumerate() {
            let mut bad = good.clone();
            spoil(&mut bad);
            assert!(believable(&machine, &bad).is_err(), "{number}");
        }
    }

    #[tokio::test]
    async fn the_old_version_is_kept_and_the_link_switched_and_switched_back() {
        let (_dir, machine) = world();
        let order = order(&machine);
        let place = &order.slots.place;
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, "program").unwrap();
        fs::create_dir_all(machine.at("/usr/local/lib/ollama")).unwrap();
        fs::create_dir_all(order.slots.new.join("bin")).unwrap();
        let text = journal::order_text(&order).unwrap();
        for deed in ["keep-copy", "switch-link"] {
            let said = serve(&machine, deed, &text).await.unwrap();
            assert!(said.contains("done"), "{deed}: {said}");
        }
        assert_eq!(fs::read_link(place).unwrap(), order.slots.new.join("bin/ollama"));
        assert_eq!(fs::read_to_string(order.slots.old.join("bin/ollama")).unwrap(), "program");
        serve(&machine, "link-back", &text).await.unwrap();
        assert_eq!(fs::read_link(place).unwrap(), order.slots.old.join("bin/ollama"));
        assert!(serve(&machine, "stop", &text).await.is_err(), "that is no matter of root's");
    }
}
