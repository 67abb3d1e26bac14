//! Which credentials, region and endpoint a store uses.
//!
//! | order | credentials from                                                                     |
//! |-------|--------------------------------------------------------------------------------------|
//! | 1     | the settings (`credentials`, then `profile`)                                          |
//! | 2     | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`                     |
//! | 3     | `AWS_WEB_IDENTITY_TOKEN_FILE` with `AWS_ROLE_ARN` (EKS)                               |
//! | 4     | profile `AWS_PROFILE` or `default` in the AWS files                                   |
//! | 5     | `AWS_CONTAINER_CREDENTIALS_*` (ECS, EKS pod identity), else the instance's metadata   |
//!
//! Keys from files are read once, at opening. 3 and 5 are fetched and renewed by `object_store`.

use super::profile::Profile;
use super::settings::{S3Settings, Secret, StaticCredentials};
use crate::StoreError;

const ENDPOINT_VARIABLES: [&str; 2] = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"];
const REGION_VARIABLES: [&str; 2] = ["AWS_REGION", "AWS_DEFAULT_REGION"];
/// What every server of one's own accepts unless told otherwise.
const REGION_AT_OWN_ENDPOINT: &str = "us-east-1";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Static(StaticCredentials),
    WebIdentity {
        token_file: String,
        role_arn: String,
        session_name: Option<String>,
    },
    ContainerRelative {
        uri: String,
    },
    ContainerFull {
        url: String,
        token_file: String,
    },
    Instance,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub source: Source,
    pub region: String,
    /// `None` means AWS.
    pub endpoint: Option<String>,
}

pub(super) fn resolve(store: &str, settings: &S3Settings) -> Result<Identity, StoreError> {
    resolve_at(store, settings, ENDPOINT_VARIABLES)
}

/// The same chain for another service, whose endpoint has a variable of its own.
pub(super) fn resolve_at(
    store: &str,
    settings: &S3Settings,
    endpoint_variables: [&str; 2],
) -> Result<Identity, StoreError> {
    let no_credentials = |detail| StoreError::Credentials {
        store: store.into(),
        detail,
    };
    let environment = &settings.environment;
    let profile = match Profile::load(environment, settings.profile.as_deref()) {
        Ok(profile) => profile,
        // A broken file that is not needed must not stop the gateway.
        Err(_) if settings.credentials.is_some() => None,
        Err(detail) => return Err(no_credentials(detail)),
    };
    let source = source(settings, profile.as_ref()).map_err(no_credentials)?;
    let from_profile = |setting| {
        profile
            .as_ref()
            .and_then(|profile| profile.get(setting))
            .map(str::to_owned)
    };
    let from_environment = |names: [&str; 2]| names.into_iter().find_map(|name| environment.get(name));
    let endpoint = settings
        .endpoint
        .clone()
        .or_else(|| from_environment(endpoint_variables))
        .or_else(|| from_profile("endpoint_url"));
    let region = settings
        .region
        .clone()
        .or_else(|| from_environment(REGION_VARIABLES))
        .or_else(|| from_profile("region"))
        .or_else(|| endpoint.as_ref().map(|_| REGION_AT_OWN_ENDPOINT.into()))
        .ok_or_else(|| StoreError::InvalidSetting {
            setting: "region",
            value: String::new(),
            reason: "AWS needs one: set it, or AWS_REGION, or region in the profile".into(),
        })?;
    Ok(Identity {
        source,
        region,
        endpoint,
    })
}

fn source(settings: &S3Settings, profile: Option<&Profile>) -> Result<Source, String> {
    if let Some(credentials) = &settings.credentials {
        return Ok(Source::Static(credentials.clone()));
    }
    let environment = &settings.environment;
    if settings.profile.is_none() {
        if let Some(credentials) = from_variables(settings)? {
            return Ok(Source::Static(credentials));
        }
        if let (Some(token_file), Some(role_arn)) = (
            environment.get("AWS_WEB_IDENTITY_TOKEN_FILE"),
            environment.get("AWS_ROLE_ARN"),
        ) {
            return Ok(Source::WebIdentity {
                token_file,
                role_arn,
                session_name: environment.get("AWS_ROLE_SESSION_NAME"),
            });
        }
    }
    if let Some(profile) = profile {
        if let Some(credentials) = from_profile(profile)? {
            return Ok(Source::Static(credentials));
        }
        if settings.profile.is_some() {
            return Err(format!("profile {:?} holds no access key", profile.name));
        }
    }
    if let Some(uri) = environment.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
        return Ok(Source::ContainerRelative { uri });
    }
    if let (Some(url), Some(token_file)) = (
        environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"),
        environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
    ) {
        return Ok(Source::ContainerFull { url, token_file });
    }
    match environment.get("AWS_EC2_METADATA_DISABLED") {
        Some(value) if value.eq_ignore_ascii_case("true") => Err("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, \
             or a profile in ~/.aws/credentials (instance metadata is disabled)"
            .into()),
        _ => Ok(Source::Instance),
    }
}

fn from_variables(settings: &S3Settings) -> Result<Option<StaticCredentials>, String> {
    let environment = &settings.environment;
    match (
        environment.get("AWS_ACCESS_KEY_ID"),
        environment.get("AWS_SECRET_ACCESS_KEY"),
    ) {
        (None, None) => Ok(None),
        (Some(access_key_id), Some(secret)) => Ok(Some(StaticCredentials {
            access_key_id,
            secret_access_key: Secret::new(secret),
            session_token: environment.get("AWS_SESSION_TOKEN").map(Secret::new),
        })),
        (Some(_), None) => Err("AWS_ACCESS_KEY_ID is set, AWS_SECRET_ACCESS_KEY is not".into()),
        (None, Some(_)) => Err("AWS_SECRET_ACCESS_KEY is set, AWS_ACCESS_KEY_ID is not".into()),
    }
}

