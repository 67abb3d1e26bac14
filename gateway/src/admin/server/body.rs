//! Bodies of requests, and how long is waited for one.

use super::RECEIVE_TIMEOUT;
use crate::admin::endpoint::invalid;
use crate::admin::model::{ControlError, ErrorKind};
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use std::time::Duration;

/// How long is waited for a body; an extension of every request.
#[derive(Clone, Copy)]
pub(super) struct BodyTimeout(pub Duration);

/// # Errors
/// When it is too long, or does not come in time.
pub(super) async fn receive(request: Request) -> Result<Bytes, ControlError> {
    let timeout = request.extensions().get::<BodyTimeout>();
    let timeout = timeout.map_or(RECEIVE_TIMEOUT, |timeout| timeout.0);
    match tokio::time::timeout(timeout, Bytes::from_request(request, &())).await {
        Ok(body) => body.map_err(|error| invalid("the body", error)),
        Err(_) => Err(late(timeout)),
    }
}

fn late(timeout: Duration) -> ControlError {
    let message = format!(
        "the body did not come whole within {} s; send it with the request",
        timeout.as_secs_f64()
    );
    ControlError::new(ErrorKind::Invalid, message)
}
