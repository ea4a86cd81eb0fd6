"""boto3's S3 client, imported on creation, and explanations of its errors."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lmi_core.errors import ConfigurationError
from lmi_core.remote.errors import Unreachable, first_line

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

CONNECT_SECONDS = 4
READ_SECONDS = 10  # without receiving a byte
ATTEMPTS = 2
SERVER_ERRORS = 500
QUERY = re.compile(r'\?[^\s"]*')

INSTALL = "models in S3 need boto3: run: pip install 'lmi-handlers[s3]'"
CREDENTIALS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or attach a role to this host"
NO_CREDENTIALS = f"S3 denies access without AWS credentials: {CREDENTIALS}"
DENIALS = ("AccessDenied", "403")
DENIED = (
    "S3 denies access with these credentials: s3:ListBucket on the bucket and s3:GetObject on the folder are required"
)


def create_client(connections: int) -> "S3Client":
    """Create a client, inside `convert_errors`; boto3 itself finds credentials, region, profile and endpoint.

    Without credentials, requests are not signed, which suffices for public buckets.
    """
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    session = boto3.Session()
    config = Config(
        signature_version=UNSIGNED if session.get_credentials() is None else None,
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
        max_pool_connections=connections,
    )
    return session.client("s3", config=config)


@contextmanager
def convert_errors(url: str) -> Iterator[None]:
    """Turn boto3's errors into a ConfigurationError of one sentence about the URL, or into Unreachable."""
    try:
        import boto3
        from botocore import exceptions
        from s3transfer.exceptions import RetriesExceededError
    except ModuleNotFoundError as error:
        raise ConfigurationError(INSTALL) from error
    try:
        yield
    except exceptions.ClientError as error:
        details = error.response.get("Error", {})
        code, message = str(details.get("Code", "")), " ".join(str(details.get("Message", "")).split())
        if code in DENIALS and boto3.Session().get_credentials() is None:
            raise ConfigurationError(f"{url}: {NO_CREDENTIALS}") from error
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        kind = Unreachable if status >= SERVER_ERRORS else ConfigurationError
        raise kind(f"{url}: {DENIED if code in DENIALS else f'S3 answered {code}: {message}'}") from error
    except RetriesExceededError as error:
        reason = first_line(error.last_exception)
        raise Unreachable(f"{url}: the connection to S3 was interrupted ({reason}): start again to resume") from error
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError) as error:
        raise ConfigurationError(f"{url}: {NO_CREDENTIALS}") from error
    except (exceptions.ConnectionError, exceptions.HTTPClientError) as error:
        reason = QUERY.sub("", first_line(error))
        raise Unreachable(
            f"{url}: S3 cannot be reached ({reason}): check the network, the region and AWS_ENDPOINT_URL"
        ) from error
    except (exceptions.BotoCoreError, ValueError) as error:  # a wrong profile, region or endpoint
        raise ConfigurationError(f"{url}: {first_line(error)}") from error
