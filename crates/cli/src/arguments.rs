//! The command line.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Keeps a local Ollama moving: settings that stick and are proved, full restarts through whoever owns the server.
#[derive(Debug, Parser)]
#[command(
    name = "stablehand",
    version,
    after_help = "Exit codes: 0 done or proven, 1 drift or failure, 2 wrong usage, 3 unknown.\n\
                  STABLEHAND_WORLD=DIR makes every verb act on the simulated machine in DIR (see `stablehand demo`)."
)]
pub struct Arguments {
    /// Print JSON alone on stdout.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    #[command(flatten)]
    Here(HereVerb),
    /// Try everything on a simulated machine. Works without the daemon.
    #[command(after_help = "Example: stablehand demo\n\n\
                            By hand: stablehand demo start --dir /tmp/world && \
                            STABLEHAND_WORLD=/tmp/world stablehand serve")]
    Demo {
        /// What to do with it; without a word: start one, show it, end it.
        #[command(subcommand)]
        verb: Option<DemoVerb>,
    },
}

impl Verb {
    /// Whether this runs the gateway.
    pub fn is_gateway(&self) -> bool {
        matches!(self, Self::Here(HereVerb::Serve { gateway: true }))
    }
}

/// What to do on this machine, or on the simulated one that `STABLEHAND_WORLD` names.
#[derive(Debug, Subcommand)]
pub enum HereVerb {
    /// Run the daemon in the foreground.
    #[command(after_help = "Example: stablehand serve\n\nAt every login instead: stablehand install")]
    Serve {
        /// Run the gateway instead: the front door for requests, as [gateway] in the configuration says.
        #[arg(long)]
        gateway: bool,
    },
    /// Show the server, its owner, its settings and what is being done.
    #[command(after_help = "Example: stablehand status --watch\n\nExits 0 whenever the daemon answered.")]
    Status {
        /// Go on showing every change.
        #[arg(long)]
        watch: bool,
    },
    /// List, read or change desired settings.
    #[command(after_help = "Example: stablehand settings preset serial && stablehand apply")]
    Settings {
        /// What to do with them.
        #[command(subcommand)]
        verb: SettingsVerb,
    },
    /// Persist and publish the desired settings, restart Ollama through its owner, prove.
    #[command(after_help = "Example: stablehand apply --dry-run\n\nExits 0 when every desired setting is proven.")]
    Apply(Restarting),
    /// Restart Ollama fully through its owner, prove the settings.
    #[command(after_help = "Example: stablehand restart")]
    Restart(Restarting),
    /// Read every layer anew and compare it with what is desired.
    #[command(after_help = "Example: stablehand verify --json\n\n\
                            Exits 0 when all is proven (also when nothing is desired), 1 on drift, 3 when unknown.")]
    Verify,
    /// Examine this machine and say what is wrong and how to mend it. Works without the daemon.
    #[command(after_help = "Example: stablehand doctor --mend")]
    Doctor {
        /// Let the daemon finish what was found cut off: a gateway on its way into Ollama's place, or out of it.
        #[arg(long)]
        mend: bool,
    },
    /// Start Stablehand and publish the settings at every login, and make it a command in your terminal. Works without
    /// the daemon.
    #[command(after_help = "Example: stablehand install --dry-run")]
    Install(DryRun),
    /// Take everything of Stablehand away and put adopted files back. Works without the daemon.
    #[command(after_help = "Example: stablehand uninstall --dry-run")]
    Uninstall(DryRun),
    /// Show whether macOS would stop the app's next start at a question (quarantine), or clear that. Works without the
    /// daemon.
    #[command(after_help = "Example: stablehand quarantine --clear --dry-run\n\n\
                            Clearing comes after the check of seal, signer and notarisation, and is proved by reading \
                            every file again.\n\
                            Exits 0 when nothing blocks, 1 when it would block (or was not cleared), 3 when that \
                            cannot be read.")]
    Quarantine(Quarantine),
    /// Put the newest version of Ollama in place and prove it, or put the old one back by itself.
    #[command(after_help = "Example: stablehand upgrade --check\n\n\
                            stablehand upgrade --to 0.24.0 --yes\n\n\
                            Exits 0 when the new version is in place and proved (or, with --check, when the releases \
                            could be read), 1 when the old one is back, and says why.")]
    Upgrade(Upgrading),
    /// Put a kept version back in place, prove it, and stay on it.
    #[command(after_help = "Example: stablehand rollback --yes\n\n\
                            Settings and chats stay when the old version can read them. Where it can not, they are set \
                            aside under a name that is told, after a question or with --yes; no chat is removed.")]
    Rollback(RollingBack),
    /// Stay on a version, or on none any more. Nothing else is put in place by Ollama's own updater meanwhile.
    #[command(after_help = "Example: stablehand pin 0.24.0\n\nstablehand pin --off")]
    Pin {
        /// The version.
        #[arg(required_unless_present = "off", conflicts_with = "off")]
        version: Option<String>,
        /// Stay on none any more.
        #[arg(long)]
        off: bool,
    },
    /// Show the version in place, the newest one, and the kept ones.
    #[command(after_help = "Example: stablehand versions")]
    Versions,
    /// Put a queue in front of Ollama, beside it or in its place.
    #[command(after_help = "Example: stablehand gateway on --takeover --dry-run")]
    Gateway {
        /// What to do with it.
        #[command(subcommand)]
        verb: GatewayVerb,
    },
    /// Show what each runner does, the queue and memory.
    #[command(after_help = "Example: stablehand runners")]
    Runners,
    /// Do something about one runner.
    #[command(after_help = "Example: stablehand runner stop gemma4:26b --force")]
    Runner {
        /// What to do.
        #[command(subcommand)]
        verb: RunnerVerb,
    },
    /// Unload a model.
    #[command(after_help = "Example: stablehand unload gemma4:26b")]
    Unload {
        /// Its name.
        model: String,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Let recovery act again on what it has given up, as far as its policy allows.
    #[command(after_help = "Example: stablehand recover\n\n`stablehand why` says what was given up, and why.")]
    Recover(DryRun),
    /// Show the gateway's queue: who runs, who waits, and for how long yet.
    #[command(after_help = "Example: stablehand queue --watch\n\n\
                            stablehand queue drop 12\n\
                            stablehand queue move 12 --lane interactive")]
    Queue {
        /// Go on showing every change.
        #[arg(long)]
        watch: bool,
        /// What to do with it; without a word: show it.
        #[command(subcommand)]
        verb: Option<QueueVerb>,
    },
    /// Explain what is going on, in words.
    #[command(after_help = "Example: stablehand why")]
    Why,
    /// Show what happened: events and numbers. Works without the daemon.
    #[command(after_help = "Example: stablehand history --since 2h --csv")]
    History {
        /// How far back: 30m, 2h, 7d.
        #[arg(long, default_value = "2h")]
        since: String,
        /// The numbers as CSV.
        #[arg(long)]
        csv: bool,
    },
    /// Print the metrics in Prometheus' text format.
    #[command(after_help = "Example: stablehand metrics")]
    Metrics,
    /// Ask Metal what the GPU may use (asked by the daemon, in a process of its own).
    #[command(hide = true, name = "gpu-working-set")]
    GpuWorkingSet,
    /// Show the log of Ollama's server. Works without the daemon.
    #[command(after_help = "Example: stablehand logs -n 50 --follow")]
    Logs {
        /// The daemon's own log instead.
        #[arg(long)]
        daemon: bool,
        /// How many lines.
        #[arg(short = 'n', long, default_value_t = 40)]
        lines: usize,
        /// Go on showing new lines.
        #[arg(short, long)]
        follow: bool,
    },
    /// Carry one deed of an upgrade out as root (what the daemon runs through pkexec).
    #[command(hide = true)]
    Deed {
        /// Its name.
        name: String,
    },
    /// Give the login session the persisted settings (what the LaunchAgent runs).
    #[command(hide = true)]
    Publish,
}

/// What to do with the gateway.
#[derive(Debug, Subcommand)]
pub enum GatewayVerb {
    /// Let it stand in Ollama's place, or beside it; desired settings that are pending are applied on the way.
    #[command(
        group = clap::ArgGroup::new("where").required(true),
        after_help = "Example: stablehand gateway on --takeover --yes\n\n\
                      In Ollama's place clients need no change: the gateway answers at Ollama's own address, and \
                      Ollama moves to another, which is given to its own start alone."
    )]
    On {
        /// At Ollama's own address; Ollama is restarted at another.
        #[arg(long, group = "where")]
        takeover: bool,
        /// At this port of 127.0.0.1, for clients that are told so.
        #[arg(long, group = "where", value_name = "PORT")]
        beside: Option<u16>,
        #[command(flatten)]
        consent: Consent,
    },
    /// Let it leave; what waits in it is answered, and Ollama is at its own address again.
    #[command(after_help = "Example: stablehand gateway off --yes")]
    Off(Consent),
    /// Show where it stands and whether requests come through it.
    #[command(after_help = "Example: stablehand gateway status --json")]
    Status,
}

