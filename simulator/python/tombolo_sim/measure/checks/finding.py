"""What a check says."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from botocore.exceptions import ClientError

from tombolo_sim.measure.own_keys import code_of


class Verdict(StrEnum):
    GOOD = "good"
    ADVICE = "advice"
    """It works, and could cost less or tell more."""
    UNKNOWN = "unknown"
    """The store does not say."""
    MISSING = "missing"
    """A gateway would not work."""
    HARM = "harm"
    """Data would be lost, or could not be read."""


@dataclass(frozen=True)
class Finding:
    check: str
    verdict: Verdict
    told: str
    advice: str = ""
    """What to do, in a line; empty where all is well."""
    may_go_on: bool = field(default=False, repr=False)
    """Bad as it is, other checks may tell more."""

    @property
    def is_bad(self) -> bool:
        return self.verdict in (Verdict.MISSING, Verdict.HARM)

    def data(self) -> dict[str, Any]:
        return {"check": self.check, "verdict": self.verdict, "told": self.told, "advice": self.advice}


def status_of(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


# The credentials are wrong, or the clock: that is no matter of permissions.
_NOT_KNOWN = {"SignatureDoesNotMatch", "InvalidAccessKeyId", "RequestTimeTooSkewed"}


def is_denied(error: ClientError) -> bool:
    return status_of(error) == 403 and code_of(error) not in _NOT_KNOWN


def words(error: ClientError) -> str:
    """The server's answer, short."""
    message = " ".join(str(error.response.get("Error", {}).get("Message", "")).split())
    code = code_of(error)
    return f"{status_of(error)} {message}" if code.isdecimal() else f"{status_of(error)} {code}: {message}".rstrip(": ")
