//! What an endpoint of the admin API is, and how its requests travel. Server, client and document all follow from it.

use super::model::{ControlError, ErrorKind};
use axum::extract::Query;
use axum::http::Uri;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fmt::Display;
use std::marker::PhantomData;
use tombolo_base::names;

names! {
    /// What a request does.
    pub enum Method: "method" {
        Get = "GET",
        Post = "POST",
        Patch = "PATCH",
        Delete = "DELETE",
    }
}

impl Method {
    /// The fields of requests with the others stand in the query.
    pub fn has_body(self) -> bool {
        matches!(self, Self::Post | Self::Patch)
    }
}

/// One call: where it is found, what it takes and what it answers.
pub struct Endpoint<Request, Answer> {
    pub route: Route,
    types: PhantomData<fn(Request) -> Answer>,
}

/// Where an endpoint is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub method: Method,
    /// A segment `{name}` holds the request's field `name`.
    pub path: &'static str,
    /// Of an answer that is no error.
    pub status: u16,
}

/// What a request holds: an object, of which the fields that the endpoint's path names stand there, and all others in the
/// body, or in the query where there is none; or nothing.
pub trait Request: Serialize + DeserializeOwned + JsonSchema + Send + 'static {
    /// True for `()` alone, which has neither body nor query.
    const IS_EMPTY: bool = false;

    /// What the types of the fields do not say.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::admin::model::ErrorKind::Invalid), with what is permitted.
    fn check(&self) -> Result<(), ControlError>;
}

impl Request for () {
    const IS_EMPTY: bool = true;

    fn check(&self) -> Result<(), ControlError> {
        Ok(())
    }
}

/// An endpoint without its types, for the document.
pub struct Description {
    pub name: &'static str,
    /// Line by line.
    pub about: &'static [&'static str],
    pub route: Route,
    /// None: it takes nothing.
    pub request: Option<fn(&mut SchemaGenerator) -> Schema>,
    pub answer: fn(&mut SchemaGenerator) -> Schema,
}

impl<R: Request, Answer: JsonSchema> Endpoint<R, Answer> {
    pub(super) const fn new(method: Method, path: &'static str, status: u16) -> Self {
        Self {
            route: Route { method, path, status },
            types: PhantomData,
        }
    }

    pub(super) fn describe(&self, name: &'static str, about: &'static [&'static str]) -> Description {
        Description {
            name,
            about,
            route: self.route,
            request: match R::IS_EMPTY {
                true => None,
                false => Some(R::json_schema),
            },
            answer: SchemaGenerator::subschema_for::<Answer>,
        }
    }
}

/// A request on its way.
#[derive(Debug, PartialEq, Eq)]
pub struct Written {
    /// Path and query.
    pub target: String,
    /// Empty where the request has none.
    pub body: String,
}

impl Route {
    /// # Errors
    /// When a value has no form in JSON.
    pub fn write<R: Request>(&self, request: &R) -> Result<Written, serde_json::Error> {
        let mut fields = match serde_json::to_value(request)? {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        let mut target = String::new();
        for segment in self.path.split('/').skip(1) {
            target.push('/');
            match parameter(segment).and_then(|name| fields.remove(name)) {
                Some(value) => target += &escaped(&plain(&value)),
                None => target += segment,
            }
        }
        let body = match self.method.has_body() && !R::IS_EMPTY {
            true => serde_json::to_string(&fields)?,
            false => {
                for (place, (name, value)) in fields.iter().enumerate() {
                    let before = if place == 0 { '?' } else { '&' };
                    target += &format!("{before}{name}={}", escaped(&plain(value)));
                }
                String::new()
            }
        };
        Ok(Written { target, body })
    }

    /// The request that came with these fields in its path, this query and this body.
    ///
    /// # Errors
    /// When it is not what the endpoint takes.
    pub fn read<R: Request>(
        &self,
        in_path: Vec<(String, String)>,
        query: &str,
        body: &[u8],
    ) -> Result<R, ControlError> {
        let request: R = if R::IS_EMPTY {
            serde_json::from_value(Value::Null).map_err(|error| invalid("the request", error))?
        } else if self.method.has_body() {
            read_body(in_path, body)?
        } else {
            read_query(&in_path, query)?
        };
        request.check()?;
        Ok(request)
    }
}

fn read_body<R: Request>(in_path: Vec<(String, String)>, body: &[u8]) -> Result<R, ControlError> {
    // Where every field may be missing, so may the body.
    let mut fields: Map<String, Value> = match body.is_empty() {
        true => Map::new(),
        false => serde_json::from_slice(body).map_err(|error| invalid("the body", error))?,
    };
    for (name, value) in in_path {
        if fields.contains_key(&name) {
            return Err(invalid("the body", format_args!("`{name}` stands in the path")));
        }
        fields.insert(name, value.into());
    }
    serde_json::from_value(fields.into()).map_err(|error| invalid("the body", error))
}

/// Fields of the path are read as if they stood in the query, which has no types of its own either.
fn read_query<R: Request>(in_path: &[(String, String)], query: &str) -> Result<R, ControlError> {
    let mut all = String::from("/?");
    for (name, value) in in_path {
        all += &format!("{name}={}&", escaped(value));
    }
    let uri: Uri = (all + query).parse().map_err(|error| invalid("the query", error))?;
    let Query(request) = Query::try_from_uri(&uri).map_err(|error| invalid("the query", error))?;
    Ok(request)
}

/// An [`ErrorKind::Invalid`] about `what`, such as "the body".
pub fn invalid(what: &str, error: impl Display) -> ControlError {
    ControlError::new(ErrorKind::Invalid, format!("{what} is not valid: {error}"))
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Any text fits into one segment of a path, or one value of a query: everything but letters, digits, `-` and `_` is
/// escaped. The dot too, since "." and ".." have a meaning of their own.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => escaped.push(char::from(byte)),
            _ => escaped += &format!("%{byte:02X}"),
        }
    }
    escaped
}

