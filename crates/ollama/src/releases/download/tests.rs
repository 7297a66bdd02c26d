//! Against a server on this computer, which answers as it is told to.

use super::*;
use crate::releases::{Asked, Terms, path_of_list};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

const STATE: &str = "\"state-1\"";

/// What is sent of a body.
enum Piece {
    Bytes(Vec<u8>),
    /// Nothing more until somebody says so.
    Until(Arc<Notify>),
}

/// One answer.
struct Reply {
    head: String,
    body: Vec<Piece>,
}

impl Reply {
    /// Status and headers; the length is a header as any other.
    fn new(status: &str, headers: &[(&str, String)], body: Vec<Piece>) -> Self {
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        Self { head: format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}\r\n"), body }
    }

    fn whole(bytes: &[u8]) -> Self {
        let headers = [("content-length", bytes.len().to_string()), ("etag", STATE.to_owned())];
        Self::new("200 OK", &headers, vec![Piece::Bytes(bytes.to_vec())])
    }

    /// Promises the whole and ends after some of it.
    fn cut(bytes: &[u8], after: usize) -> Self {
        let mut reply = Self::whole(bytes);
        reply.body = vec![Piece::Bytes(bytes[..after].to_vec())];
        reply
    }

    fn rest(bytes: &[u8], from: usize) -> Self {
        let range = format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
        let headers = [("content-length", (bytes.len() - from).to_string()), ("content-range", range)];
        Self::new("206 Partial Content", &headers, vec![Piece::Bytes(bytes[from..].to_vec())])
    }

    fn status(status: &str) -> Self {
        Self::new(status, &[("content-length", "0".to_owned())], vec![])
    }

    fn led_to(url: &str) -> Self {
        Self::new("302 Found", &[("location", url.to_owned()), ("content-length", "0".to_owned())], vec![])
    }
}

/// Answers one connection after the other, and remembers what was asked.
struct Server {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let mut replies: VecDeque<Reply> = replies.into_iter().collect();
        let task = tokio::spawn({
            let asked = asked.clone();
            async move {
                // Each on its own, and nobody listens any more once all are given.
                let mut talks = tokio::task::JoinSet::new();
                while let Some(reply) = replies.pop_front() {
                    let (stream, _) = listener.accept().await.unwrap();
                    talks.spawn(answer(stream, reply, asked.clone()));
                }
                drop(listener);
                talks.join_all().await;
            }
        });
        Self { address, asked, task }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn source(&self) -> Source {
        Source::new(&self.address, Terms::default()).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(stream: TcpStream, reply: Reply, asked: Arc<Mutex<Vec<String>>>) {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).await.unwrap() > 0 {}
    asked.lock().unwrap().push(head.to_lowercase());
    stream.write_all(reply.head.as_bytes()).await.unwrap();
    for piece in reply.body {
        match piece {
            // Whoever asked may have gone.
            Piece::Bytes(bytes) => drop(stream.write_all(&bytes).await),
            Piece::Until(told) => told.notified().await,
        }
    }
    let _gone = stream.shutdown().await;
}

/// A file of a release in a folder of its own, and what was told and waited for.
struct Case {
    folder: TempDir,
    bytes: Vec<u8>,
    waits: Arc<Mutex<Vec<Duration>>>,
    news: Vec<News>,
}

impl Case {
    fn new(length: usize) -> Self {
        let bytes = (0..length).map(|at| (at * 7 + at / 251) as u8).collect();
        Self { folder: tempfile::tempdir().unwrap(), bytes, waits: Arc::default(), news: vec![] }
    }

    fn wanted(&self, url: String) -> Download {
        let mut hash = Context::new(&SHA256);
        hash.update(&self.bytes);
        Download {
            url,
            file: self.folder.path().join("work/Ollama-darwin.zip"),
            size_bytes: self.bytes.len() as u64,
            sha256: hex(hash),
            unpacked_limit_bytes: 0,
        }
    }

    async fn run(&mut self, source: &Source, wanted: &Download) -> Result<(), Fault> {
        self.run_with(source, wanted, &|_, _| Ok(())).await
    }

