//! The ways in which a world can be disturbed.

pub mod app;
pub mod machine;
pub mod network;
pub mod runners;
pub mod server;
pub mod session;
pub mod stranger;
pub mod updates;
pub mod work;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::machine_memory;
use crate::named::named;
use crate::world::{Os, World, notes, write_whole};
use work::Site;

/// What `fault` was called with beyond the name.
#[derive(Debug, Default)]
pub struct Details {
    /// Model whose runner is meant.
    pub model: Option<String>,
    /// Length, for faults that have one.
    pub seconds: Option<u64>,
    /// How often, for faults that are counted.
    pub times: Option<u64>,
}

named! {
    /// A fault.
    pub enum Fault {
        SessionChangedByHand = "session-changed-by-hand": "someone sets NUM_PARALLEL 7, MAX_LOADED_MODELS 5 and MAX_QUEUE 99 by hand and restarts Ollama (on Linux: in Stablehand's own drop-in, or override.conf if there is none)",
        LaterDropIn = "later-drop-in": "Linux: someone sets the same values in zzz-local.conf, which beats every other drop-in, and restarts Ollama",
        Open600Twice = "open-600-twice": "the next two starts through open fail with error -600",
        OpenActivatesDyingApp = "open-activates-dying-app": "the next start through open says nothing, exits 0 and starts nothing",
        Bootstrap5AfterBootout = "bootstrap-5-after-bootout": "a job drains for 4 s after bootout and cannot be bootstrapped meanwhile (lasting)",
        Bootout36 = "bootout-36": "bootout answers 36 although it goes on (lasting)",
        NoGuiSession = "no-gui-session": "nobody is at the screen: managername Background, no GUI domain (lasting)",
        SetenvDenied = "setenv-denied": "launchctl setenv is not privileged (lasting)",
        AgentDisabled = "agent-disabled": "Stablehand's agents are switched off in the background items (lasting)",
        SlowQuit = "slow-quit": "the app takes 30 s to quit on SIGTERM (lasting)",
        GuiIgnoresSigterm = "gui-ignores-sigterm": "the app ignores every signal it could quit by (lasting)",
        ServeIgnoresSigint = "serve-ignores-sigint": "the server ignores SIGINT (lasting)",
        OrphanServe = "orphan-serve": "the app is killed and its server stays behind with the port",
        OrphanRunner = "orphan-runner": "the server is killed and its runner stays behind with the memory",
        CliResurrectsApp = "cli-resurrects-app": "the command line opens the app again as soon as it is gone, with today's session values (once)",
        LostLoginRace = "lost-login-race": "a new login in which the app starts before the agents run",
        CrashLoop = "crash-loop": "the server exits 2 at each start, from now on (lasting)",
        SlowStart = "slow-start": "from the next start on, the server's port is open 20 s before it answers (lasting)",
        StartNeverAnswers = "start-never-answers": "from the next start on, the server's port is open and never answers (lasting)",
        StartHangsOnce = "start-hangs-once": "the next start of the server never answers, the one after does",
        PortStranger = "port-stranger": "another program takes the port while Ollama is away (lasting)",
        TwoOllamas = "two-ollamas": "a second copy of the app and a Homebrew service fight for the port",
        AppOverridesContext = "app-overrides-context": "the app's own settings set the context to 65536 (lasting)",
        ExposeOn = "expose-on": "\"Expose to network\" is switched on in the app (lasting)",
        ConfigLineMissing = "config-line-missing": "the server's log is gone and cannot be written (lasting)",
        RenameEperm = "rename-eperm": "apps may not be moved or changed: App Management refuses (lasting)",
        AppQuarantined = "app-quarantined": "Homebrew marked the app with com.apple.quarantine, and nobody has approved it (lasting)",
        AppSignedByOthers = "app-signed-by-others": "the app is sealed and notarised, and signed by another team (lasting)",
        AppSealBroken = "app-seal-broken": "a sealed file of the app is missing (lasting)",
        AppUnsigned = "app-unsigned": "the app is not signed at all (lasting)",
        DiskFull = "disk-full": "the volume says that it has no room left (lasting)",
        PkexecRefused = "pkexec-refused": "the person refuses to give root's rights (lasting)",
        BadLogFormat2025 = "bad-log-format-2025": "the server logs in the format of early 2025, from now on (lasting)",
        MemoryPressure = "memory-pressure": "memory is critically short and swap grows (lasting)",
        RunnerStuck = "runner-stuck": "the runner's decode loop stands still while its HTTP side lives",
        RunnerStopped = "runner-stopped": "the runner is stopped by SIGSTOP",
        RunnerBusyLoop = "runner-busy-loop": "the runner burns CPU without any progress",
        RunnerEmptyReplies = "runner-empty-replies": "the runner's GPU was reset: every request is an empty success of one token",
        RunnerHttpDead = "runner-http-dead": "the runner's HTTP side answers nothing more; its process and its decode loop live",
        RunnerKilled = "runner-killed": "the runner is killed; the server goes on listing it",
        StoppingForEver = "stopping-for-ever": "a request hangs in the runner and its model is told to unload: it is listed as stopping and never goes",
        SchedulerBlocked = "scheduler-blocked": "the server's scheduler blocks: /api/version answers, /api/ps and whatever needs a model never do",
        ServeCorrupt = "serve-corrupt": "every runner of this server is ten times slower and breaks at its second request",
        ServerSilent = "server-silent": "the server's port is open and nothing is answered, not even an answer that was begun",
        SlowSwapping = "slow-swapping": "the machine pages: swap-ins and swap-outs grow every second and runners are ten times slower (lasting)",
        UnexpectedModel = "unexpected-model": "a client loads another model (gemma4:26b, or the one that is named)",
        WorkSteady = "work-steady": "healthy: one client that generates all the time, until work-stop",
        WorkLongPrefill = "work-long-prefill": "healthy: a prompt that takes 11 minutes until its first token",
        WorkFirstPromptSwapping = "work-first-prompt-swapping": "healthy: the first prompt of a fresh runner while the machine pages; its first batch takes 3 minutes",
        WorkImage = "work-image": "healthy: an image that is encoded for 2 minutes before the first prompt token",
        WorkFourSlots = "work-four-slots": "healthy: a prompt of 47,000 tokens beside three clients that generate, in four slots (needs NUM_PARALLEL 4)",
        WorkStalledClient = "work-stalled-client": "healthy: a client that stops reading in the middle of a long answer",
        WorkLongLoad = "work-long-load": "healthy: a model whose load takes 5 minutes",
        WorkQueue = "work-queue": "healthy: 200 requests for one model at the same time",
        WorkStop = "work-stop": "ends every client and what its work asked for",
        NoNetwork = "no-network": "the server that the releases come from is not reached (lasting)",
        RateLimited = "rate-limited": "the releases are refused with 403 for ten minutes: too many questions from this address (lasting)",
        TooManyRequests = "too-many-requests": "the releases are refused with 429, to be asked again in a minute (lasting)",
        ProxyWanted = "proxy-wanted": "a proxy stands before the releases and wants a name and a password (lasting)",
        ReleasesFail = "releases-fail": "the server that the releases come from answers 502 (lasting)",
        UpdaterStaged = "updater-staged": "the app has downloaded the newest release and puts it in place when it next starts hidden (lasting)",
        UpdaterStaleBackup = "updater-stale-backup": "an upgrade of the app by itself was broken off: its backup is in the way of the next one (lasting)",
        AppTranslocated = "app-translocated": "the app lies in Downloads and macOS runs it from a random read-only folder (lasting)",
        AppFromBackup = "app-from-backup": "the app runs from the folder of its own updater's backup (lasting)",
        BrewAtWork = "brew-at-work": "somebody runs Homebrew, which locks what it works on (lasting)",
        NewChat = "new-chat": "a person writes a chat in the app",
        Clear = "clear": "takes every lasting fault back",
    }
}

