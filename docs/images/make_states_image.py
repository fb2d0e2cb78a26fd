"""Draws the moves between the statuses of a work. It needs Graphviz.

python docs/images/make_states_image.py [directory]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from django_ayework.rules.states import MOVES, TERMINAL


def drawing() -> str:
    """Return the graph in Graphviz's language: moves back from an ended status are dashed."""
    lines = [
        "digraph {",
        '  rankdir=LR; bgcolor="white"; node [shape=box style="rounded,filled" fontname="Helvetica"];',
        '  node [fillcolor="#eef3f7"];',
        '  edge [color="#5b6b77"]; ranksep=1.1; nodesep=0.45;',
    ]
    for status in sorted(TERMINAL):
        lines.append(f'  "{status}" [fillcolor="#d9e6d5" peripheries=2];')
    for source, targets in MOVES.items():
        for target in sorted(targets):
            back = " [style=dashed constraint=false]" if source in TERMINAL else ""
            lines.append(f'  "{source}" -> "{target}"{back};')
    return "\n".join([*lines, "}"])


def main() -> None:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent
    command = ["dot", "-Tsvg", "-o", str(directory / "states.svg")]
    subprocess.run(command, input=drawing(), text=True, check=True)


if __name__ == "__main__":
    main()
