// Ranks as threads of this process, and the communicator between them (comm/inproc).
#pragma once

#include <functional>

#include "troika/comm/communicator.h"

namespace troika {

struct GroupOptions {
  /// How long a rank waits for a peer since that peer's last sign of life, at least; ten times the longest
  /// that the peer has computed between two signs, if that is more.
  double deadline_seconds = 30;
  /// Pin rank threads to their cores (not with more ranks than cores).
  bool pin = true;
};

/// Runs `body` once per rank, each on a thread of its own, and returns when all are done. A rank that throws
/// ends the others (their next wait throws); the first cause is rethrown here as Error "rank 1: <cause>" (a
/// UsageError stays one). With ranks = 1 it runs on the calling thread.
void run_thread_ranks(int ranks, const GroupOptions& options, const std::function<void(Communicator&)>& body);

}  // namespace troika
