"""Errors by what stays when wording changes: their code, and the facts in them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from protodask.errors import Code, InputError, ProtodaskError


@contextmanager
def refused(
    code: Code, *facts: object, kind: type[ProtodaskError] = InputError
) -> Iterator[pytest.ExceptionInfo[ProtodaskError]]:
    """Expect an error of this kind and code that states all of these facts: names, numbers, places.

    A fact is found as a whole: 2 is not in "12", nor `size` in "sizes".
    """
    with pytest.raises(kind) as caught:
        yield caught
    check_error(caught.value, code, *facts)


def check_error(error: ProtodaskError, code: Code, *facts: object) -> None:
    """The same of an error that is at hand."""
    assert error.code == code, f"{error.code}: {error}"
    missing = [fact for fact in facts if not states(str(error), fact)]
    assert not missing, f"{missing} not in: {error}"


def states(text: str, fact: object) -> bool:
    """Whether the text has the fact in it, and not merely a longer word or number that contains it."""
    said = str(fact)
    before = r"(?<![\w])" if re.match(r"\w", said) else ""
    after = r"(?![\w])" if re.search(r"\w$", said) else ""
    return re.search(before + re.escape(said) + after, text) is not None
