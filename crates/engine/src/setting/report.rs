//! The comparison: desired against every layer, with the proof of what is in force.

use super::{Definition, Effective, FromApp, Layers, Name, PersistedIn, ServerEvidence, Shown, Value, Wish};
use crate::known::Known;

/// One of the layers that can differ from the wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// The file that holds after every login.
    Persisted,
    /// What new processes are handed.
    Session,
    /// What the running server uses.
    Effective,
}

impl Layer {
    /// The word used for it in reports and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Persisted => "persisted",
            Self::Session => "session",
            Self::Effective => "effective",
        }
    }
}

/// Where one setting stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody asked us for it.
    NotManaged,
    /// In force, proved, and it will hold.
    Proven,
    /// These layers differ from the wish.
    Drift(Vec<Layer>),
    /// In force differs, and Ollama.app's own settings are what sets it; the environment cannot win.
    SetInApp,
    /// A layer that matters could not be read; the reason is of the first one.
    Unknown(String),
}

/// One setting through all its layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The setting.
    pub name: Name,
    /// What we want, if anything.
    pub desired: Option<Wish>,
    /// In the file that holds after every login.
    pub persisted: Known<Option<Value>>,
    /// In the session; `None` where there is no such layer.
    pub session: Option<Known<Option<Value>>>,
    /// In the running server.
    pub effective: Known<Effective>,
    /// What the server uses when nobody sets it.
    pub default_in_force: String,
    /// The conclusion.
    pub standing: Standing,
}

/// Reports every setting of the catalogue.
pub fn report(catalogue: &[Definition], layers: &Layers) -> Vec<Report> {
    catalogue.iter().map(|definition| report_one(definition, layers)).collect()
}

/// What all reports together say of the wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verification {
    /// Every desired setting is proven (also when nothing is desired).
    Proven,
    /// At least one setting differs in a layer.
    Drift,
    /// Nothing is known to differ, but something could not be read.
    Unknown(String),
}

/// Sums the reports up: drift outweighs unknown, unknown outweighs proven.
pub fn verify(reports: &[Report]) -> Verification {
    let mut unknown = None;
    for report in reports {
        match &report.standing {
            Standing::NotManaged | Standing::Proven => {}
            Standing::Drift(_) | Standing::SetInApp => return Verification::Drift,
            Standing::Unknown(reason) => unknown = unknown.or_else(|| Some(format!("{}: {reason}", report.name))),
        }
    }
    unknown.map_or(Verification::Proven, Verification::Unknown)
}

fn report_one(definition: &Definition, layers: &Layers) -> Report {
    let name = &definition.name;
    let mut report = Report {
        name: name.clone(),
        desired: layers.desired.get(name).cloned(),
        persisted: layers.persisted.as_ref().map(|values| values.get(name).cloned()),
        session: layers.session.as_ref().map(|layer| layer.as_ref().map(|values| values.get(name).cloned())),
        effective: effective(definition, &layers.server),
        default_in_force: definition.default_in_force.clone(),
        standing: Standing::NotManaged,
    };
    report.standing = standing(definition, layers, &report);
    report
}

fn effective(definition: &Definition, evidence: &ServerEvidence) -> Known<Effective> {
    let shown = match definition.shown {
        Shown::ConfigLine => match &evidence.config_line {
            Known::Is((values, proof)) => values
                .get(&definition.name)
                .map(|in_force| (in_force.clone(), proof.clone()))
                .ok_or_else(|| "this version of the server does not report it in its config line".to_owned()),
            Known::Unknown(reason) => Err(reason.clone()),
        },
        Shown::EnvironmentOnly => Err("the server does not report it".to_owned()),
    };
    // A server that reports its settings, but not this one, does not read it.
    if let (Shown::ConfigLine, Known::Is(_), Err(reason)) = (definition.shown, &evidence.config_line, &shown) {
        return Known::Unknown(reason.clone());
    }
    let carried = match &evidence.environment {
        Known::Is((values, proof)) => {
            let in_force = values.get(&definition.name).unwrap_or(&definition.default_in_force);
            Ok((in_force.clone(), proof.clone()))
        }
        Known::Unknown(reason) => Err(reason.clone()),
    };
    match (shown, carried) {
        (Ok((in_force, line)), Ok((also, environment))) if also == in_force => {
            Known::Is(Effective { in_force, proofs: vec![line, environment] })
        }
        // The line is written by the server after it has read its environment and applied its own rules.
        (Ok((in_force, line)), _) => Known::Is(Effective { in_force, proofs: vec![line] }),
        (Err(_), Ok((in_force, environment))) => Known::Is(Effective { in_force, proofs: vec![environment] }),
        (Err(line), Err(environment)) if line == environment => Known::Unknown(line),
        (Err(line), Err(environment)) => Known::Unknown(format!("{line}; {environment}")),
    }
}