    async fn run_with(&mut self, source: &Source, wanted: &Download, before: Before<'_>) -> Result<(), Fault> {
        let waits = self.waits.clone();
        let wait = move |span: Duration| -> Pin<Box<dyn Future<Output = ()> + Send>> {
            waits.lock().unwrap().push(span);
            Box::pin(std::future::ready(()))
        };
        let back_off = BackOff { waits: [1, 2].map(Duration::from_secs).to_vec() };
        let now = || Wall::from_unix_ms(1_796_000_000_000);
        let means = Means { back_off: &back_off, wait: &wait, now: &now, before };
        source.download(wanted, means, &mut |news| self.news.push(news)).await
    }

    fn waits(&self) -> Vec<u64> {
        self.waits.lock().unwrap().iter().map(Duration::as_secs).collect()
    }

    /// Names in the folder of the work.
    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path().join("work")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn is_whole(&self, wanted: &Download) {
        assert_eq!(std::fs::read(&wanted.file).unwrap(), self.bytes);
        assert_eq!(self.files(), ["Ollama-darwin.zip"]);
    }
}

#[tokio::test]
async fn a_file_comes_in_by_way_of_a_redirect_and_its_progress_is_told() {
    let mut case = Case::new(16 * PIECE_BYTES + 5);
    let store = Server::start([Reply::whole(&case.bytes)]).await;
    let server = Server::start([Reply::led_to(&format!("{}/store?sig=1", store.address))]).await;
    let wanted = case.wanted(format!("{}/download/Ollama-darwin.zip", server.address));
    case.run(&server.source(), &wanted).await.unwrap();
    case.is_whole(&wanted);
    assert!(store.asked()[0].starts_with("get /store?sig=1 http/1.1\r\n"), "{:?}", store.asked());
    assert!(!store.asked()[0].contains("\r\nrange:"));
    let steps: Vec<u64> = case
        .news
        .iter()
        .map(|news| match news {
            News::Bytes { done_bytes, of_bytes } if *of_bytes == wanted.size_bytes => *done_bytes,
            News::Bytes { .. } | News::Waiting { .. } => panic!("{news:?}"),
        })
        .collect();
    assert!(steps.is_sorted() && steps.len() >= 4 && steps.last() == Some(&wanted.size_bytes), "{steps:?}");
}

#[tokio::test]
async fn what_is_there_is_left_and_what_is_another_is_fetched_anew() {
    let mut case = Case::new(1000);
    let server = Server::start([Reply::whole(&case.bytes), Reply::whole(&case.bytes)]).await;
    let wanted = case.wanted(server.address.clone());
    case.run(&server.source(), &wanted).await.unwrap();
    case.run(&server.source(), &wanted).await.unwrap();
    assert_eq!(server.asked().len(), 1);
    std::fs::write(&wanted.file, vec![0; 1000]).unwrap();
    assert_eq!(check(&wanted).await, Err(Fault::WrongHash));
    case.run(&server.source(), &wanted).await.unwrap();
    assert_eq!((server.asked().len(), check(&wanted).await), (2, Ok(())));
    case.is_whole(&wanted);
}

#[tokio::test]
async fn what_was_cut_off_goes_on_where_it_stopped() {
    let mut case = Case::new(PIECE_BYTES);
    let replies = [Reply::cut(&case.bytes, 1000), Reply::rest(&case.bytes, 1000)];
    let server = Server::start(replies).await;
    let wanted = case.wanted(server.address.clone());
    case.run(&server.source(), &wanted).await.unwrap();
    case.is_whole(&wanted);
    let asked = server.asked();
    assert!(asked[1].contains("\r\nrange: bytes=1000-\r\n"), "{}", asked[1]);
    assert!(asked[1].contains(&format!("\r\nif-range: {STATE}\r\n")), "{}", asked[1]);
    assert_eq!(case.waits(), [1]);
    assert!(case.news.iter().any(|news| matches!(news, News::Waiting { why, .. } if !why.is_empty())));
}

#[tokio::test]
async fn a_file_that_changed_meanwhile_is_taken_from_its_beginning() {
    let mut case = Case::new(5000);
    let server = Server::start([Reply::cut(&[9; 5000], 1000), Reply::whole(&case.bytes)]).await;
    let wanted = case.wanted(server.address.clone());
    case.run(&server.source(), &wanted).await.unwrap();
    case.is_whole(&wanted);
}

#[tokio::test]
async fn a_rest_of_something_else_is_found_by_its_hash_or_its_place_and_fetched_anew() {
    let mut case = Case::new(5000);
    let other = vec![9; 5000];
    let replies = [
        Reply::cut(&other, 1000),
        Reply::rest(&case.bytes, 1000),
        Reply::cut(&case.bytes, 2000),
        Reply::rest(&case.bytes, 1000),
        Reply::whole(&case.bytes),
    ];
    let server = Server::start(replies).await;
    let wanted = case.wanted(server.address.clone());
    case.run(&server.source(), &wanted).await.unwrap();
    case.is_whole(&wanted);
    assert!(!server.asked()[2].contains("\r\nrange:") && !server.asked()[4].contains("\r\nrange:"));
}

#[tokio::test]
async fn without_a_strong_state_nothing_is_resumed() {
    let mut case = Case::new(5000);
    let headers = [("content-length", "5000".to_owned()), ("etag", format!("W/{STATE}"))];
    let weak = Reply::new("200 OK", &headers, vec![Piece::Bytes(case.bytes[..1000].to_vec())]);
    let server = Server::start([weak, Reply::whole(&case.bytes)]).await;
    let wanted = case.wanted(server.address.clone());
    case.run(&server.source(), &wanted).await.unwrap();
    case.is_whole(&wanted);
    assert!(!server.asked()[1].contains("range:"), "{}", server.asked()[1]);
}

#[tokio::test]
async fn another_file_is_refused_by_its_hash_and_nothing_of_it_stays() {
    let mut case = Case::new(5000);
    let server = Server::start([Reply::whole(&[9; 5000])]).await;
    let wanted = case.wanted(server.address.clone());
    assert_eq!(case.run(&server.source(), &wanted).await, Err(Fault::WrongHash));
    assert_eq!((case.files().len(), case.waits().len()), (0, 0));
}

#[tokio::test]
async fn more_than_the_release_says_is_refused_by_its_header_or_while_it_comes() {
    for headers in [vec![("content-length", "6000".to_owned())], vec![]] {
        let mut case = Case::new(5000);
        let server = Server::start([Reply::new("200 OK", &headers, vec![Piece::Bytes(vec![1; 6000])])]).await;
        let wanted = case.wanted(server.address.clone());
        let fault = case.run(&server.source(), &wanted).await.unwrap_err();
        assert!(matches!(&fault, Fault::Network(why) if why.contains("the release says")), "{fault}");
        assert!(!wanted.file.exists());
        assert_eq!(std::fs::metadata(beside(&wanted.file, PART_ENDING)).unwrap().len(), 0);
    }
}

#[tokio::test]
async fn a_download_that_is_dropped_half_way_goes_on_next_time() {
    let mut case = Case::new(2 * PIECE_BYTES);
    let never_told = Arc::new(Notify::new());
    let half = Reply {
        body: vec![Piece::Bytes(case.bytes[..PIECE_BYTES].to_vec()), Piece::Until(never_told)],
        ..Reply::whole(&case.bytes)
    };
    let slow = Server::start([half]).await;
    let wanted = case.wanted(slow.address.clone());
    {
        let back_off = BackOff::default();
        let wait = |_: Duration| -> Pin<Box<dyn Future<Output = ()> + Send>> { panic!("it does not stop by itself") };
        let now = || Wall::from_unix_ms(0);
        let means = Means { back_off: &back_off, wait: &wait, now: &now, before: &|_, _| Ok(()) };
        let (told, mut half_way) = tokio::sync::mpsc::unbounded_channel();
        let mut tell = move |news| told.send(news).unwrap();
        let source = slow.source();
        tokio::select! {
            done = source.download(&wanted, means, &mut tell) => panic!("{done:?}"),
            news = half_way.recv() => assert!(matches!(news, Some(News::Bytes { .. })), "{news:?}"),
        }
    }
    let kept = std::fs::metadata(beside(&wanted.file, PART_ENDING)).unwrap().len() as usize;
    assert_eq!(kept, PIECE_BYTES);
    let server = Server::start([Reply::rest(&case.bytes, kept)]).await;
    let wanted = case.wanted(server.address.clone());
    case.run(&server.source(), &wanted).await.unwrap();
    case.is_whole(&wanted);
    assert_eq!(case.waits(), Vec::<u64>::new());
}

#[tokio::test]
async fn a_silent_server_is_given_up_and_asked_again() {
    let mut case = Case::new(5000);
    let never_told = Arc::new(Notify::new());
    let server = Server::start([Reply {
        body: vec![Piece::Bytes(case.bytes[..1000].to_vec()), Piece::Until(never_told)],
        ..Reply::whole(&case.bytes)
    }])
    .await;
    let wanted = case.wanted(server.address.clone());
    let terms = Terms { silence: Duration::from_millis(30), ..Terms::default() };
    let source = Source::new(&server.address, terms).unwrap();
    let fault = case.run(&source, &wanted).await.unwrap_err();
    assert!(matches!(fault, Fault::Network(_)), "{fault}");
    // One wait for the try that brought something, then both of the list: nobody answers any more.
    assert_eq!(case.waits(), [1, 2]);
    assert!(
        matches!(&case.news[1], News::Waiting { why, .. } if why == "127.0.0.1 sent nothing for 0.03 s"),
        "{:?}",
        case.news
    );
}

#[tokio::test]
async fn tries_end_with_the_list_of_waits_and_with_the_reason() {
    let mut case = Case::new(5000);
    let server = Server::start(["500 Oops", "502 Bad Gateway", "503 Busy"].map(Reply::status)).await;
    let wanted = case.wanted(server.address.clone());
    let fault = case.run(&server.source(), &wanted).await;
    assert_eq!(fault, Err(Fault::Network("the server answered 503".to_owned())));
    assert_eq!((case.waits(), server.asked().len()), (vec![1, 2], 3));
}

#[tokio::test]
async fn what_no_other_try_helps_is_told_at_once() {
    for status in ["404 Not Found", "401 Unauthorized", "403 Forbidden", "407 Proxy Authentication Required"] {
        let mut case = Case::new(5000);
        let server = Server::start([Reply::status(status)]).await;
        let wanted = case.wanted(server.address.clone());
        assert!(matches!(case.run(&server.source(), &wanted).await, Err(Fault::Network(_))), "{status}");
        assert_eq!(case.waits(), Vec::<u64>::new(), "{status}");
    }
}

#[tokio::test]
async fn a_spent_limit_is_waited_for_when_that_is_short_and_told_when_it_is_long() {
    let limited = |seconds: u64| {
        let headers = [("retry-after", seconds.to_string()), ("content-length", "0".to_owned())];
        Reply::new("429 Too Many Requests", &headers, vec![])
    };
    let mut case = Case::new(5000);
    let server = Server::start([limited(40), Reply::whole(&case.bytes)]).await;
    let wanted = case.wanted(server.address.clone());
    case.run(&server.source(), &wanted).await.unwrap();
    assert_eq!(case.waits(), [40]);
    case.is_whole(&wanted);

    let mut case = Case::new(5000);
    let server = Server::start([limited(3000)]).await;
    let wanted = case.wanted(server.address.clone());
    let fault = case.run(&server.source(), &wanted).await.unwrap_err();
    assert!(fault.to_string().contains("answered again in 3000 s"), "{fault}");
}

#[tokio::test]
async fn a_redirect_to_where_nobody_may_be_asked_ends_it() {
    for to in ["http://objects.example/file", "http://127.0.0.2:1/file", "ftp://127.0.0.1/file"] {
        let mut case = Case::new(10);
        let server = Server::start([Reply::led_to(to), Reply::led_to(to), Reply::led_to(to)]).await;
        let wanted = case.wanted(server.address.clone());
        let fault = case.run(&server.source(), &wanted).await.unwrap_err();
        assert!(fault.to_string().contains("is not asked: only https"), "{fault}");
    }
    let mut case = Case::new(10);
    let round = Server::start((0..33).map(|_| Reply::led_to("/round"))).await;
    let wanted = case.wanted(round.address.clone());
    let fault = case.run(&round.source(), &wanted).await.unwrap_err();
    assert!(fault.to_string().contains("more than 10 times"), "{fault}");
}

#[tokio::test]
async fn each_refusal_of_the_disk_is_told_and_the_next_time_goes_on() {
    let mut points = Vec::new();
    for (code, is_right) in [
        (28, (|fault: &Fault| matches!(fault, Fault::NoSpace(_))) as fn(&Fault) -> bool),
        (13, |fault| matches!(fault, Fault::Denied(_))),
        (1, |fault| matches!(fault, Fault::Denied(_))),
        (5, |fault| matches!(fault, Fault::File { .. })),
    ] {
        for fail_at in 0.. {
            let mut case = Case::new(2 * PIECE_BYTES);
            let server = Server::start([Reply::whole(&case.bytes), Reply::whole(&case.bytes)]).await;
            let wanted = case.wanted(server.address.clone());
            let changes = Mutex::new(0);
            let before = |what: &'static str, _: &Path| {
                let mut changes = changes.lock().unwrap();
                *changes += 1;
                if *changes == fail_at + 1 {
                    points.push((code, what));
                    return Err(io::Error::from_raw_os_error(code));
                }
                Ok(())
            };
            // The closure counts, so that it is none that could be called at the same time.
            let counted = Mutex::new(before);
            let result =
                case.run_with(&server.source(), &wanted, &|what, path| (counted.lock().unwrap())(what, path)).await;
            let Err(fault) = result else {
                case.is_whole(&wanted);
                break;
            };
            assert!(is_right(&fault), "{code}: {fault}");
            case.run(&server.source(), &wanted).await.unwrap();
            case.is_whole(&wanted);
        }
    }
    assert!(points.len() >= 40, "{}: {points:?}", points.len());
}

