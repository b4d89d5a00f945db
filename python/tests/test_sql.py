"""Questions in SQL."""

import importlib.util
import os
import shutil
import tempfile
import unittest
import unittest.mock

import hindsight
from common import Case, crash


def needs(*names: str):
    """Leaves a test out where a package is not installed, and says so."""
    missing = [n for n in names if importlib.util.find_spec(n) is None]
    return unittest.skipIf(missing, f"{', '.join(missing)} is not installed")


QUESTION = "SELECT position, thread, function, result, address FROM calls('sum') ORDER BY time"
#: Above what floating-point numbers can hold, and beside an unknown one.
LARGE = "SELECT * FROM (VALUES (9223372036854775807), (NULL)) AS t(n)"


class Sql(Case):
    def setUp(self) -> None:
        self.r = self.open(crash())

    def test_rows_need_no_other_package(self) -> None:
        rows = self.r.sql(QUESTION).fetchall()
        calls = list(self.r.calls("sum"))
        self.assertEqual([r["position"] for r in rows], [c.moment.position for c in calls])
        self.assertEqual([r["address"] for r in rows], [c.address for c in calls])
        self.assertEqual(rows[0].keys()[2], "function")
        self.assertEqual(rows[0][2], "sum")
        self.assertEqual(rows[0].asdict()["thread"], calls[0].thread)
        self.assertEqual([tuple(r) for r in self.r.sql(LARGE)], [(9223372036854775807,), (None,)])
        self.assertEqual(self.r.sql("SELECT position FROM marks").fetchall(), [])
        self.assertIsNone(self.r.sql("SELECT position FROM marks").fetchone())
        (row,) = self.r.sql("""SELECT '{"a": [1]}, {' AS t, '€"\\' AS u""")
        self.assertEqual(tuple(row), ('{"a": [1]}, {', '€"\\'))
        # Two columns may have the same name, and a row may be long.
        (row,) = self.r.sql("SELECT a.n, b.n FROM (SELECT 1 AS n) a, (SELECT 2 AS n) b")
        self.assertEqual((tuple(row), row.keys()), ((1, 2), ["n", "n"]))
        with self.assertRaises(KeyError):
            row["n"]
        (row,) = self.r.sql("SELECT repeat('{x', 1000000) AS t")
        self.assertEqual(row["t"], "{x" * 1000000)
        with self.assertRaisesRegex(hindsight.SqlError, "one statement"):
            self.r.sql("SELECT 1; SELECT 2").fetchall()
        # Whoever takes some rows need not wait for all.
        some = iter(self.r.sql("SELECT address FROM reads"))
        self.assertEqual(len([next(some) for _ in range(5)]), 5)
        some.close()

    def test_mistakes_are_errors(self) -> None:
        with self.assertRaisesRegex(hindsight.SqlError, "frm"):
            self.r.sql("SELECT frm FROM events").fetchall()
        with self.assertRaises(hindsight.SqlError):
            list(hindsight.sql("/no/such.hst", "SELECT 1"))

    def test_a_process_that_is_killed_is_an_error(self) -> None:
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        with open(os.path.join(folder, "hindsight-sql"), "w") as f:
            f.write("#!/bin/sh\necho '[{\"n\":1},'\nkill -9 $$\n")
        os.chmod(f.name, 0o700)
        with unittest.mock.patch.dict(os.environ, {"HINDSIGHT_BIN": folder}):
            with self.assertRaisesRegex(hindsight.SqlError, "status -9"):
                self.r.sql("SELECT 1").fetchall()

    def test_several_recordings(self) -> None:
        question = "SELECT DISTINCT recording FROM threads"
        self.assertEqual(len(hindsight.sql([crash(), crash()], question).fetchall()), 1)
        self.assertEqual(len(hindsight.sql(crash(), question).fetchall()), 1)

    @needs("pyarrow")
    def test_arrow(self) -> None:
        import pyarrow

        rows = self.r.sql(QUESTION).fetchall()
        table = self.r.sql(QUESTION).to_arrow()
        self.assertIsInstance(table, pyarrow.Table)
        self.assertEqual([tuple(r.values()) for r in table.to_pylist()], [tuple(r) for r in rows])
        self.assertEqual(self.r.sql(LARGE).to_arrow()["n"].null_count, 1)
        self.assertEqual(self.r.sql("SELECT position FROM marks").to_arrow().num_rows, 0)
        batches = self.r.sql("SELECT address FROM reads").batches()
        self.assertGreater(next(batches).num_rows, 0)
        batches.close()
        with self.assertRaises(hindsight.SqlError):
            self.r.sql("SELECT nothing").to_arrow()
        with self.assertRaisesRegex(hindsight.SqlError, "one statement"):
            self.r.sql("SELECT 1; SELECT 2").to_arrow()

    @needs("pyarrow", "pandas")
    def test_pandas(self) -> None:
        frame = self.r.sql(LARGE).to_pandas()
        self.assertEqual(frame["n"][0], 9223372036854775807)
        self.assertTrue(frame["n"].isna()[1])
        self.assertEqual(list(self.r.sql(QUESTION).to_pandas()["function"]), ["sum", "sum"])

    @needs("pyarrow", "polars")
    def test_polars(self) -> None:
        frame = self.r.sql(LARGE).to_polars()
        self.assertEqual(frame["n"].to_list(), [9223372036854775807, None])

    @needs("numpy")
    def test_numpy(self) -> None:
        array = self.r.crash.memory(16, 4).to_numpy()
        self.assertTrue(array.mask.all())
        array = self.r.crash.memory("nodes", 8).to_numpy()
        self.assertEqual(array.tolist(), list(self.r.crash.memory("nodes", 8)))


if __name__ == "__main__":
    unittest.main()
