"""Each fault of a file is found, and named with its place."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../tools"))
import check_files  # noqa: E402


class Files(unittest.TestCase):
    def test_in_order(self):
        self.assertEqual(check_files.check_text("a.cc", "int a;\n" * 400), [])

    def test_too_long(self):
        errors = check_files.check_text("a.cc", "int a;\n" * 401)
        self.assertEqual(len(errors), 1)
        self.assertIn("a.cc: 401 lines", errors[0])

    def test_words(self):
        for word in ("TO" "DO", "FIX" "ME", "GTEST_" "SKIP", "DIS" "ABLED_Sum"):
            errors = check_files.check_text("a.cc", f"\n// {word}: later\n")
            self.assertEqual(len(errors), 1, word)
            self.assertIn("a.cc:2", errors[0])

    def test_links(self):
        self.assertEqual(check_files.check_text("a.md", "http" "s://www.apache.org/licenses/\n"), [])
        self.assertIn("example.com", check_files.check_text("a.md", "see http" "://example.com/x\n")[0])

    def test_the_tree_is_walked(self):
        with tempfile.TemporaryDirectory() as tree:
            for folder in ("src/base", "build/release", ".deps"):
                os.makedirs(os.path.join(tree, folder))
                with open(os.path.join(tree, folder, "a.cc"), "w", encoding="utf-8") as sink:
                    sink.write("// FIX" "ME\n")
            errors = check_files.check(tree)
        self.assertEqual(len(errors), 1)
        self.assertIn("src/base/a.cc:1", errors[0])


if __name__ == "__main__":
    unittest.main()
