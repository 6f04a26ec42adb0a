"""Training steps with PyTorch on orders from standard input, for compare.py.

usage: torch_worker.py MODEL WIDTH LAYERS BATCH (--threads K | --processes N)

Says "ready", then for each line with a number does that many steps and answers with the seconds of one. The models, the
data's shapes, the optimizer and the precision are those of bench/train_steps.cc.
"""

import argparse
import os
import sys
import tempfile
import time

INPUTS, WINDOW, LEARNING_RATE, WARM_UP_STEPS = 40, 64, 1e-3, 3


def make_model(torch, kind, width, layers):
    nn = torch.nn

    if kind == "mlp":
        parts, before = [], INPUTS
        for _ in range(layers):
            parts += [nn.Linear(before, width), nn.ReLU()]
            before = width
        return nn.Sequential(*parts, nn.Linear(before, 1))

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(INPUTS, width, num_layers=layers, batch_first=True)
            self.head = nn.Linear(width, 1)

        def forward(self, x):
            return self.head(self.lstm(x)[0][:, -1])

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.input = nn.Linear(INPUTS, width)
            self.position = nn.Parameter(torch.randn(WINDOW, width) * 0.02)
            layer = nn.TransformerEncoderLayer(
                width, max(1, width // 16), 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, 1)

        def forward(self, x):
            return self.head(self.norm(self.encoder(self.input(x) + self.position)[:, -1]))

    return {"lstm": Recurrent, "transformer": Transformer}[kind]()


def make_stepper(torch, options, batch, wrap=lambda model: model):
    torch.manual_seed(1)
    model = wrap(make_model(torch, options.model, options.width, options.layers))
    rows = (batch,) if options.model == "mlp" else (batch, WINDOW)
    inputs, target = torch.randn(*rows, INPUTS), torch.randn(batch, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, fused=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.mse_loss(model(inputs), target).backward()
        optimizer.step()

    def timed(steps):
        for _ in range(WARM_UP_STEPS):
            step()
        start = time.perf_counter()
        for _ in range(steps):
            step()
        return (time.perf_counter() - start) / steps

    return timed


def run_rank(rank, options, store, orders):
    """One process of DistributedDataParallel over Gloo."""
    os.sched_setaffinity(0, [sorted(os.sched_getaffinity(0))[rank]])
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=options.processes)
    timed = make_stepper(
        torch, options, options.batch // options.processes,
        lambda model: DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True))
    orders.send(timed(1))
    while (steps := orders.recv()) > 0:
        orders.send(timed(steps))
    dist.destroy_process_group()


def make_processes(options):
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    folder = tempfile.TemporaryDirectory()
    ends, processes = [], []
    for rank in range(options.processes):
        here, there = context.Pipe()
        process = context.Process(
            target=run_rank, args=(rank, options, os.path.join(folder.name, "store"), there), daemon=True)
        process.start()
        ends.append(here)
        processes.append(process)
    for end in ends:
        end.recv()

    def timed(steps, keep=folder):
        for end in ends:
            end.send(steps)
        return max(end.recv() for end in ends) if steps > 0 else [process.join() for process in processes]

    return timed


def make_threads(options):
    if options.threads == 1:
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    import torch

    torch.set_num_threads(options.threads)
    timed = make_stepper(torch, options, options.batch)
    timed(1)
    return timed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    for name in ("width", "layers", "batch"):
        parser.add_argument(name, type=int)
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--threads", type=int)
    way.add_argument("--processes", type=int)
    options = parser.parse_args()
    timed = make_processes(options) if options.processes else make_threads(options)
    print("ready", flush=True)
    for line in sys.stdin:
        print(f"{timed(int(line)):.9f}", flush=True)
    if options.processes:
        timed(0)


if __name__ == "__main__":
    main()