#[tokio::test]
async fn releases_are_asked_for_with_the_state_of_before() {
    let now = Wall::from_unix_ms(1_796_000_000_000);
    let list = include_bytes!("../../../fixtures/releases.json");
    let server = Server::start([
        Reply::whole(list),
        Reply::status("304 Not Modified"),
        Reply::status("404 Not Found"),
        Reply::new(
            "403 Forbidden",
            &[
                ("x-ratelimit-remaining", "0".to_owned()),
                ("x-ratelimit-reset", "1796000090".to_owned()),
                ("content-length", "0".to_owned()),
            ],
            vec![],
        ),
        Reply::whole(b"<html>log in to this network</html>"),
    ])
    .await;
    let source = server.source();
    let Asked::Releases { releases, etag, .. } = source.list(30, None, now).await else { panic!("no releases") };
    assert_eq!((releases.releases.len(), etag.as_ref().map(ETag::as_str)), (3, Some(STATE)));
    assert_eq!(source.list(30, etag.as_ref(), now).await, Asked::NotModified { limit: None });
    assert_eq!(source.one("0.9.9".parse().unwrap(), None, now).await, Asked::Missing);
    let limited = Asked::Unreachable(Unreachable::RateLimited { wait_seconds: Some(90) });
    assert_eq!(source.list(30, None, now).await, limited);
    let portal = source.list(30, None, now).await;
    assert!(matches!(&portal, Asked::Unreachable(Unreachable::Other(why)) if why.contains("log in")), "{portal:?}");
    let asked = server.asked();
    assert!(asked[0].starts_with(&format!("get {} http/1.1\r\n", path_of_list(30))), "{}", asked[0]);
    assert!(asked[0].contains("\r\nuser-agent: stablehand/") && !asked[0].contains("if-none-match"), "{}", asked[0]);
    assert!(asked[1].contains(&format!("\r\nif-none-match: {STATE}\r\n")), "{}", asked[1]);
}

