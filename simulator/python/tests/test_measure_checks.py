"""Whether a bucket is fit to be a gateway's store.

Permissions, versions, retention and conditions of puts are those of a real versitygw, with users and policies. It has
no lifecycle rules, no default encryption, one region and a true clock: for these, answers are put in the place of the
server's just before a request would be sent, as XML in the form that AWS documents, so that botocore reads them as it
would AWS's own. They were not recorded from AWS.
"""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from s3_server import S3Server
from typer.testing import CliRunner

from tombolo_sim.cli import app
from tombolo_sim.measure.checks import Finding, HarmfulStore, Verdict, check
from tombolo_sim.measure.place import MeasureError, Place

BUCKET, LOCKED = "bucket", "locked"
USER, SECRET = "somebody", "somebody-secret"
LOOKING = ["s3:GetBucketVersioning", "s3:GetBucketObjectLockConfiguration", "s3:ListBucketVersions"]
DOING = ["s3:ListBucket", "s3:PutObject", "s3:GetObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
_S3 = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3"))
    server.client.create_bucket(Bucket=BUCKET)
    server.client.create_bucket(Bucket=LOCKED, ObjectLockEnabledForBucket=True)
    server.create_user(USER, SECRET)
    yield server
    server.close()


@pytest.fixture
def connect(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """boto3's client, as the command makes it."""

    def connected(key: str | None = None, secret: str = "", bucket: str = BUCKET) -> Any:  # noqa: ANN401
        environment = server.environment(key, secret) if key else server.environment()
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return place(server, bucket).connect()

    return connected


def place(server: S3Server, bucket: str = BUCKET) -> Place:
    return Place.of(f"s3://{bucket}/pre", server.endpoint)


def findings(client: Any, where: Place) -> dict[str, Finding]:  # noqa: ANN401
    return {finding.check: finding for finding in check(client, where).findings}


def verdicts(found: dict[str, Finding]) -> dict[str, str]:
    """Those that are not good."""
    return {name: str(finding.verdict) for name, finding in found.items() if finding.verdict is not Verdict.GOOD}


class _Body(BytesIO):
    def stream(self, **_: object) -> Iterator[bytes]:
        yield self.read()


def answering(client: Any, operation: str, body: str, status: int = 200, **headers: str) -> None:  # noqa: ANN401
    """Puts an answer in the place of the server's."""

    def answer(request: Any, **_: object) -> AWSResponse:  # noqa: ANN401
        date = {"date": format_datetime(datetime.now(UTC), usegmt=True)}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return AWSResponse(request.url, status, date | named, _Body(body.encode()))

    client.meta.events.register(f"before-send.s3.{operation}", answer)


def error(code: str, message: str = "told by the test") -> str:
    return f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"


# Of a real server


def test_a_fit_bucket_is_good_and_stays_empty(server: S3Server, connect: Callable[..., Any]) -> None:
    found = findings(connect(), place(server))
    assert verdicts(found) == {}
    assert list(found) == [
        "bucket", "clock", "versioning", "object-lock", "lifecycle", "encryption", "list", "put", "head", "get",
        "ranged get", "put if absent", "put if unchanged", "multipart", "delete",
    ]  # fmt: skip
    assert server.keys(BUCKET) == set()


_OBJECTS = f"arn:aws:s3:::{BUCKET}/pre/*"


@pytest.mark.parametrize(
    ("missing", "wanted"),
    [
        (None, {}),
        ("s3:GetBucketVersioning", {"versioning": "unknown"}),
        ("s3:GetBucketObjectLockConfiguration", {"object-lock": "unknown"}),
        ("s3:ListBucket", {"bucket": "missing", "list": "missing", "removal": "advice"}),
        ("s3:PutObject", {"put": "missing", "put if absent": "missing", "put if unchanged": "missing"}),
        ("s3:GetObject", {"head": "missing", "get": "missing", "ranged get": "missing"}),
        ("s3:DeleteObject", {"delete": "missing", "put": "unknown", "put if absent": "unknown",
                             "put if unchanged": "unknown", "multipart": "unknown"}),
        ("s3:AbortMultipartUpload", {"multipart": "unknown"}),
    ],
)  # fmt: skip
def test_each_permission_is_found_missing_by_itself_and_nothing_stays(
    missing: str | None, wanted: dict[str, str], server: S3Server, connect: Callable[..., Any]
) -> None:
    server.allow(BUCKET, USER, [action for action in [*LOOKING, *DOING] if action != missing])
    found = findings(connect(USER, SECRET), place(server))
    assert verdicts(found) == wanted
    for name, finding in found.items():
        if wanted.get(name) == "missing" and name != "bucket":
            resource = f"arn:aws:s3:::{BUCKET}" if name == "list" else _OBJECTS
            assert finding.advice == f"allow {missing} on {resource}"
    assert server.keys(BUCKET) == set()


def test_wrong_credentials_are_no_matter_of_permissions(server: S3Server, connect: Callable[..., Any]) -> None:
    found = findings(connect(USER, "wrong"), place(server))
    assert found["bucket"].verdict is Verdict.MISSING
    assert found["put"].told.startswith("refused (403 SignatureDoesNotMatch")
    assert found["put"].advice == "check endpoint, region and credentials"


def test_versions_cost_and_are_removed(server: S3Server, connect: Callable[..., Any]) -> None:
    bucket = "versions"
    server.client.create_bucket(Bucket=bucket)
    server.client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    found = findings(connect(), place(server, bucket))
    assert verdicts(found) == {"versioning": "advice"}
    (rule,) = json.loads(found["versioning"].advice.partition(": ")[2].strip("'"))["Rules"]
    assert (rule["Filter"], rule["NoncurrentVersionExpiration"]) == ({"Prefix": "pre/"}, {"NoncurrentDays": 1})
    assert server.keys(bucket) == set()
    # Who may not see old versions cannot remove them, so nothing is measured.
    server.allow(bucket, USER, [*DOING, "s3:GetBucketVersioning", "s3:GetBucketObjectLockConfiguration"])
    checked = check(connect(USER, SECRET), place(server, bucket))
    hindrance = checked.hindrance()
    assert hindrance is not None
    assert (hindrance.check, hindrance.told) == ("removal", "old versions of what was put may have stayed")


def test_where_nothing_can_be_removed_nothing_is_put(server: S3Server, connect: Callable[..., Any]) -> None:
    lock = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 3}}}
    server.client.put_object_lock_configuration(Bucket=LOCKED, ObjectLockConfiguration=lock)
    checked = check(connect(bucket=LOCKED), place(server, LOCKED))
    found = {finding.check: finding for finding in checked.findings}
    assert "put" not in found
    assert found["object-lock"].told.startswith("each object is kept for 3 days (GOVERNANCE)")
    assert checked.hindrance() == found["object-lock"]
    checked.require(place(server, LOCKED))
    assert server.keys(LOCKED) == set()


