//! Routes, and errors as JSON: `{"kind": "not_found", "message": "..."}`.

use crate::control::{Control, ControlError, ErrorKind, Status, VolumeInfo, check_volume_name, check_volume_size};
use crate::metrics;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};
use axum::{Json, Router};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The longest legal body is some 150 bytes.
const BODY_BYTES_MAX: usize = 64 << 10;

type Shared = State<Arc<dyn Control>>;
type Answer<T> = Result<T, ControlError>;
type Body = Result<Bytes, BytesRejection>;
type Name = Result<Path<String>, PathRejection>;

/// Body of `POST /v1/volumes`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateVolume {
    pub name: String,
    pub size_bytes: u64,
}

/// Body of `PATCH /v1/volumes/{name}`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResizeVolume {
    pub size_bytes: u64,
    #[serde(default)]
    pub allow_shrink: bool,
}

pub(super) fn admin_routes(control: Arc<dyn Control>) -> Router {
    let routes = Router::new()
        .route("/v1/status", get(status))
        .route("/v1/volumes", get(volume_list).post(volume_create))
        .route("/v1/volumes/{name}", patch(volume_resize).delete(volume_delete))
        .route("/v1/drain", post(drain))
        .route("/metrics", get(prometheus));
    finish(routes, control)
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

async fn volume_list(State(control): Shared) -> Answer<Json<Vec<VolumeInfo>>> {
    blocking(move || control.volume_list()).await.map(Json)
}

async fn volume_create(State(control): Shared, body: Body) -> Answer<(StatusCode, Json<VolumeInfo>)> {
    let CreateVolume { name, size_bytes } = parse(body)?;
    check_volume_name(&name)?;
    check_volume_size(size_bytes)?;
    let created = blocking(move || control.volume_create(&name, size_bytes)).await??;
    Ok((StatusCode::CREATED, Json(created)))
}

async fn volume_resize(State(control): Shared, name: Name, body: Body) -> Answer<Json<VolumeInfo>> {
    let ResizeVolume {
        size_bytes,
        allow_shrink,
    } = parse(body)?;
    let name = volume_name(name)?;
    check_volume_size(size_bytes)?;
    blocking(move || control.volume_resize(&name, size_bytes, allow_shrink))
        .await?
        .map(Json)
}

async fn volume_delete(State(control): Shared, name: Name) -> Answer<StatusCode> {
    let name = volume_name(name)?;
    blocking(move || control.volume_delete(&name)).await??;
    Ok(StatusCode::NO_CONTENT)
}

async fn drain(State(control): Shared) -> Answer<StatusCode> {
    blocking(move || control.drain()).await??;
    Ok(StatusCode::ACCEPTED)
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
    ControlError::new(ErrorKind::Invalid, format!("{what} is not what is wanted: {error}"))
}

fn parse<T: DeserializeOwned>(body: Body) -> Answer<T> {
    let body = body.map_err(|error| invalid("the body", error))?;
    serde_json::from_slice(&body).map_err(|error| invalid("the body", error))
}

fn volume_name(name: Name) -> Answer<String> {
    let Path(name) = name.map_err(|error| invalid("the path", error))?;
    check_volume_name(&name)?;
    Ok(name)
}

/// Runs a call that may block where blocking harms nobody.
async fn blocking<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Answer<T> {
    tokio::task::spawn_blocking(call)
        .await
        .map_err(|error| ControlError::new(ErrorKind::Internal, format!("the request did not end well: {error}")))
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
