// troika schedule compare: all schedules for the same work, and which one to take.
#include <nlohmann/json.hpp>

#include "troika/app/output.h"
#include "troika/app/schedule.h"
#include "troika/app/schedule_report.h"
#include "troika/base/error.h"
#include "troika/base/table.h"
#include "troika/simulate/search.h"

namespace troika {
namespace {

using Json = nlohmann::ordered_json;

struct CompareOptions : ScheduleOptions {
  bool overlap = false;
};

SearchRequest search_of(const CompareOptions& options) {
  const ScheduleRequest sizes = request_of(options);
  SearchRequest request;
  request.lanes = sizes.lanes;
  request.micro_batches = sizes.micro_batches;
  request.chunks = sizes.chunks;
  request.updates = sizes.updates;
  request.memory_limit = sizes.memory_limit;
  request.times = pass_times(options);
  request.steps_overlap = options.overlap;
  return request;
}

Json candidate_json(const Candidate& candidate) {
  Json json{{"name", candidate.entry->name},
            {"chunks", candidate.chunks},
            {"synchronous", !candidate.entry->asynchronous},
            {"gains_by_overlap", candidate.entry->gains_by_overlap}};
  if (!candidate.refused.empty()) {
    json["refused"] = candidate.refused;
    return json;
  }
  json["makespan"] = candidate.summary.makespan_s;
  json["cost"] = candidate.summary.cost_s;
  json["bubble_rate"] = candidate.summary.bubble_rate;
  json["bubble_rate_makespan"] = candidate.summary.bubble_rate_makespan;
  json["messages"] = candidate.summary.messages;
  json["peak_held"] = candidate.peak_held;
  json["fits"] = candidate.fits;
  return json;
}

Json result_json(const SearchRequest& request, const SearchResult& result) {
  Json json{{"stages", request.lanes},
            {"micro_batches", request.micro_batches},
            {"forward", request.times.forward_s},
            {"input", request.times.input_s},
            {"weight", request.times.weight_s},
            {"comm", request.times.message_s},
            {"steps_overlap", request.steps_overlap}};
  json["memory_limit"] = request.memory_limit ? Json(*request.memory_limit) : Json(nullptr);
  json["schedules"] = Json::array();
  for (const Candidate& candidate : result.candidates) json["schedules"].push_back(candidate_json(candidate));
  json["best"] =
      result.best < 0 ? Json(nullptr) : Json(result.candidates[static_cast<size_t>(result.best)].entry->name);
  json["reason"] = result.reason;
  return json;
}

std::string remark(const Candidate& candidate, bool best) {
  std::vector<std::string> words;
  if (best) words.emplace_back("best");
  if (!candidate.fits) words.emplace_back("over the memory limit");
  if (candidate.entry->asynchronous) words.emplace_back("asynchronous");
  if (candidate.entry->gains_by_overlap) words.emplace_back("gains where steps overlap");
  return fmt::format("{}", fmt::join(words, ", "));
}

std::vector<std::string_view> names_that(const SearchResult& result, bool CatalogueEntry::*have) {
  std::vector<std::string_view> names;
  for (const CatalogueEntry& entry : catalogue()) {
    for (const Candidate& each : result.candidates) {
      if (each.entry == &entry && entry.*have && each.refused.empty()) names.push_back(entry.name);
    }
  }
  return names;
}

// "zb-h2 and zb-v".
std::string listed(const std::vector<std::string_view>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == names.size() ? " and " : ", ", names[i]);
  }
  return text;
}

std::string result_text(const SearchRequest& request, const SearchResult& result) {
  const PassTimes& times = request.times;
  std::string text =
      fmt::format("{}, {}; a lane's forward {:.6g}, input {:.6g}, weight {:.6g}, message {:.6g}{}\n",
                  counted(request.lanes, "lane"), counted(request.micro_batches, "micro-batch"),
                  times.forward_s, times.input_s, times.weight_s, times.message_s,
                  request.steps_overlap ? "; steps overlap" : "; one step alone");
  Table table({"schedule", "stages", "makespan", "bubble", "cost", "bubble", "peak held", ""},
              {false, true, true, true, true, true, true, false});
  std::string refused;
  for (size_t i = 0; i < result.candidates.size(); ++i) {
    const Candidate& each = result.candidates[i];
    if (!each.refused.empty()) {
      const bool named = each.refused.find(each.entry->name) != std::string::npos;
      refused +=
          fmt::format("left out: {}{}\n", named ? "" : std::string(each.entry->name) + ": ", each.refused);
      continue;
    }
    const Summary& summary = each.summary;
    table.add({std::string(each.entry->name), std::to_string(each.chunks * request.lanes),
               fmt::format("{:.6g}", summary.makespan_s), percent(summary.bubble_rate_makespan),
               fmt::format("{:.6g}", summary.cost_s), percent(summary.bubble_rate),
               fmt::format("{:.6g}", each.peak_held), remark(each, static_cast<int>(i) == result.best)});
  }
  text += table.text() + refused;
  if (const auto names = names_that(result, &CatalogueEntry::asynchronous); !names.empty()) {
    text +=
        fmt::format("Asynchronous ({}): trains with older weights, which is not equal to the serial run.\n",
                    listed(names));
  }
  if (const auto names = names_that(result, &CatalogueEntry::gains_by_overlap); !names.empty()) {
    text += fmt::format("The cost of {} is reached only where steps overlap{}.\n", listed(names),
                        request.steps_overlap ? "" : " (--overlap); one step alone takes the makespan");
  }
  if (result.best < 0) return text + "No choice: " + result.reason + ".\n";
  return text + fmt::format("Take {}: {}.\n", result.candidates[static_cast<size_t>(result.best)].entry->name,
                            result.reason);
}

void run_compare(const CompareOptions& options) {
  const SearchRequest request = search_of(options);
  const SearchResult result = search_schedules(request);
  if (options.json) {
    print_json(result_json(request, result));
  } else {
    print_out(result_text(request, result));
  }
}

}  // namespace

void add_schedule_compare(CLI::App& schedule) {
  auto* const command =
      schedule.add_subcommand("compare", "All schedules for the same work, and which one to take");
  const auto options = std::make_shared<CompareOptions>();
  add_size_options(*command, *options);
  add_time_options(*command, *options, "one lane's share, whatever its stages");
  command->add_flag("--overlap", options->overlap,
                    "The next step starts while this one ends: compare costs, not makespans");
  add_json_option(*command, *options);
  command->footer("Example: troika schedule compare --stages 4 --micro-batches 8 --memory-limit 4");
  command->callback([options] { run_compare(*options); });
}

}  // namespace troika
