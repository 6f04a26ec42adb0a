#include <algorithm>
#include <cmath>

#include "troika/base/error.h"
#include "troika/base/table.h"
#include "troika/base/text.h"
#include "troika/schedule/layer_sums.h"

namespace troika {
namespace {

constexpr size_t kFewLayers = 3;  // that many are listed by name

std::string shown(const std::string& name) {
  const std::string text = printable(name, 30);
  return text.empty() || text.find_first_of(" ,\"") != std::string::npos ? "\"" + text + "\"" : text;
}

std::string layers_text(const std::vector<LayerCost>& layers, size_t begin, size_t end) {
  if (end - begin > kFewLayers) {
    return fmt::format("{} .. {} ({} layers)", shown(layers[begin].name), shown(layers[end - 1].name),
                       end - begin);
  }
  std::string text;
  for (size_t layer = begin; layer < end; ++layer) {
    text += (layer == begin ? "" : ", ") + shown(layers[layer].name);
  }
  return text;
}

// 12.5, 0.00031, 1,234,567
std::string number_text(double number) {
  if (number >= 1000 && number < 1e15) return with_commas(std::llround(number));
  return fmt::format("{:.4g}", number);
}

std::string percent(double part, double sum) {
  return sum > 0 ? fmt::format("{:.1f} %", 100 * (part / sum)) : "-";
}

struct Row {
  std::string stage, layers;
  LayerSums sums;
};

}  // namespace

std::string partition_table(const std::vector<LayerCost>& layers, const std::vector<int64_t>& starts,
                            const std::string& unit) {
  std::vector<Row> rows;
  for (size_t stage = 0; stage < starts.size(); ++stage) {
    const auto [begin, end] = layers_of_stage(starts, stage, layers.size());
    TROIKA_ASSERT((stage > 0 || begin == 0) && begin < end && end <= static_cast<int64_t>(layers.size()),
                  fmt::format("stage {} begins with layer {} of {} and ends before layer {}", stage, begin,
                              layers.size(), end));
    const auto first = static_cast<size_t>(begin), past = static_cast<size_t>(end);
    rows.push_back({std::to_string(stage), layers_text(layers, first, past), sums_of(layers, first, past)});
  }
  TROIKA_ASSERT(!rows.empty(), "no stages");
  const Row& largest = *std::ranges::max_element(rows, {}, [](const Row& row) { return row.sums.work; });
  const LayerSums sum = sums_of(layers, 0, layers.size());
  std::vector<std::string> head = {"stage", "layers", unit, "share", "memory"};
  std::vector<bool> right = {true, false, true, true, true};
  const bool knows_held = sum.held_bytes > 0;
  if (knows_held) {
    head.push_back("held per micro-batch");
    right.push_back(true);
  }
  Table table(head, right);
  const auto print = [&](const Row& row) {
    std::vector<std::string> cells = {row.stage, row.layers, number_text(row.sums.work),
                                      percent(row.sums.work, sum.work), human_bytes(row.sums.bytes)};
    if (knows_held) cells.push_back(human_bytes(row.sums.held_bytes));
    table.add(cells);
  };
  for (const Row& row : rows) print(row);
  print({"sum", fmt::format("{} layer{}", layers.size(), layers.size() == 1 ? "" : "s"), sum});
  if (!(sum.work > 0)) return table.text() + "pace: no work, nothing to balance\n";
  return table.text() +
         fmt::format("pace: stage {}, {} {} x {} stage{} / {} {} = {:.2f} (1: all stages equal)\n",
                     largest.stage, number_text(largest.sums.work), unit, rows.size(),
                     rows.size() == 1 ? "" : "s", number_text(sum.work), unit,
                     largest.sums.work / sum.work * static_cast<double>(rows.size()));
}

}  // namespace troika
