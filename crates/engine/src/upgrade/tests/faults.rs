use super::*;
use crate::plan::{Again, StepFailure};
use crate::upgrade::fault::{Fault, NotProved};
use std::collections::BTreeSet;

#[test]
fn a_fault_says_what_happened_what_is_unchanged_and_what_to_do() {
    let order = plan(&app(), &newer(), &ask()).unwrap().order;
    let failure = Fault::AnotherTeam { team: "EVIL123456".to_owned() }.failure(Deed::CheckSignature, &order);
    assert_eq!(
        failure,
        StepFailure {
            code: "signature-another-team",
            message: "upgrade to 0.24.0: check-signature failed, because it was signed by EVIL123456, not by Ollama's \
                      team 3MU9H2V9Y9 as com.electron.ollama; 0.22.1 runs on, nothing of it was changed"
                .to_owned(),
            hint: "do not install this file by hand; ask Ollama what it is".to_owned(),
            again: Again::Never,
        }
    );
    let lost = Fault::NotProved(NotProved::LostSettings(vec!["OLLAMA_NUM_PARALLEL".to_owned()]));
    assert!(
        lost.failure(Deed::Prove, &order).message.ends_with("because it lost OLLAMA_NUM_PARALLEL; 0.22.1 is put back")
    );
    let denied = Fault::AppManagement("/Applications/Ollama.app".into());
    assert!(denied.failure(Deed::MoveOut, &order).hint.contains("App Management, then try again"));
    assert!(
        denied
            .failure(Deed::MoveOldBack, &order)
            .message
            .ends_with("it is tried again every few minutes, and when Stablehand starts anew")
    );
}

#[test]
fn every_fault_of_ours_has_a_code_of_its_own_and_a_hint() {
    let order = plan(&app(), &newer(), &ask()).unwrap().order;
    let faults = faults();
    let codes: BTreeSet<_> = faults.iter().map(Fault::code).collect();
    assert_eq!(codes.len(), faults.len());
    for fault in faults {
        let failure = fault.failure(Deed::Tidy, &order);
        assert!(
            !failure.hint.is_empty() && failure.message.ends_with("; the rest is done all the same"),
            "{failure:?}"
        );
        assert_eq!(failure.again == Again::Soon, matches!(fault, Fault::Network(_)), "{failure:?}");
    }
}

#[test]
fn a_failure_of_the_server_keeps_its_own_code_and_hint() {
    let order = plan(&app(), &newer(), &ask()).unwrap().order;
    let server = StepFailure {
        code: "open-refused",
        message: "the app could not be opened".to_owned(),
        hint: "log in at the screen".to_owned(),
        again: Again::Soon,
    };
    let failure = Fault::Server(server).failure(Deed::Start, &order);
    assert_eq!(
        (failure.code, failure.hint.as_str(), failure.again),
        ("open-refused", "log in at the screen", Again::Soon)
    );
    assert!(failure.message.contains("because the app could not be opened; 0.22.1 is put back"), "{failure:?}");
}

fn faults() -> Vec<Fault> {
    let path = || "/data/a".into();
    let text = || "a phrase".to_owned();
    vec![
        Fault::NoSpace(path()),
        Fault::Denied(path()),
        Fault::AppManagement(path()),
        Fault::File { path: path(), reason: text() },
        Fault::Taken(path()),
        Fault::Network(text()),
        Fault::WrongHash,
        Fault::Replaced(path()),
        Fault::NoArchive(text()),
        Fault::TooLarge { limit_bytes: 1 },
        Fault::LeadsOut("../../etc".to_owned()),
        Fault::BrokenSeal(text()),
        Fault::AnotherTeam { team: text() },
        Fault::Refused(text()),
        Fault::AnotherVersion { found: "0.1.0".to_owned() },
        Fault::Quarantined(path()),
        Fault::Brew(text()),
        Fault::NotProved(NotProved::Silent),
        Fault::NotProved(NotProved::AnswersAs("0.1.0".to_owned())),
        Fault::NotProved(NotProved::LostSettings(vec![text()])),
        Fault::NotProved(NotProved::CommandLineIs("0.1.0".to_owned())),
        Fault::NotProved(NotProved::GeneratesNothing { model: "smollm:135m".to_owned(), reason: text() }),
        Fault::TookTooLong(Deed::Prove),
    ]
}