@pytest.mark.parametrize(("name", "header"), [("put if absent", "If-None-Match"), ("put if unchanged", "If-Match")])
def test_a_store_that_ignores_a_condition_is_harmful(
    name: str, header: str, server: S3Server, connect: Callable[..., Any]
) -> None:
    client = connect()

    def forget(params: dict[str, Any], **_: object) -> None:
        params["headers"].pop(header, None)

    client.meta.events.register("before-call.s3.PutObject", forget)
    found = findings(client, place(server))
    assert verdicts(found) == {name: "harm"}
    assert 'single_writer = "trusted"' in found[name].advice
    assert server.keys(BUCKET) == set()


def test_a_store_that_ignores_ranges_is_harmful(server: S3Server, connect: Callable[..., Any]) -> None:
    client = connect()

    def forget(params: dict[str, Any], **_: object) -> None:
        params["headers"].pop("Range", None)

    client.meta.events.register("before-call.s3.GetObject", forget)
    found = findings(client, place(server))
    assert verdicts(found) == {"ranged get": "harm"}
    assert found["ranged get"].told == "1024 bytes came, which are not the 256 that were put"


def test_a_store_without_conditions_is_told(server: S3Server, connect: Callable[..., Any]) -> None:
    client = connect()

    def refuse(request: Any, **_: object) -> AWSResponse | None:  # noqa: ANN401
        if "If-None-Match" not in request.headers and "If-Match" not in request.headers:
            return None
        return AWSResponse(request.url, 501, {}, _Body(error("NotImplemented").encode()))

    client.meta.events.register("before-send.s3.PutObject", refuse)
    found = findings(client, place(server))
    assert verdicts(found) == {"put if absent": "missing", "put if unchanged": "missing"}
    assert found["put if absent"].told == "the store does not offer it (501 NotImplemented: told by the test)"


