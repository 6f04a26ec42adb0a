"""usage: check_files.py SOURCE_TREE

Checks the files of the tree: none is longer than 400 lines, none holds a word that stands for unfinished or skipped
work, and no link leads to a host that is not on the list below.
"""

import os
import re
import sys

MOST_LINES = 400
CHECKED = (".cc", ".h", ".py", ".cmake", ".txt", ".md", ".toml", ".json", ".in", "run", "setup", "jobs", "Makefile")
LEFT_OUT = {".git", ".deps", "build", "runs", "golden"}
# Written in two parts, so that this file passes its own check.
WORDS = re.compile("TO" "DO|FIX" "ME|GTEST_" "SKIP|DIS" "ABLED_|T" "BD\\b")
LINK = re.compile(r"https?://([A-Za-z0-9.-]+)")
HOSTS = {"www.apache.org", "www.w3.org", "localhost", "127.0.0.1", "arxiv.org", "doi.org", "keepachangelog.com", "semver.org"}


def check_text(path, text):
    errors = []
    lines = text.splitlines()
    if len(lines) > MOST_LINES and os.path.basename(path) not in ("LICENSE", "CHANGELOG.md"):
        errors.append(f"{path}: {len(lines)} lines; split it, the most is {MOST_LINES}")
    for number, line in enumerate(lines, 1):
        for word in WORDS.findall(line):
            errors.append(f"{path}:{number}: {word}: finish it, or leave it out")
        for host in LINK.findall(line):
            if host not in HOSTS:
                errors.append(f"{path}:{number}: a link to {host}, which is not on the list in tools/check_files.py")
    return errors


def check(tree):
    errors = []
    for parent, folders, files in os.walk(tree):
        folders[:] = sorted(set(folders) - LEFT_OUT)
        for file in sorted(files):
            if file.endswith(CHECKED):
                path = os.path.join(parent, file)
                with open(path, encoding="utf-8", errors="replace") as source:
                    errors += check_text(os.path.relpath(path, tree), source.read())
    return errors


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    errors = check(arguments[0])
    for error in errors:
        print(error, file=sys.stderr)
    print(f"files: {len(errors)} faults" if errors else "files: in order")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
