"""Plants violations of the floors in a small tree and expects each to be named."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../tools"))
import check_floors  # noqa: E402

FLOORS = "base - \ncomm - base\nparallel TORCH base comm\n"


class Floors(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.write("base/error.h", "#include <string>\n")
        self.write("comm/group.cc", '#include "troika/comm/group.h"\n\n#include "troika/base/error.h"\n')
        self.write("parallel/stage.h", "#include <ATen/core/Tensor.h>\n")
        self.write("parallel/stage.cc", '#include <torch/torch.h>\n#include "troika/comm/group.h"\n')

    def write(self, path, text):
        target = os.path.join(self.root, "troika", path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as sink:
            sink.write(text)

    def errors(self, floors=FLOORS):
        lists = os.path.join(self.root, "floors.txt")
        with open(lists, "w", encoding="utf-8") as sink:
            sink.write(floors)
        return check_floors.check(lists, os.path.join(self.root, "troika"))

    def expect(self, *words, floors=FLOORS):
        errors = self.errors(floors)
        self.assertEqual(len(errors), 1, errors)
        for word in words:
            self.assertIn(word, errors[0])

    def test_a_tree_in_order(self):
        self.assertEqual(self.errors(), [])

    def test_an_include_upwards(self):
        self.write("base/text.cc", '\n#  include "troika/comm/group.h"\n')
        self.expect("base/text.cc:2", "troika/comm/group.h", "base may include: base")

    def test_an_include_in_angle_brackets(self):
        self.write("base/text.cc", "#include <troika/comm/group.h>\n")
        self.expect("base/text.cc:1", "troika/comm/group.h")

    def test_an_include_past_the_root(self):
        self.write("base/text.cc", '#include "../comm/group.h"\n')
        self.expect("base/text.cc:1", "troika/FOLDER/FILE.h")

    def test_torch_in_a_folder_without_it(self):
        for header in ("torch/torch.h", "ATen/ops/add.h", "c10/core/ScalarType.h"):
            self.write("comm/inproc/sum.cc", f"#include <{header}>\n")
            self.expect("comm/inproc/sum.cc:1", header, "comm is without TORCH")

    def test_all_of_torch_in_a_header(self):
        self.write("parallel/stage.h", "#include <torch/torch.h>\n")
        self.expect("parallel/stage.h:1", "torch/torch.h", "headers")

    def test_a_folder_without_a_list(self):
        self.write("plan/plan.h", "")
        self.expect("plan", "without a USES list")

    def test_a_list_without_a_folder(self):
        self.expect("gone", "no folder", floors=FLOORS + "gone - base\n")

    def test_a_list_that_names_no_folder(self):
        self.expect("comm", "USES bas", floors=FLOORS.replace("comm - base", "comm - base bas"))

    def test_a_circle(self):
        errors = self.errors(FLOORS.replace("base - ", "base - comm"))
        self.assertTrue(any(error.startswith("base: uses itself") for error in errors), errors)

    def test_torch_through_a_folder_below(self):
        self.write("plan/plan.h", "")
        self.expect("plan", "without TORCH but uses parallel", floors=FLOORS + "plan - parallel\n")

    def test_the_documents_table(self):
        table = "# A\n\n| folder | torch | may include |\n| --- | --- | --- |\n| base | no | - |\n| comm | no | {} |\n{}\nend\n"
        row = "| parallel | yes | base comm |\n"
        document = os.path.join(self.root, "a.md")
        for used, last, wrong in (("base", row, []), ("-", row, ["comm"]), ("base", "", ["parallel"]),
                                  ("base", row.replace("yes", "no"), ["parallel"]), ("base", row + "| old | no | - |\n", ["old"])):
            with open(document, "w", encoding="utf-8") as sink:
                sink.write(table.format(used, last))
            self.errors()
            errors = check_floors.check(os.path.join(self.root, "floors.txt"), os.path.join(self.root, "troika"), document)
            self.assertEqual([error.split("row of ")[1].split()[0] for error in errors], wrong)


if __name__ == "__main__":
    unittest.main()