def test_a_condition_that_fails_otherwise_is_not_taken_for_kept(server: S3Server, connect: Callable[..., Any]) -> None:
    client, seen = connect(), set()

    def break_down(request: Any, **_: object) -> AWSResponse | None:  # noqa: ANN401
        if request.url.endswith("/absent") and request.url in seen:
            return AWSResponse(request.url, 500, {}, _Body(error("InternalError").encode()))
        seen.add(request.url)
        return None

    client.meta.events.register("before-send.s3.PutObject", break_down)
    assert verdicts(findings(client, place(server))) == {"put if absent": "missing"}


# As AWS answers


def lifecycle(rules: str) -> str:
    return f"<LifecycleConfiguration {_S3}>{rules}</LifecycleConfiguration>"


def rule(actions: str, chosen: str = "<Filter><Prefix></Prefix></Filter>", status: str = "Enabled") -> str:
    return f"<Rule><ID>r</ID>{chosen}<Status>{status}</Status>{actions}</Rule>"


EXPIRE = "<Expiration><Days>30</Days></Expiration>"


def moving(kind: str) -> str:
    return f"<Transition><Days>5</Days><StorageClass>{kind}</StorageClass></Transition>"


def prefixed(prefix: str) -> str:
    return f"<Filter><Prefix>{prefix}</Prefix></Filter>"


def both(prefix: str, more: str) -> str:
    return f"<Filter><And><Prefix>{prefix}</Prefix>{more}</And></Filter>"


_TAG = "<Tag><Key>k</Key><Value>v</Value></Tag>"


@pytest.mark.parametrize(
    ("rules", "verdict", "told"),
    [
        (rule(EXPIRE), "harm", "rule 'r' removes objects after 30 days: all data would be lost"),
        (rule("<Expiration><Date>2030-01-01T00:00:00Z</Date></Expiration>"), "harm", "rule 'r' removes objects on"),
        (rule(EXPIRE, prefixed("pre/")), "harm", "rule 'r' removes"),
        (rule(EXPIRE, prefixed("p")), "harm", "rule 'r' removes"),
        (rule(EXPIRE, prefixed("pre/objects/")), "harm", "rule 'r' removes"),
        (rule(EXPIRE, "<Prefix>pre</Prefix>"), "harm", "rule 'r' removes"),
        (rule(EXPIRE, "<Filter><ObjectSizeGreaterThan>500</ObjectSizeGreaterThan></Filter>"), "harm", "rule 'r'"),
        (rule(EXPIRE, both("pre/", "<ObjectSizeLessThan>9</ObjectSizeLessThan>")), "harm", "rule 'r' removes"),
        (rule(EXPIRE, prefixed("prefix/")), "good", "no rule changes"),
        (rule(EXPIRE, prefixed("logs/")), "good", "no rule changes"),
        (rule(EXPIRE, f"<Filter>{_TAG}</Filter>"), "good", "no rule changes"),
        (rule(EXPIRE, both("pre/", _TAG)), "good", "no rule changes"),
        (rule(EXPIRE, status="Disabled"), "good", "no rule changes"),
        (rule("<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>"), "good", "no "),
        (rule("<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>"),
         "good", "no rule changes"),
        (rule("<AbortIncompleteMultipartUpload><DaysAfterInitiation>7</DaysAfterInitiation>"
              "</AbortIncompleteMultipartUpload>"), "good", "no rule changes"),
        (rule(moving("GLACIER")), "harm", "rule 'r' moves objects to GLACIER after 5 days, where they cannot be read"),
        (rule(moving("DEEP_ARCHIVE")), "harm", "rule 'r' moves objects to DEEP_ARCHIVE"),
        (rule(moving("GLACIER_IR")), "advice", "rule 'r' moves objects to GLACIER_IR after 5 days: they stay readable"),
        (rule(moving("STANDARD_IA")), "advice", "rule 'r' moves objects to STANDARD_IA"),
        (rule(moving("TAPE")), "unknown", "rule 'r' moves objects to TAPE"),
        (rule(moving("STANDARD_IA")) + rule(EXPIRE), "harm", "rule 'r' removes objects"),
        ("", "good", "no rule changes what lies below the prefix"),
    ],
)  # fmt: skip
def test_lifecycle_rules(rules: str, verdict: str, told: str, server: S3Server, connect: Callable[..., Any]) -> None:
    client = connect()
    answering(client, "GetBucketLifecycleConfiguration", lifecycle(rules))
    found = [finding for finding in check(client, place(server)).findings if finding.check == "lifecycle"]
    assert found[-1].verdict == verdict
    assert found[-1].told.startswith(told)
    if verdict == "harm":
        wanted = (
            "remove rule 'r' or give it a filter that leaves out 'pre/': aws s3api get-bucket-lifecycle-configuration"
        )
        assert found[-1].advice == f"{wanted} --bucket {BUCKET}"


