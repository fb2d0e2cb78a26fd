"""The shape of the source."""

import pytest

from tests.architecture.sources import PACKAGE, ROOT, files

LONGEST = 450


FOLDERS = [PACKAGE, *(ROOT / name for name in ("example_project", "tests", "bench"))]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_no_file_is_longer_than_it_can_be_read_at_once(folder):
    lengths = {path: len(path.read_text().splitlines()) for path in files(folder)}

    assert len(lengths) > 10
    assert {str(path.relative_to(ROOT)): length for path, length in lengths.items() if length > LONGEST} == {}


def test_the_package_says_that_it_is_typed():
    assert (PACKAGE / "py.typed").exists()
