"""Files of processes that have ended: their counts are kept, their files are not.

``prometheus_client`` keeps the files of ended processes for good. A supervisor replaces its processes, so
their number would grow without end. Imports ``prometheus_client``.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import mark_process_dead

#: Kinds of files whose values are added up. Gauges belong to their process.
ADDED_UP = ("counter", "histogram", "summary")
#: What stands for the process in the name of the file of all that have ended.
ENDED = "0"


def merge(folder: str) -> None:
    """Add the counts of processes that have ended to one file of each kind, and remove theirs.

    Nobody else may read the folder at this moment: counts would be missing, or there twice.
    """
    by_process: dict[str, list[Path]] = defaultdict(list)
    for path in Path(folder).glob("*.db"):
        by_process[path.stem.rpartition("_")[2]].append(path)
    for process, paths in by_process.items():
        if process != ENDED and not is_alive(int(process)):
            mark_process_dead(int(process), folder)  # type: ignore[no-untyped-call]
            for path in paths:
                kind = path.stem.partition("_")[0]
                if kind in ADDED_UP:
                    add(path, Path(folder, f"{kind}_{ENDED}.db"))
                    path.unlink()


def is_alive(process: int) -> bool:
    """Tell whether there is a process with this id."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user, under the id of one of ours
        return True
    return True


def add(path: Path, total: Path) -> None:
    """Add the values of a file to those of another one."""
    sums = MmapedDict(str(total))  # type: ignore[no-untyped-call]
    try:
        for key, value, *_ in MmapedDict.read_all_values_from_file(str(path)):  # type: ignore[no-untyped-call]
            before, _ = sums.read_value(key)  # type: ignore[no-untyped-call]
            sums.write_value(key, before + value, 0.0)  # type: ignore[no-untyped-call]
    finally:
        sums.close()  # type: ignore[no-untyped-call]
