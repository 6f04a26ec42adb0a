"""The weights files: what Python's safetensors package finds in them, and what is read of those that it writes.

WEIGHTS_SAMPLE names the program that writes and reads them (weights_sample.cc). Where PyTorch can be imported its own
modules load the files too, and must compute the same outputs.
"""

import array
import importlib.util
import json
import os
import struct
import subprocess
import tempfile
import unittest

import safetensors

FORMATS = {"F32": ("Float", "f", 4), "F64": ("Double", "d", 8), "I64": ("Long", "q", 8), "BF16": ("BFloat16", None, 2)}
WIDTH, HEADS, LAYERS, FLOATS, CATEGORIES, OUTPUTS = 6, 2, 2, 3, (4, 7), 2  # those of series_models.h


def run(*words):
    done = subprocess.run([os.environ["WEIGHTS_SAMPLE"], *map(str, words)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    return (json.loads(done.stdout) if done.returncode == 0 else None), done.stderr.strip()


def numbers_of(kind, data):
    if kind == "BF16":  # the upper half of a float32
        return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
    return list(struct.unpack(f"<{len(data) // FORMATS[kind][2]}{FORMATS[kind][1]}", data))


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.cases, said = run("write", cls.folder.name)
        assert cls.cases, said
        cls.models = [case for case in cls.cases if case["model"] != "types"]

    def path(self, name):
        return os.path.join(self.folder.name, name)


class Weights(Files):
    def write(self, tensors, kind="float32"):
        """Writes {name: (shape, values)} as the package does."""
        kept = {name: array.array({"float32": "f", "float64": "d", "int64": "q"}.get(kind if shape else "int64"), values)
                for name, (shape, values) in tensors.items()}
        specs = {name: safetensors.TensorSpec(dtype=kind if shape else "int64", shape=shape,
                                              data_ptr=kept[name].buffer_info()[0],
                                              data_len=len(kept[name]) * kept[name].itemsize)
                 for name, (shape, values) in tensors.items()}
        path = self.path("written.safetensors")
        safetensors.serialize_file(specs, path, {"format": "pt"})
        return path

    def test_the_package_reads_every_tensor(self):
        self.assertEqual(len(self.models), 8)
        for case in self.cases:
            with open(self.path(case["file"]), "rb") as source:
                found = dict(safetensors.deserialize(source.read()))
            self.assertEqual(sorted(found), sorted(case["tensors"]), case["file"])
            for name, expected in case["tensors"].items():
                dtype = found[name]["dtype"]
                self.assertEqual(FORMATS[dtype][0], expected["dtype"], name)
                self.assertEqual(list(found[name]["shape"]), expected["shape"], name)
                self.assertEqual(numbers_of(dtype, bytes(found[name]["data"])), expected["values"], name)

    def test_the_header_says_what_wrote_it(self):
        for case in self.models:
            with open(self.path(case["file"]), "rb") as source:
                size = struct.unpack("<Q", source.read(8))[0]
                header = json.loads(source.read(size))
            self.assertEqual(size % 8, 0)
            self.assertEqual(header["__metadata__"]["format"], "pt")
            self.assertEqual(header["__metadata__"]["model"], case["model"])

    def test_a_file_of_the_package_starts_a_model(self):
        for i, case in enumerate(self.models):
            kind = ("float32", "float64")[i % 2]
            tensors = {name: (t["shape"], t["values"]) for name, t in case["tensors"].items()}
            read, said = run("read", case["model"], case["window"], self.write(tensors, kind))
            self.assertIsNotNone(read, said)
            for name, expected in case["tensors"].items():
                got = read["tensors"][name]
                self.assertEqual(got["shape"], expected["shape"])
                for x, y in zip(got["values"], expected["values"]):
                    self.assertAlmostEqual(x, y, delta=1e-7 * abs(y) if kind == "float32" else 0, msg=name)

    def test_what_does_not_fit_is_named(self):
        case = next(case for case in self.models if case["model"] == "lstm")
        tensors = {name: (t["shape"], t["values"]) for name, t in case["tensors"].items()}
        tensors["heat.weight"] = tensors.pop("head.weight")
        read, said = run("read", "lstm", case["window"], self.write(tensors))
        self.assertIsNone(read)
        self.assertIn('missing: head.weight (2, 6); unexpected: heat.weight (2, 6) (did you mean "head.weight"?)', said)


if importlib.util.find_spec("torch"):
    import safetensors.torch
    import torch
    from torch import nn

    class Recurrent(nn.Module):
        """nn.LSTM or nn.GRU of a layer each, and the last state."""

        def __init__(self, kind, before):
            super().__init__()
            make = {"lstm": nn.LSTM, "gru": nn.GRU}[kind]
            for i in range(LAYERS):
                self.add_module(f"{kind}{i + 1}", make(WIDTH if i else before, WIDTH, batch_first=True))
            self.head = nn.Linear(WIDTH, OUTPUTS)

        def forward(self, x):
            for name, module in self.named_children():
                x = module(x[:, -1]) if name == "head" else module(x)[0]
            return x

    class Mlp(nn.Sequential):
        """The hidden layers' ReLUs have no weights, so they stand in the forward."""

        def __init__(self, before):
            super().__init__()
            for i in range(LAYERS):
                self.add_module(f"hidden{i + 1}", nn.Linear(WIDTH if i else before, WIDTH))
            self.head = nn.Linear(WIDTH, OUTPUTS)

        def forward(self, x):
            x = x.flatten(1)
            for name, module in self.named_children():
                x = module(x) if name == "head" else module(x).relu()
            return x

    class Block(nn.Module):
        """A tcn's block."""

        def __init__(self, before, dilation):
            super().__init__()
            self.past = 2 * dilation
            self.conv1 = nn.Conv1d(before, WIDTH, 3, padding=self.past, dilation=dilation)
            self.conv2 = nn.Conv1d(WIDTH, WIDTH, 3, padding=self.past, dilation=dilation)
            self.downsample = nn.Conv1d(before, WIDTH, 1) if before != WIDTH else nn.Identity()

        def forward(self, x):
            y = self.conv1(x)[:, :, :-self.past].relu()
            y = self.conv2(y)[:, :, :-self.past].relu()
            return (y + self.downsample(x)).relu()

    class Tcn(nn.Sequential):
        def __init__(self, before):
            super().__init__()
            for i in range(LAYERS):
                self.add_module(f"block{i + 1}", Block(WIDTH if i else before, 2 ** i))
            self.head = nn.Linear(WIDTH, OUTPUTS)

        def forward(self, x):
            x = x.transpose(1, 2)
            for name, module in self.named_children():
                x = module(x[:, :, -1]) if name == "head" else module(x)
            return x

    class Cnn(nn.Sequential):
        def __init__(self, before):
            super().__init__()
            for i in range(LAYERS):
                conv = nn.Conv1d(WIDTH if i else before, WIDTH, 3, padding="same", bias=False)
                block = nn.ModuleDict({"conv": conv, "norm": nn.BatchNorm1d(WIDTH)})
                self.add_module(f"conv{i + 1}", block)
            self.head = nn.Linear(WIDTH, OUTPUTS)

        def forward(self, x):
            x = x.transpose(1, 2)
            for name, module in self.named_children():
                x = module(x.mean(2)) if name == "head" else module["norm"](module["conv"](x)).relu()
            return x

    class Transformer(nn.Module):
        def __init__(self, before, window):
            super().__init__()
            if window:
                tokens = nn.ModuleDict({"linear": nn.Linear(before, WIDTH), "position": nn.Embedding(window, WIDTH)})
            else:
                tokens = nn.ModuleDict({f"category{i}": nn.Embedding(n, WIDTH) for i, n in enumerate(CATEGORIES)})
                for name, rows in (("leading", 1), ("weight", FLOATS), ("bias", FLOATS)):
                    tokens.register_parameter(name, nn.Parameter(torch.empty(rows, WIDTH)))
            self.tokens = tokens
            self.window = window
            for i in range(LAYERS):
                self.add_module(f"block{i + 1}", nn.TransformerEncoderLayer(
                    WIDTH, HEADS, 4 * WIDTH, activation="gelu", batch_first=True, norm_first=True))
            self.norm = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, OUTPUTS)

        def forward(self, x, codes):
            tokens = self.tokens
            if self.window:
                x = tokens["linear"](x) + tokens["position"].weight
            else:
                categories = [tokens[f"category{i}"](codes[:, i]) for i in range(len(CATEGORIES))]
                x = torch.cat([tokens.leading.expand(len(x), 1, WIDTH), x.unsqueeze(2) * tokens.weight + tokens.bias,
                               torch.stack(categories, 1)], 1)
            for i in range(LAYERS):
                x = getattr(self, f"block{i + 1}")(x)
            return self.head(self.norm(x[:, -1 if self.window else 0]))

    class Whole(nn.Module):
        """A model under the names of the file."""

        def __init__(self, kind, window):
            super().__init__()
            self.kind, self.window = kind, window
            before = FLOATS
            if window or kind != "transformer":
                widths = [min(50, (n + 1) // 2) for n in CATEGORIES]
                self.embed = nn.ModuleDict(
                    {f"category{i}": nn.Embedding(n, w) for i, (n, w) in enumerate(zip(CATEGORIES, widths))})
                before += sum(widths)
            self.parts = {"mlp": lambda: Mlp(before * max(1, window)), "tcn": lambda: Tcn(before),
                          "cnn": lambda: Cnn(before), "transformer": lambda: Transformer(before, window)
                          }.get(kind, lambda: Recurrent(kind, before))()

        def load(self, tensors):
            """Strictly, with the names of the parts on top."""
            self.load_state_dict({name if name.startswith("embed.") else "parts." + name: tensor
                                  for name, tensor in tensors.items()}, strict=True)

        def saved(self):
            return {name.removeprefix("parts."): tensor for name, tensor in self.state_dict().items()}

        def forward(self, x, codes):
            if hasattr(self, "embed"):
                x = torch.cat([x, *(self.embed[f"category{i}"](codes[..., i]) for i in range(len(CATEGORIES)))], -1)
            return self.parts(x, codes) if self.kind == "transformer" else self.parts(x)

    def tensor_of(case, key):
        dtype = torch.int64 if case[key]["dtype"] == "Long" else torch.float64
        return torch.tensor(case[key]["values"], dtype=dtype).view(case[key]["shape"])

    class WithPyTorch(Files):
        def outputs_differ(self, module, case):
            module.double().eval()
            with torch.no_grad():
                got = module(tensor_of(case, "floats"), tensor_of(case, "codes"))
            return (got - tensor_of(case, "outputs")).abs().max().item()

        def test_pytorchs_modules_compute_the_same(self):
            for case in self.models:
                module = Whole(case["model"], case["window"]).double()
                module.load(safetensors.torch.load_file(self.path(case["file"])))
                self.assertLess(self.outputs_differ(module, case), 1e-12, case["file"])

        def test_what_pytorch_saved_starts_a_model(self):
            for i, case in enumerate(self.models):
                torch.manual_seed(1)
                module = Whole(case["model"], case["window"])
                for parameter in module.parameters():
                    nn.init.uniform_(parameter, -0.5, 0.5)
                module.to((torch.float32, torch.bfloat16, torch.float64)[i % 3])
                path = self.path("pytorch.safetensors")
                safetensors.torch.save_file(module.saved(), path, {"format": "pt"})
                read, said = run("read", case["model"], case["window"], path)
                self.assertIsNotNone(read, said)
                self.assertLess(self.outputs_differ(module, read), 1e-12, case["file"])

        def test_a_pickle_is_refused(self):
            path = self.path("pickle.pt")
            torch.save({"a": torch.zeros(3)}, path)
            read, said = run("read", "mlp", 0, path)
            self.assertIsNone(read)
            self.assertIn("was written by torch.save", said)


if __name__ == "__main__":
    unittest.main()
