//! The socket of the server. Its buffers are small, so that a client that stops
//! reading holds its request up after some kilobytes rather than megabytes.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpSocket};

/// Bytes that the system keeps for a client that does not read.
const SEND_BUFFER: u32 = 16 << 10;
/// Bytes that the server itself keeps for it.
const OWN_BUFFER: usize = 16 << 10;

/// Listens on loopback.
pub fn bind(port: u16) -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    socket.listen(1024)
}

/// Answers for ever.
pub async fn answer(listener: TcpListener, router: Router) {
    loop {
        let Ok((stream, client)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        let router = router.clone().layer(Extension(ConnectInfo::<SocketAddr>(client)));
        tokio::spawn(async move {
            let service = TowerToHyperService::new(router);
            // A connection that breaks concerns nobody else.
            let _ =
                http1::Builder::new().max_buf_size(OWN_BUFFER).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
