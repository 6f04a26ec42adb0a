// A run's directory: recipe.toml as used, features.json, run.jsonl, TensorBoard's events, last.safetensors,
// best.safetensors and model.safetensors. One run at a time: a lock that ends with the process. Belongs to
// one thread.
#pragma once

#include <optional>
#include <string>

#include "troika/base/file.h"

namespace troika {

class RunDir {
 public:
  enum class Mode { fresh, overwrite, resume };

  /// fresh: throws UsageError if a run is there already. overwrite: removes the files of the run that is
  /// there, and refuses a folder that holds something else. resume: throws UsageError if no run is there; one
  /// that was killed before it wrote anything, so that only its lock is there, begins. All: throws Error
  /// naming the process that is using it, and if the folder can't be written to.
  RunDir(Path folder, Mode mode);
  RunDir(const RunDir&) = delete;
  RunDir& operator=(const RunDir&) = delete;
  /// Removes what it created, unless keep() was called.
  ~RunDir();

  /// There is a checkpoint to go on from: what is written stays from now on.
  void keep() { kept_ = true; }

  const Path& folder() const { return folder_; }
  Path recipe() const { return folder_ / "recipe.toml"; }
  Path features() const { return folder_ / "features.json"; }
  Path log() const { return folder_ / "run.jsonl"; }
  Path last() const { return folder_ / "last.safetensors"; }
  Path best() const { return folder_ / "best.safetensors"; }
  Path model() const { return folder_ / "model.safetensors"; }

  /// Appends one line to run.jsonl.
  void append(const std::string& line);
  /// Puts run.jsonl on disk.
  void sync_log();
  /// Removes the lines of run.jsonl and the events after `step`, and a last one that was cut short.
  void truncate_log(int64_t step);
  /// Makes best.safetensors the same file as last.safetensors is now.
  void mark_best();

 private:
  void lock();
  void remove_temporaries();
  void remove_run_files();

  Path folder_;
  std::optional<CreatedFolders> created_;  // empty if the folder was there
  bool fresh_ = true;                      // there is no earlier run to spare
  bool kept_ = false;
  FileHandle lock_;
  FileHandle log_file_;
};

/// The checkpoint that a run is judged by: best.safetensors, else last.safetensors; "" if neither is there.
Path judged_checkpoint(const Path& run_dir);

}  // namespace troika
