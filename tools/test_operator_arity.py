import unittest

import operator_arity


class TableTest(unittest.TestCase):
    def test_the_table_is_what_the_tool_writes(self):
        self.assertEqual(operator_arity.TABLE.read_text(), operator_arity.table())


if __name__ == "__main__":
    unittest.main()
