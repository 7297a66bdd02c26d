mod cut_off;
mod disk;
mod faults;
mod journals;
mod plans;
mod refusals;

use super::database::Schema;
use super::deed::Deed;
use super::found::{Archive, BuiltInUpdater, Database, Folders, Found, Install, Rights, Wanted};
use super::kept::{KEPT_VERSIONS, Kept};
use super::order::{Order, Switch};
use super::plan::{Ask, Plan, plan, plan_rollback};
use crate::known::Known;
use crate::time::Wall;
use std::cmp::Ordering;

const FROM: &str = "0.22.1";
const TO: &str = "0.24.0";
/// Form of the database under each version.
const FORM_FROM: Schema = Schema(5);
const FORM_TO: Schema = Schema(7);

fn ask() -> Ask {
    Ask { id: "17".to_owned(), downgrade: false, set_database_aside: false, keep: KEPT_VERSIONS }
}

fn release(version: &str, against_installed: Ordering) -> Wanted {
    Wanted::Release {
        version: version.to_owned(),
        against_installed: Known::Is(against_installed),
        archives: vec![Archive {
            name: "Ollama-darwin.zip".to_owned(),
            url: "https://releases.example/v0.24.0/Ollama-darwin.zip".to_owned(),
            size_bytes: 190_000_000,
            unpacked_bytes: Known::unknown("it is not downloaded yet"),
            sha256: "ab".repeat(32),
        }],
    }
}

fn newer() -> Wanted {
    release(TO, Ordering::Greater)
}

/// A Mac with the app, whose own updater has staged something and left a backup.
fn app() -> Found {
    Found {
        install: Known::Is(Some(Install::App { bundle: "/Applications/Ollama.app".into() })),
        installed: Known::Is(FROM.to_owned()),
        running_from: Some("/Applications/Ollama.app".into()),
        owner: "app".to_owned(),
        restart: Ok(()),
        rights: Known::Is(Rights::Ours),
        busy: None,
        free_bytes: Known::Is(100 << 30),
        installed_bytes: Known::Is(600_000_000),
        updater: BuiltInUpdater {
            staged: vec!["/cache/updates/a/Ollama-darwin.zip".into()],
            stale_backup: Some("/cache/backup/Ollama.app".into()),
        },
        kept: vec![],
        pin: None,
        folders: Folders { work: "/data/upgrades".into(), kept: "/data/kept".into() },
        database: Some(Database { at: "/app/db.sqlite".into(), size_bytes: 4_000_000, schema: Known::Is(FORM_FROM) }),
        port: 11434,
    }
}

fn cask() -> Found {
    let install = Install::Cask { bundle: "/Applications/Ollama.app".into(), token: "ollama-app".to_owned() };
    Found { install: Known::Is(Some(install)), ..app() }
}

fn formula() -> Found {
    Found {
        install: Known::Is(Some(Install::Formula { program: "/opt/homebrew/bin/ollama".into() })),
        owner: "brew".to_owned(),
        running_from: None,
        updater: BuiltInUpdater::default(),
        database: None,
        ..app()
    }
}

/// A Linux machine as the official script leaves it, or with the link that we have made of it.
fn tarball(linked: bool) -> Found {
    let install = Install::Tarball {
        program: "/usr/local/bin/ollama".into(),
        linked: linked.then(|| "/data/kept/0.22.1-3".into()),
        libraries: "/usr/local/lib/ollama".into(),
    };
    Found {
        install: Known::Is(Some(install)),
        owner: "systemd".to_owned(),
        rights: Known::Is(Rights::Polkit),
        ..formula()
    }
}

/// The machine after an upgrade to the newer version, with the former one kept.
fn upgraded(found: Found) -> Found {
    let install = match found.install.known().cloned().flatten() {
        Some(Install::Tarball { program, libraries, .. }) => {
            Install::Tarball { program, libraries, linked: Some("/data/kept/0.24.0-9".into()) }
        }
        Some(other) => other,
        None => panic!("nothing is installed"),
    };
    Found {
        install: Known::Is(Some(install)),
        installed: Known::Is(TO.to_owned()),
        kept: vec![kept(FROM, 9)],
        database: found.database.map(|database| Database { schema: Known::Is(FORM_TO), ..database }),
        ..found
    }
}

fn kept(version: &str, day: i64) -> Kept {
    Kept {
        version: version.to_owned(),
        at: format!("/data/kept/{version}-{day}").into(),
        since: Wall::from_unix_ms(day * 86_400_000),
        database: Some(format!("/data/kept/{version}-{day}.sqlite").into()),
        schema: Known::Is(FORM_FROM),
    }
}

/// Every kind of plan that can be taken back.
fn every_plan() -> Vec<(&'static str, Plan)> {
    let rollback = |found: Found| plan_rollback(&found, None, &Ask { set_database_aside: true, ..ask() }).unwrap();
    let mut same_form = upgraded(app());
    same_form.database = app().database;
    vec![
        ("app", plan(&app(), &newer(), &ask()).unwrap()),
        ("cask", plan(&cask(), &newer(), &ask()).unwrap()),
        ("tarball", plan(&tarball(true), &newer(), &ask()).unwrap()),
        ("tarball of the official script", plan(&tarball(false), &newer(), &ask()).unwrap()),
        ("rollback of an app", rollback(same_form)),
        ("rollback of an app with its database", rollback(upgraded(app()))),
        ("rollback of a cask", rollback(upgraded(cask()))),
        ("rollback of a tarball", rollback(upgraded(tarball(true)))),
    ]
}

fn printed(plan: &Plan) -> String {
    let lines: Vec<_> = plan.steps().map(|step| step.to_string()).collect();
    lines.join("\n")
}
