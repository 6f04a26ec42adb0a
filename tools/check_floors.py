"""usage: check_floors.py FLOORS_FILE SOURCE_FOLDER [DOCUMENT]

Checks the includes of src/troika against the floors: each line of FLOORS_FILE, written by CMake from the USES lists, is
"folder TORCH|- used folders...". Prints every include that a folder may not have, and exits 1 if there is one.
The table "| folder | torch | may include |" in DOCUMENT must say the same as the lists.
"""

import os
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
TORCH = ("torch/", "ATen/", "c10/", "caffe2/")
# Each costs seconds in every file that sees the header.
HEAVY = ("torch/torch.h", "torch/all.h", "torch/extension.h", "torch/script.h", "ATen/ATen.h")
SOURCES = (".cc", ".h", ".cpp", ".hpp", ".inc")


def read_floors(path):
    """{folder: (has torch, set of used folders)}"""
    floors = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            name, torch, *uses = line.split()
            floors[name] = (torch == "TORCH", set(uses))
    return floors


def check_lists(floors, folders):
    """The lists themselves: they match the folders, and lead downwards only."""
    errors = []
    for folder in sorted(folders - floors.keys()):
        errors.append(f"{folder}: a folder without a USES list; call troika_library or troika_program_floor in it")
    for name in sorted(floors.keys() - folders):
        errors.append(f"{name}: has a USES list but no folder")
    for name, (_, uses) in sorted(floors.items()):
        for used in sorted(uses - floors.keys()):
            errors.append(f"{name}: USES {used}, which is no folder")
    for name in sorted(floors):
        reached, left = set(), set(floors[name][1])
        while left:
            used = left.pop()
            if used not in reached:
                reached.add(used)
                left |= floors.get(used, (False, set()))[1]
        if name in reached:
            errors.append(f"{name}: uses itself through {', '.join(sorted(floors[name][1]))}; floors lead downwards only")
        if not floors[name][0]:
            for used in sorted(reached & floors.keys()):
                if floors[used][0]:
                    errors.append(f"{name}: is without TORCH but uses {used}, which has it")
    return errors


def check_include(folder, is_header, quote, target, floors):
    """What is wrong with one include, or ""."""
    torch, uses = floors[folder]
    if target.startswith("troika/"):
        parts = target.split("/")
        if len(parts) < 3 or (parts[1] != folder and parts[1] not in uses):
            return f"{folder} may include: {' '.join(sorted(uses | {folder}))}"
    elif target.startswith(TORCH):
        if not torch:
            return f"{folder} is without TORCH"
        if is_header and target in HEAVY:
            return "headers forward-declare, or use the smallest header there is"
    elif quote == '"':
        return 'own headers are included as "troika/FOLDER/FILE.h"'
    return ""


def check_sources(floors, source_folder):
    errors = []
    for folder in sorted(floors):
        for parent, _, files in sorted(os.walk(os.path.join(source_folder, folder))):
            for file in sorted(files):
                if not file.endswith(SOURCES):
                    continue
                path = os.path.join(parent, file)
                is_header = file.endswith((".h", ".hpp"))
                with open(path, encoding="utf-8") as lines:
                    for number, line in enumerate(lines, 1):
                        found = INCLUDE.match(line)
                        if not found:
                            continue
                        wrong = check_include(folder, is_header, found[1], found[2], floors)
                        if wrong:
                            errors.append(f"{path}:{number}: includes {found[2]}; {wrong}")
    return errors


def check_table(floors, document):
    """The document's table against the lists."""
    rows = {}
    with open(document, encoding="utf-8") as lines:
        inside = False
        for line in lines:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if cells == ["folder", "torch", "may include"]:
                inside = True
            elif inside and not line.startswith("|"):
                break
            elif inside and not cells[0].startswith("-"):
                rows[cells[0]] = (cells[1] == "yes", set(cells[2].split()) - {"-"})
    errors = []
    for name in sorted(floors.keys() | rows.keys()):
        if rows.get(name) != floors.get(name):
            torch, uses = floors.get(name, (False, set()))
            right = f"| {name} | {'yes' if torch else 'no'} | {' '.join(sorted(uses)) or '-'} |"
            errors.append(f"{document}: the row of {name} should be: {right if name in floors else 'gone'}")
    return errors


def check(floors_file, source_folder, document=None):
    floors = read_floors(floors_file)
    folders = {entry.name for entry in os.scandir(source_folder) if entry.is_dir()}
    errors = check_lists(floors, folders)
    known = {name: floors[name] for name in floors if name in folders}
    errors += check_sources(known, source_folder)
    return errors + (check_table(floors, document) if document else [])


def main(arguments):
    if len(arguments) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    errors = check(*arguments)
    for error in errors:
        print(error, file=sys.stderr)
    print(f"floors: {len(errors)} includes or lists that break them" if errors else "floors: all includes are on the lists")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
