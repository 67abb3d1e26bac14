"""`python -m harness.kms_server PORT`: moto's server as AWS KMS, with what it leaves out.

moto encrypts and decrypts with keys that are disabled, and says of a wrong key that access is denied. AWS refuses the
first and has a name of its own for the second (API reference of Encrypt and Decrypt). What moto says of signatures is
XML, under other names than KMS has (API reference, common errors).
"""

import sys
from collections.abc import Callable

import moto.iam.access_control as signatures
from moto.core.exceptions import JsonRESTError
from moto.kms.exceptions import AccessDeniedException
from moto.kms.models import Key, KmsBackend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

PLAIN_ENCRYPT, PLAIN_DECRYPT = KmsBackend.encrypt, KmsBackend.decrypt
INCORRECT = "The key ID in the request does not identify a CMK that can perform this operation."
Context = dict[str, str]


def refuse_unless_enabled(key: Key) -> None:
    if key.key_state == "Disabled":
        raise JsonRESTError("DisabledException", f"{key.arn} is disabled.")
    if key.key_state != "Enabled":
        raise JsonRESTError("KMSInvalidStateException", f"{key.arn} is pending deletion.")


def encrypt(self: KmsBackend, key_id: str, plaintext: bytes, encryption_context: Context) -> tuple[bytes, str]:
    refuse_unless_enabled(self.keys[self.any_id_to_key_id(key_id)])
    return PLAIN_ENCRYPT(self, key_id, plaintext, encryption_context)


def decrypt(
    self: KmsBackend, ciphertext_blob: bytes, encryption_context: Context, key_id: str | None = None
) -> tuple[bytes, str]:
    if key_id is not None:
        refuse_unless_enabled(self.keys[self.any_id_to_key_id(key_id)])
    try:
        return PLAIN_DECRYPT(self, ciphertext_blob, encryption_context, key_id)
    except AccessDeniedException:
        raise JsonRESTError("IncorrectKeyException", INCORRECT) from None


def forbidden(code: str) -> Callable[..., JsonRESTError]:
    def error(**about: str) -> JsonRESTError:
        return JsonRESTError(code, ", ".join(about.values()) or code)

    return error


def main(port: int) -> None:
    for patched in (encrypt, decrypt):
        setattr(KmsBackend, patched.__name__, patched)
    for name, code in (
        ("SignatureDoesNotMatchError", "InvalidSignatureException"),
        ("InvalidClientTokenIdError", "UnrecognizedClientException"),
        ("AccessDeniedError", "AccessDeniedException"),
    ):
        setattr(signatures, name, forbidden(code))
    run_simple("127.0.0.1", port, DomainDispatcherApplication(create_backend_app), threaded=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
