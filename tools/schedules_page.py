"""usage: schedules_page.py [--check] COMMAND [SOURCE_TREE]

Writes what COMMAND (the built troika) says into README.md and docs/*.md, between the lines `<!-- made by: ... -->` and
`<!-- end -->`, and into docs/images/schedules.svg. With --check it only says what differs, exit status 1.

  made by: catalogue         a table of all schedules, then each with its picture
  made by: troika schedule … what that command prints
"""

import difflib
import glob
import json
import os
import re
import shlex
import subprocess
import sys

FIGURE = os.path.join("docs", "images", "schedules.svg")
IN_FIGURE = ["gpipe", "1f1b", "zb-h1", "zb-h2"]
SIZE = ["--stages", "4", "--micro-batches", "8"]
PART = re.compile(r"(<!-- made by: (.*?) -->\n).*?(<!-- end -->\n)", re.DOTALL)


def say(command, arguments):
    """What the command prints; the environment must not change it."""
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")}
    done = subprocess.run([command, *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"troika {shlex.join(arguments)}: exit status {done.returncode}: {done.stderr}")
    return done.stdout


def shown(command, arguments):
    return f"```text\n$ troika {shlex.join(arguments)}\n{say(command, arguments)}```\n"


def catalogue(command):
    entries = json.loads(say(command, ["schedule", "list", "--json"]))["schedules"]
    lines = ["| schedule | what it is | bubble | micro-batches held |", "| --- | --- | --- | --- |"]
    lines += [f"| [{e['name']}](#{e['name']}) | {e['summary']} | {e['bubble']} | {e['memory']} |" for e in entries]
    text = "\n".join(lines) + "\n"
    for e in entries:
        kind = "" if e["synchronous"] else " Asynchronous: not equal to the serial run by definition."
        text += f"\n### {e['name']}\n\nWhen: {e['use']}. Paper: {e['paper']}.{kind}\n\n"
        text += shown(command, ["schedule", "draw", e["name"], *SIZE])
    return text


def page_of(command, name, text):
    def part(found):
        words = shlex.split(found[2])
        if words == ["catalogue"]:
            made = catalogue(command)
        elif words[:1] == ["troika"]:
            made = shown(command, words[1:])
        else:
            raise RuntimeError(f"{name}: nobody makes \"{found[2]}\"")
        return f"{found[1]}{made}{found[3]}"

    made, count = PART.subn(part, text)
    if count != text.count("<!-- made by:") or count != text.count("<!-- end -->"):
        raise RuntimeError(f"{name}: a part that isn't closed by <!-- end -->")
    return made


def made_files(command, tree):
    """Path -> content, of all files that this makes."""
    made = {FIGURE: say(command, ["schedule", "draw", *IN_FIGURE, *SIZE, "--format", "svg"])}
    for path in sorted(glob.glob(os.path.join(tree, "README.md")) + glob.glob(os.path.join(tree, "docs", "*.md"))):
        with open(path, encoding="utf-8") as source:
            text = source.read()
        name = os.path.relpath(path, tree)
        page = page_of(command, name, text)
        if "<!-- made by:" in text:
            made[name] = page
    return made


def differs(path, made):
    """The first lines of the difference, or ""."""
    try:
        with open(path, encoding="utf-8") as source:
            there = source.read()
    except FileNotFoundError:
        return f"{path} is missing\n"
    lines = difflib.unified_diff(there.splitlines(True), made.splitlines(True), path, "what troika says now", n=1)
    return "".join(list(lines)[:40])


def main(arguments):
    check = arguments[:1] == ["--check"]
    rest = arguments[1:] if check else arguments
    if len(rest) not in (1, 2):
        print(__doc__, file=sys.stderr)
        return 2
    tree = rest[1] if len(rest) == 2 else "."
    wrong = 0
    for name, made in made_files(rest[0], tree).items():
        path = os.path.join(tree, name)
        if not check:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as sink:
                sink.write(made)
        elif difference := differs(path, made):
            print(f"{difference}{path}: run tools/schedules_page.py {rest[0]}", file=sys.stderr)
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
