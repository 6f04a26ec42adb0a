"""Troika beside PyTorch: the same models, global batch, optimizer and precision, in one run.

Each way of training is a process of its own that waits for orders; they take turns, A B C A B C, so that a slow moment of
the machine hits all of them. A ratio is taken within a round; medians with quartiles. PyTorch runs as one process with one
thread, one process with all threads, and DistributedDataParallel over Gloo with a process for each core (gradients as
bucket views, static graph, pinned); each with glibc's malloc, with tcmalloc, and with tcmalloc and huge pages ("both"),
which Troika's programs have built in. With --pipeline a process is a stage of torch.distributed.pipelining instead (pinned,
no scaling of gradients, outputs not returned), and Troika's lanes do the same schedules.
"""

import argparse
import glob
import json
import math
import os
import select
import statistics
import subprocess
import sys

ANSWER_SECONDS = 120
ALLOCATORS = {"": {}, " + tcmalloc": {}, " + both": {"THP_MEM_ALLOC_ENABLE": "1"}}
SCHEDULES, MICRO_BATCHES = ("gpipe", "1f1b"), (8, 32)  # that both have


class Way:
    """A process that does steps on orders."""

    def __init__(self, name, command, batch, environment=None):
        self.name, self.batch, self.seconds = name, batch, []
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            env={**os.environ, **(environment or {})})
        if self.answer() != "ready":
            raise RuntimeError(f"{name} did not start: {' '.join(command)}")

    def answer(self):
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_SECONDS)
        line = self.process.stdout.readline().strip() if ready else ""
        if not line:
            self.process.kill()
            raise RuntimeError(f"{self.name}: no answer within {ANSWER_SECONDS} s, or it ended")
        return line

    def time(self, steps):
        self.process.stdin.write(f"{steps}\n")
        return float(self.answer())

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def tcmalloc():
    found = sorted(glob.glob("/usr/lib/*/libtcmalloc_minimal.so*"))
    if not found:
        sys.exit("compare.py: libtcmalloc_minimal is not installed; tools/setup does it")
    return found[-1]


def degree(options):
    return ["--lanes" if options.pipeline else "--ranks", str(options.ranks)]


def list_ways(options):
    text = subprocess.run([options.program, "--list", *degree(options), "--filter", options.filter],
                          check=True, capture_output=True, text=True).stdout
    cases = {}
    for line in text.splitlines():
        case, way = line.split("\t")
        cases.setdefault(case, []).append(way)
    return cases


def pytorch_ways(options):
    """Names and flags of the worker."""
    processes = ["--processes", str(options.ranks)]
    yield "1 thread", ["--threads", "1"]
    yield f"{options.ranks} threads", ["--threads", str(options.ranks)]
    if not options.pipeline:
        yield f"DDP {options.ranks} processes", processes
        return
    for schedule in SCHEDULES:
        for count in MICRO_BATCHES:
            yield (f"{options.ranks} processes, {schedule}, {count} micro-batches",
                   [*processes, "--pipeline", schedule, "--micro-batches", str(count)])


def start(case, troika_ways, options):
    model, size, _, batch = case.split()
    width, layers = size.split("x")
    ways = []
    try:
        for name in troika_ways:
            if name == "plain, tensor list":
                continue
            samples = int(batch) // options.ranks if name.endswith(f"batch/{options.ranks}") else int(batch)
            ways.append(Way(name, [options.program, *degree(options), "--filter", case, "--serve", name], samples))
        worker = [sys.executable, os.path.join(os.path.dirname(__file__), "torch_worker.py"), model, width, layers, batch]
        for way, flags in pytorch_ways(options):
            for allocator, environment in ALLOCATORS.items():
                if options.pipeline and allocator == " + tcmalloc":
                    continue  # there are many ways; these two are the ends
                preload = {"LD_PRELOAD": tcmalloc()} if allocator else {}
                ways.append(Way(f"PyTorch, {way}{allocator}", worker + flags, int(batch),
                                {"PYTHONPATH": options.torch, **preload, **environment}))
    except BaseException:
        for way in ways:
            way.stop()
        raise
    return ways


def measure(ways, options):
    steps = [max(3, int(options.seconds / way.time(5))) for way in ways]
    for _ in range(options.rounds):
        for way, count in zip(ways, steps):
            way.seconds.append(way.time(count))


def spread(values):
    low, median, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return {"median": median, "low": low, "high": high}


def ratio(a, b):
    """How many times faster a is than b."""
    return spread([y / x for x, y in zip(a.seconds, b.seconds)])


def best_of(ways, part):
    return min((way for way in ways if part(way.name)), key=lambda way: statistics.median(way.seconds))


