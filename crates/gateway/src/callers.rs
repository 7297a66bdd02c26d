//! Who asks: as the client says, as its key says, or the program at the other end of the connection.

use crate::answer::Refusal;
use crate::configuration::Configuration;
use crate::headers::{CLIENT, DEADLINE_MS, LANE};
use crate::keys::Keys;
use http::{HeaderMap, HeaderValue};
use stablehand_engine::admission::Lane;
use stablehand_platform::connections::Connections;
use stablehand_platform::machine::Machine;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How long a request waits for the name of the program that sent it.
const LOOK_UP: Duration = Duration::from_millis(300);
/// All processes are gone through at most this often.
const WIDE_GAP: Duration = Duration::from_millis(100);
/// A longer name is cut off.
const NAME_BYTES: usize = 64;

/// The two ends of a client's connection.
#[derive(Debug)]
pub struct Ends {
    /// Ours.
    pub local: SocketAddr,
    /// The client's.
    pub peer: SocketAddr,
    /// There was no place for it; it is told so.
    pub spare: bool,
    program: Mutex<Program>,
}

/// The program at the other end.
#[derive(Clone, Debug, Default)]
enum Program {
    /// It was not looked for yet.
    #[default]
    Unasked,
    /// It cannot be found: it runs on another machine, in a container, or as another user.
    Nowhere,
    Named(Arc<str>),
}

impl Ends {
    /// A connection of which nothing else is known yet.
    pub fn new(local: SocketAddr, peer: SocketAddr, spare: bool) -> Self {
        Self { local, peer, spare, program: Mutex::default() }
    }
}

/// What a request says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Whose it is.
    pub client: Arc<str>,
    /// Its class.
    pub lane: Lane,
    /// How long it waits for its turn.
    pub patience: Option<Duration>,
    /// Signs of life while it waits, where its client has a rule for that.
    pub keep_alive: Option<bool>,
}

/// Names the programs behind connections.
#[derive(Clone, Debug)]
pub struct Programs {
    asked: mpsc::UnboundedSender<Question>,
}

#[derive(Debug)]
struct Question {
    /// It was looked for in vain once.
    again: bool,
    local_port: u16,
    peer: SocketAddr,
    told: oneshot::Sender<Option<Arc<str>>>,
}

impl Programs {
    /// Starts looking programs up.
    pub fn start(machine: Machine) -> Self {
        let (asked, questions) = mpsc::unbounded_channel();
        tokio::spawn(look_up(machine, questions));
        Self { asked }
    }

    async fn of(&self, ends: &Ends) -> Option<Arc<str>> {
        match &*ends.program.lock().unwrap_or_else(PoisonError::into_inner) {
            Program::Named(name) => return Some(name.clone()),
            Program::Nowhere => return None,
            Program::Unasked => {}
        }
        let (told, answer) = oneshot::channel();
        self.asked.send(Question { again: false, local_port: ends.local.port(), peer: ends.peer, told }).ok()?;
        let program = tokio::time::timeout(LOOK_UP, answer).await.ok()?.ok()?;
        *ends.program.lock().unwrap_or_else(PoisonError::into_inner) =
            program.clone().map_or(Program::Nowhere, Program::Named);
        program
    }
}