#[tokio::test]
async fn hashes_are_read_from_the_release_and_are_none_where_it_has_no_such_file() {
    let now = Wall::from_unix_ms(0);
    let server = Server::start([Reply::whole(include_bytes!("../../../fixtures/sha256sum.txt"))]).await;
    let mut releases = crate::releases::Releases::read(include_bytes!("../../../fixtures/releases.json")).unwrap();
    let mut release = releases.releases.remove(1);
    for file in &mut release.files {
        file.url = format!("{}/{}", server.address, file.name);
    }
    let sums = server.source().sums(&release, now).await.unwrap();
    assert_eq!(sums.of("Ollama-darwin.zip").map(str::len), Ok(64));
    release.files.clear();
    assert_eq!(server.source().sums(&release, now).await.unwrap().of("Ollama-darwin.zip").ok(), None);
}

#[tokio::test]
async fn no_server_and_a_proxy_that_wants_a_name_are_told_apart() {
    let now = Wall::from_unix_ms(0);
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let asked = Source::new(&format!("http://{gone}"), Terms::default()).unwrap().list(1, None, now).await;
    assert!(matches!(&asked, Asked::Unreachable(Unreachable::Other(why)) if why.contains("refused")), "{asked:?}");

    let proxy = Server::start([Reply::status("407 Proxy Authentication Required")]).await;
    let mut source = Source::new("https://releases.example", Terms::default()).unwrap();
    source.link = source.link.through(&proxy.address);
    assert_eq!(source.list(1, None, now).await, Asked::Unreachable(Unreachable::Proxy));
    assert!(proxy.asked()[0].starts_with("connect releases.example:443 "), "{:?}", proxy.asked());
}
