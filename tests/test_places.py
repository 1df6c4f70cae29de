"""Places without their secrets."""

import string

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from protodask.places import mask, mask_text

SECRETS = st.text(string.ascii_letters + string.digits + "+=_-.~%", min_size=4, max_size=40)

TEMPLATES = (
    "s3://key:{}@bucket/data.zarr",
    "s3://{}@bucket/data.zarr",
    "memory:///key:{}@bucket/data.zarr",
    "s3://key:{}/{}@bucket/data.zarr",
    "s3://key:a@{}@bucket/data.zarr",
    "https://host.example:443/data.zarr?token={}",
    "https://host.example/data.zarr?a=1&X-Signature={}&b=2",
    "https://host.example/data.zarr?{}",
    "https://host.example/data.zarr#token={}",
    "simplecache::s3://key:{}@bucket/data.zarr",
    "zip://inner.csv::https://user:{}@host.example/data.zip",
)


@settings(max_examples=40)
@given(secret=SECRETS)
def test_mask__hides_the_secret_wherever_it_stands(secret: str) -> None:
    sentence = "Reading '{}' failed ({}): see {}."
    assume(not secret.isdigit())  # before the first slash they are a port
    for template in TEMPLATES:
        if secret in template + sentence or ("?{}" in template and "=" in secret):
            continue  # what stands before an equals sign is a name
        url = template.format(secret, secret)
        shown = mask(url)
        assert secret not in shown
        assert "***" in shown
        assert mask(shown) == shown
        text = sentence.format(url, url, url)
        assert secret not in mask_text(text)
        assert mask_text(text).startswith("Reading '")


@given(secret=SECRETS)
def test_mask_text__hides_what_libraries_leave_of_a_url(secret: str) -> None:
    assume(secret not in "no file at /user:@bucket/x?sig= s3://")
    for url in (f"s3://user:{secret}@bucket/x", f"s3://bucket/x?sig={secret}"):
        assert secret not in mask_text(f"no file at /user:{secret}@bucket/x?sig={secret}", url)


@pytest.mark.parametrize(
    "place",
    [
        "data.zarr", "/home/me@work:x/data.zarr", "s3://bucket/data.zarr", "https://host:443/data.zarr",
        "tcp://10.0.0.1:8786", "tls://[::1]:8786", "tls://node:8786", "memory://x/y", "file:///data/x.zarr",
        "file:///home/me@work/x", "file:///C:/x",
        "simplecache::s3://bucket/x", r"C:\data\x.zarr",
    ],
)  # fmt: skip
def test_mask__leaves_alone_what_has_no_secret(place: str) -> None:
    assert mask(place) == place
    assert mask_text(f"There is nothing at {place}.") == f"There is nothing at {place}."


def test_mask__keeps_what_tells_places_apart() -> None:
    assert mask("s3://key:secret@bucket/a/b.zarr?token=xyz1") == "s3://***@bucket/a/b.zarr?token=***"


def test_mask_text__hides_users_with_a_password_whose_url_was_taken_apart() -> None:
    assert mask_text("No such file: /user:secret@bucket/x") == "No such file: /***@bucket/x"
    for plain in ("at 10:30, me@work", "File x.py: 3", "key: value@host", "a:b", "tls://10.0.0.1:8786"):
        assert mask_text(plain) == plain


@pytest.mark.parametrize(
    "text", ["x" * 300_000, "a.b+" * 80_000, "x::" * 100_000, "a:" * 100_000, "x" * 200_000 + "@y"]
)
def test_mask_text__of_a_long_word_takes_no_long_time(text: str) -> None:
    assert mask_text(text) == text


def test_mask_text__of_a_scheme_that_is_too_long() -> None:
    assert "secret" not in mask_text("x" * 100 + "://key:secret@bucket/place")