fn standing(definition: &Definition, layers: &Layers, report: &Report) -> Standing {
    let Some(wish) = &report.desired else {
        // A value that we persisted once and that is no longer wanted would come back at the next login.
        return match (layers.persisted_in, &report.persisted) {
            (PersistedIn::OurFile, Known::Is(Some(_))) => Standing::Drift(vec![Layer::Persisted]),
            (PersistedIn::OurFile, Known::Is(None) | Known::Unknown(_)) | (PersistedIn::Elsewhere, _) => {
                Standing::NotManaged
            }
        };
    };
    let mut drifted = Vec::new();
    let mut unknown = None;
    let mut compare_text = |layer: Layer, known: &Known<Option<Value>>| match known {
        Known::Is(Some(value)) if *value == wish.value => {}
        Known::Is(_) => drifted.push(layer),
        Known::Unknown(reason) => unknown = unknown.take().or_else(|| Some(reason.clone())),
    };
    compare_text(Layer::Persisted, &report.persisted);
    if let Some(session) = &report.session {
        compare_text(Layer::Session, session);
    }
    match &report.effective {
        Known::Is(effective) if effective.in_force == wish.in_force => {}
        Known::Is(_) => drifted.push(Layer::Effective),
        Known::Unknown(reason) => unknown = unknown.or_else(|| Some(reason.clone())),
    }
    if drifted == [Layer::Effective] && definition.app_may_override && app_put_its_own(&layers.from_app, wish, report) {
        return Standing::SetInApp;
    }
    if !drifted.is_empty() {
        return Standing::Drift(drifted);
    }
    unknown.map_or(Standing::Proven, Standing::Unknown)
}

