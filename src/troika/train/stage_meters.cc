#include "troika/train/stage_meters.h"

#include <algorithm>

namespace troika::internal {

StageMeters::StageMeters(const Workload& work, int rank) : meters_(1), most_(1, 0) {
  if (!work.pipeline) return;
  const Schedule& schedule = work.pipeline->options.schedule;
  meters_ = std::vector<MemoryMeter>(static_cast<size_t>(schedule.num_stages()));
  most_.resize(meters_.size(), 0);
  first_ = first_stage_of_lane(schedule, work.mesh().coordinate(rank).pipeline);
}

ReplicaOptions StageMeters::options(const Workload& work) const {
  ReplicaOptions options = replica_options(work);
  options.meter_of = [this](int stage) { return &meters_[static_cast<size_t>(stage)]; };
  return options;
}

void StageMeters::begin_step() {
  for (MemoryMeter& meter : meters_) meter.restart_peak();
}

void StageMeters::end_step() {
  for (size_t stage = 0; stage < meters_.size(); ++stage) {
    most_[stage] = std::max(most_[stage], meters_[stage].peak_bytes());
  }
}

std::vector<int64_t> StageMeters::gathered(Communicator& communicator) const {
  if (communicator.size() == 1) return most_;
  std::vector<int64_t> mine = most_, all(most_.size() * static_cast<size_t>(communicator.size()));
  communicator.all_gather({mine.data(), static_cast<int64_t>(mine.size()), ElementType::int64},
                          {all.data(), static_cast<int64_t>(all.size()), ElementType::int64});
  for (size_t i = 0; i < all.size(); ++i) {
    int64_t& most = mine[i % mine.size()];
    most = std::max(most, all[i]);
  }
  return mine;
}

}  // namespace troika::internal
