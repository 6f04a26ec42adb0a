#include "troika/train/run_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <span>

#include "troika/base/error.h"
#include "troika/train/tensorboard.h"

namespace troika {
namespace {

namespace fs = std::filesystem;

constexpr std::array kRunFiles = {"recipe.toml",      "features.json",    "run.jsonl",
                                  "last.safetensors", "best.safetensors", "model.safetensors"};
constexpr const char* kLock = "lock";

bool is_temporary(const Path& file) { return file.extension() == ".tmp"; }

bool is_run_file(const Path& file) {
  const std::string name = file.filename().string();
  return std::ranges::count(kRunFiles, name) > 0 || is_events_file(name);
}

bool holds_run(const Path& folder) {
  const fs::directory_iterator entries(folder);
  return std::ranges::any_of(entries,
                             [](const fs::directory_entry& entry) { return is_run_file(entry.path()); });
}

}  // namespace

RunDir::RunDir(Path folder, Mode mode) : folder_(std::move(folder)) {
  if (folder_.filename().empty()) folder_ = folder_.parent_path();  // "runs/a/" means "runs/a"
  const std::string name = folder_.string();
  if (fs::exists(folder_) && !fs::is_directory(folder_)) fail_usage("run directory {}: it is a file", name);
  if (!fs::exists(folder_)) {
    if (mode == Mode::resume) fail_usage("nothing to resume: there is no run in {}", name);
    try {
      created_.emplace(folder_);
    } catch (const Error& error) {
      fail("run directory {}: {}; choose another one with --run-dir", name, error.what());
    }
  }
  std::error_code ignored;
  try {
    const bool locked = fs::exists(folder_ / kLock);  // by a run that was killed, or one that is alive
    lock();
    const bool there = holds_run(folder_);
    if (mode == Mode::fresh && there) {
      fail_usage(
          "{} holds a run already; go on with it by --resume, replace it by --overwrite, or choose another "
          "--run-dir",
          name);
    }
    if (mode == Mode::resume && !there && !locked) {
      fail_usage("nothing to resume: there is no run in {}", name);
    }
    if (mode == Mode::overwrite) {
      for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
        const std::string file = entry.path().filename().string();
        if (file == kLock || is_temporary(entry.path()) || is_run_file(entry.path())) continue;
        if (!there) {
          fail_usage(
              "{} is no run directory: it holds {}; --overwrite replaces runs only. Choose another --run-dir",
              name, file);
        }
      }
      remove_run_files();
    }
    if (mode == Mode::resume) remove_temporaries();  // of a run that was killed while it wrote
    fresh_ = mode != Mode::resume || !there;
    const int log = ::open(this->log().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log < 0) fail("can't write {}: {}", this->log().string(), system_message(errno));
    log_file_ = FileHandle(log);
  } catch (...) {
    if (lock_) fs::remove(folder_ / kLock, ignored);
    if (created_) created_->remove();
    throw;
  }
}

RunDir::~RunDir() {
  std::error_code ignored;
  if (!kept_ && fresh_) {
    log_file_.close();
    remove_run_files();
  }
  // The name goes while the lock is still held; whoever opened the old file finds it unlinked and tries
  // again.
  fs::remove(folder_ / kLock, ignored);
  if (!kept_ && created_) created_->remove();
}

void RunDir::lock() {
  const Path path = folder_ / kLock;
  while (true) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0) {
      fail(
          "can't write to the run directory {}: {}; check the permissions, or choose another one with "
          "--run-dir",
          folder_.string(), system_message(errno));
    }
    FileHandle file(descriptor);
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      char owner[32] = {};
      const bool known = ::pread(file.get(), owner, sizeof owner - 1, 0) > 0;
      fail("another run ({}) is using {}; wait for it, stop it, or choose another --run-dir",
           known ? fmt::format("process {}", owner) : "of unknown process", folder_.string());
    }
    std::error_code error;
    if (!fs::equivalent(path, Path(fmt::format("/proc/self/fd/{}", file.get())), error)) continue;
    const std::string own = std::to_string(::getpid());
    if (::ftruncate(file.get(), 0) != 0 || ::pwrite(file.get(), own.data(), own.size(), 0) < 0) {
      const int reason = errno;
      ::unlink(path.c_str());  // else it would look like a run that was killed
      fail("can't write {}: {}; free some space, or choose another one with --run-dir", path.string(),
           system_message(reason));
    }
    lock_ = std::move(file);
    return;
  }
}

void RunDir::remove_temporaries() {
  std::error_code ignored;
  std::vector<Path> found;  // first listed, then removed: a folder isn't changed while it is walked through
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, ignored)) {
    if (is_temporary(entry.path())) found.push_back(entry.path());
  }
  for (const Path& file : found) fs::remove(file, ignored);
}

void RunDir::remove_run_files() {
  remove_temporaries();
  std::error_code ignored;
  std::vector<Path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, ignored)) {
    if (is_run_file(entry.path())) found.push_back(entry.path());
  }
  for (const Path& file : found) fs::remove(file, ignored);
}

void RunDir::append(const std::string& line) {
  const std::string whole = line + "\n";  // one write: a line is there or not
  write_all(log_file_, std::as_bytes(std::span(whole)), log());
}

void RunDir::sync_log() { sync_file(log_file_, log()); }

void RunDir::truncate_log(int64_t step) {
  const std::string text = read_text(log());
  size_t keep = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', keep)) {
    const auto line = nlohmann::json::parse(text.substr(keep, end - keep), nullptr, false);
    if (!line.is_object() || !line.contains("step") || line["step"] > step) break;
    keep = end + 1;
  }
  if (::ftruncate(log_file_.get(), static_cast<off_t>(keep)) != 0) {
    fail("can't shorten {}: {}", log().string(), system_message(errno));
  }
  truncate_events(folder_, step);
}

void RunDir::mark_best() {
  const Path temporary = folder_ / fmt::format("best.{}.tmp", ::getpid());
  std::error_code error;
  fs::remove(temporary, error);
  fs::create_hard_link(last(), temporary, error);
  if (error) fs::copy_file(last(), temporary, error);  // a file system without links
  if (!error) fs::rename(temporary, best(), error);
  // Also after a rename that went well: of two links to one file it does nothing, and the name stays.
  std::error_code ignored;
  fs::remove(temporary, ignored);
  if (error) {
    fail("can't create {}: {}", best().string(), error.message());
  }
}

Path judged_checkpoint(const Path& run_dir) {
  for (const char* name : {"best.safetensors", "last.safetensors"}) {
    if (fs::exists(run_dir / name)) return run_dir / name;
  }
  return {};
}

}  // namespace troika
