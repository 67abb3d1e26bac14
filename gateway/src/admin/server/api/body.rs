//! Bodies of requests, and how long is waited for one.

use super::{Answer, invalid};
use crate::admin::model::{ControlError, ErrorKind};
use crate::admin::server::RECEIVE_TIMEOUT;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use std::time::Duration;

/// How long is waited for a body; an extension of every request.
#[derive(Clone, Copy)]
pub struct BodyTimeout(pub Duration);

/// A body that has come, or why it has not.
pub struct Body(Answer<Bytes>);

impl Body {
    pub fn parse<T: DeserializeOwned>(self) -> Answer<T> {
        serde_json::from_slice(&self.0?).map_err(|error| invalid("the body", error))
    }
}

impl<S: Send + Sync> FromRequest<S> for Body {
    /// Errors are the handler's to report, as it may know of one that comes first.
    type Rejection = Infallible;

    async fn from_request(request: Request, state: &S) -> Result<Self, Infallible> {
        let timeout = request.extensions().get::<BodyTimeout>();
        let timeout = timeout.map_or(RECEIVE_TIMEOUT, |timeout| timeout.0);
        let received = tokio::time::timeout(timeout, Bytes::from_request(request, state)).await;
        Ok(Self(match received {
            Ok(body) => body.map_err(|error| invalid("the body", error)),
            Err(_) => Err(late(timeout)),
        }))
    }
}

fn late(timeout: Duration) -> ControlError {
    let message = format!(
        "the body did not come whole within {} s; send it with the request",
        timeout.as_secs_f64()
    );
    ControlError::new(ErrorKind::Invalid, message)
}
