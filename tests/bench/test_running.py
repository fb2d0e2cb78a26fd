"""A measurement that is told to stop cleans up first."""

import os
import signal
import subprocess
import sys

from bench.running import run
from tests.processes import ROOT, eventually

INNER = """
import pathlib, sys, time
from bench.running import stop_in_order

folder = pathlib.Path(sys.argv[1])
stop_in_order()
try:
    (folder / "started").touch()
    time.sleep(60)
finally:
    time.sleep(0.1)
    (folder / "cleaned").touch()
"""
OUTER = """
import sys
from bench.running import run, stop_in_order

stop_in_order()
run([sys.executable, "-c", sys.argv[1], sys.argv[2]])
"""


def test_the_status_of_a_measurement_is_returned():
    assert [run([sys.executable, "-c", f"raise SystemExit({status})"]) for status in (0, 3)] == [0, 3]


def test_who_is_told_to_stop_lets_the_measurement_clean_up(tmp_path):
    command = [sys.executable, "-c", OUTER, INNER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}) as outer:
        try:
            eventually((tmp_path / "started").exists)
            outer.send_signal(signal.SIGTERM)
            status = outer.wait(30)
        finally:
            outer.kill()

    assert status == 128 + signal.SIGTERM
    assert (tmp_path / "cleaned").exists()
