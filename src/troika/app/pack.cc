// troika pack: CSV files, or any files as text, to a dataset.
#include <nlohmann/json.hpp>

#include "troika/app/column_summary.h"
#include "troika/app/commands.h"
#include "troika/app/output.h"
#include "troika/base/cpu.h"
#include "troika/base/error.h"
#include "troika/base/interrupt.h"
#include "troika/base/memory.h"
#include "troika/base/progress.h"
#include "troika/base/table.h"
#include "troika/base/text.h"
#include "troika/data/manifest.h"
#include "troika/data/pack.h"
#include "troika/data/pack_text.h"

namespace troika {
namespace {

using Json = nlohmann::ordered_json;

struct PackRequest {
  std::vector<std::string> files;
  std::string output;
  std::string like;
  bool text = false;
  bool overwrite = false;
  int threads = 0;
  bool json = false;
  bool sniff = false;
  bool quiet = false;
};

// More threads than this don't read faster, and each holds a block.
constexpr int kMostThreads = 16;

std::string delimiter_name(char delimiter) {
  return delimiter == '\t' ? "tab" : fmt::format("\"{}\"", delimiter);
}

double rate(uint64_t bytes, double seconds) {
  return static_cast<double>(bytes) / 1e6 / std::max(seconds, 1e-9);
}

Json sniff_json(const Sniff& sniff) {
  Json json{{"delimiter", std::string(1, sniff.dialect.delimiter)},
            {"newline", std::string(1, sniff.dialect.newline)},
            {"sample_rows", sniff.sample_rows}};
  json["columns"] = Json::array();
  for (const SniffedColumn& column : sniff.columns) {
    json["columns"].push_back({{"name", column.name},
                               {"type", name_of(shape_of(column.kinds).type)},
                               {"example", printable(column.example, 200)},
                               {"nulls", column.nulls}});
  }
  return json;
}

std::string sniff_table(const Sniff& sniff, const std::string& file) {
  Table table({"column", "type", "example", "nulls in sample"}, {false, false, false, true});
  for (const SniffedColumn& column : sniff.columns) {
    table.add({printable(column.name, 40), std::string(name_of(shape_of(column.kinds).type)),
               printable(column.example, 30), with_commas(column.nulls)});
  }
  return fmt::format("{}: {} between fields, {} rows sampled{}\n{}", file,
                     delimiter_name(sniff.dialect.delimiter), with_commas(sniff.sample_rows),
                     sniff.packing == Packing::none ? "" : " from the beginning (the file is packed)",
                     table.text());
}

std::string widened_text(const WidenedColumn& column) {
  std::string text =
      fmt::format("column \"{}\": {}{}, the sample said {}{}; read once more", printable(column.name, 60),
                  name_of(column.found.type), column.found.storage == Storage::ints ? " (int64)" : "",
                  name_of(column.sampled.type), column.sampled.storage == Storage::ints ? " (int64)" : "");
  if (column.line > 0) {
    text += fmt::format(" because of {} line {}: {}", column.file, with_commas(column.line),
                        printable(column.text, 40));
  }
  return text;
}

// Where the columns of another dataset and those of the files differ.
std::vector<std::string> differences(const PackReport& report, const std::string& like) {
  std::vector<std::string> lines, absent, extra;
  for (const std::string& name : report.absent) {
    absent.push_back(
        fmt::format("\"{}\"{}", printable(name, 60), did_you_mean(name, report.dataset.left_out)));
  }
  for (const std::string& name : report.dataset.left_out)
    extra.push_back(fmt::format("\"{}\"", printable(name, 60)));
  if (!absent.empty())
    lines.push_back(fmt::format("null in all rows, as the CSV doesn't have it: {}", fmt::join(absent, ", ")));
  if (!extra.empty())
    lines.push_back(fmt::format("left out, as {} doesn't have it: {}", like, fmt::join(extra, ", ")));
  for (const UnseenCategories& column : report.unseen) {
    lines.push_back(fmt::format(
        "column \"{}\": {} cells became null, as {} doesn't know their category; the first: {}",
        printable(column.name, 60), with_commas(column.cells), like, printable(column.first, 40)));
  }
  return lines;
}

std::vector<std::string> oversized(const PackReport& report) {
  std::vector<std::string> lines;
  for (const std::string& name : report.dataset.left_out) {
    lines.push_back(
        fmt::format("column \"{}\" is left out: it has more different texts than the memory for categories "
                    "holds",
                    printable(name, 60)));
  }
  return lines;
}

std::vector<std::string> warnings(const PackReport& report, const std::string& like) {
  std::vector<std::string> lines = like.empty() ? oversized(report) : differences(report, like);
  for (const NumberLoss& loss : report.losses) {
    const std::string column = fmt::format("column \"{}\"", printable(loss.name, 60));
    if (loss.beyond_float > 0) {
      lines.push_back(fmt::format("{}: {} numbers are too large for float32 and became null", column,
                                  with_commas(loss.beyond_float)));
    }
    if (loss.infinite > 0)
      lines.push_back(fmt::format("{}: {} infinities", column, with_commas(loss.infinite)));
    if (loss.rounded_integers) {
      lines.push_back(fmt::format(
          "{}: whole numbers beyond 16,777,216 were rounded to float32, as its type is float", column));
    }
  }
  return lines;
}

std::string columns_table(const Dataset& dataset) {
  Table table({"column", "type", "nulls", "min", "max", "mean"}, {false, false, true, true, true, true});
  for (const Column& column : dataset.columns) table.add(column_summary(column));
  return table.text();
}

std::string summary(const PackReport& report, const PackRequest& request) {
  const std::string& output = request.output;
  const Dataset& dataset = report.dataset;
  std::string text =
      fmt::format("{}\n{}: {} rows, {} columns, {}; {:.0f} MB/s, {}, peak memory {}\n",
                  columns_table(dataset), output, with_commas(dataset.rows), dataset.columns.size(),
                  human_bytes(static_cast<double>(dataset.rows * dataset.row_bytes())),
                  rate(report.text_bytes * static_cast<uint64_t>(report.passes), report.seconds),
                  human_seconds(report.seconds), human_bytes(static_cast<double>(peak_rss_bytes())));
  for (const WidenedColumn& column : report.widened) text += "note: " + widened_text(column) + "\n";
  for (const std::string& line : warnings(report, request.like)) text += "warning: " + line + "\n";
  if (dataset.rejected_rows > 0) {
    text += fmt::format("{} rows were rejected; all of them are in {}/{}, the first:\n",
                        with_commas(dataset.rejected_rows), output, kRejectsName);
    for (const RejectedRow& row : report.first_rejects) {
      text += fmt::format("  {} line {}: {}: {}\n", row.file, row.line, row.reason, row.text);
    }
  }
  return text;
}

Json report_json(const PackReport& report, const std::string& like) {
  const Dataset& dataset = report.dataset;
  Json json{{"rows", dataset.rows},          {"rejected", dataset.rejected_rows},
            {"bytes_in", report.text_bytes}, {"file_bytes", report.file_bytes},
            {"seconds", report.seconds},     {"peak_rss_bytes", peak_rss_bytes()},
            {"passes", report.passes},       {"shards", dataset.shards.size()}};
  json["columns"] = Json::array();
  for (const Column& column : dataset.columns) json["columns"].push_back(column_json(column));
  json["left_out"] = dataset.left_out;
  if (!like.empty()) {
    json["absent"] = report.absent;
    json["unseen"] = Json::object();
    for (const UnseenCategories& column : report.unseen) json["unseen"][column.name] = column.cells;
  }
  json["warnings"] = Json::array();
  for (const WidenedColumn& column : report.widened) json["warnings"].push_back(widened_text(column));
  for (const std::string& line : warnings(report, like)) json["warnings"].push_back(line);
  return json;
}

void print_beginning(const Sniff& sniff, const PackRequest& request) {
  const std::string& file = request.files.front();
  if (request.like.empty()) {
    fmt::print(stderr, "{}", sniff_table(sniff, file));
  } else {
    fmt::print(stderr, "{}: {} between fields; columns, types and categories are those of {}\n", file,
               delimiter_name(sniff.dialect.delimiter), request.like);
  }
}

PackOptions options_of(const PackRequest& request) {
  if (request.output.empty()) {
    fail_usage("--output is missing: where shall the dataset be?{}",
               request.text ? "" : " (--sniff needs none)");
  }
  PackOptions options;
  options.files.assign(request.files.begin(), request.files.end());
  options.output = request.output;
  options.overwrite = request.overwrite;
  options.threads = std::min(kMostThreads, request.threads > 0 ? request.threads : usable_cores());
  return options;
}

template <typename Work>
void pack_and_report(const PackRequest& request, const Work& work) {
  const InterruptGuard guard;
  PackReport report;
  {
    Progress progress(request.quiet);
    report = work([&](const PackProgress& at) {
      if (!progress.due()) return;
      progress.update(
          fmt::format("packing{}: {} rows, {:.0f} MB/s", at.pass > 1 ? ", once more with wider types" : "",
                      with_commas(at.rows), rate(at.text_bytes, at.pass_seconds)),
          static_cast<double>(at.file_bytes_done), static_cast<double>(at.file_bytes));
    });
  }
  if (!request.quiet) fmt::print(stderr, "\n{}", summary(report, request));
  if (request.json) print_json(report_json(report, request.like));
}

void run_pack_text(const PackRequest& request) {
  const auto refuse_if = [](bool given, const char* option) {
    if (given)
      fail_usage("{} is for tables, and --text packs bytes as they are; leave one of them out", option);
  };
  refuse_if(request.sniff, "--sniff");
  refuse_if(!request.like.empty(), "--like");
  refuse_if(request.threads > 0, "--threads");
  const PackOptions options = options_of(request);
  pack_and_report(request, [&](const auto& progress) { return pack_text(options, progress); });
}

void run_pack(const PackRequest& request) {
  if (request.text) return run_pack_text(request);
  std::optional<Dataset> like;
  if (!request.like.empty()) like = open_dataset(request.like);
  const Sniff sniff = sniff_csv(request.files.front());
  if (request.sniff) {
    if (request.json)
      print_json(sniff_json(sniff));
    else
      fmt::print("{}", sniff_table(sniff, request.files.front()));
    return;
  }
  PackOptions options = options_of(request);
  options.like = std::move(like);
  if (!request.quiet) print_beginning(sniff, request);
  pack_and_report(request, [&](const auto& progress) { return pack(options, sniff, progress); });
}

}  // namespace

void add_pack(CLI::App& app) {
  auto* const command =
      app.add_subcommand("pack", "Turn CSV files, or text, into a dataset that training reads fast");
  const auto request = std::make_shared<PackRequest>();
  command
      ->add_option(
          "files", request->files,
          "CSV files with a header: plain, .gz, .zst or .zip; all of one kind. With --text any files")
      ->required()
      ->type_name("FILE");
  command->add_option("-o,--output", request->output, "The dataset: a folder that doesn't exist yet")
      ->type_name("DATASET");
  command->add_flag("--text", request->text, "Take the files as text: a row is a byte, a file a series");
  command->add_flag("--overwrite", request->overwrite, "Replace the dataset that is there");
  command
      ->add_option("--like", request->like,
                   "Take columns, types and categories from this dataset, so that a model trained on it can "
                   "predict the rows")
      ->check([](const std::string& like) { return like.empty() ? "--like is empty" : ""; })
      ->type_name("DATASET");
  command->add_option("--threads", request->threads, "Threads (default: all usable cores)")
      ->check(CLI::Range(1, 4096));
  command->add_flag("--sniff", request->sniff, "Only print how the file would be read")->excludes("--like");
  command->add_flag("--json", request->json,
                    "Print one JSON object on standard output, and nothing else there");
  command->add_flag("--quiet", request->quiet, "No progress and no summary");
  command->footer(
      "Example: troika pack flights.csv.zip -o flights\n"
      "         troika pack new.csv -o new --like flights\n"
      "         troika pack --text README.md -o readme");
  command->callback([request] { run_pack(*request); });
}

}  // namespace troika
