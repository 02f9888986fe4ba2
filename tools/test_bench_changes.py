import json
import tempfile
import unittest
from pathlib import Path

import bench_changes
from bench_changes import Change


def estimate(median, lower=None, upper=None):
    return {"median": {"point_estimate": median,
                       "confidence_interval": {"lower_bound": lower, "upper_bound": upper}}}


class ChangesTest(unittest.TestCase):
    def write(self, bench, kind, estimates):
        folder = self.folder / bench.replace("/", "_") / kind
        folder.mkdir(parents=True)
        (folder / "estimates.json").write_text(json.dumps(estimates))
        if kind != "change":
            (folder / "benchmark.json").write_text(json.dumps({"full_id": bench}))

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_benches_of_both_commits_have_a_ratio_and_its_interval(self):
        self.write("softmax/f32/1", "base", estimate(2000.0))
        self.write("softmax/f32/1", "new", estimate(2400.0))
        self.write("softmax/f32/1", "change", estimate(0.2, 0.15, 0.25))
        change, = bench_changes.changes(self.folder)
        self.assertEqual(change.name, "softmax/f32/1")
        self.assertAlmostEqual(change.ratio, 1.2)
        self.assertEqual([round(bound, 6) for bound in change.interval], [1.15, 1.25])
        self.assertEqual(change.mark, "!")

    def test_a_bench_of_one_commit_has_no_ratio(self):
        self.write("old", "base", estimate(1.0))
        self.write("new", "new", estimate(1.0))
        new, old = bench_changes.changes(self.folder)
        self.assertEqual((new.base, new.ratio, new.mark), (None, None, ""))
        self.assertEqual((old.head, old.ratio, old.mark), (None, None, ""))

    def test_marks_are_at_15_and_30_percent(self):
        marks = [Change("x", 100.0, head, None).mark for head in (50.0, 114.9, 115.0, 129.9, 130.0)]
        self.assertEqual(marks, ["", "", "!", "!", "!!"])

    def test_the_table_names_units_and_counts_marks(self):
        text = bench_changes.table([
            Change("a", 950.0, 1500.0, (1.5, 1.7)),
            Change("long name", 2.5e6, 1.25e9, None),
            Change("gone", 1.0, None, None),
        ])
        self.assertEqual(text.splitlines(), [
            "bench        base    head   ratio          95 %",
            "a          950 ns  1.5 µs    1.58  1.50 to 1.70  !!",
            "long name  2.5 ms  1.25 s  500.00             -  !!",
            "gone         1 ns       -       -             -",
            "3 benches, 2 at least 15 % slower",
        ])

    def test_the_executable_is_the_one_that_cargo_names(self):
        messages = "\n".join([
            json.dumps({"reason": "compiler-artifact", "executable": None}),
            "a line of something else",
            json.dumps({"reason": "compiler-artifact", "executable": "/target/kernels-1"}),
            json.dumps({"reason": "build-finished", "success": True}),
        ])
        self.assertEqual(bench_changes.executable(messages), "/target/kernels-1")
        self.assertIsNone(bench_changes.executable(""))


if __name__ == "__main__":
    unittest.main()
