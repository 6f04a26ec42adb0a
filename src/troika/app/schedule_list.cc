// troika schedule list: what there is.
#include <nlohmann/json.hpp>

#include "troika/app/output.h"
#include "troika/app/schedule.h"
#include "troika/app/schedule_options.h"
#include "troika/base/error.h"

namespace troika {
namespace {

using Json = nlohmann::ordered_json;

std::string chunks_text(const CatalogueEntry& entry) {
  return entry.fixed_chunks ? fmt::format("{}", entry.default_chunks)
                            : fmt::format("{}, or --chunks", entry.default_chunks);
}

std::string block(const CatalogueEntry& entry) {
  std::string text = fmt::format("{}: {}\n  bubble {}\n  holds {}; stages per lane {}\n", entry.name,
                                 entry.summary, entry.bubble, entry.memory, chunks_text(entry));
  text += fmt::format("  {}\n  {}\n", entry.use, entry.paper);
  if (entry.asynchronous) {
    text += "  Asynchronous: it trains with older weights, so it does not equal the serial run.\n";
  }
  return text;
}

Json entry_json(const CatalogueEntry& entry) {
  return {{"name", entry.name},
          {"summary", entry.summary},
          {"bubble", entry.bubble},
          {"memory", entry.memory},
          {"use", entry.use},
          {"paper", entry.paper},
          {"chunks", entry.default_chunks},
          {"fixed_chunks", entry.fixed_chunks},
          {"splits_backward", entry.splits_backward},
          {"synchronous", !entry.asynchronous},
          {"gains_by_overlap", entry.gains_by_overlap}};
}

void list(const std::vector<std::string>& names, bool as_json) {
  std::vector<const CatalogueEntry*> entries;
  for (const std::string& name : names) entries.push_back(&catalogue_entry(name));
  if (names.empty()) {
    for (const CatalogueEntry& entry : catalogue()) entries.push_back(&entry);
  }
  if (as_json) {
    Json json{{"schedules", Json::array()}};
    for (const CatalogueEntry* entry : entries) json["schedules"].push_back(entry_json(*entry));
    print_json(json);
    return;
  }
  std::string text;
  for (const CatalogueEntry* entry : entries) text += block(*entry) + "\n";
  print_out(
      text +
      "p lanes, m micro-batches, v stages per lane; F, I, W: times of a forward and of a backward's two "
      "parts.\nHeld: activations of a lane, in micro-batches of the whole lane.\n");
}

}  // namespace

void add_schedule_list(CLI::App& schedule) {
  auto* const command =
      schedule.add_subcommand("list", "Every schedule: what it is, bubble, memory, when to use it, paper");
  const auto names = std::make_shared<std::vector<std::string>>();
  const auto options = std::make_shared<ScheduleOptions>();
  command->add_option("names", *names, "Only these")->type_name("NAME");
  add_json_option(*command, *options);
  command->footer("Example: troika schedule list zb-h1");
  command->callback([names, options] { list(*names, options->json); });
}

}  // namespace troika