/// One look answers all who have asked before it. Whom it does not find is looked for a second time, when all processes
/// may be gone through again.
async fn look_up(machine: Machine, mut questions: mpsc::UnboundedReceiver<Question>) {
    let mut connections = std::collections::HashMap::new();
    let mut asked = Vec::new();
    loop {
        if asked.is_empty() && questions.recv_many(&mut asked, usize::MAX).await == 0 {
            return;
        }
        let mut later = Vec::new();
        let ports: std::collections::BTreeSet<u16> = asked.iter().map(|question| question.local_port).collect();
        for port in ports {
            let mut looking =
                connections.remove(&port).unwrap_or_else(|| Connections::new(machine.clone()).with_wide_gap(WIDE_GAP));
            let Ok((looking, seen)) = tokio::task::spawn_blocking(move || {
                let seen = looking.look(port);
                (looking, seen)
            })
            .await
            else {
                return;
            };
            connections.insert(port, looking);
            let seen = seen.known().cloned().unwrap_or_default();
            let (here, elsewhere) = asked.into_iter().partition::<Vec<_>, _>(|question| question.local_port == port);
            asked = elsewhere;
            for question in here {
                let of_it = seen.iter().find(|connection| is_same(connection.client_address, question.peer));
                let program = of_it.and_then(|connection| connection.program.known());
                if program.is_none() && !question.again {
                    later.push(Question { again: true, ..question });
                    continue;
                }
                // Whoever asked may have gone.
                let _ = question.told.send(program.map(|program| Arc::from(program.as_str())));
            }
        }
        if !later.is_empty() {
            tokio::time::sleep(WIDE_GAP).await;
            asked = later;
            // Those who have come since are looked for with them.
            while let Ok(question) = questions.try_recv() {
                asked.push(question);
            }
        }
    }
}

fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
}

/// Reads who asks, and how it wants to be treated.
///
/// # Errors
/// When it says something that is not understood; it would be treated otherwise than it believes.
pub async fn caller(
    configuration: &Configuration,
    keys: &Keys,
    programs: &Programs,
    ends: &Ends,
    headers: &HeaderMap,
) -> Result<Caller, Refusal> {
    let told = headers.get(CLIENT).and_then(|name| shortened(name.to_str().ok()?));
    let client = match told.or_else(|| keys.owner(headers)) {
        Some(name) => name,
        None => named_by_connection(configuration, programs, ends).await,
    };
    let limits = configuration.limits.of_client(&client);
    let lane = match headers.get(LANE) {
        None => limits.lane.unwrap_or(configuration.lane),
        Some(word) => word.to_str().ok().and_then(Lane::from_word).ok_or_else(|| {
            let words: Vec<_> = Lane::ALL.iter().map(|lane| lane.word()).collect();
            Refusal::bad_request(format!("{LANE} takes {}", words.join(", ")))
        })?,
    };
    let patience = headers.get(DEADLINE_MS).map(milliseconds).transpose()?;
    let keep_alive = configuration.clients.get(&*client).and_then(|client| client.keep_alive);
    Ok(Caller { client, lane, patience, keep_alive })
}

async fn named_by_connection(configuration: &Configuration, programs: &Programs, ends: &Ends) -> Arc<str> {
    let program = programs.of(ends).await;
    let clients = || configuration.clients.iter();
    let by_program =
        program.as_deref().and_then(|program| clients().find(|(_, client)| client.program.as_deref() == Some(program)));
    let rule = by_program.or_else(|| clients().find(|(_, client)| client.port == Some(ends.local.port())));
    match (rule, program) {
        (Some((name, _)), _) => Arc::from(name.as_str()),
        (None, Some(program)) => program,
        (None, None) => Arc::from(ends.peer.ip().to_canonical().to_string()),
    }
}

fn milliseconds(value: &HeaderValue) -> Result<Duration, Refusal> {
    value
        .to_str()
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .map(Duration::from_millis)
        .ok_or_else(|| Refusal::bad_request(format!("{DEADLINE_MS} takes a number of milliseconds")))
}

