//! A gateway on real sockets between a client and a stand-in for Ollama that answers as a test tells it to.

#![allow(dead_code, reason = "each test uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use stablehand_gateway::Gateway;
use stablehand_platform::machine::Machine;
use stablehand_platform::paths::stablehand_files;
use stablehand_protocol::client::gateway::Gateway as Control;
use stablehand_protocol::queue::QueueView;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

/// Nothing here takes as long; what does is broken.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for something that has to come.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} did not come"))
}

/// A stand-in for Ollama.
pub struct Ollama {
    pub address: SocketAddr,
    asked: mpsc::UnboundedReceiver<Asked>,
    accepted: Arc<AtomicUsize>,
    serving: tokio::task::JoinHandle<()>,
}

/// A request that came to it.
pub struct Asked {
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: Option<HeaderMap>,
    answer: oneshot::Sender<Response<Pieces>>,
}

type Pieces = StreamBody<futures_util::stream::BoxStream<'static, Result<Frame<Bytes>, Broken>>>;

#[derive(Debug, thiserror::Error)]
#[error("broken on purpose")]
pub struct Broken;

impl Ollama {
    pub async fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap()).await
    }

    pub async fn start_at(address: SocketAddr) -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address).unwrap();
        let listener = socket.listen(1024).unwrap();
        let address = listener.local_addr().unwrap();
        let (asks, asked) = mpsc::unbounded_channel();
        let accepted = Arc::new(AtomicUsize::new(0));
        let serving = tokio::spawn(serve(listener, asks, accepted.clone()));
        Self { address, asked, accepted, serving }
    }

    /// The next request that comes.
    pub async fn asked(&mut self) -> Asked {
        loop {
            let asked = soon("a request at Ollama", self.asked.recv()).await.unwrap();
            // The gateway looks by itself what is loaded.
            if asked.path != "/api/ps" {
                return asked;
            }
            asked.json(r#"{"models":[]}"#);
        }
    }

    /// How many connections were opened to it.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Whether nothing has come.
    pub fn is_idle(&mut self) -> bool {
        while let Ok(asked) = self.asked.try_recv() {
            if asked.path != "/api/ps" {
                return false;
            }
        }
        true
    }

    /// Ends it with all its connections, as a killed server does.
    pub async fn kill(self) -> SocketAddr {
        self.serving.abort();
        let _ = self.serving.await;
        self.address
    }
}

async fn serve(listener: TcpListener, asks: mpsc::UnboundedSender<Asked>, accepted: Arc<AtomicUsize>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        stream.set_nodelay(true).unwrap();
        accepted.fetch_add(1, Ordering::Relaxed);
        let asks = asks.clone();
        connections.spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| answer(asks.clone(), request));
            let _ = hyper::server::conn::http1::Builder::new()
                .auto_date_header(false)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(asks: mpsc::UnboundedSender<Asked>, request: Request<Incoming>) -> Result<Response<Pieces>, Broken> {
    let (parts, body) = request.into_parts();
    let collected = body.collect().await.map_err(|_| Broken)?;
    let trailers = collected.trailers().cloned();
    let (answer, told) = oneshot::channel();
    let path = parts.uri.to_string();
    let (method, headers, body) = (parts.method, parts.headers, collected.to_bytes());
    asks.send(Asked { method, path, headers, body, trailers, answer }).map_err(|_| Broken)?;
    told.await.map_err(|_| Broken)
}

/// An answer that is being sent, piece by piece.
pub struct Answering {
    pieces: mpsc::UnboundedSender<Result<Frame<Bytes>, Broken>>,
    taken: Arc<AtomicUsize>,
}

impl Answering {
    pub fn piece(&self, piece: &str) -> bool {
        self.pieces.send(Ok(Frame::data(Bytes::copy_from_slice(piece.as_bytes())))).is_ok()
    }

