// troika data info, head, check: what is in a dataset.
#include <nlohmann/json.hpp>

#include "troika/app/column_summary.h"
#include "troika/app/commands.h"
#include "troika/app/output.h"
#include "troika/base/error.h"
#include "troika/base/table.h"
#include "troika/base/text.h"
#include "troika/data/cell_text.h"
#include "troika/data/source.h"

namespace troika {
namespace {

using Json = nlohmann::ordered_json;

struct DataRequest {
  std::string dataset;
  bool json = false;
  int64_t rows = 10;
  bool csv = false;
};

int64_t stored_bytes(const Dataset& dataset) {
  int64_t bytes = 0;
  for (const Shard& shard : dataset.shards) bytes += shard.floats_bytes + shard.ints_bytes;
  return bytes;
}

void print_info(const DataRequest& request) {
  const Dataset dataset = open_dataset(request.dataset);
  if (request.json) {
    Json json{{"rows", dataset.rows},
              {"bytes", stored_bytes(dataset)},
              {"shards", dataset.shards.size()},
              {"rejected", dataset.rejected_rows},
              {"source", dataset.source_path},
              {"fingerprint", fmt::format("{:016x}", dataset.fingerprint)},
              {"left_out", dataset.left_out}};
    json["columns"] = Json::array();
    for (const Column& column : dataset.columns) json["columns"].push_back(column_json(column));
    print_json(json);
    return;
  }
  Table table({"column", "type", "nulls", "min", "max", "mean"}, {false, false, true, true, true, true});
  for (const Column& column : dataset.columns) table.add(column_summary(column));
  fmt::print("{}: {} rows, {} in {} shards, from {}\n", request.dataset, with_commas(dataset.rows),
             human_bytes(static_cast<double>(stored_bytes(dataset))), dataset.shards.size(),
             dataset.source_path);
  if (dataset.rejected_rows > 0) {
    fmt::print("{} rows were rejected when it was packed: rejects.csv\n", with_commas(dataset.rejected_rows));
  }
  for (const std::string& name : dataset.left_out)
    fmt::print("column \"{}\" was left out\n", printable(name, 60));
  fmt::print("{}", table.text());
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) line += (i == 0 ? "" : ",") + csv_cell(cells[i]);
  return line + '\n';
}

void print_head(const DataRequest& request) {
  const Dataset dataset = open_dataset(request.dataset);
  std::vector<std::string> names;
  std::vector<bool> right;
  for (const Column& column : dataset.columns) {
    names.push_back(request.csv ? column.name : printable(column.name, 40));
    right.push_back(column.type == ColumnType::number || column.type == ColumnType::integer);
  }
  if (request.csv) fmt::print("{}", csv_line(names));
  Table table(std::move(names), std::move(right));
  RowSet first(dataset.rows);
  for (int64_t row = 0; row < std::min(request.rows, dataset.rows); ++row) first.set(row, true);
  scan_rows(dataset, first, [&](const RowBuffer& buffer) {
    for (int64_t row = 0; row < buffer.rows; ++row) {
      std::vector<std::string> cells;
      for (const Column& column : dataset.columns) {
        std::string text = cell_text(dataset, buffer, row, column);
        cells.push_back(request.csv ? std::move(text) : printable(text, 40));
      }
      if (request.csv)
        fmt::print("{}", csv_line(cells));
      else
        table.add(std::move(cells));
    }
  });
  if (!request.csv) fmt::print("{}", table.text());
}

void check(const DataRequest& request) {
  const Dataset dataset = open_dataset(request.dataset);
  check_dataset(dataset);
  if (request.json) {
    print_json(Json{{"valid", true}, {"rows", dataset.rows}, {"bytes", stored_bytes(dataset)}});
  } else {
    fmt::print("{}: good; {} rows, {}, every checksum agrees\n", request.dataset, with_commas(dataset.rows),
               human_bytes(static_cast<double>(stored_bytes(dataset))));
  }
}

}  // namespace

void add_data(CLI::App& app) {
  auto* const data = app.add_subcommand("data", "Look into a dataset: info, head, check");
  data->require_subcommand(1);
  const auto request = std::make_shared<DataRequest>();
  const auto add = [&](const char* name, const char* what, const char* example,
                       void (*run)(const DataRequest&)) {
    auto* const command = data->add_subcommand(name, what);
    command->add_option("dataset", request->dataset, "A folder that troika pack has made")
        ->required()
        ->type_name("DATASET");
    command->footer(example);
    command->callback([request, run] { run(*request); });
    return command;
  };
  constexpr const char* kJson = "Print one JSON object on standard output, and nothing else there";
  add("info", "Rows, bytes, columns with types, nulls and ranges", "Example: troika data info flights",
      print_info)
      ->add_flag("--json", request->json, kJson);
  auto* const head =
      add("head", "The first rows", "Example: troika data head flights -n 5 --csv", print_head);
  head->add_option("-n,--rows", request->rows, "How many")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  head->add_flag("--csv", request->csv, "As CSV: texts and numbers as they were, nulls empty");
  add("check", "Compare every checksum", "Example: troika data check flights", check)
      ->add_flag("--json", request->json, kJson);
  data->footer("Example: troika data info flights");
}

}  // namespace troika
