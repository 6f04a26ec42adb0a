#include "troika/comm/rank_group.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <thread>
#include <vector>

#include "troika/base/cpu.h"
#include "troika/base/text.h"
#include "troika/comm/inproc/group.h"
#include "troika/comm/inproc/thread_communicator.h"

namespace troika {
namespace {

using inproc::Group;
using inproc::World;

void run_rank(const std::shared_ptr<Group>& all, int rank, bool pin,
              const std::function<void(Communicator&)>& body) {
  World& world = all->world();
  try {
    if (pin) pin_to_cores_of_rank(rank, world.ranks());
    inproc::ThreadCommunicator communicator(all, rank);
    body(communicator);
  } catch (const inproc::GroupAborted&) {
    // not a cause
  } catch (...) {
    world.abort(rank, std::current_exception());
  }
  world.end(rank);
}

[[noreturn]] void rethrow_of_rank(int rank, const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (const inproc::GroupError&) {
    throw;  // names its ranks
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("rank {}: {}", rank, error.what()));
  } catch (const std::exception& error) {
    throw Error(fmt::format("rank {}: {}", rank, error.what()));
  } catch (...) {
    throw Error(fmt::format("rank {}: an exception that is not a std::exception", rank));
  }
}

std::string text_of(const std::exception_ptr& cause, int rank) {
  try {
    rethrow_of_rank(rank, cause);
  } catch (const std::exception& error) {
    return error.what();
  }
}

// A thread can't be killed, and its memory can't be taken from it: the process goes.
[[noreturn]] void end_process(World& world, int silent) {
  int rank = -1;
  if (const std::exception_ptr cause = world.cause(&rank)) {
    fmt::print(stderr, "troika: {}\n", text_of(cause, rank));
  }
  fmt::print(stderr,
             "troika: rank {} does not end (silent for {}, last: {}), so the process ends with status 1\n",
             silent, human_seconds(seconds_since(world.last_sign(silent))), world.last_words(silent));
  std::fflush(nullptr);
  std::_Exit(1);
}

// Returns when all ranks from 0 to `started` - 1 have ended; doesn't wait for silent ones once one has
// failed.
void wait_for_end(World& world, int started) {
  while (true) {
    const uint32_t seen = world.watcher().now();
    const bool aborted = world.aborted();
    Clock::duration limit = std::chrono::hours(1);
    bool all = true;
    for (int rank = 0; rank < started; ++rank) {
      if (world.state(rank).ended.load()) continue;
      all = false;
      if (!aborted) continue;
      const Clock::time_point since = std::max(world.last_sign(rank), world.aborted_at());
      const Clock::duration left = since + world.patience(rank) - Clock::now();
      if (left <= Clock::duration::zero()) end_process(world, rank);
      limit = std::min(limit, left);
    }
    if (all) return;
    world.watcher().sleep(seen, limit);
  }
}

}  // namespace

void run_thread_ranks(int ranks, const GroupOptions& options,
                      const std::function<void(Communicator&)>& body) {
  if (ranks < 1) fail_usage("{} ranks; there must be at least 1", ranks);
  if (!(options.deadline_seconds > 0) || options.deadline_seconds > 1e9) {
    fail_usage("a deadline of {} s; it must be more than 0 and at most 1e9", options.deadline_seconds);
  }
  World world(ranks, options);
  const auto all = std::make_shared<Group>(world);
  if (ranks == 1) {
    inproc::ThreadCommunicator communicator(all, 0);
    body(communicator);
    int rank = -1;
    if (const std::exception_ptr cause = world.cause(&rank)) std::rethrow_exception(cause);
    return;
  }
  std::vector<std::thread> threads;
  try {
    threads.reserve(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&all, rank, &options, &body] { run_rank(all, rank, options.pin, body); });
    }
  } catch (const std::system_error& error) {
    const int rank = static_cast<int>(threads.size());
    world.abort(rank,
                std::make_exception_ptr(Error(fmt::format("can't start its thread: {}", error.what()))));
  }
  wait_for_end(world, static_cast<int>(threads.size()));
  for (std::thread& thread : threads) thread.join();
  int rank = -1;
  if (const std::exception_ptr cause = world.cause(&rank)) rethrow_of_rank(rank, cause);
}

}  // namespace troika
