"""How much MariaDB keeps in memory while something is measured."""

import pytest

from bench.pool import buffer_pool, bytes_of


def test_a_size_is_said_in_megabytes_or_gigabytes():
    assert (bytes_of("512M"), bytes_of("1g")) == (512 * 1024**2, 1024**3)


def test_what_is_no_size_is_refused_before_anything_is_measured():
    with pytest.raises(ValueError, match="like 512M or 1G, not 'plenty'"):
        bytes_of("plenty")


def test_other_databases_are_left_alone():
    with buffer_pool("postgres", "plenty"):
        pass
