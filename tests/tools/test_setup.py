"""The set-up without a network: what it says when something is missing, and what it leaves behind."""

import base64
import hashlib
import os
import shutil
import subprocess
import tempfile
import unittest
import zipfile

TREE = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))


class Setup(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.tree = os.path.join(self.root, "tree")
        for name in ("tools", "requirements"):
            shutil.copytree(os.path.join(TREE, name), os.path.join(self.tree, name))
        self.deps = os.path.join(self.root, "deps with a space")
        self.bin = os.path.join(self.root, "bin")
        self.index = os.path.join(self.root, "index")
        os.makedirs(self.bin)
        os.makedirs(self.index)
        self.command("dpkg-query", "echo installed")
        self.command("apt-get", "echo apt-get must not be called >&2; exit 99")
        self.pin("data", "", fetched=True)
        self.pin("testing", "", fetched=True)

    def command(self, name, script):
        path = os.path.join(self.bin, name)
        with open(path, "w", encoding="utf-8") as sink:
            sink.write(f"#!/bin/bash\n{script}\n")
        os.chmod(path, 0o755)

    def setup(self, **environment):
        environment = {"PATH": self.bin + os.pathsep + os.environ["PATH"], "HOME": self.root, "TROIKA_DEPS": self.deps,
                       "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": self.index, "PIP_CONFIG_FILE": os.devnull, **environment}
        done = subprocess.run([os.path.join(self.tree, "tools/setup")], env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=50, check=False)
        return done.returncode, done.stdout

    def left_behind(self):
        return sorted(set(os.listdir(self.deps)) - {".lock", ".download"}) if os.path.isdir(self.deps) else []

    def pin(self, kind, lines, fetched=False):
        """Writes a requirements file, and what it names looks fetched or not."""
        path = os.path.join(self.tree, "requirements", kind + ".txt")
        with open(path, "w", encoding="utf-8") as sink:
            sink.write(lines)
        if fetched:
            folder = {"torch": "python", "data": "data/nycflights13", "testing": "testing"}[kind]
            target = os.path.join(self.deps, folder)
            os.makedirs(target)
            shutil.copy(path, os.path.join(target, ".pins"))

    def offer(self, files, broken_pin=False):
        """Puts a small wheel into the index and pins it."""
        name = "torch-2.15.0-cp311-cp311-manylinux_2_28_x86_64.whl"
        path = os.path.join(self.index, name)
        info = {"torch-2.15.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.15.0\n",
                "torch-2.15.0.dist-info/WHEEL": "Wheel-Version: 1.0\nTag: cp311-cp311-manylinux_2_28_x86_64\n"}
        with zipfile.ZipFile(path, "w") as wheel:
            record = "torch-2.15.0.dist-info/RECORD,,\n"
            for file, text in {**files, **info}.items():
                wheel.writestr(file, text)
                digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
                record += f"{file},sha256={digest},{len(text)}\n"
            wheel.writestr("torch-2.15.0.dist-info/RECORD", record)
        with open(path, "rb") as source:
            digest = hashlib.sha256(source.read()).hexdigest()
        if broken_pin:
            digest = "0" * 64
        self.pin("torch", f"torch==2.15.0 --hash=sha256:{digest}\n")

    def test_unpacks_what_is_needed_once(self):
        self.offer({"torch/lib/libtorch_cpu.so": "cpu", "torch/lib/libtorch_cuda.so": "gpu", "torch/include/a/b.h": "1"})
        status, said = self.setup()
        self.assertEqual(status, 0, said)
        torch = os.path.join(self.deps, "python/torch")
        self.assertEqual(sorted(os.listdir(torch)), ["include", "lib"])
        self.assertEqual(os.listdir(os.path.join(torch, "lib")), ["libtorch_cpu.so"])
        self.assertEqual(sorted(os.listdir(self.deps)), [".lock", "data", "python", "testing"])
        shutil.rmtree(self.index)  # a second call needs nothing
        self.assertEqual(self.setup(), (0, ""))

    def test_a_new_pin_replaces_the_old_files(self):
        self.offer({"torch/include/old.h": "1"})
        self.assertEqual(self.setup()[0], 0)
        self.offer({"torch/include/new.h": "2"})
        self.assertEqual(self.setup()[0], 0)
        self.assertEqual(os.listdir(os.path.join(self.deps, "python/torch/include")), ["new.h"])

    def test_leftovers_of_a_killed_call_are_removed(self):
        os.makedirs(os.path.join(self.deps, ".new", "torch"))
        self.offer({"torch/include/a.h": "1"})
        status, said = self.setup()
        self.assertEqual(status, 0, said)
        self.assertEqual(self.left_behind(), ["data", "python", "testing"])

    def test_other_contents_than_pinned(self):
        self.offer({"torch/include/a.h": "1"}, broken_pin=True)
        status, said = self.setup()
        self.assertEqual(status, 1)
        self.assertIn("LibTorch arrived with other contents than requirements/ names", said)
        self.assertEqual(self.left_behind(), ["data", "testing"])

    def test_a_wheel_without_what_is_needed(self):
        self.offer({"torch-2.15.0.data/other": "1"})
        wheel = os.path.join(self.index, os.listdir(self.index)[0])
        unpack = subprocess.run(["python3", os.path.join(self.tree, "tools/unpack.py"), wheel, self.root, "torch/lib/*"],
                                stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(unpack.returncode, 1)
        self.assertIn("nothing in it matches torch/lib/*", unpack.stderr)

    def test_the_line_is_down(self):
        self.pin("torch", "torch==2.15.0 --hash=sha256:" + "0" * 64 + "\n")
        status, said = self.setup(PIP_NO_INDEX="0", PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_FIND_LINKS="")
        self.assertEqual(status, 1)
        self.assertIn("the line dropped, or there is no way to the package index, while downloading LibTorch", said)
        self.assertEqual(self.left_behind(), ["data", "testing"])

    def test_too_little_room(self):
        self.offer({"torch/include/a.h": "1"})
        self.command("df", "printf 'Filesystem 1M-blocks Used Available Use%% Mounted\\nx 9 9 17 9%% /\\n'")
        status, said = self.setup()
        self.assertEqual(status, 1)
        self.assertIn("not enough room for LibTorch", said)
        self.assertIn("1200 MB are needed, 17 MB are free", said)

    def test_the_disk_fills_up_while_unpacking(self):
        self.offer({"torch/include/a.h": "1"})
        with open(os.path.join(self.tree, "tools/unpack.py"), "w", encoding="utf-8") as sink:
            sink.write("import sys\nsys.exit(28)\n")
        status, said = self.setup()
        self.assertEqual(status, 1)
        self.assertIn("became full while unpacking LibTorch", said)
        self.assertEqual(self.left_behind(), ["data", "testing"])

    def test_missing_packages_without_root(self):
        self.offer({"torch/include/a.h": "1"})
        self.command("dpkg-query", 'case "${@: -1}" in libfmt-dev|cmake) exit 1;; *) echo installed;; esac')
        self.command("id", "echo 1000")
        self.command("sudo", "exit 1")
        status, said = self.setup()
        self.assertEqual(status, 1)
        lines = said.splitlines()
        self.assertEqual(lines[-1],
                         "su -c 'apt-get update && apt-get install -y --no-install-recommends cmake libfmt-dev'")
        self.assertEqual(self.left_behind(), ["data", "testing"])

    def test_missing_packages_through_sudo(self):
        self.pin("torch", "", fetched=True)
        have = os.path.join(self.root, "have-cmake")
        self.command("dpkg-query", f'[ "${{@: -1}}" != cmake ] || [ -e {have} ] || exit 1; echo installed')
        self.command("id", "echo 1000")
        self.command("sudo", '[ "$1" = -n ] && shift; exec "$@"')
        self.command("apt-get", f'[[ "$*" == *" update" ]] && exit 100; echo "apt-get $*"; touch {have}')
        status, said = self.setup()
        self.assertEqual(status, 0, said)
        self.assertIn("the package lists could not be renewed", said)
        self.assertIn("install -y --no-install-recommends cmake", said)

    def test_apt_fails(self):
        self.pin("torch", "", fetched=True)
        self.command("dpkg-query", '[ "${@: -1}" != cmake ] || exit 1; echo installed')
        self.command("id", "echo 0")
        self.command("apt-get", "exit 100")
        status, said = self.setup()
        self.assertEqual(status, 1)
        self.assertIn("apt-get could not install the packages", said)


if __name__ == "__main__":
    unittest.main()