def data_parallel_ratios(ways):
    named = {way.name: way for way in ways}
    best = best_of(ways, lambda name: name.startswith("PyTorch"))
    ddp = best_of(ways, lambda name: name.startswith("PyTorch, DDP"))
    plain, auto = named["plain, 1 thread"], named["troika, auto"]
    part = best_of(ways, lambda name: "batch/" in name)
    shared = best_of(ways, lambda name: name.endswith("ranks shared"))
    return {
        "auto_over_best_pytorch": ratio(auto, best),
        "auto_over_ddp": ratio(auto, ddp),
        "bound": ratio(part, plain),
        "ranks_over_one_thread": ratio(shared, plain),
        "ranks_over_bound": spread([p / s for p, s in zip(part.seconds, shared.seconds)]),
    }


def pipeline_ratios(ways):
    lanes = best_of(ways, lambda name: " lanes, " in name)
    ratios = {
        "pipeline_over_pytorch_pipeline": ratio(
            lanes, best_of(ways, lambda name: name.startswith("PyTorch") and " processes, " in name)),
        "pipeline_over_best_pytorch": ratio(lanes, best_of(ways, lambda name: name.startswith("PyTorch"))),
        "pipeline_over_one_rank": ratio(lanes, best_of(ways, lambda name: name.startswith("1 rank"))),
    }
    for schedule in SCHEDULES:
        for count in MICRO_BATCHES:
            what = f", {schedule}, {count} micro-batches"
            ours = best_of(ways, lambda name: what in name and not name.startswith("PyTorch"))
            theirs = best_of(ways, lambda name: what in name and name.startswith("PyTorch"))
            ratios[f"{schedule}_{count}_over_pytorch"] = ratio(ours, theirs)
    return ratios


def report(case, ways, options):
    best = best_of(ways, lambda name: name.startswith("PyTorch"))
    return {
        "case": case,
        "ways": [{"name": way.name, "samples_per_s": way.batch / statistics.median(way.seconds),
                  "microseconds": spread([s * 1e6 for s in way.seconds]), "over_best_pytorch": ratio(way, best)}
                 for way in ways],
        "best_pytorch": best.name,
        **(pipeline_ratios if options.pipeline else data_parallel_ratios)(ways),
    }


def ratios_of(result):
    return {key: value for key, value in result.items() if isinstance(value, dict)}


def show(result):
    print(f"\n{result['case']}")
    print(f"  {'':<54}{'us a step (quartiles)':>32}{'samples/s':>12}{'x best PyTorch':>16}")
    for way in result["ways"]:
        us = way["microseconds"]
        print(f"  {way['name']:<54}{us['median']:>12.0f} ({us['low']:>7.0f} - {us['high']:>7.0f})"
              f"{way['samples_per_s']:>12.0f}{way['over_best_pytorch']['median']:>16.2f}")
    for key, value in ratios_of(result).items():
        print(f"  {key.replace('_', ' '):<54}{value['median']:>12.2f} ({value['low']:>7.2f} - {value['high']:>7.2f})", flush=True)


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pipeline", action="store_true", help="pipelines instead of data parallelism")
    parser.add_argument("--program", help="bench/data_parallel, or bench/pipeline (default: that of build/release)")
    parser.add_argument("--torch", required=True, help="the folder that PyTorch's Python is installed in")
    parser.add_argument("--ranks", type=int, default=max(2, len(os.sched_getaffinity(0))))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.7, help="of a block of steps")
    parser.add_argument("--filter", default="", help="only models whose name has this in it")
    parser.add_argument("--json", action="store_true", help="one object on standard output")
    options = parser.parse_args()
    options.program = options.program or f"build/release/bench/{'pipeline' if options.pipeline else 'data_parallel'}"
    results = []
    for case, troika_ways in list_ways(options).items():
        ways = start(case, troika_ways, options)
        try:
            measure(ways, options)
        finally:
            for way in ways:
                way.stop()
        results.append(report(case, ways, options))
        if not options.json:
            show(results[-1])
    if not results:
        sys.exit(f"compare.py: no model's name has \"{options.filter}\" in it")
    means = {key: geometric_mean([result[key]["median"] for result in results]) for key in ratios_of(results[0])}
    if options.json:
        print(json.dumps({"ranks": options.ranks, "rounds": options.rounds, "cases": results, "geometric_means": means}, indent=1))
        return
    print()
    for key, mean in means.items():
        medians = "  ".join(f"{result[key]['median']:.2f}" for result in results)
        print(f"{key.replace('_', ' '):<34} {medians}   geometric mean {mean:.2f}")


if __name__ == "__main__":
    main()