/// Whether to ask, and whether to do it at all.
#[derive(Clone, Copy, Debug, Args)]
pub struct Consent {
    /// Go on without a question when Ollama has to be restarted.
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub dry_run: DryRun,
}

/// What to do about one runner.
#[derive(Debug, Subcommand)]
pub enum RunnerVerb {
    /// End it; the server loads the model anew when it is asked for.
    #[command(after_help = "Example: stablehand runner stop gemma4:26b --force")]
    Stop {
        /// Its model.
        model: String,
        /// SIGKILL when SIGTERM is not enough.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        dry_run: DryRun,
    },
}

/// What to do with the gateway's queue.
#[derive(Debug, Subcommand)]
pub enum QueueVerb {
    /// Take a waiting request out; its client is told.
    #[command(after_help = "Example: stablehand queue drop 12")]
    Drop {
        /// Its number.
        id: u64,
    },
    /// Put a waiting request into another lane.
    #[command(after_help = "Example: stablehand queue move 12 --lane interactive")]
    Move {
        /// Its number.
        id: u64,
        /// `interactive`, `agent` or `batch`.
        #[arg(long)]
        lane: String,
    },
    /// Send nothing more to Ollama until `queue resume`; what runs goes on.
    #[command(after_help = "Example: stablehand queue pause")]
    Pause,
    /// Go on after `queue pause`.
    #[command(after_help = "Example: stablehand queue resume")]
    Resume,
}

