//! Routes, and errors as JSON: `{"kind": "not_found", "message": "..."}`.

mod body;
mod policy;
mod shares;
mod trace;
mod volumes;

pub(crate) use shares::{CreateShare, ShareQuota};
pub(crate) use trace::StartTrace;
pub(crate) use volumes::{CreateVolume, ResizeVolume};

use crate::admin::model::{CheckStatus, Control, ControlError, ErrorKind, Status};
use crate::metrics;
use axum::extract::rejection::PathRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use body::{Body, BodyTimeout};
use std::sync::Arc;
use std::time::Duration;

/// The longest legal body is some 150 bytes.
const BODY_BYTES_MAX: usize = 64 << 10;

type Shared = State<Arc<dyn Control>>;
type Answer<T> = Result<T, ControlError>;
type Name = Result<Path<String>, PathRejection>;

pub(super) fn admin_routes(control: Arc<dyn Control>, body_timeout: Duration) -> Router {
    let routes = Router::new()
        .route("/v1/status", get(status))
        .route("/v1/drain", post(drain))
        .route("/v1/check", get(check_status).post(check_start))
        .route("/metrics", get(prometheus))
        .merge(policy::routes())
        .merge(trace::routes())
        .merge(volumes::routes())
        .merge(shares::routes());
    finish(routes.layer(Extension(BodyTimeout(body_timeout))), control)
}

pub(super) fn metrics_routes(control: Arc<dyn Control>) -> Router {
    finish(Router::new().route("/metrics", get(prometheus)), control)
}

fn finish(routes: Router<Arc<dyn Control>>, control: Arc<dyn Control>) -> Router {
    routes
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(control)
}

async fn status(State(control): Shared) -> Answer<Json<Status>> {
    blocking(move || control.status()).await.map(Json)
}

async fn drain(State(control): Shared) -> Answer<StatusCode> {
    blocking(move || control.drain()).await??;
    Ok(StatusCode::ACCEPTED)
}

async fn check_start(State(control): Shared) -> Answer<(StatusCode, Json<CheckStatus>)> {
    let begun = blocking(move || control.check_start()).await??;
    Ok((StatusCode::ACCEPTED, Json(begun)))
}

async fn check_status(State(control): Shared) -> Answer<Json<CheckStatus>> {
    blocking(move || control.check_status()).await.map(Json)
}

async fn prometheus(State(control): Shared) -> Answer<Response> {
    let text = blocking(move || metrics::encode(control.metrics())).await?;
    let text = text.map_err(|error| ControlError::new(ErrorKind::Internal, format!("metrics: {error}")))?;
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}

async fn unknown_path(uri: Uri) -> Response {
    let message = format!("there is nothing at {}", uri.path());
    ControlError::new(ErrorKind::NotFound, message).into_response()
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    let message = format!("{method} is not possible at {}", uri.path());
    let body = Json(ControlError::new(ErrorKind::Invalid, message));
    (StatusCode::METHOD_NOT_ALLOWED, body).into_response()
}

fn invalid(what: &str, error: impl std::fmt::Display) -> ControlError {
    ControlError::new(ErrorKind::Invalid, format!("{what} is not valid: {error}"))
}

/// The name in a path, which must pass `check`.
fn checked_name(name: Name, check: fn(&str) -> Answer<()>) -> Answer<String> {
    let Path(name) = name.map_err(|error| invalid("the path", error))?;
    check(&name)?;
    Ok(name)
}

/// Runs a call that may block where blocking harms nobody.
async fn blocking<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Answer<T> {
    tokio::task::spawn_blocking(call)
        .await
        .map_err(|error| ControlError::new(ErrorKind::Internal, format!("the request failed: {error}")))
}

impl IntoResponse for ControlError {
    fn into_response(self) -> Response {
        let code = match self.kind {
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::AlreadyExists | ErrorKind::Busy => StatusCode::CONFLICT,
            ErrorKind::ReadOnly => StatusCode::FORBIDDEN,
            ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (code, Json(self)).into_response()
    }
}