/// The field that a segment of a path holds.
pub fn parameter(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

/// All endpoints from one list: each a constant with its types, and all of them together for the document.
macro_rules! endpoints {
    ($( $(#[doc = $about:literal])+ $name:ident: $method:ident $path:literal, $request:ty => $status:literal $answer:ty; )+) => {
        $(
            $(#[doc = $about])+
            pub const $name: Endpoint<$request, $answer> = Endpoint::new(Method::$method, $path, $status);
        )+

        /// In the order of the list.
        pub fn all() -> Vec<Description> {
            vec![ $( $name.describe(stringify!($name), &[$($about),+]) ),+ ]
        }
    };
}

pub(super) use endpoints;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::endpoints;
    use crate::admin::endpoints::{DeleteShare, OfStore, PolicyChanges, ResizeVolume, ShareQuota};

    fn named(name: &str) -> Vec<(String, String)> {
        vec![("name".into(), name.into())]
    }

    #[test]
    fn names_cannot_leave_their_segment() {
        let request = |name: &str| ShareQuota {
            name: name.into(),
            quota_bytes: None,
        };
        let target = |name: &str| endpoints::SHARE_QUOTA.route.write(&request(name)).unwrap().target;
        assert_eq!(target("a/../b c"), "/v1/shares/a%2F%2E%2E%2Fb%20c");
        assert_eq!(target("\u{e4}"), "/v1/shares/%C3%A4");
    }

    #[test]
    fn requests_are_read_as_they_were_written() {
        let resize = ResizeVolume {
            name: "vol".into(),
            size_bytes: 8192,
            allow_shrink: true,
        };
        let route = endpoints::VOLUME_RESIZE.route;
        let written = route.write(&resize).unwrap();
        assert_eq!(written.target, "/v1/volumes/vol");
        assert_eq!(written.body, r#"{"allow_shrink":true,"size_bytes":8192}"#);
        assert_eq!(route.read(named("vol"), "", written.body.as_bytes()), Ok(resize));

        let delete = DeleteShare {
            name: "a.b".into(),
            force: true,
        };
        let route = endpoints::SHARE_DELETE.route;
        let written = route.write(&delete).unwrap();
        assert_eq!(
            (written.target.as_str(), written.body.as_str()),
            ("/v1/shares/a%2Eb?force=true", "")
        );
        assert_eq!(route.read(named("a.b"), "force=true", b""), Ok(delete));

        let changes = PolicyChanges(toml::Table::from_iter([(
            "degree_bytes".into(),
            toml::Value::Integer(4096),
        )]));
        let route = endpoints::POLICY_SET.route;
        let written = route.write(&changes).unwrap();
        assert_eq!(written.body, r#"{"degree_bytes":4096}"#);
        assert_eq!(route.read(Vec::new(), "", written.body.as_bytes()), Ok(changes));

        let route = endpoints::DRAIN.route;
        let written = route.write(&OfStore::default()).unwrap();
        assert_eq!((written.target.as_str(), written.body.as_str()), ("/v1/drain", "{}"));
        for body in [&b""[..], b"{}"] {
            assert_eq!(route.read(Vec::new(), "", body), Ok(OfStore::default()));
        }
        let keys = endpoints::KEYS.route;
        let archive = OfStore {
            store: Some("archive".into()),
        };
        assert_eq!(keys.write(&archive).unwrap().target, "/v1/keys?store=archive");
        assert_eq!(keys.read(Vec::new(), "store=archive", b""), Ok(archive));
        assert_eq!(keys.write(&OfStore::default()).unwrap().target, "/v1/keys");

        let written = endpoints::STATUS.route.write(&()).unwrap();
        assert_eq!((written.target.as_str(), written.body.as_str()), ("/v1/status", ""));
        assert_eq!(endpoints::STATUS.route.read(Vec::new(), "", b"anything"), Ok(()));
    }

    #[test]
    fn a_field_of_the_path_does_not_stand_in_the_body_too() {
        let body = br#"{"name": "other", "size_bytes": 4096}"#;
        let refused = endpoints::VOLUME_RESIZE
            .route
            .read::<ResizeVolume>(named("vol"), "", body);
        assert_eq!(refused.unwrap_err().kind, ErrorKind::Invalid);
        let refused = endpoints::SHARE_DELETE
            .route
            .read::<DeleteShare>(named("vol"), "name=other", b"");
        assert_eq!(refused.unwrap_err().kind, ErrorKind::Invalid);
    }
}
