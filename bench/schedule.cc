// What the whole path of a schedule costs: made, proved, given its messages, proved again, simulated. Each
// setting in three sizes, the number of micro-batches once, twice and four times: what is linear in the
// number of actions takes the same time per action in all three. Times are the thread's processor time: it
// waits for nothing, and what else the machine does doesn't count.
#include <time.h>

#include <CLI/CLI.hpp>
#include <array>
#include <nlohmann/json.hpp>

#include "stats.h"
#include "troika/base/cpu.h"
#include "troika/base/error.h"
#include "troika/base/text.h"
#include "troika/schedule/catalogue.h"
#include "troika/schedule/passes.h"
#include "troika/schedule/validate.h"
#include "troika/simulate/simulate.h"

namespace {

using namespace troika;

struct Options {
  std::string only;
  int repeats = 7;
  bool json = false;
};

enum Step { kMake, kValidate, kMessages, kValidateMessages, kSimulate, kAll, kSteps };
constexpr std::array<const char*, kSteps> kNames = {
    "make", "validate", "with_messages", "validate_messages", "simulate", "all"};

struct Setting {
  std::string_view name;
  int lanes, micro_batches, chunks;
  size_t actions = 0;   // without messages
  size_t messages = 0;  // sends and receives
  std::array<std::vector<double>, kSteps> seconds = {};
};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  const auto add = [&](std::string_view name, int lanes, int micro_batches, int chunks) {
    for (const int times : {1, 2, 4}) all.push_back({name, lanes, times * micro_batches, chunks});
  };
  add("interleaved-1f1b", 64, 128, 4);
  add("interleaved-1f1b", 8, 16, 2);
  add("1f1b", 16, 64, 1);
  add("gpipe", 16, 64, 1);
  add("looped-bfs", 16, 64, 2);
  add("zb-h1", 16, 64, 1);
  add("dualpipe-v", 16, 64, 2);
  add("zb-auto", 16, 16, 1);
  add("zb-v", 16, 16, 2);
  add("v-half", 16, 16, 2);
  add("v-min", 16, 16, 2);
  return all;
}

double now() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double note(Setting& setting, Step which, double start) {
  const double seconds = now() - start;
  setting.seconds[which].push_back(seconds);
  return seconds;
}

// One round; `counted` is false for the first, which touches memory for the first time.
void measure(Setting& setting, bool counted) {
  ScheduleRequest request{.lanes = setting.lanes, .micro_batches = setting.micro_batches};
  request.chunks = setting.chunks;
  double all = 0;
  double start = now();
  const Schedule bare = make_schedule(setting.name, request);
  all += note(setting, kMake, start);

  start = now();
  require_valid(bare, std::string(setting.name));
  all += note(setting, kValidate, start);

  start = now();
  const Schedule whole = with_messages(bare);
  all += note(setting, kMessages, start);

  start = now();
  require_valid(whole, std::string(setting.name));
  all += note(setting, kValidateMessages, start);

  const CostModel costs = CostModel::uniform(whole.num_stages(), {}, {.latency_s = 0.1});
  start = now();
  const Trace trace = simulate(whole, costs);
  all += note(setting, kSimulate, start);
  setting.seconds[kAll].push_back(all);
  setting.actions = bare.num_actions();
  setting.messages = trace.spans.size() - bare.num_actions();
  if (counted) return;
  for (auto& samples : setting.seconds) samples.clear();
}

nlohmann::json to_json(const Setting& setting) {
  nlohmann::json object = {
      {"schedule", setting.name}, {"lanes", setting.lanes},     {"micro_batches", setting.micro_batches},
      {"chunks", setting.chunks}, {"actions", setting.actions}, {"messages", setting.messages}};
  for (size_t which = 0; which < kSteps; ++which) {
    const bench::Spread spread = bench::spread_of(setting.seconds[which]);
    object["seconds"][kNames[which]] = {
        {"median", spread.median}, {"low", spread.low}, {"high", spread.high}};
  }
  return object;
}

void add_row(const Setting& setting, bench::Table& table) {
  std::vector<std::string> row = {
      fmt::format("{} {}x{}x{}", setting.name, setting.lanes, setting.micro_batches, setting.chunks),
      with_commas(static_cast<int64_t>(setting.actions)),
      with_commas(static_cast<int64_t>(setting.messages))};
  for (size_t which = 0; which < kSteps; ++which) {
    row.push_back(fmt::format("{:.2f}", bench::spread_of(setting.seconds[which]).median * 1e3));
  }
  const bench::Spread all = bench::spread_of(setting.seconds[kAll]);
  row.push_back(fmt::format("{:.2f} - {:.2f}", all.low * 1e3, all.high * 1e3));
  const auto per_action = static_cast<double>(setting.actions + setting.messages);
  row.push_back(
      fmt::format("{:.0f}", bench::spread_of(setting.seconds[kSimulate]).median * 1e9 / per_action));
  row.push_back(fmt::format("{:.0f}", all.median * 1e9 / per_action));
  table.add(row);
}

int run(const Options& options) {
  std::vector<Setting> all = settings();
  if (!options.only.empty()) {
    std::erase_if(all, [&](const Setting& setting) { return setting.name != options.only; });
    if (all.empty()) fail_usage("--only {}: no setting of this schedule", options.only);
  }
  for (int round = 0; round <= options.repeats; ++round) {
    for (Setting& setting : all) measure(setting, round > 0);
  }
  if (options.json) {
    nlohmann::json results = nlohmann::json::array();
    for (const Setting& setting : all) results.push_back(to_json(setting));
    const nlohmann::json object = {
        {"cores", usable_cores()}, {"repeats", options.repeats}, {"results", results}};
    fmt::print("{}\n", object.dump(2));
    return 0;
  }
  bench::Table table({"schedule, lanes x micro-batches x chunks", "actions", "messages", "make ms",
                      "validate", "messages", "validate", "simulate", "all", "quartiles", "ns simulate",
                      "ns all"});
  for (const Setting& setting : all) add_row(setting, table);
  fmt::print("Medians of {} rounds; processor time, ns per action with messages; one core of {}\n",
             options.repeats, usable_cores());
  table.print();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Milliseconds to make, prove and simulate schedules.\nExample: schedule --only interleaved-1f1b");
  Options options;
  app.add_option("--only", options.only, "One schedule's settings");
  app.add_option("--repeats", options.repeats, "Rounds over all settings")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--json", options.json, "One object on standard output");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "schedule: {}\n", error.what());
    return 1;
  }
}
