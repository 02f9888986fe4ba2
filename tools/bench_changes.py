"""What scripts/bench-compare reads and prints.

    bench_changes.py executable MESSAGES   the bench that cargo built, from its JSON messages
    bench_changes.py table CRITERION       the table of changes, from criterion's folder

Criterion leaves estimates of the baseline in ID/base, of the run after it in ID/new, and of the
relative change between the two in ID/change, all times in nanoseconds.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

# How much slower is worth a mark.
MARKS = ((1.30, "!!"), (1.15, "!"))


@dataclass(frozen=True)
class Change:
    name: str
    base: float | None
    head: float | None
    # Of the ratio, at 95 %.
    interval: tuple[float, float] | None

    @property
    def ratio(self):
        if self.base is None or self.head is None:
            return None
        return self.head / self.base

    @property
    def mark(self):
        ratio = self.ratio
        return next((mark for least, mark in MARKS if ratio is not None and ratio >= least), "")


def executable(messages):
    """The path of the last executable that cargo's messages name."""
    found = None
    for line in messages.splitlines():
        if line.startswith("{"):
            found = json.loads(line).get("executable") or found
    return found


def estimates(folder):
    try:
        return json.loads((folder / "estimates.json").read_text())
    except FileNotFoundError:
        return None


def changes(criterion):
    """The change of every bench that ran, in the order of their names."""
    found = []
    benches = {path.parent.parent for path in criterion.glob("**/benchmark.json")}
    for bench in benches:
        described = next(bench / kind / "benchmark.json" for kind in ("new", "base")
                         if (bench / kind / "benchmark.json").exists())
        name = json.loads(described.read_text())["full_id"]
        base, head, change = (estimates(bench / kind) for kind in ("base", "new", "change"))
        interval = None
        if base and head and change:
            bounds = change["median"]["confidence_interval"]
            interval = (1 + bounds["lower_bound"], 1 + bounds["upper_bound"])
        median = lambda estimate: estimate and estimate["median"]["point_estimate"]
        found.append(Change(name, median(base), median(head), interval))
    return sorted(found, key=lambda change: change.name)


def time(nanoseconds):
    if nanoseconds is None:
        return "-"
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= scale:
            return f"{nanoseconds / scale:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"


def table(changes):
    rows = [("bench", "base", "head", "ratio", "95 %", "")]
    for change in changes:
        ratio, interval = change.ratio, change.interval
        rows.append((
            change.name,
            time(change.base),
            time(change.head),
            "-" if ratio is None else f"{ratio:.2f}",
            "-" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}",
            change.mark,
        ))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        first, *numbers, mark = row
        cells = [first.ljust(widths[0])]
        cells += [number.rjust(width) for number, width in zip(numbers, widths[1:])]
        lines.append("  ".join([*cells, mark]).rstrip())
    slower = sum(bool(change.mark) for change in changes)
    lines.append(f"{len(changes)} benches, {slower} at least 15 % slower")
    return "\n".join(lines)


def main(command, path):
    if command == "executable":
        found = executable(Path(path).read_text())
        if found is None:
            sys.exit("bench-compare: cargo named no executable")
        print(found)
    elif command == "table":
        found = changes(Path(path))
        print(table(found) if found else "no bench has such a name")


if __name__ == "__main__":
    main(*sys.argv[1:])