    pub fn trailers(&self, trailers: HeaderMap) {
        let _ = self.pieces.send(Ok(Frame::trailers(trailers)));
    }

    /// How many pieces have gone to the connection; it takes the next one when there is room for it.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Breaks the connection in the middle.
    pub fn break_off(self) {
        let _ = self.pieces.send(Err(Broken));
    }

    /// Waits until nobody reads it any more.
    pub async fn nobody_reads(&self) {
        soon("the end of a reader", self.pieces.closed()).await;
    }
}

impl Asked {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Answers at once and whole.
    pub fn json(self, body: &str) {
        self.whole(StatusCode::OK, &[("content-type", "application/json")], body);
    }

    pub fn whole(self, status: StatusCode, headers: &[(&str, &str)], body: &str) {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let length = body.len().to_string();
        let mut all = headers.to_vec();
        all.push(("content-length", &length));
        let frame = futures_util::stream::iter([Ok(Frame::data(body))]).boxed();
        let _ = self.answer.send(head(status, &all).body(StreamBody::new(frame)).unwrap());
    }

    /// Begins an answer.
    pub fn begin(self, headers: &[(&str, &str)]) -> Answering {
        let (pieces, mut sent) = mpsc::unbounded_channel();
        let taken = Arc::new(AtomicUsize::new(0));
        let count = taken.clone();
        let counted = move |piece| {
            count.fetch_add(1, Ordering::Relaxed);
            piece
        };
        let stream = futures_util::stream::poll_fn(move |context| sent.poll_recv(context)).map(counted).boxed();
        let _ = self.answer.send(head(StatusCode::OK, headers).body(StreamBody::new(stream)).unwrap());
        Answering { pieces, taken }
    }

    /// Waits until nobody waits for an answer.
    pub async fn nobody_waits(&mut self) {
        soon("the end of a client", self.answer.closed()).await;
    }

    /// Breaks the connection before there is an answer.
    pub fn break_off(self) {
        drop(self.answer);
    }
}

fn head(status: StatusCode, headers: &[(&str, &str)]) -> http::response::Builder {
    headers.iter().fold(Response::builder().status(status), |head, (name, value)| head.header(*name, *value))
}

/// A gateway in a world of its own.
pub struct Stage {
    folder: tempfile::TempDir,
    machine: Machine,
    pub gateway: Gateway,
    pub control: Control,
    pub ollama: Ollama,
}

impl Stage {
    /// With these lines in its table; time runs as real time.
    pub async fn with(lines: &str) -> Self {
        Self::at_speed(lines, 1.0).await
    }

