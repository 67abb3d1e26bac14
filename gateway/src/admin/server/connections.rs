//! Connections of the admin server: no more than so many at the same time, further ones wait in the backlog; and none that
//! its client takes no part in, so that who stops in the middle of a request keeps no other out.

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Sleep;

/// Serves until `stopped` says so. Requests in flight are still answered then: each connection holds a receiver of its own
/// until it has ended.
pub(super) async fn serve<L: Listener>(
    mut listener: Limited<L>,
    routes: Router,
    mut stopped: watch::Receiver<bool>,
    receive_timeout: Duration,
) {
    loop {
        let stream = tokio::select! {
            stream = listener.accept(receive_timeout) => stream,
            () = stop(&mut stopped) => return,
        };
        tokio::spawn(serve_connection(
            stream,
            routes.clone(),
            stopped.clone(),
            receive_timeout,
        ));
    }
}

async fn stop(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
}

async fn serve_connection<S>(
    stream: Placed<S>,
    routes: Router,
    mut stopped: watch::Receiver<bool>,
    receive_timeout: Duration,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut http = http1::Builder::new();
    // The header's timeout also runs while a connection waits for its next request. Dates are left out as hyper panics
    // where HTTP cannot write one: a clock before 1970 or beyond the year 9999 would end the gateway.
    http.timer(TokioTimer::new())
        .header_read_timeout(receive_timeout)
        .auto_date_header(false);
    let service = TowerToHyperService::new(routes);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = stop(&mut stopped) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "an admin connection was given up");
    }
}

pub(super) struct Limited<L> {
    listener: L,
    places: Arc<Semaphore>,
}

impl<L: Listener> Limited<L> {
    pub fn new(listener: L, connections_max: usize) -> Self {
        Self {
            listener,
            places: Arc::new(Semaphore::new(connections_max)),
        }
    }

    async fn accept(&mut self, send_timeout: Duration) -> Placed<L::Io> {
        // The semaphore is never closed, so that there always is a place in the end.
        let place = self.places.clone().acquire_owned().await.ok();
        let (stream, _) = self.listener.accept().await;
        Placed {
            stream,
            send_timeout,
            stalled: None,
            _place: place,
        }
    }
}

/// A connection and its place, which is given back when it is dropped.
struct Placed<S> {
    stream: S,
    send_timeout: Duration,
    /// Runs while the client takes nothing of its answer.
    stalled: Option<Pin<Box<Sleep>>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl<S> Placed<S> {
    /// What came of sending, or an error when nothing came of it for too long.
    fn give_up_in_time<T>(&mut self, cx: &mut Context<'_>, sent: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if sent.is_ready() {
            self.stalled = None;
            return sent;
        }
        let timeout = self.send_timeout;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        stalled.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Placed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Placed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.give_up_in_time(cx, sent)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
