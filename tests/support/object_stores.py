"""An S3 server of this process, and the environment in which everything reaches it and nothing else."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "someone",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    # Whatever the machine is configured to use must not be reached from a test.
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "1",
}


@contextmanager
def running_server() -> Iterator[str]:
    """The address of a server on a free port of the loopback interface.

    One serves all tests of a process: clients that are kept know its address.
    """
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@contextmanager
def reached(address: str) -> Iterator[str]:
    """Have everything in this process and those that it starts reach the server."""
    put, one_at_a_time = S3Response.put_object, threading.Lock()

    def put_object(*values: Any) -> Any:
        with one_at_a_time:
            return put(*values)

    with pytest.MonkeyPatch.context() as patch:
        # The real one looks at a condition and writes in one step; this one may let another request in between.
        patch.setattr(S3Response, "put_object", put_object)
        for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": address}.items():
            patch.setenv(name, value)
        patch.delenv("AWS_PROFILE", raising=False)
        yield address


def make_bucket(server: str, key: str) -> str:
    """The URL of a new bucket, named after a key."""
    name = f"b{abs(hash(key)):x}"
    boto3.client("s3", endpoint_url=server).create_bucket(Bucket=name)
    return f"s3://{name}"


def keys_of(url: str) -> list[str]:
    """Everything in a bucket, asked of the server itself."""
    listed = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"]).list_objects_v2(
        Bucket=url.removeprefix("s3://").partition("/")[0]
    )
    return [entry["Key"] for entry in listed.get("Contents", [])]
