"""Troika beside PyTorch: the same models, global batch, optimizer and precision, in one run.

Each way of training is a process of its own that waits for orders; they take turns, A B C A B C, so that a slow moment of
the machine hits all of them. A ratio is taken within a round; medians with quartiles. PyTorch runs as one process with one
thread, one process with all threads, and DistributedDataParallel over Gloo with a process for each core (gradients as
bucket views, static graph, pinned); each with glibc's malloc, with tcmalloc, and with tcmalloc and huge pages ("both"), which Troika's programs have
built in.
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


def list_ways(options):
    text = subprocess.run([options.program, "--list", "--ranks", str(options.ranks), "--filter", options.filter],
                          check=True, capture_output=True, text=True).stdout
    cases = {}
    for line in text.splitlines():
        case, way = line.split("\t")
        cases.setdefault(case, []).append(way)
    return cases


def start(case, troika_ways, options):
    model, size, _, batch = case.split()
    width, layers = size.split("x")
    ways = []
    try:
        for name in troika_ways:
            if name == "plain, tensor list":
                continue
            samples = int(batch) // options.ranks if name.endswith(f"batch/{options.ranks}") else int(batch)
            ways.append(Way(name, [options.program, "--ranks", str(options.ranks), "--filter", case, "--serve", name], samples))
        worker = [sys.executable, os.path.join(os.path.dirname(__file__), "torch_worker.py"), model, width, layers, batch]
        for way, flags in (("1 thread", ["--threads", "1"]), (f"{options.ranks} threads", ["--threads", str(options.ranks)]),
                           (f"DDP {options.ranks} processes", ["--processes", str(options.ranks)])):
            for allocator, environment in (("", {}), (" + tcmalloc", {"LD_PRELOAD": tcmalloc()}),
                                           (" + both", {"LD_PRELOAD": tcmalloc(), "THP_MEM_ALLOC_ENABLE": "1"})):
                ways.append(Way(f"PyTorch, {way}{allocator}", worker + flags, int(batch),
                                {"PYTHONPATH": options.torch, **environment}))
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


def report(case, ways):
    best = best_of(ways, lambda name: name.startswith("PyTorch"))
    ddp = best_of(ways, lambda name: name.startswith("PyTorch, DDP"))
    named = {way.name: way for way in ways}
    plain = named["plain, 1 thread"]
    auto = named["troika, auto"]
    part = next(way for way in ways if "batch/" in way.name)
    shared = next(way for way in ways if way.name.endswith("ranks shared"))
    return {
        "case": case,
        "ways": [{"name": way.name, "samples_per_s": way.batch / statistics.median(way.seconds),
                  "microseconds": spread([s * 1e6 for s in way.seconds]), "over_best_pytorch": ratio(way, best)}
                 for way in ways],
        "best_pytorch": best.name,
        "auto_over_best_pytorch": ratio(auto, best),
        "auto_over_ddp": ratio(auto, ddp),
        "bound": ratio(part, plain),
        "ranks_over_one_thread": ratio(shared, plain),
        "ranks_over_bound": spread([p / s for p, s in zip(part.seconds, shared.seconds)]),
    }


def show(result):
    print(f"\n{result['case']}")
    print(f"  {'':<38}{'us a step (quartiles)':>32}{'samples/s':>12}{'x best PyTorch':>16}")
    for way in result["ways"]:
        us = way["microseconds"]
        print(f"  {way['name']:<38}{us['median']:>12.0f} ({us['low']:>7.0f} - {us['high']:>7.0f})"
              f"{way['samples_per_s']:>12.0f}{way['over_best_pytorch']['median']:>16.2f}")
    print(f"  bound t1(G)/t1(G/N) {result['bound']['median']:.2f}, reached {result['ranks_over_one_thread']['median']:.2f}"
          f" ({result['ranks_over_bound']['median']:.2f} of it)", flush=True)


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/release/bench/data_parallel", help="bench/data_parallel")
    parser.add_argument("--torch", required=True, help="the folder that PyTorch's Python is installed in")
    parser.add_argument("--ranks", type=int, default=max(2, len(os.sched_getaffinity(0))))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.7, help="of a block of steps")
    parser.add_argument("--filter", default="", help="only models whose name has this in it")
    parser.add_argument("--json", action="store_true", help="one object on standard output")
    options = parser.parse_args()
    results = []
    for case, troika_ways in list_ways(options).items():
        ways = start(case, troika_ways, options)
        try:
            measure(ways, options)
        finally:
            for way in ways:
                way.stop()
        results.append(report(case, ways))
        if not options.json:
            show(results[-1])
    if not results:
        sys.exit(f"compare.py: no model's name has \"{options.filter}\" in it")
    means = {key: geometric_mean([result[key]["median"] for result in results])
             for key in ("auto_over_best_pytorch", "auto_over_ddp", "ranks_over_bound")}
    if options.json:
        print(json.dumps({"ranks": options.ranks, "rounds": options.rounds, "cases": results, "geometric_means": means}, indent=1))
        return
    print(f"\n{'':<28}{'auto / best PyTorch':>22}{'auto / DDP':>12}{'ranks / bound':>15}")
    for result in results:
        print(f"{result['case']:<28}{result['auto_over_best_pytorch']['median']:>22.2f}"
              f"{result['auto_over_ddp']['median']:>12.2f}{result['ranks_over_bound']['median']:>15.2f}   (best: {result['best_pytorch']})")
    print(f"{'geometric mean':<28}{means['auto_over_best_pytorch']:>22.2f}{means['auto_over_ddp']:>12.2f}{means['ranks_over_bound']:>15.2f}")


if __name__ == "__main__":
    main()
