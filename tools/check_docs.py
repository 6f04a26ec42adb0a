"""usage: check_docs.py extract SOURCE_TREE FOLDER   write every `cpp` block of the documents to FOLDER
       check_docs.py run SOURCE_TREE COMMAND      run every `sh test` block, with the folder of COMMAND on PATH

The documents are README.md and docs/*.md. A `cpp` block is a whole file: it is compiled against the installed library,
and run if it has a main; one that names a file after `cpp` is that file. A `sh test` block runs in an
empty folder in which examples/ is the tree's.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})\s*(.*?)\s*$")
SECONDS = 300


class Block(NamedTuple):
    file: str
    line: int  # of its first line
    info: list  # words after the fence
    text: str


def blocks_of(path):
    blocks, fence = [], None
    with open(path, encoding="utf-8") as source:
        for number, line in enumerate(source, 1):
            found = FENCE.match(line)
            if fence is None:
                if found:
                    fence, info, start, lines = found[1], found[2].split(), number + 1, []
            elif found and found[1].startswith(fence) and not found[2]:
                blocks.append(Block(path, start, info, "".join(lines)))
                fence = None
            else:
                lines.append(line)
    if fence is not None:
        raise ValueError(f"{path}:{start - 1}: a block that is not closed")
    return blocks


def documents(tree):
    return sorted(glob.glob(os.path.join(tree, "README.md")) + glob.glob(os.path.join(tree, "docs", "*.md")))


def extract(tree, folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    count = 0
    for path in documents(tree):
        for block in blocks_of(path):
            if block.info[:1] == ["cpp"]:
                for name in block.info[1:]:
                    with open(os.path.join(tree, name), encoding="utf-8") as source:
                        if source.read() != block.text:
                            raise ValueError(f"{block.file}:{block.line}: the block is not {name}")
                stem = os.path.splitext(os.path.basename(path))[0].lower()
                with open(os.path.join(folder, f"{stem}_{block.line}.cc"), "w", encoding="utf-8") as sink:
                    sink.write(f'#line {block.line} "{path}"\n{block.text}')
                count += 1
    print(f"docs: {count} C++ blocks")
    return 0


def run_block(block, tree, command_folder):
    """What went wrong, or ""."""
    environment = dict(os.environ, PATH=command_folder + os.pathsep + os.environ["PATH"])
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.join(tree, "examples"), os.path.join(folder, "examples"))
        try:
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", block.text], cwd=folder, env=environment,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return f"{block.file}:{block.line}: not done after {SECONDS} s"
    if done.returncode != 0:
        return f"{block.file}:{block.line}: exit status {done.returncode}\n{done.stdout}"
    return ""


def run(tree, command):
    errors, count = [], 0
    for path in documents(tree):
        for block in blocks_of(path):
            if block.info[:1] in (["sh"], ["bash"]) and "test" in block.info:
                count += 1
                error = run_block(block, os.path.abspath(tree), os.path.dirname(os.path.abspath(command)))
                if error:
                    errors.append(error)
    for error in errors:
        print(error, file=sys.stderr)
    print(f"docs: {count} command blocks, {len(errors)} failed")
    return 1 if errors else 0


def main(arguments):
    if len(arguments) != 3 or arguments[0] not in ("extract", "run"):
        print(__doc__, file=sys.stderr)
        return 2
    return (extract if arguments[0] == "extract" else run)(*arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
