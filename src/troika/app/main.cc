// The command: reads the command line, runs one subcommand, turns failures into messages and exit statuses
// (0 good, 1 the run or check failed, 2 wrong usage).
#include <cerrno>
#include <cstdio>

#include "troika/app/commands.h"
#include "troika/base/error.h"
#include "troika/base/text.h"

namespace troika {
namespace {

constexpr int kFailed = 1, kWrongUsage = 2;

std::vector<std::string> names_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// The subcommand that was being read when the command line turned out wrong.
const CLI::App& innermost(const CLI::App& app) {
  for (const CLI::App* command : app.get_subcommands()) return innermost(*command);
  return app;
}

// "troika schedule draw".
std::string path_of(const CLI::App& command) {
  if (command.get_parent() == nullptr) return "troika";
  return path_of(*command.get_parent()) + " " + command.get_name();
}

// Never throws: standard error may be closed or full, and the exit status still says what happened.
void complain(const std::string& message) { std::fputs(("troika: " + message + "\n").c_str(), stderr); }

// What was printed has arrived; `status` if so.
int flushed(int status) {
  if (std::fflush(stdout) == 0) return status;
  complain(fmt::format("can't write the output: {}", system_message(errno)));
  return kFailed;
}

int wrong_usage(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = innermost(app);
  std::string message = error.what();
  if (const auto extras = command.remaining(); !extras.empty()) {
    const std::string word = extras.front().substr(0, extras.front().find('='));
    message =
        fmt::format("\"{}\" is not known here{}", extras.front(), did_you_mean(word, names_of(command)));
  }
  complain(fmt::format("{}\nRun \"{} --help\" for what there is.", message, path_of(command)));
  return kWrongUsage;
}

int run(int argc, char** argv) {
  CLI::App app(
      "Troika trains neural networks in parallel, proves the result equal to the serial one,\n"
      "and says why a training run is slow.",
      "troika");
  app.set_version_flag("--version", std::string("troika ") + TROIKA_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Example: troika pack flights.csv.zip -o flights && troika train recipe.toml --ranks 2\n"
      "Every command has --help with an example.");
  add_pack(app);
  add_data(app);
  add_train(app);
  add_verify(app);
  add_predict(app);
  add_demo(app);
  add_schedule(app);
  if (argc == 1) {
    fmt::print("{}", app.help());
    return kWrongUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {
    return flushed(app.exit(done));  // --help, --version
  } catch (const CLI::ParseError& error) {
    return wrong_usage(app, error);
  } catch (const ExitStatus& exit) {
    return exit.status;
  } catch (const UsageError& error) {
    complain(error.what());
    return kWrongUsage;
  } catch (const std::bad_alloc&) {
    complain("out of memory");
    return kFailed;
  } catch (const std::exception& error) {
    complain(error.what());
    return kFailed;
  }
  return flushed(0);
}

}  // namespace
}  // namespace troika

int main(int argc, char** argv) { return troika::run(argc, argv); }
