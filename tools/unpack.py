"""usage: unpack.py ARCHIVE FOLDER PATTERN...

Takes the members that match a pattern out of a .zip, .whl or .tar.gz. Times stay those of the archive, so that
unpacking again makes nothing look new to the build. A .tar.gz gives bare files without their folders.
Exit status 28 (ENOSPC) when the disk is full.
"""

import errno
import fnmatch
import os
import shutil
import sys
import tarfile
import time
import zipfile


def zip_members(path):
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if not member.is_dir():
                modified = time.mktime(member.date_time + (0, 0, -1))
                yield member.filename, member.filename, modified, lambda: archive.open(member)


def tar_members(path):
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile():
                bare = os.path.basename(member.name)
                yield member.name, bare, member.mtime, lambda: archive.extractfile(member)


def unpack(path, folder, patterns):
    """Returns how many files were taken."""
    root = os.path.realpath(folder)
    taken = 0
    members = zip_members if zipfile.is_zipfile(path) else tar_members
    for name, relative, modified, open_member in members(path):
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            continue
        target = os.path.realpath(os.path.join(root, relative))
        if not target.startswith(root + os.sep):
            raise ValueError(f"{path}: member {name} points outside of the archive")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open_member() as source, open(target, "wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
        os.utime(target, (modified, modified))
        taken += 1
    return taken


def main(arguments):
    if len(arguments) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    path, folder, *patterns = arguments
    try:
        if unpack(path, folder, patterns) == 0:
            print(f"{path}: nothing in it matches {' '.join(patterns)}", file=sys.stderr)
            return 1
    except OSError as error:
        print(f"{path}: {error.strerror or error}", file=sys.stderr)
        return errno.ENOSPC if error.errno in (errno.ENOSPC, errno.EDQUOT) else 1
    except (ValueError, zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
