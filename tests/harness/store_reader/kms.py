"""Master keys that a key of AWS KMS wraps, unwrapped with the credentials of the environment."""

from harness.store_reader.fields import Damaged
from harness.store_reader.heads import Wrapping, key_id


def unwrap(wrapping: Wrapping, endpoint: str | None = None) -> bytes:
    # Imported here, since few buckets need it.
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    region = wrapping.key_name.split(":")[3]
    client = boto3.client("kms", endpoint_url=endpoint, region_name=region)
    context = {
        "tombolo-store": f"{wrapping.identity:016x}",
        "tombolo-master-key": f"{wrapping.master_key:016x}",
    }
    try:
        answer = client.decrypt(KeyId=wrapping.key_name, CiphertextBlob=wrapping.wrapped, EncryptionContext=context)
    except (BotoCoreError, ClientError) as error:
        raise Damaged("keys", f"{wrapping.key_name} does not unwrap the master key: {error}") from None
    master: bytes = answer["Plaintext"]
    if len(master) != 32 or key_id(master) != wrapping.master_key:
        raise Damaged("keys", f"{wrapping.key_name} unwraps another key than {wrapping.master_key:016x}")
    return master