    /// In a world whose time runs so many times faster.
    pub async fn at_speed(lines: &str, speed: f64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ollama = Ollama::start().await;
        let marker = r#"{"format":1,"os":"linux","user":"sim","home":"/home/sim","port":21434}"#;
        std::fs::write(folder.path().join("stablehand-world.json"), marker).unwrap();
        let clock = format!(r#"{{"speed":{speed},"anchor_monotonic_ms":0,"anchor_wall_unix_ms":0,"slept_ms":0}}"#);
        std::fs::write(folder.path().join("clock.json"), clock).unwrap();
        let machine = Machine::world(folder.path()).unwrap();
        write(&machine, ollama.address, lines);
        let gateway = Gateway::start(machine.clone()).await.unwrap();
        let control = Control::new(stablehand_files(&machine).gateway_socket);
        Self { folder, machine, gateway, control, ollama }
    }

    /// Another version of its table.
    pub fn rewrite(&self, lines: &str) {
        write(&self.machine, self.ollama.address, lines);
    }

    /// Another address of Ollama's in its table.
    pub fn rewrite_upstream(&self, upstream: SocketAddr) {
        write(&self.machine, upstream, "");
    }

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub fn address(&self) -> SocketAddr {
        self.gateway.addresses()[0]
    }

    /// Asks on a connection of its own.
    pub async fn ask(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        ask(self.address(), request).await
    }

    /// Asks beside the test, which goes on.
    pub fn asking(&self, request: Request<Full<Bytes>>) -> tokio::task::JoinHandle<Response<Incoming>> {
        tokio::spawn(ask(self.address(), request))
    }

    /// Follows the queue until it is so.
    pub async fn until(&self, what: &str, is_so: impl Fn(&QueueView) -> bool) -> QueueView {
        let mut changes = self.control.changes().await.unwrap();
        soon(what, async {
            loop {
                let view = changes.next().await.unwrap().unwrap();
                if is_so(&view) {
                    return view;
                }
            }
        })
        .await
    }

    pub async fn until_waiting(&self, count: usize) -> QueueView {
        self.until(&format!("{count} waiting"), |view| view.waiting.len() == count).await
    }

    pub async fn until_running(&self, count: usize) -> QueueView {
        self.until(&format!("{count} running"), |view| view.running.len() == count).await
    }

    /// A connection of HTTP/2, and what carries it.
    pub async fn http2(
        &self,
    ) -> (
        hyper::client::conn::http2::SendRequest<Full<Bytes>>,
        impl Future<Output = Result<(), hyper::Error>> + Send + use<>,
    ) {
        let executor = hyper_util::rt::TokioExecutor::new();
        hyper::client::conn::http2::handshake(executor, TokioIo::new(self.raw().await)).await.unwrap()
    }

    /// A connection without manners.
    pub async fn raw(&self) -> TcpStream {
        TcpStream::connect(self.address()).await.unwrap()
    }

    /// Sends bytes and reads what comes until the gateway closes.
    pub async fn exchange(&self, sent: &[u8]) -> String {
        let mut stream = self.raw().await;
        stream.write_all(sent).await.unwrap();
        let mut text = Vec::new();
        let _ = soon("the end of an answer", stream.read_to_end(&mut text)).await;
        String::from_utf8_lossy(&text).into_owned()
    }
}

fn write(machine: &Machine, upstream: SocketAddr, lines: &str) {
    let path = stablehand_files(machine).config_file;
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let text = format!("[gateway]\nlisten = [\"127.0.0.1:0\"]\nupstream = \"{upstream}\"\n{lines}\n");
    // As an editor does, so that no half of it is ever read.
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, text).unwrap();
    std::fs::rename(&fresh, &path).unwrap();
}

async fn ask(address: SocketAddr, request: Request<Full<Bytes>>) -> Response<Incoming> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let response = soon("an answer", sender.send_request(request)).await.unwrap();
    // The connection lives as long as its sender or the answer's body.
    response
}

pub fn post(path: &str, body: &str) -> Request<Full<Bytes>> {
    post_with(path, &[], body)
}

pub fn post_with(path: &str, headers: &[(&str, &str)], body: &str) -> Request<Full<Bytes>> {
    let request = Request::builder().method(Method::POST).uri(path).header("host", "localhost");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap()
}

pub fn get(path: &str) -> Request<Full<Bytes>> {
    with_method(Method::GET, path, &[])
}

pub fn with_method(method: Method, path: &str, headers: &[(&str, &str)]) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(path).header("host", "localhost");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(Full::default()).unwrap()
}

pub fn chat(model: &str) -> Request<Full<Bytes>> {
    post("/api/chat", &format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"hi"}}]}}"#))
}

pub async fn text(response: Response<Incoming>) -> String {
    let collected = soon("the rest of an answer", response.into_body().collect()).await.unwrap();
    String::from_utf8(collected.to_bytes().to_vec()).unwrap()
}

pub fn header<'a, B>(response: &'a Response<B>, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

/// The next piece of an answer.
pub async fn piece(body: &mut Incoming) -> Option<String> {
    loop {
        let frame = soon("a piece of an answer", body.frame()).await?.ok()?;
        if let Ok(data) = frame.into_data() {
            return Some(String::from_utf8(data.to_vec()).unwrap());
        }
    }
}