/// Raises the fault of that name and returns when its effect is complete.
pub fn raise(world: &World, name: &str, details: &Details) -> Result<String> {
    let Some(fault) = Fault::named(name) else {
        bail!("there is no fault {name}; nothing was changed, `fault` without a name lists them");
    };
    let lasting = |parameters: &Value, said: &str| -> Result<String> {
        notes::raise(world, fault, parameters)?;
        Ok(said.to_owned())
    };
    let seconds = |default: u64| json!({ "seconds": details.seconds.unwrap_or(default) });
    match fault {
        Fault::SessionChangedByHand => session::changed_by_hand(world),
        Fault::LaterDropIn => session::later_drop_in(world),
        Fault::Open600Twice => {
            macos_only(world)?;
            let times = details.times.unwrap_or(2);
            lasting(&json!({ "times": times }), &format!("the next {times} starts through open fail with -600"))
        }
        Fault::OpenActivatesDyingApp => {
            macos_only(world)?;
            lasting(&json!({ "times": 1 }), "the next open starts nothing and exits 0")
        }
        Fault::Bootstrap5AfterBootout => {
            macos_only(world)?;
            lasting(&seconds(4), "jobs drain slowly after bootout")
        }
        Fault::Bootout36 => {
            macos_only(world)?;
            lasting(&json!({}), "bootout answers 36 from now on")
        }
        Fault::NoGuiSession => session::nobody_at_the_screen(world),
        Fault::SetenvDenied => {
            macos_only(world)?;
            lasting(&json!({}), "setenv is refused from now on")
        }
        Fault::AgentDisabled => session::agents_disabled(world),
        Fault::SlowQuit => {
            macos_only(world)?;
            lasting(&seconds(30), "the app quits slowly from now on")
        }
        Fault::GuiIgnoresSigterm => {
            macos_only(world)?;
            lasting(&json!({}), "the app ignores signals from now on")
        }
        Fault::ServeIgnoresSigint => lasting(&json!({}), "the server ignores SIGINT from now on"),
        Fault::OrphanServe => app::orphan_serve(world),
        Fault::OrphanRunner => runners::orphan(world, details),
        Fault::CliResurrectsApp => session::resurrect(world),
        Fault::LostLoginRace => session::lose_login_race(world),
        Fault::CrashLoop => app::crash_loop(world),
        Fault::SlowStart => lasting(&seconds(20), "the server starts slowly from its next start on"),
        Fault::StartNeverAnswers => lasting(&json!({}), "the server never answers after its next start"),
        Fault::StartHangsOnce => lasting(&json!({ "times": 1 }), "the next start of the server hangs"),
        Fault::PortStranger => stranger::take_port(world),
        Fault::TwoOllamas => app::two_ollamas(world),
        Fault::AppOverridesContext => app::override_setting(world, fault, "context_length", 65_536),
        Fault::ExposeOn => app::override_setting(world, fault, "expose", 1),
        Fault::ConfigLineMissing => app::lose_log(world),
        Fault::RenameEperm => {
            notes::raise(world, fault, &json!({}))?;
            machine::forbid_renames(world, true)?;
            Ok("apps may not be moved from now on".to_owned())
        }
        Fault::AppQuarantined => app::quarantine(world),
        Fault::AppSignedByOthers | Fault::AppSealBroken | Fault::AppUnsigned => app::change_signature(world, fault),
        Fault::DiskFull => {
            write_whole(&world.path(VOLUME), json!({ "free_bytes": 0 }).to_string().as_bytes())?;
            lasting(&json!({}), "the volume is full")
        }
        Fault::PkexecRefused => lasting(&json!({}), "root's rights are refused from now on"),
        Fault::BadLogFormat2025 => app::old_log_format(world),
        Fault::MemoryPressure => lasting(&machine_memory::paging_from_now(world), "memory is critically short"),
        Fault::SlowSwapping => {
            lasting(&machine_memory::paging_from_now(world), "the machine pages and its runners are slow")
        }
        Fault::RunnerStuck
        | Fault::RunnerStopped
        | Fault::RunnerBusyLoop
        | Fault::RunnerEmptyReplies
        | Fault::RunnerHttpDead
        | Fault::RunnerKilled => runners::disturb(world, fault, details),
        Fault::StoppingForEver => runners::stop_for_ever(world, details),
        Fault::UnexpectedModel => runners::load_another(world, details),
        Fault::SchedulerBlocked => server::disturb(world, fault, Some("/api/ps")),
        Fault::ServerSilent => server::disturb(world, fault, Some("/api/version")),
        Fault::ServeCorrupt => server::disturb(world, fault, None),
        Fault::WorkSteady => Site::new(world, fault, details)?.steady(),
        Fault::WorkLongPrefill => Site::new(world, fault, details)?.long_prefill(),
        Fault::WorkFirstPromptSwapping => Site::new(world, fault, details)?.first_prompt_swapping(),
        Fault::WorkImage => Site::new(world, fault, details)?.image(),
        Fault::WorkFourSlots => Site::new(world, fault, details)?.four_slots(),
        Fault::WorkStalledClient => Site::new(world, fault, details)?.stalled_client(),
        Fault::WorkLongLoad => Site::new(world, fault, details)?.long_load(),
        Fault::WorkQueue => Site::new(world, fault, details)?.queue(),
        Fault::WorkStop => work::stop(world),
        Fault::NoNetwork => network::go(world),
        Fault::RateLimited => {
            let until = world.clock.wall_ms() / 1000 + details.seconds.unwrap_or(600) as i64;
            lasting(&json!({ "until_unix_seconds": until }), "the releases are refused: too many questions")
        }
        Fault::TooManyRequests => lasting(&seconds(60), "the releases are refused: too many requests"),
        Fault::ProxyWanted => lasting(&json!({}), "a proxy wants a name and a password"),
        Fault::ReleasesFail => lasting(&json!({}), "the releases fail"),
        Fault::UpdaterStaged => updates::stage(world),
        Fault::UpdaterStaleBackup => updates::leave_backup(world),
        Fault::AppTranslocated | Fault::AppFromBackup => updates::run_elsewhere(world, fault),
        Fault::BrewAtWork => updates::run_homebrew(world),
        Fault::NewChat => updates::write_chat(world),
        Fault::Clear => clear(world),
    }
}

