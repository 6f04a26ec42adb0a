#include "troika/simulate/search.h"

#include <algorithm>
#include <cmath>

#include "troika/base/error.h"

namespace troika {
namespace {

// Times that differ by less are rounding: sums of the same numbers in another order.
constexpr double kSame = 1e-9;

bool less(double a, double b) { return a < b - kSame * std::max(std::abs(a), std::abs(b)); }

double time_of(const Candidate& candidate, const SearchRequest& request) {
  return request.steps_overlap ? candidate.summary.cost_s : candidate.summary.makespan_s;
}

int chunks_of(const CatalogueEntry& entry, const SearchRequest& request) {
  return entry.fixed_chunks || request.chunks == 0 ? entry.default_chunks : request.chunks;
}

PassTimes of_one_chunk(PassTimes times, int chunks) {
  times.forward_s /= chunks;
  times.input_s /= chunks;
  times.weight_s /= chunks;
  return times;  // a message is as large whatever the chunks
}

Candidate candidate_of(const CatalogueEntry& entry, const SearchRequest& request) {
  Candidate candidate;
  candidate.entry = &entry;
  candidate.chunks = chunks_of(entry, request);
  ScheduleRequest wanted;
  wanted.lanes = request.lanes;
  wanted.micro_batches = request.micro_batches;
  wanted.chunks = candidate.chunks;
  if (entry.name == "pipedream-2bw") wanted.updates = request.updates;
  wanted.times = of_one_chunk(request.times, candidate.chunks);
  wanted.memory_limit = request.memory_limit;
  Schedule schedule;
  try {
    schedule = make_schedule(entry.name, wanted);
  } catch (const Error& error) {
    candidate.refused = error.what();
    candidate.fits = false;
    return candidate;
  }
  const Trace trace = simulate(schedule, uniform_costs(schedule.num_stages(), wanted.times));
  candidate.summary = summarize(schedule, trace);
  const int windows = std::max(1, schedule.num_micro_batches / request.micro_batches);
  candidate.summary.makespan_s /= windows;
  candidate.summary.cost_s /= windows;
  candidate.summary.messages /= windows;
  candidate.peak_held = most_held(candidate.summary.peaks);
  candidate.fits = !request.memory_limit || !less(*request.memory_limit, candidate.peak_held);
  return candidate;
}

// "5.6 % less than zb-h1 (27)", "as long as ...".
std::string against(const Candidate& best, const Candidate& other, const SearchRequest& request) {
  const double mine = time_of(best, request), its = time_of(other, request);
  const std::string_view name = other.entry->name;
  if (less(mine, its))
    return fmt::format("{:.3g} % less than {} ({:.6g})", (its - mine) / its * 100, name, its);
  if (less(best.peak_held, other.peak_held)) return fmt::format("the same as {}, which holds more", name);
  if (best.entry < other.entry) return fmt::format("the same as {}, which is less simple", name);
  return fmt::format("the same as {}", name);
}

std::string reason_of(const SearchResult& result, const SearchRequest& request) {
  const auto& all = result.candidates;
  if (result.best < 0) {
    const Candidate* least = nullptr;
    for (const Candidate& each : all) {
      if (!each.refused.empty() || each.entry->asynchronous) continue;
      if (least == nullptr || each.peak_held < least->peak_held) least = &each;
    }
    if (least == nullptr) return "no schedule can be made for these numbers";
    return fmt::format("no schedule holds at most {:.6g} micro-batches; the least is {} with {:.6g}",
                       *request.memory_limit, least->entry->name, least->peak_held);
  }
  const Candidate& best = all[static_cast<size_t>(result.best)];
  std::string text =
      fmt::format("its {} is {:.6g}", request.steps_overlap ? "cost" : "makespan", time_of(best, request));
  const Candidate* runner_up = nullptr;
  const Candidate* common = nullptr;
  for (const Candidate& each : all) {
    if (&each == &best || !each.refused.empty() || each.entry->asynchronous) continue;
    if (runner_up == nullptr && each.fits) runner_up = &each;
    if (each.entry->name == (best.entry->name == "1f1b" ? "gpipe" : "1f1b")) common = &each;
  }
  if (runner_up != nullptr) text += ", " + against(best, *runner_up, request);
  if (common != nullptr && common != runner_up) {
    if (less(time_of(*common, request), time_of(best, request))) {
      text += fmt::format(", {:.6g} of {} needs more memory", time_of(*common, request), common->entry->name);
    } else {
      text += fmt::format("{} {}", runner_up == nullptr ? "," : ", and", against(best, *common, request));
    }
  }
  text += fmt::format("; its fullest lane holds {:.6g} micro-batch{}", best.peak_held,
                      best.peak_held == 1 ? "" : "es");
  if (common != nullptr) text += fmt::format(", {}'s {:.6g}", common->entry->name, common->peak_held);
  if (request.memory_limit) text += fmt::format(", allowed are {:.6g}", *request.memory_limit);
  return text;
}

}  // namespace

CostModel uniform_costs(int stages, const PassTimes& times) {
  StageCost cost;
  cost.forward_s = times.forward_s;
  cost.input_s = times.input_s;
  cost.weight_s = times.weight_s;
  return CostModel::uniform(stages, cost, {.latency_s = times.message_s, .seconds_per_byte = 0});
}

SearchResult search_schedules(const SearchRequest& request) {
  if (request.lanes < 1 || request.micro_batches < 1) {
    fail_usage("stages and micro-batches: expected whole numbers from 1, got {} and {}", request.lanes,
               request.micro_batches);
  }
  if (int64_t{request.lanes} * request.micro_batches > kMostSearched) {
    fail_usage("{} stages times {} micro-batches: expected at most {} to compare all schedules",
               request.lanes, request.micro_batches, kMostSearched);
  }
  SearchResult result;
  for (const CatalogueEntry& entry : catalogue()) result.candidates.push_back(candidate_of(entry, request));
  // Stable: what is equal stays in the catalogue's order.
  std::ranges::stable_sort(result.candidates, [&](const Candidate& a, const Candidate& b) {
    if (a.refused.empty() != b.refused.empty()) return a.refused.empty();
    if (a.fits != b.fits) return a.fits;
    const double time_a = time_of(a, request), time_b = time_of(b, request);
    if (less(time_a, time_b) || less(time_b, time_a)) return time_a < time_b;
    return less(a.peak_held, b.peak_held);
  });
  const auto chosen = std::ranges::find_if(
      result.candidates, [](const Candidate& each) { return each.fits && !each.entry->asynchronous; });
  if (chosen != result.candidates.end()) result.best = static_cast<int>(chosen - result.candidates.begin());
  result.reason = reason_of(result, request);
  return result;
}

}  // namespace troika