/// The app was started with the wish, and its server has something else.
fn app_put_its_own(from_app: &FromApp, wish: &Wish, report: &Report) -> bool {
    match from_app {
        FromApp::NotTheApp => false,
        FromApp::StartedWith(values) => {
            values.get(report.name.as_str()).is_some_and(|value| value == wish.value.as_str())
        }
        FromApp::Unreadable { after_publication } => *after_publication,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Identity;
    use crate::setting::Proof;
    use crate::time::Wall;
    use std::collections::BTreeMap;

    #[test]
    fn a_value_that_every_layer_carries_is_proven_by_line_and_environment() {
        let reports = report(&[definition()], &layers("4", Some("4"), Some("4"), Some("4"), Some("4")));
        assert_eq!(reports[0].standing, Standing::Proven);
        let effective = reports[0].effective.known().unwrap();
        let words: Vec<_> = effective.proofs.iter().map(Proof::word).collect();
        assert_eq!(words, ["server-config-line", "process-environment"]);
    }

    #[test]
    fn a_session_changed_by_hand_is_named_with_the_server_that_took_it() {
        let reports = report(&[definition()], &layers("1", Some("1"), Some("7"), Some("7"), Some("7")));
        assert_eq!(reports[0].standing, Standing::Drift(vec![Layer::Session, Layer::Effective]));
        assert_eq!(verify(&reports), Verification::Drift);
    }

    #[test]
    fn a_server_that_nobody_can_read_is_unknown_and_never_proven() {
        let mut layers = layers("1", Some("1"), Some("1"), None, None);
        layers.server.environment = Known::unknown("not readable");
        let reports = report(&[definition()], &layers);
        assert_eq!(reports[0].standing, Standing::Unknown("no line; not readable".to_owned()));
        assert!(matches!(verify(&reports), Verification::Unknown(_)));
    }

    #[test]
    fn an_environment_without_the_variable_proves_the_default() {
        let reports = report(&[definition()], &layers("1", Some("1"), Some("1"), None, None));
        let effective = reports[0].effective.known().unwrap();
        assert_eq!(effective.in_force, "1");
        assert_eq!(reports[0].standing, Standing::Proven);
    }

    #[test]
    fn a_value_no_longer_wanted_but_still_persisted_is_drift() {
        let mut layers = layers("1", Some("1"), None, None, None);
        layers.desired.clear();
        assert_eq!(report(&[definition()], &layers)[0].standing, Standing::Drift(vec![Layer::Persisted]));
    }

    #[test]
    fn what_a_container_was_made_with_is_shown_and_no_drift_of_ours() {
        let mut layers = layers("1", Some("2"), None, Some("2"), Some("2"));
        layers.persisted_in = PersistedIn::Elsewhere;
        layers.desired.clear();
        let reports = report(&[definition()], &layers);
        assert_eq!(reports[0].standing, Standing::NotManaged);
        assert_eq!(reports[0].persisted, Known::Is(Some(Value::try_new("2").unwrap())));
    }

    #[test]
    fn with_nothing_desired_and_nothing_persisted_all_is_proven() {
        let mut layers = layers("1", None, Some("7"), Some("7"), Some("7"));
        layers.desired.clear();
        assert_eq!(verify(&report(&[definition()], &layers)), Verification::Proven);
    }

    #[test]
    fn what_the_app_overrides_is_not_called_drift() {
        let mut definition = definition();
        definition.app_may_override = true;
        let mut layers = layers("1", Some("1"), Some("1"), Some("7"), Some("7"));
        let standing = |layers: &Layers| report(std::slice::from_ref(&definition), layers)[0].standing.clone();
        let started_with = |text: &str| BTreeMap::from([(name().to_string(), text.to_owned())]);
        layers.from_app = FromApp::StartedWith(started_with("1"));
        assert_eq!(standing(&layers), Standing::SetInApp);
        layers.from_app = FromApp::Unreadable { after_publication: true };
        assert_eq!(standing(&layers), Standing::SetInApp);
        let drift = Standing::Drift(vec![Layer::Effective]);
        layers.from_app = FromApp::StartedWith(BTreeMap::new());
        assert_eq!(standing(&layers), drift, "the app was started too early");
        layers.from_app = FromApp::Unreadable { after_publication: false };
        assert_eq!(standing(&layers), drift);
        layers.from_app = FromApp::NotTheApp;
        assert_eq!(standing(&layers), drift);
    }

    #[test]
    fn what_a_server_does_not_report_is_not_proven_by_its_environment() {
        let mut layers = layers("1", Some("1"), Some("1"), Some("1"), Some("1"));
        if let Known::Is((values, _)) = &mut layers.server.config_line {
            values.clear();
        }
        assert!(matches!(report(&[definition()], &layers)[0].standing, Standing::Unknown(_)));
    }

    #[test]
    fn a_machine_without_a_session_layer_is_judged_by_the_others() {
        let mut layers = layers("1", Some("1"), None, Some("1"), Some("1"));
        layers.session = None;
        assert_eq!(report(&[definition()], &layers)[0].standing, Standing::Proven);
    }

    fn definition() -> Definition {
        Definition { name: name(), default_in_force: "1".to_owned(), shown: Shown::ConfigLine, app_may_override: false }
    }

    fn layers(
        desired: &str,
        persisted: Option<&str>,
        session: Option<&str>,
        line: Option<&str>,
        environment: Option<&str>,
    ) -> Layers {
        let one = |text: &str| BTreeMap::from([(name(), Value::try_new(text).unwrap())]);
        let texts = |text: &str| BTreeMap::from([(name(), text.to_owned())]);
        let line_proof = Proof::ConfigLine { logged_at: Wall::from_unix_ms(1), log: "server.log".to_owned() };
        let environment_proof = Proof::Environment { server: Identity { pid: 1, birth: 1 } };
        Layers {
            desired: BTreeMap::from([(
                name(),
                Wish { value: Value::try_new(desired).unwrap(), in_force: desired.to_owned() },
            )]),
            persisted: Known::Is(persisted.map(one).unwrap_or_default()),
            persisted_in: PersistedIn::OurFile,
            session: Some(Known::Is(session.map(one).unwrap_or_default())),
            from_app: FromApp::NotTheApp,
            server: ServerEvidence {
                config_line: match line {
                    Some(text) => Known::Is((texts(text), line_proof)),
                    None => Known::unknown("no line"),
                },
                environment: Known::Is((environment.map(texts).unwrap_or_default(), environment_proof)),
            },
        }
    }

    fn name() -> Name {
        Name::try_new("OLLAMA_NUM_PARALLEL").unwrap()
    }
}
