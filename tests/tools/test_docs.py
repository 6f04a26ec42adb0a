"""Code blocks are found as a reader sees them, and a block that fails fails the check."""

import contextlib
import io
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../tools"))
import check_docs  # noqa: E402


class Docs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = folder.name
        os.makedirs(os.path.join(self.tree, "docs"))
        os.makedirs(os.path.join(self.tree, "examples"))

    def write(self, text, path="README.md"):
        with open(os.path.join(self.tree, path), "w", encoding="utf-8") as sink:
            sink.write(text)

    def run_blocks(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = check_docs.run(self.tree, os.path.join(self.tree, "build", "troika"))
        return status, said.getvalue()

    def test_extract(self):
        self.write("# A\n```cpp\nint main() {}\n```\n````text\n```cpp\nno\n```\n````\n")
        self.write("```cpp\nint a;\n```\n", "docs/more.md")
        blocks = os.path.join(self.tree, "blocks")
        with contextlib.redirect_stdout(io.StringIO()):
            check_docs.extract(self.tree, blocks)
        self.assertEqual(sorted(os.listdir(blocks)), ["more_2.cc", "readme_3.cc"])
        with open(os.path.join(blocks, "readme_3.cc"), encoding="utf-8") as source:
            self.assertTrue(source.read().endswith("README.md\"\nint main() {}\n"))

    def test_a_block_that_is_not_closed(self):
        self.write("```cpp\nint a;\n")
        with self.assertRaisesRegex(ValueError, "README.md:1"):
            check_docs.extract(self.tree, os.path.join(self.tree, "blocks"))

    def test_a_block_that_names_a_file_is_that_file(self):
        self.write("int a;\n", "examples/a.cc")
        blocks = os.path.join(self.tree, "blocks")
        self.write("```cpp examples/a.cc\nint a;\n```\n")
        with contextlib.redirect_stdout(io.StringIO()):
            check_docs.extract(self.tree, blocks)
        self.assertEqual(os.listdir(blocks), ["readme_2.cc"])
        self.write("```cpp examples/a.cc\nint b;\n```\n")
        with self.assertRaisesRegex(ValueError, "README.md:2: the block is not examples/a.cc"):
            check_docs.extract(self.tree, blocks)

    def test_commands_run_with_the_built_command_first(self):
        os.makedirs(os.path.join(self.tree, "build"))
        command = os.path.join(self.tree, "build", "troika")
        with open(command, "w", encoding="utf-8") as sink:
            sink.write("#!/bin/sh\ntest \"$1\" = right\n")
        os.chmod(command, 0o755)
        self.write("```sh test\ntest -d examples\ntroika right\n```\n```sh\nexit 1\n```\n")
        self.assertEqual(self.run_blocks(), (0, "docs: 1 command blocks, 0 failed\n"))

    def test_a_command_that_fails(self):
        self.write("```sh test\necho before\nfalse | cat\n```\n")
        status, said = self.run_blocks()
        self.assertEqual(status, 1)
        self.assertIn("README.md:2: exit status 1\nbefore", said)


if __name__ == "__main__":
    unittest.main()
