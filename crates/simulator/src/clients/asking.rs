//! One request of a client: asked in a stream, read to its end.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpSocket;

use super::Plan;
use crate::runner::text_of_tokens;

/// Bytes that the system keeps for a client that does not read.
const RECEIVE_BUFFER: u32 = 4 << 10;

/// A request, put together once.
#[derive(Debug)]
pub struct Question {
    port: u16,
    body: Bytes,
    stop_reading: bool,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// With words, to the end.
    Served,
    /// With anything else.
    Failed(String),
}

impl Question {
    /// The request of a plan.
    pub fn of(plan: &Plan) -> Self {
        let mut body = json!({
            "model": plan.model,
            "prompt": text_of_tokens(plan.prompt_tokens),
            "stream": true,
            "options": { "num_predict": plan.answer_tokens },
        });
        if let Some(context) = plan.context {
            body["options"]["num_ctx"] = json!(context);
        }
        if plan.images > 0 {
            // The contents are nobody's business: a pixel.
            body["images"] = json!(vec!["iVBORw0KGgo="; usize::try_from(plan.images).unwrap_or(1)]);
        }
        Self { port: plan.port, body: Bytes::from(body.to_string()), stop_reading: plan.stop_reading }
    }
}

/// Asks. `asked` is called once the request is on its way.
pub async fn ask(question: &Question, asked: impl FnOnce()) -> Answer {
    match exchange(question, asked).await {
        Ok(answer) => answer,
        Err(words) => Answer::Failed(words),
    }
}

async fn exchange(question: &Question, asked: impl FnOnce()) -> Result<Answer, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let socket = TcpSocket::new_v4().map_err(|error| text(&error))?;
    if question.stop_reading {
        socket.set_recv_buffer_size(RECEIVE_BUFFER).map_err(|error| text(&error))?;
    }
    let address = (std::net::Ipv4Addr::LOCALHOST, question.port).into();
    let stream = socket.connect(address).await.map_err(|error| format!("cannot connect: {error}"))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| text(&error))?;
    let connection = tokio::spawn(connection);
    let request = Request::post("/api/generate")
        .header("host", format!("127.0.0.1:{}", question.port))
        .header("user-agent", "bot/1.0")
        .header("content-type", "application/json")
        .body(Full::new(question.body.clone()))
        .map_err(|error| text(&error))?;
    let response = sender.send_request(request);
    asked();
    let answer = match response.await {
        Ok(response) => read(response, question.stop_reading).await,
        Err(error) => Err(format!("no answer: {error}")),
    };
    connection.abort();
    answer
}

async fn read(response: Response<Incoming>, stop_reading: bool) -> Result<Answer, String> {
    let status = response.status().as_u16();
    let mut body = response.into_body();
    let mut reading = Reading::default();
    loop {
        match body.frame().await {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    reading.take(data);
                }
                if stop_reading && reading.words > 0 {
                    std::future::pending::<()>().await;
                }
            }
            Some(Err(error)) => return Err(format!("{status}: the answer broke off: {error}")),
            None => return reading.end(status),
        }
    }
}

/// An answer as far as it was read: lines of JSON.
#[derive(Debug, Default)]
struct Reading {
    rest: Vec<u8>,
    words: usize,
    done: bool,
    error: Option<String>,
}

impl Reading {
    fn take(&mut self, data: &[u8]) {
        self.rest.extend_from_slice(data);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            self.line(&line);
        }
    }

    fn line(&mut self, line: &[u8]) {
        let Ok(value) = serde_json::from_slice::<Value>(line) else {
            return;
        };
        self.words += value["response"].as_str().map_or(0, str::len);
        self.done |= value["done"] == true;
        if let Some(error) = value["error"].as_str() {
            self.error = Some(error.to_owned());
        }
    }

    fn end(mut self, status: u16) -> Result<Answer, String> {
        let rest = std::mem::take(&mut self.rest);
        self.line(&rest);
        match self.error {
            Some(error) => Err(format!("{status}: {error}")),
            None if status != 200 => Err(format!("{status}")),
            None if !self.done => Err("200: the answer broke off".to_owned()),
            None if self.words == 0 => Err("200: an empty answer".to_owned()),
            None => Ok(Answer::Served),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str, status: u16) -> Result<Answer, String> {
        let mut reading = Reading::default();
        for piece in text.as_bytes().chunks(7) {
            reading.take(piece);
        }
        reading.end(status)
    }

    #[test]
    fn an_answer_with_words_and_an_end_is_served() {
        let text = "{\"response\":\"hay\",\"done\":false}\n{\"response\":\"\",\"done\":true}\n";
        assert_eq!(answer(text, 200), Ok(Answer::Served));
    }

    #[test]
    fn an_empty_success_is_a_failure() {
        assert_eq!(answer("{\"response\":\"\",\"done\":true}\n", 200), Err("200: an empty answer".to_owned()));
    }

    #[test]
    fn errors_are_told_wherever_they_come() {
        assert_eq!(answer("{\"error\":\"busy\"}", 503), Err("503: busy".to_owned()));
        let late = "{\"response\":\"hay\",\"done\":false}\n{\"error\":\"unexpected EOF\"}\n";
        assert_eq!(answer(late, 200), Err("200: unexpected EOF".to_owned()));
        assert_eq!(answer("{\"response\":\"hay\"}\n", 200), Err("200: the answer broke off".to_owned()));
    }
}
