"""The pages about schedules are what the command says; one that isn't is found."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../tools"))
import schedules_page  # noqa: E402

# Says what it was asked, and lists two schedules.
COMMAND = """#!/bin/sh
if [ "$2" = list ]; then cat "$(dirname "$0")/list"; else echo "$@"; fi
"""


class SchedulesPage(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = folder.name
        os.makedirs(os.path.join(self.tree, "docs"))
        self.command = os.path.join(self.tree, "troika")
        self.write("troika", COMMAND)
        os.chmod(self.command, 0o755)
        entries = [{"name": name, "summary": "s", "bubble": "b", "memory": "m", "use": "u", "paper": "p",
                    "synchronous": name == "one"} for name in ("one", "two")]
        self.write("list", json.dumps({"schedules": entries}))

    def write(self, path, text):
        with open(os.path.join(self.tree, path), "w", encoding="utf-8") as sink:
            sink.write(text)

    def page(self):
        with open(os.path.join(self.tree, "docs/schedules.md"), encoding="utf-8") as source:
            return source.read()

    def run_tool(self, *arguments):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            status = schedules_page.main([*arguments, self.command, self.tree])
        return status, said.getvalue()

    def test_parts_are_made_and_the_rest_stays(self):
        self.write("docs/schedules.md", "a\n<!-- made by: troika schedule compare -->\nold\n<!-- end -->\nb\n")
        self.assertEqual(self.run_tool(), (0, ""))
        self.assertEqual(self.page(), "a\n<!-- made by: troika schedule compare -->\n```text\n$ troika schedule compare\n"
                                      "schedule compare\n```\n<!-- end -->\nb\n")
        self.assertEqual(self.run_tool("--check"), (0, ""))

    def test_every_schedule_is_drawn(self):
        self.write("docs/schedules.md", "<!-- made by: catalogue -->\n<!-- end -->\n")
        self.run_tool()
        for name in ("one", "two"):
            self.assertIn(f"| [{name}](#{name}) | s | b | m |", self.page())
            self.assertIn(f"schedule draw {name} --stages 4", self.page())
        self.assertEqual(self.page().count("Asynchronous"), 1)

    def test_the_readme_is_made_too(self):
        self.write("README.md", "<!-- made by: troika schedule list -->\n<!-- end -->\n")
        self.write("docs/other.md", "nothing is made here\n")
        self.write("list", "a list\n")
        self.assertEqual(self.run_tool(), (0, ""))
        with open(os.path.join(self.tree, "README.md"), encoding="utf-8") as source:
            self.assertIn("\na list\n", source.read())

    def test_what_differs_is_found(self):
        self.write("docs/schedules.md", "<!-- made by: troika schedule compare -->\n<!-- end -->\n")
        self.run_tool()
        self.write("docs/schedules.md", self.page().replace("schedule compare\n```", "schedule compared\n```"))
        status, said = self.run_tool("--check")
        self.assertEqual(status, 1)
        self.assertIn("-schedule compared", said)
        self.assertNotIn("schedules.svg", said)
        self.run_tool()
        os.remove(os.path.join(self.tree, "docs/images/schedules.svg"))
        self.assertIn("schedules.svg is missing", self.run_tool("--check")[1])

    def test_mistakes_on_the_page(self):
        for text, says in (("<!-- made by: nobody -->\n<!-- end -->\n", "nobody makes"),
                           ("<!-- made by: catalogue -->\n", "closed"), ("<!-- end -->\n", "closed")):
            self.write("docs/schedules.md", text)
            with self.assertRaisesRegex(RuntimeError, says):
                self.run_tool()

    def test_a_command_that_fails(self):
        self.write("troika", "#!/bin/sh\necho no >&2\nexit 1\n")
        self.write("docs/schedules.md", "<!-- made by: catalogue -->\n<!-- end -->\n")
        with self.assertRaisesRegex(RuntimeError, "exit status 1: no"):
            self.run_tool()


if __name__ == "__main__":
    unittest.main()
