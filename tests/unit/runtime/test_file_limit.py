"""A service may open as many files as the system allows it."""

import resource
from unittest.mock import patch

from anabranch.common.runtime.service import raise_file_limit


def test_the_soft_limit_of_open_files_becomes_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
    try:
        raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_limit_that_may_not_be_raised_is_no_reason_not_to_start() -> None:
    with patch.object(resource, "setrlimit", side_effect=ValueError("not allowed")):
        raise_file_limit()
