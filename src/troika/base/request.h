// What a command was asked to do, as plain values: `app` reads the command line into them without torch,
// `app_train` performs them through troika_train, troika_verify, troika_predict and troika_demo (extern "C",
// take a request, return the exit status, never throw). Values; thread-safe as such.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace troika {

/// Settings that `train` and `verify` share; each overrides the recipe's key of the same meaning.
struct RecipeRequest {
  std::string recipe;                  // path of the TOML file
  std::vector<std::string> settings;   // "key=value" with value a TOML literal
  std::optional<int> ranks;            // absent: the recipe's, else auto
  std::optional<std::string> mesh;     // "data=2,pipeline=1,tensor=1"
  std::optional<std::string> weights;  // "shared" | "replicated"
  std::optional<int> micro_batches;
  std::optional<std::string> schedule;  // of the catalogue, or a file
  std::optional<double> deadline;       // seconds
  bool json = false;
  bool quiet = false;
};

struct TrainRequest : RecipeRequest {
  std::string run_dir;  // "": runs/<recipe's folder or file name>
  bool resume = false;
  bool overwrite = false;  // replace an existing run directory
  std::string trace;       // write one step's timeline here (.svg), "" for none
};

struct VerifyRequest : RecipeRequest {
  int steps = 3;
  std::string precision = "float64";
};

struct PredictRequest {
  std::string run;     // a run directory
  std::string data;    // a dataset's folder
  std::string output;  // the CSV to write
  std::string part =
      "all";  // "all" | "train" | "validation" | "test": which rows, as the run's recipe splits them
  bool overwrite = false;  // replace the output
  bool json = false;
  bool quiet = false;
};

struct DemoRequest {
  std::string recipe;
  std::string csv;           // packed to the recipe's data path
  std::string guess;         // a column that is an obvious guess of the target, "" for none
  std::string output;        // folder for runs and the picture
  std::optional<int> ranks;  // absent: all usable cores
  bool json = false;
};

}  // namespace troika