@pytest.mark.parametrize(
    ("tiers", "verdict"),
    [
        ("<Tiering><AccessTier>DEEP_ARCHIVE_ACCESS</AccessTier><Days>180</Days></Tiering>", "harm"),
        (None, "advice"),
    ],
)
def test_archive_tiers_of_intelligent_tiering(
    tiers: str | None, verdict: str, server: S3Server, connect: Callable[..., Any]
) -> None:
    client = connect()
    answering(client, "GetBucketLifecycleConfiguration", lifecycle(rule(moving("INTELLIGENT_TIERING"))))
    one = (
        f"<IntelligentTieringConfiguration><Id>i</Id><Status>Enabled</Status>{tiers}</IntelligentTieringConfiguration>"
    )
    answer = f"<ListBucketIntelligentTieringConfigurationsOutput {_S3}>{one if tiers else ''}</ListBucketIntelligentTieringConfigurationsOutput>"  # noqa: E501
    answering(client, "ListBucketIntelligentTieringConfigurations", answer)
    assert findings(client, place(server))["lifecycle"].verdict == verdict


@pytest.mark.parametrize(
    ("code", "status", "verdict"),
    [
        ("NoSuchLifecycleConfiguration", 404, "good"),
        ("AccessDenied", 403, "unknown"),
        ("InternalError", 500, "unknown"),
    ],
)
def test_rules_that_are_not_shown(
    code: str, status: int, verdict: str, server: S3Server, connect: Callable[..., Any]
) -> None:
    client = connect()
    answering(client, "GetBucketLifecycleConfiguration", error(code), status)
    found = findings(client, place(server))["lifecycle"]
    assert found.verdict == verdict
    if status == 403:
        assert found.advice == f"allow s3:GetLifecycleConfiguration on arn:aws:s3:::{BUCKET}, or look yourself"


def encrypted(default: str, bucket_key: bool = False) -> str:
    key = f"<BucketKeyEnabled>{str(bucket_key).lower()}</BucketKeyEnabled>"
    return (
        f"<ServerSideEncryptionConfiguration {_S3}><Rule><ApplyServerSideEncryptionByDefault>{default}"
        f"</ApplyServerSideEncryptionByDefault>{key}</Rule></ServerSideEncryptionConfiguration>"
    )


_KMS = "<SSEAlgorithm>aws:kms</SSEAlgorithm><KMSMasterKeyID>arn:aws:kms:x:1:key/k</KMSMasterKeyID>"


@pytest.mark.parametrize(
    ("body", "status", "verdict", "advice"),
    [
        (encrypted("<SSEAlgorithm>AES256</SSEAlgorithm>"), 200, "good", ""),
        (error("ServerSideEncryptionConfigurationNotFoundError"), 404, "good", ""),
        (
            encrypted(_KMS),
            200,
            "advice",
            "allow kms:GenerateDataKey and kms:Decrypt on arn:aws:kms:x:1:key/k, and turn",
        ),
        (encrypted(_KMS, True), 200, "advice", "allow kms:GenerateDataKey and kms:Decrypt on arn:aws:kms:x:1:key/k"),
    ],
)
def test_default_encryption(
    body: str, status: int, verdict: str, advice: str, server: S3Server, connect: Callable[..., Any]
) -> None:
    client = connect()
    answering(client, "GetBucketEncryption", body, status)
    found = findings(client, place(server))["encryption"]
    assert found.verdict == verdict
    assert found.advice.startswith(advice)


