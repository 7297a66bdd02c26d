//! A stand-in for Ollama that costs little: for measuring what stands before it. `scripts/bench gateway` runs it.
//!
//! `/api/generate?tokens=N&gap_us=N` streams lines with the time at which each was sent; `/v1/chat/completions` never
//! answers; everything else gets a short answer at once.

#![allow(clippy::print_stdout, reason = "its address is what it has to say")]

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Either, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustix::time::{ClockId, clock_gettime};
use std::convert::Infallible;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::{Instant, MissedTickBehavior};

const ANSWER: &[u8] =
    br#"{"model":"m:1b","message":{"role":"assistant","content":"hello"},"done":true,"done_reason":"stop"}"#;

type Stream = StreamBody<futures_util::stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let service = service_fn(answer);
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Either<Full<Bytes>, Stream>>, Infallible> {
    let (parts, body) = request.into_parts();
    // A client that breaks off sends nothing more.
    let _ = body.collect().await;
    let kind = |response: &mut Response<_>, value| {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(value));
    };
    match parts.uri.path() {
        "/api/generate" => {
            let number = |name: &str| {
                let query = parts.uri.query().unwrap_or_default();
                query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse::<u64>().ok())
            };
            let mut response =
                Response::new(Either::Right(tokens(number("tokens").unwrap_or(10), number("gap_us").unwrap_or(1_000))));
            kind(&mut response, "application/x-ndjson");
            Ok(response)
        }
        "/v1/chat/completions" => std::future::pending().await,
        _ => {
            let mut response = Response::new(Either::Left(Full::new(Bytes::from_static(ANSWER))));
            kind(&mut response, "application/json");
            Ok(response)
        }
    }
}

fn tokens(count: u64, gap_us: u64) -> Stream {
    let mut ticks = tokio::time::interval_at(Instant::now(), Duration::from_micros(gap_us.max(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stream = futures_util::stream::unfold((count, ticks), |(left, mut ticks)| async move {
        if left == 0 {
            return None;
        }
        ticks.tick().await;
        let now = clock_gettime(ClockId::Monotonic);
        let line = format!("{{\"sent_ns\":{}}}\n", now.tv_sec * 1_000_000_000 + now.tv_nsec);
        Some((Ok(Frame::data(Bytes::from(line))), (left - 1, ticks)))
    });
    StreamBody::new(Box::pin(stream))
}
