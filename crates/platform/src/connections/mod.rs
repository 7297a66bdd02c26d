//! Who is connected to the server: established TCP connections to its port, by client process and age.
//!
//! A connection is no request. Clients keep connections open between requests (HTTP keep-alive), so the number here is
//! an upper bound of what waits and runs, and an age is that of the connection. What is told is what was seen: an age
//! counts from the first look at a connection.
//!
//! The socket table is the real system's, in a world too. On Linux it tells of every connection; on macOS only one's
//! own processes show theirs, so a server of another user is unknown. Naming a client means going through the open
//! files of processes: those that were clients before are asked first, everybody only every ten seconds.

mod mac_kernel;
mod mac_sockets;
mod proc_net;
mod sock_diag;

use crate::machine::Machine;
use crate::processes;
use stablehand_engine::Known;
use stablehand_engine::process::Identity;
use stablehand_engine::time::Awake;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// All processes are gone through at most this often, in real time, where nobody wants it otherwise.
const WIDE_GAP: Duration = Duration::from_secs(10);

/// An established connection to the server's port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The client's end.
    pub client_address: SocketAddr,
    /// The process at that end; unknown for another user's process, another machine, or one not looked up yet.
    pub client: Known<Identity>,
    /// That process's short name.
    pub program: Known<String>,
    /// When it was first seen here; the connection may be older than the first look.
    pub since: Awake,
}

/// Looks at a port's connections, and remembers when each was first seen and whose it is.
#[derive(Debug)]
pub struct Connections {
    machine: Machine,
    seen: HashMap<Key, Seen>,
    /// Processes that were clients lately.
    clients: BTreeSet<u32>,
    /// When all processes were last gone through.
    wide: Option<Instant>,
    /// How often they may be.
    wide_gap: Duration,
    servers: mac_sockets::Servers,
}

/// One connection, as the socket table shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pair {
    server_end: SocketAddr,
    client_end: SocketAddr,
    /// Where the client's socket is on this machine.
    client_socket: ClientSocket,
}

/// What the socket table tells of the client's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ClientSocket {
    /// An inode on this machine, and the uid of its owner.
    Inode(u64, u32),
    /// The table does not tell; only the client's process would.
    Untold,
    /// There is no such socket on this machine.
    Elsewhere,
}

/// The same connection in two looks: a port is reused, but not with the same inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    server_end: SocketAddr,
    client_end: SocketAddr,
    client_socket: ClientSocket,
}

#[derive(Clone, Debug)]
struct Seen {
    since: Awake,
    client: Option<(Identity, String)>,
    /// All processes were gone through for it, and none had it.
    searched: bool,
}

/// Which processes are gone through.
#[derive(Clone, Copy, Debug)]
enum Search<'a> {
    Among(&'a BTreeSet<u32>),
    Everywhere,
}

impl Connections {
    /// Nothing was seen yet.
    pub fn new(machine: Machine) -> Self {
        Self {
            machine,
            seen: HashMap::new(),
            clients: BTreeSet::new(),
            wide: None,
            wide_gap: WIDE_GAP,
            servers: mac_sockets::Servers::default(),
        }
    }

    /// The same, with another span between two times that all processes are gone through.
    #[must_use]
    pub fn with_wide_gap(self, wide_gap: Duration) -> Self {
        Self { wide_gap, ..self }
    }

    /// The established connections to this TCP port of this machine, on any address, the oldest first.
    pub fn look(&mut self, port: u16) -> Known<Vec<Connection>> {
        let now = self.machine.clock().awake();
        if cfg!(target_os = "macos") {
            match self.servers.pairs(port) {
                Ok(pairs) => Known::Is(self.told(now, pairs, mac_sockets::holders)),
                Err(reason) => Known::Unknown(reason),
            }
        } else {
            match proc_net::pairs(port) {
                Ok(pairs) => Known::Is(self.told(now, pairs, proc_net::holders)),
                Err(reason) => Known::Unknown(reason),
            }
        }
    }

