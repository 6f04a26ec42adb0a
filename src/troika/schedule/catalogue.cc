#include "troika/schedule/catalogue.h"

#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/schedule/passes.h"

// The list. NAME stands for `CatalogueEntry NAME_entry()`, in catalogue/NAME.cc.
#define TROIKA_CATALOGUE(SCHEDULE) \
  SCHEDULE(naive)                  \
  SCHEDULE(gpipe)                  \
  SCHEDULE(one_f_one_b)            \
  SCHEDULE(interleaved_1f1b)       \
  SCHEDULE(looped_bfs)             \
  SCHEDULE(zb_h1)                  \
  SCHEDULE(zb_h2)                  \
  SCHEDULE(zb_auto)                \
  SCHEDULE(zb_v)                   \
  SCHEDULE(v_half)                 \
  SCHEDULE(v_min)                  \
  SCHEDULE(dualpipe_v)             \
  SCHEDULE(pipedream)              \
  SCHEDULE(pipedream_2bw)

namespace troika {

#define DECLARE(NAME) CatalogueEntry NAME##_entry();
TROIKA_CATALOGUE(DECLARE)
#undef DECLARE

namespace {

// Enough for thousands of lanes, little enough that a mistyped number doesn't fill the memory.
constexpr int64_t kMostForwards = 20'000'000;

int chunks_of(const CatalogueEntry& entry, const ScheduleRequest& request) {
  if (request.chunks == 0 || request.chunks == entry.default_chunks) return entry.default_chunks;
  if (entry.fixed_chunks) {
    fail_usage("schedule {} has {} stage{} per lane, and {} chunks were asked for: leave --chunks out",
               entry.name, entry.default_chunks, entry.default_chunks == 1 ? "" : "s", request.chunks);
  }
  return request.chunks;
}

void check_number(std::string_view what, int64_t got) {
  if (got < 1) fail_usage("{}: expected a whole number from 1, got {}", what, got);
}

void check_seconds(std::string_view what, double got) {
  if (!(got >= 0) || got > std::numeric_limits<double>::max()) {
    fail_usage("{}: expected a time, 0 or more, got {}", what, got);
  }
}

}  // namespace

std::span<const CatalogueEntry> catalogue() {
#define MAKE(NAME) NAME##_entry(),
  static const std::vector<CatalogueEntry> entries = {TROIKA_CATALOGUE(MAKE)};
#undef MAKE
  return entries;
}

std::vector<std::string> catalogue_names() {
  std::vector<std::string> names;
  for (const CatalogueEntry& entry : catalogue()) names.emplace_back(entry.name);
  return names;
}

const CatalogueEntry& catalogue_entry(std::string_view name) {
  for (const CatalogueEntry& entry : catalogue()) {
    if (entry.name == name) return entry;
  }
  const std::vector<std::string> names = catalogue_names();
  fail_usage("no schedule is called \"{}\"{}; the names are {}", printable(name, 40),
             did_you_mean(name, names), fmt::join(names, ", "));
}

Schedule make_schedule(std::string_view name, const ScheduleRequest& request) {
  const CatalogueEntry& entry = catalogue_entry(name);
  check_number("stages", request.lanes);
  check_number("micro-batches", request.micro_batches);
  if (request.chunks != 0) check_number("chunks", request.chunks);
  if (request.updates != 0) check_number("updates", request.updates);
  check_seconds("forward", request.times.forward_s);
  check_seconds("input", request.times.input_s);
  check_seconds("weight", request.times.weight_s);
  check_seconds("comm", request.times.message_s);
  ScheduleRequest whole = request;
  whole.chunks = chunks_of(entry, request);
  const auto forwards =
      static_cast<double>(whole.lanes) * whole.chunks * whole.micro_batches * std::max(1, whole.updates);
  if (forwards > static_cast<double>(kMostForwards)) {
    fail_usage(
        "{}: {} lanes x {} stage{} per lane x {} micro-batches{}: expected at most {} forwards altogether",
        entry.name, whole.lanes, whole.chunks, whole.chunks == 1 ? "" : "s", whole.micro_batches,
        whole.updates > 1 ? fmt::format(" x {} updates", whole.updates) : "", with_commas(kMostForwards));
  }
  return entry.make(whole);
}

Schedule make_forward_schedule(std::string_view name, const ScheduleRequest& request) {
  return forward_only(make_schedule(name, request));
}

std::vector<int> loop_layout(int lanes, int chunks) {
  std::vector<int> lane_of_stage;
  for (int stage = 0; stage < lanes * chunks; ++stage) lane_of_stage.push_back(stage % lanes);
  return lane_of_stage;
}

std::vector<int> vee_layout(int lanes) {
  std::vector<int> lane_of_stage;
  for (int lane = 0; lane < lanes; ++lane) lane_of_stage.push_back(lane);
  for (int lane = lanes - 1; lane >= 0; --lane) lane_of_stage.push_back(lane);
  return lane_of_stage;
}

}  // namespace troika