/// What to do with desired settings.
#[derive(Debug, Subcommand)]
pub enum SettingsVerb {
    /// List settings: the desired, the main and the changed ones, or all.
    #[command(after_help = "Example: stablehand settings list --all")]
    List {
        /// Every setting of the catalogue.
        #[arg(long)]
        all: bool,
    },
    /// Show one setting through all its layers.
    #[command(after_help = "Example: stablehand settings get OLLAMA_NUM_PARALLEL")]
    Get {
        /// Name of the setting.
        name: String,
    },
    /// Change the desired value. Nothing else changes until `apply`.
    #[command(after_help = "Example: stablehand settings set OLLAMA_NUM_PARALLEL=2 OLLAMA_CONTEXT_LENGTH=32768")]
    Set {
        /// NAME=VALUE, or one NAME and one VALUE.
        #[arg(required = true, num_args = 1.., allow_negative_numbers = true)]
        assignments: Vec<String>,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Desire nothing for a setting. Nothing else changes until `apply`.
    #[command(after_help = "Example: stablehand settings unset OLLAMA_MAX_QUEUE")]
    Unset {
        /// Names of settings.
        #[arg(required = true, num_args = 1..)]
        names: Vec<String>,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Take a preset: `serial` (one request, one model, a short queue) or `ollama-defaults`.
    #[command(after_help = "Example: stablehand settings preset serial")]
    Preset {
        /// Its name.
        name: String,
        #[command(flatten)]
        dry_run: DryRun,
    },
}

/// What to do with a simulated machine.
#[derive(Debug, Subcommand)]
pub enum DemoVerb {
    /// Make (or start again) a simulated machine in a folder, and start its Ollama.
    #[command(after_help = "Example: stablehand demo start --dir /tmp/world --ollama 0.33.0 --speed 60")]
    Start {
        /// The folder; absent or empty, or a world that was stopped.
        #[arg(long)]
        dir: PathBuf,
        /// `macos` or `linux`.
        #[arg(long)]
        os: Option<String>,
        /// Version of its Ollama.
        #[arg(long)]
        ollama: Option<String>,
        /// How many times faster than real its time runs.
        #[arg(long)]
        speed: Option<f64>,
        /// What starts its Ollama.
        #[arg(long)]
        owner: Option<String>,
        /// Its app came with Homebrew's cask.
        #[arg(long)]
        cask: bool,
    },
    /// End its daemon and everything in it.
    #[command(after_help = "Example: stablehand demo stop --dir /tmp/world")]
    Stop {
        /// The folder.
        #[arg(long)]
        dir: PathBuf,
    },
    /// Raise a fault, or list them.
    #[command(after_help = "Example: stablehand demo fault session-changed-by-hand --dir /tmp/world\n\n\
                            stablehand demo fault work-long-prefill --seconds 120\n\
                            stablehand demo fault open-600-twice --times 3")]
    Fault {
        /// Its name; without one all are listed.
        name: Option<String>,
        /// The folder; STABLEHAND_WORLD when it is not given.
        #[arg(long, env = "STABLEHAND_WORLD")]
        dir: Option<PathBuf>,
        /// The model it concerns.
        #[arg(long)]
        model: Option<String>,
        /// How long it lasts, in the machine's own seconds, where it has a length: slow-quit, slow-start,
        /// bootstrap-5-after-bootout, rate-limited, too-many-requests, work-long-prefill, work-image, work-long-load.
        #[arg(long, value_name = "N")]
        seconds: Option<u64>,
        /// How often, where it is counted: open-600-twice, work-queue.
        #[arg(long, value_name = "N")]
        times: Option<u64>,
    },
    /// Publish a release of Ollama on the machine's own release server.
    #[command(after_help = "Example: stablehand demo release 0.25.0 --dir /tmp/world\n\n\
                            stablehand demo release --bad will-not-start 0.25.0\n\
                            stablehand demo release --bad")]
    Release {
        /// The folder; STABLEHAND_WORLD when it is not given.
        #[arg(long, env = "STABLEHAND_WORLD")]
        dir: Option<PathBuf>,
        /// What is wrong with it; without a value, what can be is listed.
        #[arg(long, value_name = "KIND", num_args = 0..=1, default_missing_value = "")]
        bad: Option<String>,
        /// Size of the largest file in its archive; 1 when it is not given.
        #[arg(long, value_name = "N")]
        megabytes: Option<u64>,
        /// Its version.
        #[arg(required_unless_present = "bad")]
        version: Option<String>,
    },
    /// Make the machine sleep.
    #[command(after_help = "Example: stablehand demo sleep 28800 --dir /tmp/world")]
    Sleep {
        /// For how long, in its own seconds.
        seconds: u64,
        /// The folder; STABLEHAND_WORLD when it is not given.
        #[arg(long, env = "STABLEHAND_WORLD")]
        dir: PathBuf,
    },
}

/// How to upgrade.
#[derive(Clone, Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct Upgrading {
    /// Only ask for the releases, and show the newest with its notes.
    #[arg(long, conflicts_with_all = ["to", "dry_run", "yes", "downgrade", "measure"])]
    pub check: bool,
    /// This version instead of the newest.
    #[arg(long, value_name = "VERSION")]
    pub to: Option<String>,
    /// Also one that is meant for testing.
    #[arg(long)]
    pub prerelease: bool,
    /// Also one that is older than what is in place.
    #[arg(long)]
    pub downgrade: bool,
    /// Measure speed and load time on a fixed prompt before and after.
    #[arg(long)]
    pub measure: bool,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub dry_run: DryRun,
}

/// How to roll back.
#[derive(Clone, Debug, Args)]
pub struct RollingBack {
    /// This version instead of the one that was in use last.
    #[arg(long, value_name = "VERSION")]
    pub to: Option<String>,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub dry_run: DryRun,
}

/// What to do about a quarantine.
#[derive(Clone, Debug, Args)]
pub struct Quarantine {
    /// Only look, which is what happens without --clear too.
    #[arg(long, conflicts_with = "clear")]
    pub check: bool,
    /// Clear it.
    #[arg(long)]
    pub clear: bool,
    /// Only say what clearing would do.
    #[arg(long, requires = "clear")]
    pub dry_run: bool,
    /// An app (or, to look only, a file); without it, the app that Stablehand looks after.
    pub path: Option<PathBuf>,
}

/// Options of verbs that restart the server.
#[derive(Clone, Copy, Debug, Args)]
pub struct Restarting {
    /// A server started by hand may be stopped, and is started again by Stablehand.
    #[arg(long)]
    pub take_over: bool,
    #[command(flatten)]
    pub dry_run: DryRun,
}

/// Whether to only say what would be done.
#[derive(Clone, Copy, Debug, Args)]
pub struct DryRun {
    /// Only say what would be done.
    #[arg(long)]
    pub dry_run: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_may_follow_what_is_set_and_minus_one_is_a_value() {
        let arguments = ["stablehand", "settings", "set", "OLLAMA_KEEP_ALIVE", "-1", "--dry-run", "--json"];
        let arguments = Arguments::try_parse_from(arguments).unwrap();
        assert!(arguments.json);
        let told = format!("{:?}", arguments.verb);
        assert!(told.contains(r#"["OLLAMA_KEEP_ALIVE", "-1"]"#) && told.contains("dry_run: true"), "{told}");
    }
}