fn from_profile(profile: &Profile) -> Result<Option<StaticCredentials>, String> {
    match (profile.get("aws_access_key_id"), profile.get("aws_secret_access_key")) {
        (Some(access_key_id), Some(secret)) => Ok(Some(StaticCredentials {
            access_key_id: access_key_id.into(),
            secret_access_key: Secret::new(secret),
            session_token: profile.get("aws_session_token").map(Secret::new),
        })),
        (None, None) => match profile.unsupported() {
            Some(setting) => Err(format!(
                "profile {:?} uses {setting}, which is not supported; export its credentials to the environment",
                profile.name
            )),
            None => Ok(None),
        },
        _ => Err(format!(
            "profile {:?} holds one half of an access key only",
            profile.name
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s3::environment::Environment;

    fn files() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        let aws = home.path().join(".aws");
        std::fs::create_dir(&aws).unwrap();
        std::fs::write(
            aws.join("credentials"),
            "[default]\naws_access_key_id = file-id\naws_secret_access_key = file-secret\n\
             [work]\naws_access_key_id = work-id\naws_secret_access_key = work-secret\naws_session_token = work-token\n",
        )
        .unwrap();
        std::fs::write(
            aws.join("config"),
            "[default]\nregion = eu-west-1\n[profile work]\nregion = eu-west-2\nendpoint_url = https://work\n\
             [profile sso]\nsso_session = x\n[profile half]\naws_access_key_id = only\n",
        )
        .unwrap();
        home
    }

    fn settings(home: &tempfile::TempDir, variables: &[(&str, &str)]) -> S3Settings {
        let home = home.path().to_str().unwrap();
        S3Settings {
            environment: Environment::fixed([("HOME", home)].into_iter().chain(variables.iter().copied())),
            ..S3Settings::default()
        }
    }

    fn key_id(identity: &Identity) -> &str {
        match &identity.source {
            Source::Static(credentials) => &credentials.access_key_id,
            other => panic!("{other:?}"),
        }
    }

    const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "env-id"), ("AWS_SECRET_ACCESS_KEY", "env-secret")];

    #[test]
    fn the_chain_has_its_order() {
        let home = files();
        let resolve = |settings: &S3Settings| resolve("s3://b", settings).unwrap();
        let with_keys = settings(&home, &KEYS);
        assert_eq!(key_id(&resolve(&with_keys)), "env-id");
        assert_eq!(resolve(&with_keys).region, "eu-west-1");
        assert_eq!(key_id(&resolve(&settings(&home, &[]))), "file-id");
        let work = resolve(&settings(&home, &[("AWS_PROFILE", "work")]));
        assert_eq!((key_id(&work), &work.region[..]), ("work-id", "eu-west-2"));
        assert_eq!(work.endpoint.as_deref(), Some("https://work"));
        let named = S3Settings {
            profile: Some("work".into()),
            region: Some("here".into()),
            ..with_keys.clone()
        };
        assert_eq!(
            (key_id(&resolve(&named)), &resolve(&named).region[..]),
            ("work-id", "here")
        );
        let web = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/t"), ("AWS_ROLE_ARN", "arn")];
        assert!(matches!(
            resolve(&settings(&home, &web)).source,
            Source::WebIdentity { .. }
        ));
        let bare = tempfile::tempdir().unwrap();
        let region = ("AWS_REGION", "r");
        assert_eq!(resolve(&settings(&bare, &[region])).source, Source::Instance);
        let task = [region, ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/x")];
        assert!(matches!(
            resolve(&settings(&bare, &task)).source,
            Source::ContainerRelative { .. }
        ));
        let own = [("AWS_ENDPOINT_URL_S3", "https://own"), ("AWS_REGION", "")];
        assert_eq!(resolve(&settings(&bare, &own)).region, "us-east-1");
    }

    #[test]
    fn faults_are_named_without_secrets() {
        let home = files();
        let error = |settings: &S3Settings| {
            let error = resolve("s3://b", settings).unwrap_err().to_string();
            assert!(
                !error.contains("secret") || error.contains("AWS_SECRET_ACCESS_KEY"),
                "{error}"
            );
            error
        };
        assert!(error(&settings(&home, &[("AWS_PROFILE", "absent")])).contains("\"absent\" is neither in"));
        assert!(error(&settings(&home, &[("AWS_PROFILE", "sso")])).contains("sso_session"));
        assert!(error(&settings(&home, &[("AWS_PROFILE", "half")])).contains("one half"));
        assert!(error(&settings(&home, &KEYS[..1])).contains("AWS_SECRET_ACCESS_KEY is not"));
        let bare = tempfile::tempdir().unwrap();
        assert!(error(&settings(&bare, &KEYS)).contains("region"));
        let disabled = [("AWS_EC2_METADATA_DISABLED", "true"), ("AWS_REGION", "r")];
        assert!(error(&settings(&bare, &disabled)).contains("AWS_ACCESS_KEY_ID"));
    }

    #[test]
    fn secrets_are_never_shown() {
        let home = files();
        let variables = [KEYS[0], KEYS[1], ("AWS_SESSION_TOKEN", "env-token")];
        let settings = settings(&home, &variables);
        let identity = resolve("s3://b", &settings).unwrap();
        let shown = format!("{settings:?} {identity:?}");
        assert!(
            shown.contains("env-id") && !shown.contains("env-secret") && !shown.contains("env-token"),
            "{shown}"
        );
    }
}