fn shortened(name: &str) -> Option<Arc<str>> {
    let name: String = name.trim().chars().filter(|letter| !letter.is_control()).take(NAME_BYTES).collect();
    (!name.is_empty()).then(|| Arc::from(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Client;
    use http::HeaderName;
    use stablehand_engine::admission::ClientLimits;

    fn ends() -> Ends {
        Ends::new("127.0.0.1:11434".parse().unwrap(), "192.0.2.7:50000".parse().unwrap(), false)
    }

    fn known(program: &str) -> Ends {
        let ends = ends();
        *ends.program.lock().unwrap() = Program::Named(Arc::from(program));
        ends
    }

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    async fn asked(configuration: &Configuration, ends: &Ends, lines: &[(&'static str, &'static str)]) -> Caller {
        let programs = Programs { asked: mpsc::unbounded_channel().0 };
        caller(configuration, &Keys::default(), &programs, ends, &headers(lines)).await.unwrap()
    }

    #[tokio::test]
    async fn the_header_goes_before_the_program_and_the_program_before_the_address() {
        let configuration = crate::testing::configuration();
        let name =
            async |ends: &Ends, lines: &[(&'static str, &'static str)]| asked(&configuration, ends, lines).await.client;
        assert_eq!(&*name(&known("node"), &[("x-stablehand-client", " red ")]).await, "red");
        assert_eq!(&*name(&known("node"), &[("x-stablehand-client", " ")]).await, "node");
        assert_eq!(&*name(&ends(), &[]).await, "192.0.2.7");
    }

    #[tokio::test]
    async fn a_rule_names_a_program_or_a_port_and_gives_it_a_lane() {
        let mut configuration = crate::testing::configuration();
        let rule =
            |program: Option<&str>, port| Client { program: program.map(str::to_owned), port, keep_alive: Some(false) };
        configuration.clients.insert("chat".to_owned(), rule(Some("node"), None));
        configuration.clients.insert("door".to_owned(), rule(None, Some(11434)));
        let limits = ClientLimits { lane: Some(Lane::Batch), ..ClientLimits::default() };
        configuration.limits.clients.insert(Arc::from("chat"), limits);
        let chat = asked(&configuration, &known("node"), &[]).await;
        assert_eq!((&*chat.client, chat.lane, chat.keep_alive), ("chat", Lane::Batch, Some(false)));
        let chat = asked(&configuration, &known("node"), &[("x-stablehand-lane", "interactive")]).await;
        assert_eq!(chat.lane, Lane::Interactive);
        assert_eq!(&*asked(&configuration, &known("python3"), &[]).await.client, "door");
    }

    #[tokio::test]
    async fn what_is_not_understood_is_refused() {
        let configuration = crate::testing::configuration();
        let programs = Programs { asked: mpsc::unbounded_channel().0 };
        for line in [("x-stablehand-lane", "fast"), ("x-stablehand-deadline-ms", "soon")] {
            let (keys, ends) = (Keys::default(), ends());
            let refused = caller(&configuration, &keys, &programs, &ends, &headers(&[line])).await.unwrap_err();
            assert_eq!(refused.status, 400, "{line:?}");
        }
        let patient = asked(&configuration, &ends(), &[("x-stablehand-deadline-ms", "1500")]).await;
        assert_eq!(patient.patience, Some(Duration::from_millis(1_500)));
    }

    #[tokio::test]
    async fn whoever_cannot_be_found_is_looked_for_once_a_connection() {
        let (asked, mut questions) = mpsc::unbounded_channel();
        let programs = Programs { asked };
        let ends = ends();
        let answering = async { questions.recv().await.unwrap().told.send(None).unwrap() };
        assert_eq!(tokio::join!(programs.of(&ends), answering).0, None);
        assert_eq!(programs.of(&ends).await, None);
        assert!(questions.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_real_connection_is_named_after_its_program() {
        let folder = tempfile::tempdir().unwrap();
        let programs = Programs::start(crate::testing::machine(folder.path()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let local = listener.local_addr().unwrap();
        let client = tokio::net::TcpStream::connect(local).await.unwrap();
        let ends = Ends::new(local, client.local_addr().unwrap(), false);
        let (told, answer) = oneshot::channel();
        programs.asked.send(Question { again: false, local_port: local.port(), peer: ends.peer, told }).unwrap();
        assert!(answer.await.unwrap().is_some_and(|program| program.starts_with("stablehand")));
    }
}
