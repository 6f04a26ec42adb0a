// The subcommands. Each add_* registers one with its options; the work is done in its callback, which throws
// troika::Error on failure. Torch-free: those that need torch hand a request to the plug-in (plugin.h).
#pragma once

#include <CLI/CLI.hpp>

namespace troika {

void add_pack(CLI::App& app);
void add_data(CLI::App& app);
void add_train(CLI::App& app);
void add_verify(CLI::App& app);
void add_predict(CLI::App& app);
void add_demo(CLI::App& app);
void add_schedule(CLI::App& app);

/// Thrown by a callback whose command has already said all there is to say; carries the exit status.
struct ExitStatus {
  int status;
};

}  // namespace troika
