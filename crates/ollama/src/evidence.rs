//! The proof of what a running server uses, in the engine's terms: its last config line, if it was written by *this*
//! server, and its environment.
//!
//! A config line that is older than the server belongs to one before it, and proves nothing: an app that restarts its
//! server appends to the same log, and a log that is not rotated outlives many.

use crate::catalogue;
use crate::log::ConfigLine;
use stablehand_engine::Known;
use stablehand_engine::process::Process;
use stablehand_engine::setting::{Name, Proof, ServerEvidence};
use stablehand_engine::time::Wall;
use std::collections::BTreeMap;

/// A config line, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The line.
    pub line: ConfigLine,
    /// A path, or the name of a journal unit.
    pub log: String,
}

/// Kernels round the start of a process, by up to a second.
const START_ROUNDING_MS: i64 = 1000;

/// What is known of the values that `server` uses.
pub fn server_evidence(logged: Known<Logged>, server: &Process) -> ServerEvidence {
    ServerEvidence { config_line: config_line(logged, server.started), environment: environment(server) }
}

/// Whether a line was written by a server that started at `started`.
pub fn is_of_server(line: &ConfigLine, started: Wall) -> bool {
    let latest_ms = line.logged_at.unix_ms.saturating_add(i64::from(line.resolution_ms));
    latest_ms.saturating_add(START_ROUNDING_MS) >= started.unix_ms
}

fn config_line(logged: Known<Logged>, started: Wall) -> Known<(BTreeMap<Name, String>, Proof)> {
    match logged {
        Known::Unknown(reason) => Known::Unknown(reason),
        Known::Is(Logged { line, log }) if is_of_server(&line, started) => {
            Known::Is((line.values, Proof::ConfigLine { logged_at: line.logged_at, log }))
        }
        Known::Is(Logged { line, log }) => {
            let older_s = (started - line.logged_at).as_secs();
            Known::unknown(format!(
                "the last config line of {log} is {older_s} s older than the server, so another wrote it"
            ))
        }
    }
}

fn environment(server: &Process) -> Known<(BTreeMap<Name, String>, Proof)> {
    server.environment.as_ref().map(|variables| {
        let in_force =
            |(name, value): (&String, &String)| Some((Name::try_new(name).ok()?, catalogue::in_force(name, value)));
        (variables.iter().filter_map(in_force).collect(), Proof::Environment { server: server.id })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stablehand_engine::process::Identity;
    use stablehand_engine::setting::{FromApp, Layers, PersistedIn, Standing, Wish, report};

    #[test]
    fn a_line_of_this_server_is_proof_and_an_older_one_is_not() {
        let started = 1_000_000;
        for (logged_at, resolution_ms, proves) in [
            (started + 40, 1, true),
            (started - 900, 1, true),
            (started - 1_002, 1, false),
            (started - 1_900, 1000, true),
        ] {
            let evidence = server_evidence(Known::Is(logged("4", logged_at, resolution_ms)), &server(started, &[]));
            assert_eq!(evidence.config_line.known().is_some(), proves, "{logged_at}");
        }
        let stale = server_evidence(Known::Is(logged("4", 0, 1)), &server(started, &[]));
        assert!(stale.config_line.reason().unwrap().contains("1000 s older"));
    }

    #[test]
    fn the_environment_is_given_as_the_server_would_show_it() {
        let variables = [
            ("OLLAMA_KEEP_ALIVE", "'10m'"),
            ("OLLAMA_NUM_PARALLEL", "abc"),
            ("OLLAMA_NOPRUNE", "off"),
            ("OLLAMA_ORIGINS", "http://a,http://localhost"),
            ("ollama_lower", "1"),
        ];
        let evidence = server_evidence(Known::unknown("no log"), &server(1, &variables));
        let (values, proof) = evidence.environment.known().unwrap();
        let shown: Vec<(&str, &str)> = values.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            shown,
            [
                ("OLLAMA_KEEP_ALIVE", "10m0s"),
                ("OLLAMA_NOPRUNE", "true"),
                ("OLLAMA_NUM_PARALLEL", "1"),
                ("OLLAMA_ORIGINS", "[http://a]")
            ]
        );
        assert_eq!(proof.word(), "process-environment");
        assert_eq!(evidence.config_line.reason(), Some("no log"));
    }

    #[test]
    fn what_cannot_be_read_stays_unknown() {
        let mut server = server(1, &[]);
        server.environment = Known::unknown("another user's process");
        let evidence = server_evidence(Known::unknown("no log"), &server);
        assert_eq!(evidence.environment.reason(), Some("another user's process"));
    }

    #[test]
    fn a_wish_is_proven_through_the_engine() {
        let name = Name::try_new("OLLAMA_NUM_PARALLEL").unwrap();
        let wish: Wish = catalogue::check(name.as_str(), "4", None).unwrap();
        let layers = Layers {
            persisted: Known::Is(BTreeMap::from([(name.clone(), wish.value.clone())])),
            persisted_in: PersistedIn::OurFile,
            from_app: FromApp::NotTheApp,
            session: None,
            server: server_evidence(Known::Is(logged("4", 5_000, 1)), &server(4_000, &[("OLLAMA_NUM_PARALLEL", "4")])),
            desired: BTreeMap::from([(name.clone(), wish)]),
        };
        let reports = report(&catalogue::definitions(), &layers);
        let parallel = reports.iter().find(|report| report.name == name).unwrap();
        assert_eq!(parallel.standing, Standing::Proven);
        assert_eq!(parallel.effective.known().unwrap().proofs.len(), 2);
    }

    fn logged(parallel: &str, at_ms: i64, resolution_ms: u16) -> Logged {
        let values = BTreeMap::from([(Name::try_new("OLLAMA_NUM_PARALLEL").unwrap(), parallel.to_owned())]);
        Logged {
            line: ConfigLine { logged_at: Wall::from_unix_ms(at_ms), resolution_ms, values },
            log: "server.log".to_owned(),
        }
    }

    fn server(started_ms: i64, variables: &[(&str, &str)]) -> Process {
        Process {
            id: Identity { pid: 7, birth: 7 },
            parent: Some(1),
            uid: Known::Is(501),
            started: Wall::from_unix_ms(started_ms),
            executable: Known::unknown("not read"),
            argv: Known::unknown("not read"),
            environment: Known::Is(
                variables.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ),
        }
    }
}