/// What the machine's volume says about itself, where that is not what the host's says.
const VOLUME: &str = "/volume.json";

/// Refuses a fault of macOS in another world.
pub fn macos_only(world: &World) -> Result<()> {
    if world.marker.os != Os::Macos {
        bail!("this fault exists on macOS only; nothing was changed");
    }
    Ok(())
}

/// Takes back everything that lasts.
fn clear(world: &World) -> Result<String> {
    let mut cleared = Vec::new();
    for fault in Fault::ALL.iter().copied() {
        if !notes::is_raised(world, fault) {
            continue;
        }
        match fault {
            Fault::NoGuiSession => {
                write_whole(&world.state("console"), world.marker.user.as_bytes())?;
            }
            Fault::AgentDisabled => session::agents_enabled(world)?,
            Fault::RenameEperm => machine::forbid_renames(world, false)?,
            Fault::DiskFull => drop(std::fs::remove_file(world.path(VOLUME))),
            Fault::PortStranger => stranger::leave_port(world),
            Fault::AppOverridesContext => {
                crate::app::settings::set(world, "context_length", 0)?;
            }
            Fault::ExposeOn => crate::app::settings::set(world, "expose", 0)?,
            Fault::AppQuarantined => app::release(world)?,
            Fault::AppSignedByOthers | Fault::AppSealBroken | Fault::AppUnsigned => app::sign_again(world)?,
            Fault::RunnerStopped => runners::go_on(world),
            Fault::NoNetwork => network::come(world)?,
            Fault::UpdaterStaged => updates::unstage(world),
            Fault::UpdaterStaleBackup => updates::remove_backup(world),
            Fault::AppTranslocated | Fault::AppFromBackup => updates::run_at_home(world, fault)?,
            Fault::MemoryPressure | Fault::SlowSwapping => machine_memory::keep_counters(world, fault),
            // Work ends when it is told to.
            Fault::WorkSteady
            | Fault::WorkLongPrefill
            | Fault::WorkFirstPromptSwapping
            | Fault::WorkImage
            | Fault::WorkFourSlots
            | Fault::WorkStalledClient
            | Fault::WorkLongLoad
            | Fault::WorkQueue
            | Fault::WorkStop => continue,
            Fault::SessionChangedByHand
            | Fault::LaterDropIn
            | Fault::Open600Twice
            | Fault::OpenActivatesDyingApp
            | Fault::Bootstrap5AfterBootout
            | Fault::Bootout36
            | Fault::SetenvDenied
            | Fault::SlowQuit
            | Fault::GuiIgnoresSigterm
            | Fault::ServeIgnoresSigint
            | Fault::OrphanServe
            | Fault::OrphanRunner
            | Fault::CliResurrectsApp
            | Fault::LostLoginRace
            | Fault::CrashLoop
            | Fault::SlowStart
            | Fault::StartNeverAnswers
            | Fault::StartHangsOnce
            | Fault::TwoOllamas
            | Fault::ConfigLineMissing
            | Fault::PkexecRefused
            | Fault::BadLogFormat2025
            | Fault::RunnerStuck
            | Fault::RunnerBusyLoop
            | Fault::RunnerEmptyReplies
            | Fault::RunnerHttpDead
            | Fault::RunnerKilled
            | Fault::StoppingForEver
            | Fault::SchedulerBlocked
            | Fault::ServeCorrupt
            | Fault::ServerSilent
            | Fault::UnexpectedModel
            | Fault::RateLimited
            | Fault::TooManyRequests
            | Fault::ProxyWanted
            | Fault::ReleasesFail
            | Fault::BrewAtWork
            | Fault::NewChat
            | Fault::Clear => {}
        }
        notes::clear(world, fault);
        cleared.push(fault.name());
    }
    Ok(if cleared.is_empty() { "no fault was raised".to_owned() } else { format!("cleared {}", cleared.join(", ")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_listed_with_words() {
        let mut names: Vec<&str> = Fault::ALL.iter().map(|fault| fault.name()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert_eq!(Fault::list().lines().count(), count);
    }
}
