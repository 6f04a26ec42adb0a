"""Training steps with PyTorch on orders from standard input, for compare.py.

usage: torch_worker.py MODEL WIDTH LAYERS BATCH (--threads K | --processes N [--pipeline SCHEDULE --micro-batches M])

Says "ready", then for each line with a number does that many steps and answers with the seconds of one. The models, the
data's shapes, the optimizer and the precision are those of bench/train_steps.cc.
"""

import argparse
import os
import sys
import tempfile
import time

INPUTS, WINDOW, LEARNING_RATE, WARM_UP_STEPS = 40, 64, 1e-3, 3


def make_layers(torch, kind, width, layers):
    nn = torch.nn

    if kind == "mlp":
        sizes = [INPUTS] + layers * [width]
        return [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in zip(sizes, sizes[1:])] + [nn.Linear(width, 1)]

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(INPUTS, width, num_layers=layers, batch_first=True)
            self.head = nn.Linear(width, 1)

        def forward(self, x):
            return self.head(self.lstm(x)[0][:, -1])

    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.input = nn.Linear(INPUTS, width)
            self.position = nn.Parameter(torch.randn(WINDOW, width) * 0.02)

        def forward(self, x):
            return self.input(x) + self.position

    class Readout(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, 1)

        def forward(self, x):
            return self.head(self.norm(x[:, -1]))

    if kind == "lstm":
        return [Recurrent()]
    blocks = [nn.TransformerEncoderLayer(width, max(1, width // 16), 4 * width, dropout=0.0, activation="gelu",
                                         batch_first=True, norm_first=True) for _ in range(layers)]
    return [Tokens(), *blocks, Readout()]


def make_data(torch, options, batch):
    rows = (batch,) if options.model == "mlp" else (batch, WINDOW)
    return torch.randn(*rows, INPUTS), torch.randn(batch, 1)


def make_timer(torch, model, train):
    """A function that times steps; `train` does forward and backward."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, fused=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        train()
        optimizer.step()

    def timed(steps):
        for _ in range(WARM_UP_STEPS):
            step()
        start = time.perf_counter()
        for _ in range(steps):
            step()
        return (time.perf_counter() - start) / steps

    return timed


def make_stepper(torch, options, batch, wrap=lambda model: model):
    torch.manual_seed(1)
    model = wrap(torch.nn.Sequential(*make_layers(torch, options.model, options.width, options.layers)))
    inputs, target = make_data(torch, options, batch)
    return make_timer(torch, model, lambda: torch.nn.functional.mse_loss(model(inputs), target).backward())


def make_pipeline_stepper(torch, options, rank):
    """One stage of a pipeline: each has as many of the hidden layers, as Troika's have with even layers."""
    from torch.distributed import pipelining

    stages, micro_batches = options.processes, options.micro_batches
    torch.manual_seed(1)
    layers = make_layers(torch, options.model, options.width, options.layers)
    edges = (len(layers) - options.layers) // 2  # before the first hidden one: the transformer's tokens
    cuts = [0, *(edges + options.layers * s // stages for s in range(1, stages)), len(layers)]
    model = torch.nn.Sequential(*layers[cuts[rank]:cuts[rank + 1]])
    inputs, target = make_data(torch, options, options.batch)
    # The loss is divided, so that nobody has to scale the gradients.
    schedule = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B}[options.pipeline](
        pipelining.PipelineStage(model, rank, stages, torch.device("cpu")), n_microbatches=micro_batches,
        loss_fn=lambda output, y: torch.nn.functional.mse_loss(output, y) / micro_batches, scale_grads=False)

    def train():
        if rank == 0:
            schedule.step(inputs)
        elif rank == stages - 1:
            schedule.step(target=target, losses=[], return_outputs=False)
        else:
            schedule.step()

    return make_timer(torch, model, train)


def run_rank(rank, options, store, orders):
    """One process over Gloo: of DistributedDataParallel, or a stage of a pipeline."""
    os.sched_setaffinity(0, [sorted(os.sched_getaffinity(0))[rank]])
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=options.processes)
    if options.pipeline:
        timed = make_pipeline_stepper(torch, options, rank)
    else:
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
    parser.add_argument("--pipeline", choices=["gpipe", "1f1b"], help="the processes are its stages")
    parser.add_argument("--micro-batches", type=int, default=1)
    options = parser.parse_args()
    timed = make_processes(options) if options.processes else make_threads(options)
    print("ready", flush=True)
    for line in sys.stdin:
        print(f"{timed(int(line)):.9f}", flush=True)
    if options.processes:
        timed(0)


if __name__ == "__main__":
    main()