@pytest.mark.parametrize(
    ("seconds", "verdict", "told"),
    [
        (0, "good", "this machine and the server agree"),
        (25, "good", "this machine and the server agree"),
        (100, "advice", "this machine's clock is 100 s behind the server's"),
        (-100, "advice", "this machine's clock is 100 s ahead of the server's"),
        (1000, "missing", "this machine's clock is 1000 s behind the server's: requests are refused"),
    ],
)
def test_the_clock(seconds: int, verdict: str, told: str, server: S3Server, connect: Callable[..., Any]) -> None:
    client = connect()
    # Between two whole seconds of the header, so that the rounded difference is the one that was set.
    away = datetime.now(UTC) + timedelta(seconds=seconds)
    answering(client, "HeadBucket", "", date=format_datetime(away, usegmt=True))
    found = findings(client, place(server))["clock"]
    assert found.verdict == verdict
    assert _near(found.told, told)


def _near(found: str, told: str) -> bool:
    """The header has whole seconds, and the request takes its time."""
    words = told.split()
    if not words[4:5] or not words[4].isdecimal():
        return found == told
    near = [str(int(words[4]) + off) for off in (-2, -1, 0, 1, 2)]
    return any(found == " ".join([*words[:4], seconds, *words[5:]]) for seconds in near)


def test_a_clock_that_is_refused_is_told_all_the_same(server: S3Server, connect: Callable[..., Any]) -> None:
    client = connect()
    away = format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True)
    answering(client, "HeadBucket", "", 403, date=away)
    assert findings(client, place(server))["clock"].verdict is Verdict.MISSING


def test_another_region_is_told(connect: Callable[..., Any]) -> None:
    client = connect()
    answering(client, "HeadBucket", "", x_amz_bucket_region="eu-central-1")
    elsewhere = Place.of(f"s3://{BUCKET}/pre")
    found = findings(client, elsewhere)["bucket"]
    assert (found.verdict, found.advice) == (Verdict.MISSING, "--region eu-central-1, and [store] region")


# The command


def test_the_command_ends_with_its_code(
    server: S3Server, connect: Callable[..., Any], runner: CliRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ["measure", f"s3://{BUCKET}/pre", "--endpoint", server.endpoint, "--json"]
    connect()
    found = json.loads(runner.invoke(app, [*words, "--check"], catch_exceptions=False).output)
    assert set(found) == {"findings"}
    client = connect()
    answering(client, "GetBucketLifecycleConfiguration", lifecycle(rule(EXPIRE)))
    monkeypatch.setattr(Place, "connect", lambda _: client)
    with pytest.raises(HarmfulStore, match=r"^s3://bucket/pre: lifecycle: rule 'r' removes objects after 30 days"):
        runner.invoke(app, [*words, "--check"], catch_exceptions=False)
    # It is measured all the same: that harms nothing.
    small = [
        "-o",
        str(tmp_path),
        "--yes",
        "--sizes",
        "1KiB",
        "--parallelism",
        "1",
        "--repeats",
        "1",
        "--seconds",
        "0.05",
    ]
    with pytest.raises(HarmfulStore):
        runner.invoke(app, [*words, *small], catch_exceptions=False)
    assert (tmp_path / "latency-table.json").exists()


def test_a_locked_bucket_is_not_measured(
    server: S3Server, connect: Callable[..., Any], runner: CliRunner, tmp_path: Path
) -> None:
    connect()
    lock = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 3}}}
    server.client.put_object_lock_configuration(Bucket=LOCKED, ObjectLockConfiguration=lock)
    words = ["measure", f"s3://{LOCKED}/pre", "--endpoint", server.endpoint, "--yes", "-o", str(tmp_path)]
    with pytest.raises(MeasureError, match=r"^object-lock: each object is kept .*: nothing was measured$"):
        runner.invoke(app, words, catch_exceptions=False)
    assert server.keys(LOCKED) == set()