    /// Adds what is remembered, forgets what is gone, and names new clients with `find`, which maps the keys of
    /// connections to pids.
    fn told(
        &mut self,
        now: Awake,
        pairs: Vec<Pair>,
        find: impl Fn(&HashSet<Key>, Search<'_>) -> HashMap<Key, u32>,
    ) -> Vec<Connection> {
        let keys: HashSet<Key> = pairs.iter().map(key).collect();
        self.seen.retain(|key, _| keys.contains(key));
        for key in &keys {
            let seen = self.seen.entry(*key).or_insert(Seen { since: now, client: None, searched: false });
            // A socket can be handed to another process while its first holder ends.
            if seen.client.as_ref().is_some_and(|(id, _)| !processes::is_alive(*id)) {
                (seen.client, seen.searched) = (None, false);
            }
        }
        self.name(&find, false);
        if self.wide.is_none_or(|when| when.elapsed() >= self.wide_gap) && !self.nameless().is_empty() {
            self.wide = Some(Instant::now());
            self.name(&find, true);
        }
        self.clients.retain(|pid| processes::identity(*pid).is_some());
        let mut told: Vec<_> = pairs.iter().filter_map(|pair| self.connection(pair)).collect();
        told.sort_by_key(|connection| (connection.since, connection.client_address));
        told
    }

    fn nameless(&self) -> HashSet<Key> {
        let nameless = self.seen.iter().filter(|(key, seen)| {
            seen.client.is_none() && !seen.searched && key.client_socket != ClientSocket::Elsewhere
        });
        nameless.map(|(key, _)| *key).collect()
    }

    fn name(&mut self, find: impl Fn(&HashSet<Key>, Search<'_>) -> HashMap<Key, u32>, wide: bool) {
        let wanted = self.nameless();
        if wanted.is_empty() || (!wide && self.clients.is_empty()) {
            return;
        }
        let search = if wide { Search::Everywhere } else { Search::Among(&self.clients) };
        let found = find(&wanted, search);
        for key in wanted {
            let Some(seen) = self.seen.get_mut(&key) else { continue };
            seen.client = found.get(&key).and_then(|pid| processes::life_of(*pid));
            seen.searched = wide;
        }
        self.clients.extend(found.into_values());
    }

    fn connection(&self, pair: &Pair) -> Option<Connection> {
        let seen = self.seen.get(&key(pair))?;
        let (client, program) = match &seen.client {
            Some((id, name)) => (Known::Is(*id), Known::Is(name.clone())),
            None => {
                let reason = nameless_because(pair, seen.searched);
                (Known::unknown(reason.clone()), Known::Unknown(reason))
            }
        };
        Some(Connection { client_address: pair.client_end, client, program, since: seen.since })
    }
}

fn key(pair: &Pair) -> Key {
    Key { server_end: pair.server_end, client_end: pair.client_end, client_socket: pair.client_socket }
}

fn nameless_because(pair: &Pair, searched: bool) -> String {
    match pair.client_socket {
        ClientSocket::Elsewhere => {
            format!("the client is not on this machine, or in a container: {}", pair.client_end.ip())
        }
        ClientSocket::Inode(..) | ClientSocket::Untold if !searched => {
            "the connection is new, and its process was not looked up yet".to_owned()
        }
        ClientSocket::Inode(_, uid) => format!("the socket belongs to uid {uid} and its process is not shown"),
        ClientSocket::Untold => {
            format!("no process of yours has it open; it is another user's or comes from {}", pair.client_end.ip())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::world_folder;
    use std::cell::RefCell;
    use std::net::{TcpListener, TcpStream};

    fn at(seconds: u64) -> Awake {
        Awake::from_start(Duration::from_secs(seconds))
    }

    fn pair(client_port: u16, client_socket: ClientSocket) -> Pair {
        Pair {
            server_end: "127.0.0.1:11434".parse().unwrap(),
            client_end: SocketAddr::from(([127, 0, 0, 1], client_port)),
            client_socket,
        }
    }

    #[test]
    fn ages_count_from_the_first_look_and_a_reused_port_is_a_new_connection() {
        let (_dir, machine) = world_folder("linux");
        let mut connections = Connections::new(machine);
        let nobody = |_: &HashSet<Key>, _: Search<'_>| HashMap::new();
        let old = pair(50_001, ClientSocket::Inode(7, 1_000));
        connections.told(at(1), vec![old.clone()], nobody);
        let new = pair(50_002, ClientSocket::Inode(8, 1_000));
        let told = connections.told(at(5), vec![new, old], nobody);
        let ages: Vec<_> = told.iter().map(|one| (one.client_address.port(), one.since)).collect();
        assert_eq!(ages, [(50_001, at(1)), (50_002, at(5))]);
        let told = connections.told(at(9), vec![pair(50_001, ClientSocket::Inode(9, 1_000))], nobody);
        assert_eq!(told[0].since, at(9));
        assert_eq!(connections.seen.len(), 1);
    }

    #[test]
    fn earlier_clients_are_asked_first_and_everybody_only_now_and_then() {
        let (_dir, machine) = world_folder("linux");
        let mut connections = Connections::new(machine);
        let asked = RefCell::new(Vec::new());
        let me = std::process::id();
        let find = |wanted: &HashSet<Key>, search: Search<'_>| {
            asked.borrow_mut().push(match search {
                Search::Among(pids) => format!("{} among {}", wanted.len(), pids.len()),
                Search::Everywhere => format!("{} everywhere", wanted.len()),
            });
            // Inodes below 100 are ours.
            let ours = wanted.iter().filter(|key| matches!(key.client_socket, ClientSocket::Inode(..100, _)));
            ours.map(|key| (*key, me)).collect()
        };
        let first = connections.told(at(1), vec![pair(1, ClientSocket::Inode(1, 0))], find);
        assert_eq!(first[0].client.known().map(|id| id.pid), Some(me));
        assert_eq!(*asked.borrow(), ["1 everywhere"]);
        // A second connection of the same client costs no wide search; a stranger's waits for the next one.
        let three = vec![
            pair(1, ClientSocket::Inode(1, 0)),
            pair(2, ClientSocket::Inode(2, 0)),
            pair(3, ClientSocket::Inode(300, 998)),
        ];
        let told = connections.told(at(2), three.clone(), find);
        assert_eq!(*asked.borrow(), ["1 everywhere", "2 among 1"]);
        assert!(told[1].client.known().is_some());
        assert!(told[2].client.reason().is_some_and(|reason| reason.contains("not looked up yet")));
        connections.wide = None;
        let told = connections.told(at(3), three.clone(), find);
        assert!(told[2].client.reason().is_some_and(|reason| reason.contains("uid 998")));
        assert_eq!(asked.borrow().last().map(String::as_str), Some("1 everywhere"));
        // A stranger that was searched for in vain is not searched for again.
        let count = asked.borrow().len();
        connections.wide = None;
        connections.told(at(4), three, find);
        assert_eq!(asked.borrow().len(), count);
    }

    #[test]
    fn a_client_on_another_machine_is_counted_and_never_searched_for() {
        let (_dir, machine) = world_folder("linux");
        let mut connections = Connections::new(machine);
        let nobody_is_asked = |_: &HashSet<Key>, _: Search<'_>| -> HashMap<Key, u32> { panic!("nobody to be asked") };
        let far = Pair { client_end: "192.0.2.7:50001".parse().unwrap(), ..pair(1, ClientSocket::Elsewhere) };
        let told = connections.told(at(1), vec![far], nobody_is_asked);
        assert!(told[0].client.reason().is_some_and(|reason| reason.contains("192.0.2.7")));
    }

    #[test]
    fn a_real_connection_is_found_with_its_process_and_gone_when_closed() {
        let (_dir, machine) = world_folder("linux");
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let mut connections = Connections::new(machine);
        assert_eq!(connections.look(port), Known::Is(Vec::new()));
        // Not accepted yet: it waits all the same.
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let told = connections.look(port).known().cloned().unwrap();
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].client_address, client.local_addr().unwrap());
        assert_eq!(told[0].client.known().map(|id| id.pid), Some(std::process::id()));
        let (accepted, _) = server.accept().unwrap();
        let again = connections.look(port).known().cloned().unwrap();
        assert_eq!(again, told);
        drop(client);
        drop(accepted);
        while connections.look(port) != Known::Is(Vec::new()) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_connection_through_the_long_addresses_is_found_once() {
        let (_dir, machine) = world_folder("linux");
        let Ok(server) = TcpListener::bind("[::]:0") else { return };
        let port = server.local_addr().unwrap().port();
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let told = Connections::new(machine).look(port).known().cloned().unwrap();
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].client_address, client.local_addr().unwrap());
        assert!(told[0].client.known().is_some());
    }
}
