//! Who answers at which endpoint, and errors as JSON: `{"kind": "not_found", "message": "..."}`.

use super::body::{BodyTimeout, receive};
use crate::admin::endpoint::{Endpoint, Method, Request, Route, invalid};
use crate::admin::model::{ControlError, ErrorKind};
use crate::metrics::{self, model::Metrics};
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method as HttpMethod, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, get, on};
use axum::{Extension, Json, RequestExt, Router};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// The longest legal body is some 150 bytes.
const BODY_BYTES_MAX: usize = 64 << 10;

/// What answers at the endpoints: functions over something shared. Each may block for as long as a journal write takes.
/// Nothing is retried; a client that got no answer asks for the state and decides.
pub struct Handlers<Shared> {
    shared: Arc<Shared>,
    metrics: fn(&Shared) -> Metrics,
    routes: Router,
}

impl<Shared: Send + Sync + 'static> Handlers<Shared> {
    /// `metrics` answers at `/metrics`.
    pub fn new(shared: Arc<Shared>, metrics: fn(&Shared) -> Metrics) -> Self {
        Self {
            shared,
            metrics,
            routes: Router::new(),
        }
    }

    /// Each endpoint has one handler. Requests have passed [`Request::check`] when it is called.
    pub fn on<R, Answer>(
        mut self,
        endpoint: &Endpoint<R, Answer>,
        handler: fn(&Shared, R) -> Result<Answer, ControlError>,
    ) -> Self
    where
        R: Request,
        Answer: Serialize + Send + 'static,
    {
        let (route, shared) = (endpoint.route, self.shared.clone());
        let answer = move |request: axum::extract::Request| {
            let shared = shared.clone();
            async move {
                let request = received(route, request).await?;
                let answer = blocking(move || handler(&shared, request)).await??;
                Ok::<_, ControlError>(told(route.status, &answer))
            }
        };
        self.routes = self.routes.route(route.path, on(filter(route.method), answer));
        self
    }

    pub(super) fn admin_routes(&self, body_timeout: Duration) -> Router {
        let routes = self.routes.clone().route("/metrics", self.prometheus());
        finish(routes.layer(Extension(BodyTimeout(body_timeout))))
    }

    pub(super) fn metrics_routes(&self) -> Router {
        finish(Router::new().route("/metrics", self.prometheus()))
    }

    fn prometheus(&self) -> MethodRouter {
        let (shared, metrics) = (self.shared.clone(), self.metrics);
        get(move || {
            let shared = shared.clone();
            async move {
                let text = blocking(move || metrics::encode(metrics(&shared))).await?;
                let text = text.map_err(|error| ControlError::new(ErrorKind::Internal, format!("metrics: {error}")))?;
                Ok::<_, ControlError>(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text))
            }
        })
    }
}

fn finish(routes: Router) -> Router {
    routes
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

const fn filter(method: Method) -> MethodFilter {
    match method {
        Method::Get => MethodFilter::GET,
        Method::Post => MethodFilter::POST,
        Method::Patch => MethodFilter::PATCH,
        Method::Delete => MethodFilter::DELETE,
    }
}

/// Who takes nothing is not waited for.
async fn received<R: Request>(route: Route, mut request: axum::extract::Request) -> Result<R, ControlError> {
    let in_path = request.extract_parts::<Path<Vec<(String, String)>>>().await;
    let Path(in_path) = in_path.map_err(|error| invalid("the path", error))?;
    let query = request.uri().query().unwrap_or_default().to_owned();
    let body = match route.method.has_body() && !R::IS_EMPTY {
        true => receive(request).await?,
        false => Bytes::new(),
    };
    route.read(in_path, &query, &body)
}

fn told<Answer: Serialize>(status: u16, answer: &Answer) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    match size_of::<Answer>() {
        0 => status.into_response(),
        _ => (status, Json(answer)).into_response(),
    }
}

async fn unknown_path(uri: Uri) -> Response {
    let message = format!("there is nothing at {}", uri.path());
    ControlError::new(ErrorKind::NotFound, message).into_response()
}

async fn wrong_method(method: HttpMethod, uri: Uri) -> Response {
    let message = format!("{method} is not possible at {}", uri.path());
    let body = Json(ControlError::new(ErrorKind::Invalid, message));
    (StatusCode::METHOD_NOT_ALLOWED, body).into_response()
}

/// Runs a call that may block where blocking harms nobody.
async fn blocking<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Result<T, ControlError> {
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
